/* SPDX-License-Identifier: MIT */
/*
 * Times of actions: see duration.h.
 *
 * A measured time contains the device's own cost of a submission, some microseconds, beside parts
 * of hundreds.
 */
#include "libclient/layer/duration.h"

/* Times of workgroups are kept for so many of them, since one may take less than a ns. */
static const uint64_t groups_unit = 1024;
/* Unit of the times of entries. */
static const uint64_t unit_ns = 16, longest_ns = (1ull << 31) * 16 - 16;

/* Two entries never mix: each is one word. */
static uint64_t *entry_of(const struct durations *durations, uint64_t key)
{
	return (uint64_t *)&durations->entries[key % DURATION_ENTRIES];
}

static uint64_t look_up(const struct durations *durations, uint64_t key, bool *ret_is_sure)
{
	const uint64_t entry = __atomic_load_n(entry_of(durations, key), __ATOMIC_RELAXED);

	*ret_is_sure = entry & 1;
	return key != 0 && entry >> 32 == key >> 32 ? ((uint32_t)entry >> 1) * unit_ns : 0;
}

static void note(struct durations *durations, uint64_t key, uint64_t ns, bool is_exact)
{
	bool was_sure;
	const uint64_t old_ns = look_up(durations, key, &was_sure);

	if (key == 0)
		return;
	if (old_ns > 0 && is_exact && was_sure)
		/* Other programs' work may have been in between. */
		ns = old_ns - old_ns / 4 + (ns < 2 * old_ns ? ns : 2 * old_ns) / 4;
	else if (old_ns > 0 && old_ns < ns)
		ns = old_ns;
	ns = ns < unit_ns ? 1 : ns < longest_ns ? ns / unit_ns : longest_ns / unit_ns;
	__atomic_store_n(entry_of(durations, key),
			 key >> 32 << 32 | ns << 1 | (is_exact || old_ns > 0), __ATOMIC_RELAXED);
}

uint64_t duration_whole_ns(const struct durations *durations, const struct action *action,
			   bool *ret_is_sure)
{
	uint64_t ns = look_up(durations, action->exact, ret_is_sure);

	if (ns == 0)
		ns = look_up(durations, action->sized, ret_is_sure);
	if (ns == 0)
		ns = look_up(durations, action->pipeline, ret_is_sure) / groups_unit *
		     action->n_groups;
	return ns;
}

uint64_t duration_ns(const struct durations *durations, const struct action *action)
{
	bool is_sure;
	const uint64_t whole_ns = duration_whole_ns(durations, action, &is_sure);
	const uint64_t ns = (uint64_t)((double)whole_ns * (double)action->fraction);

	return ns == 0 && whole_ns > 0 ? 1 : ns;
}

/* Return the key of the time of undivided dispatches of this size; 0: none. */
static uint64_t undivided_of(const struct action *action)
{
	return action->sized ? duration_hash(~action->sized, 1) : 0;
}

static void learn(struct durations *durations, const struct action *action, double ns,
		  bool is_exact)
{
	const double whole_ns = ns / (double)action->fraction;
	const uint64_t undivided = undivided_of(action);
	uint64_t all_ns = whole_ns < (double)longest_ns ? (uint64_t)whole_ns : longest_ns;
	uint64_t known_ns, most_ns;
	bool is_sure;

	/*
	 * If other work comes before each submission, smaller slices seem to take longer together:
	 * they would become smaller and smaller. So slices correct a time upwards only up to that
	 * of undivided dispatches. Without that, it would follow the shortest of their times, which
	 * vary, and slices would become longer and longer.
	 */
	if (action->fraction < 1) {
		known_ns = duration_whole_ns(durations, action, &is_sure);
		most_ns = look_up(durations, undivided, &is_sure);
		if (all_ns > known_ns && known_ns >= most_ns)
			return;
		all_ns = all_ns > known_ns && all_ns > most_ns ? most_ns : all_ns;
	} else {
		note(durations, undivided, all_ns, is_exact);
	}
	note(durations, action->exact, all_ns, is_exact);
	note(durations, action->sized, all_ns, is_exact);
	note(durations, action->pipeline, all_ns * groups_unit / action->n_groups, is_exact);
}

void duration_learn(struct durations *durations, const struct series *series, uint64_t ns,
		    bool is_exact)
{
	double factor;

	if (series->n == 1)
		learn(durations, &series->actions[0], (double)ns, is_exact);
	if (series->n < 2 || series->expected_ns == 0 || (!is_exact && ns > series->expected_ns))
		return;
	/*
	 * A sum says little about its parts, so it corrects them at most by half. It corrects the
	 * predictions of which it is the sum: the present ones have been corrected since.
	 */
	factor = (double)ns / (double)series->expected_ns;
	factor = factor > 2 ? 2 : factor < .5 ? .5 : factor;
	for (uint32_t i = 0; i < series->n; i++)
		learn(durations, &series->actions[i], factor * (double)series->each_ns[i],
		      is_exact);
}
