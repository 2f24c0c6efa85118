/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: ReduceSum
 *
 * Opset 13 with axes as an attribute. No axes mean all of them, or none with noop_with_empty_axes.
 * Summing over the count is allowed and makes the output's shape fixed.
 */
#include "plan/op-call.h"

int op_reduce_infer(struct op_call *call)
{
	const struct shape *in = &call->in[0]->shape;
	struct shape *out = &call->out_shape[0];
	bool keepdims, noop;
	uint8_t axes;
	int r;

	r = op_call_floats(call);
	if (!r)
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
	call->out_dtype[0] = RBK_DTYPE_F32;
	return 0;
}

void op_reduce_cost(const struct op_call *call, struct cost *ret)
{
	cost_elems(ret, &call->in[0]->shape, 1);
	cost_tensors(ret, call);
}
