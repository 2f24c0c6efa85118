/* SPDX-License-Identifier: MIT */
/*
 * The thread that waits for a GPU polls around the end of a task, and submits what comes then
 *
 * The GPU is the card of tests/support/card-driver.c. That tasks and cancellations get through
 * whichever thread submits them is tested by test-vulkan-card-executor, whose device polls, too.
 */
#include "support/test.h"
#include "util/clock.h"
#include "util/log.h"
#include "vulkan-rig.h"
#include "vulkan/device.h"

enum { RUNS = 300, MOST_RUNS = 100000 };

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

static void begin(struct rig *rig, struct plan **plan, struct job *job, bool may_poll)
{
	*plan = rig_scratch_plan(7);
	rig_init(rig, &(struct vulkan_options){0});
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

	begin(&rig, &plan, &job, true);
	for (unsigned int i = 0; i < MOST_RUNS && awake_of(&rig)->n_submitted < RUNS / 10; i++)
		run(&rig, &job);
	assert_true(awake_of(&rig)->n_submitted >= RUNS / 10);
	end(&rig, plan, &job);
}

TEST(test_awake__not_where_processors_are_needed)
{
	struct plan *plan;
	struct rig rig;
	struct job job;

	begin(&rig, &plan, &job, false);
	for (unsigned int i = 0; i < RUNS; i++)
		run(&rig, &job);
	assert_int_equal(awake_of(&rig)->n_submitted, 0);
	assert_int_equal(awake_of(&rig)->lag_ticks, 0);
	assert_int_equal(awake_of(&rig)->early_ticks, 0);
	end(&rig, plan, &job);
}

int main(void)
{
	clock_init();
	log_set_level(LOG_LEVEL_ERROR);
	if (!rig_available())
		return 77;
	return test_run(NULL, NULL);
}
