/* SPDX-License-Identifier: MIT */
/*
 * Matrix product of float64
 *
 * The product works like the float32 product (gemm-hot.c): a register tile over a block of the
 * depth, from packed panels of b and, if enough columns profit, of a. This version is simpler: no
 * operand is packed beforehand, and b is read in place only in whole panels. The order of terms
 * follows the same rule.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec-double.h"
#include "cpu/vec.h"
#include "util/number.h"

/* Up to this number of elements b stays in the cache, and reading it in place is as fast. */
#define GEMM_PLAIN_MAX 8192
/* Columns from which a packed copy of a pays */
#define GEMM_PACK_A_MIN 64
/* Columns above which the tile of the result exceeds the second-level cache */
#define GEMM_NC 512

_Static_assert((GEMM_MC + GEMM_F64_NR) * CPU_GEMM_F64_KC * sizeof(double) <= CPU_WORKSPACE_BYTES,
	       "the workspace holds a block of a and a panel of b");

/* Compute one register tile and store @n columns; whole rows of b are read. */
VEC_INLINE void gemm_micro(const size_t mr, size_t k, const double *a, size_t a_rs, size_t a_cs,
			   const double *b, size_t b_rs, double *y, size_t y_rs, size_t n,
			   bool accumulate)
{
	vd acc[GEMM_MR][2] = {0};

	for (size_t p = 0; p < k; p++) {
		const vd b0 = vd_load(b), b1 = vd_load(b + VD);

		VEC_UNROLL
		for (size_t i = 0; i < mr; i++) {
			const vd av = vd_set(a[i * a_rs]);

			acc[i][0] += av * b0;
			acc[i][1] += av * b1;
		}
		a += a_cs;
		b += b_rs;
	}
	if (n == GEMM_F64_NR) {
		VEC_UNROLL
		for (size_t i = 0; i < mr; i++) {
			VEC_UNROLL
			for (size_t v = 0; v < 2; v++) {
				double *to = y + i * y_rs + v * VD;

				vd_store(to, accumulate ? vd_load(to) + acc[i][v] : acc[i][v]);
			}
		}
		return;
	}
	VEC_UNROLL
	for (size_t i = 0; i < mr; i++) {
		double row[GEMM_F64_NR];

		vd_store(row, acc[i][0]);
		vd_store(row + VD, acc[i][1]);
		for (size_t j = 0; j < n; j++)
			y[i * y_rs + j] = accumulate ? y[i * y_rs + j] + row[j] : row[j];
	}
}

typedef void gemm_micro_fn(size_t k, const double *a, size_t a_rs, size_t a_cs, const double *b,
			   size_t b_rs, double *y, size_t y_rs, size_t n, bool accumulate);

/* The height is a constant in each instance, so that the tile stays in registers. */
#define GEMM_INSTANCE(mr)                                                                  \
	static void gemm_packed_##mr(size_t k, const double *a, size_t a_rs, size_t a_cs,  \
				     const double *b, size_t b_rs, double *y, size_t y_rs, \
				     size_t n, bool accumulate)                            \
	{                                                                                  \
		gemm_micro(mr, k, a, 1, mr, b, b_rs, y, y_rs, n, accumulate);              \
	}                                                                                  \
	static void gemm_plain_##mr(size_t k, const double *a, size_t a_rs, size_t a_cs,   \
				    const double *b, size_t b_rs, double *y, size_t y_rs,  \
				    size_t n, bool accumulate)                             \
	{                                                                                  \
		gemm_micro(mr, k, a, a_rs, a_cs, b, b_rs, y, y_rs, n, accumulate);         \
	}

#define GEMM_FOR_ROWS_6(X) X(1) X(2) X(3) X(4) X(5) X(6)
#if GEMM_MR == 12
#define GEMM_FOR_ROWS(X) GEMM_FOR_ROWS_6(X) X(7) X(8) X(9) X(10) X(11) X(12)
#else
#define GEMM_FOR_ROWS(X) GEMM_FOR_ROWS_6(X)
#endif

GEMM_FOR_ROWS(GEMM_INSTANCE)

#define GEMM_PACKED(mr) gemm_packed_##mr,
#define GEMM_PLAIN(mr)  gemm_plain_##mr,

/* [a is packed][rows - 1] */
static gemm_micro_fn *const gemm_micros[2][GEMM_MR] = {
	{GEMM_FOR_ROWS(GEMM_PLAIN)},
	{GEMM_FOR_ROWS(GEMM_PACKED)},
};

/* Pack rows [0, m) of a block of a, GEMM_MR at a time; the last panel has the remaining rows. */
void CPU_FN(gemm_f64_pack_a)(size_t m, size_t k, const double *a, size_t a_rs, size_t a_cs,
			     double *to)
{
	for (size_t i = 0; i < m; i += GEMM_MR) {
		const size_t rows = min_size(GEMM_MR, m - i);

		for (size_t r = 0; r < rows; r++) {
			const double *from = a + (i + r) * a_rs;

			for (size_t p = 0; p < k; p++, from += a_cs)
				to[p * rows + r] = *from;
		}
		to += rows * k;
	}
}

/* Pack @n columns of a block of b as one panel, padded with zeros. */
static void gemm_pack_panel(size_t n, size_t k, const double *b, size_t b_rs, size_t b_cs,
			    double *to)
{
	for (size_t p = 0; p < k; p++, b += b_rs, to += GEMM_F64_NR) {
		if (b_cs == 1 && n == GEMM_F64_NR) {
			vd_store(to, vd_load(b));
			vd_store(to + VD, vd_load(b + VD));
			continue;
		}
		if (n < GEMM_F64_NR) {
			vd_store(to, (vd){0});
			vd_store(to + VD, (vd){0});
		}
		for (size_t j = 0; j < n; j++)
			to[j] = b[j * b_cs];
	}
}

void CPU_FN(gemm_f64_panel)(size_t m, size_t n, size_t k, const double *a, const double *b,
			    double *y, size_t y_rs, bool accumulate)
{
	for (size_t i = 0; i < m; i += GEMM_MR)
		gemm_micros[true][min_size(GEMM_MR, m - i) - 1](k, a + i * k, 0, 0, b, GEMM_F64_NR,
								y + i * y_rs, y_rs, n, accumulate);
}

/* Compute y = alpha * y + beta * c over the tile, while it is in the cache. */
static void gemm_finish(const struct cpu_gemm_f64 *gemm, const struct cpu_gemm_tile *tile)
{
	for (size_t i = tile->m_begin; i < tile->m_end; i++) {
		const double *c = gemm->c ? gemm->c + i * gemm->c_rs : NULL;
		double *y = gemm->y + i * gemm->n;

		for (size_t j = tile->n_begin; j < tile->n_end; j++)
			y[j] = d_muladd(gemm->alpha, y[j], c ? gemm->beta * c[j * gemm->c_cs] : 0);
	}
}

static void gemm_block(const struct cpu_gemm_f64 *gemm, const struct cpu_gemm_tile *tile,
		       double *workspace)
{
	const size_t m = tile->m_end - tile->m_begin, n = tile->n_end - tile->n_begin;
	double *const a_packed = workspace, *const b_panel = workspace + GEMM_MC * CPU_GEMM_F64_KC;
	const bool b_plain =
		gemm->b_cs == 1 && (m <= 2 * GEMM_MR || gemm->k * gemm->n <= GEMM_PLAIN_MAX);
	const bool a_pack = m > 1 && n >= GEMM_PACK_A_MIN;

	for (size_t p = 0; p < gemm->k; p += CPU_GEMM_F64_KC) {
		const size_t kb = min_size(CPU_GEMM_F64_KC, gemm->k - p);
		const double *a = gemm->a + tile->m_begin * gemm->a_rs + p * gemm->a_cs;

		if (a_pack)
			CPU_FN(gemm_f64_pack_a)(m, kb, a, gemm->a_rs, gemm->a_cs, a_packed);
		for (size_t j = tile->n_begin; j < tile->n_end; j += GEMM_F64_NR) {
			const size_t nr = min_size(GEMM_F64_NR, tile->n_end - j);
			const bool in_place = b_plain && nr == GEMM_F64_NR;
			const double *b = gemm->b + p * gemm->b_rs + j * gemm->b_cs;

			cpu_pause(gemm->pause);
			if (!in_place)
				gemm_pack_panel(nr, kb, b, gemm->b_rs, gemm->b_cs, b_panel);
			for (size_t i = 0; i < m; i += GEMM_MR)
				gemm_micros[a_pack][min_size(GEMM_MR, m - i) - 1](
					kb, a_pack ? a_packed + i * kb : a + i * gemm->a_rs,
					gemm->a_rs, gemm->a_cs, in_place ? b : b_panel,
					in_place ? gemm->b_rs : GEMM_F64_NR,
					gemm->y + (tile->m_begin + i) * gemm->n + j, gemm->n, nr,
					p > 0 || gemm->accumulate);
		}
	}
	if (gemm->c || gemm->alpha != 1)
		gemm_finish(gemm, tile);
}

void CPU_FN(gemm_f64)(const struct cpu_gemm_f64 *gemm, const struct cpu_gemm_tile *tile,
		      void *workspace)
{
	for (size_t j = tile->n_begin; j < tile->n_end; j += GEMM_NC)
		for (size_t i = tile->m_begin; i < tile->m_end; i += GEMM_MC)
			gemm_block(gemm,
				   &(struct cpu_gemm_tile){i, min_size(tile->m_end, i + GEMM_MC), j,
							   min_size(tile->n_end, j + GEMM_NC)},
				   workspace);
}
