#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Checked arithmetic
 *
 * Sums, products and ranges over untrusted numbers. Each function returns false if the true result
 * does not fit; *ret is then untouched or unusable.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *ret)
{
	return !__builtin_add_overflow(a, b, ret);
}

static inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *ret)
{
	return !__builtin_mul_overflow(a, b, ret);
}

/* Return true if [offset, offset + bytes) lies within [0, limit). */
static inline bool checked_range(uint64_t offset, uint64_t bytes, uint64_t limit)
{
	return offset <= limit && bytes <= limit - offset;
}

/* Round up to a multiple of @align, a power of two. */
static inline bool checked_align(uint64_t value, uint64_t align, uint64_t *ret)
{
	uint64_t sum;

	if (!checked_add(value, align - 1, &sum))
		return false;
	*ret = sum & ~(align - 1);
	return true;
}

#define ARRAY_SIZE(array)                   (sizeof(array) / sizeof((array)[0]))

#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))
