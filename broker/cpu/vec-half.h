#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Float16 in memory
 *
 * Included by the kernel sources only. Every float16 is exact in float32. Float32 is rounded to the
 * nearest float16, ties to even; overflow gives infinity. Float16's denormals are kept whatever the
 * thread's control register says, since they are normal in float32. Processors with AVX2 have
 * instructions for both directions; other levels compute with integers.
 */
#include "cpu/vec.h"

#if VW == 4

VEC_INLINE float f_from_half(uint16_t half)
{
	const uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fffu;
	uint32_t bits = (rest << 13) + (112u << 23);
	float value;

	if (rest >= 0x7c00) {
		bits += 112u << 23;
	} else if (rest < 0x400) {
		value = (float)rest * 0x1p-24f;
		memcpy(&bits, &value, sizeof(bits));
	}
	bits |= sign;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

VEC_INLINE uint16_t f_to_half(float value)
{
	uint32_t bits, rest, half;

	memcpy(&bits, &value, sizeof(bits));
	rest = bits & 0x7fffffff;
	if (rest > 0x7f800000) {
		half = 0x7e00;
	} else if (rest >= 0x47800000) {
		half = 0x7c00;
	} else if (rest < 0x38800000) {
		/*
		 * One unit in the last place of 0.5 is float16's least number: the addition rounds
		 * to it.
		 */
		memcpy(&value, &rest, sizeof(value));
		value += 0.5f;
		memcpy(&half, &value, sizeof(half));
		half -= 0x3f000000;
	} else {
		half = (rest - (112u << 23) + 0xfff + ((rest >> 13) & 1)) >> 13;
	}
	return (uint16_t)(half | ((bits >> 16) & 0x8000));
}

#endif

/* Load VW float16s. */
VEC_INLINE vf vf_load_half(const uint16_t *from)
{
#if VW == 16
	return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
#elif VW == 8
	return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
#else
	return (vf){f_from_half(from[0]), f_from_half(from[1]), f_from_half(from[2]),
		    f_from_half(from[3])};
#endif
}

VEC_INLINE void vf_store_half(uint16_t *to, vf value)
{
#if VW == 16
	_mm256_storeu_si256(
		(__m256i *)to,
		_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif VW == 8
	_mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT));
#else
	for (size_t i = 0; i < VW; i++)
		to[i] = f_to_half(value[i]);
#endif
}

/* Load the first @n < VW float16s; the other lanes are 0. */
VEC_INLINE vf vf_load_half_partial(const uint16_t *from, size_t n)
{
	uint16_t copy[VW] = {0};

	memcpy(copy, from, n * sizeof(*copy));
	return vf_load_half(copy);
}

VEC_INLINE void vf_store_half_partial(uint16_t *to, vf value, size_t n)
{
	uint16_t copy[VW];

	vf_store_half(copy, value);
	memcpy(to, copy, n * sizeof(*copy));
}
