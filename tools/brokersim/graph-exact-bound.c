/* SPDX-License-Identifier: MIT */
/*
 * Bounds for the search of graph-exact.c
 *
 * Two bounds say how early a schedule can end. The first follows the longest way from what is done
 * to the end, with devices chosen node by node: a node's predecessors either run on its own device,
 * one after the other, or send their data. It also finds the devices that a node cannot use in a
 * schedule that ends before the best known one.
 *
 * The second one is the area bound of graph-bound.h for windows [h, T - t]: a node that starts no
 * earlier than its head and is followed by its tail does at least
 *
 *   execution - max(0, h - head) - max(0, t - tail)
 *
 * of its work in the window. With a weight for each device, each node on the device where its
 * weighted work is least, and devices idle from then on, the window's weighted time must suffice.
 * Any weights give a bound. Each state inherits the weights of the one before it and tries a few
 * changes for the window that bounds most. Floats have 24 bits; the result is rounded down by more
 * than they can lose.
 */
#include "graph-exact-private.h"

#include <math.h>

#include "place/graph.h"

/* Longer than all windows; sums of these are finite floats. */
#define UNUSABLE 1e30f
/* Relative errors of floats, with a reserve */
#define ROUNDING 4e-6f

/* A neighbour of a node: on the same device, or on the best other one. */
struct choice {
	uint32_t remote; /* time between it and the node, from the begin or to the end, if not */
	uint32_t exec;   /* if on the same device */
	uint32_t offset; /* its own head or tail there */
};

/* The work that is left */
struct left {
	uint32_t n_devices;
	float idle[N_DEVICES];
	float exec[N_DEVICES][N_NODES]; /* 0 for nodes that are done, UNUSABLE */
	float head[N_DEVICES][N_NODES], tail[N_DEVICES][N_NODES];
};

/*
 * Return the least time in which all neighbours precede the node, or follow it. The neighbours on
 * the same device, one after the other, are those with the longest remote times.
 */
static uint32_t choose(struct choice *choices, uint32_t n)
{
	uint32_t best, least = 0, offset = EXACT_NEVER, sum = 0;

	for (uint32_t i = 1; i < n; i++) {
		struct choice choice = choices[i];
		uint32_t k = i;

		for (; k > 0 && choices[k - 1].remote < choice.remote; k--)
			choices[k] = choices[k - 1];
		choices[k] = choice;
	}
	best = choices[0].remote;
	for (uint32_t k = 0; k < n; k++) {
		const struct choice *choice = &choices[k];

		/* Each neighbour alone is a bound as well. */
		least = exact_max(least, exact_min(choice->remote, choice->offset + choice->exec));
		offset = exact_min(offset, choice->offset);
		sum = exact_min(EXACT_NEVER, sum + choice->exec);
		best = exact_min(best,
				 exact_max(offset + sum, k + 1 < n ? choices[k + 1].remote : 0));
	}
	return exact_min(exact_max(least, best), EXACT_NEVER);
}

/* Return when a node can start at the earliest on device @d because of what is not done. */
static uint32_t find_head(const struct exact_problem *problem, const struct exact_state *state,
			  uint32_t node, uint32_t d, exact_times head, exact_times end)
{
	uint32_t n = 0, n_forced = 0, simple = 0;
	struct choice choices[N_NODES];

	for (uint32_t k = 0; k < problem->n_in[node]; k++) {
		const struct exact_edge *edge = &problem->edges[problem->in[node][k]];
		uint32_t from = edge->from, remote = EXACT_NEVER;

		if (state->done >> from & 1)
			continue;
		for (uint32_t e = 0; e < problem->n_devices; e++) {
			if (e != d)
				remote = exact_min(remote, end[e][from] + edge->move[e][d]);
		}
		choices[n++] = (struct choice){remote, problem->exec[d][from], head[d][from]};
		simple = exact_max(simple, exact_min(remote, end[d][from]));
	}
	/* One neighbour on the same device is already considered. */
	for (uint32_t k = 0; k < n; k++)
		n_forced += choices[k].remote > simple;
	return n_forced > 1 ? choose(choices, n) : simple;
}

uint32_t exact_heads(const struct exact_problem *problem, const struct exact_state *state,
		     uint32_t upper, exact_times head)
{
	uint32_t bound = 0;
	exact_times end;

	for (uint32_t d = 0; d < N_DEVICES; d++) {
		for (uint32_t i = 0; i < N_NODES; i++)
			head[d][i] = EXACT_NEVER;
		if (d < problem->n_devices)
			bound = exact_max(bound, state->idle[d]);
	}
	for (uint32_t i = 0; i < problem->n_nodes && bound < upper; i++) {
		uint32_t best = EXACT_NEVER;

		if (state->done >> i & 1)
			continue;
		for (uint32_t d = 0; d < problem->n_devices; d++) {
			uint32_t start = exact_max(state->idle[d], state->last), total;

			start = exact_max(start, state->ready[d][i]);
			start = exact_max(start, find_head(problem, state, i, d, head, end));
			total = start + problem->exec[d][i] + problem->tail[d][i];
			head[d][i] = total < upper ? start : EXACT_NEVER;
			end[d][i] = total < upper ? start + problem->exec[d][i] : EXACT_NEVER;
			best = exact_min(best, total);
		}
		bound = exact_max(bound, best);
	}
	return bound;
}

static float min_float(float a, float b)
{
	return a < b ? a : b;
}

static float max_float(float a, float b)
{
	return a > b ? a : b;
}

/* Return the weighted work in a window, each node on the device where this is least. */
static float weigh(const struct left *left, float h, float t, const float *weights)
{
	float least[N_NODES], sum = 0;

	for (uint32_t i = 0; i < N_NODES; i++)
		least[i] = UNUSABLE;
	for (uint32_t d = 0; d < left->n_devices; d++) {
		for (uint32_t i = 0; i < N_NODES; i++) {
			float early = max_float(h - left->head[d][i], 0);
			float late = max_float(t - left->tail[d][i], 0);
			float ns = max_float(left->exec[d][i] - early - late, 0) * weights[d];

			least[i] = min_float(least[i], ns);
		}
	}
	for (uint32_t i = 0; i < N_NODES; i++)
		sum += least[i];
	return sum;
}

/* Return the least T for which the window [@h, T - @t] has room for its work; 0: no work. */
static float bound_window(const struct left *left, float h, float t, const float *weights)
{
	float sum = weigh(left, h, t, weights), total = 0, begin[N_DEVICES], weight[N_DEVICES];
	uint32_t n = left->n_devices;

	if (!(sum > 0))
		return 0;
	/* The devices, by the time from which they are idle in the window */
	for (uint32_t d = 0; d < n; d++) {
		float from = max_float(h, left->idle[d]);
		uint32_t k = d;

		for (; k > 0 && begin[k - 1] > from; k--) {
			begin[k] = begin[k - 1];
			weight[k] = weight[k - 1];
		}
		begin[k] = from;
		weight[k] = weights[d];
	}
	for (uint32_t k = 0; k < n; k++) {
		sum += weight[k] * begin[k];
		total += weight[k];
		if (k + 1 == n || sum <= begin[k + 1] * total)
			break;
	}
	return t + sum / total;
}

/* Find windows that begin with a head of a node or end before a tail. Return: how many. */
static uint32_t find_windows(const struct left *left, float *h, float *t)
{
	float begin = INFINITY;
	uint32_t n = 1;

	h[0] = t[0] = 0;
	for (uint32_t d = 0; d < left->n_devices; d++)
		begin = min_float(begin, left->idle[d]);
	for (uint32_t i = 0; i < N_NODES; i++) {
		float head = UNUSABLE, tail = UNUSABLE;

		for (uint32_t d = 0; d < left->n_devices; d++) {
			if (left->exec[d][i] > 0 && left->exec[d][i] < UNUSABLE) {
				head = min_float(head, left->head[d][i]);
				tail = min_float(tail, left->tail[d][i]);
			}
		}
		if (head > begin && head < UNUSABLE) {
			h[n] = head;
			t[n++] = 0;
		}
		if (tail > 0 && tail < UNUSABLE) {
			h[n] = 0;
			t[n++] = tail;
		}
	}
	return n;
}

uint32_t exact_area(const struct exact_problem *problem, struct exact_state *state,
		    exact_times head, uint32_t upper)
{
	float h[2 * N_NODES + 1], t[2 * N_NODES + 1];
	float limit = (float)upper * (1 + 2 * ROUNDING), best = 0;
	struct left left = {.n_devices = problem->n_devices};
	uint32_t n, at = 0;

	for (uint32_t d = 0; d < problem->n_devices; d++) {
		left.idle[d] = (float)exact_max(state->idle[d], state->last);
		for (uint32_t i = 0; i < problem->n_nodes; i++) {
			left.head[d][i] = (float)head[d][i];
			left.tail[d][i] = (float)problem->tail[d][i];
			if (!(state->done >> i & 1))
				left.exec[d][i] = head[d][i] == EXACT_NEVER
							  ? UNUSABLE
							  : (float)problem->exec[d][i];
		}
	}
	n = find_windows(&left, h, t);
	for (uint32_t k = 0; k < n && best < limit; k++) {
		float bound = bound_window(&left, h[k], t[k], state->weights);

		if (bound > best) {
			best = bound;
			at = k;
		}
	}
	for (uint32_t k = 0; k < 2 * problem->n_devices && best < limit; k++) {
		float old = state->weights[k / 2], bound;

		state->weights[k / 2] *= k % 2 ? 1.5f : 1 / 1.5f;
		bound = bound_window(&left, h[at], t[at], state->weights);
		if (bound > best)
			best = bound;
		else
			state->weights[k / 2] = old;
	}
	return best < limit ? (uint32_t)(best * (1 - ROUNDING)) : upper;
}

static uint32_t scale(double ns, double unit_ns)
{
	return (uint32_t)fmin(floor(ns / unit_ns), EXACT_NEVER);
}

static void set_tails(struct exact_problem *problem)
{
	uint32_t n = problem->n_devices;

	for (uint32_t i = problem->n_nodes; i-- > 0;) {
		for (uint32_t d = 0; d < n && problem->n_out[i] > 0; d++) {
			struct choice choices[N_NODES];

			for (uint32_t k = 0; k < problem->n_out[i]; k++) {
				const struct exact_edge *edge = &problem->edges[problem->out[i][k]];
				uint32_t to = edge->to, remote = EXACT_NEVER;

				for (uint32_t e = 0; e < n; e++) {
					if (e != d)
						remote = exact_min(remote,
								   edge->move[d][e] +
									   problem->exec[e][to] +
									   problem->tail[e][to]);
				}
				choices[k] = (struct choice){remote, problem->exec[d][to],
							     problem->tail[d][to]};
			}
			problem->tail[d][i] = choose(choices, problem->n_out[i]);
		}
	}
}

static void add_edge(struct exact_problem *problem, const struct place_graph *graph, double unit_ns,
		     uint32_t e, uint32_t to, bool is_mirrored)
{
	struct exact_edge *edge = &problem->edges[e];
	uint32_t last = graph->n_nodes - 1;

	edge->from = is_mirrored ? last - to : graph->from[e];
	edge->to = is_mirrored ? last - graph->from[e] : to;
	for (uint32_t a = 0; a < graph->n_devices; a++) {
		for (uint32_t b = 0; b < graph->n_devices; b++) {
			float ns = is_mirrored ? place_graph_transfer_ns(graph, e, b, a)
					       : place_graph_transfer_ns(graph, e, a, b);

			edge->move[a][b] = scale((double)ns, unit_ns);
		}
	}
	problem->out[edge->from][problem->n_out[edge->from]++] = e;
	problem->in[edge->to][problem->n_in[edge->to]++] = e;
	problem->before[edge->to] |= 1u << edge->from;
}

void exact_problem_init(struct exact_problem *problem, const struct place_graph *graph,
			double unit_ns, bool is_mirrored)
{
	uint32_t n = graph->n_devices;

	problem->n_nodes = graph->n_nodes;
	problem->n_devices = n;
	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		uint32_t node = is_mirrored ? graph->n_nodes - 1 - i : i;

		for (uint32_t d = 0; d < n; d++)
			problem->exec[d][node] = scale((double)graph->exec_ns[i * n + d], unit_ns);
		for (uint32_t e = graph->first[i]; e < graph->first[i + 1]; e++)
			add_edge(problem, graph, unit_ns, e, i, is_mirrored);
	}
	set_tails(problem);
}
