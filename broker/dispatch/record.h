#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Records of unfinished tasks, for the broker after this one (RBK_FEAT_REATTACH)
 *
 * The broker may die between any two instructions. What it has written into a completion area
 * before is all that the next broker knows; abi.h says how the next broker reads it. Four rules
 * keep that true at each instruction:
 *
 * - A commit is one store of a word, after all that belongs to it: records of the entries that took
 *   a slot, and completions. Both indices are published only after that, so that the client
 *   overwrites no entry, and reads no completion, that is not committed. Entries that completed at
 *   once thereby cost no store of their own.
 * - A record whose completion is not committed is still live, so its slot is not used again before
 *   the next commit: work_on_tasks(), which completes tasks, publishes before the next entry is
 *   admitted. A slot that one batch takes, leaves and takes again needs no commit, because its
 *   entries are not committed themselves.
 * - An entry of a chain starts after the completion of its predecessor is committed: it may
 *   overwrite what the predecessor has read.
 *   A failure is committed together with the cancellations of the tasks that wait for it: a task
 *   whose predecessor has left would start.
 * - A record says that its task has begun to update states (RBK_TASK_BEGUN) only after they were
 *   copied (undo-hot.c), and the copy stays until the task's completion is committed.
 *
 * Stores of a process that was killed become visible in their order or not at all, so an order of
 * the compiler would suffice; the release stores say what is meant.
 */
#include "dispatch/dispatch-private.h"
#include "shm/ring.h"

/* The record of a task's slot. The ring must have records. */
static inline struct rbk_task_record *record_of(const struct task *task)
{
	return &task->ring->ring->records[task - task->ring->tasks];
}

/* Return an index that counts from the ring's set-up, given its lower half, and one before it. */
static inline uint64_t record_index(uint64_t base, uint32_t index)
{
	return base + (uint32_t)(index - (uint32_t)base);
}

/* Return true while entries of the broker before are still to be admitted again. */
static inline bool ring_is_restoring(const struct dispatch_ring *ring)
{
	return ring->n_readmitted < ring->n_restored;
}

static inline void record_set_flags(struct rbk_task_record *record, uint32_t flags)
{
	__atomic_store_n(&record->flags, flags, __ATOMIC_RELEASE);
}

/* Move the base of the committed indices to them: see RBK_COMMIT_CQ_SHIFT in abi.h. */
void ring_move_base(struct dispatch_ring *ring, uint32_t sq_head, uint32_t cq_tail);

/*
 * Return the index of the first entry that is not consumed: one whose table is being copied has
 * neither a completion nor a task, unless it has a restored record.
 */
static inline uint32_t ring_sq_head(const struct dispatch_ring *ring)
{
	return ring->ring->sq_head - (ring->is_fetching && !ring_is_restoring(ring));
}

/*
 * Commit all completions so far, and the entries before @sq_head. While entries are being restored,
 * the chain's state is still the one that the broker before left.
 */
static inline void ring_commit(struct dispatch_ring *ring, uint32_t sq_head)
{
	const uint32_t cq_tail = ring->ring->cq_tail, most = 1u << 28;
	const struct rbk_commit *base = &ring->commit_base;
	uint64_t chain = ring->chain_open * RBK_COMMIT_CHAIN_OPEN |
			 ring->chain_broken * RBK_COMMIT_CHAIN_BROKEN;

	if (__builtin_expect(ring_is_restoring(ring), 0))
		chain = ring->restored_chain;
	__atomic_store_n(&ring->ring->cq->commit, rbk_commit_word(sq_head, cq_tail, chain),
			 __ATOMIC_RELEASE);
	if (__builtin_expect(sq_head - (uint32_t)base->sq_head >= most ||
				     cq_tail - (uint32_t)base->cq_tail >= most,
			     0))
		ring_move_base(ring, sq_head, cq_tail);
}

/* Return a hash of a task's references: FNV-1a, whole words at a time. */
static inline uint64_t record_hash(const struct exec_ref *refs, uint32_t n)
{
	uint64_t hash = 0xcbf29ce484222325u;
	const struct session_arena *arena;

	for (uint32_t i = 0; i < n; i++) {
		arena = container_of(refs[i].arena, struct session_arena, exec);
		hash = (hash ^ RBK_REF(arena->id, refs[i].offset)) * 0x100000001b3u;
	}
	return hash;
}

/* The task of @record is admitted again: its states, if it had begun, stay where they are. */
static inline void record_resume(struct task *task, const struct rbk_task_record *record)
{
	task->is_suspect = record->n_crashes > 0;
	task->ring->dispatch->n_suspects += task->is_suspect;
	if (!(record->flags & RBK_TASK_UNDO))
		return;
	task->undo_first = (uint8_t)record->undo_first;
	task->n_undo = (uint8_t)record->n_undo;
	task->is_rerun = true;
}

/*
 * Record that the last entry taken from the submission ring has the slot of @task. The index comes
 * first: from then on the record is not live, and belongs to no committed entry.
 */
static inline void record_take(struct task *task, const struct rbk_sqe *sqe,
			       const struct exec_ref *refs, uint32_t n_refs)
{
	const struct dispatch_ring *ring = task->ring;
	struct rbk_task_record *record = record_of(task);
	uint32_t flags = RBK_TASK_TAKEN;

	if (ring_is_restoring(ring)) {
		record_resume(task, record);
		return;
	}
	__atomic_store_n(&record->sq_index,
			 record_index(ring->commit_base.sq_head, ring->ring->sq_head - 1),
			 __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	task->is_suspect = false;
	record->n_crashes = 0;
	record->sqe = *sqe;
	record->admit_ns = sqe->deadline_us ? clock_now_ns() : 0;
	if (sqe->flags & RBK_SQE_ARG_TABLE) {
		record->table_hash = record_hash(refs, n_refs);
		flags |= RBK_TASK_TABLE;
	}
	record_set_flags(record, flags);
}

/*
 * @successor, which waits for a task that has failed, will not start. This is committed with the
 * failure: otherwise the next broker would find @successor without a predecessor, and start it.
 */
static inline void record_end_chain(const struct task *successor, const struct task *failed)
{
	struct rbk_task_record *record = record_of(successor);

	record->cancel_index = record_of(failed)->sq_index;
	record_set_flags(record, record->flags | RBK_TASK_CANCELLED);
}

/*
 * The restored entry of record @i failed. The rest of its chain will not start, which is committed
 * with the failure: the next record's task if it was not admitted yet, or the entries after the
 * records.
 */
static inline void record_break(struct dispatch_ring *ring, uint32_t i)
{
	struct rbk_task_record *records = ring->ring->records;

	if (!(records[i].sqe.flags & RBK_SQE_LINK))
		return;
	if (i + 1 == ring->n_restored)
		ring->restored_chain |= RBK_COMMIT_CHAIN_BROKEN;
	if (i + 1 >= ring->n_restored || i + 1 < ring->n_readmitted ||
	    (records[i + 1].flags & RBK_TASK_CANCELLED))
		return;
	records[i + 1].cancel_index = records[i].sq_index;
	record_set_flags(&records[i + 1], records[i + 1].flags | RBK_TASK_CANCELLED);
}

/* Record that the last completion that was posted is that of @record. */
static inline void record_post(const struct dispatch_ring *ring, struct rbk_task_record *record)
{
	record->cq_index = record_index(ring->commit_base.cq_tail, ring->ring->cq_tail - 1);
	record_set_flags(record, record->flags | RBK_TASK_POSTED);
}
