/* SPDX-License-Identifier: MIT */
/*
 * The CPU executor with fewer workers than it has
 *
 * The other workers sleep, whatever is queued. No task is lost, late or wrong, however often the
 * limit changes.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu/internal.h"
#include "support/describe.h"
#include "support/scaled.h"
#include "support/test.h"
#include "unit/cpu-rig.h"

enum { N_SLOTS = 32, TRIES = 300 };

static struct plan *add_plan(void)
{
	struct describe *d = describe_new("add", 64);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 60));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Add", "", "x,x", "y");
	return reference_plan(d, NULL);
}

/* y = x * w * w: steps of many chunks each. */
static struct plan *product_plan(struct exec_arena *arena)
{
	struct describe *d = describe_new("product", 4000);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 256));
	describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(256, 256));
	describe_scratch(d, "xw");
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "MatMul", "", "x,w", "xw");
	describe_node(d, "MatMul", "", "xw,w", "y");
	return reference_plan(d, arena);
}

struct bench {
	struct cpu_rig rig;
	struct exec_arena arena;
	struct plan *add, *product, *several;
	struct cpu_job jobs[N_SLOTS];
	struct reference_buffers want[N_SLOTS];
	struct exec_task *idle[N_SLOTS];
	unsigned int n_idle;
};

static struct bench *bench_new(const struct cpu_options *options)
{
	struct bench *bench = calloc(1, sizeof(*bench));

	reference_arena_init(&bench->arena, 390 * 500 * sizeof(float), 3);
	cpu_rig_init(&bench->rig, options);
	bench->add = add_plan();
	bench->product = product_plan(&bench->arena);
	bench->several = cpu_rig_long_plan(&bench->arena);
	cpu_rig_prepare(&bench->rig, bench->add);
	cpu_rig_prepare(&bench->rig, bench->product);
	cpu_rig_prepare(&bench->rig, bench->several);
	for (unsigned int i = 0; i < N_SLOTS; i++) {
		struct cpu_job *job = &bench->jobs[i];

		cpu_job_init(job,
			     i % 8 == 0   ? bench->several
			     : i % 8 == 1 ? bench->product
					  : bench->add,
			     i % 8 == 0   ? 130
			     : i % 8 == 1 ? 200
					  : 1 + i,
			     i);
		bench->rig.executor->ops->run_inline(bench->rig.executor, &job->task);
		reference_buffers_copy(&bench->want[i], &job->buffers);
		job->task.is_urgent = i % 4 == 3;
		bench->idle[bench->n_idle++] = &job->task;
	}
	return bench;
}

static void bench_free(struct bench *bench)
{
	for (unsigned int i = 0; i < N_SLOTS; i++) {
		reference_buffers_deinit(&bench->want[i]);
		cpu_job_deinit(&bench->jobs[i]);
	}
	cpu_rig_release(&bench->rig, bench->add);
	cpu_rig_release(&bench->rig, bench->product);
	cpu_rig_release(&bench->rig, bench->several);
	cpu_rig_deinit(&bench->rig);
	reference_arena_deinit(&bench->arena);
	free(bench);
}

static struct cpu_worker *worker_of(struct bench *bench, unsigned int i)
{
	return &cpu_executor_from(bench->rig.executor)->workers[i];
}

static bool is_asleep(struct bench *bench, unsigned int i)
{
	return atomic_load(&worker_of(bench, i)->asleep) == 1;
}

static void submit_one(struct bench *bench)
{
	struct exec_task *task = bench->idle[--bench->n_idle];
	struct cpu_job *job = (struct cpu_job *)task;

	for (unsigned int i = 0; i < job->buffers.n; i++)
		if (task->plan->bindings[i].written)
			memset(job->buffers.bindings[i], 0x5a, job->buffers.bytes[i]);
	task->res = 1;
	assert_int_equal(bench->rig.executor->ops->submit(bench->rig.executor, task), 0);
}

static void reap_some(struct bench *bench)
{
	struct exec_task *tasks[8];
	const unsigned int n = bench->rig.executor->ops->reap(bench->rig.executor, tasks, 8);

	for (unsigned int i = 0; i < n; i++) {
		const struct cpu_job *job = (struct cpu_job *)tasks[i];
		const struct reference_buffers *want = &bench->want[job - bench->jobs];

		assert_int_equal(tasks[i]->res, 0);
		for (unsigned int b = 0; b < want->n; b++)
			assert_memory_equal(job->buffers.bindings[b], want->bindings[b],
					    want->bytes[b]);
		bench->idle[bench->n_idle++] = tasks[i];
	}
	if (n == 0)
		sched_yield();
}

static void run_load(struct bench *bench, unsigned int n_tasks, unsigned int n_limits)
{
	uint64_t random = 5;

	for (unsigned int n = 0; n < n_tasks;) {
		for (uint64_t burst = reference_random(&random) % 12; burst > 0 && bench->n_idle;
		     burst--, n++)
			submit_one(bench);
		bench->rig.executor->ops->flush(bench->rig.executor);
		if (n_limits && reference_random(&random) % 2)
			cpu_executor_limit(bench->rig.executor,
					   (unsigned int)(reference_random(&random) % n_limits),
					   reference_random(&random) % 2);
		reap_some(bench);
		/* Sometimes all tasks complete, and all workers sleep. */
		while (reference_random(&random) % 64 == 0 && bench->n_idle < N_SLOTS)
			reap_some(bench);
	}
	while (bench->n_idle < N_SLOTS)
		reap_some(bench);
}

/* The limits include 0 and more workers than exist. */
TEST(test_limit__changes_at_random)
{
	const uint32_t spins_ns[] = {1, 3000, 100000};

	for (size_t i = 0; i < sizeof(spins_ns) / sizeof(spins_ns[0]); i++) {
		struct bench *bench = bench_new(&(struct cpu_options){
			.n_workers = 4, .spin_ns = spins_ns[i], .no_pin = true});

		run_load(bench, (unsigned int)test_scaled(3000), 7);
		bench_free(bench);
	}
}

static uint64_t worked_ns(struct bench *bench, unsigned int i)
{
	struct timespec time;
	clockid_t clock;

	assert_int_equal(pthread_getcpuclockid(worker_of(bench, i)->thread, &clock), 0);
	assert_int_equal(clock_gettime(clock, &time), 0);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

TEST(test_limit__unused_workers_sleep)
{
	struct bench *bench = bench_new(
		&(struct cpu_options){.n_workers = 3, .spin_ns = 100000000, .no_pin = true});
	uint64_t before_ns[3];

	for (unsigned int n_used = 1; n_used < 3; n_used++) {
		/* Workers that spin go to sleep as well. */
		run_load(bench, 50, 0);
		cpu_executor_limit(bench->rig.executor, n_used, false);
		for (unsigned int i = n_used; i < 3; i++)
			while (!is_asleep(bench, i))
				sched_yield();
		for (unsigned int i = 0; i < 3; i++)
			before_ns[i] = worked_ns(bench, i);
		while (worked_ns(bench, 0) - before_ns[0] < 30000000)
			run_load(bench, 100, 0);
		/* The others use no more time than it takes to fall asleep. */
		for (unsigned int i = n_used; i < 3; i++) {
			assert_true(is_asleep(bench, i));
			assert_true(worked_ns(bench, i) - before_ns[i] < 1000000);
		}
		cpu_executor_limit(bench->rig.executor, 3, false);
	}
	/* The workers are used again. */
	before_ns[2] = worked_ns(bench, 2);
	while (worked_ns(bench, 2) - before_ns[2] < 1000000)
		run_load(bench, 100, 0);
	bench_free(bench);
}

/* Workers that spin for work sleep once the processors are contended. */
TEST(test_limit__no_spinning)
{
	struct bench *bench = bench_new(
		&(struct cpu_options){.n_workers = 2, .spin_ns = UINT32_MAX, .no_pin = true});

	run_load(bench, 20, 0);
	cpu_executor_limit(bench->rig.executor, 2, true);
	while (!is_asleep(bench, 0) || !is_asleep(bench, 1))
		sched_yield();
	run_load(bench, 200, 0);
	while (!is_asleep(bench, 0) || !is_asleep(bench, 1))
		sched_yield();
	bench_free(bench);
}

/*
 * A helping worker leaves before the task is done. The case is repeated until this was seen once,
 * because the task may be done before the test reads the state.
 */
TEST(test_limit__within_a_chunk)
{
	struct bench *bench =
		bench_new(&(struct cpu_options){.n_workers = 2, .spin_ns = 1, .no_pin = true});
	bool has_left = false;
	struct cpu_job job;

	cpu_job_init(&job, bench->product, cpu_rig_long(4000), 1);
	for (unsigned int i = 0; i < TRIES && !has_left; i++) {
		const struct cpu_team *teams[] = {
			&worker_of(bench, 0)->layers[CPU_LAYER_BASE].team,
			&worker_of(bench, 1)->layers[CPU_LAYER_BASE].team};
		struct exec_task *task = NULL;

		cpu_executor_limit(bench->rig.executor, 2, false);
		cpu_rig_submit(&bench->rig, &job);
		/* The first worker leads the task, the second helps. */
		while (!task && atomic_load(&teams[0]->state) != (CPU_TEAM_OPEN | 1) &&
		       atomic_load(&teams[1]->state) == 0)
			bench->rig.executor->ops->reap(bench->rig.executor, &task, 1);
		cpu_executor_limit(bench->rig.executor, 1, false);
		while (!task) {
			has_left |= is_asleep(bench, 1) && atomic_load(&teams[0]->state);
			bench->rig.executor->ops->reap(bench->rig.executor, &task, 1);
		}
		assert_int_equal(task->res, 0);
	}
	assert_true(has_left);
	cpu_job_deinit(&job);
	bench_free(bench);
}

/* A task queued behind a long task runs when another worker is allowed again. */
TEST(test_limit__raised_at_work)
{
	struct bench *bench =
		bench_new(&(struct cpu_options){.n_workers = 2, .spin_ns = 1, .no_pin = true});
	struct cpu_job first, second;
	bool was_beside = false;

	cpu_job_init(&first, bench->product, cpu_rig_long(4000), 1);
	cpu_job_init(&second, bench->add, 1, 1);
	for (unsigned int i = 0; i < TRIES && !was_beside; i++) {
		struct exec_task *task;

		cpu_executor_limit(bench->rig.executor, 1, true);
		while (!is_asleep(bench, 0) || !is_asleep(bench, 1))
			sched_yield();
		cpu_rig_submit(&bench->rig, &first);
		while (atomic_load(&first.task.state) == EXEC_QUEUED)
			sched_yield();
		cpu_rig_submit(&bench->rig, &second);
		cpu_executor_limit(bench->rig.executor, 2, true);
		task = cpu_rig_reap(&bench->rig);
		was_beside = task == &second.task;
		cpu_rig_reap(&bench->rig);
	}
	assert_true(was_beside);
	cpu_job_deinit(&first);
	cpu_job_deinit(&second);
	bench_free(bench);
}

/*
 * Tasks that are queued for a worker beyond the limit are run by the other workers, also sleeping
 * ones.
 */
TEST(test_limit__queued_tasks_still_run)
{
	struct bench *bench =
		bench_new(&(struct cpu_options){.n_workers = 4, .spin_ns = 1, .no_pin = true});

	for (unsigned int i = 0; i < test_scaled(2000); i++) {
		cpu_executor_limit(bench->rig.executor, 4, false);
		for (unsigned int j = 0; j <= i % 6; j++)
			submit_one(bench);
		if (i % 3)
			bench->rig.executor->ops->flush(bench->rig.executor);
		cpu_executor_limit(bench->rig.executor, 1 + i % 3, i & 8);
		bench->rig.executor->ops->flush(bench->rig.executor);
		while (bench->n_idle < N_SLOTS)
			reap_some(bench);
	}
	/* The executor is freed while some workers are not used. */
	cpu_executor_limit(bench->rig.executor, 1, true);
	bench_free(bench);
}

static bool may_run_on(struct bench *bench, unsigned int i, const cpu_set_t *want)
{
	cpu_set_t set;

	assert_int_equal(pthread_getaffinity_np(worker_of(bench, i)->thread, sizeof(set), &set), 0);
	return CPU_EQUAL(&set, want);
}

static void assert_pinned(struct bench *bench, unsigned int n)
{
	cpu_set_t used, one;

	CPU_ZERO(&used);
	for (unsigned int i = 0; i < n; i++) {
		CPU_ZERO(&one);
		CPU_SET(worker_of(bench, i)->processor, &one);
		assert_true(may_run_on(bench, i, &one));
		CPU_OR(&used, &used, &one);
	}
	assert_int_equal(CPU_COUNT(&used), n);
}

/* Workers are pinned only while all are used: fewer workers run on any processor. */
TEST(test_limit__pinned)
{
	struct bench *bench;
	unsigned int n;
	cpu_set_t all;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	n = (unsigned int)CPU_COUNT(&all);
	n = n < 4 ? n : 4;
	if (n < 2)
		skip();
	bench = bench_new(&(struct cpu_options){.n_workers = n, .spin_ns = 1});
	assert_pinned(bench, n);
	for (unsigned int n_used = n - 1; n_used > 0; n_used--) {
		cpu_executor_limit(bench->rig.executor, n_used, true);
		run_load(bench, 20, 0);
		for (unsigned int i = 0; i < n; i++)
			assert_true(may_run_on(bench, i, &all));
	}
	cpu_executor_limit(bench->rig.executor, n, true);
	assert_pinned(bench, n);
	cpu_executor_limit(bench->rig.executor, n, false);
	assert_pinned(bench, n);
	bench_free(bench);

	/* A worker that was never pinned is not pinned after a limit. */
	bench = bench_new(&(struct cpu_options){.n_workers = n, .spin_ns = 1, .no_pin = true});
	cpu_executor_limit(bench->rig.executor, 1, true);
	cpu_executor_limit(bench->rig.executor, n, true);
	for (unsigned int i = 0; i < n; i++)
		assert_true(may_run_on(bench, i, &all));
	bench_free(bench);
}
