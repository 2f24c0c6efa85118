/* SPDX-License-Identifier: MIT */
/*
 * Tasks that the reactor runs itself: which ones it takes; what it answers between their pieces;
 * how they are stopped, cancelled and left to workers.
 */
#include <errno.h>
#include <string.h>

#include "dispatch/dispatch-private.h"
#include "session/session.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"
#include "util/clock.h"

/* One fake executor runs at a time. */
static struct {
	struct bench *bench;
	/* what happens between two pieces of the task; NULL: nothing */
	void (*between)(struct bench *bench, struct exec_task *task);
	exec_look_fn *look;
	void *context;
	unsigned int n_runs, n_abandoned, n_helpers;
	uint64_t exec_ticks;  /* time that the task claims to have taken; 0: the true one */
	uint64_t limit_ticks; /* most time that the last task may have taken */
} script;

static void run_here(struct executor *executor, struct exec_task *task, unsigned int n_helpers,
		     exec_look_fn *look, void *context)
{
	script.n_runs++;
	script.n_helpers = n_helpers;
	script.look = look;
	script.context = context;
	task->start_ticks = task->end_ticks = clock_ticks();
	task->busy_ticks = 1;
	if (!exec_task_begin(task)) {
		task->busy_ticks = 0;
		task->res = -ECANCELED;
		return;
	}
	script.limit_ticks = script.bench->rig.dispatch->reactor_run.stop_ticks - clock_ticks();
	/* A slow machine is no overrun. */
	script.bench->rig.dispatch->reactor_run.stop_ticks = clock_ticks() + (1ull << 50);
	if (script.between)
		script.between(script.bench, task);
	task->end_ticks = script.exec_ticks ? task->start_ticks + script.exec_ticks : clock_ticks();
	task->has_progress = atomic_load(&task->state) == EXEC_STOPPING;
	task->res = task->has_progress ? EXEC_UNFINISHED : exec_task_end(task) ? 0 : -ECANCELED;
}

static void abandon(struct executor *executor, struct exec_task *task)
{
	task->has_progress = false;
	script.n_abandoned++;
}

static void begin(struct bench *bench)
{
	bench_begin_placement(bench, 1, N_ENTRIES, NULL,
			      (const struct bench_speed[]){{.bytes_per_ns = 1}});
	bench->cpu->ops.abandon = abandon;
	bench->cpu->ops.run_here = run_here;
	memset(&script, 0, sizeof(script));
	script.bench = bench;
	bench->rig.dispatch->reactor_run.most_ns = REACTOR_TASK_NS;
	bench->rig.dispatch->reactor_run.long_piece_ticks = 1ull << 40;
	bench->rig.dispatch->reactor_run.quiet_ticks = 1ull << 40;
	bench->rig.dispatch->reactor_run.forgive_ticks = 1ull << 40;
}

#define BEGIN(name) SCOPED(bench, name, begin, bench_end)

static struct reactor_run *own(struct bench *bench)
{
	return &bench->rig.dispatch->reactor_run;
}

/* Run what the reactor has taken, one after the other, as its turns do. */
static unsigned int run_all(struct bench *bench)
{
	unsigned int n = 0;

	while (own(bench)->n_waiting > 0) {
		n += reactor_run_next(bench->rig.dispatch);
		rig_work(&bench->rig);
	}
	return n;
}

static unsigned int put_and_run(struct bench *bench, uint64_t user_data)
{
	put_run(bench, bench->queued, user_data, 0);
	rig_work(&bench->rig);
	return run_all(bench);
}

static void expect_taken(struct bench *bench, uint64_t user_data)
{
	assert_int_equal(put_and_run(bench, user_data), 1);
	expect_cqe(bench, user_data, 0);
	assert_int_equal(own(bench)->n_held, 0);
	assert_int_equal(own(bench)->work_ns, 0);
	assert_int_equal(bench->rig.dispatch->n_submitted, 0);
}

/* The task goes to a worker, which completes it. */
static void expect_left(struct bench *bench, uint64_t user_data)
{
	assert_int_equal(put_and_run(bench, user_data), 0);
	assert_int_equal(bench->cpu->n_tasks, 1);
	assert_true(fake_begin(bench->cpu, user_data));
	finish(bench, bench->cpu, user_data, 0);
	expect_cqe(bench, user_data, 0);
}

TEST(test_reactor__runs_short_tasks)
{
	const struct rbk_stats_tenant *totals;

	BEGIN(bench);
	totals = bench.rig.session->tenant_stats->totals;
	for (uint64_t i = 0; i < 3; i++)
		expect_taken(&bench, i);
	assert_fields(*totals, (n_tasks, 3), (n_reactor, 3), (n_inline, 0));
	assert_int_equal(bench.cpu->n_submitted, 0);
	assert_int_equal(bench.cpu->n_flushed, 0);
}

/* Without the option, or with an executor that cannot, workers run everything. */
TEST(test_reactor__off)
{
	BEGIN(bench);
	own(&bench)->most_ns = 0;
	expect_left(&bench, 1);
	assert_int_equal(bench.rig.session->tenant_stats->totals->n_reactor, 0);
	bench.rig.dispatch->options.reactor_task_ns = 1000;
	bench.cpu->ops.run_here = NULL;
	reactor_run_init(bench.rig.dispatch);
	expect_left(&bench, 2);
	bench.cpu->ops.run_here = run_here;
	reactor_run_init(bench.rig.dispatch);
	expect_taken(&bench, 3);
}

TEST(test_reactor__leaves_long_tasks)
{
	struct session_plan *wide;
	struct rbk_sqe sqe;

	BEGIN(bench);
	wide = bench_relu(&bench, 4096, 64);
	/* 32 KiB at 1 byte per ns */
	own(&bench)->most_ns = 20000;
	sqe = bench_entry(wide, bench.arena, 32768, 1, 1);
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	assert_int_equal(own(&bench)->n_held, 0);
	assert_int_equal(bench.cpu->n_tasks, 1);
	fake_begin(bench.cpu, 1);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	expect_taken(&bench, 2);
}

/* While other programs wait for processors, the reactor only runs what is shorter than a switch. */
TEST(test_reactor__leaves_tasks_to_workers_under_contention)
{
	struct session_plan *wide;
	struct rbk_sqe sqe;

	BEGIN(bench);
	wide = bench_relu(&bench, 4096, 64);
	/* 64 KiB at 1 byte per ns */
	sqe = bench_entry(wide, bench.arena, 32768, 2, 1);
	dispatch_set_contended(bench.rig.dispatch, true);
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	assert_int_equal(own(&bench)->n_held, 0);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	expect_taken(&bench, 2);
	dispatch_set_contended(bench.rig.dispatch, false);
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	assert_int_equal(run_all(&bench), 1);
	expect_cqe(&bench, 1, 0);
}

/* While a worker has a task, it gets the next one as well. */
TEST(test_reactor__leaves_tasks_to_busy_workers)
{
	BEGIN(bench);
	own(&bench)->most_ns = 0;
	put_run(&bench, bench.queued, 1, 0);
	rig_work(&bench.rig);
	assert_true(fake_begin(bench.cpu, 1));
	own(&bench)->most_ns = REACTOR_TASK_NS;
	put_run(&bench, bench.queued, 2, 0);
	rig_work(&bench.rig);
	assert_int_equal(own(&bench)->n_held, 0);
	finish(&bench, bench.cpu, 1, 0);
	finish(&bench, bench.cpu, 2, 0);
	expect_cqe(&bench, 1, 0);
	expect_cqe(&bench, 2, 0);
	expect_taken(&bench, 3);
}

/*
 * Once each of several workers has two tasks, the reactor helps with short ones, but not a sole
 * worker, and not for long.
 */
TEST(test_reactor__helps_busy_workers)
{
	static const struct {
		uint32_t n_threads;
		unsigned int n_busy; /* tasks of workers */
		uint64_t rows;       /* of 32 us each */
		unsigned int n_put, n_taken;
	} cases[] = {
		{2, 4, 1, 1, 1}, {2, 3, 1, 1, 0}, {2, 4, 2, 1, 0}, {1, 4, 1, 1, 0},
		{3, 5, 1, 1, 0}, {3, 6, 1, 1, 1}, {2, 4, 1, 8, 6},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const unsigned int n = cases[i].n_busy + cases[i].n_put;
		struct session_plan *wide;
		struct rbk_sqe sqe;

		BEGIN(bench);
		wide = bench_relu(&bench, 4096, 64);
		bench.cpu->executor.info.n_threads = cases[i].n_threads;
		own(&bench)->most_ns = 0;
		for (unsigned int k = 0; k < cases[i].n_busy; k++)
			put_run(&bench, bench.queued, k, 0);
		rig_work(&bench.rig);
		assert_int_equal(bench.cpu->n_tasks, cases[i].n_busy);
		own(&bench)->most_ns = REACTOR_TASK_NS;
		for (unsigned int k = cases[i].n_busy; k < n; k++) {
			sqe = bench_entry(wide, bench.arena, 32768, (uint32_t)cases[i].rows, k);
			rig_put(&bench.ring, &sqe);
		}
		rig_work(&bench.rig);
		assert_int_equal(own(&bench)->n_held, cases[i].n_taken);
		assert_int_equal(run_all(&bench), cases[i].n_taken);
		for (unsigned int k = 0; k < cases[i].n_taken; k++)
			expect_cqe(&bench, cases[i].n_busy + k, 0);
		for (unsigned int k = 0; k < n - cases[i].n_taken; k++) {
			const uint64_t left = k < cases[i].n_busy ? k : k + cases[i].n_taken;

			finish(&bench, bench.cpu, left, 0);
			expect_cqe(&bench, left, 0);
		}
	}
}

/* While the CPU has a task of the broker's own, such as a calibration, workers get all others. */
TEST(test_reactor__leaves_tasks_beside_own_ones)
{
	struct dispatch_own busy;

	BEGIN(bench);
	bench.rig.dispatch->loads[RBK_DEVICE_CPU].own = &busy;
	put_run(&bench, bench.queued, 1, 0);
	rig_work(&bench.rig);
	bench.rig.dispatch->loads[RBK_DEVICE_CPU].own = NULL;
	assert_int_equal(own(&bench)->n_held, 0);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
}

/* Pages that a client can take away would hold up the reactor, and so may a task's data. */
TEST(test_reactor__leaves_unfixed_arenas)
{
	BEGIN(bench);
	bench.arena->exec.is_fixed = false;
	bench.rig.session->n_unfixed = 1;
	expect_left(&bench, 1);
	bench.arena->exec.is_fixed = true;
	expect_taken(&bench, 2);
	bench.queued->plan->data_independent = false;
	expect_left(&bench, 3);
	bench.rig.session->n_unfixed = 0;
}

/* Several tasks of a flow are taken if they are shorter than a switch to a worker together. */
TEST(test_reactor__takes_several)
{
	uint64_t work_ns;

	BEGIN(bench);
	put_run(&bench, bench.queued, 0, 0);
	rig_work(&bench.rig);
	work_ns = own(&bench)->work_ns;
	assert_in_range(work_ns, 1, 10000);
	for (uint64_t i = 1; i < 4; i++)
		put_run(&bench, bench.queued, i, 0);
	rig_work(&bench.rig);
	assert_int_equal(own(&bench)->n_held, 4);
	assert_int_equal(own(&bench)->work_ns, 4 * work_ns);
	assert_int_equal(run_all(&bench), 4);
	for (uint64_t i = 0; i < 4; i++)
		expect_cqe(&bench, i, 0);
	/* The places are as many as there are. */
	for (uint64_t i = 0; i < REACTOR_RUNS + 1; i++)
		put_run(&bench, bench.queued, i, 0);
	rig_work(&bench.rig);
	assert_int_equal(own(&bench)->n_waiting, REACTOR_RUNS);
	assert_int_equal(bench.cpu->n_tasks, 1);
	finish(&bench, bench.cpu, REACTOR_RUNS, 0);
	assert_int_equal(run_all(&bench), REACTOR_RUNS);
	assert_int_equal(own(&bench)->work_ns, 0);
	expect_cqe(&bench, REACTOR_RUNS, 0);
	for (uint64_t i = 0; i < REACTOR_RUNS; i++)
		expect_cqe(&bench, i, 0);
}

/* Put a task that touches 32 KiB in one row. */
static void put_wide(struct bench *bench, const struct session_plan *wide, uint64_t user_data)
{
	const struct rbk_sqe sqe = bench_entry(wide, bench->arena, 32768, 1, user_data);

	rig_put(&bench->ring, &sqe);
}

/* Under contention, each task that the reactor takes is shorter than a switch, and all are short.
 */
TEST(test_reactor__takes_few_under_contention)
{
	enum { N = 7 };
	struct session_plan *wide;

	BEGIN(bench);
	wide = bench_relu(&bench, 4096, 64);
	bench.cpu->executor.info.n_threads = 2;
	dispatch_set_contended(bench.rig.dispatch, true);
	for (uint64_t i = 0; i < N; i++)
		put_wide(&bench, wide, i);
	rig_work(&bench.rig);
	assert_int_equal(own(&bench)->n_held, N - 1);
	assert_in_range(own(&bench)->work_ns, 3 * REACTOR_SWITCH_NS, 4 * REACTOR_SWITCH_NS);
	assert_int_equal(run_all(&bench), N - 1);
	finish(&bench, bench.cpu, N - 1, 0);
	for (uint64_t i = 0; i < N; i++)
		expect_cqe(&bench, i, 0);
}

/* A task may take twice its predicted time, which is long here, and the time of a switch. */
TEST(test_reactor__limits_tasks)
{
	uint64_t most_ns;

	BEGIN(bench);
	put_wide(&bench, bench_relu(&bench, 4096, 64), 1);
	rig_work(&bench.rig);
	most_ns = 2 * own(&bench)->waiting[0].work_ns + REACTOR_SWITCH_NS;
	run_all(&bench);
	/* Some of it has passed, on a machine that may be busy. */
	if ((int64_t)script.limit_ticks > 0)
		assert_in_range(clock_ticks_to_ns(script.limit_ticks), 1, most_ns + 1000);
	expect_cqe(&bench, 1, 0);
}

static void overrun(struct bench *bench, struct exec_task *task)
{
	script.look(script.context);
	assert_int_equal(atomic_load(&task->state), EXEC_RUNNING);
	own(bench)->stop_ticks = clock_ticks() - 1;
	script.look(script.context);
	assert_int_equal(atomic_load(&task->state), EXEC_STOPPING);
}

/*
 * With one worker, a tenant's tasks run one after the other: those that the reactor has no place
 * for wait, and the worker that has one gets the others.
 */
TEST(test_reactor__runs_with_one_worker_in_turn)
{
	BEGIN(bench);
	bench.cpu->executor.info.n_threads = 1;
	for (uint64_t i = 0; i < REACTOR_RUNS + 1; i++)
		put_run(&bench, bench.queued, i, 0);
	rig_work(&bench.rig);
	assert_int_equal(own(&bench)->n_waiting, REACTOR_RUNS);
	assert_int_equal(bench.cpu->n_tasks, 0);
	assert_int_equal(run_all(&bench), REACTOR_RUNS + 1);
	for (uint64_t i = 0; i < REACTOR_RUNS + 1; i++)
		expect_cqe(&bench, i, 0);

	/* The reactor stops the first of two tasks, which the worker resumes after the second. */
	for (uint64_t i = 0; i < 2; i++)
		put_run(&bench, bench.queued, i, 0);
	rig_work(&bench.rig);
	script.between = overrun;
	reactor_run_next(bench.rig.dispatch);
	rig_work(&bench.rig);
	assert_int_equal(bench.cpu->n_tasks, 0);
	script.between = NULL;
	assert_int_equal(run_all(&bench), 1);
	expect_cqe(&bench, 1, 0);
	assert_int_equal(bench.cpu->n_tasks, 1);
	bench.cpu->tasks[0]->has_progress = false;
	finish(&bench, bench.cpu, 0, 0);
	expect_cqe(&bench, 0, 0);
}

/* Several tasks are left to workers that would complete them sooner, if processors are left. */
TEST(test_reactor__leaves_several_to_free_workers)
{
	enum { N = 3 };
	static const struct {
		uint32_t n_threads, n_processors;
		bool is_watched;
		uint32_t n_taken;
	} cases[] = {{1, 8, false, N}, {2, 2, true, N}, {2, 2, false, 1}, {2, 3, true, 1}};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct session_plan *wide;
		struct rbk_sqe sqe;

		BEGIN(bench);
		wide = bench_relu(&bench, 4096, 64);
		bench.cpu->executor.info.n_threads = cases[i].n_threads;
		bench.rig.dispatch->options.n_processors = cases[i].n_processors;
		rig_dispatch_ring(&bench.ring)->is_watched = cases[i].is_watched;
		/* 64 KiB each, at 1 byte per ns */
		for (uint64_t k = 0; k < N; k++) {
			sqe = bench_entry(wide, bench.arena, 32768, 2, k);
			rig_put(&bench.ring, &sqe);
		}
		rig_work(&bench.rig);
		assert_int_equal(own(&bench)->n_held, cases[i].n_taken);
		assert_int_equal(run_all(&bench), cases[i].n_taken);
		for (uint64_t k = cases[i].n_taken; k < N; k++)
			finish(&bench, bench.cpu, k, 0);
		for (uint64_t k = 0; k < N; k++)
			expect_cqe(&bench, k, 0);
	}
}

static void put_nop_and_look(struct bench *bench, struct exec_task *task)
{
	uint64_t stop_ticks;
	unsigned int n_looks = 0;

	/* The session may still be settling, which is other work, too. */
	do {
		assert_true(++n_looks < 1000);
		stop_ticks = own(bench)->stop_ticks;
		script.look(script.context);
	} while (own(bench)->stop_ticks != stop_ticks);
	put_bare(bench, RBK_OP_NOP, 7, 0);
	script.look(script.context);
	/* Their time is not the task's. */
	assert_true(own(bench)->stop_ticks > stop_ticks);
	expect_cqe(bench, 7, 0);
	assert_int_equal(atomic_load(&task->state), EXEC_RUNNING);
}

/* Entries are answered before the task ends. */
TEST(test_reactor__answers_entries_between)
{
	BEGIN(bench);
	script.between = put_nop_and_look;
	expect_taken(&bench, 1);
}

static void put_run_and_look(struct bench *bench, struct exec_task *task)
{
	script.between = NULL;
	put_run(bench, bench->queued, 2, 0);
	script.look(script.context);
	/* The next task waits for its turn: none runs within another. */
	assert_int_equal(script.n_runs, 1);
	assert_int_equal(own(bench)->n_held, 2);
}

TEST(test_reactor__takes_next_between)
{
	BEGIN(bench);
	script.between = put_run_and_look;
	put_run(&bench, bench.queued, 1, 0);
	rig_work(&bench.rig);
	assert_int_equal(run_all(&bench), 2);
	expect_cqe(&bench, 1, 0);
	expect_cqe(&bench, 2, 0);
}

/* A worker resumes a task that took too long. The plan of such tasks is left to workers. */
TEST(test_reactor__stops_overruns)
{
	BEGIN(bench);
	script.between = overrun;
	for (uint64_t i = 0; i < OVERRUN_LIMIT / OVERRUN_COST; i++) {
		assert_int_equal(put_and_run(&bench, i), 1);
		assert_int_equal(bench.cpu->n_tasks, 1);
		assert_true(bench.cpu->tasks[0]->has_progress);
		expect_none(&bench);
		assert_true(fake_begin(bench.cpu, i));
		bench.cpu->tasks[0]->has_progress = false;
		finish(&bench, bench.cpu, i, 0);
		expect_cqe(&bench, i, 0);
	}
	assert_int_equal(bench.queued->reactor_overruns, OVERRUN_LIMIT);
	bench.rig.dispatch->active[0]->flow->inline_overruns = 0;
	bench.queued->reactor_again_ticks = UINT64_MAX;
	expect_left(&bench, 9);
	/* After a while the plan may try again. */
	script.between = NULL;
	bench.queued->reactor_again_ticks = 0;
	expect_taken(&bench, 10);
	assert_int_equal(script.n_abandoned, 0);
}

/* The pause of an inline overrun, which nothing stops, is not shortened by another overrun. */
TEST(test_overrun__keeps_longer_pause)
{
	uint64_t again_ticks = 0, inline_ticks;
	uint32_t fill = 0;

	overrun_note(&fill, &again_ticks, 1000, OVERRUN_INLINE_PAUSE_NS);
	inline_ticks = again_ticks;
	assert_true(inline_ticks > 1000 + clock_ns_to_ticks(OVERRUN_PAUSE_NS));
	overrun_note(&fill, &again_ticks, 2000, OVERRUN_PAUSE_NS);
	assert_int_equal(again_ticks, inline_ticks);
	assert_int_equal(fill, 2 * OVERRUN_COST);
}

static void pause_long(struct bench *bench, struct exec_task *task)
{
	script.look(script.context);
	own(bench)->looked_ticks -= own(bench)->long_piece_ticks + 1;
	script.look(script.context);
	/* The task goes on, but its plan is remembered. */
	assert_int_equal(atomic_load(&task->state), EXEC_RUNNING);
}

TEST(test_reactor__counts_long_pieces)
{
	struct flow *flow;
	uint64_t begin_ticks;

	BEGIN(bench);
	script.between = pause_long;
	begin_ticks = clock_ticks();
	expect_taken(&bench, 1);
	flow = bench.rig.dispatch->active[0]->flow;
	assert_int_equal(bench.queued->reactor_overruns, OVERRUN_COST);
	assert_int_equal(flow->inline_overruns, OVERRUN_COST);
	/* The pause begins with the turn that the task was in. */
	assert_in_range(flow->inline_again_ticks, begin_ticks + clock_ns_to_ticks(OVERRUN_PAUSE_NS),
			clock_ticks() + clock_ns_to_ticks(OVERRUN_PAUSE_NS));
	script.between = NULL;
	expect_taken(&bench, 2);
	assert_int_equal(bench.queued->reactor_overruns, OVERRUN_COST - 1);
	/* A longer run is a better sign. */
	own(&bench)->forgive_ticks = 1000;
	script.exec_ticks = 9999;
	expect_taken(&bench, 3);
	assert_int_equal(bench.queued->reactor_overruns, OVERRUN_COST - 11);
	assert_int_equal(flow->inline_overruns, OVERRUN_COST - 11);
	script.exec_ticks = 1000000;
	expect_taken(&bench, 4);
	assert_int_equal(bench.queued->reactor_overruns, 0);
	assert_int_equal(flow->inline_overruns, 0);
	/* A tenant whose bucket is full gets no other plan there for a while. */
	flow->inline_overruns = OVERRUN_LIMIT;
	flow->inline_again_ticks = UINT64_MAX;
	expect_left(&bench, 3);
	flow->inline_again_ticks = 0;
	expect_taken(&bench, 4);
}

/* Workers may help with a task on the processors that the reactor and an awake client leave. */
TEST(test_reactor__is_helped)
{
	static const struct {
		uint32_t n_processors;
		bool is_watched, is_contended;
		unsigned int n_helpers;
	} cases[] = {{1, false, false, 0},
		     {2, false, false, 1},
		     {2, true, false, 0},
		     {4, true, false, 2},
		     {4, false, true, 0}};

	BEGIN(bench);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		bench.rig.dispatch->options.n_processors = cases[i].n_processors;
		rig_dispatch_ring(&bench.ring)->is_watched = cases[i].is_watched;
		dispatch_set_contended(bench.rig.dispatch, cases[i].is_contended);
		expect_taken(&bench, i);
		assert_int_equal(script.n_helpers, cases[i].n_helpers);
	}
}

static void end_late(struct bench *bench, struct exec_task *task)
{
	script.look(script.context);
	own(bench)->looked_ticks -= own(bench)->long_piece_ticks + 1;
}

/* Nothing looks after the last piece. */
TEST(test_reactor__counts_long_last_pieces)
{
	BEGIN(bench);
	script.between = end_late;
	expect_taken(&bench, 1);
	assert_int_equal(bench.queued->reactor_overruns, OVERRUN_COST);
}

enum { MANY_CALLS = 16 };

static void call_often(struct bench *bench, struct exec_task *task)
{
	for (uint64_t i = 0; i < MANY_CALLS; i++) {
		put_bare(bench, RBK_OP_NOP, 100 + i, 0);
		script.look(script.context);
		expect_cqe(bench, 100 + i, 0);
	}
	/* A worker gets a task of the same tenant. */
	own(bench)->most_ns = 0;
	put_run(bench, bench->queued, 2, 0);
	script.look(script.context);
	assert_int_equal(bench->cpu->n_tasks, 1);
	assert_int_equal(atomic_load(&task->state), EXEC_RUNNING);
}

/* Other entries of a tenant do not stop its task. */
TEST(test_reactor__goes_on_beside_own_entries)
{
	BEGIN(bench);
	bench.cpu->executor.info.n_threads = 2;
	script.between = call_often;
	assert_int_equal(put_and_run(&bench, 1), 1);
	expect_cqe(&bench, 1, 0);
	finish(&bench, bench.cpu, 2, 0);
	expect_cqe(&bench, 2, 0);
}

static struct rig_ring crowd[REACTOR_RUN_RINGS];

static void join_crowd(struct bench *bench, struct exec_task *task)
{
	rig_ring_new(&bench->rig, 4, &crowd[REACTOR_RUN_RINGS - 1]);
	script.look(script.context);
	assert_int_equal(atomic_load(&task->state), EXEC_STOPPING);
}

/* A look visits each ring that is polled: the reactor takes no task beside many, nor keeps one. */
TEST(test_reactor__leaves_tasks_beside_many_rings)
{
	BEGIN(bench);
	for (unsigned int i = 0; i + 1 < REACTOR_RUN_RINGS; i++)
		rig_ring_new(&bench.rig, 4, &crowd[i]);
	assert_int_equal(bench.rig.dispatch->n_active, REACTOR_RUN_RINGS);
	script.between = join_crowd;
	assert_int_equal(put_and_run(&bench, 1), 1);
	assert_int_equal(bench.cpu->n_tasks, 1);
	bench.cpu->tasks[0]->has_progress = false;
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	script.between = NULL;
	expect_left(&bench, 2);
	for (unsigned int i = 0; i < REACTOR_RUN_RINGS; i++)
		rig_ring_deinit(&crowd[i]);
}

static void cancel_and_look(struct bench *bench, struct exec_task *task)
{
	put_cancel(bench, 2, 1, 0);
	script.look(script.context);
	assert_int_equal(atomic_load(&task->state), EXEC_CANCELLED);
	expect_cqe(bench, 2, 0);
}

TEST(test_reactor__cancels)
{
	BEGIN(bench);
	script.between = cancel_and_look;
	assert_int_equal(put_and_run(&bench, 1), 1);
	expect_cqe(&bench, 1, -ECANCELED);
	/* before it has begun */
	script.between = NULL;
	put_run(&bench, bench.queued, 3, 0);
	rig_work(&bench.rig);
	put_cancel(&bench, 4, 3, 0);
	rig_work(&bench.rig);
	assert_int_equal(run_all(&bench), 1);
	expect_cqe(&bench, 4, 0);
	expect_cqe(&bench, 3, -ECANCELED);
	assert_int_equal(own(&bench)->n_held, 0);
	expect_taken(&bench, 5);
}

struct neighbour {
	struct bench bench;
	struct tenant tenant;
	struct rig_ring ring;
};
static struct neighbour *neighbour;

static void neighbour_begin(struct neighbour *ret)
{
	begin(&ret->bench);
	ret->tenant =
		(struct tenant){.weight = 100, .number = 77, .priority_max = RBK_PRIORITY_URGENT};
	rig_ring_new_for(&ret->bench.rig, &ret->tenant, N_ENTRIES, &ret->ring);
	neighbour = ret;
}

static void neighbour_end(struct neighbour *ret)
{
	rig_ring_deinit(&ret->ring);
	bench_end(&ret->bench);
}

static void put_nop_of_neighbour(uint64_t user_data)
{
	rig_put(&neighbour->ring,
		&(const struct rbk_sqe){.opcode = RBK_OP_NOP, .user_data = user_data});
}

static void expect_nop_of_neighbour(uint64_t user_data)
{
	struct rbk_cqe cqe;

	assert_true(rig_take(&neighbour->ring, &cqe));
	assert_int_equal(cqe.user_data, user_data);
}

/* Let the neighbour's last entry be long ago. */
static void calm_down(struct bench *bench)
{
	rig_dispatch_ring(&neighbour->ring)->last_work_ticks -= own(bench)->quiet_ticks + 1;
}

static void neighbour_calls(struct bench *bench, struct exec_task *task)
{
	uint64_t i;

	for (i = 0; atomic_load(&task->state) == EXEC_RUNNING; i++) {
		assert_true(i < 100);
		put_nop_of_neighbour(i);
		script.look(script.context);
		expect_nop_of_neighbour(i);
	}
	assert_true(i > 1);
}

/* A neighbour's entries are answered between; if they come again and again, a worker goes on. */
TEST(test_reactor__makes_way_for_neighbours)
{
	SCOPED(neighbour, beside, neighbour_begin, neighbour_end);
	struct bench *bench = &beside.bench;

	put_nop_of_neighbour(0);
	rig_work(&bench->rig);
	expect_nop_of_neighbour(0);
	expect_left(bench, 1);
	calm_down(bench);
	expect_taken(bench, 2);

	script.between = neighbour_calls;
	assert_int_equal(put_and_run(bench, 3), 1);
	assert_int_equal(bench->cpu->n_tasks, 1);
	assert_true(fake_begin(bench->cpu, 3));
	bench->cpu->tasks[0]->has_progress = false;
	finish(bench, bench->cpu, 3, 0);
	expect_cqe(bench, 3, 0);
	/* A neighbour is not the plan's fault. */
	assert_int_equal(bench->queued->reactor_overruns, 0);
}

static void put_run_of_neighbour(const struct bench *bench, uint64_t user_data)
{
	const struct rbk_sqe sqe = run_entry(bench, bench->queued, user_data);

	rig_put(&neighbour->ring, &sqe);
}

static void neighbour_runs(struct bench *bench, struct exec_task *task)
{
	put_run_of_neighbour(bench, 9);
	script.look(script.context);
	assert_int_equal(atomic_load(&task->state), EXEC_STOPPING);
}

/*
 * A worker that gets a neighbour's task may be on the reactor's processor. The reactor stops its
 * task at once, and leaves the tasks that it has not begun to workers, too.
 */
TEST(test_reactor__makes_way_for_neighbours_tasks)
{
	SCOPED(neighbour, beside, neighbour_begin, neighbour_end);
	struct bench *bench = &beside.bench;

	calm_down(bench);
	for (uint64_t i = 0; i < 2; i++)
		put_run(bench, bench->queued, i, 0);
	rig_work(&bench->rig);
	assert_int_equal(own(bench)->n_held, 2);
	script.between = neighbour_runs;
	reactor_run_next(bench->rig.dispatch);
	rig_work(&bench->rig);
	assert_int_equal(script.n_runs, 1);
	script.between = NULL;
	assert_int_equal(run_all(bench), 1);
	assert_int_equal(script.n_runs, 1);
	assert_int_equal(own(bench)->n_held, 0);
	assert_int_equal(own(bench)->work_ns, 0);
	assert_int_equal(bench->cpu->n_tasks, 3);
	for (unsigned int i = 0; i < 3; i++)
		bench->cpu->tasks[i]->has_progress = false;
	finish(bench, bench->cpu, 0, 0);
	finish(bench, bench->cpu, 1, 0);
	finish(bench, bench->cpu, 9, 0);
	expect_cqe(bench, 0, 0);
	expect_cqe(bench, 1, 0);
	expect_nop_of_neighbour(9);
	assert_int_equal(bench->queued->reactor_overruns, 0);
	assert_int_equal(bench->rig.session->tenant_stats->totals->n_reactor, 0);
}

/* Beside tasks that the reactor has taken, another tenant's task goes to a worker. */
TEST(test_reactor__takes_tasks_of_one_tenant)
{
	SCOPED(neighbour, beside, neighbour_begin, neighbour_end);
	struct bench *bench = &beside.bench;

	calm_down(bench);
	put_run(bench, bench->queued, 1, 0);
	rig_work(&bench->rig);
	assert_int_equal(own(bench)->n_held, 1);
	rig_dispatch_ring(&bench->ring)->last_work_ticks -= own(bench)->quiet_ticks + 1;
	put_run_of_neighbour(bench, 9);
	rig_work(&bench->rig);
	assert_int_equal(own(bench)->n_held, 1);
	assert_int_equal(bench->cpu->n_tasks, 1);
	finish(bench, bench->cpu, 9, 0);
	expect_nop_of_neighbour(9);
	assert_int_equal(run_all(bench), 1);
	expect_cqe(bench, 1, 0);
}

/* --- requests during a task --- */

static struct turn_owner requester;
static struct turn_job request;
static unsigned int n_requests;

static void run_request(struct turn_job *job)
{
	n_requests++;
}

static void request_between(struct bench *bench, struct exec_task *task)
{
	turn_queue_submit(&bench->rig.server->work, &requester, &request);
	script.look(script.context);
	assert_int_equal(n_requests, 1);
	/* Such work then rests, and the task goes on. */
	bench->rig.dispatch->rest_until_ticks = UINT64_MAX / 2;
	turn_queue_submit(&bench->rig.server->work, &requester, &request);
	script.look(script.context);
	assert_int_equal(n_requests, 1);
	assert_int_equal(atomic_load(&task->state), EXEC_RUNNING);
}

/* Clients' requests do not wait for the end of a task, within their share of the time. */
TEST(test_reactor__answers_requests_between)
{
	BEGIN(bench);
	n_requests = 0;
	turn_owner_init(&requester, 100, 0);
	turn_job_init(&request, RBK_TURN_OTHER, run_request);
	bench.rig.dispatch->server = bench.rig.server;
	script.between = request_between;
	expect_taken(&bench, 1);
	turn_queue_withdraw(&bench.rig.server->work, &request);
}

/* --- the client's hint of when its task is due --- */

static struct bench due_bench;

static uint64_t due_ns(const struct bench *bench)
{
	return __atomic_load_n(&bench->ring.cq->due_ns, __ATOMIC_RELAXED);
}

static void expect_due_between(struct bench *bench, struct exec_task *task)
{
	assert_in_range(due_ns(bench), 1, clock_now_ns() + 1000000000);
}

/* The client of a task that the reactor or a worker runs is told when it is due, until it is done.
 */
TEST(test_due__is_told)
{
	BEGIN(bench);
	bench.rig.dispatch->options.n_processors = 2;
	script.between = expect_due_between;
	expect_taken(&bench, 1);
	assert_int_equal(due_ns(&bench), 0);
	own(&bench)->most_ns = 0;
	put_run(&bench, bench.queued, 2, 0);
	rig_work(&bench.rig);
	assert_in_range(due_ns(&bench), 1, clock_now_ns() + 1000000000);
	assert_true(fake_begin(bench.cpu, 2));
	finish(&bench, bench.cpu, 2, 0);
	assert_int_equal(due_ns(&bench), 0);
	expect_cqe(&bench, 2, 0);
}

/* The end is the task's, not the sum of the time of all threads that compute it. */
TEST(test_due__is_time_that_passes)
{
	struct session_plan *wide;
	struct rbk_sqe sqe;
	uint64_t before_ns, told_ns;

	bench_begin_placement(
		&due_bench, 1, N_ENTRIES, NULL,
		(const struct bench_speed[]){{.bytes_per_ns = 0.01f, .n_servers = 4}});
	due_bench.rig.dispatch->options.n_processors = 8;
	wide = bench_relu(&due_bench, 4096, 64);
	/* 64 KiB */
	sqe = bench_entry(wide, due_bench.arena, 32768, 2, 1);
	rig_put(&due_bench.ring, &sqe);
	before_ns = clock_now_ns();
	rig_work(&due_bench.rig);
	told_ns = due_ns(&due_bench);
	assert_in_range(told_ns, before_ns + 1000000, clock_now_ns() + 6600000);
	finish(&due_bench, due_bench.cpu, 1, 0);
	expect_cqe(&due_bench, 1, 0);
	bench_end(&due_bench);
}

/* The end of several tasks in flight is not told; a hint for the first one stays until its end. */
TEST(test_due__is_of_the_only_task)
{
	uint64_t first_ns;

	BEGIN(bench);
	bench.rig.dispatch->options.n_processors = 2;
	own(&bench)->most_ns = 0;
	put_run(&bench, bench.queued, 1, 0);
	rig_work(&bench.rig);
	first_ns = due_ns(&bench);
	assert_true(first_ns > 0);
	put_run(&bench, bench.queued, 2, 0);
	rig_work(&bench.rig);
	assert_int_equal(due_ns(&bench), first_ns);
	finish(&bench, bench.cpu, 1, 0);
	assert_int_equal(due_ns(&bench), 0);
	finish(&bench, bench.cpu, 2, 0);
	put_run(&bench, bench.queued, 3, 0);
	put_run(&bench, bench.queued, 4, 0);
	rig_work(&bench.rig);
	assert_int_equal(due_ns(&bench), 0);
	for (uint64_t i = 3; i < 5; i++)
		finish(&bench, bench.cpu, i, 0);
	for (uint64_t i = 1; i < 5; i++)
		expect_cqe(&bench, i, 0);
}

/* An end that is more than a second away, and the rest of a task that was stopped, are not told. */
TEST(test_due__is_near_and_of_the_begin)
{
	uint64_t first_ns;

	BEGIN(bench);
	bench.rig.dispatch->options.n_processors = 2;
	script.between = overrun;
	put_run(&bench, bench.queued, 1, 0);
	rig_work(&bench.rig);
	first_ns = due_ns(&bench);
	assert_true(first_ns > 0);
	assert_int_equal(run_all(&bench), 1);
	assert_int_equal(bench.cpu->n_tasks, 1);
	assert_int_equal(due_ns(&bench), first_ns);
	bench.cpu->tasks[0]->has_progress = false;
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);

	bench_begin_placement(&due_bench, 1, N_ENTRIES, NULL,
			      (const struct bench_speed[]){{.bytes_per_ns = 1e-6f}});
	due_bench.rig.dispatch->options.n_processors = 2;
	/* One row, which is not cut */
	put_wide(&due_bench, bench_relu(&due_bench, 4096, 64), 1);
	rig_work(&due_bench.rig);
	assert_int_equal(due_bench.cpu->n_tasks, 1);
	assert_int_equal(due_ns(&due_bench), 0);
	finish(&due_bench, due_bench.cpu, 1, 0);
	expect_cqe(&due_bench, 1, 0);
	bench_end(&due_bench);
}
