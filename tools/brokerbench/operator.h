#pragma once
/* SPDX-License-Identifier: MIT */
/* One operator over one shape, as given to both sides of a row */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum operator_kind {
	OPERATOR_MATMUL,
	OPERATOR_MATMUL8, /* unsigned times signed bytes into 32 bits, as OPERATOR_CONV8 */
	OPERATOR_GEMM,    /* with transposed weights, and a bias by column */
	OPERATOR_CONV,    /* with a bias */
	OPERATOR_CONV8,
	OPERATOR_CONV8_QUANTIZED, /* into signed bytes, by a scale per output channel */
	OPERATOR_MAX_POOL,
	OPERATOR_AVERAGE_POOL, /* excluding the padding */
	OPERATOR_GLOBAL_AVERAGE_POOL,
	OPERATOR_SOFTMAX,    /* along rows */
	OPERATOR_LAYER_NORM, /* along rows, with scale and bias */
	OPERATOR_GELU,
};

/* Shape of a product y[m][n] = x[m][k] * weights[k][n], of rows x[m][n], or of square windows. */
struct operator_shape {
	enum operator_kind kind;
	union {
		struct {
			uint32_t m, k, n;
		};
		struct {
			uint32_t channels, size, out_channels; /* one picture, size x size */
			uint32_t kernel, stride, dilation, pad, group;
		};
	};
};

/*
 * Operands: float32, or bytes with a result of 32 bits or bytes. Layouts are ONNX's; with
 * @channels_last x and y of a window are channels-last.
 */
struct operator_data {
	bool channels_last;
	const void *x;
	const void *weights; /* of a norm: the scale */
	const float *bias;   /* of a quantized convolution: the scales */
	void *y;
};

static inline uint32_t operator_is_window(const struct operator_shape *shape)
{
	return shape->kind >= OPERATOR_CONV && shape->kind <= OPERATOR_GLOBAL_AVERAGE_POOL;
}

static inline uint32_t operator_is_int8(const struct operator_shape *shape)
{
	return shape->kind == OPERATOR_MATMUL8 || shape->kind == OPERATOR_CONV8 ||
	       shape->kind == OPERATOR_CONV8_QUANTIZED;
}

static inline bool operator_is_conv8(const struct operator_shape *shape)
{
	return operator_is_window(shape) && operator_is_int8(shape);
}

/* Return the bytes of an element of the result. */
static inline size_t operator_y_bytes(const struct operator_shape *shape)
{
	return shape->kind == OPERATOR_CONV8_QUANTIZED ? 1 : 4;
}

/* Return the width and height of a window's output. */
static inline uint32_t operator_out_size(const struct operator_shape *shape)
{
	return (shape->size + 2 * shape->pad - (shape->kernel - 1) * shape->dilation - 1) /
		       shape->stride +
	       1;
}

/* Elements of each operand; 0: there is none. */
struct operator_sizes {
	size_t x, weights, bias, y;
};

struct operator_sizes operator_sizes(const struct operator_shape *shape);

/* Write text such as "Conv 64x56x56 to 64 3x3 /2". */
void operator_describe(const struct operator_shape *shape, char *text, size_t bytes);

/* Return the number of multiplications and additions; 0: the operator's rate is in bytes. */
double operator_flops(const struct operator_shape *shape);

/* Return the bytes read and written, each once. */
double operator_bytes(const struct operator_shape *shape);
