#pragma once
/* SPDX-License-Identifier: MIT */
/* Schedules of graphs: what their parts know of each other; graph.h says what for. */
#include <string.h>

#include "place/graph.h"

enum { GRAPH_NO_NODE = UINT16_MAX, GRAPH_CONSTRUCTIONS = 10 };

/* A plan: a device for each node, and an order of all */
struct graph_plan {
	uint8_t *device;
	uint16_t *place; /* of a node in the order, from 0 */
};

/* One run of a plan: what happens to each node, and why it began when it did */
struct graph_outcome {
	float *start_ns, *end_ns;
	uint16_t *cause; /* the node whose end let it begin; GRAPH_NO_NODE: it began at once */
	float span_ns;
	uint16_t last;
};

/* Devices while a plan runs */
struct graph_machine {
	float now_ns;
	uint32_t n_left;
	uint16_t *n_needed; /* by node: nodes that it needs and that have not ended */
	float *arrival_ns;  /* by node: when its transfers have come */
	uint16_t *source;   /* by node: the end of which edge came last; GRAPH_NO_NODE */
	struct graph_machine_device {
		uint16_t *queue; /* nodes, in no order */
		uint32_t n_queue;
		uint16_t running, last; /* nodes; GRAPH_NO_NODE */
		float free_ns;
	} devices[PLACE_GRAPH_DEVICES];
};

struct graph_search {
	struct place_graph graph;
	uint32_t *to_first, *to; /* edges out of each node, and their other ends */
	bool has_links;          /* some transfer takes time */
	struct graph_plan best, now, trial;
	struct graph_outcome outcome;     /* of the last run */
	struct graph_outcome now_outcome; /* of the plan @now */
	float now_ns;
	/* PEFT's optimistic cost table: the least time from a node's end on a device to the last */
	float *after_ns;
	float *rank_ns; /* of the construction */
	/* graph_set_prices(): what a nanosecond of each device adds to the end; their sum is 1 */
	float price[PLACE_GRAPH_DEVICES];
	uint16_t *sorted;
	struct graph_machine machine;
	uint32_t n_steps, n_constructed;
	uint64_t random;
	bool has_plan, is_stale;
};

static inline struct graph_search *graph_search_of(struct place_graph *graph)
{
	return (struct graph_search *)(void *)graph;
}

static inline float graph_exec_ns(const struct place_graph *graph, uint32_t node, uint32_t device)
{
	return graph->exec_ns[(size_t)node * graph->n_devices + device];
}

/* graph-run-hot.c */

typedef void (*graph_visit)(struct graph_search *search, const struct graph_plan *plan,
			    uint32_t node);

/*
 * Run a plan; search.outcome has what happens. @visit, if any, sees each node before it is queued.
 * Return: the time of the last end.
 */
float graph_run_plan(struct graph_search *search, const struct graph_plan *plan, graph_visit visit);

/* Return when all that a node needs has come to @device, and which node it came from last. */
float graph_arrival_ns(const struct graph_search *search, const struct graph_plan *plan,
		       uint32_t node, uint32_t device, uint16_t *ret_source);

/* graph-construct-hot.c */

/* Compute what depends on edges and times alone. */
void graph_prepare(struct graph_search *search);

/*
 * Try the next construction: HEFT first.
 * Return: true: it is the best plan so far, search.best.
 */
bool graph_construct_next(struct graph_search *search);

/* Have the order of a plan be that in which nodes start in search.outcome. */
void graph_order_by_start(struct graph_search *search, struct graph_plan *plan);

/* graph-price-hot.c */

/* Set search.price. */
void graph_set_prices(struct graph_search *search);
/* Set the graph's reduced costs, by search.price. */
void graph_set_reduced(struct graph_search *search);

/* graph-advise-hot.c */

/* Make the best plan the advice of the graph. */
void graph_advise(struct graph_search *search);

static inline void graph_copy_plan(const struct graph_search *search, struct graph_plan *to,
				   const struct graph_plan *from)
{
	memcpy(to->device, from->device, search->graph.n_nodes);
	memcpy(to->place, from->place, search->graph.n_nodes * sizeof(*to->place));
}
