/* SPDX-License-Identifier: MIT */
/*
 * The CPU executor: urgent tasks overtake queued tasks and interrupt running ones
 *
 * The time of each task is counted separately. test-cpu-units.c shows that every operator admits
 * urgent tasks.
 */
#include <sched.h>

#include "cpu/internal.h"
#include "support/describe.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "util/clock.h"

#define N DESCRIBE_COUNT
#define D DESCRIBE_DIMS

enum { TRIES = 300 };

static struct plan *add_plan(uint32_t max_count)
{
	struct describe *d = describe_new("add", max_count);

	describe_input(d, "x", D(N, 60));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Add", "", "x,x", "y");
	return reference_plan(d, NULL);
}

/* z = relu(x * w) * w, through scratch: as long as count asks for. */
static struct plan *square_plan(struct exec_arena *arena, uint32_t max_count)
{
	struct describe *d = describe_new("square", max_count);

	describe_input(d, "x", D(N, 256));
	describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, 0), D(256, 256));
	describe_scratch(d, "xw");
	describe_scratch(d, "positive");
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "MatMul", "", "x,w", "xw");
	describe_node(d, "Relu", "", "xw", "positive");
	describe_node(d, "MatMul", "", "positive,w", "y");
	return reference_plan(d, arena);
}

/* Return the results of a task that runs alone. */
static void run_alone(struct cpu_rig *rig, struct cpu_job *job, struct reference_buffers *ret)
{
	cpu_rig_run(rig, job);
	assert_int_equal(job->task.res, 0);
	reference_buffers_copy(ret, &job->buffers);
}

static void wait_running(const struct cpu_job *job)
{
	while (atomic_load(&job->task.state) == EXEC_QUEUED)
		sched_yield();
}

/* Among queued tasks, urgent ones come first, each kind in the order of submission. */
TEST(test_urgent__overtakes)
{
	struct exec_arena arena;
	struct plan *base, *small;
	struct cpu_job jobs[12], first;
	struct cpu_rig rig;

	reference_arena_init(&arena, 256 * 256 * sizeof(float), 3);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	base = square_plan(&arena, 8000);
	small = add_plan(10);
	cpu_rig_prepare(&rig, base);
	cpu_rig_prepare(&rig, small);
	cpu_job_init(&first, base, cpu_rig_long(8000), 1);
	cpu_rig_submit(&rig, &first);
	for (unsigned int i = 0; i < 12; i++) {
		cpu_job_init(&jobs[i], small, 10, i);
		jobs[i].task.is_urgent = i % 3 == 2;
		assert_int_equal(rig.executor->ops->submit(rig.executor, &jobs[i].task), 0);
	}
	rig.executor->ops->flush(rig.executor);
	for (unsigned int i = 0; i < 13; i++)
		assert_int_equal(cpu_rig_reap(&rig)->res, 0);
	for (unsigned int i = 0; i < 12; i++) {
		for (unsigned int j = 0; j < 12; j++) {
			const bool i_urgent = i % 3 == 2, j_urgent = j % 3 == 2;

			if (i_urgent == j_urgent && i < j)
				assert_true(jobs[i].task.end_ticks <= jobs[j].task.start_ticks);
			/*
			 * The urgent task was submitted while the first task ran, so it overtook.
			 */
			if (i_urgent && !j_urgent && first.task.end_ticks > jobs[i].task.end_ticks)
				assert_true(jobs[i].task.end_ticks <= jobs[j].task.start_ticks);
		}
	}
	assert_int_equal(atomic_load(&cpu_executor_from(rig.executor)->n_urgent), 0);
	for (unsigned int i = 0; i < 12; i++)
		cpu_job_deinit(&jobs[i]);
	cpu_job_deinit(&first);
	cpu_rig_release(&rig, base);
	cpu_rig_release(&rig, small);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/*
 * Run @long_job and, once it has begun, @urgent, until the urgent task has completed first once.
 * The only worker then interrupted the long task. Both results are right every time.
 */
static void get_in_between(struct cpu_rig *rig, struct cpu_job *long_job, struct cpu_job *urgent)
{
	struct reference_buffers want_long, want_urgent;
	bool was_between = false;

	urgent->task.is_urgent = true;
	run_alone(rig, long_job, &want_long);
	run_alone(rig, urgent, &want_urgent);
	for (unsigned int i = 0; i < TRIES && !was_between; i++) {
		cpu_job_wipe(long_job);
		cpu_job_wipe(urgent);
		cpu_rig_submit(rig, long_job);
		wait_running(long_job);
		cpu_rig_submit(rig, urgent);
		was_between = cpu_rig_reap(rig) == &urgent->task;
		cpu_rig_reap(rig);
		assert_int_equal(long_job->task.res, 0);
		assert_int_equal(urgent->task.res, 0);
		cpu_job_expect(long_job, &want_long);
		cpu_job_expect(urgent, &want_urgent);
		if (was_between)
			assert_true(urgent->task.end_ticks <= long_job->task.end_ticks);
	}
	assert_true(was_between);
	reference_buffers_deinit(&want_long);
	reference_buffers_deinit(&want_urgent);
}

TEST(test_urgent__between_with_one_worker)
{
	struct exec_arena arena;
	struct plan *plan, *small;
	struct cpu_job long_job, urgent;
	struct cpu_rig rig;

	reference_arena_init(&arena, 256 * 256 * sizeof(float), 3);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	plan = square_plan(&arena, 8000);
	small = add_plan(10);
	cpu_rig_prepare(&rig, plan);
	cpu_rig_prepare(&rig, small);
	cpu_job_init(&long_job, plan, cpu_rig_long(8000), 1);
	cpu_job_init(&urgent, small, 10, 2);
	get_in_between(&rig, &long_job, &urgent);
	/* With one worker, the long task's busy time equals its execution time. */
	assert_int_equal(long_job.task.busy_ticks,
			 long_job.task.end_ticks - long_job.task.start_ticks);
	cpu_job_deinit(&urgent);

	/* Both tasks have the same plan, but must not share scratch. */
	cpu_job_init(&urgent, plan, 7, 9);
	get_in_between(&rig, &long_job, &urgent);
	cpu_job_deinit(&urgent);
	cpu_job_deinit(&long_job);
	cpu_rig_release(&rig, plan);
	cpu_rig_release(&rig, small);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/*
 * busy_ticks: each thread's time counts once, whether it led, helped, or ran another task in
 * between. The sum is at most the time of all threads.
 */
TEST(test_busy__adds_up)
{
	uint64_t since, all, busy = 0;
	struct exec_arena arena;
	struct cpu_job jobs[8];
	bool was_shared = false;
	struct cpu_rig rig;
	struct plan *plan;

	reference_arena_init(&arena, 256 * 256 * sizeof(float), 3);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 2, .spin_ns = 100000});
	plan = square_plan(&arena, 4000);
	cpu_rig_prepare(&rig, plan);
	for (unsigned int i = 0; i < 8; i++)
		cpu_job_init(&jobs[i], plan, i % 2 ? cpu_rig_long(4000) : 40, i);
	/* With no other task, the second worker helps, which shows in busy_ticks. */
	for (unsigned int i = 0; i < TRIES && !was_shared; i++) {
		since = clock_ticks();
		cpu_rig_run(&rig, &jobs[1]);
		all = clock_ticks() - since;
		was_shared =
			jobs[1].task.busy_ticks > jobs[1].task.end_ticks - jobs[1].task.start_ticks;
		assert_true(jobs[1].task.busy_ticks >=
			    jobs[1].task.end_ticks - jobs[1].task.start_ticks);
		assert_true(jobs[1].task.busy_ticks <= 2 * all);
	}
	assert_true(was_shared);

	since = clock_ticks();
	for (unsigned int i = 0; i < 8; i++) {
		jobs[i].task.is_urgent = i % 2 == 0;
		cpu_rig_submit(&rig, &jobs[i]);
	}
	for (unsigned int i = 0; i < 8; i++)
		busy += cpu_rig_reap(&rig)->busy_ticks;
	all = clock_ticks() - since;
	assert_true(busy > 0);
	assert_true(busy <= 2 * all);
	for (unsigned int i = 0; i < 8; i++)
		cpu_job_deinit(&jobs[i]);
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* The executor's info tells which tasks workers share. */
TEST(test_info__share)
{
	struct cpu_rig rig;

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 2});
	assert_int_equal(rig.executor->info.n_threads, 2);
	assert_true(rig.executor->info.share_min_ns > 0);
	cpu_rig_deinit(&rig);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	assert_true(rig.executor->info.share_min_ns == 0);
	cpu_rig_deinit(&rig);
}

TEST_MAIN(NULL, NULL, clock_init(), cpu_flush_denormals())
