/* SPDX-License-Identifier: MIT */
/*
 * Graph families
 *
 * Layered graphs, and the Fourier transform, are those of Topcuoglu, Hariri, Wu (2002). Cholesky
 * and LU are the tile algorithms without pivoting, right-looking. Montage follows the workflow that
 * Bharathi and others describe (Characterization of Scientific Workflows, 2008). The decoder is a
 * transformer's, with a projection of queries, keys and values for each group of heads.
 */
#include "graph-family.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "graph-maker.h"
#include "random.h"
#include "util/error.h"

/* No node wrote the tile yet. */
#define UNWRITTEN UINT32_MAX

/*
 * Draw the first node of each of @n_layers layers, each of which has a node.
 * Return: an array of @n_layers + 1 numbers or NULL.
 */
static uint32_t *draw_layers(uint32_t size, uint32_t n_layers, uint64_t seed)
{
	uint32_t *first = calloc(n_layers + 1, sizeof(*first));

	if (!first)
		return NULL;
	for (uint32_t i = 0; i < size; i++) {
		uint64_t layer = i < n_layers ? i : draw_bits(seed, DRAW_PLAN, i, 0) % n_layers;

		first[layer + 1]++;
	}
	for (uint32_t l = 0; l < n_layers; l++)
		first[l + 1] += first[l];
	return first;
}

/* Add edges from layer @from to layer @to, each with probability @p. */
static void join_layers(struct graph_maker *maker, const uint32_t *first, uint32_t from,
			uint32_t to, double p, uint64_t seed)
{
	for (uint32_t j = first[to]; j < first[to + 1]; j++) {
		uint32_t n = first[from + 1] - first[from];
		/* A node has at least one edge from the layer before its own. */
		uint32_t least = from + 1 == to ? (uint32_t)(draw_bits(seed, DRAW_COUNT, j, 0) % n)
						: UINT32_MAX;

		for (uint32_t i = 0; i < n; i++) {
			if (i != least && draw_uniform(seed, DRAW_ARRIVAL, first[from] + i, j) >= p)
				continue;
			graph_maker_edge(maker, first[from] + i, j,
					 2 * draw_uniform(seed, DRAW_JITTER, first[from] + i, j));
		}
	}
}

static int make_layered(uint32_t size, uint32_t n_devices, double comm_ratio, uint64_t seed,
			double out_degree, struct place_graph **ret)
{
	static const double shapes[] = {0.5, 1, 2};
	double shape = shapes[draw_bits(seed, DRAW_PLAN, 0, 1) % 3];
	uint32_t n = size < 3 ? 3 : size;
	uint32_t n_layers = (uint32_t)fmin(fmax(round(sqrt(n) / shape), 2), n);
	_cleanup_(graph_maker_freep) struct graph_maker *maker = NULL;
	_cleanup_(freep) uint32_t *first = draw_layers(n, n_layers, seed);
	int r;

	if (!first)
		return error_origin(-ENOMEM);
	r = graph_maker_new(seed, &maker);
	if (r)
		return error_fold(r);
	for (uint32_t i = 0; i < n; i++)
		graph_maker_node(maker, GRAPH_RANDOM_PARTIAL, 1);
	for (uint32_t l = 1; l < n_layers; l++) {
		double p = out_degree / (first[l + 1] - first[l]);

		/* One edge in eight passes over a layer. */
		if (l > 1)
			join_layers(maker, first, l - 2, l, p / 8, seed);
		join_layers(maker, first, l - 1, l, p * 7 / 8, seed);
	}
	return graph_maker_finish(maker, n_devices, comm_ratio, ret);
}

static int make_sparse(uint32_t size, uint32_t n_devices, double comm_ratio, uint64_t seed,
		       struct place_graph **ret)
{
	return make_layered(size, n_devices, comm_ratio, seed, 1.5, ret);
}

static int make_dense(uint32_t size, uint32_t n_devices, double comm_ratio, uint64_t seed,
		      struct place_graph **ret)
{
	return make_layered(size, n_devices, comm_ratio, seed, 5, ret);
}

static int make_fork_join(uint32_t size, uint32_t n_devices, double comm_ratio, uint64_t seed,
			  struct place_graph **ret)
{
	_cleanup_(graph_maker_freep) struct graph_maker *maker = NULL;
	uint32_t left = (size < 3 ? 3 : size) - 1, fork, join, n = 0;
	uint32_t most = (uint32_t)fmax(2, 1.5 * sqrt(size));
	int r;

	r = graph_maker_new(seed, &maker);
	if (r)
		return error_fold(r);
	fork = graph_maker_node(maker, GRAPH_RANDOM, 1);
	while (left > 0) {
		uint32_t width = 2 + (uint32_t)(draw_bits(seed, DRAW_PLAN, n++, 0) % (most - 1));

		/* The last stage takes the nodes that would not make another one. */
		if (left < width + 1 + 3)
			width = left - 1;
		join = fork + width + 1;
		for (uint32_t i = 0; i < width; i++) {
			uint32_t branch = graph_maker_node(maker, GRAPH_RANDOM, 1);

			graph_maker_edge(maker, fork, branch,
					 2 * draw_uniform(seed, DRAW_JITTER, branch, 0));
		}
		graph_maker_node(maker, GRAPH_RANDOM, 1);
		for (uint32_t i = fork + 1; i < join; i++)
			graph_maker_edge(maker, i, join, 2 * draw_uniform(seed, DRAW_JITTER, i, 1));
		fork = join;
		left -= width + 1;
	}
	return graph_maker_finish(maker, n_devices, comm_ratio, ret);
}

/* Return the argument, from @from, for which an increasing function is nearest to @size. */
static uint32_t nearest(uint32_t (*nodes)(uint32_t), uint32_t from, uint32_t size)
{
	while (nodes(from + 1) <= size)
		from++;
	if (nodes(from) >= size)
		return from;
	return nodes(from + 1) - size < size - nodes(from) ? from + 1 : from;
}

/* The tiles of a matrix, and the node that wrote each */
struct tiles {
	struct graph_maker *maker;
	uint32_t *writers;
	uint32_t n;
};

static void tiles_read(struct tiles *tiles, uint32_t node, uint32_t row, uint32_t column)
{
	uint32_t writer = tiles->writers[row * tiles->n + column];

	if (writer != UNWRITTEN)
		graph_maker_edge(tiles->maker, writer, node, 1);
}

/* Add a node that updates a tile. */
static uint32_t tiles_update(struct tiles *tiles, enum graph_kernel kernel, uint32_t row,
			     uint32_t column)
{
	uint32_t node = graph_maker_node(tiles->maker, kernel, 1);

	tiles_read(tiles, node, row, column);
	tiles->writers[row * tiles->n + column] = node;
	return node;
}

static uint32_t cholesky_nodes(uint32_t t)
{
	return t + t * (t - 1) + t * (t - 1) * (t - 2) / 6;
}

static void cholesky(struct tiles *tiles)
{
	for (uint32_t k = 0; k < tiles->n; k++) {
		tiles_update(tiles, GRAPH_POTRF, k, k);
		for (uint32_t i = k + 1; i < tiles->n; i++)
			tiles_read(tiles, tiles_update(tiles, GRAPH_TRSM, i, k), k, k);
		for (uint32_t i = k + 1; i < tiles->n; i++) {
			for (uint32_t j = k + 1; j < i; j++) {
				uint32_t node = tiles_update(tiles, GRAPH_GEMM, i, j);

				tiles_read(tiles, node, i, k);
				tiles_read(tiles, node, j, k);
			}
			tiles_read(tiles, tiles_update(tiles, GRAPH_SYRK, i, i), i, k);
		}
	}
}

static uint32_t lu_nodes(uint32_t t)
{
	return t * (t + 1) * (2 * t + 1) / 6;
}

static void lu(struct tiles *tiles)
{
	for (uint32_t k = 0; k < tiles->n; k++) {
		tiles_update(tiles, GRAPH_GETRF, k, k);
		for (uint32_t i = k + 1; i < tiles->n; i++) {
			tiles_read(tiles, tiles_update(tiles, GRAPH_TRSM, i, k), k, k);
			tiles_read(tiles, tiles_update(tiles, GRAPH_TRSM, k, i), k, k);
		}
		for (uint32_t i = k + 1; i < tiles->n; i++) {
			for (uint32_t j = k + 1; j < tiles->n; j++) {
				uint32_t node = tiles_update(tiles, GRAPH_GEMM, i, j);

				tiles_read(tiles, node, i, k);
				tiles_read(tiles, node, k, j);
			}
		}
	}
}

/* Make the graph of a factorization of @n by @n tiles. */
static int make_tiled(uint32_t n, void (*factorize)(struct tiles *), uint32_t n_devices,
		      double comm_ratio, uint64_t seed, struct place_graph **ret)
{
	_cleanup_(graph_maker_freep) struct graph_maker *maker = NULL;
	_cleanup_(freep) uint32_t *writers = calloc((size_t)n * n, sizeof(*writers));
	int r;

	if (!writers)
		return error_origin(-ENOMEM);
	r = graph_maker_new(seed, &maker);
	if (r)
		return error_fold(r);
	for (uint32_t i = 0; i < n * n; i++)
		writers[i] = UNWRITTEN;
	factorize(&(struct tiles){.maker = maker, .writers = writers, .n = n});
	return graph_maker_finish(maker, n_devices, comm_ratio, ret);
}

static int make_cholesky(uint32_t size, uint32_t n_devices, double comm_ratio, uint64_t seed,
			 struct place_graph **ret)
{
	return make_tiled(nearest(cholesky_nodes, 2, size), cholesky, n_devices, comm_ratio, seed,
			  ret);
}

static int make_lu(uint32_t size, uint32_t n_devices, double comm_ratio, uint64_t seed,
		   struct place_graph **ret)
{
	return make_tiled(nearest(lu_nodes, 2, size), lu, n_devices, comm_ratio, seed, ret);
}

static uint32_t fft_nodes(uint32_t log)
{
	return (2u << log) - 1 + (log << log);
}

static int make_fft(uint32_t size, uint32_t n_devices, double comm_ratio, uint64_t seed,
		    struct place_graph **ret)
{
	uint32_t log = nearest(fft_nodes, 1, size), n = 1u << log, before = n - 1;
	_cleanup_(graph_maker_freep) struct graph_maker *maker = NULL;
	int r;

	r = graph_maker_new(seed, &maker);
	if (r)
		return error_fold(r);
	/* Call i halves its points for the calls 2 i + 1 and 2 i + 2. */
	for (uint32_t i = 0; i < 2 * n - 1; i++) {
		double points = exp2(-floor(log2(i + 1))) * n;

		graph_maker_node(maker, GRAPH_FFT_CALL, 1 + points / 4);
		if (i > 0)
			graph_maker_edge(maker, (i - 1) / 2, i, points);
	}
	/* Node before + i is the one before butterfly i of a level: first a call without halves. */
	for (uint32_t level = 0; level < log; level++) {
		for (uint32_t i = 0; i < n; i++) {
			uint32_t node = graph_maker_node(maker, GRAPH_FFT_BUTTERFLY, 1);

			graph_maker_edge(maker, before + i, node, 1);
			graph_maker_edge(maker, before + (i ^ 1u << level), node, 1);
		}
		before = level ? before + n : 2 * n - 1;
	}
	return graph_maker_finish(maker, n_devices, comm_ratio, ret);
}

/* Add a layer behind the node @input. Return: its last node. */
static uint32_t decoder_layer(struct graph_maker *maker, uint32_t n_groups, uint32_t input)
{
	double share = 1.0 / n_groups;
	uint32_t norm, projection, sum, up, gate, down;

	norm = graph_maker_node(maker, GRAPH_NORM, 1);
	if (input != UNWRITTEN)
		graph_maker_edge(maker, input, norm, 1);
	projection = norm + 4 * n_groups + 1;
	for (uint32_t i = 0; i < n_groups; i++) {
		for (uint32_t k = 0; k < 3; k++)
			graph_maker_edge(maker, norm,
					 graph_maker_node(maker, GRAPH_PROJECTION, share), 1);
	}
	for (uint32_t i = 0; i < n_groups; i++) {
		uint32_t attention = graph_maker_node(maker, GRAPH_ATTENTION, share);

		for (uint32_t k = 0; k < 3; k++)
			graph_maker_edge(maker, norm + 1 + 3 * i + k, attention, share);
	}
	graph_maker_node(maker, GRAPH_PROJECTION, 1);
	for (uint32_t i = 0; i < n_groups; i++)
		graph_maker_edge(maker, projection - n_groups + i, projection, share);
	sum = graph_maker_node(maker, GRAPH_ADD, 1);
	graph_maker_edge(maker, projection, sum, 1);
	if (input != UNWRITTEN)
		graph_maker_edge(maker, input, sum, 1);
	norm = graph_maker_node(maker, GRAPH_NORM, 1);
	graph_maker_edge(maker, sum, norm, 1);
	up = graph_maker_node(maker, GRAPH_PROJECTION, 2.5);
	graph_maker_edge(maker, norm, up, 1);
	gate = graph_maker_node(maker, GRAPH_PROJECTION, 2.5);
	graph_maker_edge(maker, norm, gate, 1);
	down = graph_maker_node(maker, GRAPH_PROJECTION, 2.5);
	graph_maker_edge(maker, up, down, 2.5);
	graph_maker_edge(maker, gate, down, 2.5);
	norm = graph_maker_node(maker, GRAPH_ADD, 1);
	graph_maker_edge(maker, down, norm, 1);
	graph_maker_edge(maker, sum, norm, 1);
	return norm;
}

/* A layer has 8 + 4 n_groups nodes. Choose the nearest size, with about four groups. */
static int make_decoder(uint32_t size, uint32_t n_devices, double comm_ratio, uint64_t seed,
			struct place_graph **ret)
{
	uint32_t n_layers = size < 28 ? 1 : (size + 12) / 24, n_groups = 1;
	_cleanup_(graph_maker_freep) struct graph_maker *maker = NULL;
	uint32_t input = UNWRITTEN;
	int r;

	while (n_layers * (8 + 4 * n_groups) + 2 * n_layers < size)
		n_groups++;
	r = graph_maker_new(seed, &maker);
	if (r)
		return error_fold(r);
	for (uint32_t l = 0; l < n_layers; l++)
		input = decoder_layer(maker, n_groups, input);
	return graph_maker_finish(maker, n_devices, comm_ratio, ret);
}

static uint32_t montage_nodes(uint32_t n_images)
{
	return 4 * n_images + 2;
}

/* Images are in a row; each overlaps with the next two. */
static int make_montage(uint32_t size, uint32_t n_devices, double comm_ratio, uint64_t seed,
			struct place_graph **ret)
{
	uint32_t n = nearest(montage_nodes, 2, size), concat = 3 * n - 3, model = concat + 1, node;
	_cleanup_(graph_maker_freep) struct graph_maker *maker = NULL;
	int r;

	r = graph_maker_new(seed, &maker);
	if (r)
		return error_fold(r);
	for (uint32_t i = 0; i < n; i++)
		graph_maker_node(maker, GRAPH_MONTAGE_PROJECT,
				 0.7 + 0.6 * draw_uniform(seed, DRAW_COUNT, i, 0));
	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t j = i + 1; j < n && j <= i + 2; j++) {
			node = graph_maker_node(maker, GRAPH_MONTAGE_DIFFERENCE,
						0.7 + 0.6 * draw_uniform(seed, DRAW_COUNT, i, j));
			graph_maker_edge(maker, i, node, 1);
			graph_maker_edge(maker, j, node, 1);
		}
	}
	graph_maker_node(maker, GRAPH_MONTAGE_CONCAT, 1 + n / 10.0);
	for (uint32_t i = n; i < concat; i++)
		graph_maker_edge(maker, i, concat, 0.05);
	graph_maker_node(maker, GRAPH_MONTAGE_MODEL, 0.5 + n / 20.0);
	graph_maker_edge(maker, concat, model, 0.1);
	for (uint32_t i = 0; i < n; i++) {
		node = graph_maker_node(maker, GRAPH_MONTAGE_BACKGROUND, 1);
		graph_maker_edge(maker, i, node, 1);
		graph_maker_edge(maker, model, node, 0.05);
	}
	node = graph_maker_node(maker, GRAPH_MONTAGE_TABLE, 1);
	for (uint32_t i = 0; i < n; i++)
		graph_maker_edge(maker, model + 1 + i, node, 0.05);
	node = graph_maker_node(maker, GRAPH_MONTAGE_ADD, 0.5 + n / 20.0);
	for (uint32_t i = 0; i < n; i++)
		graph_maker_edge(maker, model + 1 + i, node, 1);
	graph_maker_edge(maker, node - 1, node, 0.05);
	graph_maker_edge(maker, node, graph_maker_node(maker, GRAPH_MONTAGE_SHRINK, 1), 2);
	return graph_maker_finish(maker, n_devices, comm_ratio, ret);
}

const struct graph_family graph_families[] = {
	{"layered-sparse", "random layers, few edges", make_sparse},
	{"layered-dense", "random layers, many edges", make_dense},
	{"fork-join", "stages of random parallel branches", make_fork_join},
	{"cholesky", "tile Cholesky factorization", make_cholesky},
	{"lu", "tile LU factorization without pivoting", make_lu},
	{"fft", "fast Fourier transform: calls and butterflies", make_fft},
	{"decoder", "layers of a transformer decoder", make_decoder},
	{"montage", "mosaic of sky images", make_montage},
};

const uint32_t n_graph_families = sizeof(graph_families) / sizeof(graph_families[0]);
