/* SPDX-License-Identifier: MIT */
/*
 * The CPU executor: tasks that are stopped before their end, continue later, or are cancelled in
 * the middle
 *
 * Results do not depend on how often a task was stopped, nor on the tasks that ran meanwhile.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "cpu/internal.h"
#include "support/describe.h"
#include "support/scaled.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "util/clock.h"

#define N DESCRIBE_COUNT
#define D DESCRIBE_DIMS

/* y = relu(relu(x * w) * w) * w, through scratch. */
static struct plan *scratch_plan(struct exec_arena *arena, uint32_t max_count)
{
	struct describe *d = describe_new("scratch", max_count);

	describe_input(d, "x", D(N, 256));
	describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, 0), D(256, 256));
	describe_scratch(d, "a");
	describe_scratch(d, "b");
	describe_scratch(d, "c");
	describe_scratch(d, "d");
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "MatMul", "", "x,w", "a");
	describe_node(d, "Relu", "", "a", "b");
	describe_node(d, "MatMul", "", "b,w", "c");
	describe_node(d, "Relu", "", "c", "d");
	describe_node(d, "MatMul", "", "d,w", "y");
	return reference_plan(d, arena);
}

/* y = x * w: no scratch. */
static struct plan *plain_plan(struct exec_arena *arena, uint32_t max_count)
{
	struct describe *d = describe_new("plain", max_count);

	describe_input(d, "x", D(N, 256));
	describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, 0), D(256, 256));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "MatMul", "", "x,w", "y");
	return reference_plan(d, arena);
}

enum { MAX_JOBS = 12 };

struct rig {
	struct cpu_rig cpu;
	struct exec_arena arena;
	struct plan *plans[2];
	struct cpu_job jobs[MAX_JOBS];
	struct reference_buffers want[MAX_JOBS];
	unsigned int n_jobs;
};

static void rig_init(struct rig *rig, unsigned int n_workers)
{
	memset(rig, 0, sizeof(*rig));
	reference_arena_init(&rig->arena, 256 * 256 * sizeof(float), 3);
	cpu_rig_init(&rig->cpu, &(struct cpu_options){
					.n_workers = n_workers, .spin_ns = 2000, .no_pin = true});
	rig->plans[0] = scratch_plan(&rig->arena, 4000);
	rig->plans[1] = plain_plan(&rig->arena, 4000);
	cpu_rig_prepare(&rig->cpu, rig->plans[0]);
	cpu_rig_prepare(&rig->cpu, rig->plans[1]);
}

static struct cpu_job *rig_add(struct rig *rig, unsigned int plan, uint32_t count)
{
	struct cpu_job *job = &rig->jobs[rig->n_jobs];

	cpu_job_init(job, rig->plans[plan], count, rig->n_jobs);
	cpu_rig_run(&rig->cpu, job);
	assert_int_equal(job->task.res, 0);
	reference_buffers_copy(&rig->want[rig->n_jobs++], &job->buffers);
	return job;
}

static void expect_result(const struct rig *rig, const struct cpu_job *job)
{
	const struct reference_buffers *want = &rig->want[job - rig->jobs];

	assert_int_equal(job->task.res, 0);
	assert_false(job->task.has_progress);
	cpu_job_expect(job, want);
}

static const struct cpu_plan *compiled(const struct rig *rig, unsigned int plan)
{
	return rig->plans[plan]->exec[RBK_DEVICE_CPU];
}

/* Assert that no block of scratch is taken, and that no task counts as stopped. */
static void expect_all_free(const struct rig *rig)
{
	const struct cpu_plan *plan = compiled(rig, 0);

	for (unsigned int i = 0; i < plan->n_blocks; i++)
		assert_false(atomic_load(&plan->blocks[i].is_taken));
	assert_int_equal(atomic_load(&plan->n_stopped), 0);
	assert_int_equal(atomic_load(&compiled(rig, 1)->n_stopped), 0);
	assert_int_equal(atomic_load(&cpu_executor_from(rig->cpu.executor)->n_teams), 0);
	assert_int_equal(atomic_load(&cpu_executor_from(rig->cpu.executor)->n_urgent), 0);
}

static void rig_deinit(struct rig *rig)
{
	expect_all_free(rig);
	for (unsigned int i = 0; i < rig->n_jobs; i++) {
		reference_buffers_deinit(&rig->want[i]);
		cpu_job_deinit(&rig->jobs[i]);
	}
	cpu_rig_release(&rig->cpu, rig->plans[0]);
	cpu_rig_release(&rig->cpu, rig->plans[1]);
	cpu_rig_deinit(&rig->cpu);
	reference_arena_deinit(&rig->arena);
}

/*
 * A task is stopped after each piece of work, and tasks of the same plan and of another one run in
 * between. A single worker stops after each of its pieces. Several workers take more pieces before
 * all have seen the end of the slice, depending on when they wake.
 */
TEST(test_stop__continues_later)
{
	static struct rig rig;

	for (unsigned int n_workers = 1; n_workers <= 3; n_workers++) {
		for (unsigned int plan = 0; plan < 2; plan++) {
			struct cpu_job *job, *others[2];
			unsigned int n = 0;

			rig_init(&rig, n_workers);
			job = rig_add(&rig, plan, 4000);
			others[0] = rig_add(&rig, 0, 30);
			others[1] = rig_add(&rig, 1, 30);
			cpu_job_wipe(job);
			job->task.slice_ticks = 1;
			do {
				cpu_rig_submit(&rig.cpu, job);
				assert_ptr_equal(cpu_rig_reap(&rig.cpu), &job->task);
				for (unsigned int i = 0; i < 2; i++) {
					cpu_job_wipe(others[i]);
					cpu_rig_run(&rig.cpu, others[i]);
					expect_result(&rig, others[i]);
				}
				if (job->task.res == EXEC_UNFINISHED)
					assert_true(job->task.has_progress);
				assert_true(++n < 100000);
			} while (job->task.res == EXEC_UNFINISHED);
			print_message("%u workers: %u submissions\n", n_workers, n);
			if (n_workers == 1)
				assert_true(n > 5);
			expect_result(&rig, job);
			rig_deinit(&rig);
		}
	}
}

/*
 * More tasks of one plan are stopped than it has spare blocks: the last ones run on, and all end.
 */
TEST(test_stop__no_more_than_spare)
{
	static struct rig rig;
	unsigned int n_stops = 0, n_left = 6;

	rig_init(&rig, 1);
	assert_int_equal(compiled(&rig, 0)->n_spare, 1);
	for (unsigned int i = 0; i < n_left; i++) {
		struct cpu_job *job = rig_add(&rig, 0, 1000 + i);

		cpu_job_wipe(job);
		job->task.slice_ticks = 1;
	}
	for (unsigned int i = 0; i < rig.n_jobs; i++)
		cpu_rig_submit(&rig.cpu, &rig.jobs[i]);
	while (n_left > 0) {
		struct cpu_job *job = (struct cpu_job *)cpu_rig_reap(&rig.cpu);

		if (job->task.res == EXEC_UNFINISHED) {
			n_stops++;
			cpu_rig_submit(&rig.cpu, job);
			continue;
		}
		expect_result(&rig, job);
		n_left--;
	}
	print_message("%u stops\n", n_stops);
	assert_true(n_stops > 0);
	rig_deinit(&rig);
}

/*
 * Ask the task to stop once it has begun.
 * Return: false if it has ended already.
 */
static bool stop_begun(struct cpu_job *job, enum exec_state to)
{
	for (;;) {
		if (exec_task_stop(&job->task, to))
			return true;
		if (atomic_load(&job->task.state) == EXEC_ENDED)
			return false;
		sched_yield();
	}
}

TEST(test_stop__requested)
{
	static struct rig rig;
	unsigned int n_stopped = 0;

	for (unsigned int n_workers = 1; n_workers <= 2; n_workers++) {
		struct cpu_job *job;

		rig_init(&rig, n_workers);
		job = rig_add(&rig, 0, 4000);
		for (uint64_t i = 0; i < test_scaled(20); i++) {
			cpu_job_wipe(job);
			do {
				cpu_rig_submit(&rig.cpu, job);
				stop_begun(job, EXEC_STOPPING);
				cpu_rig_reap(&rig.cpu);
				n_stopped += job->task.res == EXEC_UNFINISHED;
			} while (job->task.res == EXEC_UNFINISHED);
			expect_result(&rig, job);
		}
		rig_deinit(&rig);
	}
	assert_true(n_stopped > 0);
}

/*
 * Cancel a task while it runs, after it was stopped and queued again, or after it was stopped only.
 */
TEST(test_stop__cancelled)
{
	static struct rig rig;
	unsigned int n_cancelled = 0;

	for (unsigned int n_workers = 1; n_workers <= 2; n_workers++) {
		uint8_t queued = EXEC_QUEUED;
		struct cpu_job *job, *first;
		uint64_t whole;

		rig_init(&rig, n_workers);
		first = rig_add(&rig, 1, 4000);
		job = rig_add(&rig, 0, 4000);
		whole = job->task.busy_ticks;
		for (uint64_t i = 0; i < test_scaled(20); i++) {
			cpu_rig_submit(&rig.cpu, job);
			if (!stop_begun(job, EXEC_CANCELLED)) {
				cpu_rig_reap(&rig.cpu);
				continue;
			}
			cpu_rig_reap(&rig.cpu);
			assert_int_equal(job->task.res, -ECANCELED);
			assert_false(job->task.has_progress);
			n_cancelled += job->task.busy_ticks < whole;
			expect_all_free(&rig);
		}

		job->task.slice_ticks = 1;
		cpu_rig_run(&rig.cpu, job);
		assert_int_equal(job->task.res, EXEC_UNFINISHED);
		rig.cpu.executor->ops->abandon(rig.cpu.executor, &job->task);
		assert_false(job->task.has_progress);
		expect_all_free(&rig);

		cpu_rig_run(&rig.cpu, job);
		assert_int_equal(job->task.res, EXEC_UNFINISHED);
		for (unsigned int i = 0; i < 2; i++)
			cpu_rig_submit(&rig.cpu, i == 0 ? first : job);
		atomic_compare_exchange_strong(&job->task.state, &queued, EXEC_CANCELLED);
		for (unsigned int i = 0; i < 2; i++)
			cpu_rig_reap(&rig.cpu);
		if (queued == EXEC_QUEUED)
			assert_int_equal(job->task.res, -ECANCELED);
		else if (job->task.has_progress)
			rig.cpu.executor->ops->abandon(rig.cpu.executor, &job->task);
		rig_deinit(&rig);
	}
	assert_true(n_cancelled > 0);
}

/* y = the sum of x: one unit, which writes nothing before its end. */
static struct plan *unit_plan(uint32_t n)
{
	struct describe *d = describe_new("unit", 1);

	describe_input(d, "x", D(n));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "ReduceSum", "", "x", "y");
	describe_attr_ints(d, "axes", 1, (const int64_t[]){0});
	return reference_plan(d, NULL);
}

enum { UNIT_ELEMS = 1 << 24, UNIT_TRIES = 300 };

/* A task of a single long unit is cancelled within the unit: then it has no result. */
TEST(test_stop__cancelled_within_a_unit)
{
	unsigned int n_left = 0;
	static struct rig rig;
	struct cpu_job job;
	struct plan *plan;

	rig_init(&rig, 1);
	plan = unit_plan(UNIT_ELEMS);
	cpu_rig_prepare(&rig.cpu, plan);
	cpu_job_init(&job, plan, 1, 1);
	for (unsigned int i = 0; i < UNIT_TRIES && n_left == 0; i++) {
		static const uint8_t untouched[] = {0x5a, 0x5a, 0x5a, 0x5a};

		cpu_job_wipe(&job);
		cpu_rig_submit(&rig.cpu, &job);
		if (!stop_begun(&job, EXEC_CANCELLED)) {
			cpu_rig_reap(&rig.cpu);
			continue;
		}
		cpu_rig_reap(&rig.cpu);
		assert_int_equal(job.task.res, -ECANCELED);
		assert_false(job.task.has_progress);
		n_left += memcmp(job.buffers.bindings[1], untouched, sizeof(untouched)) == 0;
	}
	assert_true(n_left > 0);
	cpu_rig_run(&rig.cpu, &job);
	assert_int_equal(job.task.res, 0);
	cpu_job_deinit(&job);
	cpu_rig_release(&rig.cpu, plan);
	rig_deinit(&rig);
}

/* Several workers with helpers, and urgent tasks, stops and cancellations at random. */
TEST(test_stop__load)
{
	const uint64_t rounds = test_scaled(3000);
	unsigned int n_stopped = 0, n_cancelled = 0, n_done = 0, n_queued = 0;
	bool is_queued[MAX_JOBS] = {false};
	uint64_t random = 11;
	static struct rig rig;

	rig_init(&rig, 3);
	for (unsigned int i = 0; i < MAX_JOBS; i++)
		cpu_job_wipe(rig_add(&rig, i % 3 == 2, i % 2 ? 700 + i : 1 + i));
	for (unsigned int n = 0; n < rounds || n_queued > 0;) {
		const unsigned int i = (unsigned int)(reference_random(&random) % MAX_JOBS);
		struct cpu_job *job = &rig.jobs[i];
		struct exec_task *tasks[4];
		unsigned int n_reaped;

		if (n < rounds && !is_queued[i]) {
			/* A stopped task may become urgent, or stop being urgent. */
			job->task.is_urgent = reference_random(&random) % 3 == 0;
			job->task.slice_ticks = reference_random(&random) % 3 ? 0 : 20000;
			cpu_rig_submit(&rig.cpu, job);
			is_queued[i] = true;
			n_queued++;
			n++;
		} else if (is_queued[i]) {
			exec_task_stop(&job->task, reference_random(&random) % 8 ? EXEC_STOPPING
										 : EXEC_CANCELLED);
		}
		n_reaped = rig.cpu.executor->ops->reap(rig.cpu.executor, tasks, 4);
		for (unsigned int k = 0; k < n_reaped; k++) {
			job = (struct cpu_job *)tasks[k];
			is_queued[job - rig.jobs] = false;
			n_queued--;
			if (job->task.res == EXEC_UNFINISHED) {
				n_stopped++;
				if (n < rounds)
					continue;
				rig.cpu.executor->ops->abandon(rig.cpu.executor, &job->task);
			} else if (job->task.res == -ECANCELED) {
				n_cancelled++;
			} else {
				expect_result(&rig, job);
				n_done++;
			}
			cpu_job_wipe(job);
		}
		if (n_reaped == 0)
			sched_yield();
	}
	for (unsigned int i = 0; i < MAX_JOBS; i++)
		if (rig.jobs[i].task.has_progress)
			rig.cpu.executor->ops->abandon(rig.cpu.executor, &rig.jobs[i].task);
	print_message("%u done, %u stopped, %u cancelled\n", n_done, n_stopped, n_cancelled);
	assert_true(n_done > 0);
	assert_true(n_stopped > 0);
	assert_true(n_cancelled > 0);
	rig_deinit(&rig);
}

TEST_MAIN(NULL, NULL, clock_init(), cpu_flush_denormals())
