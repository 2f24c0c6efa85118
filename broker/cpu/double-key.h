#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Order of float64 numbers
 *
 * The keys compare as integers in the order in which the float64 values compare as numbers. So
 * selections of int64 also serve float64. Zeros of both signs are equal.
 */
#include <stdint.h>
#include <string.h>

/*
 * Return the key of @value. @flip: 0, or -1 for the opposite order of numbers. @nan: the key of a
 * NaN, the least or the greatest int64, which no number has.
 */
static inline int64_t double_key(double value, int64_t flip, int64_t nan)
{
	uint64_t bits;

	if (value != value)
		return nan;
	memcpy(&bits, &value, sizeof(bits));
	/* For negative numbers, larger bits mean a smaller number: negate the magnitude. */
	return (bits >> 63 ? -(int64_t)(bits & INT64_MAX) : (int64_t)bits) ^ flip;
}
