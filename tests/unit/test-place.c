/* SPDX-License-Identifier: MIT */
/*
 * Placement: every rule, its boundary and the reason that it gives.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "place/place.h"
#include "plan/plan.h"

enum { THRESHOLD_BYTES = 1 << 20, CPU = RBK_DEVICE_CPU, GPU = RBK_DEVICE_GPU, GPU2 = 2 };

#define NAMED RBK_STRATEGY_DEVICE

/* A placer of so many devices, and a plan that touches 1 KiB per row and runs on all of them. */
struct bench {
	struct placer placer;
	struct plan plan;
};

static void bench_init(struct bench *bench, uint32_t n_devices)
{
	memset(bench, 0, sizeof(*bench));
	placer_init(&bench->placer, n_devices, THRESHOLD_BYTES);
	bench->plan.max_count = UINT32_MAX;
	bench->plan.touched_row = 1024;
	for (uint32_t i = 0; i < n_devices; i++)
		bench->plan.device_state[i] = PLAN_DEVICE_READY;
}

#define expect_placed(bench, count, strategy, device, reason) \
	expect_placed_(bench, count, strategy, device, reason, 0, __LINE__)
/* Its memory is on @wanted no more. */
#define expect_wanted(bench, count, strategy, device, wanted)                                \
	expect_placed_(bench, count, strategy, device, RBK_REASON_MEMORY_CONSTRAINT, wanted, \
		       __LINE__)
static void expect_placed_(const struct bench *bench, uint32_t count, uint8_t strategy,
			   uint8_t device, uint8_t reason, uint8_t wanted, int line)
{
	struct place_decision decision = place_task(&bench->placer, &bench->plan, count, strategy);

	if (decision.device != device || decision.reason != reason || decision.wanted != wanted)
		fail_msg("line %d: on device %u for reason %u, not on %u for %u; wanted %u, not %u",
			 line, decision.device, decision.reason, device, reason, decision.wanted,
			 wanted);
}

/* --- automatic --- */

static void test_auto__threshold(void **state)
{
	struct bench bench;

	bench_init(&bench, 2);
	expect_placed(&bench, 1, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	expect_placed(&bench, 1023, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	expect_placed(&bench, 1024, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
	/* One byte decides. */
	bench.plan.touched_row = 0;
	bench.plan.touched_fixed = THRESHOLD_BYTES - 1;
	expect_placed(&bench, 7, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	bench.plan.touched_fixed = THRESHOLD_BYTES;
	expect_placed(&bench, 7, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
	/* 4 TiB are large, in 64 bits. */
	bench.plan.touched_fixed = 0;
	bench.plan.touched_row = 1024;
	expect_placed(&bench, UINT32_MAX, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
	bench.placer.threshold_bytes = 0;
	expect_placed(&bench, 1, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
}

static void test_auto__no_gpu(void **state)
{
	struct bench bench;

	bench_init(&bench, 1);
	expect_placed(&bench, 1, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
	/* What a device left there that the broker does not have must not matter. */
	bench.plan.device_state[GPU] = PLAN_DEVICE_READY;
	expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
}

static void test_auto__gpu_cannot(void **state)
{
	struct bench bench;

	bench_init(&bench, 2);
	bench.plan.device_state[GPU] = PLAN_DEVICE_UNSUPPORTED;
	expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
	bench.plan.device_state[GPU] = PLAN_DEVICE_FAILED;
	expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
	bench.plan.device_state[GPU] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_MEMORY_CONSTRAINT);
	/* Small is small, whatever the GPU's memory. */
	expect_placed(&bench, 1, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
}

static void test_auto__second_gpu(void **state)
{
	struct bench bench;

	bench_init(&bench, 3);
	expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
	bench.plan.device_state[GPU] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, GPU2, RBK_REASON_GPU_AVAILABLE);
	bench.plan.device_state[GPU2] = PLAN_DEVICE_UNSUPPORTED;
	expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_MEMORY_CONSTRAINT);
}

static void test_auto__cpu_cannot(void **state)
{
	struct bench bench;

	bench_init(&bench, 2);
	bench.plan.device_state[CPU] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(&bench, 1, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
	expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
	bench.plan.device_state[GPU] = PLAN_DEVICE_UNSUPPORTED;
	expect_placed(&bench, 1, RBK_STRATEGY_AUTO, RBK_DEVICE_NONE, RBK_REASON_GPU_UNAVAILABLE);
	expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, RBK_DEVICE_NONE, RBK_REASON_GPU_UNAVAILABLE);
}

/* --- wishes --- */

static void test_prefer_gpu__any_size(void **state)
{
	struct bench bench;

	bench_init(&bench, 2);
	expect_placed(&bench, 1, RBK_STRATEGY_PREFER_GPU, GPU, RBK_REASON_USER_PREFERENCE);
	expect_placed(&bench, 9999, RBK_STRATEGY_PREFER_GPU, GPU, RBK_REASON_USER_PREFERENCE);
}

static void test_prefer_gpu__falls_back(void **state)
{
	struct bench bench;

	bench_init(&bench, 1);
	expect_placed(&bench, 1, RBK_STRATEGY_PREFER_GPU, CPU, RBK_REASON_GPU_UNAVAILABLE);
	bench_init(&bench, 2);
	bench.plan.device_state[GPU] = PLAN_DEVICE_UNSUPPORTED;
	expect_placed(&bench, 9999, RBK_STRATEGY_PREFER_GPU, CPU, RBK_REASON_GPU_UNAVAILABLE);
	bench.plan.device_state[GPU] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(&bench, 9999, RBK_STRATEGY_PREFER_GPU, CPU, RBK_REASON_MEMORY_CONSTRAINT);
	bench.plan.device_state[CPU] = PLAN_DEVICE_FAILED;
	expect_placed(&bench, 9999, RBK_STRATEGY_PREFER_GPU, RBK_DEVICE_NONE,
		      RBK_REASON_MEMORY_CONSTRAINT);
}

static void test_prefer_cpu__any_size(void **state)
{
	struct bench bench;

	bench_init(&bench, 2);
	expect_placed(&bench, 1, RBK_STRATEGY_PREFER_CPU, CPU, RBK_REASON_USER_PREFERENCE);
	expect_placed(&bench, 9999, RBK_STRATEGY_PREFER_CPU, CPU, RBK_REASON_USER_PREFERENCE);
}

/* To the GPU, but not as one that "failed on a GPU, then ran on the CPU". */
static void test_prefer_cpu__falls_back(void **state)
{
	static const uint8_t strategies[] = {RBK_STRATEGY_PREFER_CPU, NAMED(CPU)};
	struct bench bench;

	for (unsigned int i = 0; i < 2; i++) {
		bench_init(&bench, 2);
		bench.plan.device_state[CPU] = PLAN_DEVICE_NO_MEMORY;
		expect_placed(&bench, 1, strategies[i], GPU, RBK_REASON_MEMORY_CONSTRAINT);
		bench.plan.device_state[CPU] = PLAN_DEVICE_FAILED;
		expect_placed(&bench, 1, strategies[i], GPU, RBK_REASON_GPU_AVAILABLE);
		bench.plan.device_state[GPU] = PLAN_DEVICE_UNSUPPORTED;
		expect_placed(&bench, 1, strategies[i], RBK_DEVICE_NONE,
			      RBK_REASON_GPU_UNAVAILABLE);
	}
}

static void test_only_gpu__or_nowhere(void **state)
{
	struct bench bench;

	bench_init(&bench, 3);
	expect_placed(&bench, 1, RBK_STRATEGY_ONLY_GPU, GPU, RBK_REASON_USER_PREFERENCE);
	bench.plan.device_state[GPU] = PLAN_DEVICE_FAILED;
	expect_placed(&bench, 1, RBK_STRATEGY_ONLY_GPU, GPU2, RBK_REASON_USER_PREFERENCE);
	bench.plan.device_state[GPU2] = PLAN_DEVICE_FAILED;
	expect_placed(&bench, 1, RBK_STRATEGY_ONLY_GPU, RBK_DEVICE_NONE,
		      RBK_REASON_GPU_UNAVAILABLE);
	bench.plan.device_state[GPU2] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(&bench, 9999, RBK_STRATEGY_ONLY_GPU, RBK_DEVICE_NONE,
		      RBK_REASON_MEMORY_CONSTRAINT);
	bench_init(&bench, 1);
	expect_placed(&bench, 9999, RBK_STRATEGY_ONLY_GPU, RBK_DEVICE_NONE,
		      RBK_REASON_GPU_UNAVAILABLE);
}

static void test_only_cpu__or_nowhere(void **state)
{
	struct bench bench;

	bench_init(&bench, 2);
	expect_placed(&bench, 9999, RBK_STRATEGY_ONLY_CPU, CPU, RBK_REASON_USER_PREFERENCE);
	bench.plan.device_state[CPU] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(&bench, 9999, RBK_STRATEGY_ONLY_CPU, RBK_DEVICE_NONE,
		      RBK_REASON_USER_PREFERENCE);
}

static void test_named__there(void **state)
{
	struct bench bench;

	bench_init(&bench, 3);
	expect_placed(&bench, 9999, NAMED(CPU), CPU, RBK_REASON_USER_PREFERENCE);
	expect_placed(&bench, 1, NAMED(GPU), GPU, RBK_REASON_USER_PREFERENCE);
	expect_placed(&bench, 1, NAMED(GPU2), GPU2, RBK_REASON_USER_PREFERENCE);
}

/* Another GPU than the one named is no substitute: to the CPU, and the reason says why. */
static void test_named__absent(void **state)
{
	struct bench bench;

	bench_init(&bench, 2);
	expect_placed(&bench, 9999, NAMED(GPU2), CPU, RBK_REASON_GPU_UNAVAILABLE);
	expect_placed(&bench, 9999, NAMED(RBK_MAX_DEVICES - 1), CPU, RBK_REASON_GPU_UNAVAILABLE);
	bench.plan.device_state[GPU2] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(&bench, 9999, NAMED(GPU2), CPU, RBK_REASON_GPU_UNAVAILABLE);
	bench.plan.device_state[GPU] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(&bench, 9999, NAMED(GPU), CPU, RBK_REASON_MEMORY_CONSTRAINT);
	bench.plan.device_state[CPU] = PLAN_DEVICE_FAILED;
	expect_placed(&bench, 9999, NAMED(GPU), RBK_DEVICE_NONE, RBK_REASON_MEMORY_CONSTRAINT);
}

/* --- memory that comes and goes --- */

static void test_evicted__to_the_cpu(void **state)
{
	struct bench bench;

	bench_init(&bench, 2);
	bench.plan.device_state[GPU] = PLAN_DEVICE_EVICTED;
	expect_wanted(&bench, 1024, RBK_STRATEGY_AUTO, CPU, GPU);
	expect_wanted(&bench, 1, RBK_STRATEGY_PREFER_GPU, CPU, GPU);
	expect_wanted(&bench, 1, NAMED(GPU), CPU, GPU);
	expect_wanted(&bench, 1, RBK_STRATEGY_ONLY_GPU, RBK_DEVICE_NONE, GPU);
	/* Those that would not have run there. */
	expect_placed(&bench, 1023, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	expect_placed(&bench, 9999, RBK_STRATEGY_PREFER_CPU, CPU, RBK_REASON_USER_PREFERENCE);
	expect_placed(&bench, 9999, RBK_STRATEGY_ONLY_CPU, CPU, RBK_REASON_USER_PREFERENCE);
	expect_placed(&bench, 9999, NAMED(CPU), CPU, RBK_REASON_USER_PREFERENCE);
	expect_placed(&bench, 9999, NAMED(GPU2), CPU, RBK_REASON_GPU_UNAVAILABLE);
}

/* Whatever the wish, it needs the GPU. */
static void test_evicted__cpu_cannot(void **state)
{
	static const uint8_t strategies[] = {RBK_STRATEGY_AUTO,
					     RBK_STRATEGY_PREFER_GPU,
					     RBK_STRATEGY_PREFER_CPU,
					     RBK_STRATEGY_ONLY_GPU,
					     NAMED(CPU),
					     NAMED(GPU)};
	struct bench bench;

	bench_init(&bench, 2);
	bench.plan.device_state[CPU] = PLAN_DEVICE_FAILED;
	bench.plan.device_state[GPU] = PLAN_DEVICE_EVICTED;
	for (unsigned int i = 0; i < 6; i++)
		expect_wanted(&bench, 1, strategies[i], RBK_DEVICE_NONE, GPU);
	expect_placed(&bench, 1, RBK_STRATEGY_ONLY_CPU, RBK_DEVICE_NONE,
		      RBK_REASON_USER_PREFERENCE);
}

static void test_evicted__pinned(void **state)
{
	struct bench bench;

	bench_init(&bench, 3);
	bench.plan.pinned = true;
	bench.plan.pinned_device = GPU2;
	bench.plan.device_state[GPU2] = PLAN_DEVICE_EVICTED;
	for (uint8_t strategy = 0; strategy < RBK_STRATEGY_COUNT; strategy++)
		expect_wanted(&bench, 1, strategy, RBK_DEVICE_NONE, GPU2);
	expect_wanted(&bench, 1, NAMED(GPU), RBK_DEVICE_NONE, GPU2);
	bench.plan.device_state[GPU2] = PLAN_DEVICE_NO_MEMORY;
	expect_placed(&bench, 1, RBK_STRATEGY_AUTO, RBK_DEVICE_NONE, RBK_REASON_MEMORY_CONSTRAINT);
}

/* One of several: where it is; else where it can come back to. */
static void test_evicted__two_gpus(void **state)
{
	struct bench bench;

	bench_init(&bench, 3);
	bench.plan.device_state[GPU] = PLAN_DEVICE_EVICTED;
	expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, GPU2, RBK_REASON_GPU_AVAILABLE);
	expect_wanted(&bench, 9999, NAMED(GPU), CPU, GPU);
	bench.plan.device_state[GPU2] = PLAN_DEVICE_EVICTED;
	expect_wanted(&bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_DEVICE_NONE);
	expect_wanted(&bench, 9999, RBK_STRATEGY_ONLY_GPU, RBK_DEVICE_NONE, RBK_DEVICE_NONE);
	expect_wanted(&bench, 9999, NAMED(GPU2), CPU, GPU2);
	bench.plan.device_state[GPU] = PLAN_DEVICE_NO_MEMORY;
	expect_wanted(&bench, 9999, RBK_STRATEGY_AUTO, CPU, GPU2);
	bench.plan.device_state[GPU] = PLAN_DEVICE_FAILED;
	expect_wanted(&bench, 9999, RBK_STRATEGY_AUTO, CPU, GPU2);
}

/* Nothing is brought to a device that would not be used. */
static void test_evicted__broken_device(void **state)
{
	struct bench bench;

	bench_init(&bench, 3);
	bench.plan.device_state[GPU] = PLAN_DEVICE_EVICTED;
	bench.plan.device_state[GPU2] = PLAN_DEVICE_EVICTED;
	for (unsigned int i = 0; i < PLACE_MAX_FAILURES; i++)
		place_report(&bench.placer, GPU, true);
	expect_wanted(&bench, 9999, RBK_STRATEGY_AUTO, CPU, GPU2);
	expect_placed(&bench, 9999, NAMED(GPU), CPU, RBK_REASON_GPU_UNAVAILABLE);
	for (unsigned int i = 0; i < PLACE_MAX_FAILURES; i++)
		place_report(&bench.placer, GPU2, true);
	expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
	expect_placed(&bench, 9999, RBK_STRATEGY_ONLY_GPU, RBK_DEVICE_NONE,
		      RBK_REASON_GPU_UNAVAILABLE);
}

/* --- pinned plans --- */

static void test_pinned__before_any_wish(void **state)
{
	struct bench bench;

	bench_init(&bench, 3);
	bench.plan.pinned = true;
	for (unsigned int device = 0; device < 3; device++) {
		bench.plan.pinned_device = (uint8_t)device;
		for (uint8_t strategy = 0; strategy < RBK_STRATEGY_COUNT; strategy++)
			expect_placed(&bench, 9999, strategy, (uint8_t)device,
				      RBK_REASON_USER_PREFERENCE);
		for (unsigned int named = 0; named < 3; named++)
			expect_placed(&bench, 1, NAMED((uint8_t)named), (uint8_t)device,
				      RBK_REASON_USER_PREFERENCE);
	}
}

static void test_pinned__never_elsewhere(void **state)
{
	struct bench bench;

	bench_init(&bench, 3);
	bench.plan.pinned = true;
	bench.plan.pinned_device = GPU;
	bench.plan.device_state[GPU] = PLAN_DEVICE_FAILED;
	for (uint8_t strategy = 0; strategy < RBK_STRATEGY_COUNT; strategy++)
		expect_placed(&bench, 9999, strategy, RBK_DEVICE_NONE, RBK_REASON_GPU_UNAVAILABLE);
	expect_placed(&bench, 9999, NAMED(GPU2), RBK_DEVICE_NONE, RBK_REASON_GPU_UNAVAILABLE);
}

/* --- devices that fail --- */

static void test_report__failures_in_a_row(void **state)
{
	struct bench bench;

	bench_init(&bench, 3);
	for (unsigned int i = 0; i < PLACE_MAX_FAILURES; i++) {
		expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
		place_report(&bench.placer, GPU, true);
	}
	expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, GPU2, RBK_REASON_GPU_AVAILABLE);
	expect_placed(&bench, 9999, NAMED(GPU), CPU, RBK_REASON_GPU_UNAVAILABLE);
	for (unsigned int i = 0; i < PLACE_MAX_FAILURES; i++)
		place_report(&bench.placer, GPU2, true);
	expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
	expect_placed(&bench, 9999, RBK_STRATEGY_ONLY_GPU, RBK_DEVICE_NONE,
		      RBK_REASON_GPU_UNAVAILABLE);
	bench.plan.pinned = true;
	bench.plan.pinned_device = GPU;
	expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, RBK_DEVICE_NONE, RBK_REASON_GPU_UNAVAILABLE);
	/* A task that was there already came back well. */
	place_report(&bench.placer, GPU, false);
	expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, GPU, RBK_REASON_USER_PREFERENCE);
}

static void test_report__success_between(void **state)
{
	struct bench bench;

	bench_init(&bench, 2);
	for (unsigned int i = 0; i < 10; i++) {
		for (unsigned int k = 0; k < PLACE_MAX_FAILURES - 1; k++)
			place_report(&bench.placer, GPU, true);
		place_report(&bench.placer, GPU, false);
	}
	expect_placed(&bench, 9999, RBK_STRATEGY_AUTO, GPU, RBK_REASON_GPU_AVAILABLE);
}

/* There is nothing else to run on. */
static void test_report__cpu_stays(void **state)
{
	struct bench bench;

	bench_init(&bench, 2);
	for (unsigned int i = 0; i < 100; i++)
		place_report(&bench.placer, CPU, true);
	place_report(&bench.placer, RBK_MAX_DEVICES, true);
	place_report(&bench.placer, RBK_DEVICE_NONE, true);
	expect_placed(&bench, 1, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	expect_placed(&bench, 1, RBK_STRATEGY_ONLY_CPU, CPU, RBK_REASON_USER_PREFERENCE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_auto__threshold),
		cmocka_unit_test(test_auto__no_gpu),
		cmocka_unit_test(test_auto__gpu_cannot),
		cmocka_unit_test(test_auto__second_gpu),
		cmocka_unit_test(test_auto__cpu_cannot),
		cmocka_unit_test(test_prefer_gpu__any_size),
		cmocka_unit_test(test_prefer_gpu__falls_back),
		cmocka_unit_test(test_prefer_cpu__any_size),
		cmocka_unit_test(test_prefer_cpu__falls_back),
		cmocka_unit_test(test_only_gpu__or_nowhere),
		cmocka_unit_test(test_only_cpu__or_nowhere),
		cmocka_unit_test(test_named__there),
		cmocka_unit_test(test_named__absent),
		cmocka_unit_test(test_evicted__to_the_cpu),
		cmocka_unit_test(test_evicted__cpu_cannot),
		cmocka_unit_test(test_evicted__pinned),
		cmocka_unit_test(test_evicted__two_gpus),
		cmocka_unit_test(test_evicted__broken_device),
		cmocka_unit_test(test_pinned__before_any_wish),
		cmocka_unit_test(test_pinned__never_elsewhere),
		cmocka_unit_test(test_report__failures_in_a_row),
		cmocka_unit_test(test_report__success_between),
		cmocka_unit_test(test_report__cpu_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
