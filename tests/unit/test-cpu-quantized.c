/* SPDX-License-Identifier: MIT */
/*
 * Operators on quantized tensors at every SIMD level, through the executor: against the plain
 * reference, bit by bit where results are whole numbers, over random shapes, signs, zero points and
 * scales; weights constant and not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "reference/random-quantized.h"
#include "support/test.h"
#include "util/clock.h"
#include "util/waker.h"

static struct waker waker;
static struct executor *executors[CPU_SIMD_COUNT]; /* NULL where the processor has no such level */
static struct exec_arena arena;
static uint64_t seed = 99;

static int set_up(void **state)
{
	clock_init();
	cpu_flush_denormals();
	assert_int_equal(waker_init(&waker), 0);
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++)
		if (cpu_kernels_get((enum cpu_simd)level))
			assert_int_equal(
				cpu_executor_new(
					&(struct cpu_options){.n_workers = 1,
							      .simd = (enum cpu_simd)level},
					&waker, &executors[level]),
				0);
	reference_arena_init(&arena, 2 << 20, 3);
	return 0;
}

static int tear_down(void **state)
{
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++)
		if (executors[level])
			executors[level]->ops->free(executors[level]);
	waker_deinit(&waker);
	reference_arena_deinit(&arena);
	return 0;
}

static void run(struct executor *executor, struct plan *plan, uint32_t count,
		struct reference_buffers *buffers)
{
	struct exec_arena arenas[RBK_MAX_REFS];
	struct exec_ref refs[RBK_MAX_REFS];
	struct exec_task task = {.plan = plan, .refs = refs, .count = count, .res = 1};

	for (unsigned int i = 0; i < buffers->n; i++) {
		arenas[i] = (struct exec_arena){.base = buffers->bindings[i],
						.bytes = buffers->bytes[i]};
		refs[i] = (struct exec_ref){.arena = &arenas[i]};
	}
	executor->ops->run_inline(executor, &task);
	assert_int_equal(task.res, 0);
}

static void check(struct plan *plan, uint32_t count)
{
	struct reference_buffers start, want, got;

	random_quantized_buffers(&start, plan, count, &seed);
	reference_buffers_copy(&want, &start);
	reference_run(plan, count, want.bindings);
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		struct executor *executor = executors[level];

		if (!executor)
			continue;
		reference_buffers_copy(&got, &start);
		assert_int_equal(executor->ops->plan_prepare(executor, plan), 0);
		run(executor, plan, count, &got);
		executor->ops->plan_release(executor, plan);
		if (!random_quantized_close(plan, count, &got, &want, 0))
			fail_msg("%s at %s, count %u", plan->nodes[0].op->name,
				 cpu_simd_name((enum cpu_simd)level), count);
		reference_buffers_deinit(&got);
	}
	reference_buffers_deinit(&want);
	reference_buffers_deinit(&start);
}

TEST(test_quantized__random_plans)
{
	for (const enum op_kind *kind = random_quantized_ops; *kind != OP_KIND_COUNT; kind++) {
		for (unsigned int round = 0; round < 60; round++) {
			struct plan *plan =
				random_quantized_plan(*kind, &arena, round % 12 == 0, &seed);

			check(plan, plan->max_count);
			if (plan->max_count > 1)
				check(plan, 1);
			plan_free(plan);
		}
	}
}

TEST_MAIN(set_up, tear_down)
