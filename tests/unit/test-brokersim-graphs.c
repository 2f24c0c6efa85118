/* SPDX-License-Identifier: MIT */
/*
 * Task graphs of the simulator: families, bounds, and two ways to the optimum
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "graph-bound.h"
#include "graph-exact.h"
#include "graph-family.h"
#include "place/graph.h"
#include "support/test.h"
#include "util/cleanup.h"

enum { MAX_NODES = 8 };

static const double comm_ratios[] = {0.1, 1, 5};

/* A schedule that brute_force() extends */
struct partial {
	const struct place_graph *graph;
	double end[MAX_NODES], idle[PLACE_GRAPH_DEVICES];
	uint32_t device[MAX_NODES];
	uint32_t done;
	double best;
};

/* Return when the data of a node's predecessors are on a device; INFINITY: some are not done. */
static double arrival(const struct partial *partial, uint32_t node, uint32_t device)
{
	const struct place_graph *graph = partial->graph;
	double latest = 0;

	for (uint32_t e = graph->first[node]; e < graph->first[node + 1]; e++) {
		uint32_t from = graph->from[e];

		if (!(partial->done >> from & 1))
			return INFINITY;
		latest = fmax(latest, partial->end[from] +
					      (double)place_graph_transfer_ns(
						      graph, e, partial->device[from], device));
	}
	return latest;
}

/* Try all orders and devices of the nodes that are not done. */
static void brute_force(const struct partial *partial, double *best)
{
	const struct place_graph *graph = partial->graph;
	double makespan = 0;

	for (uint32_t d = 0; d < graph->n_devices; d++)
		makespan = fmax(makespan, partial->idle[d]);
	if (partial->done == (1u << graph->n_nodes) - 1)
		*best = fmin(*best, makespan);
	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		if (partial->done >> i & 1)
			continue;
		for (uint32_t d = 0; d < graph->n_devices; d++) {
			double start = fmax(partial->idle[d], arrival(partial, i, d));
			struct partial next = *partial;

			next.end[i] = start + (double)graph->exec_ns[i * graph->n_devices + d];
			if (isinf(next.end[i]))
				continue;
			next.device[i] = d;
			next.idle[d] = next.end[i];
			next.done |= 1u << i;
			brute_force(&next, best);
		}
	}
}

static struct place_graph *make(uint32_t family, uint32_t size, uint32_t n_devices,
				double comm_ratio, uint64_t seed)
{
	struct place_graph *graph = NULL;

	assert_int_equal(graph_families[family].make(size, n_devices, comm_ratio, seed, &graph), 0);
	return graph;
}

/* Return the mean time of a transfer between different devices. */
static double mean_transfer_ns(const struct place_graph *graph)
{
	uint32_t n = graph->n_devices;
	double sum = 0;

	for (uint32_t e = 0; e < graph->n_edges; e++) {
		for (uint32_t k = 0; k < n * n; k++)
			sum += (double)place_graph_transfer_ns(graph, e, k / n, k % n);
	}
	return sum / (graph->n_edges * n * (n - 1));
}

static double mean_exec_ns(const struct place_graph *graph)
{
	double sum = 0;
	uint32_t n = 0;

	for (uint32_t k = 0; k < graph->n_nodes * graph->n_devices; k++) {
		if (isinf(graph->exec_ns[k]))
			continue;
		sum += (double)graph->exec_ns[k];
		n++;
	}
	return sum / n;
}

static void check_valid(const struct place_graph *graph, uint32_t n_devices)
{
	uint32_t n_runnable;

	assert_int_equal(graph->n_devices, n_devices);
	assert_int_equal(graph->first[0], 0);
	assert_int_equal(graph->first[graph->n_nodes], graph->n_edges);
	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		n_runnable = 0;
		assert_true(graph->first[i] <= graph->first[i + 1]);
		for (uint32_t e = graph->first[i]; e < graph->first[i + 1]; e++) {
			assert_true(graph->from[e] < i);
			assert_true(graph->edge_bytes[e] >= 0 && !isinf(graph->edge_bytes[e]));
			for (uint32_t k = graph->first[i]; k < e; k++)
				assert_int_not_equal(graph->from[k], graph->from[e]);
		}
		for (uint32_t d = 0; d < n_devices; d++) {
			float ns = graph->exec_ns[i * n_devices + d];

			assert_true(ns >= 9.9e3f);
			assert_true(isinf(ns) || ns <= 10.1e6f);
			n_runnable += !isinf(ns);
		}
		assert_true(n_runnable > 0);
	}
}

static bool is_equal(const struct place_graph *a, const struct place_graph *b)
{
	return a->n_nodes == b->n_nodes && a->n_edges == b->n_edges &&
	       memcmp(a->first, b->first, (a->n_nodes + 1) * sizeof(*a->first)) == 0 &&
	       memcmp(a->from, b->from, a->n_edges * sizeof(*a->from)) == 0 &&
	       memcmp(a->edge_bytes, b->edge_bytes, a->n_edges * sizeof(*a->edge_bytes)) == 0 &&
	       memcmp(a->exec_ns, b->exec_ns,
		      (size_t)a->n_nodes * a->n_devices * sizeof(*a->exec_ns)) == 0;
}

TEST(test_graph_family__valid)
{
	const uint32_t sizes[] = {3, 7, 12, 20, 100, 1000};

	for (uint32_t k = 0; k < n_graph_families * 6 * 8; k++) {
		uint32_t family = k / 48, size = sizes[k / 8 % 6], n_devices = 1 + k % 8;
		double ratio = comm_ratios[k % 3];
		_cleanup_(place_graph_freep) struct place_graph *graph =
			make(family, size, n_devices, ratio, k);
		_cleanup_(place_graph_freep) struct place_graph *same =
			make(family, size, n_devices, ratio, k);
		_cleanup_(place_graph_freep) struct place_graph *other =
			make(family, size, n_devices, ratio, k + 1);

		check_valid(graph, n_devices);
		assert_true(graph->n_nodes >= 3);
		assert_true(is_equal(graph, same));
		assert_false(is_equal(graph, other));
		if (size >= 20)
			assert_in_range(graph->n_nodes, size * 6 / 10, size * 14 / 10);
		if (n_devices > 1) {
			double wanted = fmax(ratio * mean_exec_ns(graph), 10e3);

			assert_true(fabs(mean_transfer_ns(graph) / wanted - 1) < 1e-3);
		}
	}
}

/* Some nodes of the random families cannot use each device, but most can. */
TEST(test_graph_family__partial)
{
	_cleanup_(place_graph_freep) struct place_graph *graph = make(0, 1000, 3, 1, 5);
	uint32_t n_missing = 0;

	for (uint32_t k = 0; k < graph->n_nodes * graph->n_devices; k++)
		n_missing += isinf(graph->exec_ns[k]) ? 1 : 0;
	assert_in_range(n_missing, 10, 90);
}

/* A node needs two others, which need a first one: each takes 10 us, a transfer @transfer_ns. */
static struct place_graph *make_diamond(float transfer_ns)
{
	const uint32_t first[] = {0, 0, 1, 2, 4}, from[] = {0, 0, 1, 2};
	struct place_graph *graph = NULL;

	assert_int_equal(place_graph_new(4, 4, 2, &graph), 0);
	memcpy(graph->first, first, sizeof(first));
	memcpy(graph->from, from, sizeof(from));
	for (uint32_t k = 0; k < 8; k++)
		graph->exec_ns[k] = 10e3f;
	graph->link_ns[0][1] = graph->link_ns[1][0] = transfer_ns;
	return graph;
}

TEST(test_graph_exact__by_hand)
{
	_cleanup_(place_graph_freep) struct place_graph *near = make_diamond(4e3f);
	_cleanup_(place_graph_freep) struct place_graph *far = make_diamond(12e3f);
	double ns = 0;

	/* The second branch moves, and the last node follows it: 10 + 4 + 10 + 10. */
	assert_int_equal(graph_exact(near, INFINITY, 10, &ns), 0);
	assert_true(fabs(ns / 34e3 - 1) < 1e-6);
	/* Moving the second branch would take 42. */
	assert_int_equal(graph_exact(far, INFINITY, 10, &ns), 0);
	assert_true(fabs(ns / 40e3 - 1) < 1e-6);
	/* The first node cannot use device 0, nor the last one device 1: 10 + 10 + 10 + 4 + 10. */
	near->exec_ns[0] = INFINITY;
	near->exec_ns[7] = INFINITY;
	assert_int_equal(graph_exact(near, INFINITY, 10, &ns), 0);
	assert_true(fabs(ns / 34e3 - 1) < 1e-6);
	/* Two branches one after the other, if only device 1 can run them, and a transfer */
	near->exec_ns[2] = near->exec_ns[4] = INFINITY;
	assert_int_equal(graph_exact(near, INFINITY, 10, &ns), 0);
	assert_true(fabs(ns / 44e3 - 1) < 1e-6);
	/* A known schedule that is optimal is the result. */
	assert_int_equal(graph_exact(near, 44e3, 10, &ns), 0);
	assert_true(fabs(ns / 44e3 - 1) < 1e-6);
}

TEST(test_graph_exact__brute_force)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < n_graph_families * 3 * 8; k++) {
		_cleanup_(place_graph_freep) struct place_graph *graph =
			make(k / 24, k % 4 == 3 ? 6 : 5, k % 4 ? 2 : 3, comm_ratios[k / 8 % 3], k);
		const struct partial none = {.graph = graph};
		double expected = INFINITY, found = 0, bound;

		if (graph->n_nodes > 6)
			continue;
		n++;
		brute_force(&none, &expected);
		assert_int_equal(graph_exact(graph, INFINITY, 10, &found), 0);
		assert_true(found <= expected * (1 + 1e-9));
		assert_true(found >= expected * (1 - 1e-6));
		bound = graph_bound_ns(graph);
		assert_true(bound > 0 && bound <= expected);
	}
	assert_true(n >= 100);
}

TEST(test_graph_exact__glpk)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < n_graph_families * 3 * 4; k++) {
		_cleanup_(place_graph_freep) struct place_graph *graph =
			make(k / 12, 5 + k % 3, 2 + k % 2, comm_ratios[k / 4 % 3], k);
		double expected = 0, found = 0;
		int r;

		if (graph->n_nodes > 7)
			continue;
		n++;
		assert_int_equal(graph_exact(graph, INFINITY, 10, &found), 0);
		r = graph_exact_glpk(graph, 1.3 * found, 10, &expected);
		if (r == -EOPNOTSUPP)
			skip();
		assert_int_equal(r, 0);
		assert_true(fabs(found / expected - 1) < 1e-5);
	}
	assert_true(n >= 40);
}

/* Graphs of 12 to 15 nodes: bounds are below the optimum, and two of the bounds are near it. */
TEST(test_graph_bound__never_above_the_optimum)
{
	uint32_t n_near = 0;

	for (uint32_t k = 0; k < n_graph_families * 12; k++) {
		_cleanup_(place_graph_freep) struct place_graph *graph =
			make(k / 12, 12, 2 + k % 2, comm_ratios[k / 2 % 3], k);
		double optimum = 0, again = 0, bound = graph_bound_ns(graph);

		assert_int_equal(graph_exact(graph, INFINITY, 20, &optimum), 0);
		assert_true(bound > 0.2 * optimum);
		assert_true(bound <= optimum * (1 + 1e-6));
		n_near += bound > 0.9 * optimum;
		/* The result does not depend on the schedule that is known. */
		assert_int_equal(graph_exact(graph, 1.001 * optimum, 20, &again), 0);
		assert_true(fabs(again / optimum - 1) < 1e-6);
	}
	assert_true(n_near >= 10);
}

/* Without time, and for a graph that is too large, the result is a lower bound. */
TEST(test_graph_exact__limit)
{
	_cleanup_(place_graph_freep) struct place_graph *large = make(0, 40, 2, 1, 1);
	_cleanup_(place_graph_freep) struct place_graph *wide = NULL;
	uint32_t n_limits = 0;
	double bound = 0, optimum = 0;

	assert_int_equal(graph_exact(large, INFINITY, 10, &bound), GRAPH_EXACT_E_LIMIT);
	assert_true(fabs(bound - graph_bound_ns(large)) < 1);
	for (uint64_t seed = 1; seed <= 6; seed++) {
		place_graph_free(steal_ptr(wide));
		wide = make(0, 18, 2, 1, seed);
		if (graph_exact(wide, INFINITY, 0, &bound) == 0)
			continue;
		n_limits++;
		assert_true(bound >= graph_bound_ns(wide));
		if (graph_exact(wide, INFINITY, 1, &optimum) == 0)
			assert_true(bound <= optimum * (1 + 1e-9));
	}
	assert_true(n_limits > 0);
}
