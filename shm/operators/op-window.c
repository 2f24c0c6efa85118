/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Conv and pooling
 *
 * These operators slide a window over one to three spatial dimensions. auto_pad is resolved here,
 * so that executors only know begin and end padding. An operator of fewer dimensions becomes one of
 * three, whose missing leading dimensions (depth, height) are 1:
 *
 *   extent  = (kernel - 1) * dilation + 1                  length covered by the window
 *   output  = (input + pad_begin + pad_end - extent) / stride + 1
 *
 * rounded down. With ceil_mode it is rounded up, less a last window that would start beyond the
 * input and its front padding. With SAME_*, output = input / stride rounded up, and the padding
 * follows; an odd element goes to the end (UPPER) or the beginning (LOWER). With ceil_mode a window
 * may reach beyond the end padding: executors clip windows to the input.
 *
 * Padded inputs and extents stay below 2^31, so that executors can use 32 signed bits.
 */
#include "shm/operators/op-call.h"
#include "shm/operators/op-rows.h"

enum auto_pad { PAD_NOTSET, PAD_SAME_UPPER, PAD_SAME_LOWER, PAD_VALID };
static const char *const auto_pads[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", NULL};

/* Check that input 0 is [batch, channels, one to three spatial dimensions]. */
static int check_input(struct op_call *call)
{
	const struct op_tensor *in = call->in[0];

	if (in->shape.rank >= 3 && in->shape.rank <= 2 + OP_MAX_SPATIAL)
		return 0;
	return op_call_refuse(
		call,
		"input \"%s\" is %s, expected batch, channels and one to three spatial "
		"dimensions",
		in->name, SHAPE_TEXT(&in->shape));
}

static int resolve_dim(struct op_call *call, unsigned int i, enum auto_pad auto_pad, bool ceil_mode,
		       unsigned int input_dim, uint32_t *ret)
{
	uint64_t in = call->in[0]->shape.dims[input_dim];
	uint64_t stride = call->params.window.stride[i];
	uint64_t extent =
		(uint64_t)(call->params.window.kernel[i] - 1) * call->params.window.dilation[i] + 1;
	uint64_t begin = call->params.window.pad_begin[i];
	uint64_t end = call->params.window.pad_end[i];
	uint64_t out, pad;

	if (auto_pad == PAD_SAME_UPPER || auto_pad == PAD_SAME_LOWER) {
		out = div_up(in, stride);
		pad = (out - 1) * stride + extent;
		pad = pad > in ? pad - in : 0;
		begin = auto_pad == PAD_SAME_UPPER ? pad / 2 : pad - pad / 2;
		end = pad - begin;
		ceil_mode = false;
	}
	if (extent > OP_MAX_DIM || in + begin + end > OP_MAX_DIM)
		return op_call_refuse(call,
				      "the window or the padding along dimension %u of input "
				      "\"%s\" is too large, expected sums of at most %u",
				      input_dim, call->in[0]->name, OP_MAX_DIM);
	if (in + begin + end < extent)
		return op_call_refuse(call,
				      "a window of %llu does not fit into dimension %u of input "
				      "\"%s\" %s with padding %llu and %llu",
				      (unsigned long long)extent, input_dim, call->in[0]->name,
				      SHAPE_TEXT(&call->in[0]->shape), (unsigned long long)begin,
				      (unsigned long long)end);
	out = (in + begin + end - extent + (ceil_mode ? stride - 1 : 0)) / stride + 1;
	if (ceil_mode && (out - 1) * stride >= in + begin)
		out--;
	call->params.window.pad_begin[i] = (uint32_t)begin;
	call->params.window.pad_end[i] = (uint32_t)end;
	*ret = (uint32_t)out;
	return 0;
}

/* Read the common attributes, for a window of @kernel, into params.window. */
static int read_window(struct op_call *call, const int64_t *kernel, enum auto_pad *ret)
{
	unsigned int n = call->in[0]->shape.rank - 2u, skip = OP_MAX_SPATIAL - n, auto_pad;
	int64_t strides[OP_MAX_SPATIAL], dilations[OP_MAX_SPATIAL], pads[2 * OP_MAX_SPATIAL];
	int r;

	r = op_call_ints(call, "strides", n, 1, OP_MAX_DIM, 1, strides, NULL);
	if (!r)
		r = op_call_ints(call, "dilations", n, 1, OP_MAX_DIM, 1, dilations, NULL);
	if (!r)
		r = op_call_ints(call, "pads", 2 * n, 0, OP_MAX_DIM, 0, pads, NULL);
	if (!r)
		r = op_call_choice(call, "auto_pad", auto_pads, &auto_pad);
	if (r)
		return r;

	for (unsigned int i = 0; i < OP_MAX_SPATIAL; i++) {
		call->params.window.kernel[i] = 1;
		call->params.window.stride[i] = 1;
		call->params.window.dilation[i] = 1;
	}
	for (unsigned int i = 0; i < n; i++) {
		if (auto_pad != PAD_NOTSET && (pads[i] || pads[n + i]))
			return op_call_refuse(call,
					      "attribute \"pads\" is given together with "
					      "\"auto_pad\" %s, expected one of the two",
					      auto_pads[auto_pad]);
		call->params.window.kernel[skip + i] = (uint32_t)kernel[i];
		call->params.window.stride[skip + i] = (uint32_t)strides[i];
		call->params.window.dilation[skip + i] = (uint32_t)dilations[i];
		call->params.window.pad_begin[skip + i] = (uint32_t)pads[i];
		call->params.window.pad_end[skip + i] = (uint32_t)pads[n + i];
	}
	*ret = (enum auto_pad)auto_pad;
	return 0;
}

/* Call read_window(), and append the spatial dimensions to the output's shape. */
static int resolve_window(struct op_call *call, const int64_t *kernel, bool ceil_mode)
{
	unsigned int n = call->in[0]->shape.rank - 2u;
	enum auto_pad auto_pad;
	int r;

	r = read_window(call, kernel, &auto_pad);
	for (unsigned int i = 0; !r && i < n; i++)
		r = resolve_dim(call, OP_MAX_SPATIAL - n + i, auto_pad, ceil_mode, 2 + i,
				&call->out_shape[0].dims[2 + i]);
	return r;
}

/* Check kernel_shape, which the weights give, too. */
static int check_kernel(struct op_call *call, unsigned int n, int64_t *ret)
{
	const struct op_tensor *weight = call->in[1];
	bool given;
	int r;

	r = op_call_ints(call, "kernel_shape", n, 1, OP_MAX_DIM, 0, ret, &given);
	if (r)
		return r;
	for (unsigned int i = 0; i < n; i++) {
		if (given && ret[i] != weight->shape.dims[2 + i])
			return op_call_refuse(call,
					      "attribute \"kernel_shape\" has the value %lld, but "
					      "input \"%s\" is %s, expected %u",
					      (long long)ret[i], weight->name,
					      SHAPE_TEXT(&weight->shape),
					      weight->shape.dims[2 + i]);
		ret[i] = weight->shape.dims[2 + i];
	}
	return 0;
}

static int check_weights(struct op_call *call, int64_t group)
{
	const struct op_tensor *in = call->in[0], *weight = call->in[1], *bias = call->in[2];
	uint32_t channels = in->shape.dims[1];

	for (unsigned int i = 1; i < call->n_in; i++) {
		if (call->in[i] && call->in[i]->shape.dynamic)
			return op_call_refuse(call, "input \"%s\" is %s, expected fixed dimensions",
					      call->in[i]->name, SHAPE_TEXT(&call->in[i]->shape));
	}
	if (weight->shape.rank != in->shape.rank)
		return op_call_refuse(call, "input \"%s\" is %s, expected %u dimensions as \"%s\"",
				      weight->name, SHAPE_TEXT(&weight->shape),
				      (unsigned int)in->shape.rank, in->name);
	if (channels % group)
		return op_call_refuse(call,
				      "attribute \"group\" is %lld, expected a divisor of the %u "
				      "channels of input \"%s\" %s",
				      (long long)group, channels, in->name, SHAPE_TEXT(&in->shape));
	if (weight->shape.dims[1] != channels / group)
		return op_call_refuse(call,
				      "input \"%s\" is %s, expected dimension 1 to be %u, the "
				      "channels of \"%s\" %s divided by group %lld",
				      weight->name, SHAPE_TEXT(&weight->shape),
				      (unsigned int)(channels / group), in->name,
				      SHAPE_TEXT(&in->shape), (long long)group);
	if (weight->shape.dims[0] % group)
		return op_call_refuse(
			call,
			"input \"%s\" is %s, expected dimension 0 to be a multiple of "
			"group %lld",
			weight->name, SHAPE_TEXT(&weight->shape), (long long)group);
	if (bias && (bias->shape.rank != 1 || bias->shape.dims[0] != weight->shape.dims[0]))
		return op_call_refuse(call, "input \"%s\" is %s, expected [%u], one per channel",
				      bias->name, SHAPE_TEXT(&bias->shape), weight->shape.dims[0]);
	return 0;
}

int op_conv_infer(struct op_call *call)
{
	const struct op_tensor *in = call->in[0], *weight = call->in[1];
	int64_t kernel[OP_MAX_SPATIAL], group;
	int r;

	r = check_input(call);
	if (!r)
		r = op_call_int(call, "group", 1, OP_MAX_DIM, 1, &group);
	if (!r)
		r = check_weights(call, group);
	if (r)
		return r;
	call->params.window.group = (uint32_t)group;

	r = check_kernel(call, in->shape.rank - 2u, kernel);
	if (r)
		return r;
	call->out_shape[0] = in->shape;
	call->out_shape[0].dims[1] = weight->shape.dims[0];
	return resolve_window(call, kernel, false);
}

static void conv_cost(const struct op_call *call, struct cost *ret)
{
	const struct shape *weight = &call->in[1]->shape;
	uint64_t bias = call->in[2] ? 1 : 0, taps = 1;

	/* taps cannot overflow: it is at most the weight's elements, see PLAN_MAX_BYTES. */
	for (unsigned int i = 1; i < weight->rank; i++)
		taps *= weight->dims[i];
	cost_elems(ret, &call->out_shape[0], 2 * taps + bias);
	cost_tensors(call, ret);
}

/* Read the attributes of all poolings: kernel and ceil_mode. */
static int pool_infer(struct op_call *call)
{
	int64_t kernel[OP_MAX_SPATIAL];
	bool ceil_mode;
	int r;

	r = check_input(call);
	if (!r)
		r = op_call_ints(call, "kernel_shape", call->in[0]->shape.rank - 2u, 1, OP_MAX_DIM,
				 0, kernel, NULL);
	if (!r)
		r = op_call_bool(call, "ceil_mode", false, &ceil_mode);
	if (r)
		return r;
	call->params.window.group = 1;
	call->out_shape[0] = call->in[0]->shape;
	return resolve_window(call, kernel, ceil_mode);
}

static int max_pool_infer(struct op_call *call)
{
	int r;

	r = op_call_bool(call, "storage_order", false, &call->params.window.is_column_major);
	if (!r)
		r = pool_infer(call);
	if (r)
		return r;
	/* Indices are of the whole input: in a split task they would begin at 0 again. */
	call->out_shape[1] = call->out_shape[0];
	call->mixes_rows = call->n_out > 1;
	return 0;
}

static int average_pool_infer(struct op_call *call)
{
	int r;

	r = op_call_bool(call, "count_include_pad", false, &call->params.window.includes_pad);
	return r ? r : pool_infer(call);
}

static int lp_pool_infer(struct op_call *call)
{
	int64_t p;
	int r;

	r = op_call_int(call, "p", 1, OP_MAX_DIM, 2, &p);
	if (r)
		return r;
	call->params.window.p = (uint32_t)p;
	return pool_infer(call);
}

static void pool_cost(const struct op_call *call, struct cost *ret)
{
	uint64_t taps = 1;

	/* Saturate, as cost_elems() does. */
	for (unsigned int i = 0; i < OP_MAX_SPATIAL; i++)
		if (__builtin_mul_overflow(taps, call->params.window.kernel[i], &taps))
			taps = UINT64_MAX;
	cost_elems(ret, &call->out_shape[0], taps);
	cost_tensors(call, ret);
}

/* Check the weights, and that their channels match the input's. */
static int check_transposed_weights(struct op_call *call, int64_t group)
{
	const struct op_tensor *in = call->in[0], *weight = call->in[1], *bias = call->in[2];
	uint32_t channels = in->shape.dims[1];
	uint64_t filters;

	for (unsigned int i = 1; i < call->n_in; i++) {
		if (call->in[i] && call->in[i]->shape.dynamic)
			return op_call_refuse(call, "input \"%s\" is %s, expected fixed dimensions",
					      call->in[i]->name, SHAPE_TEXT(&call->in[i]->shape));
	}
	if (weight->shape.rank != in->shape.rank || weight->shape.dims[0] != channels)
		return op_call_refuse(
			call,
			"input \"%s\" is %s, expected %u dimensions as \"%s\", and dimension 0 to "
			"be %u, the number of channels",
			weight->name, SHAPE_TEXT(&weight->shape), (unsigned int)in->shape.rank,
			in->name, channels);
	if (channels % group)
		return op_call_refuse(call,
				      "attribute \"group\" is %lld, expected a divisor of the %u "
				      "channels of input \"%s\" %s",
				      (long long)group, channels, in->name, SHAPE_TEXT(&in->shape));
	filters = weight->shape.dims[1] * (uint64_t)group;
	if (filters > OP_MAX_DIM)
		return op_call_refuse(call,
				      "input \"%s\" is %s, which with group %lld would make more "
				      "than %u channels",
				      weight->name, SHAPE_TEXT(&weight->shape), (long long)group,
				      OP_MAX_DIM);
	if (bias && (bias->shape.rank != 1 || bias->shape.dims[0] != filters))
		return op_call_refuse(call, "input \"%s\" is %s, expected [%u], one per channel",
				      bias->name, SHAPE_TEXT(&bias->shape), (unsigned int)filters);
	return 0;
}

/*
 * Compute the output's size of a dimension, and the padding removed in front. The window spreads
 * the input over stride * (input - 1) + extent elements, to which out_padding is added behind. With
 * @given, or SAME_*, the output's size is known, and the excess is removed on both sides, the odd
 * element behind (UPPER) or in front. If the output is larger, the missing elements are behind.
 */
static int resolve_transposed_dim(struct op_call *call, unsigned int i, enum auto_pad auto_pad,
				  uint64_t given, uint64_t out_padding, unsigned int input_dim,
				  uint32_t *ret)
{
	uint64_t in = call->in[0]->shape.dims[input_dim];
	uint64_t stride = call->params.window.stride[i];
	uint64_t extent =
		(uint64_t)(call->params.window.kernel[i] - 1) * call->params.window.dilation[i] + 1;
	uint64_t begin = call->params.window.pad_begin[i], end = call->params.window.pad_end[i];
	uint64_t full, out, pad;

	if (extent > OP_MAX_DIM || (in - 1) * stride + extent + out_padding > OP_MAX_DIM)
		return op_call_refuse(call,
				      "the range that dimension %u of input \"%s\" %s is spread "
				      "over is too large, expected at most %u",
				      input_dim, call->in[0]->name, SHAPE_TEXT(&call->in[0]->shape),
				      OP_MAX_DIM);
	full = (in - 1) * stride + extent + out_padding;
	if (given == 0 && (auto_pad == PAD_SAME_UPPER || auto_pad == PAD_SAME_LOWER))
		given = in * stride;
	if (given > 0) {
		pad = full > given ? full - given : 0;
		begin = auto_pad == PAD_SAME_UPPER ? pad / 2 : pad - pad / 2;
		out = given;
	} else if (begin + end >= full) {
		return op_call_refuse(call,
				      "padding %llu and %llu leaves nothing of the range of %llu "
				      "elements that dimension %u of input \"%s\" %s is spread "
				      "over",
				      (unsigned long long)begin, (unsigned long long)end,
				      (unsigned long long)full, input_dim, call->in[0]->name,
				      SHAPE_TEXT(&call->in[0]->shape));
	} else {
		out = full - begin - end;
	}
	if (out > OP_MAX_DIM)
		return op_call_refuse(
			call, "dimension %u of the output would be %llu, expected at most %u",
			input_dim, (unsigned long long)out, OP_MAX_DIM);
	call->params.window.pad_begin[i] = (uint32_t)begin;
	call->params.window.pad_end[i] = 0;
	*ret = (uint32_t)out;
	return 0;
}

static int conv_transpose_infer(struct op_call *call)
{
	const struct op_tensor *in = call->in[0], *weight = call->in[1];
	int64_t kernel[OP_MAX_SPATIAL], group, sizes[OP_MAX_SPATIAL], padding[OP_MAX_SPATIAL];
	enum auto_pad auto_pad;
	unsigned int n, skip;
	int r;

	r = check_input(call);
	if (!r)
		r = op_call_int(call, "group", 1, OP_MAX_DIM, 1, &group);
	if (!r)
		r = check_transposed_weights(call, group);
	if (r)
		return r;
	n = in->shape.rank - 2u;
	skip = OP_MAX_SPATIAL - n;
	r = check_kernel(call, n, kernel);
	if (!r)
		r = op_call_ints(call, "output_shape", n, 1, OP_MAX_DIM, 0, sizes, NULL);
	if (!r)
		r = op_call_ints(call, "output_padding", n, 0, OP_MAX_DIM, 0, padding, NULL);
	if (!r)
		r = read_window(call, kernel, &auto_pad);
	if (r)
		return r;
	call->params.window.group = (uint32_t)group;
	call->out_shape[0] = in->shape;
	call->out_shape[0].dims[1] = weight->shape.dims[1] * (uint32_t)group;
	for (unsigned int i = 0; !r && i < n; i++)
		r = resolve_transposed_dim(call, skip + i, auto_pad, (uint64_t)sizes[i],
					   (uint64_t)padding[i], 2 + i,
					   &call->out_shape[0].dims[2 + i]);
	return r;
}

static void conv_transpose_cost(const struct op_call *call, struct cost *ret)
{
	const struct shape *weight = &call->in[1]->shape;
	uint64_t taps = 1;

	/* Each input element contributes to so many outputs; see conv_cost(). */
	for (unsigned int i = 1; i < weight->rank; i++)
		taps *= weight->dims[i];
	cost_elems(ret, &call->in[0]->shape, 2 * taps);
	cost_elems(ret, &call->out_shape[0], 1);
	cost_tensors(call, ret);
}

const struct op_attr op_conv_attrs[] = {
	{"auto_pad", RBK_ATTR_STRING, false},
	{"dilations", RBK_ATTR_INTS, false},
	{"group", RBK_ATTR_INT, false},
	{"kernel_shape", RBK_ATTR_INTS, false},
	{"pads", RBK_ATTR_INTS, false},
	{"strides", RBK_ATTR_INTS, false},
	{0},
};

const struct op op_conv = {
	.kind = OP_CONV,
	.family = OP_FAMILY_CONVOLUTION,
	.name = "Conv",
	.opset = 22,
	OP_ROW_OF_ONE_CLASS(2, 3, OP_ALL_FLOATS),
	.splits_rows = true,
	.takes_activation = true,
	.attrs = op_conv_attrs,
	.infer = op_conv_infer,
	.cost = conv_cost,
};

#define POOL_ATTRS                                                                          \
	{"auto_pad", RBK_ATTR_STRING, false}, {"ceil_mode", RBK_ATTR_INT, false},           \
		{"dilations", RBK_ATTR_INTS, false}, {"kernel_shape", RBK_ATTR_INTS, true}, \
		{"pads", RBK_ATTR_INTS, false},                                             \
	{                                                                                   \
		"strides", RBK_ATTR_INTS, false                                             \
	}

static const struct op_attr max_pool_attrs[] = {
	POOL_ATTRS,
	{"storage_order", RBK_ATTR_INT, false},
	{0},
};

const struct op op_max_pool = {
	.kind = OP_MAX_POOL,
	.family = OP_FAMILY_POOLING,
	.name = "MaxPool",
	.opset = 22,
	.min_in = 1,
	.max_in = 1,
	.min_out = 1,
	.max_out = 2,
	.classes = {{'T', OP_ALL_FLOATS | OP_BYTES, OP_ALL_FLOATS | OP_BYTES},
		    {'I', OP_TYPE(RBK_DTYPE_I64), OP_TYPE(RBK_DTYPE_I64)}},
	.in_classes = "T",
	.out_classes = "TI",
	.data_independent = true,
	.splits_rows = true,
	.attrs = max_pool_attrs,
	.infer = max_pool_infer,
	.cost = pool_cost,
};

static const struct op_attr average_pool_attrs[] = {
	POOL_ATTRS,
	{"count_include_pad", RBK_ATTR_INT, false},
	{0},
};

const struct op op_average_pool = {
	.kind = OP_AVERAGE_POOL,
	.family = OP_FAMILY_POOLING,
	.name = "AveragePool",
	.opset = 22,
	OP_ROW_OF_ONE_CLASS(1, 1, OP_ALL_FLOATS),
	.splits_rows = true,
	.attrs = average_pool_attrs,
	.infer = average_pool_infer,
	.cost = pool_cost,
};

static const struct op_attr lp_pool_attrs[] = {
	POOL_ATTRS,
	{"p", RBK_ATTR_INT, false},
	{0},
};

const struct op op_lp_pool = {
	.kind = OP_LP_POOL,
	.family = OP_FAMILY_POOLING,
	.name = "LpPool",
	.opset = 22,
	OP_ROW_OF_ONE_CLASS(1, 1, OP_ALL_FLOATS),
	.splits_rows = true,
	.attrs = lp_pool_attrs,
	.infer = lp_pool_infer,
	.cost = pool_cost,
};

static const struct op_attr conv_transpose_attrs[] = {
	{"auto_pad", RBK_ATTR_STRING, false},
	{"dilations", RBK_ATTR_INTS, false},
	{"group", RBK_ATTR_INT, false},
	{"kernel_shape", RBK_ATTR_INTS, false},
	{"output_padding", RBK_ATTR_INTS, false},
	{"output_shape", RBK_ATTR_INTS, false},
	{"pads", RBK_ATTR_INTS, false},
	{"strides", RBK_ATTR_INTS, false},
	{0},
};

const struct op op_conv_transpose = {
	.kind = OP_CONV_TRANSPOSE,
	.family = OP_FAMILY_CONVOLUTION,
	.name = "ConvTranspose",
	.opset = 22,
	OP_ROW_OF_ONE_CLASS(2, 3, OP_ALL_FLOATS),
	.splits_rows = true,
	.takes_activation = true,
	.attrs = conv_transpose_attrs,
	.infer = conv_transpose_infer,
	.cost = conv_transpose_cost,
};
