/* SPDX-License-Identifier: MIT */
/*
 * The CPU executor: no task makes others wait for long, whatever its operator and shape
 *
 * A task can be stopped between two units, so a unit's cost has a bound. The few units without a
 * bound admit urgent tasks within, and can be cancelled within.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/internal.h"
#include "cpu/run-matmul.h"
#include "support/describe.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "util/checked.h"
#include "util/clock.h"

/* Limit of a unit's cost in one round, by the executor's estimate: about a millisecond. */
static const double unit_max_ns = 1e6;

/* Nodes with large operands. A node's inputs are those with a rank. */
enum { MAX_INPUTS = 5 };
struct unit_case {
	const char *op;
	struct {
		unsigned int rank;
		uint32_t dims[4];
	} in[MAX_INPUTS];
	bool has_indices; /* a second output */
	bool is_double;   /* else float32 */
	struct {
		const char *name;
		unsigned int n; /* 0: value[0] is a scalar; no attribute without a name */
		int64_t value[3];
	} attr;
	size_t max_units; /* 0: one */
};

/*
 * Nodes whose single unit takes long, so that only looks from within the kernel let other tasks run
 * before it ends.
 */
static const struct unit_case unit_cases[] = {
	{"Softmax", {{2, {1, 1 << 20}}}},
	{"Softmax", {{2, {1 << 16, 16}}}, .attr = {"axis", 0, {0}}},
	{"ReduceSum", {{1, {1 << 22}}}, .attr = {"axes", 1, {0}}},
	{"ReduceSum", {{2, {1 << 16, 64}}}, .attr = {"axes", 1, {0}}},
	{"TopK", {{1, {1 << 22}}}, .has_indices = true, .attr = {"k", 0, {40}}},
	{"Transpose", {{2, {1 << 15, 64}}}, .attr = {"perm", 2, {1, 0}}, .max_units = 32},
	{"Add", {{2, {2, 1 << 20}}, {2, {2, 1}}}, .max_units = 2},
	{"MaxPool", {{4, {1, 1, 1024, 1024}}}, .attr = {"kernel_shape", 2, {5, 5}}},
	{"Conv", {{4, {1, 2048, 8, 8}}, {4, {512, 2048, 3, 3}}}, .max_units = 12},
	{"MatMul", {{2, {24, 40000}}, {2, {40000, 64}}}},
	{"MaxPool", {{4, {1, 1, 1, 1 << 14}}}, .attr = {"kernel_shape", 2, {1, 1 << 13}}},
	{"MatMul", {{2, {24, 20000}}, {2, {20000, 64}}}, .is_double = true},
	{"Conv", {{4, {1, 1024, 7, 6}}, {4, {96, 1024, 3, 3}}}, .is_double = true},
	{"ConvTranspose", {{4, {1, 512, 16, 16}}, {4, {512, 48, 3, 3}}}, .is_double = true},
	{"LpPool", {{4, {1, 1, 512, 512}}}, .is_double = true, .attr = {"kernel_shape", 2, {5, 5}}},
	{"MaxPool",
	 {{4, {1, 1, 1, 1 << 13}}},
	 .has_indices = true,
	 .is_double = true,
	 .attr = {"kernel_shape", 2, {1, 1 << 12}}},
	{"BatchNormalization",
	 {{4, {1, 1 << 20, 1, 1}}, {1, {1 << 20}}, {1, {1 << 20}}, {1, {1 << 20}}, {1, {1 << 20}}},
	 .is_double = true},
};

/* Nodes that are only cut into units, and never run. */
static const struct unit_case large_cases[] = {
	{"MatMul", {{2, {2048, 4096}}, {2, {4096, 2048}}}},
	{"MatMul", {{2, {240, 1 << 20}}, {2, {1 << 20, 128}}}},
	{"MatMul", {{2, {1, 1 << 24}}, {2, {1 << 24, 16}}}},
	{"MatMul", {{3, {64, 32, 1 << 16}}, {3, {64, 1 << 16, 32}}}},
	{"MatMul", {{2, {240, 1 << 20}}, {2, {1 << 20, 128}}}, .is_double = true},
	{"Gemm", {{2, {1 << 20, 240}}, {2, {1 << 20, 128}}}, .attr = {"transA", 0, {1}}},
	{"Gemm", {{2, {240, 1 << 20}}, {2, {128, 1 << 20}}}, .attr = {"transB", 0, {1}}},
	{"Conv", {{4, {1, 2048, 64, 64}}, {4, {2048, 2048, 3, 3}}}},
	{"Conv", {{4, {1, 8192, 8, 8}}, {4, {512, 8192, 3, 3}}}},
	{"Conv", {{4, {64, 2048, 64, 64}}, {4, {2048, 2048, 3, 3}}}},
	{"Conv", {{3, {1, 4096, 1 << 14}}, {3, {512, 4096, 5}}}},
	{"Add", {{2, {1, 1 << 22}}, {2, {1, 1 << 22}}}},
	{"Add", {{2, {1 << 22, 1}}, {2, {1, 16}}}},
	{"Erf", {{2, {1, 1 << 24}}}},
	{"Softmax", {{2, {1 << 22, 16}}}},
	{"ReduceSum", {{2, {1 << 22, 16}}}, .attr = {"axes", 1, {1}}},
	{"LayerNormalization", {{2, {1 << 20, 64}}, {1, {64}}}},
	{"Transpose", {{2, {1 << 11, 1 << 11}}}, .attr = {"perm", 2, {1, 0}}},
	{"Transpose", {{2, {1 << 22, 4}}}, .attr = {"perm", 2, {1, 0}}},
	{"MaxPool", {{4, {1, 4096, 64, 64}}}, .attr = {"kernel_shape", 2, {3, 3}}},
};

static struct plan *unit_plan(const struct unit_case *unit)
{
	static const char *const names[MAX_INPUTS] = {"a", "b", "c", "d", "e"};
	struct describe *d = describe_new("one unit", 1);
	unsigned int n_in = 0;
	char in[2 * MAX_INPUTS];

	for (; n_in < MAX_INPUTS && unit->in[n_in].rank > 0; n_in++)
		describe_input(d, names[n_in], unit->in[n_in].rank, unit->in[n_in].dims);
	snprintf(in, sizeof(in), "%.*s", (int)(2 * n_in - 1), "a,b,c,d,e");
	describe_inferred(d, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	if (unit->has_indices)
		describe_inferred(d, "i", RBK_TENSOR_OUTPUT, RBK_DTYPE_I64);
	describe_node(d, unit->op, "", in, unit->has_indices ? "y,i" : "y");
	if (unit->attr.name && unit->attr.n > 0)
		describe_attr_ints(d, unit->attr.name, unit->attr.n, unit->attr.value);
	else if (unit->attr.name)
		describe_attr_int(d, unit->attr.name, unit->attr.value[0]);
	if (unit->is_double)
		describe_floats(d, RBK_DTYPE_F64);
	return reference_plan(d, NULL);
}

/*
 * Tiny by flops and bytes, but with many units, rows, taps or elements. The reactor must not
 * compute these itself, because it computes only tasks of at most 2 us.
 */
static const struct unit_case busy_cases[] = {
	{"MatMul", {{3, {1000, 1, 1}}, {3, {1000, 1, 1}}}},
	{"MatMul", {{3, {500, 1, 1}}, {3, {500, 1, 1}}}, .is_double = true},
	{"Gemm", {{2, {2000, 1}}, {2, {1, 1}}, {2, {2000, 1}}}},
	{"Add", {{3, {200, 1, 2}}, {3, {200, 2, 1}}}},
	{"Softmax", {{2, {200, 2}}}},
	{"ReduceSum", {{2, {400, 2}}}, .attr = {"axes", 1, {1}}},
	{"ReduceLogSumExp", {{2, {100, 2}}}, .is_double = true, .attr = {"axes", 1, {1}}},
	{"LayerNormalization", {{2, {200, 2}}, {1, {2}}}},
	{"CumSum", {{1, {2000}}}, .attr = {"axis", 0, {0}}},
	{"Transpose", {{3, {400, 2, 2}}}, .attr = {"perm", 3, {0, 2, 1}}},
	{"Reshape", {{1, {1 << 20}}}, .attr = {"shape", 2, {1 << 10, 1 << 10}}},
	{"Conv", {{4, {400, 1, 1, 1}}, {4, {1, 1, 1, 1}}}},
	{"Conv", {{4, {1, 1, 800, 1}}, {4, {1, 1, 1, 1}}}},
	{"MaxPool", {{4, {1, 1, 400, 2}}}, .attr = {"kernel_shape", 2, {1, 1}}},
	{"LpPool", {{4, {1, 1, 300, 2}}}, .attr = {"kernel_shape", 2, {1, 1}}},
	{"ConvTranspose", {{3, {1, 1, 1}}, {3, {1, 1, 500}}}},
};

/* Tiny nodes of usual sizes, which the reactor computes. */
static const struct unit_case idle_cases[] = {
	{"Add", {{1, {1000}}, {1, {1000}}}},
	{"MatMul", {{2, {1, 784}}, {2, {784, 10}}}},
	{"Gemm", {{2, {8, 64}}, {2, {64, 16}}, {1, {16}}}},
	{"Softmax", {{2, {16, 10}}}},
	{"ReduceSum", {{2, {32, 32}}}, .attr = {"axes", 1, {1}}},
	{"LayerNormalization", {{2, {8, 64}}, {1, {64}}}},
	{"Transpose", {{2, {32, 32}}}, .attr = {"perm", 2, {1, 0}}},
	{"Conv", {{4, {1, 4, 8, 8}}, {4, {8, 4, 3, 3}}}},
	{"Conv", {{4, {1, 16, 4, 4}}, {4, {16, 16, 3, 3}}}},
	{"MaxPool", {{4, {1, 4, 16, 16}}}, .attr = {"kernel_shape", 2, {2, 2}}},
};

struct looks {
	struct cpu_pause pause;
	_Atomic uint32_t n_waiting;
	unsigned int n;
};

static void count_look(struct cpu_pause *pause)
{
	((struct looks *)pause)->n++;
}

/* A long unit looks for waiting tasks many times, and computes the same result. */
TEST(test_units__look)
{
	struct reference_buffers want;
	struct cpu_job job;
	struct cpu_rig rig;

/* This test computes in its own thread alone, in which ThreadSanitizer finds nothing. */
#ifdef __SANITIZE_THREAD__
	skip();
#endif
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	for (size_t i = 0; i < ARRAY_SIZE(unit_cases); i++) {
		const struct unit_case *unit = &unit_cases[i];
		struct plan *plan = unit_plan(unit);
		struct looks looks = {
			.pause = {.serve = count_look,
				  .state = &cpu_calm_state,
				  .leave = EXEC_CANCELLED},
			.n_waiting = 1,
		};
		struct cpu_context context = cpu_executor_from(rig.executor)->inline_context;
		struct cpu_frame frame = {.count = 1};
		const struct cpu_step *step;

		cpu_rig_prepare(&rig, plan);
		step = ((const struct cpu_plan *)plan->exec[RBK_DEVICE_CPU])->steps;
		assert_true(step->units(step, 1) <= (unit->max_units ? unit->max_units : 1));
		frame.n_rounds = step->rounds ? step->rounds(step, 1) : 1;
		cpu_job_init(&job, plan, 1, 1);
		rig.executor->ops->run_inline(rig.executor, &job.task);
		reference_buffers_copy(&want, &job.buffers);
		cpu_job_wipe(&job);
		looks.pause.n_waiting = &looks.n_waiting;
		context.pause = &looks.pause;
		for (unsigned int j = 0; j < job.buffers.n; j++)
			frame.base[CPU_BASE_BINDING + j] = (uintptr_t)job.buffers.bindings[j];
		/* Computing in rounds gives the same bits. */
		for (; frame.round < frame.n_rounds; frame.round++)
			step->run(step, &frame, 0, SIZE_MAX, &context);
		print_message("%s: %u looks, %u rounds\n", unit->op, looks.n, frame.n_rounds);
		assert_true(looks.n >= 15);
		cpu_job_expect(&job, &want);
		reference_buffers_deinit(&want);
		cpu_job_deinit(&job);
		cpu_rig_release(&rig, plan);
	}
	cpu_rig_deinit(&rig);
}

/* A task can be stopped about every millisecond: a unit's cost does not grow with its terms. */
TEST(test_units__bounded)
{
	unsigned int n_over = 0;
	struct cpu_rig rig;

/* This test computes in its own thread alone, in which ThreadSanitizer finds nothing. */
#ifdef __SANITIZE_THREAD__
	skip();
#endif
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	for (size_t i = 0; i < ARRAY_SIZE(large_cases); i++) {
		struct plan *plan = unit_plan(&large_cases[i]);
		const struct cpu_plan *compiled;

		cpu_rig_prepare(&rig, plan);
		compiled = plan->exec[RBK_DEVICE_CPU];
		for (uint32_t k = 0; k < compiled->n_steps; k++) {
			const struct cpu_step *step = &compiled->steps[k];
			const uint32_t n_rounds = step->rounds ? step->rounds(step, 1) : 1;
			const double ns = step->cost_fixed_ns + step->cost_row_ns;
			const double each = ns / (double)step->units(step, 1) / n_rounds;

			print_message("%s %zu.%u: %.0f us in %zu units, %u rounds: %.0f us each\n",
				      large_cases[i].op, i, k, ns / 1000, step->units(step, 1),
				      n_rounds, each / 1000);
			n_over += each > unit_max_ns;
		}
		cpu_rig_release(&rig, plan);
	}
	assert_int_equal(n_over, 0);
	cpu_rig_deinit(&rig);
}

/* Every unit packs its columns of b anew: a product has enough units, but of many rows. */
TEST(test_units__of_many_rows)
{
	static const struct unit_case products[] = {
		{"MatMul", {{2, {256, 256}}, {2, {256, 256}}}},
		{"Gemm", {{2, {256, 256}}, {2, {256, 256}}}, .attr = {"transB", 0, {1}}},
		{"MatMul", {{2, {120, 256}}, {2, {256, 512}}}},
		{"MatMul", {{2, {250, 128}}, {2, {128, 256}}}, .is_double = true},
	};
	struct cpu_rig rig;

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	for (size_t i = 0; i < ARRAY_SIZE(products); i++) {
		struct plan *plan = unit_plan(&products[i]);
		struct cpu_gemm_grid grid;

		cpu_rig_prepare(&rig, plan);
		grid = cpu_gemm_grid(
			cpu_step_args(((struct cpu_plan *)plan->exec[RBK_DEVICE_CPU])->steps), 1);
		assert_in_range(grid.m_units * grid.n_units, 16, 64);
		assert_true(grid.m_unit >= 60);
		cpu_rig_release(&rig, plan);
	}
	cpu_rig_deinit(&rig);
}

/* A product of one unit that is stopped after each piece of work continues with its next terms. */
TEST(test_units__stop_between_rounds)
{
	static const struct unit_case deep = {"MatMul", {{2, {24, 90000}}, {2, {90000, 64}}}};

	for (unsigned int n_workers = 1; n_workers <= 2; n_workers++) {
		struct reference_buffers want;
		struct plan *plan = unit_plan(&deep);
		unsigned int n_stops = 0;
		struct cpu_job job;
		struct cpu_rig rig;

		cpu_rig_init(&rig, &(struct cpu_options){.n_workers = n_workers, .no_pin = true});
		cpu_rig_prepare(&rig, plan);
		cpu_job_init(&job, plan, 1, 1);
		rig.executor->ops->run_inline(rig.executor, &job.task);
		reference_buffers_copy(&want, &job.buffers);
		cpu_job_wipe(&job);
		job.task.slice_ticks = 1;
		for (;;) {
			cpu_rig_run(&rig, &job);
			if (job.task.res != EXEC_UNFINISHED)
				break;
			n_stops++;
		}
		assert_int_equal(job.task.res, 0);
		assert_true(n_stops >= 10);
		cpu_job_expect(&job, &want);
		reference_buffers_deinit(&want);
		cpu_job_deinit(&job);
		cpu_rig_release(&rig, plan);
		cpu_rig_deinit(&rig);
	}
}

/* Return: a task's time besides flops and bytes, as the dispatcher is told, in ps. */
static uint64_t overhead_of(struct cpu_rig *rig, const struct unit_case *unit)
{
	struct plan *plan = unit_plan(unit);
	uint64_t ps;

	cpu_rig_prepare(rig, plan);
	ps = plan->overhead_fixed_ps + plan->overhead_row_ps;
	print_message("%s: %.2f us\n", unit->op, (double)ps / 1e6);
	cpu_rig_release(rig, plan);
	return ps;
}

/* The reactor computes no plan of many loops with hardly any work. */
TEST(test_units__overhead)
{
	enum { BUDGET_PS = 2000000 };
	unsigned int n_wrong = 0;
	struct cpu_rig rig;

/* This test computes in its own thread alone, in which ThreadSanitizer finds nothing. */
#ifdef __SANITIZE_THREAD__
	skip();
#endif
	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	for (size_t i = 0; i < ARRAY_SIZE(busy_cases); i++)
		n_wrong += overhead_of(&rig, &busy_cases[i]) <= BUDGET_PS;
	for (size_t i = 0; i < ARRAY_SIZE(idle_cases); i++)
		n_wrong += overhead_of(&rig, &idle_cases[i]) > BUDGET_PS;
	cpu_rig_deinit(&rig);
	assert_int_equal(n_wrong, 0);
}

TEST_MAIN(NULL, NULL, clock_init(), cpu_flush_denormals())
