/* SPDX-License-Identifier: MIT */
/*
 * Tests of dispatch/segment-hot.c: tasks whose segments run at once, and every way in which they
 * end. Devices and residency are fakes.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "dispatch/dispatch-private.h"
#include "place/graph.h"
#include "session/segments.h"
#include "support/one-op.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"
#include "util/clock.h"

enum {
	Y = 4096, /* offset of the output in the arena */
	ROWS = 4,
	/* the plan's segments, one for each node */
	HEAD = 0,
	LEFT = 1,
	LEFT_END = 2,
	RIGHT = 3,
	TAIL = 4,
	PAUSE_US = 20000,
};

/* s = relu(x); y = -|s| + |s|, so that two branches meet again */
static struct describe *branches(void)
{
	struct describe *d = describe_new("branches", 8);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
	describe_scratch(d, "s");
	describe_scratch(d, "a");
	describe_scratch(d, "b");
	describe_scratch(d, "c");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
	describe_node(d, "Relu", "", "x", "s");
	describe_node(d, "Abs", "", "s", "a");
	describe_node(d, "Neg", "", "a", "b");
	describe_node(d, "Abs", "", "s", "c");
	describe_node(d, "Add", "", "b,c", "y");
	return d;
}

struct scene {
	struct bench bench;
	struct session_plan *plan;
};

static void scene_begin(struct scene *scene)
{
	bench_begin(&scene->bench, 2, N_ENTRIES);
	scene->plan = bench_cut_plan(&scene->bench, branches(), branches());
	assert_int_equal(scene->plan->segments->n_at_once, 2);
}

/* Assert that nothing is left of any task. */
static void scene_end(struct scene *scene)
{
	uint32_t n_free = 0;

	if (scene->plan) {
		for (const struct segment_set *set = scene->plan->segments->free_sets; set;
		     set = set->next)
			n_free++;
		assert_int_equal(n_free, scene->plan->segments->n_sets);
		assert_int_equal(scene->plan->n_in_flight, 0);
	}
	bench_end(&scene->bench);
}

#define SCENE(name) SCOPED(scene, name, scene_begin, scene_end)

static void put_as(struct scene *scene, uint64_t user_data, uint8_t strategy, uint8_t flags)
{
	struct rbk_sqe sqe = bench_entry(scene->plan, scene->bench.arena, Y, ROWS, user_data);

	sqe.strategy = strategy;
	sqe.flags = flags;
	rig_put(&scene->bench.ring, &sqe);
	rig_work(&scene->bench.rig);
}

static void put(struct scene *scene, uint64_t user_data)
{
	put_as(scene, user_data, RBK_STRATEGY_DEVICE(CPU), 0);
}

static struct plan *segment_plan(const struct scene *scene, uint32_t segment)
{
	return scene->plan->segments->of[segment].plan.plan;
}

/* Return the place of a segment among the tasks of a fake; -1: it is not there. */
static int find(const struct scene *scene, const struct fake *fake, uint32_t segment)
{
	for (unsigned int i = 0; i < fake->n_tasks; i++)
		if (fake->tasks[i]->plan == segment_plan(scene, segment))
			return (int)i;
	return -1;
}

static const struct exec_task *has(const struct scene *scene, const struct fake *fake,
				   uint32_t segment)
{
	const int i = find(scene, fake, segment);

	assert_int_not_equal(i, -1);
	return fake->tasks[i];
}

static void end(struct scene *scene, struct fake *fake, uint32_t segment, int32_t res)
{
	const int i = find(scene, fake, segment);

	assert_int_not_equal(i, -1);
	fake_finish_at(fake, (unsigned int)i, res);
	rig_work(&scene->bench.rig);
}

static void cancel(struct scene *scene, uint64_t user_data, int res)
{
	put_cancel(&scene->bench, 100, user_data, 0);
	rig_work(&scene->bench.rig);
	expect_cqe(&scene->bench, 100, res);
}

/* --- one task --- */

/* Each segment begins when those that it needs have ended, in memory of its own. */
TEST(test_branches__run_at_once)
{
	const struct exec_task *left, *right;
	struct rbk_cqe cqe;
	struct fake *cpu;

	SCENE(scene);
	cpu = scene.bench.cpu;
	put(&scene, 1);
	assert_int_equal(cpu->n_tasks, 1);
	assert_int_equal(has(&scene, cpu, HEAD)->count, ROWS);
	end(&scene, cpu, HEAD, 0);
	assert_int_equal(cpu->n_tasks, 2);
	left = has(&scene, cpu, LEFT);
	right = has(&scene, cpu, RIGHT);
	assert_int_equal(right->count, ROWS);
	assert_int_equal(left->refs[0].offset, right->refs[0].offset);
	assert_int_not_equal(left->refs[1].offset, right->refs[1].offset);
	end(&scene, cpu, RIGHT, 0);
	assert_int_equal(cpu->n_tasks, 1);
	end(&scene, cpu, LEFT, 0);
	end(&scene, cpu, LEFT_END, 0);
	assert_int_equal(has(&scene, cpu, TAIL)->refs[2].offset, Y);
	expect_none(&scene.bench);
	end(&scene, cpu, TAIL, 0);
	cqe = expect_cqe(&scene.bench, 1, 0);
	assert_int_equal(cqe.device, CPU);
	assert_int_equal(cpu->n_submitted, 5);

	/* The other branch ends first, and the task's own slot is free meanwhile. */
	put(&scene, 2);
	end(&scene, cpu, HEAD, 0);
	end(&scene, cpu, LEFT, 0);
	end(&scene, cpu, LEFT_END, 0);
	expect_none(&scene.bench);
	end(&scene, cpu, RIGHT, 0);
	end(&scene, cpu, TAIL, 0);
	expect_cqe(&scene.bench, 2, 0);
	assert_int_equal(scene.bench.arena->n_in_flight, 0);
}

/* Time for which two segments run at once counts once, and so does the prediction. */
TEST(test_branches__times)
{
	struct rbk_stats_decision task = {.sequence = 0};
	struct rbk_stats_segment segment;
	const struct stats_tenant *tenant;
	struct rbk_stats_view view = {.page = NULL};
	struct fake *cpu;
	uint64_t exec_ns;

	SCENE(scene);
	cpu = scene.bench.cpu;
	tenant = scene.plan->stats.tenant;
	while (!tenant->page.header)
		rig_settle(&scene.bench.rig);
	assert_true(rbk_stats_view(&view, tenant->page.header, tenant->page.bytes));
	/* After a failure, the log has the segments up to the last that began. */
	put(&scene, 1);
	end(&scene, cpu, HEAD, 0);
	end(&scene, cpu, RIGHT, -EDOM);
	end(&scene, cpu, LEFT, 0);
	expect_cqe(&scene.bench, 1, -EDOM);
	for (uint32_t i = 0; i < 4; i++) {
		assert_true(rbk_stats_segment(&view, i, &segment));
		assert_int_equal(segment.segment, i);
		assert_int_equal(segment.device,
				 i == LEFT || i == LEFT_END ? RBK_DEVICE_NONE : RBK_DEVICE_CPU);
	}

	cpu->row_ns = PAUSE_US * 1000 / ROWS;
	put(&scene, 2);
	end(&scene, cpu, HEAD, 0);
	/* Both take as long as a pause, from now on. */
	fake_finish_at(cpu, 0, 0);
	fake_finish_at(cpu, 0, 0);
	rig_work(&scene.bench.rig);
	end(&scene, cpu, LEFT_END, 0);
	end(&scene, cpu, TAIL, 0);
	exec_ns = expect_cqe(&scene.bench, 2, 0).exec_ns;
	assert_in_range(exec_ns, PAUSE_US * 1000, 4 * PAUSE_US * 1000 + PAUSE_US * 500);
	assert_true(rbk_stats_decision(&view, 1, &task));
	for (uint32_t i = 0; i < 5; i++) {
		assert_true(rbk_stats_segment(&view, 4 + i, &segment));
		assert_int_equal(segment.segment, i);
		assert_int_equal(segment.n_segments, 5);
		assert_true(segment.exec_ns > 0.9f * PAUSE_US * 1000);
		/* The fake lets LEFT and RIGHT begin at once, so neither waits for the other. */
		if (i == RIGHT)
			assert_true(segment.queue_ns < PAUSE_US * 500);
	}
	assert_false(rbk_stats_segment(&view, 9, &segment));
}

/* Let a segment end that ran from @from_ms to @to_ms after @base_ticks. */
static void end_at(struct scene *scene, struct fake *fake, uint32_t segment, uint64_t base_ticks,
		   uint64_t from_ms, uint64_t to_ms)
{
	struct exec_task *task;

	fake_finish_at(fake, (unsigned int)find(scene, fake, segment), 0);
	task = fake->done[fake->n_done - 1];
	task->start_ticks = base_ticks + clock_ns_to_ticks(from_ms * 1000000);
	task->end_ticks = base_ticks + clock_ns_to_ticks(to_ms * 1000000);
	rig_work(&scene->bench.rig);
}

/* A segment that returns late fills the gap between two that have returned before. */
TEST(test_branches__times_of_a_late_branch)
{
	uint64_t base_ticks;
	struct rbk_cqe cqe;
	struct fake *cpu;

	SCENE(scene);
	cpu = scene.bench.cpu;
	put(&scene, 1);
	base_ticks = clock_ticks();
	end_at(&scene, cpu, HEAD, base_ticks, 10, 20);
	end_at(&scene, cpu, LEFT, base_ticks, 50, 60);
	end_at(&scene, cpu, LEFT_END, base_ticks, 70, 80);
	end_at(&scene, cpu, RIGHT, base_ticks, 40, 90);
	end_at(&scene, cpu, TAIL, base_ticks, 95, 100);
	cqe = expect_cqe(&scene.bench, 1, 0);
	/* The pauses are from 20 to 40, and from 90 to 95. */
	assert_in_range(cqe.exec_ns, 64900000, 65100000);
	assert_in_range(cqe.queue_ns, 34900000, 36000000 + PAUSE_US * 1000);
}

/* Six branches from x: five are added up one by one, the last is longer. */
static struct describe *star(void)
{
	struct describe *d = describe_new("star", 8);
	char name[RBK_NAME_BYTES];

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
	for (unsigned int i = 0; i < 14; i++) {
		snprintf(name, sizeof(name), "t%u", i);
		describe_scratch(d, name);
		if (i < 6)
			describe_node(d, "Abs", "", "x", name);
	}
	describe_node(d, "Neg", "", "t5", "t6");
	describe_node(d, "Neg", "", "t6", "t7");
	describe_node(d, "Neg", "", "t7", "t8");
	describe_node(d, "Add", "", "t0,t1", "t9");
	describe_node(d, "Add", "", "t9,t2", "t10");
	describe_node(d, "Add", "", "t10,t3", "t11");
	describe_node(d, "Add", "", "t11,t4", "t12");
	describe_node(d, "Neg", "", "t12", "t13");
	describe_node(d, "Add", "", "t13,t8", "y");
	return d;
}

/* The segment with the longer way to the end gets the only free slot. */
TEST(test_branches__rank)
{
	struct fake *cpu;

	SCENE(scene);
	cpu = scene.bench.cpu;
	scene.plan = bench_cut_plan(&scene.bench, star(), star());
	assert_int_equal(scene.plan->segments->n_at_once, SEGMENTS_AT_ONCE);
	put(&scene, 1);
	assert_int_equal(cpu->n_tasks, SEGMENTS_AT_ONCE);
	for (uint32_t i = 0; i < SEGMENTS_AT_ONCE; i++)
		assert_int_equal(find(&scene, cpu, i), i);
	/* t4 has three nodes after it, t5 four. */
	end(&scene, cpu, 3, 0);
	assert_int_equal(cpu->n_tasks, SEGMENTS_AT_ONCE);
	has(&scene, cpu, 5);
	while (cpu->n_tasks > 0) {
		assert_in_range(cpu->n_tasks, 1, SEGMENTS_AT_ONCE);
		fake_finish_at(cpu, cpu->n_tasks - 1, 0);
		rig_work(&scene.bench.rig);
	}
	expect_cqe(&scene.bench, 1, 0);
	assert_int_equal(cpu->n_submitted, 15);

	/* None of those that could begin does after a failure. */
	put(&scene, 2);
	end(&scene, cpu, 3, -EDOM);
	assert_int_equal(cpu->n_tasks, SEGMENTS_AT_ONCE - 1);
	fake_finish_all(cpu, 0);
	rig_work(&scene.bench.rig);
	expect_cqe(&scene.bench, 2, -EDOM);
	assert_int_equal(cpu->n_submitted, 15 + SEGMENTS_AT_ONCE);
}

/* Two devices work on one task at the same time, and the task says so. */
TEST(test_branches__on_two_devices)
{
	struct bench *bench;
	struct rbk_cqe cqe;

	SCENE(scene);
	bench = &scene.bench;
	segment_plan(&scene, LEFT)->device_state[GPU] = PLAN_DEVICE_UNSUPPORTED;
	put_as(&scene, 1, RBK_STRATEGY_DEVICE(GPU), 0);
	end(&scene, bench->gpu, HEAD, 0);
	has(&scene, bench->cpu, LEFT);
	has(&scene, bench->gpu, RIGHT);
	end(&scene, bench->gpu, RIGHT, 0);
	end(&scene, bench->cpu, LEFT, 0);
	end(&scene, bench->gpu, LEFT_END, 0);
	end(&scene, bench->gpu, TAIL, 0);
	cqe = expect_cqe(bench, 1, 0);
	assert_int_equal(cqe.device, GPU);
	assert_int_equal(cqe.flags, RBK_CQE_PARTITIONED);
	assert_int_equal(bench->rig.session->stats.tasks[GPU], 1);

	/* A device that fails with a segment leaves that one to the CPU. */
	put_as(&scene, 2, RBK_STRATEGY_DEVICE(GPU), 0);
	end(&scene, bench->gpu, HEAD, 0);
	end(&scene, bench->gpu, RIGHT, -EIO);
	end(&scene, bench->cpu, RIGHT, 0);
	end(&scene, bench->cpu, LEFT, 0);
	end(&scene, bench->gpu, LEFT_END, 0);
	end(&scene, bench->gpu, TAIL, 0);
	assert_int_equal(expect_cqe(bench, 2, 0).reason, RBK_REASON_CPU_FALLBACK);
}

enum { TEACH_TASKS = 64 };

/* Run tasks on @device alone, whose segments take so long each. */
static void teach(struct scene *scene, struct fake *fake, uint8_t device, const uint64_t *ms)
{
	const uint64_t base_ticks = clock_ticks();

	for (uint64_t i = 0; i < TEACH_TASKS; i++) {
		put_as(scene, i, RBK_STRATEGY_DEVICE(device), 0);
		while (fake->n_tasks > 0)
			for (uint32_t k = 0; k < scene->plan->segments->n; k++)
				if (find(scene, fake, k) >= 0)
					end_at(scene, fake, k, base_ticks, 0, ms[k]);
		expect_cqe(&scene->bench, i, 0);
	}
}

enum { SIDE = 0, BEFORE = 1, LONG = 2, LAST = 3 };

/* y = -x + relu(|x|) */
static struct describe *unequal(void)
{
	struct describe *d = describe_new("unequal", 8);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
	describe_scratch(d, "a");
	describe_scratch(d, "b");
	describe_scratch(d, "c");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
	describe_node(d, "Neg", "", "x", "a");
	describe_node(d, "Abs", "", "x", "b");
	describe_node(d, "Relu", "", "b", "c");
	describe_node(d, "Add", "", "a,c", "y");
	return d;
}

static struct place_decision decide(const struct scene *scene, uint32_t segment,
				    struct place_request request)
{
	struct dispatch *dispatch = scene->bench.rig.dispatch;

	request.count = ROWS;
	request.strategy = RBK_STRATEGY_AUTO;
	return place_decide(dispatch->placer, scene->plan->segments->of[segment].plan.place,
			    dispatch->nobody, request, dispatch_now_ns(dispatch));
}

/*
 * The side branch would end earlier on the GPU, which is idle. But then the long one, which is not
 * there yet and needs the GPU, would wait: the task would take 500 ms until both join, not 400.
 */
TEST(test_branches__are_placed_for_the_whole_task)
{
	static const uint64_t cpu_ms[] = {280, 100, 2000, 100}, gpu_ms[] = {200, 300, 300, 50};
	struct bench *bench;
	struct fake *cpu, *gpu;

	SCENE(scene);
	bench = &scene.bench;
	cpu = bench->cpu;
	gpu = bench->gpu;
	scene.plan = bench_cut_plan(bench, unequal(), unequal());
	teach(&scene, cpu, CPU, cpu_ms);
	teach(&scene, gpu, GPU, gpu_ms);
	put_as(&scene, 1, RBK_STRATEGY_AUTO, 0);
	assert_int_equal(gpu->n_tasks, 0);
	end(&scene, cpu, BEFORE, 0);
	has(&scene, cpu, SIDE);
	end(&scene, gpu, LONG, 0);
	end(&scene, cpu, SIDE, 0);
	end(&scene, gpu, LAST, 0);
	expect_cqe(bench, 1, 0);

	/* Tasks of another size have no advice, and a deadline comes before it. */
	assert_fields(decide(&scene, SIDE, (struct place_request){0}), (device, CPU),
		      (flags, PLACE_ADVISED));
	assert_fields(decide(&scene, SIDE, (struct place_request){.flags = PLACE_UNADVISED}),
		      (device, GPU), (flags, 0));
	assert_fields(decide(&scene, SIDE, (struct place_request){.deadline_ns = 240000000}),
		      (device, GPU), (reason, RBK_REASON_COST_MODEL));

	/* Without the advice for the side branch the GPU begins it at once. */
	place_plan_advise(scene.plan->segments->of[SIDE].plan.place, NULL, NULL);
	put_as(&scene, 2, RBK_STRATEGY_AUTO, 0);
	has(&scene, gpu, SIDE);
	end(&scene, cpu, BEFORE, 0);
	assert_int_equal(find(&scene, gpu, LONG), -1);
	end(&scene, gpu, SIDE, 0);
	end(&scene, gpu, LONG, 0);
	end(&scene, gpu, LAST, 0);
	expect_cqe(bench, 2, 0);
}

enum { FIRST = 0, SECOND = 1 };

static struct describe *chain(void)
{
	struct describe *d = describe_new("chain", 8);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
	describe_scratch(d, "a");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
	describe_node(d, "Relu", "", "x", "a");
	describe_node(d, "Abs", "", "a", "y");
	return d;
}

static uint8_t flags_of(const struct exec_task *exec)
{
	return container_of(exec, struct run, exec)->place.decision.flags;
}

/* The first segment ends earlier on the GPU. A stream of tasks needs the GPU for the second one. */
TEST(test_streams__leave_a_device_to_what_needs_it)
{
	static const uint64_t cpu_ms[] = {150, 2000}, gpu_ms[] = {100, 400};
	struct rbk_sqe urgent;
	struct bench *bench;
	struct fake *cpu, *gpu;

	SCENE(scene);
	bench = &scene.bench;
	cpu = bench->cpu;
	gpu = bench->gpu;
	scene.plan = bench_cut_plan(bench, chain(), chain());
	teach(&scene, cpu, CPU, cpu_ms);
	teach(&scene, gpu, GPU, gpu_ms);
	urgent = bench_entry(scene.plan, bench->arena, Y, ROWS, 6);
	put_as(&scene, 1, RBK_STRATEGY_AUTO, 0);
	assert_int_equal(flags_of(has(&scene, gpu, FIRST)), 0);
	end(&scene, gpu, FIRST, 0);
	end(&scene, gpu, SECOND, 0);
	expect_cqe(bench, 1, 0);

	/* Beside others it waits for the CPU. */
	put_as(&scene, 2, RBK_STRATEGY_DEVICE(GPU), 0);
	put_as(&scene, 3, RBK_STRATEGY_AUTO, 0);
	put_as(&scene, 4, RBK_STRATEGY_AUTO, 0);
	end(&scene, cpu, FIRST, 0);
	assert_int_equal(flags_of(has(&scene, cpu, FIRST)), PLACE_ADVISED | PLACE_STREAMED);
	end(&scene, cpu, FIRST, 0);
	end(&scene, gpu, FIRST, 0);
	for (uint64_t i = 2; i <= 4; i++) {
		end(&scene, gpu, SECOND, 0);
		expect_cqe(bench, i, 0);
	}

	/* An urgent task has no regard for others. */
	put(&scene, 5);
	urgent.priority = RBK_PRIORITY_URGENT;
	bench->rig.session->features |= RBK_FEAT_PRIORITY;
	rig_put(&bench->ring, &urgent);
	rig_work(&bench->rig);
	assert_int_equal(flags_of(has(&scene, gpu, FIRST)), 0);
	end(&scene, gpu, FIRST, 0);
	end(&scene, gpu, SECOND, 0);
	expect_cqe(bench, 6, 0);
	end(&scene, cpu, FIRST, 0);
	end(&scene, cpu, SECOND, 0);
	expect_cqe(bench, 5, 0);
}

/* Run a task whose segments take so long each, wherever they are placed. */
static void run_as_placed(struct scene *scene, uint64_t user_data, const uint64_t *cpu_ms,
			  const uint64_t *gpu_ms)
{
	const uint64_t base_ticks = clock_ticks();
	struct bench *bench = &scene->bench;

	put_as(scene, user_data, RBK_STRATEGY_AUTO, 0);
	while (bench->cpu->n_tasks + bench->gpu->n_tasks > 0)
		for (uint32_t k = 0; k < scene->plan->segments->n; k++) {
			if (find(scene, bench->cpu, k) >= 0)
				end_at(scene, bench->cpu, k, base_ticks, 0, cpu_ms[k]);
			if (find(scene, bench->gpu, k) >= 0)
				end_at(scene, bench->gpu, k, base_ticks, 0, gpu_ms[k]);
		}
}

/*
 * A plan that a device never can have is scheduled elsewhere. One that the device lacks memory for
 * is still wanted there, by each task, and comes back once it is resident.
 */
TEST(test_branches__schedule_follows_devices)
{
	static const uint64_t cpu_ms[] = {100, 100, 100, 100, 100}, gpu_ms[] = {10, 10, 10, 10, 10};
	const struct place_graph *graph;
	struct bench *bench;

	SCENE(scene);
	bench = &scene.bench;
	graph = scene.plan->segments->graph;
	teach(&scene, bench->cpu, CPU, cpu_ms);
	teach(&scene, bench->gpu, GPU, gpu_ms);
	for (uint32_t i = 0; i <= TAIL; i++)
		segment_plan(&scene, i)->device_state[GPU] = PLAN_DEVICE_EVICTED;
	for (uint64_t i = 0; i < 2 * TEACH_TASKS; i++) {
		run_as_placed(&scene, i, cpu_ms, gpu_ms);
		assert_int_equal(expect_cqe(bench, i, 0).reason, RBK_REASON_MEMORY_CONSTRAINT);
		assert_int_equal(bench->gpu->n_tasks, 0);
	}
	for (uint32_t i = 0; i <= TAIL; i++)
		segment_plan(&scene, i)->device_state[GPU] = PLAN_DEVICE_READY;
	run_as_placed(&scene, 1, cpu_ms, gpu_ms);
	assert_int_equal(expect_cqe(bench, 1, 0).device, GPU);

	for (uint32_t i = 0; i <= TAIL; i++)
		segment_plan(&scene, i)->device_state[GPU] = PLAN_DEVICE_NO_MEMORY;
	for (uint64_t i = 0; i < TEACH_TASKS; i++) {
		run_as_placed(&scene, i, cpu_ms, gpu_ms);
		expect_cqe(bench, i, 0);
	}
	for (uint32_t i = 0; i <= TAIL; i++)
		assert_int_equal(graph->device[i], CPU);
}

/* The schedule is for tasks of about as many rows. */
TEST(test_branches__schedule_has_a_size)
{
	static const uint32_t counts[] = {4, 8, 2, 1, 4};
	struct rbk_sqe sqe;

	SCENE(scene);
	for (uint32_t i = 0; i < 5; i++) {
		const struct run *run;

		sqe = bench_entry(scene.plan, scene.bench.arena, Y, counts[i], i);
		sqe.strategy = RBK_STRATEGY_DEVICE(CPU);
		rig_put(&scene.bench.ring, &sqe);
		rig_work(&scene.bench.rig);
		run = container_of(has(&scene, scene.bench.cpu, HEAD), struct run, exec);
		assert_int_equal(run->task->place_flags & PLACE_UNADVISED,
				 counts[i] == 1 ? PLACE_UNADVISED : 0);
		end(&scene, scene.bench.cpu, HEAD, 0);
		run = container_of(has(&scene, scene.bench.cpu, LEFT), struct run, exec);
		assert_int_equal(run->task->place_flags & PLACE_UNADVISED,
				 counts[i] == 1 ? PLACE_UNADVISED : 0);
		while (scene.bench.cpu->n_tasks > 0) {
			fake_finish_all(scene.bench.cpu, 0);
			rig_work(&scene.bench.rig);
		}
		expect_cqe(&scene.bench, i, 0);
	}
}

/* Tasks that updated states in another order would leave others: one segment after the other */
TEST(test_branches__states_run_in_turn)
{
	struct describe *d[2];
	struct session_plan *plan;

	SCENE(scene);
	for (unsigned int i = 0; i < 2; i++) {
		d[i] = describe_new("states", 1);
		describe_state(d[i], "s", DESCRIBE_DIMS(64));
		describe_input(d[i], "x", DESCRIBE_DIMS(64));
		describe_output(d[i], "y", DESCRIBE_DIMS(64));
		describe_node(d[i], "Relu", "", "s", "s");
		describe_node(d[i], "Neg", "", "x", "y");
	}
	plan = bench_cut_plan(&scene.bench, d[0], d[1]);
	assert_int_equal(plan->segments->n_at_once, 1);
}

/* --- ends before the end --- */

/* A segment that fails stops the others, and the task ends once they have returned. */
TEST(test_branches__failure)
{
	struct fake *cpu;

	SCENE(scene);
	cpu = scene.bench.cpu;
	put_as(&scene, 1, RBK_STRATEGY_DEVICE(CPU), RBK_SQE_LINK);
	put_as(&scene, 2, RBK_STRATEGY_DEVICE(CPU), 0);
	end(&scene, cpu, HEAD, 0);
	end(&scene, cpu, LEFT, -EDOM);
	/* The fake has the other one, which cannot be recalled once it has begun. */
	expect_none(&scene.bench);
	end(&scene, cpu, RIGHT, 0);
	expect_cqe(&scene.bench, 1, -EDOM);
	expect_cqe(&scene.bench, 2, -ECANCELED);
	assert_int_equal(cpu->n_submitted, 3);

	/* The first error counts, and nothing begins after it. */
	put(&scene, 3);
	end(&scene, cpu, HEAD, 0);
	assert_true(fake_begin(cpu, 3));
	fake_finish_at(cpu, (unsigned int)find(&scene, cpu, RIGHT), -EDOM);
	rig_work(&scene.bench.rig);
	end(&scene, cpu, LEFT, -EIO);
	expect_cqe(&scene.bench, 3, -EDOM);
	assert_int_equal(cpu->n_tasks, 0);
}

/* Rows that a device has done before a failure do not count for the slot's next segment. */
TEST(test_branches__failure_between_rows)
{
	struct session_segments *segments;
	struct bench *bench;

	SCENE(scene);
	bench = &scene.bench;
	segments = scene.plan->segments;
	bench->cpu->row_ns = PAUSE_US * 1000;
	segment_plan(&scene, LEFT)->device_state[GPU] = PLAN_DEVICE_UNSUPPORTED;
	for (uint64_t i = 1; i < 3; i++) {
		put_as(&scene, i, RBK_STRATEGY_DEVICE(GPU), 0);
		end(&scene, bench->gpu, HEAD, 0);
		if (i == 2)
			break;
		while (bench->cpu->n_tasks + bench->gpu->n_tasks > 0) {
			fake_finish_at(bench->gpu->n_tasks > 0 ? bench->gpu : bench->cpu, 0, 0);
			rig_work(&bench->rig);
		}
		expect_cqe(bench, i, 0);
	}
	/* Rows take so long that other tasks may run in between: the rest is queued. */
	assert_in_range(has(&scene, bench->cpu, LEFT)->count, 1, ROWS - 1);
	bench->cpu->capacity = 0;
	end(&scene, bench->cpu, LEFT, 0);
	end(&scene, bench->gpu, RIGHT, -EDOM);
	expect_cqe(bench, 2, -EDOM);
	bench->cpu->capacity = FAKE_MAX_TASKS;
	put(&scene, 3);
	for (uint32_t i = 0; i < segments->n_sets; i++)
		if (segments->sets[i].task)
			assert_int_equal(segments->sets[i].task->run.place.parts_count, 0);
	cancel(&scene, 3, 0);
	fake_finish_all(bench->cpu, 0);
	rig_work(&bench->rig);
	expect_cqe(bench, 3, -ECANCELED);
}

static void abandon(struct executor *executor, struct exec_task *task)
{
	fail_msg("a segment has progress");
}

/* Have the CPU compute a segment, which the dispatcher does not know yet. */
static struct exec_task *compute(struct scene *scene, uint32_t segment)
{
	struct fake *cpu = scene->bench.cpu;
	struct exec_task *task = cpu->tasks[find(scene, cpu, segment)];

	assert_true(exec_task_begin(task) && exec_task_end(task));
	return task;
}

/* A task that has segments left is cancelled although one has just been computed. */
TEST(test_branches__cancel_between_segments)
{
	struct exec_task *task;
	struct fake *cpu;

	SCENE(scene);
	cpu = scene.bench.cpu;
	cpu->ops.abandon = abandon;
	for (uint64_t i = 1; i <= 2; i++) {
		put(&scene, i);
		task = compute(&scene, HEAD);
		if (i == 2) {
			atomic_store(&task->state, EXEC_RUNNING);
			end(&scene, cpu, HEAD, 0);
			task = compute(&scene, LEFT);
			assert_true(exec_task_begin(cpu->tasks[find(&scene, cpu, RIGHT)]));
		}
		cancel(&scene, i, 0);
		atomic_store(&task->state, EXEC_RUNNING);
		fake_finish_all(cpu, 0);
		rig_work(&scene.bench.rig);
		expect_cqe(&scene.bench, i, -ECANCELED);
		assert_int_equal(cpu->n_tasks, 0);
	}

	put(&scene, 3);
	for (uint32_t i = HEAD; i < TAIL; i++)
		end(&scene, cpu, i, 0);
	task = compute(&scene, TAIL);
	cancel(&scene, 3, -EALREADY);
	atomic_store(&task->state, EXEC_RUNNING);
	end(&scene, cpu, TAIL, 0);
	expect_cqe(&scene.bench, 3, 0);
}

/* A plan in parts is carried through on its device, once it has begun there. */
TEST(test_branches__failure_between_parts)
{
	const struct exec_task *left;
	struct bench *bench;

	SCENE(scene);
	bench = &scene.bench;
	segment_plan(&scene, LEFT)->n_parts[GPU] = 2;
	put_as(&scene, 1, RBK_STRATEGY_ONLY_GPU, 0);
	end(&scene, bench->gpu, HEAD, 0);
	end(&scene, bench->gpu, LEFT, 0);
	left = has(&scene, bench->gpu, LEFT);
	assert_int_equal(left->part, 1);
	end(&scene, bench->gpu, RIGHT, -EDOM);
	assert_int_equal(atomic_load(&left->state), EXEC_QUEUED);
	end(&scene, bench->gpu, LEFT, 0);
	expect_cqe(bench, 1, -EDOM);
}

/* A failure stops what is still queued, and what waits for memory. */
TEST(test_branches__failure_beside_waiting)
{
	struct bench *bench;

	SCENE(scene);
	bench = &scene.bench;
	segment_plan(&scene, RIGHT)->device_state[GPU] = PLAN_DEVICE_EVICTED;
	put_as(&scene, 1, RBK_STRATEGY_ONLY_GPU, 0);
	end(&scene, bench->gpu, HEAD, 0);
	assert_int_equal(bench->rig.residency->n_waiters, 1);
	assert_int_equal(bench->gpu->n_tasks, 1);
	end(&scene, bench->gpu, LEFT, -EDOM);
	expect_cqe(bench, 1, -EDOM);
	assert_int_equal(bench->rig.residency->n_waiters, 0);

	/* The memory is refused: the task fails, although the other branch goes on. */
	put_as(&scene, 2, RBK_STRATEGY_ONLY_GPU, 0);
	end(&scene, bench->gpu, HEAD, 0);
	assert_true(fake_begin(bench->gpu, 2));
	fake_residency_answer_all(bench->rig.residency, -ENOMEM);
	rig_work(&bench->rig);
	expect_none(bench);
	end(&scene, bench->gpu, LEFT, 0);
	expect_cqe(bench, 2, -ENOMEM);

	/* The memory is there: both go on. */
	put_as(&scene, 3, RBK_STRATEGY_ONLY_GPU, 0);
	end(&scene, bench->gpu, HEAD, 0);
	segment_plan(&scene, RIGHT)->device_state[GPU] = PLAN_DEVICE_READY;
	fake_residency_answer_all(bench->rig.residency, 0);
	rig_work(&bench->rig);
	end(&scene, bench->gpu, RIGHT, 0);
	end(&scene, bench->gpu, LEFT, 0);
	end(&scene, bench->gpu, LEFT_END, 0);
	end(&scene, bench->gpu, TAIL, 0);
	expect_cqe(bench, 3, 0);
}

TEST(test_branches__cancel)
{
	struct bench *bench;
	struct fake *cpu;

	SCENE(scene);
	bench = &scene.bench;
	cpu = bench->cpu;
	put(&scene, 1);
	end(&scene, cpu, HEAD, 0);
	cancel(&scene, 1, 0);
	cancel(&scene, 1, -ENOENT);
	end(&scene, cpu, LEFT, 0);
	expect_none(bench);
	end(&scene, cpu, RIGHT, 0);
	expect_cqe(bench, 1, -ECANCELED);
	assert_int_equal(cpu->n_submitted, 3);

	/* One has begun and cannot be stopped: both go on, also the one that was recalled. */
	put(&scene, 2);
	end(&scene, cpu, HEAD, 0);
	assert_true(exec_task_begin(cpu->tasks[find(&scene, cpu, RIGHT)]));
	cancel(&scene, 2, -EALREADY);
	end(&scene, cpu, RIGHT, 0);
	end(&scene, cpu, LEFT, 0);
	while (cpu->n_tasks > 0) {
		fake_finish_at(cpu, 0, 0);
		rig_work(&bench->rig);
	}
	expect_cqe(bench, 2, 0);

	/* Only the other branch is there, in a slot beside the task's own. */
	put(&scene, 3);
	end(&scene, cpu, HEAD, 0);
	end(&scene, cpu, LEFT, 0);
	end(&scene, cpu, LEFT_END, 0);
	cancel(&scene, 3, 0);
	end(&scene, cpu, RIGHT, 0);
	expect_cqe(bench, 3, -ECANCELED);

	/* One waits for memory, the other is queued. */
	segment_plan(&scene, LEFT)->device_state[GPU] = PLAN_DEVICE_EVICTED;
	put_as(&scene, 4, RBK_STRATEGY_ONLY_GPU, 0);
	end(&scene, bench->gpu, HEAD, 0);
	cancel(&scene, 4, 0);
	assert_int_equal(bench->rig.residency->n_waiters, 0);
	end(&scene, bench->gpu, RIGHT, 0);
	expect_cqe(bench, 4, -ECANCELED);
}

/* Branches that an executor has no room for are dequeued. */
TEST(test_branches__cancel_queued)
{
	struct fake *cpu;

	SCENE(scene);
	cpu = scene.bench.cpu;
	put(&scene, 1);
	end(&scene, cpu, HEAD, 0);
	put(&scene, 2);
	cpu->capacity = 3;
	end(&scene, cpu, HEAD, 0);
	assert_int_equal(cpu->n_tasks, 3);
	cancel(&scene, 2, 0);
	while (cpu->n_tasks > 0) {
		fake_finish_at(cpu, 0, 0);
		rig_work(&scene.bench.rig);
	}
	expect_cqe(&scene.bench, 2, -ECANCELED);
	expect_cqe(&scene.bench, 1, 0);
}

TEST(test_branches__ring_closes)
{
	SCENE(scene);
	for (uint64_t i = 1; i <= N_ENTRIES; i++)
		put(&scene, i);
	fake_finish_all(scene.bench.cpu, 0);
	rig_work(&scene.bench.rig);
	segment_plan(&scene, RIGHT)->device_state[GPU] = PLAN_DEVICE_EVICTED;
	/* scene_end() asserts that everything drains. */
	scene.plan = NULL;
}

TEST(test_branches__plan_is_removed)
{
	struct bench *bench;

	SCENE(scene);
	bench = &scene.bench;
	segment_plan(&scene, RIGHT)->device_state[GPU] = PLAN_DEVICE_EVICTED;
	put_as(&scene, 1, RBK_STRATEGY_ONLY_GPU, 0);
	end(&scene, bench->gpu, HEAD, 0);
	assert_int_equal(session_plan_remove(bench->rig.session, 5, scene.plan->id), 0);
	assert_false(rig_has_answer(&bench->rig));
	rig_work(&bench->rig);
	end(&scene, bench->gpu, LEFT, 0);
	expect_cqe(bench, 1, -ECANCELED);
	assert_int_equal(rig_answer(&bench->rig, RBK_WIRE_PLAN_REMOVE, NULL, 0), 0);
	scene.plan = NULL;
}

/* --- walks over tasks --- */

/* The dispatcher that is blamed for a crash while it next ranks segments; NULL: none is. */
static struct dispatch *crashing;

float __real_place_predict_ns(const struct placer *placer, const struct place_plan *place_plan,
			      uint8_t device, uint32_t count);
float __wrap_place_predict_ns(const struct placer *placer, const struct place_plan *place_plan,
			      uint8_t device, uint32_t count);
float __wrap_place_predict_ns(const struct placer *placer, const struct place_plan *place_plan,
			      uint8_t device, uint32_t count)
{
	struct dispatch *dispatch = crashing;

	crashing = NULL;
	if (dispatch)
		dispatch_blame(dispatch, NULL);
	return __real_place_predict_ns(placer, place_plan, device, count);
}

static uint32_t n_crashes_of(const struct scene *scene, uint64_t user_data)
{
	const struct session_ring *ring = scene->bench.ring.ring;

	for (uint32_t i = 0; i < ring->n_entries; i++)
		if (ring->records[i].sqe.user_data == user_data)
			return ring->records[i].n_crashes;
	fail_msg("no record of task %llu", (unsigned long long)user_data);
	return 0;
}

/* A task that gets a set is not blamed for what the set's last task does now. */
TEST(test_branches__crash_while_ranked)
{
	struct rbk_sqe sqe;
	struct bench *bench;

	SCENE(scene);
	bench = &scene.bench;
	/* Segments are ranked with the first task, and with the 65th. */
	for (uint64_t i = 0; i < 64; i++) {
		put_as(&scene, i, RBK_STRATEGY_ONLY_GPU, 0);
		while (bench->gpu->n_tasks > 0) {
			fake_finish_at(bench->gpu, 0, 0);
			rig_work(&bench->rig);
		}
		expect_cqe(bench, i, 0);
	}
	/* The slot in the ring has a task of another plan, which the GPU has begun. */
	sqe = run_entry(bench, bench->queued, 99);
	sqe.strategy = RBK_STRATEGY_ONLY_GPU;
	rig_put(&bench->ring, &sqe);
	rig_work(&bench->rig);
	assert_true(fake_begin(bench->gpu, 99));
	crashing = bench->rig.dispatch;
	put_as(&scene, 100, RBK_STRATEGY_ONLY_GPU, 0);
	assert_null(crashing);
	assert_int_equal(n_crashes_of(&scene, 99), 1);
	assert_int_equal(n_crashes_of(&scene, 100), 0);
	while (bench->gpu->n_tasks > 0) {
		fake_finish_at(bench->gpu, 0, 0);
		rig_work(&bench->rig);
	}
	expect_cqe(bench, 99, 0);
	expect_cqe(bench, 100, 0);
}

/* A device that is drained gives up both branches. */
TEST(test_branches__are_replaced)
{
	struct bench *bench;

	SCENE(scene);
	bench = &scene.bench;
	put_as(&scene, 1, RBK_STRATEGY_PREFER_GPU, 0);
	bench->gpu->capacity = 1;
	end(&scene, bench->gpu, HEAD, 0);
	put_as(&scene, 2, RBK_STRATEGY_PREFER_GPU, 0);
	assert_int_equal(bench->gpu->n_tasks, 1);
	for (uint32_t i = HEAD; i <= TAIL; i++)
		segment_plan(&scene, i)->device_state[GPU] = PLAN_DEVICE_UNSUPPORTED;
	dispatch_replace_begin(bench->rig.dispatch, true);
	rig_work(&bench->rig);
	/* The GPU keeps its one; the others, queued for it, are on the CPU. */
	assert_int_equal(bench->gpu->n_tasks, 1);
	assert_int_equal(bench->cpu->n_tasks, 2);
	while (bench->cpu->n_tasks + bench->gpu->n_tasks > 0) {
		struct fake *fake = bench->gpu->n_tasks > 0 ? bench->gpu : bench->cpu;

		fake_finish_at(fake, 0, 0);
		rig_work(&bench->rig);
	}
	expect_cqe(bench, 1, 0);
	expect_cqe(bench, 2, 0);
}

TEST_MAIN(NULL, NULL)
