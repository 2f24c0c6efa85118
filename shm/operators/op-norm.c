/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: normalisations
 *
 * LayerNormalization-17 and RMSNormalization-23 from a dimension on, InstanceNormalization-22 and
 * GroupNormalization-21 over a channel or a group of channels, BatchNormalization-15 with given
 * mean and variance (so without the attributes and outputs of training). Scale and bias have the
 * shape of the normalised dimensions, or one element; scale and bias by channel have one element
 * per channel. stash_type is always float32: for float64 input, mean and inverse deviation are
 * rounded to it at the end.
 */
#include "shm/operators/op-call.h"
#include "shm/operators/op-rows.h"

/* Per element: mean, difference, square, sum, product, scale, bias. */
enum { NORM_FLOPS = 7 };

/* Check that input @i has one element, or the shape of input 0 from @axis on. */
static int check_scale(struct op_call *call, unsigned int i, unsigned int axis)
{
	const struct op_tensor *x = call->in[0], *scale = i < call->n_in ? call->in[i] : NULL;
	unsigned int skip = 0, rank = x->shape.rank - axis;
	bool one = true, equal;

	if (!scale)
		return 0;
	while (skip < scale->shape.rank && scale->shape.rank - skip > rank &&
	       dim_is(shape_get(&scale->shape, skip), 1))
		skip++;
	equal = scale->shape.rank - skip == rank;
	for (unsigned int d = skip; d < scale->shape.rank; d++) {
		const struct dim dim = shape_get(&scale->shape, d);

		one = one && dim_is(dim, 1);
		equal = equal && dim_equal(dim, shape_get(&x->shape, axis + d - skip));
	}
	if (one || equal)
		return 0;
	return op_call_refuse(call,
			      "input \"%s\" has shape %s, expected one element or the last %u "
			      "dimensions of input \"%s\" %s",
			      scale->name, SHAPE_TEXT(&scale->shape), rank, x->name,
			      SHAPE_TEXT(&x->shape));
}

static int check_stash_type(struct op_call *call)
{
	int64_t ignored;

	/* 1 is float32 in ONNX. */
	return op_call_int(call, "stash_type", 1, 1, 1, &ignored);
}

static int layer_norm_infer(struct op_call *call)
{
	const struct shape *in = &call->in[0]->shape;
	uint8_t axis;
	int r;

	r = op_call_axis(call, -1, &axis);
	if (!r)
		r = op_call_float(call, "epsilon", 1e-5f, &call->params.norm.epsilon);
	if (!r)
		r = check_stash_type(call);
	for (unsigned int i = 1; !r && i < call->n_in; i++)
		r = check_scale(call, i, axis);
	if (r)
		return r;
	call->params.norm.axis = axis;
	call->mixes_rows = in->dynamic && axis == 0;
	call->out_shape[0] = *in;
	/* The mean and the inverse of the deviation. */
	for (unsigned int i = 1; i < call->n_out; i++) {
		call->out_shape[i] = *in;
		call->out_shape[i].dynamic = in->dynamic && axis > 0;
		for (unsigned int d = axis; d < in->rank; d++)
			call->out_shape[i].dims[d] = 1;
	}
	return 0;
}

/* Check that inputs from 1 on have an element per channel, which is dimension 1 of input 0. */
static int check_channels(struct op_call *call)
{
	const struct op_tensor *x = call->in[0];

	if (x->shape.rank < 2)
		return op_call_refuse(call,
				      "input \"%s\" has shape %s, expected a batch and channels",
				      x->name, SHAPE_TEXT(&x->shape));
	for (unsigned int i = 1; i < call->n_in; i++) {
		const struct op_tensor *by_channel = call->in[i];

		if (by_channel->shape.rank != 1 ||
		    !dim_is(shape_get(&by_channel->shape, 0), x->shape.dims[1]))
			return op_call_refuse(call,
					      "input \"%s\" has shape %s, expected an element for "
					      "each of the %u channels of input \"%s\"",
					      by_channel->name, SHAPE_TEXT(&by_channel->shape),
					      x->shape.dims[1], x->name);
	}
	call->out_shape[0] = x->shape;
	return 0;
}

static int instance_norm_infer(struct op_call *call)
{
	int r;

	r = op_call_float(call, "epsilon", 1e-5f, &call->params.norm.epsilon);
	if (!r)
		r = check_channels(call);
	if (!r)
		call->params.norm.groups = call->in[0]->shape.dims[1];
	return r;
}

static int group_norm_infer(struct op_call *call)
{
	int64_t groups;
	int r;

	r = op_call_float(call, "epsilon", 1e-5f, &call->params.norm.epsilon);
	if (!r)
		r = check_stash_type(call);
	if (!r)
		r = check_channels(call);
	if (!r)
		r = op_call_int(call, "num_groups", 1, OP_MAX_DIM, 1, &groups);
	if (r)
		return r;
	if (call->in[0]->shape.dims[1] % (uint64_t)groups != 0)
		return op_call_refuse(call,
				      "attribute \"num_groups\" is %lld, expected a divisor of the "
				      "%u channels of input \"%s\"",
				      (long long)groups, call->in[0]->shape.dims[1],
				      call->in[0]->name);
	call->params.norm.groups = (uint32_t)groups;
	return 0;
}

static int batch_norm_infer(struct op_call *call)
{
	bool training;
	float ignored;
	int r;

	r = op_call_float(call, "epsilon", 1e-5f, &call->params.norm.epsilon);
	if (!r)
		r = op_call_float(call, "momentum", 0.9f, &ignored);
	if (!r)
		r = op_call_bool(call, "training_mode", false, &training);
	if (!r && training)
		return op_call_refuse(call,
				      "attribute \"training_mode\" is 1, expected 0: mean and "
				      "variance are given");
	return r ? r : check_channels(call);
}

static void norm_cost(const struct op_call *call, struct cost *ret)
{
	cost_elems(ret, &call->in[0]->shape, NORM_FLOPS);
	cost_tensors(call, ret);
}

static const struct op_attr layer_norm_attrs[] = {
	{"axis", RBK_ATTR_INT, false},
	{"epsilon", RBK_ATTR_FLOAT, false},
	{"stash_type", RBK_ATTR_INT, false},
	{0},
};

static const struct op_attr instance_norm_attrs[] = {
	{"epsilon", RBK_ATTR_FLOAT, false},
	{0},
};

static const struct op_attr group_norm_attrs[] = {
	{"epsilon", RBK_ATTR_FLOAT, false},
	{"num_groups", RBK_ATTR_INT, true},
	{"stash_type", RBK_ATTR_INT, false},
	{0},
};

static const struct op_attr batch_norm_attrs[] = {
	{"epsilon", RBK_ATTR_FLOAT, false},
	{"momentum", RBK_ATTR_FLOAT, false},
	{"training_mode", RBK_ATTR_INT, false},
	{0},
};

const struct op op_layer_norm = {
	.kind = OP_LAYER_NORM,
	.family = OP_FAMILY_SOFTMAX,
	.name = "LayerNormalization",
	.opset = 17,
	.min_in = 2,
	.max_in = 3,
	.min_out = 1,
	.max_out = 3,
	.classes = {{'T', OP_ALL_FLOATS, OP_ALL_FLOATS}, {'U', OP_FLOAT32, OP_FLOAT32}},
	.in_classes = "T",
	.out_classes = "TU",
	.data_independent = true,
	.splits_rows = true,
	.is_like_first = true,
	.attrs = layer_norm_attrs,
	.infer = layer_norm_infer,
	.cost = norm_cost,
};

#define NORMALIZATION(variable, kind_name, onnx_name, since, inputs, attributes, infers) \
	const struct op variable = {                                                     \
		.kind = kind_name,                                                       \
		.family = OP_FAMILY_SOFTMAX,                                             \
		.name = onnx_name,                                                       \
		.opset = since,                                                          \
		OP_ROW_OF_ONE_CLASS(inputs, inputs, OP_ALL_FLOATS),                      \
		.splits_rows = true,                                                     \
		.is_like_first = true,                                                   \
		.attrs = attributes,                                                     \
		.infer = infers,                                                         \
		.cost = norm_cost,                                                       \
	}

NORMALIZATION(op_rms_norm, OP_RMS_NORM, "RMSNormalization", 23, 2, layer_norm_attrs,
	      layer_norm_infer);
NORMALIZATION(op_instance_norm, OP_INSTANCE_NORM, "InstanceNormalization", 22, 3,
	      instance_norm_attrs, instance_norm_infer);
NORMALIZATION(op_group_norm, OP_GROUP_NORM, "GroupNormalization", 21, 3, group_norm_attrs,
	      group_norm_infer);
NORMALIZATION(op_batch_norm, OP_BATCH_NORM, "BatchNormalization", 15, 5, batch_norm_attrs,
	      batch_norm_infer);
