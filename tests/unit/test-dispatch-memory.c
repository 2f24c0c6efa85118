/* SPDX-License-Identifier: MIT */
/*
 * The dispatcher and device memory: tasks whose plan is not resident, entries that load or evict
 * it, and every way in which a wait can end. Residency is a fake.
 */
#include <string.h>

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/test.h"
#include "unit/dispatch-bench.h"
#include "util/clock.h"

enum { LINK = RBK_SQE_LINK, WAIT = RBK_SQE_WAIT_MEMORY, GPU2 = 2 };

static void begin(struct bench *bench, uint32_t n_devices)
{
	bench_begin(bench, n_devices, N_ENTRIES);
	for (uint32_t i = GPU; i < n_devices; i++)
		bench->queued->plan->device_state[i] = PLAN_DEVICE_EVICTED;
}

#define BEGIN(name, ...) SCOPED(bench, name, begin, bench_end, __VA_ARGS__)

static void put(struct bench *bench, uint64_t user_data, uint8_t strategy, uint8_t flags)
{
	struct rbk_sqe sqe = run_entry(bench, bench->queued, user_data);

	sqe.strategy = strategy;
	sqe.flags = flags;
	rig_put(&bench->ring, &sqe);
}

static void put_memory(struct bench *bench, uint8_t opcode, uint64_t user_data, uint8_t strategy,
		       uint8_t flags)
{
	rig_put(&bench->ring, &(const struct rbk_sqe){.opcode = opcode,
						      .plan_id = bench->queued->id,
						      .user_data = user_data,
						      .strategy = strategy,
						      .flags = flags});
}

/* Assert the oldest waiter's request, set the plan's @state on @device, and answer it with @res. */
#define answer(bench, wish, device, state, res) answer_(bench, wish, device, state, res, __LINE__)
static void answer_(struct bench *bench, enum residency_wish wish, uint8_t device, uint8_t state,
		    int res, int line)
{
	struct residency_waiter *waiter = fake_residency_oldest(bench->rig.residency);

	if (!waiter)
		fail_msg("line %d: nobody waits", line);
	if (waiter->wish != wish || waiter->device != device)
		fail_msg("line %d: wish %u on device %u, not %u on %u", line, waiter->wish,
			 waiter->device, wish, device);
	assert_ptr_equal(waiter->memory, &bench->queued->memory);
	if (device != RBK_DEVICE_NONE)
		bench->queued->plan->device_state[device] = state;
	fake_residency_answer(bench->rig.residency, waiter, res);
	/* The answer itself completes nothing. */
	expect_none(bench);
	rig_work(&bench->rig);
}

static void expect_placed(struct bench *bench, uint64_t user_data, uint8_t device, uint8_t reason)
{
	struct rbk_cqe cqe;

	finish(bench, &bench->rig.fakes[device], user_data, 0);
	cqe = expect_cqe(bench, user_data, 0);
	assert_fields(cqe, (device, device), (reason, reason));
}

/* --- Tasks that do not wait --- */

TEST(test_constrained__runs_on_the_cpu)
{
	uint64_t start_ticks, later_ticks;

	BEGIN(bench, 2);
	start_ticks = clock_ticks();
	put(&bench, 1, RBK_STRATEGY_PREFER_GPU, 0);
	put(&bench, 2, RBK_STRATEGY_DEVICE(GPU), 0);
	rig_work(&bench.rig);
	expect_placed(&bench, 1, CPU, RBK_REASON_MEMORY_CONSTRAINT);
	expect_placed(&bench, 2, CPU, RBK_REASON_MEMORY_CONSTRAINT);
	/* Two tasks requested the plan, which is listed once. */
	assert_ptr_equal(bench.rig.residency->demand.first, &bench.queued->memory);
	assert_null(bench.queued->memory.next_wanted);
	assert_fields(bench, (queued->memory.n_wanted, 2), (queued->memory.n_constrained, 2),
		      (rig.residency->counts.n_constraints, 2));
	assert_true(bench.queued->memory.wanted_ticks >= start_ticks);
	assert_int_equal(bench.rig.residency->n_asked, 0);

	bench.queued->plan->device_state[GPU] = PLAN_DEVICE_READY;
	later_ticks = clock_ticks();
	put(&bench, 3, RBK_STRATEGY_PREFER_GPU, 0);
	rig_work(&bench.rig);
	expect_placed(&bench, 3, GPU, RBK_REASON_USER_PREFERENCE);
	assert_int_equal(bench.queued->memory.n_wanted, 3);
	assert_true(bench.queued->memory.wanted_ticks >= later_ticks);
	assert_int_equal(bench.queued->memory.n_constrained, 2);
}

/* Tasks that did not ask for the device request nothing, with or without the flag to wait. */
TEST(test_constrained__wants_nothing)
{
	static const uint8_t strategies[] = {RBK_STRATEGY_AUTO, RBK_STRATEGY_PREFER_CPU,
					     RBK_STRATEGY_ONLY_CPU, RBK_STRATEGY_DEVICE(CPU)};

	BEGIN(bench, 2);
	for (unsigned int i = 0; i < 4; i++) {
		put(&bench, i, strategies[i], i % 2 ? WAIT : 0);
		rig_work(&bench.rig);
		expect_placed(&bench, i, CPU,
			      i ? RBK_REASON_USER_PREFERENCE : RBK_REASON_BELOW_THRESHOLD);
	}
	assert_null(bench.rig.residency->demand.first);
	assert_fields(bench, (queued->memory.n_wanted, 0), (queued->memory.n_constrained, 0),
		      (rig.residency->n_asked, 0));
}

/* A tiny task that asks for the GPU still runs inline, and its request is noted. */
TEST(test_constrained__inline)
{
	struct rbk_cqe cqe;
	struct rbk_sqe sqe;

	BEGIN(bench, 2);
	bench.tiny->plan->device_state[GPU] = PLAN_DEVICE_EVICTED;
	sqe = run_entry(&bench, bench.tiny, 1);
	sqe.strategy = RBK_STRATEGY_PREFER_GPU;
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	cqe = expect_cqe(&bench, 1, 0);
	assert_int_equal(cqe.reason, RBK_REASON_MEMORY_CONSTRAINT);
	assert_int_equal(bench.cpu->n_inline, 1);
	assert_ptr_equal(bench.rig.residency->demand.first, &bench.tiny->memory);
	/* Below the threshold, a task requests nothing. */
	put_run(&bench, bench.tiny, 2, WAIT);
	rig_work(&bench.rig);
	expect_cqe(&bench, 2, 0);
	assert_fields(bench, (cpu->n_inline, 2), (tiny->memory.n_constrained, 1));
	/* A task with the flag to wait does not run inline. */
	sqe.user_data = 3;
	sqe.flags = WAIT;
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	expect_none(&bench);
	assert_int_equal(bench.rig.residency->n_waiters, 1);
	bench.tiny->plan->device_state[GPU] = PLAN_DEVICE_READY;
	fake_residency_answer_all(bench.rig.residency, 0);
	rig_work(&bench.rig);
	expect_placed(&bench, 3, GPU, RBK_REASON_USER_PREFERENCE);
}

/* Two plans are requested and one is not; one turn takes all requests. */
TEST(test_constrained__turn)
{
	struct session_plan *others[2];
	struct rbk_sqe sqe;

	BEGIN(bench, 2);
	for (unsigned int i = 0; i < 2; i++) {
		others[i] = rig_relu(&bench.rig, true);
		others[i]->plan->device_state[GPU] = PLAN_DEVICE_EVICTED;
	}
	put(&bench, 1, RBK_STRATEGY_PREFER_GPU, 0);
	sqe = run_entry(&bench, others[1], 2);
	sqe.strategy = RBK_STRATEGY_PREFER_GPU;
	rig_put(&bench.ring, &sqe);
	put(&bench, 3, RBK_STRATEGY_PREFER_GPU, 0);
	rig_work(&bench.rig);
	residency_turn(bench.rig.residency);
	assert_int_equal(bench.rig.residency->n_wanted, 2);
	assert_ptr_equal(bench.rig.residency->wanted[0], &others[1]->memory);
	assert_ptr_equal(bench.rig.residency->wanted[1], &bench.queued->memory);
	fake_finish_all(bench.cpu, 0);
	rig_work(&bench.rig);
}

/* The reactor runs the turn by itself, and sleeps when there is no request. */
static void client_of_turn(void *data)
{
	struct bench *bench = data;
	struct rbk_sqe sqe = run_entry(bench, bench->tiny, 1);
	uint32_t tail;

	for (unsigned int i = 0; i < 3; i++) {
		sqe.strategy = i == 1 ? RBK_STRATEGY_PREFER_CPU : RBK_STRATEGY_PREFER_GPU;
		rig_put(&bench->ring, &sqe);
		do {
			send(bench->ring.bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
			usleep(1000);
			tail = rbk_ring_observe(&bench->ring.cq->cq_tail);
		} while (tail != i + 1);
	}
}

TEST(test_constrained__reactor_turns)
{
	BEGIN(bench, 2);
	bench.tiny->plan->device_state[GPU] = PLAN_DEVICE_EVICTED;
	rig_run(&bench.rig, client_of_turn, &bench);
	assert_int_equal(bench.rig.residency->n_turns, 2);
}

TEST(test_never_fits__does_not_wait)
{
	struct rbk_cqe cqe;

	BEGIN(bench, 2);
	bench.queued->plan->device_state[GPU] = PLAN_DEVICE_NO_MEMORY;
	put(&bench, 1, RBK_STRATEGY_PREFER_GPU, WAIT);
	put(&bench, 2, RBK_STRATEGY_ONLY_GPU, WAIT);
	rig_work(&bench.rig);
	cqe = expect_cqe(&bench, 2, -ENOMEM);
	assert_fields(cqe, (device, RBK_DEVICE_NONE), (reason, RBK_REASON_MEMORY_CONSTRAINT));
	expect_placed(&bench, 1, CPU, RBK_REASON_MEMORY_CONSTRAINT);
	bench_pin(&bench, bench.queued, GPU);
	put(&bench, 3, RBK_STRATEGY_AUTO, WAIT);
	rig_work(&bench.rig);
	expect_cqe(&bench, 3, -ENOMEM);
	assert_int_equal(bench.rig.residency->n_asked, 0);
	assert_null(bench.rig.residency->demand.first);
	assert_int_equal(bench.queued->memory.n_constrained, 3);
	/* A failed device gives another error. */
	bench.queued->plan->device_state[GPU] = PLAN_DEVICE_FAILED;
	put(&bench, 4, RBK_STRATEGY_AUTO, WAIT);
	rig_work(&bench.rig);
	expect_cqe(&bench, 4, -ENODEV);
}

/* --- Tasks that wait --- */

TEST(test_wait__runs_on_wanted_device)
{
	struct rbk_cqe cqe;

	BEGIN(bench, 2);
	put(&bench, 1, RBK_STRATEGY_PREFER_GPU, WAIT);
	put(&bench, 2, RBK_STRATEGY_DEVICE(GPU), WAIT);
	rig_work(&bench.rig);
	assert_fields(bench, (rig.residency->n_waiters, 2), (ring.ring->n_in_flight, 2),
		      (queued->n_in_flight, 2), (arena->n_in_flight, 4), (cpu->n_submitted, 0));
	usleep(2000);
	answer(&bench, RESIDENCY_WAIT, GPU, PLAN_DEVICE_READY, 0);
	answer(&bench, RESIDENCY_WAIT, GPU, PLAN_DEVICE_READY, 0);
	assert_int_equal(bench.queued->memory.n_on_device[GPU], 2);
	finish(&bench, bench.gpu, 1, 0);
	cqe = expect_cqe(&bench, 1, 0);
	assert_fields(cqe, (device, GPU), (reason, RBK_REASON_USER_PREFERENCE));
	/* queue_ns counts from admission. */
	assert_true(cqe.queue_ns >= 2000000);
	expect_placed(&bench, 2, GPU, RBK_REASON_USER_PREFERENCE);
	assert_fields(bench.queued->memory, (n_constrained, 0), (n_wanted, 2),
		      (n_on_device[GPU], 0));
}

/* The plan is evicted again before the task's turn: the task waits on. */
TEST(test_wait__evicted_before_its_turn)
{
	BEGIN(bench, 2);
	put(&bench, 1, RBK_STRATEGY_PREFER_GPU, WAIT);
	rig_work(&bench.rig);
	for (unsigned int i = 0; i < 3; i++)
		answer(&bench, RESIDENCY_WAIT, GPU, PLAN_DEVICE_EVICTED, 0);
	answer(&bench, RESIDENCY_WAIT, GPU, PLAN_DEVICE_READY, 0);
	expect_placed(&bench, 1, GPU, RBK_REASON_USER_PREFERENCE);
	assert_int_equal(bench.queued->memory.n_wanted, 1);
}

/* A rejected wait: the task runs elsewhere, or the answer is its result. */
TEST(test_wait__refused)
{
	static const struct {
		int res;
		uint8_t state, reason;
	} cases[] = {
		{-ENOMEM, PLAN_DEVICE_NO_MEMORY, RBK_REASON_MEMORY_CONSTRAINT},
		{-ENOMEM, PLAN_DEVICE_EVICTED, RBK_REASON_MEMORY_CONSTRAINT},
		{-EIO, PLAN_DEVICE_FAILED, RBK_REASON_GPU_UNAVAILABLE},
		{-ENODEV, PLAN_DEVICE_UNSUPPORTED, RBK_REASON_GPU_UNAVAILABLE},
	};

	BEGIN(bench, 2);
	for (unsigned int i = 0; i < 4; i++) {
		bench.queued->plan->device_state[GPU] = PLAN_DEVICE_EVICTED;
		put(&bench, 1, RBK_STRATEGY_PREFER_GPU, WAIT);
		rig_work(&bench.rig);
		answer(&bench, RESIDENCY_WAIT, GPU, cases[i].state, cases[i].res);
		expect_placed(&bench, 1, CPU, cases[i].reason);

		bench.queued->plan->device_state[GPU] = PLAN_DEVICE_EVICTED;
		put(&bench, 2, RBK_STRATEGY_ONLY_GPU, WAIT);
		rig_work(&bench.rig);
		answer(&bench, RESIDENCY_WAIT, GPU, cases[i].state, cases[i].res);
		expect_cqe(&bench, 2, cases[i].res);
	}
}

/* With no other device, the plan is loaded even without the flag; if that fails, -ENOMEM. */
TEST(test_only_device__plan_is_loaded)
{
	BEGIN(bench, 2);
	put(&bench, 1, RBK_STRATEGY_ONLY_GPU, 0);
	rig_work(&bench.rig);
	answer(&bench, RESIDENCY_PREFETCH, GPU, PLAN_DEVICE_READY, 0);
	expect_placed(&bench, 1, GPU, RBK_REASON_USER_PREFERENCE);

	bench.queued->plan->device_state[GPU] = PLAN_DEVICE_EVICTED;
	bench_pin(&bench, bench.queued, GPU);
	put(&bench, 2, RBK_STRATEGY_AUTO, 0);
	put(&bench, 3, RBK_STRATEGY_AUTO, WAIT);
	rig_work(&bench.rig);
	answer(&bench, RESIDENCY_PREFETCH, GPU, PLAN_DEVICE_EVICTED, -ENOMEM);
	expect_cqe(&bench, 2, -ENOMEM);
	answer(&bench, RESIDENCY_WAIT, GPU, PLAN_DEVICE_READY, 0);
	expect_placed(&bench, 3, GPU, RBK_REASON_USER_PREFERENCE);

	/* A plan that is evicted again before the task's turn is not loaded again and again. */
	bench.queued->plan->device_state[GPU] = PLAN_DEVICE_EVICTED;
	put(&bench, 4, RBK_STRATEGY_AUTO, 0);
	rig_work(&bench.rig);
	answer(&bench, RESIDENCY_PREFETCH, GPU, PLAN_DEVICE_EVICTED, 0);
	expect_cqe(&bench, 4, -ENOMEM);

	/* The CPU cannot run the plan, and the task is below the threshold. */
	bench_pin(&bench, bench.queued, RBK_DEVICE_NONE);
	bench.queued->plan->device_state[CPU] = PLAN_DEVICE_FAILED;
	put(&bench, 5, RBK_STRATEGY_AUTO, 0);
	rig_work(&bench.rig);
	answer(&bench, RESIDENCY_PREFETCH, GPU, PLAN_DEVICE_READY, 0);
	expect_placed(&bench, 5, GPU, RBK_REASON_GPU_AVAILABLE);
}

/*
 * An administrator evicts the plan while it is being loaded: a PREFETCH is cancelled, a task tries
 * again.
 */
TEST(test_wait__evicted_by_hand)
{
	BEGIN(bench, 2);
	put_memory(&bench, RBK_OP_PREFETCH, 1, 0, 0);
	put(&bench, 2, RBK_STRATEGY_ONLY_GPU, 0);
	put(&bench, 3, RBK_STRATEGY_ONLY_GPU, 0);
	rig_work(&bench.rig);
	answer(&bench, RESIDENCY_PREFETCH, RBK_DEVICE_NONE, PLAN_DEVICE_EVICTED, -EINTR);
	expect_cqe(&bench, 1, -ECANCELED);
	answer(&bench, RESIDENCY_PREFETCH, GPU, PLAN_DEVICE_READY, -EINTR);
	expect_placed(&bench, 2, GPU, RBK_REASON_USER_PREFERENCE);
	answer(&bench, RESIDENCY_PREFETCH, GPU, PLAN_DEVICE_EVICTED, -EINTR);
	expect_cqe(&bench, 3, -ENOMEM);
}

/* The plan may be loaded to either device, or only to the one that works. */
TEST(test_wait__two_devices)
{
	BEGIN(bench, 3);
	put(&bench, 1, RBK_STRATEGY_PREFER_GPU, WAIT);
	rig_work(&bench.rig);
	bench.queued->plan->device_state[GPU2] = PLAN_DEVICE_READY;
	answer(&bench, RESIDENCY_WAIT, RBK_DEVICE_NONE, PLAN_DEVICE_READY, 0);
	expect_placed(&bench, 1, GPU2, RBK_REASON_USER_PREFERENCE);

	bench.queued->plan->device_state[GPU2] = PLAN_DEVICE_EVICTED;
	bench_break_gpu(&bench);
	put(&bench, 2, RBK_STRATEGY_PREFER_GPU, WAIT);
	rig_work(&bench.rig);
	answer(&bench, RESIDENCY_WAIT, GPU2, PLAN_DEVICE_READY, 0);
	expect_placed(&bench, 2, GPU2, RBK_REASON_USER_PREFERENCE);
}

/* Without the negotiated feature, the flag to wait is ignored. */
TEST(test_wait__without_the_feature)
{
	BEGIN(bench, 2);
	bench.rig.session->features = 0;
	put(&bench, 1, RBK_STRATEGY_PREFER_GPU, WAIT);
	put_memory(&bench, RBK_OP_PREFETCH, 2, 0, 0);
	put_memory(&bench, RBK_OP_EVICT, 3, 0, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 2, -EOPNOTSUPP);
	expect_cqe(&bench, 3, -EOPNOTSUPP);
	expect_placed(&bench, 1, CPU, RBK_REASON_MEMORY_CONSTRAINT);
}

TEST(test_wait__deadline_only_marks)
{
	struct rbk_cqe cqe;
	struct rbk_sqe sqe;

	BEGIN(bench, 2);
	sqe = run_entry(&bench, bench.queued, 1);
	sqe.strategy = RBK_STRATEGY_PREFER_GPU;
	sqe.flags = WAIT;
	sqe.deadline_us = 1000;
	rig_put(&bench.ring, &sqe);
	sqe.user_data = 2;
	sqe.deadline_us = 1000000000;
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	usleep(2000);
	rig_work(&bench.rig);
	expect_none(&bench);
	answer(&bench, RESIDENCY_WAIT, GPU, PLAN_DEVICE_READY, 0);
	answer(&bench, RESIDENCY_WAIT, GPU, PLAN_DEVICE_READY, 0);
	finish(&bench, bench.gpu, 1, 0);
	cqe = expect_cqe(&bench, 1, 0);
	assert_int_equal(cqe.flags, RBK_CQE_DEADLINE_MISSED);
	finish(&bench, bench.gpu, 2, 0);
	assert_int_equal(expect_cqe(&bench, 2, 0).flags, 0);
}

TEST(test_wait__chains_and_barriers)
{
	BEGIN(bench, 2);
	put_run(&bench, bench.queued, 1, LINK);
	put(&bench, 2, RBK_STRATEGY_PREFER_GPU, WAIT | LINK);
	put_bare(&bench, RBK_OP_NOP, 3, LINK);
	put(&bench, 4, RBK_STRATEGY_PREFER_GPU, WAIT);
	put_bare(&bench, RBK_OP_BARRIER, 5, 0);
	put_bare(&bench, RBK_OP_NOP, 6, 0);
	rig_work(&bench.rig);
	assert_int_equal(bench.rig.residency->n_waiters, 0);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	assert_int_equal(bench.rig.residency->n_waiters, 1);
	answer(&bench, RESIDENCY_WAIT, GPU, PLAN_DEVICE_READY, 0);
	bench.queued->plan->device_state[GPU] = PLAN_DEVICE_EVICTED;
	expect_placed(&bench, 2, GPU, RBK_REASON_USER_PREFERENCE);
	expect_cqe(&bench, 3, 0);
	expect_none(&bench);
	answer(&bench, RESIDENCY_WAIT, GPU, PLAN_DEVICE_READY, 0);
	expect_placed(&bench, 4, GPU, RBK_REASON_USER_PREFERENCE);
	expect_cqe(&bench, 5, 0);
	expect_cqe(&bench, 6, 0);

	/* A rejected task fails its chain. */
	bench.queued->plan->device_state[GPU] = PLAN_DEVICE_EVICTED;
	put(&bench, 7, RBK_STRATEGY_ONLY_GPU, LINK);
	put_bare(&bench, RBK_OP_NOP, 8, LINK);
	rig_work(&bench.rig);
	answer(&bench, RESIDENCY_PREFETCH, GPU, PLAN_DEVICE_EVICTED, -ENOMEM);
	expect_cqe(&bench, 7, -ENOMEM);
	expect_cqe(&bench, 8, -ECANCELED);
	/* The chain is still open. */
	put_bare(&bench, RBK_OP_NOP, 9, 0);
	put_bare(&bench, RBK_OP_NOP, 10, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 9, -ECANCELED);
	expect_cqe(&bench, 10, 0);
}

/* --- The end of a wait --- */

TEST(test_cancel__waiting)
{
	BEGIN(bench, 2);
	put(&bench, 1, RBK_STRATEGY_PREFER_GPU, WAIT | LINK);
	put_bare(&bench, RBK_OP_NOP, 2, 0);
	put_memory(&bench, RBK_OP_PREFETCH, 3, 0, 0);
	put(&bench, 4, RBK_STRATEGY_PREFER_GPU, WAIT);
	rig_work(&bench.rig);
	assert_int_equal(bench.rig.residency->n_waiters, 3);
	put_cancel(&bench, 5, 1, 0);
	put_cancel(&bench, 6, 1, 0);
	put_cancel(&bench, 7, 3, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 5, 0);
	expect_cqe(&bench, 6, -ENOENT);
	expect_cqe(&bench, 7, 0);
	assert_int_equal(expect_cqe(&bench, 1, -ECANCELED).device, RBK_DEVICE_NONE);
	expect_cqe(&bench, 2, -ECANCELED);
	assert_int_equal(expect_cqe(&bench, 3, -ECANCELED).device, RBK_DEVICE_NONE);
	expect_none(&bench);
	assert_int_equal(bench.rig.residency->n_withdrawn, 2);
	/* The other task still waits. */
	answer(&bench, RESIDENCY_WAIT, GPU, PLAN_DEVICE_READY, 0);
	expect_placed(&bench, 4, GPU, RBK_REASON_USER_PREFERENCE);
}

/* The wait was answered, but the task's turn has not come when the CANCEL is handled. */
TEST(test_cancel__answered)
{
	BEGIN(bench, 2);
	put(&bench, 1, RBK_STRATEGY_PREFER_GPU, WAIT);
	put_memory(&bench, RBK_OP_PREFETCH, 2, 0, 0);
	rig_work(&bench.rig);
	bench.queued->plan->device_state[GPU] = PLAN_DEVICE_READY;
	fake_residency_answer_all(bench.rig.residency, 0);
	put_cancel(&bench, 3, 1, 0);
	put_cancel(&bench, 4, 2, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 3, 0);
	expect_cqe(&bench, 4, 0);
	expect_cqe(&bench, 1, -ECANCELED);
	expect_cqe(&bench, 2, -ECANCELED);
	assert_fields(bench, (gpu->n_submitted, 0), (rig.residency->n_withdrawn, 0));
}

/* The ring closes with a waiting task, an answered one, and tasks behind them. */
TEST(test_close__waiting)
{
	BEGIN(bench, 2);
	put(&bench, 1, RBK_STRATEGY_PREFER_GPU, WAIT);
	put(&bench, 2, RBK_STRATEGY_PREFER_GPU, WAIT | LINK);
	put(&bench, 3, RBK_STRATEGY_PREFER_GPU, WAIT | LINK);
	put_memory(&bench, RBK_OP_EVICT, 4, 0, 0);
	put_memory(&bench, RBK_OP_PREFETCH, 5, 0, WAIT);
	put_bare(&bench, RBK_OP_BARRIER, 6, 0);
	put_bare(&bench, RBK_OP_NOP, 7, 0);
	rig_work(&bench.rig);
	assert_int_equal(bench.rig.residency->n_waiters, 3);
	fake_residency_answer(bench.rig.residency, fake_residency_oldest(bench.rig.residency), 0);
	assert_int_equal(session_ring_remove(bench.rig.session, 5, bench.ring.ring->id), 0);
	rig_work(&bench.rig);
	assert_int_equal(bench.rig.residency->n_waiters, 0);
	assert_int_equal(rig_answer(&bench.rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	assert_fields(bench, (ring.cq->cq_tail, 0), (gpu->n_submitted + bench.cpu->n_submitted, 0),
		      (queued->n_in_flight, 0), (arena->n_in_flight, 0));
}

/* The plan is removed: its waiting tasks end. A running task, and those behind it, end first. */
TEST(test_remove__waiting)
{
	BEGIN(bench, 2);
	put_run(&bench, bench.queued, 1, LINK);
	put(&bench, 2, RBK_STRATEGY_ONLY_GPU, WAIT);
	put(&bench, 3, RBK_STRATEGY_PREFER_GPU, WAIT);
	put_memory(&bench, RBK_OP_EVICT, 4, 0, LINK);
	put(&bench, 5, RBK_STRATEGY_PREFER_GPU, WAIT);
	put_run(&bench, bench.queued, 6, LINK);
	put_memory(&bench, RBK_OP_PREFETCH, 7, 0, 0);
	rig_work(&bench.rig);
	assert_int_equal(bench.rig.residency->n_waiters, 2);
	assert_int_equal(session_plan_remove(bench.rig.session, 5, bench.queued->id), 0);
	assert_int_equal(bench.rig.residency->n_waiters, 0);
	expect_none(&bench);
	rig_work(&bench.rig);
	expect_cqe(&bench, 3, -ECANCELED);
	expect_cqe(&bench, 4, -ECANCELED);
	expect_cqe(&bench, 5, -ECANCELED);
	assert_false(rig_has_answer(&bench.rig));
	/* No task begins to wait any more. */
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	expect_cqe(&bench, 2, -ECANCELED);
	assert_false(rig_has_answer(&bench.rig));
	finish(&bench, bench.cpu, 6, 0);
	expect_cqe(&bench, 6, 0);
	expect_cqe(&bench, 7, -ECANCELED);
	assert_int_equal(rig_answer(&bench.rig, RBK_WIRE_PLAN_REMOVE, NULL, 0), 0);
	assert_int_equal(bench.rig.residency->n_asked, 2);
}

/*
 * A task behind a running one, while the plan is being removed, runs on the CPU instead of waiting.
 */
TEST(test_remove__waiting_task_runs_on_the_cpu)
{
	BEGIN(bench, 2);
	put_run(&bench, bench.queued, 1, LINK);
	put(&bench, 2, RBK_STRATEGY_PREFER_GPU, WAIT);
	rig_work(&bench.rig);
	assert_int_equal(session_plan_remove(bench.rig.session, 5, bench.queued->id), 0);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	expect_placed(&bench, 2, CPU, RBK_REASON_MEMORY_CONSTRAINT);
	assert_int_equal(rig_answer(&bench.rig, RBK_WIRE_PLAN_REMOVE, NULL, 0), 0);
}

/* Residency answers that the plan is being removed. */
TEST(test_wait__plan_is_being_removed)
{
	BEGIN(bench, 2);
	put(&bench, 1, RBK_STRATEGY_PREFER_GPU, WAIT);
	put_memory(&bench, RBK_OP_PREFETCH, 2, 0, 0);
	rig_work(&bench.rig);
	answer(&bench, RESIDENCY_WAIT, GPU, PLAN_DEVICE_EVICTED, -ECANCELED);
	expect_cqe(&bench, 1, -ECANCELED);
	answer(&bench, RESIDENCY_PREFETCH, RBK_DEVICE_NONE, 0, -ECANCELED);
	expect_cqe(&bench, 2, -ECANCELED);
}

/* The client dies while all of its tasks wait; the rig asserts that all charges are undone. */
TEST(test_session_ends__waiting)
{
	BEGIN(bench, 2);
	for (uint64_t i = 0; i < 5; i++)
		put(&bench, i, RBK_STRATEGY_PREFER_GPU, WAIT | (i % 2 ? 0 : LINK));
	put_memory(&bench, RBK_OP_PREFETCH, 6, 0, WAIT);
	put_memory(&bench, RBK_OP_EVICT, 7, 0, 0);
	rig_work(&bench.rig);
	assert_int_equal(bench.rig.residency->n_waiters, 4);
	session_end(bench.rig.session, false, "the client is gone");
	rig_work(&bench.rig);
	assert_int_equal(bench.rig.residency->n_waiters, 0);
}

/* A large ring of waiting tasks is cancelled, rejected, answered and closed. */
TEST(test_wait__thousands)
{
	enum { N = 4096, ROUNDS = 4 };
	struct rbk_cqe cqe;

	BENCH(bench, 2, N);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		bench.queued->plan->device_state[GPU] = PLAN_DEVICE_EVICTED;
		for (uint64_t i = 0; i < N; i++) {
			put(&bench, i, RBK_STRATEGY_PREFER_GPU, WAIT);
			if (i % 512 == 511)
				rig_work(&bench.rig);
		}
		assert_int_equal(bench.rig.residency->n_waiters, N);
		if (round == 3)
			break;
		if (round == 0)
			bench.queued->plan->device_state[GPU] = PLAN_DEVICE_READY;
		fake_residency_answer_all(bench.rig.residency, round == 0   ? 0
							       : round == 1 ? -ENOMEM
									    : -ECANCELED);
		do {
			fake_finish_all(round == 0 ? bench.gpu : bench.cpu, 0);
		} while (rig_work(&bench.rig) > 0);
		for (uint64_t i = 0; i < N; i++) {
			assert_true(rig_take(&bench.ring, &cqe));
			assert_int_equal(cqe.res, round == 2 ? -ECANCELED : 0);
		}
		expect_none(&bench);
	}
}

/* --- PREFETCH and EVICT --- */

TEST(test_prefetch__loads)
{
	struct rbk_cqe cqe;

	BEGIN(bench, 3);
	put_memory(&bench, RBK_OP_PREFETCH, 1, RBK_STRATEGY_DEVICE(GPU2), 0);
	rig_work(&bench.rig);
	answer(&bench, RESIDENCY_PREFETCH, GPU2, PLAN_DEVICE_READY, 0);
	cqe = expect_cqe(&bench, 1, 0);
	assert_fields(cqe, (device, GPU2), (reason, RBK_REASON_NONE), (queue_ns + cqe.exec_ns, 0));
	/* No task ran on the device. */
	assert_fields(bench.rig.session->stats, (tasks[GPU2], 0), (errors, 0));
	put_memory(&bench, RBK_OP_PREFETCH, 2, RBK_STRATEGY_AUTO, WAIT);
	rig_work(&bench.rig);
	answer(&bench, RESIDENCY_WAIT, RBK_DEVICE_NONE, 0, 0);
	assert_int_equal(expect_cqe(&bench, 2, 0).device, GPU2);
	assert_int_equal(bench.queued->n_in_flight, 0);
}

TEST(test_prefetch__fails)
{
	static const int results[] = {-ENOMEM, -ENODEV, -EIO};
	struct rbk_cqe cqe;

	BEGIN(bench, 2);
	for (unsigned int i = 0; i < 3; i++) {
		put_memory(&bench, RBK_OP_PREFETCH, i, RBK_STRATEGY_DEVICE(GPU), LINK);
		put_bare(&bench, RBK_OP_NOP, 100 + i, 0);
		rig_work(&bench.rig);
		answer(&bench, RESIDENCY_PREFETCH, GPU, PLAN_DEVICE_EVICTED, results[i]);
		cqe = expect_cqe(&bench, i, results[i]);
		assert_int_equal(cqe.device, RBK_DEVICE_NONE);
		expect_cqe(&bench, 100 + i, -ECANCELED);
	}
	assert_int_equal(bench.rig.session->stats.errors, 6);
}

/* Entries that are rejected without asking residency. */
TEST(test_prefetch__refused)
{
	static const uint8_t opcodes[] = {RBK_OP_PREFETCH, RBK_OP_EVICT};
	struct rbk_sqe sqe;

	BEGIN(bench, 2);
	for (unsigned int i = 0; i < 2; i++) {
		/* The CPU has no memory of its own, and device 2 does not exist. */
		put_memory(&bench, opcodes[i], 1, RBK_STRATEGY_DEVICE(CPU), 0);
		put_memory(&bench, opcodes[i], 2, RBK_STRATEGY_DEVICE(2), LINK);
		put_bare(&bench, RBK_OP_NOP, 3, 0);
		put_memory(&bench, opcodes[i], 4, RBK_STRATEGY_ONLY_GPU, 0);
		sqe = (struct rbk_sqe){
			.opcode = opcodes[i], .plan_id = bench.queued->id, .user_data = 5};
		sqe.count = 1;
		rig_put(&bench.ring, &sqe);
		sqe.count = 0;
		sqe.refs[4] = 1;
		rig_put(&bench.ring, &sqe);
		/* Another generation of the slot, another session's slot, no slot at all. */
		sqe.refs[4] = 0;
		sqe.plan_id = bench.queued->id + 0x10000;
		rig_put(&bench.ring, &sqe);
		sqe.plan_id = 7 | 1 << 16;
		rig_put(&bench.ring, &sqe);
		sqe.plan_id = UINT32_MAX;
		rig_put(&bench.ring, &sqe);
		rig_work(&bench.rig);
		expect_cqe(&bench, 1, -ENODEV);
		expect_cqe(&bench, 2, -ENODEV);
		expect_cqe(&bench, 3, -ECANCELED);
		expect_cqe(&bench, 4, -EINVAL);
		expect_cqe(&bench, 5, -EINVAL);
		expect_cqe(&bench, 5, -EINVAL);
		expect_cqe(&bench, 5, -ENOENT);
		expect_cqe(&bench, 5, -ENOENT);
		expect_cqe(&bench, 5, -ENOENT);
	}
	put_memory(&bench, RBK_OP_EVICT, 6, 0, WAIT);
	put_bare(&bench, RBK_OP_NOP, 7, WAIT);
	rig_work(&bench.rig);
	expect_cqe(&bench, 6, -EINVAL);
	expect_cqe(&bench, 7, -EINVAL);
	assert_fields(bench, (rig.residency->n_asked, 0), (queued->n_in_flight, 0));
}

/* Another session's plan, whose id does not exist in this session. */
TEST(test_prefetch__another_session)
{
	struct session *other;
	int ends[2];

	BEGIN(bench, 2);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
	assert_int_equal(session_new(bench.rig.server, ends[0], false, &other, NULL), 0);
	/* The other session's table of plans is empty, whatever the first session has. */
	other->features = RBK_FEAT_RESIDENCY;
	bench.ring.ring->session = other;
	put_memory(&bench, RBK_OP_PREFETCH, 1, 0, 0);
	put_memory(&bench, RBK_OP_EVICT, 2, 0, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 1, -ENOENT);
	expect_cqe(&bench, 2, -ENOENT);
	bench.ring.ring->session = bench.rig.session;
	assert_int_equal(bench.rig.residency->n_asked, 0);
	close(ends[1]);
}

TEST(test_evict__chain)
{
	BEGIN(bench, 2);
	bench.queued->plan->device_state[GPU] = PLAN_DEVICE_READY;
	put(&bench, 1, RBK_STRATEGY_ONLY_GPU, LINK);
	put_memory(&bench, RBK_OP_EVICT, 2, 0, LINK);
	put_memory(&bench, RBK_OP_PREFETCH, 3, 0, LINK);
	put(&bench, 4, RBK_STRATEGY_ONLY_GPU, 0);
	rig_work(&bench.rig);
	expect_placed(&bench, 1, GPU, RBK_REASON_USER_PREFERENCE);
	answer(&bench, RESIDENCY_EVICT, RBK_DEVICE_NONE, 0, 0);
	assert_int_equal(expect_cqe(&bench, 2, 0).device, RBK_DEVICE_NONE);
	answer(&bench, RESIDENCY_PREFETCH, RBK_DEVICE_NONE, 0, 0);
	assert_int_equal(expect_cqe(&bench, 3, 0).device, GPU);
	expect_placed(&bench, 4, GPU, RBK_REASON_USER_PREFERENCE);
}

/* --- Tasks on a device --- */

/* Tasks count from placement to completion, in the executor or queued for it. */
TEST(test_leaving__last_task_tells)
{
	BEGIN(bench, 2);
	bench.queued->plan->device_state[GPU] = PLAN_DEVICE_READY;
	bench.gpu->capacity = 2;
	for (uint64_t i = 1; i <= 4; i++)
		put(&bench, i, RBK_STRATEGY_PREFER_GPU, 0);
	put_run(&bench, bench.queued, 5, 0);
	rig_work(&bench.rig);
	assert_fields(bench.queued->memory, (n_on_device[GPU], 4), (n_on_device[CPU], 1),
		      (n_wanted, 4));
	/* From now on, the device accepts no new tasks of the plan. */
	bench.queued->memory.leaving = 1u << GPU;
	bench.queued->plan->device_state[GPU] = PLAN_DEVICE_EVICTED;
	put_cancel(&bench, 6, 4, 0);
	put(&bench, 7, RBK_STRATEGY_PREFER_GPU, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 6, 0);
	assert_int_equal(bench.queued->memory.n_on_device[CPU], 2);
	/* One task fails and moves to the CPU; another is cancelled in the dispatcher's queue. */
	finish(&bench, bench.gpu, 1, -EIO);
	finish(&bench, bench.gpu, 2, 0);
	expect_cqe(&bench, 4, -ECANCELED);
	expect_cqe(&bench, 2, 0);
	assert_int_equal(bench.rig.residency->n_idle, 0);
	finish(&bench, bench.cpu, 5, 0);
	expect_cqe(&bench, 5, 0);
	assert_int_equal(bench.queued->memory.n_on_device[GPU], 1);
	finish(&bench, bench.gpu, 3, 0);
	expect_cqe(&bench, 3, 0);
	assert_int_equal(bench.rig.residency->n_idle, 1);
	assert_ptr_equal(bench.rig.residency->idle_plan, &bench.queued->memory);
	assert_int_equal(bench.rig.residency->idle_device, GPU);
	fake_finish_all(bench.cpu, 0);
	rig_work(&bench.rig);
	assert_fields(bench, (queued->memory.n_on_device[CPU], 0), (rig.residency->n_idle, 1));
}

/* The plan is not leaving this device: residency is not told. */
TEST(test_leaving__not_this_device)
{
	BEGIN(bench, 2);
	bench.queued->plan->device_state[GPU] = PLAN_DEVICE_READY;
	put(&bench, 1, RBK_STRATEGY_PREFER_GPU, 0);
	rig_work(&bench.rig);
	bench.queued->memory.leaving = (uint16_t) ~(1u << GPU);
	expect_placed(&bench, 1, GPU, RBK_REASON_USER_PREFERENCE);
	assert_int_equal(bench.rig.residency->n_idle, 0);
	bench.queued->memory.leaving = 0;
}
