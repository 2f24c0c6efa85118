/* SPDX-License-Identifier: MIT */
/*
 * Times of actions: see duration.h.
 *
 * A measured time contains the device's own cost of a submission, some microseconds, beside parts
 * of hundreds. Slices of a dispatch therefore seem to take a little longer together than the
 * dispatch does.
 */
#include "libclient/layer/duration.h"

/* Times of workgroups are kept for so many of them, since one may take less than a ns. */
static const uint64_t groups_unit = 1024;

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
		ns = old_ns - old_ns / 4 + ns / 4;
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

void duration_learn(struct durations *durations, const struct series *series, uint64_t ns,
		    bool is_exact)
{
	double factor;

	if (series->n == 0 || (!is_exact && series->expected_ns > 0 && ns > series->expected_ns))
		return;
	if (series->n == 1) {
		learn(durations, &series->actions[0], (double)ns);
		return;
	}
	if (series->expected_ns == 0)
		return;
	/*
	 * A sum says little about its parts, so it corrects them at most by half. It corrects the
	 * predictions of which it is the sum: the present ones have been corrected since.
	 */
	factor = (double)ns / (double)series->expected_ns;
	factor = factor > 2 ? 2 : factor < .5 ? .5 : factor;
	for (uint32_t i = 0; i < series->n; i++)
		learn(durations, &series->actions[i], factor * (double)series->each_ns[i]);
}
