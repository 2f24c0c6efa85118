/* SPDX-License-Identifier: MIT */
/*
 * Graph maker
 *
 * Nodes of the random families have unrelated times, by the model of Topcuoglu, Hariri, Wu (2002):
 * a node's mean time w is uniform, and its time on each device is uniform in w (1 - beta / 2) to
 * w (1 + beta / 2), with beta = 1.
 *
 * Other nodes run a kernel with a time on the processor and a speed-up on accelerators. Dense
 * kernels are those of a tile of 512 by 512 numbers in double precision. Their speed-ups are in the
 * order that users of StarPU and Chameleon publish: an accelerator is best at GEMM and slower than
 * the processor at factorizations (Agullo, Beaumont, Eyraud-Dubois, Kumar, Are Static Schedules so
 * Bad? A Case Study on Cholesky Factorization, 2016). Each accelerator has a speed, and each kernel
 * differs from it by up to 20 % on each device. Nodes with the same kernel and scale have equal
 * times.
 */
#include "graph-maker.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "place/graph.h"
#include "random.h"
#include "util/error.h"

#define LEAST_NS   10e3
#define MOST_NS    10e6
#define LATENCY_NS 10e3f
#define BETA       1.0
/* The fraction of the nodes with GRAPH_RANDOM_PARTIAL that cannot use one device */
#define PARTIAL 0.04

struct made_node {
	enum graph_kernel kernel;
	float scale;
};

struct made_edge {
	uint32_t from, to;
	float weight;
};

struct graph_maker {
	uint64_t seed;
	struct made_node *nodes;
	struct made_edge *edges;
	uint32_t n_nodes, n_edges;
	uint32_t max_nodes, max_edges;
	bool is_failed;
};

static const struct {
	float cpu_us;
	float speed_up; /* of an accelerator; 0: none can run the kernel */
} kernels[N_GRAPH_KERNELS] = {
	[GRAPH_POTRF] = {1500, 0.5f},
	[GRAPH_GETRF] = {2500, 0.5f},
	[GRAPH_TRSM] = {4500, 3},
	[GRAPH_SYRK] = {4600, 6},
	[GRAPH_GEMM] = {8300, 8},
	[GRAPH_FFT_CALL] = {25, 0.5f},
	[GRAPH_FFT_BUTTERFLY] = {400, 4},
	[GRAPH_NORM] = {80, 2},
	[GRAPH_PROJECTION] = {2500, 8},
	[GRAPH_ATTENTION] = {1800, 5},
	[GRAPH_ADD] = {50, 2},
	[GRAPH_MONTAGE_PROJECT] = {7000, 5},
	[GRAPH_MONTAGE_DIFFERENCE] = {1500, 4},
	[GRAPH_MONTAGE_CONCAT] = {500, 0.5f},
	[GRAPH_MONTAGE_MODEL] = {3000, 0.5f},
	[GRAPH_MONTAGE_BACKGROUND] = {1000, 4},
	[GRAPH_MONTAGE_TABLE] = {400, 0},
	[GRAPH_MONTAGE_ADD] = {4000, 2},
	[GRAPH_MONTAGE_SHRINK] = {1000, 3},
};

int graph_maker_new(uint64_t seed, struct graph_maker **ret)
{
	struct graph_maker *maker = calloc(1, sizeof(*maker));

	if (!maker)
		return error_origin(-ENOMEM);
	maker->seed = seed;
	*ret = maker;
	return 0;
}

struct graph_maker *graph_maker_free(struct graph_maker *maker)
{
	if (!maker)
		return NULL;
	free(maker->nodes);
	free(maker->edges);
	free(maker);
	return NULL;
}

/* Return an array with room for one more than @n elements, or NULL; the old one remains then. */
static void *grow(void *array, uint32_t n, uint32_t *max, size_t element_bytes)
{
	uint32_t wanted = n < *max ? *max : 2 * *max + 16;

	if (wanted == *max)
		return array;
	array = realloc(array, wanted * element_bytes);
	if (array)
		*max = wanted;
	return array;
}

uint32_t graph_maker_node(struct graph_maker *maker, enum graph_kernel kernel, double scale)
{
	struct made_node *nodes =
		grow(maker->nodes, maker->n_nodes, &maker->max_nodes, sizeof(*nodes));

	if (!nodes) {
		maker->is_failed = true;
		return 0;
	}
	maker->nodes = nodes;
	nodes[maker->n_nodes] = (struct made_node){kernel, (float)scale};
	return maker->n_nodes++;
}

void graph_maker_edge(struct graph_maker *maker, uint32_t from, uint32_t to, double weight)
{
	struct made_edge *edges =
		grow(maker->edges, maker->n_edges, &maker->max_edges, sizeof(*edges));

	if (!edges) {
		maker->is_failed = true;
		return;
	}
	maker->edges = edges;
	edges[maker->n_edges++] = (struct made_edge){from, to, (float)weight};
}

static void draw_random_times(const struct graph_maker *maker, struct place_graph *graph,
			      uint32_t node)
{
	double mean_ns = 30e3 + 6e6 * draw_uniform(maker->seed, DRAW_EFFICIENCY, node, 0);
	uint32_t n = graph->n_devices;
	float *ns = graph->exec_ns + (size_t)node * n;

	for (uint32_t d = 0; d < n; d++) {
		double u = draw_uniform(maker->seed, DRAW_NOISE, node, d);

		ns[d] = (float)(mean_ns * (1 + BETA * (u - 0.5)));
	}
	if (n > 1 && maker->nodes[node].kernel == GRAPH_RANDOM_PARTIAL &&
	    draw_uniform(maker->seed, DRAW_EFFICIENCY, node, 1) < PARTIAL)
		ns[draw_bits(maker->seed, DRAW_EFFICIENCY, node, 2) % n] = INFINITY;
}

static void draw_kernel_times(const struct graph_maker *maker, struct place_graph *graph,
			      uint32_t node)
{
	enum graph_kernel kernel = maker->nodes[node].kernel;
	float *ns = graph->exec_ns + (size_t)node * graph->n_devices;

	for (uint32_t d = 0; d < graph->n_devices; d++) {
		double u = draw_uniform(maker->seed, DRAW_NOISE, (uint64_t)kernel, d);
		double speed = d == 0 ? 1 : kernels[kernel].speed_up;
		double time_ns = 1e3 * kernels[kernel].cpu_us * maker->nodes[node].scale;

		/* Accelerators have 0.6 to 1.4 times the usual speed. */
		if (d > 0)
			speed *= 0.6 + 0.8 * draw_uniform(maker->seed, DRAW_PHASE, d, 0);
		ns[d] = INFINITY;
		if (speed > 0)
			ns[d] = (float)fmin(fmax(time_ns / speed * (0.8 + 0.4 * u), LEAST_NS),
					    MOST_NS);
	}
}

static double mean_exec_ns(const struct place_graph *graph)
{
	double sum = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < graph->n_nodes * graph->n_devices; i++) {
		if (isinf(graph->exec_ns[i]))
			continue;
		sum += (double)graph->exec_ns[i];
		n++;
	}
	return n ? sum / n : 0;
}

/* Set links, and scale the edges' weights to bytes. */
static void set_transfers(struct place_graph *graph, double comm_ratio)
{
	double bytes = 0, ns_per_byte = 0, transfer_ns;
	uint32_t n = graph->n_devices;

	for (uint32_t d = 0; d < n; d++) {
		for (uint32_t e = 0; e < n; e++) {
			if (d == e)
				continue;
			graph->link_ns[d][e] = LATENCY_NS;
			/* Accelerators exchange data through the processor's memory. */
			graph->link_ns_per_byte[d][e] = d && e ? 0.12f : 0.08f;
			ns_per_byte += (double)graph->link_ns_per_byte[d][e] / (n * (n - 1));
		}
	}
	for (uint32_t e = 0; e < graph->n_edges; e++)
		bytes += (double)graph->edge_bytes[e] / graph->n_edges;
	transfer_ns = fmax(comm_ratio * mean_exec_ns(graph) - (double)LATENCY_NS, 0);
	if (!(bytes * ns_per_byte > 0))
		return;
	for (uint32_t e = 0; e < graph->n_edges; e++)
		graph->edge_bytes[e] *= (float)(transfer_ns / (bytes * ns_per_byte));
}

/* Group the edges by the node that they enter, in the order in which they were added. */
static void set_edges(const struct graph_maker *maker, struct place_graph *graph)
{
	for (uint32_t e = 0; e < maker->n_edges; e++)
		graph->first[maker->edges[e].to + 1]++;
	for (uint32_t i = 0; i < maker->n_nodes; i++)
		graph->first[i + 1] += graph->first[i];
	for (uint32_t e = maker->n_edges; e-- > 0;) {
		const struct made_edge *edge = &maker->edges[e];
		uint32_t at = --graph->first[edge->to + 1];

		graph->from[at] = edge->from;
		graph->edge_bytes[at] = edge->weight;
	}
	/* Each first[i + 1] is now where the edges of node i begin. */
	memmove(graph->first, graph->first + 1, maker->n_nodes * sizeof(*graph->first));
	graph->first[maker->n_nodes] = maker->n_edges;
}

int graph_maker_finish(struct graph_maker *maker, uint32_t n_devices, double comm_ratio,
		       struct place_graph **ret)
{
	struct place_graph *graph;
	int r;

	if (maker->is_failed)
		return error_origin(-ENOMEM);
	r = place_graph_new(maker->n_nodes, maker->n_edges, n_devices, &graph);
	if (r)
		return error_fold(r);
	set_edges(maker, graph);
	for (uint32_t i = 0; i < maker->n_nodes; i++) {
		if (maker->nodes[i].kernel <= GRAPH_RANDOM_PARTIAL)
			draw_random_times(maker, graph, i);
		else
			draw_kernel_times(maker, graph, i);
	}
	set_transfers(graph, comm_ratio);
	*ret = graph;
	return 0;
}
