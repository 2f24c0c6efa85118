/* SPDX-License-Identifier: MIT */
/*
 * Tests of dispatch/weights.c: tasks that wait until a segment's constants are on a device, and
 * segments that come ahead of them. Devices and residency are fakes; the CPU is slow.
 */
#include <errno.h>

#include "dispatch/dispatch-private.h"
#include "session/segments.h"
#include "support/fake-residency.h"
#include "support/one-op.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"

enum { Y = 4096, WORTH_NS = 100000, TOO_LONG_NS = 500000000 };

struct scene {
	struct bench bench;
	/* bench_chain(), of which the CPU takes 5 ms for each segment and row; NULL: removed */
	struct session_plan *plan;
};

/* Segments are on the GPU, but for those of @evicted, a bit for each. */
static void scene_begin(struct scene *scene, uint32_t evicted, uint64_t bring_ns)
{
	static const struct bench_speed speeds[] = {{.bytes_per_ns = 1e-4f}, {.bytes_per_ns = 1}};
	const struct place_config config = PLACE_CONFIG_DEFAULT;

	bench_begin_placement(&scene->bench, 2, N_ENTRIES, &config, speeds);
	scene->plan = bench_cut_plan(&scene->bench, bench_chain(), bench_chain());
	fake_residency_bring_ns = bring_ns;
	for (uint32_t i = 0; i < 3; i++)
		if (evicted & 1u << i)
			scene->plan->segments->of[i].plan.plan->device_state[GPU] =
				PLAN_DEVICE_EVICTED;
}

static void scene_end(struct scene *scene)
{
	if (scene->plan)
		assert_int_equal(scene->plan->n_in_flight, 0);
	fake_residency_bring_ns = 0;
	bench_end(&scene->bench);
}

#define SCENE(name, ...) SCOPED(scene, name, scene_begin, scene_end, __VA_ARGS__)

static void put(struct scene *scene, uint64_t user_data)
{
	struct rbk_sqe sqe = bench_entry(scene->plan, scene->bench.arena, Y, 1, user_data);

	sqe.strategy = RBK_STRATEGY_DEVICE(GPU);
	rig_put(&scene->bench.ring, &sqe);
	rig_work(&scene->bench.rig);
}

/* End the task's present segment, which must be @segment, on @fake. */
static void end_segment(struct scene *scene, struct fake *fake, uint64_t user_data,
			uint32_t segment)
{
	assert_int_equal(fake->n_tasks, 1);
	assert_ptr_equal(fake->tasks[0]->plan, scene->plan->segments->of[segment].plan.plan);
	finish(&scene->bench, fake, user_data, 0);
}

/* Answer the only request, which must be for @segment, and have the segment there if @res is 0. */
static void answer(struct scene *scene, uint32_t segment, int res)
{
	struct session_plan *plan = &scene->plan->segments->of[segment].plan;
	struct residency *residency = scene->bench.rig.residency;
	struct residency_waiter *waiter = fake_residency_oldest(residency);

	assert_int_equal(residency->n_waiters, 1);
	assert_ptr_equal(waiter->memory, &plan->memory);
	assert_fields(*waiter, (wish, RESIDENCY_STREAM), (device, GPU));
	if (res == 0)
		plan->plan->device_state[GPU] = PLAN_DEVICE_READY;
	fake_residency_answer(residency, waiter, res);
	rig_work(&scene->bench.rig);
}

/* A task waits for its segment if that takes less time than the CPU. */
TEST(test_weights__wait)
{
	struct rbk_cqe cqe;

	SCENE(scene, 1 << 1, WORTH_NS);
	put(&scene, 1);
	end_segment(&scene, scene.bench.gpu, 1, 0);
	assert_int_equal(scene.bench.cpu->n_tasks, 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_true(scene.plan->segments->of[i].plan.memory.is_streamed);
	answer(&scene, 1, 0);
	end_segment(&scene, scene.bench.gpu, 1, 1);
	end_segment(&scene, scene.bench.gpu, 1, 2);
	cqe = expect_cqe(&scene.bench, 1, 0);
	assert_int_equal(cqe.device, GPU);
	assert_int_equal(scene.bench.rig.residency->n_asked, 1);
	assert_int_equal(scene.plan->segments->n_streamed, 1);
}

/* A segment without room runs on the CPU, and the task does not ask for it again. */
TEST(test_weights__no_room)
{
	struct rbk_cqe cqe;

	SCENE(scene, 1 << 1, WORTH_NS);
	put(&scene, 1);
	end_segment(&scene, scene.bench.gpu, 1, 0);
	answer(&scene, 1, -ENOMEM);
	end_segment(&scene, scene.bench.cpu, 1, 1);
	end_segment(&scene, scene.bench.gpu, 1, 2);
	cqe = expect_cqe(&scene.bench, 1, 0);
	assert_int_equal(cqe.reason, RBK_REASON_MEMORY_CONSTRAINT);
	assert_int_equal(scene.bench.rig.residency->n_asked, 1);
	assert_int_equal(scene.plan->segments->n_streamed, 0);
}

/* Nothing is asked for where it is not worth the time, or where no time is known. */
TEST(test_weights__not_worth_it)
{
	static const uint64_t times_ns[] = {0, TOO_LONG_NS};

	for (unsigned int i = 0; i < 2; i++) {
		SCENE(scene, 1 << 1, times_ns[i]);
		put(&scene, 1);
		end_segment(&scene, scene.bench.gpu, 1, 0);
		end_segment(&scene, scene.bench.cpu, 1, 1);
		end_segment(&scene, scene.bench.gpu, 1, 2);
		expect_cqe(&scene.bench, 1, 0);
		assert_int_equal(scene.bench.rig.residency->n_asked, 0);
	}
}

/* The next segment comes while the one before runs, once a task has waited. */
TEST(test_weights__ahead)
{
	SCENE(scene, 1 << 1 | 1 << 2, WORTH_NS);
	put(&scene, 1);
	end_segment(&scene, scene.bench.gpu, 1, 0);
	answer(&scene, 1, 0);
	assert_int_equal(scene.bench.gpu->n_tasks, 1);
	answer(&scene, 2, 0);
	end_segment(&scene, scene.bench.gpu, 1, 1);
	assert_int_equal(scene.bench.rig.residency->n_waiters, 0);
	end_segment(&scene, scene.bench.gpu, 1, 2);
	expect_cqe(&scene.bench, 1, 0);
	assert_int_equal(scene.plan->segments->n_streamed, 2);

	/* A task that comes to a segment before it is there waits for the same load. */
	scene.plan->segments->of[1].plan.plan->device_state[GPU] = PLAN_DEVICE_EVICTED;
	put(&scene, 2);
	assert_int_equal(scene.bench.rig.residency->n_waiters, 1);
	end_segment(&scene, scene.bench.gpu, 2, 0);
	assert_int_equal(scene.bench.rig.residency->n_waiters, 2);
	scene.plan->segments->of[1].plan.plan->device_state[GPU] = PLAN_DEVICE_READY;
	fake_residency_answer_all(scene.bench.rig.residency, 0);
	rig_work(&scene.bench.rig);
	end_segment(&scene, scene.bench.gpu, 2, 1);
	end_segment(&scene, scene.bench.gpu, 2, 2);
	expect_cqe(&scene.bench, 2, 0);
	assert_int_equal(scene.plan->segments->n_streamed, 3);

	/* All are there: nothing comes. */
	put(&scene, 3);
	for (uint32_t i = 0; i < 3; i++)
		end_segment(&scene, scene.bench.gpu, 3, i);
	expect_cqe(&scene.bench, 3, 0);
	assert_int_equal(scene.plan->segments->n_streamed, 3);
}

/* A task that is to use the CPU brings nothing, whatever the tasks before have done. */
TEST(test_weights__task_for_the_cpu)
{
	struct rbk_sqe sqe;

	SCENE(scene, 1 << 1, WORTH_NS);
	put(&scene, 1);
	end_segment(&scene, scene.bench.gpu, 1, 0);
	answer(&scene, 1, 0);
	end_segment(&scene, scene.bench.gpu, 1, 1);
	end_segment(&scene, scene.bench.gpu, 1, 2);
	expect_cqe(&scene.bench, 1, 0);
	scene.plan->segments->of[1].plan.plan->device_state[GPU] = PLAN_DEVICE_EVICTED;
	sqe = bench_entry(scene.plan, scene.bench.arena, Y, 1, 2);
	scene.plan->segments->of[2].came_to = GPU;
	sqe.strategy = RBK_STRATEGY_ONLY_CPU;
	rig_put(&scene.bench.ring, &sqe);
	rig_work(&scene.bench.rig);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(scene.bench.rig.residency->n_waiters, 0);
		end_segment(&scene, scene.bench.cpu, 2, i);
	}
	expect_cqe(&scene.bench, 2, 0);
	assert_int_equal(scene.plan->segments->n_streamed, 1);
	/* A segment that came for it is not for a later task. */
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(scene.plan->segments->of[i].came_to, 0);
}

/* A segment is loaded before the last segments of its plan are entered. */
TEST(test_weights__early_load)
{
	static const char *const names[] = {"x", "a", "b", "c", "d", "e",
					    "f", "g", "h", "i", "j", "y"};
	struct describe *d[2];

	BENCH(bench, 2, N_ENTRIES);
	bench.gpu->prepare_state = PLAN_DEVICE_UNSUPPORTED;
	fake_residency_loads = true;
	for (int k = 0; k < 2; k++) {
		d[k] = describe_new("chain", 8);
		describe_input(d[k], "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
		for (int i = 1; i < 11; i++)
			describe_scratch(d[k], names[i]);
		describe_output(d[k], "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 64));
		for (int i = 0; i < 11; i++)
			describe_node(d[k], i & 1 ? "Abs" : "Neg", "", names[i], names[i + 1]);
	}
	bench_cut_plan(&bench, d[0], d[1]);
	fake_residency_loads = false;
}

/* A task that waits for a segment of a plan that is removed runs on the CPU, like any other. */
TEST(test_weights__plan_of_a_task_is_removed)
{
	SCENE(scene, 1 << 1, WORTH_NS);
	put(&scene, 1);
	end_segment(&scene, scene.bench.gpu, 1, 0);
	assert_int_equal(scene.bench.rig.residency->n_waiters, 1);
	assert_int_equal(session_plan_remove(scene.bench.rig.session, 5, scene.plan->id), 0);
	rig_work(&scene.bench.rig);
	assert_int_equal(scene.bench.rig.residency->n_waiters, 0);
	end_segment(&scene, scene.bench.cpu, 1, 1);
	end_segment(&scene, scene.bench.gpu, 1, 2);
	expect_cqe(&scene.bench, 1, 0);
	scene.plan = NULL;
	assert_int_equal(rig_answer(&scene.bench.rig, RBK_WIRE_PLAN_REMOVE, NULL, 0), 0);
}

/* A plan is removed while a segment comes that no task needs. */
TEST(test_weights__plan_is_removed)
{
	SCENE(scene, 1 << 1 | 1 << 2, WORTH_NS);
	put(&scene, 1);
	end_segment(&scene, scene.bench.gpu, 1, 0);
	answer(&scene, 1, 0);
	end_segment(&scene, scene.bench.gpu, 1, 1);
	/* The task waits for the segment that comes: it is cancelled, and the coming with it. */
	put_cancel(&scene.bench, 2, 1, 0);
	rig_work(&scene.bench.rig);
	expect_cqe(&scene.bench, 2, 0);
	expect_cqe(&scene.bench, 1, -ECANCELED);
	assert_int_equal(scene.bench.rig.residency->n_waiters, 1);
	assert_int_equal(session_plan_remove(scene.bench.rig.session, 5, scene.plan->id), 0);
	rig_work(&scene.bench.rig);
	scene.plan = NULL;
	assert_int_equal(rig_answer(&scene.bench.rig, RBK_WIRE_PLAN_REMOVE, NULL, 0), 0);
	assert_int_equal(scene.bench.rig.residency->n_waiters, 0);
}

TEST_MAIN(NULL, NULL)
