/* SPDX-License-Identifier: MIT */
/*
 * The CPU executor: whole plans against the reference, inline and through the workers; full
 * queues; limits; failing allocations.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cpu/cpu.h"
#include "cpu/internal.h"
#include "support/describe.h"
#include "support/scaled.h"
#include "support/test.h"
#include "unit/cpu-levels.h"
#include "unit/cpu-rig.h"
#include "unit/fail-alloc.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/waker.h"

TEST(test_run__knn_inline_and_queued)
{
	struct exec_arena arena;
	struct plan *plan;
	struct cpu_rig rig;

	reference_arena_init(&arena, 50 * 1999 * sizeof(float), 7);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 3});
	plan = cpu_rig_knn_plan(&arena, 40, 1999);
	cpu_rig_prepare(&rig, plan);
	for (uint32_t count = 1; count <= 40; count += 13) {
		struct reference_buffers want;
		struct cpu_job queued, direct;

		cpu_job_init(&queued, plan, count, count);
		cpu_job_init(&direct, plan, count, count);
		reference_buffers_copy(&want, &queued.buffers);
		reference_run(plan, count, want.bindings);
		cpu_rig_run(&rig, &queued);
		assert_int_equal(queued.task.res, 0);
		assert_true(queued.task.end_ticks >= queued.task.start_ticks);
		assert_true(
			reference_buffers_close(plan, count, &queued.buffers, &want, 1e-5, 1e-5));
		rig.executor->ops->run_inline(rig.executor, &direct.task);
		assert_fields(direct.task, (res, 0), (busy_ticks, 0));
		for (unsigned int i = 0; i < want.n; i++)
			assert_memory_equal(direct.buffers.bindings[i], queued.buffers.bindings[i],
					    want.bytes[i]);
		reference_buffers_deinit(&want);
		cpu_job_deinit(&queued);
		cpu_job_deinit(&direct);
	}
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

TEST(test_run__same_bits_for_any_workers)
{
	struct exec_arena arena;
	struct cpu_job want;

	reference_arena_init(&arena, 390 * 500 * sizeof(float), 11);
	for (unsigned int n_workers = 1; n_workers <= 5; n_workers++) {
		struct plan *plan = cpu_rig_long_plan(&arena);
		struct cpu_rig rig;

		cpu_rig_init(&rig, &(struct cpu_options){.n_workers = n_workers, .spin_ns = 50000});
		cpu_rig_prepare(&rig, plan);
		if (n_workers == 1) {
			cpu_job_init(&want, plan, 130, 5);
			rig.executor->ops->run_inline(rig.executor, &want.task);
		}
		for (uint64_t round = 0; round < test_scaled(10); round++) {
			struct cpu_job job;

			cpu_job_init(&job, plan, 130, 5);
			cpu_rig_run(&rig, &job);
			for (unsigned int i = 0; i < want.buffers.n; i++)
				assert_memory_equal(job.buffers.bindings[i],
						    want.buffers.bindings[i],
						    want.buffers.bytes[i]);
			cpu_job_deinit(&job);
		}
		cpu_rig_release(&rig, plan);
		cpu_rig_deinit(&rig);
	}
	cpu_job_deinit(&want);
	reference_arena_deinit(&arena);
}

TEST(test_submit__full_is_busy)
{
	struct plan *plan = cpu_rig_binary_plan("Add");
	struct exec_task *tasks[8];
	struct cpu_job jobs[5];
	struct cpu_rig rig;
	unsigned int n = 0;

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 2, .max_tasks = 4});
	cpu_rig_prepare(&rig, plan);
	for (unsigned int i = 0; i < 5; i++)
		cpu_job_init(&jobs[i], plan, 3, i);
	/* Tasks that are completed but not reaped count as in flight. */
	for (unsigned int i = 0; i < 4; i++)
		assert_int_equal(rig.executor->ops->submit(rig.executor, &jobs[i].task), 0);
	assert_int_equal(rig.executor->ops->submit(rig.executor, &jobs[4].task), EXECUTOR_E_BUSY);
	assert_int_equal(atomic_load(&jobs[4].task.state), EXEC_IDLE);
	rig.executor->ops->flush(rig.executor);
	while (n == 0)
		n = rig.executor->ops->reap(rig.executor, tasks, 8);
	assert_int_equal(rig.executor->ops->submit(rig.executor, &jobs[4].task), 0);
	rig.executor->ops->flush(rig.executor);
	while (n < 5)
		n += rig.executor->ops->reap(rig.executor, tasks, 8);
	assert_int_equal(rig.executor->ops->reap(rig.executor, tasks, 8), 0);
	for (unsigned int i = 0; i < 5; i++) {
		assert_int_equal(jobs[i].task.res, 0);
		cpu_job_deinit(&jobs[i]);
	}
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
}

/* A reactor that sleeps on the waker is woken by a completion. */
TEST(test_reap__waker_rings)
{
	struct plan *plan = cpu_rig_binary_plan("Mul");
	struct cpu_job job;
	struct cpu_rig rig;

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	cpu_rig_prepare(&rig, plan);
	for (unsigned int round = 0; round < 50; round++) {
		struct exec_task *task;
		struct pollfd poll_fd = {.fd = rig.waker.fd, .events = POLLIN};

		cpu_job_init(&job, plan, 64, round);
		assert_int_equal(rig.executor->ops->submit(rig.executor, &job.task), 0);
		rig.executor->ops->flush(rig.executor);
		waker_arm(&rig.waker);
		if (rig.executor->ops->reap(rig.executor, &task, 1) == 0) {
			assert_int_equal(poll(&poll_fd, 1, 10000), 1);
			assert_int_equal(rig.executor->ops->reap(rig.executor, &task, 1), 1);
		}
		waker_disarm(&rig.waker);
		assert_ptr_equal(task, &job.task);
		cpu_job_deinit(&job);
	}
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
}

/* Return a product with a constant large enough to be packed. */
static struct plan *packed_plan(struct exec_arena *arena, uint64_t offset, bool trans_b)
{
	struct describe *d = describe_new("", 10);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 200));
	describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, offset), DESCRIBE_DIMS(200, 200));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "Gemm", "", "x,w", "y");
	describe_attr_int(d, "transB", trans_b);
	return reference_plan(d, arena);
}

static uint64_t packed_bytes(struct cpu_rig *rig)
{
	return cpu_executor_from(rig->executor)->packs.bytes;
}

TEST(test_pack__shared_and_freed)
{
	const uint64_t bytes = 200 * 200 * sizeof(float);
	struct plan *same[2], *other_form, *other_offset, *other_owner;
	struct exec_arena arena, theirs;
	struct cpu_rig rig;
	uint64_t one;

	reference_arena_init(&arena, 2 * bytes, 1);
	theirs = arena;
	theirs.owner = arena.owner + 1;
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	same[0] = packed_plan(&arena, 0, false);
	same[1] = packed_plan(&arena, 0, false);
	other_form = packed_plan(&arena, 0, true);
	other_offset = packed_plan(&arena, 64, false);
	other_owner = packed_plan(&theirs, 0, false);

	assert_int_equal(packed_bytes(&rig), 0);
	cpu_rig_prepare(&rig, same[0]);
	one = packed_bytes(&rig);
	assert_true(one >= bytes);
	assert_true(same[0]->host_bytes[RBK_DEVICE_CPU] >= one);
	cpu_rig_prepare(&rig, same[1]);
	assert_int_equal(packed_bytes(&rig), one);
	assert_int_equal(same[1]->host_bytes[RBK_DEVICE_CPU], same[0]->host_bytes[RBK_DEVICE_CPU]);
	cpu_rig_prepare(&rig, other_form);
	assert_int_equal(packed_bytes(&rig), 2 * one);
	cpu_rig_prepare(&rig, other_offset);
	assert_int_equal(packed_bytes(&rig), 3 * one);
	cpu_rig_prepare(&rig, other_owner);
	assert_int_equal(packed_bytes(&rig), 4 * one);

	cpu_rig_release(&rig, same[0]);
	assert_int_equal(packed_bytes(&rig), 4 * one);
	cpu_rig_release(&rig, same[1]);
	assert_int_equal(packed_bytes(&rig), 3 * one);
	cpu_rig_release(&rig, other_owner);
	cpu_rig_release(&rig, other_form);
	cpu_rig_release(&rig, other_offset);
	assert_int_equal(packed_bytes(&rig), 0);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* ---- Packing in parts ---- */

/* Products whose constants take many parts: deep, wide, batched, transposed, float16. */
static const struct {
	uint32_t batch, k, n;
	bool trans_b, is_half;
} large[] = {
	{1, 1000, 3000, false, false}, {1, 1000, 3000, true, false}, {1, 3, 700001, false, false},
	{3, 400, 1111, false, false},  {1, 769, 1500, false, true},  {2, 50, 30000, false, true},
};

static struct plan *large_plan(struct exec_arena *arena, unsigned int i)
{
	const enum rbk_dtype dtype = large[i].is_half ? RBK_DTYPE_F16 : RBK_DTYPE_F32;
	struct describe *d = describe_new("", large[i].batch > 1 ? 1 : 2);
	const uint32_t batch = large[i].batch, k = large[i].k, n = large[i].n;

	if (batch > 1) {
		describe_input(d, "x", DESCRIBE_DIMS(batch, 4, k));
		describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(batch, k, n));
	} else {
		describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, k));
		describe_constant(
			d, "w", RBK_REF(REFERENCE_ARENA, 0),
			DESCRIBE_DIMS(large[i].trans_b ? n : k, large[i].trans_b ? k : n));
	}
	describe_floats(d, dtype);
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, dtype);
	describe_node(d, large[i].trans_b ? "Gemm" : "MatMul", "", "x,w", "y");
	if (large[i].trans_b)
		describe_attr_int(d, "transB", 1);
	return reference_plan(d, arena);
}

/* Assert that the packed form equals that of one call, wherever it was cut into parts. */
static void expect_packed(const struct cpu_kernels *kernels, const struct exec_arena *arena,
			  unsigned int i, const struct cpu_pack *pack)
{
	const size_t k = large[i].k, n = large[i].n, packed = kernels->pack_b_size(k, n);
	const size_t n_from = large[i].batch * k * n;
	float *from = (float *)arena->base, *to = malloc(packed * sizeof(float));

	assert_non_null(to);
	if (large[i].is_half) {
		from = malloc(n_from * sizeof(float));
		assert_non_null(from);
		kernels->half_load(n_from, (const uint16_t *)arena->base, from);
	}
	for (unsigned int b = 0; b < large[i].batch; b++) {
		kernels->pack_b(k, n, from + b * k * n, large[i].trans_b ? 1 : n,
				large[i].trans_b ? k : 1, to);
		assert_memory_equal(to, pack->data + b * packed, packed * sizeof(float));
	}
	if (large[i].is_half)
		free(from);
	free(to);
}

/* Weights of windows are packed in parts as well; the result equals that of unpacked weights. */
static const struct large_window {
	const char *op;
	uint32_t in[2], out; /* input channels of a group, and of all; output channels */
	enum cpu_layout_wish layout;
} large_windows[] = {
	{"Conv", {500, 500}, 500, CPU_LAYOUT_NONE},
	{"Conv", {500, 500}, 500, CPU_LAYOUT_EVERY},
	{"Conv", {250, 500}, 900, CPU_LAYOUT_NONE},
	{"Conv", {250, 500}, 900, CPU_LAYOUT_EVERY},
	{"ConvTranspose", {500, 500}, 500, CPU_LAYOUT_NONE},
	{"ConvTranspose", {500, 1000}, 500, CPU_LAYOUT_NONE},
};

static struct plan *large_window_plan(struct exec_arena *arena, const struct large_window *window)
{
	const uint32_t n_groups = window->in[1] / window->in[0];
	struct describe *d = describe_new("", 1);
	const bool is_transposed = strcmp(window->op, "Conv") != 0;

	describe_input(d, "x", DESCRIBE_DIMS(1, window->in[1], 6, 6));
	describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, 0),
			  DESCRIBE_DIMS(is_transposed ? window->in[1] : window->out,
					is_transposed ? window->out / n_groups : window->in[0], 3,
					3));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, window->op, "", "x,w", "y");
	describe_attr_int(d, "group", n_groups);
	return reference_plan(d, arena);
}

TEST(test_pack__windows_in_parts)
{
	struct exec_arena arena;

/* Packing takes a minute under ThreadSanitizer, and runs in the test's own thread alone. */
#ifdef __SANITIZE_THREAD__
	skip();
#endif
	reference_arena_init(&arena, 500 * 500 * 9 * sizeof(float), 3);
	for (unsigned int i = 0; i < ARRAY_SIZE(large_windows); i++) {
		struct cpu_rig rig;
		const struct executor_ops *ops;
		const struct cpu_plan *compiled;
		struct reference_buffers want;
		unsigned int n_calls = 0;
		struct plan *plan;
		struct cpu_job job;

		cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1,
							 .layout = large_windows[i].layout});
		ops = rig.executor->ops;
		plan = large_window_plan(&arena, &large_windows[i]);
		assert_int_equal(ops->plan_measure(rig.executor, plan), 0);
		compiled = plan->exec[RBK_DEVICE_CPU];
		assert_int_equal(compiled->n_packs, 1);
		while (ops->plan_compile(rig.executor, plan) == EXECUTOR_E_MORE)
			n_calls++;
		print_message("%s: %u calls\n", large_windows[i].op, n_calls);
		assert_true(n_calls >= compiled->packs[0]->map_bytes / (4 << 20));
		assert_true(compiled->packs[0]->is_filled);
		assert_int_equal(ops->plan_prepare(rig.executor, plan), 0);
		cpu_job_init(&job, plan, 1, 7);
		reference_buffers_copy(&want, &job.buffers);
		reference_run(plan, 1, want.bindings);
		cpu_rig_run(&rig, &job);
		assert_int_equal(job.task.res, 0);
		assert_true(reference_buffers_close(plan, 1, &job.buffers, &want, 1e-3, 1e-3));
		reference_buffers_deinit(&want);
		cpu_job_deinit(&job);
		cpu_rig_release(&rig, plan);
		cpu_rig_deinit(&rig);
	}
	reference_arena_deinit(&arena);
}

TEST(test_pack__in_parts)
{
	struct exec_arena arena;
	struct cpu_rig rig;

	reference_arena_init(&arena, 1000 * 3000 * sizeof(float), 3);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	for (unsigned int i = 0; i < ARRAY_SIZE(large); i++) {
		const struct executor_ops *ops = rig.executor->ops;
		struct plan *plan = large_plan(&arena, i), *same = large_plan(&arena, i);
		const struct cpu_plan *compiled;
		unsigned int n_calls = 0;

		assert_int_equal(ops->plan_measure(rig.executor, plan), 0);
		assert_int_equal(ops->plan_measure(rig.executor, same), 0);
		assert_int_equal(cpu_executor_from(rig.executor)->packs.committed_bytes, 0);
		compiled = plan->exec[RBK_DEVICE_CPU];
		assert_int_equal(compiled->n_packs, 1);
		/* Each plan continues where the other stopped. */
		while (ops->plan_compile(rig.executor, n_calls % 2 ? plan : same) ==
		       EXECUTOR_E_MORE)
			n_calls++;
		assert_true(n_calls >= compiled->packs[0]->map_bytes / (8 << 20));
		assert_true(compiled->packs[0]->is_filled);
		expect_packed(cpu_executor_from(rig.executor)->kernels, &arena, i,
			      compiled->packs[0]);
		assert_int_equal(ops->plan_prepare(rig.executor, plan), 0);
		assert_int_equal(ops->plan_prepare(rig.executor, same), 0);
		cpu_rig_release(&rig, plan);
		cpu_rig_release(&rig, same);
		assert_int_equal(packed_bytes(&rig), 0);
	}
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* If a plan is dropped while packing, another plan that shares the pack continues it. */
TEST(test_pack__given_up)
{
	struct exec_arena arena;
	struct cpu_rig rig;

	reference_arena_init(&arena, 1000 * 3000 * sizeof(float), 3);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	for (unsigned int i = 0; i < ARRAY_SIZE(large); i++) {
		const struct executor_ops *ops = rig.executor->ops;
		struct plan *plan = large_plan(&arena, i), *same = large_plan(&arena, i);
		const struct cpu_plan *compiled;

		assert_int_equal(ops->plan_measure(rig.executor, plan), 0);
		assert_int_equal(ops->plan_measure(rig.executor, same), 0);
		ops->plan_compile(rig.executor, plan);
		cpu_rig_release(&rig, plan);
		assert_int_equal(ops->plan_prepare(rig.executor, same), 0);
		compiled = same->exec[RBK_DEVICE_CPU];
		expect_packed(cpu_executor_from(rig.executor)->kernels, &arena, i,
			      compiled->packs[0]);
		cpu_rig_release(&rig, same);
		assert_int_equal(packed_bytes(&rig), 0);

		plan = large_plan(&arena, i);
		assert_int_equal(ops->plan_measure(rig.executor, plan), 0);
		ops->plan_compile(rig.executor, plan);
		cpu_rig_release(&rig, plan);
		assert_int_equal(packed_bytes(&rig), 0);
		assert_int_equal(cpu_executor_from(rig.executor)->packs.committed_bytes, 0);
	}
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/* Weights of four bits with scales and zero points of float16, which are converted beside them. */
TEST(test_pack__nbits_in_parts)
{
	enum { K = 500, N = 30000, BLOCK = 32, BLOCKS = (K + BLOCK - 1) / BLOCK };
	const uint64_t scales_at = N * BLOCKS * BLOCK / 2, zeros_at = scales_at + N * BLOCKS * 2;
	struct exec_arena arena;
	struct cpu_rig rig;

	reference_arena_init(&arena, zeros_at + N * BLOCKS * 2, 3);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	for (unsigned int i = 0; i < 2; i++) {
		const struct executor_ops *ops = rig.executor->ops;
		const struct cpu_kernels *kernels = cpu_executor_from(rig.executor)->kernels;
		const size_t bytes = kernels->pack_nbits_size(K, N, BLOCK);
		struct cpu_nbits_weights weights = {
			.k = K, .n = N, .block = BLOCK, .b = arena.base};
		const uint16_t *half = (const uint16_t *)(arena.base + scales_at);
		float *floats = malloc((size_t)2 * N * BLOCKS * sizeof(*floats));
		struct describe *d = describe_new("", 2);
		const struct cpu_pack *pack;
		void *to = malloc(bytes);
		unsigned int n_calls = 0;
		struct plan *plan;

		assert_true(floats && to);
		describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, K));
		describe_constant(d, "s", RBK_REF(REFERENCE_ARENA, scales_at),
				  DESCRIBE_DIMS(N, BLOCKS));
		if (i == 1)
			describe_constant(d, "z", RBK_REF(REFERENCE_ARENA, zeros_at),
					  DESCRIBE_DIMS(N, BLOCKS));
		describe_floats(d, RBK_DTYPE_F16);
		describe_tensor(d, "w", RBK_TENSOR_CONSTANT, RBK_DTYPE_U8,
				RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(N, BLOCKS, BLOCK / 2));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F16);
		describe_node(d, "MatMulNBits", "", i == 1 ? "x,w,s,z" : "x,w,s", "y");
		describe_attr_int(d, "K", K);
		describe_attr_int(d, "N", N);
		describe_attr_int(d, "bits", 4);
		describe_attr_int(d, "block_size", BLOCK);
		plan = reference_plan(d, &arena);

		assert_int_equal(ops->plan_measure(rig.executor, plan), 0);
		while (ops->plan_compile(rig.executor, plan) == EXECUTOR_E_MORE)
			n_calls++;
		assert_true(n_calls >= 1);
		kernels->half_load((size_t)2 * N * BLOCKS, half, floats);
		weights.scales = floats;
		weights.zeros_float = i == 1 ? floats + N * BLOCKS : NULL;
		kernels->pack_nbits(&weights, to);
		pack = ((const struct cpu_plan *)plan->exec[RBK_DEVICE_CPU])->packs[0];
		assert_memory_equal(pack->data, to, bytes);
		assert_int_equal(ops->plan_prepare(rig.executor, plan), 0);
		cpu_rig_release(&rig, plan);
		assert_int_equal(packed_bytes(&rig), 0);
		free(floats);
		free(to);
	}
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/*
 * A large packed form is freed in parts. Meanwhile, a plan that needs the same form packs it anew.
 */
TEST(test_shrink__in_parts)
{
	enum { K = 4096, N = 10000 };
	struct plan *plans[2];
	struct exec_arena arena;
	struct cpu_rig rig;
	uint64_t one, left;
	unsigned int n = 0;

	reference_arena_init(&arena, (uint64_t)K * N * sizeof(float), 3);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	for (unsigned int i = 0; i < 2; i++) {
		struct describe *d = describe_new("", 2);

		describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, K));
		describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(K, N));
		describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
		describe_node(d, "MatMul", "", "x,w", "y");
		plans[i] = reference_plan(d, &arena);
	}
	cpu_rig_prepare(&rig, plans[0]);
	one = left = packed_bytes(&rig);
	while (rig.executor->ops->plan_shrink(rig.executor, plans[0]) == EXECUTOR_E_MORE) {
		assert_true(packed_bytes(&rig) < left);
		assert_true(left - packed_bytes(&rig) <= 64 << 20);
		left = packed_bytes(&rig);
		if (n++ == 0)
			assert_int_equal(rig.executor->ops->plan_measure(rig.executor, plans[1]),
					 0);
		left = packed_bytes(&rig);
	}
	assert_true(n >= 3);
	assert_int_equal(packed_bytes(&rig), one);
	cpu_rig_release(&rig, plans[0]);
	assert_int_equal(packed_bytes(&rig), one);
	assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, plans[1]), 0);
	/* A plan drops only its reference to packs that another plan shares. */
	assert_int_equal(cpu_executor_from(rig.executor)->packs.committed_bytes, one);
	cpu_rig_release(&rig, plans[1]);
	assert_int_equal(packed_bytes(&rig), 0);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

/*
 * A constant that many nodes use is packed and charged once; a constant one byte further is
 * separate.
 */
TEST(test_pack__once_in_a_plan)
{
	const uint64_t bytes = 200 * 200 * sizeof(float);
	uint64_t host_bytes[2];
	struct exec_arena arena;
	struct cpu_rig rig;

	reference_arena_init(&arena, 2 * bytes, 1);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	for (unsigned int apart = 0; apart < 2; apart++) {
		struct describe *d = describe_new("", 10);
		char at[8] = "x", w[8], y[8], in[20];
		struct plan *plan;

		describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 200));
		for (unsigned int i = 0; i < 10; i++) {
			snprintf(w, sizeof(w), "w%u", i);
			snprintf(y, sizeof(y), "y%u", i);
			snprintf(in, sizeof(in), "%s,%s", at, w);
			describe_constant(d, w, RBK_REF(REFERENCE_ARENA, apart * i * 64),
					  DESCRIBE_DIMS(200, 200));
			describe_inferred(d, y, i < 9 ? RBK_TENSOR_SCRATCH : RBK_TENSOR_OUTPUT,
					  RBK_DTYPE_F32);
			describe_node(d, "MatMul", "", in, y);
			memcpy(at, y, sizeof(at));
		}
		plan = reference_plan(d, &arena);
		cpu_rig_prepare(&rig, plan);
		host_bytes[apart] = plan->host_bytes[RBK_DEVICE_CPU];
		assert_in_range(packed_bytes(&rig), (apart ? 10 : 1) * bytes,
				(apart ? 20 : 2) * bytes);
		cpu_rig_release(&rig, plan);
		assert_int_equal(packed_bytes(&rig), 0);
	}
	assert_true(host_bytes[1] >= host_bytes[0] + 9 * bytes);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

TEST(test_release__never_prepared)
{
	struct plan *plan = cpu_rig_binary_plan("Add");
	struct cpu_rig rig;

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
}

TEST(test_prepare__unsupported)
{
	struct plan *plan = cpu_rig_binary_plan("Add");
	struct cpu_rig rig;

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	plan->ops_devices = OP_ON_VULKAN;
	assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, plan),
			 EXECUTOR_E_UNSUPPORTED);
	assert_int_equal(plan->device_state[RBK_DEVICE_CPU], PLAN_DEVICE_UNSUPPORTED);
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
}

/*
 * Let mappings and threads fail on demand, like allocations. Files are large everywhere, so mmap()
 * is mmap64().
 */
static unsigned int mmap_fails_at, thread_fails_at;

void *__real_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	if (mmap_fails_at > 0 && --mmap_fails_at == 0) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return __real_mmap64(at, bytes, prot, flags, fd, offset);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
			  void *data);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
			  void *data);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
			  void *data)
{
	if (thread_fails_at > 0 && --thread_fails_at == 0)
		return EAGAIN;
	return __real_pthread_create(thread, attr, start, data);
}

TEST(test_prepare__out_of_memory)
{
	struct exec_arena arena;
	struct plan *plan;
	struct cpu_rig rig;
	unsigned int n;

	reference_arena_init(&arena, 390 * 500 * sizeof(float), 7);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 2});
	plan = cpu_rig_long_plan(&arena);
	for (n = 1;; n++) {
		int r;

		fail_alloc_at(n);
		r = rig.executor->ops->plan_prepare(rig.executor, plan);
		if (!fail_alloc_stop()) {
			assert_int_equal(r, 0);
			break;
		}
		assert_int_equal(r, -ENOMEM);
		assert_int_equal(plan->device_state[RBK_DEVICE_CPU], PLAN_DEVICE_NO_MEMORY);
		assert_null(plan->exec[RBK_DEVICE_CPU]);
		assert_int_equal(packed_bytes(&rig), 0);
	}
	assert_true(n > 3);
	rig.executor->ops->plan_release(rig.executor, plan);
	/* The two mappings are the packed constant and the scratch memory. */
	for (n = 1; n <= 2; n++) {
		mmap_fails_at = n;
		assert_int_equal(rig.executor->ops->plan_prepare(rig.executor, plan), -ENOMEM);
		assert_int_equal(mmap_fails_at, 0);
		assert_null(plan->exec[RBK_DEVICE_CPU]);
		assert_int_equal(packed_bytes(&rig), 0);
	}
	cpu_rig_prepare(&rig, plan);
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

TEST(test_new__out_of_memory_or_threads)
{
	struct executor *executor = NULL;
	struct waker waker;
	unsigned int n;

	assert_int_equal(waker_init(&waker), 0);
	for (n = 1;; n++) {
		int r;

		fail_alloc_at(n);
		r = cpu_executor_new(&(struct cpu_options){.n_workers = 2}, &waker, &executor);
		if (!fail_alloc_stop()) {
			assert_int_equal(r, 0);
			break;
		}
		assert_int_equal(r, -ENOMEM);
		assert_null(executor);
	}
	assert_true(n > 6);
	executor = executor->ops->free(executor);
	assert_null(executor);
	for (n = 1; n <= 3; n++) {
		thread_fails_at = n;
		assert_int_equal(
			cpu_executor_new(&(struct cpu_options){.n_workers = 3}, &waker, &executor),
			-EAGAIN);
		assert_null(executor);
	}
	waker_deinit(&waker);
}

TEST(test_new__options)
{
	struct executor *executor;
	struct waker waker;

	assert_int_equal(waker_init(&waker), 0);
	assert_int_equal(cpu_executor_new(&(struct cpu_options){.n_workers = CPU_MAX_WORKERS + 1},
					  &waker, &executor),
			 -EINVAL);
	assert_int_equal(cpu_executor_new(&(struct cpu_options){.max_tasks = 3}, &waker, &executor),
			 -EINVAL);
	assert_int_equal(
		cpu_executor_new(&(struct cpu_options){.simd = CPU_SIMD_COUNT}, &waker, &executor),
		-EINVAL);
	assert_int_equal(cpu_executor_new(&(struct cpu_options){0}, &waker, &executor), 0);
	assert_int_equal(executor->info.kind, EXECUTOR_CPU);
	assert_true(executor->info.n_threads >= 1);
	assert_string_equal(executor->info.paths, cpu_kernels_get(CPU_SIMD_AUTO)->name);
	executor->ops->free(executor);
	assert_int_equal(
		cpu_executor_new(&(struct cpu_options){.simd = CPU_SIMD_SSE2}, &waker, &executor),
		0);
	assert_string_equal(executor->info.paths, cpu_kernels_get(CPU_SIMD_SSE2)->name);
	executor->ops->free(executor);
	waker_deinit(&waker);
}

/* Return a hexadecimal field, such as SigBlk, of one thread of this process. */
static uint64_t status_field(const char *thread, const char *field)
{
	char path[300], line[300];
	uint64_t value = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", thread);
	file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, field, strlen(field)))
			value = strtoull(line + strlen(field) + 1, NULL, 16);
	fclose(file);
	return value;
}

static bool status_is_worker(const char *thread)
{
	char path[300], name[32] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%s/comm", thread);
	file = fopen(path, "r");
	if (!file)
		return false;
	if (!fgets(name, sizeof(name), file))
		name[0] = 0;
	fclose(file);
	return !strncmp(name, "rb-cpu-", 7);
}

TEST(test_workers__signals_and_names)
{
	unsigned int n_workers = 0;
	struct dirent *entry;
	struct cpu_job job;
	struct plan *plan = cpu_rig_binary_plan("Add");
	struct cpu_rig rig;
	DIR *dir;

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 3});
	cpu_rig_prepare(&rig, plan);
	/* A thread that is just starting may still have other masks and no name. */
	for (unsigned int tries = 0; tries < 5000 && n_workers < 3; tries++) {
		usleep(1000);
		n_workers = 0;
		dir = opendir("/proc/self/task");
		assert_non_null(dir);
		while ((entry = readdir(dir))) {
			uint64_t blocked;

			if (!status_is_worker(entry->d_name))
				continue;
			blocked = status_field(entry->d_name, "SigBlk:");
			n_workers += !(blocked & 1ull << (SIGBUS - 1)) &&
				     (blocked & 1ull << (SIGTERM - 1)) &&
				     (blocked & 1ull << (SIGINT - 1));
		}
		closedir(dir);
	}
	assert_int_equal(n_workers, 3);
	cpu_job_init(&job, plan, 1, 1);
	cpu_rig_run(&rig, &job);
	cpu_job_deinit(&job);
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
}

/* Idle workers sleep: the process uses hardly any processor time. */
TEST(test_workers__idle_costs_nothing)
{
	struct timespec before, after;
	struct cpu_rig rig;

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 4, .spin_ns = 1000});
	usleep(20000);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	usleep(200000);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	assert_true((after.tv_sec - before.tv_sec) * 1000000000ll + after.tv_nsec - before.tv_nsec <
		    20000000);
	cpu_rig_deinit(&rig);
}

/* Denormals are flushed at every level, as operands and as results. */
TEST(test_denormals__flushed)
{
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		const struct cpu_kernels *kernels = cpu_level((enum cpu_simd)level);
		float x[37], small[37], y[37];

		if (!kernels)
			continue;
		for (unsigned int i = 0; i < 37; i++) {
			x[i] = 1e-40f;
			small[i] = 1e-30f;
		}
		kernels->map[CPU_F32][CPU_MAP_ADD](
			&(struct cpu_map){.in = {x, x}, .out = y, .step = {1, 1}}, 37);
		for (unsigned int i = 0; i < 37; i++)
			assert_true(y[i] == 0);
		kernels->map[CPU_F32][CPU_MAP_MUL](
			&(struct cpu_map){.in = {small, small}, .out = y, .step = {1, 1}}, 37);
		for (unsigned int i = 0; i < 37; i++)
			assert_true(y[i] == 0);
	}
}

TEST_MAIN(NULL, NULL, clock_init(), cpu_flush_denormals())
