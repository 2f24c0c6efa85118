#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Times that dispatches and other recorded actions take, learned from measured submissions
 *
 * A table of fixed size: a new action may take the place of an older one, which is then unknown
 * again. Any thread; entries are read and written without locks.
 */
#include <stdbool.h>
#include <stdint.h>

enum {
	DURATION_ENTRIES = 8192,   /* a power of two */
	DURATION_LINE_ENTRIES = 8, /* of a cache line */
	DURATION_MAX_ACTIONS = 32,
	DURATION_MAX_SERIES = 64,
};

/*
 * A table, zeroed at first. The upper 32 bits of an entry are those of its key; then come 31 bits
 * of a time in units of 16 ns, 34 s at most, and a bit that says whether it is sure.
 */
struct durations {
	uint64_t entries[DURATION_ENTRIES]; /* atomic */
};

/*
 * An action, described by hashes from the most to the least specific one. 0: there is none. What is
 * not known under the first is looked up under the second one, and then by workgroups. Actions
 * other than dispatches have only the first.
 */
struct action {
	uint64_t exact;    /* pipeline, grid, push constants: duration_exact() */
	uint64_t sized;    /* pipeline, grid */
	uint64_t pipeline; /* for the time of a workgroup */
	uint32_t n_groups; /* workgroups of the whole dispatch, at least 1 */
	float fraction;    /* of them, that this action dispatches: above 0, at most 1 */
};

/* Actions that were submitted together: the first DURATION_MAX_ACTIONS of them. */
struct series {
	uint64_t expected_ns; /* the time of all that was predicted; 0: not known */
	uint32_t n;           /* in the arrays */
	uint64_t each_ns[DURATION_MAX_ACTIONS]; /* the predicted time of each */
	struct action actions[DURATION_MAX_ACTIONS];
};

/* Mix the bits of @value into a hash. */
static inline uint64_t duration_hash(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

/*
 * Return action.exact of a dispatch. Where it is in the table depends on @line, a hash of its
 * pipeline and push constants, and hardly on action.sized, so that it can be fetched early.
 */
static inline uint64_t duration_exact(uint64_t line, uint64_t sized)
{
	const uint64_t mask = DURATION_ENTRIES - 1, each = DURATION_LINE_ENTRIES - 1;

	return (duration_hash(line, sized) & ~mask) | (line & mask & ~each) | (sized >> 32 & each);
}

/* Fetch what is known of the actions of a line into the cache. */
static inline void duration_fetch(const struct durations *durations, uint64_t line)
{
	__builtin_prefetch(&durations->entries[line % DURATION_ENTRIES]);
}

/*
 * Return the time that the whole dispatch of @action takes, in ns; 0: unknown. *ret_is_sure:
 * measured twice, or exactly; a single time may be that of other programs' work.
 */
uint64_t duration_whole_ns(const struct durations *durations, const struct action *action,
			   bool *ret_is_sure);
/* Return the time of @action itself: its fraction of the whole; 0: unknown. */
uint64_t duration_ns(const struct durations *durations, const struct action *action);

/*
 * Learn that @series took @ns from the end of the work before it to its own end. @is_exact: the
 * device was busy in between; otherwise the time contains the way to the device, and says only that
 * the series does not take longer.
 */
void duration_learn(struct durations *durations, const struct series *series, uint64_t ns,
		    bool is_exact);
