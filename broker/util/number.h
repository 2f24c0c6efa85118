#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Numbers: minimum and maximum, saturating differences, the growth of counters, and a hash
 */
#include <stddef.h>
#include <stdint.h>

#include "shm/number.h"

/* Return the number that has bit @i alone; @i is below 64. */
static inline uint64_t bit_u64(uint32_t i)
{
	return UINT64_C(1) << i;
}

static inline uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline float min_float(float a, float b)
{
	return a < b ? a : b;
}

static inline float max_float(float a, float b)
{
	return a > b ? a : b;
}

static inline size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Return the difference; 0 if it is negative. */
static inline uint64_t saturating_sub(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* Return the growth of a counter; a counter below @before has restarted from 0. */
static inline uint64_t counter_growth(uint64_t now, uint64_t before)
{
	return now >= before ? now - before : now;
}

/* Mix bits with the finalizer of MurmurHash3: every input bit changes half of the output. */
static inline uint64_t mix_u64(uint64_t hash)
{
	hash ^= hash >> 33;
	hash *= 0xff51afd7ed558ccdull;
	hash ^= hash >> 33;
	hash *= 0xc4ceb9fe1a85ec53ull;
	return hash ^ hash >> 33;
}

/* Convert for "%llu", whatever type uint64_t is. */
static inline unsigned long long ull(uint64_t value)
{
	return value;
}
