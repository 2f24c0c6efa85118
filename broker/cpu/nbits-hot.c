/* SPDX-License-Identifier: MIT */
/*
 * Product with weights of four bits
 *
 * The weights stay packed in memory, because reading them dominates a product with few rows. A
 * panel of GEMM_NR columns holds, block by block, the columns' scales and zero points, then one
 * word per column for every eight terms. With few rows, the words are unpacked during the
 * multiplication. With many rows, a block of the depth is unpacked into the workspace and passed to
 * the float product's register tile. Both paths compute the same float weights and add the same
 * products in the same order, so the bits do not depend on the path.
 */
#include "cpu/kernels.h"
#include "cpu/level.h"
#include "cpu/vec.h"
#include "util/number.h"

/* maximum rows for which weights are unpacked during the multiplication */
#define NBITS_ROWS 4
#define NBITS_MC   240
/* terms of a word */
#define NBITS_WORD 8

/* terms of each column that are packed between two polls, if blocks divide it */
enum { NBITS_PACK_TERMS = 1 << 12 };

_Static_assert(CPU_GEMM_KC % NBITS_WORD == 0, "a block of the depth is made of whole words");
_Static_assert((NBITS_MC * CPU_GEMM_KC + CPU_GEMM_KC * GEMM_NR) * sizeof(float) <=
		       CPU_WORKSPACE_BYTES,
	       "the workspace holds a block of a and a panel of b");

typedef uint32_t vu_unaligned __attribute__((vector_size(VW * 4), aligned(4), may_alias));

/* Return the words of one block of a panel. */
static size_t nbits_block_words(size_t block)
{
	return GEMM_NR * (2 + block / NBITS_WORD);
}

static size_t nbits_panel_words(size_t k, size_t block)
{
	return div_up(k, block) * nbits_block_words(block);
}

size_t CPU_FN(pack_nbits_size)(size_t k, size_t n, size_t block)
{
	return div_up(n, GEMM_NR) * nbits_panel_words(k, block) * sizeof(uint32_t);
}

static float nbits_zero(const struct cpu_nbits_weights *weights, size_t column, size_t b,
			size_t n_blocks)
{
	const uint8_t *bytes;

	if (weights->zeros_float)
		return weights->zeros_float[column * n_blocks + b];
	if (!weights->zeros)
		return 8;
	bytes = weights->zeros + column * ((n_blocks + 1) / 2);
	return (float)(bytes[b / 2] >> (b % 2 ? 4 : 0) & 15);
}

void CPU_FN(pack_nbits)(const struct cpu_nbits_weights *weights, void *to)
{
	const size_t block = weights->block, n_blocks = div_up(weights->k, block);
	uint32_t *words = to;

	for (size_t j = 0; j < weights->n; j += GEMM_NR) {
		for (size_t b = 0; b < n_blocks; b++) {
			float *scales = (float *)words, *zeros = scales + GEMM_NR;

			cpu_pause_at(weights->pause, b * block, NBITS_PACK_TERMS);
			words += 2 * GEMM_NR;
			memset(scales, 0, nbits_block_words(block) * sizeof(*words));
			for (size_t i = 0; i < min_size(GEMM_NR, weights->n - j); i++) {
				const size_t at = (j + i) * n_blocks + b;

				scales[i] = weights->scales[at];
				zeros[i] = nbits_zero(weights, j + i, b, n_blocks);
				for (size_t q = 0; q < block / NBITS_WORD; q++) {
					uint32_t word = 0;

					for (size_t byte = 0; byte < 4; byte++)
						word |= (uint32_t)weights
								->b[(at * block / 2) + q * 4 + byte]
							<< 8 * byte;
					words[q * GEMM_NR + i] = word;
				}
			}
			words += block / NBITS_WORD * GEMM_NR;
		}
	}
}

/* Return term @i of each word as a float, unscaled. */
VEC_INLINE vf nbits_value(vu words, const unsigned int i)
{
#if VW == 16
	const vf values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

	/* The permutation uses the lowest four bits only. */
	return (vf)_mm512_permutexvar_ps((__m512i)(words >> 4 * i), (__m512)values);
#else
	return __builtin_convertvector((vi)(words >> 4 * i & 15), vf);
#endif
}

/* The scales and zero points of one vector of a panel's columns, for one block. */
struct nbits_columns {
	vf scale, zero;
};

VEC_INLINE vf nbits_weight(vu words, const unsigned int i, const struct nbits_columns *columns)
{
	return (nbits_value(words, i) - columns->zero) * columns->scale;
}

/* Multiply terms [p, p + kb) of @mr rows by one panel; @p is a multiple of CPU_GEMM_KC. */
VEC_INLINE void nbits_rows(const size_t mr, size_t block, const uint32_t *panel, size_t p,
			   size_t kb, const float *a, size_t a_rs, float *y, size_t y_rs, size_t n,
			   bool accumulate)
{
	const size_t block_words = nbits_block_words(block);
	vf acc[NBITS_ROWS][2] = {0};

	for (size_t done = 0; done < kb;) {
		const uint32_t *from = panel + (p + done) / block * block_words;
		const size_t at = (p + done) % block, len = min_size(block - at, kb - done);
		const uint32_t *words = from + GEMM_NR * (2 + at / NBITS_WORD);
		struct nbits_columns columns[2];

		VEC_UNROLL
		for (size_t v = 0; v < 2; v++) {
			columns[v].scale = vf_load((const float *)from + v * VW);
			columns[v].zero = vf_load((const float *)from + GEMM_NR + v * VW);
		}
		for (size_t q = 0; q + NBITS_WORD <= len; q += NBITS_WORD, words += GEMM_NR) {
			const vu w[2] = {*(const vu_unaligned *)words,
					 *(const vu_unaligned *)(words + VW)};

			VEC_UNROLL
			for (unsigned int i = 0; i < NBITS_WORD; i++) {
				VEC_UNROLL
				for (size_t v = 0; v < 2; v++) {
					const vf weight = nbits_weight(w[v], i, &columns[v]);

					VEC_UNROLL
					for (size_t r = 0; r < mr; r++)
						acc[r][v] +=
							vf_set(a[r * a_rs + done + q + i]) * weight;
				}
			}
		}
		/* The tail of the depth, less than a word. */
		for (size_t q = len / NBITS_WORD * NBITS_WORD; q < len; q++) {
			VEC_UNROLL
			for (size_t v = 0; v < 2; v++) {
				const vu word = *(const vu_unaligned *)(words + v * VW) >>
						(uint32_t)(q % NBITS_WORD * 4);
				const vf weight = nbits_weight(word, 0, &columns[v]);

				VEC_UNROLL
				for (size_t r = 0; r < mr; r++)
					acc[r][v] += vf_set(a[r * a_rs + done + q]) * weight;
			}
		}
		done += len;
	}
	VEC_UNROLL
	for (size_t r = 0; r < mr; r++) {
		for (size_t v = 0; v < 2 && v * VW < n; v++) {
			const size_t have = min_size(VW, n - v * VW);
			float *to = y + r * y_rs + v * VW;

			if (accumulate)
				acc[r][v] = vf_load_partial(to, have) + acc[r][v];
			vf_store_partial(to, acc[r][v], have);
		}
	}
}

static void nbits_few(const struct cpu_nbits *args, const struct cpu_gemm_tile *tile)
{
	const size_t block = args->block, panel_words = nbits_panel_words(args->k, block);
	const size_t m = tile->m_end - tile->m_begin;
	const float *a = args->a + tile->m_begin * args->a_rs;

	for (size_t j = tile->n_begin; j < tile->n_end; j += GEMM_NR) {
		const uint32_t *panel = (const uint32_t *)args->packed + j / GEMM_NR * panel_words;
		const size_t n = min_size(GEMM_NR, tile->n_end - j);
		float *y = args->y + tile->m_begin * args->y_rs + j;

		for (size_t p = args->k_begin; p == 0 || p < args->k_end; p += CPU_GEMM_KC) {
			const size_t kb = min_size(CPU_GEMM_KC, args->k_end - p);

			cpu_pause(args->pause);
			switch (m) {
			case 1:
				nbits_rows(1, block, panel, p, kb, a + p, args->a_rs, y, args->y_rs,
					   n, p > 0);
				break;
			case 2:
				nbits_rows(2, block, panel, p, kb, a + p, args->a_rs, y, args->y_rs,
					   n, p > 0);
				break;
			case 3:
				nbits_rows(3, block, panel, p, kb, a + p, args->a_rs, y, args->y_rs,
					   n, p > 0);
				break;
			default:
				nbits_rows(4, block, panel, p, kb, a + p, args->a_rs, y, args->y_rs,
					   n, p > 0);
				break;
			}
		}
	}
}

/* Unpack terms [p, p + kb) of one panel into floats. */
static void nbits_unpack(size_t block, const uint32_t *panel, size_t p, size_t kb, float *to)
{
	const size_t block_words = nbits_block_words(block);

	for (size_t done = 0; done < kb;) {
		const uint32_t *from = panel + (p + done) / block * block_words;
		const size_t at = (p + done) % block, len = min_size(block - at, kb - done);
		const uint32_t *words = from + GEMM_NR * (2 + at / NBITS_WORD);

		for (size_t q = 0; q < len; q++) {
			for (size_t v = 0; v < 2; v++) {
				const struct nbits_columns columns = {
					.scale = vf_load((const float *)from + v * VW),
					.zero = vf_load((const float *)from + GEMM_NR + v * VW),
				};
				const vu word =
					*(const vu_unaligned *)(words + q / NBITS_WORD * GEMM_NR +
								v * VW) >>
					(uint32_t)(q % NBITS_WORD * 4);

				vf_store(to + v * VW, nbits_weight(word, 0, &columns));
			}
			to += GEMM_NR;
		}
		done += len;
	}
}

static void nbits_many(const struct cpu_nbits *args, const struct cpu_gemm_tile *tile,
		       float *workspace)
{
	const size_t panel_words = nbits_panel_words(args->k, args->block);
	const size_t m = tile->m_end - tile->m_begin;
	const float *a = args->a + tile->m_begin * args->a_rs;
	float *const a_packed = workspace, *const b = workspace + NBITS_MC * CPU_GEMM_KC;

	for (size_t p = args->k_begin; p == 0 || p < args->k_end; p += CPU_GEMM_KC) {
		const size_t kb = min_size(CPU_GEMM_KC, args->k_end - p);

		CPU_FN(gemm_pack_a)(m, kb, a + p, args->a_rs, 1, a_packed);
		for (size_t j = tile->n_begin; j < tile->n_end; j += GEMM_NR) {
			cpu_pause(args->pause);
			nbits_unpack(args->block,
				     (const uint32_t *)args->packed + j / GEMM_NR * panel_words, p,
				     kb, b);
			CPU_FN(gemm_panel)
			(m, min_size(GEMM_NR, tile->n_end - j), kb, a_packed, b,
			 args->y + tile->m_begin * args->y_rs + j, args->y_rs, p > 0);
		}
	}
}

void CPU_FN(nbits)(const struct cpu_nbits *args, const struct cpu_gemm_tile *tile, void *workspace)
{
	struct cpu_gemm_tile part = *tile;

	for (size_t i = tile->m_begin; i < tile->m_end; i = part.m_end) {
		const size_t left = tile->m_end - i;

		part.m_begin = i;
		part.m_end = i + min_size(left, left <= NBITS_ROWS ? NBITS_ROWS : NBITS_MC);
		if (left <= NBITS_ROWS)
			nbits_few(args, &part);
		else
			nbits_many(args, &part, workspace);
	}
	if (!args->bias || args->k_end < args->k)
		return;
	for (size_t i = tile->m_begin; i < tile->m_end; i++) {
		const size_t n = tile->n_end - tile->n_begin;
		float *y = args->y + i * args->y_rs + tile->n_begin;

		CPU_FN(map_f32)
		[CPU_MAP_ADD](&(struct cpu_map){.in = {y, args->bias + tile->n_begin},
						.out = y,
						.step = {1, 1}},
			      n);
	}
}
