/* SPDX-License-Identifier: MIT */
/*
 * Transpose
 *
 * Neighbouring dimensions that stay neighbours are merged by the caller. What is left is either
 * rows that stay whole, which are copied, or, most often, a plane whose two last dimensions change
 * places, which is done four by four in registers; anything else is gathered.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec.h"

/* Gathered elements between two looks for others; each may miss the cache. */
enum { TRANSPOSE_PAUSE = 1 << 12 };

/* y[j][i] = x[j + i * stride] for @rows by @columns; rows of y are @y_stride apart. */
static void transpose_plane(size_t rows, size_t columns, const float *x, size_t stride, float *y,
			    size_t y_stride)
{
	size_t j = 0;

	for (; j + 4 <= rows; j += 4) {
		size_t i = 0;

		for (; i + 4 <= columns; i += 4) {
			v4 in[4], out[4];

			VEC_UNROLL
			for (size_t q = 0; q < 4; q++)
				in[q] = *(const v4_unaligned *)(x + j + (i + q) * stride);
			v4_transpose(in, out);
			VEC_UNROLL
			for (size_t q = 0; q < 4; q++)
				*(v4_unaligned *)(y + (j + q) * y_stride + i) = out[q];
		}
		for (; i < columns; i++)
			for (size_t q = 0; q < 4; q++)
				y[(j + q) * y_stride + i] = x[j + q + i * stride];
	}
	for (; j < rows; j++)
		for (size_t i = 0; i < columns; i++)
			y[j * y_stride + i] = x[j + i * stride];
}

/* memcpy() of @n elements, in pieces. */
static void copy_row(struct cpu_pause *pause, size_t n, const float *x, float *y)
{
	for (; n > CPU_PAUSE_ELEMS; n -= CPU_PAUSE_ELEMS) {
		memcpy(y, x, CPU_PAUSE_ELEMS * sizeof(float));
		x += CPU_PAUSE_ELEMS;
		y += CPU_PAUSE_ELEMS;
		cpu_pause(pause);
	}
	memcpy(y, x, n * sizeof(float));
}

void CPU_FN(transpose)(const struct cpu_transpose *args, size_t begin, size_t end)
{
	const unsigned int n = args->n_dims;

	if (n < 2) {
		if (begin < end)
			copy_row(args->pause, n ? args->extent[0] : 1, args->x, args->y);
		return;
	}

	const size_t rows = args->extent[n - 2], columns = args->extent[n - 1];
	const size_t row_stride = args->x_stride[n - 2], stride = args->x_stride[n - 1];
	const size_t blocks = (rows + CPU_COLUMN_BLOCK - 1) / CPU_COLUMN_BLOCK;

	for (size_t unit = begin; unit < end; unit++) {
		const size_t first = unit % blocks * CPU_COLUMN_BLOCK;
		const size_t n_rows =
			rows - first < CPU_COLUMN_BLOCK ? rows - first : CPU_COLUMN_BLOCK;
		const float *x = args->x + first * row_stride;
		float *y = args->y + (unit / blocks * rows + first) * columns;
		size_t index = unit / blocks;

		for (unsigned int d = n - 2; d-- > 0;) {
			x += index % args->extent[d] * args->x_stride[d];
			index /= args->extent[d];
		}
		if (stride == 1) {
			for (size_t j = 0; j < n_rows; j++)
				copy_row(args->pause, columns, x + j * row_stride, y + j * columns);
		} else if (row_stride == 1) {
			/* In strips, so that the lines read stay in the cache until used up. */
			for (size_t i = 0; i < columns; i += CPU_COLUMN_BLOCK) {
				cpu_pause(args->pause);
				transpose_plane(n_rows,
						columns - i < CPU_COLUMN_BLOCK ? columns - i
									       : CPU_COLUMN_BLOCK,
						x + i * stride, stride, y + i, columns);
			}
		} else {
			for (size_t j = 0; j < n_rows; j++)
				for (size_t i = 0; i < columns; i++) {
					cpu_pause_at(args->pause, i, TRANSPOSE_PAUSE);
					y[j * columns + i] = x[j * row_stride + i * stride];
				}
		}
	}
}
