/* SPDX-License-Identifier: MIT */
/*
 * Lower bounds of a graph's makespan
 *
 * The critical path: a node's head on a device is the least time to its start there, its tail the
 * least time from its end. Each node on a path runs where this is best for the path, including the
 * transfer to the next node's device. Neighbours that run on the node's own device do so one after
 * the other, and all together take at least the area bound, below.
 *
 * The area bound: the linear relaxation of assigning nodes to devices without regard to edges
 * (Lenstra, Shmoys, Tardos, Approximation Algorithms for Scheduling Unrelated Parallel Machines,
 * 1990; as a bound for task graphs: Agullo, Beaumont, Eyraud-Dubois, Kumar, Are Static Schedules so
 * Bad? A Case Study on Cholesky Factorization, 2016). By duality it is the maximum, over weights of
 * the devices with the sum 1, of
 *
 *   sum over nodes of the least, over devices d, of weight(d) execution(d)
 *
 * All weights give a valid bound, however far the search for the best ones has come. With two
 * devices the sum is a concave function of one weight, and bisection finds its maximum. With more
 * the weights follow the loads (multiplicative subgradient steps), and the largest sum counts.
 *
 * Both together: before time h and in the last t of the makespan T a node can only do what its head
 * and tail leave. If it runs on device d, it does in [h, T - t] at least
 *
 *   execution(d) - max(0, h - head(d)) - max(0, t - tail(d))
 *
 * so T is at least h + t + the area bound of this work, if there is any. This is energetic
 * reasoning (Baptiste, Le Pape, Nuijten, Constraint-Based Scheduling, 2001) on unrelated machines.
 */
#include "graph-bound.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "place/graph.h"
#include "util/cleanup.h"

#define NO_EDGE UINT32_MAX

enum {
	N_WINDOWS = 8, /* begins, and as many ends */
	N_STEPS = 60,
};

/* An edge's other node: on the same device, or on the best other one. */
struct neighbour {
	double remote; /* head of the node, or tail, that follows from another device */
	double exec;   /* on the same device */
	double offset; /* its own head or tail there */
};

struct paths {
	const struct place_graph *graph;
	uint32_t *to;                  /* of each edge */
	uint32_t *last_out, *next_out; /* lists of the edges that leave a node */
	struct neighbour *neighbours;  /* of the present node */
	double *head, *tail;           /* [node * n_devices + device] */
	double *work; /* the same, for one window; INFINITY where a node cannot run */
};

static double exec(const struct place_graph *graph, uint32_t node, uint32_t device)
{
	return (double)graph->exec_ns[node * graph->n_devices + device];
}

/* Return the weighted work of the first @n_rows rows, and how much of it each device has. */
static double weigh(const struct paths *paths, uint32_t n_rows, const double *weights,
		    double *loads)
{
	uint32_t n = paths->graph->n_devices;
	double sum = 0;

	for (uint32_t d = 0; d < n; d++)
		loads[d] = 0;
	for (uint32_t i = 0; i < n_rows; i++) {
		const double *work = paths->work + i * n;
		double least = INFINITY;
		uint32_t best = 0;

		for (uint32_t d = 0; d < n; d++) {
			/* A weight may have become 0. */
			if (isinf(work[d]) || weights[d] * work[d] >= least)
				continue;
			least = weights[d] * work[d];
			best = d;
		}
		loads[best] += work[best];
		sum += least;
	}
	return sum;
}

/* Return the area bound of the first @n_rows rows of work, on two devices. */
static double area_of_two(const struct paths *paths, uint32_t n_rows)
{
	double low = 0, high = 1, best = 0, loads[2];

	for (uint32_t k = 0; k < N_STEPS; k++) {
		double middle = (low + high) / 2;

		best = fmax(best, weigh(paths, n_rows, (double[]){1 - middle, middle}, loads));
		/* The slope of the sum is the difference of the loads. */
		if (loads[1] > loads[0])
			low = middle;
		else
			high = middle;
	}
	return best;
}

static double area(const struct paths *paths, uint32_t n_rows)
{
	double weights[PLACE_GRAPH_DEVICES], loads[PLACE_GRAPH_DEVICES], best = 0;
	uint32_t n = paths->graph->n_devices;

	if (n == 2)
		return area_of_two(paths, n_rows);
	for (uint32_t d = 0; d < n; d++)
		weights[d] = 1.0 / n;
	for (uint32_t k = 0; k < N_STEPS; k++) {
		double sum = weigh(paths, n_rows, weights, loads), total = 0;

		best = fmax(best, sum);
		if (!(sum > 0))
			break;
		for (uint32_t d = 0; d < n; d++) {
			double change = fmin(fmax(loads[d] / sum - 1, -1), 1);

			weights[d] *= exp(change * 0.6 / (1 + k / 4.0));
			total += weights[d];
		}
		for (uint32_t d = 0; d < n; d++)
			weights[d] /= total;
	}
	return best;
}

static int by_remote(const void *a, const void *b)
{
	double left = ((const struct neighbour *)a)->remote;
	double right = ((const struct neighbour *)b)->remote;

	return left > right ? -1 : left < right;
}

/* Return the least time in which all neighbours precede the node, or follow it. */
static double choose(struct neighbour *neighbours, uint32_t n)
{
	double best, least = 0, offset = INFINITY, sum = 0;

	if (n == 0)
		return 0;
	qsort(neighbours, n, sizeof(*neighbours), by_remote);
	/* The neighbours that take longest from another device are on the same one. */
	best = neighbours[0].remote;
	for (uint32_t k = 0; k < n; k++) {
		const struct neighbour *neighbour = &neighbours[k];

		/* Each neighbour alone is a bound as well. */
		least = fmax(least, fmin(neighbour->remote, neighbour->offset + neighbour->exec));
		offset = fmin(offset, neighbour->offset);
		sum += neighbour->exec;
		best = fmin(best, fmax(offset + sum, k + 1 < n ? neighbours[k + 1].remote : 0));
	}
	return fmax(least, best);
}

/*
 * Copy the times of a node to a row of the work.
 * Return: the lesser of @offset, from the second row on, and the node's least way.
 */
static double add_row(struct paths *paths, uint32_t row, uint32_t node, const double *ways,
		      double offset)
{
	const struct place_graph *graph = paths->graph;
	uint32_t n = graph->n_devices;
	double least = INFINITY;

	for (uint32_t d = 0; d < n; d++) {
		paths->work[row * n + d] = exec(graph, node, d);
		if (!isinf(exec(graph, node, d)))
			least = fmin(least, ways[node * n + d]);
	}
	return row ? fmin(offset, least) : least;
}

static void find_heads(struct paths *paths)
{
	const struct place_graph *graph = paths->graph;
	uint32_t n = graph->n_devices;

	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		double all = 0;

		for (uint32_t e = graph->first[i]; e < graph->first[i + 1]; e++)
			all = add_row(paths, e - graph->first[i], graph->from[e], paths->head, all);
		all += area(paths, graph->first[i + 1] - graph->first[i]);
		for (uint32_t to = 0; to < n; to++) {
			uint32_t n_edges = 0;

			for (uint32_t e = graph->first[i]; e < graph->first[i + 1]; e++) {
				uint32_t from = graph->from[e];
				struct neighbour *neighbour = &paths->neighbours[n_edges++];

				*neighbour = (struct neighbour){INFINITY, exec(graph, from, to),
								paths->head[from * n + to]};
				for (uint32_t d = 0; d < n; d++) {
					double ns =
						(double)place_graph_transfer_ns(graph, e, d, to);

					ns += paths->head[from * n + d] + exec(graph, from, d);
					if (d != to)
						neighbour->remote = fmin(neighbour->remote, ns);
				}
			}
			paths->head[i * n + to] = fmax(all, choose(paths->neighbours, n_edges));
		}
	}
}

static void find_tails(struct paths *paths)
{
	const struct place_graph *graph = paths->graph;
	uint32_t n = graph->n_devices;

	for (uint32_t i = graph->n_nodes; i-- > 0;) {
		uint32_t n_rows = 0;
		double all = 0;

		for (uint32_t e = paths->last_out[i]; e != NO_EDGE; e = paths->next_out[e])
			all = add_row(paths, n_rows++, paths->to[e], paths->tail, all);
		all += area(paths, n_rows);
		for (uint32_t from = 0; from < n; from++) {
			uint32_t n_edges = 0;

			for (uint32_t e = paths->last_out[i]; e != NO_EDGE;
			     e = paths->next_out[e]) {
				uint32_t to = paths->to[e];
				struct neighbour *neighbour = &paths->neighbours[n_edges++];

				*neighbour = (struct neighbour){INFINITY, exec(graph, to, from),
								paths->tail[to * n + from]};
				for (uint32_t d = 0; d < n; d++) {
					double ns =
						(double)place_graph_transfer_ns(graph, e, from, d);

					ns += paths->tail[to * n + d] + exec(graph, to, d);
					if (d != from)
						neighbour->remote = fmin(neighbour->remote, ns);
				}
			}
			paths->tail[i * n + from] = fmax(all, choose(paths->neighbours, n_edges));
		}
	}
}

/* List the edges that leave each node. */
static void list_edges(struct paths *paths)
{
	const struct place_graph *graph = paths->graph;

	for (uint32_t i = 0; i < graph->n_nodes; i++)
		paths->last_out[i] = NO_EDGE;
	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		for (uint32_t e = graph->first[i]; e < graph->first[i + 1]; e++) {
			paths->to[e] = i;
			paths->next_out[e] = paths->last_out[graph->from[e]];
			paths->last_out[graph->from[e]] = e;
		}
	}
}

static double critical_path(const struct paths *paths)
{
	const struct place_graph *graph = paths->graph;
	double longest = 0;

	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		double least = INFINITY;

		for (uint32_t d = 0; d < graph->n_devices; d++) {
			uint32_t at = i * graph->n_devices + d;

			least = fmin(least, paths->head[at] + exec(graph, i, d) + paths->tail[at]);
		}
		longest = fmax(longest, least);
	}
	return longest;
}

/* Return the bound of window [@h, makespan - @t], or 0 if it has no work. */
static double bound_window(struct paths *paths, double h, double t)
{
	const struct place_graph *graph = paths->graph;
	double bound;

	for (uint32_t k = 0; k < graph->n_nodes * graph->n_devices; k++) {
		double outside = fmax(0, h - paths->head[k]) + fmax(0, t - paths->tail[k]);

		paths->work[k] = fmax(0, (double)graph->exec_ns[k] - outside);
	}
	bound = area(paths, graph->n_nodes);
	return bound > 0 ? h + t + bound : 0;
}

static int by_length(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

/* Choose N_WINDOWS of the nodes' least heads or tails, the least and the largest among them. */
static void sample(const struct place_graph *graph, const double *ways, double *sorted, double *ret)
{
	uint32_t n = graph->n_devices;

	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		sorted[i] = INFINITY;
		for (uint32_t d = 0; d < n; d++) {
			if (!isinf(exec(graph, i, d)))
				sorted[i] = fmin(sorted[i], ways[i * n + d]);
		}
	}
	qsort(sorted, graph->n_nodes, sizeof(*sorted), by_length);
	for (uint32_t k = 0; k < N_WINDOWS; k++)
		ret[k] = sorted[(uint64_t)k * (graph->n_nodes - 1) / (N_WINDOWS - 1)];
}

double graph_bound_ns(const struct place_graph *graph)
{
	size_t n = (size_t)graph->n_nodes * graph->n_devices;
	_cleanup_(freep) double *times = calloc(3 * n + graph->n_nodes, sizeof(*times));
	_cleanup_(freep) struct neighbour *neighbours =
		calloc(graph->n_edges + 1, sizeof(*neighbours));
	_cleanup_(freep) uint32_t *lists =
		calloc(2 * (size_t)graph->n_edges + graph->n_nodes, sizeof(*lists));
	struct paths paths = {.graph = graph, .neighbours = neighbours};
	double h[N_WINDOWS], t[N_WINDOWS], best;

	if (!times || !neighbours || !lists || n == 0)
		return 0;
	paths.head = times;
	paths.tail = times + n;
	paths.work = times + 2 * n;
	paths.to = lists;
	paths.next_out = lists + graph->n_edges;
	paths.last_out = lists + 2 * (size_t)graph->n_edges;
	list_edges(&paths);
	find_heads(&paths);
	find_tails(&paths);
	best = critical_path(&paths);
	sample(graph, paths.head, times + 3 * n, h);
	sample(graph, paths.tail, times + 3 * n, t);
	for (uint32_t i = 0; i < N_WINDOWS; i++) {
		for (uint32_t k = 0; k < N_WINDOWS; k++) {
			/* The next windows are equal where many nodes have equal heads or tails. */
			if ((i && !(h[i] > h[i - 1])) || (k && !(t[k] > t[k - 1])))
				continue;
			best = fmax(best, bound_window(&paths, h[i], t[k]));
		}
	}
	/* Sums of rounded numbers must not exceed the optimum either. */
	return best * (1 - 1e-9);
}
