#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * bfloat16
 *
 * The sign, the exponent and the first seven bits of the mantissa of a float. Every bfloat16 is a
 * float. A float is rounded to the nearest bfloat16, ties to even; a value that is too large
 * becomes infinite, and a NaN keeps its sign and the top of its payload and becomes quiet.
 * Conversions use integer arithmetic: they neither depend on the thread's rounding or denormal mode
 * nor raise floating-point exceptions.
 */
#include <stdint.h>
#include <string.h>

static inline float bfloat_to_float(uint16_t bfloat)
{
	const uint32_t bits = (uint32_t)bfloat << 16;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline uint16_t bfloat_from_float(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
