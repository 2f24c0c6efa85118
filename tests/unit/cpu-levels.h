#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The levels of the CPU's kernels, each once
 *
 * A build with the option cpu_levels=avx2 has one level, under the names of all.
 */
#include "cpu/int8.h"
#include "cpu/kernels.h"

#ifdef CPU_ONLY_AVX2
enum { HAS_EVERY_LEVEL = false };
#else
enum { HAS_EVERY_LEVEL = true };
#endif

/* Return the kernels of @level; NULL if they cannot run here, or if the build has only another
 * level. */
static inline const struct cpu_kernels *cpu_level(enum cpu_simd level)
{
	const struct cpu_kernels *kernels = cpu_kernels_get(level);

	return HAS_EVERY_LEVEL || (kernels && kernels->level == level) ? kernels : NULL;
}

/* The same of the eight-bit kernels. */
static inline const struct cpu_int8_kernels *cpu_level_int8(enum cpu_int8_level level)
{
	const struct cpu_int8_kernels *kernels = cpu_int8_get(level);

	return HAS_EVERY_LEVEL || (kernels && kernels->level == level) ? kernels : NULL;
}
