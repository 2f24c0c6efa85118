/* SPDX-License-Identifier: MIT */
/*
 * Walks over all tasks in flight, a few in each turn
 *
 * Clients decide how many tasks are in flight. So code that must visit all tasks does so in
 * batches, one per turn, as far as the turn's budget allows, while tasks come and go.
 *
 * A walk remembers the next task by its ring and its slot, which stay where they are. A ring that
 * is freed is skipped. New rings are appended to the list; a walk visits no more rings than there
 * were when it began, so that no client keeps it going. A task that is in flight from the beginning
 * of a walk to its end is visited exactly once.
 */
#include "dispatch/dispatch-private.h"
#include "dispatch/segment.h"

enum {
	/* Steps of one walk in one turn */
	WALK_BATCH = 128,
	/* Each walk gets at least 1 / WALK_PART of a turn's budget. */
	WALK_PART = 8,
};

static void go_to_ring(const struct dispatch *dispatch, struct walk *walk,
		       const struct list_node *node)
{
	walk->slot = 0;
	walk->ring = node == &dispatch->rings || walk->n_rings == 0
			     ? NULL
			     : container_of(node, struct dispatch_ring, link);
}

static void leave_ring(const struct dispatch *dispatch, struct walk *walk)
{
	walk->n_rings--;
	go_to_ring(dispatch, walk, walk->ring->link.next);
}

void walk_begin(const struct dispatch *dispatch, struct walk *walk)
{
	walk->n_rings = dispatch->n_rings;
	go_to_ring(dispatch, walk, dispatch->rings.next);
}

bool walk_next(const struct dispatch *dispatch, struct walk *walk, struct task **ret)
{
	const struct dispatch_ring *ring = walk->ring;
	struct task *task;

	*ret = NULL;
	if (!ring)
		return false;
	if (walk->slot >= ring->n_tasks_touched) {
		leave_ring(dispatch, walk);
		return true;
	}
	task = &ring->tasks[walk->slot++];
	/* A free slot keeps the phase of its last task. */
	if (!list_is_empty(&task->link) && (task->phase == TASK_PLACED || segments_at_once(task)))
		*ret = task;
	return true;
}

unsigned int walk_slice(struct dispatch *dispatch, uint8_t which,
			bool (*step)(struct dispatch *dispatch))
{
	const uint64_t stop_ticks = turn_stop_ticks(dispatch->turn, WALK_PART);
	unsigned int n = 0;

	dispatch->now_ticks = clock_ticks();
	while (n < WALK_BATCH && step(dispatch)) {
		n++;
		if (turn_used_ticks(dispatch->turn) >= stop_ticks)
			return n;
	}
	if (n < WALK_BATCH)
		dispatch->walking &= (uint8_t)~which;
	return n;
}

static void pass_ring(const struct dispatch *dispatch, struct walk *walk,
		      const struct dispatch_ring *ring)
{
	if (walk->ring == ring)
		leave_ring(dispatch, walk);
}

void walks_ring_freed(struct dispatch *dispatch, const struct dispatch_ring *ring)
{
	pass_ring(dispatch, &dispatch->replace.walk, ring);
	pass_ring(dispatch, &dispatch->look.walk, ring);
}
