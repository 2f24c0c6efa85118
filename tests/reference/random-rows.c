/* SPDX-License-Identifier: MIT */
/* See random-rows.h. */
#include "reference/random-rows.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct random {
	uint64_t *state;
	struct describe *d;
	bool dynamic;
	/* Type that replaces float32 in the description. */
	enum rbk_dtype floats;
};

static uint32_t pick(struct random *r, uint32_t from, uint32_t to)
{
	return from + (uint32_t)(reference_random(r->state) % (to - from + 1));
}

enum { MAX_ELEMS = 1 << 17 };

/* Choose dimensions, mostly small; the last one is longer. */
static void pick_dims(struct random *r, unsigned int rank, uint32_t *dims, uint32_t longest)
{
	for (unsigned int i = 0; i < rank; i++)
		dims[i] = pick(r, 0, 4) ? pick(r, 1, i + 1 == rank || !pick(r, 0, 2) ? longest : 6)
					: 1;
	for (;;) {
		unsigned int largest = 0;
		uint64_t n = 1;

		for (unsigned int i = 0; i < rank; i++) {
			n *= dims[i];
			largest = dims[i] > dims[largest] ? i : largest;
		}
		if (n <= MAX_ELEMS)
			break;
		dims[largest] /= 2;
	}
	if (r->dynamic)
		dims[0] = DESCRIBE_COUNT;
}

/* Convert the tensors described so far; later tensors keep their type. */
static void settle_floats(struct random *r)
{
	describe_floats(r->d, r->floats);
	r->floats = RBK_DTYPE_F32;
}

static void output(struct random *r, const char *name, enum rbk_dtype dtype)
{
	describe_inferred(r->d, name, RBK_TENSOR_OUTPUT, dtype);
}

/* Return a type that @op takes, float32 half of the time. */
static enum rbk_dtype pick_type(struct random *r, const char *op)
{
	static const enum rbk_dtype types[] = {RBK_DTYPE_I32, RBK_DTYPE_I64, RBK_DTYPE_I8,
					       RBK_DTYPE_U8, RBK_DTYPE_BOOL};
	const bool adds =
		!strcmp(op, "ReduceSum") || !strcmp(op, "ReduceProd") || !strcmp(op, "CumSum");
	const bool is_arg = !strncmp(op, "Arg", 3) || !strcmp(op, "TopK");
	const bool orders = !strcmp(op, "ReduceMax") || !strcmp(op, "ReduceMin");

	if (r->floats == RBK_DTYPE_F64 || pick(r, 0, 1) || !(adds || is_arg || orders))
		return RBK_DTYPE_F32;
	return types[pick(r, 0, adds ? 1 : is_arg ? 3 : 4)];
}

static void reduction(struct random *r, const char *op)
{
	const enum rbk_dtype type = pick_type(r, op);
	const unsigned int rank = pick(r, 1, 5);
	const uint32_t mask = pick(r, 0, (1u << rank) - 1);
	const bool positive = !strcmp(op, "ReduceLogSum");
	unsigned int n = 0;
	uint32_t dims[8];
	int64_t axes[8];

	pick_dims(r, rank, dims, rank < 4 ? 150 : 12);
	for (unsigned int i = 0; i < rank; i++)
		if (mask & 1u << i)
			axes[n++] = (int64_t)i - (pick(r, 0, 1) ? rank : 0);
	describe_tensor(r->d, "x", RBK_TENSOR_INPUT, type, 0, rank, dims);
	if (positive) {
		describe_scratch(r->d, "square");
		describe_node(r->d, "Mul", "", "x,x", "square");
	}
	output(r, "y", type);
	describe_node(r->d, op, "", positive ? "square" : "x", "y");
	if (n > 0)
		describe_attr_ints(r->d, "axes", n, axes);
	else
		describe_attr_int(r->d, "noop_with_empty_axes", pick(r, 0, 1));
	describe_attr_int(r->d, "keepdims", pick(r, 0, 1));
}

static void along_axis(struct random *r, const char *op)
{
	const bool is_arg = !strncmp(op, "Arg", 3);
	const enum rbk_dtype type = pick_type(r, op);
	const unsigned int rank = pick(r, 1, 4);
	uint32_t dims[8];

	pick_dims(r, rank, dims, 150);
	describe_tensor(r->d, "x", RBK_TENSOR_INPUT, type, 0, rank, dims);
	output(r, "y", is_arg ? RBK_DTYPE_I64 : type);
	describe_node(r->d, op, "", "x", "y");
	describe_attr_int(r->d, "axis", pick(r, 0, rank - 1));
	if (is_arg) {
		describe_attr_int(r->d, "keepdims", pick(r, 0, 1));
		describe_attr_int(r->d, "select_last_index", pick(r, 0, 1));
	} else if (!strcmp(op, "CumSum")) {
		describe_attr_int(r->d, "exclusive", pick(r, 0, 1));
		describe_attr_int(r->d, "reverse", pick(r, 0, 1));
	} else if (!strcmp(op, "LpNormalization")) {
		describe_attr_int(r->d, "p", pick(r, 1, 2));
	}
}

static void top_k(struct random *r, const char *op)
{
	const enum rbk_dtype type = pick_type(r, op);
	const unsigned int rank = pick(r, 1u + r->dynamic, 4);
	const unsigned int axis = pick(r, r->dynamic, rank - 1);
	uint32_t dims[8];

	pick_dims(r, rank, dims, rank < 3 ? 400 : 40);
	describe_tensor(r->d, "x", RBK_TENSOR_INPUT, type, 0, rank, dims);
	output(r, "values", type);
	output(r, "indices", RBK_DTYPE_I64);
	describe_node(r->d, op, "", "x", "values,indices");
	describe_attr_int(r->d, "axis", axis);
	/* Half of the time k is small: devices have another kernel for large k. */
	describe_attr_int(r->d, "k", pick(r, 1, pick(r, 0, 1) && dims[axis] > 6 ? 6 : dims[axis]));
	describe_attr_int(r->d, "largest", pick(r, 0, 1));
	describe_attr_int(r->d, "sorted", pick(r, 0, 1));
}

static void layer_norm(struct random *r, const char *op)
{
	const bool rms = !strcmp(op, "RMSNormalization");
	const unsigned int rank = pick(r, 2, 4), axis = pick(r, 1, rank - 1);
	const bool bias = !rms && pick(r, 0, 1), stats = !rms && pick(r, 0, 1);
	uint32_t dims[8];

	pick_dims(r, rank, dims, 200);
	describe_input(r->d, "x", rank, dims);
	if (pick(r, 0, 3))
		describe_input(r->d, "scale", rank - axis, dims + axis);
	else
		describe_input(r->d, "scale", DESCRIBE_DIMS(1));
	if (bias)
		describe_input(r->d, "bias", rank - axis, dims + axis);
	output(r, "y", RBK_DTYPE_F32);
	/* Statistics are float32 whatever the other types are. */
	settle_floats(r);
	if (stats) {
		output(r, "mean", RBK_DTYPE_F32);
		output(r, "inv", RBK_DTYPE_F32);
	}
	describe_node(r->d, op, "", bias ? "x,scale,bias" : "x,scale", stats ? "y,mean,inv" : "y");
	describe_attr_int(r->d, "axis", axis);
	describe_attr_float(r->d, "epsilon", 0.01f);
}

static void channel_norm(struct random *r, const char *op)
{
	const bool batch = !strcmp(op, "BatchNormalization");
	const unsigned int rank = pick(r, 2, 4);
	static const char *const by_channel[] = {"scale", "bias", "mean", "var"};
	const uint32_t groups = pick(r, 1, 3);
	uint32_t dims[8];

	pick_dims(r, rank, dims, 40);
	dims[1] = groups * pick(r, 1, 5);
	describe_input(r->d, "x", rank, dims);
	for (unsigned int i = 0; i < (batch ? 4 : 2); i++)
		describe_input(r->d, by_channel[i], 1, &dims[1]);
	output(r, "y", RBK_DTYPE_F32);
	describe_node(r->d, op, "", batch ? "x,scale,bias,mean,var" : "x,scale,bias", "y");
	describe_attr_float(r->d, "epsilon", 0.01f);
	if (!strcmp(op, "GroupNormalization"))
		describe_attr_int(r->d, "num_groups", groups);
}

static void rotary(struct random *r, const char *op)
{
	const bool heads_first = pick(r, 0, 1), positions = pick(r, 0, 1);
	const uint32_t batch = r->dynamic ? DESCRIBE_COUNT : pick(r, 1, 3), heads = pick(r, 1, 4);
	const uint32_t seq = pick(r, 1, 7), size = 2 * pick(r, 1, 20), half = pick(r, 1, size / 2);

	if (heads_first)
		describe_input(r->d, "x", DESCRIBE_DIMS(batch, heads, seq, size));
	else
		describe_input(r->d, "x", DESCRIBE_DIMS(batch, seq, heads * size));
	for (unsigned int i = 0; i < 2; i++) {
		if (positions)
			describe_input(r->d, i ? "sin" : "cos", DESCRIBE_DIMS(11, half));
		else
			describe_input(r->d, i ? "sin" : "cos", DESCRIBE_DIMS(batch, seq, half));
	}
	if (positions)
		describe_tensor(r->d, "at", RBK_TENSOR_INPUT, RBK_DTYPE_I64, 0,
				DESCRIBE_DIMS(batch, seq));
	output(r, "y", RBK_DTYPE_F32);
	describe_node(r->d, op, "", positions ? "x,cos,sin,at" : "x,cos,sin", "y");
	describe_attr_int(r->d, "interleaved", pick(r, 0, 1));
	describe_attr_int(r->d, "rotary_embedding_dim", 2 * half);
	describe_attr_int(r->d, "num_heads", heads);
}

static void attention(struct random *r, const char *op)
{
	static const enum rbk_dtype types[] = {RBK_DTYPE_F32, RBK_DTYPE_F16, RBK_DTYPE_BOOL};
	const bool heads_first = pick(r, 0, 1), past = pick(r, 0, 1), mask = pick(r, 0, 1);
	const uint32_t batch = r->dynamic ? DESCRIBE_COUNT : pick(r, 1, 3);
	const uint32_t kv_heads = pick(r, 1, 3), heads = kv_heads * pick(r, 1, 3);
	const uint32_t q_len = pick(r, 1, pick(r, 0, 3) ? 9 : 20), before = pick(r, 1, 20);
	const uint32_t kv_len = pick(r, 1, pick(r, 0, 3) ? 30 : 300);
	const uint32_t largest = pick(r, 0, 4) ? 40 : 150;
	const uint32_t size = pick(r, 1, largest), v_size = pick(r, 1, largest);
	const uint32_t total = kv_len + (past ? before : 0);
	const bool presents = pick(r, 0, 1), qk = pick(r, 0, 1), valid = pick(r, 0, 3) == 0;
	const enum rbk_dtype type = r->floats;
	const enum rbk_dtype mask_type = types[pick(r, 0, 2)];
	char in[64] = "q,k,v", out[64] = "y";

	if (heads_first) {
		describe_input(r->d, "q", DESCRIBE_DIMS(batch, heads, q_len, size));
		describe_input(r->d, "k", DESCRIBE_DIMS(batch, kv_heads, kv_len, size));
		describe_input(r->d, "v", DESCRIBE_DIMS(batch, kv_heads, kv_len, v_size));
	} else {
		describe_input(r->d, "q", DESCRIBE_DIMS(batch, q_len, heads * size));
		describe_input(r->d, "k", DESCRIBE_DIMS(batch, kv_len, kv_heads * size));
		describe_input(r->d, "v", DESCRIBE_DIMS(batch, kv_len, kv_heads * v_size));
	}
	if (past) {
		describe_input(r->d, "pk", DESCRIBE_DIMS(batch, kv_heads, before, size));
		describe_input(r->d, "pv", DESCRIBE_DIMS(batch, kv_heads, before, v_size));
	}
	settle_floats(r);
	switch (mask ? pick(r, 0, 3) : 4) {
	case 0:
		describe_tensor(r->d, "mask", RBK_TENSOR_INPUT, mask_type, 0,
				DESCRIBE_DIMS(q_len, total));
		break;
	case 1:
		describe_tensor(r->d, "mask", RBK_TENSOR_INPUT, mask_type, 0,
				DESCRIBE_DIMS(1, pick(r, 1, total)));
		break;
	case 2:
		describe_tensor(r->d, "mask", RBK_TENSOR_INPUT, mask_type, 0,
				DESCRIBE_DIMS(heads, 1, total));
		break;
	case 3:
		describe_tensor(r->d, "mask", RBK_TENSOR_INPUT, mask_type, 0,
				DESCRIBE_DIMS(batch, 1, q_len, pick(r, 1, total)));
		break;
	}
	output(r, "y", type);
	if (presents) {
		output(r, "nk", type);
		output(r, "nv", type);
		strcat(out, ",nk,nv");
	}
	if (qk) {
		output(r, "qk", type);
		strcat(out, presents ? ",qk" : ",-,-,qk");
	}
	strcat(in, mask ? ",mask" : past || valid ? ",-" : "");
	strcat(in, past ? ",pk,pv" : valid ? ",-,-" : "");
	if (valid) {
		describe_tensor(r->d, "valid", RBK_TENSOR_INPUT, RBK_DTYPE_I64, 0,
				DESCRIBE_DIMS(batch));
		strcat(in, ",valid");
	}
	describe_node(r->d, op, "", in, out);
	describe_attr_int(r->d, "is_causal", pick(r, 0, 1));
	describe_attr_int(r->d, "qk_matmul_output_mode", pick(r, 0, 3));
	if (!heads_first || pick(r, 0, 1)) {
		describe_attr_int(r->d, "q_num_heads", heads);
		describe_attr_int(r->d, "kv_num_heads", kv_heads);
	}
	if (pick(r, 0, 1))
		describe_attr_float(r->d, "softcap", 0.5f);
	if (pick(r, 0, 1))
		describe_attr_float(r->d, "scale", 0.3f);
}

static struct plan *random_plan(uint64_t *state, unsigned int which, bool dynamic,
				uint32_t max_count, bool is_double)
{
	static const struct {
		const char *op;
		void (*describe)(struct random *r, const char *op);
	} operators[RANDOM_ROWS_OPERATORS] = {
		{"ReduceSum", reduction},
		{"ReduceMean", reduction},
		{"ReduceSumSquare", reduction},
		{"ReduceL1", reduction},
		{"ReduceL2", reduction},
		{"ReduceLogSum", reduction},
		{"ReduceLogSumExp", reduction},
		{"ReduceProd", reduction},
		{"ReduceMax", reduction},
		{"ReduceMin", reduction},
		{"ArgMax", along_axis},
		{"ArgMin", along_axis},
		{"TopK", top_k},
		{"CumSum", along_axis},
		{"Softmax", along_axis},
		{"LogSoftmax", along_axis},
		{"LpNormalization", along_axis},
		{"LayerNormalization", layer_norm},
		{"RMSNormalization", layer_norm},
		{"InstanceNormalization", channel_norm},
		{"GroupNormalization", channel_norm},
		{"BatchNormalization", channel_norm},
		{"RotaryEmbedding", rotary},
		{"Attention", attention},
	};
	struct random r = {.state = state, .dynamic = dynamic, .floats = RBK_DTYPE_F64};

	r.d = describe_new(operators[which].op, dynamic ? max_count : 1);
	if (!is_double)
		r.floats = pick(&r, 0, 3) == 0 ? RBK_DTYPE_F16 : RBK_DTYPE_F32;
	operators[which].describe(&r, operators[which].op);
	settle_floats(&r);
	return reference_plan(r.d, NULL);
}

void random_rows_fill(const struct plan *plan, uint32_t count, struct reference_buffers *buffers,
		      uint64_t *state)
{
	for (unsigned int i = 0; i < buffers->n; i++) {
		const struct tensor *tensor = &plan->tensors[plan->bindings[i].tensor];
		const uint64_t n = shape_elems(&tensor->shape, count);

		/* The number of valid keys is at most the number of keys. */
		if (!strcmp(tensor->name, "valid")) {
			const struct shape *key = &plan->tensors[plan->nodes[0].in[1]].shape;

			for (uint64_t k = 0; k < n; k++)
				((int64_t *)buffers->bindings[i])[k] =
					(int64_t)(reference_random(state) %
						  (key->dims[key->rank - 2] + 1));
		}
		/* Positions are mostly valid, and now and then arbitrary. */
		for (uint64_t k = 0; !strcmp(tensor->name, "at") && k < n; k++)
			if (reference_random(state) % 8)
				((int64_t *)buffers->bindings[i])[k] =
					(int64_t)(reference_random(state) % 11);
		if (strcmp(tensor->name, "mask"))
			continue;
		for (uint64_t k = 0; k < n; k++) {
			const bool is_left_out = reference_random(state) % 4 == 0;

			if (is_left_out && tensor->dtype == RBK_DTYPE_F32)
				((float *)buffers->bindings[i])[k] = -INFINITY;
			else if (is_left_out && tensor->dtype == RBK_DTYPE_F16)
				((uint16_t *)buffers->bindings[i])[k] = 0xfc00;
			else if (tensor->dtype == RBK_DTYPE_BOOL)
				((uint8_t *)buffers->bindings[i])[k] = !is_left_out;
		}
	}
}

struct plan *random_rows(uint64_t *state, unsigned int round, uint32_t max_count)
{
	return random_plan(state, round % RANDOM_ROWS_OPERATORS, round / RANDOM_ROWS_OPERATORS & 1,
			   max_count, false);
}

struct plan *random_rows_double(uint64_t *state, unsigned int round, uint32_t max_count)
{
	return random_plan(state, round % RANDOM_ROWS_DOUBLE, round / RANDOM_ROWS_DOUBLE & 1,
			   max_count, true);
}
