/* SPDX-License-Identifier: MIT */
/* Rules: products, normalisation, and operators along dimensions */
#include <stdio.h>

#include "libclient/onnx/canon.h"

/* Emit a Gemm that reduces over no elements: the products are 0, and the bias remains. */
static struct tensor *gemm_of_nothing(struct graph *graph, struct tensor *const *in, float beta,
				      bool trans_a, bool trans_b)
{
	struct shape a = in[0]->shape, b = in[1]->shape;
	struct tensor *sum;

	if (trans_a)
		a = (struct shape){.rank = 2, .dims = {a.dims[1], a.dims[0]}};
	if (trans_b)
		b = (struct shape){.rank = 2, .dims = {b.dims[1], b.dims[0]}};
	sum = canon_binary(graph, "MatMul", graph_nothing(graph, in[0]->dtype, &a),
			   graph_nothing(graph, in[1]->dtype, &b));
	if (!in[2] || !sum->known)
		return sum;
	return canon_binary(
		graph, "Add", sum,
		canon_binary(graph, "Mul", in[2], graph_scalar(graph, in[2]->dtype, (double)beta)));
}

/*
 * Emit a Gemm with a four-bit matrix. Return: NULL: it is more than a product with one bias for
 * each column.
 */
static struct tensor *gemm_of_nibbles(struct graph *graph, struct tensor *const *in,
				      const struct attr *attrs)
{
	struct tensor *b = attrs[3].i ? nibbles_transpose(graph, in[1]) : in[1], *bias = in[2];

	if (attrs[0].f != 1 || attrs[2].i || in[0]->shape.rank != 2)
		return NULL;
	if (bias && (attrs[1].f != 1 || bias->shape.rank != 1 || bias->shape.dynamic ||
		     bias->shape.dims[0] != b->shape.dims[1] || bias->dtype != b->dtype))
		return NULL;
	return nibbles_multiply(graph, in[0], b, bias);
}

void canon_gemm(struct graph *graph)
{
	/* In opset 6 the bias may be broadcast; since then it always may be. */
	canon_int(graph, "broadcast", 0);
	{
		struct tensor *in[] = {canon_in(graph, 0), canon_narrow_in(graph, 1),
				       canon_in(graph, 2)};
		const struct attr attrs[] = {
			ATTR_FLOAT("alpha", canon_float(graph, "alpha", 1)),
			ATTR_FLOAT("beta", canon_float(graph, "beta", 1)),
			ATTR_INT("transA", canon_int(graph, "transA", 0) != 0),
			ATTR_INT("transB", canon_int(graph, "transB", 0) != 0),
		};
		struct tensor *whole;

		if (in[1]->nibbles) {
			struct tensor *y = gemm_of_nibbles(graph, in, attrs);

			if (y) {
				canon_out(graph, 0, y);
				return;
			}
			in[1] = canon_in(graph, 1);
		}
		if (in[0]->shape.rank == 2 && in[1]->shape.rank == 2 &&
		    shape_is_empty(&in[0]->shape) && shape_is_empty(&in[1]->shape)) {
			canon_out(graph, 0,
				  gemm_of_nothing(graph, in, attrs[1].f, attrs[2].i != 0,
						  attrs[3].i != 0));
			return;
		}
		whole = canon_whole_gemm(graph, in, attrs[0].f, attrs[1].f, attrs[2].i != 0,
					 attrs[3].i != 0);
		canon_out(graph, 0,
			  whole ? whole
				: graph_emit_1(graph, "Gemm", in, in[2] ? 3 : 2, attrs,
					       ARRAY_SIZE(attrs)));
	}
}

/*
 * Return true if all elements are finite. With a weight that is not, a product could become NaN
 * where the unfused result was finite.
 */
static bool is_finite(const struct constant *constant)
{
	for (uint64_t i = 0; i < constant->n_elems; i++)
		if (!isfinite(((const float *)constant->data)[i]))
			return false;
	return true;
}

/*
 * Fold BatchNormalization into the weights and the bias of the Conv that writes @in[0].
 * Return: the Conv; NULL if its parameters are not all constant, or if another node reads its
 * output.
 */
static struct tensor *fold_into_conv(struct graph *graph, struct tensor *const *in, float epsilon)
{
	const struct step *conv = in[0]->producer;
	struct tensor *conv_in[3], *scale;
	struct shape column;

	if (graph->options.disable & (RBK_ONNX_OPT_CONV_BN | RBK_ONNX_OPT_FOLD) || !conv ||
	    strcmp(conv->op, "Conv") || graph->model->values[graph->node->in[0]].n_uses != 1)
		return NULL;
	for (unsigned int i = 1; i < conv->n_in; i++)
		if (!conv->in[i] || !conv->in[i]->constant)
			return NULL;
	for (unsigned int i = 1; i < 5; i++)
		if (!in[i]->constant || in[i]->dtype != RBK_ONNX_F32 || in[i]->shape.rank != 1 ||
		    in[i]->shape.dims[0] != conv->in[1]->shape.dims[0])
			return NULL;
	if (conv->in[1]->dtype != RBK_ONNX_F32 ||
	    conv->in[1]->constant->n_elems > graph->n_evaluable / 4)
		return NULL;

	scale = canon_binary(graph, "Add", in[4], graph_scalar(graph, RBK_ONNX_F32, epsilon));
	scale = canon_binary(graph, "Div", in[1], canon_unary(graph, "Sqrt", scale, NULL, 0));
	column = (struct shape){.rank = conv->in[1]->shape.rank, .dims = {scale->shape.dims[0]}};
	for (unsigned int i = 1; i < column.rank; i++)
		column.dims[i] = 1;
	conv_in[0] = conv->in[0];
	conv_in[1] = canon_binary(graph, "Mul", conv->in[1], canon_reshape(graph, scale, &column));
	conv_in[2] = canon_unary(graph, "Neg", in[3], NULL, 0);
	if (conv->n_in > 2)
		conv_in[2] = canon_binary(graph, "Sub", conv->in[2], in[3]);
	conv_in[2] = canon_binary(graph, "Mul", conv_in[2], scale);
	conv_in[2] = canon_binary(graph, "Add", conv_in[2], in[2]);
	if (!conv_in[1]->constant || !conv_in[2]->constant || !is_finite(conv_in[1]->constant) ||
	    !is_finite(conv_in[2]->constant))
		return NULL;
	return graph_emit_1(graph, "Conv", conv_in, 3, conv->attrs, conv->n_attrs);
}

void canon_batch_norm(struct graph *graph)
{
	uint32_t opset = graph->node->opset;
	float epsilon = canon_float(graph, "epsilon", 1e-5f);
	struct attr attr = ATTR_FLOAT("epsilon", epsilon);
	struct tensor *in[5], *out;
	uint32_t dtype;

	for (unsigned int i = 0; i < 5; i++)
		in[i] = canon_in(graph, i);
	if (opset >= 14 && canon_int(graph, "training_mode", 0) != 0) {
		canon_batch_training(graph, in, epsilon);
		return;
	}
	canon_ignore(graph, "momentum");
	if (opset < 7 && canon_int(graph, "is_test", 0) == 0) {
		graph_refuse(graph, "it is in training mode");
		return;
	}
	/* With one element per channel both modes are the same. */
	if (opset < 9 && canon_int(graph, "spatial", 1) == 0 && in[0]->shape.rank > 2) {
		graph_refuse(graph, "it normalises every element on its own (spatial is 0)");
		return;
	}
	for (unsigned int i = 1; i < 5; i++) {
		if (canon_wants(graph, i)) {
			graph_refuse(graph, "output %u is for training only", i);
			return;
		}
	}
	dtype = in[0]->dtype;
	if (opset >= 14)
		canon_unmix_floats(graph, in, 5);
	out = fold_into_conv(graph, in, epsilon);
	if (!out)
		out = graph_emit_1(graph, "BatchNormalization", in, 5, &attr, 1);
	canon_out(graph, 0, canon_cast(graph, out, dtype));
}

/* Expand scale or bias from one per group (opset 18) to one per channel (since opset 21). */
static struct tensor *per_channel(struct graph *graph, struct tensor *tensor, uint32_t groups,
				  uint32_t channels)
{
	const int64_t dims[] = {groups, channels / groups};
	struct shape column = {.rank = 2, .dims = {groups, 1}};
	struct shape list = {.rank = 1, .dims = {channels}};
	struct attr attr = ATTR_INTS("shape", dims, 2);
	int64_t *copy = graph_take(graph, sizeof(dims));

	if (!copy)
		return tensor;
	memcpy(copy, dims, sizeof(dims));
	attr.ints = copy;
	tensor = canon_reshape(graph, tensor, &column);
	tensor = graph_emit_1(graph, "Expand", &tensor, 1, &attr, 1);
	return canon_reshape(graph, tensor, &list);
}

void canon_group_norm(struct graph *graph)
{
	struct tensor *in[] = {canon_in(graph, 0), canon_in(graph, 1), canon_in(graph, 2)};
	int64_t groups = canon_int(graph, "num_groups", 0);
	uint32_t channels = in[0]->shape.rank > 1 ? in[0]->shape.dims[1] : 0;
	const struct attr attrs[] = {
		ATTR_FLOAT("epsilon", canon_float(graph, "epsilon", 1e-5f)),
		ATTR_INT("num_groups", groups),
	};

	if (canon_int(graph, "stash_type", RBK_ONNX_F32) != RBK_ONNX_F32)
		graph_refuse(graph, "attribute \"stash_type\" must be 1 (float32)");
	if (groups < 1 || channels == 0 || channels % groups) {
		graph_refuse(graph, "%u channels cannot be divided into %lld groups", channels,
			     (long long)groups);
		return;
	}
	for (unsigned int i = 1; i < 3 && graph->node->opset < 21; i++) {
		if (in[i]->shape.rank != 1 || in[i]->shape.dims[0] != groups) {
			graph_refuse(graph, "input %u is %s, expected [%lld], one per group", i,
				     SHAPE_TEXT(&in[i]->shape), (long long)groups);
			return;
		}
		in[i] = per_channel(graph, in[i], (uint32_t)groups, channels);
	}
	canon_out(graph, 0, graph_emit_1(graph, "GroupNormalization", in, 3, attrs, 2));
}

/*
 * Before opset 13 all dimensions from axis on are flattened into one; since then the operator works
 * along axis alone.
 */
struct tensor *canon_softmax_of(struct graph *graph, const char *op, struct tensor *x,
				int64_t first, bool flattens)
{
	struct shape shape = x->shape;
	struct tensor *y;
	struct attr attr;
	uint64_t n = 1;
	unsigned int axis;

	/* When flattening, the axis may be one past the last dimension: rows of one element. */
	if (flattens && first == shape.rank) {
		axis = shape.rank;
	} else if (shape.rank == 0) {
		axis = 0;
	} else if (!canon_axis(graph, first, shape.rank, &axis)) {
		return graph_unknown(graph);
	}
	if (shape.rank == 0 || axis == shape.rank) {
		/* The result for a single element does not depend on it. */
		shape = x->shape;
		shape.dims[shape.rank++] = 1;
		if (shape.rank > RBK_MAX_RANK) {
			graph_refuse(graph, "axis %u is not one of its input's dimensions", axis);
			return graph_unknown(graph);
		}
		axis = shape.rank - 1u;
	} else if (flattens && axis + 1 < shape.rank) {
		if (axis == 0 && shape.dynamic) {
			graph_refuse(graph, "with axis 0 it would mix all rows of %s",
				     SHAPE_TEXT(&shape));
			return graph_unknown(graph);
		}
		for (unsigned int i = axis; i < shape.rank; i++)
			n *= shape.dims[i];
		if (n > OP_MAX_DIM) {
			graph_refuse(graph, "%s is too large", SHAPE_TEXT(&shape));
			return graph_unknown(graph);
		}
		shape.rank = (uint8_t)(axis + 1);
		shape.dims[axis] = (uint32_t)n;
	}
	attr = ATTR_INT("axis", axis);
	y = canon_reshape(graph, x, &shape);
	y = strcmp(op, "Hardmax") ? canon_unary(graph, op, y, &attr, 1)
				  : canon_hardmax(graph, y, axis);
	return canon_reshape(graph, y, &x->shape);
}

void canon_softmax(struct graph *graph)
{
	const bool flattens = graph->node->opset < 13;
	const int64_t axis = canon_int(graph, "axis", flattens ? 1 : -1);

	canon_out(graph, 0,
		  canon_softmax_of(graph, graph->node->proto->op_type, canon_in(graph, 0), axis,
				   flattens));
}

/*
 * Emit a reduction along no axes: only the combination of elements is omitted, not the function
 * applied to each element.
 */
static struct tensor *reduce_along_nothing(struct graph *graph, struct tensor *x)
{
	const char *op = graph->node->proto->op_type;

	if (!strcmp(op, "ReduceL1") || !strcmp(op, "ReduceL2"))
		return canon_unary(graph, "Abs", x, NULL, 0);
	if (!strcmp(op, "ReduceSumSquare"))
		return canon_binary(graph, "Mul", x, x);
	if (!strcmp(op, "ReduceLogSum"))
		return canon_unary(graph, "Log", x, NULL, 0);
	return canon_nothing(graph, x);
}

void canon_reduce(struct graph *graph)
{
	struct tensor *x = canon_in(graph, 0);
	const struct shape one = {.rank = 1, .dims = {1}};
	unsigned int n, rank = x->shape.rank, axes[RBK_MAX_RANK];
	bool keepdims = canon_int(graph, "keepdims", 1) != 0;
	bool keeps = canon_int(graph, "noop_with_empty_axes", 0) != 0;
	int64_t *list = graph_zero(graph, RBK_MAX_RANK, sizeof(*list));
	const int64_t *given;

	if (!canon_attr_or_input(graph, "axes", &given, &n) || !list)
		return;
	if (n == 0 && keeps) {
		canon_out(graph, 0, reduce_along_nothing(graph, x));
		return;
	}
	if (n > 0 && !canon_axes(graph, given, n, rank, axes))
		return;
	for (unsigned int i = 0; n == 0 && i < rank; i++)
		axes[i] = i;
	if (n == 0)
		n = rank;
	/* Some reductions change even a scalar. */
	if (rank == 0) {
		x = canon_reshape(graph, x, &one);
		axes[0] = 0;
		n = 1;
		keepdims = false;
	}
	for (unsigned int i = 0; i < n; i++)
		list[i] = axes[i];
	{
		const struct attr attrs[] = {ATTR_INTS("axes", list, n),
					     ATTR_INT("keepdims", keepdims)};

		canon_out(graph, 0,
			  canon_whole_reduce(graph, graph->node->proto->op_type, x, attrs));
	}
}

void canon_arg(struct graph *graph)
{
	struct tensor *x = canon_in(graph, 0);
	struct attr attrs[3];
	unsigned int axis;

	if (!canon_axis(graph, canon_int(graph, "axis", 0), x->shape.rank, &axis))
		return;
	attrs[0] = ATTR_INT("axis", axis);
	attrs[1] = ATTR_INT("keepdims", canon_int(graph, "keepdims", 1) != 0);
	attrs[2] = ATTR_INT("select_last_index", canon_int(graph, "select_last_index", 0) != 0);
	canon_out(graph, 0, canon_unary(graph, graph->node->proto->op_type, x, attrs, 3));
}

void canon_cum_sum(struct graph *graph)
{
	struct tensor *x = canon_in(graph, 0);
	struct attr attrs[3];
	unsigned int axis;
	int64_t given;

	if (!canon_known_whole(graph, canon_in(graph, 1), "axis", &given) ||
	    !canon_axis(graph, given, x->shape.rank, &axis))
		return;
	attrs[0] = ATTR_INT("axis", axis);
	attrs[1] = ATTR_INT("exclusive", canon_int(graph, "exclusive", 0) != 0);
	attrs[2] = ATTR_INT("reverse", canon_int(graph, "reverse", 0) != 0);
	canon_out(graph, 0, canon_unary(graph, "CumSum", x, attrs, 3));
}

void canon_top_k(struct graph *graph)
{
	struct tensor *x = canon_in(graph, 0), *k = canon_in(graph, 1), *out[2];
	struct shape shape = x->shape;
	struct attr attrs[4];
	unsigned int axis;
	int64_t number;

	if (!canon_axis(graph, canon_int(graph, "axis", -1), x->shape.rank, &axis))
		return;
	if (!k)
		number = canon_int(graph, "k", -1);
	else if (!canon_known_whole(graph, k, "K", &number))
		return;
	if (number < 0 || number > OP_MAX_DIM) {
		graph_refuse(graph, "k is %lld, expected a number of elements", (long long)number);
		return;
	}
	attrs[0] = ATTR_INT("axis", axis);
	attrs[1] = ATTR_INT("k", number);
	attrs[2] = ATTR_INT("largest", canon_int(graph, "largest", 1) != 0);
	attrs[3] = ATTR_INT("sorted", canon_int(graph, "sorted", 1) != 0);
	if (shape.dims[axis] >= number && !(axis == 0 && shape.dynamic)) {
		shape.dims[axis] = (uint32_t)number;
		if (shape_is_empty(&shape)) {
			canon_out(graph, 0, graph_nothing(graph, x->dtype, &shape));
			canon_out(graph, 1, graph_nothing(graph, RBK_ONNX_I64, &shape));
			return;
		}
	}
	graph_emit(graph, "TopK", &x, 1, out, 2, attrs, 4);
	canon_out(graph, 0, out[0]);
	canon_out(graph, 1, out[1]);
}
