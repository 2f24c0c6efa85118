/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: reductions
 *
 * ReduceSum, Mean, Prod, Max, Min, L1, L2, SumSquare, LogSum and LogSumExp of opset 18 (20 for Max
 * and Min) with axes as an attribute, and ArgMax and ArgMin of opset 13. Empty axes mean all axes,
 * or none with noop_with_empty_axes. Reducing the count is allowed and makes the output's shape
 * fixed. Over no elements, a sum is 0, a product 1, a mean NaN, a maximum the least and a minimum
 * the greatest value of the type; ArgMax has no result.
 */
#include "shm/operators/op-call.h"
#include "shm/operators/op-rows.h"

static int reduce_infer(struct op_call *call)
{
	const struct shape *in = &call->in[0]->shape;
	struct shape *out = &call->out_shape[0];
	bool keepdims, noop;
	uint8_t axes;
	int r;

	r = op_call_axes(call, "axes", &axes);
	if (!r)
		r = op_call_bool(call, "keepdims", true, &keepdims);
	if (!r)
		r = op_call_bool(call, "noop_with_empty_axes", false, &noop);
	if (r)
		return r;
	if (axes == 0 && !noop)
		axes = (uint8_t)((1u << in->rank) - 1);
	call->params.reduce.axes = axes;
	call->params.reduce.keepdims = keepdims;

	*out = (struct shape){.dynamic = in->dynamic && !(axes & 1)};
	for (unsigned int i = 0; i < in->rank; i++) {
		if (!(axes & 1u << i))
			out->dims[out->rank++] = in->dims[i];
		else if (keepdims)
			out->dims[out->rank++] = 1;
	}
	return 0;
}

static void reduce_cost(const struct op_call *call, struct cost *ret)
{
	cost_elems(ret, &call->in[0]->shape, 1);
	cost_tensors(call, ret);
}

static int arg_infer(struct op_call *call)
{
	const struct op_tensor *in = call->in[0];
	struct shape *out = &call->out_shape[0];
	bool keepdims, last;
	uint8_t axis;
	int r;

	r = op_call_axis(call, 0, &axis);
	if (!r)
		r = op_call_bool(call, "keepdims", true, &keepdims);
	if (!r)
		r = op_call_bool(call, "select_last_index", false, &last);
	if (r)
		return r;
	call->params.arg.axis = axis;
	call->params.arg.last = last;

	*out = (struct shape){.dynamic = in->shape.dynamic && axis != 0};
	for (unsigned int i = 0; i < in->shape.rank; i++) {
		if (i != axis)
			out->dims[out->rank++] = in->shape.dims[i];
		else if (keepdims)
			out->dims[out->rank++] = 1;
	}
	return 0;
}

static const struct op_attr reduce_attrs[] = {
	{"axes", RBK_ATTR_INTS, false},
	{"keepdims", RBK_ATTR_INT, false},
	{"noop_with_empty_axes", RBK_ATTR_INT, false},
	{0},
};

static const struct op_attr arg_attrs[] = {
	{"axis", RBK_ATTR_INT, false},
	{"keepdims", RBK_ATTR_INT, false},
	{"select_last_index", RBK_ATTR_INT, false},
	{0},
};

#define REDUCTION(variable, kind_name, onnx_name, since, ints)     \
	const struct op variable = {                               \
		.kind = kind_name,                                 \
		.family = OP_FAMILY_REDUCTION,                     \
		.name = onnx_name,                                 \
		.opset = since,                                    \
		OP_ROW_OF_ONE_CLASS(1, 1, OP_ALL_FLOATS | (ints)), \
		.splits_rows = true,                               \
		.attrs = reduce_attrs,                             \
		.infer = reduce_infer,                             \
		.cost = reduce_cost,                               \
	}

REDUCTION(op_reduce_sum, OP_REDUCE_SUM, "ReduceSum", 13, OP_INDICES);
REDUCTION(op_reduce_mean, OP_REDUCE_MEAN, "ReduceMean", 18, 0);
REDUCTION(op_reduce_sum_square, OP_REDUCE_SUM_SQUARE, "ReduceSumSquare", 18, 0);
REDUCTION(op_reduce_l1, OP_REDUCE_L1, "ReduceL1", 18, 0);
REDUCTION(op_reduce_l2, OP_REDUCE_L2, "ReduceL2", 18, 0);
REDUCTION(op_reduce_log_sum, OP_REDUCE_LOG_SUM, "ReduceLogSum", 18, 0);
REDUCTION(op_reduce_log_sum_exp, OP_REDUCE_LOG_SUM_EXP, "ReduceLogSumExp", 18, 0);
REDUCTION(op_reduce_prod, OP_REDUCE_PROD, "ReduceProd", 18, OP_INDICES);
REDUCTION(op_reduce_max, OP_REDUCE_MAX, "ReduceMax", 20, OP_INDICES | OP_BYTES | OP_BOOL);
REDUCTION(op_reduce_min, OP_REDUCE_MIN, "ReduceMin", 20, OP_INDICES | OP_BYTES | OP_BOOL);

#define ARGUMENT(variable, kind_name, onnx_name)                                    \
	const struct op variable = {                                                \
		.kind = kind_name,                                                  \
		.family = OP_FAMILY_REDUCTION,                                      \
		.name = onnx_name,                                                  \
		.opset = 13,                                                        \
		.min_in = 1,                                                        \
		.max_in = 1,                                                        \
		.min_out = 1,                                                       \
		.max_out = 1,                                                       \
		.classes = {{'T', OP_ALL_NUMBERS, OP_ALL_NUMBERS},                  \
			    {'I', OP_TYPE(RBK_DTYPE_I64), OP_TYPE(RBK_DTYPE_I64)}}, \
		.in_classes = "T",                                                  \
		.out_classes = "I",                                                 \
		.data_independent = true,                                           \
		.splits_rows = true,                                                \
		.attrs = arg_attrs,                                                 \
		.infer = arg_infer,                                                 \
		.cost = reduce_cost,                                                \
	}

ARGUMENT(op_arg_max, OP_ARG_MAX, "ArgMax");
ARGUMENT(op_arg_min, OP_ARG_MIN, "ArgMin");
