/* SPDX-License-Identifier: MIT */
/*
 * operators: our kernels against oneDNN's, by operator and shape
 *
 * Both sides compute in this process, by turns, on as many threads, with constants that both pack
 * beforehand. Operators over pictures have two rows. In the first both sides use the same
 * channels-first memory, as ONNX has it and as at the ends of a plan. In the second each side uses
 * its preferred layout, as between the nodes of a plan, without the cost of reordering; ours is
 * channels-last. Samples are rates, so a ratio above the target is good: 0.9, and 1 for small
 * shapes.
 *
 * Every result is checked against the baseline's before it is measured.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "direct.h"
#include "kernel-operator.h"
#include "library.h"
#include "operator.h"
#include "plans.h"
#include "util/checked.h"

#define TARGET_LARGE 0.9
#define TARGET_SMALL 1.0

struct operator_row {
	struct operator_shape shape;
	bool is_small;
};

#define PRODUCT(kind_, m_, k_, n_, small_)                         \
	{                                                          \
		{.kind = kind_, .m = m_, .k = k_, .n = n_}, small_ \
	}
#define ROWS(kind_, m_, n_, small_)                               \
	{                                                         \
		{.kind = kind_, .m = m_, .k = 0, .n = n_}, small_ \
	}
#define WINDOW(kind_, c_, size_, out_, kernel_, stride_, dilation_, pad_, group_, small_) \
	{                                                                                 \
		{                                                                         \
			.kind = kind_,                                                    \
			.channels = c_,                                                   \
			.size = size_,                                                    \
			.out_channels = out_,                                             \
			.kernel = kernel_,                                                \
			.stride = stride_,                                                \
			.dilation = dilation_,                                            \
			.pad = pad_,                                                      \
			.group = group_,                                                  \
		},                                                                        \
			small_                                                            \
	}
#define DEPTHWISE(c_, size_, kernel_, stride_, small_) \
	WINDOW(OPERATOR_CONV, c_, size_, c_, kernel_, stride_, 1, (kernel_) / 2, c_, small_)
#define POOL(kind_, c_, size_, kernel_, stride_, pad_, small_) \
	WINDOW(kind_, c_, size_, 0, kernel_, stride_, 1, pad_, 1, small_)
#define GLOBAL(c_, size_, small_) POOL(OPERATOR_GLOBAL_AVERAGE_POOL, c_, size_, size_, 1, 0, small_)

static const struct operator_row rows[] = {
	PRODUCT(OPERATOR_MATMUL, 8, 8, 8, true),
	PRODUCT(OPERATOR_MATMUL, 16, 64, 64, true),
	PRODUCT(OPERATOR_MATMUL, 1, 256, 256, true),
	PRODUCT(OPERATOR_MATMUL, 1, 768, 3072, true),
	PRODUCT(OPERATOR_MATMUL, 4, 768, 3072, true),
	PRODUCT(OPERATOR_MATMUL, 16, 768, 768, true),
	PRODUCT(OPERATOR_MATMUL, 64, 768, 3072, false),
	PRODUCT(OPERATOR_MATMUL, 512, 512, 512, false),
	PRODUCT(OPERATOR_MATMUL, 1024, 1024, 1024, false),
	PRODUCT(OPERATOR_GEMM, 1, 512, 1000, true),
	PRODUCT(OPERATOR_GEMM, 16, 256, 256, true),
	PRODUCT(OPERATOR_GEMM, 128, 768, 768, false),
	PRODUCT(OPERATOR_MATMUL8, 8, 64, 64, true),
	PRODUCT(OPERATOR_MATMUL8, 1, 768, 3072, true),
	PRODUCT(OPERATOR_MATMUL8, 4, 768, 3072, true),
	PRODUCT(OPERATOR_MATMUL8, 64, 768, 3072, false),
	PRODUCT(OPERATOR_MATMUL8, 512, 512, 512, false),

	WINDOW(OPERATOR_CONV, 1, 28, 8, 5, 1, 1, 2, 1, true),
	WINDOW(OPERATOR_CONV, 8, 14, 16, 5, 1, 1, 2, 1, true),
	WINDOW(OPERATOR_CONV, 16, 8, 16, 3, 1, 1, 1, 1, true),
	WINDOW(OPERATOR_CONV, 32, 8, 32, 1, 1, 1, 0, 1, true),
	WINDOW(OPERATOR_CONV, 3, 224, 64, 7, 2, 1, 3, 1, false),
	WINDOW(OPERATOR_CONV, 64, 56, 64, 3, 1, 1, 1, 1, false),
	WINDOW(OPERATOR_CONV, 256, 14, 256, 3, 1, 1, 1, 1, false),
	WINDOW(OPERATOR_CONV, 64, 56, 256, 1, 1, 1, 0, 1, false),
	WINDOW(OPERATOR_CONV, 512, 7, 2048, 1, 1, 1, 0, 1, false),
	WINDOW(OPERATOR_CONV, 128, 56, 128, 3, 2, 1, 1, 1, false),
	WINDOW(OPERATOR_CONV, 64, 28, 64, 3, 1, 2, 2, 1, false),
	WINDOW(OPERATOR_CONV, 128, 28, 128, 3, 1, 1, 1, 4, false),
	WINDOW(OPERATOR_CONV, 128, 56, 128, 3, 1, 1, 1, 32, false),
	WINDOW(OPERATOR_CONV8, 16, 8, 16, 3, 1, 1, 1, 1, true),
	WINDOW(OPERATOR_CONV8, 64, 56, 64, 3, 1, 1, 1, 1, false),
	WINDOW(OPERATOR_CONV8, 256, 14, 256, 3, 1, 1, 1, 1, false),
	WINDOW(OPERATOR_CONV8, 64, 56, 256, 1, 1, 1, 0, 1, false),
	WINDOW(OPERATOR_CONV8_QUANTIZED, 16, 8, 16, 3, 1, 1, 1, 1, true),
	WINDOW(OPERATOR_CONV8_QUANTIZED, 64, 56, 64, 3, 1, 1, 1, 1, false),
	WINDOW(OPERATOR_CONV8_QUANTIZED, 256, 14, 256, 3, 1, 1, 1, 1, false),
	WINDOW(OPERATOR_CONV8_QUANTIZED, 64, 56, 256, 1, 1, 1, 0, 1, false),
	DEPTHWISE(16, 8, 3, 1, true),
	DEPTHWISE(512, 7, 3, 1, true),
	DEPTHWISE(32, 112, 3, 1, false),
	DEPTHWISE(96, 112, 3, 2, false),
	DEPTHWISE(256, 28, 5, 1, false),

	POOL(OPERATOR_MAX_POOL, 8, 28, 2, 2, 0, true),
	POOL(OPERATOR_MAX_POOL, 16, 14, 3, 3, 0, true),
	POOL(OPERATOR_MAX_POOL, 64, 112, 3, 2, 1, false),
	POOL(OPERATOR_MAX_POOL, 64, 56, 2, 2, 0, false),
	POOL(OPERATOR_AVERAGE_POOL, 8, 28, 2, 2, 0, true),
	POOL(OPERATOR_AVERAGE_POOL, 64, 56, 3, 1, 1, false),
	POOL(OPERATOR_AVERAGE_POOL, 128, 56, 2, 2, 0, false),
	GLOBAL(16, 7, true),
	GLOBAL(2048, 7, false),
	GLOBAL(256, 28, false),

	ROWS(OPERATOR_SOFTMAX, 1, 10, true),
	ROWS(OPERATOR_SOFTMAX, 16, 64, true),
	ROWS(OPERATOR_SOFTMAX, 1, 1000, true),
	ROWS(OPERATOR_SOFTMAX, 64, 1000, false),
	ROWS(OPERATOR_SOFTMAX, 1536, 128, false),
	ROWS(OPERATOR_SOFTMAX, 16, 32768, false),
	ROWS(OPERATOR_LAYER_NORM, 1, 768, true),
	ROWS(OPERATOR_LAYER_NORM, 16, 64, true),
	ROWS(OPERATOR_LAYER_NORM, 64, 768, false),
	ROWS(OPERATOR_LAYER_NORM, 512, 1024, false),
	ROWS(OPERATOR_GELU, 1, 768, true),
	ROWS(OPERATOR_GELU, 16, 256, true),
	ROWS(OPERATOR_GELU, 64, 3072, false),
	ROWS(OPERATOR_GELU, 1024, 1024, false),
};

/* One side of a row; it converts microseconds to a rate. */
struct side {
	struct direct direct;
	double work; /* thousands of operations or bytes per call */
};

static int side_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	struct side *side = data;
	size_t first = samples->n;
	int r;

	r = direct_round(&side->direct, budget_ns, samples);
	for (size_t i = first; i < samples->n; i++)
		samples->values[i] = side->work / samples->values[i];
	return r;
}

static int run_kernel(void *data)
{
	kernel_operator_run(data);
	return 0;
}

static int run_library(void *data)
{
	return library_operator_run(data);
}

/* Operands of a row, and the baseline's result */
struct operands {
	void *x, *weights;
	float *bias;
	void *y, *expected;
	void *x_last, *y_last; /* channels-last copies */
};

static void operands_deinit(struct operands *operands)
{
	free(operands->x);
	free(operands->weights);
	free(operands->bias);
	free(operands->y);
	free(operands->expected);
	free(operands->x_last);
	free(operands->y_last);
}

static void *memory(size_t bytes)
{
	return aligned_alloc(64, (bytes + 64) / 64 * 64);
}

/* Write @n bytes of @n_bits random bits each. */
static void fill_bytes(uint8_t *to, size_t n, unsigned int n_bits, uint32_t seed)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> (32 - n_bits));
}

/* Return true if our kernels have a channels-last layout for the operator. */
static bool has_own_layout(const struct operator_shape *shape)
{
	return operator_is_window(shape) && !operator_is_int8(shape);
}

static void transpose(const float *from, size_t m, size_t n, float *to)
{
	for (size_t i = 0; i < m; i++)
		for (size_t j = 0; j < n; j++)
			to[j * m + i] = from[i * n + j];
}

static int operands_init(struct operands *operands, const struct operator_shape *shape)
{
	const struct operator_sizes sizes = operator_sizes(shape);

	operands->x = memory(sizes.x * sizeof(float));
	operands->weights = memory(sizes.weights * sizeof(float));
	operands->bias = memory(sizes.bias * sizeof(float));
	operands->y = memory(sizes.y * sizeof(float));
	operands->expected = memory(sizes.y * sizeof(float));
	operands->x_last = memory(sizes.x * sizeof(float));
	operands->y_last = memory(sizes.y * sizeof(float));
	if (!operands->x || !operands->weights || !operands->bias || !operands->y ||
	    !operands->expected || !operands->x_last || !operands->y_last)
		return -ENOMEM;
	if (operator_is_int8(shape)) {
		fill_bytes(operands->x, sizes.x, LIBRARY_U8_BITS, 1);
		fill_bytes(operands->weights, sizes.weights, 8, 2);
	} else {
		plans_fill(operands->x, sizes.x, 1);
		plans_fill(operands->weights, sizes.weights, 2);
	}
	plans_fill(operands->bias, sizes.bias, 3);
	/* scales, for sums of some hundred thousands */
	for (size_t i = 0; shape->kind == OPERATOR_CONV8_QUANTIZED && i < sizes.bias; i++)
		operands->bias[i] = 1e-4f * (1 + fabsf(operands->bias[i]));
	if (has_own_layout(shape))
		transpose(operands->x, shape->channels, (size_t)shape->size * shape->size,
			  operands->x_last);
	return 0;
}

/* Return true if both results are equal up to the rounding of sums of terms of at most 1. */
static bool is_same(const struct operator_shape *shape, const struct operands *operands)
{
	const size_t n = operator_sizes(shape).y;
	const float *ours = operands->y, *theirs = operands->expected;
	const double terms = operator_flops(shape) / (2.0 * (double)n);

	if (operator_is_int8(shape))
		return memcmp(ours, theirs, n * operator_y_bytes(shape)) == 0;
	for (size_t i = 0; i < n; i++)
		if (!(fabs((double)ours[i] - (double)theirs[i]) <= 1e-6 * (terms + 16)))
			return false;
	return true;
}

/*
 * Run both sides once and compare. The library's result is copied from y to expected. With @last
 * our result is transposed from y_last to y.
 */
static int run_both(const struct operator_shape *shape, struct operands *operands, bool last,
		    struct kernel_operator *kernel, struct library_operator *library)
{
	const size_t channels = shape->out_channels ? shape->out_channels : shape->channels;
	const size_t bytes = operator_sizes(shape).y * sizeof(float);
	int r;

	memset(operands->y, 0xff, bytes);
	r = library_operator_run(library);
	if (!r)
		r = library_operator_fetch(library);
	if (r)
		return r;
	memcpy(operands->expected, operands->y, bytes);
	memset(operands->y, 0xff, bytes);
	memset(operands->y_last, 0xff, bytes);
	kernel_operator_run(kernel);
	if (last)
		transpose(operands->y_last, bytes / sizeof(float) / channels, channels,
			  operands->y);
	return is_same(shape, operands) ? 0 : -EILSEQ;
}

static int compare(struct bench_env *env, struct library *library, const struct operator_row *of,
		   bool own_layout, unsigned int n_threads)
{
	const struct operator_shape *shape = &of->shape;
	const double flops = operator_flops(shape);
	const double work = (flops > 0 ? flops : operator_bytes(shape)) / 1e3;
	struct operands operands = {0};
	struct kernel_operator *kernel = NULL;
	struct library_operator *theirs = NULL;
	char params[96], name[48], baseline[64];
	struct bench_row row = {
		.params = params,
		.unit = flops <= 0                ? "GB/s"
			: operator_is_int8(shape) ? "GOP/s"
						  : "GFLOP/s",
		.is_rate = true,
		.baseline = baseline,
		.target = of->is_small ? TARGET_SMALL : TARGET_LARGE,
	};
	struct side ours, baselines;
	const bool last = own_layout && has_own_layout(shape);
	struct operator_data data, data_last;
	int r;

	operator_describe(shape, name, sizeof(name));
	snprintf(params, sizeof(params), "%s, %u thread%s", name, n_threads,
		 n_threads == 1 ? "" : "s");
	snprintf(baseline, sizeof(baseline), "%s%s", library_name(library),
		 !operator_is_window(shape) ? ""
		 : own_layout               ? " own layout"
					    : " same memory");
	if (!bench_is_wanted(env, params))
		return 0;
	bench_pin(env, -1); /* so that helpers do not get this thread's processor; see crew.h */
	r = operands_init(&operands, shape);
	data = (struct operator_data){
		.x = operands.x,
		.weights = operator_sizes(shape).weights ? operands.weights : NULL,
		.bias = operator_sizes(shape).bias ? operands.bias : NULL,
		.y = operands.y,
	};
	data_last = data;
	data_last.channels_last = true;
	data_last.x = operands.x_last;
	data_last.y = operands.y_last;
	if (!r)
		r = kernel_operator_new(shape, last ? &data_last : &data, n_threads, &kernel);
	if (!r)
		r = library_operator_new(library, shape, &data, own_layout, n_threads, &theirs);
	if (r == -ENOSYS) {
		r = 0;
		bench_skip(env, params, "%s does not compute this operator", baseline);
		goto out;
	}
	if (!r)
		r = run_both(shape, &operands, last, kernel, theirs);
	ours = (struct side){{env, env->client_cpu, run_kernel, kernel}, work};
	/* The library's threads run on any processor; ours have one each. */
	baselines = (struct side){{env, n_threads == 1 ? env->client_cpu : -1, run_library, theirs},
				  work};
	if (!r)
		r = bench_compare(env, &row, (struct bench_side){side_round, &ours},
				  (struct bench_side){side_round, &baselines});
	if (r)
		bench_fail(env, r, "%s failed, or differs from the result of %s", params, baseline);
out:
	library_operator_free(theirs);
	kernel_operator_free(kernel);
	operands_deinit(&operands);
	return r;
}

static int run(struct bench_env *env)
{
	struct library *library = NULL;
	const char *reason = NULL;
	int r = 0;

	if (library_open_onednn(&library, &reason))
		return bench_skip(env, NULL, "%s", reason);
	for (size_t i = 0; i < ARRAY_SIZE(rows) && !r; i++) {
		const bool is_window = operator_is_window(&rows[i].shape);

		const bool is_shared = !rows[i].is_small && !env->quick && env->n_cpus >= 2;

		/* Small shapes do not gain from a second thread. */
		for (unsigned int n = 1; n <= (is_shared ? 2 : 1); n++) {
			/* oneDNN has only a plain channels-first convolution of bytes. */
			if (!r && !operator_is_conv8(&rows[i].shape))
				r = compare(env, library, &rows[i], false, n);
			if (!r && is_window)
				r = compare(env, library, &rows[i], true, n);
		}
	}
	library_free(library);
	return r;
}

const struct bench bench_operators = {
	.name = "operators",
	.summary = "operators by our kernels, on one thread and on two, large and small",
	.baseline = "oneDNN, on the same memory and, both, on their own layout",
	.run = run,
};
