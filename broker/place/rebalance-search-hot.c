/* SPDX-License-Identifier: MIT */
/*
 * The best devices for a few tasks
 *
 * Minimising the makespan on unrelated machines is NP-hard; for some thirty tasks a local search
 * comes close to the optimum in microseconds. The most loaded device gives a task to another, or
 * exchanges two tasks with it, whichever leaves the later of the two done earliest, until no step
 * helps. The search starts twice: from the present assignment, and from the best cut through the
 * ordered tasks. The order is by how many times longer a task takes here than there; such a cut
 * would be optimal if tasks could be divided. If neither comes near that optimum, all assignments
 * of the few tasks around the cut are tried.
 */
#include <stdbool.h>

#include "place/rebalance-private.h"

/* A step that gains less does not repay the next search. */
#define SEARCH_MIN_GAIN 0.999f
/* Near enough to the lower bound */
#define SEARCH_NEAR 0.99f

enum { SEARCH_TRY_ALL = 11 };

static uint32_t most_loaded(const struct search *search)
{
	uint32_t most = 0;

	for (uint32_t i = 1; i < search->n_devices; i++)
		if (search->load_ns[i] > search->load_ns[most])
			most = i;
	return most;
}

static inline float later(float a, float b)
{
	return a > b ? a : b;
}

static inline void assign(struct search *search, uint32_t task, uint32_t device)
{
	search->load_ns[search->at[task]] -= search->adds_ns[task][search->at[task]];
	search->load_ns[device] += search->adds_ns[task][device];
	search->at[task] = (uint8_t)device;
}

/*
 * Do the best move off the most loaded device, or exchange with another.
 * Return: true if a step was found.
 */
static bool step(struct search *search)
{
	uint32_t from = most_loaded(search), best_to = 0;
	uint32_t best_task = SEARCH_MAX_TASKS, best_back = SEARCH_MAX_TASKS;
	float best_ns = search->load_ns[from] * SEARCH_MIN_GAIN;

	for (uint32_t i = 0; i < search->n_tasks; i++) {
		float left_ns;

		if (search->at[i] != from)
			continue;
		left_ns = search->load_ns[from] - search->adds_ns[i][from];
		for (uint32_t to = 0; to < search->n_devices; to++) {
			float there_ns = search->load_ns[to] + search->adds_ns[i][to];
			float done_ns = later(left_ns, later(there_ns, search->takes_ns[i][to]));

			if (to == from || search->takes_ns[i][to] >= best_ns)
				continue;
			if (done_ns < best_ns) {
				best_ns = done_ns;
				best_task = i;
				best_back = SEARCH_MAX_TASKS;
				best_to = to;
			}
			for (uint32_t j = 0; j < search->n_tasks; j++) {
				if (search->at[j] != to)
					continue;
				done_ns = later(left_ns + search->adds_ns[j][from],
						there_ns - search->adds_ns[j][to]);
				done_ns = later(done_ns, search->takes_ns[j][from]);
				if (done_ns < best_ns) {
					best_ns = done_ns;
					best_task = i;
					best_back = j;
					best_to = to;
				}
			}
		}
	}
	if (best_task == SEARCH_MAX_TASKS)
		return false;
	assign(search, best_task, best_to);
	if (best_back != SEARCH_MAX_TASKS)
		assign(search, best_back, from);
	return true;
}

static float descend(struct search *search)
{
	for (uint32_t i = 0; i < search->n_tasks; i++)
		if (!step(search))
			break;
	return search->load_ns[most_loaded(search)];
}

/*
 * The tasks that may be on either of two devices, in order: first those that gain most on the
 * second
 */
struct cut {
	uint32_t a, b;
	uint32_t n_tasks, n_on_b; /* tasks of the order's begin that are on b */
	float bound_ns;           /* no assignment of these tasks is done earlier */
	uint8_t order[SEARCH_MAX_TASKS];
};

/* Assign the tasks by the best cut through that order. */
static void cut_run(struct search *search, struct cut *cut)
{
	uint32_t a = cut->a, b = cut->b, n = 0;
	float ratio[SEARCH_MAX_TASKS], best_ns;

	for (uint32_t i = 0; i < search->n_tasks; i++) {
		const float *adds_ns = search->adds_ns[i];
		uint32_t j;

		if ((search->at[i] != a && search->at[i] != b) ||
		    !(adds_ns[a] + adds_ns[b] < __builtin_inff()))
			continue;
		ratio[i] = adds_ns[a] / adds_ns[b];
		for (j = n++; j > 0 && ratio[cut->order[j - 1]] < ratio[i]; j--)
			cut->order[j] = cut->order[j - 1];
		cut->order[j] = (uint8_t)i;
		assign(search, i, a);
	}
	cut->n_tasks = n;
	cut->n_on_b = 0;
	best_ns = later(search->load_ns[a], search->load_ns[b]);
	cut->bound_ns = best_ns;
	for (uint32_t i = 0; i < n; i++) {
		const float *adds_ns = search->adds_ns[cut->order[i]];
		float ahead_ns = search->load_ns[a] - search->load_ns[b], done_ns;

		if (ahead_ns > 0)
			cut->bound_ns = search->load_ns[a] -
					adds_ns[a] * ahead_ns / (adds_ns[a] + adds_ns[b]);
		assign(search, cut->order[i], b);
		done_ns = later(search->load_ns[a], search->load_ns[b]);
		if (done_ns < best_ns) {
			best_ns = done_ns;
			cut->n_on_b = i + 1;
		}
	}
	for (uint32_t i = cut->n_on_b; i < n; i++)
		assign(search, cut->order[i], a);
}

/*
 * Try all assignments of the tasks around the cut, which lose least on the wrong side of it. In
 * Gray's order one task changes sides from one assignment to the next.
 */
static void try_all(struct search *search, const struct cut *cut)
{
	uint32_t first = cut->n_on_b > SEARCH_TRY_ALL / 2 ? cut->n_on_b - SEARCH_TRY_ALL / 2 : 0;
	uint32_t a = cut->a, b = cut->b, n = 0, mask = 0, best = 0;
	float load_a = search->load_ns[a], load_b = search->load_ns[b];
	float best_ns = later(load_a, load_b);
	float to_a[SEARCH_TRY_ALL], to_b[SEARCH_TRY_ALL];
	uint8_t tasks[SEARCH_TRY_ALL];

	if (first + SEARCH_TRY_ALL > cut->n_tasks)
		first = cut->n_tasks > SEARCH_TRY_ALL ? cut->n_tasks - SEARCH_TRY_ALL : 0;
	for (uint32_t i = first; i < cut->n_tasks && n < SEARCH_TRY_ALL; i++) {
		uint8_t task = cut->order[i];
		bool is_on_a = search->at[task] == a;

		if (search->takes_ns[task][is_on_a ? b : a] >= best_ns)
			continue;
		/* Change of the loads when the task changes sides; negated to change back. */
		to_a[n] = is_on_a ? -search->adds_ns[task][a] : search->adds_ns[task][a];
		to_b[n] = is_on_a ? search->adds_ns[task][b] : -search->adds_ns[task][b];
		tasks[n++] = task;
	}
	for (uint32_t i = 1; i < 1u << n; i++) {
		uint32_t bit = (uint32_t)__builtin_ctz(i);
		float done_ns;

		load_a += to_a[bit];
		load_b += to_b[bit];
		to_a[bit] = -to_a[bit];
		to_b[bit] = -to_b[bit];
		mask ^= 1u << bit;
		done_ns = later(load_a, load_b);
		if (done_ns < best_ns) {
			best_ns = done_ns;
			best = mask;
		}
	}
	for (; best; best &= best - 1) {
		uint32_t task = tasks[__builtin_ctz(best)];

		assign(search, task, search->at[task] == a ? b : a);
	}
}

float search_run(struct search *search)
{
	struct search other = *search;
	struct cut cut = {.a = most_loaded(search)};
	float done_ns;

	cut.b = cut.a == 0;
	for (uint32_t i = 0; i < search->n_devices; i++)
		if (i != cut.a && search->load_ns[i] < search->load_ns[cut.b])
			cut.b = i;
	done_ns = descend(search);
	if (cut.b >= search->n_devices)
		return done_ns;
	cut_run(&other, &cut);
	if (descend(&other) < done_ns * SEARCH_MIN_GAIN) {
		*search = other;
		done_ns = search->load_ns[most_loaded(search)];
	}
	if (cut.bound_ns < done_ns * SEARCH_NEAR && search->n_devices == 2)
		try_all(search, &cut);
	return search->load_ns[most_loaded(search)];
}
