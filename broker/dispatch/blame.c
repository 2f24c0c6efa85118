/* SPDX-License-Identifier: MIT */
/*
 * Tasks that crash brokers
 *
 * A task that crashes brokerd would be run again by each next broker. So a crash leaves a mark in
 * the records of the tasks that may be the reason, and the next brokers give up a task that has
 * DISPATCH_MAX_CRASHES marks. A broker that is killed leaves none: the tasks of its clients are
 * innocent, however often that happens.
 *
 * A thread of the CPU's executor that crashes computes one task, which gets the mark. A thread of a
 * driver says nothing about tasks. Then all tasks that devices have begun are suspects: with one
 * mark, the next broker has a device begin them while no device has another task (run-hot.c). The
 * second mark is only for a task that is the sole one, so it is the culprit's: tasks that ran
 * beside it, of whatever tenant, complete.
 *
 * An entry during whose admission the reactor crashes, such as a task that runs inline, has no
 * record yet. Its index is left, and the next broker makes a record of it (session/ring-restore.c).
 *
 * Client's areas are not believed, and a client may put marks into its own: its tasks then fail, or
 * run alone. The tenant of a suspect is charged for the time in which it keeps devices idle, so
 * that it runs in its share of the device's time.
 */
#include "dispatch/dispatch-private.h"
#include "dispatch/record.h"
#include "dispatch/segment.h"

AT_A_CRASH static const struct list_node *next_ring(const struct dispatch *dispatch,
						    const struct list_node *node)
{
	return node->next == node ? &dispatch->rings : node->next;
}

/* Return true if a run may be one that a device computes now. */
AT_A_CRASH static bool is_begun(const struct run *run)
{
	const uint8_t state = atomic_load_explicit(&run->exec.state, memory_order_relaxed);

	return !run->is_over && run->place.decision.device != RBK_DEVICE_CPU &&
	       (state == EXEC_RUNNING || state == EXEC_STOPPING);
}

/* Return true if a slot's runs may be the culprit; @culprit is NULL if it is not known. */
AT_A_CRASH static bool is_suspect_slot(const struct task *task, const struct exec_task *culprit)
{
	const struct half *half = task->half;

	if (culprit)
		return culprit == &task->run.exec || (half && culprit == &half->run.exec);
	return task->opcode == RBK_OP_RUN && task->phase == TASK_PLACED &&
	       (is_begun(&task->run) || (half && is_begun(&half->run)));
}

AT_A_CRASH static bool is_suspect(struct task *task, const struct exec_task *culprit)
{
	const struct task *slot;

	for (uint32_t i = 0; (slot = task_slot(task, i)); i++)
		if (is_suspect_slot(slot, culprit))
			return true;
	return false;
}

/*
 * Visit all suspects, and mark them if @marks. While the other threads go on, lists may change: the
 * slots of rings stay, and those of a plan's segments while tasks have them. Return: the number of
 * suspects.
 */
AT_A_CRASH static unsigned int visit(const struct dispatch *dispatch,
				     const struct exec_task *culprit, bool marks, bool is_sole)
{
	unsigned int n = 0;

	for (const struct list_node *node = dispatch->rings.next; node != &dispatch->rings;
	     node = next_ring(dispatch, node)) {
		const struct dispatch_ring *ring = container_of(node, struct dispatch_ring, link);
		struct rbk_task_record *records = ring->ring->records;

		for (uint32_t i = 0; records && i < ring->n_tasks_touched; i++) {
			if (!is_suspect(&ring->tasks[i], culprit))
				continue;
			n++;
			if (marks && (is_sole || records[i].n_crashes == 0))
				__atomic_store_n(&records[i].n_crashes, records[i].n_crashes + 1,
						 __ATOMIC_RELEASE);
		}
	}
	return n;
}

/* Mark the entry that is being admitted. */
AT_A_CRASH static void blame_entry(struct dispatch_ring *ring)
{
	struct session_ring *session_ring = ring->ring;
	struct rbk_task_record *record;

	if (!session_ring->records)
		return;
	if (ring_is_restoring(ring)) {
		record = &session_ring->records[ring->n_readmitted];
		__atomic_store_n(&record->n_crashes, record->n_crashes + 1, __ATOMIC_RELEASE);
	} else {
		__atomic_store_n(&session_ring->cq->crash_end,
				 record_index(ring->commit_base.sq_head, session_ring->sq_head),
				 __ATOMIC_RELEASE);
	}
}

/* Return the ring of which the reactor admits an entry, if that is the culprit; otherwise NULL. */
AT_A_CRASH static struct dispatch_ring *find_ring(const struct dispatch *dispatch,
						  const void *culprit)
{
	struct dispatch_ring *ring;

	for (const struct list_node *node = dispatch->rings.next; node != &dispatch->rings;
	     node = next_ring(dispatch, node)) {
		ring = container_of(node, struct dispatch_ring, link);
		if (ring == culprit)
			return ring;
	}
	return NULL;
}

AT_A_CRASH void dispatch_blame(void *context, const void *culprit)
{
	const struct dispatch *dispatch = context;
	struct dispatch_ring *ring = find_ring(dispatch, culprit);

	if (ring) {
		blame_entry(ring);
		return;
	}
	visit(dispatch, culprit, true, visit(dispatch, culprit, false, false) == 1);
}
