/* SPDX-License-Identifier: MIT */
/*
 * The CPU executor: kernels whose work is not in proportion to the elements that they pass look for
 * others after so much of it, and compute the same. Work is counted, not timed: by what of the
 * output has changed since the last look, or, where there is hardly an output, by the looks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/internal.h"
#include "shm/dtype.h"
#include "support/describe.h"
#include "unit/cpu-rig.h"
#include "util/checked.h"
#include "util/clock.h"

/* Elements of the output that may change between two looks: some 100 paths through a heap. */
enum { MAX_CHANGED = 4096 };

/* Nodes of which one unit is long. A second output holds indices. */
static const struct look_case {
	const char *op;
	enum rbk_dtype dtype;
	uint32_t dims[2][4]; /* the second: of weights, if it has any */
	int64_t k, axis;     /* TopK, else 0 */
	int64_t kernel, pad; /* of the width; windows are one high */
	int64_t p;           /* LpPool, else 0 */
	unsigned int min_looks;
	bool has_indices;
} look_cases[] = {
	/* All are pushed, then sorted. */
	{"TopK", RBK_DTYPE_F32, {{1, 1, 1, 1 << 16}}, .k = 1 << 16, .axis = 3, .min_looks = 512},
	{"TopK", RBK_DTYPE_I64, {{1, 1, 1, 1 << 16}}, .k = 1 << 16, .axis = 3, .min_looks = 512},
	{"TopK", RBK_DTYPE_F64, {{1, 1, 1, 1 << 16}}, .k = 1 << 16, .axis = 3, .min_looks = 512},
	{"TopK", RBK_DTYPE_U8, {{1, 1, 1, 1 << 16}}, .k = 1 << 16, .axis = 3, .min_looks = 512},
	/* Many replace one that was kept. */
	{"TopK", RBK_DTYPE_F32, {{1, 1, 1, 1 << 17}}, .k = 1 << 14, .axis = 3, .min_looks = 512},
	{"TopK", RBK_DTYPE_F32, {{1, 1, 1 << 16, 2}}, .k = 1 << 14, .axis = 2, .min_looks = 512},
	{"TopK", RBK_DTYPE_I64, {{1, 1, 1, 1 << 17}}, .k = 1 << 14, .axis = 3, .min_looks = 512},
	/* Hardly a pixel, of far more taps. */
	{"MaxPool", RBK_DTYPE_F32, {{1, 1, 1, 1 << 19}}, .kernel = 1 << 19, .min_looks = 24},
	{"MaxPool", RBK_DTYPE_I8, {{1, 1, 1, 1 << 19}}, .kernel = 1 << 19, .min_looks = 24},
	{"MaxPool",
	 RBK_DTYPE_F32,
	 {{1, 1, 1, 1 << 19}},
	 .kernel = 1 << 19,
	 .min_looks = 24,
	 .has_indices = true},
	{"AveragePool", RBK_DTYPE_F32, {{1, 1, 1, 1 << 19}}, .kernel = 1 << 19, .min_looks = 24},
	/* Some of its taps are beside the input. */
	{"AveragePool",
	 RBK_DTYPE_F32,
	 {{1, 1, 1, 1 << 19}},
	 .kernel = 1 << 19,
	 .pad = 1,
	 .min_looks = 24},
	{"LpPool", RBK_DTYPE_F32, {{1, 1, 1, 1 << 19}}, .kernel = 1 << 19, .p = 2, .min_looks = 24},
	/* Powers that take long, of narrow windows. */
	{"LpPool",
	 RBK_DTYPE_F32,
	 {{1, 1, 1, 1 << 17}},
	 .kernel = 20,
	 .p = INT32_MAX,
	 .min_looks = 512},
	{"Conv", RBK_DTYPE_F32, {{1, 2, 1, 1 << 18}, {2, 1, 1, 1 << 18}}, .min_looks = 24},
	/* Most taps do not meet the output, which is as wide as one stride. */
	{"ConvTranspose", RBK_DTYPE_F32, {{1, 1, 1, 1}, {1, 1, 1, 1 << 16}}, .min_looks = 24},
};

static struct plan *look_plan(const struct look_case *look)
{
	struct describe *d = describe_new("one unit", 1);
	const bool has_weights = look->dims[1][0] > 0;
	const bool has_indices = look->k > 0 || look->has_indices;

	describe_tensor(d, "x", RBK_TENSOR_INPUT, look->dtype, 0, 4, look->dims[0]);
	if (has_weights)
		describe_tensor(d, "w", RBK_TENSOR_INPUT, look->dtype, 0, 4, look->dims[1]);
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, look->dtype);
	if (has_indices)
		describe_inferred(d, "i", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64);
	describe_node(d, look->op, "", has_weights ? "x,w" : "x", has_indices ? "y,i" : "y");
	if (look->k > 0) {
		describe_attr_int(d, "k", look->k);
		describe_attr_int(d, "axis", look->axis);
	}
	if (look->kernel > 0) {
		describe_attr_ints(d, "kernel_shape", DESCRIBE_INTS(1, look->kernel));
		describe_attr_ints(d, "pads", DESCRIBE_INTS(0, look->pad, 0, look->pad));
	}
	if (look->p > 0)
		describe_attr_int(d, "p", look->p);
	if (strcmp(look->op, "Conv") == 0)
		describe_attr_int(d, "group", look->dims[0][1]);
	if (strcmp(look->op, "ConvTranspose") == 0) {
		describe_attr_ints(d, "strides", DESCRIBE_INTS(1, 1 << 16));
		/* One pixel is left, of which one tap is seen. */
		describe_attr_ints(d, "pads", DESCRIBE_INTS(0, 0, 0, (1 << 16) - 1));
	}
	return reference_plan(d, NULL);
}

struct looks {
	struct cpu_pause pause;
	_Atomic uint32_t n_waiting;
	const struct cpu_job *job;
	struct reference_buffers last; /* what was there at the last look */
	size_t most_changed;
	unsigned int n;
};

static void look(struct cpu_pause *pause)
{
	struct looks *looks = (struct looks *)pause;
	const struct plan *plan = looks->job->task.plan;

	looks->n++;
	for (unsigned int i = 0; i < looks->last.n; i++) {
		const uint8_t *now = looks->job->buffers.bindings[i];
		const size_t elem = dtype_bytes(plan->tensors[plan->bindings[i].tensor].dtype);
		uint8_t *before = looks->last.bindings[i];
		size_t n_changed = 0;

		if (!plan->bindings[i].written)
			continue;
		for (size_t at = 0; at + elem <= looks->last.bytes[i]; at += elem)
			n_changed += memcmp(now + at, before + at, elem) != 0;
		memcpy(before, now, looks->last.bytes[i]);
		if (n_changed > looks->most_changed)
			looks->most_changed = n_changed;
	}
}

static void test_looks__bounded(void **state)
{
	unsigned int n_wrong = 0;
	struct cpu_rig rig;

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	for (size_t i = 0; i < ARRAY_SIZE(look_cases); i++) {
		struct plan *plan = look_plan(&look_cases[i]);
		struct cpu_context context = cpu_executor_from(rig.executor)->inline_context;
		struct cpu_frame frame = {.count = 1};
		struct reference_buffers want;
		const struct cpu_step *step;
		struct cpu_job job;
		struct looks looks = {
			.pause = {.serve = look, .state = &cpu_calm_state, .leave = EXEC_CANCELLED},
			.n_waiting = 1,
			.job = &job,
		};

		cpu_rig_prepare(&rig, plan);
		step = ((const struct cpu_plan *)plan->exec[RBK_DEVICE_CPU])->steps;
		cpu_job_init(&job, plan, 1, 1);
		reference_buffers_copy(&looks.last, &job.buffers);
		rig.executor->ops->run_inline(rig.executor, &job.task);
		reference_buffers_copy(&want, &job.buffers);
		for (unsigned int j = 0; j < want.n; j++) {
			memcpy(job.buffers.bindings[j], looks.last.bindings[j], want.bytes[j]);
			frame.base[CPU_BASE_BINDING + j] = (uintptr_t)job.buffers.bindings[j];
		}
		looks.pause.n_waiting = &looks.n_waiting;
		context.pause = &looks.pause;
		step->run(step, &frame, 0, SIZE_MAX, &context);
		look(&looks.pause);
		print_message("%zu. %s: %u looks, at most %zu elements changed\n", i,
			      look_cases[i].op, looks.n, looks.most_changed);
		n_wrong += looks.n < look_cases[i].min_looks || looks.most_changed > MAX_CHANGED;
		for (unsigned int j = 0; j < want.n; j++)
			assert_memory_equal(job.buffers.bindings[j], want.bindings[j],
					    want.bytes[j]);
		reference_buffers_deinit(&looks.last);
		reference_buffers_deinit(&want);
		cpu_job_deinit(&job);
		cpu_rig_release(&rig, plan);
	}
	cpu_rig_deinit(&rig);
	assert_int_equal(n_wrong, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_looks__bounded),
	};

	clock_init();
	cpu_flush_denormals();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
