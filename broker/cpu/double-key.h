#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Float64 in order
 *
 * Keys that compare as integers the way float64 do as numbers, so that selections among integers
 * are those among float64, too. Zeros of both signs are equal.
 */
#include <stdint.h>
#include <string.h>

/*
 * @flip: 0, or -1 for the opposite order of numbers. @nan: the key of what is none, the least or
 * the greatest one, which no number has.
 */
static inline int64_t double_key(double value, int64_t flip, int64_t nan)
{
	uint64_t bits;

	if (value != value)
		return nan;
	memcpy(&bits, &value, sizeof(bits));
	/* Of negative numbers, larger bits mean less: as integers they are the opposite of that. */
	return (bits >> 63 ? -(int64_t)(bits & INT64_MAX) : (int64_t)bits) ^ flip;
}
