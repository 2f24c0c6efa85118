/* SPDX-License-Identifier: MIT */
/*
 * The Vulkan executor with threads that are paused at random
 *
 * The reactor, the thread that submits and the one that waits for the GPU hand tasks over to each
 * other, and either thread may submit what comes. Here each of them loses its processor at any
 * instruction for longer than a task takes. Each submission comes back once; a task that completed
 * has the right result, and one that was cancelled has none.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "support/pauses.h"
#include "support/test.h"
#include "util/clock.h"
#include "vulkan-rig.h"

enum { N_JOBS = 4 };
static const uint64_t patience_ns = 30000000000;

static struct {
	struct rig rig;
	struct job jobs[N_JOBS];
	bool is_held[N_JOBS], may_be_cancelled[N_JOBS];
	unsigned int n_completed, n_cancelled;
	uint64_t random;
} bench;

static unsigned int random_below(unsigned int n)
{
	return (unsigned int)(reference_random(&bench.random) % n);
}

static void submit(unsigned int i)
{
	job_reset(&bench.jobs[i]);
	bench.may_be_cancelled[i] = false;
	bench.is_held[i] = true;
	rig_submit(&bench.rig, &bench.jobs[i].task);
}

static void cancel(unsigned int i)
{
	uint8_t expected = EXEC_QUEUED;

	bench.may_be_cancelled[i] |= atomic_compare_exchange_strong(&bench.jobs[i].task.state,
								    &expected, EXEC_CANCELLED);
}

static void take_back(struct exec_task *task)
{
	struct job *job = (struct job *)task;
	const unsigned int i = (unsigned int)(job - bench.jobs);

	assert_true(i < N_JOBS && bench.is_held[i]);
	bench.is_held[i] = false;
	if (bench.may_be_cancelled[i]) {
		assert_int_equal(task->res, -ECANCELED);
		assert_true(job_is_untouched(job));
		bench.n_cancelled++;
	} else {
		assert_int_equal(task->res, 0);
		assert_true(job_check(job, 1e-6, 1e-6));
		bench.n_completed++;
	}
}

static unsigned int reap(void)
{
	struct exec_task *tasks[N_JOBS];
	const unsigned int n = bench.rig.executor->ops->reap(bench.rig.executor, tasks, N_JOBS);

	for (unsigned int i = 0; i < n; i++)
		take_back(tasks[i]);
	return n;
}

static bool is_any_held(void)
{
	for (unsigned int i = 0; i < N_JOBS; i++)
		if (bench.is_held[i])
			return true;
	return false;
}

/* One of the things that the reactor does at any time. */
static void act(void)
{
	const unsigned int i = random_below(N_JOBS);

	switch (random_below(8)) {
	case 0:
	case 1:
	case 2:
		if (!bench.is_held[i])
			submit(i);
		break;
	case 3:
		if (bench.is_held[i] && random_below(4) == 0)
			cancel(i);
		break;
	case 4:
		/* Contention begins and ends. */
		atomic_store(&bench.rig.executor->may_poll, random_below(4) > 0);
		break;
	default:
		reap();
	}
}

TEST(test_paused__nothing_is_lost)
{
	struct plan *plan = rig_scratch_plan(7);
	uint64_t end_ns;

	bench.random = 1;
	rig_init(&bench.rig, &(struct vulkan_options){0});
	rig_prepare(&bench.rig, plan);
	for (unsigned int i = 0; i < N_JOBS; i++)
		job_init(&bench.rig, &bench.jobs[i], plan, 1 + i, i + 1);
	pauses_begin();
	end_ns = clock_now_ns() + pauses_run_ns();
	/* On a busy machine some of it may take longer to happen. */
	while (clock_now_ns() < end_ns || bench.n_completed == 0 || bench.n_cancelled == 0) {
		assert_true(clock_now_ns() < end_ns + patience_ns);
		act();
	}
	end_ns = clock_now_ns() + patience_ns;
	while (is_any_held()) {
		assert_true(clock_now_ns() < end_ns);
		reap();
	}
	pauses_end();
	for (unsigned int i = 0; i < N_JOBS; i++)
		job_deinit(&bench.rig, &bench.jobs[i]);
	rig_release(&bench.rig, plan);
	rig_deinit(&bench.rig);
}

int main(void)
{
	return rig_main();
}
