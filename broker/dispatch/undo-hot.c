/* SPDX-License-Identifier: MIT */
/*
 * States as they were before tasks that update them
 *
 * A task that has begun to update a state cannot simply run again when the broker dies: the state
 * may be updated, or half of it. So the thread that begins the task first copies its states into
 * the ring's completion area, which outlives the broker, and only then marks the task's record
 * (RBK_TASK_UNDO). The next broker does the same in reverse: the thread that begins the task again
 * writes the states back. If that broker dies, too, at any moment, the copy is still what it was.
 *
 * The copy is needed until the task's completion is committed. Its units are then free for other
 * tasks, so undo_release() commits before it frees them.
 *
 * Without room for its states a task begins all the same, and completes with -ECONNRESET if the
 * broker dies: waiting for room could wait for a task that waits for this one. The room is small,
 * because a copy takes time as well: a task that reads and writes a state once is slowed by up to
 * the half.
 *
 * The states of a plan that is cut are copied, or written back, once for all of its segments: when
 * the first segment with states begins.
 *
 * A record's flags have one writer at a time: the reactor before the task is given to an executor
 * and after it was taken back, the executor's thread when the task begins. In between the reactor
 * writes the flags of a cancelled task only, and such a task has not begun to update states.
 */
#include <assert.h>
#include <string.h>

#include "dispatch/record.h"
#include "dispatch/segment.h"
#include "dispatch/undo.h"

/* Return the bytes of binding @i that a task of @count rows updates in place; 0: it is no state. */
static inline uint64_t state_bytes(const struct plan *plan, uint32_t i, uint32_t count)
{
	const struct plan_binding *binding = &plan->bindings[i];

	if (plan->tensors[binding->tensor].kind != RBK_TENSOR_STATE)
		return 0;
	return binding->fixed_bytes + binding->row_bytes * count;
}

static inline uint64_t aligned(uint64_t bytes)
{
	return (bytes + RBK_REF_ALIGN - 1) & ~(uint64_t)(RBK_REF_ALIGN - 1);
}

uint64_t undo_units(const struct plan *plan, uint32_t count)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < plan->n_bindings; i++)
		bytes += aligned(state_bytes(plan, i, count));
	return (bytes + RBK_UNDO_UNIT_BYTES - 1) / RBK_UNDO_UNIT_BYTES;
}

/* Copy the states of a task into its units, or write them back. */
static void copy_states(const struct task *task, bool back)
{
	const struct whole_run whole = segments_whole(task);
	uint8_t *kept = task->ring->ring->undo + (size_t)task->undo_first * RBK_UNDO_UNIT_BYTES;
	const uint8_t *end = kept + (size_t)task->n_undo * RBK_UNDO_UNIT_BYTES;
	uint64_t bytes;
	uint8_t *state;

	for (uint32_t i = 0; i < whole.plan->n_bindings; i++) {
		bytes = state_bytes(whole.plan, i, whole.count);
		state = whole.refs[i].arena->base + whole.refs[i].offset;
		/* find_obstacle() compares what a client's record claims. */
		assert(bytes <= (uint64_t)(end - kept));
		if (bytes > 0)
			memcpy(back ? state : kept, back ? kept : state, bytes);
		kept += aligned(bytes);
	}
}

/* The task begins: for exec_task.on_begin. */
static void keep_states(struct exec_task *exec)
{
	struct task *task = container_of(exec, struct run, exec)->task;
	struct rbk_task_record *record = record_of(task);
	uint32_t flags = record->flags | RBK_TASK_BEGUN;

	if (task->is_rerun) {
		if (!task->is_undone)
			copy_states(task, true);
		task->is_undone = true;
		return;
	}
	/* An earlier segment had begun. */
	if (flags == record->flags)
		return;
	if (task->n_undo > 0) {
		copy_states(task, false);
		flags |= RBK_TASK_UNDO;
	}
	record_set_flags(record, flags);
}

/* Return the first of @n neighbouring bits of @mask; 64: there are none. */
static unsigned int find_bits(uint64_t mask, unsigned int n)
{
	/* Bit i stands for @n_seen bits from i on. */
	for (unsigned int n_seen = 1, more; n_seen < n; n_seen += more) {
		more = n_seen < n - n_seen ? n_seen : n - n_seen;
		mask &= mask >> more;
	}
	return mask ? (unsigned int)__builtin_ctzll(mask) : 64;
}

/* Take units for the states of a task, if there is room for them. */
static void take_units(struct task *task)
{
	struct session_ring *ring = task->ring->ring;
	struct rbk_task_record *record = record_of(task);
	const struct whole_run whole = segments_whole(task);
	const uint64_t n = undo_units(whole.plan, whole.count);
	unsigned int first = 64;

	if (n > 0 && n <= RBK_UNDO_UNITS)
		first = find_bits(~ring->undo_taken, (unsigned int)n);
	if (first == 64)
		return;
	ring->undo_taken |= rbk_undo_mask(first, (unsigned int)n);
	record->undo_first = task->undo_first = (uint8_t)first;
	record->n_undo = task->n_undo = (uint8_t)n;
}

void undo_prepare(struct run *run)
{
	struct task *task = run->task;
	const struct session_ring *ring = task->ring->ring;

	if (!ring->records)
		return;
	run->exec.on_begin = keep_states;
	if (ring->undo && task->n_undo == 0 && !(record_of(task)->flags & RBK_TASK_BEGUN))
		take_units(task);
}

void undo_release(struct task *task)
{
	struct dispatch_ring *ring = task->ring;

	/* The record of a task on a closing ring stays live, and the next broker needs its units.
	 */
	if (ring->ring->is_closing)
		return;
	ring_commit(ring, ring_sq_head(ring));
	ring->ring->undo_taken &= ~rbk_undo_mask(task->undo_first, task->n_undo);
	task->n_undo = 0;
	task->is_rerun = task->is_undone = false;
}
