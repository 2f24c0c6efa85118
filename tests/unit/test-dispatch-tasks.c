/* SPDX-License-Identifier: MIT */
/*
 * The dispatcher and tasks: chains, barriers, cancellation, executors that are full or fail, and
 * removal of rings, plans and arenas in use. test-dispatch-ring.c tests rings.
 */
#include <string.h>

#include <errno.h>
#include <unistd.h>

#include "support/test.h"
#include "unit/dispatch-bench.h"

enum { LINK = RBK_SQE_LINK };

/* Assert the tasks that a fake has, in order. */
#define expect_held(fake, ...)                              \
	expect_held_(fake, (const uint64_t[]){__VA_ARGS__}, \
		     sizeof((const uint64_t[]){__VA_ARGS__}) / 8, __LINE__)
static void expect_held_(const struct fake *fake, const uint64_t *user_data, unsigned int n,
			 int line)
{
	if (fake->n_tasks != n)
		fail_msg("line %d: %u tasks, not %u", line, fake->n_tasks, n);
	for (unsigned int i = 0; i < n; i++)
		if (fake_user_data(fake->tasks[i]) != user_data[i])
			fail_msg("line %d: task %u is %llu, not %llu", line, i,
				 (unsigned long long)fake_user_data(fake->tasks[i]),
				 (unsigned long long)user_data[i]);
}

/* --- Chains --- */

TEST(test_chain__one_after_the_other)
{
	BENCH(bench, 1, N_ENTRIES);
	put_run(&bench, bench.queued, 1, LINK);
	put_run(&bench, bench.tiny, 2, LINK);
	put_bare(&bench, RBK_OP_NOP, 3, LINK);
	put_run(&bench, bench.queued, 4, 0);
	put_run(&bench, bench.queued, 5, 0);
	rig_work(&bench.rig);
	expect_held(bench.cpu, 1, 5);
	finish(&bench, bench.cpu, 5, 0);
	expect_cqe(&bench, 5, 0);
	expect_none(&bench);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	/* A task that had to wait runs through the executor's queue, tiny or not. */
	expect_held(bench.cpu, 2);
	finish(&bench, bench.cpu, 2, 0);
	expect_cqe(&bench, 2, 0);
	expect_cqe(&bench, 3, 0);
	expect_held(bench.cpu, 4);
	finish(&bench, bench.cpu, 4, 0);
	expect_cqe(&bench, 4, 0);
}

TEST(test_chain__fails_in_the_middle)
{
	BENCH(bench, 1, N_ENTRIES);
	for (uint64_t i = 1; i <= 5; i++)
		put_run(&bench, bench.queued, i, i < 5 ? LINK : 0);
	put_run(&bench, bench.queued, 6, 0);
	rig_work(&bench.rig);
	finish(&bench, bench.cpu, 1, 0);
	finish(&bench, bench.cpu, 2, -EIO);
	expect_cqe(&bench, 1, 0);
	expect_cqe(&bench, 2, -EIO);
	for (uint64_t i = 3; i <= 5; i++)
		assert_int_equal(expect_cqe(&bench, i, -ECANCELED).device, RBK_DEVICE_NONE);
	expect_held(bench.cpu, 6);
	assert_int_equal(bench.cpu->n_submitted, 3);
}

TEST(test_chain__fails_inline)
{
	BENCH(bench, 1, N_ENTRIES);
	bench.cpu->inline_res = -ENOMEM;
	put_run(&bench, bench.tiny, 1, LINK);
	put_run(&bench, bench.tiny, 2, LINK);
	put_bare(&bench, RBK_OP_NOP, 3, 0);
	put_bare(&bench, RBK_OP_NOP, 4, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 1, -ENOMEM);
	expect_cqe(&bench, 2, -ECANCELED);
	expect_cqe(&bench, 3, -ECANCELED);
	expect_cqe(&bench, 4, 0);
	assert_int_equal(bench.cpu->n_inline, 1);
}

/*
 * A rejected entry completes with its own error; entries after it are cancelled, entries before it
 * run.
 */
TEST(test_chain__has_a_refused_entry)
{
	BENCH(bench, 1, N_ENTRIES);
	put_bad(&bench, 1, LINK);
	put_run(&bench, bench.queued, 2, LINK);
	put_bad(&bench, 3, LINK);
	put_run(&bench, bench.queued, 4, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 1, -ERANGE);
	expect_cqe(&bench, 2, -ECANCELED);
	expect_cqe(&bench, 3, -ERANGE);
	expect_cqe(&bench, 4, -ECANCELED);

	put_run(&bench, bench.queued, 5, LINK);
	put_run(&bench, bench.queued, 6, LINK);
	put_bad(&bench, 7, LINK);
	put_run(&bench, bench.queued, 8, 0);
	put_bare(&bench, RBK_OP_NOP, 9, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 7, -ERANGE);
	expect_cqe(&bench, 8, -ECANCELED);
	expect_cqe(&bench, 9, 0);
	expect_held(bench.cpu, 5);
	finish(&bench, bench.cpu, 5, 0);
	expect_held(bench.cpu, 6);
	finish(&bench, bench.cpu, 6, 0);
	expect_cqe(&bench, 5, 0);
	expect_cqe(&bench, 6, 0);
	expect_none(&bench);
}

/* Missing devices are noticed when a task's turn comes, also for the first task. */
TEST(test_chain__has_no_device)
{
	struct rbk_sqe sqe;

	BENCH(bench, 1, N_ENTRIES);
	for (uint64_t i = 0; i < 2; i++) {
		sqe = run_entry(&bench, bench.queued, i);
		sqe.flags = LINK;
		sqe.strategy = i == 1 ? RBK_STRATEGY_ONLY_GPU : RBK_STRATEGY_AUTO;
		rig_put(&bench.ring, &sqe);
	}
	put_bare(&bench, RBK_OP_NOP, 2, 0);
	rig_work(&bench.rig);
	finish(&bench, bench.cpu, 0, 0);
	expect_cqe(&bench, 0, 0);
	assert_int_equal(expect_cqe(&bench, 1, -ENODEV).device, RBK_DEVICE_NONE);
	expect_cqe(&bench, 2, -ECANCELED);

	sqe.user_data = 3;
	rig_put(&bench.ring, &sqe);
	put_bare(&bench, RBK_OP_NOP, 4, LINK);
	put_bare(&bench, RBK_OP_NOP, 5, 0);
	put_bare(&bench, RBK_OP_NOP, 6, 0);
	rig_work(&bench.rig);
	assert_int_equal(expect_cqe(&bench, 3, -ENODEV).reason, RBK_REASON_GPU_UNAVAILABLE);
	expect_cqe(&bench, 4, -ECANCELED);
	expect_cqe(&bench, 5, -ECANCELED);
	expect_cqe(&bench, 6, 0);
}

/* The chain continues across submissions, whatever became of its last task meanwhile. */
TEST(test_chain__over_submissions)
{
	BENCH(bench, 1, N_ENTRIES);
	put_run(&bench, bench.queued, 1, LINK);
	rig_work(&bench.rig);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	put_run(&bench, bench.queued, 2, LINK);
	rig_work(&bench.rig);
	put_run(&bench, bench.queued, 3, LINK);
	rig_work(&bench.rig);
	expect_held(bench.cpu, 2);
	finish(&bench, bench.cpu, 2, 0);
	finish(&bench, bench.cpu, 3, -EIO);
	put_bare(&bench, RBK_OP_NOP, 4, LINK);
	rig_work(&bench.rig);
	put_bare(&bench, RBK_OP_NOP, 5, 0);
	rig_work(&bench.rig);
	put_bare(&bench, RBK_OP_NOP, 6, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 2, 0);
	expect_cqe(&bench, 3, -EIO);
	expect_cqe(&bench, 4, -ECANCELED);
	expect_cqe(&bench, 5, -ECANCELED);
	expect_cqe(&bench, 6, 0);
}

/*
 * A chain of ten times the ring's entries, refilled as it empties, with or without a failure half
 * way.
 */
static void run_long_chain(uint64_t fails_at)
{
	const uint64_t n = 10ull * N_ENTRIES;
	uint64_t n_put = 0, n_taken = 0, n_run = 0;
	struct rbk_cqe cqe;

	BENCH(bench, 1, N_ENTRIES);
	rig_ring_set_index(&bench.ring, UINT32_MAX - 5);
	while (n_taken < n) {
		while (n_put < n && n_put - n_taken < N_ENTRIES) {
			put_run(&bench, bench.queued, n_put, n_put + 1 < n ? LINK : 0);
			n_put++;
		}
		rig_work(&bench.rig);
		assert_true(bench.cpu->n_tasks <= 1);
		if (bench.cpu->n_tasks > 0) {
			assert_int_equal(fake_user_data(bench.cpu->tasks[0]), n_run);
			finish(&bench, bench.cpu, n_run, n_run == fails_at ? -EIO : 0);
			n_run++;
		}
		while (rig_take(&bench.ring, &cqe)) {
			assert_fields(cqe, (user_data, n_taken),
				      (res, n_taken < fails_at    ? 0
					    : n_taken == fails_at ? -EIO
								  : -ECANCELED));
			n_taken++;
		}
	}
	assert_int_equal(n_run, fails_at < n ? fails_at + 1 : n);
}

TEST(test_chain__longer_than_the_ring)
{
	run_long_chain(UINT64_MAX);
	run_long_chain(0);
	run_long_chain(N_ENTRIES - 1);
	run_long_chain(77);
}

/* 20,000 tasks that complete at once: recursion would overflow the stack. */
TEST(test_chain__long_and_held)
{
	enum { N = 20000 };

	BENCH(bench, 1, RBK_MAX_RING_ENTRIES);
	for (unsigned int fails = 0; fails < 2; fails++) {
		put_run(&bench, bench.queued, 0, LINK);
		for (uint64_t i = 1; i < N; i++)
			put_bare(&bench, RBK_OP_NOP, i, i < N - 1 ? LINK : 0);
		assert_int_equal(rig_work(&bench.rig), N);
		expect_none(&bench);
		finish(&bench, bench.cpu, 0, fails ? -EIO : 0);
		expect_cqe(&bench, 0, fails ? -EIO : 0);
		for (uint64_t i = 1; i < N; i++)
			expect_cqe(&bench, i, fails ? -ECANCELED : 0);
	}
}

TEST(test_chain__barrier_in_it)
{
	BENCH(bench, 1, N_ENTRIES);
	put_run(&bench, bench.queued, 1, LINK);
	put_bare(&bench, RBK_OP_BARRIER, 2, 0);
	put_bare(&bench, RBK_OP_BARRIER, 3, LINK);
	put_bare(&bench, RBK_OP_NOP, 4, 0);
	put_bare(&bench, RBK_OP_NOP, 5, LINK);
	put_bare(&bench, RBK_OP_BARRIER, 6, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 2, -EINVAL);
	expect_cqe(&bench, 3, -EINVAL);
	expect_cqe(&bench, 4, -ECANCELED);
	expect_cqe(&bench, 5, 0);
	expect_cqe(&bench, 6, -EINVAL);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
}

/* --- Barriers --- */

TEST(test_barrier__nothing_before_it)
{
	BENCH(bench, 1, N_ENTRIES);
	put_bare(&bench, RBK_OP_BARRIER, 1, 0);
	put_run(&bench, bench.tiny, 2, 0);
	put_bare(&bench, RBK_OP_BARRIER, 3, 0);
	put_bare(&bench, RBK_OP_BARRIER, 4, 0);
	assert_int_equal(rig_work(&bench.rig), 4);
	for (uint64_t i = 1; i <= 4; i++)
		expect_cqe(&bench, i, 0);
}

/* Held, pending and submitted tasks are before the barrier; entries behind it stay in the ring. */
TEST(test_barrier__waits_for_all)
{
	BENCH(bench, 1, N_ENTRIES);
	bench.cpu->capacity = 1;
	put_run(&bench, bench.queued, 1, LINK);
	put_run(&bench, bench.queued, 2, 0);
	put_run(&bench, bench.queued, 3, 0);
	put_bare(&bench, RBK_OP_BARRIER, 4, 0);
	put_bare(&bench, RBK_OP_NOP, 5, 0);
	put_run(&bench, bench.queued, 6, 0);
	put_bare(&bench, RBK_OP_BARRIER, 7, 0);
	put_bare(&bench, RBK_OP_NOP, 8, 0);
	rig_work(&bench.rig);
	assert_int_equal(bench.ring.cq->sq_head, 4);
	assert_false(dispatch_ring_has_work(rig_dispatch_ring(&bench.ring)));
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	finish(&bench, bench.cpu, 3, 0);
	expect_cqe(&bench, 3, 0);
	expect_none(&bench);
	assert_int_equal(bench.ring.cq->sq_head, 4);
	finish(&bench, bench.cpu, 2, -EIO);
	expect_cqe(&bench, 2, -EIO);
	expect_cqe(&bench, 4, 0);
	expect_cqe(&bench, 5, 0);
	expect_none(&bench);
	expect_held(bench.cpu, 6);
	assert_int_equal(bench.ring.cq->sq_head, 7);
	finish(&bench, bench.cpu, 6, 0);
	expect_cqe(&bench, 6, 0);
	expect_cqe(&bench, 7, 0);
	expect_cqe(&bench, 8, 0);
}

/* A ring that sleeps behind its barrier is woken by the barrier, not by a bell. */
TEST(test_barrier__wakes_its_ring)
{
	BENCH(bench, 1, N_ENTRIES);
	put_run(&bench, bench.queued, 1, 0);
	put_bare(&bench, RBK_OP_BARRIER, 2, 0);
	put_bare(&bench, RBK_OP_NOP, 3, 0);
	rig_work(&bench.rig);
	ring_deactivate(bench.rig.dispatch, rig_dispatch_ring(&bench.ring));
	rbk_ring_announce_sleep(&bench.ring.ring->cq->sq_wait, 7);
	finish(&bench, bench.cpu, 1, 0);
	assert_true(rig_dispatch_ring(&bench.ring)->is_active);
	assert_int_equal(bench.ring.cq->sq_wait, 0);
	for (uint64_t i = 1; i <= 3; i++)
		expect_cqe(&bench, i, 0);
}

/* --- Cancellation --- */

TEST(test_cancel__unknown)
{
	BENCH(bench, 1, N_ENTRIES);
	put_cancel(&bench, 1, 99, 0);
	put_cancel(&bench, 2, 2, 0); /* itself */
	put_run(&bench, bench.tiny, 3, 0);
	put_cancel(&bench, 4, 3, 0); /* completed already */
	rig_work(&bench.rig);
	expect_cqe(&bench, 1, -ENOENT);
	expect_cqe(&bench, 2, -ENOENT);
	expect_cqe(&bench, 3, 0);
	expect_cqe(&bench, 4, -ENOENT);
	/* A CANCEL that had to wait does not find itself either. */
	put_run(&bench, bench.queued, 5, LINK);
	put_cancel(&bench, 6, 6, 0);
	rig_work(&bench.rig);
	finish(&bench, bench.cpu, 5, 0);
	expect_cqe(&bench, 5, 0);
	expect_cqe(&bench, 6, -ENOENT);
}

TEST(test_cancel__queued)
{
	struct rbk_cqe cqe;

	BENCH(bench, 1, N_ENTRIES);
	put_run(&bench, bench.queued, 1, 0);
	rig_work(&bench.rig);
	put_cancel(&bench, 2, 1, 0);
	put_cancel(&bench, 3, 1, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 2, 0);
	expect_cqe(&bench, 3, -ENOENT);
	expect_none(&bench);
	assert_false(fake_begin(bench.cpu, 1));
	finish(&bench, bench.cpu, 1, 0);
	cqe = expect_cqe(&bench, 1, -ECANCELED);
	assert_fields(cqe, (device, RBK_DEVICE_NONE), (queue_ns, 0), (exec_ns, 0));
}

TEST(test_cancel__running)
{
	BENCH(bench, 1, N_ENTRIES);
	put_run(&bench, bench.queued, 1, 0);
	rig_work(&bench.rig);
	assert_true(fake_begin(bench.cpu, 1));
	put_cancel(&bench, 2, 1, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 2, -EALREADY);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
}

/* In a chain, later members are cancelled as well, earlier ones are not. */
TEST(test_cancel__held)
{
	BENCH(bench, 1, N_ENTRIES);
	put_run(&bench, bench.queued, 1, LINK);
	put_run(&bench, bench.queued, 2, LINK);
	put_run(&bench, bench.queued, 3, 0);
	put_cancel(&bench, 4, 2, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 4, 0);
	expect_none(&bench);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	expect_cqe(&bench, 2, -ECANCELED);
	expect_cqe(&bench, 3, -ECANCELED);
	assert_int_equal(bench.cpu->n_submitted, 1);
}

/* A CANCEL in a chain runs when its turn comes, and may cut its own chain. */
TEST(test_cancel__in_a_chain)
{
	BENCH(bench, 1, N_ENTRIES);
	put_run(&bench, bench.queued, 1, LINK);
	put_cancel(&bench, 2, 3, LINK);
	put_run(&bench, bench.queued, 3, 0);
	put_run(&bench, bench.queued, 4, LINK);
	put_cancel(&bench, 5, 99, LINK);
	put_run(&bench, bench.queued, 6, 0);
	rig_work(&bench.rig);
	expect_none(&bench);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	expect_cqe(&bench, 2, 0);
	expect_cqe(&bench, 3, -ECANCELED);
	/* A CANCEL that finds no task fails, and cuts its chain. */
	finish(&bench, bench.cpu, 4, 0);
	expect_cqe(&bench, 4, 0);
	expect_cqe(&bench, 5, -ENOENT);
	expect_cqe(&bench, 6, -ECANCELED);
}

/* CANCEL finds the oldest task of a user_data that is not cancelled yet. */
TEST(test_cancel__oldest_of_same_user_data)
{
	struct rbk_cqe cqe;

	BENCH(bench, 1, N_ENTRIES);
	for (unsigned int i = 0; i < 3; i++)
		put_run(&bench, bench.queued, 7, 0);
	rig_work(&bench.rig);
	put_cancel(&bench, 1, 7, 0);
	put_cancel(&bench, 2, 7, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 1, 0);
	expect_cqe(&bench, 2, 0);
	assert_int_equal(atomic_load(&bench.cpu->tasks[0]->state), EXEC_CANCELLED);
	assert_int_equal(atomic_load(&bench.cpu->tasks[1]->state), EXEC_CANCELLED);
	assert_int_equal(atomic_load(&bench.cpu->tasks[2]->state), EXEC_QUEUED);
	fake_finish_all(bench.cpu, 0);
	rig_work(&bench.rig);
	for (unsigned int i = 0; i < 3; i++) {
		assert_true(rig_take(&bench.ring, &cqe));
		assert_int_equal(cqe.res, i < 2 ? -ECANCELED : 0);
	}
}

/*
 * A task in the middle of the dispatcher's queue is cancelled at once; the others keep their order.
 */
TEST(test_cancel__in_the_queue)
{
	struct rbk_cqe cqe;

	BENCH(bench, 1, N_ENTRIES);
	bench.cpu->capacity = 1;
	for (uint64_t i = 1; i <= 5; i++)
		put_run(&bench, bench.queued, i, 0);
	rig_work(&bench.rig);
	put_cancel(&bench, 6, 3, 0);
	put_cancel(&bench, 7, 5, 0);
	put_cancel(&bench, 8, 5, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 6, 0);
	expect_cqe(&bench, 7, 0);
	expect_cqe(&bench, 8, -ENOENT);
	cqe = expect_cqe(&bench, 3, -ECANCELED);
	assert_fields(cqe, (device, RBK_DEVICE_NONE), (exec_ns, 0));
	expect_cqe(&bench, 5, -ECANCELED);
	assert_fields(bench, (rig.dispatch->n_queued, 2), (queued->memory.n_on_device[CPU], 3));
	finish(&bench, bench.cpu, 1, 0);
	expect_held(bench.cpu, 2);
	finish(&bench, bench.cpu, 2, 0);
	expect_held(bench.cpu, 4);
	finish(&bench, bench.cpu, 4, 0);
	expect_cqe(&bench, 1, 0);
	expect_cqe(&bench, 2, 0);
	expect_cqe(&bench, 4, 0);
	assert_fields(bench, (rig.dispatch->n_queued, 0), (queued->memory.n_on_device[CPU], 0),
		      (cpu->n_submitted, 3));
	/* The queue is intact: more tasks pass through it. */
	for (uint64_t i = 10; i < 14; i++)
		put_run(&bench, bench.queued, i, 0);
	rig_work(&bench.rig);
	for (uint64_t i = 10; i < 14; i++) {
		finish(&bench, bench.cpu, i, 0);
		expect_cqe(&bench, i, 0);
	}
}

/* --- Executors --- */

/* Tasks are submitted in the order of admission, also if new ones come when there is room again. */
TEST(test_busy__in_order)
{
	uint64_t next = 0, n_put = 0;

	BENCH(bench, 2, N_ENTRIES);
	bench.gpu->capacity = 3;
	while (next < 50) {
		while (n_put < 50 && n_put - next < N_ENTRIES)
			put_strategy(&bench, n_put++, RBK_STRATEGY_ONLY_GPU);
		/* Reaped after the new tasks were admitted. */
		if (bench.gpu->n_tasks > 0)
			fake_finish(bench.gpu, next, 0);
		rig_work(&bench.rig);
		assert_true(bench.gpu->n_tasks <= 3);
		for (unsigned int i = 1; i < bench.gpu->n_tasks; i++)
			assert_int_equal(fake_user_data(bench.gpu->tasks[i]),
					 fake_user_data(bench.gpu->tasks[0]) + i);
		if (bench.ring.cq->cq_tail != bench.ring.cq_head)
			expect_cqe(&bench, next++, 0);
	}
	assert_fields(bench, (gpu->n_submitted, 50), (cpu->n_submitted, 0));
}

/* One device's queue does not delay another device's. */
TEST(test_busy__one_device)
{
	BENCH(bench, 2, N_ENTRIES);
	bench.gpu->capacity = 0;
	put_strategy(&bench, 1, RBK_STRATEGY_ONLY_GPU);
	put_strategy(&bench, 2, RBK_STRATEGY_ONLY_CPU);
	rig_work(&bench.rig);
	finish(&bench, bench.cpu, 2, 0);
	expect_cqe(&bench, 2, 0);
	bench.gpu->capacity = 1;
	rig_work(&bench.rig);
	finish(&bench, bench.gpu, 1, 0);
	expect_cqe(&bench, 1, 0);
}

TEST(test_fallback__every_error)
{
	static const int errors[] = {-EIO, -ENOMEM, -EXDEV};
	struct rbk_cqe cqe;
	struct bench bench;

	for (unsigned int i = 0; i < 3; i++) {
		bench_begin(&bench, 2, N_ENTRIES);
		put_strategy(&bench, 1, RBK_STRATEGY_DEVICE(GPU));
		rig_work(&bench.rig);
		bench.gpu->tasks[0]->transferred_bytes = 5;
		finish(&bench, bench.gpu, 1, errors[i]);
		expect_none(&bench);
		expect_held(bench.cpu, 1);
		finish(&bench, bench.cpu, 1, 0);
		cqe = expect_cqe(&bench, 1, 0);
		assert_fields(cqe, (device, CPU), (reason, RBK_REASON_CPU_FALLBACK));
		/* The task counts once, for the device that completed it. */
		assert_fields(bench.rig.session->stats, (tasks[CPU], 1), (tasks[GPU], 0),
			      (reasons[RBK_REASON_CPU_FALLBACK], 1));
		bench_end(&bench);
	}
}

/* A task that falls back to a full CPU waits; if the CPU fails as well, its error is the result. */
TEST(test_fallback__waits_and_fails)
{
	struct rbk_cqe cqe;

	BENCH(bench, 2, N_ENTRIES);
	bench.cpu->capacity = 1;
	put_strategy(&bench, 1, RBK_STRATEGY_ONLY_CPU);
	put_strategy(&bench, 2, RBK_STRATEGY_PREFER_GPU);
	rig_work(&bench.rig);
	finish(&bench, bench.gpu, 2, -EIO);
	assert_int_equal(bench.rig.dispatch->n_queued, 1);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	finish(&bench, bench.cpu, 2, -ENOMEM);
	cqe = expect_cqe(&bench, 2, -ENOMEM);
	assert_fields(cqe, (device, CPU), (reason, RBK_REASON_CPU_FALLBACK));
}

static void expect_no_fallback(struct bench *bench, uint8_t strategy)
{
	struct rbk_cqe cqe;

	placer_reset_device(bench->rig.dispatch->placer, GPU);
	put_strategy(bench, 1, strategy);
	rig_work(&bench->rig);
	finish(bench, bench->gpu, 1, -EIO);
	cqe = expect_cqe(bench, 1, -EIO);
	assert_fields(cqe, (device, GPU), (reason, RBK_REASON_USER_PREFERENCE));
	assert_int_equal(bench->cpu->n_submitted, 0);
}

TEST(test_fallback__where_it_must_not)
{
	BENCH(bench, 2, N_ENTRIES);
	expect_no_fallback(&bench, RBK_STRATEGY_ONLY_GPU);
	bench.queued->plan->has_state = true;
	expect_no_fallback(&bench, RBK_STRATEGY_PREFER_GPU);
	bench.queued->plan->has_state = false;
	bench.queued->plan->device_state[CPU] = PLAN_DEVICE_NO_MEMORY;
	expect_no_fallback(&bench, RBK_STRATEGY_PREFER_GPU);
	bench.queued->plan->device_state[CPU] = PLAN_DEVICE_READY;
	bench_pin(&bench, bench.queued, GPU);
	expect_no_fallback(&bench, RBK_STRATEGY_AUTO);
}

static void run_gpu(struct bench *bench, int res)
{
	struct rbk_cqe cqe;

	put_strategy(bench, 1, RBK_STRATEGY_ONLY_GPU);
	rig_work(&bench->rig);
	finish(bench, bench->gpu, 1, res);
	assert_true(rig_take(&bench->ring, &cqe));
	assert_int_equal(cqe.device, GPU);
}

/* Only -EIO counts as the device's fault, and only a task that ran counts. */
TEST(test_failures__open_the_breaker)
{
	struct residency *residency;

	BENCH(bench, 2, N_ENTRIES);
	for (unsigned int i = 0; i < 20; i++) {
		run_gpu(&bench, -ENOMEM);
		run_gpu(&bench, -EXDEV);
		put_strategy(&bench, 1, RBK_STRATEGY_ONLY_GPU);
		rig_work(&bench.rig);
		put_cancel(&bench, 2, 1, 0);
		rig_work(&bench.rig);
		expect_cqe(&bench, 2, 0);
		finish(&bench, bench.gpu, 1, 0);
		expect_cqe(&bench, 1, -ECANCELED);
	}
	run_gpu(&bench, 0);
	bench_break_gpu(&bench);
	put_strategy(&bench, 3, RBK_STRATEGY_ONLY_GPU);
	put_strategy(&bench, 4, RBK_STRATEGY_PREFER_GPU);
	rig_work(&bench.rig);
	assert_int_equal(expect_cqe(&bench, 3, -ENODEV).reason, RBK_REASON_BREAKER_OPEN);
	finish(&bench, bench.cpu, 4, 0);
	assert_int_equal(expect_cqe(&bench, 4, 0).reason, RBK_REASON_BREAKER_OPEN);

	/* A reopened device is used like any other. */
	residency = bench.rig.dispatch->options.residency;
	residency->reopened(residency->reopened_context, GPU);
	run_gpu(&bench, 0);
}

/* Once its breaker may be tried, the GPU gets a task that is small enough to run inline, too. */
static void probe_with_tiny(uint8_t flags)
{
	struct rbk_sqe sqe;

	BENCH(bench, 2, N_ENTRIES);
	bench_break_gpu(&bench);
	usleep(110000); /* the breaker's first pause */
	assert_true(bench.tiny->inline_max_count > 0);
	sqe = run_entry(&bench, bench.tiny, 5);
	sqe.strategy = RBK_STRATEGY_PREFER_GPU;
	sqe.flags = flags;
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	assert_int_equal(bench.gpu->n_tasks, 1);
	finish(&bench, bench.gpu, 5, 0);
	assert_int_equal(expect_cqe(&bench, 5, 0).device, GPU);
}

TEST(test_failures__tiny_task_probes)
{
	probe_with_tiny(0);
	probe_with_tiny(RBK_SQE_PARTITION);
}

/* Let the GPU be lost with all its tasks, and reopened. */
static void lose_gpu(struct bench *bench, unsigned int n_tasks)
{
	struct residency *residency = bench->rig.dispatch->options.residency;
	struct rbk_cqe cqe;

	for (uint64_t i = 1; i <= n_tasks; i++)
		put_strategy(bench, i, RBK_STRATEGY_ONLY_GPU);
	rig_work(&bench->rig);
	residency->is_lost = true;
	for (uint64_t i = 1; i <= n_tasks; i++) {
		finish(bench, bench->gpu, i, -EIO);
		assert_true(rig_take(&bench->ring, &cqe));
		assert_int_equal(cqe.res, -EIO);
	}
	residency->is_lost = false;
	residency->n_reopened++;
	residency->reopened(residency->reopened_context, GPU);
}

/* A loss counts as one failure, however many tasks it ended; reopening does not undo it. */
TEST(test_losses__count_once)
{
	BENCH(bench, 2, N_ENTRIES);
	for (unsigned int i = 0; i < 2; i++) {
		lose_gpu(&bench, 1 + i);
		run_gpu(&bench, 0);
	}
	lose_gpu(&bench, 1);
	put_strategy(&bench, 3, RBK_STRATEGY_ONLY_GPU);
	rig_work(&bench.rig);
	assert_int_equal(expect_cqe(&bench, 3, -ENODEV).reason, RBK_REASON_BREAKER_OPEN);
}

/* --- Removal --- */

/* A ring closes with a task in every state; another ring must not be affected. */
TEST(test_close__drains)
{
	struct rig_ring closing;
	struct rbk_sqe sqe;

	BENCH(bench, 2, N_ENTRIES);
	bench.cpu->capacity = 3;
	closing = bench.ring;
	rig_ring_new(&bench.rig, N_ENTRIES, &bench.ring);
	sqe = run_entry(&bench, bench.queued, 1);
	rig_put(&closing, &sqe);
	rig_work(&bench.rig);
	/*
	 * 10 runs, 11 is queued, 12 is held behind it, 13 and 14 are pending, 15 fails on the GPU,
	 * 16 is a barrier and 17 behind it. Only 15 may leave the CPU when 1 seems overdue.
	 */
	for (uint64_t i = 10; i <= 15; i++) {
		sqe = run_entry(&bench, bench.queued, i);
		sqe.flags = i == 11 ? LINK : 0;
		sqe.strategy = i == 15 ? RBK_STRATEGY_PREFER_GPU : RBK_STRATEGY_ONLY_CPU;
		rig_put(&bench.ring, &sqe);
	}
	put_bare(&bench, RBK_OP_BARRIER, 16, 0);
	put_bare(&bench, RBK_OP_NOP, 17, 0);
	rig_work(&bench.rig);
	assert_true(fake_begin(bench.cpu, 10));
	assert_true(fake_begin(bench.gpu, 15));
	expect_held(bench.cpu, 1, 10, 11);
	expect_held(bench.gpu, 15);
	assert_fields(bench, (rig.dispatch->n_queued, 2), (ring.ring->n_in_flight, 7));

	assert_int_equal(session_ring_remove(bench.rig.session, 5, bench.ring.ring->id), 0);
	assert_int_not_equal(bench.ring.cq->closed, 0);
	rig_work(&bench.rig);
	assert_false(rig_has_answer(&bench.rig));
	fake_finish(bench.gpu, 15, -EIO);
	/* The executor has not begun 11, and finds it cancelled. */
	assert_false(fake_begin(bench.cpu, 11));
	fake_finish(bench.cpu, 11, 0);
	rig_work(&bench.rig);
	assert_false(rig_has_answer(&bench.rig));
	finish(&bench, bench.cpu, 10, 0);
	assert_int_equal(rig_answer(&bench.rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	assert_int_equal(bench.ring.cq->cq_tail, 0);
	/* 13 and 14 were dropped, 15 was not run again. */
	expect_held(bench.cpu, 1);
	assert_fields(bench, (cpu->n_submitted, 3), (rig.dispatch->n_queued, 0));

	rig_ring_deinit(&bench.ring);
	bench.ring = closing;
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	assert_fields(bench, (arena->n_in_flight, 0), (queued->n_in_flight, 0));
}

/* The running task succeeds, but its successor is dropped with the ring. */
TEST(test_close__barrier)
{
	BENCH(bench, 1, N_ENTRIES);
	put_run(&bench, bench.queued, 1, LINK);
	put_run(&bench, bench.queued, 2, 0);
	put_bare(&bench, RBK_OP_BARRIER, 3, 0);
	rig_work(&bench.rig);
	assert_true(fake_begin(bench.cpu, 1));
	assert_int_equal(session_ring_remove(bench.rig.session, 5, bench.ring.ring->id), 0);
	finish(&bench, bench.cpu, 1, 0);
	assert_int_equal(rig_answer(&bench.rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	assert_int_equal(bench.cpu->n_submitted, 1);
}

/*
 * New tasks are rejected at once; the plan stays until the last earlier task, held or not, has
 * completed.
 */
TEST(test_remove__plan_in_use)
{
	uint32_t id;

	BENCH(bench, 1, N_ENTRIES);
	id = bench.queued->id;
	put_run(&bench, bench.queued, 1, LINK);
	put_run(&bench, bench.queued, 2, 0);
	rig_work(&bench.rig);
	assert_int_equal(session_plan_remove(bench.rig.session, 5, id), 0);
	put_run(&bench, bench.queued, 3, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 3, -ENOENT);
	assert_false(rig_has_answer(&bench.rig));
	finish(&bench, bench.cpu, 1, 0);
	assert_false(rig_has_answer(&bench.rig));
	finish(&bench, bench.cpu, 2, 0);
	assert_int_equal(rig_answer(&bench.rig, RBK_WIRE_PLAN_REMOVE, NULL, 0), 0);
	expect_cqe(&bench, 1, 0);
	expect_cqe(&bench, 2, 0);
	/* The slot's next plan has another id. */
	bench.queued = rig_relu(&bench.rig, true);
	assert_int_equal(bench.queued->id & 0xffff, id & 0xffff);
	assert_int_not_equal(bench.queued->id, id);
}

TEST(test_remove__arena_in_use)
{
	struct session_arena *other;
	struct rbk_sqe sqe;

	BENCH(bench, 1, N_ENTRIES);
	other = rig_arena_new(&bench.rig, 65536, false);
	sqe = run_entry(&bench, bench.queued, 1);
	sqe.refs[1] = RBK_REF(other->id, 0);
	sqe.flags = LINK;
	rig_put(&bench.ring, &sqe);
	sqe.flags = 0;
	sqe.user_data = 2;
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	assert_int_equal(other->n_in_flight, 2);
	assert_int_equal(bench.arena->n_in_flight, 2);
	assert_int_equal(session_arena_remove(bench.rig.session, 5, other->id), 0);
	sqe.user_data = 3;
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	expect_cqe(&bench, 3, -EBADF);
	assert_false(rig_has_answer(&bench.rig));
	/* The first task's failure ends the second one, and with it the use of the arena. */
	finish(&bench, bench.cpu, 1, -EIO);
	assert_int_equal(rig_answer(&bench.rig, RBK_WIRE_ARENA_REMOVE, NULL, 0), 0);
	expect_cqe(&bench, 1, -EIO);
	expect_cqe(&bench, 2, -ECANCELED);
	assert_int_equal(bench.arena->n_in_flight, 0);
}

/* The session ends with tasks in all states; the rig asserts that all charges are undone. */
TEST(test_remove__session_with_all)
{
	BENCH(bench, 2, N_ENTRIES);
	bench.cpu->capacity = 2;
	put_run(&bench, bench.queued, 1, LINK);
	put_run(&bench, bench.queued, 2, 0);
	for (uint64_t i = 3; i < 8; i++)
		put_run(&bench, bench.queued, i, 0);
	put_strategy(&bench, 8, RBK_STRATEGY_ONLY_GPU);
	put_bare(&bench, RBK_OP_BARRIER, 9, 0);
	put_bare(&bench, RBK_OP_NOP, 10, 0);
	rig_work(&bench.rig);
	assert_true(fake_begin(bench.gpu, 8));
	assert_int_equal(session_plan_remove(bench.rig.session, 5, bench.queued->id), 0);
	assert_int_equal(session_arena_remove(bench.rig.session, 6, bench.arena->id), 0);
	session_end(bench.rig.session, false, "the client is gone");
}
