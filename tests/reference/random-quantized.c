/* SPDX-License-Identifier: MIT */
/* See random-quantized.h. */
#include "reference/random-quantized.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/half.h"
#include "support/describe.h"

const enum op_kind random_quantized_ops[] = {
	OP_QUANTIZE_LINEAR, OP_DEQUANTIZE_LINEAR, OP_DYNAMIC_QUANTIZE_LINEAR,
	OP_MATMUL_INTEGER,  OP_QLINEAR_MATMUL,    OP_CONV_INTEGER,
	OP_QLINEAR_CONV,    OP_MATMUL_NBITS,      OP_KIND_COUNT,
};

struct maker {
	struct describe *describe;
	uint64_t *seed;
	bool constants; /* true: weights are constants */
	bool dynamic;
	char in[64];
};

static uint32_t pick(struct maker *m, uint32_t from, uint32_t to)
{
	return from + (uint32_t)(reference_random(m->seed) >> 8) % (to - from + 1);
}

static void add(struct maker *m, const char *name, enum rbk_dtype dtype, bool weight,
		unsigned int rank, const uint32_t *dims)
{
	const uint64_t ref = RBK_REF(REFERENCE_ARENA, pick(m, 0, 8) * RBK_REF_ALIGN);

	describe_tensor(m->describe, name,
			weight && m->constants ? RBK_TENSOR_CONSTANT : RBK_TENSOR_INPUT, dtype,
			weight && m->constants ? ref : 0, rank, dims);
	if (m->in[0])
		strcat(m->in, ",");
	strcat(m->in, name);
}

static void skip(struct maker *m)
{
	strcat(m->in, ",-");
}

static enum rbk_dtype byte_type(struct maker *m)
{
	return pick(m, 0, 1) ? RBK_DTYPE_I8 : RBK_DTYPE_U8;
}

static uint32_t leading(struct maker *m, uint32_t most)
{
	m->dynamic = pick(m, 0, 1);
	return m->dynamic ? DESCRIBE_COUNT : pick(m, 1, most);
}

static void make_linear(struct maker *m, bool dequantizes)
{
	const enum rbk_dtype type =
		dequantizes && pick(m, 0, 3) == 0 ? RBK_DTYPE_I32 : byte_type(m);
	const unsigned int rank = pick(m, 1, 4), axis = pick(m, 0, rank - 1), form = pick(m, 0, 2);
	uint32_t dims[4], scale[4], block = 0;
	unsigned int scale_rank = 0;

	for (unsigned int i = 0; i < rank; i++)
		dims[i] = pick(m, 1, i + 1 == rank ? 40 : 7);
	dims[0] = axis == 0 && form == 2 ? dims[0] : leading(m, 7);
	if (form == 1) {
		scale_rank = 1;
		scale[0] = dims[axis];
	} else if (form == 2) {
		scale_rank = rank;
		block = pick(m, 1, dims[axis]);
		memcpy(scale, dims, sizeof(dims));
		scale[axis] = (dims[axis] + block - 1) / block;
	}
	add(m, "x", dequantizes ? type : RBK_DTYPE_F32, false, rank, dims);
	add(m, "s", RBK_DTYPE_F32, false, scale_rank, scale);
	if (pick(m, 0, 2))
		add(m, "z", type, false, scale_rank, scale);
	else if (type == RBK_DTYPE_I8 && !dequantizes)
		add(m, "z", type, false, scale_rank, scale);
	describe_inferred(m->describe, "y", RBK_TENSOR_OUTPUT,
			  dequantizes          ? RBK_DTYPE_F32
			  : strchr(m->in, 'z') ? type
					       : RBK_DTYPE_U8);
	describe_node(m->describe, dequantizes ? "DequantizeLinear" : "QuantizeLinear", "", m->in,
		      "y");
	describe_attr_int(m->describe, "axis", pick(m, 0, 1) ? axis : (int64_t)axis - rank);
	if (block)
		describe_attr_int(m->describe, "block_size", block);
}

static void make_dynamic(struct maker *m, bool large)
{
	const uint32_t inner = large ? pick(m, 5000, 40000) : pick(m, 1, 200);

	add(m, "x", RBK_DTYPE_F32, false, DESCRIBE_DIMS(leading(m, 5), inner));
	describe_inferred(m->describe, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_U8);
	describe_inferred(m->describe, "scale", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_inferred(m->describe, "zero", RBK_TENSOR_OUTPUT, RBK_DTYPE_U8);
	describe_node(m->describe, "DynamicQuantizeLinear", "", m->in, "y,scale,zero");
}

/* Add a tensor of one element or of @dim elements. */
static void add_each(struct maker *m, const char *name, enum rbk_dtype dtype, bool weight,
		     uint32_t dim)
{
	if (pick(m, 0, 1))
		add(m, name, dtype, weight, DESCRIBE_DIMS(dim));
	else if (pick(m, 0, 1))
		add(m, name, dtype, weight, DESCRIBE_DIMS(1));
	else
		add(m, name, dtype, weight, DESCRIBE_SCALAR);
}

static void make_matmul(struct maker *m, bool linear, bool large)
{
	const enum rbk_dtype a_type = byte_type(m), b_type = byte_type(m), y_type = byte_type(m);
	const unsigned int form = pick(m, 0, 3);
	const uint32_t k = large ? pick(m, 700, 1700) : pick(m, 1, 80);
	const uint32_t n = large ? pick(m, 100, 300) : pick(m, 1, 70);
	const uint32_t rows = form ? pick(m, 1, 30) : leading(m, 30);
	const uint32_t batch = form ? leading(m, 3) : 1;

	/* One matrix times one; a batch times one; a batch times a batch; one times a batch. */
	if (form == 0 || form == 3)
		add(m, "a", a_type, false, DESCRIBE_DIMS(rows, k));
	else
		add(m, "a", a_type, false, DESCRIBE_DIMS(batch, rows, k));
	if (linear) {
		add_each(m, "t", RBK_DTYPE_F32, false, rows);
		add_each(m, "u", a_type, false, rows);
	}
	if (form < 2)
		add(m, "b", b_type, true, DESCRIBE_DIMS(k, n));
	else
		add(m, "b", b_type, batch != DESCRIBE_COUNT, DESCRIBE_DIMS(batch, k, n));
	if (linear) {
		add_each(m, "v", RBK_DTYPE_F32, true, n);
		add_each(m, "w", b_type, true, n);
		add(m, "large", RBK_DTYPE_F32, false, DESCRIBE_SCALAR);
		add(m, "z", y_type, false, DESCRIBE_SCALAR);
	} else if (pick(m, 0, 2)) {
		if (pick(m, 0, 1))
			add_each(m, "u", a_type, false, rows);
		else
			skip(m);
		if (pick(m, 0, 1))
			add_each(m, "w", b_type, true, n);
	}
	describe_inferred(m->describe, "y", RBK_TENSOR_OUTPUT, linear ? y_type : RBK_DTYPE_I32);
	describe_node(m->describe, linear ? "QLinearMatMul" : "MatMulInteger", "", m->in, "y");
}

static void make_conv(struct maker *m, bool linear, bool large)
{
	const enum rbk_dtype x_type = byte_type(m), w_type = byte_type(m), y_type = byte_type(m);
	const bool flat = pick(m, 0, 3) == 0, depthwise = pick(m, 0, 3) == 0;
	const uint32_t group = pick(m, 1, 3), in = depthwise ? 1 : pick(m, 1, large ? 90 : 6);
	const uint32_t out = depthwise ? 1 : pick(m, 1, large ? 40 : 7);
	const uint32_t kernel[2] = {pick(m, 1, 3), pick(m, 1, 4)};
	const uint32_t size[2] = {pick(m, 5, 16), pick(m, 7, large ? 40 : 16)};

	if (flat)
		add(m, "x", x_type, false, DESCRIBE_DIMS(leading(m, 3), group * in, size[1]));
	else
		add(m, "x", x_type, false,
		    DESCRIBE_DIMS(leading(m, 3), group * in, size[0], size[1]));
	if (linear) {
		add(m, "t", RBK_DTYPE_F32, false, DESCRIBE_SCALAR);
		add(m, "u", x_type, false, DESCRIBE_SCALAR);
	}
	if (flat)
		add(m, "k", w_type, true, DESCRIBE_DIMS(group * out, in, kernel[1]));
	else
		add(m, "k", w_type, true, DESCRIBE_DIMS(group * out, in, kernel[0], kernel[1]));
	if (linear) {
		add_each(m, "v", RBK_DTYPE_F32, true, group * out);
		add_each(m, "w", w_type, true, group * out);
		add(m, "large", RBK_DTYPE_F32, false, DESCRIBE_SCALAR);
		add(m, "z", y_type, false, DESCRIBE_SCALAR);
		if (pick(m, 0, 1))
			add(m, "small", RBK_DTYPE_I32, false, DESCRIBE_DIMS(group * out));
	} else if (pick(m, 0, 2)) {
		add(m, "u", x_type, false, DESCRIBE_SCALAR);
		if (pick(m, 0, 1))
			add_each(m, "w", w_type, true, group * out);
	}
	describe_inferred(m->describe, "y", RBK_TENSOR_OUTPUT, linear ? y_type : RBK_DTYPE_I32);
	describe_node(m->describe, linear ? "QLinearConv" : "ConvInteger", "", m->in, "y");
	describe_attr_int(m->describe, "group", group);
	if (flat) {
		describe_attr_ints(m->describe, "pads",
				   DESCRIBE_INTS(pick(m, 0, 2), pick(m, 0, 2)));
		describe_attr_ints(m->describe, "strides", DESCRIBE_INTS(pick(m, 1, 3)));
	} else {
		describe_attr_ints(
			m->describe, "pads",
			DESCRIBE_INTS(pick(m, 0, 2), pick(m, 0, 2), pick(m, 0, 2), pick(m, 0, 2)));
		describe_attr_ints(m->describe, "strides",
				   DESCRIBE_INTS(pick(m, 1, 2), pick(m, 1, 3)));
		describe_attr_ints(m->describe, "dilations",
				   DESCRIBE_INTS(pick(m, 1, 2), pick(m, 1, 2)));
	}
}

static void make_nbits(struct maker *m, bool large)
{
	const uint32_t block = 16u << pick(m, 0, 4), k = pick(m, 1, pick(m, 0, 2) ? 200 : 900);
	const uint32_t n = pick(m, 1, large ? 300 : 70), blocks = (k + block - 1) / block;
	const unsigned int zeros = pick(m, 0, 2);

	if (pick(m, 0, 1))
		add(m, "a", RBK_DTYPE_F32, false, DESCRIBE_DIMS(leading(m, 9), k));
	else
		add(m, "a", RBK_DTYPE_F32, false, DESCRIBE_DIMS(leading(m, 3), pick(m, 1, 5), k));
	add(m, "b", RBK_DTYPE_U8, true, DESCRIBE_DIMS(n, blocks, block / 2));
	if (pick(m, 0, 1))
		add(m, "s", RBK_DTYPE_F32, true, DESCRIBE_DIMS(n, blocks));
	else
		add(m, "s", RBK_DTYPE_F32, true, DESCRIBE_DIMS(n * blocks));
	if (zeros == 1)
		add(m, "z", RBK_DTYPE_U8, true, DESCRIBE_DIMS(n, (blocks + 1) / 2));
	else if (zeros == 2)
		add(m, "z", RBK_DTYPE_F32, true, DESCRIBE_DIMS(n, blocks));
	if (pick(m, 0, 1)) {
		if (!zeros)
			skip(m);
		skip(m);
		add(m, "c", RBK_DTYPE_F32, true, DESCRIBE_DIMS(n));
	}
	describe_inferred(m->describe, "y", RBK_TENSOR_OUTPUT, RBK_DTYPE_F32);
	describe_node(m->describe, "MatMulNBits", "", m->in, "y");
	describe_attr_int(m->describe, "K", k);
	describe_attr_int(m->describe, "N", n);
	describe_attr_int(m->describe, "block_size", block);
	describe_attr_int(m->describe, "bits", 4);
}

static bool has_halves(enum op_kind kind)
{
	return kind == OP_QUANTIZE_LINEAR || kind == OP_DEQUANTIZE_LINEAR ||
	       kind == OP_QLINEAR_MATMUL || kind == OP_MATMUL_NBITS;
}

struct plan *random_quantized_plan(enum op_kind kind, struct exec_arena *arena, bool large,
				   uint64_t *seed)
{
	struct maker m = {.seed = seed};
	const struct plan_arena_lookup lookup = reference_arena_lookup(arena);
	char message[PLAN_MESSAGE_BYTES];
	struct plan *plan;
	size_t bytes;
	void *desc;
	bool half;

	m.describe = describe_new("", RANDOM_QUANTIZED_COUNT);
	/* The arena contains float32, so halves exclude constants. */
	half = has_halves(kind) && pick(&m, 0, 3) == 0;
	m.constants = arena && !half && pick(&m, 0, 1);
	switch (kind) {
	case OP_QUANTIZE_LINEAR:
	case OP_DEQUANTIZE_LINEAR:
		make_linear(&m, kind == OP_DEQUANTIZE_LINEAR);
		break;
	case OP_DYNAMIC_QUANTIZE_LINEAR:
		make_dynamic(&m, large);
		break;
	case OP_MATMUL_INTEGER:
	case OP_QLINEAR_MATMUL:
		make_matmul(&m, kind == OP_QLINEAR_MATMUL, large);
		break;
	case OP_CONV_INTEGER:
	case OP_QLINEAR_CONV:
		make_conv(&m, kind == OP_QLINEAR_CONV, large);
		break;
	case OP_MATMUL_NBITS:
		make_nbits(&m, large);
		break;
	default:
		abort();
	}
	if (half)
		describe_halve(m.describe);
	desc = describe_finish(m.describe, &bytes);
	if (!m.dynamic)
		describe_view(desc).header->max_count = 1;
	if (plan_new(desc, bytes, &lookup, message, &plan)) {
		fprintf(stderr, "%s\n", message);
		abort();
	}
	free(desc);
	return plan;
}

/* Return a special value now and then, else @value. */
static float special(float value, uint64_t *seed)
{
	static const float specials[] = {NAN, INFINITY, -INFINITY, -0.0f, 1e30f, -1e30f, 1e-30f};
	const uint64_t pick = reference_random(seed) % 1024;

	return pick < sizeof(specials) / sizeof(specials[0]) ? specials[pick] : value;
}

/*
 * Return a scale: a small multiple of 0.25, as the values are, or now and then a meaningless one.
 */
static float scale_value(const struct plan *plan, uint64_t *seed)
{
	static const float specials[] = {NAN, INFINITY, 0.0f, -0.5f, 1e-30f, 1e30f};
	const enum op_kind kind = plan->nodes[0].op->kind;
	const uint64_t pick = reference_random(seed) % 128;

	if ((kind == OP_QUANTIZE_LINEAR || kind == OP_DEQUANTIZE_LINEAR) &&
	    pick < sizeof(specials) / sizeof(specials[0]))
		return specials[pick];
	return 0.25f * (float)(1 + reference_random(seed) % 8);
}

void random_quantized_fill(const struct plan *plan, uint32_t count,
			   struct reference_buffers *buffers, uint64_t *seed)
{
	for (unsigned int i = 0; i < buffers->n; i++) {
		const struct tensor *tensor = &plan->tensors[plan->bindings[i].tensor];
		const uint64_t n = shape_elems(&tensor->shape, count);
		const bool half = tensor->dtype == RBK_DTYPE_F16;
		uint16_t *halves = buffers->bindings[i];
		float *floats = buffers->bindings[i];

		if (tensor->kind == RBK_TENSOR_OUTPUT)
			continue;
		if (!strcmp(tensor->name, "small"))
			for (uint64_t j = 0; j < n; j++)
				((int32_t *)buffers->bindings[i])[j] >>= 16;
		if (tensor->dtype != RBK_DTYPE_F32 && !half)
			continue;
		for (uint64_t j = 0; j < n; j++) {
			float value = half ? half_to_float(halves[j]) : floats[j];

			if (!strcmp(tensor->name, "large"))
				value = 300 + value;
			else if (!strcmp(tensor->name, "s"))
				value = scale_value(plan, seed);
			else if (!strcmp(tensor->name, "x"))
				value = special(0.125f * (float)(int)(value * 3000.0f), seed);
			if (half)
				halves[j] = half_from_float(value);
			else
				floats[j] = value;
		}
	}
}
