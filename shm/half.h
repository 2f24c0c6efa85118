#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * IEEE 754 binary16
 *
 * Conversions in integer arithmetic, bit for bit as F16C: round to nearest even. A NaN keeps its
 * sign and the top of its payload and becomes quiet. Conversions neither depend on the thread's
 * rounding or denormal mode nor raise floating-point exceptions.
 */
#include <stdint.h>
#include <string.h>

static inline float half_to_float(uint16_t half)
{
	const uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
	uint32_t bits;
	float value;

	if (rest >= 0x7c00) {
		bits = 0x7f800000 | rest << 13;
		if (rest > 0x7c00)
			bits |= 0x400000;
	} else if (rest >= 0x0400) {
		bits = (rest << 13) + 0x38000000;
	} else {
		/* A multiple of 2^-24, which a float can normalise. */
		value = (float)rest * 0x1p-24f;
		memcpy(&bits, &value, sizeof(bits));
	}
	bits |= sign;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline uint16_t half_from_float(float value)
{
	uint32_t bits, sign, rest;

	memcpy(&bits, &value, sizeof(bits));
	sign = bits >> 16 & 0x8000;
	rest = bits & 0x7fffffff;
	if (rest > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
	if (rest >= 0x477ff000) /* 65520, which rounds to 2^16 */
		return (uint16_t)(sign | 0x7c00);
	if (rest >= 0x38800000) /* 2^-14 */
		return (uint16_t)(sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
	if (rest > 0x33000000) { /* more than half of the least denormal, 2^-24 */
		const uint32_t shift = 126 - (rest >> 23);
		const uint32_t mantissa = (rest & 0x7fffff) | 0x800000;

		return (uint16_t)(sign |
				  (mantissa + (1u << (shift - 1)) - 1 + (mantissa >> shift & 1)) >>
					  shift);
	}
	return (uint16_t)sign;
}
