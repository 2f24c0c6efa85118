#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Cuts by time: plans that several devices complete sooner than one
 *
 * A plan is cut if it is predicted to end sooner in segments on several devices: where branches are
 * independent, where a device lacks operators, or where it is slow at some. The prediction is made
 * before any task has run, from the profiles of the devices alone. A plan for which no device has
 * room, or with states, is cut by plan/cut-points.h, which is told what each node gains, if the
 * device saves more with the pieces that have room than submissions take.
 *
 * Neighbouring nodes are joined to units until a unit takes a share of the plan's time. A schedule
 * of the units (place/graph.h) has execution, transfers of bound tensors and of what crosses, and
 * the fixed time of each submission. Units that follow each other on one device become a segment
 * unless that delays the end of the schedule. The plan is cut if this end comes sooner than that of
 * the whole plan on the best device, by the configured share (partition-min-gain), for a task of
 * all rows, while submissions add little to a task of one row. A segment that the rules of
 * placement would leave to the CPU (threshold) counts as there.
 *
 * Afterwards each segment is placed by itself, as learned times and backlogs suggest: a prediction
 * that was wrong costs the submissions of segments, not the choice of devices.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "place/profile.h"
#include "plan/cut-points.h"
#include "plan/plan.h"

struct place_graph;

/* A device on which segments may run */
struct place_cut_device {
	struct place_profile profile;
	uint64_t room_bytes; /* of its memory, for the plan's tenant; UINT64_MAX: host memory */
	uint32_t types;      /* OP_TYPE() of the element types that it holds; 0: all */
	uint8_t kind;        /* OP_ON_* */
};

/* The basis of the choice, a copy: the placer belongs to another thread. */
struct place_cut_basis {
	uint64_t threshold_bytes; /* as in struct place_config */
	uint32_t min_count;
	float min_gain;     /* 0.2: the whole plan takes at least 1.2 times as long */
	uint32_t n_devices; /* at least 2; the first is the CPU */
	struct place_cut_device devices[];
};

/*
 * Choose the nodes to cut @plan before. @wish is for cut_points(), without gains. Takes some
 * milliseconds for thousands of nodes. Any thread.
 * Return: true; false, and *ret is not set: nothing is known, also for want of memory here.
 */
bool place_cut_points(const struct place_cut_basis *basis, const struct plan *plan,
		      const struct cut_wish *wish, struct cut_choice *ret);

/*
 * Make the graph of the units of @plan, of which place_cut_points() makes its schedule, for tasks
 * of all rows: so that a program can look for schedules of it, too. Any thread.
 * Return: 0; -EOPNOTSUPP: no device can run the whole plan; -ENOMEM.
 */
int place_cut_graph(const struct place_cut_basis *basis, const struct plan *plan,
		    struct place_graph **ret);

/*
 * Return the bytes of host memory that place_cut_points() allocates at most for a plan of a
 * description of @desc_bytes.
 */
uint64_t place_cut_bytes(uint32_t n_devices, size_t desc_bytes);
