/* SPDX-License-Identifier: MIT */
/*
 * The kernels called directly: every split of the work gives the same bits, at every SIMD level;
 * packed and unpacked operands do; nothing beyond the operands is read or written.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernel-rig.h"
#include "shm/half.h"
#include "support/test.h"

/* Units of the product: columns in steps of 32 (every gemm_nr divides it), then rows. */
struct gemm_call {
	struct cpu_gemm gemm;
	size_t n_columns;
};

static void run_gemm(const struct call *call, size_t begin, size_t end, float *y)
{
	const struct gemm_call *args = call->args;
	struct cpu_gemm gemm = args->gemm;

	gemm.y = y;
	for (size_t unit = begin; unit < end; unit++) {
		const size_t m = unit / args->n_columns, n = unit % args->n_columns * 32;

		call->kernels->gemm(
			&gemm,
			&(struct cpu_gemm_tile){m, m + 1, n, n + 32 < gemm.n ? n + 32 : gemm.n},
			call->workspace);
	}
}

/* In one go against tiles of one row by 32 columns, packed against not, straight and transposed. */
static void check_gemm(const struct cpu_kernels *kernels, void *workspace)
{
	for (unsigned int round = 0; round < 24; round++) {
		const size_t m = pick(1, 40), n = pick(1, 200), k = round % 3 ? pick(1, 60) : 500;
		const bool trans_b = round & 1, trans_a = round & 2;
		struct guarded a = guarded_new(m * k), b = guarded_new(k * n);
		struct guarded c = guarded_new(n), whole = guarded_new(m * n);
		struct guarded again = guarded_new(m * n);
		float *packed = aligned_alloc(64, (kernels->pack_b_size(k, n) * 4 + 63) / 64 * 64);
		struct gemm_call args = {
			.gemm = {.m = m,
				 .n = n,
				 .k = k,
				 .a = a.data,
				 .a_rs = trans_a ? 1 : k,
				 .a_cs = trans_a ? m : 1,
				 .b = b.data,
				 .b_rs = trans_b ? 1 : n,
				 .b_cs = trans_b ? k : 1,
				 .y = whole.data,
				 .y_rs = n,
				 .c = round & 4 ? c.data : NULL,
				 .c_cs = 1,
				 .alpha = round & 4 ? 0.3f : 1,
				 .beta = 1.7f},
			.n_columns = (n + 31) / 32,
		};
		const struct cpu_gemm_tile all = {0, m, 0, n};

		assert_non_null(packed);
		kernels->gemm(&args.gemm, &all, workspace);
		for (unsigned int form = 0; form < 2; form++) {
			check_splits(&(struct call){.kernels = kernels,
						    .run = run_gemm,
						    .args = &args,
						    .units = m * args.n_columns,
						    .n_out = m * n,
						    .workspace = workspace});
			run_gemm(&(struct call){.kernels = kernels,
						.args = &args,
						.workspace = workspace},
				 0, m * args.n_columns, again.data);
			assert_memory_equal(again.data, whole.data, m * n * sizeof(float));
			kernels->pack_b(k, n, b.data, args.gemm.b_rs, args.gemm.b_cs, packed);
			args.gemm.b_packed = packed;
			args.gemm.b = NULL;
			kernels->gemm(&args.gemm, &all, workspace);
			assert_memory_equal(again.data, whole.data, m * n * sizeof(float));
		}
		free(packed);
		guarded_free(&a);
		guarded_free(&b);
		guarded_free(&c);
		guarded_free(&whole);
		guarded_free(&again);
	}
}

TEST(test_gemm__splits_and_packing)
{
	for_each_level(check_gemm);
}

static void run_move(const struct call *call, size_t begin, size_t end, float *y)
{
	struct cpu_move args = *(const struct cpu_move *)call->args;

	args.to = y;
	call->kernels->move(&args, begin, end);
}

static void check_columns(const struct cpu_kernels *kernels, void *workspace)
{
	for (unsigned int round = 0; round < 40; round++) {
		/* Many short rows are reduced some at a time. */
		const size_t outer = round % 4 ? pick(1, 9) : pick(1, 80), len = pick(1, 70);
		const size_t inner = round & 1 ? 1 : pick(1, 150);
		struct guarded x = guarded_new(outer * len * inner);
		const struct cpu_softmax softmax = {x.data, NULL, outer, len, inner};
		struct cpu_reduce reduce = {.x = x.data,
					    .n_kept = 1,
					    .n_reduced = 1,
					    .kind = round % (CPU_REDUCE_MIN + 1)};

		check_splits(&(struct call){.kernels = kernels,
					    .run = run_softmax,
					    .args = &softmax,
					    .units = cpu_softmax_units(&softmax),
					    .n_out = outer * len * inner});
		/* Rows, then columns. */
		reduce.kept[0] = outer;
		reduce.kept_stride[1] = len * inner;
		reduce.reduced[0] = len * inner;
		reduce.reduced_stride[1] = 1;
		check_splits(&(struct call){.kernels = kernels,
					    .run = run_reduce,
					    .args = &reduce,
					    .units = cpu_reduce_units(&reduce),
					    .n_out = outer});
		reduce.inner_kept = true;
		reduce.reduced[0] = outer;
		reduce.reduced_stride[1] = len * inner;
		reduce.kept[0] = len * inner;
		reduce.kept_stride[1] = 1;
		check_splits(&(struct call){.kernels = kernels,
					    .run = run_reduce,
					    .args = &reduce,
					    .units = cpu_reduce_units(&reduce),
					    .n_out = len * inner});
		guarded_free(&x);
	}
}

TEST(test_columns__splits)
{
	for_each_level(check_columns);
}

/* The three forms: dimensions that change places, backwards through each, and rows. */
static void check_moves(const struct cpu_kernels *kernels, void *workspace)
{
	for (unsigned int round = 0; round < 30; round++) {
		const enum cpu_move_form form = round % CPU_MOVE_FORMS;
		const unsigned int bytes = form == CPU_MOVE_ROWS ? 1 : 1 << round / 3 % 4;
		const size_t a = pick(1, 5), b = pick(1, 150),
			     c = 4 * pick(1, round % 4 ? 40 : 1200);
		const size_t n_floats = a * b * c * bytes / 4;
		struct guarded x = guarded_new(n_floats);
		struct cpu_move args = {
			.from = x.data,
			.form = form,
			.element_bytes = bytes,
			.n_dims = 3,
			.extent = {a, b, c},
			.to_stride = {(ptrdiff_t)(b * c * bytes), (ptrdiff_t)(c * bytes),
				      (ptrdiff_t)bytes},
		};
		ptrdiff_t *stride = args.from_stride;

		memcpy(stride, args.to_stride, sizeof(args.to_stride));
		if (form == CPU_MOVE_PLANE) {
			stride[1] = (ptrdiff_t)bytes;
			stride[2] = (ptrdiff_t)(b * bytes);
		} else if (form == CPU_MOVE_ELEMENTS) {
			args.from = (const uint8_t *)x.data + (a * b * c - 1) * bytes;
			for (unsigned int d = 0; d < 3; d++)
				stride[d] = -stride[d];
		}
		check_splits(&(struct call){.kernels = kernels,
					    .run = run_move,
					    .args = &args,
					    .units = cpu_move_units(&args),
					    .n_out = n_floats});
		guarded_free(&x);
	}
}

TEST(test_moves__splits)
{
	for_each_level(check_moves);
}

static void run_conv(const struct call *call, size_t begin, size_t end, float *y)
{
	struct cpu_window args = *(const struct cpu_window *)call->args;

	args.y = y;
	call->kernels->conv(&args, begin, end, call->workspace);
}

static void run_max_pool(const struct call *call, size_t begin, size_t end, float *y)
{
	struct cpu_window args = *(const struct cpu_window *)call->args;

	args.y = y;
	call->kernels->max_pool(&args, begin, end);
}

static void run_average_pool(const struct call *call, size_t begin, size_t end, float *y)
{
	struct cpu_window args = *(const struct cpu_window *)call->args;

	args.y = y;
	call->kernels->average_pool(&args, begin, end);
}

static void run_lp_pool(const struct call *call, size_t begin, size_t end, float *y)
{
	struct cpu_window args = *(const struct cpu_window *)call->args;

	args.y = y;
	call->kernels->lp_pool(&args, begin, end);
}

static void run_max_pool_any(const struct call *call, size_t begin, size_t end, float *y)
{
	const struct cpu_pool args = {
		.window = *(const struct cpu_window *)call->args,
		.type = CPU_F32,
		.x = ((const struct cpu_window *)call->args)->x,
		.y = y,
	};

	call->kernels->max_pool_any(&args, begin, end);
}

/* Weights are as they are: each level packs them for itself. */
static void run_conv_last(const struct call *call, size_t begin, size_t end, float *y)
{
	struct cpu_window args = *(const struct cpu_window *)call->args;
	float *packed = malloc(call->kernels->pack_conv_last_size(&args) * sizeof(float));

	assert_non_null(packed);
	call->kernels->pack_conv_last(&args, 0, SIZE_MAX, packed);
	args.weights = NULL;
	args.weights_packed = packed;
	args.y = y;
	call->kernels->conv_last(&args, begin, end, call->workspace);
	free(packed);
}

static void run_max_pool_last(const struct call *call, size_t begin, size_t end, float *y)
{
	struct cpu_window args = *(const struct cpu_window *)call->args;

	args.y = y;
	call->kernels->max_pool_last(&args, begin, end);
}

static void run_average_pool_last(const struct call *call, size_t begin, size_t end, float *y)
{
	struct cpu_window args = *(const struct cpu_window *)call->args;

	args.y = y;
	call->kernels->average_pool_last(&args, begin, end);
}

/* Matrices of @rows rows become ones of @rows columns. */
static void transpose(const float *from, size_t batch, size_t rows, size_t columns, float *to)
{
	for (size_t b = 0; b < batch; b++, from += rows * columns, to += rows * columns)
		for (size_t i = 0; i < rows; i++)
			for (size_t j = 0; j < columns; j++)
				to[j * rows + i] = from[i * columns + j];
}

/* @call is what @plain is with channels last. */
static void check_last(const char *what, struct call call,
		       void (*plain)(const struct call *call, size_t begin, size_t end, float *y))
{
	const struct cpu_window *last = call.args;
	struct cpu_window args = *last;
	const size_t n_in = args.batch * args.channels * cpu_window_in(&args);
	float *x = malloc(n_in * sizeof(*x)), *y = malloc(call.n_out * sizeof(*y));
	float *want = malloc(call.n_out * sizeof(*want));
	struct call by_channel = call;

	by_channel.kernels = cpu_kernels_get(CPU_SIMD_SSE2);
	by_channel.workspace = aligned_alloc(CPU_WORKSPACE_ALIGN, CPU_WORKSPACE_BYTES);
	by_channel.args = &args;
	by_channel.units = plain == run_conv ? cpu_conv_units(&args) : args.batch * args.channels;
	assert_true(x && y && want && by_channel.workspace);
	transpose(last->x, args.batch, cpu_window_in(&args), args.channels, x);
	args.x = x;
	plain(&by_channel, 0, by_channel.units, y);
	transpose(y, args.batch, args.out_channels, cpu_window_out(&args), want);
	check_levels(what, call, want, 1e-4, 1e-4);
	free(x);
	free(y);
	free(want);
	free(by_channel.workspace);
}

/* Sets the extents of the output. Return: false if the windows do not fit. */
static bool set_output(struct cpu_window *args)
{
	const size_t in[3] = {args->depth, args->height, args->width};
	size_t out[3];

	for (unsigned int d = 0; d < 3; d++) {
		const size_t window = (args->kernel[d] - 1) * args->dilation[d] + 1;

		if (in[d] + 2 * args->pad_begin[d] < window)
			return false;
		out[d] = (in[d] + 2 * args->pad_begin[d] - window) / args->stride[d] + 1;
	}
	args->out_depth = out[0];
	args->out_height = out[1];
	args->out_width = out[2];
	return true;
}

/*
 * All three on pictures of these extents, with padding on both sides alike. What the others have;
 * the same bits at levels that fuse, and for every split.
 */
static void check_windows_last(struct cpu_window args, bool has_bias)
{
	struct call call = {.args = &args};
	struct guarded x, weights, bias;

	memcpy(args.pad_end, args.pad_begin, sizeof(args.pad_end));
	if (!set_output(&args))
		return;
	x = guarded_new(args.batch * args.channels * cpu_window_in(&args));
	weights = guarded_new(args.out_channels * args.channels / args.group * args.kernel[0] *
			      args.kernel[1] * args.kernel[2]);
	bias = guarded_new(args.out_channels);
	args.x = x.data;
	args.weights = weights.data;
	args.bias = has_bias ? bias.data : NULL;
	call.run = run_conv_last;
	call.units = cpu_conv_last_units(&args);
	call.n_out = args.batch * args.out_channels * cpu_window_out(&args);
	check_last("Conv", call, run_conv);
	args.out_channels = args.channels;
	call.units = cpu_rows_last(&args);
	call.n_out = args.batch * args.channels * cpu_window_out(&args);
	call.run = run_max_pool_last;
	check_last("MaxPool", call, run_max_pool);
	call.run = run_average_pool_last;
	check_last("AveragePool", call, run_average_pool);
	guarded_free(&x);
	guarded_free(&weights);
	guarded_free(&bias);
}

TEST(test_windows__channels_last)
{
	for (unsigned int round = 0; round < 60; round++) {
		const size_t how = pick(0, 3);
		struct cpu_window args = {
			.batch = pick(1, 3),
			.depth = round % 3 ? 1 : pick(3, 6),
			.height = pick(4, 20),
			.width = pick(4, 30),
			.kernel = {round % 3 ? 1 : pick(1, 3), pick(1, 3), pick(1, 4)},
			.stride = {pick(1, 3), pick(1, 3), pick(1, 3)},
			.dilation = {1, 1, pick(1, 2)},
			.pad_begin = {round % 3 ? 0 : pick(0, 2), pick(0, 2), pick(0, 3)},
			.includes_pad = round & 1,
		};

		/* Groups of a few channels, or few of them. */
		args.group = how < 2 ? pick(1, 50) : pick(1, 3);
		args.channels = args.group * (how < 2 ? pick(1, 4) : pick(1, 70));
		args.out_channels = how < 2 ? args.channels : args.group * pick(1, 90);
		check_windows_last(args, round & 1);
	}
}

/* Tiles of every number of pixels and of out channels. */
TEST(test_windows__strips)
{
	unsigned int n_strips = 0;

	for (unsigned int round = 0; round < 90; round++) {
		struct cpu_window args = {
			.batch = pick(1, 2),
			.depth = 1,
			.height = pick(1, 12),
			.width = round < 30 ? round + 1 : pick(1, 60),
			.out_channels = pick(1, 34),
			.channels = round % 4 ? pick(1, 18) : pick(18, 60),
			.group = 1,
			.kernel = {1, pick(1, 5), pick(2, 5)},
			.stride = {1, pick(1, 3), pick(1, 3)},
			.dilation = {1, pick(1, 2), pick(1, 2)},
			.pad_begin = {0, round & 4 ? pick(0, 3) : 0, round & 4 ? pick(0, 6) : 0},
		};

		n_strips += set_output(&args) && cpu_conv_last_strips(&args);
		check_windows_last(args, round & 1);
	}
	assert_true(n_strips > 40);
}

/* Windows of 3 and of 5 columns: whole tiles of pixels and channels, and not; edges of all kinds.
 */
TEST(test_windows__depthwise_tiles)
{
	for (unsigned int round = 0; round < 80; round++) {
		const size_t channels = round % 3 ? pick(1, 80) : 16 * pick(1, 4);
		const bool has_depth = round % 7 == 0;

		check_windows_last(
			(struct cpu_window){
				.batch = pick(1, 2),
				.depth = has_depth ? pick(1, 4) : 1,
				.height = pick(1, 12),
				.width = round < 30 ? round + 1 : pick(5, 40),
				.out_channels = channels,
				.channels = channels,
				.group = channels,
				.kernel = {has_depth ? pick(1, 3) : 1, pick(1, 5),
					   round & 1 ? 3 : 5},
				.stride = {1, pick(1, 3), pick(1, 2)},
				.dilation = {1, 1, 1},
				.pad_begin = {has_depth, pick(0, 3), pick(0, 6)},
				.includes_pad = round & 2,
			},
			round & 4);
	}
}

/* Rows of some tiles' pixels, one more or fewer; edges of every width; few channels, or many. */
TEST(test_conv__in_place)
{
	unsigned int n = 0, n_parts_first = 0;

	for (unsigned int round = 0; round < 120; round++) {
		const bool is_plain = round % 6 == 0, is_deep = round % 4 == 1 && !is_plain;
		struct cpu_window args = {
			.batch = pick(1, 3),
			.depth = is_deep ? pick(2, 4) : 1,
			.height = pick(2, 12),
			.width = pick(5, 48),
			.kernel = {is_deep ? pick(1, 3) : 1, pick(1, 5), pick(1, 5)},
			.stride = {is_deep ? pick(1, 2) : 1, pick(1, 2), pick(1, 2)},
			.dilation = {is_deep ? pick(1, 2) : 1, pick(1, 3), pick(1, 3)},
			.pad_begin = {is_deep ? pick(0, 2) : 0, pick(0, 4), pick(0, 4)},
			.group = round % 3 ? 1 : pick(1, 3),
		};
		struct call call = {.args = &args, .run = run_conv_last};
		struct guarded x, weights, bias;

		for (unsigned int d = 0; is_plain && d < 3; d++) {
			args.kernel[d] = args.stride[d] = 1;
			args.pad_begin[d] = 0;
		}
		args.channels = args.group * pick(1, 20);
		args.out_channels = args.group * pick(1, 100);
		if (!set_output(&args) || !cpu_conv_last_is_direct(&args))
			continue;
		x = guarded_new(args.batch * args.channels * cpu_window_in(&args));
		weights = guarded_new(args.out_channels * args.channels / args.group *
				      args.kernel[0] * args.kernel[1] * args.kernel[2]);
		bias = guarded_new(args.out_channels);
		args.x = x.data;
		args.weights = weights.data;
		args.bias = round & 1 ? bias.data : NULL;
		call.units = cpu_conv_last_units(&args);
		call.n_out = args.batch * args.out_channels * cpu_window_out(&args);
		check_last("Conv", call, run_conv);
		n++;
		n_parts_first += cpu_direct_cut(&args).parts_first;
		guarded_free(&x);
		guarded_free(&weights);
		guarded_free(&bias);
	}
	assert_true(n_parts_first >= 40 && n - n_parts_first >= 5);
}

static void check_windows(const struct cpu_kernels *kernels, void *workspace)
{
	static void (*const pools[])(const struct call *, size_t, size_t, float *) = {
		run_max_pool, run_average_pool, run_lp_pool, run_max_pool_any};

	for (unsigned int round = 0; round < 16; round++) {
		const bool depthwise = round % 4 == 1;
		struct cpu_window args = {
			.batch = pick(1, 3),
			.depth = round % 3 ? 1 : pick(3, 6),
			.height = pick(4, 20),
			.width = pick(4, 60),
			.kernel = {round % 3 ? 1 : pick(1, 3), pick(1, 3), pick(1, 4)},
			.stride = {pick(1, 3), pick(1, 3), pick(1, 3)},
			.dilation = {1, 1, 1},
			.pad_begin = {round % 3 ? 0 : pick(0, 2), pick(0, 2), pick(0, 3)},
			.p = pick(1, 4),
		};
		struct guarded x, weights, bias;
		size_t n_out;
		float *packed;

		args.group = depthwise ? pick(1, 6) : pick(1, 2);
		args.channels = depthwise ? args.group : args.group * pick(1, 4);
		args.out_channels = depthwise ? args.group : args.group * pick(1, 30);
		args.out_depth =
			(args.depth + 2 * args.pad_begin[0] - args.kernel[0]) / args.stride[0] + 1;
		args.out_height =
			(args.height + 2 * args.pad_begin[1] - args.kernel[1]) / args.stride[1] + 1;
		args.out_width =
			(args.width + 2 * args.pad_begin[2] - args.kernel[2]) / args.stride[2] + 1;
		n_out = args.batch * args.out_channels * cpu_window_out(&args);
		x = guarded_new(args.batch * args.channels * cpu_window_in(&args));
		weights = guarded_new(args.out_channels * args.channels / args.group *
				      args.kernel[0] * args.kernel[1] * args.kernel[2]);
		bias = guarded_new(args.out_channels);
		args.x = x.data;
		args.weights = weights.data;
		args.bias = round & 1 ? bias.data : NULL;
		check_splits(&(struct call){.kernels = kernels,
					    .run = run_conv,
					    .args = &args,
					    .units = cpu_conv_units(&args),
					    .n_out = n_out,
					    .workspace = workspace});
		if (!cpu_conv_is_depthwise(&args)) {
			struct guarded plain = guarded_new(n_out), got = guarded_new(n_out);
			const struct call call = {kernels, run_conv, &args, 0, n_out, workspace};

			run_conv(&call, 0, cpu_conv_units(&args), plain.data);
			packed = malloc(kernels->pack_conv_size(&args) * sizeof(float));
			assert_non_null(packed);
			kernels->pack_conv(&args, 0, SIZE_MAX, packed);
			args.weights = NULL;
			args.weights_packed = packed;
			run_conv(&call, 0, cpu_conv_units(&args), got.data);
			assert_memory_equal(got.data, plain.data, n_out * sizeof(float));
			free(packed);
			guarded_free(&plain);
			guarded_free(&got);
		}
		args.out_channels = args.channels;
		for (unsigned int i = 0; i < sizeof(pools) / sizeof(pools[0]); i++)
			check_splits(&(struct call){.kernels = kernels,
						    .run = pools[i],
						    .args = &args,
						    .units = args.batch * args.channels,
						    .n_out = args.batch * args.channels *
							     cpu_window_out(&args)});
		guarded_free(&x);
		guarded_free(&weights);
		guarded_free(&bias);
	}
}

TEST(test_windows__splits_and_packing)
{
	for_each_level(check_windows);
}

/* Columns end where memory does; every k. */
static void check_top_k(const struct cpu_kernels *kernels, void *workspace)
{
	for (size_t len = 1; len < 400; len += pick(1, 40)) {
		struct guarded x = guarded_new(len), values = guarded_new(len);
		int64_t *indices = malloc(len * sizeof(*indices));

		assert_non_null(indices);
		for (size_t k = 1; k <= len; k += k < 8 ? 1 : pick(1, 60)) {
			const struct cpu_top_k args = {
				.x = x.data,
				.values = values.data,
				.indices = indices,
				.outer = 1,
				.len = len,
				.inner = 1,
				.k = k,
				.largest = true,
			};

			kernels->top_k(&args, 0, 1);
			for (size_t i = 0; i < k; i++) {
				assert_in_range(indices[i], 0, len - 1);
				assert_true(values.data[i] == x.data[indices[i]]);
				assert_true(i == 0 || values.data[i] <= values.data[i - 1]);
			}
		}
		free(indices);
		guarded_free(&x);
		guarded_free(&values);
	}
}

TEST(test_top_k__every_k)
{
	for_each_level(check_top_k);
}

TEST(test_levels__names)
{
	assert_non_null(cpu_kernels_get(CPU_SIMD_AUTO));
	assert_non_null(cpu_kernels_get(CPU_SIMD_SSE2));
	assert_null(cpu_kernels_get(CPU_SIMD_COUNT));
	assert_string_equal(cpu_simd_name(CPU_SIMD_AVX512), "avx512");
	assert_string_equal(cpu_simd_name(CPU_SIMD_COUNT), "unknown");
}

/* Every float16, and floats of all kinds, as shm/half.h has them; any length, in any mode. */
TEST(test_half__bits)
{
	enum { N = 1 << 16 };
	uint16_t *halves = malloc(N * sizeof(*halves)), *back = malloc(N * sizeof(*back));
	float *floats = malloc(N * sizeof(*floats));
	uint64_t seed = 4711;

	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		const struct cpu_kernels *kernels = cpu_kernels_get((enum cpu_simd)level);

		if (!kernels)
			continue;
		for (unsigned int i = 0; i < N; i++)
			halves[i] = (uint16_t)i;
		kernels->half_load(N, halves, floats);
		kernels->half_store(N, floats, back);
		for (unsigned int i = 0; i < N; i++) {
			const float want = half_to_float(halves[i]);

			assert_memory_equal(&floats[i], &want, sizeof(want));
			/* A NaN becomes quiet, all else is itself. */
			assert_int_equal(back[i],
					 (i & 0x7c00) == 0x7c00 && (i & 0x3ff) ? i | 0x200 : i);
		}
		for (unsigned int round = 0; round < 40; round++) {
			for (unsigned int i = 0; i < N; i++) {
				uint32_t bits = (uint32_t)(reference_random(&seed) >> 16);

				/* Also ties between two of float16, and what is next to them. */
				if (round & 1)
					bits = (bits & 0xffffe000) + 0x1000 + bits % 3 - 1;
				if (round & 2)
					bits = (bits & 0x80ffffff) | (0x32 + bits % 24) << 24 >> 1;
				memcpy(&floats[i], &bits, sizeof(bits));
			}
			kernels->half_store(N, floats, back);
			for (unsigned int i = 0; i < N; i++)
				assert_int_equal(back[i], half_from_float(floats[i]));
		}
		for (size_t n = 0; n < 70; n++) {
			memset(back, 0x55, 80 * sizeof(*back));
			kernels->half_store(n, floats, back);
			for (size_t i = 0; i < 80; i++)
				assert_int_equal(back[i],
						 i < n ? half_from_float(floats[i]) : 0x5555);
		}
	}
	free(halves);
	free(back);
	free(floats);
}

/* Dilated so far that what a window sees has more floats than can be counted: 2^30 * 2^30 * 16. */
TEST(test_strips__too_large_to_count)
{
	static const size_t far[] = {(1u << 30) - 1, 0x7ffffffe};

	for (size_t i = 0; i < 2; i++)
		for (size_t k = 0; k < 2; k++) {
			const struct cpu_window args = {
				.batch = 1,
				.channels = 16,
				.out_channels = 16,
				.group = 1,
				.depth = 1,
				.height = 8,
				.width = 8,
				.out_depth = 1,
				.out_height = 8,
				.out_width = 8,
				.kernel = {1, 2, 2},
				.stride = {1, 1, 1},
				.dilation = {1, far[i], far[k] - 7},
			};

			assert_false(cpu_conv_last_strips(&args));
		}
}
