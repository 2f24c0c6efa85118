/* SPDX-License-Identifier: MIT */
/* Tasks that several workers, or workers that are full, would not complete sooner */
#include "dispatch/dispatch-private.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"

static void run_here(struct executor *executor, struct exec_task *task, unsigned int n_helpers,
		     exec_look_fn *look, void *context)
{
	fail_msg("not called");
}

/*
 * The reactor would give a task to a worker as long as a worker has another tenant's: it does not
 * take any, and turns do not hand them on one by one.
 */
TEST(test_reactor__helps_no_workers_of_others)
{
	struct tenant tenant = {.weight = 100, .number = 77, .priority_max = RBK_PRIORITY_URGENT};
	struct reactor_run *own;
	struct session_plan *wide;
	struct rig_ring other;
	struct bench bench;
	struct rbk_sqe sqe;

	bench_begin_placement(&bench, 1, 32, NULL,
			      (const struct bench_speed[]){{.bytes_per_ns = 1}});
	own = &bench.rig.dispatch->reactor_run;
	own->long_piece_ticks = own->quiet_ticks = own->forgive_ticks = 1;
	bench.cpu->ops.run_here = run_here;
	bench.cpu->executor.info.n_threads = 2;
	wide = bench_relu(&bench, 4096, 64);
	rig_ring_new_for(&bench.rig, &tenant, 32, &other);
	for (unsigned int i = 0; i < 4; i++) {
		sqe = run_entry(&bench, bench.queued, i);
		rig_put(&other, &sqe);
	}
	rig_work(&bench.rig);
	assert_int_equal(bench.cpu->n_tasks, 4);
	rig_dispatch_ring(&other)->last_work_ticks = 0;
	own->most_ns = 2000000;
	for (unsigned int i = 4; i < 7; i++) {
		sqe = bench_entry(wide, bench.arena, 32768, 1, i);
		rig_put(&bench.ring, &sqe);
	}
	rig_work(&bench.rig);
	assert_int_equal(own->n_held, 0);
	assert_int_equal(bench.cpu->n_tasks, 7);
	for (unsigned int i = 0; i < 7; i++)
		finish(&bench, bench.cpu, i, 0);
	rig_ring_deinit(&other);
	bench_end(&bench);
}

static void complete_here(struct executor *executor, struct exec_task *task, unsigned int n_helpers,
			  exec_look_fn *look, void *context)
{
	task->start_ticks = task->end_ticks = clock_ticks();
	task->busy_ticks = 1;
	assert_true(exec_task_begin(task) && exec_task_end(task));
	task->res = 0;
}

/*
 * The reactor takes as many of several tasks, of 32 us each, as it completes sooner than a worker
 * for each of them would, which takes a switch.
 */
TEST(test_reactor__leaves_more_to_more_workers)
{
	static const struct {
		uint32_t n_threads;
		unsigned int n_put, n_taken;
	} cases[] = {{1, 5, 5}, {2, 2, 2}, {2, 3, 3}, {2, 4, 3}, {3, 3, 2}, {16, 2, 2}, {16, 4, 2}};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct reactor_run *own;
		struct session_plan *wide;
		struct bench bench;
		struct rbk_sqe sqe;

		bench_begin_placement(&bench, 1, 32, NULL,
				      (const struct bench_speed[]){{.bytes_per_ns = 1}});
		own = &bench.rig.dispatch->reactor_run;
		own->long_piece_ticks = own->quiet_ticks = own->forgive_ticks = 1ull << 40;
		own->most_ns = REACTOR_TASK_NS;
		bench.rig.dispatch->options.n_processors = 16;
		bench.cpu->ops.run_here = complete_here;
		bench.cpu->executor.info.n_threads = cases[i].n_threads;
		wide = bench_relu(&bench, 4096, 64);
		for (unsigned int k = 0; k < cases[i].n_put; k++) {
			sqe = bench_entry(wide, bench.arena, 32768, 1, k);
			rig_put(&bench.ring, &sqe);
		}
		rig_work(&bench.rig);
		assert_int_equal(own->n_held, cases[i].n_taken);
		assert_int_equal(bench.cpu->n_tasks, cases[i].n_put - cases[i].n_taken);
		while (own->n_waiting > 0)
			reactor_run_next(bench.rig.dispatch);
		for (unsigned int k = cases[i].n_taken; k < cases[i].n_put; k++)
			finish(&bench, bench.cpu, k, 0);
		for (unsigned int k = 0; k < cases[i].n_put; k++)
			expect_cqe(&bench, k, 0);
		bench_end(&bench);
	}
}
