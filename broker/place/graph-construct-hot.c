/* SPDX-License-Identifier: MIT */
/*
 * Schedules of graphs: the first plan, by constructions of the literature; graph.h names them
 */
#include <math.h>

#include "place/graph-private.h"
#include "util/number.h"

/* Sort edges by the node that they leave. */
static void index_edges(struct graph_search *search)
{
	const struct place_graph *graph = &search->graph;
	const uint32_t n = graph->n_nodes;

	memset(search->to_first, 0, (n + 1) * sizeof(*search->to_first));
	for (uint32_t e = 0; e < graph->n_edges; e++)
		search->to_first[graph->from[e] + 1]++;
	for (uint32_t i = 0; i < n; i++)
		search->to_first[i + 1] += search->to_first[i];
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t e = graph->first[i]; e < graph->first[i + 1]; e++)
			search->to[search->to_first[graph->from[e]]++] = i;
	for (uint32_t i = n; i > 0; i--)
		search->to_first[i] = search->to_first[i - 1];
	search->to_first[0] = 0;
}

/* Return the mean time of a node over the devices that can run it. */
static float mean_exec_ns(const struct place_graph *graph, uint32_t node)
{
	float ns = 0;
	uint32_t n = 0;

	for (uint32_t d = 0; d < graph->n_devices; d++) {
		if (isinf(graph_exec_ns(graph, node, d)))
			continue;
		ns += graph_exec_ns(graph, node, d);
		n++;
	}
	return n > 0 ? ns / (float)n : 0;
}

/* Return the mean time of a transfer over all pairs of different devices. */
static float mean_transfer_ns(const struct graph_search *search, uint32_t edge)
{
	const struct place_graph *graph = &search->graph;
	const uint32_t n = graph->n_devices * (graph->n_devices - 1);
	float ns = 0;

	if (!search->has_links)
		return 0;
	for (uint32_t a = 0; a < graph->n_devices; a++)
		for (uint32_t b = 0; b < graph->n_devices; b++)
			ns += place_graph_transfer_ns(graph, edge, a, b);
	return n > 0 ? ns / (float)n : 0;
}

/* Compute upward ranks (HEFT): the longest way to the end, in means. */
static void rank_upward(struct graph_search *search)
{
	const struct place_graph *graph = &search->graph;

	memset(search->rank_ns, 0, graph->n_nodes * sizeof(float));
	for (uint32_t i = graph->n_nodes; i-- > 0;) {
		search->rank_ns[i] += mean_exec_ns(graph, i);
		for (uint32_t e = graph->first[i]; e < graph->first[i + 1]; e++) {
			float *before = &search->rank_ns[graph->from[e]];

			*before = max_float(*before,
					    search->rank_ns[i] + mean_transfer_ns(search, e));
		}
	}
}

/* Return the least time from the end of an edge's first node, on device @from, to the last end. */
static float after_edge_ns(const struct graph_search *search, uint32_t edge, uint32_t node,
			   uint32_t from)
{
	const struct place_graph *graph = &search->graph;
	const float *after = &search->after_ns[(size_t)node * graph->n_devices];
	float least_ns = INFINITY;

	for (uint32_t d = 0; d < graph->n_devices; d++)
		least_ns = min_float(least_ns, place_graph_transfer_ns(graph, edge, from, d) +
						       graph_exec_ns(graph, node, d) + after[d]);
	return least_ns;
}

/* Compute the optimistic cost table (PEFT), with the true transfer between each pair of devices. */
static void look_ahead(struct graph_search *search)
{
	const struct place_graph *graph = &search->graph;
	const uint32_t n = graph->n_devices;

	memset(search->after_ns, 0, (size_t)graph->n_nodes * n * sizeof(float));
	for (uint32_t i = graph->n_nodes; i-- > 0;) {
		float ns = 0;

		/* Without transfers all edges of a node are alike. */
		if (!search->has_links && graph->first[i] < graph->first[i + 1])
			ns = after_edge_ns(search, graph->first[i], i, 0);
		for (uint32_t e = graph->first[i]; e < graph->first[i + 1]; e++) {
			float *before = &search->after_ns[(size_t)graph->from[e] * n];

			for (uint32_t d = 0; d < n; d++) {
				if (search->has_links)
					ns = after_edge_ns(search, e, i, d);
				before[d] = max_float(before[d], ns);
			}
		}
	}
}

/* Compute PEFT's ranks: the mean of the table over devices. */
static void rank_by_table(struct graph_search *search)
{
	const uint32_t n = search->graph.n_devices;

	for (uint32_t i = 0; i < search->graph.n_nodes; i++) {
		float ns = 0;

		for (uint32_t d = 0; d < n; d++)
			ns += search->after_ns[(size_t)i * n + d];
		search->rank_ns[i] = ns / (float)n;
	}
}

/*
 * Return the first time from @from_ns on at which a device, whose nodes are in order of their
 * starts, has @ns free.
 */
static float find_gap(const struct graph_search *search, const struct graph_machine_device *device,
		      float from_ns, float ns)
{
	const struct graph_outcome *outcome = &search->outcome;
	uint32_t i = device->n_queue;

	/* Most gaps are far before the node. */
	while (i > 0 && outcome->end_ns[device->queue[i - 1]] > from_ns)
		i--;
	for (; i < device->n_queue; i++) {
		if (from_ns + ns <= outcome->start_ns[device->queue[i]])
			break;
		from_ns = max_float(from_ns, outcome->end_ns[device->queue[i]]);
	}
	return from_ns;
}

static void insert(struct graph_search *search, struct graph_machine_device *device, uint16_t node)
{
	uint32_t i = device->n_queue++;

	for (; i > 0 &&
	       search->outcome.start_ns[device->queue[i - 1]] > search->outcome.start_ns[node];
	     i--)
		device->queue[i] = device->queue[i - 1];
	device->queue[i] = node;
}

/*
 * A construction places nodes in one of these ways: where each ends first; with the table, where
 * the way through it ends first; with a weight of prices, where that and the price are least
 * together
 */
struct way {
	bool has_table, is_ranked_by_table;
	float price_weight;
};

/* Put a node where the way has it. */
static void place_node(struct graph_search *search, uint16_t node, const struct way *way)
{
	const struct place_graph *graph = &search->graph;
	struct graph_outcome *outcome = &search->outcome;
	float least_ns = INFINITY, start_ns, sum_ns;
	uint16_t source;

	for (uint32_t d = 0; d < graph->n_devices; d++) {
		const float ns = graph_exec_ns(graph, node, d);

		if (isinf(ns))
			continue;
		start_ns = find_gap(search, &search->machine.devices[d],
				    graph_arrival_ns(search, &search->trial, node, d, &source), ns);
		sum_ns = start_ns + ns + way->price_weight * search->price[d] * ns;
		if (way->has_table)
			sum_ns += search->after_ns[(size_t)node * graph->n_devices + d];
		if (sum_ns >= least_ns)
			continue;
		least_ns = sum_ns;
		search->trial.device[node] = (uint8_t)d;
		outcome->start_ns[node] = start_ns;
		outcome->end_ns[node] = start_ns + ns;
	}
	insert(search, &search->machine.devices[search->trial.device[node]], node);
}

/* Sort a range of search.sorted by @key, descending or ascending; stable. */
static void sort_nodes(struct graph_search *search, uint16_t *scratch, const float *key, float sign,
		       uint32_t first, uint32_t n)
{
	const uint32_t half = n / 2, middle = first + half;
	uint16_t *sorted = search->sorted;
	uint32_t a = 0, b = middle;

	if (n < 2)
		return;
	sort_nodes(search, scratch, key, sign, first, half);
	sort_nodes(search, scratch, key, sign, middle, n - half);
	memcpy(scratch, sorted + first, half * sizeof(*sorted));
	for (uint32_t i = first; a < half; i++)
		sorted[i] = b == first + n || sign * key[scratch[a]] <= sign * key[sorted[b]]
				    ? scratch[a++]
				    : sorted[b++];
}

static void sort_by(struct graph_search *search, const float *key, float sign)
{
	for (uint32_t i = 0; i < search->graph.n_nodes; i++)
		search->sorted[i] = (uint16_t)i;
	/* Between runs n_needed is free. */
	sort_nodes(search, search->machine.n_needed, key, sign, 0, search->graph.n_nodes);
}

/* Take nodes by rank, and place each; search.trial and search.outcome have the schedule. */
static void construct(struct graph_search *search, const struct way *way)
{
	const struct place_graph *graph = &search->graph;
	struct graph_machine *machine = &search->machine;
	uint32_t n_placed = 0;

	sort_by(search, search->rank_ns, -1);
	for (uint32_t d = 0; d < graph->n_devices; d++)
		machine->devices[d].n_queue = 0;
	for (uint32_t i = 0; i < graph->n_nodes; i++)
		machine->n_needed[i] = (uint16_t)(graph->first[i + 1] - graph->first[i]);
	/* Ranks by the table need not put a node behind those that it needs. */
	while (n_placed < graph->n_nodes) {
		for (uint32_t i = 0; i < graph->n_nodes; i++) {
			const uint16_t node = search->sorted[i];

			if (machine->n_needed[node] != 0)
				continue;
			machine->n_needed[node] = GRAPH_NO_NODE;
			place_node(search, node, way);
			n_placed++;
			for (uint32_t e = search->to_first[node]; e < search->to_first[node + 1];
			     e++)
				machine->n_needed[search->to[e]]--;
		}
	}
}

/* Have the order of a plan be that in which nodes start in search.outcome. */
void graph_order_by_start(struct graph_search *search, struct graph_plan *plan)
{
	sort_by(search, search->outcome.start_ns, 1);
	for (uint32_t i = 0; i < search->graph.n_nodes; i++)
		plan->place[search->sorted[i]] = (uint16_t)i;
}

/* Return true if the trial is the best plan so far, which is kept. */
static bool keep_best(struct graph_search *search)
{
	const float ns = graph_run_plan(search, &search->trial, NULL);

	if (!(ns < search->graph.span_ns))
		return false;
	search->graph.span_ns = ns;
	graph_copy_plan(search, &search->best, &search->trial);
	return true;
}

static bool has_links(const struct place_graph *graph)
{
	for (uint32_t a = 0; a < graph->n_devices; a++)
		for (uint32_t b = 0; b < graph->n_devices; b++)
			if (a != b && graph->link_ns[a][b] + graph->link_ns_per_byte[a][b] > 0)
				return true;
	return false;
}

void graph_prepare(struct graph_search *search)
{
	search->has_links = has_links(&search->graph);
	index_edges(search);
	look_ahead(search);
}

/* Return @device, or the fastest device for a node that @device cannot run. */
static uint8_t device_near(const struct place_graph *graph, uint32_t node, uint8_t device)
{
	uint8_t best = device;

	for (uint8_t d = 0; isinf(graph_exec_ns(graph, node, device)) && d < graph->n_devices; d++)
		if (graph_exec_ns(graph, node, d) < graph_exec_ns(graph, node, best))
			best = d;
	return best;
}

/* Return the device that takes least time for all nodes, with those that it cannot run. */
static uint8_t fastest_device(const struct place_graph *graph)
{
	float least_ns = INFINITY;
	uint8_t best = 0;

	for (uint8_t d = 0; d < graph->n_devices; d++) {
		float ns = 0;

		for (uint32_t i = 0; i < graph->n_nodes; i++)
			ns += graph_exec_ns(graph, i, device_near(graph, i, d));
		if (ns < least_ns) {
			least_ns = ns;
			best = d;
		}
	}
	return best;
}

/* Put all nodes on one device, in order of their ranks: best where transfers take longest. */
static void construct_on_one(struct graph_search *search)
{
	const struct place_graph *graph = &search->graph;
	const uint8_t device = fastest_device(graph);

	sort_by(search, search->rank_ns, -1);
	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		search->trial.device[i] = device_near(graph, i, device);
		search->trial.place[search->sorted[i]] = (uint16_t)i;
	}
}

/* Constructions of the literature, then with prices: graphs differ in what these are worth. */
static const struct way ways[GRAPH_CONSTRUCTIONS] = {
	{.has_table = false},
	{.has_table = false}, /* all on one device */
	{.has_table = true},
	{.has_table = true, .is_ranked_by_table = true},
	{.price_weight = 4},
	{.price_weight = 16},
	{.price_weight = 64},
	{.price_weight = 256},
	{.price_weight = 4, .has_table = true},
	{.price_weight = 16, .has_table = true},
};

bool graph_construct_next(struct graph_search *search)
{
	const uint32_t i = search->n_constructed++;
	const struct way *way = &ways[i];

	if (way->is_ranked_by_table)
		rank_by_table(search);
	else
		rank_upward(search);
	if (i == 1) {
		construct_on_one(search);
		return keep_best(search);
	}
	construct(search, way);
	graph_order_by_start(search, &search->trial);
	return keep_best(search);
}

float place_graph_construct(struct place_graph *graph, enum place_graph_method method,
			    float *ret_start_ns, uint8_t *ret_device)
{
	struct graph_search *search = graph_search_of(graph);
	const struct way way = {.has_table = method == PLACE_GRAPH_PEFT};
	float span_ns = 0;

	graph_prepare(search);
	if (method == PLACE_GRAPH_HEFT)
		rank_upward(search);
	else
		rank_by_table(search);
	construct(search, &way);
	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		ret_start_ns[i] = search->outcome.start_ns[i];
		ret_device[i] = search->trial.device[i];
		span_ns = max_float(span_ns, search->outcome.end_ns[i]);
	}
	/* The outcomes that the search goes on from are gone. */
	search->is_stale = search->has_plan;
	return span_ns;
}
