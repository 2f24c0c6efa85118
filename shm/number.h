#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Numbers: rounding, limits and saturating sums
 */
#include <stdint.h>

/* Return @a / @b, rounded up. */
static inline uint64_t div_up(uint64_t a, uint64_t b)
{
	return (a + b - 1) / b;
}

/* Round up to a multiple of @unit. */
static inline uint64_t round_up(uint64_t value, uint64_t unit)
{
	return div_up(value, unit) * unit;
}

static inline int64_t clamp_i64(int64_t value, int64_t min, int64_t max)
{
	return value < min ? min : value > max ? max : value;
}

/* Return the sum; UINT64_MAX if it is larger. */
static inline uint64_t saturating_add(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}
