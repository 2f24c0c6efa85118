#pragma once
/* SPDX-License-Identifier: MIT */
/* Steps of elementwise operators: arguments, run functions. Private to broker/cpu. */
#include "cpu/run.h"

/*
 * An elementwise operator. Only extent[0] may depend on the count; without outer dimensions, inner
 * may.
 */
enum { CPU_MAP_MAX_IN = 3 };
struct cpu_step_map {
	cpu_map_fn *kernel;
	union {
		float f[2];
		double d[2];
		int64_t i[2];
	};
	uint8_t n_in;
	uint8_t in_bytes[CPU_MAP_MAX_IN], out_bytes; /* bytes of an element */
	uint8_t step[CPU_MAP_MAX_IN];                /* elements along inner: 0 or 1 */
	bool halves;     /* operands are float16; the kernel computes in float32 */
	bool halves_out; /* the result is float16 */
	size_t pause;    /* elements of a row between two polls */
	struct cpu_extent inner;
	unsigned int n_outer;
	struct cpu_extent extent[CPU_MAX_DIMS];
	size_t stride[CPU_MAP_MAX_IN][CPU_MAX_DIMS]; /* bytes */
};
CPU_STEP_HOLDS(struct cpu_step_map);

cpu_run_fn cpu_run_map_flat, cpu_run_map;
cpu_units_fn cpu_units_map_flat, cpu_units_map;
