/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Slice, Concat, Split, Expand, Tile and Pad
 *
 * ONNX inputs that must be constant are attributes of the same name: starts, ends, axes and steps;
 * split; shape; repeats; pads, and for Pad's constant, value. Instead of value, int_value holds an
 * integer, or the bits of a float64. The count stays unchanged, and in front: it is not sliced,
 * concatenated or padded.
 */
#include <string.h>

#include "shm/bfloat.h"
#include "shm/half.h"
#include "shm/operators/op-call.h"
#include "shm/operators/op-rows.h"

static int refuse_count(struct op_call *call, const struct op_tensor *in, const char *what)
{
	return op_call_refuse(call,
			      "it would %s the leading dimension of input \"%s\" %s, which is "
			      "count, expected another one",
			      what, in->name, SHAPE_TEXT(&in->shape));
}

/* Bytes read equal bytes written. */
static void cost_outputs(const struct op_call *call, struct cost *ret)
{
	for (unsigned int i = 0; i < call->n_out; i++) {
		if (!call->out[i])
			continue;
		cost_bytes(ret, &call->out_shape[i], call->out_dtype[i]);
		cost_bytes(ret, &call->out_shape[i], call->out_dtype[i]);
	}
}

/* ---- Slice ---- */

/*
 * Clamp ONNX's range of a dimension.
 * Return: the number of indices in it.
 */
static int64_t slice_range(int64_t dim, int64_t start, int64_t end, int64_t step,
			   int64_t *ret_start)
{
	start = start < 0 ? start + dim : start;
	end = end < 0 ? end + dim : end;
	if (step > 0) {
		*ret_start = clamp_i64(start, 0, dim);
		end = clamp_i64(end, 0, dim);
		return end > *ret_start ? (end - *ret_start - 1) / step + 1 : 0;
	}
	*ret_start = clamp_i64(start, 0, dim - 1);
	end = clamp_i64(end, -1, dim - 1);
	/* -step would overflow for the least number. */
	return end < *ret_start ? (end - *ret_start + 1) / step + 1 : 0;
}

static int slice_axis(struct op_call *call, unsigned int axis, int64_t start, int64_t end,
		      int64_t step)
{
	const struct op_tensor *in = call->in[0];
	const struct dim dim = shape_get(&in->shape, axis);
	int64_t first, n;

	if (step == 0)
		return op_call_refuse(call, "attribute \"steps\" has the value 0, expected another "
					    "number");
	if (dim.is_count)
		return start == 0 && end >= OP_MAX_DIM && step == 1
			       ? 0
			       : refuse_count(call, in, "take a part of");
	n = slice_range(dim.n, start, end, step, &first);
	if (n == 0)
		return op_call_refuse(call,
				      "nothing is left of dimension %u of input \"%s\" %s from "
				      "%lld to %lld in steps of %lld",
				      axis, in->name, SHAPE_TEXT(&in->shape), (long long)start,
				      (long long)end, (long long)step);
	call->out_shape[0].dims[axis] = (uint32_t)n;
	call->params.slice.start[axis] = (uint32_t)first;
	call->params.slice.step[axis] = n > 1 ? (int32_t)step : 1;
	return 0;
}

static int slice_infer(struct op_call *call)
{
	const struct op_tensor *in = call->in[0];
	int64_t starts[RBK_MAX_RANK], ends[RBK_MAX_RANK], axes[RBK_MAX_RANK], steps[RBK_MAX_RANK];
	unsigned int n, rank = in->shape.rank, seen = 0;
	bool given = false;
	int r;

	r = op_call_list(call, "starts", rank, INT64_MIN, INT64_MAX, starts, &n);
	if (!r)
		r = op_call_ints(call, "ends", n, INT64_MIN, INT64_MAX, 0, ends, NULL);
	if (!r)
		r = op_call_ints(call, "steps", op_call_has(call, "steps") ? n : 0, INT64_MIN,
				 INT64_MAX, 1, steps, &given);
	for (unsigned int i = 0; !r && !given && i < n; i++)
		steps[i] = 1;
	if (!r)
		r = op_call_ints(call, "axes", op_call_has(call, "axes") ? n : 0, -(int64_t)rank,
				 (int64_t)rank - 1, 0, axes, &given);
	for (unsigned int i = 0; !r && !given && i < n; i++)
		axes[i] = i;
	if (r)
		return r;
	call->out_shape[0] = in->shape;
	for (unsigned int i = 0; i < RBK_MAX_RANK; i++)
		call->params.slice.step[i] = 1;
	for (unsigned int i = 0; i < n; i++) {
		const unsigned int axis = (unsigned int)(axes[i] < 0 ? axes[i] + rank : axes[i]);

		if (seen & 1u << axis)
			return op_call_refuse(call, "attribute \"axes\" names dimension %u twice",
					      axis);
		seen |= 1u << axis;
		r = slice_axis(call, axis, starts[i], ends[i], steps[i]);
		if (r)
			return r;
	}
	return 0;
}

/* ---- Concat ---- */

static int concat_infer(struct op_call *call)
{
	const struct op_tensor *first = call->in[0];
	struct shape *out = &call->out_shape[0];
	uint64_t sum = 0;
	uint8_t axis;
	int r;

	r = op_call_axis(call, 0, &axis);
	if (r)
		return r;
	for (unsigned int i = 0; i < call->n_in; i++) {
		const struct op_tensor *in = call->in[i];

		if (!in)
			return op_call_refuse(call, "input %u is absent, but required", i);
		if (in->shape.rank != first->shape.rank)
			return op_call_refuse(call,
					      "inputs \"%s\" %s and \"%s\" %s have different "
					      "numbers of dimensions",
					      first->name, SHAPE_TEXT(&first->shape), in->name,
					      SHAPE_TEXT(&in->shape));
		for (unsigned int d = 0; d < first->shape.rank; d++) {
			if (d == axis ||
			    dim_equal(shape_get(&in->shape, d), shape_get(&first->shape, d)))
				continue;
			return op_call_refuse(call,
					      "inputs \"%s\" %s and \"%s\" %s differ in dimension "
					      "%u, expected it in dimension %u only",
					      first->name, SHAPE_TEXT(&first->shape), in->name,
					      SHAPE_TEXT(&in->shape), d, axis);
		}
		if (shape_get(&in->shape, axis).is_count && call->n_in > 1)
			return refuse_count(call, in, "put something behind");
		sum += in->shape.dims[axis];
	}
	if (sum > OP_MAX_DIM)
		return op_call_refuse(call,
				      "dimension %u of the output would be %llu, expected at "
				      "most %u",
				      axis, (unsigned long long)sum, OP_MAX_DIM);
	*out = first->shape;
	out->dims[axis] = (uint32_t)sum;
	call->params.along.axis = axis;
	return 0;
}

/* ---- Split ---- */

static int split_infer(struct op_call *call)
{
	const struct op_tensor *in = call->in[0];
	int64_t sizes[OP_MAX_OUTPUTS], sum = 0;
	unsigned int n;
	uint8_t axis;
	int r;

	r = op_call_axis(call, 0, &axis);
	if (!r)
		r = op_call_ints(call, "split", call->n_out, 1, OP_MAX_DIM, 0, sizes, NULL);
	if (r)
		return r;
	if (shape_get(&in->shape, axis).is_count)
		return refuse_count(call, in, "split");
	n = call->n_out;
	for (unsigned int i = 0; i < n; i++) {
		if (!call->out[i])
			return op_call_refuse(call, "output %u is absent, but required", i);
		sum += sizes[i];
	}
	if (sum != in->shape.dims[axis])
		return op_call_refuse(call,
				      "attribute \"split\" has %lld elements in all, expected "
				      "as many as dimension %u of input \"%s\" %s",
				      (long long)sum, axis, in->name, SHAPE_TEXT(&in->shape));
	for (unsigned int i = 0; i < n; i++) {
		call->out_shape[i] = in->shape;
		call->out_shape[i].dims[axis] = (uint32_t)sizes[i];
	}
	call->params.along.axis = axis;
	return 0;
}

/* ---- Expand ---- */

static int expand_infer(struct op_call *call)
{
	const struct op_tensor *in = call->in[0];
	struct shape *out = &call->out_shape[0];
	int64_t dims[RBK_MAX_RANK];
	unsigned int n, rank;
	int r;

	r = op_call_list(call, "shape", RBK_MAX_RANK, 1, OP_MAX_DIM, dims, &n);
	if (r)
		return r;
	rank = n > in->shape.rank ? n : in->shape.rank;
	*out = (struct shape){.rank = (uint8_t)rank};
	for (unsigned int i = 0; i < rank; i++) {
		const unsigned int skip = rank - in->shape.rank;
		const struct dim dim =
			i < skip ? (struct dim){.n = 1} : shape_get(&in->shape, i - skip);
		const uint32_t wanted = i < rank - n ? 1 : (uint32_t)dims[i - (rank - n)];

		if (dim.is_count && i > 0)
			return op_call_refuse(call,
					      "count would become dimension %u of the output, "
					      "expected it to stay the leading one of input \"%s\" "
					      "%s",
					      i, in->name, SHAPE_TEXT(&in->shape));
		if (wanted != 1 && !dim_is(dim, 1) && !dim_is(dim, wanted))
			return op_call_refuse(call,
					      "attribute \"shape\" has %u for dimension %u, which "
					      "is %s in input \"%s\" %s, expected 1 or that",
					      wanted, i, DIM_TEXT(dim), in->name,
					      SHAPE_TEXT(&in->shape));
		out->dims[i] = wanted == 1 ? dim.n : wanted;
		out->dynamic |= dim.is_count;
	}
	return 0;
}

/* ---- Tile ---- */

static int tile_infer(struct op_call *call)
{
	const struct op_tensor *in = call->in[0];
	struct shape *out = &call->out_shape[0];
	int64_t repeats[RBK_MAX_RANK];
	int r;

	r = op_call_ints(call, "repeats", in->shape.rank, 1, OP_MAX_DIM, 1, repeats, NULL);
	if (r)
		return r;
	*out = in->shape;
	for (unsigned int i = 0; i < in->shape.rank; i++) {
		const uint64_t dim = (uint64_t)repeats[i] * in->shape.dims[i];

		if (shape_get(&in->shape, i).is_count && repeats[i] != 1)
			return refuse_count(call, in, "repeat");
		if (dim > OP_MAX_DIM)
			return op_call_refuse(call,
					      "dimension %u of the output would be %llu, expected "
					      "at most %u",
					      i, (unsigned long long)dim, OP_MAX_DIM);
		out->dims[i] = (uint32_t)dim;
	}
	return 0;
}

/* ---- Pad ---- */

/* Set the value's bits in the input's type, repeated to fill 64 bits. */
static int pad_value(struct op_call *call, uint8_t dtype)
{
	const unsigned int bytes = (unsigned int)dtype_bytes(dtype);
	const bool is_float = (OP_FLOATS | OP_BFLOAT16) & OP_TYPE(dtype);
	const bool is_double = dtype == RBK_DTYPE_F64;
	int64_t integer = 0;
	uint64_t bits = 0;
	uint16_t half, bfloat;
	double wide;
	float value;
	int r;

	r = op_call_float(call, "value", 0, &value);
	if (!r && is_float && op_call_has(call, "int_value"))
		return op_call_refuse(call,
				      "attribute \"int_value\" is for integers, input "
				      "\"%s\" is %s",
				      call->in[0]->name, dtype_name(dtype));
	if (!r && !is_float && !is_double && op_call_has(call, "value") &&
	    !op_call_has(call, "int_value") && !(value >= -0x1p62f && value <= 0x1p62f))
		return op_call_refuse(call, "attribute \"value\" cannot be represented as %s",
				      dtype_name(dtype));
	if (r)
		return r;
	wide = (double)value;
	if (is_double)
		memcpy(&integer, &wide, sizeof(wide));
	else if (!is_float)
		integer = (int64_t)value;
	r = op_call_int(call, "int_value", INT64_MIN, INT64_MAX, integer, &integer);
	if (r)
		return r;
	half = half_from_float(value);
	bfloat = bfloat_from_float(value);
	if (dtype == RBK_DTYPE_BOOL)
		bits = integer != 0;
	else if (dtype == RBK_DTYPE_F16)
		memcpy(&bits, &half, sizeof(half));
	else if (dtype == RBK_DTYPE_BF16)
		memcpy(&bits, &bfloat, sizeof(bfloat));
	else if (dtype == RBK_DTYPE_F32)
		memcpy(&bits, &value, sizeof(value));
	else
		bits = (uint64_t)integer;
	for (unsigned int i = bytes; i < sizeof(bits); i *= 2) {
		bits &= UINT64_MAX >> (64 - 8 * i);
		bits |= bits << 8 * i;
	}
	call->params.pad.value = bits;
	return 0;
}

static int pad_axis(struct op_call *call, unsigned int axis, int64_t begin, int64_t end)
{
	const struct op_tensor *in = call->in[0];
	const struct dim dim = shape_get(&in->shape, axis);
	const int64_t cut = (begin < 0 ? -begin : 0) + (end < 0 ? -end : 0);
	const int64_t padded = (int64_t)dim.n + begin + end;

	if (begin == 0 && end == 0)
		return 0;
	if (dim.is_count)
		return refuse_count(call, in, "add to");
	if (cut >= (int64_t)dim.n || padded > (int64_t)OP_MAX_DIM)
		return op_call_refuse(call,
				      "attribute \"pads\" has %lld and %lld for dimension %u of "
				      "input \"%s\" %s, expected at least one element to be left, "
				      "and at most %u in all",
				      (long long)begin, (long long)end, axis, in->name,
				      SHAPE_TEXT(&in->shape), OP_MAX_DIM);
	call->params.pad.begin[axis] = (int32_t)begin;
	call->out_shape[0].dims[axis] = (uint32_t)padded;
	return 0;
}

static int pad_infer(struct op_call *call)
{
	static const char *const modes[] = {"constant", "reflect", "edge", "wrap", NULL};
	const struct op_tensor *in = call->in[0];
	int64_t pads[2 * RBK_MAX_RANK];
	const unsigned int rank = in->shape.rank;
	unsigned int mode;
	int r;

	r = op_call_ints(call, "pads", 2 * rank, -(int64_t)OP_MAX_DIM, OP_MAX_DIM, 0, pads, NULL);
	if (!r)
		r = op_call_choice(call, "mode", modes, &mode);
	if (!r)
		r = pad_value(call, in->dtype);
	if (r)
		return r;
	call->params.pad.mode = (uint8_t)mode;
	call->out_shape[0] = in->shape;
	for (unsigned int i = 0; i < rank; i++) {
		r = pad_axis(call, i, pads[i], pads[rank + i]);
		if (r)
			return r;
	}
	return 0;
}

/* ---- The rows ---- */

static const struct op_attr slice_attrs[] = {
	{"starts", RBK_ATTR_INTS, true},
	{"ends", RBK_ATTR_INTS, true},
	{"axes", RBK_ATTR_INTS, false},
	{"steps", RBK_ATTR_INTS, false},
	{0},
};
static const struct op_attr concat_attrs[] = {{"axis", RBK_ATTR_INT, true}, {0}};
static const struct op_attr split_attrs[] = {
	{"axis", RBK_ATTR_INT, false},
	{"split", RBK_ATTR_INTS, true},
	{0},
};
static const struct op_attr expand_attrs[] = {{"shape", RBK_ATTR_INTS, true}, {0}};
static const struct op_attr tile_attrs[] = {{"repeats", RBK_ATTR_INTS, true}, {0}};
static const struct op_attr pad_attrs[] = {
	{"mode", RBK_ATTR_STRING, false},
	{"pads", RBK_ATTR_INTS, true},
	{"value", RBK_ATTR_FLOAT, false},
	{"int_value", RBK_ATTR_INT, false},
	{0},
};

#define MOVE(KIND, row, label, since, most_in, most_out, known, rule, costs) \
	const struct op op_##row = {                                         \
		.kind = OP_##KIND,                                           \
		.family = OP_FAMILY_TRANSPOSE,                               \
		.name = label,                                               \
		.opset = since,                                              \
		.min_in = 1,                                                 \
		.max_in = most_in,                                           \
		.min_out = 1,                                                \
		.max_out = most_out,                                         \
		.classes = {{'T', OP_ANY_TYPE, OP_ANY_TYPE}},                \
		.in_classes = "T",                                           \
		.out_classes = "T",                                          \
		.data_independent = true,                                    \
		.splits_rows = true,                                         \
		.attrs = known,                                              \
		.infer = rule,                                               \
		.cost = costs,                                               \
	}

MOVE(SLICE, slice, "Slice", 13, 1, 1, slice_attrs, slice_infer, cost_outputs);
MOVE(CONCAT, concat, "Concat", 13, OP_MAX_INPUTS, 1, concat_attrs, concat_infer, cost_outputs);
MOVE(SPLIT, split, "Split", 18, 1, OP_MAX_OUTPUTS, split_attrs, split_infer, cost_outputs);
MOVE(EXPAND, expand, "Expand", 13, 1, 1, expand_attrs, expand_infer, cost_tensors);
MOVE(TILE, tile, "Tile", 13, 1, 1, tile_attrs, tile_infer, cost_tensors);
MOVE(PAD, pad, "Pad", 25, 1, 1, pad_attrs, pad_infer, cost_outputs);
