/* SPDX-License-Identifier: MIT */
/*
 * The CPU executor's looks: kernels with much work per element look for waiting tasks at intervals,
 * and compute the same result
 *
 * Work is counted, not timed: by the elements of output that changed since the last look, or, with
 * hardly any output, by the number of looks. A large node of every operator of the catalogue runs,
 * including operators added later. Between two looks or units, the executor's cost estimate must
 * stay below a limit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/internal.h"
#include "shm/dtype.h"
#include "support/describe.h"
#include "support/test.h"
#include "unit/cpu-rig.h"
#include "util/checked.h"
#include "util/clock.h"

/* Elements of the output that may change between two looks: some 100 paths through a heap. */
enum { MAX_CHANGED = 4096 };

/* Nodes with one long unit. A second output holds indices. */
static const struct look_case {
	const char *op;
	enum rbk_dtype dtype;
	uint32_t dims[2][4]; /* of the input; of weights, if any */
	int64_t k, axis;     /* k of TopK, else 0; axis */
	int64_t kernel, pad; /* width; windows have height 1 */
	int64_t p;           /* p of LpPool, else 0 */
	unsigned int min_looks;
	bool has_indices;
} look_cases[] = {
	/* All elements are pushed, then sorted. */
	{"TopK", RBK_DTYPE_F32, {{1, 1, 1, 1 << 16}}, .k = 1 << 16, .axis = 3, .min_looks = 512},
	{"TopK", RBK_DTYPE_I64, {{1, 1, 1, 1 << 16}}, .k = 1 << 16, .axis = 3, .min_looks = 512},
	{"TopK", RBK_DTYPE_F64, {{1, 1, 1, 1 << 16}}, .k = 1 << 16, .axis = 3, .min_looks = 512},
	{"TopK", RBK_DTYPE_U8, {{1, 1, 1, 1 << 16}}, .k = 1 << 16, .axis = 3, .min_looks = 512},
	/* Many elements replace a kept one. */
	{"TopK", RBK_DTYPE_F32, {{1, 1, 1, 1 << 17}}, .k = 1 << 14, .axis = 3, .min_looks = 512},
	{"TopK", RBK_DTYPE_F32, {{1, 1, 1 << 16, 2}}, .k = 1 << 14, .axis = 2, .min_looks = 512},
	{"TopK", RBK_DTYPE_I64, {{1, 1, 1, 1 << 17}}, .k = 1 << 14, .axis = 3, .min_looks = 512},
	/* Hardly any pixels, with far more taps. */
	{"MaxPool", RBK_DTYPE_F32, {{1, 1, 1, 1 << 19}}, .kernel = 1 << 19, .min_looks = 24},
	{"MaxPool", RBK_DTYPE_I8, {{1, 1, 1, 1 << 19}}, .kernel = 1 << 19, .min_looks = 24},
	{"MaxPool",
	 RBK_DTYPE_F32,
	 {{1, 1, 1, 1 << 19}},
	 .kernel = 1 << 19,
	 .min_looks = 24,
	 .has_indices = true},
	{"AveragePool", RBK_DTYPE_F32, {{1, 1, 1, 1 << 19}}, .kernel = 1 << 19, .min_looks = 24},
	/* Some taps are in the padding. */
	{"AveragePool",
	 RBK_DTYPE_F32,
	 {{1, 1, 1, 1 << 19}},
	 .kernel = 1 << 19,
	 .pad = 1,
	 .min_looks = 24},
	{"LpPool", RBK_DTYPE_F32, {{1, 1, 1, 1 << 19}}, .kernel = 1 << 19, .p = 2, .min_looks = 24},
	/* Slow powers, with narrow windows. */
	{"LpPool",
	 RBK_DTYPE_F32,
	 {{1, 1, 1, 1 << 17}},
	 .kernel = 20,
	 .p = INT32_MAX,
	 .min_looks = 512},
	{"Conv", RBK_DTYPE_F32, {{1, 2, 1, 1 << 18}, {2, 1, 1, 1 << 18}}, .min_looks = 24},
	/* Most taps miss the output, which is as wide as one stride. */
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
		/* Padding leaves one pixel, which one tap reaches. */
		describe_attr_ints(d, "pads", DESCRIBE_INTS(0, 0, 0, (1 << 16) - 1));
	}
	return reference_plan(d, NULL);
}

struct looks {
	struct cpu_pause pause;
	_Atomic uint32_t n_waiting;
	const struct cpu_job *job;
	struct reference_buffers last; /* contents at the last look */
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

TEST(test_looks__bounded)
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

/* Limit of the average time between two looks or units, in ns. */
static const double max_apart_ns = 250e3;

/*
 * A node of each operator, whose units are as long as possible. An input is a letter for its type,
 * with dimensions; an output is a letter; an attribute is an integer or a list.
 */
static const struct catalogue_case {
	const char *op, *in, *out, *attrs;
} catalogue_cases[] = {
	{"MatMul", "f[240,8192] f[8192,128]", "f"},
	{"MatMul", "d[240,4096] d[4096,128]", "d"},
	{"Gemm", "f[8192,240] f[8192,128]", "f", "transA=1"},
	{"Softmax", "f[1,262144]", "f"},
	{"LogSoftmax", "f[32768,16]", "f", "axis=0"},
	{"ReduceSum", "f[4194304]", "f", "axes=0,"},
	{"ReduceMean", "f[65536,3,21]", "f", "axes=0,2"},
	{"ReduceSumSquare", "f[4194304]", "f", "axes=0,"},
	{"ReduceL1", "f[4194304]", "f", "axes=0,"},
	{"ReduceL2", "d[2097152]", "d", "axes=0,"},
	{"ReduceLogSum", "f[4194304]", "f", "axes=0,"},
	{"ReduceLogSumExp", "f[4194304]", "f", "axes=0,"},
	{"ReduceProd", "l[2097152]", "l", "axes=0,"},
	{"ReduceMax", "u[8388608]", "u", "axes=0,"},
	{"ReduceMin", "f[4194304]", "f", "axes=0,"},
	{"ArgMax", "f[2097152]", "l", "axis=0"},
	{"ArgMin", "u[65536,64]", "l", "axis=0"},
	{"CumSum", "f[1048576]", "f", "axis=0"},
	{"LayerNormalization", "f[1,524288] f[524288]", "f"},
	{"RMSNormalization", "f[1,524288] f[524288]", "f"},
	{"InstanceNormalization", "f[1,1,524288] f[1] f[1]", "f"},
	{"GroupNormalization", "f[1,4096,128] f[4096] f[4096]", "f", "num_groups=1"},
	{"BatchNormalization", "f[1,524288,1] f[524288] f[524288] f[524288] f[524288]", "f"},
	{"LpNormalization", "f[1,524288]", "f", "axis=1"},
	{"RotaryEmbedding", "f[1,64,1,8192] f[1,1,4096] f[1,1,4096]", "f"},
	{"Attention", "f[1,1,48,64] f[1,1,4096,64] f[1,1,4096,64]", "f"},
	{"Transpose", "f[2048,1024]", "f", "perm=1,0"},
	{"Slice", "u[2,4194304]", "u", "starts=0, ends=4194304, axes=1, steps=3,"},
	{"Concat", "f[1048576] f[1048576]", "f", "axis=0"},
	{"Split", "f[2097152]", "ff", "axis=0 split=1048576,1048576"},
	{"Expand", "f[1,1]", "f", "shape=1024,1024"},
	{"Tile", "f[1024,2]", "f", "repeats=1,512"},
	{"Pad", "u[2,2097152]", "u", "pads=0,9,0,9"},
	{"Reshape", "f[2097152]", "f", "shape=2,1048576"},
	{"Conv", "f[1,1024,8,8] f[256,1024,3,3]", "f"},
	{"Conv", "f[1,2,1,32768] f[2,1,1,4096]", "f", "group=2"},
	{"Conv", "d[1,512,8,8] d[96,512,3,3]", "d"},
	{"MaxPool", "f[1,1,256,256]", "f", "kernel_shape=17,17"},
	{"AveragePool", "f[1,1,256,256]", "f", "kernel_shape=17,17"},
	{"LpPool", "f[1,1,256,256]", "f", "kernel_shape=17,17"},
	{"ConvTranspose", "f[1,512,8,8] f[512,240,3,3]", "f"},
	{"ConvTranspose", "d[1,512,8,8] d[512,48,3,3]", "d"},
	{"TopK", "f[65536]", "fl", "k=65536"},
	{"QuantizeLinear", "f[1,4194304] f[1] u[1]", "u", "axis=0"},
	{"DequantizeLinear", "u[1,4194304] f[1] u[1]", "f", "axis=0"},
	{"DynamicQuantizeLinear", "f[4194304]", "ufu"},
	{"MatMulInteger", "u[240,16384] u[16384,128]", "i"},
	{"QLinearMatMul", "u[240,16384] f[1] u[1] u[16384,128] f[1] u[1] f[1] u[1]", "u"},
	{"ConvInteger", "u[1,2048,4,4] u[256,2048,3,3]", "i"},
	{"QLinearConv", "u[1,2048,4,4] f[1] u[1] u[256,2048,3,3] f[1] u[1] f[1] u[1]", "u"},
	{"QLinearConv", "u[1,64,1,1] f[1] u[1] u[65536,64,1,1] f[1] u[1] f[1] u[1]", "u"},
	{"MatMulNBits", "f[60,16384] u[64,512,16] f[64,512]", "f", "K=16384 N=64 block_size=32"},
	{"Gather", "f[2,1048576] l[1]", "f"},
	{"GatherElements", "f[262144] l[262144]", "f", "axis=0"},
	{"GatherND", "f[2,1048576] l[1,1]", "f"},
	{"ScatterElements", "f[262144] l[262144] f[262144]", "f", "axis=0"},
	{"ScatterND", "f[2,1048576] l[1,1] f[1,1048576]", "f"},
	{"OneHot", "l[2,524288] f[2]", "f", "depth=2 axis=1"},
	{"Trilu", "f[1,1048576]", "f"},
	{"GridSample", "f[1,64,64,64] f[1,256,64,2]", "f"},
	{"Cholesky", "f[1,768,768]", "f"},
	{"TriangularSolve", "f[1536,1536] f[8,1536]", "f", "left=0"},
	/* The other element-wise operators are generated from their catalogue entries. */
	{"Cast", "h[1048576]", "f", "to=1"},
};

static enum rbk_dtype dtype_of(char letter)
{
	static const char letters[] = "fdhilub";
	static const enum rbk_dtype dtypes[] = {RBK_DTYPE_F32, RBK_DTYPE_F64, RBK_DTYPE_F16,
						RBK_DTYPE_I32, RBK_DTYPE_I64, RBK_DTYPE_U8,
						RBK_DTYPE_BOOL};

	return dtypes[strchr(letters, letter) - letters];
}

/* Describe the inputs, and write their names to @in. */
static void catalogue_inputs(struct describe *d, const char *text, char *in)
{
	char *next;

	for (char name[2] = "a"; *text; name[0]++) {
		const enum rbk_dtype dtype = dtype_of(*text++);
		uint32_t dims[4];
		unsigned int rank = 0;

		for (; *text++ != ']'; text = next)
			dims[rank++] = (uint32_t)strtoul(text, &next, 10);
		describe_tensor(d, name, RBK_TENSOR_INPUT, dtype, 0, rank, dims);
		in += sprintf(in, "%s%s", name[0] == 'a' ? "" : ",", name);
		text += *text == ' ';
	}
}

/* Describe attributes such as "axis=1 pads=0,1 axes=2,": a comma marks a list. */
static void catalogue_attrs(struct describe *d, const char *text)
{
	while (text && *text) {
		const size_t length = strcspn(text, "=");
		int64_t values[4];
		unsigned int n = 0;
		bool is_list = false;
		char name[32];

		snprintf(name, sizeof(name), "%.*s", (int)length, text);
		text += length + 1;
		while (*text && *text != ' ') {
			char *end;

			values[n++] = strtoll(text, &end, 10);
			is_list |= *end == ',';
			text = end + (*end == ',');
		}
		text += *text == ' ';
		if (is_list)
			describe_attr_ints(d, name, n, values);
		else
			describe_attr_int(d, name, values[0]);
	}
}

static struct plan *catalogue_plan(const struct catalogue_case *c)
{
	struct describe *d = describe_new("one of the catalogue", 1);
	char in[64], out[16] = "";

	catalogue_inputs(d, c->in, in);
	for (unsigned int i = 0; c->out[i]; i++) {
		const char name[] = {(char)('p' + i), 0};

		describe_inferred(d, name, RBK_TENSOR_OUTPUT, dtype_of(c->out[i]));
		sprintf(out + strlen(out), "%s%s", i ? "," : "", name);
	}
	describe_node(d, c->op, "", in, out);
	if (strcmp(c->op, "BitShift") == 0)
		describe_attr_string(d, "direction", "LEFT");
	catalogue_attrs(d, c->attrs);
	return reference_plan(d, NULL);
}

/* Return the letter of a type that the class takes. */
static char catalogue_type(const struct op *op, char letter)
{
	for (const struct op_class *class = op->classes; class->name; class ++)
		if (class->name == letter)
			return class->cpu & OP_TYPE(RBK_DTYPE_F32)   ? 'f'
			       : class->cpu & OP_TYPE(RBK_DTYPE_I32) ? 'i'
			       : class->cpu & OP_TYPE(RBK_DTYPE_U8)  ? 'u'
								     : 'b';
	fail_msg("%s has no class %c", op->name, letter);
	return 0;
}

/* Return a plan whose first operand has long rows, and the others one element per row. */
static struct plan *elementwise_plan(const struct op *op)
{
	struct catalogue_case c = {.op = op->name, .attrs = op->kind == OP_MOD ? "fmod=1" : NULL};
	char in[64] = "", out[2] = {catalogue_type(op, op->out_classes[0]), 0};
	const size_t n_classes = strlen(op->in_classes);

	for (size_t i = 0; i < op->min_in; i++)
		sprintf(in + strlen(in), i ? " %c[2,1]" : "%c[2,524288]",
			catalogue_type(op, op->in_classes[i < n_classes ? i : n_classes - 1]));
	c.in = in;
	c.out = out;
	return catalogue_plan(&c);
}

static void count_look(struct cpu_pause *pause)
{
	((struct looks *)pause)->n++;
}

/*
 * Run the plan's steps.
 * Return: the number of steps that keep waiting tasks waiting for too long.
 */
static unsigned int count_long_steps(struct cpu_rig *rig, struct plan *plan)
{
	struct cpu_context context = cpu_executor_from(rig->executor)->inline_context;
	struct looks looks = {
		.pause = {.serve = count_look, .state = &cpu_calm_state, .leave = EXEC_CANCELLED},
		.n_waiting = 1,
	};
	_Atomic bool is_out_of_range = false;
	struct cpu_frame frame = {.count = 1, .is_out_of_range = &is_out_of_range};
	const struct cpu_plan *compiled;
	unsigned int n_long = 0;
	struct cpu_job job;

	cpu_rig_prepare(rig, plan);
	compiled = plan->exec[RBK_DEVICE_CPU];
	cpu_job_init(&job, plan, 1, 1);
	looks.pause.n_waiting = &looks.n_waiting;
	context.pause = &looks.pause;
	frame.base[CPU_BASE_SCRATCH] = (uintptr_t)compiled->scratch;
	for (unsigned int j = 0; j < job.buffers.n; j++)
		frame.base[CPU_BASE_BINDING + j] = (uintptr_t)job.buffers.bindings[j];
	for (uint32_t k = 0; k < compiled->n_steps; k++) {
		const struct cpu_step *step = &compiled->steps[k];
		const double ns = step->cost_fixed_ns + step->cost_row_ns;
		double n_stops, apart;

		looks.n = 0;
		frame.n_rounds = step->rounds ? step->rounds(step, 1) : 1;
		for (frame.round = 0; frame.round < frame.n_rounds; frame.round++)
			step->run(step, &frame, 0, SIZE_MAX, &context);
		n_stops = (double)looks.n + (double)step->units(step, 1) * frame.n_rounds;
		apart = ns / n_stops;
		if (apart <= max_apart_ns)
			continue;
		print_message("%s, step %u: %.0f us in %zu units and %u looks\n",
			      plan->nodes[0].op->name, k, ns / 1000, step->units(step, 1), looks.n);
		n_long++;
	}
	cpu_job_deinit(&job);
	cpu_rig_release(rig, plan);
	return n_long;
}

TEST(test_looks__catalogue)
{
	bool is_covered[OP_KIND_COUNT] = {false};
	unsigned int n_wrong = 0;
	struct cpu_rig rig;

	cpu_rig_init(&rig, &(struct cpu_options){.n_workers = 1});
	for (size_t i = 0; i < ARRAY_SIZE(catalogue_cases); i++) {
		is_covered[op_by_name(catalogue_cases[i].op)->kind] = true;
		n_wrong += count_long_steps(&rig, catalogue_plan(&catalogue_cases[i]));
	}
	for (unsigned int kind = 0; kind < OP_KIND_COUNT; kind++) {
		const struct op *op = op_by_kind((enum op_kind)kind);

		if (is_covered[kind])
			continue;
		if (kind < OP_ADD || kind > OP_BITWISE_NOT)
			fail_msg("%s has no row", op->name);
		n_wrong += count_long_steps(&rig, elementwise_plan(op));
	}
	cpu_rig_deinit(&rig);
	assert_int_equal(n_wrong, 0);
}

TEST_MAIN(NULL, NULL, clock_init(), cpu_flush_denormals())
