/* SPDX-License-Identifier: MIT */
/*
 * Tests of dispatch/segment-hot.c: tasks of plans that are cut, and every way in which they end.
 * Devices and residency are fakes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "dispatch/dispatch-private.h"
#include "session/segments.h"
#include "support/one-op.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"
#include "util/clock.h"

enum {
	LINK = RBK_SQE_LINK,
	MANY = 32, /* entries of a ring that holds more tasks than there are sets */
	X = 0,     /* offsets of tensors in the arena */
	Y = 4096,
	PAUSE_US = 20000,
};

/* y = x through @n nodes */
static struct describe *long_chain(unsigned int n)
{
	struct describe *d = describe_new("long", 8);
	char from[RBK_NAME_BYTES] = "x", to[RBK_NAME_BYTES];

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
	for (unsigned int i = 0; i < n; i++) {
		snprintf(to, sizeof(to), i + 1 < n ? "t%u" : "y", i);
		if (i + 1 < n)
			describe_scratch(d, to);
		describe_node(d, "Neg", "", from, to);
		snprintf(from, sizeof(from), "%s", to);
	}
	return d;
}

struct scene {
	struct bench bench;
	struct session_plan *plan; /* bench_chain() */
};

static void scene_begin(struct scene *scene, uint32_t n_entries)
{
	bench_begin(&scene->bench, 2, n_entries);
	scene->plan = bench_cut_plan(&scene->bench, bench_chain(), bench_chain());
}

static void scene_end(struct scene *scene)
{
	bench_end(&scene->bench);
}

#define SCENE(name, n_entries) SCOPED(scene, name, scene_begin, scene_end, n_entries)

static void put(struct scene *scene, uint64_t user_data, uint32_t count, uint8_t strategy,
		uint8_t flags)
{
	struct rbk_sqe sqe = bench_entry(scene->plan, scene->bench.arena, Y, count, user_data);

	sqe.strategy = strategy;
	sqe.flags = flags;
	rig_put(&scene->bench.ring, &sqe);
}

static void put_on(struct scene *scene, uint64_t user_data, uint8_t device)
{
	put(scene, user_data, 1, RBK_STRATEGY_DEVICE(device), 0);
	rig_work(&scene->bench.rig);
}

/* Assert that the one task on @fake is @segment of the plan. Return: the task. */
static const struct exec_task *expect_segment(struct scene *scene, const struct fake *fake,
					      uint32_t segment)
{
	assert_int_equal(fake->n_tasks, 1);
	assert_ptr_equal(fake->tasks[0]->plan, scene->plan->segments->of[segment].plan.plan);
	return fake->tasks[0];
}

static uint32_t n_free_sets(const struct scene *scene)
{
	uint32_t n = 0;

	for (const struct segment_set *set = scene->plan->segments->free_sets; set; set = set->next)
		n++;
	return n;
}

/* --- one task --- */

TEST(test_segments__run_in_order)
{
	const struct exec_arena *arena, *crossing;
	const struct exec_task *task;
	struct bench *bench;
	uint64_t offset;
	struct rbk_cqe cqe;

	SCENE(scene, N_ENTRIES);
	bench = &scene.bench;
	arena = &bench->arena->exec;
	crossing = &scene.plan->segments->arena;
	put(&scene, 1, 5, RBK_STRATEGY_DEVICE(CPU), 0);
	rig_work(&bench->rig);
	task = expect_segment(&scene, bench->cpu, 0);
	assert_int_equal(task->count, 5);
	assert_ptr_equal(task->refs[0].arena, arena);
	assert_int_equal(task->refs[0].offset, X);
	assert_ptr_equal(task->refs[1].arena, crossing);
	offset = task->refs[1].offset;
	finish(bench, bench->cpu, 1, 0);
	expect_none(bench);
	/* A pause between two segments is not execution. */
	usleep(PAUSE_US);

	task = expect_segment(&scene, bench->cpu, 1);
	assert_int_equal(task->count, 5);
	assert_ptr_equal(task->refs[0].arena, crossing);
	assert_int_equal(task->refs[0].offset, offset);
	assert_ptr_equal(task->refs[1].arena, crossing);
	assert_int_not_equal(task->refs[1].offset, offset);
	offset = task->refs[1].offset;
	finish(bench, bench->cpu, 1, 0);
	expect_none(bench);

	task = expect_segment(&scene, bench->cpu, 2);
	assert_int_equal(task->refs[0].offset, offset);
	assert_ptr_equal(task->refs[1].arena, arena);
	assert_int_equal(task->refs[1].offset, Y);
	finish(bench, bench->cpu, 1, 0);
	cqe = expect_cqe(bench, 1, 0);
	assert_int_equal(cqe.device, CPU);
	assert_int_equal(cqe.reason, RBK_REASON_USER_PREFERENCE);
	assert_int_equal(cqe.flags, 0);
	assert_in_range(cqe.exec_ns, 1, PAUSE_US * 1000 / 2);
	assert_int_equal(scene.plan->n_in_flight, 0);
	assert_int_equal(bench->arena->n_in_flight, 0);
	assert_int_equal(n_free_sets(&scene), scene.plan->segments->n_sets);
}

/* A segment without the count runs once, whatever the task's count. */
TEST(test_segments__count)
{
	struct describe *d[2];
	struct session_plan *plan;
	struct rbk_sqe sqe;
	struct bench *bench;

	SCENE(scene, N_ENTRIES);
	bench = &scene.bench;
	for (unsigned int i = 0; i < 2; i++) {
		d[i] = describe_new("uncounted", 8);
		describe_input(d[i], "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
		describe_input(d[i], "w", DESCRIBE_DIMS(64));
		describe_scratch(d[i], "a");
		describe_output(d[i], "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
		describe_node(d[i], "Abs", "", "w", "a");
		describe_node(d[i], "Mul", "", "x,a", "y");
	}
	plan = bench_cut_plan(bench, d[0], d[1]);
	sqe = bench_entry(plan, bench->arena, Y, 7, 1);
	sqe.refs[1] = RBK_REF(bench->arena->id, 8192);
	sqe.refs[2] = RBK_REF(bench->arena->id, Y);
	sqe.strategy = RBK_STRATEGY_DEVICE(CPU);
	rig_put(&bench->ring, &sqe);
	rig_work(&bench->rig);
	assert_int_equal(bench->cpu->tasks[0]->count, 1);
	finish(bench, bench->cpu, 1, 0);
	assert_int_equal(bench->cpu->tasks[0]->count, 7);
	finish(bench, bench->cpu, 1, 0);
	expect_cqe(bench, 1, 0);
}

/* The task reports the device that worked longer, and that both did. */
TEST(test_segments__on_two_devices)
{
	struct bench *bench;
	struct rbk_cqe cqe;

	SCENE(scene, N_ENTRIES);
	bench = &scene.bench;
	bench->gpu->row_ns = 50000;
	scene.plan->segments->of[1].plan.plan->device_state[GPU] = PLAN_DEVICE_UNSUPPORTED;
	put_on(&scene, 1, GPU);
	expect_segment(&scene, bench->gpu, 0);
	finish(bench, bench->gpu, 1, 0);
	expect_segment(&scene, bench->cpu, 1);
	finish(bench, bench->cpu, 1, 0);
	expect_segment(&scene, bench->gpu, 2);
	finish(bench, bench->gpu, 1, 0);
	cqe = expect_cqe(bench, 1, 0);
	assert_int_equal(cqe.device, GPU);
	assert_int_equal(cqe.flags, RBK_CQE_PARTITIONED);
	assert_int_equal(bench->rig.session->stats.tasks[GPU], 1);
	assert_int_equal(bench->rig.session->stats.tasks[CPU], 0);
	assert_int_equal(scene.plan->stats.record->devices[GPU].n_tasks, 1);
}

/* Wait until the plan's tenant has its statistics page. */
static struct rbk_stats_view await_page(struct scene *scene)
{
	const struct stats_tenant *tenant = scene->plan->stats.tenant;
	struct rbk_stats_view view;

	while (!tenant->page.header)
		rig_settle(&scene->bench.rig);
	assert_true(rbk_stats_view(&view, tenant->page.header, tenant->page.bytes));
	return view;
}

/* Return the record of a segment of the last task in the decision log. */
static struct rbk_stats_segment logged(const struct scene *scene, const struct rbk_stats_view *view,
				       uint64_t index, uint16_t number)
{
	struct rbk_stats_segment segment;

	assert_true(rbk_stats_segment(view, index, &segment));
	assert_int_equal(segment.task, scene->plan->stats.tenant->totals->log_head - 1);
	assert_int_equal(segment.segment, number);
	assert_int_equal(segment.n_segments, 3);
	assert_int_equal(segment.first_node, number);
	assert_int_equal(segment.n_nodes, 1);
	assert_int_equal(segment.from, number > 0 ? 1u << (number - 1) : 0);
	return segment;
}

/* Each segment is logged: where it ran and for how long, its own wait, and what crossed. */
TEST(test_segments__log)
{
	enum { ROW_BYTES = 64 * 4, COUNT = 5, MOST_NS = PAUSE_US * 1000 / 2 };
	struct rbk_stats_segment segment;
	struct rbk_stats_decision task = {.sequence = 0};
	struct rbk_stats_view view;
	struct bench *bench;
	double sum_ns = 0;

	SCENE(scene, N_ENTRIES);
	bench = &scene.bench;
	view = await_page(&scene);
	scene.plan->segments->of[1].plan.plan->device_state[GPU] = PLAN_DEVICE_UNSUPPORTED;
	put(&scene, 1, COUNT, RBK_STRATEGY_DEVICE(GPU), 0);
	rig_work(&bench->rig);
	finish(bench, bench->gpu, 1, 0);
	usleep(PAUSE_US);
	finish(bench, bench->cpu, 1, 0);
	assert_int_equal(scene.plan->stats.tenant->totals->segments_head, 0);
	finish(bench, bench->gpu, 1, 0);
	expect_cqe(bench, 1, 0);
	assert_true(rbk_stats_decision(&view, 0, &task));
	for (uint16_t i = 0; i < 3; i++) {
		segment = logged(&scene, &view, i, i);
		assert_int_equal(segment.device, i == 1 ? CPU : GPU);
		assert_int_equal(segment.crossed_bytes, i > 0 ? ROW_BYTES * COUNT : 0);
		assert_in_range((uint64_t)segment.exec_ns, 1, MOST_NS);
		/* The fake begins a task when it ends. */
		assert_true(i == 1 ? segment.queue_ns > MOST_NS : segment.queue_ns < MOST_NS);
		sum_ns += (double)segment.exec_ns;
	}
	assert_true(sum_ns > 0.99 * (double)task.exec_ns && sum_ns < 1.01 * (double)task.exec_ns);
	assert_int_equal(segment.ended_at_ns, task.ended_at_ns);
	assert_false(rbk_stats_segment(&view, 3, &segment));
}

/*
 * The GPU is idle while another device runs the segment between two of its own, not between two
 * segments in a row, nor between tasks. Its own work is none.
 */
TEST(test_segments__bubble)
{
	enum { PAUSE_NS = PAUSE_US * 1000 };
	const struct rbk_stats_tenant_device *devices;
	struct bench *bench;

	SCENE(scene, N_ENTRIES);
	bench = &scene.bench;
	bench->gpu->row_ns = PAUSE_NS / 2;
	devices = scene.plan->stats.tenant->totals->devices;
	put_on(&scene, 1, GPU);
	for (uint32_t i = 0; i < 3; i++) {
		finish(bench, bench->gpu, 1, 0);
		usleep(PAUSE_US);
	}
	expect_cqe(bench, 1, 0);
	assert_int_equal(devices[GPU].n_segments, 3);
	assert_int_equal(devices[GPU].bubble_ns, 0);

	scene.plan->segments->of[1].plan.plan->device_state[GPU] = PLAN_DEVICE_UNSUPPORTED;
	put_on(&scene, 2, GPU);
	finish(bench, bench->gpu, 2, 0);
	usleep(PAUSE_US);
	finish(bench, bench->cpu, 2, 0);
	/* The fake says that the last segment began half a pause before its end. */
	usleep(PAUSE_US / 2);
	finish(bench, bench->gpu, 2, 0);
	expect_cqe(bench, 2, 0);
	assert_int_equal(devices[GPU].n_segments, 5);
	assert_int_equal(devices[CPU].n_segments, 1);
	assert_int_equal(devices[CPU].bubble_ns, 0);
	assert_in_range(devices[GPU].bubble_ns, PAUSE_NS, 20ull * PAUSE_NS);

	/* Failed segments are not counted. */
	put_on(&scene, 3, GPU);
	finish(bench, bench->gpu, 3, -EDOM);
	expect_cqe(bench, 3, -EDOM);
	assert_int_equal(devices[GPU].n_segments, 5);
}

static void ran(struct stats_tenant *tenant, struct stats_moment *last, uint64_t start_ns,
		uint64_t end_ns)
{
	const struct stats_moment begin = {start_ns, tenant->devices[GPU].device_ns};

	stats_device_time(tenant, GPU, end_ns - start_ns);
	stats_segment_ran(tenant, GPU, last, begin, end_ns);
}

/* A gap in which the device works is no bubble, and one is counted for one task alone. */
TEST(test_segments__bubble_is_counted_once)
{
	const struct rbk_stats_tenant_device *device;
	struct stats_moment a = {0}, b = {0};
	struct stats_tenant *tenant;

	SCENE(scene, N_ENTRIES);
	tenant = scene.plan->stats.tenant;
	device = &tenant->totals->devices[GPU];
	ran(tenant, &b, 800, 900);
	ran(tenant, &a, 1000, 1100);
	assert_int_equal(device->bubble_ns, 0);
	stats_device_time(tenant, GPU, 150);
	ran(tenant, &a, 1500, 1550);
	assert_int_equal(device->bubble_ns, 250);
	/* From the other's begin on, of which it has worked for 50. */
	ran(tenant, &b, 1600, 1650);
	assert_int_equal(device->bubble_ns, 300);
	/* Several servers have worked for longer than the gap. */
	stats_device_time(tenant, GPU, 500);
	ran(tenant, &b, 1800, 1900);
	assert_int_equal(device->bubble_ns, 300);
	/* The next segment has begun before the last one has ended. */
	ran(tenant, &b, 1850, 1950);
	assert_int_equal(device->bubble_ns, 300);
	assert_int_equal(device->n_segments, 6);
	stats_tenant_reset(tenant, 2000);
	assert_int_equal(device->n_segments, 0);
	assert_int_equal(device->bubble_ns, 0);
	ran(tenant, &b, 2050, 2060);
	assert_int_equal(device->bubble_ns, 100);
}

/* A task that failed has a record of the segment that did, a cancelled one none. */
TEST(test_segments__log_of_failures)
{
	struct rbk_stats_segment segment;
	struct rbk_stats_view view;
	struct bench *bench;

	SCENE(scene, N_ENTRIES);
	bench = &scene.bench;
	view = await_page(&scene);
	put_on(&scene, 1, CPU);
	finish(bench, bench->cpu, 1, 0);
	finish(bench, bench->cpu, 1, -EDOM);
	expect_cqe(bench, 1, -EDOM);
	assert_true(logged(&scene, &view, 0, 0).ended_at_ns > 0);
	assert_true(logged(&scene, &view, 1, 1).ended_at_ns > 0);
	assert_false(rbk_stats_segment(&view, 2, &segment));

	put_on(&scene, 2, CPU);
	finish(bench, bench->cpu, 2, 0);
	put_cancel(bench, 3, 2, 0);
	rig_work(&bench->rig);
	expect_cqe(bench, 3, 0);
	finish(bench, bench->cpu, 2, 0);
	expect_cqe(bench, 2, -ECANCELED);
	assert_false(rbk_stats_segment(&view, 2, &segment));

	/* No device is left for the second segment, which never begins. */
	scene.plan->segments->of[1].plan.plan->device_state[GPU] = PLAN_DEVICE_UNSUPPORTED;
	put(&scene, 4, 1, RBK_STRATEGY_ONLY_GPU, 0);
	rig_work(&bench->rig);
	finish(bench, bench->gpu, 4, 0);
	expect_cqe(bench, 4, -ENODEV);
	assert_int_equal(logged(&scene, &view, 2, 0).device, GPU);
	segment = logged(&scene, &view, 3, 1);
	assert_int_equal(segment.device, RBK_DEVICE_NONE);
	assert_int_equal(segment.ended_at_ns, 0);
	assert_int_equal(segment.exec_ns, 0);
}

/* A device that fails with a segment leaves it to the CPU; the earlier one is not run again. */
TEST(test_segments__fall_back)
{
	struct bench *bench;
	struct rbk_cqe cqe;

	SCENE(scene, N_ENTRIES);
	bench = &scene.bench;
	put_on(&scene, 1, GPU);
	finish(bench, bench->gpu, 1, 0);
	expect_segment(&scene, bench->gpu, 1);
	finish(bench, bench->gpu, 1, -EIO);
	expect_segment(&scene, bench->cpu, 1);
	finish(bench, bench->cpu, 1, 0);
	expect_segment(&scene, bench->gpu, 2);
	finish(bench, bench->gpu, 1, 0);
	cqe = expect_cqe(bench, 1, 0);
	assert_int_equal(cqe.reason, RBK_REASON_CPU_FALLBACK);
}

/* --- ends before the end --- */

TEST(test_segments__failure)
{
	struct bench *bench;

	SCENE(scene, N_ENTRIES);
	bench = &scene.bench;
	put(&scene, 1, 1, RBK_STRATEGY_DEVICE(CPU), LINK);
	put(&scene, 2, 1, RBK_STRATEGY_DEVICE(CPU), 0);
	put(&scene, 3, 1, RBK_STRATEGY_DEVICE(CPU), 0);
	rig_work(&bench->rig);
	finish(bench, bench->cpu, 1, 0);
	finish(bench, bench->cpu, 1, -EDOM);
	expect_cqe(bench, 1, -EDOM);
	expect_cqe(bench, 2, -ECANCELED);
	for (unsigned int i = 0; i < 3; i++)
		finish(bench, bench->cpu, 3, 0);
	expect_cqe(bench, 3, 0);
	assert_int_equal(n_free_sets(&scene), scene.plan->segments->n_sets);
}

/* The successor in a chain starts after the last segment. */
TEST(test_segments__chain)
{
	struct bench *bench;

	SCENE(scene, N_ENTRIES);
	bench = &scene.bench;
	put(&scene, 1, 1, RBK_STRATEGY_DEVICE(CPU), LINK);
	put_bare(bench, RBK_OP_NOP, 2, 0);
	rig_work(&bench->rig);
	finish(bench, bench->cpu, 1, 0);
	finish(bench, bench->cpu, 1, 0);
	expect_none(bench);
	finish(bench, bench->cpu, 1, 0);
	expect_cqe(bench, 1, 0);
	expect_cqe(bench, 2, 0);
}

TEST(test_segments__cancel)
{
	struct bench *bench;

	SCENE(scene, N_ENTRIES);
	bench = &scene.bench;
	put_on(&scene, 1, CPU);
	finish(bench, bench->cpu, 1, 0);
	expect_segment(&scene, bench->cpu, 1);
	put_cancel(bench, 2, 1, 0);
	rig_work(&bench->rig);
	expect_cqe(bench, 2, 0);
	finish(bench, bench->cpu, 1, 0);
	expect_cqe(bench, 1, -ECANCELED);
	assert_int_equal(bench->cpu->n_submitted, 2);
	assert_int_equal(n_free_sets(&scene), scene.plan->segments->n_sets);

	/* A segment that has begun cannot be stopped on this device; the next one does run. */
	put_on(&scene, 3, CPU);
	assert_true(fake_begin(bench->cpu, 3));
	put_cancel(bench, 4, 3, 0);
	rig_work(&bench->rig);
	expect_cqe(bench, 4, -EALREADY);
	for (unsigned int i = 0; i < 3; i++)
		finish(bench, bench->cpu, 3, 0);
	expect_cqe(bench, 3, 0);
}

/* s = relu(s), y = -x and t = |t|, in three segments */
static struct describe *two_states(void)
{
	struct describe *d = describe_new("states", 1);

	describe_state(d, "s", DESCRIBE_DIMS(64));
	describe_state(d, "t", DESCRIBE_DIMS(64));
	describe_input(d, "x", DESCRIBE_DIMS(64));
	describe_output(d, "y", DESCRIBE_DIMS(64));
	describe_node(d, "Relu", "", "s", "s");
	describe_node(d, "Neg", "", "x", "y");
	describe_node(d, "Abs", "", "t", "t");
	return d;
}

/* Describe a RUN of a plan of two_states(). */
static struct rbk_sqe states_entry(const struct bench *bench, const struct session_plan *plan,
				   uint64_t user_data, uint8_t strategy)
{
	return (struct rbk_sqe){
		.opcode = RBK_OP_RUN,
		.plan_id = plan->id,
		.user_data = user_data,
		.count = 1,
		.strategy = strategy,
		.refs = {RBK_REF(bench->arena->id, X), RBK_REF(bench->arena->id, Y),
			 RBK_REF(bench->arena->id, 2 * Y), RBK_REF(bench->arena->id, 3 * Y)},
	};
}

/* A task that has updated a state updates all of them, unless its client leaves. */
TEST(test_segments__cancel_between_updates)
{
	const struct session_plan *plan;
	struct rbk_sqe sqe;

	BENCH(bench, 1, N_ENTRIES);
	plan = bench_cut_plan(&bench, two_states(), two_states());

	/* No segment has begun. */
	sqe = states_entry(&bench, plan, 1, RBK_STRATEGY_ONLY_CPU);
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	put_cancel(&bench, 2, 1, 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 2, 0);
	finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, -ECANCELED);

	/* The second of three, which has no state, is queued, then the third. */
	sqe = states_entry(&bench, plan, 3, RBK_STRATEGY_ONLY_CPU);
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	for (uint64_t i = 4; i < 6; i++) {
		finish(&bench, bench.cpu, 3, 0);
		put_cancel(&bench, i, 3, 0);
		rig_work(&bench.rig);
		expect_cqe(&bench, i, -EALREADY);
	}
	finish(&bench, bench.cpu, 3, 0);
	expect_cqe(&bench, 3, 0);

	sqe = states_entry(&bench, plan, 7, RBK_STRATEGY_ONLY_CPU);
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	finish(&bench, bench.cpu, 7, 0);
	/* bench_end() asserts that everything drains. */
}

/* The plan of a task that has updated a state is removed while the task waits for memory. */
TEST(test_segments__plan_is_removed_between_updates)
{
	struct session_plan *plan;
	struct plan *second;
	struct rbk_sqe sqe;

	BENCH(bench, 2, N_ENTRIES);
	plan = bench_cut_plan(&bench, two_states(), two_states());
	second = plan->segments->of[1].plan.plan;
	second->device_state[GPU] = PLAN_DEVICE_EVICTED;
	/* No segment waits for as long as there is no memory, once one has updated a state. */
	sqe = states_entry(&bench, plan, 1, RBK_STRATEGY_PREFER_GPU);
	sqe.flags = RBK_SQE_WAIT_MEMORY;
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	finish(&bench, bench.gpu, 1, 0);
	finish(&bench, bench.cpu, 1, 0);
	finish(&bench, bench.gpu, 1, 0);
	assert_int_equal(expect_cqe(&bench, 1, 0).reason, RBK_REASON_MEMORY_CONSTRAINT);

	sqe = states_entry(&bench, plan, 2, RBK_STRATEGY_ONLY_GPU);
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	finish(&bench, bench.gpu, 2, 0);
	expect_none(&bench);
	assert_int_equal(session_plan_remove(bench.rig.session, 5, plan->id), 0);
	rig_work(&bench.rig);
	expect_cqe(&bench, 2, -ENOMEM);
	assert_int_equal(rig_answer(&bench.rig, RBK_WIRE_PLAN_REMOVE, NULL, 0), 0);
}

/* A task that gets the set of one that has updated states has updated none. */
TEST(test_segments__set_of_another)
{
	const struct session_plan *plan;
	struct rbk_sqe sqe;
	uint64_t n_sets;

	BENCH(bench, 1, N_ENTRIES);
	plan = bench_cut_plan(&bench, two_states(), two_states());
	n_sets = plan->segments->n_sets;
	for (uint64_t i = 1; i <= n_sets + 1; i++) {
		sqe = states_entry(&bench, plan, i, RBK_STRATEGY_ONLY_CPU);
		rig_put(&bench.ring, &sqe);
	}
	rig_work(&bench.rig);
	assert_int_equal(session_plan_remove(bench.rig.session, 5, plan->id), 0);
	for (unsigned int k = 0; k < 3; k++)
		finish(&bench, bench.cpu, 1, 0);
	expect_cqe(&bench, 1, 0);
	expect_cqe(&bench, n_sets + 1, -ECANCELED);
	for (uint64_t i = 2; i <= n_sets; i++) {
		for (unsigned int k = 0; k < 3; k++)
			finish(&bench, bench.cpu, i, 0);
		expect_cqe(&bench, i, 0);
	}
	assert_int_equal(rig_answer(&bench.rig, RBK_WIRE_PLAN_REMOVE, NULL, 0), 0);
}

/* A task that would fail after its first update does not begin. */
TEST(test_segments__refused_before_updates)
{
	struct session_plan *plan;
	struct plan *last;
	struct rbk_sqe sqe;

	BENCH(bench, 2, N_ENTRIES);
	plan = bench_cut_plan(&bench, two_states(), two_states());
	last = plan->segments->of[2].plan.plan;
	for (unsigned int i = 0; i < 2; i++) {
		last->device_state[GPU] = i ? PLAN_DEVICE_NO_MEMORY : PLAN_DEVICE_UNSUPPORTED;
		sqe = states_entry(&bench, plan, 1 + i, RBK_STRATEGY_ONLY_GPU);
		rig_put(&bench.ring, &sqe);
		rig_work(&bench.rig);
		expect_cqe(&bench, 1 + i, i ? -ENOMEM : -ENODEV);
	}
	assert_int_equal(bench.gpu->n_submitted, 0);

	/* The device may be gone meanwhile. */
	last->device_state[GPU] = PLAN_DEVICE_READY;
	sqe = states_entry(&bench, plan, 3, RBK_STRATEGY_ONLY_GPU);
	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	finish(&bench, bench.gpu, 3, 0);
	last->device_state[GPU] = PLAN_DEVICE_UNSUPPORTED;
	finish(&bench, bench.gpu, 3, 0);
	expect_cqe(&bench, 3, -EIO);
}

static void run_here(struct executor *executor, struct exec_task *task, unsigned int n_helpers,
		     exec_look_fn *look, void *context)
{
	assert_true(exec_task_begin(task));
	task->start_ticks = task->end_ticks = clock_ticks();
	task->res = exec_task_end(task) ? 0 : -ECANCELED;
}

static void begin_with_reactor(struct bench *bench)
{
	struct reactor_run *own;

	bench_begin_placement(bench, 1, N_ENTRIES, NULL,
			      (const struct bench_speed[]){{.bytes_per_ns = 1}});
	own = &bench->rig.dispatch->reactor_run;
	own->most_ns = REACTOR_TASK_NS;
	own->long_piece_ticks = own->quiet_ticks = own->forgive_ticks = 1ull << 40;
	bench->cpu->ops.run_here = run_here;
}

/* A task whose segments the reactor runs itself is one of its tasks. */
TEST(test_segments__on_reactor)
{
	SCOPED(bench, bench, begin_with_reactor, bench_end);
	struct session_plan *plan = bench_cut_plan(&bench, bench_chain(), bench_chain());
	struct rbk_sqe sqe = bench_entry(plan, bench.arena, Y, 1, 1);

	rig_put(&bench.ring, &sqe);
	rig_work(&bench.rig);
	for (unsigned int i = 0; i < 3; i++) {
		reactor_run_next(bench.rig.dispatch);
		rig_work(&bench.rig);
	}
	expect_cqe(&bench, 1, 0);
	assert_int_equal(plan->stats.tenant->totals->n_reactor, 1);
}

/*
 * The reactor touches no arena that a client may take pages from: the first segment that begins
 * copies the states of the others, too.
 */
TEST(test_segments__state_of_another_segment_is_not_fixed)
{
	SCOPED(bench, bench, begin_with_reactor, bench_end);
	const struct reactor_run *own = &bench.rig.dispatch->reactor_run;
	struct session_arena *other = rig_arena_new(&bench.rig, 4096, false);
	struct session_plan *plan = bench_cut_plan(&bench, two_states(), two_states());
	struct rbk_sqe sqe = states_entry(&bench, plan, 0, RBK_STRATEGY_AUTO);

	sqe.refs[1] = RBK_REF(other->id, 0);
	bench.rig.session->n_unfixed = 1;
	for (sqe.user_data = 1; sqe.user_data <= 2; sqe.user_data++) {
		other->exec.is_fixed = sqe.user_data == 2;
		rig_put(&bench.ring, &sqe);
		rig_work(&bench.rig);
		assert_int_equal(own->n_held, other->exec.is_fixed);
		if (!other->exec.is_fixed)
			finish(&bench, bench.cpu, 1, 0);
		while (bench.cpu->n_tasks > 0 || own->n_waiting > 0) {
			reactor_run_next(bench.rig.dispatch);
			fake_finish_all(bench.cpu, 0);
			rig_work(&bench.rig);
		}
		expect_cqe(&bench, sqe.user_data, 0);
	}
	bench.rig.session->n_unfixed = 0;
}

/* --- sets --- */

/* At most as many tasks have begun as there are sets, and they overlap. */
TEST(test_segments__more_tasks_than_sets)
{
	struct bench *bench;
	uint32_t n_sets;

	SCENE(scene, MANY);
	bench = &scene.bench;
	n_sets = scene.plan->segments->n_sets;
	assert_in_range(n_sets, 2, MANY - 4);
	for (uint64_t i = 1; i <= MANY - 2; i++)
		put(&scene, i, 1, RBK_STRATEGY_DEVICE(CPU), 0);
	rig_work(&bench->rig);
	assert_int_equal(bench->cpu->n_tasks, n_sets);
	for (uint32_t i = 0; i < n_sets; i++)
		for (uint32_t k = 0; k < i; k++)
			assert_int_not_equal(bench->cpu->tasks[i]->refs[1].offset,
					     bench->cpu->tasks[k]->refs[1].offset);

	/* A task that waits for a set can be cancelled, and completes at once. */
	put_cancel(bench, 100, n_sets + 1, 0);
	rig_work(&bench->rig);
	expect_cqe(bench, 100, 0);
	expect_cqe(bench, n_sets + 1, -ECANCELED);
	for (unsigned int k = 0; k < 3; k++)
		finish(bench, bench->cpu, 1, 0);
	expect_cqe(bench, 1, 0);
	assert_int_equal(bench->cpu->n_tasks, n_sets);
	for (uint64_t i = 2; i <= MANY - 2; i++) {
		if (i == n_sets + 1)
			continue;
		for (unsigned int k = 0; k < 3; k++)
			finish(bench, bench->cpu, i, 0);
		expect_cqe(bench, i, 0);
	}
	expect_none(bench);
	assert_int_equal(n_free_sets(&scene), n_sets);
}

/* A client that leaves ends the tasks that wait for a set, too. */
TEST(test_segments__ring_closes)
{
	SCENE(scene, MANY);
	for (uint64_t i = 1; i <= MANY; i++)
		put(&scene, i, 1, RBK_STRATEGY_DEVICE(CPU), 0);
	rig_work(&scene.bench.rig);
	fake_finish_all(scene.bench.cpu, 0);
	rig_work(&scene.bench.rig);
	/* scene_end() asserts that everything drains. */
}

/* --- removal --- */

TEST(test_segments__plan_is_removed)
{
	struct bench *bench;
	uint32_t n_sets;

	SCENE(scene, MANY);
	bench = &scene.bench;
	n_sets = scene.plan->segments->n_sets;
	for (uint64_t i = 1; i <= n_sets + 2; i++)
		put(&scene, i, 1, RBK_STRATEGY_DEVICE(CPU), 0);
	rig_work(&bench->rig);
	finish(bench, bench->cpu, 1, 0);
	assert_int_equal(session_plan_remove(bench->rig.session, 5, scene.plan->id), 0);
	assert_false(rig_has_answer(&bench->rig));
	/* Tasks that have begun go on; those that wait for a set do not. */
	finish(bench, bench->cpu, 1, 0);
	finish(bench, bench->cpu, 1, 0);
	expect_cqe(bench, 1, 0);
	expect_cqe(bench, n_sets + 1, -ECANCELED);
	expect_cqe(bench, n_sets + 2, -ECANCELED);
	for (uint64_t i = 2; i <= n_sets; i++) {
		for (unsigned int k = 0; k < 3; k++)
			finish(bench, bench->cpu, i, 0);
		expect_cqe(bench, i, 0);
	}
	assert_int_equal(rig_answer(&bench->rig, RBK_WIRE_PLAN_REMOVE, NULL, 0), 0);
	scene.plan = NULL;
}

/* --- memory --- */

static void put_wish(struct scene *scene, uint8_t opcode, uint64_t user_data)
{
	rig_put(&scene->bench.ring, &(const struct rbk_sqe){.opcode = opcode,
							    .plan_id = scene->plan->id,
							    .user_data = user_data});
	rig_work(&scene->bench.rig);
}

/* Assert that a wish about @segment waits, and answer it. */
static void answer(struct scene *scene, uint32_t segment, enum residency_wish wish, int res)
{
	struct residency_waiter *waiter = fake_residency_oldest(scene->bench.rig.residency);

	assert_non_null(waiter);
	assert_int_equal(waiter->wish, wish);
	assert_ptr_equal(waiter->memory, &scene->plan->segments->of[segment].plan.memory);
	fake_residency_answer(scene->bench.rig.residency, waiter, res);
	rig_work(&scene->bench.rig);
}

/* PREFETCH and EVICT ask for each segment in turn, until one cannot be had. */
TEST(test_segments__prefetch_and_evict)
{
	struct bench *bench;

	SCENE(scene, N_ENTRIES);
	bench = &scene.bench;
	put_wish(&scene, RBK_OP_PREFETCH, 1);
	for (uint32_t i = 0; i < 3; i++) {
		expect_none(bench);
		answer(&scene, i, RESIDENCY_PREFETCH, 0);
	}
	assert_int_equal(expect_cqe(bench, 1, 0).device, GPU);
	put_wish(&scene, RBK_OP_PREFETCH, 2);
	answer(&scene, 0, RESIDENCY_PREFETCH, 0);
	answer(&scene, 1, RESIDENCY_PREFETCH, -ENOMEM);
	expect_cqe(bench, 2, -ENOMEM);
	put_wish(&scene, RBK_OP_EVICT, 3);
	for (uint32_t i = 0; i < 3; i++)
		answer(&scene, i, RESIDENCY_EVICT, 0);
	expect_cqe(bench, 3, 0);
	put_wish(&scene, RBK_OP_PREFETCH, 4);
	answer(&scene, 0, RESIDENCY_PREFETCH, 0);
	put_cancel(bench, 5, 4, 0);
	rig_work(&bench->rig);
	expect_cqe(bench, 5, 0);
	expect_cqe(bench, 4, -ECANCELED);
	assert_int_equal(scene.plan->n_in_flight, 0);
}

/* PREFETCH passes over segments that no device can have, and loads as many as there is room for. */
TEST(test_segments__prefetch_of_a_part)
{
	struct bench *bench;

	SCENE(scene, N_ENTRIES);
	bench = &scene.bench;
	put_wish(&scene, RBK_OP_PREFETCH, 1);
	answer(&scene, 0, RESIDENCY_PREFETCH, -ENODEV);
	answer(&scene, 1, RESIDENCY_PREFETCH, 0);
	answer(&scene, 2, RESIDENCY_PREFETCH, -ENODEV);
	expect_cqe(bench, 1, 0);
	put_wish(&scene, RBK_OP_PREFETCH, 2);
	for (uint32_t i = 0; i < 3; i++)
		answer(&scene, i, RESIDENCY_PREFETCH, -ENODEV);
	expect_cqe(bench, 2, -ENODEV);

	bench->rig.residency->about.required_bytes = 4;
	bench->rig.residency->about.available_bytes = 9;
	put_wish(&scene, RBK_OP_PREFETCH, 3);
	answer(&scene, 0, RESIDENCY_PREFETCH, 0);
	answer(&scene, 1, RESIDENCY_PREFETCH, 0);
	expect_cqe(bench, 3, 0);
	assert_int_equal(scene.plan->n_in_flight, 0);
}

/* A segment that is not in device memory runs on the CPU, and the task says why. */
TEST(test_segments__memory_constraint)
{
	struct bench *bench;
	struct rbk_cqe cqe;

	SCENE(scene, N_ENTRIES);
	bench = &scene.bench;
	scene.plan->segments->of[1].plan.plan->device_state[GPU] = PLAN_DEVICE_EVICTED;
	put_on(&scene, 1, GPU);
	finish(bench, bench->gpu, 1, 0);
	expect_segment(&scene, bench->cpu, 1);
	finish(bench, bench->cpu, 1, 0);
	expect_segment(&scene, bench->gpu, 2);
	finish(bench, bench->gpu, 1, 0);
	cqe = expect_cqe(bench, 1, 0);
	assert_int_equal(cqe.reason, RBK_REASON_MEMORY_CONSTRAINT);
	assert_int_equal(plan_n_constrained(scene.plan), 1);

	/* One that may only run there waits for its memory. */
	put(&scene, 2, 1, RBK_STRATEGY_ONLY_GPU, 0);
	rig_work(&bench->rig);
	finish(bench, bench->gpu, 2, 0);
	scene.plan->segments->of[1].plan.plan->device_state[GPU] = PLAN_DEVICE_READY;
	answer(&scene, 1, RESIDENCY_PREFETCH, 0);
	expect_segment(&scene, bench->gpu, 1);
	finish(bench, bench->gpu, 2, 0);
	finish(bench, bench->gpu, 2, 0);
	cqe = expect_cqe(bench, 2, 0);
	assert_int_equal(cqe.device, GPU);

	/* If there is none, the task fails, and gives its set back. */
	scene.plan->segments->of[1].plan.plan->device_state[GPU] = PLAN_DEVICE_EVICTED;
	put(&scene, 3, 1, RBK_STRATEGY_ONLY_GPU, 0);
	rig_work(&bench->rig);
	finish(bench, bench->gpu, 3, 0);
	answer(&scene, 1, RESIDENCY_PREFETCH, -ENOMEM);
	expect_cqe(bench, 3, -ENOMEM);
	assert_int_equal(n_free_sets(&scene), scene.plan->segments->n_sets);
	assert_int_equal(scene.plan->n_in_flight, 0);
}

/* --- making and ending --- */

/* The reactor enters many segments in several turns, and answers the client once. */
TEST(test_segments__many)
{
	struct session_plan *plan;
	struct bench *bench;
	struct rbk_sqe sqe;

	SCENE(scene, N_ENTRIES);
	bench = &scene.bench;
	plan = bench_cut_plan(bench, long_chain(40), long_chain(40));
	sqe = bench_entry(plan, bench->arena, Y, 1, 1);
	sqe.strategy = RBK_STRATEGY_DEVICE(GPU);
	rig_put(&bench->ring, &sqe);
	rig_work(&bench->rig);
	for (unsigned int i = 0; i < 40; i++) {
		expect_none(bench);
		finish(bench, bench->gpu, 1, 0);
	}
	expect_cqe(bench, 1, 0);
}

/* A plan for whose segments there is no room stays whole. */
TEST(test_segments__no_room)
{
	struct session_plan *plan;
	struct rbk_sqe sqe;
	struct rig *rig;

	SCENE(scene, N_ENTRIES);
	rig = &scene.bench.rig;
	account_book_limit(rig->book, ACCOUNT_MAPPINGS,
			   account_book_total(rig->book, ACCOUNT_MAPPINGS));
	rig->server->options.cut_seed = bench_cut_seed(long_chain(5));
	plan = rig_plan_new(rig, long_chain(5));
	assert_null(plan->segments);
	assert_int_equal(plan->cut, RBK_CUT_REFUSED);
	sqe = bench_entry(plan, scene.bench.arena, Y, 1, 1);
	sqe.strategy = RBK_STRATEGY_DEVICE(GPU);
	rig_put(&scene.bench.ring, &sqe);
	rig_work(rig);
	finish(&scene.bench, scene.bench.gpu, 1, 0);
	expect_cqe(&scene.bench, 1, 0);
	account_book_limit(rig->book, ACCOUNT_MAPPINGS, UINT64_MAX);
}

/* A client that leaves while its plan is verified, cut, prepared or entered leaves nothing. */
TEST(test_segments__client_leaves_meanwhile)
{
	const uint64_t seed = bench_cut_seed(long_chain(40));
	bool was_ready = false;

	for (unsigned int n_us = 0; !was_ready; n_us += 20 + n_us / 8) {
		size_t bytes;
		void *desc = describe_finish(long_chain(40), &bytes);

		RIG(rig, 2);
		rig.server->options.cut_seed = seed;
		assert_int_equal(session_plan_add(rig.session, 1, desc, bytes), 0);
		free(desc);
		for (unsigned int i = 0; i < n_us; i += 20) {
			rig_settle(&rig);
			usleep(20);
		}
		was_ready = rig.session->plans[0];
		/* The rig ends the session, and asserts that nothing is left. */
	}
}
