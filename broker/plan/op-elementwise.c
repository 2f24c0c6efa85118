/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Add, Mul and Relu
 *
 * Binary operators broadcast as numpy does: shapes are aligned at their last dimension and a
 * dimension of 1 repeats. The task's count is no number that a fixed dimension other than 1 could
 * equal.
 */
#include "plan/op-call.h"

int op_binary_infer(struct op_call *call)
{
	int r;

	r = op_call_floats(call);
	if (r)
		return r;
	call->out_dtype[0] = RBK_DTYPE_F32;
	return op_call_broadcast(call, 0, &call->out_shape[0]);
}

int op_unary_infer(struct op_call *call)
{
	int r;

	r = op_call_floats(call);
	if (r)
		return r;
	call->out_dtype[0] = RBK_DTYPE_F32;
	call->out_shape[0] = call->in[0]->shape;
	return 0;
}

void op_elementwise_cost(const struct op_call *call, struct cost *ret)
{
	cost_elems(ret, &call->out_shape[0], 1);
	cost_tensors(ret, call);
}
