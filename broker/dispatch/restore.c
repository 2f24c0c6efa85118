/* SPDX-License-Identifier: MIT */
/*
 * Rings that an earlier broker made
 *
 * The session has checked the ring's areas and laid the records of unfinished entries, oldest
 * first, into slots 0, 1, ... of the new completion area (session/ring-restore.c). Each of these
 * entries is admitted again before the first entry is consumed from the submission ring. It takes
 * the slot that its record has, so the records hold at any time, also if this broker dies before
 * all are admitted.
 *
 * An entry completes without running if its task was cancelled, or cannot be repeated: it had begun
 * to update states that were not kept (undo-hot.c), or its table has changed. As with an entry that
 * is rejected, the rest of its chain is cancelled.
 */
#include <errno.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/record.h"
#include "dispatch/restore.h"
#include "dispatch/undo.h"
#include "dispatch/validate.h"
#include "shm/ring.h"
#include "util/clock.h"
#include "util/log.h"

/*
 * All restored entries were admitted again. If none of them is of the chain that the next entry
 * continues, that chain's earlier entries have completed.
 */
static void restore_end(struct dispatch_ring *ring)
{
	if (!ring->chain_open) {
		ring->chain_open = ring->restored_chain & RBK_COMMIT_CHAIN_OPEN;
		ring->chain_broken = ring->restored_chain & RBK_COMMIT_CHAIN_BROKEN;
	}
	session_ring_restored(ring->ring);
}

void restore_begin(struct dispatch_ring *ring)
{
	const struct session_ring *session_ring = ring->ring;
	const struct rbk_cq_area *cq = session_ring->cq;

	ring->cq_published = session_ring->cq_tail;
	ring->join.n_taken = session_ring->sq_head;
	if (!session_ring->records)
		return;
	ring->restored_chain = rbk_commit_load(cq, &ring->commit_base);
	ring->join.n_taken = ring->commit_base.sq_head;
	ring->n_restored = session_ring->n_restored;
	if (ring->n_restored == 0)
		restore_end(ring);
}

/* Log a task that is not run again. A client can invent such records, so lines are limited. */
static int give_up(struct dispatch *dispatch, const struct dispatch_ring *ring,
		   const struct rbk_sqe *sqe)
{
	const struct session *session = ring->ring->session;
	const char *tenant = tenant_name(ring->flow->tenant);
	struct session_plan *plan = NULL;
	uint64_t n_unlogged;

	if (!log_limit_pass(&ring->flow->refused_limit, clock_now_ns(), &n_unlogged))
		return -ECONNABORTED;
	if (sqe->opcode == RBK_OP_RUN)
		validate_entry(session, sqe, dispatch->inline_refs, &plan);
	log_warning_of(LOG_OF(.tenant = tenant, .session = session->number, .pid = session->pid,
			      .uid = session->uid),
		       LOG_TASK_GIVEN_UP,
		       "gave up a task of plan \"%s\" (session %u, tenant %s, user_data %llu), "
		       "because brokerd crashed each time that it ran; keep the core dump for a "
		       "report",
		       plan ? plan->plan->name : "", session->number, tenant,
		       (unsigned long long)sqe->user_data);
	return -ECONNABORTED;
}

/* Return: 0 if an entry may run again; the errno with which it completes. */
static int find_obstacle(struct dispatch *dispatch, const struct dispatch_ring *ring,
			 const struct rbk_task_record *record, const struct rbk_sqe *sqe)
{
	/* The client may have made the record: only a RUN has states and a table. */
	const bool had_table = (record->flags & RBK_TASK_TABLE) && (sqe->flags & RBK_SQE_ARG_TABLE);
	const bool has_begun = record->flags & RBK_TASK_BEGUN;
	struct session_plan *plan = NULL;
	int r;

	if (record->flags & RBK_TASK_CANCELLED)
		return -ECANCELED;
	if (record->n_crashes >= DISPATCH_MAX_CRASHES)
		return give_up(dispatch, ring, sqe);
	if (has_begun && !(record->flags & RBK_TASK_UNDO))
		return -ECONNRESET;
	if (!(had_table || has_begun) || sqe->opcode != RBK_OP_RUN)
		return 0;
	r = validate_entry(ring->ring->session, sqe, dispatch->inline_refs, &plan);
	if (r == VALIDATE_E_TABLE)
		return 0;
	/*
	 * The entry is validated again when it is admitted, and the client may change its table in
	 * between. An entry that begins again must have passed the checks below.
	 */
	if (r)
		return has_begun ? -ECONNRESET : 0;
	if (had_table &&
	    record_hash(dispatch->inline_refs, plan->plan->n_bindings) != record->table_hash)
		return -ECONNRESET;
	if (has_begun && undo_units(plan->plan, sqe->count) != record->n_undo)
		return -ECONNRESET;
	return 0;
}

int restore_prepare(struct dispatch *dispatch, struct dispatch_ring *ring,
		    const struct rbk_sqe *sqe, uint64_t *ret_admit_ticks)
{
	const struct rbk_task_record *record = &ring->ring->records[ring->n_readmitted];
	const uint64_t now_ticks = clock_ticks(), now_ns = clock_now_ns();
	/* The slot was touched before if the entry's table was copied meanwhile. */
	struct task *task = ring->n_tasks_touched > ring->n_readmitted
				    ? &ring->tasks[ring->n_readmitted]
				    : task_touch(ring);
	uint64_t age_ticks = 0;

	if (record->admit_ns > 0 && record->admit_ns < now_ns)
		age_ticks = clock_ns_to_ticks(now_ns - record->admit_ns);
	*ret_admit_ticks = now_ticks > age_ticks ? now_ticks - age_ticks : 0;
	task->next = ring->free_tasks;
	ring->free_tasks = task;
	return find_obstacle(dispatch, ring, record, sqe);
}

void restore_refuse(struct dispatch *dispatch, struct dispatch_ring *ring,
		    const struct rbk_sqe *sqe, int res)
{
	const struct outcome outcome = {.res = res, .device = RBK_DEVICE_NONE};

	join_note_failed(ring);
	ring_post(dispatch, ring, sqe->user_data, &outcome);
	ring->chain_last = NULL;
	ring->chain_open = sqe->flags & RBK_SQE_LINK;
	ring->chain_broken = ring->chain_open;
}

void restore_finish(struct dispatch_ring *ring)
{
	struct rbk_task_record *record = &ring->ring->records[ring->n_readmitted];
	const struct task *task = &ring->tasks[ring->n_readmitted];

	if (ring->is_fetching) {
		ring->free_tasks = task->next;
		return;
	}
	/* The entry completed without a task. The batch is published before a task begins. */
	if (ring->free_tasks == task && !(record->flags & RBK_TASK_POSTED)) {
		record_post(ring, record);
		ring->ring->undo_taken &= ~rbk_undo_mask(record->undo_first, record->n_undo);
	}
	if (ring->chain_broken)
		record_break(ring, ring->n_readmitted);
	if (++ring->n_readmitted == ring->n_restored)
		restore_end(ring);
}
