#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Cut points: where a plan is cut into segments (plan/cut.h)
 *
 * Where devices are known by profiles, predicted times decide (place/cut-devices.h), unless there
 * is no room for the plan. Otherwise a plan stays whole if a device can have it whole: segments
 * cost submissions, and crossing tensors are written and read once more. It is cut
 *   - where an operator that a device lacks begins or ends, if the run of nodes that the device has
 *     is worth a submission of its own;
 *   - into pieces of constants, if constants and scratch are larger than the device memory that the
 *     plan's tenant may have: as many pieces as fit are on the device, the others run on the CPU.
 * Nodes that are computed along with others (plan/fuse.h) stay together.
 */
#include <stdint.h>

#include "plan/cut.h"
#include "plan/plan.h"

struct cut_wish {
	uint8_t devices;       /* OP_ON_*: the kind of the device; 0: there is none */
	uint32_t types;        /* OP_TYPE() of the element types that it holds; 0: all */
	uint64_t memory_bytes; /* most that the tenant may have of its memory */
	uint64_t seed;         /* cut at random, before any node, for tests; 0: no */
	/*
	 * By node: time that the device saves beside the CPU, for a task of all rows; -INFINITY if
	 * it lacks the node. NULL: not known.
	 */
	const float *gain_ns;
	/* If known: time that a segment adds, and rate of the link; 0: none */
	float submission_ns, link_bytes_per_ns;
};

/* Where a plan is cut, and why */
struct cut_choice {
	uint32_t n;                            /* nodes to cut before; 0: the plan stays whole */
	uint16_t firsts[CUT_MAX_SEGMENTS - 1]; /* these nodes, ascending, as cut_new() takes them */
	enum rbk_cut why;
	float cut_ns, whole_ns; /* predicted, as in struct rbk_stats_plan; 0: not predicted */
};

/* Choose the nodes to cut @plan before. Sets no predicted times. Any thread. */
void cut_points(const struct plan *plan, const struct cut_wish *wish, struct cut_choice *ret);
