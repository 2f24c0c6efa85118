/* SPDX-License-Identifier: MIT */
/*
 * Devices that have work and make no progress: each stall is noticed once and handled, and nothing
 * else counts as a stall
 */
#include <errno.h>
#include <string.h>

#include "dispatch/ending.h"
#include "place/placer-private.h"
#include "support/slotted.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"

enum { ENTRIES = 64, ROWS = 64 };

#define MS 1000000ull
#define S  1000000000ull

struct kit {
	struct bench bench;
	struct dispatch *dispatch;
	struct session_plan *plan;
	struct slotted devices[2];
	unsigned int n_done, n_failed, n_on[2], n_put;
};

static struct slotted *lost_device;
static bool is_lost;

static void lose(struct executor *executor, const char *why)
{
	assert_ptr_equal(executor, &lost_device->fake->executor);
	assert_non_null(why);
	is_lost = true;
	lost_device->is_stuck = false;
	slotted_lose(lost_device);
}

static bool was_lost(struct executor *executor)
{
	return is_lost && executor == &lost_device->fake->executor;
}

static void kit_begin(struct kit *kit, uint16_t n_parts, uint32_t n_slots)
{
	memset(kit, 0, sizeof(*kit));
	bench_begin(&kit->bench, 2, ENTRIES);
	kit->dispatch = kit->bench.rig.dispatch;
	kit->bench.rig.session->features = RBK_FEAT_RESIDENCY | RBK_FEAT_STRATEGIES;
	for (unsigned int i = 0; i < 2; i++)
		slotted_init(&kit->devices[i], &kit->bench.rig.fakes[i], 100000);
	kit->plan = bench_relu(&kit->bench, 16, ROWS);
	kit->plan->plan->n_parts[GPU] = n_parts;
	kit->plan->plan->n_slots[GPU] = n_slots;
	kit->plan->plan->splits_rows = n_parts <= 1;
	lost_device = &kit->devices[GPU];
	is_lost = false;
	kit->bench.gpu->ops.lose = lose;
	kit->bench.gpu->ops.is_lost = was_lost;
	liveness_check(kit->dispatch);
}

static void put(struct kit *kit, unsigned int n, uint8_t strategy)
{
	struct rbk_sqe sqe = run_entry(&kit->bench, kit->plan, 0);

	while (n-- > 0) {
		sqe.user_data = ++kit->n_put;
		sqe.strategy = strategy;
		rig_put(&kit->bench.ring, &sqe);
	}
}

static void work(struct kit *kit)
{
	struct rbk_cqe cqe;
	bool is_any_done;

	do {
		rig_work(&kit->bench.rig);
		is_any_done = false;
		for (unsigned int i = 0; i < 2; i++) {
			slotted_run(&kit->devices[i]);
			is_any_done |= kit->bench.rig.fakes[i].n_done > 0;
		}
	} while (is_any_done);
	while (rig_take(&kit->bench.ring, &cqe)) {
		kit->n_done++;
		kit->n_failed += cqe.res != 0;
		if (cqe.res == 0 && cqe.device < 2)
			kit->n_on[cqe.device]++;
	}
}

/* Pass @ns, checking every 100 ms like the timer. */
static void pass(struct kit *kit, uint64_t ns)
{
	uint64_t until_ns = slotted_now_ns() + ns;

	while (slotted_now_ns() < until_ns) {
		slotted_pass(slotted_now_ns() + 100000);
		work(kit);
		if (slotted_now_ns() / (100 * MS) != (slotted_now_ns() - 100000) / (100 * MS))
			liveness_check(kit->dispatch);
	}
}

static void expect_all_done(const struct kit *kit)
{
	assert_fields(*kit, (n_done, kit->n_put), (dispatch->n_queued, 0),
		      (dispatch->n_submitted, 0), (plan->memory.n_on_device[GPU], 0),
		      (plan->memory.n_on_device[CPU], 0));
	for (unsigned int i = 0; i < 2; i++) {
		const struct place_queue *queue = &kit->dispatch->placer->devices[i].queue;

		assert_fields(*queue, (n_queued + queue->n_released + queue->n_waiting, 0),
			      (queued_ns + queue->waiting_ns + queue->running_ns, 0),
			      (running_slots + queue->active_weight, 0),
			      (n_movable + queue->n_without_choice, 0));
	}
	assert_int_equal(kit->plan->place->rest->gates[GPU].n_begun, 0);
}

static struct dispatch_mended mended(const struct kit *kit, uint8_t device)
{
	struct dispatch_mended ret;

	dispatch_describe_mended(kit->dispatch, device, &ret);
	return ret;
}

/* Recount a device whose counters include tasks that it does not hold. */
TEST(test_recount__room)
{
	struct place_queue *queue;
	struct kit kit;

	for (uint16_t n_parts = 1; n_parts < 4; n_parts += 2) {
		kit_begin(&kit, n_parts, 2);
		queue = &kit.dispatch->placer->devices[GPU].queue;
		queue->waiting_ns += S;
		queue->n_waiting += 3;
		queue->n_released += 3;
		put(&kit, 10, RBK_STRATEGY_ONLY_GPU);
		pass(&kit, 900 * MS);
		assert_int_equal(kit.n_done, 0);
		assert_int_equal(dispatch_n_stalls(kit.dispatch, GPU), 0);
		pass(&kit, 300 * MS);
		assert_int_equal(dispatch_n_stalls(kit.dispatch, GPU), 1);
		assert_int_equal(kit.n_on[GPU], 10);
		expect_all_done(&kit);
		bench_end(&kit.bench);
	}
}

/* Recount slots that are counted as taken but are free; tasks that have begun stay counted. */
TEST(test_recount__slots)
{
	struct kit kit;

	kit_begin(&kit, 3, 2);
	put(&kit, 5, RBK_STRATEGY_ONLY_GPU);
	kit.plan->place->rest->gates[GPU].n_begun = 2;
	pass(&kit, 1200 * MS);
	assert_int_equal(dispatch_n_stalls(kit.dispatch, GPU), 1);
	assert_int_equal(mended(&kit, GPU).n_slots, 2);
	assert_int_equal(kit.n_on[GPU], 5);
	expect_all_done(&kit);

	/* The device has tasks of all kinds. */
	kit.devices[GPU].task_ns = 10 * MS;
	put(&kit, 7, RBK_STRATEGY_ONLY_GPU);
	pass(&kit, 15 * MS);
	kit.devices[GPU].is_stuck = true;
	kit.dispatch->placer->devices[GPU].queue.n_queued = 99;
	kit.plan->place->rest->gates[GPU].n_begun = 7;
	pass(&kit, 16 * S);
	assert_int_equal(dispatch_n_stalls(kit.dispatch, GPU), 2);
	/* Two of the seven are taken. */
	assert_int_equal(mended(&kit, GPU).n_slots, 2 + 5);
	assert_int_equal(mended(&kit, GPU).n_moved, 0);
	kit.devices[GPU].is_stuck = false;
	kit.devices[GPU].free_ns = slotted_now_ns() + MS;
	pass(&kit, S);
	assert_false(is_lost);
	assert_int_equal(kit.n_on[GPU], 12);
	assert_int_equal(dispatch_n_stalls(kit.dispatch, GPU), 2);
	expect_all_done(&kit);
	bench_end(&kit.bench);
}

/* The device begins no task: tasks that may move do, and the others fail in the end. */
TEST(test_stuck__tasks_move_or_fail)
{
	struct kit kit;

	for (uint16_t n_parts = 1; n_parts < 4; n_parts += 2) {
		kit_begin(&kit, n_parts, 2);
		kit.devices[GPU].is_stuck = true;
		put(&kit, 20, RBK_STRATEGY_PREFER_GPU);
		pass(&kit, 4 * S);
		assert_int_equal(dispatch_n_stalls(kit.dispatch, GPU), 1);
		assert_int_equal(kit.n_on[CPU], 20);
		assert_int_equal(mended(&kit, GPU).n_moved, 20);
		assert_true(mended(&kit, GPU).n_recalled > 0);
		assert_int_equal(mended(&kit, GPU).n_lost, 0);
		expect_all_done(&kit);
		put(&kit, 3, RBK_STRATEGY_ONLY_GPU);
		pass(&kit, 10 * S);
		assert_true(is_lost);
		assert_int_equal(mended(&kit, GPU).n_lost, 1);
		assert_int_equal(mended(&kit, CPU).n_moved, 0);
		assert_int_equal(kit.n_done, 23);
		expect_all_done(&kit);
		bench_end(&kit.bench);
	}
}

/* A device continues after a pause: no task is lost or done twice. */
TEST(test_stuck__for_a_while)
{
	struct kit kit;

	kit_begin(&kit, 4, 2);
	kit.devices[GPU].is_stuck = true;
	put(&kit, 9, RBK_STRATEGY_ONLY_GPU);
	pass(&kit, 1500 * MS);
	assert_int_equal(dispatch_n_stalls(kit.dispatch, GPU), 1);
	kit.devices[GPU].is_stuck = false;
	pass(&kit, S);
	assert_int_equal(kit.n_on[GPU], 9);
	assert_int_equal(dispatch_n_stalls(kit.dispatch, GPU), 1);
	expect_all_done(&kit);
	/* The next stall is another incident. */
	kit.devices[GPU].is_stuck = true;
	put(&kit, 9, RBK_STRATEGY_ONLY_GPU);
	pass(&kit, 1500 * MS);
	assert_int_equal(dispatch_n_stalls(kit.dispatch, GPU), 2);
	kit.devices[GPU].is_stuck = false;
	pass(&kit, S);
	assert_int_equal(kit.n_on[GPU], 18);
	expect_all_done(&kit);
	bench_end(&kit.bench);
}

/* A task that was recalled has not begun: it can be cancelled before the device returns it. */
TEST(test_stuck__recalled_task_is_cancelled)
{
	struct kit kit;

	kit_begin(&kit, 1, 2);
	kit.devices[GPU].is_stuck = true;
	put(&kit, 1, RBK_STRATEGY_ONLY_GPU);
	while (mended(&kit, GPU).n_recalled == 0) {
		slotted_pass(slotted_now_ns() + 100 * MS);
		work(&kit);
		liveness_check(kit.dispatch);
	}
	put_cancel(&kit.bench, 2, 1, 0);
	rig_work(&kit.bench.rig);
	expect_cqe(&kit.bench, 2, 0);
	kit.devices[GPU].is_stuck = false;
	slotted_run(&kit.devices[GPU]);
	rig_work(&kit.bench.rig);
	expect_cqe(&kit.bench, 1, -ECANCELED);
	bench_end(&kit.bench);
}

/* A state may be half updated, so a stopped task with a state is not restarted elsewhere. */
TEST(test_stuck__keeps_a_state)
{
	for (unsigned int has_state = 0; has_state < 2; has_state++) {
		unsigned int n_submitted;
		struct task *task;
		struct kit kit;

		kit_begin(&kit, 1, 2);
		kit.plan->plan->has_state = has_state;
		kit.devices[CPU].is_stuck = true;
		put(&kit, 1, RBK_STRATEGY_ONLY_CPU);
		rig_work(&kit.bench.rig);
		task = container_of(rig_dispatch_ring(&kit.bench.ring)->in_flight.next, struct task,
				    link);
		/* As if the task had been returned unfinished once. */
		task->run.has_begun = true;
		n_submitted = kit.bench.cpu->n_submitted;
		pass(&kit, 15 * S);
		assert_int_equal(dispatch_n_stalls(kit.dispatch, CPU), 1);
		assert_int_equal(kit.bench.cpu->n_submitted > n_submitted, !has_state);
		kit.devices[CPU].is_stuck = false;
		pass(&kit, S);
		expect_all_done(&kit);
		assert_int_equal(kit.n_failed, 0);
		kit.plan->plan->has_state = false;
		bench_end(&kit.bench);
	}
}

/* While a task runs, the device is not stalled: the executor watches its running tasks itself. */
TEST(test_slow__is_not_stuck)
{
	struct kit kit;

	kit_begin(&kit, 1, 0);
	kit.devices[GPU].task_ns = 12 * S;
	kit.devices[CPU].task_ns = 8 * S;
	put(&kit, 2, RBK_STRATEGY_ONLY_GPU);
	put(&kit, 2, RBK_STRATEGY_ONLY_CPU);
	pass(&kit, 40 * S);
	assert_int_equal(dispatch_n_stalls(kit.dispatch, GPU), 0);
	assert_int_equal(dispatch_n_stalls(kit.dispatch, CPU), 0);
	expect_all_done(&kit);
	/* Idle for long, then busy. */
	pass(&kit, 60 * S);
	put(&kit, 1, RBK_STRATEGY_ONLY_GPU);
	pass(&kit, 13 * S);
	assert_int_equal(dispatch_n_stalls(kit.dispatch, GPU), 0);
	expect_all_done(&kit);
	bench_end(&kit.bench);
}

/* A used-up quota may delay tasks for any time without a stall. */
TEST(test_quota__is_not_stuck)
{
	struct tenant poor = {.weight = 1, .priority_max = RBK_PRIORITY_URGENT, .cpu_max = 0.001f};
	struct rig_ring own, ring;
	struct kit kit;

	kit_begin(&kit, 1, 0);
	kit.devices[CPU].task_ns = S;
	rig_ring_new_for(&kit.bench.rig, &poor, ENTRIES, &ring);
	own = kit.bench.ring;
	kit.bench.ring = ring;
	put(&kit, 6, RBK_STRATEGY_ONLY_CPU);
	pass(&kit, 60 * S);
	assert_in_range(kit.n_done, 1, 5);
	assert_int_equal(dispatch_n_stalls(kit.dispatch, CPU), 0);
	kit.bench.ring = own;
	rig_ring_deinit(&ring);
	bench_end(&kit.bench);
}

TEST(test_lost__is_not_stuck)
{
	struct kit kit;

	kit_begin(&kit, 1, 0);
	kit.devices[GPU].is_stuck = true;
	is_lost = true;
	put(&kit, 2, RBK_STRATEGY_ONLY_GPU);
	pass(&kit, 20 * S);
	assert_int_equal(dispatch_n_stalls(kit.dispatch, GPU), 0);
	is_lost = false;
	pass(&kit, 2 * S);
	assert_int_equal(dispatch_n_stalls(kit.dispatch, GPU), 1);
	bench_end(&kit.bench);
}

/* --- Checks in slices --- */

enum { MANY = 1000, MOST_OF_TURN = 128 };

/* Put MANY tasks into @ring while the GPU begins none, and run until a check has begun. */
static void begin_look(struct kit *kit, struct rig_ring *ring, uint8_t strategy)
{
	const struct rig_ring own = kit->bench.ring;

	rig_ring_new(&kit->bench.rig, 1024, ring);
	kit->devices[GPU].is_stuck = true;
	kit->bench.ring = *ring;
	put(kit, MANY, strategy);
	kit->bench.ring = own;
	work(kit);
	assert_true(kit->dispatch->n_queued + kit->dispatch->n_submitted >= MANY);
	while (!(kit->dispatch->walking & WALK_LOOK)) {
		assert_true(kit->dispatch->watches[GPU].idle_ns < 2 * S);
		slotted_pass(slotted_now_ns() + 100 * MS);
		liveness_check(kit->dispatch);
	}
}

static uint32_t n_seen(const struct kit *kit)
{
	const struct holding *holding = &kit->dispatch->look.holding;

	return holding->n_queued + holding->n_given + holding->n_running;
}

static void turn(struct kit *kit)
{
	struct dispatch_ring *hostile = NULL;

	turn_end(kit->dispatch->turn);
	dispatch_work(kit->dispatch, &hostile);
}

/* Let the devices work, and assert that all tasks are done, most of them in @ring. */
static void end_look(struct kit *kit, struct rig_ring *ring, uint32_t n_stalls)
{
	const struct rig_ring own = kit->bench.ring;

	kit->devices[CPU].is_stuck = kit->devices[GPU].is_stuck = false;
	kit->bench.ring = *ring;
	pass(kit, S);
	kit->bench.ring = own;
	work(kit);
	assert_int_equal(dispatch_n_stalls(kit->dispatch, GPU), n_stalls);
	expect_all_done(kit);
	rig_ring_deinit(ring);
	bench_end(&kit->bench);
}

/* A turn visits a few tasks; the stall is noticed and handled all the same. */
TEST(test_look__in_slices)
{
	uint32_t before, n_turns = 0;
	struct rig_ring ring;
	struct kit kit;

	kit_begin(&kit, 1, 0);
	begin_look(&kit, &ring, RBK_STRATEGY_ONLY_GPU);
	assert_in_range(n_seen(&kit), 0, MOST_OF_TURN);
	while (kit.dispatch->walking & WALK_LOOK) {
		assert_int_equal(dispatch_n_stalls(kit.dispatch, GPU), 0);
		before = n_seen(&kit);
		turn(&kit);
		assert_in_range(n_seen(&kit) - before, 0, MOST_OF_TURN);
		n_turns++;
	}
	assert_in_range(n_turns, MANY / MOST_OF_TURN, 10 * MANY);
	assert_int_equal(n_seen(&kit), MANY);
	assert_int_equal(dispatch_n_stalls(kit.dispatch, GPU), 1);
	assert_true(mended(&kit, GPU).n_recalled > 0);
	end_look(&kit, &ring, 1);
	assert_int_equal(kit.n_on[GPU], MANY);
}

/*
 * Time that passes during a check does not count, because tasks may have begun since. One task
 * runs, so the device is given 15 seconds.
 */
TEST(test_look__takes_long)
{
	struct rig_ring ring;
	struct kit kit;

	kit_begin(&kit, 1, 0);
	put(&kit, 1, RBK_STRATEGY_ONLY_GPU);
	work(&kit);
	begin_look(&kit, &ring, RBK_STRATEGY_ONLY_GPU);
	while (kit.dispatch->watches[GPU].idle_ns < 20 * S) {
		slotted_pass(slotted_now_ns() + 100 * MS);
		liveness_check(kit.dispatch);
	}
	while (kit.dispatch->walking & WALK_LOOK)
		turn(&kit);
	assert_int_equal(kit.dispatch->look.holding.n_running, 1);
	end_look(&kit, &ring, 0);
	assert_int_equal(kit.n_on[GPU], MANY + 1);
}

/*
 * Tasks leave a stuck device in slices, too. The device is flushed after each slice, so that its
 * executor returns recalled tasks.
 */
TEST(test_evade__in_slices)
{
	struct rig_ring ring;
	uint64_t before = 0;
	struct kit kit;

	kit_begin(&kit, 1, 0);
	begin_look(&kit, &ring, RBK_STRATEGY_PREFER_GPU);
	kit.devices[CPU].is_stuck = true;
	while (mended(&kit, GPU).n_moved < MANY) {
		const unsigned int n_flushed = kit.bench.gpu->n_flushed;
		const bool is_evading = kit.dispatch->walking && kit.dispatch->look.is_evading;

		slotted_run(&kit.devices[GPU]);
		turn(&kit);
		assert_true(!is_evading || kit.bench.gpu->n_flushed > n_flushed);
		assert_in_range(mended(&kit, GPU).n_moved - before, 0, 2 * MOST_OF_TURN);
		before = mended(&kit, GPU).n_moved;
		slotted_pass(slotted_now_ns() + 10 * MS);
		liveness_check(kit.dispatch);
	}
	end_look(&kit, &ring, 1);
	assert_int_equal(kit.n_on[CPU], MANY);
}

/* A check is abandoned when a task completes, because its counts are stale. */
TEST(test_look__progress)
{
	struct rig_ring ring;
	struct kit kit;

	kit_begin(&kit, 1, 0);
	begin_look(&kit, &ring, RBK_STRATEGY_ONLY_GPU);
	kit.devices[GPU].is_stuck = false;
	slotted_run(&kit.devices[GPU]);
	slotted_pass(slotted_next_ns(&kit.devices[GPU]));
	slotted_run(&kit.devices[GPU]);
	turn(&kit);
	assert_fields(*kit.dispatch, (walking, 0), (watches[GPU].idle_ns, 0));
	end_look(&kit, &ring, 0);
}

/* A device that begins a task after the check has visited it is not lost. */
TEST(test_look__begun_meanwhile)
{
	struct rig_ring ring;
	struct kit kit;

	kit_begin(&kit, 1, 0);
	begin_look(&kit, &ring, RBK_STRATEGY_ONLY_GPU);
	while (kit.dispatch->look.holding.n_queued == 0)
		turn(&kit);
	kit.dispatch->watches[GPU].stage = 2;
	kit.devices[GPU].is_stuck = false;
	slotted_run(&kit.devices[GPU]);
	while (kit.dispatch->walking & WALK_LOOK)
		turn(&kit);
	assert_int_equal(kit.dispatch->look.holding.n_running, 0);
	assert_true(kit.dispatch->look.holding.n_given > 0);
	assert_false(is_lost);
	assert_int_equal(mended(&kit, GPU).n_lost, 0);
	end_look(&kit, &ring, 0);
	assert_int_equal(kit.n_on[GPU], MANY);
}

/* The ring that a check visits is freed meanwhile. */
TEST(test_look__ring_freed)
{
	struct rig_ring ring, other;
	struct kit kit;

	kit_begin(&kit, 1, 0);
	rig_ring_new(&kit.bench.rig, ENTRIES, &other);
	begin_look(&kit, &ring, RBK_STRATEGY_ONLY_GPU);
	put(&kit, 3, RBK_STRATEGY_ONLY_GPU);
	while (kit.dispatch->look.walk.ring != rig_dispatch_ring(&ring))
		turn(&kit);
	session_ring_close(ring.ring);
	/* Although stuck, the device returns cancelled tasks. */
	do {
		slotted_run(&kit.devices[GPU]);
		waits_end(kit.dispatch);
		dispatch_reap(kit.dispatch);
		dispatch_wake(kit.dispatch);
		rig_settle(&kit.bench.rig);
	} while (kit.bench.rig.session->n_added_rings > 2);
	assert_null(kit.dispatch->look.walk.ring);
	assert_true(kit.dispatch->walking & WALK_LOOK);
	kit.n_put = 3;
	kit.devices[GPU].is_stuck = true;
	pass(&kit, 2 * S);
	assert_int_equal(dispatch_n_stalls(kit.dispatch, GPU), 1);
	kit.devices[GPU].is_stuck = false;
	pass(&kit, S);
	expect_all_done(&kit);
	rig_ring_deinit(&ring);
	rig_ring_deinit(&other);
	bench_end(&kit.bench);
}

/*
 * A device that stops a cancelled running task makes progress; one that returns a task it never
 * began may be stuck.
 */
TEST(test_cancelled__after_work)
{
	for (unsigned int works = 0; works < 2; works++) {
		struct kit kit;

		kit_begin(&kit, 1, 0);
		kit.devices[CPU].is_stuck = true;
		put(&kit, 1, RBK_STRATEGY_ONLY_CPU);
		for (unsigned int i = 0; i < 300; i++) {
			struct exec_task *task;

			put(&kit, 1, RBK_STRATEGY_ONLY_CPU);
			rig_work(&kit.bench.rig);
			task = kit.bench.cpu->tasks[0];
			rig_put(&kit.bench.ring, &(struct rbk_sqe){.opcode = RBK_OP_CANCEL,
								   .target = fake_user_data(task)});
			rig_work(&kit.bench.rig);
			task->busy_ticks = works;
			work(&kit);
			slotted_pass(slotted_now_ns() + 100 * MS);
			liveness_check(kit.dispatch);
		}
		assert_int_equal(dispatch_n_stalls(kit.dispatch, CPU), !works);
		kit.devices[CPU].is_stuck = false;
		pass(&kit, S);
		assert_int_equal(kit.dispatch->n_submitted, 0);
		bench_end(&kit.bench);
	}
}
