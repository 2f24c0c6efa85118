#pragma once
/* SPDX-License-Identifier: MIT */
/* Steps of Attention and RotaryEmbedding: arguments, run functions. Private to broker/cpu. */
#include "cpu/run.h"

/* Pointers and members that may depend on the count are unset in args. */
struct cpu_step_rotary {
	struct cpu_rotary args;
	struct cpu_extent batch;
};
CPU_STEP_HOLDS(struct cpu_step_rotary);

struct cpu_step_attention {
	struct cpu_attention args;
	struct cpu_extent batch;
};
CPU_STEP_HOLDS(struct cpu_step_attention);

/*
 * Attention's present keys or values: input 0 (the past, if present), followed by input 1, per
 * head.
 */
struct cpu_step_present {
	struct cpu_extent batch;
	size_t heads, past, seq, size;
	size_t head_stride, row_stride; /* of input 1 */
};
CPU_STEP_HOLDS(struct cpu_step_present);

cpu_run_fn cpu_run_rotary, cpu_run_attention, cpu_run_present;
cpu_units_fn cpu_units_rotary, cpu_units_attention, cpu_units_present;
