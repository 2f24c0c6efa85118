/* SPDX-License-Identifier: MIT */
/*
 * Operators that go by indices on the CPU's executor, at every SIMD level, against the reference:
 * every type, random shapes; and indices that are out of range.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "support/gather-cases.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "util/clock.h"

enum { ROUNDS = 24 };

static uint64_t seed = 99;

/* The same bits, but where float16 was rounded twice. */
static void compare(const struct plan *plan, const struct cpu_job *job, const char *what)
{
	struct reference_buffers want;

	reference_buffers_copy(&want, &job->buffers);
	reference_run(plan, job->task.count, want.bindings);
	if (!reference_buffers_close(plan, job->task.count, &job->buffers, &want, 0, 0))
		fail_msg("%s", what);
	reference_buffers_deinit(&want);
}

static void check(struct cpu_rig *rig, const struct op *op, uint8_t dtype, unsigned int round)
{
	struct plan *plan = reference_plan(gather_case(op, dtype, round, &seed), NULL);
	const uint32_t count = plan->max_count == 1 ? 1 : 1 + round % GATHER_MAX_COUNT;
	struct cpu_job job;
	char what[64];

	snprintf(what, sizeof(what), "%s of type %u, round %u", op->name, dtype, round);
	cpu_rig_prepare(rig, plan);
	cpu_job_init(&job, plan, count, 1);
	gather_fill(plan, count, &job.buffers, &seed);
	cpu_rig_run(rig, &job);
	assert_int_equal(job.task.res, 0);
	compare(plan, &job, what);
	if (gather_spoil(plan, count, &job.buffers, &seed)) {
		cpu_rig_run(rig, &job);
		if (job.task.res != -EDOM)
			fail_msg("%s: a bad index: %d", what, job.task.res);
		rig->executor->ops->run_inline(rig->executor, &job.task);
		assert_int_equal(job.task.res, -EDOM);
		/* Nothing stays of it. */
		gather_fill(plan, count, &job.buffers, &seed);
		cpu_rig_run(rig, &job);
		assert_int_equal(job.task.res, 0);
		rig->executor->ops->run_inline(rig->executor, &job.task);
		assert_int_equal(job.task.res, 0);
		compare(plan, &job, what);
	}
	cpu_job_deinit(&job);
	cpu_rig_release(rig, plan);
}

TEST(test_gather__against_reference)
{
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		struct cpu_rig rig;

		if (!cpu_kernels_get((enum cpu_simd)level))
			continue;
		cpu_rig_init(&rig,
			     &(struct cpu_options){.n_workers = 1, .simd = (enum cpu_simd)level});
		for (unsigned int kind = GATHER_FIRST; kind <= GATHER_LAST; kind++) {
			const struct op *op = op_by_kind((enum op_kind)kind);

			for (uint8_t dtype = 0; dtype < 32; dtype++)
				for (unsigned int round = 0; round < ROUNDS; round++)
					if (OP_ANY_TYPE & OP_TYPE(dtype))
						check(&rig, op, dtype, round);
		}
		cpu_rig_deinit(&rig);
	}
}

/* Tasks that several workers share: what they find is not lost, and sums are the same each time. */
static void check_large(struct cpu_rig *rig, struct describe *d)
{
	struct plan *plan = reference_plan(d, NULL);
	struct reference_buffers first;
	struct cpu_job job;

	cpu_rig_prepare(rig, plan);
	cpu_job_init(&job, plan, 1, 1);
	gather_fill(plan, 1, &job.buffers, &seed);
	cpu_rig_run(rig, &job);
	assert_int_equal(job.task.res, 0);
	compare(plan, &job, plan->name);
	reference_buffers_copy(&first, &job.buffers);
	for (unsigned int i = 0; i < 3; i++) {
		cpu_rig_run(rig, &job);
		assert_memory_equal(job.buffers.bindings[first.n - 1], first.bindings[first.n - 1],
				    first.bytes[first.n - 1]);
	}
	gather_spoil(plan, 1, &job.buffers, &seed);
	cpu_rig_run(rig, &job);
	assert_int_equal(job.task.res, -EDOM);
	reference_buffers_deinit(&first);
	cpu_job_deinit(&job);
	cpu_rig_release(rig, plan);
}

static void add_large(struct describe *d, const char *op, const char *in)
{
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(d, op, "", in, "y");
}

TEST(test_gather__shared)
{
	struct cpu_rig rig;
	struct describe *d;

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 3});
	d = describe_new("table", 1);
	describe_input(d, "x", DESCRIBE_DIMS(3000, 100));
	describe_tensor(d, "at", RBK_TENSOR_INPUT, RBK_DTYPE_I64, 0, DESCRIBE_DIMS(5, 4001));
	add_large(d, "Gather", "x,at");
	check_large(&rig, d);

	d = describe_new("elements", 1);
	describe_input(d, "x", DESCRIBE_DIMS(100000));
	describe_tensor(d, "at", RBK_TENSOR_INPUT, RBK_DTYPE_I32, 0, DESCRIBE_DIMS(700000));
	add_large(d, "GatherElements", "x,at");
	check_large(&rig, d);

	d = describe_new("sums of elements", 1);
	describe_input(d, "x", DESCRIBE_DIMS(50, 3, 700));
	describe_tensor(d, "at", RBK_TENSOR_INPUT, RBK_DTYPE_I32, 0, DESCRIBE_DIMS(300, 3, 700));
	describe_input(d, "u", DESCRIBE_DIMS(300, 3, 700));
	add_large(d, "ScatterElements", "x,at,u");
	describe_attr_string(d, "reduction", "add");
	check_large(&rig, d);

	d = describe_new("sums of rows", 1);
	describe_input(d, "x", DESCRIBE_DIMS(30, 10000));
	describe_tensor(d, "at", RBK_TENSOR_INPUT, RBK_DTYPE_I64, 0, DESCRIBE_DIMS(90, 1));
	describe_input(d, "u", DESCRIBE_DIMS(90, 10000));
	add_large(d, "ScatterND", "x,at,u");
	describe_attr_string(d, "reduction", "add");
	check_large(&rig, d);
	cpu_rig_deinit(&rig);
}

TEST_MAIN(NULL, NULL, clock_init())
