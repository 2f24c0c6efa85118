/* SPDX-License-Identifier: MIT */
/* See cpu-rig.h. */
#include "unit/cpu-rig.h"

#include <poll.h>
#include <stdbool.h>
#include <string.h>

#include "cpu/compile.h"
#include "cpu/internal.h"
#include "plan/executor.h"
#include "support/describe.h"
#include "support/test.h"

void cpu_rig_init(struct cpu_rig *rig, const struct cpu_options *options)
{
	assert_int_equal(waker_init(&rig->waker), 0);
	assert_int_equal(cpu_executor_new(options, &rig->waker, &rig->executor), 0);
	rig->executor->index = RBK_DEVICE_CPU;
}

void cpu_rig_deinit(struct cpu_rig *rig)
{
	rig->executor->ops->free(rig->executor);
	waker_deinit(&rig->waker);
}

/* Assert that the plan's translation takes no more bytes than the session is charged in advance. */
static void expect_translation(const struct plan *plan)
{
	const struct cpu_plan *compiled = plan->exec[RBK_DEVICE_CPU];

	assert_true(compiled->n_steps * sizeof(*compiled->steps) +
			    compiled->n_fills * sizeof(*compiled->fills) +
			    compiled->n_packs *
				    (sizeof(*compiled->packs) + sizeof(struct cpu_pack)) <=
		    exec_translation_bytes(plan));
}

void cpu_rig_prepare(struct cpu_rig *rig, struct plan *plan)
{
	const struct cpu_pack_cache *packs = &cpu_executor_from(rig->executor)->packs;
	const struct executor_ops *ops = rig->executor->ops;
	const uint64_t committed_bytes = packs->committed_bytes;
	uint64_t measured_bytes;
	int r;

	/* Measuring allocates nothing: the plan's bytes are known before. */
	while ((r = ops->plan_measure(rig->executor, plan)) == EXECUTOR_E_MORE)
		;
	assert_int_equal(r, 0);
	measured_bytes = plan->host_bytes[RBK_DEVICE_CPU];
	assert_int_equal(packs->committed_bytes, committed_bytes);
	expect_translation(plan);
	do {
		r = ops->plan_compile(rig->executor, plan);
		assert_true(packs->committed_bytes - committed_bytes <= measured_bytes);
	} while (r == EXECUTOR_E_MORE);
	assert_int_equal(r, 0);
	assert_int_equal(ops->plan_prepare(rig->executor, plan), 0);
	assert_int_equal(packs->committed_bytes, packs->bytes);
	assert_true(plan->host_bytes[RBK_DEVICE_CPU] <= measured_bytes);
	assert_int_equal(plan->device_state[RBK_DEVICE_CPU], PLAN_DEVICE_READY);
	assert_non_null(plan->exec[RBK_DEVICE_CPU]);
	assert_true(plan->host_bytes[RBK_DEVICE_CPU] >= plan->scratch_bytes);
}

void cpu_rig_release(struct cpu_rig *rig, struct plan *plan)
{
	rig->executor->ops->plan_release(rig->executor, plan);
	assert_null(plan->exec[RBK_DEVICE_CPU]);
	assert_int_equal(plan->host_bytes[RBK_DEVICE_CPU], 0);
	plan_free(plan);
}

void cpu_job_init(struct cpu_job *job, struct plan *plan, uint32_t count, uint64_t seed)
{
	memset(job, 0, sizeof(*job));
	reference_buffers_init(&job->buffers, plan, count, seed);
	for (unsigned int i = 0; i < job->buffers.n; i++) {
		job->arenas[i] = (struct exec_arena){
			.base = job->buffers.bindings[i],
			.bytes = job->buffers.bytes[i],
		};
		job->refs[i].arena = &job->arenas[i];
	}
	job->task.plan = plan;
	job->task.refs = job->refs;
	job->task.count = count;
	job->task.res = 1;
}

void cpu_job_deinit(struct cpu_job *job)
{
	reference_buffers_deinit(&job->buffers);
}

void cpu_job_wipe(struct cpu_job *job)
{
	for (unsigned int i = 0; i < job->buffers.n; i++)
		if (job->task.plan->bindings[i].written)
			memset(job->buffers.bindings[i], 0x5a, job->buffers.bytes[i]);
}

void cpu_job_expect(const struct cpu_job *job, const struct reference_buffers *want)
{
	for (unsigned int i = 0; i < want->n; i++)
		assert_memory_equal(job->buffers.bindings[i], want->bindings[i], want->bytes[i]);
}

struct exec_task *cpu_rig_reap(struct cpu_rig *rig)
{
	struct exec_task *task;

	/* The workers need the processor. */
	while (rig->executor->ops->reap(rig->executor, &task, 1) == 0) {
		struct pollfd pollfd = {.fd = rig->waker.fd, .events = POLLIN};
		bool is_there;

		waker_arm(&rig->waker);
		is_there = rig->executor->ops->reap(rig->executor, &task, 1) == 1;
		if (!is_there)
			poll(&pollfd, 1, -1);
		waker_disarm(&rig->waker);
		if (is_there)
			break;
	}
	return task;
}

void cpu_rig_submit(struct cpu_rig *rig, struct cpu_job *job)
{
	assert_int_equal(rig->executor->ops->submit(rig->executor, &job->task), 0);
	rig->executor->ops->flush(rig->executor);
}

void cpu_rig_run(struct cpu_rig *rig, struct cpu_job *job)
{
	cpu_rig_submit(rig, job);
	assert_ptr_equal(cpu_rig_reap(rig), &job->task);
}

uint32_t cpu_rig_long(uint32_t n)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return n / 4;
#else
	return n;
#endif
}

struct plan *cpu_rig_knn_plan(struct exec_arena *arena, uint32_t max_count, uint32_t n)
{
	struct describe *d = describe_new("knn", max_count);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 50));
	describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(50, n));
	describe_constant(d, "b", RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(n));
	describe_scratch(d, "xw");
	describe_scratch(d, "scores");
	describe_output(d, "values", DESCRIBE_DIMS(DESCRIBE_COUNT, 5));
	describe_inferred(d, "indices", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64);
	describe_node(d, "MatMul", "", "x,w", "xw");
	describe_node(d, "Add", "", "xw,b", "scores");
	describe_node(d, "TopK", "", "scores", "values,indices");
	describe_attr_int(d, "k", 5);
	return reference_plan(d, arena);
}

struct plan *cpu_rig_long_plan(struct exec_arena *arena)
{
	struct describe *d = describe_new("long", 130);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 390));
	describe_constant(d, "w", RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(390, 500));
	describe_constant(d, "b", RBK_REF(REFERENCE_ARENA, 0), DESCRIBE_DIMS(500));
	describe_scratch(d, "xw");
	describe_scratch(d, "sum");
	describe_scratch(d, "positive");
	describe_inferred(d, "square", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_inferred(d, "soft", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_inferred(d, "total", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, "MatMul", "", "x,w", "xw");
	describe_node(d, "Add", "", "xw,b", "sum");
	describe_node(d, "Relu", "", "sum", "positive");
	describe_node(d, "Mul", "", "positive,positive", "square");
	describe_node(d, "Softmax", "", "sum", "soft");
	describe_node(d, "ReduceSum", "", "soft", "total");
	describe_attr_ints(d, "axes", DESCRIBE_INTS(0));
	return reference_plan(d, arena);
}

struct plan *cpu_rig_binary_plan(const char *op)
{
	struct describe *d = describe_new("binary", 64);

	describe_input(d, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 60));
	describe_input(d, "z", DESCRIBE_DIMS(DESCRIBE_COUNT, 60));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, op, "", "x,z", "y");
	return reference_plan(d, NULL);
}
