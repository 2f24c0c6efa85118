/* SPDX-License-Identifier: MIT */
/*
 * Times of actions: see duration.h.
 *
 * A measured time contains the cost of the submission itself. It is not the action's: slices of a
 * dispatch would seem to take longer together than the dispatch does, and would be cut smaller and
 * smaller. The shortest submission so far is taken for that cost.
 *
 * Other programs' work makes a time longer, nothing makes it shorter, so shorter times count more.
 */
#include "libclient/layer/duration.h"

#include <stdbool.h>

/* Times of workgroups are kept for so many of them, since one may take less than a ns. */
static const uint64_t groups_unit = 1024;
/* The cost of a submission is believed to be at most this. */
static const uint64_t max_overhead_ns = 50000;

uint64_t duration_hash(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

/* Two entries never mix: each is one word. */
static uint64_t *entry_of(const struct durations *durations, uint64_t key)
{
	return (uint64_t *)&durations->entries[key % DURATION_ENTRIES];
}

static uint64_t look_up(const struct durations *durations, uint64_t key)
{
	const uint64_t entry = __atomic_load_n(entry_of(durations, key), __ATOMIC_RELAXED);

	return key != 0 && entry >> 32 == key >> 32 ? (uint32_t)entry : 0;
}

static void note(struct durations *durations, uint64_t key, uint64_t ns)
{
	const uint64_t old_ns = look_up(durations, key);

	if (key == 0)
		return;
	if (old_ns > 0)
		ns = ns < old_ns ? (ns + old_ns) / 2 : old_ns + (ns - old_ns) / 8;
	if (ns == 0)
		ns = 1;
	if (ns > UINT32_MAX)
		ns = UINT32_MAX;
	__atomic_store_n(entry_of(durations, key), key >> 32 << 32 | ns, __ATOMIC_RELAXED);
}

uint64_t duration_whole_ns(const struct durations *durations, const struct action *action)
{
	uint64_t ns = look_up(durations, action->exact);

	if (ns == 0)
		ns = look_up(durations, action->sized);
	if (ns == 0)
		ns = look_up(durations, action->pipeline) * action->n_groups / groups_unit;
	return ns;
}

uint64_t duration_ns(const struct durations *durations, const struct action *action)
{
	const uint64_t whole_ns = duration_whole_ns(durations, action);
	const uint64_t ns = (uint64_t)((double)whole_ns * (double)action->part);

	return ns == 0 && whole_ns > 0 ? 1 : ns;
}

static void learn(struct durations *durations, const struct action *action, double part_ns)
{
	const double whole_ns = part_ns / (double)action->part;
	const uint64_t ns = whole_ns < UINT32_MAX ? (uint64_t)whole_ns : UINT32_MAX;

	note(durations, action->exact, ns);
	note(durations, action->sized, ns);
	note(durations, action->pipeline, ns * groups_unit / action->n_groups);
}

/* Return the time without the cost of the submission. */
static uint64_t without_overhead(struct durations *durations, uint64_t ns)
{
	uint64_t overhead_ns = __atomic_load_n(&durations->overhead_ns, __ATOMIC_RELAXED);

	if (overhead_ns == 0 || ns < overhead_ns) {
		overhead_ns = ns < max_overhead_ns ? ns : max_overhead_ns;
		__atomic_store_n(&durations->overhead_ns, overhead_ns, __ATOMIC_RELAXED);
	}
	return ns - overhead_ns;
}

void duration_learn(struct durations *durations, const struct series *series, uint64_t ns)
{
	uint64_t expected_ns = 0;
	double factor;

	ns = without_overhead(durations, ns);
	if (series->n == 0 || series->n > DURATION_SERIES_MAX)
		return;
	if (series->n == 1) {
		learn(durations, &series->actions[0], (double)ns);
		return;
	}
	for (uint32_t i = 0; i < series->n; i++)
		expected_ns += duration_ns(durations, &series->actions[i]);
	if (expected_ns == 0)
		return;
	/* A sum says little about its parts, so it corrects them at most by half. */
	factor = (double)ns / (double)expected_ns;
	factor = factor > 2 ? 2 : factor < .5 ? .5 : factor;
	for (uint32_t i = 0; i < series->n; i++) {
		const struct action *action = &series->actions[i];

		learn(durations, action, factor * (double)duration_ns(durations, action));
	}
}
