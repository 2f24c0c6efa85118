#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The levels of the CPU's kernels, each once
 *
 * A build with the option cpu_levels=avx2 has one level under several names.
 */
#include "cpu/int8.h"
#include "cpu/kernels.h"

/* Return the kernels of @level; NULL if they cannot run here, or are those of a lower level. */
static inline const struct cpu_kernels *cpu_level(enum cpu_simd level)
{
	const struct cpu_kernels *kernels = cpu_kernels_get(level);

	for (enum cpu_simd lower = CPU_SIMD_SSE2; lower < level; lower++)
		if (cpu_kernels_get(lower) == kernels)
			return NULL;
	return kernels;
}

/* The same of the eight-bit kernels. */
static inline const struct cpu_int8_kernels *cpu_level_int8(enum cpu_int8_level level)
{
	const struct cpu_int8_kernels *kernels = cpu_int8_get(level);

	for (enum cpu_int8_level lower = CPU_INT8_SSE2; lower < level; lower++)
		if (cpu_int8_get(lower) == kernels)
			return NULL;
	return kernels;
}
