/* SPDX-License-Identifier: MIT */
/*
 * The CPU executor: what plans have besides their tasks, packed constants and scratch, is made and
 * given back in parts, so that the setup thread has other jobs in between.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "cpu/internal.h"
#include "support/describe.h"
#include "unit/cpu-rig.h"

enum { PART_BYTES = 32 << 20 };

/* Weights of eight bits are packed a part at a time: the setup thread has turns for others, too. */
static void test_pack__integer_in_parts(void **state)
{
	enum { K = 1000, N_COLUMNS = 9000 };
	struct cpu_int8_gemm gemm = {.n = N_COLUMNS, .k = K, .b_rs = N_COLUMNS};
	struct describe *d = describe_new("", 2);
	const struct cpu_int8_kernels *kernels;
	const struct cpu_plan *compiled;
	struct exec_arena arena;
	struct cpu_rig rig;
	struct plan *plan;
	size_t bytes;
	void *to;

	reference_arena_init(&arena, K * N_COLUMNS, 3);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	kernels = cpu_int8_best(cpu_executor_from(rig.executor)->kernels->level);
	describe_tensor(d, "x", RBK_TENSOR_INPUT, RBK_DTYPE_U8, 0,
			DESCRIBE_DIMS(DESCRIBE_COUNT, K));
	describe_tensor(d, "w", RBK_TENSOR_CONSTANT, RBK_DTYPE_U8, RBK_REF(REFERENCE_ARENA, 0),
			DESCRIBE_DIMS(K, N_COLUMNS));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_I32);
	describe_node(d, "MatMulInteger", "", "x,w", "y");
	plan = reference_plan(d, &arena);
	cpu_rig_prepare(&rig, plan);
	compiled = plan->exec[RBK_DEVICE_CPU];
	assert_true(compiled->packs[0]->n_filled >= 4);

	bytes = kernels->pack_b_size(K, N_COLUMNS);
	to = aligned_alloc(64, (bytes + 63) / 64 * 64);
	assert_non_null(to);
	gemm.b = arena.base;
	kernels->pack_b(&gemm, 0, SIZE_MAX, to);
	assert_memory_equal(compiled->packs[0]->data, to, bytes);
	free(to);
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* Those of convolutions, too, by out channels. */
static void test_pack__integer_conv_in_parts(void **state)
{
	enum { M = 512, CHANNELS = 2048, TAPS = 9 };
	const struct cpu_int8_kernels *kernels;
	const struct cpu_plan *compiled;
	struct describe *d = describe_new("", 1);
	struct cpu_int8_conv conv;
	struct exec_arena arena;
	struct cpu_rig rig;
	struct plan *plan;
	size_t bytes;
	void *to;

	reference_arena_init(&arena, M * CHANNELS * TAPS, 3);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	kernels = cpu_int8_best(cpu_executor_from(rig.executor)->kernels->level);
	describe_tensor(d, "x", RBK_TENSOR_INPUT, RBK_DTYPE_U8, 0,
			DESCRIBE_DIMS(1, CHANNELS, 4, 4));
	describe_tensor(d, "w", RBK_TENSOR_CONSTANT, RBK_DTYPE_U8, RBK_REF(REFERENCE_ARENA, 0),
			DESCRIBE_DIMS(M, CHANNELS, 3, 3));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_I32);
	describe_node(d, "ConvInteger", "", "x,w", "y");
	plan = reference_plan(d, &arena);
	cpu_rig_prepare(&rig, plan);
	compiled = plan->exec[RBK_DEVICE_CPU];
	assert_true(compiled->packs[0]->n_filled >= 4);

	conv = (struct cpu_int8_conv){.window = compiled->steps[0].integer_conv.args};
	conv.window.weights = (const float *)(const void *)arena.base;
	bytes = kernels->pack_conv_size(&conv.window);
	to = aligned_alloc(64, (bytes + 63) / 64 * 64);
	assert_non_null(to);
	kernels->pack_conv(&conv, 0, SIZE_MAX, to);
	assert_memory_equal(compiled->packs[0]->data, to, bytes);
	free(to);
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* Return: a plan with three parts of scratch. */
static struct plan *scratch_plan(void)
{
	struct describe *d = describe_new("", 1);

	describe_input(d, "x", DESCRIBE_DIMS(8 << 20));
	describe_scratch(d, "s");
	describe_output(d, "y", DESCRIBE_DIMS(8 << 20));
	describe_node(d, "Neg", "", "x", "s");
	describe_node(d, "Neg", "", "s", "y");
	return reference_plan(d, NULL);
}

/* Scratch, of which long tasks may have touched all, goes in parts. */
static void test_shrink__scratch(void **state)
{
	const struct cpu_plan *compiled;
	struct cpu_rig rig;
	struct plan *plan = scratch_plan();
	size_t n_parts;

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	cpu_rig_prepare(&rig, plan);
	compiled = plan->exec[RBK_DEVICE_CPU];
	n_parts = compiled->scratch_map_bytes / PART_BYTES;
	assert_true(n_parts >= 3);
	while (rig.executor->ops->plan_shrink(rig.executor, plan) == EXECUTOR_E_MORE)
		assert_int_equal(compiled->scratch_map_bytes / PART_BYTES, --n_parts);
	assert_null(compiled->scratch);
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
}

/* Scratch that was measured and never mapped: nothing else is unmapped in its place. */
static void test_shrink__scratch_measured(void **state)
{
	const struct cpu_plan *compiled;
	struct cpu_rig rig;
	struct plan *plan = scratch_plan();
	uint8_t *other;

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	assert_int_equal(rig.executor->ops->plan_measure(rig.executor, plan), 0);
	compiled = plan->exec[RBK_DEVICE_CPU];
	assert_null(compiled->scratch);
	assert_true(compiled->scratch_map_bytes >= 3 * PART_BYTES);
	/* At an address that is an offset into it. */
	other = mmap((void *)(uintptr_t)(80 << 20), 4096, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	while (rig.executor->ops->plan_shrink(rig.executor, plan) == EXECUTOR_E_MORE)
		;
	if (other != MAP_FAILED) {
		assert_int_equal(msync(other, 4096, MS_ASYNC), 0);
		munmap(other, 4096);
	}
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pack__integer_in_parts),
		cmocka_unit_test(test_pack__integer_conv_in_parts),
		cmocka_unit_test(test_shrink__scratch),
		cmocka_unit_test(test_shrink__scratch_measured),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
