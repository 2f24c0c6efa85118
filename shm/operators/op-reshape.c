/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Reshape
 *
 * Opset 13 with "shape" as an attribute: one dimension may be -1, the remaining size; 0 is the
 * input's dimension at that place (a client resolves allowzero). The elements stay in their order,
 * so the count has to stay in front. Flatten, Squeeze, Unsqueeze and Identity are Reshapes.
 *
 * No elements are moved if the output can share the input's bytes, see struct tensor.root.
 */
#include "shm/operators/op-call.h"
#include "shm/operators/op-rows.h"

/*
 * Return the elements of a row of a dynamic shape, or all elements of a fixed one; at most those of
 * the largest tensor.
 */
static uint64_t unit_elems(const struct shape *shape)
{
	uint64_t n = 1;

	for (unsigned int i = shape->dynamic; i < shape->rank; i++)
		n *= shape->dims[i];
	return n;
}

static int refuse_elements(struct op_call *call)
{
	return op_call_refuse(call,
			      "attribute \"shape\" gives %s, expected as many elements as input "
			      "\"%s\" %s has",
			      SHAPE_TEXT(&call->out_shape[0]), call->in[0]->name,
			      SHAPE_TEXT(&call->in[0]->shape));
}

static int reshape_infer(struct op_call *call)
{
	const struct shape *in = &call->in[0]->shape;
	struct shape *out = &call->out_shape[0];
	int64_t dims[RBK_MAX_RANK];
	uint64_t known = 1, wanted = unit_elems(in);
	unsigned int n, open = RBK_MAX_RANK;
	int r;

	r = op_call_list(call, "shape", RBK_MAX_RANK, -1, OP_MAX_DIM, dims, &n);
	if (r)
		return r;
	*out = (struct shape){.rank = (uint8_t)n};
	for (unsigned int i = 0; i < n; i++) {
		if (dims[i] == 0 && i >= in->rank)
			return op_call_refuse(call,
					      "attribute \"shape\" copies dimension %u, but input "
					      "\"%s\" is %s",
					      i, call->in[0]->name, SHAPE_TEXT(in));
		if (dims[i] < 0 && open < RBK_MAX_RANK)
			return op_call_refuse(call, "attribute \"shape\" has -1 twice, expected it "
						    "once at most");
		if (dims[i] < 0) {
			open = i;
		} else if (dims[i] == 0 && i == 0 && in->dynamic) {
			out->dynamic = true;
			out->dims[0] = in->dims[0];
		} else {
			out->dims[i] = dims[i] ? (uint32_t)dims[i] : in->dims[i];
			if (__builtin_mul_overflow(known, out->dims[i], &known))
				return refuse_elements(call);
		}
	}
	/* Without a 0 the count can only be the -1, if that is in front. */
	if (in->dynamic && !out->dynamic && open == 0 && known == wanted) {
		out->dynamic = true;
		out->dims[0] = in->dims[0];
		return 0;
	}
	if (in->dynamic && !out->dynamic)
		return op_call_refuse(call,
				      "input \"%s\" %s would lose count as its leading dimension, "
				      "expected \"shape\" to keep it",
				      call->in[0]->name, SHAPE_TEXT(in));
	if (open < RBK_MAX_RANK) {
		if (wanted % known || wanted / known > OP_MAX_DIM)
			return refuse_elements(call);
		out->dims[open] = (uint32_t)(wanted / known);
		known = wanted;
	}
	return known == wanted ? 0 : refuse_elements(call);
}

/* The cost is zero: a Reshape is almost always a view. */
static void reshape_cost(const struct op_call *call, struct cost *ret)
{
}

static const struct op_attr reshape_attrs[] = {
	{"shape", RBK_ATTR_INTS, true},
	{0},
};

const struct op op_reshape = {
	.kind = OP_RESHAPE,
	.family = OP_FAMILY_TRANSPOSE,
	.name = "Reshape",
	.opset = 13,
	OP_ROW_OF_ONE_CLASS(1, 1, OP_ANY_TYPE),
	.splits_rows = true,
	.attrs = reshape_attrs,
	.infer = reshape_infer,
	.cost = reshape_cost,
};
