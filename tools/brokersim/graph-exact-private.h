#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * States of the search of graph-exact.c, and bounds of what can follow
 *
 * Times are integers: a known makespan is EXACT_UNIT. Sums of three times fit into 32 bits.
 */
#include <stdbool.h>
#include <stdint.h>

#include "graph-exact.h"

struct place_graph;

enum {
	N_NODES = GRAPH_EXACT_NODES,
	N_DEVICES = GRAPH_EXACT_DEVICES,
	EXACT_UNIT = 1 << 28,
	EXACT_NEVER = 1 << 30,
};

/* A time of each node on each device; devices first, so that loops over nodes are vector code */
typedef uint32_t exact_times[N_DEVICES][N_NODES];

struct exact_edge {
	uint32_t from, to;
	uint32_t move[N_DEVICES][N_DEVICES];
};

/* A graph, or its mirror image: edges turned round, and nodes numbered from the last one. */
struct exact_problem {
	uint32_t n_nodes, n_devices;
	struct exact_edge edges[N_NODES * N_NODES];
	uint32_t n_in[N_NODES], in[N_NODES][N_NODES];   /* edges */
	uint32_t n_out[N_NODES], out[N_NODES][N_NODES]; /* edges */
	uint32_t before[N_NODES];                       /* predecessors, as a mask */
	exact_times exec;
	exact_times tail; /* least time from the node's end on a device to the end of all */
};

/* The first nodes of a schedule, by start */
struct exact_state {
	uint32_t done;  /* these nodes, as a mask */
	uint32_t bound; /* of the makespan of each schedule that continues this one */
	uint32_t last;  /* start of the last node; no later node starts earlier */
	uint32_t next;  /* state with the same nodes, or NO_STATE */
	uint32_t idle[N_DEVICES];
	uint32_t barred[N_DEVICES]; /* nodes that need not be tried on the device */
	float weights[N_DEVICES];   /* of devices, for exact_area() */
	exact_times ready;          /* when all data of nodes that are done have arrived */
};

static inline uint32_t exact_min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static inline uint32_t exact_max(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/* Set up a zeroed problem. Times are rounded down to multiples of @unit_ns. */
void exact_problem_init(struct exact_problem *problem, const struct place_graph *graph,
			double unit_ns, bool is_mirrored);

/*
 * Find the earliest start of each node on each device, in schedules that continue @state and end
 * before @upper: EXACT_NEVER for nodes that are done, and where there is no such schedule.
 * Return: a lower bound of the makespan, at least @upper if there is no such schedule.
 */
uint32_t exact_heads(const struct exact_problem *problem, const struct exact_state *state,
		     uint32_t upper, exact_times head);

/*
 * Return a lower bound of the makespan from the work that is left, or any number from @upper on.
 * @head is of exact_heads(). Improves the state's weights.
 */
uint32_t exact_area(const struct exact_problem *problem, struct exact_state *state,
		    exact_times head, uint32_t upper);
