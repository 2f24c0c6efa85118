/* SPDX-License-Identifier: MIT */
/*
 * Schedules of graphs: running a plan
 *
 * A node is queued on its device once all that it needs has ended. The device takes the first of
 * its queue, in the order of the plan, whose transfers have come, and is never idle while it has
 * one. This is how brokerd runs segments, so a schedule found here is one that it can follow.
 */
#include <math.h>

#include "place/graph-private.h"
#include "util/number.h"

float graph_arrival_ns(const struct graph_search *search, const struct graph_plan *plan,
		       uint32_t node, uint32_t device, uint16_t *ret_source)
{
	const struct place_graph *graph = &search->graph;
	float latest_ns = 0, ns;

	*ret_source = GRAPH_NO_NODE;
	for (uint32_t e = graph->first[node]; e < graph->first[node + 1]; e++) {
		const uint32_t from = graph->from[e];

		ns = search->outcome.end_ns[from] +
		     place_graph_transfer_ns(graph, e, plan->device[from], device);
		if (ns >= latest_ns) {
			latest_ns = ns;
			*ret_source = (uint16_t)from;
		}
	}
	return latest_ns;
}

static void enqueue(struct graph_search *search, const struct graph_plan *plan, uint32_t node)
{
	struct graph_machine *machine = &search->machine;
	const uint8_t device = plan->device[node];
	struct graph_machine_device *on = &machine->devices[device];

	machine->arrival_ns[node] =
		graph_arrival_ns(search, plan, node, device, &machine->source[node]);
	on->queue[on->n_queue++] = (uint16_t)node;
}

/*
 * Have an idle device begin the first node, in order, of those that have come.
 * Return: INFINITY; if none has come: when the next one comes.
 */
static float begin(struct graph_search *search, const struct graph_plan *plan, uint32_t device)
{
	struct graph_machine *machine = &search->machine;
	struct graph_machine_device *on = &machine->devices[device];
	struct graph_outcome *outcome = &search->outcome;
	float next_ns = INFINITY;
	uint32_t best = UINT32_MAX;
	uint16_t node;

	for (uint32_t i = 0; i < on->n_queue; i++) {
		node = on->queue[i];
		if (machine->arrival_ns[node] > machine->now_ns)
			next_ns = min_float(next_ns, machine->arrival_ns[node]);
		else if (best == UINT32_MAX || plan->place[node] < plan->place[on->queue[best]])
			best = i;
	}
	if (best == UINT32_MAX)
		return next_ns;
	node = on->queue[best];
	on->queue[best] = on->queue[--on->n_queue];
	outcome->cause[node] =
		machine->arrival_ns[node] < on->free_ns ? on->last : machine->source[node];
	outcome->start_ns[node] = machine->now_ns;
	outcome->end_ns[node] = machine->now_ns + graph_exec_ns(&search->graph, node, device);
	on->running = node;
	on->free_ns = outcome->end_ns[node];
	return INFINITY;
}

/* A node ends: those that needed it may be queued. @visit, if any, sees each before. */
static void end(struct graph_search *search, const struct graph_plan *plan,
		struct graph_machine_device *device, graph_visit visit)
{
	struct graph_machine *machine = &search->machine;
	const uint16_t node = device->running;

	device->running = GRAPH_NO_NODE;
	device->last = node;
	machine->n_left--;
	for (uint32_t e = search->to_first[node]; e < search->to_first[node + 1]; e++) {
		if (--machine->n_needed[search->to[e]] > 0)
			continue;
		if (visit)
			visit(search, plan, search->to[e]);
		enqueue(search, plan, search->to[e]);
	}
	if (search->outcome.end_ns[node] >= search->outcome.span_ns) {
		search->outcome.span_ns = search->outcome.end_ns[node];
		search->outcome.last = node;
	}
}

float graph_run_plan(struct graph_search *search, const struct graph_plan *plan, graph_visit visit)
{
	const struct place_graph *graph = &search->graph;
	struct graph_machine *machine = &search->machine;
	float next_ns;

	machine->now_ns = 0;
	machine->n_left = graph->n_nodes;
	search->outcome.span_ns = 0;
	for (uint32_t d = 0; d < graph->n_devices; d++) {
		machine->devices[d].n_queue = 0;
		machine->devices[d].running = machine->devices[d].last = GRAPH_NO_NODE;
		machine->devices[d].free_ns = 0;
	}
	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		machine->n_needed[i] = (uint16_t)(graph->first[i + 1] - graph->first[i]);
		if (machine->n_needed[i] > 0)
			continue;
		if (visit)
			visit(search, plan, i);
		enqueue(search, plan, i);
	}
	while (machine->n_left > 0) {
		next_ns = INFINITY;
		for (uint32_t d = 0; d < graph->n_devices; d++) {
			struct graph_machine_device *on = &machine->devices[d];

			if (on->running == GRAPH_NO_NODE)
				next_ns = min_float(next_ns, begin(search, plan, d));
			if (on->running != GRAPH_NO_NODE)
				next_ns = min_float(next_ns, on->free_ns);
		}
		machine->now_ns = next_ns;
		for (uint32_t d = 0; d < graph->n_devices; d++)
			if (machine->devices[d].running != GRAPH_NO_NODE &&
			    machine->devices[d].free_ns <= next_ns)
				end(search, plan, &machine->devices[d], visit);
	}
	return search->outcome.span_ns;
}
