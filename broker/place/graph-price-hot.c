/* SPDX-License-Identifier: MIT */
/*
 * Schedules of graphs: what devices are worth
 *
 * If a graph has work for all devices, its end is decided by how well nodes suit their devices, and
 * a node that ends early on a device that is bad at it takes time that others need more. Without
 * regard to edges, the best division of nodes over devices is a linear program (Lenstra, Shmoys,
 * Tardos, Approximation Algorithms for Scheduling Unrelated Parallel Machines, 1990). Its dual
 * variables are prices of the devices' time, with the sum 1: the end is at least the sum over nodes
 * of the least price, and a node with a price above its least moves the end by the difference.
 *
 * Prices follow the loads that they cause, in steps that become smaller; those with the greatest
 * sum are kept.
 *
 * A stream of tasks may regard no edges: nodes of other tasks fill the time in which one waits for
 * those that it needs. A node's reduced cost on a device, its price there above its least one, is
 * what that device adds to the time between two tasks. Prices are those of the last step, not of
 * the optimum, so small differences mean nothing.
 */
#include <math.h>

#include "place/graph-private.h"

enum { PRICE_STEPS = 40 };

/* Reduced costs below this share of the least price are none. */
static const float least_reduced = 0.01f;

/* Return what a node takes of a device's time. */
static float work_ns(const struct place_graph *graph, uint32_t node, uint32_t device)
{
	const float ns = graph->work_ns[(size_t)node * graph->n_devices + device];

	return ns > 0 ? ns : graph_exec_ns(graph, node, device);
}

/* Return the least price of a node over all devices; *ret_device has it. */
static float least_price(const struct graph_search *search, uint32_t node, uint32_t *ret_device)
{
	const struct place_graph *graph = &search->graph;
	float least = INFINITY;

	*ret_device = 0;
	for (uint32_t d = 0; d < graph->n_devices; d++) {
		const float price = search->price[d] * work_ns(graph, node, d);

		if (price >= least)
			continue;
		least = price;
		*ret_device = d;
	}
	return least;
}

/* Return the sum of all nodes' least prices, and the load of each device. */
static float add_up(const struct graph_search *search, float loads_ns[PLACE_GRAPH_DEVICES])
{
	float sum_ns = 0;
	uint32_t device;

	memset(loads_ns, 0, PLACE_GRAPH_DEVICES * sizeof(*loads_ns));
	for (uint32_t i = 0; i < search->graph.n_nodes; i++) {
		sum_ns += least_price(search, i, &device);
		loads_ns[device] += work_ns(&search->graph, i, device);
	}
	return sum_ns;
}

/* Raise the prices of devices with more than their share of the load, by at most @step. */
static void follow(struct graph_search *search, const float loads_ns[PLACE_GRAPH_DEVICES],
		   float step)
{
	const uint32_t n = search->graph.n_devices;
	float all_ns = 0, sum = 0;

	for (uint32_t d = 0; d < n; d++)
		all_ns += loads_ns[d];
	for (uint32_t d = 0; d < n; d++) {
		search->price[d] *= 1 + step * ((float)n * loads_ns[d] / all_ns - 1) / (float)n;
		sum += search->price[d];
	}
	for (uint32_t d = 0; d < n; d++)
		search->price[d] /= sum;
}

void graph_set_prices(struct graph_search *search)
{
	float best[PLACE_GRAPH_DEVICES], loads_ns[PLACE_GRAPH_DEVICES], best_ns = -1, sum_ns;

	for (uint32_t d = 0; d < search->graph.n_devices; d++)
		search->price[d] = 1 / (float)search->graph.n_devices;
	for (uint32_t k = 0; k < PRICE_STEPS; k++) {
		sum_ns = add_up(search, loads_ns);
		if (!(sum_ns > 0))
			return;
		if (sum_ns > best_ns) {
			best_ns = sum_ns;
			memcpy(best, search->price, sizeof(best));
		}
		follow(search, loads_ns, 1 / (1 + 0.2f * (float)k));
	}
	memcpy(search->price, best, sizeof(best));
}

void graph_set_reduced(struct graph_search *search)
{
	const struct place_graph *graph = &search->graph;
	uint32_t device;

	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		const float least = least_price(search, i, &device);

		for (uint32_t d = 0; d < graph->n_devices; d++) {
			const float ns = search->price[d] * work_ns(graph, i, d) - least;

			graph->reduced_ns[(size_t)i * graph->n_devices + d] =
				ns > least * least_reduced ? ns : 0;
		}
	}
}
