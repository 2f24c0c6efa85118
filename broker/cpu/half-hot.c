/* SPDX-License-Identifier: MIT */
/*
 * Conversion between float16 and float32
 *
 * The level's conversion instructions are used if it has any, else integer code; the bits are the
 * same, see shm/half.h. The instructions ignore the denormal mode.
 */
#include "cpu/level.h"
#include "shm/half.h"

#if VW >= 8

static inline void load(const uint16_t *from, float *to)
{
#if VW == 16
	_mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from)));
#else
	_mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from)));
#endif
}

static inline void store(const float *from, uint16_t *to)
{
#if VW == 16
	_mm256_storeu_si256((__m256i *)to,
			    _mm512_cvtps_ph(_mm512_loadu_ps(from),
					    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
	_mm_storeu_si128((__m128i *)to,
			 _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
#endif
}

#endif

void CPU_FN(half_load)(size_t n, const uint16_t *x, float *y)
{
	size_t i = 0;

#if VW >= 8
	for (; i + VW <= n; i += VW)
		load(x + i, y + i);
#endif
	for (; i < n; i++)
		y[i] = half_to_float(x[i]);
}

void CPU_FN(half_store)(size_t n, const float *x, uint16_t *y)
{
	size_t i = 0;

#if VW >= 8
	for (; i + VW <= n; i += VW)
		store(x + i, y + i);
#endif
	for (; i < n; i++)
		y[i] = half_from_float(x[i]);
}
