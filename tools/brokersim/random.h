#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Random numbers that depend on their key, not on the order of drawing
 *
 * Every random quantity of a simulation is a hash of a key: the seed, the kind of quantity (enum
 * draw) and two indices, such as task and device. All policies therefore meet the same tasks with
 * the same true durations, and an oracle can ask for a task's duration on another device. Mixing:
 * splitmix64's finalizer (Steele, Lea, Flood, OOPSLA 2014).
 */
#include <math.h>
#include <stdint.h>

enum draw {
	DRAW_ARRIVAL = 1,
	DRAW_PLAN,
	DRAW_COUNT,
	DRAW_NOISE,
	DRAW_JITTER,
	DRAW_EFFICIENCY,
	DRAW_PHASE,
	DRAW_GENERATE,
};

static inline uint64_t draw_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static inline uint64_t draw_bits(uint64_t seed, enum draw what, uint64_t a, uint64_t b)
{
	return draw_mix(draw_mix(draw_mix(draw_mix(seed) ^ (uint64_t)what) ^ a) ^ (b << 1));
}

/* Return a uniform number in (0, 1). */
static inline double draw_uniform(uint64_t seed, enum draw what, uint64_t a, uint64_t b)
{
	return ((double)(draw_bits(seed, what, a, b) >> 11) + 0.5) * 0x1p-53;
}

/* Return an exponential number with mean 1. */
static inline double draw_exponential(uint64_t seed, enum draw what, uint64_t a, uint64_t b)
{
	return -log(draw_uniform(seed, what, a, b));
}

/* Return a normal number with mean 0 and standard deviation 1, by Box and Muller. */
static inline double draw_normal(uint64_t seed, enum draw what, uint64_t a, uint64_t b)
{
	double u = draw_uniform(seed, what, a, b);
	double v = draw_uniform(draw_mix(seed), what, a, b);

	return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

/* Return a log-normal number with mean 1; @sigma is the standard deviation of its logarithm. */
static inline double draw_factor(uint64_t seed, enum draw what, uint64_t a, uint64_t b,
				 double sigma)
{
	return exp(sigma * draw_normal(seed, what, a, b) - sigma * sigma / 2);
}
