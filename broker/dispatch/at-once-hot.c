/* SPDX-License-Identifier: MIT */
/*
 * Segments of one task that run at once
 *
 * A segment begins as soon as those that it needs (cut_segment.needs) have ended and a slot is
 * free: the task's own, or one of those of its set, which no client and no list of tasks knows. If
 * several segments could begin, the one that begins first in the plan's schedule does
 * (segment-graph-hot.c). The placer then finds the device where it ends first, beside those that
 * have begun, unless the schedule has it elsewhere.
 *
 * If a segment fails, the others are stopped as far as possible, and the task ends when all slots
 * have returned. A CANCEL succeeds if all that have begun can be stopped.
 */
#include <errno.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/segment.h"
#include "place/graph.h"
#include "session/segments.h"
#include "util/number.h"

/* Stop all segments of a task that runs them at once; those that have begun may go on. */
static void stop_all(struct dispatch *dispatch, struct segment_set *set)
{
	for (uint32_t i = 0; i < set->n_slots; i++) {
		struct task *slot = segments_slot(set, i);

		if (slot->phase == TASK_PLACED && !slot->res) {
			slot->res = -ECANCELED;
			runs_stop(dispatch, slot);
		} else if (slot->phase == TASK_WAITING) {
			wait_cancel(slot);
		}
	}
}

struct task *segments_slot_ended(struct dispatch *dispatch, struct task *slot, int *res)
{
	struct segment_set *set = slot->set;

	slot->res = *res;
	/* Segments that were stopped before they began say nothing of the task. */
	if (slot->start_ticks || !set->res)
		segments_add_up(slot);
	slot->phase = TASK_IDLE;
	set->n_busy--;
	if (*res == 0) {
		set->done |= bit_u64(segments_instance(slot));
	} else if (!set->res) {
		set->res = *res;
		stop_all(dispatch, set);
	}
	if (set->res ? set->n_busy > 0 : set->done != segments_all(set))
		return NULL;
	*res = set->res;
	return set->task;
}

struct task *segments_next(struct segment_set *set)
{
	const struct session_segments *segments = set->task->whole->segments;
	struct task *slot = NULL;

	if (set->res || set->n_busy == set->n_slots)
		return NULL;
	/* The first micro-batches go first: they have come furthest. */
	for (uint32_t batch = 0, first = 0; batch < set->n_batches; batch++, first += segments->n)
		for (uint32_t i = 0; i < segments->n; i++) {
			const uint32_t next = segments_in_order(segments, set, i);

			if (set->begun & bit_u64(first + next) ||
			    segments->of[next].cut.needs << first & ~set->done)
				continue;
			for (uint32_t k = 0; !slot || slot->phase != TASK_IDLE; k++)
				slot = segments_slot(set, k);
			segments_describe(slot, next, batch);
			set->begun |= bit_u64(first + next);
			set->n_busy++;
			return slot;
		}
	return NULL;
}

bool segments_cancel(struct dispatch *dispatch, struct task *task, bool is_forced)
{
	struct segment_set *set = task->set;

	if (set->res)
		return is_forced;
	for (uint32_t i = 0; i < set->n_slots && !is_forced; i++) {
		struct task *slot = segments_slot(set, i);

		if (slot->phase == TASK_PLACED && !runs_may_stop(dispatch, slot))
			return false;
	}
	set->res = -ECANCELED;
	stop_all(dispatch, set);
	return true;
}
