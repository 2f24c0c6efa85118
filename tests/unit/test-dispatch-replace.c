/* SPDX-License-Identifier: MIT */
/* A device is drained while many tasks are queued for it: a few of them move in each turn */
#include <string.h>

#include <errno.h>

#include "loop/loop.h"
#include "place/placer-private.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"

enum { N_TASKS = 1000, ENTRIES = 1024, MAX_OF_TURN = 128, ROWS = 64 };

struct kit {
	struct bench bench;
	struct dispatch *dispatch;
	struct rig_ring rings[2];
	struct session_plan *plan;
};

static void put(struct kit *kit, struct rig_ring *ring, unsigned int n, uint8_t strategy)
{
	struct rbk_sqe sqe = run_entry(&kit->bench, kit->plan, 0);

	for (unsigned int i = 0; i < n; i++) {
		sqe.user_data = i;
		sqe.strategy = strategy;
		rig_put(ring, &sqe);
	}
	rig_work(&kit->bench.rig);
}

/* Queue N_TASKS for the GPU in both rings; no device accepts any. */
static void kit_begin(struct kit *kit)
{
	memset(kit, 0, sizeof(*kit));
	bench_begin(&kit->bench, 2, 16);
	kit->dispatch = kit->bench.rig.dispatch;
	kit->bench.rig.session->features = RBK_FEAT_RESIDENCY | RBK_FEAT_STRATEGIES;
	kit->bench.cpu->capacity = kit->bench.gpu->capacity = 0;
	kit->plan = bench_relu(&kit->bench, 16, ROWS);
	for (unsigned int i = 0; i < 2; i++) {
		rig_ring_new(&kit->bench.rig, ENTRIES, &kit->rings[i]);
		put(kit, &kit->rings[i], N_TASKS, RBK_STRATEGY_PREFER_GPU);
	}
	assert_int_equal(kit->dispatch->loads[GPU].n_queued, 2 * N_TASKS);
}

static void kit_end(struct kit *kit)
{
	for (unsigned int i = 0; i < 2; i++)
		rig_ring_deinit(&kit->rings[i]);
	bench_end(&kit->bench);
}

static uint32_t n_on_cpu(const struct kit *kit)
{
	return kit->dispatch->loads[CPU].n_queued;
}

static void expect_few_moved(const struct kit *kit, uint32_t before)
{
	if (n_on_cpu(kit) > before)
		assert_true(n_on_cpu(kit) - before <= MAX_OF_TURN);
}

/*
 * Run a turn.
 * Return: true if it did anything.
 */
static bool turn(struct kit *kit)
{
	struct dispatch_ring *hostile = NULL;
	uint32_t before = n_on_cpu(kit);
	unsigned int n = dispatch_work(kit->dispatch, &hostile);

	expect_few_moved(kit, before);
	turn_end(kit->dispatch->turn);
	return n > 0;
}

static void drain(struct kit *kit)
{
	uint32_t before = n_on_cpu(kit);

	dispatch_drain_device(kit->dispatch, GPU, true);
	expect_few_moved(kit, before);
}

TEST(test_drain__in_slices)
{
	struct kit kit;

	kit_begin(&kit);
	drain(&kit);
	assert_true(n_on_cpu(&kit) < N_TASKS);
	/* New tasks find the device drained, whatever is still queued. */
	put(&kit, &kit.bench.ring, 1, RBK_STRATEGY_ONLY_GPU);
	expect_cqe(&kit.bench, 0, -ENODEV);
	while (turn(&kit))
		;
	assert_int_equal(n_on_cpu(&kit), 2 * N_TASKS);
	assert_int_equal(kit.dispatch->loads[GPU].n_queued, 0);
	kit_end(&kit);
}

/* A second request begins anew, also for tasks that were queued for the device in between. */
TEST(test_drain__twice)
{
	struct place_config config;
	struct kit kit;

	kit_begin(&kit);
	drain(&kit);
	for (unsigned int i = 0; i < 10; i++)
		turn(&kit);
	dispatch_drain_device(kit.dispatch, GPU, false);
	put(&kit, &kit.bench.ring, 5, RBK_STRATEGY_PREFER_GPU);
	put(&kit, &kit.rings[0], ENTRIES - N_TASKS, RBK_STRATEGY_PREFER_GPU);
	drain(&kit);
	turn(&kit);
	config = *placer_config(kit.dispatch->placer);
	config.force_cpu = true;
	dispatch_configure(kit.dispatch, &config);
	while (turn(&kit))
		;
	assert_int_equal(kit.dispatch->loads[GPU].n_queued, 0);
	assert_int_equal(n_on_cpu(&kit), N_TASKS + ENTRIES + 5);
	kit_end(&kit);
}

/* The visited ring closes and is freed meanwhile, and tasks complete. */
TEST(test_drain__ring_closes_meanwhile)
{
	struct kit kit;

	for (unsigned int which = 0; which < 2; which++) {
		kit_begin(&kit);
		drain(&kit);
		turn(&kit);
		session_ring_close(kit.rings[which].ring);
		turn(&kit);
		drain(&kit);
		kit.bench.cpu->capacity = FAKE_MAX_TASKS;
		while (turn(&kit) || kit.bench.cpu->n_tasks > 0)
			fake_finish_all(kit.bench.cpu, 0);
		assert_int_equal(kit.dispatch->n_queued, 0);
		/* A ring is freed while the walk is at that ring, or at the one before. */
		drain(&kit);
		assert_ptr_equal(kit.dispatch->replace.walk.ring, rig_dispatch_ring(&kit.rings[0]));
		assert_true(kit.dispatch->replace.walk.slot > 0);
		while (kit.bench.rig.session->n_added_rings > 2) {
			rig_settle(&kit.bench.rig);
			assert_true(loop_turn(kit.bench.rig.loop, false) >= 0);
		}
		assert_ptr_equal(kit.dispatch->replace.walk.ring,
				 rig_dispatch_ring(&kit.rings[1 - which]));
		while (turn(&kit))
			;
		kit_end(&kit);
	}
}

/* Cached decisions about plans are renewed in slices as well. */
TEST(test_drain__many_plans)
{
	enum { N_PLANS = 600 };
	static struct session_plan plans[N_PLANS];
	uint32_t usual_count;
	struct place_config config = PLACE_CONFIG_DEFAULT;
	unsigned int n_before, n = 0, n_turns = 0, n_old, n_old_before = N_PLANS;
	struct kit kit;

	kit_begin(&kit);
	for (unsigned int i = 0; i < N_PLANS; i++) {
		plans[i] = (struct session_plan){.plan = kit.bench.tiny->plan, .state = SLOT_READY};
		assert_int_equal(dispatch_plan_ready(kit.dispatch, &plans[i]), 0);
		assert_int_equal(plans[i].inline_reason, RBK_REASON_BELOW_THRESHOLD);
	}
	usual_count = plans[0].place->below_count;
	config.force_cpu = true;
	config.threshold_bytes = 0;
	dispatch_configure(kit.dispatch, &config);
	do {
		n_before = n;
		n = n_old = 0;
		for (unsigned int i = 0; i < N_PLANS; i++) {
			n += plans[i].inline_reason == RBK_REASON_GPU_UNAVAILABLE;
			n_old += plans[i].place && plans[i].place->below_count == usual_count;
		}
		assert_true(n - n_before <= MAX_OF_TURN);
		/* The two freed plans count, too. */
		assert_true(n_old_before - n_old <= MAX_OF_TURN + 2);
		n_old_before = n_old;
		n_turns++;
		/* Free one visited plan, and one that was not visited. */
		if (n_turns == 2)
			for (unsigned int i = 0; i < N_PLANS; i += N_PLANS - 1)
				dispatch_plan_freed(kit.dispatch, &plans[i]);
	} while (turn(&kit));
	assert_int_equal(n_old, 0);
	for (unsigned int i = 1; i < N_PLANS - 1; i++) {
		assert_int_equal(plans[i].inline_reason, RBK_REASON_GPU_UNAVAILABLE);
		dispatch_plan_freed(kit.dispatch, &plans[i]);
	}
	kit_end(&kit);
}
