#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * CPU kernels
 *
 * Functions over arrays, mostly of float32, one build of each per SIMD level. No kernel allocates,
 * locks, starts a thread or keeps state; every one computes the part [begin, end) of its units, and
 * the result does not depend on how the units are split. AVX2 and AVX-512 give the same bits (save
 * those of a NaN); SSE2 and the generic build round the products of sums separately.
 *
 * Any thread may call any kernel. Kernels judge denormals as the calling thread's control register
 * says: see cpu_flush_denormals(). Sizes are counts of floats; strides, too. Pointers must be
 * aligned to a float, outputs must not overlap inputs unless said.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/gather.h"
#include "cpu/map.h"
#include "cpu/move.h"
#include "cpu/rows.h"

enum cpu_simd {
	CPU_SIMD_AUTO = 0, /* the best that the processor has */
	CPU_SIMD_SSE2,     /* the generic build where the processor is no x86 */
	CPU_SIMD_AVX2,     /* with FMA and F16C */
	CPU_SIMD_AVX512,   /* F, BW, DQ, VL */
	CPU_SIMD_COUNT,
};

enum {
	/* Depth of one block of a matrix product: part of its rounding, so equal at all levels. */
	CPU_GEMM_KC = 384,
	CPU_GEMM_F64_KC = 256, /* likewise of float64 */
	/* What a kernel may need beside its operands; each calling thread brings its own. */
	CPU_WORKSPACE_BYTES = 1 << 20,
	CPU_WORKSPACE_ALIGN = 64,
};

/*
 * Lets others in between: kernels whose units can take long look about every hundred microseconds
 * whether something urgent waits or the task was cancelled, and if so have that seen to, on
 * their own stack. Of their workspace and their operands nothing is touched meanwhile. The call
 * does not return where the task was cancelled: so a kernel holds nothing that it must give back.
 */
struct cpu_pause {
	const _Atomic uint32_t *n_waiting;
	const _Atomic uint8_t *state; /* of the task: enum exec_state */
	uint8_t leave;                /* the state in which the kernel is left */
	void (*serve)(struct cpu_pause *pause);
};

/* Elements after which a loop over them looks. */
enum { CPU_PAUSE_ELEMS = 1 << 16 };

static inline void cpu_pause(struct cpu_pause *pause)
{
	/* Only a hint: serve() synchronizes with whoever waits. */
	if (pause &&
	    __builtin_expect(atomic_load_explicit(pause->n_waiting, memory_order_relaxed) != 0 ||
				     atomic_load_explicit(pause->state, memory_order_relaxed) ==
					     pause->leave,
			     0))
		pause->serve(pause);
}

/* In a loop whose index @i passes multiples of @every, a power of two. */
static inline void cpu_pause_at(struct cpu_pause *pause, size_t i, size_t every)
{
	if (__builtin_expect((i & (every - 1)) == 0, 0))
		cpu_pause(pause);
}

/* What becomes of each element of a result while it is at hand: an operator of one operand. */
struct cpu_activation {
	cpu_map_fn *kernel;
	float f[2]; /* as struct cpu_map has them */
};

/* In place, @n elements; NULL: nothing. */
static inline void cpu_activate(const struct cpu_activation *activation, float *y, size_t n)
{
	if (activation)
		activation->kernel(&(struct cpu_map){.in = {y},
						     .out = y,
						     .step = {1},
						     .f = {activation->f[0], activation->f[1]}},
				   n);
}

/*
 * A matrix product, y[m][n] = alpha * sum over k of a[m][k] * b[k][n] + beta * c[m][n].
 * The sum is a chain of fused multiply-adds over each block of CPU_GEMM_KC terms; the blocks are
 * added in order. So packed, unpacked, every split of m and n, and of k between two blocks, the
 * later ones with accumulate, give the same bits.
 */
struct cpu_gemm {
	size_t m, n, k;
	const float *a;
	size_t a_rs, a_cs; /* strides of a row and a column */
	const float *b;    /* not read where b_packed is given */
	size_t b_rs, b_cs;
	const float *b_packed; /* from pack_b() of the same level, or NULL */
	float *y;
	size_t y_rs;       /* columns are adjacent */
	const float *c;    /* NULL: none */
	size_t c_rs, c_cs; /* 0 where broadcast */
	float alpha, beta; /* 1 and 0 for a plain product */
	bool accumulate;   /* add the products to what y is, before alpha and c */
	/* The bias of all of the sum, here and below; NULL: none. */
	const struct cpu_activation *activation;
	struct cpu_pause *pause; /* NULL: none; here and below */
};

/* The same of float64, without what of it nobody asks for; columns of y are adjacent, rows, too. */
struct cpu_gemm_f64 {
	size_t m, n, k;
	const double *a;
	size_t a_rs, a_cs;
	const double *b;
	size_t b_rs, b_cs;
	double *y;
	const double *c; /* NULL: none */
	size_t c_rs, c_cs;
	double alpha, beta;
	bool accumulate; /* as above */
	struct cpu_pause *pause;
};

/*
 * Weights of four bits: column n has blocks of @block terms, the last one padded, term 2 i in the
 * low half of byte i; each block a scale and a zero point, two of which share a byte if they are no
 * floats. A weight is (four bits - zero point) * scale.
 */
struct cpu_nbits_weights {
	size_t k, n;
	size_t block;             /* terms: a multiple of 8 */
	const uint8_t *b;         /* [n][blocks][block / 2] */
	const float *scales;      /* [n][blocks] */
	const uint8_t *zeros;     /* [n][(blocks + 1) / 2] or NULL: 8 */
	const float *zeros_float; /* [n][blocks] instead, or NULL */
	struct cpu_pause *pause;  /* NULL: none */
};

/* Columns [j, j + n) of it. */
static inline struct cpu_nbits_weights cpu_nbits_columns(const struct cpu_nbits_weights *weights,
							 size_t j, size_t n)
{
	const size_t n_blocks = (weights->k + weights->block - 1) / weights->block;
	struct cpu_nbits_weights part = *weights;

	part.n = n;
	part.b += j * n_blocks * (weights->block / 2);
	part.scales += j * n_blocks;
	if (part.zeros_float)
		part.zeros_float += j * n_blocks;
	else if (part.zeros)
		part.zeros += j * ((n_blocks + 1) / 2);
	return part;
}

/* y[m][n] = sum over k of a[m][k] * weight[k][n] + bias[n], in the order of struct cpu_gemm. */
struct cpu_nbits {
	size_t m, n, k, block;
	/* The terms that are added now: multiples of CPU_GEMM_KC, or k. From 0 on y is replaced. */
	size_t k_begin, k_end;
	const float *a;
	size_t a_rs;        /* columns are adjacent */
	const void *packed; /* from pack_nbits() of the same level */
	const float *bias;  /* NULL: none */
	float *y;
	size_t y_rs;
	struct cpu_pause *pause;
};

/* A tile of the result, all of the depth. n_begin is a multiple of gemm_nr. */
struct cpu_gemm_tile {
	size_t m_begin, m_end, n_begin, n_end;
};

/*
 * The k best of each column, best first; of equal values the one with the lower index. A NaN comes
 * after every number, whether the largest or the smallest are wanted.
 */
struct cpu_top_k {
	const float *x;
	float *values;    /* [outer][k][inner] */
	int64_t *indices; /* [outer][k][inner], 0..len - 1 */
	size_t outer, len, inner;
	size_t k; /* 1..len */
	bool largest;
	struct cpu_pause *pause;
};

/*
 * A sliding window over [batch][channels][depth][height][width]; see union op_params.window. Lists
 * are of depth, height and width.
 */
struct cpu_window {
	size_t batch, channels, depth, height, width;
	size_t out_channels, out_depth, out_height, out_width;
	size_t kernel[3], stride[3], dilation[3], pad_begin[3];
	size_t pad_end[3]; /* AveragePool, as is the next */
	bool includes_pad;
	uint32_t p; /* LpPool */
	size_t group;
	const float *x;
	const float *weights;        /* Conv: [out_channels][channels / group][kd][kh][kw] */
	const float *weights_packed; /* Conv: from pack_conv() of the same level, or NULL */
	const float *bias;           /* Conv: NULL: none */
	float *y;
	/*
	 * Conv where cpu_conv_is_product(): the terms of each sum that are added now,
	 * multiples of CPU_GEMM_KC, or the last; from 0 on y is replaced. k_end 0: all.
	 */
	size_t k_begin, k_end;
	const struct cpu_activation *activation; /* Conv, ConvTranspose */
	struct cpu_pause *pause;
};

/* The same of float64. */
struct cpu_window_f64 {
	struct cpu_window window;  /* extents, pause */
	const double *x, *weights; /* the latter of Conv and ConvTranspose */
	const double *bias;        /* of these, too; NULL: none */
	double *y;
};

/* MaxPool of any type, and where its maxima are. */
struct cpu_pool {
	struct cpu_window window; /* extents, pause */
	enum cpu_type type;       /* CPU_F32, CPU_F64, CPU_I8, CPU_U8 */
	const void *x;
	void *y;
	int64_t *indices;     /* into x as a whole; NULL: nobody asks */
	bool is_column_major; /* indices count pixels with the first dimension first */
};

/*
 * The kernels of a level. Each family lists its own: as KERNEL(result, name, (arguments)); as
 * TABLE(type, name, size) those of which there is one for each of some types; and as ROUTINE(name)
 * operators whose steps are run by the kernels' file itself, which keeps its kernels to itself.
 * struct cpu_kernels has them by name, level.h declares name of the level that is compiled, and
 * table.c collects these.
 */
/* clang-format off */
#define CPU_PRODUCT_KERNELS(KERNEL, TABLE, ROUTINE) \
	/* Floats of pack_b()'s result for a k by n matrix. */ \
	KERNEL(size_t, pack_b_size, (size_t k, size_t n)) \
	/* Rearranges b for gemm(). @to is aligned to 64 bytes. */ \
	KERNEL(void, pack_b, (size_t k, size_t n, const float *b, size_t b_rs, \
	       size_t b_cs, float *to)) \
	/* ONNX MatMul and Gemm, one matrix. */ \
	KERNEL(void, gemm, (const struct cpu_gemm *gemm, const struct cpu_gemm_tile *tile, \
	       void *workspace)) \
	/* Bytes of pack_nbits()'s result, which is aligned to 64. */ \
	KERNEL(size_t, pack_nbits_size, (size_t k, size_t n, size_t block)) \
	KERNEL(void, pack_nbits, (const struct cpu_nbits_weights *weights, void *to)) \
	/* MatMulNBits, one matrix. */ \
	KERNEL(void, nbits, (const struct cpu_nbits *args, \
	       const struct cpu_gemm_tile *tile, void *workspace)) \
	/* From float16 and to it, rounding to nearest even: n elements. */ \
	KERNEL(void, half_load, (size_t n, const uint16_t *x, float *y)) \
	KERNEL(void, half_store, (size_t n, const float *x, uint16_t *y))
/* clang-format on */

/* clang-format off */
#define CPU_WINDOW_KERNELS(KERNEL, TABLE, ROUTINE) \
	/* Floats of pack_conv()'s result. */ \
	KERNEL(size_t, pack_conv_size, (const struct cpu_window *args)) \
	/* \
	 * Packs units [begin, end) of the weights, of some hundred kilobytes at most, an @end \
	 * beyond the last is fine; @to is where all of them go. Return: how many units there are. \
	 */ \
	KERNEL(size_t, pack_conv, (const struct cpu_window *args, size_t begin, \
	       size_t end, float *to)) \
	/* ONNX Conv. Units: cpu_conv_units(). */ \
	KERNEL(void, conv, (const struct cpu_window *args, size_t begin, size_t end, \
	       void *workspace)) \
	/* ONNX ConvTranspose, with weights [channels][out_channels / group][kd][kh][kw], likewise. \
	 */ \
	KERNEL(size_t, pack_conv_transpose_size, (const struct cpu_window *args)) \
	KERNEL(size_t, pack_conv_transpose, (const struct cpu_window *args, size_t begin, \
	       size_t end, float *to)) \
	/* Units: cpu_conv_transpose_units(). */ \
	KERNEL(void, conv_transpose, (const struct cpu_window *args, size_t begin, \
	       size_t end, void *workspace)) \
	/* \
	 * ONNX MaxPool, AveragePool, LpPool; windows are clipped, an empty one gives -inf or 0. \
	 * Units: batch * channels. \
	 */ \
	KERNEL(void, max_pool, (const struct cpu_window *args, size_t begin, size_t end)) \
	KERNEL(void, average_pool, (const struct cpu_window *args, size_t begin, \
	       size_t end)) \
	KERNEL(void, lp_pool, (const struct cpu_window *args, size_t begin, size_t end)) \
	/* MaxPool likewise; an empty window has its channel's first index. */ \
	KERNEL(void, max_pool_any, (const struct cpu_pool *args, size_t begin, size_t end)) \
	/* \
	 * Conv, MaxPool and AveragePool of pictures whose channels come last, both those that are \
	 * read and those that are written: [batch][depth][height][width][channels]. Weights are \
	 * packed, depthwise ones, too; units: cpu_conv_last_units(), cpu_rows_last(). \
	 */ \
	KERNEL(size_t, pack_conv_last_size, (const struct cpu_window *args)) \
	KERNEL(size_t, pack_conv_last, (const struct cpu_window *args, size_t begin, \
	       size_t end, float *to)) \
	KERNEL(void, conv_last, (const struct cpu_window *args, size_t begin, size_t end, \
	       void *workspace)) \
	KERNEL(void, max_pool_last, (const struct cpu_window *args, size_t begin, \
	       size_t end)) \
	KERNEL(void, average_pool_last, (const struct cpu_window *args, size_t begin, \
	       size_t end))
/* clang-format on */

/* clang-format off */
#define CPU_DOUBLE_KERNELS(KERNEL, TABLE, ROUTINE) \
	/* The same operators of float64, in the order of ONNX. Units are theirs above, but: */ \
	KERNEL(void, gemm_f64, (const struct cpu_gemm_f64 *gemm, const struct \
	       cpu_gemm_tile *tile, void *workspace)) \
	KERNEL(void, conv_f64, (const struct cpu_window_f64 *args, size_t begin, \
	       size_t end, void *workspace)) \
	/* Units: batch * group * cpu_conv_transpose_f64_parts(). */ \
	KERNEL(void, conv_transpose_f64, (const struct cpu_window_f64 *args, size_t begin, \
	       size_t end, void *workspace)) \
	KERNEL(void, max_pool_f64, (const struct cpu_window_f64 *args, size_t begin, \
	       size_t end)) \
	KERNEL(void, average_pool_f64, (const struct cpu_window_f64 *args, size_t begin, \
	       size_t end)) \
	KERNEL(void, lp_pool_f64, (const struct cpu_window_f64 *args, size_t begin, \
	       size_t end))
/* clang-format on */

#define CPU_KERNELS(KERNEL, TABLE, ROUTINE)         \
	CPU_PRODUCT_KERNELS(KERNEL, TABLE, ROUTINE) \
	CPU_MAP_KERNELS(KERNEL, TABLE, ROUTINE)     \
	CPU_ROWS_KERNELS(KERNEL, TABLE, ROUTINE)    \
	CPU_MOVE_KERNELS(KERNEL, TABLE, ROUTINE)    \
	CPU_GATHER_KERNELS(KERNEL, TABLE, ROUTINE)  \
	CPU_WINDOW_KERNELS(KERNEL, TABLE, ROUTINE)  \
	CPU_DOUBLE_KERNELS(KERNEL, TABLE, ROUTINE)

#define CPU_KERNEL_MEMBER(result, name, arguments) result(*name) arguments;
#define CPU_TABLE_MEMBER(type, name, size)         type *const *name;
#define CPU_ROUTINE_MEMBER(name)                   const struct cpu_routine *name;

struct cpu_routine;

struct cpu_kernels {
	enum cpu_simd level;
	const char *name; /* "avx512" */
	size_t gemm_mr, gemm_nr;
	/* By type and operator; NULL where a type has none. See map.h. */
	cpu_map_fn *const *map[CPU_TYPE_COUNT];
	/* ONNX Cast, by source and destination. */
	cpu_map_fn *const (*cast)[CPU_TYPE_COUNT];
	CPU_KERNELS(CPU_KERNEL_MEMBER, CPU_TABLE_MEMBER, CPU_ROUTINE_MEMBER)
};

/*
 * A convolution's unit is a panel of CPU_CONV_PANEL output pixels or, where there are fewer than
 * CPU_CONV_ENOUGH panels, some of the out channels of one. That is fine enough for threads to end
 * at about the same time; units that follow each other are computed together, up to
 * CPU_CONV_PIXELS pixels that are fetched once for all out channels.
 */
enum {
	CPU_CONV_PANEL = 32,
	CPU_CONV_PIXELS = 6 * CPU_CONV_PANEL,
	CPU_CONV_CHANNELS = 96, /* of a unit, at least: each fetches its pixels for itself */
	CPU_CONV_PART_MAX = 12 * CPU_CONV_CHANNELS, /* likewise, at most */
	CPU_CONV_ENOUGH = 64,
};

/* Elements of one channel. */
static inline size_t cpu_window_in(const struct cpu_window *args)
{
	return args->depth * args->height * args->width;
}

static inline size_t cpu_window_out(const struct cpu_window *args)
{
	return args->out_depth * args->out_height * args->out_width;
}

/* Is every channel convolved on its own? */
static inline bool cpu_conv_is_depthwise(const struct cpu_window *args)
{
	return args->group == args->channels && args->out_channels == args->channels;
}

/* How all of a convolution is cut. */
struct cpu_conv_cut {
	size_t matrices; /* pictures and groups */
	size_t panels;
	size_t parts, part_rows; /* of a group's out channels */
};

static inline struct cpu_conv_cut cpu_conv_cut(const struct cpu_window *args)
{
	const size_t m = args->out_channels / args->group;
	const size_t most = (m + CPU_CONV_CHANNELS - 1) / CPU_CONV_CHANNELS;
	struct cpu_conv_cut cut = {.matrices = args->batch * args->group};
	size_t units;

	cut.panels = (cpu_window_out(args) + CPU_CONV_PANEL - 1) / CPU_CONV_PANEL;
	units = cut.matrices * cut.panels;
	cut.parts = (CPU_CONV_ENOUGH + units - 1) / units;
	cut.parts = cut.parts < most ? cut.parts : most;
	if (cut.parts < (m + CPU_CONV_PART_MAX - 1) / CPU_CONV_PART_MAX)
		cut.parts = (m + CPU_CONV_PART_MAX - 1) / CPU_CONV_PART_MAX;
	cut.part_rows = (most + cut.parts - 1) / cut.parts * CPU_CONV_CHANNELS;
	cut.parts = (m + cut.part_rows - 1) / cut.part_rows;
	return cut;
}

/* Of a convolution that is one of groups, even where these are single channels. */
static inline size_t cpu_conv_matrix_units(const struct cpu_window *args)
{
	const struct cpu_conv_cut cut = cpu_conv_cut(args);

	return cut.matrices * cut.panels * cut.parts;
}

static inline size_t cpu_conv_units(const struct cpu_window *args)
{
	if (cpu_conv_is_depthwise(args))
		return args->batch * args->channels;
	return cpu_conv_matrix_units(args);
}

/* Neighbouring units that share their pixels. */
struct cpu_conv_piece {
	size_t batch, group;
	size_t first, n;       /* pixels */
	size_t m_begin, m_end; /* out channels of the group */
};

/* Those of [*begin, end) that come first; moves *begin behind them. */
static inline struct cpu_conv_piece cpu_conv_piece(const struct cpu_window *args, size_t *begin,
						   size_t end)
{
	const struct cpu_conv_cut cut = cpu_conv_cut(args);
	const size_t most = CPU_CONV_PIXELS / CPU_CONV_PANEL, left = end - *begin;
	const size_t pixels = cpu_window_out(args), m = args->out_channels / args->group;
	const size_t part = *begin % cut.parts, panel = *begin / cut.parts % cut.panels;
	const size_t matrix = *begin / cut.parts / cut.panels;
	size_t n_panels = 1, n_parts = cut.parts - part, until;

	if (part == 0 && left >= cut.parts) {
		/* Whole panels: pieces of about the same number of them. */
		n_panels = left / cut.parts;
		if (n_panels > cut.panels - panel)
			n_panels = cut.panels - panel;
		n_panels = (n_panels - 1) / ((n_panels + most - 1) / most) + 1;
	} else if (n_parts > left) {
		n_parts = left;
	}
	*begin += n_panels * n_parts;
	until = (part + n_parts) * cut.part_rows;
	return (struct cpu_conv_piece){
		.batch = matrix / args->group,
		.group = matrix % args->group,
		.first = panel * CPU_CONV_PANEL,
		.n = panel + n_panels < cut.panels ? n_panels * CPU_CONV_PANEL
						   : pixels - panel * CPU_CONV_PANEL,
		.m_begin = part * cut.part_rows,
		.m_end = until < m ? until : m,
	};
}

/* Rows of the output, where channels come last. */
static inline size_t cpu_rows_last(const struct cpu_window *args)
{
	return args->batch * args->out_depth * args->out_height;
}

/* All pictures as one: where channels come last, their pixels follow each other. */
static inline struct cpu_window cpu_conv_last_flat(const struct cpu_window *args)
{
	struct cpu_window flat = *args;

	flat.out_depth *= args->batch;
	flat.batch = 1;
	return flat;
}

/* Has every group 1, 2 or 4 channels, and as many out channels? Then there is no matrix product. */
static inline bool cpu_conv_last_slides(const struct cpu_window *args)
{
	const size_t group = args->channels / args->group;

	return args->group > 1 && args->out_channels == args->channels &&
	       (group == 1 || group == 2 || group == 4);
}

/* Is the output of a convolution made of the input's pixels, one of one? */
static inline bool cpu_window_is_plain(const struct cpu_window *args)
{
	for (unsigned int i = 0; i < 3; i++)
		if (args->kernel[i] != 1 || args->stride[i] != 1 || args->pad_begin[i] != 0)
			return false;
	return args->out_depth == args->depth && args->out_height == args->height &&
	       args->out_width == args->width;
}

/* The same where it is, with all of a channel as one line. */
static inline struct cpu_window cpu_window_line(const struct cpu_window *args)
{
	struct cpu_window line = *args;

	line.depth = line.height = line.out_depth = line.out_height = 1;
	line.width = line.out_width = cpu_window_in(args);
	return line;
}

/*
 * A convolution with channels last that is computed in place, see conv-direct-hot.c. A unit is some
 * rows of the output, or pixels where windows are single ones, and of their out channels a part:
 * CPU_DIRECT_COLUMNS of a group.
 */
enum {
	CPU_DIRECT_COLUMNS = 32,
	CPU_DIRECT_PIXELS = 56, /* of a unit, about */
	CPU_DIRECT_PANELS = 4,  /* of that many pixels: these are computed together */
	/* Fewer pixels in a row that see their whole window are better gathered. */
	CPU_DIRECT_INNER_MIN = 5,
	/* Elements of a window beyond which weights leave the second-level cache. */
	CPU_DIRECT_DEPTH_MAX = 6144,
};

/*
 * Pixels are read side by side: too many a multiple of this apart would meet in one set of the
 * first-level cache.
 */
#define CPU_DIRECT_STEP_BYTES 4096

static inline bool cpu_conv_last_is_direct(const struct cpu_window *args)
{
	const size_t taps = args->kernel[0] * args->kernel[1] * args->kernel[2];
	const size_t step = args->channels * args->stride[2] * sizeof(float);
	const size_t width = (args->kernel[2] - 1) * args->dilation[2] + 1;

	if (cpu_conv_last_slides(args) || step % CPU_DIRECT_STEP_BYTES == 0 ||
	    args->channels / args->group * taps > CPU_DIRECT_DEPTH_MAX)
		return false;
	return cpu_window_is_plain(args) ||
	       (args->width >= width &&
		(args->width - width) / args->stride[2] + 1 >= CPU_DIRECT_INNER_MIN);
}

struct cpu_direct_cut {
	size_t rows;       /* or pixels, of all pictures */
	size_t panel_rows; /* of a unit */
	size_t panels;
	size_t group_parts; /* of a group's out channels */
	size_t parts;       /* of all */
	bool parts_first;   /* neighbouring units have the same part, not the same rows */
};

static inline struct cpu_direct_cut cpu_direct_cut(const struct cpu_window *args)
{
	const size_t n = args->out_channels / args->group;
	const bool is_plain = cpu_window_is_plain(args);
	const size_t width = is_plain ? 1 : args->out_width;
	struct cpu_direct_cut cut = {
		.rows = args->batch * cpu_window_out(args) / width,
		.panel_rows = (CPU_DIRECT_PIXELS + width - 1) / width,
		.group_parts = (n + CPU_DIRECT_COLUMNS - 1) / CPU_DIRECT_COLUMNS,
	};

	cut.panels = (cut.rows + cut.panel_rows - 1) / cut.panel_rows;
	cut.parts = args->group * cut.group_parts;
	/*
	 * Of products that are not deep the larger operand is read once; else that edges are
	 * computed by columns of many rows counts for more.
	 */
	cut.parts_first = !is_plain || n > cpu_window_in(args);
	return cut;
}

/* Neighbouring units that are computed together. */
struct cpu_direct_piece {
	size_t begin, end;     /* rows or pixels */
	size_t n_begin, n_end; /* out channels */
};

/* Out channels before part @part. */
static inline size_t cpu_direct_part(const struct cpu_window *args,
				     const struct cpu_direct_cut *cut, size_t part)
{
	const size_t n = args->out_channels / args->group;
	const size_t first = part % cut->group_parts * CPU_DIRECT_COLUMNS;

	return part / cut->group_parts * n + first;
}

/* Those of [*begin, end) that come first; moves *begin behind them. */
static inline struct cpu_direct_piece cpu_direct_piece(const struct cpu_window *args, size_t *begin,
						       size_t end)
{
	const struct cpu_direct_cut cut = cpu_direct_cut(args);
	const size_t left = end - *begin;
	size_t panel, part, n_panels = 1, n_parts = 1, until;

	if (cut.parts_first) {
		panel = *begin % cut.panels;
		part = *begin / cut.panels;
		n_panels = left < cut.panels - panel ? left : cut.panels - panel;
	} else {
		panel = *begin / cut.parts;
		part = *begin % cut.parts;
		n_parts = left < cut.parts - part ? left : cut.parts - part;
		if (n_parts == cut.parts)
			n_panels = left / cut.parts < CPU_DIRECT_PANELS ? left / cut.parts
									: CPU_DIRECT_PANELS;
	}
	*begin += n_panels * n_parts;
	until = (panel + n_panels) * cut.panel_rows;
	return (struct cpu_direct_piece){
		.begin = panel * cut.panel_rows,
		.end = until < cut.rows ? until : cut.rows,
		.n_begin = cpu_direct_part(args, &cut, part),
		.n_end = cpu_direct_part(args, &cut, part + n_parts),
	};
}

/* Columns of the input that a row of windows covers, and rows that @n_rows of them do. */
static inline size_t cpu_conv_strip_width(const struct cpu_window *args)
{
	return (args->out_width - 1) * args->stride[2] + (args->kernel[2] - 1) * args->dilation[2] +
	       1;
}

static inline size_t cpu_conv_strip_height(const struct cpu_window *args, size_t n_rows)
{
	return (n_rows - 1) * args->stride[1] + (args->kernel[1] - 1) * args->dilation[1] + 1;
}

/*
 * Where strips pay: terms of a sum, out channels, and floats of what a row of windows sees, at
 * most; pixels of a row, and rows, at least, unless the work is not worth several threads.
 */
enum {
	CPU_CONV_STRIP_TERMS = 384,
	CPU_CONV_STRIP_CHANNELS = 32,
	CPU_CONV_STRIP_FLOATS = 1 << 15,
	CPU_CONV_STRIP_PIXELS = 4,
	CPU_CONV_STRIP_ROWS = 7,
	CPU_CONV_STRIP_WORK = 1 << 20,
};

/* Is a convolution with channels last computed from padded strips? See conv-strip-hot.c. */
static inline bool cpu_conv_last_strips(const struct cpu_window *args)
{
	const size_t taps = args->kernel[1] * args->kernel[2];
	const size_t pixels = args->out_height * args->out_width;
	const size_t width = cpu_conv_strip_width(args), height = cpu_conv_strip_height(args, 1);

	/* Each by itself first: the product of what a client asks for may overflow. */
	return args->group == 1 && args->depth == 1 && args->kernel[0] == 1 &&
	       args->out_depth == 1 && args->pad_begin[0] == 0 && taps > 1 &&
	       taps * args->channels <= CPU_CONV_STRIP_TERMS &&
	       args->out_channels <= CPU_CONV_STRIP_CHANNELS && width <= CPU_CONV_STRIP_FLOATS &&
	       height <= CPU_CONV_STRIP_FLOATS &&
	       height * width * args->channels <= CPU_CONV_STRIP_FLOATS &&
	       args->out_width >= CPU_CONV_STRIP_PIXELS &&
	       (args->out_height >= CPU_CONV_STRIP_ROWS ||
		pixels * args->out_channels * taps * args->channels <= CPU_CONV_STRIP_WORK);
}

static inline size_t cpu_conv_last_units(const struct cpu_window *args)
{
	const struct cpu_window flat = cpu_conv_last_flat(args);
	struct cpu_direct_cut cut;

	if (cpu_conv_last_slides(args) || cpu_conv_last_strips(args))
		return cpu_rows_last(args);
	if (!cpu_conv_last_is_direct(args))
		return cpu_conv_matrix_units(&flat);
	cut = cpu_direct_cut(args);
	return cut.panels * cut.parts;
}

/* Terms of a convolution's sums, each of an output pixel and channel. */
static inline size_t cpu_conv_terms(const struct cpu_window *args)
{
	return args->channels / args->group * args->kernel[0] * args->kernel[1] * args->kernel[2];
}

/* Is a convolution computed as a matrix product? */
static inline bool cpu_conv_is_product(const struct cpu_window *args, bool is_last)
{
	return !(is_last ? cpu_conv_last_slides(args) || cpu_conv_last_strips(args) ||
				   cpu_conv_last_is_direct(args)
			 : cpu_conv_is_depthwise(args));
}

/* Output positions whose remainders by the strides are equal: how many sorts there are of them. */
static inline size_t cpu_conv_transpose_phases(const struct cpu_window *args)
{
	const size_t out[3] = {args->out_depth, args->out_height, args->out_width};
	size_t phases = 1;

	for (unsigned int i = 0; i < 3; i++)
		phases *= args->stride[i] < out[i] ? args->stride[i] : out[i];
	return phases;
}

/* Blocks of pixels of a phase, at most. */
static inline size_t cpu_conv_transpose_blocks(const struct cpu_window *args)
{
	const size_t out[3] = {args->out_depth, args->out_height, args->out_width};
	size_t pixels = 1;

	for (unsigned int i = 0; i < 3; i++)
		pixels *= (out[i] - 1) / args->stride[i] + 1;
	return (pixels + CPU_CONV_PIXELS - 1) / CPU_CONV_PIXELS;
}

static inline size_t cpu_conv_transpose_units(const struct cpu_window *args)
{
	return args->batch * args->group * cpu_conv_transpose_phases(args) *
	       cpu_conv_transpose_blocks(args);
}

/* Out channels of one unit of a ConvTranspose of float64. */
enum { CPU_TRANSPOSE_F64_CHANNELS = 48 };

/* Units of one group of one picture. */
static inline size_t cpu_conv_transpose_f64_parts(const struct cpu_window *args)
{
	return (args->out_channels / args->group + CPU_TRANSPOSE_F64_CHANNELS - 1) /
	       CPU_TRANSPOSE_F64_CHANNELS;
}

/* Return: the kernels of @level; NULL if this processor or this build has none. */
const struct cpu_kernels *cpu_kernels_get(enum cpu_simd level);

/* "avx512"; "auto" for CPU_SIMD_AUTO. */
const char *cpu_simd_name(enum cpu_simd level);

/*
 * Makes the calling thread treat denormals as zero, in operands and results, as the executor's
 * workers do: otherwise data full of them slows a task down a hundredfold. The thread that calls
 * executor_ops.run_inline must call it once, too. Affects all floating-point work of the thread.
 */
void cpu_flush_denormals(void);
