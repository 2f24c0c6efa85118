/* SPDX-License-Identifier: MIT */
/*
 * The CPU executor: tasks that the reactor runs itself, with and without helpers; what it does
 * between their pieces; how they are stopped and cancelled. Results are those of a worker, bit by
 * bit.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "cpu/internal.h"
#include "support/describe.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "util/clock.h"
#include "util/proc.h"

enum { MOST_WORKERS = 3 };

struct rig {
	struct cpu_rig cpu;
	struct exec_arena arena;
	struct plan *plan;
	struct cpu_job job, other; /* both of plan */
	struct reference_buffers want, want_other;

	/* of look() */
	unsigned int n_looks;
	enum exec_state to; /* what the task is asked for at each look; EXEC_IDLE: nothing */
	bool runs_inline;   /* other runs inline at each look */
	bool submits;       /* other is submitted at the first look */
	uint64_t pause_ns;  /* that a look takes at least */
	bool awaits_helper; /* the task is asked for it only once a helper has taken a chunk */
};

static void rig_init(struct rig *rig, unsigned int n_workers, uint32_t count)
{
	memset(rig, 0, sizeof(*rig));
	reference_arena_init(&rig->arena, 390 * 500 * sizeof(float), 3);
	cpu_rig_init(&rig->cpu, &(struct cpu_options){
					.n_workers = n_workers, .spin_ns = 2000, .no_pin = true});
	rig->plan = cpu_rig_long_plan(&rig->arena);
	cpu_rig_prepare(&rig->cpu, rig->plan);
	cpu_job_init(&rig->job, rig->plan, count, 1);
	cpu_rig_run(&rig->cpu, &rig->job);
	assert_int_equal(rig->job.task.res, 0);
	reference_buffers_copy(&rig->want, &rig->job.buffers);
	cpu_job_wipe(&rig->job);
	cpu_job_init(&rig->other, rig->plan, 1, 2);
	cpu_rig_run(&rig->cpu, &rig->other);
	reference_buffers_copy(&rig->want_other, &rig->other.buffers);
}

static void rig_deinit(struct rig *rig)
{
	const struct cpu_plan *compiled = rig->plan->exec[RBK_DEVICE_CPU];

	for (unsigned int i = 0; i < compiled->n_blocks; i++)
		assert_false(atomic_load(&compiled->blocks[i].is_taken));
	assert_int_equal(atomic_load(&compiled->n_stopped), 0);
	assert_int_equal(atomic_load(&cpu_executor_from(rig->cpu.executor)->n_teams), 0);
	reference_buffers_deinit(&rig->want);
	reference_buffers_deinit(&rig->want_other);
	cpu_job_deinit(&rig->job);
	cpu_job_deinit(&rig->other);
	cpu_rig_release(&rig->cpu, rig->plan);
	cpu_rig_deinit(&rig->cpu);
	reference_arena_deinit(&rig->arena);
}

/* Return true if a helper has taken a chunk of the step that the reactor leads. */
static bool helper_has_come(struct executor *executor)
{
	const struct cpu_worker *reactor = cpu_reactor_worker(cpu_executor_from(executor));

	return atomic_load(&reactor->layers[CPU_LAYER_BASE].team.chunks.taken) >> 32 > 0;
}

static void look(void *context)
{
	struct rig *rig = context;
	struct executor *executor = rig->cpu.executor;
	const uint64_t end_ns = rig->pause_ns ? clock_now_ns() + rig->pause_ns : 0;

	while (end_ns && clock_now_ns() < end_ns)
		;
	if (rig->n_looks++ == 0 && rig->submits)
		cpu_rig_submit(&rig->cpu, &rig->other);
	if (rig->runs_inline) {
		cpu_job_wipe(&rig->other);
		executor->ops->run_inline(executor, &rig->other.task);
		cpu_job_expect(&rig->other, &rig->want_other);
	}
	if (rig->to != EXEC_IDLE && (!rig->awaits_helper || helper_has_come(executor)))
		exec_task_stop(&rig->job.task, rig->to);
}

static void run_here(struct rig *rig, unsigned int n_helpers)
{
	struct executor *executor = rig->cpu.executor;

	atomic_store(&rig->job.task.state, EXEC_QUEUED);
	executor->ops->run_here(executor, &rig->job.task, n_helpers, look, rig);
}

static void expect_done(struct rig *rig)
{
	assert_int_equal(rig->job.task.res, 0);
	assert_true(rig->job.task.busy_ticks > 0);
	cpu_job_expect(&rig->job, &rig->want);
	cpu_job_wipe(&rig->job);
}

/* The reactor looks many times, but not all the time, and inline tasks of the same plan do not
 * touch its scratch. */
TEST(test_here__same_bits)
{
	static struct rig rig;

	for (unsigned int n_workers = 1; n_workers <= MOST_WORKERS; n_workers++) {
		rig_init(&rig, n_workers, 40);
		for (unsigned int n_helpers = 0; n_helpers <= MOST_WORKERS; n_helpers++) {
			const uint64_t start_ns = clock_now_ns();

			rig.n_looks = 0;
			rig.runs_inline = n_helpers % 2;
			run_here(&rig, n_helpers);
			/* A look takes time: there is at most one in two microseconds. */
			assert_in_range(rig.n_looks, 4, (clock_now_ns() - start_ns) / 2000 + 1);
			expect_done(&rig);
		}
		rig_deinit(&rig);
	}
}

/* The reactor's other work, at a look, is no time of the task. */
TEST(test_here__looks_are_not_timed)
{
	static struct rig rig;
	uint64_t start_ns, all_ns, looks_ns;

	rig_init(&rig, 1, 40);
	rig.pause_ns = 100000;
	start_ns = clock_now_ns();
	run_here(&rig, 0);
	all_ns = clock_now_ns() - start_ns;
	looks_ns = rig.n_looks * rig.pause_ns;
	assert_true(rig.n_looks > 3);
	assert_true(clock_elapsed_ns(rig.job.task.start_ticks, rig.job.task.end_ticks) + looks_ns <=
		    all_ns);
	assert_true(clock_ticks_to_ns(rig.job.task.busy_ticks) + looks_ns <= all_ns);
	expect_done(&rig);
	rig_deinit(&rig);
}

/* A task that is asked to stop at each look is resumed, here and by a worker. */
TEST(test_here__stops_and_resumes)
{
	static struct rig rig;

	for (unsigned int n_workers = 1; n_workers <= MOST_WORKERS; n_workers++) {
		unsigned int n_stops = 0;

		rig_init(&rig, n_workers, 40);
		rig.to = EXEC_STOPPING;
		do {
			if (n_stops % 2) {
				cpu_rig_run(&rig.cpu, &rig.job);
				break;
			}
			run_here(&rig, n_workers - 1);
			assert_int_equal(rig.job.task.res, EXEC_UNFINISHED);
			assert_true(rig.job.task.has_progress);
		} while (++n_stops < 1000);
		assert_int_equal(n_stops, 1);
		expect_done(&rig);

		/* To its end on this thread */
		for (n_stops = 0; n_stops == 0 || rig.job.task.res == EXEC_UNFINISHED; n_stops++) {
			assert_true(n_stops < 100000);
			run_here(&rig, 0);
		}
		assert_true(n_stops > 2);
		expect_done(&rig);
		rig_deinit(&rig);
	}
}

/*
 * A step is stopped between two of its chunks. Whoever resumes the task computes what is left of
 * the step, also one who would not have cut it: the state is updated once.
 */
TEST(test_here__updates_state_once)
{
	static struct rig rig;

	for (unsigned int n_workers = 1; n_workers <= MOST_WORKERS; n_workers++) {
		struct describe *d = describe_new("sums", 900);
		struct cpu_plan *compiled;
		struct cpu_job whole;

		memset(&rig, 0, sizeof(rig));
		cpu_rig_init(&rig.cpu, &(struct cpu_options){.n_workers = n_workers});
		describe_state(d, "sums", DESCRIBE_DIMS(DESCRIBE_COUNT, 390));
		describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 390));
		describe_node(d, "Add", "", "sums,x", "sums");
		rig.plan = reference_plan(d, NULL);
		cpu_rig_prepare(&rig.cpu, rig.plan);
		cpu_job_init(&whole, rig.plan, 900, 1);
		cpu_rig_run(&rig.cpu, &whole);
		compiled = rig.plan->exec[RBK_DEVICE_CPU];
		for (unsigned int i = 0; i < 2; i++) {
			cpu_job_init(&rig.job, rig.plan, 900, 1);
			atomic_store(&compiled->pace, 2);
			rig.to = EXEC_STOPPING;
			run_here(&rig, 0);
			assert_int_equal(rig.job.task.res, EXEC_UNFINISHED);
			assert_true(rig.job.task.progress.front > 0);
			rig.to = EXEC_IDLE;
			atomic_store(&compiled->pace, 0.005f);
			if (i == 0)
				cpu_rig_run(&rig.cpu, &rig.job);
			else
				run_here(&rig, n_workers);
			assert_int_equal(rig.job.task.res, 0);
			cpu_job_expect(&rig.job, &whole.buffers);
			cpu_job_deinit(&rig.job);
		}
		cpu_job_deinit(&whole);
		cpu_rig_release(&rig.cpu, rig.plan);
		cpu_rig_deinit(&rig.cpu);
	}
}

/* Assert that a task that stopped within a round left a chunk of it. */
static void expect_chunk_left(const struct exec_progress *progress)
{
	assert_true(progress->n_chunks == 0 ||
		    progress->front + progress->back < progress->n_chunks);
}

/*
 * A round of which helpers computed the end is resumed by this thread alone, stopped after each of
 * its chunks, and resumed by workers: they would wait for a chunk that no worker can take.
 */
TEST(test_here__resumes_alone_what_helpers_began)
{
	static struct rig rig;
	struct exec_progress *progress = &rig.job.task.progress;
	const uint64_t start_ns = clock_now_ns();
	unsigned int n_resumed = 0;

	rig_init(&rig, 2, 40);
	rig.to = EXEC_STOPPING;
	while (n_resumed < 4) {
		/* On a busy machine a helper may come too late. */
		assert_true(clock_now_ns() - start_ns < 60000000000);
		rig.awaits_helper = true;
		run_here(&rig, 1);
		expect_chunk_left(progress);
		if (rig.job.task.res == 0) {
			expect_done(&rig);
			continue;
		}
		rig.awaits_helper = false;
		n_resumed += progress->n_chunks > 0 && progress->back > 0;
		for (uint32_t step = progress->step;
		     rig.job.task.res == EXEC_UNFINISHED && progress->step == step;) {
			run_here(&rig, 0);
			expect_chunk_left(progress);
		}
		cpu_rig_run(&rig.cpu, &rig.job);
		expect_done(&rig);
	}
	rig_deinit(&rig);
}

/* A stopped task that is not to go on leaves its scratch. */
TEST(test_here__abandons)
{
	static struct rig rig;

	rig_init(&rig, 2, 40);
	rig.to = EXEC_STOPPING;
	run_here(&rig, 0);
	assert_true(rig.job.task.has_progress);
	rig.cpu.executor->ops->abandon(rig.cpu.executor, &rig.job.task);
	assert_false(rig.job.task.has_progress);
	rig.to = EXEC_IDLE;
	run_here(&rig, 1);
	expect_done(&rig);
	rig_deinit(&rig);
}

TEST(test_here__cancels)
{
	static struct rig rig;

	for (unsigned int n_workers = 1; n_workers <= MOST_WORKERS; n_workers++) {
		rig_init(&rig, n_workers, 40);
		rig.to = EXEC_CANCELLED;
		run_here(&rig, n_workers);
		assert_int_equal(rig.job.task.res, -ECANCELED);
		assert_false(rig.job.task.has_progress);
		/* before it begins */
		rig.n_looks = 0;
		atomic_store(&rig.job.task.state, EXEC_CANCELLED);
		rig.cpu.executor->ops->run_here(rig.cpu.executor, &rig.job.task, 0, look, &rig);
		assert_int_equal(rig.job.task.res, -ECANCELED);
		assert_int_equal(rig.n_looks, 0);
		rig.to = EXEC_IDLE;
		run_here(&rig, n_workers);
		expect_done(&rig);
		rig_deinit(&rig);
	}
}

/* A worker computes a task of the same plan meanwhile. */
TEST(test_here__beside_a_worker)
{
	static struct rig rig;

	rig_init(&rig, 2, 40);
	rig.submits = true;
	for (unsigned int i = 0; i < 20; i++) {
		rig.n_looks = 0;
		cpu_job_wipe(&rig.other);
		run_here(&rig, 1);
		expect_done(&rig);
		assert_ptr_equal(cpu_rig_reap(&rig.cpu), &rig.other.task);
		cpu_job_expect(&rig.other, &rig.want_other);
	}
	rig_deinit(&rig);
}

/* --- processors that other threads keep busy --- */

/* Check that no worker runs, by its thread's state in proc(5). */
static bool are_workers_waiting(void)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *task;
	bool is_any_running = false;
	char text[512];

	assert_non_null(tasks);
	while ((task = readdir(tasks))) {
		if (proc_read(text, sizeof(text), "/proc/self/task/%.10s/stat", task->d_name) > 0)
			is_any_running |= strstr(text, "(rb-cpu-") && !strstr(text, ") S ");
	}
	closedir(tasks);
	return !is_any_running;
}

/* Wait until all workers sleep. A worker that is about to may see a task and run it instead. */
static void wait_asleep(const struct cpu_executor *cpu)
{
	for (unsigned int i = 0; i < cpu->n_workers; i++)
		while (atomic_load(&cpu->workers[i].asleep) == 0 || !are_workers_waiting())
			sched_yield();
}

enum { FIRST_PROCESSOR = 1000, PATIENCE_RUNS = 20000 };

/*
 * Pretend that the workers are pinned to processors from FIRST_PROCESSOR on, which no thread is at.
 * Workers that are awake would read the field meanwhile.
 */
static struct cpu_executor *pretend_pinned(struct rig *rig)
{
	struct cpu_executor *cpu = cpu_executor_from(rig->cpu.executor);

	wait_asleep(cpu);
	for (unsigned int i = 0; i < cpu->n_workers; i++)
		cpu->workers[i].processor = FIRST_PROCESSOR + (int)i;
	return cpu;
}

static bool was_helped(struct rig *rig, uint32_t busy_processor)
{
	const struct exec_task *task = &rig->job.task;

	rig->job.task.busy_processor = busy_processor;
	run_here(rig, 1);
	expect_done(rig);
	return task->busy_ticks > task->end_ticks - task->start_ticks;
}

/*
 * A worker at a busy processor does not help. The last worker never helps here: as many threads
 * compute as there are workers.
 */
TEST(test_busy__does_not_help)
{
	static struct rig rig;
	bool is_helped = false;

	/* On a fast processor, waking a worker does not pay for fewer rows. */
	rig_init(&rig, 2, 130);
	pretend_pinned(&rig);
	for (unsigned int i = 0; i < 50; i++)
		assert_false(was_helped(&rig, 1 + FIRST_PROCESSOR));
	for (unsigned int i = 0; i < PATIENCE_RUNS && !is_helped; i++)
		is_helped = was_helped(&rig, 1 + FIRST_PROCESSOR + 1);
	assert_true(is_helped);
	rig_deinit(&rig);
}

/* A worker at a busy processor gets no task, unless it is the only worker. */
TEST(test_busy__gets_no_task)
{
	static struct rig rig;

	for (unsigned int n_workers = 1; n_workers <= MOST_WORKERS; n_workers++) {
		struct cpu_executor *cpu;
		uint64_t before;

		rig_init(&rig, n_workers, 40);
		cpu = pretend_pinned(&rig);
		before = atomic_load(&cpu->workers[0].queue.tail);
		for (unsigned int i = 0; i < 2 * n_workers; i++) {
			rig.other.task.busy_processor = 1 + FIRST_PROCESSOR;
			cpu_rig_submit(&rig.cpu, &rig.other);
			assert_ptr_equal(cpu_rig_reap(&rig.cpu), &rig.other.task);
		}
		assert_int_equal(atomic_load(&cpu->workers[0].queue.tail) - before,
				 n_workers > 1 ? 0 : 2);
		rig_deinit(&rig);
	}
}

/* The worker whose queue has the task is woken for it, and no other. */
TEST(test_busy__wakes_owner_of_task)
{
	static struct rig rig;
	struct cpu_executor *cpu;
	unsigned int woken;

	rig_init(&rig, 2, 40);
	cpu = pretend_pinned(&rig);
	for (unsigned int i = 0; i < 10; i++) {
		woken = 1 - i % 2;
		rig.other.task.busy_processor = 1 + FIRST_PROCESSOR + i % 2;
		rig.other.task.count = 1;
		wait_asleep(cpu);
		cpu_rig_submit(&rig.cpu, &rig.other);
		/* rouse() has cleared the flag; the worker may sleep again by now. */
		assert_int_equal(atomic_load(&cpu->workers[1 - woken].asleep), 1);
		assert_ptr_equal(cpu_rig_reap(&rig.cpu), &rig.other.task);
	}
	rig_deinit(&rig);
}
