/* SPDX-License-Identifier: MIT */
/*
 * Arenas whose pages a client can take away: the reactor accesses neither tensors nor argument
 * tables in them. Other threads do all work that may sleep on such pages.
 */
#include <errno.h>
#include <semaphore.h>
#include <string.h>
#include <unistd.h>

#include "loop/loop.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"

enum { ARENA_BYTES = 65536, TABLE_AT = 8192 };

/*
 * A job that blocks the account's closer thread, which would copy the table, until it is released.
 */
struct sleeper {
	struct closers_job job;
	sem_t let_go;
	bool is_done;
};

static void sleeper_run(struct closers_job *job)
{
	sem_wait(&container_of(job, struct sleeper, job)->let_go);
}

static void sleeper_done(struct closers_job *job)
{
	container_of(job, struct sleeper, job)->is_done = true;
}

static void fall_asleep(struct sleeper *sleeper, struct bench *bench)
{
	*sleeper = (struct sleeper){.job = {.run = sleeper_run, .done = sleeper_done}};
	sem_init(&sleeper->let_go, 0, 0);
	closers_submit(bench->rig.server->closers, bench->rig.session->account, &sleeper->job);
}

static void wake_up(struct sleeper *sleeper, struct bench *bench)
{
	sem_post(&sleeper->let_go);
	while (closers_n_jobs(bench->rig.server->closers) > 0)
		assert_true(loop_turn(bench->rig.loop, true) >= 0);
	assert_true(sleeper->is_done);
	sem_destroy(&sleeper->let_go);
}

static struct session_arena *unfixed_new(struct bench *bench)
{
	int fd = rig_memfd(ARENA_BYTES, false);
	struct session_arena *arena = rig_arena_of(&bench->rig, fd, ARENA_BYTES);

	close(fd);
	assert_false(arena->exec.is_fixed);
	return arena;
}

/* Put a RUN with a table in @table_in and tensors in the bench's own arena. */
static void put_table(struct bench *bench, const struct session_arena *table_in, uint64_t user_data,
		      uint8_t flags)
{
	uint64_t *table = (uint64_t *)(table_in->exec.base + TABLE_AT);
	const struct rbk_sqe sqe = {
		.opcode = RBK_OP_RUN,
		.flags = RBK_SQE_ARG_TABLE | flags,
		.plan_id = bench->tiny->id,
		.user_data = user_data,
		.count = 1,
		.table = RBK_REF(table_in->id, TABLE_AT),
		.n_refs = 2,
	};

	table[0] = RBK_REF(bench->arena->id, 0);
	table[1] = RBK_REF(bench->arena->id, 4096);
	rig_put(&bench->ring, &sqe);
}

/* A tiny task runs on the reactor only if none of its tensors is in such an arena. */
TEST(test_unfixed__not_inline)
{
	struct session_arena *unfixed;
	struct rbk_sqe sqe;

	BENCH(bench, 1, 16);
	assert_true(bench.arena->exec.is_fixed);
	unfixed = unfixed_new(&bench);
	for (unsigned int written = 0; written < 2; written++) {
		sqe = run_entry(&bench, bench.tiny, written);
		sqe.refs[written] = RBK_REF(unfixed->id, 0);
		rig_put(&bench.ring, &sqe);
		rig_work(&bench.rig);
		assert_int_equal(bench.cpu->n_inline, 0);
		assert_int_equal(bench.cpu->n_tasks, 1);
		finish(&bench, bench.cpu, written, 0);
		expect_cqe(&bench, written, 0);
	}
	put_run(&bench, bench.tiny, 7, 0);
	rig_work(&bench.rig);
	assert_int_equal(bench.cpu->n_inline, 1);
	expect_cqe(&bench, 7, 0);

	assert_int_equal(bench.rig.session->n_unfixed, 1);
	assert_int_equal(session_arena_remove(bench.rig.session, 1, unfixed->id), 0);
	assert_int_equal(rig_answer(&bench.rig, RBK_WIRE_ARENA_REMOVE, NULL, 0), 0);
	assert_int_equal(bench.rig.session->n_unfixed, 0);
}

/* The ring waits for its table, in order; the reactor does not wait. */
TEST(test_unfixed__table)
{
	struct sleeper sleeper;
	struct session_arena *unfixed;
	struct rig_ring other;
	struct rbk_cqe cqe;

	BENCH(bench, 1, 16);
	rig_ring_new(&bench.rig, 16, &other);
	unfixed = unfixed_new(&bench);
	fall_asleep(&sleeper, &bench);
	put_bare(&bench, RBK_OP_NOP, 1, 0);
	put_table(&bench, unfixed, 2, 0);
	put_bare(&bench, RBK_OP_NOP, 3, 0);
	put_table(&bench, unfixed, 4, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 1, 0);
	expect_none(&bench);
	assert_int_equal(bench.ring.ring->n_in_flight, 1);
	assert_int_equal(unfixed->n_in_flight, 1);
	assert_false(dispatch_ring_has_work(rig_dispatch_ring(&bench.ring)));

	rig_put(&other, &(const struct rbk_sqe){.opcode = RBK_OP_NOP, .user_data = 5});
	rig_work(&bench.rig);
	assert_true(rig_take(&other, &cqe));
	assert_int_equal(cqe.user_data, 5);
	expect_none(&bench);

	wake_up(&sleeper, &bench);
	expect_cqe(&bench, 2, 0);
	assert_int_equal(bench.cpu->n_inline, 1);
	rig_work(&bench.rig);
	expect_cqe(&bench, 3, 0);
	while (closers_n_jobs(bench.rig.server->closers) > 0)
		assert_true(loop_turn(bench.rig.loop, true) >= 0);
	expect_cqe(&bench, 4, 0);
	assert_int_equal(unfixed->n_in_flight, 0);
	assert_int_equal(bench.ring.ring->n_in_flight, 0);
	rig_ring_deinit(&other);
}

/* The entry's predecessor in a chain has not ended yet; it succeeds once, and fails once. */
TEST(test_unfixed__table_in_chain)
{
	struct session_arena *unfixed;

	BENCH(bench, 1, 16);
	unfixed = unfixed_new(&bench);
	for (unsigned int failed = 0; failed < 2; failed++) {
		int res = failed ? -EIO : 0;

		put_run(&bench, bench.queued, 1, RBK_SQE_LINK);
		put_table(&bench, unfixed, 2, 0);
		rig_work(&bench.rig);
		finish(&bench, bench.cpu, 1, res);
		expect_cqe(&bench, 1, res);
		while (closers_n_jobs(bench.rig.server->closers) > 0)
			assert_true(loop_turn(bench.rig.loop, true) >= 0);
		expect_cqe(&bench, 2, failed ? -ECANCELED : 0);
	}
}

/*
 * A removed arena stays until the table is copied; the entry then fails, because its arena is gone.
 */
TEST(test_unfixed__arena_removed)
{
	struct session_arena *unfixed;
	struct sleeper sleeper;

	BENCH(bench, 1, 16);
	unfixed = unfixed_new(&bench);
	fall_asleep(&sleeper, &bench);
	put_table(&bench, unfixed, 1, 0);
	rig_work(&bench.rig);
	assert_int_equal(session_arena_remove(bench.rig.session, 1, unfixed->id), 0);
	assert_false(rig_has_answer(&bench.rig));
	wake_up(&sleeper, &bench);
	expect_cqe(&bench, 1, -EBADF);
	assert_int_equal(rig_answer(&bench.rig, RBK_WIRE_ARENA_REMOVE, NULL, 0), 0);
}

/* The ring is removed, or the session ends, meanwhile. */
TEST(test_unfixed__ring_removed)
{
	struct session_arena *unfixed;
	struct sleeper sleeper;
	struct bench bench;

	for (unsigned int ends = 0; ends < 2; ends++) {
		bench_begin(&bench, 1, 16);
		unfixed = unfixed_new(&bench);
		fall_asleep(&sleeper, &bench);
		put_table(&bench, unfixed, 1, 0);
		rig_work(&bench.rig);
		if (ends)
			session_end(bench.rig.session, false, "the test says so");
		else
			assert_int_equal(
				session_ring_remove(bench.rig.session, 1, bench.ring.ring->id), 0);
		rig_settle(&bench.rig);
		assert_int_equal(bench.rig.server->n_sessions, 1);
		wake_up(&sleeper, &bench);
		if (!ends)
			assert_int_equal(rig_answer(&bench.rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
		bench_end(&bench);
	}
}
