/* SPDX-License-Identifier: MIT */
/* Schedules of graphs: memory; one allocation has the graph and all that the search needs. */
#include <errno.h>
#include <stdlib.h>

#include "place/graph-private.h"
#include "util/error.h"

/* Take @bytes of the memory behind @search; @search NULL: only count. */
static void *take(struct graph_search *search, size_t *used, size_t bytes)
{
	void *ret = search ? (char *)search + *used : NULL;

	*used += (bytes + 7) & ~(size_t)7;
	return ret;
}

static void take_plan(struct graph_search *search, size_t *used, struct graph_plan *plan, size_t n)
{
	plan->device = take(search, used, n);
	plan->place = take(search, used, n * sizeof(uint16_t));
}

static void take_outcome(struct graph_search *search, size_t *used, struct graph_outcome *outcome,
			 size_t n)
{
	outcome->start_ns = take(search, used, n * sizeof(float));
	outcome->end_ns = take(search, used, n * sizeof(float));
	outcome->cause = take(search, used, n * sizeof(uint16_t));
}

/* Lay out a search's arrays behind it. Return: the bytes of all. */
static size_t lay_out(struct graph_search *search, uint32_t n_nodes, uint32_t n_edges,
		      uint32_t n_devices)
{
	const size_t n = n_nodes, e = n_edges, cells = n * n_devices * sizeof(float);
	size_t used = (sizeof(*search) + 7) & ~(size_t)7;
	struct graph_search scratch, *ret = search ? search : &scratch;

	ret->graph.first = take(search, &used, (n + 1) * sizeof(uint32_t));
	ret->graph.from = take(search, &used, e * sizeof(uint32_t));
	ret->graph.edge_bytes = take(search, &used, e * sizeof(float));
	ret->graph.exec_ns = take(search, &used, cells);
	ret->graph.work_ns = take(search, &used, cells);
	ret->graph.bias_ns = take(search, &used, cells);
	ret->graph.reduced_ns = take(search, &used, cells);
	ret->graph.end_ns = take(search, &used, n * sizeof(float));
	ret->graph.device = take(search, &used, n);
	ret->graph.order = take(search, &used, n * sizeof(uint16_t));
	ret->to_first = take(search, &used, (n + 1) * sizeof(uint32_t));
	ret->to = take(search, &used, e * sizeof(uint32_t));
	take_plan(search, &used, &ret->best, n);
	take_plan(search, &used, &ret->now, n);
	take_plan(search, &used, &ret->trial, n);
	take_outcome(search, &used, &ret->outcome, n);
	take_outcome(search, &used, &ret->now_outcome, n);
	ret->after_ns = take(search, &used, cells);
	ret->rank_ns = take(search, &used, n * sizeof(float));
	ret->sorted = take(search, &used, n * sizeof(uint16_t));
	ret->machine.n_needed = take(search, &used, n * sizeof(uint16_t));
	ret->machine.arrival_ns = take(search, &used, n * sizeof(float));
	ret->machine.source = take(search, &used, n * sizeof(uint16_t));
	for (uint32_t d = 0; d < n_devices; d++)
		ret->machine.devices[d].queue = take(search, &used, n * sizeof(uint16_t));
	return used;
}

uint64_t place_graph_bytes(uint32_t n_nodes, uint32_t n_edges, uint32_t n_devices)
{
	return lay_out(NULL, n_nodes, n_edges, n_devices);
}

int place_graph_new(uint32_t n_nodes, uint32_t n_edges, uint32_t n_devices,
		    struct place_graph **ret)
{
	struct graph_search *search = calloc(1, lay_out(NULL, n_nodes, n_edges, n_devices));

	if (!search)
		return error_origin(-ENOMEM);
	lay_out(search, n_nodes, n_edges, n_devices);
	search->graph.n_nodes = n_nodes;
	search->graph.n_edges = n_edges;
	search->graph.n_devices = n_devices;
	search->random = 1;
	*ret = &search->graph;
	return 0;
}

struct place_graph *place_graph_free(struct place_graph *graph)
{
	free(graph);
	return NULL;
}
