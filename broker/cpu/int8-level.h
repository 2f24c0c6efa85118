#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Eight-bit products at the level being compiled
 *
 * A group is the unit of a product's depth: the elements that a 32-bit lane multiplies and adds in
 * one step. With dot products of bytes (VNNI) a group is four elements, one operand signed and the
 * other unsigned. Without VNNI it is two elements widened to 16 bits, because the instruction that
 * multiplies bytes saturates its sums of two, and pmaddwd cannot overflow. A word is one group of
 * one row or column. One operand's word is broadcast, the other operand's words fill a vector.
 */
#include "cpu/int8.h"
#include "cpu/vec.h"

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#define I8_VNNI  1
#define I8_GROUP 4
#else
#define I8_VNNI  0
#define I8_GROUP 2
#endif

#if VW == 16
#define I8_MR 12
#else
#define I8_MR 6
#endif
#define I8_NR (2 * VW)

/* Words, and elements, of one block of the depth */
#define I8_KCW 256
#define I8_KC  (I8_KCW * I8_GROUP)

typedef int32_t vi_unaligned __attribute__((vector_size(VW * 4), aligned(4), may_alias));
typedef uint8_t i8_bytes __attribute__((vector_size(16)));
typedef uint8_t i8_bytes_unaligned __attribute__((vector_size(16), aligned(1), may_alias));

VEC_INLINE vi vi_set(int32_t value)
{
	return value - (vi){0};
}

VEC_INLINE vi vi_load(const int32_t *from)
{
	return *(const vi_unaligned *)from;
}

VEC_INLINE void vi_store(int32_t *to, vi value)
{
	*(vi_unaligned *)to = value;
}

/* Add with wrap-around, which C leaves undefined for signed numbers. */
VEC_INLINE vi vi_add(vi a, vi b)
{
	return (vi)((vu)a + (vu)b);
}

VEC_INLINE vi vi_sub(vi a, vi b)
{
	return (vi)((vu)a - (vu)b);
}

VEC_INLINE vi vi_mul(vi a, vi b)
{
	return (vi)((vu)a * (vu)b);
}

/*
 * Return acc + a * b, one group per lane. With VNNI, @a_signed: a is signed and b unsigned, else
 * the reverse.
 */
VEC_INLINE vi i8_dot(const bool a_signed, vi acc, vi a, vi b)
{
#if defined(__AVX512VNNI__)
	return a_signed ? (vi)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)b, (__m512i)a)
			: (vi)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)a, (__m512i)b);
#elif defined(__AVXVNNI__)
	return a_signed ? (vi)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)b, (__m256i)a)
			: (vi)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)a, (__m256i)b);
#elif VW == 16
	return vi_add(acc, (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b));
#elif VW == 8
	return vi_add(acc, (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b));
#elif defined(__SSE2__)
	return vi_add(acc, (vi)_mm_madd_epi16((__m128i)a, (__m128i)b));
#else
	const vi a_low = (vi)((vu)a << 16) >> 16, b_low = (vi)((vu)b << 16) >> 16;

	return vi_add(acc, vi_add(vi_mul(a_low, b_low), vi_mul(a >> 16, b >> 16)));
#endif
}

/* The word of ones, which sums the other operand's elements */
#define I8_ONES (I8_GROUP == 4 ? 0x01010101 : 0x00010001)

/*
 * Return the bits to invert when packing a panel of b. With VNNI, b must have the opposite sign of
 * a. Inverting the top bit changes the sign type and shifts the zero point by half the range.
 */
VEC_INLINE uint8_t i8_flip(bool a_signed, bool b_signed)
{
	return I8_VNNI && a_signed == b_signed ? 0x80 : 0;
}

/* Return the value of a byte of b. @is_signed matters only where b is widened. */
VEC_INLINE int32_t i8_value(uint8_t byte, bool is_signed)
{
	return is_signed ? (int8_t)byte : byte;
}

/* Return zero point @i, flipped like the tensor. */
VEC_INLINE int32_t i8_zero(const struct cpu_zeros *zeros, size_t i, bool is_signed, uint8_t flip)
{
	const uint8_t *of = zeros->of;
	const uint8_t byte = of ? of[zeros->each ? i : 0] : 0;

	/* Flipping changes the sign type. */
	return i8_value(byte ^ flip, is_signed != (flip != 0));
}

/*
 * The effect of the last block of the depth on the sums of a tile. All arrays have @rows or I8_NR
 * elements.
 */
struct i8_finish {
	const int32_t *row_add; /* per row; NULL: none */
	const int32_t *col_add; /* per column; NULL: none */
	/* Added products of a number per row and a number per column */
	unsigned int n_outer;
	const int32_t *row[2], *col[2];
	/* For conversion to bytes: */
	bool to_bytes;
	/* one: complete; both: divide their product by y_scale */
	const float *row_scale, *col_scale;
	bool is_scaled_down; /* every |row_scale| is below 1 */
	float y_scale;
	float low, high; /* range limits relative to the zero point */
	int32_t zero;
	uint8_t *y;
	size_t y_rs;
};

/*
 * int8-gemm-hot.c: multiply @m rows by one panel of up to I8_NR columns, @kw words deep.
 *
 * @a: packed rows, see i8_pack_a(), or with @in_place (VNNI only) byte rows @a_rs apart, which have
 * @tail elements after the last whole word. @y: the int32 sums; 0 before the first block. @finish:
 * set with the last block; its rows and columns are this panel's.
 */
void CPU_FN(i8_panel)(size_t m, size_t n, size_t kw, const void *a, bool a_signed, bool in_place,
		      size_t a_rs, size_t tail, const int32_t *b, int32_t *y, size_t y_rs,
		      bool accumulate, const struct i8_finish *finish);
/*
 * Pack rows of @k elements, I8_MR rows at a time; the last panel has the remaining rows. Return:
 * the words.
 */
size_t CPU_FN(i8_pack_a)(size_t m, size_t k, const uint8_t *a, size_t a_rs, bool a_signed,
			 int32_t *to);
/*
 * Pack one group of rows of b, @n <= I8_NR columns. @b_signed: the type of the bytes. @flip: bits
 * to invert. A NULL row becomes 0.
 */
void CPU_FN(i8_pack_group)(const uint8_t *const row[I8_GROUP], size_t n, bool b_signed,
			   uint8_t flip, int32_t *to);
/* Add the column sums of a panel to @sums. */
void CPU_FN(i8_column_sums)(size_t kw, const int32_t *panel, bool a_signed, int32_t sums[I8_NR]);
/* Compute the sums of @m rows. */
void CPU_FN(i8_row_sums)(size_t m, size_t k, const uint8_t *a, size_t a_rs, bool a_signed,
			 int32_t *sums);
/* Set the members of @finish for requantizing, except the scales. */
void CPU_FN(i8_finish_bytes)(const struct cpu_requantize *requantize, struct i8_finish *finish);

#define LEVEL_KERNEL(result, name, arguments) result CPU_FN(i8_##name) arguments;
CPU_INT8_KERNELS(LEVEL_KERNEL)

extern const struct cpu_int8_kernels CPU_FN(int8_kernels);

/* Return the larger (i8_smaller(): the smaller) of @a and @b; @b if one is a NaN. */
VEC_INLINE vf i8_larger(vf a, vf b)
{
#if VW == 16
	return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif VW == 8
	return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
	return (vf)_mm_max_ps((__m128)a, (__m128)b);
#else
	return vf_select(a > b, a, b);
#endif
}

VEC_INLINE vf i8_smaller(vf a, vf b)
{
#if VW == 16
	return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif VW == 8
	return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
	return (vf)_mm_min_ps((__m128)a, (__m128)b);
#else
	return vf_select(a < b, a, b);
#endif
}

/*
 * Round floats to integers and add @zero. @low <= 0 <= @high are integers within +-2^22, so that
 * adding 1.5 * 2^23 rounds to even. A NaN becomes @low.
 */
VEC_INLINE vi i8_round(vf value, vf low, vf high, vi zero)
{
	const vf magic = vf_set(12582912.0f);

	value = i8_smaller(i8_larger(value, low), high);
	return vi_add((vi)(value + magic), zero - (vi)magic);
}

/* Return a sum as a byte, with the zero point. */
VEC_INLINE vi i8_requantized(vi sum, vf scale, const struct i8_finish *f)
{
	return i8_round(__builtin_convertvector(sum, vf) * scale, vf_set(f->low), vf_set(f->high),
			vi_set(f->zero));
}

/* Store the low bytes of the first @n lanes. */
VEC_INLINE void i8_store(uint8_t *to, vi value, size_t n)
{
#if VW == 16
	const __m128i bytes = _mm512_cvtepi32_epi8((__m512i)value);

	if (n == VW)
		_mm_storeu_si128((__m128i_u *)to, bytes);
	else
		_mm_mask_storeu_epi8(to, (__mmask16)((1u << n) - 1), bytes);
#else
	uint8_t bytes[VW];

#if VW == 8
	const __m256i low = (__m256i)(value & 0xff);
	const __m128i words =
		_mm_packs_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));

	_mm_storel_epi64((__m128i *)bytes, _mm_packus_epi16(words, words));
#elif defined(__SSE2__)
	const __m128i words = _mm_packs_epi32((__m128i)(value & 0xff), _mm_setzero_si128());
	const int packed = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));

	memcpy(bytes, &packed, sizeof(bytes));
#else
	for (size_t i = 0; i < VW; i++)
		bytes[i] = (uint8_t)value[i];
#endif
	if (n == VW)
		memcpy(to, bytes, VW);
	else
		memcpy(to, bytes, n);
#endif
}

#if defined(__SSE2__)

/* Constants for conversion to bytes, four vectors at a time */
struct i8_packing {
	vf high;
	vi zero; /* two 16-bit zero points per lane */
	vi flip;
};

/*
 * The packing instructions saturate to signed bytes. For unsigned bytes the zero point is lowered
 * by 128, and the top bits are inverted afterwards.
 */
VEC_INLINE struct i8_packing i8_packing_of(const struct i8_finish *f)
{
	const uint8_t flip = (int32_t)f->low + f->zero == 0 ? 0x80 : 0;

	return (struct i8_packing){
		.high = vf_set(f->high),
		.zero = vi_set((int32_t)((uint16_t)(f->zero - flip) * 0x10001u)),
		.flip = vi_set((int32_t)(flip * 0x01010101u)),
	};
}

/*
 * Round floats to integers, ties to even. Too large values are limited to high, unless all values
 * @fits into 32 bits. Too small values and NaNs become INT32_MIN, hence the least byte.
 */
VEC_INLINE vi i8_whole(const bool fits, vf value, const struct i8_packing *packing)
{
	if (!fits)
		value = i8_smaller(packing->high, value);
#if VW == 16
	return (vi)_mm512_cvtps_epi32((__m512)value);
#elif VW == 8
	return (vi)_mm256_cvtps_epi32((__m256)value);
#else
	return (vi)_mm_cvtps_epi32((__m128)value);
#endif
}

/*
 * Pack two rows of two vectors to bytes, with the zero point added. Each 128 bits have the four
 * lanes of the first row's first and second vector, then the second row's.
 */
VEC_INLINE vi i8_pack_rows(vi rows[2][2], const struct i8_packing *packing)
{
#if VW == 16
	const __m512i zero = (__m512i)packing->zero;
	__m512i words[2];

	VEC_UNROLL
	for (size_t r = 0; r < 2; r++)
		words[r] = _mm512_adds_epi16(
			_mm512_packs_epi32((__m512i)rows[r][0], (__m512i)rows[r][1]), zero);
	return (vi)_mm512_packs_epi16(words[0], words[1]) ^ packing->flip;
#elif VW == 8
	const __m256i zero = (__m256i)packing->zero;
	__m256i words[2];

	VEC_UNROLL
	for (size_t r = 0; r < 2; r++)
		words[r] = _mm256_adds_epi16(
			_mm256_packs_epi32((__m256i)rows[r][0], (__m256i)rows[r][1]), zero);
	return (vi)_mm256_packs_epi16(words[0], words[1]) ^ packing->flip;
#else
	const __m128i zero = (__m128i)packing->zero;
	__m128i words[2];

	VEC_UNROLL
	for (size_t r = 0; r < 2; r++)
		words[r] = _mm_adds_epi16(_mm_packs_epi32((__m128i)rows[r][0], (__m128i)rows[r][1]),
					  zero);
	return (vi)_mm_packs_epi16(words[0], words[1]) ^ packing->flip;
#endif
}

/* Store both rows in the order of memory. */
VEC_INLINE void i8_store_rows(uint8_t *first, uint8_t *second, vi rows[2][2],
			      const struct i8_packing *packing)
{
	const vi bytes = i8_pack_rows(rows, packing);

#if VW == 16
	const __m512i sorted = _mm512_permutexvar_epi32(
		_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
		(__m512i)bytes);

	_mm256_storeu_si256((__m256i_u *)first, _mm512_castsi512_si256(sorted));
	_mm256_storeu_si256((__m256i_u *)second, _mm512_extracti64x4_epi64(sorted, 1));
#elif VW == 8
	const __m256i sorted = _mm256_permutevar8x32_epi32(
		(__m256i)bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));

	_mm_storeu_si128((__m128i_u *)first, _mm256_castsi256_si128(sorted));
	_mm_storeu_si128((__m128i_u *)second, _mm256_extracti128_si256(sorted, 1));
#else
	_mm_storel_epi64((__m128i_u *)first, (__m128i)bytes);
	_mm_storel_epi64((__m128i_u *)second, _mm_unpackhi_epi64((__m128i)bytes, (__m128i)bytes));
#endif
}

#endif
