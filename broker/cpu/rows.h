#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * CPU kernels along rows: their arguments
 *
 * Reductions, selections, scans, normalisations, rotary embedding and attention. A part of
 * kernels.h, which says what holds for every kernel.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/map.h"
#include "shm/number.h"

struct cpu_pause;

enum { CPU_MAX_DIMS = 8 };

/* columns of one unit where neighbouring columns are computed together */
enum { CPU_COLUMN_BLOCK = 64 };

/*
 * Softmax, LogSoftmax and TopK: element i of a column is x[(outer * len + i) * inner + its inner
 * index].
 */
struct cpu_softmax {
	const void *x;
	void *y; /* may be x */
	size_t outer, len, inner;
	struct cpu_pause *pause;
	bool log;
	/* CPU_F32 or CPU_F64, as in every struct below that names no other types */
	enum cpu_type type;
};

enum cpu_reduce_kind {
	CPU_REDUCE_SUM,
	CPU_REDUCE_MEAN,
	CPU_REDUCE_SUM_SQUARE,
	CPU_REDUCE_L1,
	CPU_REDUCE_L2,
	CPU_REDUCE_LOG_SUM,
	CPU_REDUCE_LOG_SUM_EXP,
	CPU_REDUCE_PROD,
	CPU_REDUCE_MAX,
	CPU_REDUCE_MIN,
};

/*
 * Reductions over some dimensions. The kept dimensions enumerate the output's elements; each
 * element reduces the elements along the reduced dimensions. Adjacent dimensions are merged and
 * dimensions of 1 dropped, so at most one of the two innermost strides is 1; inner_kept tells
 * whether it is the kept one. A NaN operand makes the result a NaN. Over no elements, a sum is 0, a
 * product 1, a mean a NaN, a maximum the least number of the type and a minimum the greatest.
 * Integers support only Sum, Prod, Max and Min, and wrap around.
 */
struct cpu_reduce {
	const void *x;
	void *y;
	unsigned int n_kept, n_reduced;
	size_t kept[CPU_MAX_DIMS], kept_stride[CPU_MAX_DIMS];
	size_t reduced[CPU_MAX_DIMS], reduced_stride[CPU_MAX_DIMS];
	bool inner_kept;
	enum cpu_reduce_kind kind;
	enum cpu_type type;
	struct cpu_pause *pause;
};

/*
 * ArgMax and ArgMin over columns as in struct cpu_softmax. The result is the index of the first
 * extreme value or, with @last, of the last one. A NaN wins against every number.
 */
struct cpu_arg {
	const void *x;
	int64_t *y; /* [outer][inner] */
	size_t outer, len, inner;
	bool smallest, last;
	enum cpu_type type;
	struct cpu_pause *pause;
};

/*
 * CumSum over columns as in struct cpu_softmax; y must not be x. Types: F32, F64, I32 and I64;
 * integers wrap around.
 */
struct cpu_scan {
	const void *x;
	void *y;
	size_t outer, len, inner;
	bool exclusive, reverse;
	enum cpu_type type;
	struct cpu_pause *pause;
};

/*
 * LayerNormalization and related operators: each row of @len adjacent elements is normalised to
 * mean 0 and variance 1 (with @rms, only to a mean square of 1), then scaled and shifted. With
 * @scale_each, the scale of element i of row r is scale[r % period * len + i]. Without it, @run
 * elements share one scale, which is scale[r % period * (len / run) + i / run]. The bias is indexed
 * likewise.
 */
struct cpu_norm {
	const void *x;
	void *y;           /* may be x */
	const void *scale; /* NULL: 1 */
	const void *bias;  /* NULL: 0 */
	float *mean;       /* [rows], NULL: not wanted */
	float *inv_std;    /* [rows] */
	size_t rows, len, run, period;
	bool scale_each, bias_each;
	float epsilon;
	bool rms;
	enum cpu_type type; /* of all but mean and inv_std */
	struct cpu_pause *pause;
};

/* BatchNormalization: [batch][channels][run], parameters by channel. */
struct cpu_batch_norm {
	const void *x;
	void *y; /* may be x */
	const void *scale, *bias, *mean, *var;
	size_t batch, channels, run;
	float epsilon;
	enum cpu_type type;
	struct cpu_pause *pause;
};

/* LpNormalization over columns as in struct cpu_softmax; a column of zeros stays zero. */
struct cpu_lp_norm {
	const void *x;
	void *y; /* may be x */
	size_t outer, len, inner;
	bool l1; /* else L2 */
	enum cpu_type type;
	struct cpu_pause *pause;
};

/*
 * RotaryEmbedding: the first @rotary elements of every head are rotated, the others copied. A
 * position outside the caches is clamped to the nearest position inside.
 */
struct cpu_rotary {
	const float *x;
	float *y;
	const float *cos, *sin; /* [positions][rotary / 2]; without positions, [batch * seq] rows */
	const int64_t *positions; /* [batch][seq], NULL: none */
	size_t n_positions;       /* rows of the caches */
	size_t batch, seq, heads, head, rotary;
	size_t batch_stride, seq_stride, head_stride; /* of x and y */
	bool interleaved;
	struct cpu_pause *pause;
};

enum cpu_attention_qk {
	CPU_QK_SCALED,
	CPU_QK_CAPPED,
	CPU_QK_MASKED,
	CPU_QK_SOFTMAX,
};

/*
 * Attention. Query head h attends to the keys of head h / (q_heads / kv_heads): first past_len keys
 * of past_k, which is [batch][kv_heads][past_len][head], then kv_len keys of k. Values are laid out
 * likewise.
 *
 * Key j counts for query i if all of these hold:
 * - j < mask_cols, and the mask admits it (true; or a number, which is added to the score);
 * - j < valid of the batch;
 * - with @causal, j <= i + offset. With valid and without past keys, offset is the batch's valid -
 * q_len, so that the last query sees all valid keys. Otherwise offset is past_len: the first query
 * sees the past keys and one more.
 *
 * Keys that do not count contribute nothing, whatever they hold; if no key counts, the result is 0.
 */
struct cpu_attention {
	const float *q, *k, *v;
	const float *past_k, *past_v;
	float *y;
	float *qk; /* [batch][q_heads][q_len][past_len + kv_len], NULL: not wanted */
	size_t batch, q_heads, kv_heads, q_len, kv_len, past_len, head, v_head;
	size_t q_batch, q_head, q_row; /* strides; y's are between heads of v_head */
	size_t k_batch, k_head, k_row;
	size_t v_batch, v_head_stride, v_row;
	size_t y_batch, y_head, y_row;
	const void *mask; /* bytes (mask_is_bool) or floats; NULL: none */
	bool mask_is_bool;
	size_t mask_batch, mask_head, mask_row; /* strides, 0 where broadcast */
	size_t mask_cols;
	const int64_t *valid; /* [batch], NULL: all */
	bool causal;
	float scale;
	float softcap; /* 0: none */
	enum cpu_attention_qk qk_mode;
	struct cpu_pause *pause;
};

/* Rows of queries that one unit of attention computes. */
enum { CPU_ATTENTION_ROWS = 48 };

static inline size_t cpu_column_units(size_t outer, size_t inner)
{
	return outer * div_up(inner, CPU_COLUMN_BLOCK);
}

static inline size_t cpu_softmax_units(const struct cpu_softmax *args)
{
	return cpu_column_units(args->outer, args->inner);
}

static inline size_t cpu_reduce_units(const struct cpu_reduce *args)
{
	size_t units = 1;

	for (unsigned int i = 0; i < args->n_kept; i++) {
		if (args->inner_kept && i + 1 == args->n_kept)
			units *= div_up(args->kept[i], CPU_COLUMN_BLOCK);
		else
			units *= args->kept[i];
	}
	return units;
}

/* Without runs (run 1), a unit is a row of channels; otherwise it is one run. */
static inline size_t cpu_batch_norm_units(const struct cpu_batch_norm *args)
{
	return args->run == 1 ? args->batch : args->batch * args->channels;
}

static inline size_t cpu_rotary_units(const struct cpu_rotary *args)
{
	return args->batch * args->seq;
}

/*
 * Return true if the queries of all heads that share keys lie in memory like the queries of one
 * head.
 */
static inline bool cpu_attention_merges(const struct cpu_attention *args)
{
	return args->q_len == 1 || (args->q_head == args->q_len * args->q_row &&
				    args->y_head == args->q_len * args->y_row);
}

/* Queries that share keys and are computed together; cpu_attention_blocks() counts their blocks. */
static inline size_t cpu_attention_rows(const struct cpu_attention *args)
{
	return cpu_attention_merges(args) ? args->q_heads / args->kv_heads * args->q_len
					  : args->q_len;
}

static inline size_t cpu_attention_blocks(const struct cpu_attention *args)
{
	return div_up(cpu_attention_rows(args), CPU_ATTENTION_ROWS);
}

static inline size_t cpu_attention_units(const struct cpu_attention *args)
{
	return args->batch * (cpu_attention_merges(args) ? args->kv_heads : args->q_heads) *
	       cpu_attention_blocks(args);
}

/* clang-format off */
#define CPU_ROWS_KERNELS(KERNEL, TABLE, ROUTINE) \
	/* \
	 * ONNX Softmax, LogSoftmax. Units: cpu_softmax_units(). A column with a NaN or +inf gives \
	 * NaN. \
	 */ \
	KERNEL(void, softmax, (const struct cpu_softmax *args, size_t begin, size_t end)) \
	/* ONNX TopK. Units: columns, outer * inner. */ \
	KERNEL(void, top_k, (const struct cpu_top_k *args, size_t begin, size_t end)) \
	/* ONNX ReduceSum and the other reductions. Units: cpu_reduce_units(). */ \
	KERNEL(void, reduce, (const struct cpu_reduce *args, size_t begin, size_t end)) \
	/* ONNX ArgMax, ArgMin. Units: cpu_column_units(). */ \
	KERNEL(void, arg, (const struct cpu_arg *args, size_t begin, size_t end)) \
	/* ONNX CumSum. Units: cpu_column_units(). */ \
	KERNEL(void, scan, (const struct cpu_scan *args, size_t begin, size_t end)) \
	/* ONNX Layer-, RMS-, Instance-, GroupNormalization. Units: rows. */ \
	KERNEL(void, norm, (const struct cpu_norm *args, size_t begin, size_t end)) \
	/* ONNX BatchNormalization. Units: cpu_batch_norm_units(). */ \
	KERNEL(void, batch_norm, (const struct cpu_batch_norm *args, size_t begin, \
	       size_t end)) \
	/* ONNX LpNormalization. Units: cpu_column_units(). */ \
	KERNEL(void, lp_norm, (const struct cpu_lp_norm *args, size_t begin, size_t end)) \
	/* ONNX RotaryEmbedding. Units: cpu_rotary_units(). */ \
	KERNEL(void, rotary, (const struct cpu_rotary *args, size_t begin, size_t end)) \
	/* ONNX Attention. Units: cpu_attention_units(). */ \
	KERNEL(void, attention, (const struct cpu_attention *args, size_t begin, \
	       size_t end, void *workspace))
/* clang-format on */
