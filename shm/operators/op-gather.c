/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: Gather, GatherElements, GatherND, ScatterElements, ScatterND and GridSample
 *
 * Indices are int32 or int64 elements of a tensor, unknown before the task runs; negative ones
 * count from the end. An index out of range ends the task with -EDOM, on any device. Its outputs
 * are then undefined; memory beyond a tensor is never accessed. If several updates hit one element
 * the last one in the order of the indices counts, and reductions are done in that order: results
 * are reproducible.
 *
 * The count may come from indices into dimension 0 of fixed data (rows of a table). Or it is the
 * leading dimension of both data and indices, which then are independent rows. Data that is indexed
 * along its count is refused: its end would depend on the task.
 *
 * GridSample of opset 20 uses coordinates instead, which may be outside the picture.
 */
#include "shm/operators/op-call.h"
#include "shm/operators/op-rows.h"

static int refuse_count(struct op_call *call)
{
	return op_call_refuse(
		call,
		"indices would point into dimension count of input \"%s\" %s, expected "
		"a fixed one",
		call->in[0]->name, SHAPE_TEXT(&call->in[0]->shape));
}

/*
 * Append dimensions [from, to) of @shape.
 * Return: 0; OP_E_INVALID.
 */
static int append(struct op_call *call, const struct shape *shape, unsigned int from,
		  unsigned int to)
{
	struct shape *out = &call->out_shape[0];

	for (unsigned int i = from; i < to; i++) {
		if (out->rank == RBK_MAX_RANK)
			return op_call_refuse(call,
					      "inputs \"%s\" %s and \"%s\" %s would give more than "
					      "%u dimensions",
					      call->in[0]->name, SHAPE_TEXT(&call->in[0]->shape),
					      call->in[1]->name, SHAPE_TEXT(&call->in[1]->shape),
					      RBK_MAX_RANK);
		out->dynamic |= shape_get(shape, i).is_count;
		out->dims[out->rank++] = shape->dims[i];
	}
	return 0;
}

static int gather_infer(struct op_call *call)
{
	const struct shape *data = &call->in[0]->shape, *indices = &call->in[1]->shape;
	uint8_t axis;
	int r;

	r = op_call_axis(call, 0, &axis);
	if (r)
		return r;
	if (data->dynamic && axis == 0)
		return refuse_count(call);
	if (indices->dynamic && axis != 0)
		return op_call_refuse(
			call,
			"input \"%s\" %s would make count dimension %u of the output, "
			"expected \"axis\" to be 0",
			call->in[1]->name, SHAPE_TEXT(indices), axis);
	call->params.gather.axis = axis;
	r = append(call, data, 0, axis);
	if (!r)
		r = append(call, indices, 0, indices->rank);
	if (!r)
		r = append(call, data, axis + 1u, data->rank);
	return r;
}

/* Whole rows are moved: the data bytes read equal the bytes written. */
static void gather_cost(const struct op_call *call, struct cost *ret)
{
	cost_bytes(ret, &call->out_shape[0], call->out_dtype[0]);
	cost_bytes(ret, &call->out_shape[0], call->out_dtype[0]);
	cost_bytes(ret, &call->in[1]->shape, call->in[1]->dtype);
}

/* Read the numbers per index: the last dimension of input 1, at most @max. */
static int tuple_size(struct op_call *call, unsigned int max, unsigned int *ret)
{
	const struct op_tensor *indices = call->in[1];
	struct dim last;

	if (indices->shape.rank == 0)
		return op_call_refuse(call, "input \"%s\" is a scalar, expected a last dimension",
				      indices->name);
	last = shape_get(&indices->shape, indices->shape.rank - 1u);
	if (last.is_count || last.n > max)
		return op_call_refuse(
			call,
			"input \"%s\" %s has indices of %s numbers, expected from 1 to "
			"%u for \"%s\" %s",
			indices->name, SHAPE_TEXT(&indices->shape), DIM_TEXT(last), max,
			call->in[0]->name, SHAPE_TEXT(&call->in[0]->shape));
	*ret = last.n;
	return 0;
}

static int gather_nd_infer(struct op_call *call)
{
	const struct shape *data = &call->in[0]->shape, *indices = &call->in[1]->shape;
	const int64_t least = data->rank < indices->rank ? data->rank : indices->rank;
	unsigned int batch, n;
	int64_t batch_dims;
	int r;

	r = op_call_int(call, "batch_dims", 0, least > 0 ? least - 1 : 0, 0, &batch_dims);
	if (r)
		return r;
	batch = (unsigned int)batch_dims;
	if (data->rank == 0)
		return op_call_refuse(call,
				      "input \"%s\" is a scalar, expected at least one dimension",
				      call->in[0]->name);
	r = tuple_size(call, data->rank - batch, &n);
	if (r)
		return r;
	for (unsigned int i = 0; i < batch; i++)
		if (!dim_equal(shape_get(data, i), shape_get(indices, i)))
			return op_call_refuse(call,
					      "inputs \"%s\" %s and \"%s\" %s differ in dimension "
					      "%u, expected equal ones below \"batch_dims\"",
					      call->in[0]->name, SHAPE_TEXT(data),
					      call->in[1]->name, SHAPE_TEXT(indices), i);
	if (data->dynamic && batch == 0)
		return refuse_count(call);
	call->params.gather.batch_dims = (uint8_t)batch;
	r = append(call, indices, 0, indices->rank - 1u);
	if (!r)
		r = append(call, data, batch + n, data->rank);
	return r;
}

/*
 * Check indices of single elements: their rank is that of the data, and no dimension but "axis" is
 * longer than the data's.
 */
static int elements_infer(struct op_call *call)
{
	const struct shape *data = &call->in[0]->shape, *indices = &call->in[1]->shape;
	uint8_t axis;
	int r;

	r = op_call_axis(call, 0, &axis);
	if (r)
		return r;
	call->params.gather.axis = axis;
	if (indices->rank != data->rank)
		return op_call_refuse(call,
				      "input \"%s\" %s has another number of dimensions than "
				      "\"%s\" %s",
				      call->in[1]->name, SHAPE_TEXT(indices), call->in[0]->name,
				      SHAPE_TEXT(data));
	if (data->dynamic && axis == 0)
		return refuse_count(call);
	for (unsigned int i = 0; i < data->rank; i++) {
		const struct dim have = shape_get(data, i), want = shape_get(indices, i);

		if (i == axis || dim_equal(have, want) ||
		    (!have.is_count && !want.is_count && want.n <= have.n))
			continue;
		return op_call_refuse(
			call,
			"dimension %u of input \"%s\" %s is %s, expected no more than "
			"that of \"%s\" %s",
			i, call->in[1]->name, SHAPE_TEXT(indices), DIM_TEXT(want),
			call->in[0]->name, SHAPE_TEXT(data));
	}
	return 0;
}

static int gather_elements_infer(struct op_call *call)
{
	call->out_shape[0] = call->in[1]->shape;
	return elements_infer(call);
}

static int refuse_updates(struct op_call *call, const struct shape *want)
{
	return op_call_refuse(call, "input \"%s\" is %s, expected %s", call->in[2]->name,
			      SHAPE_TEXT(&call->in[2]->shape), SHAPE_TEXT(want));
}

static int read_reduction(struct op_call *call)
{
	static const char *const names[] = {"none", "add", "mul", "max", "min", NULL};
	unsigned int reduction;
	int r;

	r = op_call_choice(call, "reduction", names, &reduction);
	if (r)
		return r;
	if (reduction != OP_SCATTER_NONE && !(OP_ALL_NUMBERS & OP_TYPE(call->in[0]->dtype)))
		return op_call_refuse(
			call,
			"input \"%s\" is %s, expected numbers to compute \"reduction\" %s with",
			call->in[0]->name, dtype_name(call->in[0]->dtype), names[reduction]);
	call->params.gather.reduction = (uint8_t)reduction;
	return 0;
}

static int scatter_elements_infer(struct op_call *call)
{
	int r;

	r = read_reduction(call);
	if (!r)
		r = elements_infer(call);
	if (r)
		return r;
	if (!shape_equal(&call->in[2]->shape, &call->in[1]->shape))
		return refuse_updates(call, &call->in[1]->shape);
	call->out_shape[0] = call->in[0]->shape;
	return 0;
}

static int scatter_nd_infer(struct op_call *call)
{
	const struct shape *data = &call->in[0]->shape, *indices = &call->in[1]->shape;
	struct shape want;
	unsigned int n;
	int r;

	r = read_reduction(call);
	if (r)
		return r;
	if (data->rank == 0)
		return op_call_refuse(call,
				      "input \"%s\" is a scalar, expected at least one dimension",
				      call->in[0]->name);
	if (data->dynamic)
		return refuse_count(call);
	r = tuple_size(call, data->rank, &n);
	/*
	 * out_shape[0] holds the expected shape of the updates first, the output's shape
	 * afterwards.
	 */
	if (!r)
		r = append(call, indices, 0, indices->rank - 1u);
	if (!r)
		r = append(call, data, n, data->rank);
	if (r)
		return r;
	want = call->out_shape[0];
	if (!shape_equal(&call->in[2]->shape, &want))
		return refuse_updates(call, &want);
	call->out_shape[0] = *data;
	return 0;
}

static void scatter_cost(const struct op_call *call, struct cost *ret)
{
	cost_elems(ret, &call->in[2]->shape, 1);
	cost_tensors(call, ret);
	cost_bytes(ret, &call->in[2]->shape, call->in[2]->dtype);
}

static int grid_sample_infer(struct op_call *call)
{
	/* The last two are the names of opset 16. */
	static const char *const modes[] = {"linear",   "nearest", "cubic",
					    "bilinear", "bicubic", NULL};
	static const uint8_t mode_of[] = {OP_SAMPLE_LINEAR, OP_SAMPLE_NEAREST, OP_SAMPLE_CUBIC,
					  OP_SAMPLE_LINEAR, OP_SAMPLE_CUBIC};
	static const char *const paddings[] = {"zeros", "border", "reflection", NULL};
	const struct shape *x = &call->in[0]->shape, *grid = &call->in[1]->shape;
	const unsigned int spatial = x->rank - 2u;
	unsigned int mode, padding;
	int r;

	r = op_call_choice(call, "mode", modes, &mode);
	if (!r)
		r = op_call_choice(call, "padding_mode", paddings, &padding);
	if (!r)
		r = op_call_bool(call, "align_corners", false,
				 &call->params.grid_sample.align_corners);
	if (r)
		return r;
	if (x->rank != 4 && x->rank != 5)
		return op_call_refuse(
			call,
			"input \"%s\" %s has %u dimensions, expected 4 or 5: a batch, channels, "
			"and two or three spatial dimensions",
			call->in[0]->name, SHAPE_TEXT(x), (unsigned int)x->rank);
	if (x->rank != 4 && mode_of[mode] == OP_SAMPLE_CUBIC)
		return op_call_refuse(call,
				      "attribute \"mode\" is %s, which is for 4 dimensions, but "
				      "input \"%s\" is %s",
				      modes[mode], call->in[0]->name, SHAPE_TEXT(x));
	if (grid->rank != x->rank || grid->dims[grid->rank - 1] != spatial)
		return op_call_refuse(
			call,
			"input \"%s\" is %s, expected %u dimensions, the last of them "
			"%u, for \"%s\" %s",
			call->in[1]->name, SHAPE_TEXT(grid), (unsigned int)x->rank, spatial,
			call->in[0]->name, SHAPE_TEXT(x));
	if (!dim_equal(shape_get(x, 0), shape_get(grid, 0)))
		return op_call_refuse(call,
				      "inputs \"%s\" %s and \"%s\" %s differ in dimension 0, "
				      "expected a grid for each image of the batch",
				      call->in[0]->name, SHAPE_TEXT(x), call->in[1]->name,
				      SHAPE_TEXT(grid));
	call->params.grid_sample.mode = mode_of[mode];
	call->params.grid_sample.padding = (uint8_t)padding;
	call->out_shape[0] = *x;
	for (unsigned int i = 0; i < spatial; i++)
		call->out_shape[0].dims[2 + i] = grid->dims[1 + i];
	return 0;
}

/*
 * Coordinates may be computed once for all channels or once per channel; the estimate assumes once.
 */
static void grid_sample_cost(const struct op_call *call, struct cost *ret)
{
	const unsigned int spatial = call->in[0]->shape.rank - 2u;
	const unsigned int each = call->params.grid_sample.mode == OP_SAMPLE_NEAREST  ? 1
				  : call->params.grid_sample.mode == OP_SAMPLE_LINEAR ? 2
										      : 4;

	cost_elems(ret, &call->in[1]->shape, 8);
	cost_elems(ret, &call->out_shape[0], 2 * each * each * (spatial == 3 ? each : 1));
	cost_tensors(call, ret);
}

static const struct op_attr axis_attrs[] = {
	{"axis", RBK_ATTR_INT, false},
	{0},
};

static const struct op_attr gather_nd_attrs[] = {
	{"batch_dims", RBK_ATTR_INT, false},
	{0},
};

static const struct op_attr scatter_elements_attrs[] = {
	{"axis", RBK_ATTR_INT, false},
	{"reduction", RBK_ATTR_STRING, false},
	{0},
};

static const struct op_attr scatter_nd_attrs[] = {
	{"reduction", RBK_ATTR_STRING, false},
	{0},
};

/* Run time is the same for all indices, apart from cache hits. */
#define GATHER(variable, kind_name, onnx_name, rule, known)                                  \
	const struct op variable = {                                                         \
		.kind = kind_name,                                                           \
		.family = OP_FAMILY_TRANSPOSE,                                               \
		.name = onnx_name,                                                           \
		.opset = 13,                                                                 \
		.min_in = 2,                                                                 \
		.max_in = 2,                                                                 \
		.min_out = 1,                                                                \
		.max_out = 1,                                                                \
		.classes = {{'T', OP_ANY_TYPE, OP_ANY_TYPE}, {'I', OP_INDICES, OP_INDICES}}, \
		.in_classes = "TI",                                                          \
		.out_classes = "T",                                                          \
		.data_independent = true,                                                    \
		.splits_rows = true,                                                         \
		.attrs = known,                                                              \
		.infer = rule,                                                               \
		.cost = gather_cost,                                                         \
	}

GATHER(op_gather, OP_GATHER, "Gather", gather_infer, axis_attrs);
GATHER(op_gather_elements, OP_GATHER_ELEMENTS, "GatherElements", gather_elements_infer, axis_attrs);
GATHER(op_gather_nd, OP_GATHER_ND, "GatherND", gather_nd_infer, gather_nd_attrs);

#define SCATTER(variable, kind_name, onnx_name, rule, known)                                 \
	const struct op variable = {                                                         \
		.kind = kind_name,                                                           \
		.family = OP_FAMILY_TRANSPOSE,                                               \
		.name = onnx_name,                                                           \
		.opset = 18,                                                                 \
		.min_in = 3,                                                                 \
		.max_in = 3,                                                                 \
		.min_out = 1,                                                                \
		.max_out = 1,                                                                \
		.classes = {{'T', OP_ANY_TYPE, OP_ANY_TYPE}, {'I', OP_INDICES, OP_INDICES}}, \
		.in_classes = "TIT",                                                         \
		.out_classes = "T",                                                          \
		.data_independent = true,                                                    \
		.splits_rows = true,                                                         \
		.attrs = known,                                                              \
		.infer = rule,                                                               \
		.cost = scatter_cost,                                                        \
	}

SCATTER(op_scatter_elements, OP_SCATTER_ELEMENTS, "ScatterElements", scatter_elements_infer,
	scatter_elements_attrs);
SCATTER(op_scatter_nd, OP_SCATTER_ND, "ScatterND", scatter_nd_infer, scatter_nd_attrs);

static const struct op_attr grid_sample_attrs[] = {
	{"mode", RBK_ATTR_STRING, false},
	{"padding_mode", RBK_ATTR_STRING, false},
	{"align_corners", RBK_ATTR_INT, false},
	{0},
};

const struct op op_grid_sample = {
	.kind = OP_GRID_SAMPLE,
	.family = OP_FAMILY_TRANSPOSE,
	.name = "GridSample",
	.opset = 20,
	.min_in = 2,
	.max_in = 2,
	.min_out = 1,
	.max_out = 1,
	.classes = {{'T', OP_ALL_FLOATS, OP_ALL_FLOATS}, {'G', OP_ALL_FLOATS, OP_ALL_FLOATS}},
	.in_classes = "TG",
	.out_classes = "T",
	.data_independent = true,
	.splits_rows = true,
	.attrs = grid_sample_attrs,
	.infer = grid_sample_infer,
	.cost = grid_sample_cost,
};
