/* SPDX-License-Identifier: MIT */
/*
 * Joins: entries that wait for several earlier ones of their ring (RBK_SQE_AFTER)
 *
 * An entry names its predecessors by distance. Those that are in flight get an edge to its task,
 * which is held until the last of them has completed. The others have completed, and only their
 * failures are remembered, so that entries which name none cost next to nothing: one array has the
 * slot of the last task of each index, modulo the ring's entries, another the last index that
 * failed (abi.h). A distance never exceeds the number of entries, so both are exact.
 *
 * Any number of tasks may wait for one. Its completion only moves its edges to the ring's circle of
 * ended ones. The turn visits these in batches, ring by ring (join_next()); a task's last edge
 * starts it.
 *
 * The failures lie in the completion area if the ring outlives this broker: the next one admits an
 * entry again, and looks at its predecessors again. Others may have replaced their failures in the
 * meantime, so the waiting task's record tells of them. It does so when the turn visits the edge.
 * Until then the record of the task that failed tells, so its slot stays taken.
 */
#include <errno.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/record.h"
#include "shm/ring.h"
#include "util/clock.h"

uint64_t join_entry_index(const struct dispatch_ring *ring)
{
	if (__builtin_expect(ring_is_restoring(ring), 0))
		return ring->ring->records[ring->n_readmitted].sq_index;
	/* An entry whose table was copied is of an earlier batch. */
	return rbk_commit_index(ring->join.n_taken, ring->ring->sq_head - 1, 32);
}

uint32_t join_most_distance(const struct dispatch_ring *ring, uint64_t index)
{
	return index < ring->ring->n_entries ? (uint32_t)index : ring->ring->n_entries;
}

/* Return the place that remembers the failure of an entry. */
static uint64_t *join_failed(const struct dispatch_ring *ring, uint64_t index)
{
	return &ring->join.failed[index & (2 * (uint64_t)ring->ring->n_entries - 1)];
}

/* Return true if an entry that has completed, and that the entry being admitted names, failed. */
static bool has_failed(const struct dispatch_ring *ring, uint64_t index)
{
	const struct rbk_task_record *record;

	if (*join_failed(ring, index) == index + 1)
		return true;
	/* A failure of this broker may lack there: the other entry may be far from the last one. */
	if (!__builtin_expect(ring_is_restoring(ring), 0))
		return false;
	record = &ring->ring->records[ring->join.slots[index & ring->ring->mask]];
	return record->sq_index == index && (record->flags & RBK_TASK_FAILED);
}

int join_find(const struct dispatch_ring *ring, const struct rbk_sqe *sqe, struct join *ret)
{
	const uint64_t index = join_entry_index(ring);
	const uint32_t most = join_most_distance(ring, index);
	struct task *task;
	uint64_t named;

	ret->n = 0;
	ret->is_failed = __builtin_expect(ring_is_restoring(ring), 0) &&
			 (ring->ring->records[ring->n_readmitted].flags & RBK_TASK_AFTER_FAILED);
	for (unsigned int i = 0; i < RBK_SQE_AFTER_MAX; i++) {
		if (sqe->after[i] == 0)
			continue;
		if (sqe->after[i] > most)
			return -EINVAL;
		named = index - sqe->after[i];
		task = &ring->tasks[ring->join.slots[named & ring->ring->mask]];
		if (task->join.end == named + 1)
			ret->tasks[ret->n++] = task;
		else if (has_failed(ring, named))
			ret->is_failed = true;
	}
	return 0;
}

void join_take(struct task *task)
{
	const struct dispatch_ring *ring = task->ring;
	const uint64_t index = join_entry_index(ring);

	task->join = (struct join_task){.end = index + 1};
	ring->join.slots[index & ring->ring->mask] = (uint16_t)(task - ring->tasks);
}

/* Record that an entry which @task names has failed. This must be committed by then. */
static void record_after_failed(const struct task *task)
{
	struct rbk_task_record *record;

	if (!task->ring->ring->records || task->ring->ring->is_closing)
		return;
	record = record_of(task);
	record_set_flags(record, record->flags | RBK_TASK_AFTER_FAILED);
}

void join_wait(struct task *task, const struct join *join)
{
	struct dispatch_ring *ring = task->ring;
	const uint32_t first = (uint32_t)(task - ring->tasks) * RBK_SQE_AFTER_MAX;
	uint32_t *edges = ring->join.edges;

	for (uint32_t i = 0; i < join->n; i++) {
		uint32_t *circle = &join->tasks[i]->join.followers;
		const uint32_t edge = first + i;

		edges[edge] = *circle ? edges[*circle - 1] : edge;
		if (*circle)
			edges[*circle - 1] = edge;
		*circle = edge + 1;
	}
	task->join.n_awaited = (uint8_t)join->n;
	if (!join->is_failed)
		return;
	task->is_cancelled = true;
	/* A new entry is committed with all completions before it; a restored one is already. */
	if (ring_is_restoring(ring) && !ring->ring->is_closing)
		ring_commit(ring, ring_sq_head(ring));
	record_after_failed(task);
}

static void note_failed(struct dispatch_ring *ring, uint64_t index)
{
	uint64_t *failed = join_failed(ring, index);

	/* An earlier entry may fail later. */
	if (*failed < index + 1)
		*failed = index + 1;
}

void join_note_failed(struct dispatch_ring *ring)
{
	const uint64_t index = join_entry_index(ring);
	struct rbk_task_record *record;

	note_failed(ring, index);
	if (!__builtin_expect(ring_is_restoring(ring), 0))
		return;
	record = &ring->ring->records[ring->n_readmitted];
	record_set_flags(record, record->flags | RBK_TASK_FAILED);
	ring->join.slots[index & ring->ring->mask] = (uint16_t)ring->n_readmitted;
}

/* Move the edges of a circle to the end of another one. */
static void join_circles(uint32_t *edges, uint32_t *to, uint32_t from)
{
	uint32_t first;

	if (*to) {
		first = edges[*to - 1];
		edges[*to - 1] = edges[from - 1];
		edges[from - 1] = first;
	}
	*to = from;
}

void join_complete(struct dispatch *dispatch, struct task *task, int res)
{
	struct join_ring *join = &task->ring->join;
	struct rbk_task_record *record;

	if (res < 0) {
		note_failed(task->ring, task->join.end - 1);
		if (task->ring->ring->records) {
			record = record_of(task);
			record_set_flags(record, record->flags | RBK_TASK_FAILED);
		}
	}
	task->join.end = 0;
	if (!task->join.followers)
		return;
	join_circles(join->edges, &join->ended[res < 0], task->join.followers);
	if (list_is_empty(&join->link))
		list_append(&dispatch->joining, &join->link);
}

bool join_keeps_slot(const struct task *task, int res)
{
	return res < 0 && task->join.followers && task->ring->ring->records;
}

void join_keep_slot(struct task *task)
{
	struct join_ring *join = &task->ring->join;

	task->next = join->kept;
	if (!join->kept)
		join->kept_last = task;
	join->kept = task;
	join->n_kept++;
}

/* All edges to tasks that have failed were visited. Entries may wait for the slots. */
static void free_kept(struct dispatch *dispatch, struct dispatch_ring *ring)
{
	struct join_ring *join = &ring->join;

	task_free(ring, join->kept, join->kept_last, join->n_kept);
	join->kept = NULL;
	join->n_kept = 0;
	ring_mark_dirty(dispatch, ring);
}

/* Take the first edge out of a circle. */
static uint32_t take_edge(uint32_t *edges, uint32_t *circle)
{
	const uint32_t last = *circle - 1, first = edges[last];

	edges[last] = edges[first];
	if (first == last)
		*circle = 0;
	return first;
}

struct task *join_next(struct dispatch *dispatch)
{
	struct dispatch_ring *ring =
		container_of(dispatch->joining.next, struct dispatch_ring, join.link);
	struct join_ring *join = &ring->join;
	const bool is_failed = join->ended[1] != 0;
	const uint32_t edge = take_edge(join->edges, &join->ended[is_failed]);
	struct task *task = &ring->tasks[edge / RBK_SQE_AFTER_MAX];

	/* Rings take turns. */
	list_remove(&join->link);
	if (join->ended[0] || join->ended[1])
		list_append(&dispatch->joining, &join->link);

	if (is_failed) {
		task->is_cancelled = true;
		if (ring->ring->records && !ring->ring->is_closing)
			ring_commit(ring, ring_sq_head(ring));
		record_after_failed(task);
		if (!join->ended[1] && join->kept)
			free_kept(dispatch, ring);
	}
	if (--task->join.n_awaited > 0 || task->join.is_chained)
		return NULL;
	/* The task may overwrite what its predecessors have read. */
	if (!task->is_cancelled && ring->ring->records && !ring->ring->is_closing)
		ring_commit(ring, ring_sq_head(ring));
	return task;
}
