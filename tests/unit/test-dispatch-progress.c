/* SPDX-License-Identifier: MIT */
/*
 * Devices make progress, whatever tasks they get
 *
 * Plans in parts keep working memory, a slot, from a task's first part to its last, and slots are
 * few. The first tests are about slots. The last one mixes everything in random order and virtual
 * time, RBK_SCHEDULES times (by default RBK_TEST_SCALE percent of 4,000). Every task must complete
 * exactly once, and nothing may stay held. Random numbers begin with RBK_SEED; a failure names the
 * seed to begin with.
 */
#include <string.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "loop/loop.h"
#include "place/placer-private.h"
#include "support/scaled.h"
#include "support/slotted.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"

enum {
	ENTRIES = 256,
	MAX_RINGS = 3,
	MAX_PLANS = 6,
	MAX_TASKS = 256,
	WIDE = 16,
	ROWS = 512,
	ARENA_BYTES = 2 * ROWS * WIDE * 4,
	Y_OFFSET = ROWS * WIDE * 4,
};

struct yard {
	struct bench bench;
	struct rig *rig;
	struct session_arena *arena;
	struct session_plan *plans[MAX_PLANS];
	struct tenant tenants[MAX_RINGS];
	struct rig_ring rings[MAX_RINGS];
	struct slotted devices[RIG_MAX_DEVICES];
	uint32_t n_devices;
	uint64_t random;
	uint64_t seed;

	/* indexed by user_data - 1 */
	uint8_t n_done[MAX_TASKS];
	int32_t res[MAX_TASKS];
	uint8_t ring_of[MAX_TASKS];
	uint32_t n_put, n_completed;
	/* counts of events, which show that each kind was tested */
	uint64_t n_all, n_cancelled, n_losses, n_reloads, n_parts, n_on_device[RIG_MAX_DEVICES];
};

static uint64_t random_bits(struct yard *yard)
{
	yard->random ^= yard->random << 13;
	yard->random ^= yard->random >> 7;
	yard->random ^= yard->random << 17;
	return yard->random;
}

static uint32_t below(struct yard *yard, uint32_t n)
{
	return (uint32_t)((random_bits(yard) >> 32) * n >> 32);
}

static void yard_begin(struct yard *yard, uint32_t n_devices)
{
	const struct bench_speed speeds[RIG_MAX_DEVICES] = {
		{.bytes_per_ns = 0.128f}, {.bytes_per_ns = 0.256f}, {.bytes_per_ns = 0.256f}};
	struct place_config config = PLACE_CONFIG_DEFAULT;

	memset(yard, 0, sizeof(*yard));
	config.submission_max_ns = 100000;
	bench_begin_placement(&yard->bench, n_devices, ENTRIES, &config, speeds);
	yard->rig = &yard->bench.rig;
	yard->n_devices = n_devices;
	yard->rig->session->features =
		RBK_FEAT_RESIDENCY | RBK_FEAT_PARTITION | RBK_FEAT_PRIORITY | RBK_FEAT_STRATEGIES;
	yard->arena = rig_arena_new(yard->rig, ARENA_BYTES, false);
	for (unsigned int i = 0; i < MAX_PLANS; i++)
		yard->plans[i] = bench_relu(&yard->bench, WIDE, ROWS);
	for (unsigned int i = 0; i < MAX_RINGS; i++) {
		yard->tenants[i] =
			(struct tenant){.weight = 100, .priority_max = RBK_PRIORITY_URGENT};
		rig_ring_new_for(yard->rig, &yard->tenants[i], ENTRIES, &yard->rings[i]);
	}
	for (uint32_t i = 0; i < n_devices; i++)
		slotted_init(&yard->devices[i], &yard->rig->fakes[i], 100000);
}

static void yard_end(struct yard *yard)
{
	for (unsigned int i = 0; i < MAX_RINGS; i++)
		rig_ring_deinit(&yard->rings[i]);
	bench_end(&yard->bench);
}

static void make_parts(struct session_plan *plan, uint16_t n_parts, uint32_t n_slots)
{
	for (uint32_t i = GPU; i < RIG_MAX_DEVICES; i++) {
		plan->plan->n_parts[i] = n_parts;
		plan->plan->n_slots[i] = n_slots;
	}
	plan->plan->splits_rows = n_parts <= 1;
}

static struct rbk_sqe entry(struct yard *yard, unsigned int plan, uint32_t count)
{
	assert_in_range(yard->n_put, 0, MAX_TASKS - 1);
	return bench_entry(yard->plans[plan], yard->arena, Y_OFFSET, count, ++yard->n_put);
}

static void put(struct yard *yard, unsigned int ring, unsigned int plan, uint8_t strategy)
{
	struct rbk_sqe sqe = entry(yard, plan, ROWS);

	sqe.strategy = strategy;
	rig_put(&yard->rings[ring], &sqe);
}

/* --- Events --- */

static void take_completions(struct yard *yard)
{
	struct rbk_cqe cqe;

	for (unsigned int i = 0; i < MAX_RINGS; i++) {
		while (rig_take(&yard->rings[i], &cqe)) {
			if (cqe.user_data == 0) /* a CANCEL */
				continue;
			assert_in_range(cqe.user_data, 1, yard->n_put);
			assert_int_equal(yard->n_done[cqe.user_data - 1]++, 0);
			yard->res[cqe.user_data - 1] = cqe.res;
			yard->n_completed++;
			yard->n_cancelled += cqe.res == -ECANCELED;
			if (cqe.device < RIG_MAX_DEVICES)
				yard->n_on_device[cqe.device]++;
		}
	}
}

static void work(struct yard *yard)
{
	bool is_any_done;

	loop_turn(yard->rig->loop, false);
	do {
		rig_work(yard->rig);
		is_any_done = false;
		for (uint32_t i = 0; i < yard->n_devices; i++) {
			yard->n_parts += slotted_run(&yard->devices[i]);
			is_any_done |= yard->rig->fakes[i].n_done > 0;
		}
	} while (is_any_done);
	take_completions(yard);
	liveness_check(yard->rig->dispatch);
	for (uint32_t i = 0; i < yard->n_devices; i++)
		assert_int_equal(dispatch_n_stalls(yard->rig->dispatch, (uint8_t)i), 0);
}

/*
 * Advance the time until a task ends.
 * Return: false if no task runs.
 */
static bool step(struct yard *yard)
{
	uint64_t next_ns = UINT64_MAX;

	work(yard);
	for (uint32_t i = 0; i < yard->n_devices; i++) {
		uint64_t ns = slotted_next_ns(&yard->devices[i]);

		next_ns = ns < next_ns ? ns : next_ns;
	}
	if (next_ns == UINT64_MAX)
		return false;
	slotted_pass(next_ns);
	work(yard);
	return true;
}

static void print_held(const struct yard *yard)
{
	for (uint32_t i = 0; i < yard->n_devices; i++) {
		const struct slotted *device = &yard->devices[i];

		print_error("device %u: %u queued, %u held, %u begun, %u slots kept\n", i,
			    yard->rig->dispatch->loads[i].n_queued, device->fake->n_tasks,
			    device->n_begun, device->n_slots);
		for (unsigned int k = 0; k < device->fake->n_tasks; k++) {
			const struct exec_task *task = device->fake->tasks[k];

			print_error("  task %llu: part %u of %u, %u slots, state %u%s\n",
				    (unsigned long long)fake_user_data(task), task->part,
				    task->plan->n_parts[i], task->plan->n_slots[i],
				    atomic_load(&task->state), task->is_urgent ? ", urgent" : "");
		}
	}
}

/*
 * Give memory to all waiting tasks, or tell them that there is none.
 * Return: true if a task waited.
 */
static bool answer(struct yard *yard, int res)
{
	if (yard->rig->residency->n_waiters == 0)
		return false;
	for (unsigned int i = 0; i < MAX_PLANS && res == 0; i++)
		for (uint32_t d = GPU; d < yard->n_devices; d++)
			yard->plans[i]->plan->device_state[d] = PLAN_DEVICE_READY;
	fake_residency_answer_all(yard->rig->residency, res);
	return true;
}

/* Run until all tasks are complete; without progress the test fails. */
static void finish_all(struct yard *yard)
{
	while (yard->n_completed < yard->n_put) {
		if (step(yard) || yard->n_completed == yard->n_put || answer(yard, 0))
			continue;
		print_held(yard);
		fail_msg("seed %llu: nothing runs, %u of %u tasks are complete, %u queued, %u held",
			 (unsigned long long)yard->seed, yard->n_completed, yard->n_put,
			 yard->rig->dispatch->n_queued, yard->rig->dispatch->n_submitted);
	}
}

static void expect_nothing_held(const struct yard *yard)
{
	const struct dispatch *dispatch = yard->rig->dispatch;

	assert_fields(*dispatch, (n_queued, 0), (n_submitted, 0));
	for (uint32_t i = 0; i < yard->n_devices; i++) {
		const struct place_queue *queue = &dispatch->placer->devices[i].queue;

		assert_fields(*queue, (n_queued, 0), (n_released, 0), (n_waiting, 0),
			      (waiting_ns, 0), (running_ns, 0), (queued_ns, 0));
		assert_int_equal(yard->devices[i].n_slots, 0);
		for (unsigned int p = 0; p < MAX_PLANS; p++) {
			const struct session_plan *plan = yard->plans[p];

			assert_fields(*plan, (memory.n_on_device[i], 0),
				      (place->rest->gates[i].n_begun, 0));
			assert_null(plan->place->rest->gates[i].next);
		}
	}
}

/* --- Slots --- */

static void run_beyond_slots(uint32_t n_slots, uint16_t n_parts, uint32_t n_tenants,
			     uint32_t n_each, uint8_t strategy)
{
	struct yard yard;

	yard_begin(&yard, 2);
	for (uint32_t i = 0; i < n_tenants; i++) {
		make_parts(yard.plans[i], n_parts, n_slots);
		for (uint32_t k = 0; k < n_each; k++)
			put(&yard, i, i, strategy);
	}
	finish_all(&yard);
	expect_nothing_held(&yard);
	assert_in_range(yard.devices[GPU].most_slots, 1, n_slots);
	if (strategy == RBK_STRATEGY_ONLY_GPU)
		assert_int_equal(yard.n_parts, n_tenants * n_each * n_parts);
	yard_end(&yard);
}

TEST(test_slots__more_tasks_than_slots)
{
	static const uint32_t n_slots[] = {1, 2, 4, 32};
	static const uint8_t strategies[] = {RBK_STRATEGY_ONLY_GPU, RBK_STRATEGY_PREFER_GPU};

	for (unsigned int i = 0; i < 4; i++) {
		for (unsigned int k = 0; k < 2; k++) {
			run_beyond_slots(n_slots[i], 2, 1, n_slots[i] + 2, strategies[k]);
			run_beyond_slots(n_slots[i], 8, 1, n_slots[i] * 3 + 5, strategies[k]);
			run_beyond_slots(n_slots[i], 3, 2, 3, strategies[k]);
			run_beyond_slots(n_slots[i], 3, 2, n_slots[i] + 2, strategies[k]);
		}
	}
}

/*
 * Tasks of another tenant, or of another plan of the same tenant, do not wait for a plan's slots.
 */
TEST(test_slots__other_plans_do_not_wait)
{
	struct yard yard;

	yard_begin(&yard, 2);
	make_parts(yard.plans[0], 8, 1);
	for (unsigned int i = 0; i < 20; i++)
		put(&yard, 0, 0, RBK_STRATEGY_ONLY_GPU);
	step(&yard);
	put(&yard, 1, 1, RBK_STRATEGY_ONLY_GPU);
	put(&yard, 0, 2, RBK_STRATEGY_ONLY_GPU);
	while (!yard.n_done[20])
		assert_true(step(&yard));
	assert_in_range(yard.n_completed, 1, 4);
	finish_all(&yard);
	expect_nothing_held(&yard);
	yard_end(&yard);
}

static unsigned int n_completed_before(struct yard *yard, uint32_t user_data)
{
	while (!yard->n_done[user_data - 1])
		assert_true(step(yard));
	return yard->n_completed - 1;
}

/* The task that holds a slot inherits the urgency of a task that waits for it. */
TEST(test_slots__holder_inherits_urgency)
{
	struct rbk_sqe sqe;
	struct yard yard;

	yard_begin(&yard, 1 + 1);
	make_parts(yard.plans[0], 4, 1);
	sqe = entry(&yard, 0, ROWS);
	sqe.strategy = RBK_STRATEGY_ONLY_GPU;
	sqe.priority = RBK_PRIORITY_LOW;
	rig_put(&yard.rings[0], &sqe);
	step(&yard);
	/* Whole tasks of another plan, more urgent than the task that has begun. */
	for (unsigned int i = 0; i < 100; i++) {
		sqe = entry(&yard, 1, 16);
		sqe.strategy = RBK_STRATEGY_ONLY_GPU;
		rig_put(&yard.rings[0], &sqe);
	}
	sqe = entry(&yard, 0, ROWS);
	sqe.strategy = RBK_STRATEGY_ONLY_GPU;
	sqe.priority = RBK_PRIORITY_URGENT;
	rig_put(&yard.rings[0], &sqe);
	/* Few of the hundred complete earlier: those that the device already had. */
	assert_in_range(n_completed_before(&yard, 102), 1, 60);
	finish_all(&yard);
	expect_nothing_held(&yard);
	yard_end(&yard);
}

/* --- Everything at once --- */

static void choose_plans(struct yard *yard)
{
	static const uint32_t n_slots[] = {1, 2, 4, 32};

	for (unsigned int i = 0; i < MAX_PLANS; i++) {
		make_parts(yard->plans[i], (uint16_t)(1 + below(yard, 8)), n_slots[below(yard, 4)]);
		if (yard->plans[i]->plan->n_parts[GPU] == 1 && below(yard, 2))
			make_parts(yard->plans[i], 1, 0);
		place_plan_reset(yard->rig->dispatch->placer, yard->plans[i]->place);
		for (uint32_t d = GPU; d < yard->n_devices; d++)
			yard->plans[i]->plan->device_state[d] = PLAN_DEVICE_READY;
	}
	for (unsigned int i = 0; i < MAX_RINGS; i++) {
		yard->tenants[i].weight = 1 + below(yard, 1000);
		yard->tenants[i].priority_max = (uint8_t)below(yard, RBK_PRIORITY_COUNT);
	}
	dispatch_limits_changed(yard->rig->dispatch);
	for (uint32_t i = 0; i < yard->n_devices; i++) {
		slotted_init(&yard->devices[i], &yard->rig->fakes[i], 1000ull << below(yard, 14));
		placer_reset_device(yard->rig->dispatch->placer, (uint8_t)i);
	}
}

static void put_random(struct yard *yard)
{
	static const uint8_t strategies[] = {RBK_STRATEGY_AUTO,       RBK_STRATEGY_ONLY_GPU,
					     RBK_STRATEGY_ONLY_GPU,   RBK_STRATEGY_ONLY_GPU,
					     RBK_STRATEGY_PREFER_GPU, RBK_STRATEGY_PREFER_CPU,
					     RBK_STRATEGY_PARTITION};
	struct rig_ring *ring = &yard->rings[below(yard, MAX_RINGS)];
	uint32_t n = 1 + below(yard, below(yard, 3) ? 4 : 48);
	uint8_t strategy = strategies[below(yard, sizeof(strategies))];
	uint8_t priority = (uint8_t)below(yard, RBK_PRIORITY_COUNT);
	/* A plan belongs to one session, thus to one tenant. */
	unsigned int plan = (unsigned int)(ring - yard->rings) * 2 + below(yard, 2);
	struct rbk_sqe sqe;

	for (; n > 0 && yard->n_put < MAX_TASKS; n--) {
		sqe = entry(yard, plan, 1 + below(yard, ROWS));
		sqe.strategy = strategy;
		sqe.priority = priority;
		sqe.flags = n > 1 && below(yard, 20) == 0 ? RBK_SQE_LINK : 0;
		if (below(yard, 4) == 0)
			sqe.deadline_us = 1 + below(yard, 100000);
		rig_put(ring, &sqe);
		yard->ring_of[yard->n_put - 1] = (uint8_t)(ring - yard->rings);
		if (below(yard, 8) == 0)
			priority = (uint8_t)below(yard, RBK_PRIORITY_COUNT);
	}
}

static void cancel_random(struct yard *yard)
{
	uint32_t i = below(yard, yard->n_put), n = 1 + below(yard, 20);

	for (; n > 0 && i < yard->n_put; n--, i++) {
		const struct rbk_sqe sqe = {.opcode = RBK_OP_CANCEL, .target = i + 1};

		rig_put(&yard->rings[yard->ring_of[i]], &sqe);
	}
	work(yard);
}

/* Let the device fail all its tasks; plans return with other working memory, or not for a while. */
static void lose_random(struct yard *yard)
{
	static const uint32_t n_slots[] = {1, 2, 4, 32};
	uint32_t device = GPU + below(yard, yard->n_devices - GPU);

	if (device >= yard->n_devices)
		return;
	yard->n_losses++;
	slotted_lose(&yard->devices[device]);
	for (unsigned int i = 0; i < MAX_PLANS; i++)
		if (yard->plans[i]->plan->n_slots[device] > 0)
			yard->plans[i]->plan->n_slots[device] = n_slots[below(yard, 4)];
}

/* Let residency evict an idle plan, and load it again. */
static void reload_random(struct yard *yard)
{
	uint32_t device = GPU + below(yard, yard->n_devices - GPU);
	struct session_plan *plan = yard->plans[below(yard, MAX_PLANS)];

	if (plan->plan->device_state[device] == PLAN_DEVICE_READY) {
		plan->plan->device_state[device] = PLAN_DEVICE_EVICTED;
		return;
	}
	if (plan->memory.n_on_device[device] == 0 && plan->plan->n_slots[device] > 0)
		plan->plan->n_slots[device] = 1 + below(yard, 4);
	plan->plan->device_state[device] = PLAN_DEVICE_READY;
	yard->n_reloads++;
}

static void act(struct yard *yard)
{
	switch (below(yard, 12)) {
	case 0:
	case 1:
	case 2:
		put_random(yard);
		break;
	case 3:
		if (yard->n_put > 0)
			cancel_random(yard);
		break;
	case 4:
		if (below(yard, 8) == 0)
			lose_random(yard);
		break;
	case 5:
		if (below(yard, 4) == 0)
			reload_random(yard);
		break;
	case 6:
		if (below(yard, 4) == 0)
			answer(yard, below(yard, 4) ? 0 : -ENOMEM);
		slotted_pass(slotted_now_ns() + below(yard, 1000000));
		break;
	default:
		step(yard);
	}
}

static void run_schedule(struct yard *yard)
{
	uint32_t n_acts = 5 + below(yard, 60);

	memset(yard->n_done, 0, sizeof(yard->n_done));
	yard->n_put = yard->n_completed = 0;
	choose_plans(yard);
	while (n_acts-- > 0)
		act(yard);
	finish_all(yard);
	/* Take the completions of the last cancelled tasks. */
	work(yard);
	for (uint32_t i = 0; i < yard->n_put; i++) {
		assert_int_equal(yard->n_done[i], 1);
		if (yard->res[i] != 0 && yard->res[i] != -ECANCELED && yard->res[i] != -EIO &&
		    yard->res[i] != -ENOMEM && yard->res[i] != -ENODEV)
			fail_msg("seed %llu: result %d", (unsigned long long)yard->seed,
				 yard->res[i]);
	}
	expect_nothing_held(yard);
	yard->n_all += yard->n_put;
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
	const char *value = getenv(name);

	return value && *value ? strtoull(value, NULL, 0) : otherwise;
}

TEST(test_progress__random_schedules)
{
	/* Fewer schedules, such as one that is repeated, do not contain every event. */
	enum { ENOUGH = 100 };
	uint64_t n_schedules = number_of("RBK_SCHEDULES", test_scaled(4000)),
		 seed = number_of("RBK_SEED", 1);
	struct yard *yard = malloc(sizeof(*yard));

	assert_non_null(yard);
	for (uint32_t n_devices = 2; n_devices <= RIG_MAX_DEVICES; n_devices++) {
		yard_begin(yard, n_devices);
		for (uint64_t i = 0; i < n_schedules / 2 + 1; i++) {
			yard->seed = seed + i;
			yard->random = (seed + i) * 0x9e3779b97f4a7c15ull + n_devices;
			for (unsigned int k = 0; k < 8; k++)
				random_bits(yard);
			run_schedule(yard);
		}
		print_message(
			"%llu schedules, %llu tasks, %llu submissions, %llu cancelled, "
			"%llu losses, %llu reloads; %llu on the CPU, %llu on GPUs\n",
			(unsigned long long)(n_schedules / 2 + 1), (unsigned long long)yard->n_all,
			(unsigned long long)yard->n_parts, (unsigned long long)yard->n_cancelled,
			(unsigned long long)yard->n_losses, (unsigned long long)yard->n_reloads,
			(unsigned long long)yard->n_on_device[CPU],
			(unsigned long long)(yard->n_on_device[GPU] + yard->n_on_device[2]));
		assert_true(n_schedules < ENOUGH ||
			    (yard->n_cancelled > 0 && yard->n_losses > 0 && yard->n_reloads > 0));
		assert_true(n_schedules < ENOUGH ||
			    (yard->n_on_device[CPU] > 0 && yard->n_on_device[GPU] > 0));
		yard_end(yard);
	}
	free(yard);
}
