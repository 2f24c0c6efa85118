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
#include "util/checked.h"
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

enum { MAX_JOBS = 36, MAX_PLANS = 6 };

struct rig {
	struct cpu_rig cpu;
	struct exec_arena arena;
	struct plan *plans[MAX_PLANS];
	unsigned int n_plans;
	struct cpu_job jobs[MAX_JOBS];
	struct reference_buffers want[MAX_JOBS];
	unsigned int n_jobs;
};

static void rig_prepare(struct rig *rig, struct plan *plan)
{
	cpu_rig_prepare(&rig->cpu, plan);
	rig->plans[rig->n_plans++] = plan;
}

static void rig_init(struct rig *rig, unsigned int n_workers)
{
	memset(rig, 0, sizeof(*rig));
	reference_arena_init(&rig->arena, 390 * 500 * sizeof(float), 3);
	cpu_rig_init(&rig->cpu, &(struct cpu_options){
					.n_workers = n_workers, .spin_ns = 2000, .no_pin = true});
	rig_prepare(rig, scratch_plan(&rig->arena, 4000));
	rig_prepare(rig, plain_plan(&rig->arena, 4000));
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
	for (unsigned int i = 0; i < rig->n_plans; i++) {
		const struct cpu_plan *plan = compiled(rig, i);

		for (unsigned int k = 0; k < plan->n_blocks; k++)
			assert_false(atomic_load(&plan->blocks[k].is_taken));
		assert_int_equal(atomic_load(&plan->n_stopped), 0);
	}
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
	for (unsigned int i = 0; i < rig->n_plans; i++)
		cpu_rig_release(&rig->cpu, rig->plans[i]);
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
			job = rig_add(&rig, plan, cpu_rig_long(4000));
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
		job = rig_add(&rig, 0, cpu_rig_long(4000));
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
		first = rig_add(&rig, 1, cpu_rig_long(4000));
		job = rig_add(&rig, 0, cpu_rig_long(4000));
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
	plan = unit_plan(cpu_rig_long(UNIT_ELEMS));
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

/* ---- A load ---- */

struct load {
	struct rig rig;
	uint64_t random;
	bool is_submitted[MAX_JOBS]; /* true: not reaped yet */
	bool was_queued[MAX_JOBS];   /* true: cancelled before it began */
	bool was_running[MAX_JOBS];  /* true: was to be cancelled before it began, but ran */
	unsigned int n_submitted;
	unsigned int n_done, n_stopped, n_cancelled, n_unbegun, n_too_late;
};

/* Submit up to 20 idle jobs, then flush. Return: their number. */
static unsigned int load_submit(struct load *load)
{
	struct executor *executor = load->rig.cpu.executor;
	unsigned int n = 0;

	for (uint64_t burst = reference_random(&load->random) % 21; burst > 0; burst--) {
		const size_t i = reference_random(&load->random) % MAX_JOBS;
		struct exec_task *task = &load->rig.jobs[i].task;

		if (load->is_submitted[i])
			continue;
		/* A stopped task may become urgent, or stop being urgent. */
		task->is_urgent = reference_random(&load->random) % 2;
		task->slice_ticks = reference_random(&load->random) % 3 ? 0 : 20000;
		assert_int_equal(executor->ops->submit(executor, task), 0);
		load->is_submitted[i] = true;
		n++;
	}
	executor->ops->flush(executor);
	load->n_submitted += n;
	return n;
}

/* Cancel a task before it begins, or stop or cancel it after that. */
static void load_disturb(struct load *load, size_t i)
{
	struct exec_task *task = &load->rig.jobs[i].task;
	uint8_t state = EXEC_QUEUED;

	switch (reference_random(&load->random) % 16) {
	case 0:
	case 1:
		if (atomic_compare_exchange_strong(&task->state, &state, EXEC_CANCELLED))
			load->was_queued[i] = true;
		else if (state == EXEC_RUNNING)
			load->was_running[i] = true;
		break;
	case 2:
	case 3:
	case 4:
		exec_task_stop(task, EXEC_CANCELLED);
		break;
	default:
		exec_task_stop(task, EXEC_STOPPING);
	}
}

/* Check and count a task that is over. */
static void load_end(struct load *load, size_t i)
{
	struct cpu_job *job = &load->rig.jobs[i];

	if (job->task.res == -ECANCELED) {
		load->n_cancelled++;
		if (load->was_queued[i]) {
			assert_int_equal(job->task.busy_ticks, 0);
			assert_false(job->task.has_progress);
			load->n_unbegun++;
		}
	} else {
		assert_false(load->was_queued[i]);
		expect_result(&load->rig, job);
		load->n_done++;
		load->n_too_late += load->was_running[i];
	}
	load->was_queued[i] = load->was_running[i] = false;
	cpu_job_wipe(job);
}

/* Return: the number of reaped tasks. */
static unsigned int load_reap(struct load *load)
{
	struct executor *executor = load->rig.cpu.executor;
	struct exec_task *tasks[7];
	const unsigned int n = executor->ops->reap(executor, tasks, ARRAY_SIZE(tasks));

	assert_true(n <= ARRAY_SIZE(tasks));
	load->n_submitted -= n;
	for (unsigned int k = 0; k < n; k++) {
		const size_t i = (size_t)((struct cpu_job *)tasks[k] - load->rig.jobs);

		load->is_submitted[i] = false;
		if (tasks[k]->res != EXEC_UNFINISHED)
			load_end(load, i);
		else
			load->n_stopped++;
	}
	return n;
}

static bool load_has_all(const struct load *load)
{
	return load->n_done > 0 && load->n_stopped > 0 && load->n_unbegun > 0 &&
	       load->n_cancelled > load->n_unbegun && load->n_too_late > 0;
}

/*
 * Several workers with helpers run bursts of tasks of several plans, urgent or not, so that each
 * plan also interrupts itself. Tasks are stopped and cancelled at random, some too late. The load
 * goes on until each of these has happened.
 */
TEST(test_stop__load)
{
	static struct load load;
	struct rig *rig = &load.rig;
	const uint64_t least = test_scaled(6000);

	load.random = 11;
	rig_init(rig, 3);
	rig_prepare(rig, cpu_rig_knn_plan(&rig->arena, 20, 300));
	rig_prepare(rig, cpu_rig_long_plan(&rig->arena));
	rig_prepare(rig, cpu_rig_binary_plan("Add"));
	rig_prepare(rig, cpu_rig_binary_plan("Mul"));
	for (unsigned int i = 0; i < MAX_JOBS; i++) {
		const unsigned int plan = i % MAX_PLANS, count = i / MAX_PLANS % 2 ? 700 + i : i;

		cpu_job_wipe(rig_add(rig, plan, 1 + count % rig->plans[plan]->max_count));
	}
	for (uint64_t n = 0, most = 100 * least; n < most || load.n_submitted > 0;) {
		if (n >= least && load_has_all(&load))
			most = n;
		if (n < most)
			n += load_submit(&load);
		for (uint64_t tries = reference_random(&load.random) % 12; tries > 0; tries--) {
			const size_t i = reference_random(&load.random) % MAX_JOBS;

			if (load.is_submitted[i])
				load_disturb(&load, i);
		}
		if (load_reap(&load) == 0)
			sched_yield();
	}
	for (unsigned int i = 0; i < MAX_JOBS; i++)
		if (rig->jobs[i].task.has_progress)
			rig->cpu.executor->ops->abandon(rig->cpu.executor, &rig->jobs[i].task);
	print_message(
		"%u done, %u stopped, %u cancelled, %u of them before they began, %u too late\n",
		load.n_done, load.n_stopped, load.n_cancelled, load.n_unbegun, load.n_too_late);
	assert_true(load_has_all(&load));
	rig_deinit(rig);
}

TEST_MAIN(NULL, NULL, clock_init(), cpu_flush_denormals())
