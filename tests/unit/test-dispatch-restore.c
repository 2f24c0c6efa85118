/* SPDX-License-Identifier: MIT */
/*
 * Rings that an earlier broker made: what a broker that dies leaves, and what the next one makes of
 * it.
 *
 * Each test has two brokers with the same objects. The first one dies at some moment: its areas are
 * copied, and the second one restores a ring from the copies. In the tests that step, the first
 * broker is a process that executes one instruction at a time, and dies after each one that changes
 * its completion area.
 */
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loop/loop.h"
#include "shm/ring.h"
#include "support/scaled.h"
#include "support/test.h"
#include "unit/restore-bench.h"

enum { LINK = RBK_SQE_LINK, TABLE_OFFSET = 16384, MAX_USER_DATA = 32 };

static uint64_t n_committed[4];

/* --- exactly once --- */

TEST(test_restore__every_kind_of_entry)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;

	put_run(first, first->queued, 1, 0);
	put_bare(first, RBK_OP_NOP, 2, 0);
	put_run(first, first->queued, 3, LINK);
	put_run(first, first->queued, 4, 0);
	put_run(first, first->tiny, 5, 0);
	put_run(first, first->queued, 6, 0);
	put_bare(first, RBK_OP_BARRIER, 7, 0);
	put_bare(first, RBK_OP_NOP, 8, 0);
	rig_work(&first->rig);
	finish(first, first->cpu, 6, -EIO);
	expect_cqe(first, 2, 0);

	die(&brokers);
	/* Completions that were not consumed are not lost, and their tasks do not run again. */
	expect_cqe(second, 5, 0);
	expect_cqe(second, 6, -EIO);
	expect_none(second);
	assert_int_equal(second->cpu->n_tasks, 2);
	finish(second, second->cpu, 3, 0);
	expect_cqe(second, 3, 0);
	finish(second, second->cpu, 4, 0);
	expect_cqe(second, 4, 0);
	expect_none(second);
	finish(second, second->cpu, 1, 0);
	expect_cqe(second, 1, 0);
	expect_cqe(second, 7, 0);
	expect_cqe(second, 8, 0);
	/* The ring is as good as any. */
	put_run(second, second->tiny, 9, 0);
	rig_work(&second->rig);
	expect_cqe(second, 9, 0);
}

/* Slots are used again in any order; entries are admitted in their own. */
TEST(test_restore__in_order)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;

	put_run(first, first->queued, 1, 0);
	put_run(first, first->queued, 2, 0);
	rig_work(&first->rig);
	finish(first, first->cpu, 1, 0);
	put_run(first, first->queued, 3, LINK);
	put_run(first, first->queued, 4, 0);
	rig_work(&first->rig);
	die(&brokers);
	assert_int_equal(second->cpu->n_tasks, 2);
	assert_int_equal(fake_user_data(second->cpu->tasks[0]), 2);
	assert_int_equal(fake_user_data(second->cpu->tasks[1]), 3);
	fake_finish_all(second->cpu, 0);
	rig_work(&second->rig);
	assert_int_equal(second->cpu->n_tasks, 1);
	assert_int_equal(fake_user_data(second->cpu->tasks[0]), 4);
}

/* A table names the references of a task; it was read when the task was admitted. */
static void put_table(struct bench *bench, uint64_t user_data)
{
	uint64_t *table = (uint64_t *)(bench->arena->exec.base + TABLE_OFFSET);
	struct rbk_sqe sqe = run_entry(bench, bench->queued, user_data);

	table[0] = sqe.refs[0];
	table[1] = sqe.refs[1];
	memset(sqe.refs, 0, sizeof(sqe.refs));
	sqe.flags = RBK_SQE_ARG_TABLE;
	sqe.table = RBK_REF(bench->arena->id, TABLE_OFFSET);
	sqe.n_refs = 2;
	rig_put(&bench->ring, &sqe);
}

static void check_table(bool has_changed)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	uint64_t *table = (uint64_t *)(second->arena->exec.base + TABLE_OFFSET);

	put_table(first, 1);
	rig_work(&first->rig);
	memcpy(table, first->arena->exec.base + TABLE_OFFSET, 2 * sizeof(*table));
	table[1] += has_changed ? 4096 : 0;
	die(&brokers);
	fake_finish_all(second->cpu, 0);
	rig_work(&second->rig);
	expect_cqe(second, 1, has_changed ? -ECONNRESET : 0);
	assert_int_equal(second->cpu->n_submitted, !has_changed);
}

TEST(test_restore__a_table)
{
	check_table(false);
	check_table(true);
}

TEST(test_restore__deadlines_go_on)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	struct rbk_sqe sqe = run_entry(first, first->queued, 1);

	sqe.deadline_us = 20000;
	rig_put(&first->ring, &sqe);
	sqe.user_data = 2;
	sqe.deadline_us = 1000000000;
	rig_put(&first->ring, &sqe);
	rig_work(&first->rig);
	usleep(30000);
	die(&brokers);
	finish(second, second->cpu, 1, 0);
	finish(second, second->cpu, 2, 0);
	assert_int_equal(expect_cqe(second, 1, 0).flags, RBK_CQE_DEADLINE_MISSED);
	assert_int_equal(expect_cqe(second, 2, 0).flags, 0);
}

TEST(test_restore__client_goes_on)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;

	for (uint64_t i = 1; i <= 4; i++)
		put_run(first, first->queued, i, 0);
	put_bare(first, RBK_OP_NOP, 5, 0);
	rig_work(&first->rig);
	finish(first, first->cpu, 2, 0);
	expect_cqe(first, 5, 0);
	for (uint64_t i = 6; i <= 5 + N_ENTRIES; i++)
		put_bare(first, RBK_OP_NOP, i, 0);
	die(&brokers);
	expect_cqe(second, 2, 0);
	/* Three tasks are in flight, and no more entries than there is room for. */
	for (uint64_t i = 6; i <= 1 + N_ENTRIES; i++)
		expect_cqe(second, i, 0);
	expect_none(second);
	rig_work(&second->rig);
	for (uint64_t i = 2 + N_ENTRIES; i <= 5 + N_ENTRIES; i++)
		expect_cqe(second, i, 0);
	fake_finish_all(second->cpu, 0);
	rig_work(&second->rig);
	expect_cqe(second, 1, 0);
	expect_cqe(second, 3, 0);
	expect_cqe(second, 4, 0);
	expect_none(second);
}

/* A client removes the plan of its tasks before the new broker has admitted them. */
TEST(test_restore__before_a_removal)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	const struct rbk_wire_id remove = {
		.request.type = RBK_WIRE_PLAN_REMOVE,
		.id = second->queued->id,
	};
	const char *why;

	second->rig.session->is_greeted = true;
	put_run(first, first->queued, 1, 0);
	rig_work(&first->rig);
	bequeath(first, second);
	assert_int_equal(
		request_handle(second->rig.session, &remove, sizeof(remove), NULL, 0, &why), 0);
	assert_false(rig_has_answer(&second->rig));
	rig_work(&second->rig);
	finish(second, second->cpu, 1, 0);
	expect_cqe(second, 1, 0);
	assert_int_equal(rig_answer(&second->rig, RBK_WIRE_PLAN_REMOVE, NULL, 0), 0);
}

/* --- death after each store --- */

static void put_nowhere(struct bench *bench, uint64_t user_data, uint8_t flags)
{
	struct rbk_sqe sqe = run_entry(bench, bench->queued, user_data);

	sqe.strategy = RBK_STRATEGY_ONLY_GPU;
	sqe.flags = flags;
	rig_put(&bench->ring, &sqe);
}

static void put_all(struct bench *bench)
{
	put_bare(bench, RBK_OP_NOP, 1, 0);
	put_run(bench, bench->queued, 2, 0);
	put_nowhere(bench, 3, 0);
	put_nowhere(bench, 4, 0);
	put_run(bench, bench->tiny, 5, 0);
	put_run(bench, bench->queued, 6, LINK);
	put_bare(bench, RBK_OP_NOP, 7, LINK);
	put_run(bench, bench->tiny, 8, 0);
	put_run(bench, bench->queued, 9, LINK);
	put_bad(bench, 10, LINK);
	put_bare(bench, RBK_OP_NOP, 11, 0);
	put_cancel(bench, 12, 2, 0);
	put_run(bench, bench->queued, FAILING, LINK);
	put_bare(bench, RBK_OP_NOP, 14, 0);
	put_bare(bench, RBK_OP_BARRIER, 15, 0);
	put_bare(bench, RBK_OP_NOP, 16, 0);
}

/* Some take slots that others have just left, some link, cancel and wait. */
static const struct script mixed = {
	.put = put_all,
	.n_entries = 16,
	.res = {[2] = -ECANCELED,
		[3] = -ENODEV,
		[4] = -ENODEV,
		[10] = -ERANGE,
		[11] = -ECANCELED,
		[FAILING] = -EIO,
		[14] = -ECANCELED},
};

static void put_chain(struct bench *bench)
{
	for (uint64_t i = 1; i <= 9; i++)
		put_run(bench, bench->queued, i, 0);
	put_bad(bench, 10, LINK);
}

static void put_chain_rest(struct bench *bench)
{
	put_run(bench, bench->tiny, 11, LINK);
	put_bare(bench, RBK_OP_NOP, 12, 0);
	put_bare(bench, RBK_OP_NOP, 13, 0);
}

/* A chain breaks before all of it was submitted; more entries than are restored at once wait. */
static const struct script broken_chain = {
	.put = put_chain,
	.put_rest = put_chain_rest,
	.n_entries = 13,
	.res = {[10] = -ERANGE, [11] = -ECANCELED, [12] = -ECANCELED},
};

TEST(test_death__after_each_store)
{
	BROKERS(brokers, 1);
	struct script script = mixed;
	unsigned int n_stores;

	/* Indices wrap around, and their base moves, among these entries. */
	rig_ring_set_index(&brokers.first.ring, UINT32_MAX - 5);
	put_all(&brokers.first);
	script.is_for_sanitizers = true;
	n_stores = step(&script, &brokers.first, &brokers.second);
	if (n_stores == 0)
		skip();
	assert_true(n_stores > 64 || test_is_scaled_down());
}

/* The first broker dies after it has begun everything, the second one at each store. */
static void step_second(struct brokers *brokers, const struct script *script)
{
	HEIR(third, 1);

	script->put(&brokers->first);
	rig_work(&brokers->first.rig);
	bequeath(&brokers->first, &brokers->second);
	if (step(script, &brokers->second, &third) == 0)
		skip();
}

TEST(test_death__of_the_next_broker)
{
	BROKERS(brokers, 1);

	step_second(&brokers, &mixed);
}

TEST(test_death__with_a_broken_chain)
{
	BROKERS(brokers, 1);

	step_second(&brokers, &broken_chain);
}

/* A closers.h thread that copies no table before it may */
struct sleeper {
	struct closers_job job;
	sem_t is_asleep, let_go;
};

static void sleep_run(struct closers_job *job)
{
	struct sleeper *sleeper = container_of(job, struct sleeper, job);

	sem_post(&sleeper->is_asleep);
	sem_wait(&sleeper->let_go);
}

static void sleep_done(struct closers_job *job)
{
}

static struct session_arena *unfixed_arena(struct bench *bench)
{
	int fd = rig_memfd(65536, false);
	struct session_arena *arena = rig_arena_of(&bench->rig, fd, 65536);

	close(fd);
	return arena;
}

/* Put a task whose table a thread has to copy. */
static void put_far_table(struct bench *bench, const struct session_arena *arena,
			  uint64_t user_data)
{
	uint64_t *table = (uint64_t *)(arena->exec.base + TABLE_OFFSET);
	struct rbk_sqe sqe = run_entry(bench, bench->queued, user_data);

	memcpy(table, sqe.refs, 2 * sizeof(*table));
	memset(sqe.refs, 0, sizeof(sqe.refs));
	sqe.flags = RBK_SQE_ARG_TABLE;
	sqe.table = RBK_REF(arena->id, TABLE_OFFSET);
	sqe.n_refs = 2;
	rig_put(&bench->ring, &sqe);
}

static void await_copy(struct bench *bench)
{
	rig_work(&bench->rig);
	while (closers_n_jobs(bench->rig.server->closers) > 0)
		assert_true(loop_turn(bench->rig.loop, true) >= 0);
	run_all(bench);
}

/* The second broker dies while it copies the table of a restored entry. */
TEST(test_death__while_a_table_is_copied)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	struct session_arena *arenas[3];
	struct sleeper sleeper = {.job = {.run = sleep_run, .done = sleep_done}};
	HEIR(third, 1);

	arenas[0] = unfixed_arena(first);
	arenas[1] = unfixed_arena(second);
	arenas[2] = unfixed_arena(&third);
	put_far_table(first, arenas[0], 1);
	rig_work(&first->rig);
	while (closers_n_jobs(first->rig.server->closers) > 0)
		assert_true(loop_turn(first->rig.loop, true) >= 0);
	rig_work(&first->rig);
	put_run(first, first->tiny, 2, 0);
	rig_work(&first->rig);
	for (unsigned int i = 1; i < 3; i++)
		memcpy(arenas[i]->exec.base + TABLE_OFFSET, arenas[0]->exec.base + TABLE_OFFSET,
		       2 * sizeof(uint64_t));

	sem_init(&sleeper.is_asleep, 0, 0);
	sem_init(&sleeper.let_go, 0, 0);
	bequeath(first, second);
	closers_submit(second->rig.server->closers, second->rig.session->account, &sleeper.job);
	sem_wait(&sleeper.is_asleep);
	rig_work(&second->rig);
	check_published(second->ring.cq);
	bequeath(second, &third);
	await_copy(&third);
	expect_cqe(&third, 2, 0);
	expect_cqe(&third, 1, 0);
	expect_none(&third);
	remove_ring(&third);
	sem_post(&sleeper.let_go);
	await_copy(second);
}

/* A restored task fails before the next one of its chain is admitted again. */
TEST(test_death__between_batches_of_a_chain)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	HEIR(third, 1);

	for (uint64_t i = 1; i <= 7; i++)
		put_run(first, first->queued, i, 0);
	put_run(first, first->queued, 8, LINK);
	put_run(first, first->queued, 9, 0);
	rig_work(&first->rig);
	bequeath(first, second);
	assert_int_equal(dispatch_poll_ring(second->rig.dispatch, rig_dispatch_ring(&second->ring)),
			 8);
	dispatch_tasks(second->rig.dispatch);
	fake_finish(second->cpu, 8, -EIO);
	dispatch_tasks(second->rig.dispatch);
	bequeath(second, &third);
	run_all(&third);
	expect_cqe(&third, 8, -EIO);
	expect_cqe(&third, 9, -ECANCELED);
	for (uint64_t i = 1; i <= 7; i++)
		expect_cqe(&third, i, 0);
	remove_ring(&third);
}

/*
 * A task may overwrite what the one before it in its chain has read: then the first one must not
 * run again.
 */
TEST(test_death__in_a_chain_that_goes_back_and_forth)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first;
	const struct rbk_cq_area *cq = first->ring.cq;
	struct rbk_commit commit;

	put_run(first, first->queued, 1, LINK);
	put_run(first, first->queued, 2, 0);
	rig_work(&first->rig);
	fake_finish(first->cpu, 1, 0);
	/* At the instruction at which the second task is given to its executor: */
	first->cpu->capacity = 0;
	dispatch_reap(first->rig.dispatch);
	rbk_commit_load(cq, &commit);
	assert_int_equal(commit.cq_tail, 1);
	assert_int_equal(cq->cq_tail, 0);
	first->cpu->capacity = FAKE_MAX_TASKS;
}

/* Keep the number of completions that are committed when an inline task begins. */
static void see_commit(void *data)
{
	struct bench *bench = data;
	struct rbk_commit commit;

	rbk_commit_load(bench->ring.cq, &commit);
	n_committed[bench->cpu->n_inline] = commit.cq_tail;
}

TEST(test_death__in_a_chain_of_small_tasks)
{
	BENCH(bench, 1, N_ENTRIES);

	bench.cpu->on_inline = see_commit;
	bench.cpu->on_inline_data = &bench;
	put_run(&bench, bench.tiny, 1, 0);
	put_run(&bench, bench.tiny, 2, LINK);
	put_run(&bench, bench.tiny, 3, 0);
	put_run(&bench, bench.tiny, 4, 0);
	rig_work(&bench.rig);
	assert_int_equal(bench.cpu->n_inline, 4);
	/* The third task's predecessor is committed; tasks that follow no other share a commit. */
	assert_int_equal(n_committed[1], 0);
	assert_int_equal(n_committed[2], 2);
	assert_int_equal(n_committed[3], 2);
	bench.cpu->on_inline = NULL;
}

/* --- hostile areas --- */

static int restore(struct bench *bench, int sq, int cq, uint32_t n_entries)
{
	int fds[2] = {fcntl(sq, F_DUPFD_CLOEXEC, 3), fcntl(cq, F_DUPFD_CLOEXEC, 3)};
	int r;

	assert_int_equal(session_ring_restore(bench->rig.session, 1, n_entries, fds), 0);
	r = rig_answer(&bench->rig, RBK_WIRE_RING_RESTORE, NULL, 0);
	for (unsigned int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return r;
}

static void expect_refused(struct bench *bench, int sq, int cq, uint32_t n_entries)
{
	assert_int_equal(restore(bench, sq, cq, n_entries), -EINVAL);
	assert_int_equal(bench->rig.session->n_added_rings, 1);
}

TEST(test_hostile__files)
{
	BENCH(bench, 1, N_ENTRIES);
	const size_t sq_bytes = bench.ring.sq_bytes, cq_bytes = bench.ring.cq_bytes;
	int unsealed = rig_memfd(cq_bytes, false), sparse, null = open("/dev/null", O_RDWR);
	struct rig_areas areas;

	rig_areas_copy(&bench.ring, &areas);
	sparse = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(sparse, (off_t)sq_bytes), 0);
	assert_false(fcntl(sparse, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE));
	expect_refused(&bench, null, areas.fds[1], N_ENTRIES);
	expect_refused(&bench, areas.fds[0], null, N_ENTRIES);
	expect_refused(&bench, areas.fds[0], unsealed, N_ENTRIES);
	expect_refused(&bench, sparse, areas.fds[1], N_ENTRIES);
	expect_refused(&bench, areas.fds[0], areas.fds[1], 1024);
	expect_refused(&bench, areas.fds[0], areas.fds[1], 3);
	close(null);
	close(sparse);
	close(unsealed);
	rig_areas_deinit(&areas);
}

static int restore_spoilt(struct bench *bench, void (*spoil)(struct rbk_cq_area *cq))
{
	struct rig_areas areas;
	struct rig_ring ring = bench->ring;
	struct rbk_cq_area *cq = malloc(ring.cq_bytes);
	int r;

	assert_non_null(cq);
	memcpy(cq, ring.cq, ring.cq_bytes);
	spoil(cq);
	ring.cq = cq;
	rig_areas_copy(&ring, &areas);
	r = restore(bench, areas.fds[0], areas.fds[1], N_ENTRIES);
	rig_areas_deinit(&areas);
	free(cq);
	return r;
}

static void spoil_head(struct rbk_cq_area *cq)
{
	cq->commit = rbk_commit_word(1000, 0, 0);
}

static void spoil_tail(struct rbk_cq_area *cq)
{
	cq->commit = rbk_commit_word(0, 1000, 0);
}

/* As many records as there are slots, and a completion that was not consumed */
static void spoil_records(struct rbk_cq_area *cq)
{
	struct rbk_task_record *records = rbk_ring_records(cq, N_ENTRIES);

	for (unsigned int i = 0; i < N_ENTRIES; i++)
		records[i] = (struct rbk_task_record){.flags = RBK_TASK_TAKEN};
	cq->commit = rbk_commit_word(N_ENTRIES, 1, 0);
}

TEST(test_hostile__indices)
{
	BENCH(bench, 1, N_ENTRIES);

	assert_int_equal(restore_spoilt(&bench, spoil_head), -EINVAL);
	assert_int_equal(restore_spoilt(&bench, spoil_tail), -EINVAL);
	assert_int_equal(restore_spoilt(&bench, spoil_records), -EINVAL);
	/* A refused ring leaves nothing behind. */
	while (bench.rig.session->n_added_rings > 1)
		rig_has_answer(&bench.rig);
}

/* Records hold nonsense: each is an entry that is rejected, all with the same index. */
static void spoil_entries(struct rbk_cq_area *cq)
{
	struct rbk_task_record *records = rbk_ring_records(cq, N_ENTRIES);

	for (unsigned int i = 0; i < N_ENTRIES; i++) {
		memset(&records[i], 0xff, sizeof(records[i]));
		records[i].sqe.user_data = i;
		records[i].sq_index = 0;
		records[i].flags = i % 2 ? RBK_TASK_TAKEN : RBK_TASK_TAKEN | RBK_TASK_TABLE;
	}
	cq->commit_base = (struct rbk_commit){0x100000000, 0};
	cq->commit = rbk_commit_word(0, 0, RBK_COMMIT_CHAIN_OPEN | RBK_COMMIT_CHAIN_BROKEN);
}

TEST(test_hostile__entries)
{
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	struct rbk_cqe cqe;
	unsigned int n = 0;

	spoil_entries(first->ring.ring->cq);
	die(&brokers);
	while (rig_take(&second->ring, &cqe)) {
		assert_true(cqe.res < 0);
		n++;
	}
	assert_int_equal(n, N_ENTRIES);
	put_run(second, second->tiny, 99, 0);
	rig_work(&second->rig);
	/* The last record's link goes on into the next entry. */
	assert_true(rig_take(&second->ring, &cqe));
	put_run(second, second->tiny, 100, 0);
	rig_work(&second->rig);
	expect_cqe(second, 100, 0);
}

/* Records say that entries without a table had one. */
TEST(test_hostile__tables)
{
	/* The last three wait: for memory, and for each other. */
	static const uint8_t opcodes[] = {RBK_OP_NOP,      RBK_OP_RUN,   RBK_OP_CANCEL,
					  RBK_OP_PREFETCH, RBK_OP_EVICT, RBK_OP_BARRIER};
	enum { N = sizeof(opcodes) };
	BROKERS(brokers, 1);
	struct bench *first = &brokers.first, *second = &brokers.second;
	struct rbk_cq_area *cq = first->ring.ring->cq;
	struct rbk_task_record *records = rbk_ring_records(cq, N_ENTRIES);
	struct rbk_cqe cqe;
	unsigned int n = 0;

	for (unsigned int i = 0; i < N; i++) {
		records[i] = (struct rbk_task_record){
			.sqe = {.opcode = opcodes[i], .user_data = 100 + i},
			.sq_index = i,
			.flags = RBK_TASK_TAKEN | RBK_TASK_TABLE,
		};
		if (opcodes[i] == RBK_OP_PREFETCH || opcodes[i] == RBK_OP_EVICT)
			records[i].sqe.plan_id = second->queued->id;
		if (opcodes[i] == RBK_OP_RUN)
			records[i].sqe = run_entry(second, second->queued, 100 + i);
	}
	cq->commit = rbk_commit_word(N, 0, 0);
	first->ring.sq->sq_tail = N;
	die(&brokers);
	run_all(second);
	while (rig_take(&second->ring, &cqe))
		n++;
	assert_int_equal(n, N - 3);
	assert_int_equal(second->ring.ring->n_in_flight, 3);
}

/* One broken chain of as many records as a ring may have: a poll admits a few of them. */
TEST(test_hostile__long_chain)
{
	enum { N = 4096 };
	struct bench first;
	struct rbk_task_record *records;
	struct rbk_cq_area *cq;
	struct rig_areas areas;
	HEIR(second, 1);

	bench_begin(&first, 1, N);
	cq = first.ring.ring->cq;
	records = rbk_ring_records(cq, N);
	for (uint32_t i = 0; i < N; i++)
		records[i] = (struct rbk_task_record){
			.sqe = {.opcode = RBK_OP_NOP, .flags = i + 1 < N ? LINK : 0},
			.sq_index = i,
			.flags = i ? RBK_TASK_TAKEN : RBK_TASK_TAKEN | RBK_TASK_BEGUN,
		};
	cq->commit = rbk_commit_word(N, 0, 0);
	first.ring.sq->sq_tail = N;
	rig_areas_copy(&first.ring, &areas);
	rig_ring_restore(&second.rig, &areas, N, &second.ring);
	rig_areas_deinit(&areas);
	assert_in_range(dispatch_poll_ring(second.rig.dispatch, rig_dispatch_ring(&second.ring)), 1,
			64);
	run_all(&second);
	assert_int_equal(second.ring.cq->cq_tail, N);
	assert_int_equal(second.ring.cq->cqes[0].res, -ECONNRESET);
	for (uint32_t i = 1; i < N; i++)
		assert_int_equal(second.ring.cq->cqes[i].res, -ECANCELED);
	remove_ring(&second);
	first.ring.sq->sq_tail = 0;
	bench_end(&first);
}

/* One submission area of two rings: both are charged, and nothing stays charged. */
TEST(test_hostile__area_twice)
{
	BENCH(bench, 1, N_ENTRIES);
	struct account *account = bench.rig.session->tenant->account;
	const uint64_t host_bytes = account_used(account, ACCOUNT_HOST_BYTES);
	const uint64_t n_watches = account_used(account, ACCOUNT_WATCHES);
	struct rig_ring own = bench.ring, rings[2];
	struct rig_areas areas, copy;

	rig_areas_copy(&bench.ring, &areas);
	copy = areas;
	copy.sq = mremap(areas.sq, 0, areas.sq_bytes, MREMAP_MAYMOVE);
	assert_ptr_not_equal(copy.sq, MAP_FAILED);
	rig_ring_restore(&bench.rig, &areas, N_ENTRIES, &rings[0]);
	rig_ring_restore(&bench.rig, &copy, N_ENTRIES, &rings[1]);
	rig_areas_deinit(&areas);
	for (unsigned int i = 0; i < 2; i++) {
		bench.ring = rings[i];
		remove_ring(&bench);
	}
	bench.ring = own;
	for (unsigned int i = 0; i < 2000 && account_used(account, ACCOUNT_WATCHES) > n_watches;
	     i++) {
		holds_notice(bench.rig.server);
		usleep(1000);
	}
	assert_int_equal(account_used(account, ACCOUNT_WATCHES), n_watches);
	assert_int_equal(account_used(account, ACCOUNT_HOST_BYTES), host_bytes);
}

/* Pages beyond the end of a sparse area make up for those that lack. */
TEST(test_hostile__pages_beyond_the_end)
{
	BENCH(bench, 1, N_ENTRIES);
	const off_t cq_bytes = (off_t)bench.ring.cq_bytes;
	int fd = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct rig_areas areas;

	rig_areas_copy(&bench.ring, &areas);
	assert_int_equal(ftruncate(fd, cq_bytes), 0);
	assert_int_equal(fallocate(fd, FALLOC_FL_KEEP_SIZE, cq_bytes, 1 << 24), 0);
	assert_false(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE));
	expect_refused(&bench, areas.fds[0], fd, N_ENTRIES);
	close(fd);
	rig_areas_deinit(&areas);
}
