/* SPDX-License-Identifier: MIT */
/* The device of brokerd --test-device: its description, order, times and queue */
#include <errno.h>
#include <poll.h>

#include "daemon/test-device.h"
#include "fail-alloc.h"
#include "place/profile.h"
#include "plan/executor.h"
#include "support/test.h"
#include "util/clock.h"
#include "util/waker.h"

enum { LATENCY_NS = 300000, ROW_NS = 1000 };

struct kit {
	struct waker waker;
	struct executor *device;
	struct exec_task tasks[TEST_DEVICE_QUEUE + 1];
};

static void kit_begin(struct kit *kit)
{
	const struct test_device_options options = {
		.latency_ns = LATENCY_NS,
		.row_ns = ROW_NS,
	};

	*kit = (struct kit){.waker = {.fd = -1}};
	assert_int_equal(waker_init(&kit->waker), 0);
	assert_int_equal(test_device_new(&options, &kit->waker, &kit->device), 0);
	kit->device->index = 1;
}

static void kit_end(struct kit *kit)
{
	assert_null(kit->device->ops->free(kit->device));
	waker_deinit(&kit->waker);
}

#define KIT(name) SCOPED(kit, name, kit_begin, kit_end)

static int submit(struct kit *kit, unsigned int i)
{
	static struct plan plan = {.name = "any"};

	kit->tasks[i].plan = &plan;
	atomic_store(&kit->tasks[i].state, EXEC_QUEUED);
	kit->tasks[i].res = 1;
	return kit->device->ops->submit(kit->device, &kit->tasks[i]);
}

/* Return the next completed task, sleeping as the reactor does. */
static struct exec_task *wait_for_one(struct kit *kit)
{
	struct pollfd poll_fd = {.fd = kit->waker.fd, .events = POLLIN};
	struct exec_task *task;

	for (;;) {
		waker_arm(&kit->waker);
		if (kit->device->ops->reap(kit->device, &task, 1) == 1) {
			waker_disarm(&kit->waker);
			return task;
		}
		assert_int_equal(poll(&poll_fd, 1, -1), 1);
		waker_disarm(&kit->waker);
	}
}

TEST(test_profile)
{
	KIT(kit);
	assert_null(place_profile_refusal(test_device_profile(kit.device)));
	assert_int_equal(kit.device->info.kind, EXECUTOR_GPU);
	/* The same time for almost no work and for very much work. */
	for (unsigned int i = 0; i < 2; i++) {
		double ns = place_profile_node_ns(test_device_profile(kit.device), OP_FAMILY_MATMUL,
						  i ? 1e9 : 1, i ? 1e7 : 1);

		assert_true(ns + (double)test_device_profile(kit.device)->task_ns <
			    1.01 * LATENCY_NS);
	}
}

TEST(test_tasks)
{
	uint64_t begin_ticks, took_ns;

	KIT(kit);
	begin_ticks = clock_ticks();
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(submit(&kit, i), 0);
	kit.device->ops->flush(kit.device);
	for (unsigned int i = 0; i < 3; i++) {
		struct exec_task *task = wait_for_one(&kit);

		assert_ptr_equal(task, &kit.tasks[i]);
		assert_int_equal(task->res, 0);
		took_ns = clock_elapsed_ns(task->start_ticks, task->end_ticks);
		assert_in_range(took_ns, LATENCY_NS - 1000, LATENCY_NS + 1000);
		assert_true(clock_ticks() >= task->end_ticks);
	}
	assert_true(clock_elapsed_ns(begin_ticks, clock_ticks()) >= 3 * LATENCY_NS);

	/* Each row adds its time. */
	kit.tasks[0].count = 200;
	assert_int_equal(submit(&kit, 0), 0);
	kit.device->ops->flush(kit.device);
	assert_ptr_equal(wait_for_one(&kit), &kit.tasks[0]);
	took_ns = clock_elapsed_ns(kit.tasks[0].start_ticks, kit.tasks[0].end_ticks);
	assert_in_range(took_ns, LATENCY_NS + 200 * ROW_NS - 1000,
			LATENCY_NS + 200 * ROW_NS + 1000);
}

/* Operations take time, which the profile has, and memory is counted. */
TEST(test_rate_and_memory)
{
	const struct test_device_options options = {
		.latency_ns = LATENCY_NS,
		.flops_per_ns = 4,
		.memory_bytes = 1 << 20,
	};
	struct plan plan = {.name = "any",
			    .scratch_bytes = 5000,
			    .cost = {.flops_fixed = 400000, .flops_row = 40000}};
	struct exec_block block = {.bytes = 8192};
	struct exec_load load = {.n_slots = 1};
	struct kit kit = {.waker = {.fd = -1}};
	const struct executor_ops *ops;
	double ns;

	assert_int_equal(waker_init(&kit.waker), 0);
	assert_int_equal(test_device_new(&options, &kit.waker, &kit.device), 0);
	kit.device->index = 1;
	ops = kit.device->ops;
	assert_null(place_profile_refusal(test_device_profile(kit.device)));
	ns = place_profile_node_ns(test_device_profile(kit.device), OP_FAMILY_MATMUL, 400000, 1);
	assert_float_equal((float)ns, 100000, 1);

	assert_int_equal(ops->plan_prepare(kit.device, &plan), 0);
	assert_int_equal(plan.device_state[1], PLAN_DEVICE_EVICTED);
	assert_int_equal(ops->block_load(kit.device, &block), 0);
	assert_int_equal(ops->plan_load(kit.device, &plan, &load), 0);
	assert_int_equal(ops->memory_used(kit.device, EXEC_TIER_VRAM), 8192 + 8192);

	kit.tasks[0] = (struct exec_task){.plan = &plan, .count = 5, .state = EXEC_QUEUED};
	assert_int_equal(ops->submit(kit.device, &kit.tasks[0]), 0);
	ops->flush(kit.device);
	assert_ptr_equal(wait_for_one(&kit), &kit.tasks[0]);
	ns = (double)clock_elapsed_ns(kit.tasks[0].start_ticks, kit.tasks[0].end_ticks);
	assert_in_range(ns, LATENCY_NS + 150000 - 1000, LATENCY_NS + 150000 + 1000);

	ops->plan_unload(kit.device, &plan);
	ops->plan_unload(kit.device, &plan);
	assert_int_equal(ops->memory_used(kit.device, EXEC_TIER_VRAM), 8192);
	ops->block_unload(kit.device, &block);
	ops->block_unload(kit.device, &block);
	assert_int_equal(ops->memory_used(kit.device, EXEC_TIER_VRAM), 0);
	atomic_store(&block.is_cancelled, true);
	assert_int_equal(ops->block_load(kit.device, &block), EXECUTOR_E_CANCELLED);
	ops->block_unload(kit.device, &block);
	assert_int_equal(ops->memory_used(kit.device, EXEC_TIER_VRAM), 0);
	kit_end(&kit);
}

TEST(test_tasks__cancelled)
{
	KIT(kit);
	assert_int_equal(submit(&kit, 0), 0);
	assert_int_equal(submit(&kit, 1), 0);
	atomic_store(&kit.tasks[1].state, EXEC_CANCELLED);
	kit.device->ops->flush(kit.device);
	assert_int_equal(wait_for_one(&kit)->res, 0);
	assert_int_equal(wait_for_one(&kit)->res, -ECANCELED);
}

TEST(test_tasks__full)
{
	KIT(kit);
	for (unsigned int i = 0; i < TEST_DEVICE_QUEUE; i++) {
		assert_int_equal(submit(&kit, i), 0);
		/* Cancelled tasks take no time. */
		atomic_store(&kit.tasks[i].state, EXEC_CANCELLED);
	}
	assert_int_equal(submit(&kit, TEST_DEVICE_QUEUE), EXECUTOR_E_BUSY);
	kit.device->ops->flush(kit.device);
	for (unsigned int i = 0; i < TEST_DEVICE_QUEUE; i++)
		assert_ptr_equal(wait_for_one(&kit), &kit.tasks[i]);
	assert_int_equal(submit(&kit, TEST_DEVICE_QUEUE), 0);
	kit.device->ops->flush(kit.device);
	assert_ptr_equal(wait_for_one(&kit), &kit.tasks[TEST_DEVICE_QUEUE]);
}

TEST(test_new__no_memory)
{
	struct executor *device = NULL;
	struct waker waker;
	int r;

	assert_int_equal(waker_init(&waker), 0);
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = test_device_new(&(const struct test_device_options){.latency_ns = LATENCY_NS},
				    &waker, &device);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
	}
	assert_int_equal(r, 0);
	device->ops->free(device);
	waker_deinit(&waker);
}

TEST_MAIN(NULL, NULL, clock_init())
