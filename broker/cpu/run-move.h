#pragma once
/* SPDX-License-Identifier: MIT */
/* Steps that move elements: arguments, run functions. Private to broker/cpu. */
#include "cpu/run.h"

struct cpu_step_move {
	struct cpu_move args;
	bool dynamic; /* extent[dynamic_dim] is multiplied by the count */
	unsigned int dynamic_dim;
	bool is_value;               /* the source is value, not input 0 */
	uint64_t value;              /* the element's bits, repeated to fill 8 bytes */
	size_t from_first, to_first; /* bytes */
};
CPU_STEP_HOLDS(struct cpu_step_move);

cpu_run_fn cpu_run_move;
cpu_units_fn cpu_units_move;
