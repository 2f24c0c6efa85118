/* SPDX-License-Identifier: MIT */
/*
 * The CPU executor with threads that are paused at random
 *
 * The workers and the reactor are paused while tasks are submitted, run by the reactor with
 * helpers, stopped, resumed, abandoned and cancelled, and while workers are taken away and given
 * back. Each submission comes back once, and each completed task has the right bits.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "cpu/internal.h"
#include "support/describe.h"
#include "support/pauses.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "util/clock.h"

enum {
	N_WORKERS = 3,
	N_JOBS = 8,
};
static const uint64_t patience_ns = 30000000000;

enum place { IDLE, HELD, STOPPED };

struct job {
	struct cpu_job cpu;
	struct reference_buffers want;
	enum place place;
	bool may_be_cancelled;
};

static struct bench {
	struct cpu_rig rig;
	struct exec_arena arena;
	struct plan *plan;
	struct job jobs[N_JOBS];
	struct job *here; /* the job that the reactor runs */
	unsigned int n_completed, n_resumed, n_cancelled, n_here;
	uint64_t random;
} bench;

static unsigned int random_below(unsigned int n)
{
	return (unsigned int)(reference_random(&bench.random) % n);
}

static void bench_begin(void)
{
	memset(&bench, 0, sizeof(bench));
	bench.random = 1;
	reference_arena_init(&bench.arena, 390 * 500 * sizeof(float), 3);
	cpu_rig_init(&bench.rig, &(struct cpu_options){
					 .n_workers = N_WORKERS, .spin_ns = 20000, .no_pin = true});
	bench.plan = cpu_rig_long_plan(&bench.arena);
	cpu_rig_prepare(&bench.rig, bench.plan);
	for (unsigned int i = 0; i < N_JOBS; i++) {
		struct job *job = &bench.jobs[i];

		cpu_job_init(&job->cpu, bench.plan, 1 + 5 * i, i);
		cpu_rig_run(&bench.rig, &job->cpu);
		reference_buffers_copy(&job->want, &job->cpu.buffers);
	}
}

static void bench_end(void)
{
	for (unsigned int i = 0; i < N_JOBS; i++) {
		reference_buffers_deinit(&bench.jobs[i].want);
		cpu_job_deinit(&bench.jobs[i].cpu);
	}
	cpu_rig_release(&bench.rig, bench.plan);
	cpu_rig_deinit(&bench.rig);
	reference_arena_deinit(&bench.arena);
}

/* Prepare a job for its next submission. */
static void make_ready(struct job *job)
{
	if (job->place == IDLE) {
		cpu_job_wipe(&job->cpu);
		job->cpu.task.is_urgent = random_below(4) == 0;
	}
	job->cpu.task.res = INT32_MIN;
	job->may_be_cancelled = false;
	job->cpu.task.slice_ticks =
		random_below(2) ? clock_ns_to_ticks(random_below(200000) + 1) : 0;
	atomic_store(&job->cpu.task.state, EXEC_QUEUED);
	job->place = HELD;
}

/* Take back a job that the executor has returned. */
static void take_back(struct job *job)
{
	struct exec_task *task = &job->cpu.task;
	const struct executor_ops *ops = bench.rig.executor->ops;

	assert_int_equal(job->place, HELD);
	job->place = IDLE;
	/* Otherwise no worker could take the round's last chunk, and end it. */
	assert_true(!task->has_progress || task->progress.n_chunks == 0 ||
		    task->progress.front + task->progress.back < task->progress.n_chunks);
	if (task->res == EXEC_UNFINISHED && !job->may_be_cancelled) {
		assert_true(task->has_progress);
		job->place = STOPPED;
		bench.n_resumed++;
	} else if (task->res == 0) {
		assert_false(task->has_progress);
		cpu_job_expect(&job->cpu, &job->want);
		bench.n_completed++;
	} else {
		assert_true(job->may_be_cancelled);
		assert_true(task->res == -ECANCELED || task->res == EXEC_UNFINISHED);
		bench.n_cancelled++;
	}
	/* A stopped task is sometimes not resumed. */
	if (task->has_progress && (job->place == IDLE || random_below(4) == 0)) {
		ops->abandon(bench.rig.executor, task);
		job->place = IDLE;
	}
}

static void reap(void)
{
	struct exec_task *tasks[N_JOBS];
	const unsigned int n = bench.rig.executor->ops->reap(bench.rig.executor, tasks, N_JOBS);

	for (unsigned int i = 0; i < n; i++)
		take_back((struct job *)tasks[i]);
}

static void cancel(struct job *job)
{
	uint8_t expected = EXEC_QUEUED;

	job->may_be_cancelled = true;
	if (!atomic_compare_exchange_strong(&job->cpu.task.state, &expected, EXEC_CANCELLED))
		exec_task_stop(&job->cpu.task, EXEC_CANCELLED);
}

/* One of the things that the reactor does at any time. */
static void act(void)
{
	struct job *job = &bench.jobs[random_below(N_JOBS)];
	struct executor *executor = bench.rig.executor;

	switch (random_below(8)) {
	case 0:
	case 1:
	case 2:
		if (job->place != HELD) {
			make_ready(job);
			assert_int_equal(executor->ops->submit(executor, &job->cpu.task), 0);
			executor->ops->flush(executor);
		}
		break;
	case 3:
		if (job->place == HELD)
			exec_task_stop(&job->cpu.task, EXEC_STOPPING);
		break;
	case 4:
		if (job->place == HELD && random_below(4) == 0)
			cancel(job);
		break;
	case 5:
		cpu_executor_limit(executor, random_below(N_WORKERS + 2), random_below(2));
		break;
	default:
		reap();
	}
}

static void look(void *context)
{
	if (random_below(8) == 0)
		act();
}

static void run_here(struct job *job)
{
	struct executor *executor = bench.rig.executor;

	if (job->place == HELD)
		return;
	make_ready(job);
	executor->ops->run_here(executor, &job->cpu.task, random_below(N_WORKERS), look, NULL);
	bench.n_here++;
	take_back(job);
}

static bool is_any_held(void)
{
	for (unsigned int i = 0; i < N_JOBS; i++)
		if (bench.jobs[i].place == HELD)
			return true;
	return false;
}

/*
 * Let every job end. Nothing wakes workers meanwhile: they were woken for all jobs that they have.
 */
static void await_all(void)
{
	const uint64_t end_ns = clock_now_ns() + patience_ns;

	while (is_any_held()) {
		assert_true(clock_now_ns() < end_ns);
		reap();
		sched_yield();
	}
}

static bool has_seen_all(void)
{
	return bench.n_completed > 0 && bench.n_resumed > 0 && bench.n_cancelled > 0 &&
	       bench.n_here > 0;
}

TEST(test_paused__nothing_is_lost)
{
	const struct cpu_executor *cpu;
	struct executor *executor;
	uint64_t end_ns;

	bench_begin();
	executor = bench.rig.executor;
	cpu = cpu_executor_from(executor);
	pauses_begin();
	end_ns = clock_now_ns() + pauses_run_ns();
	/* On a busy machine some of it may take longer to happen. */
	while (clock_now_ns() < end_ns || !has_seen_all()) {
		assert_true(clock_now_ns() < end_ns + patience_ns);
		act();
		if (random_below(16) == 0)
			run_here(&bench.jobs[random_below(N_JOBS)]);
		if (random_below(32) == 0)
			await_all();
	}
	await_all();
	pauses_end();
	for (unsigned int i = 0; i < N_JOBS; i++)
		if (bench.jobs[i].cpu.task.has_progress)
			executor->ops->abandon(executor, &bench.jobs[i].cpu.task);
	assert_int_equal(atomic_load(&cpu->n_teams), 0);
	bench_end();
}
