/* SPDX-License-Identifier: MIT */
/* Operators and their shapes: sizes, names, work */
#include "operator.h"

#include <stdio.h>

struct operator_sizes operator_sizes(const struct operator_shape *shape)
{
	const size_t m = shape->m, k = shape->k, n = shape->n;
	const size_t out = operator_is_window(shape) ? operator_out_size(shape) : 0;
	const size_t taps = (size_t)shape->kernel * shape->kernel;
	const size_t pixels = (size_t)shape->size * shape->size;

	switch (shape->kind) {
	case OPERATOR_MATMUL:
	case OPERATOR_MATMUL8:
		return (struct operator_sizes){m * k, k * n, 0, m * n};
	case OPERATOR_GEMM:
		return (struct operator_sizes){m * k, k * n, n, m * n};
	case OPERATOR_CONV:
	case OPERATOR_CONV8:
	case OPERATOR_CONV8_QUANTIZED:
		return (struct operator_sizes){
			.x = shape->channels * pixels,
			.weights =
				(size_t)shape->out_channels * shape->channels / shape->group * taps,
			.bias = shape->kind == OPERATOR_CONV8 ? 0 : shape->out_channels,
			.y = shape->out_channels * out * out,
		};
	case OPERATOR_MAX_POOL:
	case OPERATOR_AVERAGE_POOL:
	case OPERATOR_GLOBAL_AVERAGE_POOL:
		return (struct operator_sizes){shape->channels * pixels, 0, 0,
					       shape->channels * out * out};
	case OPERATOR_LAYER_NORM:
		return (struct operator_sizes){m * n, n, n, m * n};
	default:
		return (struct operator_sizes){m * n, 0, 0, m * n};
	}
}

void operator_describe(const struct operator_shape *shape, char *text, size_t bytes)
{
	static const char *const names[] = {
		[OPERATOR_MATMUL] = "MatMul",
		[OPERATOR_MATMUL8] = "MatMul int8",
		[OPERATOR_GEMM] = "Gemm",
		[OPERATOR_CONV] = "Conv",
		[OPERATOR_CONV8] = "Conv int8",
		[OPERATOR_CONV8_QUANTIZED] = "Conv int8 quantized",
		[OPERATOR_MAX_POOL] = "MaxPool",
		[OPERATOR_AVERAGE_POOL] = "AveragePool",
		[OPERATOR_GLOBAL_AVERAGE_POOL] = "GlobalAveragePool",
		[OPERATOR_SOFTMAX] = "Softmax",
		[OPERATOR_LAYER_NORM] = "LayerNorm",
		[OPERATOR_GELU] = "Gelu",
	};
	const char *name = names[shape->kind];
	int n;

	if (!operator_is_window(shape)) {
		if (shape->k)
			snprintf(text, bytes, "%s %ux%ux%u", name, shape->m, shape->k, shape->n);
		else
			snprintf(text, bytes, "%s %ux%u", name, shape->m, shape->n);
		return;
	}
	n = snprintf(text, bytes, "%s %ux%ux%u", name, shape->channels, shape->size, shape->size);
	if (shape->kind == OPERATOR_GLOBAL_AVERAGE_POOL)
		return;
	if (shape->out_channels)
		n += snprintf(text + n, bytes - (size_t)n, " to %u", shape->out_channels);
	n += snprintf(text + n, bytes - (size_t)n, " %ux%u", shape->kernel, shape->kernel);
	if (shape->stride > 1)
		n += snprintf(text + n, bytes - (size_t)n, " /%u", shape->stride);
	if (shape->dilation > 1)
		n += snprintf(text + n, bytes - (size_t)n, " dilated %u", shape->dilation);
	if (shape->group > 1 && shape->group == shape->channels)
		snprintf(text + n, bytes - (size_t)n, " depthwise");
	else if (shape->group > 1)
		snprintf(text + n, bytes - (size_t)n, " groups %u", shape->group);
}

double operator_flops(const struct operator_shape *shape)
{
	switch (shape->kind) {
	case OPERATOR_MATMUL:
	case OPERATOR_MATMUL8:
	case OPERATOR_GEMM:
		return 2.0 * shape->m * shape->k * shape->n;
	case OPERATOR_CONV:
	case OPERATOR_CONV8:
	case OPERATOR_CONV8_QUANTIZED:
		return 2.0 * shape->channels / shape->group * shape->kernel * shape->kernel *
		       (double)operator_sizes(shape).y;
	default:
		return 0;
	}
}

double operator_bytes(const struct operator_shape *shape)
{
	const struct operator_sizes sizes = operator_sizes(shape);

	if (operator_is_int8(shape))
		return (double)(sizes.x + sizes.weights + operator_y_bytes(shape) * sizes.y);
	return 4.0 * (double)(sizes.x + sizes.weights + sizes.bias + sizes.y);
}
