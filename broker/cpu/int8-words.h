#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Words from byte rows
 *
 * Interleaves rows: the elements of one column become adjacent. Included by the kernel sources
 * only.
 */
#include "cpu/int8-level.h"

#if I8_GROUP == 2 || VW != 16
/* Convert 16 columns of byte rows to words. */
VEC_INLINE void i8_words_all(const uint8_t *const row[I8_GROUP], bool is_signed, uint8_t flip,
			     int32_t *to)
{
	i8_bytes in[4];

	VEC_UNROLL
	for (size_t q = 0; q < I8_GROUP; q++)
		in[q] = *(const i8_bytes_unaligned *)row[q] ^ flip;
	const i8_bytes low = __builtin_shufflevector(in[0], in[1], 0, 16, 1, 17, 2, 18, 3, 19, 4,
						     20, 5, 21, 6, 22, 7, 23);
	const i8_bytes high = __builtin_shufflevector(in[0], in[1], 8, 24, 9, 25, 10, 26, 11, 27,
						      12, 28, 13, 29, 14, 30, 15, 31);
#if I8_GROUP == 4
	typedef uint16_t u16x8 __attribute__((vector_size(16)));
	const u16x8 low2 = (u16x8)__builtin_shufflevector(in[2], in[3], 0, 16, 1, 17, 2, 18, 3, 19,
							  4, 20, 5, 21, 6, 22, 7, 23);
	const u16x8 high2 = (u16x8)__builtin_shufflevector(in[2], in[3], 8, 24, 9, 25, 10, 26, 11,
							   27, 12, 28, 13, 29, 14, 30, 15, 31);
	const u16x8 words[4] = {
		__builtin_shufflevector((u16x8)low, low2, 0, 8, 1, 9, 2, 10, 3, 11),
		__builtin_shufflevector((u16x8)low, low2, 4, 12, 5, 13, 6, 14, 7, 15),
		__builtin_shufflevector((u16x8)high, high2, 0, 8, 1, 9, 2, 10, 3, 11),
		__builtin_shufflevector((u16x8)high, high2, 4, 12, 5, 13, 6, 14, 7, 15),
	};

	(void)is_signed;
	memcpy(to, words, sizeof(words));
#else
	typedef int8_t s8x16 __attribute__((vector_size(16)));
	typedef int16_t s16x16 __attribute__((vector_size(32)));
	const s16x16 words[2] = {
		is_signed ? __builtin_convertvector((s8x16)low, s16x16)
			  : __builtin_convertvector(low, s16x16),
		is_signed ? __builtin_convertvector((s8x16)high, s16x16)
			  : __builtin_convertvector(high, s16x16),
	};

	memcpy(to, words, sizeof(words));
#endif
}
#endif

/*
 * Make 16 words, the first @n from the columns of @row. The other words, and the elements of a NULL
 * row, are 0. @is_signed: the type of the bytes. @flip: bits to invert.
 */
VEC_INLINE void i8_words_16(const uint8_t *const row[I8_GROUP], size_t n, bool is_signed,
			    uint8_t flip, int32_t *to)
{
#if I8_GROUP == 4 && VW == 16
	const __m128i nothing = _mm_set1_epi8((char)flip);
	const __mmask16 has = (__mmask16)(n < 16 ? (1u << n) - 1 : 0xffff);
	/* Gather the same four columns of the four rows, then each column's four elements. */
	const __m512i columns =
		_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	const __m512i elements = _mm512_broadcast_i32x4(
		_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
	__m128i in[4];
	__m512i words;

	(void)is_signed;
	VEC_UNROLL
	for (size_t q = 0; q < 4; q++)
		in[q] = !row[q]   ? nothing
			: n >= 16 ? _mm_loadu_si128((const __m128i_u *)row[q])
				  : _mm_mask_loadu_epi8(nothing, has, row[q]);
	words = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(in[1], in[0])),
				   _mm256_set_m128i(in[3], in[2]), 1);
	words = _mm512_permutexvar_epi32(columns,
					 _mm512_xor_si512(words, _mm512_set1_epi8((char)flip)));
	_mm512_storeu_si512(to, _mm512_shuffle_epi8(words, elements));
#else
	uint8_t part[I8_GROUP][16];
	const uint8_t *from[I8_GROUP];

	VEC_UNROLL
	for (size_t q = 0; q < I8_GROUP; q++) {
		from[q] = row[q];
		if (row[q] && n >= 16)
			continue;
		/* The byte that @flip turns into zero */
		memset(part[q], flip, 16);
		if (row[q])
			memcpy(part[q], row[q], n);
		from[q] = part[q];
	}
	i8_words_all(from, is_signed, flip, to);
#endif
}
