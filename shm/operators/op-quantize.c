/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear
 *
 * Scales and zero points have the same shape: one element per tensor, or [n] along an axis, or,
 * with block_size, the tensor's rank with one element per block along the axis. The output type of
 * quantization is the zero point's type or, without a zero point, output_dtype; uint8 by default.
 *
 * DynamicQuantizeLinear derives scale and zero point from its whole input: rows of a count are not
 * independent.
 */
#include "shm/operators/op-call.h"
#include "shm/operators/op-rows.h"

static bool is_one(const struct shape *shape)
{
	for (unsigned int i = 0; i < shape->rank; i++) {
		if (!dim_is(shape_get(shape, i), 1))
			return false;
	}
	return true;
}

/* Check for one scale per element of dimension @axis, or per @block of them. */
static int check_blocks(struct op_call *call, const struct op_tensor *scale, uint8_t axis,
			int64_t block)
{
	const struct op_tensor *in = call->in[0];
	bool fits = scale->shape.rank == in->shape.rank && !(axis == 0 && in->shape.dynamic);

	for (unsigned int i = 0; fits && i < in->shape.rank; i++) {
		const struct dim have = shape_get(&scale->shape, i), dim = shape_get(&in->shape, i);

		fits = i == axis ? dim_is(have, (uint32_t)(((uint64_t)dim.n + (uint64_t)block - 1) /
							   (uint64_t)block))
				 : dim_equal(have, dim);
	}
	if (fits)
		return 0;
	return op_call_refuse(call,
			      "input \"%s\" is %s, expected one scale for each block of %lld along "
			      "dimension %u of \"%s\" %s",
			      scale->name, SHAPE_TEXT(&scale->shape), (long long)block, axis,
			      in->name, SHAPE_TEXT(&in->shape));
}

static int quantize_shapes(struct op_call *call)
{
	const struct op_tensor *in = call->in[0], *scale = call->in[1], *zero = call->in[2];
	const int64_t rank = in->shape.rank;
	int64_t axis, block;
	int r;

	r = op_call_int(call, "block_size", 0, OP_MAX_DIM, 0, &block);
	if (!r)
		r = op_call_int(call, "axis", -(int64_t)RBK_MAX_RANK, RBK_MAX_RANK - 1, 1, &axis);
	if (r)
		return r;
	if (zero && !shape_equal(&zero->shape, &scale->shape))
		return op_call_refuse(call, "input \"%s\" is %s, expected %s as \"%s\"", zero->name,
				      SHAPE_TEXT(&zero->shape), SHAPE_TEXT(&scale->shape),
				      scale->name);
	call->out_shape[0] = in->shape;
	call->params.quantize.block = 0;
	/* ONNX ignores the axis then; it may even be out of range. */
	if (scale->shape.rank <= 1 && is_one(&scale->shape))
		return 0;
	if (axis < -rank || axis >= rank)
		return op_call_refuse(call,
				      "attribute \"axis\" is %lld, expected a dimension of input "
				      "\"%s\" %s",
				      (long long)axis, in->name, SHAPE_TEXT(&in->shape));
	call->params.quantize.axis = (uint8_t)(axis < 0 ? axis + rank : axis);
	call->params.quantize.block = block ? (uint32_t)block : 1;
	call->params.quantize.is_blocked = block > 0;
	if (block)
		return check_blocks(call, scale, call->params.quantize.axis, block);
	if (scale->shape.rank != 1 || !dim_equal(shape_get(&scale->shape, 0),
						 shape_get(&in->shape, call->params.quantize.axis)))
		return op_call_refuse(call,
				      "input \"%s\" is %s, expected one scale, or one for each of "
				      "dimension %u of \"%s\" %s",
				      scale->name, SHAPE_TEXT(&scale->shape),
				      call->params.quantize.axis, in->name, SHAPE_TEXT(&in->shape));
	return 0;
}

static int quantize_infer(struct op_call *call)
{
	int64_t output_dtype, ignored;
	int r;

	r = op_call_int(call, "output_dtype", 0, 255, 0, &output_dtype);
	/*
	 * saturate is for float8 only. precision is for the division, which always has its
	 * operands' precision.
	 */
	if (!r)
		r = op_call_int(call, "saturate", 0, 1, 1, &ignored);
	if (!r)
		r = op_call_int(call, "precision", 0, 255, 0, &ignored);
	if (!r)
		r = quantize_shapes(call);
	if (r)
		return r;
	if (!call->in[2])
		call->out_dtype[0] = output_dtype ? (uint8_t)output_dtype : RBK_DTYPE_U8;
	if (!(call->out_dtype[0] < 32 && (OP_BYTES >> call->out_dtype[0] & 1)) ||
	    (output_dtype && output_dtype != call->out_dtype[0]))
		return op_call_refuse(call,
				      "attribute \"output_dtype\" is %lld, expected 2 (uint8) or 3 "
				      "(int8), and the zero point's type if there is one",
				      (long long)output_dtype);
	return 0;
}

static int dequantize_infer(struct op_call *call)
{
	int64_t output_dtype;
	int r;

	r = op_call_int(call, "output_dtype", 0, 255, 0, &output_dtype);
	if (!r)
		r = quantize_shapes(call);
	if (!r && output_dtype && output_dtype != call->in[1]->dtype)
		r = op_call_refuse(call,
				   "attribute \"output_dtype\" is %lld, expected %u, the type of "
				   "\"%s\"",
				   (long long)output_dtype, call->in[1]->dtype, call->in[1]->name);
	return r;
}

static void quantize_cost(const struct op_call *call, struct cost *ret)
{
	cost_elems(ret, &call->in[0]->shape, 3);
	cost_tensors(call, ret);
}

static int dynamic_infer(struct op_call *call)
{
	call->out_shape[0] = call->in[0]->shape;
	call->out_shape[1] = call->out_shape[2] = (struct shape){.rank = 0};
	call->mixes_rows = call->in[0]->shape.dynamic;
	return 0;
}

static void dynamic_cost(const struct op_call *call, struct cost *ret)
{
	cost_elems(ret, &call->in[0]->shape, 5);
	cost_tensors(call, ret);
}

/* Ranges of pieces of the input. */
static uint64_t dynamic_work(const struct op_call *call)
{
	return round_up(OP_RANGES * 2 * sizeof(float), OP_WORK_ALIGN);
}

static const struct op_attr quantize_attrs[] = {
	{"axis", RBK_ATTR_INT, false},         {"block_size", RBK_ATTR_INT, false},
	{"output_dtype", RBK_ATTR_INT, false}, {"precision", RBK_ATTR_INT, false},
	{"saturate", RBK_ATTR_INT, false},     {0},
};

const struct op op_quantize_linear = {
	.kind = OP_QUANTIZE_LINEAR,
	.family = OP_FAMILY_ELEMENTWISE,
	.name = "QuantizeLinear",
	.opset = 25,
	.min_in = 2,
	.max_in = 3,
	.min_out = 1,
	.max_out = 1,
	.classes = {{'T', OP_FLOATS, OP_FLOATS}, {'Q', OP_BYTES, OP_BYTES}},
	.in_classes = "TTQ",
	.out_classes = "Q",
	.data_independent = true,
	.splits_rows = true,
	.is_like_first = true,
	.attrs = quantize_attrs,
	.infer = quantize_infer,
	.cost = quantize_cost,
};

static const struct op_attr dequantize_attrs[] = {
	{"axis", RBK_ATTR_INT, false},
	{"block_size", RBK_ATTR_INT, false},
	{"output_dtype", RBK_ATTR_INT, false},
	{0},
};

const struct op op_dequantize_linear = {
	.kind = OP_DEQUANTIZE_LINEAR,
	.family = OP_FAMILY_ELEMENTWISE,
	.name = "DequantizeLinear",
	.opset = 25,
	.min_in = 2,
	.max_in = 3,
	.min_out = 1,
	.max_out = 1,
	.classes = {{'Q', OP_BYTES | OP_TYPE(RBK_DTYPE_I32), OP_BYTES | OP_TYPE(RBK_DTYPE_I32)},
		    {'T', OP_FLOATS, OP_FLOATS}},
	.in_classes = "QTQ",
	.out_classes = "T",
	.data_independent = true,
	.splits_rows = true,
	.is_like_first = true,
	.attrs = dequantize_attrs,
	.infer = dequantize_infer,
	.cost = quantize_cost,
};

const struct op op_dynamic_quantize_linear = {
	.kind = OP_DYNAMIC_QUANTIZE_LINEAR,
	.family = OP_FAMILY_REDUCTION,
	.name = "DynamicQuantizeLinear",
	.opset = 11,
	.min_in = 1,
	.max_in = 1,
	.min_out = 3,
	.max_out = 3,
	.classes = {{'T', OP_FLOAT32, OP_FLOAT32},
		    {'Q', OP_TYPE(RBK_DTYPE_U8), OP_TYPE(RBK_DTYPE_U8)}},
	.in_classes = "T",
	.out_classes = "QTQ",
	.data_independent = true,
	.splits_rows = true,
	.attrs = op_no_attrs,
	.infer = dynamic_infer,
	.cost = dynamic_cost,
	.work = dynamic_work,
};
