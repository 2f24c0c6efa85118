/* SPDX-License-Identifier: MIT */
/* Calibration: with scripted devices and clocks, with the CPU, and with lavapipe. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate/calibrate.h"
#include "cpu/cpu.h"
#include "fail-alloc.h"
#include "support/test.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/waker.h"
#include "vulkan/vulkan.h"

/* ---- A device that takes as long as a model says ---- */

struct script {
	struct executor executor;
	uint64_t now_ns;
	double task_ns, node_ns;
	double flops_per_ns, bytes_per_ns, up_bytes_per_ns; /* up: 0: no link */
	uint64_t setup_ns;                                  /* time to prepare a plan */
	uint64_t first_ns;                                  /* extra time of a plan's first run */
	uint32_t n_servers;                                 /* servers that share a long task */
	int fail_at;                                        /* number of the failing run; 0: none */
	uint32_t unsupported;                               /* mask of op families */

	unsigned int n_runs, n_runs_of_plan, n_prepared;
	int n_plans, n_arenas, n_loaded;
};

static struct script *script_of(struct executor *executor)
{
	return container_of(executor, struct script, executor);
}

static void script_import(struct executor *executor, struct exec_arena *arena)
{
	assert_true(arena->fd >= 0);
	script_of(executor)->n_arenas++;
}

static void script_release_arena(struct executor *executor, struct exec_arena *arena)
{
	script_of(executor)->n_arenas--;
}

static int script_prepare(struct executor *executor, struct plan *plan)
{
	struct script *script = script_of(executor);

	if (script->unsupported >> plan->nodes[0].op->family & 1)
		return EXECUTOR_E_UNSUPPORTED;
	script->now_ns += script->setup_ns;
	script->n_plans++;
	script->n_prepared++;
	script->n_runs_of_plan = 0;
	plan->exec[executor->index] = plan;
	plan->host_bytes[executor->index] = 100;
	plan->footprint[executor->index] = (struct exec_footprint){
		.slot_device_bytes = 5000, .slot_host_bytes = 10, .max_slots = 1};
	return 0;
}

static void script_release(struct executor *executor, struct plan *plan)
{
	if (plan->exec[executor->index])
		script_of(executor)->n_plans--;
	plan->exec[executor->index] = NULL;
}

static int script_load(struct executor *executor, struct plan *plan, const struct exec_load *load)
{
	assert_int_equal(load->n_slots, 1);
	assert_true(load->starts_cold);
	script_of(executor)->n_loaded++;
	return 0;
}

static void script_unload(struct executor *executor, struct plan *plan)
{
	script_of(executor)->n_loaded--;
}

static const struct executor_ops script_ops = {
	.arena_import = script_import,
	.arena_release = script_release_arena,
	.plan_prepare = script_prepare,
	.plan_release = script_release,
	.plan_load = script_load,
	.plan_unload = script_unload,
};

static uint64_t script_now_ns(void *context)
{
	return ((struct script *)context)->now_ns;
}

static double script_work_ns(const struct script *script, const struct plan *plan)
{
	double ns = script->task_ns;

	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		const struct cost *cost = &plan->nodes[i].cost;

		ns += script->node_ns + fmax((double)cost->flops_fixed / script->flops_per_ns,
					     (double)cost->bytes_fixed / script->bytes_per_ns);
	}
	if (script->up_bytes_per_ns > 0)
		ns += (double)plan_touched_bytes(plan, 1) / script->up_bytes_per_ns;
	return ns;
}

static int script_run(void *context, struct executor *executor, struct exec_task *task,
		      uint64_t *ret_exec_ns, uint64_t *ret_busy_ns)
{
	struct script *script = context;
	double busy_ns = script_work_ns(script, task->plan);
	bool is_shared = busy_ns > 60000 && script->n_servers > 1;

	/* The first run takes longer, and every third later one is disturbed. */
	if (script->n_runs_of_plan++ == 0)
		busy_ns += (double)script->first_ns;
	else if (script->n_runs_of_plan % 3 == 0)
		busy_ns *= 3;
	*ret_busy_ns = (uint64_t)busy_ns;
	*ret_exec_ns = is_shared ? *ret_busy_ns / script->n_servers : *ret_busy_ns;
	script->now_ns += *ret_exec_ns;
	return ++script->n_runs == (unsigned int)script->fail_at ? -EIO : 0;
}

static struct calibrate_world script_world(struct script *script)
{
	return (struct calibrate_world){
		.now_ns = script_now_ns, .run = script_run, .context = script};
}

static void script_init(struct script *script, enum executor_kind kind)
{
	*script = (struct script){
		.executor = {.ops = &script_ops,
			     .info = {.kind = kind,
				      .name = "A scripted device",
				      .memory_page_bytes = 4096,
				      .memory_align_bytes = 256,
				      .memory_bytes = 1 << 30},
			     .index = 3},
		.now_ns = 1000000000,
		.task_ns = 10000,
		.node_ns = 2000,
		.flops_per_ns = 1000,
		.bytes_per_ns = 100,
		.n_servers = 1,
	};
}

static void expect_nothing_left(const struct script *script)
{
	assert_fields(*script, (n_plans, 0), (n_arenas, 0), (n_loaded, 0));
}

static bool fit(const struct script *script, const struct calibrate_samples *samples, float link,
		struct place_profile *ret)
{
	struct calibrate_device device;

	calibrate_describe(&script->executor, link, link, &device);
	if (!calibrate_fit(&device, samples, ret))
		return false;
	assert_null(place_profile_refusal(ret));
	return true;
}

static void expect_near(double a, double b)
{
	if (!(fabs(a - b) <= 0.05 * b))
		fail_msg("%g is not near %g", a, b);
}

/* ---- Probes ---- */

/* Every probe is a plan of its family, of about its nominal size. */
TEST(test_probe__sizes)
{
	struct script script;
	struct calibrate_bench bench;

	script_init(&script, EXECUTOR_GPU);
	assert_int_equal(calibrate_bench_init(&bench, &script.executor, CALIBRATE_CLASSES - 1), 0);
	for (unsigned int i = 0; i < CALIBRATE_PROBES; i++) {
		struct calibrate_probe probe = calibrate_probe(i);
		double bytes = (double)(4096ull << 3 * probe.size_class);

		assert_int_equal(calibrate_bench_prepare(&bench, i), 0);
		assert_fields(*bench.plan, (n_nodes, probe.n_nodes),
			      (nodes[0].op->family, probe.family));
		if (!calibrate_probe_is_chain(i)) {
			assert_int_equal(calibrate_probe_index(probe.family, probe.size_class), i);
			if (bench.work.bytes > 1.1 * bytes || bench.work.bytes < 0.6 * bytes)
				fail_msg("probe %u: %g bytes", i, bench.work.bytes);
		}
		for (unsigned int k = 0; k < bench.plan->n_bindings; k++)
			assert_int_equal(bench.refs[k].offset % RBK_REF_ALIGN, 0);
		calibrate_bench_clear(&bench);
		/* A second clear is harmless. */
		calibrate_bench_clear(&bench);
	}
	calibrate_bench_deinit(&bench);
	calibrate_bench_deinit(&bench);
	expect_nothing_left(&script);
}

TEST(test_runs__best_counts)
{
	struct calibrate_runs runs = {.n = 0};

	assert_true(calibrate_runs_add(&runs, 1, 1));
	assert_true(calibrate_runs_add(&runs, 5000000, 0));
	assert_true(calibrate_runs_add(&runs, 3000000, 6000000));
	assert_false(calibrate_runs_add(&runs, 4000000, 4000000));
	assert_float_equal(runs.best.exec_ns, 3000000, 0);
	assert_float_equal(runs.best.busy_ns, 6000000, 0);

	/* A run that takes no time is repeated, but not endlessly, and gets a time above 0. */
	runs = (struct calibrate_runs){.n = 0};
	while (calibrate_runs_add(&runs, 0, 0))
		assert_true(runs.n < 100);
	assert_true(runs.n > 10);
	assert_true(runs.best.exec_ns > 0);
}

/* ---- Measuring ---- */

TEST(test_measure__finds_model)
{
	for (unsigned int variant = 0; variant < 3; variant++) {
		struct calibrate_samples samples = {.measured = 0};
		struct place_profile profile;
		struct calibrate_world world;
		struct script script;

		script_init(&script, variant == 2 ? EXECUTOR_CPU : EXECUTOR_GPU);
		world = script_world(&script);
		script.setup_ns = 1000000;
		script.first_ns = 100000000;
		if (variant == 1)
			script.up_bytes_per_ns = 10;
		if (variant == 2) {
			script.executor.info.n_threads = script.n_servers = 4;
			script.executor.info.share_min_ns = 60000;
			script.task_ns = 100;
			script.node_ns = 200;
		}
		assert_int_equal(calibrate_measure(&world, &script.executor,
						   script.now_ns + 3600000000000, &samples),
				 0);
		expect_nothing_left(&script);
		assert_true(fit(&script, &samples, variant == 1 ? 10 : 0, &profile));
		assert_string_equal(profile.name, "A scripted device");
		expect_near((double)profile.task_ns, script.task_ns);
		expect_near((double)profile.node_ns, script.node_ns);
		assert_fields(profile, (n_servers, variant == 2 ? 4 : 1),
			      (n_servers_per_task, variant == 2 ? 4 : 1));
		assert_float_equal(profile.share_min_ns, variant == 2 ? 60000 : 0, 0);
		assert_float_equal(profile.up_bytes_per_ns, variant == 1 ? 10 : 0, 0);
		/* In small sizes the work hardly shows. */
		for (unsigned int k = 3; k < PLACE_SIZE_CLASSES; k++) {
			expect_near((double)profile.rates[OP_FAMILY_MATMUL][k].flops_per_ns, 1000);
			expect_near((double)profile.rates[OP_FAMILY_GEMM][k].flops_per_ns, 1000);
			expect_near((double)profile.rates[OP_FAMILY_ELEMENTWISE][k].bytes_per_ns,
				    100);
			expect_near((double)profile.rates[OP_FAMILY_TRANSPOSE][k].bytes_per_ns,
				    100);
			/* The other ceiling is known from other families. */
			expect_near((double)profile.rates[OP_FAMILY_MATMUL][k].bytes_per_ns, 100);
			expect_near((double)profile.rates[OP_FAMILY_ELEMENTWISE][k].flops_per_ns,
				    1000);
		}
	}
}

/* No probe begins after the deadline, nor one that would take too long by earlier probes. */
TEST(test_measure__budget)
{
	static const uint64_t costs_ns[] = {0, 1000000, 20000000, 90000000, 400000000};
	unsigned int n_before = CALIBRATE_PROBES + 1;

	for (unsigned int i = 0; i < ARRAY_SIZE(costs_ns); i++) {
		struct calibrate_samples samples = {.measured = 0};
		struct place_profile profile;
		struct calibrate_world world;
		struct script script;
		uint64_t begin_ns, n;

		script_init(&script, EXECUTOR_GPU);
		world = script_world(&script);
		script.setup_ns = costs_ns[i];
		begin_ns = script.now_ns;
		assert_int_equal(
			calibrate_measure(&world, &script.executor, begin_ns + 250000000, &samples),
			0);
		expect_nothing_left(&script);
		/* A first probe, whose time is unknown, may take too long. */
		n = script.now_ns - begin_ns;
		assert_true(n <= 250000000 || script.n_prepared == 1);
		assert_true(n <= 250000000 + costs_ns[i]);
		n = (uint64_t)__builtin_popcountll(samples.measured);
		/* No time is left unused: another probe would not have fitted. */
		assert_true(n == script.n_prepared || script.n_prepared == 1);
		assert_true(n <= n_before);
		n_before = (unsigned int)n;
		if (costs_ns[i] <= 90000000) {
			assert_true(n >= 2);
			assert_true(samples.measured &
				    1ull << calibrate_probe_index(OP_FAMILY_MATMUL, 3));
			assert_true(samples.measured &
				    1ull << calibrate_probe_index(OP_FAMILY_ELEMENTWISE, 3));
			assert_true(fit(&script, &samples, 0, &profile));
		}
	}
}

TEST(test_measure__no_time)
{
	struct calibrate_samples samples = {.measured = 0};
	struct place_profile profile;
	struct calibrate_world world;
	struct script script;

	script_init(&script, EXECUTOR_GPU);
	world = script_world(&script);
	assert_int_equal(calibrate_measure(&world, &script.executor, script.now_ns, &samples), 0);
	assert_int_equal(calibrate_measure(&world, &script.executor, 0, &samples), 0);
	assert_int_equal(script.n_prepared, 0);
	assert_int_equal(samples.measured, 0);
	assert_false(fit(&script, &samples, 0, &profile));
}

/* Nothing is left on the device, whichever run fails. */
TEST(test_measure__device_fails)
{
	for (int n = 1; n < 60; n += n < 5 ? 1 : 13) {
		struct calibrate_samples samples = {.measured = 0};
		struct calibrate_world world;
		struct script script;

		script_init(&script, EXECUTOR_GPU);
		world = script_world(&script);
		script.fail_at = n;
		assert_int_equal(
			calibrate_measure(&world, &script.executor, UINT64_MAX / 2, &samples),
			-EIO);
		assert_int_equal(script.n_runs, n);
		expect_nothing_left(&script);
	}
}

/* A device that lacks operators gets estimates for them, which are never used. */
TEST(test_measure__unsupported)
{
	struct calibrate_samples samples = {.measured = 0};
	struct place_profile profile;
	struct calibrate_world world;
	struct script script;

	script_init(&script, EXECUTOR_GPU);
	world = script_world(&script);
	script.unsupported = 1u << OP_FAMILY_MATMUL | 1u << OP_FAMILY_SELECTION;
	assert_int_equal(calibrate_measure(&world, &script.executor, UINT64_MAX / 2, &samples), 0);
	expect_nothing_left(&script);
	assert_true(fit(&script, &samples, 0, &profile));
	expect_near((double)profile.rates[OP_FAMILY_ACTIVATION][3].bytes_per_ns, 100);

	samples.measured = 0;
	script.unsupported = UINT32_MAX;
	assert_int_equal(calibrate_measure(&world, &script.executor, UINT64_MAX / 2, &samples), 0);
	assert_false(fit(&script, &samples, 0, &profile));
}

TEST(test_measure__no_memory)
{
	for (unsigned int n = 1; n < 2000; n++) {
		struct calibrate_samples samples = {.measured = 0};
		struct calibrate_world world;
		struct script script;
		int r;

		script_init(&script, EXECUTOR_GPU);
		world = script_world(&script);
		/* Only the first few probes fit. */
		script.setup_ns = 100000000;
		fail_alloc_at(n);
		r = calibrate_measure(&world, &script.executor, script.now_ns + 250000000,
				      &samples);
		expect_nothing_left(&script);
		if (!fail_alloc_stop()) {
			assert_int_equal(r, 0);
			return;
		}
		assert_int_equal(r, -ENOMEM);
	}
	fail();
}

/* Figures stay possible, whatever times a clock gives. */
TEST(test_fit__hostile_samples)
{
	static const float times[] = {1e-30f, 1, 1e18f, 3e38f};

	for (unsigned int i = 0; i < ARRAY_SIZE(times) * ARRAY_SIZE(times); i++) {
		struct calibrate_samples samples = {.measured = 0};
		struct place_profile profile;
		struct script script;

		script_init(&script, i % 2 ? EXECUTOR_GPU : EXECUTOR_CPU);
		for (unsigned int k = 0; k < CALIBRATE_PROBES; k++) {
			samples.measured |= 1ull << k;
			samples.of[k] = (struct calibrate_sample){
				.work = {1, 1e9, 1e6, 1e6, 1e6},
				.exec_ns = times[(i + k) % ARRAY_SIZE(times)],
				.busy_ns = times[(i / 4 + k) % ARRAY_SIZE(times)],
			};
		}
		assert_true(fit(&script, &samples, i % 3 ? 1 : 1e-30f, &profile));
	}
}

/* One sample of either reference family is enough for a whole profile, by kind of device. */
TEST(test_fit__one_sample)
{
	for (unsigned int family = 0; family < 2; family++) {
		const enum op_family reference = family ? OP_FAMILY_MATMUL : OP_FAMILY_ELEMENTWISE;
		unsigned int index = calibrate_probe_index(reference, 3);
		struct calibrate_samples samples = {.measured = 1ull << index};
		struct place_profile gpu, cpu;
		struct script script;

		samples.of[index] = (struct calibrate_sample){
			.work = {1, 1e8, 1e6, 1e6, 1e6}, .exec_ns = 1e6f, .busy_ns = 1e6f};
		script_init(&script, EXECUTOR_GPU);
		assert_true(fit(&script, &samples, 0, &gpu));
		script.executor.info.kind = EXECUTOR_CPU;
		assert_true(fit(&script, &samples, 0, &cpu));
		assert_true(gpu.task_ns > cpu.task_ns);
		assert_true(gpu.rates[OP_FAMILY_REDUCTION][0].bytes_per_ns <
			    cpu.rates[OP_FAMILY_REDUCTION][0].bytes_per_ns);
		samples.measured = 1ull << calibrate_probe_index(OP_FAMILY_SOFTMAX, 3);
		assert_false(fit(&script, &samples, 0, &cpu));
	}
}

/* ---- Real devices ---- */

TEST(test_real__cpu)
{
	const struct cpu_options options = {.n_workers = 2, .no_pin = true};
	struct calibrate_samples samples = {.measured = 0};
	struct calibrate_device device;
	struct place_profile profile;
	struct calibrate_world world;
	struct executor *executor;
	struct waker waker;

	assert_int_equal(waker_init(&waker), 0);
	assert_int_equal(cpu_executor_new(&options, &waker, &executor), 0);
	executor->index = RBK_DEVICE_CPU;
	world = calibrate_world_real(&waker);
	assert_int_equal(
		calibrate_measure(&world, executor, clock_now_ns() + 20000000000, &samples), 0);
	/* Every family at four sizes, addition at five. */
	assert_int_equal(__builtin_popcountll(samples.measured), OP_FAMILY_COUNT * 4 + 1 + 2);
	calibrate_describe(executor, 1, 1, &device);
	assert_true(calibrate_fit(&device, &samples, &profile));
	assert_null(place_profile_refusal(&profile));
	assert_int_equal(profile.n_servers, 2);
	/* The CPU uses clients' memory in place. */
	assert_float_equal(profile.up_bytes_per_ns, 0, 0);
	assert_int_equal(profile.memory_bytes, 0);
	executor->ops->free(executor);
	waker_deinit(&waker);
}

/*
 * Calibrate a Vulkan device.
 * Return: true if such a device exists.
 */
static bool measures(enum vulkan_mode mode)
{
	const struct vulkan_options options = {.mode = mode};
	struct calibrate_samples samples = {.measured = 0};
	struct calibrate_device device;
	struct place_profile profile;
	struct calibrate_world world;
	struct executor *executor;
	struct vulkan *vulkan;
	struct vulkan_usage usage;
	struct waker waker;

	assert_int_equal(waker_init(&waker), 0);
	assert_int_equal(vulkan_open(&options, &waker, &vulkan), 0);
	if (vulkan_n_executors(vulkan) == 0) {
		vulkan_free(vulkan);
		waker_deinit(&waker);
		return false;
	}
	executor = vulkan_executor(vulkan, 0);
	executor->index = RBK_DEVICE_GPU;
	world = calibrate_world_real(&waker);
	assert_int_equal(calibrate_measure(&world, executor, clock_now_ns() + 700000000, &samples),
			 0);
	vulkan_usage(executor, &usage);
	assert_fields(usage, (device_bytes, 0), (n_imports, 0));
	calibrate_describe(executor, 1, 1, &device);
	/* Pipeline compilation may have taken all of the time. */
	if (calibrate_fit(&device, &samples, &profile)) {
		const bool is_card =
			executor->info.kind == EXECUTOR_GPU && !executor->info.is_integrated;

		assert_null(place_profile_refusal(&profile));
		assert_float_equal(profile.up_bytes_per_ns, is_card ? 1 : 0, 0);
		assert_int_equal(profile.memory_bytes, executor->info.memory_bytes);
	}
	executor->ops->free(executor);
	vulkan_free(vulkan);
	waker_deinit(&waker);
	return true;
}

TEST(test_real__lavapipe)
{
	if (!measures(VULKAN_SOFTWARE))
		skip();
}

TEST(test_real__gpu)
{
	if (!measures(VULKAN_AUTO))
		skip();
}

/* ---- While clients are served ---- */

/* A broker that runs one step after the other. */
struct served {
	struct script scripts[2];
	struct executor *executors[2];
	struct calibrator *calibrator;

	calibrate_step_fn *run, *done;
	void *data;
	struct exec_task *task; /* the running task */
	struct executor *executor;
	uint64_t device_bytes[2], host_bytes[2], most_device_bytes;
	/* limits from which charges are rejected; 0: none */
	uint64_t refuse_device_bytes, refuse_host_bytes;
	unsigned int n_steps;

	unsigned int n_results, n_failures;
	struct calibrate_samples samples;
};

static void served_setup(void *context, calibrate_step_fn *run, calibrate_step_fn *done, void *data)
{
	struct served *served = context;

	assert_null(served->done);
	served->run = run;
	served->done = done;
	served->data = data;
}

static bool served_charge(void *context, struct executor *executor, uint64_t device_bytes,
			  uint64_t host_bytes)
{
	struct served *served = context;
	unsigned int i = executor == served->executors[1];

	if ((served->refuse_device_bytes && device_bytes >= served->refuse_device_bytes) ||
	    (served->refuse_host_bytes && host_bytes >= served->refuse_host_bytes))
		return false;
	served->device_bytes[i] = device_bytes;
	served->host_bytes[i] = host_bytes;
	if (device_bytes > served->most_device_bytes)
		served->most_device_bytes = device_bytes;
	return true;
}

static void served_run(void *context, struct executor *executor, struct exec_task *task,
		       calibrate_step_fn *done, void *data)
{
	struct served *served = context;
	struct script *script = script_of(executor);

	/* The plan is loaded and charged before the run. */
	assert_int_equal(script->n_loaded, 1);
	assert_true(served->device_bytes[executor == served->executors[1]] >= 5000);
	served_setup(context, NULL, done, data);
	served->task = task;
	served->executor = executor;
}

static void served_result(void *context, struct executor *executor,
			  const struct calibrate_samples *samples)
{
	struct served *served = context;

	served->n_results++;
	if (samples)
		served->samples = *samples;
	else
		served->n_failures++;
}

static void served_init(struct served *served)
{
	const struct calibrate_ops ops = {
		.setup = served_setup,
		.charge = served_charge,
		.run = served_run,
		.result = served_result,
		.context = served,
	};

	*served = (struct served){.task = NULL};
	for (unsigned int i = 0; i < 2; i++) {
		script_init(&served->scripts[i], EXECUTOR_GPU);
		served->scripts[i].executor.index = (uint8_t)i;
		served->executors[i] = &served->scripts[i].executor;
	}
	assert_int_equal(calibrator_new(&ops, served->executors, 2, &served->calibrator), 0);
}

static void run_task(struct served *served)
{
	struct exec_task *task = served->task;
	uint64_t exec_ns, busy_ns;

	served->task = NULL;
	task->res =
		script_run(script_of(served->executor), served->executor, task, &exec_ns, &busy_ns);
	task->start_ticks = 1;
	task->end_ticks = 1 + clock_ns_to_ticks(exec_ns);
	task->busy_ticks = 0;
}

/* Return: true if there was a step to run. */
static bool served_step(struct served *served)
{
	calibrate_step_fn *done = served->done;

	if (!done)
		return false;
	served->n_steps++;
	served->done = NULL;
	if (served->task)
		run_task(served);
	else
		served->run(served->data);
	done(served->data);
	return true;
}

static void served_deinit(struct served *served)
{
	assert_false(calibrator_is_busy(served->calibrator));
	for (unsigned int i = 0; i < 2; i++) {
		expect_nothing_left(&served->scripts[i]);
		assert_fields(*served, (device_bytes[i], 0), (host_bytes[i], 0));
	}
	calibrator_free(served->calibrator);
}

TEST(test_calibrator__measures)
{
	struct served served;
	struct place_profile profile;

	served_init(&served);
	assert_false(calibrator_is_busy(served.calibrator));
	calibrator_start(served.calibrator, 3);
	assert_true(calibrator_is_busy(served.calibrator));
	while (served_step(&served))
		;
	assert_fields(served, (n_results, 2), (n_failures, 0), (most_device_bytes, 8192));
	assert_int_equal(__builtin_popcountll(served.samples.measured), CALIBRATE_PROBES);
	assert_true(fit(&served.scripts[1], &served.samples, 0, &profile));
	expect_near((double)profile.rates[OP_FAMILY_MATMUL][4].flops_per_ns, 1000);
	expect_near((double)profile.rates[OP_FAMILY_ACTIVATION][4].bytes_per_ns, 100);
	served_deinit(&served);
}

/* The calibrator does not begin tasks that would delay clients for too long. */
TEST(test_calibrator__slow_device)
{
	struct served served;

	served_init(&served);
	served.scripts[0].flops_per_ns = 10;
	calibrator_start(served.calibrator, 1);
	while (served_step(&served))
		;
	assert_int_equal(served.n_results, 1);
	/* 3.3 GFLOP would take a third of a second. */
	assert_false(served.samples.measured >> calibrate_probe_index(OP_FAMILY_MATMUL, 4) & 1);
	assert_true(served.samples.measured >> calibrate_probe_index(OP_FAMILY_MATMUL, 2) & 1);
	served_deinit(&served);
}

/* A calibrator that is stopped at any step leaves nothing behind and reports nothing. */
TEST(test_calibrator__stops)
{
	for (unsigned int n = 0; n < 90; n += n < 12 ? 1 : 17) {
		struct served served;

		served_init(&served);
		calibrator_start(served.calibrator, 2);
		while (served.n_steps < n)
			assert_true(served_step(&served));
		calibrator_stop(served.calibrator);
		while (served_step(&served))
			;
		/* Only the current step, clear and close follow. */
		assert_true(served.n_steps <= n + 3);
		assert_int_equal(served.n_results, 0);
		calibrator_start(served.calibrator, 1);
		assert_false(calibrator_is_busy(served.calibrator));
		served_deinit(&served);
	}
}

TEST(test_calibrator__device_fails)
{
	for (int n = 1; n < 40; n += 9) {
		struct served served;

		served_init(&served);
		served.scripts[0].fail_at = n;
		calibrator_start(served.calibrator, 3);
		while (served_step(&served))
			;
		/* The other device is still measured. */
		assert_fields(served, (n_results, 2), (n_failures, 1));
		assert_int_equal(__builtin_popcountll(served.samples.measured), CALIBRATE_PROBES);
		served_deinit(&served);
	}
}

TEST(test_calibrator__too_much)
{
	struct served served;

	/* No plan can be loaded: nothing is measured, which is not a failure. */
	served_init(&served);
	served.refuse_device_bytes = 1;
	calibrator_start(served.calibrator, 1);
	while (served_step(&served))
		;
	assert_fields(served, (n_results, 1), (n_failures, 0), (samples.measured, 0));
	served_deinit(&served);

	/* There is no memory for the tensors. */
	served_init(&served);
	served.refuse_host_bytes = 1;
	calibrator_start(served.calibrator, 3);
	assert_false(served_step(&served));
	assert_fields(served, (n_results, 2), (n_failures, 2));
	served_deinit(&served);
}

TEST_MAIN(NULL, NULL, clock_init())
