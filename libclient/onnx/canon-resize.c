/* SPDX-License-Identifier: MIT */
/*
 * Rules: Resize and Upsample
 *
 * Axes are resized one after the other. The source of each element of the result is known when the
 * plan is made. Nearest elements are a Gather with constant indices. An interpolation is a sum of a
 * few gathered elements, each times its weight, or a product with a constant matrix whose rows are
 * the weights. Sources and weights are therefore computed here, in double precision.
 *
 * In ONNX's formulas the length of the resized axis is scale times the length, which need not be an
 * integer.
 */
#include <stdio.h>

#include "libclient/onnx/canon.h"

enum method { NEAREST, LINEAR, CUBIC };

/* Limit of neighbours that an interpolation sums one by one: the number without antialiasing. */
enum { MAX_TAPS = 4 };

struct resize {
	enum method method;
	const char *coordinates, *rounding;
	bool antialiases, excludes_outside, crops;
	double cubic_a, extrapolation;
	unsigned int rank;
	double scales[RBK_MAX_RANK];
	int64_t sizes[RBK_MAX_RANK];
	double starts[RBK_MAX_RANK], ends[RBK_MAX_RANK]; /* of the region, if it crops */
};

/* Return the source coordinate of the result's element @i in an axis of @in elements. */
static double coordinate(const struct resize *resize, unsigned int axis, int64_t i, int64_t in)
{
	const char *how = resize->coordinates;
	const double scale = resize->scales[axis], length = scale * (double)in;
	const double start = resize->starts[axis], end = resize->ends[axis];
	const double centred = ((double)i + 0.5) / scale - 0.5, last = (double)(in - 1);

	if (!strcmp(how, "asymmetric"))
		return (double)i / scale;
	if (!strcmp(how, "align_corners"))
		return length == 1 || i == 0 ? 0 : (double)i * last / (length - 1);
	if (!strcmp(how, "pytorch_half_pixel"))
		return resize->sizes[axis] > 1 ? centred : 0;
	if (!strcmp(how, "tf_half_pixel_for_nn"))
		return ((double)i + 0.5) / scale;
	if (!strcmp(how, "half_pixel_symmetric"))
		return (double)in / 2 * (1 - (double)resize->sizes[axis] / length) + centred;
	if (!strcmp(how, "tf_crop_and_resize"))
		return resize->sizes[axis] > 1
			       ? start * last + (double)i * (end - start) * last / (length - 1)
			       : 0.5 * (start + end) * last;
	return centred;
}

static int64_t clamped(double at, int64_t in)
{
	/* NaN becomes 0, too. */
	if (!(at > 0))
		return 0;
	return at < (double)(in - 1) ? (int64_t)at : in - 1;
}

static double rounded(const struct resize *resize, double at)
{
	if (!strcmp(resize->rounding, "round_prefer_ceil"))
		return floor(at + 0.5);
	if (!strcmp(resize->rounding, "floor"))
		return floor(at);
	if (!strcmp(resize->rounding, "ceil"))
		return ceil(at);
	return ceil(at - 0.5);
}

/* Return the weight of a neighbour at @distance. */
static double weight_of(const struct resize *resize, double distance)
{
	const double a = resize->cubic_a, x = fabs(distance);

	if (resize->method == LINEAR)
		return x < 1 ? 1 - x : 0;
	if (x <= 1)
		return ((a + 2) * x - (a + 3)) * x * x + 1;
	return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/*
 * Return the factor on distances to neighbours: the scale, if the axis shrinks with antialiasing,
 * which widens the window; else 1.
 */
static double shrinking(const struct resize *resize, unsigned int axis)
{
	return resize->antialiases && resize->scales[axis] < 1 ? resize->scales[axis] : 1;
}

static double reach(const struct resize *resize, unsigned int axis)
{
	return (resize->method == LINEAR ? 1 : 2) / shrinking(resize, axis);
}

/* Return the number of weights that fill_row() needs for any element in an axis of @in elements. */
static uint64_t row_room(const struct resize *resize, unsigned int axis, int64_t in)
{
	const double width = 2 * reach(resize, axis) + 3;

	return width < (double)in ? (uint64_t)width : (uint64_t)in;
}

/*
 * Compute the weights of element @i's neighbours, which are consecutive from *ret_first on. @row
 * has room for row_room() weights. Return: their number.
 */
static int64_t fill_row(const struct resize *resize, unsigned int axis, int64_t i, int64_t in,
			double *row, int64_t *ret_first)
{
	const double at = coordinate(resize, axis, i, in), shrink = shrinking(resize, axis);
	double from, to, sum = 0;
	int64_t first, n;

	*ret_first = 0;
	if (!(fabs(at) < 4e9))
		return 0;
	from = floor(at - reach(resize, axis));
	to = ceil(at + reach(resize, axis));
	*ret_first = first = clamped(from, in);
	n = clamped(to, in) - first + 1;
	memset(row, 0, (uint64_t)n * sizeof(*row));
	for (double k = from; k <= to; k++)
		if (!resize->excludes_outside || (k >= 0 && k < (double)in))
			sum += weight_of(resize, (k - at) * shrink);
	for (double k = from; k <= to && sum != 0; k++)
		if (!resize->excludes_outside || (k >= 0 && k < (double)in))
			row[clamped(k, in) - first] += weight_of(resize, (k - at) * shrink) / sum;
	return n;
}

static bool may_have_table(struct graph *graph, uint64_t n_elems)
{
	if (n_elems > graph->n_evaluable)
		graph_refuse(graph, "its table of positions would be too large");
	return n_elems <= graph->n_evaluable;
}

/* Make a constant of @dtype, zeroed, with its elements in *ret_data; NULL after a refusal. */
static struct constant *new_constant(struct graph *graph, uint32_t dtype, unsigned int rank,
				     const int64_t *dims, void **ret_data)
{
	struct constant *constant = graph_zero(graph, 1, sizeof(*constant));

	if (!constant)
		return NULL;
	constant->dtype = dtype;
	constant->rank = rank;
	for (unsigned int i = 0; i < rank; i++)
		constant->dims[i] = dims[i];
	if (!constant_measure(constant) || !may_have_table(graph, constant->n_elems))
		return NULL;
	graph->n_evaluable -= constant->n_elems;
	*ret_data = graph_zero(graph, constant->n_elems, onnx_dtype_size(dtype));
	constant->data = *ret_data;
	return *ret_data ? constant : NULL;
}

/* Store a weight in @dtype, the type of the interpolation: float32 or float64. */
static void put_weight(uint32_t dtype, void *data, int64_t i, double weight)
{
	if (dtype == RBK_ONNX_F64)
		((double *)data)[i] = weight;
	else
		((float *)data)[i] = (float)weight;
}

static struct tensor *gather_axis(struct graph *graph, const struct resize *resize,
				  struct tensor *x, unsigned int axis)
{
	const int64_t in = x->shape.dims[axis], out = resize->sizes[axis];
	const struct attr attr = ATTR_INT("axis", axis);
	void *data;
	const struct constant *constant = new_constant(graph, RBK_ONNX_I64, 1, &out, &data);
	struct tensor *operands[2] = {x};

	if (!constant)
		return NULL;
	for (int64_t i = 0; i < out; i++)
		((int64_t *)data)[i] =
			clamped(rounded(resize, coordinate(resize, axis, i, in)), in);
	operands[1] = graph_constant(graph, constant);
	return graph_emit_1(graph, "Gather", operands, 2, &attr, 1);
}

/*
 * Interpolate with many neighbours, by a matrix product. The last axis is reduced with the matrix
 * on the right. Any other axis becomes the one before the last, with all dimensions behind it
 * flattened into the last.
 */
static struct tensor *multiply_axis(struct graph *graph, const struct resize *resize,
				    struct tensor *x, unsigned int axis, double *row)
{
	const int64_t in = x->shape.dims[axis], out = resize->sizes[axis];
	const bool is_last = axis + 1u == x->shape.rank;
	const int64_t dims[2] = {is_last ? in : out, is_last ? out : in};
	struct shape flat = {0}, shape = x->shape;
	void *data;
	const struct constant *constant = new_constant(graph, x->dtype, 2, dims, &data);
	uint64_t between = 1, behind = 1;

	if (!constant)
		return NULL;
	for (int64_t i = 0; i < out; i++) {
		int64_t first, n = fill_row(resize, axis, i, in, row, &first);

		for (int64_t k = 0; k < n; k++)
			put_weight(x->dtype, data,
				   is_last ? (first + k) * out + i : i * in + first + k, row[k]);
	}
	if (is_last)
		return canon_binary(graph, "MatMul", x, graph_constant(graph, constant));
	for (unsigned int i = 1; i < axis; i++)
		between *= shape.dims[i];
	for (unsigned int i = axis + 1; i < shape.rank; i++)
		behind *= shape.dims[i];
	if (between > OP_MAX_DIM || behind > OP_MAX_DIM) {
		graph_refuse(graph, "%s is too large", SHAPE_TEXT(&shape));
		return NULL;
	}
	/* The leading dimension stays separate: it may be the count. */
	if (axis > 0)
		flat.dims[flat.rank++] = shape.dims[0];
	if (axis > 1)
		flat.dims[flat.rank++] = (uint32_t)between;
	flat.dims[flat.rank++] = (uint32_t)in;
	flat.dims[flat.rank++] = (uint32_t)behind;
	if (shape.dynamic)
		flat = shape_with_count(flat, &shape);
	x = canon_reshape(graph, x, &flat);
	x = canon_binary(graph, "MatMul", graph_constant(graph, constant), x);
	shape.dims[axis] = (uint32_t)out;
	return canon_reshape(graph, x, &shape);
}

/*
 * Find the neighbours of element @i with a nonzero weight; store at most @most of them. Return:
 * their number.
 */
static unsigned int find_taps(const struct resize *resize, unsigned int axis, int64_t i, int64_t in,
			      double *row, unsigned int most, int64_t *ret_from,
			      double *ret_weights)
{
	int64_t first, width = fill_row(resize, axis, i, in, row, &first);
	unsigned int n = 0;

	for (int64_t k = 0; k < width; k++) {
		if (row[k] == 0)
			continue;
		if (n < most) {
			ret_from[n] = first + k;
			ret_weights[n] = row[k];
		}
		n++;
	}
	return n;
}

/*
 * Interpolate with few neighbours: gather each, multiply it by its weight, and sum. A NaN then
 * affects only its neighbourhood, and the work does not grow with the axis.
 */
static struct tensor *sum_taps(struct graph *graph, const struct resize *resize, struct tensor *x,
			       unsigned int axis, unsigned int n_taps, double *row)
{
	const int64_t in = x->shape.dims[axis], out = resize->sizes[axis];
	const unsigned int rank = x->shape.rank - axis;
	const struct attr attr = ATTR_INT("axis", axis);
	int64_t dims[RBK_MAX_RANK] = {out}, from[MAX_TAPS], *places[MAX_TAPS];
	const struct constant *indices[MAX_TAPS], *factors[MAX_TAPS];
	double weights[MAX_TAPS];
	void *of_tap[MAX_TAPS];
	struct tensor *sum = NULL;

	for (unsigned int i = 1; i < rank; i++)
		dims[i] = 1;
	for (unsigned int t = 0; t < n_taps; t++) {
		void *data;

		indices[t] = new_constant(graph, RBK_ONNX_I64, 1, &out, &data);
		if (!indices[t])
			return NULL;
		places[t] = data;
		factors[t] = new_constant(graph, x->dtype, rank, dims, &of_tap[t]);
		if (!factors[t])
			return NULL;
	}
	for (int64_t i = 0; i < out; i++) {
		unsigned int n = find_taps(resize, axis, i, in, row, n_taps, from, weights);

		/*
		 * With fewer neighbours the first one's weight is split among the remaining taps,
		 * because a weight of 0 times infinity is NaN.
		 */
		for (unsigned int t = 0; t < n_taps; t++) {
			const bool is_first = t == 0 || t >= n;

			places[t][i] = n == 0 ? 0 : from[is_first ? 0 : t];
			put_weight(x->dtype, of_tap[t], i,
				   n == 0     ? 0
				   : is_first ? weights[0] / (n_taps - n + 1)
					      : weights[t]);
		}
	}
	for (unsigned int t = 0; t < n_taps; t++) {
		struct tensor *operands[2] = {x, graph_constant(graph, indices[t])}, *part;

		part = graph_emit_1(graph, "Gather", operands, 2, &attr, 1);
		part = canon_binary(graph, "Mul", part, graph_constant(graph, factors[t]));
		sum = sum ? canon_binary(graph, "Add", sum, part) : part;
	}
	return sum;
}

static struct tensor *interpolate_axis(struct graph *graph, const struct resize *resize,
				       struct tensor *x, unsigned int axis)
{
	const int64_t in = x->shape.dims[axis];
	const uint64_t room = row_room(resize, axis, in);
	double *row, weights[MAX_TAPS];
	unsigned int most = 0;
	int64_t from[MAX_TAPS];

	if (!may_have_table(graph, room) || !may_have_table(graph, (uint64_t)resize->sizes[axis]))
		return NULL;
	row = graph_zero(graph, room, sizeof(*row));
	if (!row)
		return NULL;
	/* Widened windows have more neighbours than a search one by one should examine. */
	if (shrinking(resize, axis) < 1)
		return multiply_axis(graph, resize, x, axis, row);
	for (int64_t i = 0; i < resize->sizes[axis]; i++) {
		unsigned int n = find_taps(resize, axis, i, in, row, MAX_TAPS, from, weights);

		most = n > most ? n : most;
	}
	return most > 0 && most <= MAX_TAPS ? sum_taps(graph, resize, x, axis, most, row)
					    : multiply_axis(graph, resize, x, axis, row);
}

/* Replace elements outside of the region of an axis by the extrapolation value. */
static struct tensor *extrapolate_axis(struct graph *graph, const struct resize *resize,
				       struct tensor *y, unsigned int axis, int64_t in)
{
	const int64_t out = resize->sizes[axis];
	int64_t dims[RBK_MAX_RANK] = {out};
	unsigned int n = y->shape.rank - axis;
	struct tensor *operands[3];
	const struct constant *constant;
	bool any = false;
	void *data;

	for (unsigned int i = 1; i < n; i++)
		dims[i] = 1;
	constant = new_constant(graph, RBK_ONNX_BOOL, n, dims, &data);
	if (!constant)
		return NULL;
	for (int64_t i = 0; i < out; i++) {
		const double at = coordinate(resize, axis, i, in);
		const bool is_beside = at < 0 || at > (double)(in - 1);

		((uint8_t *)data)[i] = is_beside;
		any |= is_beside;
	}
	if (!any)
		return y;
	operands[0] = graph_constant(graph, constant);
	operands[1] = graph_scalar(graph, y->dtype, resize->extrapolation);
	operands[2] = y;
	return graph_emit_1(graph, "Where", operands, 3, NULL, 0);
}

/* Return true if @name is one of @names, which end with NULL. */
static bool is_one_of(const char *name, const char *const *names)
{
	while (*names && strcmp(name, *names))
		names++;
	return *names != NULL;
}

static bool read_modes(struct graph *graph, bool is_old, struct resize *ret)
{
	static const char *const coordinates[] = {
		"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
		"asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize", NULL};
	static const char *const roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
						"ceil", NULL};
	const char *mode = canon_string(graph, "mode", "nearest");

	ret->coordinates = canon_string(graph, "coordinate_transformation_mode",
					is_old ? "asymmetric" : "half_pixel");
	ret->rounding =
		canon_string(graph, "nearest_mode", is_old ? "floor" : "round_prefer_floor");
	ret->antialiases = canon_int(graph, "antialias", 0) != 0;
	ret->excludes_outside = canon_int(graph, "exclude_outside", 0) != 0;
	ret->cubic_a = (double)canon_float(graph, "cubic_coeff_a", -0.75f);
	ret->extrapolation = (double)canon_float(graph, "extrapolation_value", 0);
	ret->crops = !strcmp(ret->coordinates, "tf_crop_and_resize");
	/* In opset 9 the mode is sometimes called bilinear. */
	ret->method = !strcmp(mode, "nearest") ? NEAREST : !strcmp(mode, "cubic") ? CUBIC : LINEAR;
	if (ret->method == LINEAR && strcmp(mode, "linear") && strcmp(mode, "bilinear"))
		graph_refuse(graph, "mode \"%s\" is not one of nearest, linear, cubic", mode);
	if (!is_one_of(ret->coordinates, coordinates))
		graph_refuse(graph, "coordinate_transformation_mode \"%s\" is not in the catalogue",
			     ret->coordinates);
	if (!is_one_of(ret->rounding, roundings))
		graph_refuse(graph, "nearest_mode \"%s\" is not in the catalogue", ret->rounding);
	return !graph->is_refused;
}

/*
 * Read the elements of a known float input. Return: their number, 0 if the input is absent or
 * unknown.
 */
static unsigned int read_floats(struct graph *graph, struct tensor *tensor, const char *what,
				unsigned int most, double *ret)
{
	unsigned int n;

	if (!tensor || !tensor->known || (tensor->shape.rank == 1 && tensor->shape.dims[0] == 0))
		return 0;
	graph_need(graph, tensor);
	if (!tensor->constant || tensor->constant->n_elems > most) {
		graph_refuse(graph,
			     "its %s must be known when the plan is made, and have at most %u "
			     "elements",
			     what, most);
		return 0;
	}
	n = (unsigned int)tensor->constant->n_elems;
	for (unsigned int i = 0; i < n; i++)
		ret[i] = eval_load(tensor->dtype, tensor->constant->data, i);
	return n;
}

/* Set one scale for all axes with given sizes, for a policy that keeps the aspect ratio. */
static void keep_ratio(struct resize *resize, const struct tensor *x, bool larger,
		       const unsigned int *axes, unsigned int n)
{
	double scale = 0;

	for (unsigned int i = 0; i < n; i++) {
		const double each = resize->scales[axes[i]];

		scale = i == 0 || (larger ? each > scale : each < scale) ? each : scale;
	}
	for (unsigned int i = 0; i < n; i++) {
		resize->scales[axes[i]] = scale;
		resize->sizes[axes[i]] =
			(int64_t)floor(scale * (double)x->shape.dims[axes[i]] + 0.5);
	}
}

/* Determine scale and size of every axis, from either of the two inputs. */
static bool read_sizes(struct graph *graph, struct tensor *x, bool is_old, struct resize *ret)
{
	struct tensor *given_sizes = is_old ? NULL : canon_in(graph, 3);
	unsigned int n, n_axes = 0, n_regions, n_sizes = 0, axes[RBK_MAX_RANK];
	const int64_t *listed = canon_ints(graph, "axes", &n_axes), *sizes = NULL;
	const char *policy = canon_string(graph, "keep_aspect_ratio_policy", "stretch");
	double scales[RBK_MAX_RANK], regions[2 * RBK_MAX_RANK];
	const float *list;

	n = read_floats(graph, canon_in(graph, is_old ? 1 : 2), "scales", RBK_MAX_RANK, scales);
	n_regions = is_old ? 0
			   : read_floats(graph, ret->crops ? canon_in(graph, 1) : NULL, "region",
					 2 * RBK_MAX_RANK, regions);
	if (n == 0 && is_old) {
		list = canon_floats(graph, "scales", &n);
		for (unsigned int i = 0; i < n && i < RBK_MAX_RANK; i++)
			scales[i] = (double)list[i];
	} else if (n == 0 && given_sizes) {
		sizes = canon_known_ints(graph, given_sizes, "sizes", &n_sizes);
		n = n_sizes;
	}
	if (graph->is_refused)
		return false;
	if (n == 0 || n != (listed ? n_axes : ret->rank) || n > ret->rank ||
	    (ret->crops && n_regions != 2 * n)) {
		graph_refuse(graph,
			     "it lacks a scale or a size for some of its dimensions, or a region");
		return false;
	}
	for (unsigned int i = 0; i < ret->rank; i++) {
		ret->scales[i] = 1;
		ret->sizes[i] = x->shape.dims[i];
		ret->starts[i] = 0;
		ret->ends[i] = 1;
	}
	for (unsigned int i = 0; i < n; i++) {
		double in;

		if (!canon_axis(graph, listed ? listed[i] : (int64_t)i, ret->rank, &axes[i]))
			return false;
		in = x->shape.dims[axes[i]];
		ret->scales[axes[i]] = sizes ? (double)sizes[i] / in : scales[i];
		/* In single precision, as in ONNX's shape inference. */
		ret->sizes[axes[i]] = sizes ? sizes[i]
				      : scales[i] > 0 && scales[i] * in <= OP_MAX_DIM
					      ? (int64_t)floorf((float)in * (float)scales[i])
					      : 0;
		if (n_regions) {
			ret->starts[axes[i]] = regions[i];
			ret->ends[axes[i]] = regions[n + i];
		}
	}
	if (sizes && strcmp(policy, "stretch")) {
		if (strcmp(policy, "not_larger") && strcmp(policy, "not_smaller")) {
			graph_refuse(graph,
				     "keep_aspect_ratio_policy \"%s\" is not in the "
				     "catalogue",
				     policy);
			return false;
		}
		keep_ratio(ret, x, !strcmp(policy, "not_smaller"), axes, n);
	}
	for (unsigned int i = 0; i < ret->rank; i++) {
		if (ret->sizes[i] >= 1 && ret->sizes[i] <= OP_MAX_DIM)
			continue;
		graph_refuse(graph, "dimension %u would be %lld", i, (long long)ret->sizes[i]);
		return false;
	}
	return true;
}

void canon_resize(struct graph *graph)
{
	bool is_old = graph->node->opset < 11;
	struct tensor *x = canon_in(graph, 0), *y = x;
	struct resize resize = {.rank = x->shape.rank};
	const uint8_t dtype = x->dtype;

	if (!read_modes(graph, is_old, &resize) || !read_sizes(graph, x, is_old, &resize))
		return;
	if (resize.method != NEAREST && !(OP_ALL_FLOATS & OP_TYPE(dtype))) {
		graph_refuse(graph, "it can interpolate only floating-point numbers");
		return;
	}
	if (resize.method != NEAREST)
		y = canon_cast(graph, y, canon_wide(y));
	for (unsigned int axis = 0; axis < resize.rank && y; axis++) {
		const int64_t in = x->shape.dims[axis];
		const bool is_whole =
			!resize.crops || (resize.starts[axis] == 0 && resize.ends[axis] == 1);

		if (resize.scales[axis] == 1 && resize.sizes[axis] == in && is_whole)
			continue;
		if (axis == 0 && x->shape.dynamic) {
			graph_refuse(graph, "it would resize the number of rows of the batch");
			return;
		}
		y = resize.method == NEAREST ? gather_axis(graph, &resize, y, axis)
					     : interpolate_axis(graph, &resize, y, axis);
		if (y && resize.crops)
			y = extrapolate_axis(graph, &resize, y, axis, in);
	}
	if (y)
		canon_out(graph, 0, y == x ? canon_nothing(graph, x) : canon_cast(graph, y, dtype));
}
