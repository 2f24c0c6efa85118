#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The optimum of a small graph: the least makespan of all schedules
 *
 * A device runs one node at a time, without preemption. A transfer begins when its node ends, and
 * transfers do not delay each other. All devices are idle at first.
 */
#include <stdint.h>

struct place_graph;

enum {
	GRAPH_EXACT_E_LIMIT = 1, /* no proof within the time or memory */
	GRAPH_EXACT_NODES = 20,
	GRAPH_EXACT_DEVICES = 3,
};

/*
 * Find the optimum of a graph with at most GRAPH_EXACT_NODES nodes and GRAPH_EXACT_DEVICES devices,
 * searching for at most @seconds of processor time. No two edges join the same nodes. @upper_ns is
 * the makespan of a known schedule, or INFINITY for that of all nodes one after the other: it is
 * the result if no schedule is shorter by more than 2e-7 of it. Another result is not above the
 * optimum, nor below it by more than 2e-7 of @upper_ns. With GRAPH_EXACT_E_LIMIT, also for a larger
 * graph, the result is a lower bound of the optimum. Takes up to 500 MB.
 * Return: 0, GRAPH_EXACT_E_LIMIT or -ENOMEM.
 */
int graph_exact(const struct place_graph *graph, double upper_ns, double seconds, double *ret_ns);

/*
 * Do the same by GLPK, for graphs with up to 8 nodes. The result is within 1e-5 of the optimum.
 * Return: 0, GRAPH_EXACT_E_LIMIT, -ENOMEM, or -EOPNOTSUPP without GLPK.
 */
int graph_exact_glpk(const struct place_graph *graph, double upper_ns, double seconds,
		     double *ret_ns);
