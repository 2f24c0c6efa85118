/* SPDX-License-Identifier: MIT */
/*
 * Moving elements
 *
 * The kernel serves Transpose, Slice, Concat and similar operators. The caller has merged
 * dimensions and determined which of three forms the last two dimensions have. Rows are copied as a
 * whole. A plane, whose two dimensions are exchanged, is processed in squares that fit the cache;
 * elements of four bytes are transposed four by four in registers. Every other form is moved
 * element by element.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec.h"

/*
 * Extent of a square of a plane: fits the first-level cache on both sides, and divides
 * cpu_move_rows()
 */
enum { SQUARE = 64 };

/* The part of a unit that one call moves: rows and columns */
struct patch {
	const uint8_t *from;
	uint8_t *to;
	size_t rows, columns;
	ptrdiff_t from_row, from_column, to_row, to_column;
};

/* Copy few bytes: the first and the last ones, which may overlap. */
VEC_INLINE void copy_few(uint8_t *to, const uint8_t *from, size_t n)
{
	if (n >= 16) {
		memcpy(to, from, 16);
		memcpy(to + n - 16, from + n - 16, 16);
	} else if (n >= 8) {
		memcpy(to, from, 8);
		memcpy(to + n - 8, from + n - 8, 8);
	} else if (n >= 4) {
		memcpy(to, from, 4);
		memcpy(to + n - 4, from + n - 4, 4);
	} else {
		for (size_t i = 0; i < n; i++)
			to[i] = from[i];
	}
}

static void move_rows(const struct patch *p)
{
	const uint8_t *from = p->from;
	uint8_t *to = p->to;

	for (size_t j = 0; j < p->rows; j++, from += p->from_row, to += p->to_row) {
		if (p->columns <= 32)
			copy_few(to, from, p->columns);
		else
			memcpy(to, from, p->columns);
	}
}

/* Fast paths: one value to adjacent places, and reversed elements. Others are moved one by one. */
#define MOVE_ELEMENTS(T)                                                                 \
	static void move_elements_##T(const struct patch *p)                             \
	{                                                                                \
		const ptrdiff_t size = sizeof(T);                                        \
                                                                                         \
		for (size_t j = 0; j < p->rows; j++) {                                   \
			const uint8_t *from = p->from + (ptrdiff_t)j * p->from_row;      \
			uint8_t *to = p->to + (ptrdiff_t)j * p->to_row;                  \
			const T first = *(const T *)from;                                \
                                                                                         \
			if (p->from_column == 0 && p->to_column == size) {               \
				for (size_t i = 0; i < p->columns; i++)                  \
					((T *)to)[i] = first;                            \
				continue;                                                \
			}                                                                \
			if (p->from_column == -size && p->to_column == size) {           \
				CPU_INDEPENDENT                                          \
				for (size_t i = 0; i < p->columns; i++)                  \
					((T *)to)[i] = ((const T *)from)[-(ptrdiff_t)i]; \
				continue;                                                \
			}                                                                \
			for (size_t i = 0; i < p->columns; i++) {                        \
				*(T *)to = *(const T *)from;                             \
				from += p->from_column;                                  \
				to += p->to_column;                                      \
			}                                                                \
		}                                                                        \
	}

MOVE_ELEMENTS(uint8_t)
MOVE_ELEMENTS(uint16_t)
MOVE_ELEMENTS(uint32_t)
MOVE_ELEMENTS(uint64_t)

/* Transpose a square, or its remainder: rows are adjacent in from, columns in to. */
#define MOVE_SQUARE(T)                                                                      \
	static void move_square_##T(const struct patch *p)                                  \
	{                                                                                   \
		for (size_t j = 0; j < p->rows; j++) {                                      \
			T *to = (T *)(p->to + (ptrdiff_t)j * p->to_row);                    \
			const uint8_t *from = p->from + j * sizeof(T);                      \
                                                                                            \
			for (size_t i = 0; i < p->columns; i++)                             \
				to[i] = *(const T *)(from + (ptrdiff_t)i * p->from_column); \
		}                                                                           \
	}

MOVE_SQUARE(uint8_t)
MOVE_SQUARE(uint16_t)
MOVE_SQUARE(uint32_t)
MOVE_SQUARE(uint64_t)

/* Transpose a square four by four, and the remainder one by one. */
static void move_square_fours(const struct patch *p)
{
	const size_t rows = p->rows & ~(size_t)3, columns = p->columns & ~(size_t)3;
	struct patch rest = *p;

	for (size_t j = 0; j < rows; j += 4) {
		for (size_t i = 0; i < columns; i += 4) {
			const uint8_t *from = p->from + j * 4 + (ptrdiff_t)i * p->from_column;
			uint8_t *to = p->to + (ptrdiff_t)j * p->to_row + i * 4;
			v4 in[4], out[4];

			VEC_UNROLL
			for (ptrdiff_t q = 0; q < 4; q++)
				in[q] = *(const v4_unaligned *)(from + q * p->from_column);
			v4_transpose(in, out);
			VEC_UNROLL
			for (ptrdiff_t q = 0; q < 4; q++)
				*(v4_unaligned *)(to + q * p->to_row) = out[q];
		}
	}
	rest.rows = rows;
	rest.columns = p->columns - columns;
	rest.from = p->from + (ptrdiff_t)columns * p->from_column;
	rest.to = p->to + columns * 4;
	move_square_uint32_t(&rest);
	rest.rows = p->rows - rows;
	rest.columns = p->columns;
	rest.from = p->from + rows * 4;
	rest.to = p->to + (ptrdiff_t)rows * p->to_row;
	move_square_uint32_t(&rest);
}

typedef void patch_fn(const struct patch *p);

static void move_plane(const struct patch *p, patch_fn *square, struct cpu_pause *pause)
{
	for (size_t j = 0; j < p->rows; j += SQUARE) {
		for (size_t i = 0; i < p->columns; i += SQUARE) {
			struct patch part = *p;

			part.from += (ptrdiff_t)j * p->from_row + (ptrdiff_t)i * p->from_column;
			part.to += (ptrdiff_t)j * p->to_row + (ptrdiff_t)i * p->to_column;
			part.rows = p->rows - j < SQUARE ? p->rows - j : SQUARE;
			part.columns = p->columns - i < SQUARE ? p->columns - i : SQUARE;
			square(&part);
		}
		cpu_pause(pause);
	}
}

void CPU_FN(move)(const struct cpu_move *args, size_t begin, size_t end)
{
	static patch_fn *const elements[] = {move_elements_uint8_t, move_elements_uint16_t,
					     move_elements_uint32_t, move_elements_uint64_t};
	static patch_fn *const squares[] = {move_square_uint8_t, move_square_uint16_t,
					    move_square_fours, move_square_uint64_t};
	const unsigned int n = args->n_dims,
			   width = (unsigned int)__builtin_ctz(args->element_bytes);
	const size_t rows = cpu_move_rows(args), columns = cpu_move_columns(args);
	const size_t row_units = cpu_move_row_units(args);
	const size_t column_units = cpu_move_column_units(args);
	struct patch p = {
		.from_row = args->from_stride[n - 2],
		.from_column = args->from_stride[n - 1],
		.to_row = args->to_stride[n - 2],
		.to_column = args->to_stride[n - 1],
	};

	for (size_t unit = begin; unit < end; unit++) {
		const size_t column = unit % column_units * columns;
		const size_t row = unit / column_units % row_units * rows;
		size_t index = unit / column_units / row_units;

		p.from = (const uint8_t *)args->from + (ptrdiff_t)row * p.from_row +
			 (ptrdiff_t)column * p.from_column;
		p.to = (uint8_t *)args->to + (ptrdiff_t)row * p.to_row +
		       (ptrdiff_t)column * p.to_column;
		p.rows = args->extent[n - 2] - row < rows ? args->extent[n - 2] - row : rows;
		p.columns = args->extent[n - 1] - column < columns ? args->extent[n - 1] - column
								   : columns;
		for (unsigned int d = n - 2; d-- > 0;) {
			const ptrdiff_t at = (ptrdiff_t)(index % args->extent[d]);

			p.from += at * args->from_stride[d];
			p.to += at * args->to_stride[d];
			index /= args->extent[d];
		}
		cpu_pause(args->pause);
		if (args->form == CPU_MOVE_ROWS)
			move_rows(&p);
		else if (args->form == CPU_MOVE_PLANE)
			move_plane(&p, squares[width], args->pause);
		else
			elements[width](&p);
	}
}
