/* SPDX-License-Identifier: MIT */
/*
 * Expected results of single operators, see work.h
 *
 * Inputs are small integers, so every sum of products is an integer below 2^24: its bits are the
 * same in any order of additions and on any device. Only Softmax has a rounding error.
 */
#include "work-reference.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KERNEL = 3, POOL = 2 };

uint64_t work_left_elems(const struct work_shape *shape)
{
	switch (shape->op) {
	case WORK_MATMUL:
		return shape->inner;
	case WORK_CONV:
	case WORK_MAX_POOL:
		return (uint64_t)shape->channels * shape->side * shape->side;
	case WORK_TRANSPOSE:
		return (uint64_t)shape->inner * shape->columns;
	default:
		return shape->columns;
	}
}

uint64_t work_right_elems(const struct work_shape *shape)
{
	switch (shape->op) {
	case WORK_MATMUL:
		return (uint64_t)shape->inner * shape->columns;
	case WORK_CONV:
		return (uint64_t)shape->filters * shape->channels * KERNEL * KERNEL;
	case WORK_ADD:
		return shape->columns;
	default:
		return 0;
	}
}

uint64_t work_row_elems(const struct work_shape *shape)
{
	switch (shape->op) {
	case WORK_CONV:
		return (uint64_t)shape->filters * shape->side * shape->side;
	case WORK_MAX_POOL:
		return (uint64_t)shape->channels * (shape->side / POOL) * (shape->side / POOL);
	case WORK_REDUCE_SUM:
		return 1;
	case WORK_TRANSPOSE:
		return work_left_elems(shape);
	default:
		return shape->columns;
	}
}

bool work_is_large(const struct work_shape *shape)
{
	const double elems = (double)shape->rows * (double)work_row_elems(shape);

	if (shape->op == WORK_MATMUL)
		return elems * shape->inner > 2e8;
	return shape->op == WORK_CONV && elems * shape->channels * KERNEL * KERNEL > 2e8;
}

static void compute_matmul(const struct work_shape *shape, const float *left, const float *right,
			   float *ret)
{
	for (uint32_t i = 0; i < shape->rows; i++) {
		float *row = ret + (size_t)i * shape->columns;

		memset(row, 0, shape->columns * sizeof(*row));
		for (uint32_t k = 0; k < shape->inner; k++) {
			const float x = left[(size_t)i * shape->inner + k];
			const float *from = right + (size_t)k * shape->columns;

			for (uint32_t j = 0; j < shape->columns; j++)
				row[j] += x * from[j];
		}
	}
}

/* Add a plane convolved with one kernel to another plane; pixels outside the plane count as 0. */
static void convolve(uint32_t side, const float *from, const float *kernel, float *to)
{
	for (uint32_t ky = 0; ky < KERNEL; ky++) {
		for (uint32_t kx = 0; kx < KERNEL; kx++) {
			const float x = kernel[ky * KERNEL + kx];
			const uint32_t first = kx == 0, end = side - (kx == 2);

			for (uint32_t y = ky == 0; y < side - (ky == 2); y++) {
				const float *line = from + (size_t)(y + ky - 1) * side;
				float *out = to + (size_t)y * side;

				for (uint32_t c = first; c < end; c++)
					out[c] += x * line[c + kx - 1];
			}
		}
	}
}

static void compute_conv(const struct work_shape *shape, const float *left, const float *right,
			 float *ret)
{
	const size_t plane = (size_t)shape->side * shape->side;

	memset(ret, 0, shape->rows * work_row_elems(shape) * sizeof(*ret));
	for (uint32_t i = 0; i < shape->rows; i++)
		for (uint32_t f = 0; f < shape->filters; f++)
			for (uint32_t c = 0; c < shape->channels; c++)
				convolve(shape->side,
					 left + ((size_t)i * shape->channels + c) * plane,
					 right + ((size_t)f * shape->channels + c) * KERNEL *
							 KERNEL,
					 ret + ((size_t)i * shape->filters + f) * plane);
}

static void compute_max_pool(const struct work_shape *shape, const float *left, float *ret)
{
	const uint32_t side = shape->side, half = side / POOL;

	for (size_t i = 0; i < (size_t)shape->rows * shape->channels; i++) {
		for (uint32_t y = 0; y < half; y++) {
			for (uint32_t x = 0; x < half; x++) {
				const float *at = left + (i * side + y * POOL) * side + x * POOL;

				*ret++ = fmaxf(fmaxf(at[0], at[1]), fmaxf(at[side], at[side + 1]));
			}
		}
	}
}

static void compute_softmax(uint32_t n, const float *from, float *to)
{
	double sum = 0;
	float max = from[0];

	for (uint32_t i = 1; i < n; i++)
		max = fmaxf(max, from[i]);
	for (uint32_t i = 0; i < n; i++)
		sum += exp((double)from[i] - max);
	for (uint32_t i = 0; i < n; i++)
		to[i] = (float)(exp((double)from[i] - max) / sum);
}

static void compute_row(const struct work_shape *shape, const float *left, const float *right,
			float *to)
{
	const uint32_t n = shape->columns;

	switch (shape->op) {
	case WORK_ADD:
		for (uint32_t i = 0; i < n; i++)
			to[i] = left[i] + right[i];
		return;
	case WORK_RELU:
		for (uint32_t i = 0; i < n; i++)
			to[i] = left[i] > 0 ? left[i] : 0;
		return;
	case WORK_SOFTMAX:
		compute_softmax(n, left, to);
		return;
	case WORK_REDUCE_SUM:
		*to = 0;
		for (uint32_t i = 0; i < n; i++)
			*to += left[i];
		return;
	default:
		for (uint32_t i = 0; i < n; i++)
			for (uint32_t j = 0; j < shape->inner; j++)
				to[(size_t)i * shape->inner + j] = left[(size_t)j * n + i];
	}
}

void work_compute(const struct work_shape *shape, const float *left, const float *right, float *ret)
{
	const uint64_t left_elems = work_left_elems(shape), row_elems = work_row_elems(shape);
	const uint64_t right_elems = work_right_elems(shape);

	switch (shape->op) {
	case WORK_MATMUL:
		compute_matmul(shape, left, right, ret);
		return;
	case WORK_CONV:
		compute_conv(shape, left, right, ret);
		return;
	case WORK_MAX_POOL:
		compute_max_pool(shape, left, ret);
		return;
	default:
		for (uint32_t i = 0; i < shape->rows; i++)
			compute_row(shape, left + i * left_elems,
				    right ? right + i * right_elems : NULL, ret + i * row_elems);
	}
}

static uint64_t random_64(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/*
 * Convert a float to an integer modulo 2^64. A value that is not a representable integer becomes a
 * number that no result has.
 */
static uint64_t whole(float value)
{
	return value == truncf(value) && fabsf(value) < 0x1p24f ? (uint64_t)(int64_t)value
								: 0x9e3779b97f4a7c15ull;
}

/*
 * Check for every row i: sum over k of left[i][k] * column[k] == sum over j of output[i][j] *
 * factors[j].
 */
static bool project_matmul(const struct work_shape *shape, uint32_t rows, const float *left,
			   const uint64_t *column, const float *output, const uint64_t *factors)
{
	for (uint32_t i = 0; i < rows; i++) {
		const float *x = left + (size_t)i * shape->inner;
		const float *y = output + (size_t)i * shape->columns;
		uint64_t sum = 0;

		for (uint32_t k = 0; k < shape->inner; k++)
			sum += whole(x[k]) * column[k];
		for (uint32_t j = 0; j < shape->columns; j++)
			sum -= whole(y[j]) * factors[j];
		if (sum)
			return false;
	}
	return true;
}

/* Return one output element of the combined kernels. */
static uint64_t project_element(const struct work_shape *shape, const float *image,
				const uint64_t *kernels, uint32_t y, uint32_t x)
{
	const uint32_t side = shape->side;
	uint64_t sum = 0;

	for (uint32_t c = 0; c < shape->channels; c++) {
		for (uint32_t t = 0; t < KERNEL * KERNEL; t++) {
			const uint32_t from_y = y + t / KERNEL - 1, from_x = x + t % KERNEL - 1;

			if (from_y < side && from_x < side)
				sum += whole(image[((size_t)c * side + from_y) * side + from_x]) *
				       kernels[c * KERNEL * KERNEL + t];
		}
	}
	return sum;
}

static bool project_conv(const struct work_shape *shape, uint32_t rows, const float *left,
			 const uint64_t *kernels, const float *output, const uint64_t *factors)
{
	const size_t plane = (size_t)shape->side * shape->side;

	for (uint32_t i = 0; i < rows; i++) {
		const float *image = left + i * shape->channels * plane;
		const float *result = output + i * shape->filters * plane;

		for (uint32_t p = 0; p < plane; p++) {
			uint64_t sum = project_element(shape, image, kernels, p / shape->side,
						       p % shape->side);

			for (uint32_t f = 0; f < shape->filters; f++)
				sum -= whole(result[f * plane + p]) * factors[f];
			if (sum)
				return false;
		}
	}
	return true;
}

int work_project(const struct work_shape *shape, uint32_t rows, const float *left,
		 const float *right, const float *output)
{
	const bool is_conv = shape->op == WORK_CONV;
	/* The elements of a MatMul column are strided; a filter's kernels are contiguous. */
	const size_t n_columns = is_conv ? shape->filters : shape->columns;
	const size_t n_inner = work_right_elems(shape) / n_columns;
	uint64_t *factors, *column, state = 0x853c49e6748fea9bull;
	bool is_right;

	factors = calloc(n_columns + n_inner, sizeof(*factors));
	if (!factors)
		return -ENOMEM;
	column = factors + n_columns;
	for (size_t j = 0; j < n_columns; j++)
		factors[j] = random_64(&state) | 1;
	for (size_t k = 0; k < n_inner; k++)
		for (size_t j = 0; j < n_columns; j++)
			column[k] += whole(right[is_conv ? j * n_inner + k : k * n_columns + j]) *
				     factors[j];
	is_right = is_conv ? project_conv(shape, rows, left, column, output, factors)
			   : project_matmul(shape, rows, left, column, output, factors);
	free(factors);
	return is_right;
}
