/* SPDX-License-Identifier: MIT */
/*
 * The optimum of a small graph, by a search over levels
 *
 * A state is the first k nodes of a schedule, by start. A node and a device continue it: the node
 * starts when the device is idle and the data have arrived, but not before the state's last node.
 * Each schedule in which no node can start earlier without a change of order (a semi-active one) is
 * such a sequence, and one of these is optimal, because to start nodes earlier delays no other.
 *
 * State A dominates state B with the same nodes if A's devices are idle no later than B's, from the
 * start of the last node on, and A's data arrive for each node and device no later than the node
 * can start there after B: each continuation of B then ends no later after A. For that earliest
 * start a lower bound suffices, and it is infinite where no schedule shorter than the best known
 * one follows. B is then dropped. Two more rules drop a state that another one dominates, whether
 * or not the search has met it:
 *
 *   - The node could have started before the state's last one, on another device: the state with
 *     both in the reverse order.
 *   - The node could have run on the same device before a later start, while the device waited: the
 *     state with the node there (barred).
 *
 * In both cases a device is idle earlier in the other state, and none is idle later. Therefore
 * there are no circles in which each state is dropped because of the next: by induction over k,
 * then over the sum of these times, each state with k nodes is dominated by one that is kept.
 *
 * All states with k + 1 nodes are made from those with k nodes before any is continued, so that
 * the best of them drop the others. Those with a bound below the best known makespan stay: if there
 * are more than the pass is wide, those with the least bounds. A pass that left out no state has
 * proven its best schedule optimal; otherwise the least bound of the states that it left out is a
 * lower bound. Passes become wider, and make better schedules on the way (beam search). Each width
 * is tried on the graph and on its mirror image, which has the same optimum: often the search is
 * many times shorter in one of the two directions.
 */
#include "graph-exact-private.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "graph-bound.h"
#include "place/graph.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"

enum {
	NO_STATE, /* no child's number */
	FIRST_CHILD,
	FIRST_WIDTH = 64,
	GROWTH = 8,
	LAST_WIDTH = 1 << 19,
	MAX_CHILDREN = 1 << 20,
	/* A schedule must be better than the known one by more than what is lost in rounding. */
	MARGIN = 2 * GRAPH_EXACT_NODES,
};

struct ranked {
	uint64_t key;
	uint32_t child;
};

struct search {
	const struct exact_problem *problem; /* of the present pass */
	uint32_t upper;                      /* makespan of the best known schedule */
	uint32_t cut;                        /* least bound of the states that the pass left out */
	uint32_t width;
	struct exact_state *parents;
	struct exact_state *children;
	struct ranked *ranked;
	uint32_t *heads; /* first child of each set of nodes, or NO_STATE */
	uint32_t n_parents, end_children, max_children;
	uint64_t until_ns;
};

static bool is_late(const struct search *search)
{
	return clock_read_ns(CLOCK_THREAD_CPUTIME_ID) >= search->until_ns;
}

static bool is_idle_before(const struct exact_state *a, const struct exact_state *b)
{
	bool is_later = false;

	for (uint32_t d = 0; d < N_DEVICES; d++)
		is_later |= exact_max(a->idle[d], a->last) > exact_max(b->idle[d], b->last);
	return !is_later;
}

/* Does @a dominate @b, after which nodes start at @head or later? */
static bool dominates(const struct exact_state *a, const struct exact_state *b, exact_times head)
{
	uint32_t n_later = 0;

	if (!is_idle_before(a, b))
		return false;
	for (uint32_t d = 0; d < N_DEVICES; d++) {
		for (uint32_t i = 0; i < N_NODES; i++)
			n_later += a->ready[d][i] > head[d][i];
	}
	return n_later == 0;
}

/* Do the same with the earliest starts that follow from the state alone. */
static bool dominates_plainly(const struct exact_state *a, const struct exact_state *b)
{
	uint32_t n_later = 0;

	if (!is_idle_before(a, b))
		return false;
	for (uint32_t d = 0; d < N_DEVICES; d++) {
		uint32_t idle = exact_max(b->idle[d], b->last);

		for (uint32_t i = 0; i < N_NODES; i++)
			n_later += a->ready[d][i] > exact_max(b->ready[d][i], idle);
	}
	return n_later == 0;
}

/* Keep a new state, unless it is dominated or cannot lead to a better schedule. */
static void add_child(struct search *search, struct exact_state *child)
{
	uint32_t *at = &search->heads[child->done];
	exact_times head;

	child->bound =
		exact_max(child->bound, exact_heads(search->problem, child, search->upper, head));
	if (child->bound >= search->upper)
		return;
	if (child->done == (1u << search->problem->n_nodes) - 1) {
		search->upper = child->bound;
		return;
	}
	for (uint32_t k = *at; k != NO_STATE; k = search->children[k].next) {
		if (dominates(&search->children[k], child, head))
			return;
	}
	while (*at != NO_STATE) {
		struct exact_state *other = &search->children[*at];

		if (dominates_plainly(child, other)) {
			*at = other->next;
			other->bound = EXACT_NEVER;
		} else {
			at = &other->next;
		}
	}
	if (search->end_children == search->max_children) {
		search->cut = exact_min(search->cut, child->bound);
		return;
	}
	child->next = search->heads[child->done];
	search->heads[child->done] = search->end_children;
	search->children[search->end_children++] = *child;
}

/* Continue a state by one node on one device. @is_next: nodes whose predecessors are done. */
static void extend(struct search *search, const struct exact_state *state, uint32_t node,
		   uint32_t device, uint32_t is_next)
{
	const struct exact_problem *problem = search->problem;
	uint32_t start = exact_max(state->idle[device], state->ready[device][node]);
	uint32_t end = start + problem->exec[device][node];
	struct exact_state child;

	if (state->barred[device] >> node & 1 || start < state->last ||
	    end + problem->tail[device][node] >= search->upper)
		return;
	child = *state;
	child.done |= 1u << node;
	child.last = start;
	child.idle[device] = end;
	for (uint32_t i = 0; i < problem->n_nodes; i++) {
		uint32_t from = exact_max(state->idle[device], state->ready[device][i]);

		if (is_next >> i & 1 && from + problem->exec[device][i] <= start)
			child.barred[device] |= 1u << i;
	}
	for (uint32_t d = 0; d < N_DEVICES; d++)
		child.ready[d][node] = 0;
	for (uint32_t k = 0; k < problem->n_out[node]; k++) {
		const struct exact_edge *edge = &problem->edges[problem->out[node][k]];

		for (uint32_t d = 0; d < problem->n_devices; d++) {
			uint32_t *ready = &child.ready[d][edge->to];

			*ready = exact_max(*ready, end + edge->move[device][d]);
		}
	}
	add_child(search, &child);
}

static void expand(struct search *search, const struct exact_state *state)
{
	const struct exact_problem *problem = search->problem;
	uint32_t is_next = 0;

	for (uint32_t i = 0; i < problem->n_nodes; i++) {
		if (!(state->done >> i & 1) && (problem->before[i] & ~state->done) == 0)
			is_next |= 1u << i;
	}
	for (uint32_t i = 0; i < problem->n_nodes; i++) {
		for (uint32_t d = 0; d < problem->n_devices && is_next >> i & 1; d++)
			extend(search, state, i, d, is_next);
	}
}

static int by_key(const void *a, const void *b)
{
	uint64_t left = ((const struct ranked *)a)->key, right = ((const struct ranked *)b)->key;

	return left < right ? -1 : left > right;
}

/* Make parents of the children with the least bounds; among equals, of those idle earliest. */
static void choose_parents(struct search *search)
{
	uint32_t n = 0;

	for (uint32_t k = FIRST_CHILD; k < search->end_children; k++) {
		struct exact_state *child = &search->children[k];
		uint32_t bound;
		uint64_t key = 0;
		exact_times head;

		search->heads[child->done] = NO_STATE;
		/* Other states dominate some of the children. */
		if (child->bound >= search->upper)
			continue;
		bound = exact_heads(search->problem, child, search->upper, head);
		if (bound >= search->upper)
			continue;
		bound = exact_max(bound, exact_area(search->problem, child, head, search->upper));
		child->bound = exact_max(child->bound, bound);
		if (child->bound >= search->upper)
			continue;
		for (uint32_t d = 0; d < N_DEVICES; d++)
			key += exact_max(child->idle[d], child->last);
		search->ranked[n++] = (struct ranked){(uint64_t)child->bound << 32 | key, k};
	}
	qsort(search->ranked, n, sizeof(*search->ranked), by_key);
	search->n_parents = exact_min(n, search->width);
	for (uint32_t k = 0; k < search->n_parents; k++)
		search->parents[k] = search->children[search->ranked[k].child];
	if (n > search->width)
		search->cut = exact_min(
			search->cut, search->children[search->ranked[search->width].child].bound);
	search->end_children = FIRST_CHILD;
}

/* Search once over all levels. Return: 0 or GRAPH_EXACT_E_LIMIT. */
static int run_pass(struct search *search)
{
	search->parents[0] = (struct exact_state){0};
	for (uint32_t d = 0; d < N_DEVICES; d++) {
		search->parents[0].weights[d] = 1;
		/* Devices that the graph does not have are equal in all states. */
		if (d >= search->problem->n_devices)
			search->parents[0].idle[d] = EXACT_NEVER;
	}
	search->n_parents = 1;
	search->end_children = FIRST_CHILD;
	search->cut = EXACT_NEVER;
	for (uint32_t level = 0; level < search->problem->n_nodes; level++) {
		for (uint32_t k = 0; k < search->n_parents; k++) {
			if (k % 256 == 255 && is_late(search))
				return GRAPH_EXACT_E_LIMIT;
			expand(search, &search->parents[k]);
		}
		choose_parents(search);
	}
	return 0;
}

static void free_states(struct search *search)
{
	free(search->parents);
	free(search->children);
	free(search->ranked);
	search->parents = search->children = NULL;
	search->ranked = NULL;
}

/* Get memory for passes of a width. Most searches end at the first ones. Return: 0 or -ENOMEM. */
static int widen(struct search *search, const struct exact_problem *problem, uint32_t width)
{
	const uint32_t most = width * problem->n_nodes * problem->n_devices;

	free_states(search);
	search->width = width;
	search->max_children = FIRST_CHILD + exact_min(most, MAX_CHILDREN);
	search->parents = malloc(width * sizeof(*search->parents));
	search->children = malloc(search->max_children * sizeof(*search->children));
	search->ranked = malloc(search->max_children * sizeof(*search->ranked));
	if (!search->parents || !search->children || !search->ranked)
		return error_origin(-ENOMEM);
	return 0;
}

/*
 * Run wider and wider passes, at each width first in the direction with the better bound.
 * Return: 0, GRAPH_EXACT_E_LIMIT or -ENOMEM. @ret_lower is the proven bound in all cases.
 */
static int run_passes(struct search *search, const struct exact_problem *directions,
		      uint32_t *ret_lower)
{
	uint32_t bounds[2] = {0, 0}, first;

	*ret_lower = 0;
	for (uint32_t width = FIRST_WIDTH; width <= LAST_WIDTH; width *= GROWTH) {
		const int r = widen(search, directions, width);

		if (r)
			return width == FIRST_WIDTH ? r : GRAPH_EXACT_E_LIMIT;
		first = bounds[1] > bounds[0];
		for (uint32_t k = 0; k < 2; k++) {
			uint32_t at = k ? !first : first;

			search->problem = &directions[at];
			if (run_pass(search))
				return GRAPH_EXACT_E_LIMIT;
			bounds[at] = search->cut;
			*ret_lower = exact_max(*ret_lower, exact_min(search->cut, search->upper));
			if (*ret_lower >= search->upper)
				return 0;
		}
	}
	return GRAPH_EXACT_E_LIMIT;
}

/* Return the makespan if each node waits for all before it, on its fastest device. */
static double serial_ns(const struct place_graph *graph)
{
	uint32_t n = graph->n_devices;
	double sum = 0;

	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		double least = INFINITY;

		for (uint32_t d = 0; d < n; d++)
			least = fmin(least, (double)graph->exec_ns[i * n + d]);
		sum += least;
	}
	for (uint32_t e = 0; e < graph->n_edges; e++) {
		double most = 0;

		for (uint32_t k = 0; k < n * n; k++)
			most = fmax(most, (double)place_graph_transfer_ns(graph, e, k / n, k % n));
		sum += most;
	}
	return sum;
}

int graph_exact(const struct place_graph *graph, double upper_ns, double seconds, double *ret_ns)
{
	_cleanup_(freep) struct exact_problem *directions = NULL;
	_cleanup_(freep) uint32_t *heads = NULL;
	double bound_ns = graph_bound_ns(graph), unit_ns;
	struct search search;
	uint32_t lower;
	int r;

	upper_ns = fmin(upper_ns, serial_ns(graph));
	unit_ns = upper_ns / EXACT_UNIT;
	if (bound_ns >= upper_ns * (1 - 1e-9)) {
		*ret_ns = upper_ns;
		return 0;
	}
	if (graph->n_nodes > N_NODES || graph->n_devices > N_DEVICES) {
		*ret_ns = bound_ns;
		return GRAPH_EXACT_E_LIMIT;
	}
	directions = calloc(2, sizeof(*directions));
	heads = calloc((size_t)1 << graph->n_nodes, sizeof(*heads));
	if (!directions || !heads)
		return error_origin(-ENOMEM);
	exact_problem_init(&directions[0], graph, unit_ns, false);
	exact_problem_init(&directions[1], graph, unit_ns, true);
	search = (struct search){
		.upper = EXACT_UNIT - MARGIN,
		.heads = heads,
		.until_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID) + (uint64_t)(seconds * 1e9),
	};
	r = run_passes(&search, directions, &lower);
	free_states(&search);
	if (r == GRAPH_EXACT_E_LIMIT)
		*ret_ns = fmax(bound_ns, lower * unit_ns);
	else if (r == 0)
		*ret_ns = search.upper < EXACT_UNIT - MARGIN ? search.upper * unit_ns : upper_ns;
	return r;
}
