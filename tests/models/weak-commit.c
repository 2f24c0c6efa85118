/* SPDX-License-Identifier: MIT */
/*
 * dispatch/record.h, dispatch/complete-hot.c and shm/ring.h: a broker records, commits and
 * publishes two entries, while another thread reads its completion area as the next broker would.
 * An index that is published is committed, and records and completions that are committed are
 * complete.
 *
 * A broker that was killed stores nothing more, and the kernel orders its end before what others
 * learn of it. The reader here has no such order, and may read at any moment. So the slots of tasks
 * are not used again: only a dead broker's records may be read then.
 */
#include <stdalign.h>
#include <string.h>

#include "dispatch/record.h"
#include "models/weak-memory.h"
#include "models/weak-scenarios.h"
#include "shm/ring.h"

enum { N_ENTRIES = 2, FIRST_DATA = 100 };

static alignas(128) char cq_bytes[RBK_CQ_REATTACH_BYTES(N_ENTRIES)];
static struct rbk_cq_area *const cq = (struct rbk_cq_area *)cq_bytes;
static struct rbk_sq_area sq;
static struct dispatch dispatch;
static struct session_ring session_ring;
static struct dispatch_ring ring;
static struct task tasks[N_ENTRIES];

unsigned int weak_commit_seen;

void turn_queue_submit(struct turn_queue *queue, struct turn_owner *owner, struct turn_job *job)
{
	weak_check(!"the client does not sleep");
}

static void set_up(void)
{
	memset(cq_bytes, 0, sizeof(cq_bytes));
	session_ring = (struct session_ring){
		.sq = &sq,
		.cq = cq,
		.records = rbk_ring_records(cq, N_ENTRIES),
		.mask = N_ENTRIES - 1,
	};
	ring = (struct dispatch_ring){.ring = &session_ring, .tasks = tasks};
	for (unsigned int i = 0; i < N_ENTRIES; i++)
		tasks[i] = (struct task){.ring = &ring};
}

/* Take an entry as admit_entry() does. */
static void take(unsigned int i)
{
	const struct rbk_sqe sqe = {.user_data = FIRST_DATA + i};

	session_ring.sq_head++;
	record_take(&tasks[i], &sqe, NULL, 0);
}

/* Complete a task as ring_post() and task_complete() do. */
static void complete(unsigned int i)
{
	cq->cqes[session_ring.cq_tail++ & session_ring.mask].user_data = FIRST_DATA + i;
	record_post(&ring, record_of(&tasks[i]));
}

static void serve(void)
{
	take(0);
	ring_publish(&dispatch, &ring);
	take(1);
	complete(0);
	ring_publish(&dispatch, &ring);
}

/* Check the record of a committed entry. Return: whether it is live. */
static bool look_at_record(unsigned int i, const struct rbk_commit *commit)
{
	const struct rbk_task_record *record = &session_ring.records[i];

	weak_check(__atomic_load_n(&record->flags, __ATOMIC_ACQUIRE) & RBK_TASK_TAKEN);
	weak_check(record->sqe.user_data == FIRST_DATA + i);
	return rbk_record_is_live(record, commit);
}

static void take_over(void)
{
	const uint32_t sq_head = rbk_ring_observe(&cq->sq_head);
	const uint32_t cq_tail = rbk_ring_observe(&cq->cq_tail);
	struct rbk_commit commit;

	rbk_commit_load(cq, &commit);
	weak_commit_seen |= 1u << commit.sq_head;
	weak_check(commit.sq_head >= sq_head && commit.cq_tail >= cq_tail);
	for (unsigned int i = 0; i < commit.sq_head; i++)
		weak_check(look_at_record(i, &commit) == (i >= commit.cq_tail));
	for (unsigned int i = 0; i < commit.cq_tail; i++)
		weak_check(cq->cqes[i].user_data == FIRST_DATA + i);
}

const struct weak_scenario weak_commit = {
	.name = "commit",
	.n_threads = 2,
	.names =
		(const struct weak_name[]){
			{&cq_bytes[offsetof(struct rbk_cq_area, commit)], "commit"},
			{&cq_bytes[offsetof(struct rbk_cq_area, sq_head)], "sq_head"},
			{&cq_bytes[offsetof(struct rbk_cq_area, cq_tail)], "cq_tail"},
			{NULL, NULL}},
	.set_up = set_up,
	.threads = {serve, take_over},
};
