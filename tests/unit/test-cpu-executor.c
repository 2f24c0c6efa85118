/* SPDX-License-Identifier: MIT */
/*
 * The CPU executor: whole plans against the reference, inline and through the workers; a fake
 * reactor under load; cancellation; limits; failing allocations.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "cpu/cpu.h"
#include "plan/executor.h"
#include "reference/reference.h"
#include "support/describe.h"
#include "unit/fail-alloc.h"
#include "util/clock.h"
#include "util/waker.h"

struct rig {
	struct waker waker;
	struct executor *executor;
};

static void rig_init(struct rig *rig, const struct cpu_options *options)
{
	assert_int_equal(waker_init(&rig->waker), 0);
	assert_int_equal(cpu_executor_new(options, &rig->waker, &rig->executor), 0);
	rig->executor->index = RBK_DEVICE_CPU;
}

static void rig_deinit(struct rig *rig)
{
	rig->executor->ops->free(rig->executor);
	waker_deinit(&rig->waker);
}

static void prepare(struct rig *rig, struct plan *plan)
{
	assert_int_equal(rig->executor->ops->plan_prepare(rig->executor, plan), 0);
	assert_int_equal(plan->device_state[RBK_DEVICE_CPU], PLAN_DEVICE_READY);
	assert_non_null(plan->exec[RBK_DEVICE_CPU]);
	assert_true(plan->host_bytes[RBK_DEVICE_CPU] >= plan->scratch_bytes);
}

static void release(struct rig *rig, struct plan *plan)
{
	rig->executor->ops->plan_release(rig->executor, plan);
	assert_null(plan->exec[RBK_DEVICE_CPU]);
	assert_int_equal(plan->host_bytes[RBK_DEVICE_CPU], 0);
	plan_free(plan);
}

/* A task over buffers of its own. */
struct job {
	struct exec_task task;
	struct exec_ref refs[RBK_MAX_REFS];
	struct exec_arena arenas[RBK_MAX_REFS];
	struct reference_buffers buffers;
};

static void job_init(struct job *job, struct plan *plan, uint32_t count, uint64_t seed)
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

static void job_deinit(struct job *job)
{
	reference_buffers_deinit(&job->buffers);
}

static struct exec_task *reap_one(struct rig *rig)
{
	struct exec_task *task;

	while (rig->executor->ops->reap(rig->executor, &task, 1) == 0)
		sched_yield();
	return task;
}

static void run_queued(struct rig *rig, struct job *job)
{
	assert_int_equal(rig->executor->ops->submit(rig->executor, &job->task), 0);
	rig->executor->ops->flush(rig->executor);
	assert_ptr_equal(reap_one(rig), &job->task);
}

/* y = topk(x * w + b): the demo's plan in small. */
static struct plan *knn_plan(struct exec_arena *arena, uint32_t max_count, uint32_t n)
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

static void test_run__knn_inline_and_queued(void **state)
{
	struct exec_arena arena;
	struct plan *plan;
	struct rig rig;

	reference_arena_init(&arena, 50 * 1999 * sizeof(float), 7);
	rig_init(&rig, &(struct cpu_options){.n_workers = 3});
	plan = knn_plan(&arena, 40, 1999);
	prepare(&rig, plan);
	for (uint32_t count = 1; count <= 40; count += 13) {
		struct reference_buffers want;
		struct job queued, direct;

		job_init(&queued, plan, count, count);
		job_init(&direct, plan, count, count);
		reference_buffers_copy(&want, &queued.buffers);
		reference_run(plan, count, want.bindings);
		run_queued(&rig, &queued);
		assert_int_equal(queued.task.res, 0);
		assert_true(queued.task.end_ticks >= queued.task.start_ticks);
		assert_true(
			reference_buffers_close(plan, count, &queued.buffers, &want, 1e-5, 1e-5));
		rig.executor->ops->run_inline(rig.executor, &direct.task);
		assert_int_equal(direct.task.res, 0);
		for (unsigned int i = 0; i < want.n; i++)
			assert_memory_equal(direct.buffers.bindings[i], queued.buffers.bindings[i],
					    want.bytes[i]);
		reference_buffers_deinit(&want);
		job_deinit(&queued);
		job_deinit(&direct);
	}
	release(&rig, plan);
	rig_deinit(&rig);
	reference_arena_deinit(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_run__knn_inline_and_queued),
	};

	clock_init();
	cpu_flush_denormals();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
