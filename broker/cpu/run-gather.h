#pragma once
/* SPDX-License-Identifier: MIT */
/* Steps of what goes by indices, and Trilu: arguments, run functions. Private to broker/cpu. */
#include "cpu/run.h"

/* Gather, GatherND: pointers unset, here and below. */
struct cpu_step_gather {
	struct cpu_gather args;
	struct cpu_extent outer, rows;
};
CPU_STEP_HOLDS(struct cpu_step_gather);

/* GatherElements, ScatterElements: with count_outer extent[0] is to be multiplied by the count. */
struct cpu_step_elements {
	struct cpu_elements args;
	cpu_elements_fn *kernel;
	struct cpu_extent len;
	bool count_outer;
};
CPU_STEP_HOLDS(struct cpu_step_elements);

struct cpu_step_scatter_nd {
	struct cpu_scatter_nd args;
	cpu_scatter_nd_fn *kernel;
	struct cpu_extent rows;
};
CPU_STEP_HOLDS(struct cpu_step_scatter_nd);

struct cpu_step_one_hot {
	struct cpu_one_hot args;
	struct cpu_extent outer;
};
CPU_STEP_HOLDS(struct cpu_step_one_hot);

struct cpu_step_trilu {
	struct cpu_trilu args;
	struct cpu_extent batch, rows; /* only one of them may depend on the count */
};
CPU_STEP_HOLDS(struct cpu_step_trilu);

cpu_run_fn cpu_run_gather, cpu_run_gather_elements, cpu_run_scatter_elements, cpu_run_scatter_nd,
	cpu_run_one_hot, cpu_run_trilu;
cpu_units_fn cpu_units_gather, cpu_units_gather_elements, cpu_units_scatter_elements,
	cpu_units_scatter_nd, cpu_units_one_hot, cpu_units_trilu;
