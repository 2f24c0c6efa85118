/* SPDX-License-Identifier: MIT */
/* The reactor's sleep while a GPU computes a task whose end is predicted. */
#include <errno.h>

#include "loop/loop.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"
#include "util/checked.h"
#include "util/clock.h"

static const uint64_t hour_ns = 3600000000000, second_ns = 1000000000;

/* Two devices of 1 and 10 bytes per microsecond: a task of 32 bytes is predicted, but never quick.
 */
static void due_begin_bench(struct bench *bench)
{
	const struct bench_speed speeds[] = {{.bytes_per_ns = 0.001f}, {.bytes_per_ns = 0.01f}};

	bench_begin_placement(bench, 2, N_ENTRIES, NULL, speeds);
	bench->rig.dispatch->options.spin_ns = -1;
	bench->rig.dispatch->options.n_processors = 2;
	/* The thread of a test may lose its processor for longer than a sleep costs. */
	bench->rig.dispatch->due.most_ticks = clock_ns_to_ticks(second_ns);
	bench->queued->plan->device_state[GPU] = PLAN_DEVICE_READY;
}
#define BEGIN(name) SCOPED(bench, name, due_begin_bench, bench_end)

static void start(struct bench *bench, uint64_t user_data, uint8_t device)
{
	put_strategy(bench, user_data, RBK_STRATEGY_DEVICE(device));
	rig_work(&bench->rig);
	assert_int_equal(bench->rig.dispatch->loads[device].n_held, 1);
}

static void end(struct bench *bench, uint64_t user_data, uint8_t device)
{
	finish(bench, device == GPU ? bench->gpu : bench->cpu, user_data, 0);
	expect_cqe(bench, user_data, 0);
}

/* Move the predicted end of the GPU's task to a time relative to now. */
static void set_due(struct bench *bench, int64_t from_now_ns)
{
	const uint64_t ticks =
		clock_ns_to_ticks((uint64_t)(from_now_ns < 0 ? -from_now_ns : from_now_ns));

	bench->rig.dispatch->loads[GPU].due_ticks =
		from_now_ns < 0 ? clock_ticks() - ticks : clock_ticks() + ticks;
}

/* Far from the end the reactor sleeps, around it not, and after a long wait again. */
TEST(test_due__is_near)
{
	struct dispatch *dispatch;
	uint64_t before_ticks;

	BEGIN(bench);
	dispatch = bench.rig.dispatch;
	before_ticks = clock_ticks();
	start(&bench, 1, GPU);
	assert_int_equal(dispatch->due.devices, 1u << GPU);
	assert_in_range(dispatch->loads[GPU].due_ticks, before_ticks + 1,
			clock_ticks() + clock_ns_to_ticks(1000000000));
	set_due(&bench, (int64_t)hour_ns);
	assert_false(due_is_near(dispatch));
	assert_int_equal(dispatch->due.alarm_ticks, dispatch->loads[GPU].due_ticks);
	set_due(&bench, 0);
	assert_true(due_is_near(dispatch));
	set_due(&bench, -2 * (int64_t)second_ns);
	assert_false(due_is_near(dispatch));
	assert_int_equal(dispatch->due.devices, 0);
	end(&bench, 1, GPU);
}

/* A task that was returned, or that was stopped, keeps the reactor awake no more. */
TEST(test_due__ends_with_the_task)
{
	BEGIN(bench);
	start(&bench, 1, GPU);
	set_due(&bench, (int64_t)hour_ns);
	end(&bench, 1, GPU);
	assert_int_equal(bench.rig.dispatch->due.devices, 0);
	assert_int_equal(bench.rig.dispatch->loads[GPU].early_ticks,
			 bench.rig.dispatch->due.most_ticks);
	bench.rig.dispatch->loads[GPU].early_ticks = 0;
	start(&bench, 2, GPU);
	set_due(&bench, (int64_t)hour_ns);
	put_cancel(&bench, 3, 2, 0);
	rig_work(&bench.rig);
	fake_finish(bench.gpu, 2, 0);
	rig_work(&bench.rig);
	assert_int_equal(bench.rig.dispatch->due.devices, 0);
}

/*
 * The reactor rises earlier by as much as tasks ended before their prediction: at once, and later
 * again if they do not.
 */
TEST(test_due__rises_early)
{
	struct dispatch *dispatch;
	uint64_t early_ticks;

	BEGIN(bench);
	dispatch = bench.rig.dispatch;
	start(&bench, 1, GPU);
	set_due(&bench, 100000000);
	end(&bench, 1, GPU);
	early_ticks = dispatch->loads[GPU].early_ticks;
	assert_in_range(early_ticks, 1, clock_ns_to_ticks(100000000));
	start(&bench, 2, GPU);
	set_due(&bench, (int64_t)hour_ns);
	assert_false(due_is_near(dispatch));
	assert_int_equal(dispatch->due.alarm_ticks, dispatch->loads[GPU].due_ticks - early_ticks);
	/* Timers that are late count as well, up to the time that a sleep costs. */
	dispatch->due.lag_ticks = 1000;
	assert_false(due_is_near(dispatch));
	assert_int_equal(dispatch->due.alarm_ticks,
			 dispatch->loads[GPU].due_ticks - early_ticks - 1000);
	dispatch->due.lag_ticks = dispatch->due.most_ticks;
	assert_false(due_is_near(dispatch));
	assert_int_equal(dispatch->due.alarm_ticks,
			 dispatch->loads[GPU].due_ticks - dispatch->due.most_ticks);
	set_due(&bench, -1000);
	end(&bench, 2, GPU);
	assert_in_range(dispatch->loads[GPU].early_ticks, 1, early_ticks - 1);
}

/* The alarm ends a sleep, and the reactor learns by how much it was late. */
TEST(test_due__alarm_wakes)
{
	struct dispatch *dispatch;

	BEGIN(bench);
	dispatch = bench.rig.dispatch;
	start(&bench, 1, GPU);
	set_due(&bench, 50000000);
	assert_false(due_is_near(dispatch));
	while (dispatch->due.alarm_ticks)
		assert_true(loop_turn(bench.rig.loop, true) >= 0);
	assert_true(clock_ticks() >= dispatch->loads[GPU].due_ticks);
	assert_in_range(dispatch->due.lag_ticks, 1, dispatch->due.most_ticks);
	end(&bench, 1, GPU);
}

static void expect_not_awaited(struct bench *bench, uint8_t device)
{
	start(bench, 1, device);
	assert_int_equal(bench->rig.dispatch->due.devices, 0);
	end(bench, 1, device);
}

/* The reactor does not poll where it takes a processor from tasks or from other programs. */
TEST(test_due__is_of_gpus_alone)
{
	BEGIN(bench);
	expect_not_awaited(&bench, CPU);
	bench.gpu->executor.info.kind = EXECUTOR_SOFTWARE_GPU;
	expect_not_awaited(&bench, GPU);
	bench.gpu->executor.info.kind = EXECUTOR_GPU;
	dispatch_set_contended(bench.rig.dispatch, true);
	expect_not_awaited(&bench, GPU);
	dispatch_set_contended(bench.rig.dispatch, false);
	bench.rig.dispatch->options.spin_ns = 0;
	expect_not_awaited(&bench, GPU);
}

/* A device that has more tasks works on while the reactor wakes up. */
TEST(test_due__is_of_an_idle_device)
{
	struct dispatch *dispatch;

	BEGIN(bench);
	dispatch = bench.rig.dispatch;
	start(&bench, 1, GPU);
	set_due(&bench, (int64_t)hour_ns);
	put_strategy(&bench, 2, RBK_STRATEGY_DEVICE(GPU));
	rig_work(&bench.rig);
	assert_int_equal(dispatch->loads[GPU].n_held, 2);
	assert_true(dispatch->loads[GPU].due_ticks >
		    clock_ticks() + clock_ns_to_ticks(hour_ns / 2));
	end(&bench, 1, GPU);
	assert_int_equal(dispatch->due.devices, 0);
	end(&bench, 2, GPU);
}

/* --- the loop --- */

static struct {
	bool is_replaced;
	unsigned int n_blocked, n_polled;
} turns;

int __real_loop_turn(struct loop *loop, bool block);
int __wrap_loop_turn(struct loop *loop, bool block);
int __wrap_loop_turn(struct loop *loop, bool block)
{
	if (!turns.is_replaced)
		return __real_loop_turn(loop, block);
	turns.n_blocked += block;
	turns.n_polled += !block;
	return 0;
}

/* Go through the reactor's loop once. Return: true if the reactor slept. */
static bool sleeps(struct bench *bench)
{
	struct dispatch *dispatch = bench->rig.dispatch;

	turns.is_replaced = true;
	turns.n_blocked = turns.n_polled = 0;
	/* With tasks in flight, the loop ends after this. */
	dispatch->drain_expired = true;
	assert_int_equal(dispatch_run(dispatch, bench->rig.server), -ETIMEDOUT);
	dispatch->drain_expired = turns.is_replaced = false;
	assert_int_equal(turns.n_blocked + turns.n_polled, 1);
	return turns.n_blocked;
}

TEST(test_due__keeps_the_reactor_awake)
{
	BEGIN(bench);
	start(&bench, 1, GPU);
	ring_deactivate(bench.rig.dispatch, rig_dispatch_ring(&bench.ring));
	set_due(&bench, (int64_t)hour_ns);
	assert_true(sleeps(&bench));
	set_due(&bench, 0);
	assert_false(sleeps(&bench));
	set_due(&bench, -2 * (int64_t)second_ns);
	assert_true(sleeps(&bench));
	fake_finish(bench.gpu, 1, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 1, 0);
}

/* A GPU's own thread polls where no thread needs its processor, and threads may spin at all. */
TEST(test_due__lets_threads_poll)
{
	static const struct {
		bool is_contended;
		int64_t spin_ns;
		uint32_t n_processors;
		bool may_poll;
	} cases[] = {{false, -1, 3, true},
		     {true, -1, 3, false},
		     {false, 0, 3, false},
		     {false, 20000, 3, false},
		     {false, -1, 2, false}};

	BEGIN(bench);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		bench.rig.dispatch->options.spin_ns = cases[i].spin_ns;
		bench.rig.dispatch->options.n_processors = cases[i].n_processors;
		dispatch_set_contended(bench.rig.dispatch, cases[i].is_contended);
		assert_int_equal(atomic_load(&bench.gpu->executor.may_poll), cases[i].may_poll);
	}
}

/*
 * A GPU leaves the processors to a reactor that polls for the next entry; tasks that all processors
 * compute do not.
 */
TEST(test_due__rings_spin_beside_a_gpu)
{
	static const enum executor_kind kinds[] = {EXECUTOR_GPU, EXECUTOR_SOFTWARE_GPU};
	struct dispatch_ring *ring;
	struct dispatch *dispatch;

	BEGIN(bench);
	dispatch = bench.rig.dispatch;
	bench.cpu->executor.info.n_threads = 2;
	ring = rig_dispatch_ring(&bench.ring);
	for (unsigned int i = 0; i < 2; i++) {
		bench.gpu->executor.info.kind = kinds[i];
		start(&bench, i, GPU);
		ring->spin_ticks = clock_ns_to_ticks(hour_ns);
		ring->last_work_ticks = clock_ticks() - clock_ns_to_ticks(1000000);
		dispatch_sleep_rings(dispatch, false);
		assert_int_equal(ring->is_active, i == 0);
		end(&bench, i, GPU);
	}
}
