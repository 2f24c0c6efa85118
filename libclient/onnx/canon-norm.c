/* SPDX-License-Identifier: MIT */
/*
 * Rules: normalisations that are lowered to other operators
 *
 * They are computed in float32 whatever the type of the elements, because squares of float16 soon
 * overflow; or in float64 for elements of float64.
 */
#include <stdio.h>

#include "libclient/onnx/canon.h"

static struct tensor *with_number(struct graph *graph, const char *op, struct tensor *a,
				  double number)
{
	return canon_binary(graph, op, a, graph_scalar(graph, canon_wide(a), number));
}

static bool is_float(const struct tensor *x)
{
	return OP_ALL_FLOATS & OP_TYPE(x->dtype);
}

/* Refuse inputs that are not floats. */
static bool check_floats(struct graph *graph, const struct tensor *x)
{
	if (is_float(x))
		return true;
	graph_refuse(graph,
		     "its input \"%s\" is %s, expected float32, float16, float64 or bfloat16",
		     x->name, rbk_onnx_dtype_name(x->dtype));
	return false;
}

/* Return the type in which to compute with all of @in. */
static uint32_t widest(struct tensor *const *in, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		if (in[i] && in[i]->dtype == RBK_ONNX_F64)
			return RBK_ONNX_F64;
	return RBK_ONNX_F32;
}

void canon_unmix_floats(struct graph *graph, struct tensor **in, unsigned int n)
{
	const uint32_t dtype = widest(in, n);
	bool mixes = false;

	for (unsigned int i = 0; i < n; i++) {
		if (in[i] && !is_float(in[i]))
			return;
		mixes |= in[i] && in[i]->dtype != in[0]->dtype;
	}
	for (unsigned int i = 0; i < n && mixes; i++)
		if (in[i])
			in[i] = canon_cast(graph, in[i], dtype);
}

/*
 * Set the attributes that the catalogue's operators have. The caller's rule handles the type of
 * stage one.
 */
static void norm_attrs(struct graph *graph, struct attr attrs[2])
{
	attrs[0] = ATTR_INT("axis", canon_int(graph, "axis", -1));
	attrs[1] = ATTR_FLOAT("epsilon", canon_float(graph, "epsilon", 1e-5f));
}

/*
 * Prepare stage one: in float32 or a wider type, or rounded to bfloat16, which is then also the
 * type of mean and inverse deviation. Return: false after a refusal.
 */
static bool begin_stage_one(struct graph *graph, struct tensor **x, int64_t *ret_type)
{
	*ret_type = canon_int(graph, "stash_type", RBK_ONNX_F32);
	if (*ret_type != RBK_ONNX_F32 && *ret_type != RBK_ONNX_BF16) {
		graph_refuse(
			graph,
			"attribute \"stash_type\" is %lld, expected 1 (float32) or 16 (bfloat16)",
			(long long)*ret_type);
		return false;
	}
	if (*ret_type == RBK_ONNX_BF16 && is_float(*x)) {
		*x = canon_cast(graph, *x, RBK_ONNX_BF16);
		*x = canon_cast(graph, *x, RBK_ONNX_F32);
	}
	return true;
}

void canon_layer_norm(struct graph *graph)
{
	struct tensor *in[] = {canon_in(graph, 0), canon_in(graph, 1), canon_in(graph, 2)}, *out[3];
	const uint32_t dtype = in[0]->dtype;
	unsigned int n_out = canon_wants(graph, 2) ? 3 : canon_wants(graph, 1) ? 2 : 1;
	struct attr attrs[2];
	int64_t stage;

	norm_attrs(graph, attrs);
	if (!begin_stage_one(graph, &in[0], &stage))
		return;
	if (in[0]->dtype != dtype)
		for (unsigned int i = 1; i < 3; i++)
			if (in[i] && in[i]->dtype == dtype)
				in[i] = canon_cast(graph, in[i], RBK_ONNX_F32);
	graph_emit(graph, "LayerNormalization", in, in[2] ? 3 : 2, out, n_out, attrs, 2);
	canon_out(graph, 0, canon_cast(graph, out[0], dtype));
	for (unsigned int i = 1; i < n_out; i++)
		canon_out(graph, i, canon_cast(graph, out[i], (uint32_t)stage));
}

/* RMSNormalization: the output has the scale's type. */
void canon_rms_norm(struct graph *graph)
{
	struct tensor *in[] = {canon_in(graph, 0), canon_in(graph, 1)}, *y;
	const uint32_t dtype = in[1]->dtype;
	struct attr attrs[2];
	int64_t stage;

	norm_attrs(graph, attrs);
	if (!begin_stage_one(graph, &in[0], &stage))
		return;
	canon_unmix_floats(graph, in, 2);
	y = graph_emit_1(graph, "RMSNormalization", in, 2, attrs, 2);
	canon_out(graph, 0, canon_cast(graph, y, dtype));
}

/* Subtract the mean first, so that the variance is not the difference of two large numbers. */
void canon_mean_variance(struct graph *graph)
{
	static const int64_t fallback[] = {0, 2, 3};
	struct tensor *x = canon_in(graph, 0), *y, *deviation;
	int64_t *list = graph_zero(graph, RBK_MAX_RANK, sizeof(*list));
	unsigned int n = 0, axes[RBK_MAX_RANK];
	const int64_t *given = canon_ints(graph, "axes", &n);
	struct attr attrs[2];

	if (!given) {
		given = fallback;
		n = ARRAY_SIZE(fallback);
	}
	if (!list || !check_floats(graph, x) || !canon_axes(graph, given, n, x->shape.rank, axes))
		return;
	for (unsigned int i = 0; i < n; i++)
		list[i] = axes[i];
	attrs[0] = ATTR_INTS("axes", list, n);
	attrs[1] = ATTR_INT("keepdims", 1);
	y = canon_cast(graph, x, canon_wide(x));
	y = canon_binary(graph, "Sub", y, canon_unary(graph, "ReduceMean", y, attrs, 2));
	deviation = canon_unary(graph, "ReduceMean", canon_binary(graph, "Mul", y, y), attrs, 2);
	deviation = canon_unary(graph, "Sqrt", deviation, NULL, 0);
	y = canon_binary(graph, "Div", y, with_number(graph, "Add", deviation, 1e-9));
	canon_out(graph, 0, canon_cast(graph, y, x->dtype));
}

/*
 * Return momentum * @old + (1 - momentum) * @now. @now has extra dimensions of 1 beside the
 * channels.
 */
static struct tensor *running(struct graph *graph, struct tensor *old, struct tensor *now,
			      float momentum)
{
	struct tensor *kept = with_number(graph, "Mul", canon_cast(graph, old, canon_wide(now)),
					  (double)momentum);

	now = with_number(graph, "Mul", canon_reshape(graph, now, &old->shape),
			  1 - (double)momentum);
	return canon_cast(graph, canon_binary(graph, "Add", kept, now), old->dtype);
}

/*
 * In training, channels are normalised by their statistics in this batch; running mean and variance
 * are outputs.
 */
void canon_batch_training(struct graph *graph, struct tensor *const *in, float epsilon)
{
	struct tensor *x = in[0], *mean, *variance, *y, *wide[3];
	const float momentum = canon_float(graph, "momentum", 0.9f);
	int64_t *list = graph_zero(graph, RBK_MAX_RANK, sizeof(*list));
	const uint32_t dtype = widest(in, 5);
	struct shape column = {.rank = 1};
	struct attr attrs[2];
	unsigned int n = 0;

	if (!list || !check_floats(graph, x))
		return;
	for (unsigned int i = 1; i < 5; i++) {
		if (x->shape.rank >= 2 && in[i]->shape.rank == 1 &&
		    in[i]->shape.dims[0] == x->shape.dims[1])
			continue;
		graph_refuse(graph, "input %u is %s, expected one element per channel of %s", i,
			     SHAPE_TEXT(&in[i]->shape), SHAPE_TEXT(&x->shape));
		return;
	}
	for (unsigned int i = 0; i < x->shape.rank; i++)
		if (i != 1)
			list[n++] = i;
	column.dims[0] = x->shape.dims[1];
	while (column.rank + 1 < x->shape.rank)
		column.dims[column.rank++] = 1;
	wide[0] = canon_cast(graph, x, dtype);
	for (unsigned int i = 1; i < 3; i++)
		wide[i] = canon_reshape(graph, canon_cast(graph, in[i], dtype), &column);

	attrs[0] = ATTR_INTS("axes", list, n);
	attrs[1] = ATTR_INT("keepdims", 1);
	mean = canon_unary(graph, "ReduceMean", wide[0], attrs, 2);
	y = canon_binary(graph, "Sub", wide[0], mean);
	variance = canon_unary(graph, "ReduceMean", canon_binary(graph, "Mul", y, y), attrs, 2);
	y = canon_binary(graph, "Div", y,
			 canon_unary(graph, "Sqrt",
				     with_number(graph, "Add", variance, (double)epsilon), NULL,
				     0));
	y = canon_binary(graph, "Add", canon_binary(graph, "Mul", y, wide[1]), wide[2]);
	canon_out(graph, 0, canon_cast(graph, y, x->dtype));
	canon_out(graph, 1, running(graph, in[3], mean, momentum));
	canon_out(graph, 2, running(graph, in[4], variance, momentum));
}

/*
 * Return the mean of squares over a window of channels, by a pool whose spatial dimension is the
 * channels.
 */
static struct tensor *channel_means(struct graph *graph, struct tensor *x, int64_t size)
{
	struct shape flat = {.rank = 4, .dims = {x->shape.dims[0], 1, x->shape.dims[1], 1}};
	int64_t *kernel = graph_zero(graph, 2, sizeof(*kernel));
	int64_t *pads = graph_zero(graph, 4, sizeof(*pads));
	uint64_t n_behind = 1;
	struct tensor *y;

	for (unsigned int i = 2; i < x->shape.rank && n_behind <= OP_MAX_DIM; i++)
		n_behind *= x->shape.dims[i];
	if (n_behind > OP_MAX_DIM) {
		graph_refuse(graph, "%s is too large", SHAPE_TEXT(&x->shape));
		return graph_unknown(graph);
	}
	if (!kernel || !pads)
		return graph_unknown(graph);
	flat.dims[3] = (uint32_t)n_behind;
	if (x->shape.dynamic)
		flat = shape_with_count(flat, &x->shape);
	kernel[0] = size;
	kernel[1] = 1;
	pads[0] = (size - 1) / 2;
	pads[2] = size - 1 - pads[0];
	{
		const struct attr attrs[] = {
			ATTR_INTS("kernel_shape", kernel, 2),
			ATTR_INTS("pads", pads, 4),
			ATTR_INT("count_include_pad", 1),
		};

		y = canon_reshape(graph, canon_binary(graph, "Mul", x, x), &flat);
		y = canon_unary(graph, "AveragePool", y, attrs, ARRAY_SIZE(attrs));
	}
	return canon_reshape(graph, y, &x->shape);
}

void canon_lrn(struct graph *graph)
{
	struct tensor *x = canon_in(graph, 0), *wide, *y;
	const float alpha = canon_float(graph, "alpha", 1e-4f);
	const float beta = canon_float(graph, "beta", 0.75f);
	const float bias = canon_float(graph, "bias", 1);
	const int64_t size = canon_int(graph, "size", 0);

	if (!check_floats(graph, x))
		return;
	if (x->shape.rank < 2 || size < 1 || size > OP_MAX_DIM) {
		graph_refuse(graph, "%s has no windows of %lld channels", SHAPE_TEXT(&x->shape),
			     (long long)size);
		return;
	}
	if (shape_is_empty(&x->shape)) {
		canon_out(graph, 0, graph_nothing(graph, x->dtype, &x->shape));
		return;
	}
	wide = canon_cast(graph, x, canon_wide(x));
	y = with_number(graph, "Mul", channel_means(graph, wide, size), (double)alpha);
	y = with_number(graph, "Pow", with_number(graph, "Add", y, (double)bias), (double)beta);
	canon_out(graph, 0, canon_cast(graph, canon_binary(graph, "Div", wide, y), x->dtype));
}

/* Return 1 at the largest element along @axis, the first of equal ones, and 0 elsewhere. */
struct tensor *canon_hardmax(struct graph *graph, struct tensor *x, unsigned int axis)
{
	const struct attr largest[] = {ATTR_INT("axis", axis), ATTR_INT("keepdims", 0)};
	const struct attr spread[] = {ATTR_INT("axis", axis),
				      ATTR_INT("depth", x->shape.dims[axis])};
	static const float values[] = {0, 1};
	static const struct constant ends = {.dtype = RBK_ONNX_F32,
					     .rank = 1,
					     .dims = {2},
					     .n_elems = 2,
					     .n_bytes = 8,
					     .data = values};
	struct tensor *in[2];

	if (!check_floats(graph, x))
		return graph_unknown(graph);
	if (axis == 0 && x->shape.dynamic) {
		graph_refuse(graph, "it would compare all rows of the batch");
		return graph_unknown(graph);
	}
	if (shape_is_empty(&x->shape))
		return graph_nothing(graph, x->dtype, &x->shape);
	in[0] = canon_unary(graph, "ArgMax", canon_cast(graph, x, canon_wide(x)), largest, 2);
	in[1] = canon_cast(graph, graph_constant(graph, &ends), x->dtype);
	return graph_emit_1(graph, "OneHot", in, 2, spread, 2);
}
