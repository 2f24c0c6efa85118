/* SPDX-License-Identifier: MIT */
/* Schedules of graphs: known constructions, the search, and what it advises */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "place/graph.h"
#include "support/test.h"

enum { PAPER_NODES = 10, PAPER_EDGES = 15, PAPER_DEVICES = 3 };

/* The example of the paper on HEFT (2002, figure 2 and table 1): ends of each edge, and its cost */
static const unsigned int paper_edges[PAPER_EDGES][3] = {
	{1, 2, 18}, {1, 3, 12}, {1, 4, 9},   {1, 5, 11},  {1, 6, 14},
	{3, 7, 23}, {2, 8, 19}, {4, 8, 27},  {6, 8, 15},  {2, 9, 16},
	{4, 9, 23}, {5, 9, 13}, {7, 10, 17}, {8, 10, 11}, {9, 10, 13},
};
static const float paper_ns[PAPER_NODES][PAPER_DEVICES] = {
	{14, 16, 9}, {13, 19, 18}, {11, 13, 19}, {13, 8, 17},  {12, 13, 10},
	{13, 16, 9}, {7, 15, 11},  {5, 11, 14},  {18, 12, 20}, {21, 7, 16},
};

static void set_links(struct place_graph *graph, float ns, float ns_per_byte)
{
	for (uint32_t a = 0; a < graph->n_devices; a++)
		for (uint32_t b = 0; b < graph->n_devices; b++) {
			graph->link_ns[a][b] = a == b ? 0 : ns;
			graph->link_ns_per_byte[a][b] = a == b ? 0 : ns_per_byte;
		}
}

static struct place_graph *paper_graph(void)
{
	struct place_graph *graph;
	uint32_t n = 0;

	assert_int_equal(place_graph_new(PAPER_NODES, PAPER_EDGES, PAPER_DEVICES, &graph), 0);
	for (uint32_t i = 0; i < PAPER_NODES; i++) {
		graph->first[i] = n;
		for (; n < PAPER_EDGES && paper_edges[n][1] == i + 1; n++) {
			graph->from[n] = paper_edges[n][0] - 1;
			graph->edge_bytes[n] = (float)paper_edges[n][2];
		}
		memcpy(&graph->exec_ns[i * PAPER_DEVICES], paper_ns[i], sizeof(paper_ns[i]));
	}
	graph->first[PAPER_NODES] = n;
	set_links(graph, 0, 1);
	return graph;
}

/* Make a graph of random times, in which each node needs up to three of the eight before it. */
static struct place_graph *random_graph(uint32_t n_nodes, uint32_t n_devices, unsigned int seed)
{
	struct place_graph *graph;
	uint32_t n = 0;

	srand(seed);
	assert_int_equal(place_graph_new(n_nodes, n_nodes * 3, n_devices, &graph), 0);
	for (uint32_t i = 0; i < n_nodes; i++) {
		graph->first[i] = n;
		for (uint32_t back = 1; back <= 8 && back <= i && n - graph->first[i] < 3; back++)
			if (rand() % 4 == 0) {
				graph->from[n] = i - back;
				graph->edge_bytes[n++] = (float)(rand() % 1000);
			}
		for (uint32_t d = 0; d < n_devices; d++)
			graph->exec_ns[i * n_devices + d] =
				rand() % 10 == 0 && d > 0 ? INFINITY : (float)(1 + rand() % 1000);
	}
	graph->first[n_nodes] = n;
	graph->n_edges = n;
	set_links(graph, 10, 1);
	return graph;
}

/* Check that @start_ns and @device are a schedule. Return: its last end. */
static float check_schedule(const struct place_graph *graph, const float *start_ns,
			    const uint8_t *device)
{
	const uint32_t n_devices = graph->n_devices;
	float span_ns = 0;

	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		const float end_ns = start_ns[i] + graph->exec_ns[i * n_devices + device[i]];

		assert_true(device[i] < n_devices && isfinite(end_ns) && start_ns[i] >= 0);
		span_ns = fmaxf(span_ns, end_ns);
		for (uint32_t e = graph->first[i]; e < graph->first[i + 1]; e++) {
			const uint32_t from = graph->from[e];

			assert_true(
				start_ns[i] >=
				start_ns[from] + graph->exec_ns[from * n_devices + device[from]] +
					place_graph_transfer_ns(graph, e, device[from], device[i]) -
					0.5f);
		}
		for (uint32_t k = 0; k < i; k++)
			assert_true(device[k] != device[i] || start_ns[k] >= end_ns - 0.5f ||
				    start_ns[i] >=
					    start_ns[k] +
						    graph->exec_ns[k * n_devices + device[k]] -
						    0.5f);
	}
	return span_ns;
}

/* Check that the advice is a schedule of the span that it says, in the order that it says. */
static void check_advice(const struct place_graph *graph)
{
	const uint32_t n = graph->n_nodes;
	float *start_ns = calloc(n, sizeof(*start_ns));
	bool *is_listed = calloc(n, sizeof(*is_listed));

	assert_true(start_ns && is_listed);
	for (uint32_t i = 0; i < n; i++) {
		const float *bias_ns = &graph->bias_ns[i * graph->n_devices];

		start_ns[i] =
			graph->end_ns[i] - graph->exec_ns[i * graph->n_devices + graph->device[i]];
		assert_true(bias_ns[graph->device[i]] == 0);
		for (uint32_t d = 0; d < graph->n_devices; d++)
			assert_true(bias_ns[d] >= 0 &&
				    isinf(bias_ns[d]) ==
					    isinf(graph->exec_ns[i * graph->n_devices + d]));
	}
	assert_true(fabsf(check_schedule(graph, start_ns, graph->device) - graph->span_ns) < 0.5f);
	for (uint32_t i = 0; i < n; i++) {
		assert_true(graph->order[i] < n && !is_listed[graph->order[i]]);
		is_listed[graph->order[i]] = true;
		assert_true(i == 0 ||
			    start_ns[graph->order[i]] >= start_ns[graph->order[i - 1]] - 0.5f);
	}
	free(start_ns);
	free(is_listed);
}

/* HEFT's paper has 80 for its example. */
TEST(test_graph__heft_of_the_paper)
{
	struct place_graph *graph = paper_graph();
	float start_ns[PAPER_NODES];
	uint8_t device[PAPER_NODES];

	assert_true(place_graph_construct(graph, PLACE_GRAPH_HEFT, start_ns, device) == 80);
	assert_true(check_schedule(graph, start_ns, device) == 80);
	assert_true(check_schedule(graph, start_ns, device) ==
		    place_graph_construct(graph, PLACE_GRAPH_HEFT, start_ns, device));
	place_graph_construct(graph, PLACE_GRAPH_PEFT, start_ns, device);
	check_schedule(graph, start_ns, device);
	place_graph_free(graph);
}

/* The search never loses what it has, and ends below the constructions. */
TEST(test_graph__search)
{
	struct place_graph *graph = paper_graph();
	float first_ns;

	place_graph_improve(graph, 0);
	first_ns = graph->span_ns;
	assert_true(first_ns <= 86);
	check_advice(graph);
	for (unsigned int i = 0; i < 40; i++) {
		const float before_ns = graph->span_ns;

		place_graph_improve(graph, 100);
		assert_true(graph->span_ns <= before_ns);
		check_advice(graph);
	}
	/* 73 is the least of all that is published for it, and needs a device that waits. */
	assert_in_range((int)graph->span_ns, 73, 78);
	assert_true(graph->span_ns < first_ns);
	place_graph_free(graph);
}

TEST(test_graph__random)
{
	for (unsigned int seed = 1; seed <= 60; seed++) {
		const uint32_t n_nodes = 1 + seed * seed % 83, n_devices = 1 + seed % 4;
		struct place_graph *graph = random_graph(n_nodes, n_devices, seed);
		float start_ns[128], spans_ns[2], first_ns;
		uint8_t device[128];

		for (int k = 0; k < 2; k++) {
			spans_ns[k] = place_graph_construct(
				graph, k == 0 ? PLACE_GRAPH_HEFT : PLACE_GRAPH_PEFT, start_ns,
				device);
			assert_true(fabsf(check_schedule(graph, start_ns, device) - spans_ns[k]) <
				    0.5f);
		}
		place_graph_improve(graph, 0);
		first_ns = graph->span_ns;
		check_advice(graph);
		place_graph_improve(graph, 700);
		check_advice(graph);
		assert_true(graph->span_ns <= first_ns);
		/* A construction for comparison changes no advice, and no later step. */
		place_graph_construct(graph, PLACE_GRAPH_HEFT, start_ns, device);
		check_advice(graph);
		place_graph_improve(graph, 10);
		check_advice(graph);
		place_graph_free(graph);
	}
}

/* The search keeps its plan when times change, and leaves a device that is gone. */
TEST(test_graph__times_change)
{
	struct place_graph *graph = random_graph(40, 3, 7);
	float before_ns;

	place_graph_improve(graph, 2000);
	before_ns = graph->span_ns;
	for (uint32_t i = 0; i < 40 * 3; i++)
		graph->exec_ns[i] *= 2;
	set_links(graph, 20, 2);
	place_graph_renew(graph);
	place_graph_improve(graph, 0);
	assert_true(graph->span_ns < 2 * before_ns + 1);
	assert_true(graph->span_ns > 2 * before_ns * 0.9f);
	check_advice(graph);

	for (uint32_t i = 0; i < 40; i++)
		graph->exec_ns[i * 3 + 1] = INFINITY;
	place_graph_renew(graph);
	place_graph_improve(graph, 0);
	check_advice(graph);
	assert_true(isfinite(graph->span_ns));
	place_graph_improve(graph, 600);
	check_advice(graph);
	place_graph_free(graph);
}

/*
 * Two nodes, of which both end first on device 1, and one much earlier there: the other one goes to
 * device 0, also while device 1 is free.
 */
TEST(test_graph__leaves_room_for_others)
{
	static const float ns[2][2] = {{210, 200}, {800, 300}};
	struct place_graph *graph;

	assert_int_equal(place_graph_new(2, 0, 2, &graph), 0);
	memcpy(graph->exec_ns, ns, sizeof(ns));
	place_graph_improve(graph, 100);
	assert_true(graph->span_ns == 300);
	assert_int_equal(graph->device[0], 0);
	assert_int_equal(graph->device[1], 1);
	/* On device 1, idle, it ends 10 ns earlier. */
	assert_true(graph->bias_ns[1] > 10);
	place_graph_free(graph);
}

/* Where transfers take far longer than nodes, one device alone is tried before any other step. */
TEST(test_graph__tries_one_device)
{
	struct place_graph *graph = random_graph(60, 3, 11);
	float least_ns = INFINITY;

	set_links(graph, 1e6f, 1e3f);
	for (uint32_t d = 0; d < 3; d++) {
		float ns = 0;

		for (uint32_t i = 0; i < 60; i++) {
			if (isinf(graph->exec_ns[i * 3 + d]))
				graph->exec_ns[i * 3 + d] = 1000;
			ns += graph->exec_ns[i * 3 + d];
		}
		least_ns = fminf(least_ns, ns);
	}
	place_graph_improve(graph, 0);
	assert_true(graph->span_ns > least_ns * 1.01f);
	place_graph_improve(graph, 1);
	assert_true(graph->span_ns <= least_ns * 1.0001f);
	check_advice(graph);
	place_graph_free(graph);
}

/*
 * Nodes that only one device is good at go there, though others are free: 30 that take 100 ns and
 * 12, and 30 that take 10 and 11. What ends first wins without prices.
 */
TEST(test_graph__scarce_device)
{
	enum { N = 60, CONSTRUCTIONS = 10 };
	struct place_graph *graph;
	uint8_t device[N];
	float start_ns[N];

	assert_int_equal(place_graph_new(N, 0, 2, &graph), 0);
	for (uint32_t i = 0; i < N; i++) {
		graph->exec_ns[2 * i] = i % 2 ? 100 : 10;
		graph->exec_ns[2 * i + 1] = i % 2 ? 12 : 11;
	}
	assert_true(place_graph_construct(graph, PLACE_GRAPH_HEFT, start_ns, device) > 420);
	/* The first construction comes before the steps. */
	place_graph_improve(graph, CONSTRUCTIONS - 1);
	assert_true(graph->span_ns == 30 * 12);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(graph->device[i], i % 2);
	check_advice(graph);
	place_graph_free(graph);
}

/* Prices with devices that lack nodes, that do nothing well, and nodes that take no time */
TEST(test_graph__prices_of_odd_times)
{
	static const float odd_ns[][3] = {
		{0, 0, 0}, {INFINITY, 1, INFINITY}, {1e9f, 1e-3f, 1e9f}, {1, 1, 1}};

	for (uint32_t k = 0; k < 4; k++) {
		struct place_graph *graph = random_graph(20, 3, k);

		for (uint32_t i = 0; i < 20; i += k == 0 ? 1 : 2)
			memcpy(&graph->exec_ns[3 * i], odd_ns[k], sizeof(odd_ns[k]));
		place_graph_improve(graph, 64);
		check_advice(graph);
		place_graph_free(graph);
	}
}

/*
 * In a stream, node 1 keeps device 0 busy for 6 of 6.7 ms, since device 1 takes ten times as long,
 * and node 0 is divided: a ms of device 0 is worth two of device 1. If device 1 has room for four
 * nodes 0 at once, they are for it alone.
 */
TEST(test_graph__reduced_costs)
{
	static const float exec_ns[] = {4, 8, 6, 60};
	const float *reduced;
	struct place_graph *graph;

	assert_int_equal(place_graph_new(2, 1, 2, &graph), 0);
	graph->first[1] = 0;
	graph->first[2] = 1;
	memcpy(graph->exec_ns, exec_ns, sizeof(exec_ns));
	reduced = graph->reduced_ns;
	place_graph_improve(graph, 0);
	assert_true(reduced[0] < 0.2f && reduced[1] < 0.2f);
	assert_true(reduced[2] == 0 && fabsf(reduced[3] - 16) < 0.5f);
	graph->work_ns[1] = 2;
	place_graph_renew(graph);
	place_graph_improve(graph, 0);
	assert_true(reduced[1] == 0 && reduced[0] > 1.5f);
	/* Devices that cannot run a node cost more than any. */
	graph->exec_ns[3] = INFINITY;
	place_graph_renew(graph);
	place_graph_improve(graph, 0);
	assert_true(reduced[2] == 0 && isinf(reduced[3]));
	place_graph_free(graph);
}

/*
 * A Fourier transform of 4 points whose transfers take six times as long as its nodes: several have
 * to move at once for any gain. The optimum is 962, all on one device 1120.
 */
TEST(test_graph__moves_nodes_together)
{
	enum { NODES = 15, DEVICES = 3 };
	static const float call_ns[][DEVICES] = {{46, 94, 86}, {35, 70, 65}, {29, 58, 54}};
	static const float butterfly_ns[DEVICES] = {330, 81, 93};
	static const uint8_t edges[][3] = {
		{1, 0, 0}, {2, 0, 0}, {3, 1, 1},  {4, 1, 1},  {5, 2, 2},   {6, 2, 2},  {7, 3, 4},
		{8, 4, 3}, {9, 5, 6}, {10, 6, 5}, {11, 7, 9}, {12, 8, 10}, {13, 9, 7}, {14, 10, 8}};
	struct place_graph *graph;
	uint32_t n = 0;

	assert_int_equal(place_graph_new(NODES, 2 * NODES, DEVICES, &graph), 0);
	for (uint32_t i = 0; i < NODES; i++) {
		graph->first[i] = n;
		for (uint32_t k = 1; i > 0 && k <= (i < 7 ? 1u : 2u); k++) {
			graph->from[n] = edges[i - 1][k];
			graph->edge_bytes[n++] = i < 3 ? 2 : 1;
		}
		memcpy(&graph->exec_ns[i * DEVICES],
		       i < 7 ? call_ns[i == 0  ? 0
				       : i < 3 ? 1
					       : 2]
			     : butterfly_ns,
		       sizeof(butterfly_ns));
	}
	graph->first[NODES] = graph->n_edges = n;
	set_links(graph, 10, 443);
	place_graph_improve(graph, 16384);
	check_advice(graph);
	assert_in_range((int)graph->span_ns, 940, 1030);
	place_graph_free(graph);
}

TEST(test_graph__bytes)
{
	assert_true(place_graph_bytes(64, 128, 2) < 32768);
	assert_true(place_graph_bytes(64, 128, 16) > place_graph_bytes(64, 128, 2));
}

TEST_MAIN(NULL, NULL)
