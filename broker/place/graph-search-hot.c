/* SPDX-License-Identifier: MIT */
/*
 * Schedules of graphs: local search
 *
 * A step moves one node of the chain of nodes that determines the end: to another device, alone or
 * with others, to another place in the order, or both. The search is simulated annealing
 * (Kirkpatrick, Gelatt, Vecchi, Optimization by Simulated Annealing, 1983) in rounds, each of which
 * begins with the best plan and ends without accepting anything worse.
 */
#include <math.h>

#include "place/graph-private.h"
#include "util/number.h"

enum { ROUND_STEPS = 512, SMALL_NODES = 64 };

/*
 * A worse plan is accepted if it ends later by at most this share at the beginning of a round.
 * Small graphs need large ones to leave where they are; large graphs get lost with these.
 */
static const float first_excess[2][2] = {{0.01f, 0.05f}, {0.1f, 0.4f}};

static uint32_t random_below(struct graph_search *search, uint32_t n)
{
	return (uint32_t)(mix_u64(search->random++) >> 32) % n;
}

/* Choose a node of the chain that determines the end of the present plan. */
static uint16_t choose_critical(struct graph_search *search)
{
	const struct graph_outcome *outcome = &search->now_outcome;
	uint16_t node = outcome->last;
	uint32_t n = 0;

	for (uint16_t i = node; i != GRAPH_NO_NODE; i = outcome->cause[i])
		n++;
	for (n = random_below(search, n); n > 0; n--)
		node = outcome->cause[node];
	return node;
}

/* Move a node in the order of the trial. */
static void move_node(struct graph_search *search, uint16_t node, uint16_t to)
{
	uint16_t *place = search->trial.place;
	const uint16_t from = place[node];

	for (uint32_t i = 0; i < search->graph.n_nodes; i++) {
		if (from < to)
			place[i] = (uint16_t)(place[i] - (place[i] > from && place[i] <= to));
		else
			place[i] = (uint16_t)(place[i] + (place[i] >= to && place[i] < from));
	}
	place[node] = to;
}

/* Return true if a node that @i needs, or with @is_forward false one that needs it, has moved. */
static bool neighbour_moved(const struct graph_search *search, uint32_t i, bool is_forward)
{
	const struct place_graph *graph = &search->graph;
	const uint32_t *first = is_forward ? graph->first : search->to_first;
	const uint32_t *ends = is_forward ? graph->from : search->to;

	for (uint32_t e = first[i]; e < first[i + 1]; e++)
		if (search->trial.device[ends[e]] != search->now.device[ends[e]])
			return true;
	return false;
}

/*
 * Move a node to a device, and with it nodes around: those that need it, or that it needs, directly
 * or through others that move, if they are on the same device; at random some stay. Where transfers
 * take long, no single node is worth one.
 */
static void move_around(struct graph_search *search, uint16_t node, uint8_t device)
{
	const struct place_graph *graph = &search->graph;
	const uint8_t from = search->trial.device[node];
	const bool is_forward = random_below(search, 2);
	const uint32_t n = is_forward ? graph->n_nodes - node - 1 : node;
	const uint32_t one_in = 2 + random_below(search, 15); /* stays */

	search->trial.device[node] = device;
	for (uint32_t k = 1; k <= n; k++) {
		const uint32_t i = is_forward ? node + k : node - k;

		if (search->trial.device[i] == from && !isinf(graph_exec_ns(graph, i, device)) &&
		    neighbour_moved(search, i, is_forward) && random_below(search, one_in) > 0)
			search->trial.device[i] = device;
	}
}

/* Move all nodes of a device that come after @node, or before it, to another device. */
static void move_side(struct graph_search *search, uint16_t node, uint8_t device)
{
	const struct place_graph *graph = &search->graph;
	const uint8_t from = search->trial.device[node];
	const uint16_t place = search->trial.place[node];
	const bool is_after = random_below(search, 2);

	for (uint32_t i = 0; i < graph->n_nodes; i++)
		if (search->trial.device[i] == from && !isinf(graph_exec_ns(graph, i, device)) &&
		    (is_after ? search->trial.place[i] >= place : search->trial.place[i] <= place))
			search->trial.device[i] = device;
}

/* Change the trial at one place. */
static void change(struct graph_search *search)
{
	const struct place_graph *graph = &search->graph;
	const uint32_t kind = random_below(search, 8);
	const uint16_t node = kind == 0 ? (uint16_t)random_below(search, graph->n_nodes)
					: choose_critical(search);
	const uint16_t cause = search->now_outcome.cause[node];

	if (kind < 5 && graph->n_devices > 1) {
		const uint32_t device = (search->trial.device[node] + 1 +
					 random_below(search, graph->n_devices - 1)) %
					graph->n_devices;

		if (isinf(graph_exec_ns(graph, node, device)))
			return;
		if (kind == 1 || kind == 2) {
			if (random_below(search, 2))
				move_around(search, node, (uint8_t)device);
			else
				move_side(search, node, (uint8_t)device);
			return;
		}
		search->trial.device[node] = (uint8_t)device;
		if (kind < 4)
			return;
	}
	/* A node that waited for its device may go first; others go anywhere. */
	if (kind < 7 && cause != GRAPH_NO_NODE &&
	    search->trial.place[cause] < search->trial.place[node])
		move_node(search, node, search->trial.place[cause]);
	else
		move_node(search, node, (uint16_t)random_below(search, graph->n_nodes));
}

/* The plan that was run last is the present one. */
static void accept(struct graph_search *search)
{
	const struct graph_outcome outcome = search->outcome;

	search->outcome = search->now_outcome;
	search->now_outcome = outcome;
	search->now_ns = outcome.span_ns;
}

static void begin_round(struct graph_search *search)
{
	graph_copy_plan(search, &search->now, &search->best);
	graph_run_plan(search, &search->now, NULL);
	accept(search);
}

/* Return true if the step has found a better plan than any before. */
static bool step(struct graph_search *search)
{
	const uint32_t at = search->n_steps % ROUND_STEPS;
	const uint32_t round = search->n_steps++ / ROUND_STEPS;
	const float first = first_excess[search->graph.n_nodes <= SMALL_NODES][round % 2];
	const float excess = first * (1 - (float)at / ROUND_STEPS);
	float ns;

	if (at == 0)
		begin_round(search);
	graph_copy_plan(search, &search->trial, &search->now);
	change(search);
	ns = graph_run_plan(search, &search->trial, NULL);
	if (ns > search->now_ns && ns > search->graph.span_ns * (1 + excess))
		return false;
	accept(search);
	graph_copy_plan(search, &search->now, &search->trial);
	if (ns >= search->graph.span_ns)
		return false;
	search->graph.span_ns = ns;
	graph_copy_plan(search, &search->best, &search->trial);
	return true;
}

/* Move nodes of the best plan whose devices cannot run them any more. */
static void leave_missing(struct graph_search *search)
{
	const struct place_graph *graph = &search->graph;

	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		uint8_t *device = &search->best.device[i];

		for (uint8_t d = 0; d < graph->n_devices; d++)
			if (isinf(graph_exec_ns(graph, i, *device)))
				*device = d;
	}
}

/* Begin the search, or begin it anew with the plan that there is. */
static void begin_search(struct graph_search *search)
{
	graph_prepare(search);
	graph_set_prices(search);
	graph_set_reduced(search);
	search->graph.span_ns = INFINITY;
	search->n_constructed = 0;
	/* The next step begins a round. */
	search->n_steps = (search->n_steps + ROUND_STEPS - 1) / ROUND_STEPS * ROUND_STEPS;
	search->is_stale = false;
	if (search->has_plan) {
		leave_missing(search);
		search->graph.span_ns = graph_run_plan(search, &search->best, NULL);
	} else {
		graph_construct_next(search);
		search->has_plan = true;
	}
}

void place_graph_renew(struct place_graph *graph)
{
	graph_search_of(graph)->is_stale = true;
}

void place_graph_improve(struct place_graph *graph, uint32_t n_steps)
{
	struct graph_search *search = graph_search_of(graph);
	bool is_new = !search->has_plan || search->is_stale;

	if (is_new)
		begin_search(search);
	for (uint32_t i = 0; i < n_steps; i++)
		is_new |= search->n_constructed < GRAPH_CONSTRUCTIONS ? graph_construct_next(search)
								      : step(search);
	if (is_new)
		graph_advise(search);
}
