/* SPDX-License-Identifier: MIT */
/* Tests of plans that are cut to save time: server_hooks.cut_begin() and cut_choose() */
#include <stdlib.h>

#include "dispatch/dispatch-private.h"
#include "place/cut-devices.h"
#include "session/segments.h"
#include "support/fake-residency.h"
#include "support/one-op.h"
#include "support/test.h"
#include "unit/dispatch-bench.h"

/* A node of the plan takes 400 us. */
static const struct bench_speed slow[] = {{.bytes_per_ns = .01f}, {.bytes_per_ns = .01f}};

struct scene {
	struct bench bench;
	struct place_config config;
};

static void scene_begin(struct scene *scene)
{
	scene->config = PLACE_CONFIG_DEFAULT;
	scene->config.threshold_bytes = 0;
	scene->config.min_count = 1;
	bench_begin_placement(&scene->bench, 2, N_ENTRIES, &scene->config, slow);
	scene->bench.rig.residency->about.available_bytes = UINT64_MAX;
}

static void scene_end(struct scene *scene)
{
	bench_end(&scene->bench);
}

#define SCENE(name) SCOPED(scene, name, scene_begin, scene_end)

/* Prepare y = -|relu(x)| + |relu(x)|, which has two branches. */
static struct session_plan *prepare(struct scene *scene)
{
	struct describe *d = describe_new("branches", 1);
	struct session_plan *plan;

	describe_input(d, "x", DESCRIBE_DIMS(8, 64));
	describe_scratch(d, "s");
	describe_scratch(d, "a");
	describe_scratch(d, "b");
	describe_scratch(d, "c");
	describe_output(d, "y", DESCRIBE_DIMS(8, 64));
	describe_node(d, "Relu", "", "x", "s");
	describe_node(d, "Abs", "", "s", "a");
	describe_node(d, "Neg", "", "a", "b");
	describe_node(d, "Abs", "", "s", "c");
	describe_node(d, "Add", "", "b,c", "y");
	plan = rig_plan_new(&scene->bench.rig, d);
	plan->inline_max_count = 0;
	return plan;
}

/* A plan that each device could have whole is cut at its branches, and runs on both devices. */
TEST(test_cut__runs)
{
	const struct session_plan *plan;
	struct rbk_sqe sqe;
	struct bench *bench;

	SCENE(scene);
	bench = &scene.bench;
	plan = prepare(&scene);
	assert_non_null(plan->segments);
	/* relu, one branch, the other one, the sum */
	assert_int_equal(plan->segments->n, 4);
	assert_int_equal(plan->segments->n_at_once, 2);
	sqe = bench_entry(plan, bench->arena, 4096, 1, 1);
	rig_put(&bench->ring, &sqe);
	rig_work(&bench->rig);
	assert_int_equal(bench->cpu->n_tasks + bench->gpu->n_tasks, 1);
	fake_finish_at(bench->cpu->n_tasks > 0 ? bench->cpu : bench->gpu, 0, 0);
	rig_work(&bench->rig);
	assert_int_equal(bench->cpu->n_tasks, 1);
	assert_int_equal(bench->gpu->n_tasks, 1);
	while (bench->cpu->n_tasks + bench->gpu->n_tasks > 0) {
		fake_finish_at(bench->gpu->n_tasks > 0 ? bench->gpu : bench->cpu, 0, 0);
		rig_work(&bench->rig);
	}
	expect_cqe(bench, 1, 0);
}

static bool is_cut(struct scene *scene, const struct place_config *config)
{
	placer_configure(scene->bench.rig.dispatch->placer, config);
	return prepare(scene)->segments != NULL;
}

/* Where one device is not there, or takes its time from the other, nothing would be gained. */
TEST(test_cut__devices)
{
	struct placer *placer;
	struct fake *gpu;

	SCENE(scene);
	placer = scene.bench.rig.dispatch->placer;
	gpu = scene.bench.gpu;
	gpu->executor.info.kind = EXECUTOR_SOFTWARE_GPU;
	assert_false(is_cut(&scene, &scene.config));
	gpu->executor.info.kind = EXECUTOR_GPU;
	placer_set_drained(placer, GPU, true);
	assert_false(is_cut(&scene, &scene.config));
	placer_set_drained(placer, GPU, false);
	scene.bench.rig.residency->about.available_bytes = 0;
	assert_false(is_cut(&scene, &scene.config));
	scene.bench.rig.residency->about.available_bytes = UINT64_MAX;
	assert_true(is_cut(&scene, &scene.config));
	placer_set_profile(placer, GPU, &(const struct place_profile){.is_valid = false});
	assert_false(is_cut(&scene, &scene.config));
}

/* The configuration counts as it is when a plan is added. */
TEST(test_cut__configuration)
{
	struct place_config config;

	SCENE(scene);
	config = scene.config;
	config.force_cpu = true;
	assert_false(is_cut(&scene, &config));
	config = scene.config;
	config.threshold_bytes = 1 << 20;
	assert_false(is_cut(&scene, &config));
	config = scene.config;
	config.strategy = RBK_STRATEGY_ENERGY;
	assert_false(is_cut(&scene, &config));
	config = scene.config;
	config.partition_min_gain = 1;
	assert_false(is_cut(&scene, &config));
	assert_true(is_cut(&scene, &scene.config));
}

/* A plan that is cut at random is not cut by time, too. */
TEST(test_cut__random)
{
	SCENE(scene);
	scene.bench.rig.server->options.cut_seed = 1;
	assert_int_equal(prepare(&scene)->cut, RBK_CUT_AT_RANDOM);
	scene.bench.rig.server->options.cut_seed = 0;
	assert_int_equal(prepare(&scene)->cut, RBK_CUT_FASTER);
}

/* The basis, and what the choice takes, are told before they are charged. */
TEST(test_cut__bytes)
{
	enum { DESC_BYTES = 100000 };
	uint64_t bytes = 1;

	SCENE(scene);
	free(dispatch_cut_begin(scene.bench.rig.dispatch, scene.bench.rig.session, DESC_BYTES,
				&bytes));
	assert_int_equal(bytes, 1 + place_cut_bytes(2, DESC_BYTES) +
					sizeof(struct place_cut_basis) +
					2 * sizeof(struct place_cut_device));
}

TEST_MAIN(NULL, NULL)
