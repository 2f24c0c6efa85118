/* SPDX-License-Identifier: MIT */
/*
 * Tests of dispatch/stream-hot.c: tasks whose rows stream through the segments of a plan in
 * micro-batches, when that is worth it, and every way in which they end. Devices and residency are
 * fakes.
 */
#include <errno.h>
#include <string.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/segment.h"
#include "session/segments.h"
#include "support/one-op.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"

enum {
	WIDE = 16,
	ROW_BYTES = WIDE * sizeof(float),
	MAX_ROWS = 600,
	ARENA_BYTES = 131072,
	Y = 65536, /* offset of the output in the arena */
	N_SEGMENTS = 3,
	MOST_SEGMENTS = 5,
	BLOCKS_BYTES = 4 << 20, /* of the crossing blocks */
};

#define ALL_FEATURES (RBK_FEAT_RESIDENCY | RBK_FEAT_PARTITION | RBK_FEAT_STRATEGIES)

struct scene {
	struct bench bench;
	struct session_arena *arena;
	struct session_plan *plan;
	/* By segment and row: where the row of its output lies, if the segment computed it */
	struct {
		uint64_t offset;
		unsigned int n;
	} done[MOST_SEGMENTS][MAX_ROWS];
	unsigned int n_runs[MOST_SEGMENTS];
	/* By words of the crossing blocks: row and segment that have written it */
	uint32_t words[BLOCKS_BYTES / 4];
	bool was_on_both; /* devices at the same time */
};

/* y = -|relu(x)| */
static struct describe *chain(void)
{
	struct describe *d = describe_new("chain", MAX_ROWS);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, WIDE));
	describe_scratch(d, "a");
	describe_scratch(d, "b");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, WIDE));
	describe_node(d, "Relu", "", "x", "a");
	describe_node(d, "Abs", "", "a", "b");
	describe_node(d, "Neg", "", "b", "y");
	return d;
}

static struct plan *segment_plan(const struct scene *scene, uint32_t segment)
{
	return scene->plan->segments->of[segment].plan.plan;
}

/* Let a segment run on one device only. */
static void keep_on(struct scene *scene, uint32_t segment, uint8_t device)
{
	segment_plan(scene, segment)->device_state[device] = PLAN_DEVICE_READY;
	segment_plan(scene, segment)->device_state[CPU + GPU - device] = PLAN_DEVICE_UNSUPPORTED;
}

/*
 * A row takes 100 us in each segment, less on a faster GPU. The first runs on the CPU only, the
 * others on the GPU only.
 */
static void begin_as(struct scene *scene, float min_gain, float gpu_speedup)
{
	const struct bench_speed speeds[] = {{.bytes_per_ns = 0.00128f},
					     {.bytes_per_ns = 0.00128f * gpu_speedup}};
	struct place_config config = PLACE_CONFIG_DEFAULT;

	memset(scene, 0, sizeof(*scene));
	config.partition_min_bytes = 4096;
	/* All rows of a segment run at once. */
	config.submission_max_ns = 1000000000;
	config.partition_min_gain = min_gain;
	bench_begin_placement(&scene->bench, 2, N_ENTRIES, &config, speeds);
	scene->bench.rig.session->features = ALL_FEATURES;
	scene->bench.cpu->row_ns = scene->bench.gpu->row_ns = 100000;
	scene->arena = rig_arena_new(&scene->bench.rig, ARENA_BYTES, false);
	scene->plan = bench_cut_plan(&scene->bench, chain(), chain());
	scene->plan->segments->is_random = false;
	keep_on(scene, 0, CPU);
	keep_on(scene, 1, GPU);
	keep_on(scene, 2, GPU);
}

static void scene_begin(struct scene *scene)
{
	begin_as(scene, 0.2f, 1);
}

/* Assert that nothing is left of any task. */
static void scene_end(struct scene *scene)
{
	uint32_t n_free = 0;

	for (const struct segment_set *set = scene->plan->segments->free_sets; set; set = set->next)
		n_free++;
	assert_int_equal(n_free, scene->plan->segments->n_sets);
	assert_int_equal(scene->plan->n_in_flight, 0);
	assert_int_equal(scene->arena->n_in_flight, 0);
	bench_end(&scene->bench);
}

#define SCENE(name) SCOPED(scene, name, scene_begin, scene_end)

static void put_as(struct scene *scene, uint64_t user_data, uint32_t count, uint8_t strategy,
		   uint8_t flags)
{
	struct rbk_sqe sqe = bench_entry(scene->plan, scene->arena, Y, count, user_data);

	sqe.strategy = strategy;
	sqe.flags = flags;
	rig_put(&scene->bench.ring, &sqe);
	rig_work(&scene->bench.rig);
}

static void put(struct scene *scene, uint64_t user_data, uint32_t count)
{
	put_as(scene, user_data, count, RBK_STRATEGY_AUTO, RBK_SQE_PARTITION);
}

/* Return how many segments of tasks and micro-batches have been placed and not returned. */
static uint32_t n_begun(const struct scene *scene)
{
	return scene->bench.rig.dispatch->n_queued + scene->bench.rig.dispatch->n_submitted;
}

/*
 * Return the first row of a submission: of the first segment by its place in the client's input, of
 * others by what the segment before has written there.
 */
static uint32_t first_row(const struct scene *scene, const struct exec_task *task, uint32_t segment)
{
	uint64_t offset = task->refs[0].offset;

	if (segment == 0)
		return (uint32_t)(offset / ROW_BYTES);
	for (uint32_t i = 0; i < MAX_ROWS; i++)
		if (scene->done[segment - 1][i].n > 0 &&
		    scene->done[segment - 1][i].offset == offset)
			return i;
	fail_msg("segment %u reads what no segment has written", segment);
	return 0;
}

/* Write a row of a tensor that crosses, or assert that it still has what segment @i has written. */
static void use_words(struct scene *scene, const struct exec_task *task, uint32_t binding,
		      uint32_t first, uint32_t i, bool writes)
{
	const uint32_t row_bytes = (uint32_t)task->plan->bindings[binding].row_bytes;
	const uint64_t from = task->refs[binding].offset;

	if (task->refs[binding].arena != &scene->plan->segments->arena)
		return;
	assert_true(from + (uint64_t)task->count * row_bytes <= scene->plan->segments->arena.bytes);
	assert_true(scene->plan->segments->arena.bytes <= BLOCKS_BYTES);
	for (uint32_t at = 0; at < task->count * row_bytes; at += 4) {
		uint32_t *word = &scene->words[(from + at) / 4];
		const uint32_t stamp = (first + at / row_bytes) << 8 | (i + 1);

		if (writes)
			*word = stamp;
		else
			assert_int_equal(*word, stamp);
	}
}

/* Complete the oldest submission of a fake, and note its rows. */
static void step(struct scene *scene, struct fake *fake, int res)
{
	const struct exec_task *task = fake->tasks[0];
	uint32_t segment = 0, first;

	assert_true(fake->n_tasks > 0);
	while (task->plan != segment_plan(scene, segment))
		segment++;
	first = first_row(scene, task, segment);
	if (segment > 0)
		use_words(scene, task, 0, first, segment - 1, false);
	use_words(scene, task, 1, first, segment, true);
	for (uint32_t i = first; i < first + task->count; i++) {
		assert_true(i < MAX_ROWS);
		assert_true(segment == 0 || scene->done[segment - 1][i].n == 1);
		scene->done[segment][i].offset =
			task->refs[1].offset + (i - first) * task->plan->bindings[1].row_bytes;
		scene->done[segment][i].n += res == 0;
		if (segment + 1 == scene->plan->segments->n)
			assert_int_equal(scene->done[segment][i].offset,
					 Y + i * task->plan->bindings[1].row_bytes);
	}
	scene->n_runs[segment]++;
	scene->was_on_both |= scene->bench.cpu->n_tasks > 0 && scene->bench.gpu->n_tasks > 0;
	fake_finish_at(fake, 0, res);
	rig_work(&scene->bench.rig);
}

/* Run all that is left, of both devices by turns. */
static void run_all(struct scene *scene)
{
	struct fake *cpu = scene->bench.cpu, *gpu = scene->bench.gpu;

	for (unsigned int i = 0; cpu->n_tasks + gpu->n_tasks > 0; i++)
		step(scene, cpu->n_tasks == 0 || (gpu->n_tasks > 0 && i % 2) ? gpu : cpu, 0);
}

/* Assert that each segment has computed each of @count rows once, in @n_batches submissions. */
static void expect_rows(struct scene *scene, uint32_t count, uint32_t n_batches)
{
	for (uint32_t s = 0; s < scene->plan->segments->n; s++) {
		assert_int_equal(scene->n_runs[s], n_batches);
		for (uint32_t i = 0; i < MAX_ROWS; i++)
			assert_int_equal(scene->done[s][i].n, i < count);
	}
	memset(scene->done, 0, sizeof(scene->done));
	memset(scene->n_runs, 0, sizeof(scene->n_runs));
}

/* --- rows --- */

TEST(test_stream__each_row_once)
{
	static const uint32_t counts[] = {600, 512, 401, 599};
	struct rbk_stats_segment segment = {.sequence = 0};
	struct rbk_stats_view view = {.page = NULL};
	const struct stats_tenant *tenant;
	struct rbk_cqe cqe;
	uint64_t n = 0;

	SCENE(scene);
	tenant = scene.plan->stats.tenant;
	while (!tenant->page.header)
		rig_settle(&scene.bench.rig);
	assert_true(rbk_stats_view(&view, tenant->page.header, tenant->page.bytes));
	for (uint64_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		uint32_t n_rows, n_batches;

		put(&scene, i, counts[i]);
		n_rows = scene.bench.cpu->tasks[0]->count;
		n_batches = (counts[i] - 1) / n_rows + 1;
		assert_in_range(n_batches, CUT_MAX_BATCHES - 2, CUT_MAX_BATCHES);
		/* 4 rows are as long as the alignment of tensors. */
		assert_int_equal(n_rows % 4, 0);
		/* As many as may run at once have begun. */
		assert_int_equal(n_begun(&scene), SEGMENTS_AT_ONCE);
		run_all(&scene);
		cqe = expect_cqe(&scene.bench, i, 0);
		assert_int_equal(cqe.flags & RBK_CQE_PARTITIONED, RBK_CQE_PARTITIONED);
		assert_true(scene.was_on_both);
		expect_rows(&scene, counts[i], n_batches);
		for (uint32_t k = 0; k < n_batches * N_SEGMENTS; k++) {
			const uint32_t batch = k / N_SEGMENTS, rows = counts[i] - batch * n_rows;

			assert_true(rbk_stats_segment(&view, n++, &segment));
			assert_fields(segment, (segment, k % N_SEGMENTS), (batch, batch),
				      (n_batches, n_batches), (n_segments, N_SEGMENTS),
				      (device, k % N_SEGMENTS == 0 ? CPU : GPU));
			assert_int_equal(
				segment.crossed_bytes,
				k % N_SEGMENTS ? ROW_BYTES * (rows < n_rows ? rows : n_rows) : 0);
		}
	}
}

/* y = the sum of many copies of -sum(x): rows of different lengths cross. */
static struct describe *widths(void)
{
	struct describe *d = describe_new("widths", MAX_ROWS);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, WIDE));
	describe_scratch(d, "a");
	describe_scratch(d, "b");
	describe_scratch(d, "c");
	describe_scratch(d, "d");
	describe_output(d, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 1));
	describe_node(d, "ReduceSum", "", "x", "a");
	describe_attr_ints(d, "axes", DESCRIBE_INTS(1));
	describe_node(d, "Neg", "", "a", "b");
	describe_node(d, "Concat", "", "b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b", "c");
	describe_attr_int(d, "axis", 1);
	describe_node(d, "Relu", "", "c", "d");
	describe_node(d, "ReduceSum", "", "d", "y");
	describe_attr_ints(d, "axes", DESCRIBE_INTS(1));
	return d;
}

/*
 * Tensors that one micro-batch uses at different times share bytes, but not with those of another
 * micro-batch, however long their rows are and in whichever order devices end.
 */
TEST(test_stream__rows_of_different_lengths)
{
	struct scene scene;

	for (unsigned int order = 0; order < 3; order++) {
		begin_as(&scene, 0.2f, 1);
		scene.plan = bench_cut_plan(&scene.bench, widths(), widths());
		scene.plan->segments->is_random = true;
		for (uint32_t i = 0; i < scene.plan->segments->n; i++)
			keep_on(&scene, i, i % 2 ? GPU : CPU);
		for (uint32_t count = 577; count <= MAX_ROWS; count += 23) {
			put_as(&scene, count, count, RBK_STRATEGY_PARTITION, 0);
			for (unsigned int i = 0; n_begun(&scene) > 0; i++) {
				struct fake *fakes[] = {scene.bench.cpu, scene.bench.gpu};
				const unsigned int first = order == 2 ? i % 3 == 0 : order;

				step(&scene,
				     fakes[first]->n_tasks > 0 ? fakes[first] : fakes[!first], 0);
			}
			expect_cqe(&scene.bench, count, 0);
			expect_rows(&scene, count, (count - 1) / 80 + 1);
		}
		scene_end(&scene);
	}
}

/* --- whether it is worth it --- */

static void expect_whole(struct scene *scene, uint64_t user_data, uint32_t count)
{
	assert_int_equal(scene->bench.cpu->n_tasks, 1);
	assert_int_equal(scene->bench.cpu->tasks[0]->count, count);
	run_all(scene);
	expect_cqe(&scene->bench, user_data, 0);
	expect_rows(scene, count, 1);
}

/* A task has no micro-batches unless it may be partitioned, is large, and names no device. */
TEST(test_stream__only_if_permitted)
{
	SCENE(scene);
	put_as(&scene, 1, 512, RBK_STRATEGY_AUTO, 0);
	expect_whole(&scene, 1, 512);
	put(&scene, 2, 4096 / (2 * ROW_BYTES) - 1);
	expect_whole(&scene, 2, 4096 / (2 * ROW_BYTES) - 1);
	put_as(&scene, 3, 512, RBK_STRATEGY_PREFER_CPU, RBK_SQE_PARTITION);
	expect_whole(&scene, 3, 512);
	put_as(&scene, 4, 512, RBK_STRATEGY_AUTO, RBK_SQE_PARTITION);
	run_all(&scene);
	expect_cqe(&scene.bench, 4, 0);
	expect_rows(&scene, 512, 8);
}

/* Several tasks of a plan fill the devices; the last of them is alone again. */
TEST(test_stream__only_alone)
{
	SCENE(scene);
	put_as(&scene, 1, 512, RBK_STRATEGY_AUTO, 0);
	put(&scene, 2, 512);
	assert_int_equal(n_begun(&scene), 2);
	while (n_begun(&scene) > 0) {
		struct fake *fake =
			scene.bench.cpu->n_tasks > 0 ? scene.bench.cpu : scene.bench.gpu;

		assert_int_equal(fake->tasks[0]->count, 512);
		fake_finish_at(fake, 0, 0);
		rig_work(&scene.bench.rig);
	}
	expect_cqe(&scene.bench, 1, 0);
	expect_cqe(&scene.bench, 2, 0);
	put(&scene, 3, 512);
	run_all(&scene);
	expect_cqe(&scene.bench, 3, 0);
	expect_rows(&scene, 512, 8);
}

/*
 * The GPU has two of three segments, so that micro-batches end in little more than 2/3 of the time:
 * they are 1.4 times as fast. All on one device gains nothing.
 */
TEST(test_stream__least_gain)
{
	struct scene scene;

	for (unsigned int i = 0; i < 4; i++) {
		begin_as(&scene, i == 0 ? 0.3f : i == 1 ? 0.5f : 0, 1);
		if (i == 2) {
			for (uint32_t k = 1; k < N_SEGMENTS; k++)
				keep_on(&scene, k, CPU);
		}
		/* A task that asks for partition has it for the least gain. */
		put_as(&scene, 1, 512, i == 3 ? RBK_STRATEGY_PARTITION : RBK_STRATEGY_AUTO,
		       i == 3 ? 0 : RBK_SQE_PARTITION);
		if (i == 1 || i == 2) {
			expect_whole(&scene, 1, 512);
		} else {
			run_all(&scene);
			expect_cqe(&scene.bench, 1, 0);
			expect_rows(&scene, 512, 8);
		}
		scene_end(&scene);
	}
}

/* Now and then a task has no micro-batches, so that brokerd learns how long all rows take. */
TEST(test_stream__one_of_many_is_whole)
{
	uint32_t n_whole = 0;

	SCENE(scene);
	for (uint64_t i = 1; i <= 130; i++) {
		put(&scene, i, 512);
		n_whole += scene.bench.cpu->tasks[0]->count == 512;
		run_all(&scene);
		expect_cqe(&scene.bench, i, 0);
		memset(scene.done, 0, sizeof(scene.done));
	}
	assert_int_equal(n_whole, 2);
}

/* A device that has much other work is not there for a stream. */
TEST(test_stream__other_device_is_busy)
{
	struct session_plan *other;
	struct scene scene;
	struct rbk_sqe sqe;

	begin_as(&scene, 0.2f, 4);
	other = bench_relu(&scene.bench, WIDE, MAX_ROWS);
	for (uint32_t i = 1; i < N_SEGMENTS; i++)
		segment_plan(&scene, i)->device_state[CPU] = PLAN_DEVICE_READY;
	for (uint64_t i = 10; i < 20; i++) {
		sqe = bench_entry(other, scene.arena, Y, MAX_ROWS, i);
		sqe.strategy = RBK_STRATEGY_ONLY_GPU;
		rig_put(&scene.bench.ring, &sqe);
	}
	put(&scene, 1, 512);
	for (uint32_t i = 0; i < N_SEGMENTS; i++) {
		assert_int_equal(scene.bench.cpu->n_tasks, 1);
		assert_int_equal(scene.bench.cpu->tasks[0]->count, 512);
		step(&scene, scene.bench.cpu, 0);
	}
	expect_cqe(&scene.bench, 1, 0);
	for (uint64_t i = 10; i < 20; i++) {
		finish(&scene.bench, scene.bench.gpu, i, 0);
		expect_cqe(&scene.bench, i, 0);
	}
	/* It is again once it has none. */
	memset(scene.done, 0, sizeof(scene.done));
	put(&scene, 2, 512);
	assert_true(scene.bench.cpu->tasks[0]->count < 512);
	run_all(&scene);
	expect_cqe(&scene.bench, 2, 0);
	scene_end(&scene);
}

/* Residency compares tenants by their tasks: micro-batches are not several. */
TEST(test_stream__is_wanted_once)
{
	SCENE(scene);
	for (uint32_t i = 1; i <= 3; i++) {
		put_as(&scene, i, 512, RBK_STRATEGY_AUTO, i % 2 ? RBK_SQE_PARTITION : 0);
		run_all(&scene);
		expect_cqe(&scene.bench, i, 0);
		expect_rows(&scene, 512, i % 2 ? 8 : 1);
		assert_int_equal(scene.plan->segments->of[1].plan.memory.n_wanted, i);
	}
}

/* A plan that was cut for a test has micro-batches for the asking, whatever they gain. */
TEST(test_stream__forced)
{
	SCENE(scene);
	scene.plan->segments->is_random = true;
	keep_on(&scene, 1, CPU);
	keep_on(&scene, 2, CPU);
	put_as(&scene, 1, 9, RBK_STRATEGY_PARTITION, 0);
	run_all(&scene);
	expect_cqe(&scene.bench, 1, 0);
	expect_rows(&scene, 9, 3);
	put(&scene, 2, 512);
	expect_whole(&scene, 2, 512);
}

/* --- ends before the end --- */

/* The micro-batches under way return, no other begins, and the task ends once, with an error. */
TEST(test_stream__failure)
{
	SCENE(scene);
	put(&scene, 1, 512);
	step(&scene, scene.bench.cpu, 0);
	step(&scene, scene.bench.cpu, 0);
	step(&scene, scene.bench.gpu, -EDOM);
	expect_none(&scene.bench);
	run_all(&scene);
	expect_cqe(&scene.bench, 1, -EDOM);
	assert_in_range(scene.n_runs[0], 2, 6);
	assert_int_equal(scene.n_runs[2], 0);
	memset(scene.done, 0, sizeof(scene.done));
	memset(scene.n_runs, 0, sizeof(scene.n_runs));

	put(&scene, 2, 512);
	run_all(&scene);
	expect_cqe(&scene.bench, 2, 0);
	expect_rows(&scene, 512, 8);
}

/* The CPU computes what a GPU that fails has left, and the result is whole. */
TEST(test_stream__gpu_fails)
{
	SCENE(scene);
	segment_plan(&scene, 1)->device_state[CPU] = PLAN_DEVICE_READY;
	put_as(&scene, 1, 512, RBK_STRATEGY_PARTITION, 0);
	while (scene.bench.gpu->n_tasks == 0)
		step(&scene, scene.bench.cpu, 0);
	step(&scene, scene.bench.gpu, -EIO);
	scene.n_runs[1]--;
	run_all(&scene);
	assert_int_equal(expect_cqe(&scene.bench, 1, 0).reason, RBK_REASON_CPU_FALLBACK);
	expect_rows(&scene, 512, 8);
}

TEST(test_stream__cancel)
{
	SCENE(scene);
	for (uint64_t i = 1; i < 12; i++) {
		put(&scene, i, 512);
		for (uint64_t k = 1; k < i; k++)
			step(&scene,
			     scene.bench.cpu->n_tasks > 0 && k % 3 ? scene.bench.cpu
			     : scene.bench.gpu->n_tasks > 0        ? scene.bench.gpu
								   : scene.bench.cpu,
			     0);
		put_cancel(&scene.bench, 100, i, 0);
		rig_work(&scene.bench.rig);
		expect_cqe(&scene.bench, 100, 0);
		fake_finish_all(scene.bench.cpu, 0);
		fake_finish_all(scene.bench.gpu, 0);
		rig_work(&scene.bench.rig);
		expect_cqe(&scene.bench, i, -ECANCELED);
		assert_int_equal(scene.bench.cpu->n_tasks + scene.bench.gpu->n_tasks, 0);
		memset(scene.done, 0, sizeof(scene.done));
	}
}

/* A ring that closes takes its micro-batches along. */
TEST(test_stream__ring_closes)
{
	struct rig_ring closing;

	SCENE(scene);
	closing = scene.bench.ring;
	rig_ring_new(&scene.bench.rig, N_ENTRIES, &scene.bench.ring);
	put(&scene, 1, 512);
	step(&scene, scene.bench.cpu, 0);
	assert_int_equal(session_ring_remove(scene.bench.rig.session, 5, scene.bench.ring.ring->id),
			 0);
	rig_work(&scene.bench.rig);
	fake_finish_all(scene.bench.cpu, 0);
	fake_finish_all(scene.bench.gpu, 0);
	rig_work(&scene.bench.rig);
	assert_int_equal(scene.bench.cpu->n_tasks + scene.bench.gpu->n_tasks, 0);
	assert_int_equal(rig_answer(&scene.bench.rig, RBK_WIRE_RING_REMOVE, NULL, 0), 0);
	rig_ring_deinit(&scene.bench.ring);
	scene.bench.ring = closing;
}

/*
 * Branches of each micro-batch may run at once, too. Where that fills the busiest device without
 * micro-batches, there are none.
 */
TEST(test_stream__branches)
{
	struct scene scene;
	struct describe *d[2];

	begin_as(&scene, 0.2f, 1);
	for (unsigned int i = 0; i < 2; i++) {
		d[i] = describe_new("branches", MAX_ROWS);
		describe_input(d[i], "x", DESCRIBE_DIMS(DESCRIBE_COUNT, WIDE));
		describe_scratch(d[i], "a");
		describe_scratch(d[i], "b");
		describe_output(d[i], "y", DESCRIBE_DIMS(DESCRIBE_COUNT, WIDE));
		describe_node(d[i], "Relu", "", "x", "a");
		describe_node(d[i], "Neg", "", "x", "b");
		describe_node(d[i], "Add", "", "a,b", "y");
	}
	scene.plan = bench_cut_plan(&scene.bench, d[0], d[1]);
	assert_int_equal(scene.plan->segments->n_at_once, 2);
	keep_on(&scene, 0, CPU);
	keep_on(&scene, 2, GPU);
	for (uint64_t i = 0; i < 3; i++) {
		uint32_t n = 0;

		keep_on(&scene, 1, i == 2 ? GPU : CPU);
		put_as(&scene, i, 512, RBK_STRATEGY_AUTO, i != 1 ? RBK_SQE_PARTITION : 0);
		assert_int_equal(scene.bench.cpu->tasks[0]->count, i == 0 ? 64 : 512);
		while (scene.bench.cpu->n_tasks + scene.bench.gpu->n_tasks > 0) {
			struct fake *fake =
				scene.bench.cpu->n_tasks > 0 ? scene.bench.cpu : scene.bench.gpu;

			n += fake->tasks[0]->count;
			fake_finish_at(fake, 0, 0);
			rig_work(&scene.bench.rig);
		}
		assert_int_equal(n, 512 * N_SEGMENTS);
		expect_cqe(&scene.bench, i, 0);
	}
	scene_end(&scene);
}
