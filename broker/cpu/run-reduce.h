#pragma once
/* SPDX-License-Identifier: MIT */
/* Steps of TopK, Softmax, reductions, ArgMax, CumSum and LpNormalization: arguments, run functions.
 * Private to broker/cpu. */
#include "cpu/run.h"

struct cpu_step_columns {
	struct cpu_extent outer, len, inner;
	enum cpu_type type;
	size_t k;                /* TopK */
	bool largest;            /* TopK; ArgMax: not the smallest */
	bool last;               /* ArgMax */
	bool log;                /* Softmax */
	bool exclusive, reverse; /* CumSum */
	bool l1;                 /* LpNormalization */
};
CPU_STEP_HOLDS(struct cpu_step_columns);

struct cpu_step_reduce {
	struct cpu_reduce args; /* pointers unset, extents at count 1 */
	/* the first kept or reduced dimension is multiplied by the count */
	bool count_kept, count_reduced;
};
CPU_STEP_HOLDS(struct cpu_step_reduce);

cpu_run_fn cpu_run_softmax, cpu_run_reduce, cpu_run_top_k, cpu_run_arg, cpu_run_scan,
	cpu_run_lp_norm;
cpu_units_fn cpu_units_softmax, cpu_units_reduce, cpu_units_top_k, cpu_units_columns;
