/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Softmax
 *
 * As of opset 13: along one dimension, the last by default. Along the count it mixes the rows of a
 * task, which then cannot be split.
 */
#include "plan/op-call.h"

/* Per element: maximum, subtraction, exponential, sum, division. */
enum { SOFTMAX_FLOPS = 5 };

int op_softmax_infer(struct op_call *call)
{
	const struct shape *in = &call->in[0]->shape;
	int r;

	r = op_call_floats(call);
	if (!r)
		r = op_call_axis(call, "axis", -1, &call->params.softmax.axis);
	if (r)
		return r;
	call->mixes_rows = in->dynamic && call->params.softmax.axis == 0;
	call->out_dtype[0] = RBK_DTYPE_F32;
	call->out_shape[0] = *in;
	return 0;
}

void op_softmax_cost(const struct op_call *call, struct cost *ret)
{
	cost_elems(ret, &call->out_shape[0], SOFTMAX_FLOPS);
	cost_tensors(ret, call);
}
