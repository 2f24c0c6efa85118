/* SPDX-License-Identifier: MIT */
/*
 * Matrix product
 *
 * A register tile of GEMM_MR rows by GEMM_NR columns is computed over a block of up to CPU_GEMM_KC
 * terms at a time. GEMM_NR columns of b are read as whole vectors, and each element of a is
 * broadcast. b is read from a packed copy, in which the GEMM_NR columns of a panel are adjacent,
 * row after row. The copy is made once for constants (pack_b), else panel by panel in the
 * workspace, or not at all if too few rows would profit. a is packed likewise, GEMM_MR rows at a
 * time, if enough columns profit: then the broadcasts read memory in order without conflicts in a
 * cache set.
 *
 * The order in which one element's terms are added depends neither on the tile, nor on packing, nor
 * on the vector width: within a block one chain, then the blocks in order. So every split gives the
 * same bits.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec.h"
#include "util/number.h"

/* Up to this number of elements b stays in the cache, and reading it in place is as fast. */
#define GEMM_PLAIN_MAX 16384
/* Columns from which a packed copy of a pays */
#define GEMM_PACK_A_MIN 160
/*
 * Up to this number of rows packing a does not pay: the first-level cache holds them. The exception
 * is a row stride that is a multiple of GEMM_SET_FLOATS, where the rows map to one cache set.
 */
#define GEMM_FEW_ROWS   16
#define GEMM_SET_FLOATS 1024
/* Columns above which the tile of the result exceeds the second-level cache */
#define GEMM_NC 1024

/* Register tiles between two cpu_pause() calls; another precedes each panel of b */
#define GEMM_PAUSE_TILES 32

_Static_assert((GEMM_MC * CPU_GEMM_KC + CPU_GEMM_KC * GEMM_NR) * sizeof(float) <=
		       CPU_WORKSPACE_BYTES,
	       "the workspace holds a block of a and a panel of b");

/*
 * Compute one register tile, @nv vectors wide, and store @n columns. @b_partial: columns of b
 * beyond @n must not be read.
 */
VEC_INLINE void gemm_micro(const size_t mr, const size_t nv, size_t k, const float *a, size_t a_rs,
			   size_t a_cs, const float *b, size_t b_rs, bool b_partial, float *y,
			   size_t y_rs, size_t n, bool accumulate)
{
	vf acc[GEMM_MR][2] = {0};

	for (size_t p = 0; p < k; p++) {
		vf b0, b1 = {0};

		if (nv == 1)
			b0 = b_partial ? vf_load_partial(b, n) : vf_load(b);
		else
			b0 = vf_load(b);
		if (nv == 2)
			b1 = b_partial ? vf_load_partial(b + VW, n - VW) : vf_load(b + VW);
		VEC_UNROLL
		for (size_t i = 0; i < mr; i++) {
			const vf av = vf_set(a[i * a_rs]);

			acc[i][0] += av * b0;
			if (nv == 2)
				acc[i][1] += av * b1;
		}
		a += a_cs;
		b += b_rs;
	}

	if (n == nv * VW) {
		VEC_UNROLL
		for (size_t i = 0; i < mr; i++) {
			VEC_UNROLL
			for (size_t v = 0; v < nv; v++) {
				float *to = y + i * y_rs + v * VW;

				vf_store(to, accumulate ? vf_load(to) + acc[i][v] : acc[i][v]);
			}
		}
		return;
	}
	VEC_UNROLL
	for (size_t i = 0; i < mr; i++) {
		float *to = y + i * y_rs + (nv - 1) * VW;
		const size_t rest = n - (nv - 1) * VW;

		if (nv == 2)
			vf_store(to - VW, accumulate ? vf_load(to - VW) + acc[i][0] : acc[i][0]);
		vf_store_partial(to,
				 accumulate ? vf_load_partial(to, rest) + acc[i][nv - 1]
					    : acc[i][nv - 1],
				 rest);
	}
}

typedef void gemm_micro_fn(size_t k, const float *a, size_t a_rs, size_t a_cs, const float *b,
			   size_t b_rs, float *y, size_t y_rs, size_t n, bool accumulate);

/* Height and width are constants in each instance, so that the tile stays in registers. */
#define GEMM_INSTANCE(mr, nv)                                                                    \
	static void gemm_packed_##mr##_##nv(size_t k, const float *a, size_t a_rs, size_t a_cs,  \
					    const float *b, size_t b_rs, float *y, size_t y_rs,  \
					    size_t n, bool accumulate)                           \
	{                                                                                        \
		gemm_micro(mr, nv, k, a, 1, mr, b, GEMM_NR, false, y, y_rs, n, accumulate);      \
	}                                                                                        \
	static void gemm_rows_##mr##_##nv(size_t k, const float *a, size_t a_rs, size_t a_cs,    \
					  const float *b, size_t b_rs, float *y, size_t y_rs,    \
					  size_t n, bool accumulate)                             \
	{                                                                                        \
		gemm_micro(mr, nv, k, a, a_rs, a_cs, b, GEMM_NR, false, y, y_rs, n, accumulate); \
	}                                                                                        \
	static void gemm_plain_##mr##_##nv(size_t k, const float *a, size_t a_rs, size_t a_cs,   \
					   const float *b, size_t b_rs, float *y, size_t y_rs,   \
					   size_t n, bool accumulate)                            \
	{                                                                                        \
		if (n == nv * VW)                                                                \
			gemm_micro(mr, nv, k, a, a_rs, a_cs, b, b_rs, false, y, y_rs, n,         \
				   accumulate);                                                  \
		else                                                                             \
			gemm_micro(mr, nv, k, a, a_rs, a_cs, b, b_rs, true, y, y_rs, n,          \
				   accumulate);                                                  \
	}

#define GEMM_FOR_ROWS_6(X, nv) X(1, nv) X(2, nv) X(3, nv) X(4, nv) X(5, nv) X(6, nv)
#if GEMM_MR == 12
#define GEMM_FOR_ROWS(X, nv) \
	GEMM_FOR_ROWS_6(X, nv) X(7, nv) X(8, nv) X(9, nv) X(10, nv) X(11, nv) X(12, nv)
#else
#define GEMM_FOR_ROWS(X, nv) GEMM_FOR_ROWS_6(X, nv)
#endif

GEMM_FOR_ROWS(GEMM_INSTANCE, 1)
GEMM_FOR_ROWS(GEMM_INSTANCE, 2)

#define GEMM_PACKED(mr, nv) gemm_packed_##mr##_##nv,
#define GEMM_ROWS(mr, nv)   gemm_rows_##mr##_##nv,
#define GEMM_PLAIN(mr, nv)  gemm_plain_##mr##_##nv,

/* [a and b packed, b packed, neither][one vector, two][rows - 1] */
enum { GEMM_BOTH_PACKED, GEMM_B_PACKED, GEMM_UNPACKED };
static gemm_micro_fn *const gemm_micros[3][2][GEMM_MR] = {
	{{GEMM_FOR_ROWS(GEMM_PACKED, 1)}, {GEMM_FOR_ROWS(GEMM_PACKED, 2)}},
	{{GEMM_FOR_ROWS(GEMM_ROWS, 1)}, {GEMM_FOR_ROWS(GEMM_ROWS, 2)}},
	{{GEMM_FOR_ROWS(GEMM_PLAIN, 1)}, {GEMM_FOR_ROWS(GEMM_PLAIN, 2)}},
};

/*
 * Copy @rows lines of @k elements so that element (p, i) is stored at to[p * width + i]; lines
 * beyond @rows are zero. A line's elements are @step apart, lines @line apart.
 */
VEC_INLINE void gemm_interleave(const size_t width, size_t rows, size_t k, const float *from,
				size_t line, size_t step, float *to)
{
	size_t p = 0;

	if (line == 1 && rows == width) {
		for (; p < k; p++)
			memcpy(to + p * width, from + p * step, width * sizeof(float));
		return;
	}
	if (line == 1) {
		for (; p < k; p++) {
			memcpy(to + p * width, from + p * step, rows * sizeof(float));
			memset(to + p * width + rows, 0, (width - rows) * sizeof(float));
		}
		return;
	}
	if (step == 1) {
		for (; p + 4 <= k; p += 4) {
			size_t i = 0;

			for (; i + 4 <= rows; i += 4) {
				v4 in[4], out[4];

				VEC_UNROLL
				for (size_t q = 0; q < 4; q++)
					in[q] = *(const v4_unaligned *)(from + (i + q) * line + p);
				v4_transpose(in, out);
				VEC_UNROLL
				for (size_t q = 0; q < 4; q++)
					*(v4_unaligned *)(to + (p + q) * width + i) = out[q];
			}
			for (; i < rows; i++)
				for (size_t q = 0; q < 4; q++)
					to[(p + q) * width + i] = from[i * line + p + q];
			for (; i < width; i++)
				for (size_t q = 0; q < 4; q++)
					to[(p + q) * width + i] = 0;
		}
	}
	for (; p < k; p++)
		for (size_t i = 0; i < width; i++)
			to[p * width + i] = i < rows ? from[i * line + p * step] : 0;
}

/* Pack rows [0, m) of a block of a, GEMM_MR at a time; the last panel has the remaining rows. */
void CPU_FN(gemm_pack_a)(size_t m, size_t k, const float *a, size_t a_rs, size_t a_cs, float *to)
{
	for (size_t i = 0; i < m; i += GEMM_MR) {
		const size_t rows = min_size(GEMM_MR, m - i);

		if (rows == GEMM_MR)
			gemm_interleave(GEMM_MR, GEMM_MR, k, a + i * a_rs, a_rs, a_cs, to);
		else
			gemm_interleave(rows, rows, k, a + i * a_rs, a_rs, a_cs, to);
		to += rows * k;
	}
}

size_t CPU_FN(pack_b_size)(size_t k, size_t n)
{
	return k * round_up(n, GEMM_NR);
}

void CPU_FN(pack_b)(size_t k, size_t n, const float *b, size_t b_rs, size_t b_cs, float *to)
{
	for (size_t p = 0; p < k; p += CPU_GEMM_KC) {
		const size_t kb = min_size(CPU_GEMM_KC, k - p);

		for (size_t j = 0; j < n; j += GEMM_NR) {
			gemm_interleave(GEMM_NR, min_size(GEMM_NR, n - j), kb,
					b + p * b_rs + j * b_cs, b_cs, b_rs, to);
			to += kb * GEMM_NR;
		}
	}
}

void CPU_FN(gemm_panel)(size_t m, size_t n, size_t k, const float *a, const float *b, float *y,
			size_t y_rs, bool accumulate)
{
	for (size_t i = 0; i < m; i += GEMM_MR)
		gemm_micros[GEMM_BOTH_PACKED][n > VW][min_size(GEMM_MR, m - i) - 1](
			k, a + i * k, 0, 0, b, 0, y + i * y_rs, y_rs, n, accumulate);
}

void CPU_FN(gemm_rows_panel)(size_t m, size_t n, size_t k, const float *a, size_t a_rs,
			     const float *b, float *y, size_t y_rs, bool accumulate)
{
	for (size_t i = 0; i < m; i += GEMM_MR)
		gemm_micros[GEMM_B_PACKED][n > VW][min_size(GEMM_MR, m - i) - 1](
			k, a + i * a_rs, a_rs, 1, b, 0, y + i * y_rs, y_rs, n, accumulate);
}

/* Compute y = alpha * y + beta * c over the tile, while it is in the cache. */
static void gemm_finish(const struct cpu_gemm *gemm, const struct cpu_gemm_tile *tile)
{
	const vf alpha = vf_set(gemm->alpha), beta = vf_set(gemm->c ? gemm->beta : 0);
	const size_t n = tile->n_end - tile->n_begin, rest = n % VW;

	for (size_t i = tile->m_begin; i < tile->m_end; i++) {
		float *y = gemm->y + i * gemm->y_rs + tile->n_begin;
		const float *c = gemm->c ? gemm->c + i * gemm->c_rs : NULL;
		const vf same = beta * vf_set(c ? c[0] : 0);

		if (c && gemm->c_cs == 1) {
			c += tile->n_begin;
			for (size_t j = 0; j + VW <= n; j += VW)
				vf_store(y + j, alpha * vf_load(y + j) + beta * vf_load(c + j));
			if (rest)
				vf_store_partial(y + n - rest,
						 alpha * vf_load_partial(y + n - rest, rest) +
							 beta * vf_load_partial(c + n - rest, rest),
						 rest);
			continue;
		}
		for (size_t j = 0; j + VW <= n; j += VW)
			vf_store(y + j, alpha * vf_load(y + j) + same);
		if (rest)
			vf_store_partial(y + n - rest,
					 alpha * vf_load_partial(y + n - rest, rest) + same, rest);
	}
}

static void gemm_activate(const struct cpu_gemm *gemm, const struct cpu_gemm_tile *tile)
{
	const size_t m = tile->m_end - tile->m_begin, n = tile->n_end - tile->n_begin;
	float *y = gemm->y + tile->m_begin * gemm->y_rs + tile->n_begin;

	if (!gemm->activation)
		return;
	if (n == gemm->y_rs) {
		cpu_activate(gemm->activation, y, m * n);
		return;
	}
	for (size_t i = 0; i < m; i++)
		cpu_activate(gemm->activation, y + i * gemm->y_rs, n);
}

static bool gemm_packs_a(const struct cpu_gemm *gemm, size_t m, size_t n)
{
	return m > 1 && n >= GEMM_PACK_A_MIN &&
	       (m > GEMM_FEW_ROWS || gemm->a_rs % GEMM_SET_FLOATS == 0);
}

static void gemm_block(const struct cpu_gemm *gemm, const struct cpu_gemm_tile *tile,
		       float *workspace)
{
	const size_t m = tile->m_end - tile->m_begin, n = tile->n_end - tile->n_begin;
	const size_t n_padded = round_up(gemm->n, GEMM_NR);
	float *const a_packed = workspace;
	float *const b_panel = workspace + GEMM_MC * CPU_GEMM_KC;
	const bool b_plain = !gemm->b_packed && gemm->b_cs == 1 &&
			     (m <= 2 * GEMM_MR || gemm->k * gemm->n <= GEMM_PLAIN_MAX);
	const bool a_pack = !b_plain && gemm_packs_a(gemm, m, n);
	gemm_micro_fn *const(*micros)[GEMM_MR] = gemm_micros[b_plain  ? GEMM_UNPACKED
							     : a_pack ? GEMM_BOTH_PACKED
								      : GEMM_B_PACKED];

	for (size_t p = 0; p < gemm->k; p += CPU_GEMM_KC) {
		const size_t kb = min_size(CPU_GEMM_KC, gemm->k - p);
		const float *a = gemm->a + tile->m_begin * gemm->a_rs + p * gemm->a_cs;

		if (a_pack)
			CPU_FN(gemm_pack_a)(m, kb, a, gemm->a_rs, gemm->a_cs, a_packed);

		for (size_t j = tile->n_begin; j < tile->n_end; j += GEMM_NR) {
			const size_t nr = min_size(GEMM_NR, tile->n_end - j);
			const float *b;

			cpu_pause(gemm->pause);
			if (gemm->b_packed) {
				b = gemm->b_packed + p * n_padded + j * kb;
			} else {
				b = gemm->b + p * gemm->b_rs + j * gemm->b_cs;
				if (!b_plain) {
					gemm_interleave(GEMM_NR, nr, kb, b, gemm->b_cs, gemm->b_rs,
							b_panel);
					b = b_panel;
				}
			}
			for (size_t i = 0; i < m; i += GEMM_MR) {
				const size_t mr = min_size(GEMM_MR, m - i);

				micros[nr > VW][mr - 1](
					kb, a_pack ? a_packed + i * kb : a + i * gemm->a_rs,
					gemm->a_rs, gemm->a_cs, b, gemm->b_rs,
					gemm->y + (tile->m_begin + i) * gemm->y_rs + j, gemm->y_rs,
					nr, p > 0 || gemm->accumulate);
			}
		}
	}
	if (gemm->c || gemm->alpha != 1)
		gemm_finish(gemm, tile);
	gemm_activate(gemm, tile);
}

/*
 * Compute a narrow tile, for which neither packing nor blocking pays. Return: false if the tile is
 * not narrow.
 */
VEC_INLINE bool gemm_narrow(const struct cpu_gemm *gemm, const struct cpu_gemm_tile *tile)
{
	const size_t n = tile->n_end - tile->n_begin;
	gemm_micro_fn *const *micros;
	const float *a = gemm->a + tile->m_begin * gemm->a_rs, *b;
	float *y = gemm->y + tile->m_begin * gemm->y_rs + tile->n_begin;
	size_t m = tile->m_end - tile->m_begin, n_tiles = 0;

	if (n > GEMM_NR || gemm->k > CPU_GEMM_KC || gemm->c || gemm->alpha != 1)
		return false;
	if (gemm->b_packed) {
		b = gemm->b_packed + tile->n_begin * gemm->k;
		micros = gemm_micros[GEMM_B_PACKED][n > VW];
	} else {
		if (gemm->b_cs != 1)
			return false;
		b = gemm->b + tile->n_begin;
		micros = gemm_micros[GEMM_UNPACKED][n > VW];
	}
	for (; m > GEMM_MR; m -= GEMM_MR, a += GEMM_MR * gemm->a_rs, y += GEMM_MR * gemm->y_rs) {
		cpu_pause_at(gemm->pause, ++n_tiles, GEMM_PAUSE_TILES);
		micros[GEMM_MR - 1](gemm->k, a, gemm->a_rs, gemm->a_cs, b, gemm->b_rs, y,
				    gemm->y_rs, n, gemm->accumulate);
	}
	micros[m - 1](gemm->k, a, gemm->a_rs, gemm->a_cs, b, gemm->b_rs, y, gemm->y_rs, n,
		      gemm->accumulate);
	gemm_activate(gemm, tile);
	return true;
}

void CPU_FN(gemm)(const struct cpu_gemm *gemm, const struct cpu_gemm_tile *tile, void *workspace)
{
	if (gemm_narrow(gemm, tile))
		return;
	for (size_t j = tile->n_begin; j < tile->n_end; j += GEMM_NC)
		for (size_t i = tile->m_begin; i < tile->m_end; i += GEMM_MC)
			gemm_block(gemm,
				   &(struct cpu_gemm_tile){i, min_size(tile->m_end, i + GEMM_MC), j,
							   min_size(tile->n_end, j + GEMM_NC)},
				   workspace);
}
