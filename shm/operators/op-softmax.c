/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Softmax, LogSoftmax, LpNormalization, CumSum
 *
 * Opset 13 (22 for LpNormalization, 14 for CumSum, whose axis is an attribute). These operators
 * work along one dimension, by default the last, the first for CumSum. Along the count they mix the
 * rows of a task, which then cannot be split.
 */
#include "shm/operators/op-call.h"
#include "shm/operators/op-rows.h"

/* Per element: maximum, subtraction, exponential, sum, division. */
enum { SOFTMAX_FLOPS = 5 };

static int along_axis(struct op_call *call, int64_t fallback, uint8_t *ret)
{
	const struct shape *in = &call->in[0]->shape;
	int r;

	r = op_call_axis(call, fallback, ret);
	if (r)
		return r;
	call->mixes_rows = in->dynamic && *ret == 0;
	call->out_shape[0] = *in;
	return 0;
}

static int softmax_infer(struct op_call *call)
{
	return along_axis(call, -1, &call->params.softmax.axis);
}

static int lp_norm_infer(struct op_call *call)
{
	int64_t p;
	int r;

	r = op_call_int(call, "p", 1, 2, 2, &p);
	if (r)
		return r;
	call->params.lp_norm.p = (uint8_t)p;
	return along_axis(call, -1, &call->params.lp_norm.axis);
}

static int cum_sum_infer(struct op_call *call)
{
	bool exclusive, reverse;
	int r;

	r = op_call_bool(call, "exclusive", false, &exclusive);
	if (!r)
		r = op_call_bool(call, "reverse", false, &reverse);
	if (r)
		return r;
	call->params.cum_sum.exclusive = exclusive;
	call->params.cum_sum.reverse = reverse;
	return along_axis(call, 0, &call->params.cum_sum.axis);
}

static void softmax_cost(const struct op_call *call, struct cost *ret)
{
	cost_elems(ret, &call->out_shape[0], SOFTMAX_FLOPS);
	cost_tensors(call, ret);
}

static void cum_sum_cost(const struct op_call *call, struct cost *ret)
{
	cost_elems(ret, &call->out_shape[0], 1);
	cost_tensors(call, ret);
}

static const struct op_attr softmax_attrs[] = {
	{"axis", RBK_ATTR_INT, false},
	{0},
};

static const struct op_attr lp_norm_attrs[] = {
	{"axis", RBK_ATTR_INT, false},
	{"p", RBK_ATTR_INT, false},
	{0},
};

static const struct op_attr cum_sum_attrs[] = {
	{"axis", RBK_ATTR_INT, false},
	{"exclusive", RBK_ATTR_INT, false},
	{"reverse", RBK_ATTR_INT, false},
	{0},
};

#define ALONG_AXIS(variable, kind_name, family_name, onnx_name, since, types, attributes, infers, \
		   costs)                                                                         \
	const struct op variable = {                                                              \
		.kind = kind_name,                                                                \
		.family = family_name,                                                            \
		.name = onnx_name,                                                                \
		.opset = since,                                                                   \
		OP_ROW_OF_ONE_CLASS(1, 1, types),                                                 \
		.splits_rows = true,                                                              \
		.is_like_first = true,                                                            \
		.attrs = attributes,                                                              \
		.infer = infers,                                                                  \
		.cost = costs,                                                                    \
	}

ALONG_AXIS(op_softmax, OP_SOFTMAX, OP_FAMILY_SOFTMAX, "Softmax", 13, OP_ALL_FLOATS, softmax_attrs,
	   softmax_infer, softmax_cost);
ALONG_AXIS(op_log_softmax, OP_LOG_SOFTMAX, OP_FAMILY_SOFTMAX, "LogSoftmax", 13, OP_ALL_FLOATS,
	   softmax_attrs, softmax_infer, softmax_cost);
ALONG_AXIS(op_lp_norm, OP_LP_NORM, OP_FAMILY_SOFTMAX, "LpNormalization", 22, OP_ALL_FLOATS,
	   lp_norm_attrs, lp_norm_infer, softmax_cost);
ALONG_AXIS(op_cum_sum, OP_CUM_SUM, OP_FAMILY_REDUCTION, "CumSum", 14, OP_ALL_FLOATS | OP_INDICES,
	   cum_sum_attrs, cum_sum_infer, cum_sum_cost);
