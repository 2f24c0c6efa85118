/* SPDX-License-Identifier: MIT */
/*
 * The CPU kernels of an operator without a broker
 *
 * This file does what the executor's steps do, without steps: it fills in arguments once and hands
 * units to a crew. A product's units are register tiles of rows, or panels of columns if there are
 * few rows.
 */
#include "kernel-operator.h"

#include <errno.h>
#include <stdlib.h>

#include "cpu/int8.h"
#include "crew.h"
#include "shm/number.h"

/* rows per thread from which a product is divided by rows */
#define ROWS_PER_THREAD 48u

struct kernel_operator {
	struct operator_shape shape;
	const struct cpu_kernels *kernels;
	const struct cpu_int8_kernels *kernels8;
	void *packed;
	union {
		struct cpu_gemm gemm;
		struct cpu_int8_gemm gemm8;
		struct cpu_window window;
		struct cpu_int8_conv conv8;
		struct cpu_reduce reduce;
		struct cpu_softmax softmax;
		struct cpu_norm norm;
		struct cpu_map map;
	};
	bool by_columns; /* products: units are panels of columns, else register tiles of rows */
	size_t unit;     /* columns or rows of one unit */
	size_t n_units;
	crew_fn *fn;
	struct crew *crew;
	struct cpu_requantize requantize;
};

/* scale of operands that have one scale for all channels */
static const float scale_one = 1;

/* ---- Functions of a crew ---- */

static struct cpu_gemm_tile tile_of(const struct kernel_operator *kernel, size_t begin, size_t end)
{
	const size_t m = kernel->shape.m, n = kernel->shape.n;

	begin *= kernel->unit;
	end *= kernel->unit;
	if (!kernel->by_columns)
		return (struct cpu_gemm_tile){begin, end < m ? end : m, 0, n};
	return (struct cpu_gemm_tile){0, m, begin, end < n ? end : n};
}

static void run_gemm(void *data, size_t begin, size_t end, void *workspace)
{
	const struct kernel_operator *kernel = data;
	const struct cpu_gemm_tile tile = tile_of(kernel, begin, end);

	kernel->kernels->gemm(&kernel->gemm, &tile, workspace);
}

static void run_gemm8(void *data, size_t begin, size_t end, void *workspace)
{
	const struct kernel_operator *kernel = data;
	const struct cpu_gemm_tile tile = tile_of(kernel, begin, end);

	kernel->kernels8->gemm(&kernel->gemm8, &tile, workspace);
}

static void run_conv(void *data, size_t begin, size_t end, void *workspace)
{
	const struct kernel_operator *kernel = data;

	kernel->kernels->conv(&kernel->window, begin, end, workspace);
}

static void run_conv8(void *data, size_t begin, size_t end, void *workspace)
{
	const struct kernel_operator *kernel = data;

	kernel->kernels8->conv(&kernel->conv8, begin, end, workspace);
}

static void run_max_pool(void *data, size_t begin, size_t end, void *workspace)
{
	const struct kernel_operator *kernel = data;

	kernel->kernels->max_pool(&kernel->window, begin, end);
}

static void run_average_pool(void *data, size_t begin, size_t end, void *workspace)
{
	const struct kernel_operator *kernel = data;

	kernel->kernels->average_pool(&kernel->window, begin, end);
}

static void run_conv_last(void *data, size_t begin, size_t end, void *workspace)
{
	const struct kernel_operator *kernel = data;

	kernel->kernels->conv_last(&kernel->window, begin, end, workspace);
}

static void run_max_pool_last(void *data, size_t begin, size_t end, void *workspace)
{
	const struct kernel_operator *kernel = data;

	kernel->kernels->max_pool_last(&kernel->window, begin, end);
}

static void run_average_pool_last(void *data, size_t begin, size_t end, void *workspace)
{
	const struct kernel_operator *kernel = data;

	kernel->kernels->average_pool_last(&kernel->window, begin, end);
}

static void run_reduce(void *data, size_t begin, size_t end, void *workspace)
{
	const struct kernel_operator *kernel = data;

	kernel->kernels->reduce(&kernel->reduce, begin, end);
}

static void run_softmax(void *data, size_t begin, size_t end, void *workspace)
{
	const struct kernel_operator *kernel = data;

	kernel->kernels->softmax(&kernel->softmax, begin, end);
}

static void run_norm(void *data, size_t begin, size_t end, void *workspace)
{
	const struct kernel_operator *kernel = data;

	kernel->kernels->norm(&kernel->norm, begin, end);
}

static void run_gelu(void *data, size_t begin, size_t end, void *workspace)
{
	const struct kernel_operator *kernel = data;
	struct cpu_map map = kernel->map;

	map.in[0] = (const float *)map.in[0] + begin;
	map.out = (float *)map.out + begin;
	kernel->kernels->map[CPU_F32][CPU_MAP_GELU](&map, end - begin);
}

/* ---- Preparation ---- */

static void cut_product(struct kernel_operator *kernel, unsigned int n_threads, size_t mr,
			size_t nr)
{
	const size_t m = kernel->shape.m, n = kernel->shape.n;

	kernel->by_columns = n_threads > 1 && m < ROWS_PER_THREAD * n_threads;
	kernel->unit = kernel->by_columns ? nr : mr;
	kernel->n_units = div_up(kernel->by_columns ? n : m, kernel->unit);
}

static int prepare_gemm(struct kernel_operator *kernel, const struct operator_data *data,
			unsigned int n_threads)
{
	const struct operator_shape *shape = &kernel->shape;
	const bool is_gemm = shape->kind == OPERATOR_GEMM;

	kernel->gemm = (struct cpu_gemm){
		.m = shape->m,
		.n = shape->n,
		.k = shape->k,
		.a = data->x,
		.a_rs = shape->k,
		.a_cs = 1,
		.b = data->weights,
		.b_rs = is_gemm ? 1 : shape->n,
		.b_cs = is_gemm ? shape->k : 1,
		.y = data->y,
		.y_rs = shape->n,
		.c = data->bias,
		.c_cs = 1,
		.alpha = 1,
		.beta = is_gemm ? 1 : 0,
	};
	kernel->packed =
		crew_memory(kernel->kernels->pack_b_size(shape->k, shape->n) * sizeof(float));
	if (!kernel->packed)
		return -ENOMEM;
	kernel->kernels->pack_b(shape->k, shape->n, data->weights, kernel->gemm.b_rs,
				kernel->gemm.b_cs, kernel->packed);
	kernel->gemm.b_packed = kernel->packed;
	kernel->fn = run_gemm;
	cut_product(kernel, n_threads, kernel->kernels->gemm_mr, kernel->kernels->gemm_nr);
	return 0;
}

static int prepare_gemm8(struct kernel_operator *kernel, const struct operator_data *data,
			 unsigned int n_threads)
{
	const struct operator_shape *shape = &kernel->shape;

	kernel->gemm8 = (struct cpu_int8_gemm){
		.m = shape->m,
		.n = shape->n,
		.k = shape->k,
		.a = data->x,
		.a_rs = shape->k,
		.b = data->weights,
		.b_rs = shape->n,
		.b_signed = true,
		.y = data->y,
		.y_rs = shape->n,
	};
	kernel->packed = crew_memory(kernel->kernels8->pack_b_size(shape->k, shape->n));
	if (!kernel->packed)
		return -ENOMEM;
	kernel->kernels8->pack_b(&kernel->gemm8, 0, SIZE_MAX, kernel->packed);
	kernel->gemm8.b_packed = kernel->packed;
	kernel->fn = run_gemm8;
	cut_product(kernel, n_threads, kernel->kernels8->gemm_mr, kernel->kernels8->gemm_nr);
	return 0;
}

static struct cpu_window window_of(const struct operator_shape *shape,
				   const struct operator_data *data)
{
	const size_t out = operator_out_size(shape);
	const size_t kernel = shape->kernel, stride = shape->stride, pad = shape->pad;

	return (struct cpu_window){
		.batch = 1,
		.channels = shape->channels,
		.depth = 1,
		.height = shape->size,
		.width = shape->size,
		.out_channels = shape->out_channels ? shape->out_channels : shape->channels,
		.out_depth = 1,
		.out_height = out,
		.out_width = out,
		.kernel = {1, kernel, kernel},
		.stride = {1, stride, stride},
		.dilation = {1, shape->dilation, shape->dilation},
		.pad_begin = {0, pad, pad},
		.pad_end = {0, pad, pad},
		.group = shape->group,
		.x = data->x,
		.weights = data->weights,
		.bias = data->bias,
		.y = data->y,
	};
}

static int prepare_conv(struct kernel_operator *kernel, const struct operator_data *data)
{
	const struct cpu_kernels *kernels = kernel->kernels;
	const bool last = data->channels_last;

	kernel->window = window_of(&kernel->shape, data);
	kernel->fn = last ? run_conv_last : run_conv;
	kernel->n_units =
		last ? cpu_conv_last_units(&kernel->window) : cpu_conv_units(&kernel->window);
	if (cpu_conv_is_depthwise(&kernel->window) && !last)
		return 0;
	kernel->packed = crew_memory(
		(last ? kernels->pack_conv_last_size : kernels->pack_conv_size)(&kernel->window) *
		sizeof(float));
	if (!kernel->packed)
		return -ENOMEM;
	(last ? kernels->pack_conv_last : kernels->pack_conv)(&kernel->window, 0, SIZE_MAX,
							      kernel->packed);
	kernel->window.weights_packed = kernel->packed;
	return 0;
}

static int prepare_conv8(struct kernel_operator *kernel, const struct operator_data *data)
{
	kernel->conv8 = (struct cpu_int8_conv){
		.window = window_of(&kernel->shape, data),
		.weights_signed = true,
	};
	if (kernel->shape.kind == OPERATOR_CONV8_QUANTIZED) {
		kernel->requantize = (struct cpu_requantize){
			.a = {data->bias, true},
			.b = {&scale_one, false},
			.y = &scale_one,
			.y_signed = true,
		};
		kernel->conv8.requantize = &kernel->requantize;
	}
	kernel->fn = run_conv8;
	kernel->n_units = cpu_int8_conv_units(&kernel->conv8.window);
	kernel->packed = crew_memory(kernel->kernels8->pack_conv_size(&kernel->conv8.window));
	if (!kernel->packed)
		return -ENOMEM;
	kernel->kernels8->pack_conv(&kernel->conv8, 0, SIZE_MAX, kernel->packed);
	kernel->conv8.window.weights_packed = kernel->packed;
	return 0;
}

static void prepare_rows(struct kernel_operator *kernel, const struct operator_data *data)
{
	const struct operator_shape *shape = &kernel->shape;

	kernel->n_units = shape->m;
	if (shape->kind == OPERATOR_SOFTMAX) {
		kernel->fn = run_softmax;
		kernel->softmax = (struct cpu_softmax){
			.x = data->x,
			.y = data->y,
			.outer = shape->m,
			.len = shape->n,
			.inner = 1,
		};
	} else if (shape->kind == OPERATOR_LAYER_NORM) {
		kernel->fn = run_norm;
		kernel->norm = (struct cpu_norm){
			.x = data->x,
			.y = data->y,
			.scale = data->weights,
			.bias = data->bias,
			.rows = shape->m,
			.len = shape->n,
			.period = 1,
			.scale_each = true,
			.bias_each = true,
			.epsilon = 1e-5f,
		};
	} else {
		kernel->fn = run_gelu;
		kernel->n_units *= shape->n;
		kernel->map = (struct cpu_map){.in = {data->x}, .out = data->y, .step = {1}};
	}
}

static void prepare_global_pool(struct kernel_operator *kernel, const struct operator_data *data)
{
	const struct operator_shape *shape = &kernel->shape;
	const size_t pixels = (size_t)shape->size * shape->size;

	kernel->fn = run_reduce;
	kernel->reduce = (struct cpu_reduce){
		.x = data->x,
		.y = data->y,
		.n_kept = 1,
		.n_reduced = 1,
		.kept = {shape->channels},
		.kept_stride = {data->channels_last ? 1 : pixels},
		.reduced = {pixels},
		.reduced_stride = {data->channels_last ? shape->channels : 1},
		.inner_kept = data->channels_last,
		.kind = CPU_REDUCE_MEAN,
		.type = CPU_F32,
	};
	kernel->n_units = cpu_reduce_units(&kernel->reduce);
}

static void prepare_pool(struct kernel_operator *kernel, const struct operator_data *data)
{
	const struct operator_shape *shape = &kernel->shape;
	const bool is_max = shape->kind == OPERATOR_MAX_POOL;

	if (shape->kind == OPERATOR_GLOBAL_AVERAGE_POOL) {
		prepare_global_pool(kernel, data);
		return;
	}
	kernel->window = window_of(shape, data);
	if (data->channels_last) {
		kernel->n_units = cpu_rows_last(&kernel->window);
		kernel->fn = is_max ? run_max_pool_last : run_average_pool_last;
	} else {
		kernel->n_units = shape->channels;
		kernel->fn = is_max ? run_max_pool : run_average_pool;
	}
}

int kernel_operator_new(const struct operator_shape *shape, const struct operator_data *data,
			unsigned int n_threads, struct kernel_operator **ret)
{
	struct kernel_operator *kernel = calloc(1, sizeof(*kernel));
	int r;

	if (!kernel)
		return -ENOMEM;
	kernel->shape = *shape;
	kernel->kernels = cpu_kernels_get(CPU_SIMD_AUTO);
	kernel->kernels8 = cpu_int8_best(CPU_SIMD_AUTO);
	r = crew_new(n_threads, &kernel->crew);
	if (r)
		goto fail;
	switch (shape->kind) {
	case OPERATOR_MATMUL:
	case OPERATOR_GEMM:
		r = prepare_gemm(kernel, data, n_threads);
		break;
	case OPERATOR_MATMUL8:
		r = prepare_gemm8(kernel, data, n_threads);
		break;
	case OPERATOR_CONV:
		r = prepare_conv(kernel, data);
		break;
	case OPERATOR_CONV8:
	case OPERATOR_CONV8_QUANTIZED:
		r = prepare_conv8(kernel, data);
		break;
	case OPERATOR_MAX_POOL:
	case OPERATOR_AVERAGE_POOL:
	case OPERATOR_GLOBAL_AVERAGE_POOL:
		prepare_pool(kernel, data);
		break;
	default:
		prepare_rows(kernel, data);
		break;
	}
	if (r)
		goto fail;
	*ret = kernel;
	return 0;

fail:
	kernel_operator_free(kernel);
	return r;
}

struct kernel_operator *kernel_operator_free(struct kernel_operator *kernel)
{
	if (!kernel)
		return NULL;
	crew_free(kernel->crew);
	free(kernel->packed);
	free(kernel);
	return NULL;
}

void kernel_operator_run(struct kernel_operator *kernel)
{
	crew_run(kernel->crew, kernel->fn, kernel, kernel->n_units);
}
