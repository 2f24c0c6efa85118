/* SPDX-License-Identifier: MIT */
/* Decisions: every rule, its boundary and its reason */
#include <errno.h>

#include "fail-alloc.h"
#include "placer-bench.h"
#include "support/test.h"

enum { CPU = BENCH_CPU, GPU = BENCH_GPU, GPU2 = BENCH_GPU2 };

#define NAMED RBK_STRATEGY_DEVICE

#define expect_placed(bench, count, strategy, device, reason) \
	expect_placed_(bench, count, strategy, device, reason, 0, __LINE__)
/* Expect the reason memory-constraint, with the plan wanted on device @wanted. */
#define expect_wanted(bench, count, strategy, device, wanted)                                \
	expect_placed_(bench, count, strategy, device, RBK_REASON_MEMORY_CONSTRAINT, wanted, \
		       __LINE__)
static void expect_placed_(struct placer_bench *bench, uint32_t count, uint8_t strategy,
			   uint8_t device, uint8_t reason, uint8_t wanted, int line)
{
	struct place_decision decision = placer_bench_decide(bench, count, strategy);

	if (decision.device != device || decision.reason != reason || decision.wanted != wanted)
		fail_msg("line %d: on device %u for reason %u, not on %u for %u; wanted %u, not %u",
			 line, decision.device, decision.reason, device, reason, decision.wanted,
			 wanted);
	if (decision.device != RBK_DEVICE_NONE)
		assert_true(decision.predicted_ns > 0);
}

static int setup(void **state, uint32_t n_devices)
{
	struct placer_bench *bench = test_calloc(1, sizeof(*bench));

	placer_bench_init(bench, n_devices, NULL);
	*state = bench;
	return 0;
}

static int setup_one(void **state)
{
	return setup(state, 1);
}

static int setup_two(void **state)
{
	return setup(state, 2);
}

static int setup_three(void **state)
{
	return setup(state, 3);
}

static int teardown(void **state)
{
	placer_bench_deinit(*state);
	test_free(*state);
	return 0;
}

/* --- automatic --- */

TEST(test_auto__threshold, setup_two, teardown)
{
	struct placer_bench *bench = *state;
	struct place_config config = *placer_config(bench->placer);

	expect_placed(bench, 1, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	expect_placed(bench, 1023, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	expect_placed(bench, 1024, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
	expect_placed(bench, 1u << 31, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
	/* One byte makes the difference. */
	bench->plan.touched_row = 0;
	bench->plan.touched_fixed = (1 << 20) - 1;
	placer_bench_renew(bench);
	expect_placed(bench, 5000, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	bench->plan.touched_fixed++;
	placer_bench_renew(bench);
	expect_placed(bench, 5000, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
	/* With no threshold, the task is still too small for the GPU's start-up time. */
	config.threshold_bytes = 0;
	config.min_count = 0;
	placer_bench_configure(bench, config);
	expect_placed(bench, 10, RBK_STRATEGY_AUTO, CPU, RBK_REASON_COST_MODEL);
}

TEST(test_auto__min_count, setup_two, teardown)
{
	struct placer_bench *bench = *state;
	struct place_config config = *placer_config(bench->placer);

	bench->plan.touched_fixed = 1 << 20;
	bench->node.cost.bytes_fixed = 64 << 20;
	placer_bench_renew(bench);
	expect_placed(bench, 63, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	expect_placed(bench, 64, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
	config.min_count = 1000;
	placer_bench_configure(bench, config);
	expect_placed(bench, 999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	expect_placed(bench, 1000, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
	/* A plan of one row cannot be batched, so min_count does not apply. */
	bench->plan.max_count = 1;
	placer_bench_renew(bench);
	expect_placed(bench, 1, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
}

/* A trusted estimate takes precedence over the threshold. */
TEST(test_auto__below_but_known, setup_two, teardown)
{
	struct placer_bench *bench = *state;

	expect_placed(bench, 1000, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	placer_bench_trust(bench, 1000);
	expect_placed(bench, 1000, RBK_STRATEGY_AUTO, GPU, RBK_REASON_COST_MODEL);
	expect_placed(bench, 30, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	placer_bench_trust(bench, 30);
	expect_placed(bench, 30, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
}

TEST(test_auto__no_gpu, setup_one, teardown)
{
	struct placer_bench *bench = *state;

	expect_placed(bench, 1, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	expect_placed(bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
	/* A plan's state on a device that the broker does not have is ignored. */
	bench->plan.device_state[GPU] = PLAN_DEVICE_READY;
	expect_placed(bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
}

TEST(test_auto__gpu_cannot, setup_two, teardown)
{
	struct placer_bench *bench = *state;

	bench->plan.device_state[GPU] = PLAN_DEVICE_UNSUPPORTED;
	expect_placed(bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
	bench->plan.device_state[GPU] = PLAN_DEVICE_FAILED;
	expect_placed(bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
	bench->plan.device_state[GPU] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_MEMORY_CONSTRAINT);
	/* A small task is below the threshold, whatever the GPU's memory. */
	expect_placed(bench, 1, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
}

TEST(test_auto__second_gpu, setup_three, teardown)
{
	struct placer_bench *bench = *state;

	expect_placed(bench, 9999, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
	bench->plan.device_state[GPU] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(bench, 9999, RBK_STRATEGY_AUTO, GPU2, RBK_REASON_GPU_AVAILABLE);
	bench->plan.device_state[GPU2] = PLAN_DEVICE_UNSUPPORTED;
	expect_placed(bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_MEMORY_CONSTRAINT);
	/* The faster GPU is chosen, not the first. */
	bench->plan.device_state[GPU] = bench->plan.device_state[GPU2] = PLAN_DEVICE_READY;
	placer_set_contention(bench->placer, GPU, 2, bench->now_ns);
	expect_placed(bench, 9999, RBK_STRATEGY_AUTO, GPU2, RBK_REASON_GPU_AVAILABLE);
}

TEST(test_auto__cpu_cannot, setup_two, teardown)
{
	struct placer_bench *bench = *state;

	bench->plan.device_state[CPU] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(bench, 1, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
	expect_placed(bench, 9999, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
	bench->plan.device_state[GPU] = PLAN_DEVICE_UNSUPPORTED;
	expect_placed(bench, 1, RBK_STRATEGY_AUTO, RBK_DEVICE_NONE, RBK_REASON_GPU_UNAVAILABLE);
	expect_placed(bench, 9999, RBK_STRATEGY_AUTO, RBK_DEVICE_NONE, RBK_REASON_GPU_UNAVAILABLE);
}

/* --- preferred and named devices --- */

TEST(test_prefer_gpu__any_size, setup_two, teardown)
{
	struct placer_bench *bench = *state;

	expect_placed(bench, 1, RBK_STRATEGY_PREFER_GPU, GPU, RBK_REASON_USER_PREFERENCE);
	expect_placed(bench, 9999, RBK_STRATEGY_PREFER_GPU, GPU, RBK_REASON_USER_PREFERENCE);
}

TEST(test_prefer_gpu__falls_back, setup_two, teardown)
{
	struct placer_bench *bench = *state;

	bench->plan.device_state[GPU] = PLAN_DEVICE_UNSUPPORTED;
	expect_placed(bench, 9999, RBK_STRATEGY_PREFER_GPU, CPU, RBK_REASON_GPU_UNAVAILABLE);
	bench->plan.device_state[GPU] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(bench, 9999, RBK_STRATEGY_PREFER_GPU, CPU, RBK_REASON_MEMORY_CONSTRAINT);
	bench->plan.device_state[CPU] = PLAN_DEVICE_FAILED;
	expect_placed(bench, 9999, RBK_STRATEGY_PREFER_GPU, RBK_DEVICE_NONE,
		      RBK_REASON_MEMORY_CONSTRAINT);
}

TEST(test_prefer_cpu__any_size, setup_two, teardown)
{
	struct placer_bench *bench = *state;

	expect_placed(bench, 1, RBK_STRATEGY_PREFER_CPU, CPU, RBK_REASON_USER_PREFERENCE);
	expect_placed(bench, 9999, RBK_STRATEGY_PREFER_CPU, CPU, RBK_REASON_USER_PREFERENCE);
}

/*
 * The task runs on the GPU, but the reason is not cpu-fallback ("failed on a GPU, then ran on the
 * CPU").
 */
TEST(test_prefer_cpu__falls_back, setup_two, teardown)
{
	static const uint8_t strategies[] = {RBK_STRATEGY_PREFER_CPU, NAMED(CPU)};
	struct placer_bench *bench = *state;

	for (unsigned int i = 0; i < 2; i++) {
		bench->plan.device_state[GPU] = PLAN_DEVICE_READY;
		bench->plan.device_state[CPU] = PLAN_DEVICE_NO_MEMORY;
		expect_placed(bench, 1, strategies[i], GPU, RBK_REASON_MEMORY_CONSTRAINT);
		bench->plan.device_state[CPU] = PLAN_DEVICE_FAILED;
		expect_placed(bench, 1, strategies[i], GPU, RBK_REASON_GPU_AVAILABLE);
		bench->plan.device_state[GPU] = PLAN_DEVICE_UNSUPPORTED;
		expect_placed(bench, 1, strategies[i], RBK_DEVICE_NONE, RBK_REASON_GPU_UNAVAILABLE);
	}
}

TEST(test_only_gpu__else_refused, setup_three, teardown)
{
	struct placer_bench *bench = *state;

	expect_placed(bench, 1, RBK_STRATEGY_ONLY_GPU, GPU, RBK_REASON_USER_PREFERENCE);
	bench->plan.device_state[GPU] = PLAN_DEVICE_FAILED;
	expect_placed(bench, 1, RBK_STRATEGY_ONLY_GPU, GPU2, RBK_REASON_USER_PREFERENCE);
	bench->plan.device_state[GPU2] = PLAN_DEVICE_FAILED;
	expect_placed(bench, 1, RBK_STRATEGY_ONLY_GPU, RBK_DEVICE_NONE, RBK_REASON_GPU_UNAVAILABLE);
	bench->plan.device_state[GPU2] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(bench, 9999, RBK_STRATEGY_ONLY_GPU, RBK_DEVICE_NONE,
		      RBK_REASON_MEMORY_CONSTRAINT);
}

TEST(test_only_cpu__else_refused, setup_two, teardown)
{
	struct placer_bench *bench = *state;

	expect_placed(bench, 9999, RBK_STRATEGY_ONLY_CPU, CPU, RBK_REASON_USER_PREFERENCE);
	bench->plan.device_state[CPU] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(bench, 9999, RBK_STRATEGY_ONLY_CPU, RBK_DEVICE_NONE,
		      RBK_REASON_USER_PREFERENCE);
}

TEST(test_named__present, setup_three, teardown)
{
	struct placer_bench *bench = *state;

	expect_placed(bench, 9999, NAMED(CPU), CPU, RBK_REASON_USER_PREFERENCE);
	expect_placed(bench, 1, NAMED(GPU), GPU, RBK_REASON_USER_PREFERENCE);
	expect_placed(bench, 1, NAMED(GPU2), GPU2, RBK_REASON_USER_PREFERENCE);
}

/* Another GPU does not replace the named one. The task runs on the CPU, and the reason says why. */
TEST(test_named__absent, setup_two, teardown)
{
	struct placer_bench *bench = *state;

	expect_placed(bench, 9999, NAMED(GPU2), CPU, RBK_REASON_GPU_UNAVAILABLE);
	expect_placed(bench, 9999, NAMED(RBK_MAX_DEVICES - 1), CPU, RBK_REASON_GPU_UNAVAILABLE);
	bench->plan.device_state[GPU2] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(bench, 9999, NAMED(GPU2), CPU, RBK_REASON_GPU_UNAVAILABLE);
	bench->plan.device_state[GPU] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(bench, 9999, NAMED(GPU), CPU, RBK_REASON_MEMORY_CONSTRAINT);
	bench->plan.device_state[CPU] = PLAN_DEVICE_FAILED;
	expect_placed(bench, 9999, NAMED(GPU), RBK_DEVICE_NONE, RBK_REASON_MEMORY_CONSTRAINT);
}

/* --- force-CPU --- */

TEST(test_force_cpu__every_strategy, setup_two, teardown)
{
	struct placer_bench *bench = *state;
	struct place_config config = *placer_config(bench->placer);

	placer_bench_trust(bench, 9999);
	config.force_cpu = true;
	placer_bench_configure(bench, config);
	expect_placed(bench, 1, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
	expect_placed(bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
	expect_placed(bench, 9999, RBK_STRATEGY_PARTITION, CPU, RBK_REASON_GPU_UNAVAILABLE);
	expect_placed(bench, 9999, RBK_STRATEGY_PREFER_GPU, CPU, RBK_REASON_GPU_UNAVAILABLE);
	expect_placed(bench, 9999, NAMED(GPU), CPU, RBK_REASON_GPU_UNAVAILABLE);
	expect_placed(bench, 9999, RBK_STRATEGY_ONLY_CPU, CPU, RBK_REASON_USER_PREFERENCE);
	expect_placed(bench, 9999, RBK_STRATEGY_ONLY_GPU, RBK_DEVICE_NONE,
		      RBK_REASON_GPU_UNAVAILABLE);
	assert_false(place_can_move(bench->placer, bench->place_plan, GPU));
	config.force_cpu = false;
	placer_bench_configure(bench, config);
	expect_placed(bench, 9999, RBK_STRATEGY_AUTO, GPU, RBK_REASON_COST_MODEL);
	assert_true(place_can_move(bench->placer, bench->place_plan, GPU));
}

/* --- until estimates are trusted, and after --- */

TEST(test_trust__speedup_threshold, setup_two, teardown)
{
	struct placer_bench *bench = *state;
	struct place_config config = *placer_config(bench->placer);
	double cpu_ns = (double)place_predict_ns(bench->placer, bench->place_plan, CPU, 4096);
	double gpu_ns = (double)place_predict_ns(bench->placer, bench->place_plan, GPU, 4096);

	assert_true(gpu_ns < cpu_ns);
	config.speedup_threshold = (float)(cpu_ns / gpu_ns * 0.99);
	placer_bench_configure(bench, config);
	expect_placed(bench, 4096, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
	config.speedup_threshold = (float)(cpu_ns / gpu_ns * 1.01);
	placer_bench_configure(bench, config);
	expect_placed(bench, 4096, RBK_STRATEGY_AUTO, CPU, RBK_REASON_COST_MODEL);
	placer_bench_trust(bench, 4096);
	expect_placed(bench, 4096, RBK_STRATEGY_AUTO, GPU, RBK_REASON_COST_MODEL);
}

TEST(test_trust__no_profile)
{
	struct place_profile profiles[] = {placer_bench_profile(1000, 1), {.is_valid = false}};

	PLACER_BENCH(bench, 2, profiles);
	expect_placed(&bench, 1, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	expect_placed(&bench, 2048, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
	/* The GPU proves to be slower than the CPU. */
	for (unsigned int i = 0; i < PLACE_TRUST; i++)
		placer_bench_learn(&bench, GPU, 2048, 1e6);
	expect_placed(&bench, 2048, RBK_STRATEGY_AUTO, CPU, RBK_REASON_COST_MODEL);
}

TEST(test_contention__to_the_gpu, setup_two, teardown)
{
	struct placer_bench *bench = *state;
	uint32_t count = 512;

	placer_bench_trust(bench, count);
	while (placer_bench_decide(bench, count, RBK_STRATEGY_AUTO).device == GPU)
		placer_bench_trust(bench, count /= 2);
	placer_bench_trust(bench, 8192);
	placer_set_contention(bench->placer, CPU, 20, bench->now_ns);
	expect_placed(bench, count, RBK_STRATEGY_AUTO, GPU, RBK_REASON_CONTENTION);
	/* This task would run on the GPU anyway. */
	expect_placed(bench, 8192, RBK_STRATEGY_AUTO, GPU, RBK_REASON_COST_MODEL);
	placer_set_contention(bench->placer, CPU, 0.001f, bench->now_ns);
	expect_placed(bench, count, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
}

/* --- strategies --- */

TEST(test_latency__prefers_steady_device, setup_two, teardown)
{
	struct placer_bench *bench = *state;
	struct place_config config = *placer_config(bench->placer);

	/* The GPU is slightly faster on average, but its times vary. */
	for (unsigned int i = 0; i < 60; i++) {
		placer_bench_learn(bench, CPU, 2048, 1000000);
		placer_bench_learn(bench, GPU, 2048, i % 2 ? 1150000 : 650000);
	}
	expect_placed(bench, 2048, RBK_STRATEGY_AUTO, GPU, RBK_REASON_COST_MODEL);
	expect_placed(bench, 2048, RBK_STRATEGY_LATENCY, CPU, RBK_REASON_COST_MODEL);
	config.strategy = RBK_STRATEGY_LATENCY;
	placer_bench_configure(bench, config);
	expect_placed(bench, 2048, RBK_STRATEGY_AUTO, CPU, RBK_REASON_COST_MODEL);
}

TEST(test_energy__within_slack)
{
	struct place_profile profiles[] = {placer_bench_profile(8, 500),
					   placer_bench_profile(12, 500)};
	struct place_config config;

	profiles[0].active_watts = 10;
	PLACER_BENCH(bench, 2, profiles);
	config = *placer_config(bench.placer);
	expect_placed(&bench, 8192, RBK_STRATEGY_ENERGY, CPU, RBK_REASON_COST_MODEL);
	placer_bench_trust(&bench, 8192);
	expect_placed(&bench, 8192, RBK_STRATEGY_AUTO, GPU, RBK_REASON_COST_MODEL);
	expect_placed(&bench, 8192, RBK_STRATEGY_ENERGY, CPU, RBK_REASON_COST_MODEL);
	/* Taking 1.5 times as long is too much. */
	config.energy_slack = 1.4f;
	placer_bench_configure(&bench, config);
	expect_placed(&bench, 8192, RBK_STRATEGY_ENERGY, GPU, RBK_REASON_COST_MODEL);
	config.energy_slack = 1.6f;
	config.strategy = RBK_STRATEGY_ENERGY;
	placer_bench_configure(&bench, config);
	expect_placed(&bench, 8192, RBK_STRATEGY_AUTO, CPU, RBK_REASON_COST_MODEL);
	/* If the CPU's power is unknown, the earliest completion decides. */
	profiles[0].active_watts = 0;
	placer_set_profile(bench.placer, CPU, &profiles[0]);
	expect_placed(&bench, 8192, RBK_STRATEGY_AUTO, GPU, RBK_REASON_COST_MODEL);
}

/* --- deadlines --- */

static struct place_decision decide_by(struct placer_bench *bench, uint32_t count, uint8_t strategy,
				       double deadline_ns)
{
	struct place_request request = {
		.count = count,
		.strategy = strategy,
		.deadline_ns = (uint64_t)deadline_ns,
	};

	return place_decide(bench->placer, bench->place_plan, bench->flow, request, bench->now_ns);
}

TEST(test_deadline__where_it_is_met, setup_two, teardown)
{
	struct placer_bench *bench = *state;
	double cpu_ns = (double)place_predict_ns(bench->placer, bench->place_plan, CPU, 512);
	double gpu_ns = (double)place_predict_ns(bench->placer, bench->place_plan, GPU, 512);
	struct place_decision decision;

	/* Too small for the GPU, but the CPU would be late. */
	decision = decide_by(bench, 512, RBK_STRATEGY_AUTO, cpu_ns * 2);
	assert_int_equal(decision.device, CPU);
	decision = decide_by(bench, 512, RBK_STRATEGY_AUTO, (cpu_ns + gpu_ns) / 2);
	assert_fields(decision, (device, GPU), (reason, RBK_REASON_COST_MODEL));
	decision = decide_by(bench, 512, RBK_STRATEGY_PREFER_CPU, (cpu_ns + gpu_ns) / 2);
	assert_int_equal(decision.device, GPU);
	/* No device meets the deadline: the task is placed as without one. */
	decision = decide_by(bench, 512, RBK_STRATEGY_AUTO, gpu_ns / 2);
	assert_fields(decision, (device, CPU), (reason, RBK_REASON_BELOW_THRESHOLD));
	/* A named device is used even if it misses the deadline. */
	decision = decide_by(bench, 512, NAMED(CPU), (cpu_ns + gpu_ns) / 2);
	assert_int_equal(decision.device, CPU);
}

/* --- streams --- */

static struct place_decision decide_in_stream(struct placer_bench *bench, uint8_t strategy,
					      uint8_t flags, uint16_t n_in_flight)
{
	struct place_request request = {
		.count = 8192,
		.strategy = strategy,
		.flags = PLACE_IN_STREAM | flags,
		.n_in_flight = n_in_flight,
	};

	return place_decide(bench->placer, bench->place_plan, bench->flow, request, bench->now_ns);
}

/*
 * The GPU ends first. For each task in flight it costs the stream 0.4 of what it is ahead: two may
 * use it, three may not.
 */
TEST(test_stream__cost_for_each_task_in_flight, setup_two, teardown)
{
	struct placer_bench *bench = *state;
	struct place_config config = bench->placer->config;
	float ahead_ns, reduced_ns[2] = {0}, bias_ns[2] = {0};

	placer_bench_trust(bench, 8192);
	ahead_ns = place_predict_ns(bench->placer, bench->place_plan, CPU, 8192) -
		   place_predict_ns(bench->placer, bench->place_plan, GPU, 8192);
	assert_true(ahead_ns > 0);
	reduced_ns[GPU] = ahead_ns / 2.5f / PLACE_STREAM_WEIGHT;
	/* Advice for one task does not count. */
	bias_ns[GPU] = 10 * ahead_ns;
	place_plan_advise(bench->place_plan, bias_ns, reduced_ns);
	assert_fields(decide_in_stream(bench, RBK_STRATEGY_AUTO, 0, 2), (device, GPU),
		      (flags, PLACE_ADVISED | PLACE_STREAMED));
	assert_fields(decide_in_stream(bench, RBK_STRATEGY_AUTO, 0, 3), (device, CPU),
		      (reason, RBK_REASON_COST_MODEL), (flags, PLACE_ADVISED | PLACE_STREAMED));
	assert_fields(decide_in_stream(bench, RBK_STRATEGY_AUTO, PLACE_UNADVISED, 3), (device, GPU),
		      (flags, 0));
	place_plan_advise(bench->place_plan, NULL, reduced_ns);
	/* Asked for by the client, or configured. */
	assert_fields(decide_in_stream(bench, RBK_STRATEGY_LATENCY, 0, 3), (device, GPU),
		      (flags, 0));
	config.strategy = RBK_STRATEGY_LATENCY;
	placer_bench_configure(bench, config);
	assert_fields(decide_in_stream(bench, RBK_STRATEGY_AUTO, 0, 3), (device, GPU), (flags, 0));
	config.strategy = RBK_STRATEGY_ENERGY;
	placer_bench_configure(bench, config);
	assert_fields(decide_in_stream(bench, RBK_STRATEGY_AUTO, 0, 3), (device, GPU), (flags, 0));
}

/* --- evicted plans --- */

TEST(test_evicted__to_the_cpu, setup_two, teardown)
{
	struct placer_bench *bench = *state;

	bench->plan.device_state[GPU] = PLAN_DEVICE_EVICTED;
	expect_wanted(bench, 1024, RBK_STRATEGY_AUTO, CPU, GPU);
	expect_wanted(bench, 1, RBK_STRATEGY_PREFER_GPU, CPU, GPU);
	expect_wanted(bench, 1, NAMED(GPU), CPU, GPU);
	expect_wanted(bench, 1, RBK_STRATEGY_ONLY_GPU, RBK_DEVICE_NONE, GPU);
	/* Tasks that would not have run on the GPU ask for no loading. */
	expect_placed(bench, 1023, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	expect_placed(bench, 9999, RBK_STRATEGY_PREFER_CPU, CPU, RBK_REASON_USER_PREFERENCE);
	expect_placed(bench, 9999, RBK_STRATEGY_ONLY_CPU, CPU, RBK_REASON_USER_PREFERENCE);
	expect_placed(bench, 9999, NAMED(CPU), CPU, RBK_REASON_USER_PREFERENCE);
	expect_placed(bench, 9999, NAMED(GPU2), CPU, RBK_REASON_GPU_UNAVAILABLE);
	for (unsigned int i = 0; i < 20; i++)
		placer_bench_learn(bench, GPU, 9999, 1e9);
	for (unsigned int i = 0; i < PLACE_TRUST; i++)
		placer_bench_learn(bench, CPU, 9999, 1e6);
	expect_placed(bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_COST_MODEL);
}

/* Only the GPU can run the plan, so every strategy asks for it. */
TEST(test_evicted__cpu_cannot, setup_two, teardown)
{
	static const uint8_t strategies[] = {RBK_STRATEGY_AUTO,
					     RBK_STRATEGY_PREFER_GPU,
					     RBK_STRATEGY_PREFER_CPU,
					     RBK_STRATEGY_ONLY_GPU,
					     NAMED(CPU),
					     NAMED(GPU)};
	struct placer_bench *bench = *state;

	bench->plan.device_state[CPU] = PLAN_DEVICE_FAILED;
	bench->plan.device_state[GPU] = PLAN_DEVICE_EVICTED;
	for (unsigned int i = 0; i < 6; i++)
		expect_wanted(bench, 1, strategies[i], RBK_DEVICE_NONE, GPU);
	expect_placed(bench, 1, RBK_STRATEGY_ONLY_CPU, RBK_DEVICE_NONE, RBK_REASON_USER_PREFERENCE);
}

TEST(test_evicted__pinned, setup_three, teardown)
{
	struct placer_bench *bench = *state;

	bench->plan.pinned = true;
	bench->plan.pinned_device = GPU2;
	placer_bench_renew(bench);
	bench->plan.device_state[GPU2] = PLAN_DEVICE_EVICTED;
	for (uint8_t strategy = 0; strategy < RBK_STRATEGY_COUNT; strategy++)
		expect_wanted(bench, 1, strategy, RBK_DEVICE_NONE, GPU2);
	expect_wanted(bench, 1, NAMED(GPU), RBK_DEVICE_NONE, GPU2);
	bench->plan.device_state[GPU2] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(bench, 1, RBK_STRATEGY_AUTO, RBK_DEVICE_NONE, RBK_REASON_MEMORY_CONSTRAINT);
}

/* If one of two GPUs has the plan, use it. Otherwise ask for a GPU to which it can return. */
TEST(test_evicted__two_gpus, setup_three, teardown)
{
	struct placer_bench *bench = *state;

	bench->plan.device_state[GPU] = PLAN_DEVICE_EVICTED;
	expect_placed(bench, 9999, RBK_STRATEGY_AUTO, GPU2, RBK_REASON_GPU_AVAILABLE);
	expect_wanted(bench, 9999, NAMED(GPU), CPU, GPU);
	bench->plan.device_state[GPU2] = PLAN_DEVICE_EVICTED;
	expect_wanted(bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_DEVICE_NONE);
	expect_wanted(bench, 9999, RBK_STRATEGY_ONLY_GPU, RBK_DEVICE_NONE, RBK_DEVICE_NONE);
	expect_wanted(bench, 9999, NAMED(GPU2), CPU, GPU2);
	bench->plan.device_state[GPU] = PLAN_DEVICE_NO_MEMORY;
	expect_wanted(bench, 9999, RBK_STRATEGY_AUTO, CPU, GPU2);
	bench->plan.device_state[GPU] = PLAN_DEVICE_FAILED;
	expect_wanted(bench, 9999, RBK_STRATEGY_AUTO, CPU, GPU2);
}

/* A plan is not loaded on a device whose breaker is open. */
TEST(test_evicted__broken_device, setup_three, teardown)
{
	struct placer_bench *bench = *state;

	bench->plan.device_state[GPU] = PLAN_DEVICE_EVICTED;
	bench->plan.device_state[GPU2] = PLAN_DEVICE_EVICTED;
	for (unsigned int i = 0; i < PLACE_BREAKER_FAILURES; i++)
		placer_bench_fail(bench, GPU);
	expect_wanted(bench, 9999, RBK_STRATEGY_AUTO, CPU, GPU2);
	expect_placed(bench, 9999, NAMED(GPU), CPU, RBK_REASON_BREAKER_OPEN);
	for (unsigned int i = 0; i < PLACE_BREAKER_FAILURES; i++)
		placer_bench_fail(bench, GPU2);
	expect_placed(bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BREAKER_OPEN);
	expect_placed(bench, 9999, RBK_STRATEGY_ONLY_GPU, RBK_DEVICE_NONE, RBK_REASON_BREAKER_OPEN);
}

/* --- pinned plans --- */

TEST(test_pinned__overrides_strategy, setup_three, teardown)
{
	struct placer_bench *bench = *state;

	bench->plan.pinned = true;
	for (unsigned int device = 0; device < 3; device++) {
		bench->plan.pinned_device = (uint8_t)device;
		placer_bench_renew(bench);
		for (uint8_t strategy = 0; strategy < RBK_STRATEGY_COUNT; strategy++)
			expect_placed(bench, 9999, strategy, (uint8_t)device,
				      RBK_REASON_USER_PREFERENCE);
		for (unsigned int named = 0; named < 3; named++)
			expect_placed(bench, 1, NAMED((uint8_t)named), (uint8_t)device,
				      RBK_REASON_USER_PREFERENCE);
	}
}

TEST(test_pinned__never_elsewhere, setup_three, teardown)
{
	struct placer_bench *bench = *state;

	bench->plan.pinned = true;
	bench->plan.pinned_device = GPU;
	placer_bench_renew(bench);
	bench->plan.device_state[GPU] = PLAN_DEVICE_FAILED;
	for (uint8_t strategy = 0; strategy < RBK_STRATEGY_COUNT; strategy++)
		expect_placed(bench, 9999, strategy, RBK_DEVICE_NONE, RBK_REASON_GPU_UNAVAILABLE);
	expect_placed(bench, 9999, NAMED(GPU2), RBK_DEVICE_NONE, RBK_REASON_GPU_UNAVAILABLE);
}

/* --- the short way and the long way --- */

/*
 * The short way decides as the full rules do: with contention by other tenants or the task's own,
 * with a drained GPU, and before and after estimates are trusted.
 */
TEST(test_decide__short_and_full_path_agree, setup_two, teardown)
{
	struct placer_bench *bench = *state;
	struct place_decision quick, full;
	uint32_t n_gpu = 0, n_below = 0, n_contention = 0;

	for (unsigned int i = 0; i < 20000; i++) {
		uint32_t count =
			1 + placer_bench_random(bench, 1u << placer_bench_random(bench, 20));
		struct place_request request = {.count = count};
		const bool is_drained = i % 3 == 0;

		if (i % 500 == 0)
			place_plan_reset(bench->placer, bench->place_plan);
		/* Each device is undisturbed half of the time. */
		if (i % 7 == 0)
			placer_set_contention(bench->placer, (uint8_t)(i / 7 % 2),
					      1 + (float)placer_bench_random(bench, 30) *
							      (float)placer_bench_random(bench, 2),
					      bench->now_ns);
		if (i % 11 == 0)
			place_flow_set_own_contention(bench->flow,
						      (float)placer_bench_random(bench, 9) / 8);
		if (i % 4 == 0)
			placer_bench_learn_some(bench, (uint8_t)placer_bench_random(bench, 2),
						count);
		placer_set_drained(bench->placer, GPU, is_drained);
		/* Exploring would change the state that the second decision sees. */
		bench->place_plan->wish_bucket = UINT16_MAX;
		quick = place_decide(bench->placer, bench->place_plan, bench->flow, request, 5);
		full = place_decide_in_full(bench->placer, bench->place_plan, bench->flow, request,
					    5);
		assert_memory_equal(&quick, &full, sizeof(quick));
		assert_false(is_drained && quick.device != CPU);
		n_gpu += quick.device == GPU;
		n_below += quick.reason == RBK_REASON_BELOW_THRESHOLD;
		n_contention += quick.reason == RBK_REASON_CONTENTION;
	}
	assert_in_range(n_gpu, 1000, 13334);
	assert_in_range(n_below, 1000, 19000);
	assert_in_range(n_contention, 10, 19000);
}

/* --- setting up --- */

TEST(test_configure__invalid_values, setup_two, teardown)
{
	struct placer_bench *bench = *state;
	struct place_config config = {
		.speedup_threshold = -1,
		.success_rate = 1.0f / 0.0f,
		.exploration = -3,
		.partition_min_gain = 0.0f / 0.0f,
		.energy_slack = -1,
		.strategy = RBK_STRATEGY_ONLY_GPU,
	};

	placer_bench_configure(bench, config);
	config = *placer_config(bench->placer);
	assert_int_equal(config.window, 1);
	assert_true(config.speedup_threshold >= 0 && config.success_rate <= 1);
	assert_true(config.exploration >= 0 && config.partition_min_gain >= 0);
	assert_true(config.energy_slack >= 1 && config.submission_max_ns > 0);
	assert_int_equal(config.strategy, RBK_STRATEGY_AUTO);
	placer_set_contention(bench->placer, CPU, 0.0f / 0.0f, bench->now_ns);
	placer_set_contention(bench->placer, GPU, 1e30f, bench->now_ns);
	placer_set_contention(bench->placer, RBK_DEVICE_NONE, 1, bench->now_ns);
	placer_set_profile(bench->placer, RBK_DEVICE_NONE, NULL);
	placer_reset_device(bench->placer, RBK_DEVICE_NONE);
	/* Contention is limited to a factor of 100. */
	expect_placed(bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_COST_MODEL);
}

TEST(test_new__no_memory)
{
	struct placer_options options = {.config = PLACE_CONFIG_DEFAULT, .n_devices = 2};
	struct placer *placer = NULL;
	struct place_plan *place_plan = NULL, *other = NULL;
	struct plan plan;
	struct node node;
	unsigned int n;
	int r;

	for (n = 1;; n++) {
		fail_alloc_at(n);
		r = placer_new(&options, &placer);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_null(placer);
	}
	assert_int_equal(r, 0);
	assert_int_equal(n, 4);
	placer_bench_plan_init(&plan, &node, 2);
	for (n = 1;; n++) {
		fail_alloc_at(n);
		r = place_plan_new(placer, &plan, &place_plan);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_null(place_plan);
	}
	assert_int_equal(r, 0);
	assert_int_equal(n, 2);
	/* The placer has room for the plan, so the plan's estimates are the only allocation. */
	fail_alloc_at(1);
	assert_int_equal(place_plan_new(placer, &plan, &other), -ENOMEM);
	assert_true(fail_alloc_stop());
	assert_null(other);
	assert_null(place_plan_free(placer, place_plan));
	assert_null(place_plan_free(placer, NULL));
	assert_null(placer_free(placer));
	assert_null(placer_free(NULL));
}
