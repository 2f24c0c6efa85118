/* SPDX-License-Identifier: MIT */
/*
 * What only moves elements on the CPU's executor, at every SIMD level, against the reference: every
 * operator and type, random shapes and attributes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "reference/random-moves.h"
#include "support/elementwise-cases.h"
#include "support/scaled.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "util/clock.h"

enum { MAX_COUNT = 7, ROUNDS = 8 * RANDOM_MOVES_ROUNDS };

static uint64_t seed = 77;

static void check(struct cpu_rig *rig, unsigned int round)
{
	struct plan *plan = random_moves(&seed, round, MAX_COUNT);
	const uint32_t count = plan->max_count == 1 ? 1 : 1 + round % MAX_COUNT;
	struct reference_buffers want;
	struct cpu_job job;

	cpu_rig_prepare(rig, plan);
	cpu_job_init(&job, plan, count, 1);
	elementwise_fill(plan, count, &job.buffers, &seed);
	reference_buffers_copy(&want, &job.buffers);
	reference_run(plan, count, want.bindings);
	cpu_rig_run(rig, &job);
	assert_int_equal(job.task.res, 0);
	if (!reference_buffers_close(plan, count, &job.buffers, &want, 0, 0))
		fail_msg("%s of type %u, round %u", plan->nodes[0].op->name, plan->tensors[0].dtype,
			 round);
	reference_buffers_deinit(&want);
	cpu_job_deinit(&job);
	cpu_rig_release(rig, plan);
}

TEST(test_moves__against_reference)
{
	for (int level = CPU_SIMD_SSE2; level < CPU_SIMD_COUNT; level++) {
		struct cpu_rig rig;

		if (!cpu_kernels_get((enum cpu_simd)level))
			continue;
		cpu_rig_init(&rig,
			     &(struct cpu_options){.n_workers = 1, .simd = (enum cpu_simd)level});
		for (unsigned int round = 0; round < test_scaled(ROUNDS); round++)
			check(&rig, round);
		cpu_rig_deinit(&rig);
	}
}

/* y = x, by way of @n times @add, which describes nodes from the first tensor to the second. */
static uint32_t count_steps(unsigned int n,
			    void (*add)(struct describe *d, const char *from, const char *to))
{
	struct describe *d = describe_new("chain", 1);
	char from[16] = "x", to[16];
	struct plan *plan;
	struct cpu_rig rig;
	uint32_t n_steps;

	describe_tensor(d, "x", RBK_TENSOR_INPUT, RBK_DTYPE_I8, 0, DESCRIBE_DIMS(1));
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_I8);
	for (unsigned int i = 0; i < n; i++) {
		snprintf(to, sizeof(to), i + 1 < n ? "t%u" : "y", i);
		if (i + 1 < n)
			describe_inferred(d, to, RBK_TENSOR_SCRATCH, RBK_DTYPE_I8);
		add(d, from, to);
		memcpy(from, to, sizeof(from));
	}
	plan = reference_plan(d, NULL);
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	cpu_rig_prepare(&rig, plan);
	n_steps = plan->n_steps;
	cpu_rig_release(&rig, plan);
	cpu_rig_deinit(&rig);
	return n_steps;
}

static void add_neg(struct describe *d, const char *from, const char *to)
{
	describe_node(d, "Neg", "", from, to);
}

static void add_concat(struct describe *d, const char *from, const char *to)
{
	char inputs[32 * 16] = "", joined[20];

	for (unsigned int i = 0; i < 32; i++) {
		strcat(inputs, i ? "," : "");
		strcat(inputs, from);
	}
	snprintf(joined, sizeof(joined), "%s-32", to);
	describe_inferred(d, joined, RBK_TENSOR_SCRATCH, RBK_DTYPE_I8);
	describe_node(d, "Concat", "", inputs, joined);
	describe_attr_int(d, "axis", 0);
	describe_node(d, "Slice", "", joined, to);
	describe_attr_ints(d, "starts", DESCRIBE_INTS(0));
	describe_attr_ints(d, "ends", DESCRIBE_INTS(1));
}

/* The dispatcher estimates the time of tiny tasks by steps: one for each tensor of a Concat. */
TEST(test_moves__steps)
{
	assert_int_equal(count_steps(1, add_neg), 1);
	assert_int_equal(count_steps(8, add_neg), 8);
	assert_int_equal(count_steps(1, add_concat), 33);
	assert_int_equal(count_steps(310, add_concat), 310 * 33);
}

TEST_MAIN(NULL, NULL, clock_init())
