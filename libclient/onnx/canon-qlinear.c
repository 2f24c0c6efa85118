/* SPDX-License-Identifier: MIT */
/*
 * Rules: quantized operators that ONNX Runtime's quantization writes, of domain com.microsoft
 *
 * Each is defined as the float operator between DequantizeLinear and QuantizeLinear, and is lowered
 * to these. Each quantized input is followed by its scale and zero point; the output's scale and
 * zero point come last. A zero point that is left out is 0. Scales and zero points are per tensor,
 * except those of QGemm's B, each of which may be per column.
 */
#include "libclient/onnx/canon.h"

/* Refuse the node if it has no input @i, called @what. Return: true if the input is present. */
static bool is_there(struct graph *graph, unsigned int i, const char *what)
{
	if (canon_in(graph, i))
		return true;
	graph_refuse(graph, "its input %u, %s, is missing", i, what);
	return false;
}

static bool check_bytes(struct graph *graph, const struct tensor *x)
{
	if (OP_BYTES & OP_TYPE(x->dtype))
		return true;
	graph_refuse(graph, "its input \"%s\" is %s, expected uint8 or int8", x->name,
		     rbk_onnx_dtype_name(x->dtype));
	return false;
}

static bool is_one(const struct tensor *tensor)
{
	return !tensor->shape.dynamic && shape_elems(&tensor->shape, 1) == 1;
}

/* Return the one element of @tensor as a scalar, whatever its rank; NULL after a refusal. */
static struct tensor *one_number(struct graph *graph, struct tensor *tensor)
{
	const struct shape none = {.rank = 0};

	if (is_one(tensor))
		return canon_reshape(graph, tensor, &none);
	graph_refuse(graph, "its input \"%s\" is %s, expected one element", tensor->name,
		     SHAPE_TEXT(&tensor->shape));
	return NULL;
}

/*
 * Read the scale at input @first and the zero point after it. Return: their number; 0 after a
 * refusal.
 */
static unsigned int read_scale(struct graph *graph, unsigned int first, struct tensor *ret[2])
{
	if (!is_there(graph, first, "a scale"))
		return 0;
	ret[0] = one_number(graph, canon_in(graph, first));
	if (!ret[0])
		return 0;
	if (!canon_in(graph, first + 1))
		return 1;
	ret[1] = one_number(graph, canon_in(graph, first + 1));
	return ret[1] ? 2 : 0;
}

static struct tensor *dequantized(struct graph *graph, struct tensor *x, unsigned int first)
{
	struct tensor *in[3] = {x};
	const unsigned int n = read_scale(graph, first, in + 1);

	if (n == 0 || !check_bytes(graph, x))
		return graph_unknown(graph);
	return graph_emit_1(graph, "DequantizeLinear", in, n + 1, NULL, 0);
}

/* Return the quantized input @first as floats. */
static struct tensor *floats_of(struct graph *graph, unsigned int first)
{
	if (!is_there(graph, first, "bytes"))
		return graph_unknown(graph);
	return dequantized(graph, canon_in(graph, first), first + 1);
}

/* Quantize @y by the scale at input @first, to the zero point's type, or to @dtype without one. */
static void put_bytes(struct graph *graph, struct tensor *y, unsigned int first, uint32_t dtype)
{
	struct tensor *in[3] = {y};
	const unsigned int n = read_scale(graph, first, in + 1);
	struct attr attr;

	if (n == 0)
		return;
	attr = ATTR_INT("output_dtype", n > 1 ? in[2]->dtype : dtype);
	canon_out(graph, 0, graph_emit_1(graph, "QuantizeLinear", in, n + 1, &attr, 1));
}

void canon_qlinear_binary(struct graph *graph)
{
	const char *op = strcmp(graph->node->proto->op_type, "QLinearMul") ? "Add" : "Mul";
	struct tensor *a = floats_of(graph, 0), *b = floats_of(graph, 3);

	put_bytes(graph, canon_binary(graph, op, a, b), 6, canon_in(graph, 0)->dtype);
}

void canon_qlinear_unary(struct graph *graph)
{
	const bool is_sigmoid = !strcmp(graph->node->proto->op_type, "QLinearSigmoid");
	struct attr alpha;
	struct tensor *x;

	if (!is_sigmoid)
		alpha = ATTR_FLOAT("alpha", canon_float(graph, "alpha", 0.01f));
	x = floats_of(graph, 0);
	x = is_sigmoid ? canon_unary(graph, "Sigmoid", x, NULL, 0)
		       : canon_unary(graph, "LeakyRelu", x, &alpha, 1);
	put_bytes(graph, x, 3, canon_in(graph, 0)->dtype);
}

/* An attribute gives the opset that defines its Softmax. */
void canon_qlinear_softmax(struct graph *graph)
{
	const int64_t opset = canon_int(graph, "opset", 0), axis = canon_int(graph, "axis", -1);

	if (opset < 1) {
		graph_refuse(graph, "attribute \"opset\" is %lld, expected that of its Softmax",
			     (long long)opset);
		return;
	}
	put_bytes(graph, canon_softmax_of(graph, "Softmax", floats_of(graph, 0), axis, opset < 13),
		  3, canon_in(graph, 0)->dtype);
}

/* Move the channels of @x from dimension 1 to the last, or back. */
static struct tensor *move_channels(struct graph *graph, struct tensor *x, bool to_last)
{
	const unsigned int rank = x->shape.rank;
	int64_t *perm = graph_zero(graph, RBK_MAX_RANK, sizeof(*perm));
	struct attr attr;

	if (!perm)
		return graph_unknown(graph);
	if (x->known && rank < 3) {
		graph_refuse(graph, "%s has no dimensions behind batch and channels",
			     SHAPE_TEXT(&x->shape));
		return graph_unknown(graph);
	}
	for (unsigned int i = 1; i < rank; i++)
		perm[i] = to_last ? (i + 1 < rank ? i + 1 : 1) : (i > 1 ? i - 1 : rank - 1);
	attr = ATTR_INTS("perm", perm, rank);
	return canon_unary(graph, "Transpose", x, &attr, 1);
}

void canon_qlinear_global_pool(struct graph *graph)
{
	const bool is_last = canon_int(graph, "channels_last", 0) != 0;
	int64_t *axes = graph_zero(graph, RBK_MAX_RANK, sizeof(*axes));
	struct tensor *x = floats_of(graph, 0);
	struct attr attrs[2];
	unsigned int n = 0;

	if (!axes || !x->known)
		return;
	if (x->shape.rank < 3) {
		graph_refuse(graph, "%s has no dimensions behind batch and channels",
			     SHAPE_TEXT(&x->shape));
		return;
	}
	for (; n + 2 < x->shape.rank; n++)
		axes[n] = is_last ? n + 1 : n + 2;
	attrs[0] = ATTR_INTS("axes", axes, n);
	attrs[1] = ATTR_INT("keepdims", 1);
	put_bytes(graph, canon_unary(graph, "ReduceMean", x, attrs, 2), 3,
		  canon_in(graph, 0)->dtype);
}

void canon_qlinear_pool(struct graph *graph)
{
	static const char *const lists[] = {"kernel_shape", "pads", "strides"};
	const bool is_last = canon_int(graph, "channels_last", 0) != 0;
	struct tensor *x = floats_of(graph, 0);
	struct attr attrs[6];
	unsigned int n = 0;

	attrs[n++] = ATTR_INT("ceil_mode", canon_int(graph, "ceil_mode", 0));
	attrs[n++] = ATTR_INT("count_include_pad", canon_int(graph, "count_include_pad", 0));
	if (canon_has_attr(graph, "auto_pad"))
		attrs[n++] = ATTR_STRING("auto_pad", canon_string(graph, "auto_pad", "NOTSET"));
	for (unsigned int i = 0; i < ARRAY_SIZE(lists); i++) {
		unsigned int n_ints;
		const int64_t *ints = canon_ints(graph, lists[i], &n_ints);

		if (ints)
			attrs[n++] = ATTR_INTS(lists[i], ints, n_ints);
	}
	if (is_last)
		x = move_channels(graph, x, false);
	x = canon_unary(graph, "AveragePool", x, attrs, n);
	put_bytes(graph, is_last ? move_channels(graph, x, true) : x, 3, canon_in(graph, 0)->dtype);
}

/* The output's scale and zero point are the first inputs. */
void canon_qlinear_concat(struct graph *graph)
{
	struct tensor *in[OP_MAX_INPUTS], *first;
	unsigned int n_in = 0, axis;
	struct attr attr;

	if (!canon_has_attr(graph, "axis")) {
		graph_refuse(graph, "attribute \"axis\" is missing");
		return;
	}
	if (!is_there(graph, 2, "bytes"))
		return;
	first = canon_in(graph, 2);
	if (!canon_axis(graph, canon_int(graph, "axis", 0), first->shape.rank, &axis))
		return;
	attr = ATTR_INT("axis", axis);
	for (uint32_t i = 2; i < graph->node->n_in && !graph->fatal && !graph->is_refused; i += 3) {
		if (n_in == OP_MAX_INPUTS) {
			in[0] = graph_emit_1(graph, "Concat", in, n_in, &attr, 1);
			n_in = 1;
		}
		in[n_in++] = floats_of(graph, i);
	}
	if (n_in > 0 && !graph->is_refused)
		put_bytes(graph,
			  n_in > 1 ? graph_emit_1(graph, "Concat", in, n_in, &attr, 1) : in[0], 0,
			  first->dtype);
}

/* Return @tensor, expanded to the length of @list if @tensor is one number and @list is not. */
static struct tensor *as_many(struct graph *graph, struct tensor *tensor, const struct tensor *list)
{
	const struct shape one = {.rank = 1, .dims = {1}};
	int64_t *n;
	struct attr attr;

	if (!is_one(tensor) || is_one(list) || list->shape.rank != 1 || list->shape.dynamic)
		return tensor;
	n = graph_take(graph, sizeof(*n));
	if (!n)
		return tensor;
	*n = list->shape.dims[0];
	attr = ATTR_INTS("shape", n, 1);
	tensor = canon_reshape(graph, tensor, &one);
	return graph_emit_1(graph, "Expand", &tensor, 1, &attr, 1);
}

/*
 * Return B as floats. It has one scale and zero point, or either of them is per column (per row if
 * B is transposed), and the other is then expanded.
 */
static struct tensor *gemm_weights(struct graph *graph, bool is_turned)
{
	struct tensor *in[] = {canon_in(graph, 3), canon_in(graph, 4), canon_in(graph, 5)};
	const struct attr axis = ATTR_INT("axis", is_turned ? 0 : 1);
	struct tensor *scale = in[1];

	if (!scale || !check_bytes(graph, in[0]))
		return graph_unknown(graph);
	if (is_one(scale) && (!in[2] || is_one(in[2])))
		return dequantized(graph, in[0], 4);
	if (in[2]) {
		in[1] = as_many(graph, scale, in[2]);
		in[2] = as_many(graph, in[2], scale);
	}
	return graph_emit_1(graph, "DequantizeLinear", in, in[2] ? 3 : 2, &axis, 1);
}

/*
 * QGemm: C is int32 in units of alpha times both scales. Without an output scale the output is
 * float.
 */
void canon_qgemm(struct graph *graph)
{
	const float alpha = canon_float(graph, "alpha", 1);
	const bool trans_a = canon_int(graph, "transA", 0) != 0;
	const bool trans_b = canon_int(graph, "transB", 0) != 0;
	const struct attr attrs[] = {
		ATTR_FLOAT("alpha", alpha),
		ATTR_INT("transA", trans_a),
		ATTR_INT("transB", trans_b),
	};
	struct tensor *in[3], *scale;

	if (!is_there(graph, 3, "bytes") || !is_there(graph, 4, "a scale"))
		return;
	in[0] = floats_of(graph, 0);
	in[1] = gemm_weights(graph, trans_b);
	in[2] = canon_in(graph, 6);
	if (in[2] && in[2]->dtype != RBK_ONNX_I32) {
		graph_refuse(graph, "its input \"%s\" is %s, expected int32", in[2]->name,
			     rbk_onnx_dtype_name(in[2]->dtype));
		return;
	}
	if (in[2] && !graph->is_refused) {
		scale = canon_binary(graph, "Mul", canon_in(graph, 1), canon_in(graph, 4));
		if (alpha != 1)
			scale = canon_binary(graph, "Mul", scale,
					     graph_scalar(graph, RBK_ONNX_F32, (double)alpha));
		in[2] = canon_binary(graph, "Mul", canon_cast(graph, in[2], RBK_ONNX_F32), scale);
	}
	in[0] = graph_emit_1(graph, "Gemm", in, in[2] ? 3 : 2, attrs, ARRAY_SIZE(attrs));
	if (canon_in(graph, 7))
		put_bytes(graph, in[0], 7, canon_in(graph, 0)->dtype);
	else if (canon_in(graph, 8))
		is_there(graph, 7, "the scale of its zero point");
	else
		canon_out(graph, 0, in[0]);
}
