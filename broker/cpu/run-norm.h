#pragma once
/* SPDX-License-Identifier: MIT */
/* Steps of normalisations: arguments, run functions. Private to broker/cpu. */
#include "cpu/run.h"

/* Pointers and members that may depend on the count are unset in args. */
struct cpu_step_norm {
	struct cpu_norm args; /* run 0: the whole row */
	struct cpu_extent rows, len;
};
CPU_STEP_HOLDS(struct cpu_step_norm);

struct cpu_step_batch_norm {
	struct cpu_batch_norm args;
	struct cpu_extent batch;
};
CPU_STEP_HOLDS(struct cpu_step_batch_norm);

cpu_run_fn cpu_run_norm, cpu_run_batch_norm;
cpu_units_fn cpu_units_norm, cpu_units_batch_norm;
