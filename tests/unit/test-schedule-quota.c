/* SPDX-License-Identifier: MIT */
/* Quotas: the CPU time that a flow may use, whatever it queues */
#include <math.h>
#include <stdlib.h>

#include "schedule-rig.h"
#include "support/test.h"

#define MS 1000000ull

static const uint32_t four_servers[] = {4, 1, 1};

static void again(struct rig *rig, struct rig_task *task, uint8_t device)
{
	rig_enqueue(rig, task);
}

static void drain(struct rig *rig, struct rig_task *tasks, int n)
{
	rig->done = NULL;
	for (int i = 0; i < n; i++)
		if (tasks[i].task.state == PLACE_QUEUED)
			place_dequeue(rig->placer, &tasks[i].task, rig->now_ns);
	rig_run(rig, UINT64_MAX);
}

/* Small and large tasks, right and wrong estimates, less than one processor and more than one. */
TEST(test_quota__is_kept)
{
	static const float quotas[] = {0.25f, 1, 2.5f};
	static const float sizes[] = {2e4f, 1e6f, 6e7f};
	static const float factors[] = {1, 5, 0.2f};
	static struct rig_task tasks[100];

	for (size_t i = 0; i < ARRAY_SIZE(quotas) * ARRAY_SIZE(sizes) * ARRAY_SIZE(factors); i++) {
		float quota = quotas[i % 3], size = sizes[i / 3 % 3], factor = factors[i / 9];
		const struct rig_plan plan = {{size / factor, size / factor}};
		struct place_flow *flow, *other;
		struct rig_task other_task;
		const uint64_t for_ns = (size < 1e5f ? 2000 : 20000) * MS;
		double share;
		struct rig rig;

		rig_init(&rig, 2, four_servers);
		rig.done = again;
		flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, quota);
		other = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
		for (int j = 0; j < 100; j++) {
			rig_task_init(&tasks[j], &plan, flow, 0);
			tasks[j].task.decision.flags = PLACE_BOUND;
			tasks[j].actual_factor = factor;
			rig_enqueue(&rig, &tasks[j]);
		}
		rig_task_init(&other_task, &plan, other, 0);
		other_task.actual_factor = factor;
		rig_enqueue(&rig, &other_task);
		rig_run(&rig, rig.now_ns + 500 * MS);
		share = -(double)rig_used_ns(flow, 0);
		rig_run(&rig, rig.now_ns + for_ns);
		share += (double)rig_used_ns(flow, 0);
		share /= (double)for_ns;
		if (fabs(share / (double)quota - 1) > 0.02)
			fail_msg("quota %g, size %g, factor %g: %g", (double)quota, (double)size,
				 (double)factor, share);
		/* Other flows are not delayed. */
		assert_true(other_task.n_done * (double)(size + 3 * PLACE_RELEASE_NS) >
			    8000.0 * MS);
		if (other_task.task.state == PLACE_QUEUED)
			place_dequeue(rig.placer, &other_task.task, rig.now_ns);
		drain(&rig, tasks, 100);
		place_flow_free(rig.placer, flow);
		place_flow_free(rig.placer, other);
		rig_deinit(&rig);
	}
}

/* Tasks that take a hundred times as long as predicted, before anything is learned of them. */
TEST(test_quota__wrong_estimates)
{
	static const struct rig_plan plan = {{2e4f, 0}};
	static struct rig_task tasks[100];
	struct place_flow *flow;

	RIG(rig, 2, four_servers);
	flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0.1f);
	for (int j = 0; j < 100; j++) {
		rig_task_init(&tasks[j], &plan, flow, 0);
		tasks[j].actual_factor = 100;
		rig_enqueue(&rig, &tasks[j]);
	}
	rig_run(&rig, rig.now_ns + 50 * MS);
	/*
	 * The bucket's contents and refills, and the tasks released before the first one completed.
	 */
	assert_in_range(rig_used_ns(flow, 0), 10 * MS, (10 + 5 + 2 * 4 * 2) * MS);
	assert_true(place_flow_is_throttled(flow, rig.now_ns));
	drain(&rig, tasks, 100);
	place_flow_free(rig.placer, flow);
}

/* Work of the reactor counts against the quota; other devices do not. */
TEST(test_quota__reactor)
{
	static const struct rig_plan plan = {{1e6f, 1e6f}};
	struct place_flow *flow;
	struct rig_task task;
	uint64_t charged_ns = 0, begin_ns;

	RIG(rig, 2, four_servers);
	rig.done = again;
	flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0.5f);
	assert_false(place_flow_is_throttled(flow, rig.now_ns));
	assert_int_equal(place_refill_ns(rig.placer, rig.now_ns), UINT64_MAX);
	rig_task_init(&task, &plan, flow, 1);
	rig_enqueue(&rig, &task);
	rig_run(&rig, rig.now_ns + 1000 * MS);
	assert_in_range(task.n_done, 998, 1000);
	assert_false(place_flow_is_throttled(flow, rig.now_ns));

	begin_ns = rig.now_ns;
	for (int i = 0; i < 100000; i++) {
		if (place_flow_is_throttled(flow, rig.now_ns)) {
			uint64_t refill_ns = place_refill_ns(rig.placer, rig.now_ns);

			assert_true(refill_ns > rig.now_ns);
			assert_true(place_flow_wait_ns(rig.placer, flow, 0, rig.now_ns) > 0);
			assert_true(place_flow_is_throttled(flow, refill_ns - 1));
			rig.now_ns = refill_ns;
			assert_false(place_flow_is_throttled(flow, rig.now_ns));
			assert_int_equal(place_refill_ns(rig.placer, rig.now_ns), UINT64_MAX);
		}
		rig.now_ns += 1000;
		place_flow_charge(rig.placer, flow, RBK_DEVICE_CPU, 2000);
		charged_ns += 2000;
	}
	assert_true((double)charged_ns < 0.5 * (double)(rig.now_ns - begin_ns) + 52 * MS);
	assert_true((double)charged_ns > 0.5 * (double)(rig.now_ns - begin_ns) * 0.98);
	assert_false(place_flow_is_idle(rig.placer, flow, rig.now_ns));
	drain(&rig, &task, 1);
	/* The bucket is full after its period, and the flow owes nothing. */
	assert_true(place_flow_is_idle(rig.placer, flow, rig.now_ns + 2 * PLACE_QUOTA_PERIOD_NS));
	place_flow_free(rig.placer, flow);
}

/* A quota is set, changed, removed and set to invalid values while tasks are held back. */
TEST(test_quota__changes)
{
	static const float nonsense[] = {-1, NAN, INFINITY, 0};
	static const struct rig_plan plan = {{1e6f, 0}};
	static struct rig_task tasks[50];
	struct place_flow_limits limits = {100, RBK_PRIORITY_URGENT, 0.001f};
	struct place_flow *flow;
	struct rig rig;

	for (size_t i = 0; i < ARRAY_SIZE(nonsense); i++) {
		uint64_t used_ns;

		rig_init(&rig, 2, four_servers);
		rig.done = again;
		limits.cpu_max = 0.001f;
		flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, limits.cpu_max);
		for (int j = 0; j < 50; j++) {
			rig_task_init(&tasks[j], &plan, flow, 0);
			rig_enqueue(&rig, &tasks[j]);
		}
		rig_run(&rig, rig.now_ns + 100 * MS);
		assert_true(place_flow_is_throttled(flow, rig.now_ns));
		assert_int_equal(place_startable(rig.placer, rig.now_ns), 0);
		assert_true(rig_used_ns(flow, 0) <= 4 * MS);
		assert_true(place_flow_wait_ns(rig.placer, flow, 0, rig.now_ns) > 1000 * MS);

		/* A task that is held back can be cancelled. */
		place_dequeue(rig.placer, &tasks[49].task, rig.now_ns);

		limits.cpu_max = 1;
		place_flow_set_limits(rig.placer, flow, &limits, rig.now_ns);
		rig_run(&rig, rig.now_ns + 1000 * MS);
		assert_in_range(rig_used_ns(flow, 0), 980 * MS, 1020 * MS);

		limits.cpu_max = nonsense[i];
		place_flow_set_limits(rig.placer, flow, &limits, rig.now_ns);
		assert_false(place_flow_is_throttled(flow, rig.now_ns));
		used_ns = rig_used_ns(flow, 0);
		rig_run(&rig, rig.now_ns + 1000 * MS);
		assert_in_range(rig_used_ns(flow, 0) - used_ns, 3990 * MS, 4010 * MS);
		drain(&rig, tasks, 50);
		place_flow_free(rig.placer, flow);
		rig_deinit(&rig);
	}
}

/* A change of the clock neither fills buckets nor holds flows back for long. */
TEST(test_quota__clock_set_back)
{
	struct place_flow *flow;
	uint64_t charged_ns = 0, passed_ns = 0;

	RIG(rig, 2, four_servers);
	flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 1);
	for (int i = 0; i < 20000; i++) {
		/*
		 * Half of the readings are slightly old. A day is skipped once, and taken back
		 * once.
		 */
		uint64_t now_ns = rig.now_ns - (i % 2 ? 20000 : 0);

		if (!place_flow_is_throttled(flow, now_ns)) {
			place_flow_charge(rig.placer, flow, RBK_DEVICE_CPU, 1 * MS);
			charged_ns += MS;
		}
		rig.now_ns += 100000;
		passed_ns += 100000;
		if (i == 10000) {
			rig.now_ns += 86400000ull * MS;
			assert_false(place_flow_is_throttled(flow, rig.now_ns));
		}
		if (i == 15000)
			rig.now_ns -= 86400000ull * MS;
	}
	assert_in_range(charged_ns, passed_ns * 98 / 100, passed_ns * 98 / 100 + 250 * MS);
	place_flow_free(rig.placer, flow);
}
