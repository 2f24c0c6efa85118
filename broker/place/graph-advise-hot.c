/* SPDX-License-Identifier: MIT */
/* Schedules of graphs: the advice that follows from the best plan */
#include <math.h>

#include "place/graph-private.h"
#include "util/number.h"

/*
 * A node leaves its device only if it would be late by that many times its own time: where times
 * vary, leaving for less cost more than it gained, since the device catches up, and what was moved
 * is moved again.
 */
static const float least_lateness = 4;

/* Predict the completion of a node that is queued now, behind those before it in the order. */
static float done_ns(struct graph_search *search, const struct graph_plan *plan, uint32_t node,
		     uint32_t device)
{
	const struct graph_machine *machine = &search->machine;
	const struct graph_machine_device *on = &machine->devices[device];
	float ns = machine->now_ns;
	uint16_t source;

	if (on->running != GRAPH_NO_NODE)
		ns = on->free_ns;
	for (uint32_t i = 0; i < on->n_queue; i++)
		if (plan->place[on->queue[i]] < plan->place[node])
			ns += graph_exec_ns(&search->graph, on->queue[i], device);
	return max_float(ns, graph_arrival_ns(search, plan, node, device, &source)) +
	       graph_exec_ns(&search->graph, node, device);
}

/* Note when a node that is queued now would end on each device. */
static void note_done(struct graph_search *search, const struct graph_plan *plan, uint32_t node)
{
	const uint32_t n = search->graph.n_devices;
	float *bias = &search->graph.bias_ns[(size_t)node * n];

	for (uint32_t d = 0; d < n; d++)
		bias[d] = done_ns(search, plan, node, d);
}

void graph_advise(struct graph_search *search)
{
	struct place_graph *graph = &search->graph;
	const uint32_t n = graph->n_devices;

	/* The order of starts leads to the same run. */
	graph_run_plan(search, &search->best, NULL);
	graph_order_by_start(search, &search->best);
	graph->span_ns = graph_run_plan(search, &search->best, note_done);
	memcpy(graph->order, search->sorted, graph->n_nodes * sizeof(*graph->order));
	memcpy(graph->end_ns, search->outcome.end_ns, graph->n_nodes * sizeof(*graph->end_ns));
	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		const uint8_t planned = search->best.device[i];
		const float rest_ns = graph->span_ns - search->outcome.end_ns[i];
		const float least_ns = least_lateness * graph_exec_ns(graph, i, planned);
		const float *after = &search->after_ns[(size_t)i * n];
		float *bias = &graph->bias_ns[(size_t)i * n];
		const float planned_ns = bias[planned];

		graph->device[i] = planned;
		for (uint32_t d = 0; d < n; d++) {
			if (isinf(graph_exec_ns(graph, i, d)))
				bias[d] = INFINITY;
			else if (d == planned)
				bias[d] = 0;
			else
				bias[d] = max_float(max_float(planned_ns - bias[d] + least_ns,
							      after[d] - rest_ns),
						    0);
		}
	}
}
