/* SPDX-License-Identifier: MIT */
/* Small tasks: longer than tiny ones, and run inline while the reactor has the time. */
#include "dispatch/dispatch-private.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"
#include "util/checked.h"

/* 64,000 bytes are estimated to take 4 us, which tiny tasks do not. */
enum { SMALL_BYTES = 64000, ESTIMATED_BYTES_PER_NS = 16 };

static void plan_again(struct bench *bench, uint64_t bytes, uint64_t reactor_task_ns)
{
	const struct server_hooks hooks = dispatch_hooks(bench->rig.dispatch);

	bench->rig.dispatch->options.reactor_task_ns = reactor_task_ns;
	bench->tiny->plan->cost = (struct cost){.bytes_fixed = bytes};
	hooks.plan_freed(hooks.context, bench->tiny);
	assert_int_equal(hooks.plan_ready(hooks.context, bench->tiny), 0);
	assert_int_equal(bench->tiny->inline_max_count, 0);
}

/* Begin with a CPU that is predicted to take @task_ns for one row, of 128 bytes. */
static void begin_predicted(struct bench *bench, float task_ns)
{
	bench_begin_placement(bench, 1, 32, NULL,
			      (const struct bench_speed[]){{.bytes_per_ns = 128 / task_ns}});
	plan_again(bench, SMALL_BYTES, SMALL_NS);
	assert_int_equal(bench->tiny->small_bound, 64);
}

static void begin(struct bench *bench)
{
	begin_predicted(bench, 3000);
}

#define BEGIN(name) SCOPED(bench, name, begin, bench_end)

/* Publish @n small tasks at once. Return: the number of those that ran inline. */
static unsigned int put_small(struct bench *bench, unsigned int n)
{
	const unsigned int n_before = bench->cpu->n_inline;

	for (unsigned int i = 0; i < n; i++)
		put_run(bench, bench->tiny, i, 0);
	rig_work(&bench->rig);
	return bench->cpu->n_inline - n_before;
}

/* Complete what workers have, and take the completions of @n tasks. */
static void complete(struct bench *bench, unsigned int n)
{
	struct rbk_cqe cqe;

	for (unsigned int i = 0; i < n && bench->cpu->n_tasks > 0; i++)
		finish(bench, bench->cpu, fake_user_data(bench->cpu->tasks[0]), 0);
	for (unsigned int i = 0; i < n; i++) {
		assert_true(rig_take(&bench->ring, &cqe));
		assert_int_equal(cqe.res, 0);
	}
	expect_none(bench);
}

TEST(test_small__each_is_published)
{
	struct dispatch_ring *ring;

	BEGIN(bench);
	ring = rig_dispatch_ring(&bench.ring);
	for (unsigned int i = 0; i < 3; i++)
		put_run(&bench, bench.tiny, i, 0);
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(dispatch_poll_ring(bench.rig.dispatch, ring), 1);
		assert_int_equal(expect_cqe(&bench, i, 0).device, CPU);
	}
	assert_fields(*bench.cpu, (n_inline, 3), (n_submitted, 0));
}

static unsigned int inlined_of(float task_ns)
{
	struct bench bench;
	unsigned int n;

	begin_predicted(&bench, task_ns);
	n = put_small(&bench, 1);
	complete(&bench, 1);
	bench_end(&bench);
	return n;
}

/* The estimate lets a plan pass; then the prediction decides. */
TEST(test_small__by_prediction)
{
	assert_int_equal(inlined_of(SMALL_NS - 100), 1);
	assert_int_equal(inlined_of(SMALL_NS + 100), 0);
}

/* Strategies other than AUTO and ONLY_CPU are the placer's to follow. */
TEST(test_small__by_strategy)
{
	struct rbk_sqe sqe;

	BEGIN(bench);
	sqe = run_entry(&bench, bench.tiny, 1);
	sqe.strategy = RBK_STRATEGY_ONLY_CPU;
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	assert_int_equal(expect_cqe(&bench, 1, 0).reason, RBK_REASON_USER_PREFERENCE);
	assert_int_equal(bench.cpu->n_inline, 1);
	sqe.strategy = RBK_STRATEGY_PREFER_GPU;
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	assert_fields(*bench.cpu, (n_inline, 1), (n_tasks, 1));
	complete(&bench, 1);
}

/* A task of a pinned plan runs where its plan is, even if only the CPU is wanted. */
TEST(test_small__pinned)
{
	struct rbk_sqe sqe;
	struct bench bench;

	bench_begin_placement(
		&bench, 2, 32, NULL,
		(const struct bench_speed[]){{.bytes_per_ns = 0.04f}, {.bytes_per_ns = 0.04f}});
	bench.tiny->plan->pinned = true;
	bench.tiny->plan->pinned_device = GPU;
	plan_again(&bench, SMALL_BYTES, SMALL_NS);
	sqe = run_entry(&bench, bench.tiny, 1);
	sqe.strategy = RBK_STRATEGY_ONLY_CPU;
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	assert_fields(bench, (cpu->n_inline, 0), (gpu->n_tasks, 1));
	finish(&bench, bench.gpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	bench_end(&bench);
}

/* Rows of 128 bytes, of which 7 are below the threshold: for more, AUTO may choose the GPU. */
TEST(test_small__below_the_threshold)
{
	struct place_config config = PLACE_CONFIG_DEFAULT;
	struct rbk_sqe sqe;
	struct bench bench;

	config.threshold_bytes = 8 * 128;
	config.min_count = 0;
	bench_begin_placement(
		&bench, 2, 32, &config,
		(const struct bench_speed[]){{.bytes_per_ns = 0.5f}, {.bytes_per_ns = 1000}});
	plan_again(&bench, SMALL_BYTES, SMALL_NS);
	assert_fields(*bench.tiny, (small_bound, 64), (small_max_count, 4));
	sqe = run_entry(&bench, bench.tiny, 1);
	sqe.count = 4;
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	assert_int_equal(expect_cqe(&bench, 1, 0).reason, RBK_REASON_BELOW_THRESHOLD);
	sqe.count = 16;
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	assert_fields(bench, (cpu->n_inline, 1), (gpu->n_tasks, 1));
	finish(&bench, bench.gpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	bench_end(&bench);
}

TEST(test_small__by_estimate)
{
	BEGIN(bench);
	plan_again(&bench, 80000 * ESTIMATED_BYTES_PER_NS, SMALL_NS);
	assert_int_equal(bench.tiny->small_bound, 64);
	plan_again(&bench, 80001 * ESTIMATED_BYTES_PER_NS, SMALL_NS);
	assert_int_equal(bench.tiny->small_bound, 0);
	/* An administrator can keep such tasks off the reactor. */
	plan_again(&bench, SMALL_BYTES, SMALL_NS - 1);
	assert_int_equal(bench.tiny->small_bound, 0);
}

/* Workers get what they would complete sooner. */
TEST(test_small__few)
{
	static const struct {
		unsigned int n_processors, n_tasks, n_inline;
		bool is_contended;
	} cases[] = {
		{4, 12, 12, false},
		{4, 13, 0, false},
		{1, 13, 13, false},
		{4, 13, 13, true},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		BEGIN(bench);
		bench.rig.dispatch->options.n_processors = cases[i].n_processors;
		bench.rig.dispatch->is_contended = cases[i].is_contended;
		assert_int_equal(put_small(&bench, cases[i].n_tasks), cases[i].n_inline);
		complete(&bench, cases[i].n_tasks);
	}
}

/* A second ring with work: its tasks and the first one's could run at once. */
TEST(test_small__beside_others)
{
	struct rig_ring other;

	BEGIN(bench);
	rig_ring_new(&bench.rig, 32, &other);
	rig_put(&other, &(const struct rbk_sqe){.opcode = RBK_OP_NOP});
	rig_work(&bench.rig);
	assert_int_equal(bench.rig.dispatch->n_active, 2);
	assert_int_equal(put_small(&bench, 1), 0);
	complete(&bench, 1);
	bench.rig.dispatch->options.n_processors = 2;
	assert_int_equal(put_small(&bench, 1), 1);
	complete(&bench, 1);
	rig_ring_deinit(&other);
}

/* A small task does not wait for a longer one that a worker has. */
TEST(test_small__beside_workers)
{
	BEGIN(bench);
	put_run(&bench, bench.queued, 1, 0);
	assert_int_equal(put_small(&bench, 1), 1);
	assert_int_equal(bench.cpu->n_tasks, 1);
	complete(&bench, 2);
}

TEST(test_small__overruns)
{
	BEGIN(bench);
	bench.cpu->inline_ns = 30000;
	for (unsigned int i = 0; i < 8; i++) {
		assert_int_equal(put_small(&bench, 1), 1);
		complete(&bench, 1);
	}
	assert_int_equal(bench.tiny->small_bound, 0);
	assert_int_equal(put_small(&bench, 1), 0);
	complete(&bench, 1);
}
