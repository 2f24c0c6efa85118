/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Transpose
 *
 * Dimension i of the output is dimension perm[i] of the input; without perm they are reversed. The
 * count has to stay in front.
 */
#include "plan/op-call.h"

int op_transpose_infer(struct op_call *call)
{
	const struct shape *in = &call->in[0]->shape;
	struct shape *out = &call->out_shape[0];
	int64_t perm[RBK_MAX_RANK];
	unsigned int seen = 0;
	bool given;
	int r;

	r = op_call_floats(call);
	if (!r)
		r = op_call_ints(call, "perm", in->rank, 0, (int64_t)in->rank - 1, 0, perm, &given);
	if (r)
		return r;
	*out = (struct shape){.rank = in->rank, .dynamic = in->dynamic};
	for (unsigned int i = 0; i < in->rank; i++) {
		unsigned int from = given ? (unsigned int)perm[i] : in->rank - 1 - i;

		if (seen & 1u << from)
			return op_call_refuse(
				call,
				"attribute \"perm\" names dimension %u twice, expected "
				"each of %u dimensions once",
				from, (unsigned int)in->rank);
		seen |= 1u << from;
		call->params.transpose.perm[i] = (uint8_t)from;
		out->dims[i] = in->dims[from];
	}
	if (in->dynamic && call->params.transpose.perm[0] != 0)
		return op_call_refuse(call,
				      "input \"%s\" %s would lose count as its leading dimension, "
				      "expected \"perm\" to begin with 0",
				      call->in[0]->name, SHAPE_TEXT(in));
	call->out_dtype[0] = RBK_DTYPE_F32;
	return 0;
}

void op_transpose_cost(const struct op_call *call, struct cost *ret)
{
	cost_tensors(ret, call);
}
