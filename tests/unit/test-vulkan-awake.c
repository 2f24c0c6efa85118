/* SPDX-License-Identifier: MIT */
/*
 * The thread that waits for a GPU polls around the end of a task, and submits what comes then
 *
 * The GPU is the card of tests/support/card-driver.c. That tasks and cancellations get through
 * whichever thread submits them is tested by test-vulkan-card-executor, whose device polls, too.
 */
#include <errno.h>
#include <unistd.h>

#include "support/test.h"
#include "util/clock.h"
#include "vulkan-rig.h"
#include "vulkan/device.h"
#include "vulkan/record-private.h"

enum { RUNS = 100, MOST_RUNS = 100000, SUBMISSIONS = 3 };

static const struct vk_awake *awake_of(const struct rig *rig)
{
	return &container_of(rig->executor, struct vk_device, executor)->submit.awake;
}

/* Run the task as a client that polls: the next run comes as soon as this one has ended. */
static void run(struct rig *rig, struct job *job)
{
	struct exec_task *task = NULL;

	job_reset(job);
	rig_submit(rig, &job->task);
	while (rig->executor->ops->reap(rig->executor, &task, 1) == 0)
		;
	assert_ptr_equal(task, &job->task);
	assert_int_equal(task->res, 0);
}

static void begin(struct rig *rig, struct plan **plan, struct job *job, bool may_poll,
		  const struct vulkan_options *options)
{
	*plan = rig_scratch_plan(7);
	rig_init(rig, options);
	atomic_store(&rig->executor->may_poll, may_poll);
	rig_prepare(rig, *plan);
	job_init(rig, job, *plan, 3, 1);
}

static void end(struct rig *rig, struct plan *plan, struct job *job)
{
	assert_true(job_check(job, 1e-6, 1e-6));
	job_deinit(rig, job);
	rig_release(rig, plan);
	rig_deinit(rig);
}

/* However busy the machine is: in some of many runs the next task comes soon. */
TEST(test_awake__submits)
{
	struct plan *plan;
	struct rig rig;
	struct job job;

	begin(&rig, &plan, &job, true, &(struct vulkan_options){0});
	for (unsigned int i = 0; i < MOST_RUNS && awake_of(&rig)->n_submitted < SUBMISSIONS; i++)
		run(&rig, &job);
	assert_true(awake_of(&rig)->n_submitted >= SUBMISSIONS);
	end(&rig, plan, &job);
}

/* Some of many tasks end before their prediction, which only a thread that was awake sees. */
TEST(test_awake__sees_ends)
{
	struct plan *plan;
	struct rig rig;
	struct job job;

	begin(&rig, &plan, &job, true, &(struct vulkan_options){0});
	for (unsigned int i = 0; i < MOST_RUNS && awake_of(&rig)->early_ticks == 0; i++)
		run(&rig, &job);
	assert_true(awake_of(&rig)->early_ticks > 0);
	end(&rig, plan, &job);
}

TEST(test_awake__not_where_processors_are_needed)
{
	struct plan *plan;
	struct rig rig;
	struct job job;

	begin(&rig, &plan, &job, false, &(struct vulkan_options){0});
	for (unsigned int i = 0; i < RUNS; i++)
		run(&rig, &job);
	assert_int_equal(awake_of(&rig)->n_submitted, 0);
	assert_int_equal(awake_of(&rig)->lag_ticks, 0);
	assert_int_equal(awake_of(&rig)->early_ticks, 0);
	end(&rig, plan, &job);
}

/* Return true if the last submission has ended. */
static bool has_ended(struct vk_device *device)
{
	uint64_t value = 0;

	device->vk.vkGetSemaphoreCounterValue(device->handle, device->submit.timeline, &value);
	return value == device->submit.submitted;
}

struct waits {
	struct vk_device *device;
	unsigned int n_in_time; /* waits with the timeout that began before the end of the task */
};

static enum vulkan_fault note_wait(void *context, enum vulkan_fault_point point)
{
	struct waits *waits = context;

	if (point == VULKAN_FAULT_WAIT && waits->device && !has_ended(waits->device))
		waits->n_in_time++;
	return VULKAN_FAULT_NONE;
}

/* The timeout of a task that is expected to take long begins with the task, not with that end. */
TEST(test_awake__timeout)
{
	struct waits waits = {0};
	struct vk_plan *prepared;
	struct plan *plan;
	struct rig rig;
	struct job job;

	begin(&rig, &plan, &job, true,
	      &(struct vulkan_options){.fault = note_wait, .fault_context = &waits});
	waits.device = container_of(rig.executor, struct vk_device, executor);
	prepared = plan->exec[rig.executor->index];
	for (unsigned int i = 0; i < MOST_RUNS && waits.n_in_time == 0; i++) {
		atomic_store(&prepared->ticks_per_work, (float)clock_ns_to_ticks(1000000000));
		run(&rig, &job);
	}
	assert_true(waits.n_in_time > 0);
	waits.device = NULL;
	end(&rig, plan, &job);
}

/* Let the waiting thread wait while the gate is shut. */
static enum vulkan_fault wait_at_gate(void *context, enum vulkan_fault_point point)
{
	while (point == VULKAN_FAULT_WAIT && atomic_load((atomic_bool *)context))
		usleep(100);
	return VULKAN_FAULT_NONE;
}

/*
 * The watching thread sees a new task, but not that an earlier task, which waits for a slot, was
 * cancelled after it had looked at it: a flush for both wakes the submitting thread.
 */
TEST(test_awake__cancelled_beside_new)
{
	enum { N = VK_MAX_SLOTS + 2, HELD = N - 2, PATIENCE_US = 20000000 };
	static struct job jobs[N];
	atomic_bool is_shut = false;
	struct vk_queue *queue;
	uint8_t queued = EXEC_QUEUED;
	struct plan *plan;
	struct rig rig;
	uint32_t tail;

	begin(&rig, &plan, &jobs[0], false,
	      &(struct vulkan_options){.fault = wait_at_gate, .fault_context = &is_shut});
	queue = &container_of(rig.executor, struct vk_device, executor)->submit;
	for (unsigned int i = 1; i < N; i++)
		job_init(&rig, &jobs[i], plan, 3, i + 1);
	atomic_store(&is_shut, true);
	for (unsigned int i = 0; i < N - 1; i++)
		rig_submit(&rig, &jobs[i].task);
	while (!atomic_load(&queue->awaits_slot) || spsc_has_items(&queue->in))
		usleep(100);
	/* The test stands for a thread that watches, and that has looked at all held tasks. */
	vk_awake_begin_watch(&queue->awake);
	tail = atomic_load(&queue->begun.tail);
	assert_true(
		atomic_compare_exchange_strong(&jobs[HELD].task.state, &queued, EXEC_CANCELLED));
	rig_submit(&rig, &jobs[N - 1].task);
	for (unsigned int us = 0; us < PATIENCE_US; us += 100) {
		if (atomic_load(&queue->begun.tail) != tail)
			break;
		usleep(100);
	}
	assert_int_equal(atomic_load(&queue->begun.tail), tail + 1);
	vk_awake_end_watch(&queue->awake);
	atomic_store(&is_shut, false);
	for (unsigned int i = 0; i < N; i++)
		rig_reap(&rig);
	for (unsigned int i = 0; i < N; i++)
		assert_int_equal(jobs[i].task.res, i == HELD ? -ECANCELED : 0);
	for (unsigned int i = 1; i < N; i++)
		job_deinit(&rig, &jobs[i]);
	end(&rig, plan, &jobs[0]);
}

int main(void)
{
	return rig_main();
}
