/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Transpose
 *
 * Dimension i of the output is dimension perm[i] of the input; without perm dimensions are
 * reversed. The count has to stay in front.
 */
#include "shm/operators/op-call.h"
#include "shm/operators/op-rows.h"

static int transpose_infer(struct op_call *call)
{
	const struct shape *in = &call->in[0]->shape;
	struct shape *out = &call->out_shape[0];
	int64_t perm[RBK_MAX_RANK];
	unsigned int seen = 0;
	bool given;
	int r;

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
	return 0;
}

static const struct op_attr transpose_attrs[] = {
	{"perm", RBK_ATTR_INTS, false},
	{0},
};

const struct op op_transpose = {
	.kind = OP_TRANSPOSE,
	.family = OP_FAMILY_TRANSPOSE,
	.name = "Transpose",
	.opset = 13,
	OP_ROW_OF_ONE_CLASS(1, 1, OP_ANY_TYPE),
	.splits_rows = true,
	.attrs = transpose_attrs,
	.infer = transpose_infer,
	.cost = cost_tensors,
};
