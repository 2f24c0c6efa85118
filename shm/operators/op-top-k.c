/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: TopK
 *
 * Opset 11 with k as an attribute. Both outputs are present: values and their indices along the
 * axis. Equal values are in the order of their indices. "sorted" 0 allows any order; executors may
 * still sort.
 */
#include "shm/operators/op-call.h"
#include "shm/operators/op-rows.h"

static int top_k_infer(struct op_call *call)
{
	const struct op_tensor *in = call->in[0];
	int64_t k = 0;
	uint8_t axis;
	bool largest, sorted;
	int r;

	r = op_call_axis(call, -1, &axis);
	if (!r)
		r = op_call_int(call, "k", 1, OP_MAX_DIM, 0, &k);
	if (!r)
		r = op_call_bool(call, "largest", true, &largest);
	if (!r)
		r = op_call_bool(call, "sorted", true, &sorted);
	if (r)
		return r;
	if (axis == 0 && in->shape.dynamic)
		return op_call_refuse(call,
				      "attribute \"axis\" names dimension count of input \"%s\" "
				      "%s, expected a fixed one",
				      in->name, SHAPE_TEXT(&in->shape));
	if ((uint64_t)k > in->shape.dims[axis])
		return op_call_refuse(call,
				      "attribute \"k\" is %lld, expected at most dimension %u of "
				      "input \"%s\" %s",
				      (long long)k, axis, in->name, SHAPE_TEXT(&in->shape));
	call->params.top_k.k = (uint32_t)k;
	call->params.top_k.axis = axis;
	call->params.top_k.largest = largest;
	call->params.top_k.sorted = sorted;
	for (unsigned int i = 0; i < 2; i++) {
		call->out_shape[i] = in->shape;
		call->out_shape[i].dims[axis] = (uint32_t)k;
	}
	return 0;
}

static void top_k_cost(const struct op_call *call, struct cost *ret)
{
	uint64_t compares = 1;

	/* A heap of k values: one comparison per element, and log2(k) for those that enter it. */
	for (uint32_t k = call->params.top_k.k; k > 1; k /= 2)
		compares++;
	cost_elems(ret, &call->in[0]->shape, compares);
	cost_tensors(call, ret);
}

static const struct op_attr top_k_attrs[] = {
	{"axis", RBK_ATTR_INT, false},
	{"k", RBK_ATTR_INT, true},
	{"largest", RBK_ATTR_INT, false},
	{"sorted", RBK_ATTR_INT, false},
	{0},
};

const struct op op_top_k = {
	.kind = OP_TOP_K,
	.family = OP_FAMILY_SELECTION,
	.name = "TopK",
	.opset = 11,
	.min_in = 1,
	.max_in = 1,
	.min_out = 2,
	.max_out = 2,
	.classes = {{'T', OP_ALL_NUMBERS, OP_ALL_NUMBERS},
		    {'I', OP_TYPE(RBK_DTYPE_I64), OP_TYPE(RBK_DTYPE_I64)}},
	.in_classes = "T",
	.out_classes = "TI",
	.splits_rows = true,
	.attrs = top_k_attrs,
	.infer = top_k_infer,
	.cost = top_k_cost,
};
