#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * CPU kernels
 *
 * Kernels are functions over arrays, mostly of float32, with one build per SIMD level. No kernel
 * allocates, locks, starts a thread or keeps state. Every kernel computes the part [begin, end) of
 * its units, and the result does not depend on how the units are split. AVX2 and AVX-512 give the
 * same bits (except the payload of a NaN). SSE2 and the generic build round the products of sums
 * separately.
 *
 * Any thread may call any kernel. Kernels treat denormals as the calling thread's control register
 * says: see cpu_flush_denormals(). Sizes and strides count floats. Pointers must be aligned to a
 * float, and outputs must not overlap inputs unless stated.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/gather.h"
#include "cpu/map.h"
#include "cpu/move.h"
#include "cpu/rows.h"
#include "cpu/triangular.h"
#include "shm/number.h"

enum cpu_simd {
	CPU_SIMD_AUTO = 0, /* the processor's highest level */
	CPU_SIMD_SSE2,     /* the generic build if the processor is not x86 */
	CPU_SIMD_AVX2,     /* with FMA and F16C */
	CPU_SIMD_AVX512,   /* F, BW, DQ, VL */
	CPU_SIMD_COUNT,
};

enum {
	/*
	 * Depth of one block of a matrix product. It affects rounding, so it is equal at all
	 * levels.
	 */
	CPU_GEMM_KC = 384,
	CPU_GEMM_F64_KC = 256, /* the same for float64 */
	/* Workspace of a kernel beside its operands; each calling thread has its own. */
	CPU_WORKSPACE_BYTES = 1 << 20,
	CPU_WORKSPACE_ALIGN = 64,
};

/*
 * Lets urgent tasks run inside a long kernel. Kernels whose units can take long check about every
 * hundred microseconds whether an urgent task waits or their own task was cancelled. If so, they
 * call serve(), which runs on the kernel's stack and does not touch the kernel's workspace or
 * operands. The call does not return if the task was cancelled, so a kernel holds no resource that
 * it must release.
 */
struct cpu_pause {
	const _Atomic uint32_t *n_waiting;
	const _Atomic uint8_t *state; /* state of the task: enum exec_state */
	uint8_t leave;                /* the state that makes serve() leave the kernel */
	void (*serve)(struct cpu_pause *pause);
};

/* Elements of a loop between two cpu_pause() calls */
enum { CPU_PAUSE_ELEMS = 1 << 16 };

static inline void cpu_pause(struct cpu_pause *pause)
{
	/* Only a hint: serve() synchronises with the threads that set these. */
	if (pause &&
	    __builtin_expect(atomic_load_explicit(pause->n_waiting, memory_order_relaxed) != 0 ||
				     atomic_load_explicit(pause->state, memory_order_relaxed) ==
					     pause->leave,
			     0))
		pause->serve(pause);
}

/* Call cpu_pause() in a loop whose index @i passes multiples of @every, a power of two. */
static inline void cpu_pause_at(struct cpu_pause *pause, size_t i, size_t every)
{
	if (__builtin_expect((i & (every - 1)) == 0, 0))
		cpu_pause(pause);
}

/*
 * A unary operator that is applied to each element of a result while the element is in a register
 * or cache.
 */
struct cpu_activation {
	cpu_map_fn *kernel;
	float f[2]; /* f of struct cpu_map */
};

/* Apply @activation to @n elements in place; NULL: no effect. */
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
 *
 * The sum is a chain of fused multiply-adds over each block of CPU_GEMM_KC terms; the blocks are
 * added in order. So packed and unpacked operands, every split of m and n, and every split of k
 * between two blocks (the later parts with accumulate) give the same bits.
 */
struct cpu_gemm {
	size_t m, n, k;
	const float *a;
	size_t a_rs, a_cs; /* strides of a row and a column */
	const float *b;    /* not read if b_packed is set */
	size_t b_rs, b_cs;
	const float *b_packed; /* from pack_b() of the same level, or NULL */
	float *y;
	size_t y_rs;       /* columns are adjacent */
	const float *c;    /* NULL: none */
	size_t c_rs, c_cs; /* 0 where broadcast */
	float alpha, beta; /* 1 and 0 for a plain product */
	bool accumulate;   /* add the products to y, before alpha and c */
	/* Applied to the complete sums, here and below; NULL: none */
	const struct cpu_activation *activation;
	struct cpu_pause *pause; /* NULL: none, here and below */
};

/*
 * The same for float64, reduced to what callers need. Columns of y are adjacent, and so are its
 * rows.
 */
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
	bool accumulate; /* as in struct cpu_gemm */
	struct cpu_pause *pause;
};

/*
 * Four-bit weights. Column n has blocks of @block terms, the last block padded. Term 2 i is in the
 * low half of byte i. Each block has a scale and a zero point; two integer zero points share a
 * byte. A weight is (four bits - zero point) * scale.
 */
struct cpu_nbits_weights {
	size_t k, n;
	size_t block;             /* terms, a multiple of 8 */
	const uint8_t *b;         /* [n][blocks][block / 2] */
	const float *scales;      /* [n][blocks] */
	const uint8_t *zeros;     /* [n][(blocks + 1) / 2]; NULL: 8 */
	const float *zeros_float; /* [n][blocks], replaces zeros; or NULL */
	struct cpu_pause *pause;  /* NULL: none */
};

/* Return columns [j, j + n) of @weights. */
static inline struct cpu_nbits_weights cpu_nbits_columns(const struct cpu_nbits_weights *weights,
							 size_t j, size_t n)
{
	const size_t n_blocks = div_up(weights->k, weights->block);
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
	/*
	 * Terms to add in this call; multiples of CPU_GEMM_KC, or k. k_begin 0: y is replaced.
	 */
	size_t k_begin, k_end;
	const float *a;
	size_t a_rs;        /* columns are adjacent */
	const void *packed; /* from pack_nbits() of the same level */
	const float *bias;  /* NULL: none */
	float *y;
	size_t y_rs;
	struct cpu_pause *pause;
};

/* A tile of the result over the whole depth. n_begin is a multiple of gemm_nr. */
struct cpu_gemm_tile {
	size_t m_begin, m_end, n_begin, n_end;
};

/*
 * The k best elements of each column, best first; equal values by ascending index. A NaN comes
 * after every number, for the largest and for the smallest.
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
 * A sliding window over [batch][channels][depth][height][width]; see union op_params.window. Arrays
 * of 3 are in the order depth, height, width.
 */
struct cpu_window {
	size_t batch, channels, depth, height, width;
	size_t out_channels, out_depth, out_height, out_width;
	size_t kernel[3], stride[3], dilation[3], pad_begin[3];
	size_t pad_end[3]; /* AveragePool, also includes_pad */
	bool includes_pad;
	uint32_t p; /* LpPool */
	size_t group;
	const float *x;
	const float *weights;        /* Conv: [out_channels][channels / group][kd][kh][kw] */
	const float *weights_packed; /* Conv: from pack_conv() of the same level, or NULL */
	const float *bias;           /* Conv; NULL: none */
	float *y;
	/*
	 * Conv if cpu_conv_is_product(): the terms of each sum to add in this call. The limits are
	 * multiples of CPU_GEMM_KC, or the end. k_begin 0: y is replaced; k_end 0: all terms.
	 */
	size_t k_begin, k_end;
	const struct cpu_activation *activation; /* Conv, ConvTranspose */
	struct cpu_pause *pause;
};

/* The same for float64 */
struct cpu_window_f64 {
	struct cpu_window window;  /* extents, pause */
	const double *x, *weights; /* weights: Conv and ConvTranspose */
	const double *bias;        /* Conv and ConvTranspose; NULL: none */
	double *y;
};

/* MaxPool of any type, with the positions of the maxima */
struct cpu_pool {
	struct cpu_window window; /* extents, pause */
	enum cpu_type type;       /* CPU_F32, CPU_F64, CPU_I8, CPU_U8 */
	const void *x;
	void *y;
	int64_t *indices;     /* into the whole of x; NULL: not wanted */
	bool is_column_major; /* indices count pixels in column-major order */
};

/*
 * The kernels of a level. Each family lists its kernels in three forms:
 * - KERNEL(result, name, (arguments)): a function;
 * - TABLE(type, name, size): an array of functions, one per operand type of some types;
 * - ROUTINE(name): an operator whose steps are run by the kernels' own file, which keeps its
 * kernels private.
 *
 * struct cpu_kernels has the kernels as members, level.h declares those of the level being
 * compiled, and table.c collects them.
 */
/* clang-format off */
#define CPU_PRODUCT_KERNELS(KERNEL, TABLE, ROUTINE) \
	/* Return the floats of pack_b()'s result for a k by n matrix. */ \
	KERNEL(size_t, pack_b_size, (size_t k, size_t n)) \
	/* Pack b for gemm(). @to is aligned to 64 bytes. */ \
	KERNEL(void, pack_b, (size_t k, size_t n, const float *b, size_t b_rs, \
	       size_t b_cs, float *to)) \
	/* ONNX MatMul and Gemm, one matrix. */ \
	KERNEL(void, gemm, (const struct cpu_gemm *gemm, const struct cpu_gemm_tile *tile, \
	       void *workspace)) \
	/* Return the bytes of pack_nbits()'s result, which is aligned to 64. */ \
	KERNEL(size_t, pack_nbits_size, (size_t k, size_t n, size_t block)) \
	KERNEL(void, pack_nbits, (const struct cpu_nbits_weights *weights, void *to)) \
	/* MatMulNBits, one matrix. */ \
	KERNEL(void, nbits, (const struct cpu_nbits *args, \
	       const struct cpu_gemm_tile *tile, void *workspace)) \
	/* Convert n elements from and to float16, rounding to nearest even. */ \
	KERNEL(void, half_load, (size_t n, const uint16_t *x, float *y)) \
	KERNEL(void, half_store, (size_t n, const float *x, uint16_t *y))
/* clang-format on */

/* clang-format off */
#define CPU_WINDOW_KERNELS(KERNEL, TABLE, ROUTINE) \
	/* Return the floats of pack_conv()'s result. */ \
	KERNEL(size_t, pack_conv_size, (const struct cpu_window *args)) \
	/* \
	 * Pack units [begin, end) of the weights; a unit has some hundred kilobytes at most. \
	 * @end may be beyond the last unit. @to is the result of all units. \
	 * Return: the number of all units. \
	 */ \
	KERNEL(size_t, pack_conv, (const struct cpu_window *args, size_t begin, \
	       size_t end, float *to)) \
	/* ONNX Conv. Units: cpu_conv_units(). */ \
	KERNEL(void, conv, (const struct cpu_window *args, size_t begin, size_t end, \
	       void *workspace)) \
	/* ONNX ConvTranspose, with weights [channels][out_channels / group][kd][kh][kw]. */ \
	KERNEL(size_t, pack_conv_transpose_size, (const struct cpu_window *args)) \
	KERNEL(size_t, pack_conv_transpose, (const struct cpu_window *args, size_t begin, \
	       size_t end, float *to)) \
	/* Units: cpu_conv_transpose_units(). */ \
	KERNEL(void, conv_transpose, (const struct cpu_window *args, size_t begin, \
	       size_t end, void *workspace)) \
	/* \
	 * ONNX MaxPool, AveragePool, LpPool. Windows are clipped; an empty window gives -inf or 0. \
	 * Units: batch * channels. \
	 */ \
	KERNEL(void, max_pool, (const struct cpu_window *args, size_t begin, size_t end)) \
	KERNEL(void, average_pool, (const struct cpu_window *args, size_t begin, \
	       size_t end)) \
	KERNEL(void, lp_pool, (const struct cpu_window *args, size_t begin, size_t end)) \
	/* MaxPool of any type; the index of an empty window is its channel's first. */ \
	KERNEL(void, max_pool_any, (const struct cpu_pool *args, size_t begin, size_t end)) \
	/* \
	 * Conv, MaxPool and AveragePool whose input and output pictures have channels last: \
	 * [batch][depth][height][width][channels]. All weights are packed, including depthwise \
	 * weights. Units: cpu_conv_last_units(), cpu_rows_last(). \
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
	/* The same operators for float64, with channels first. Units as above, unless stated. */ \
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
	CPU_DOUBLE_KERNELS(KERNEL, TABLE, ROUTINE)  \
	CPU_TRIANGULAR_KERNELS(KERNEL, TABLE, ROUTINE)

#define CPU_KERNEL_MEMBER(result, name, arguments) result(*name) arguments;
#define CPU_TABLE_MEMBER(type, name, size)         type *const *name;
#define CPU_ROUTINE_MEMBER(name)                   const struct cpu_routine *name;

struct cpu_routine;

struct cpu_kernels {
	enum cpu_simd level;
	const char *name; /* "avx512" */
	size_t gemm_mr, gemm_nr;
	/* By type and operator; NULL if a type lacks the operator. See map.h. */
	cpu_map_fn *const *map[CPU_TYPE_COUNT];
	/* ONNX Cast, by source and destination. */
	cpu_map_fn *const (*cast)[CPU_TYPE_COUNT];
	CPU_KERNELS(CPU_KERNEL_MEMBER, CPU_TABLE_MEMBER, CPU_ROUTINE_MEMBER)
};

/*
 * A convolution's unit is a panel of CPU_CONV_PANEL output pixels or, if there are fewer than
 * CPU_CONV_ENOUGH panels, a part of the out channels of one panel. Such units are small enough for
 * threads to end at about the same time. Consecutive units are computed together, up to
 * CPU_CONV_PIXELS pixels that are fetched once for all out channels.
 */
enum {
	CPU_CONV_PANEL = 32,
	CPU_CONV_PIXELS = 6 * CPU_CONV_PANEL,
	CPU_CONV_CHANNELS = 96, /* minimum of a unit; each unit fetches its own pixels */
	CPU_CONV_PART_MAX = 12 * CPU_CONV_CHANNELS, /* maximum of a unit */
	CPU_CONV_ENOUGH = 64,
};

/* Return the input elements of one channel. */
static inline size_t cpu_window_in(const struct cpu_window *args)
{
	return args->depth * args->height * args->width;
}

static inline size_t cpu_window_out(const struct cpu_window *args)
{
	return args->out_depth * args->out_height * args->out_width;
}

static inline size_t cpu_window_taps(const struct cpu_window *args)
{
	return args->kernel[0] * args->kernel[1] * args->kernel[2];
}

/* Return true if every channel is convolved separately. */
static inline bool cpu_conv_is_depthwise(const struct cpu_window *args)
{
	return args->group == args->channels && args->out_channels == args->channels;
}

/* The division of a convolution into units */
struct cpu_conv_cut {
	size_t matrices; /* pictures times groups */
	size_t panels;
	size_t parts, part_rows; /* parts of a group's out channels, and their channels */
};

static inline struct cpu_conv_cut cpu_conv_cut(const struct cpu_window *args)
{
	const size_t m = args->out_channels / args->group;
	const size_t most = div_up(m, CPU_CONV_CHANNELS);
	struct cpu_conv_cut cut = {.matrices = args->batch * args->group};
	size_t units;

	cut.panels = div_up(cpu_window_out(args), CPU_CONV_PANEL);
	units = cut.matrices * cut.panels;
	cut.parts = div_up(CPU_CONV_ENOUGH, units);
	cut.parts = cut.parts < most ? cut.parts : most;
	if (cut.parts < div_up(m, CPU_CONV_PART_MAX))
		cut.parts = div_up(m, CPU_CONV_PART_MAX);
	cut.part_rows = div_up(most, cut.parts) * CPU_CONV_CHANNELS;
	cut.parts = div_up(m, cut.part_rows);
	return cut;
}

/*
 * Return the units of a convolution as grouped matrix products, even if its groups are single
 * channels.
 */
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

/* Consecutive units that share their pixels */
struct cpu_conv_piece {
	size_t batch, group;
	size_t first, n;       /* pixels */
	size_t m_begin, m_end; /* out channels of the group */
};

/* Return the first piece of [*begin, end), and advance *begin past it. */
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
		/* Whole panels: divide into pieces of about equal size. */
		n_panels = left / cut.parts;
		if (n_panels > cut.panels - panel)
			n_panels = cut.panels - panel;
		n_panels = (n_panels - 1) / div_up(n_panels, most) + 1;
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

/* Return the rows of an output with channels last. */
static inline size_t cpu_rows_last(const struct cpu_window *args)
{
	return args->batch * args->out_depth * args->out_height;
}

/* Return the batch as one picture: with channels last, its pictures are adjacent. */
static inline struct cpu_window cpu_conv_last_flat(const struct cpu_window *args)
{
	struct cpu_window flat = *args;

	flat.out_depth *= args->batch;
	flat.batch = 1;
	return flat;
}

/*
 * Return true if every group has 1, 2 or 4 channels and as many out channels: then there is no
 * matrix product.
 */
static inline bool cpu_conv_last_slides(const struct cpu_window *args)
{
	const size_t group = args->channels / args->group;

	return args->group > 1 && args->out_channels == args->channels &&
	       (group == 1 || group == 2 || group == 4);
}

/* Return true if each output pixel depends on exactly the input pixel at its position. */
static inline bool cpu_window_is_plain(const struct cpu_window *args)
{
	for (unsigned int i = 0; i < 3; i++)
		if (args->kernel[i] != 1 || args->stride[i] != 1 || args->pad_begin[i] != 0)
			return false;
	return args->out_depth == args->depth && args->out_height == args->height &&
	       args->out_width == args->width;
}

/* Return such a window with all of a channel as one line. */
static inline struct cpu_window cpu_window_line(const struct cpu_window *args)
{
	struct cpu_window line = *args;

	line.depth = line.height = line.out_depth = line.out_height = 1;
	line.width = line.out_width = cpu_window_in(args);
	return line;
}

/*
 * A convolution with channels last that is computed in place, see conv-direct-hot.c. A unit is some
 * rows of the output (pixels, if windows are single pixels) and CPU_DIRECT_COLUMNS out channels of
 * a group.
 */
enum {
	CPU_DIRECT_COLUMNS = 32,
	CPU_DIRECT_PIXELS = 56, /* approximate pixels of a unit */
	CPU_DIRECT_PANELS = 4,  /* panels of CPU_DIRECT_PIXELS that are computed together */
	/* Gather instead if fewer pixels of a row see their whole window. */
	CPU_DIRECT_INNER_MIN = 5,
	/* Elements of a window beyond which weights exceed the second-level cache */
	CPU_DIRECT_DEPTH_MAX = 6144,
};

/*
 * Pixels are read side by side. Too many pixels at multiples of this distance would map to one set
 * of the first-level cache.
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
	size_t rows;       /* rows, or pixels, of all pictures */
	size_t panel_rows; /* rows of a unit */
	size_t panels;
	size_t group_parts; /* parts of a group's out channels */
	size_t parts;       /* parts of all groups */
	bool parts_first;   /* consecutive units have the same part instead of the same rows */
};

static inline struct cpu_direct_cut cpu_direct_cut(const struct cpu_window *args)
{
	const size_t n = args->out_channels / args->group;
	const bool is_plain = cpu_window_is_plain(args);
	const size_t width = is_plain ? 1 : args->out_width;
	struct cpu_direct_cut cut = {
		.rows = args->batch * cpu_window_out(args) / width,
		.panel_rows = div_up(CPU_DIRECT_PIXELS, width),
		.group_parts = div_up(n, CPU_DIRECT_COLUMNS),
	};

	cut.panels = div_up(cut.rows, cut.panel_rows);
	cut.parts = args->group * cut.group_parts;
	/*
	 * With single-pixel windows the larger operand is read once. With other windows the many
	 * rows of a piece count for more, since edges are computed by columns of many rows.
	 */
	cut.parts_first = !is_plain || n > cpu_window_in(args);
	return cut;
}

/* Consecutive units that are computed together */
struct cpu_direct_piece {
	size_t begin, end;     /* rows or pixels */
	size_t n_begin, n_end; /* out channels */
};

/* Return the number of out channels before part @part. */
static inline size_t cpu_direct_part(const struct cpu_window *args,
				     const struct cpu_direct_cut *cut, size_t part)
{
	const size_t n = args->out_channels / args->group;
	const size_t first = part % cut->group_parts * CPU_DIRECT_COLUMNS;

	return part / cut->group_parts * n + first;
}

/* Return the first piece of [*begin, end), and advance *begin past it. */
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

/*
 * Return the input columns that a row of windows covers. cpu_conv_strip_height(): the input rows
 * that @n_rows rows of windows cover.
 */
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
 * Limits of convolutions computed from strips. At most: terms of a sum, out channels, and floats
 * that a row of windows sees. At least: pixels of a row, and rows, unless the work is too small for
 * several threads.
 */
enum {
	CPU_CONV_STRIP_TERMS = 384,
	CPU_CONV_STRIP_CHANNELS = 32,
	CPU_CONV_STRIP_FLOATS = 1 << 15,
	CPU_CONV_STRIP_PIXELS = 4,
	CPU_CONV_STRIP_ROWS = 7,
	CPU_CONV_STRIP_WORK = 1 << 20,
};

/*
 * Return true if a convolution with channels last is computed from padded strips, see
 * conv-strip-hot.c.
 */
static inline bool cpu_conv_last_strips(const struct cpu_window *args)
{
	const size_t taps = args->kernel[1] * args->kernel[2];
	const size_t pixels = args->out_height * args->out_width;
	const size_t width = cpu_conv_strip_width(args), height = cpu_conv_strip_height(args, 1);

	/* Check each factor before the product: the product of a client's sizes may overflow. */
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

/* Return the terms of each sum, one sum per output pixel and channel. */
static inline size_t cpu_conv_terms(const struct cpu_window *args)
{
	return args->channels / args->group * cpu_window_taps(args);
}

/* Return true if a convolution is computed as a matrix product. */
static inline bool cpu_conv_is_product(const struct cpu_window *args, bool is_last)
{
	return !(is_last ? cpu_conv_last_slides(args) || cpu_conv_last_strips(args) ||
				   cpu_conv_last_is_direct(args)
			 : cpu_conv_is_depthwise(args));
}

/* Return the phases. Output positions of one phase have equal remainders by the strides. */
static inline size_t cpu_conv_transpose_phases(const struct cpu_window *args)
{
	const size_t out[3] = {args->out_depth, args->out_height, args->out_width};
	size_t phases = 1;

	for (unsigned int i = 0; i < 3; i++)
		phases *= args->stride[i] < out[i] ? args->stride[i] : out[i];
	return phases;
}

/* Return the maximum of pixel blocks per phase. */
static inline size_t cpu_conv_transpose_blocks(const struct cpu_window *args)
{
	const size_t out[3] = {args->out_depth, args->out_height, args->out_width};
	size_t pixels = 1;

	for (unsigned int i = 0; i < 3; i++)
		pixels *= (out[i] - 1) / args->stride[i] + 1;
	return div_up(pixels, CPU_CONV_PIXELS);
}

static inline size_t cpu_conv_transpose_units(const struct cpu_window *args)
{
	return args->batch * args->group * cpu_conv_transpose_phases(args) *
	       cpu_conv_transpose_blocks(args);
}

/* Out channels of one unit of a float64 ConvTranspose */
enum { CPU_TRANSPOSE_F64_CHANNELS = 48 };

/* Return the units per picture and group. */
static inline size_t cpu_conv_transpose_f64_parts(const struct cpu_window *args)
{
	return div_up(args->out_channels / args->group, CPU_TRANSPOSE_F64_CHANNELS);
}

/* Return: the kernels of @level; NULL if this processor or this build has none. */
const struct cpu_kernels *cpu_kernels_get(enum cpu_simd level);

/*
 * Make the calling thread treat denormals as zero, in operands and results, as the executor's
 * workers do. Without it, data full of denormals slows a task down a hundredfold. The thread that
 * calls executor_ops.run_inline must call this function once, too. Affects all floating-point work
 * of the thread.
 */
void cpu_flush_denormals(void);
