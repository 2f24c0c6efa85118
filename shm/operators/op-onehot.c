/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: OneHot and Trilu
 *
 * OneHot of opset 11 with depth as an attribute: its inputs are the indices and the two values, off
 * and on. An index out of range is no error: all of its elements are off.
 *
 * Trilu of opset 14 with k as an attribute, which is clamped to the possible dimensions: beyond
 * them all diagonals are equivalent.
 */
#include "shm/operators/op-call.h"
#include "shm/operators/op-rows.h"

static int one_hot_infer(struct op_call *call)
{
	const struct op_tensor *indices = call->in[0], *values = call->in[1];
	const int64_t rank = (int64_t)indices->shape.rank + 1;
	struct shape *out = &call->out_shape[0];
	int64_t axis, depth;
	int r;

	if (rank > RBK_MAX_RANK)
		return op_call_refuse(call,
				      "input \"%s\" %s has %u dimensions, expected less than %u",
				      indices->name, SHAPE_TEXT(&indices->shape),
				      (unsigned int)indices->shape.rank, RBK_MAX_RANK);
	r = op_call_int(call, "axis", -rank, rank - 1, -1, &axis);
	if (!r)
		r = op_call_int(call, "depth", 1, OP_MAX_DIM, 0, &depth);
	if (r)
		return r;
	if (values->shape.rank != 1 || !dim_is(shape_get(&values->shape, 0), 2))
		return op_call_refuse(call, "input \"%s\" is %s, expected [2]", values->name,
				      SHAPE_TEXT(&values->shape));
	axis = axis < 0 ? axis + rank : axis;
	if (indices->shape.dynamic && axis == 0)
		return op_call_refuse(call,
				      "input \"%s\" %s would make count dimension 1 of the output, "
				      "expected another \"axis\" than 0",
				      indices->name, SHAPE_TEXT(&indices->shape));
	call->params.one_hot.axis = (uint8_t)axis;
	call->params.one_hot.depth = (uint32_t)depth;
	*out = (struct shape){.rank = (uint8_t)rank, .dynamic = indices->shape.dynamic};
	for (int64_t i = 0; i < rank; i++)
		out->dims[i] = i == axis ? (uint32_t)depth : indices->shape.dims[i - (i > axis)];
	return 0;
}

static int trilu_infer(struct op_call *call)
{
	const struct op_tensor *in = call->in[0];
	const int64_t limit = (int64_t)OP_MAX_DIM;
	int64_t k;
	int r;

	if (in->shape.rank < 2)
		return op_call_refuse(call, "input \"%s\" is %s, expected two dimensions or more",
				      in->name, SHAPE_TEXT(&in->shape));
	r = op_call_bool(call, "upper", true, &call->params.trilu.upper);
	if (!r)
		r = op_call_int(call, "k", INT64_MIN, INT64_MAX, 0, &k);
	if (r)
		return r;
	call->params.trilu.k = k < -limit ? -limit : k > limit ? limit : k;
	call->out_shape[0] = in->shape;
	/* The row index determines which of its elements are kept. */
	call->mixes_rows = in->shape.rank == 2;
	return 0;
}

static const struct op_attr one_hot_attrs[] = {
	{"axis", RBK_ATTR_INT, false},
	{"depth", RBK_ATTR_INT, true},
	{0},
};

static const struct op_attr trilu_attrs[] = {
	{"k", RBK_ATTR_INT, false},
	{"upper", RBK_ATTR_INT, false},
	{0},
};

const struct op op_one_hot = {
	.kind = OP_ONE_HOT,
	.family = OP_FAMILY_TRANSPOSE,
	.name = "OneHot",
	.opset = 11,
	.min_in = 2,
	.max_in = 2,
	.min_out = 1,
	.max_out = 1,
	.classes = {{'T', OP_ANY_TYPE, OP_ANY_TYPE}, {'I', OP_INDICES, OP_INDICES}},
	.in_classes = "IT",
	.out_classes = "T",
	.data_independent = true,
	.splits_rows = true,
	.attrs = one_hot_attrs,
	.infer = one_hot_infer,
	.cost = cost_tensors,
};

const struct op op_trilu = {
	.kind = OP_TRILU,
	.family = OP_FAMILY_TRANSPOSE,
	.name = "Trilu",
	.opset = 14,
	OP_ROW_OF_ONE_CLASS(1, 1, OP_ANY_TYPE),
	.splits_rows = true,
	.is_like_first = true,
	.attrs = trilu_attrs,
	.infer = trilu_infer,
	.cost = cost_tensors,
};
