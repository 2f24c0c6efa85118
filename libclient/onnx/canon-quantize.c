/* SPDX-License-Identifier: MIT */
/*
 * Rules: quantizing, dequantizing, and quantized products
 *
 * The catalogue has scales of the data's own type, and integers of 8 bits and of 32. Other ONNX
 * forms are lowered to casts: data and scale to the type in which ONNX divides or multiplies, and
 * the result to the requested type. Constants of four bits become bytes, those of 16 become int32.
 */
#include <string.h>

#include "libclient/onnx/canon.h"
#include "libclient/onnx/eval.h"

void canon_mat_mul(struct graph *graph)
{
	struct tensor *b = canon_narrow_in(graph, 1), *y;

	y = b->nibbles ? nibbles_multiply(graph, canon_in(graph, 0), b, NULL)
		       : canon_whole_product(graph, canon_in(graph, 0), b);
	if (y)
		canon_out(graph, 0, y);
	else
		canon_same(graph);
}

static bool is_float(const struct tensor *tensor)
{
	return OP_FLOATS & OP_TYPE(tensor->dtype);
}

void canon_dequantize(struct graph *graph)
{
	struct tensor *in[] = {canon_in(graph, 0), canon_in(graph, 1), canon_in(graph, 2)}, *y;
	const int64_t asked = canon_int(graph, "output_dtype", 0);
	const struct attr attrs[] = {ATTR_INT("axis", canon_int(graph, "axis", 1)),
				     ATTR_INT("block_size", canon_int(graph, "block_size", 0))};
	uint32_t dtype = in[1]->dtype;

	if (asked < 0 || asked > UINT8_MAX)
		graph_refuse(graph, "attribute \"output_dtype\" is %lld, expected a type",
			     (long long)asked);
	if (graph->is_refused)
		return;
	/* A bfloat16 output is rounded after the step if the scales are bfloat16. */
	if (asked)
		dtype = graph->computes_bfloat && asked == RBK_ONNX_BF16 ? RBK_ONNX_F32
									 : (uint32_t)asked;
	if (is_float(in[1]) && dtype != in[1]->dtype)
		in[1] = canon_cast(graph, in[1], RBK_ONNX_F32);
	if (graph->is_refused)
		return;
	y = dtype == in[1]->dtype && !graph->computes_bfloat ? nibbles_keep(graph, in, attrs)
							     : NULL;
	if (!y)
		y = nibbles_dequantize(graph, in, attrs);
	canon_out(graph, 0, asked ? canon_cast(graph, y, dtype) : y);
}

/* Return the type in which to divide: that of the scale unless the precision is given. */
static uint32_t quotient_type(const struct tensor *x, const struct tensor *scale, int64_t precision)
{
	if (x->dtype == RBK_ONNX_I32)
		return RBK_ONNX_F32;
	return precision ? precision == RBK_ONNX_F16 ? RBK_ONNX_F16 : RBK_ONNX_F32 : scale->dtype;
}

void canon_quantize(struct graph *graph)
{
	struct tensor *in[] = {canon_in(graph, 0), canon_in(graph, 1), canon_in(graph, 2)};
	const int64_t asked = canon_int(graph, "output_dtype", 0);
	const int64_t dtype = in[2] ? in[2]->dtype : asked ? asked : RBK_ONNX_U8;
	const int64_t precision = canon_int(graph, "precision", 0);
	const struct attr attrs[] = {ATTR_INT("axis", canon_int(graph, "axis", 1)),
				     ATTR_INT("block_size", canon_int(graph, "block_size", 0)),
				     ATTR_INT("output_dtype", dtype)};

	/* The attribute concerns float8 only. */
	canon_ignore(graph, "saturate");
	if (precision &&
	    !(precision > 0 && precision <= UINT8_MAX && eval_is_float((uint32_t)precision)))
		graph_refuse(graph, "attribute \"precision\" is %lld, expected a type of floats",
			     (long long)precision);
	if (asked && asked != dtype)
		graph_refuse(graph, "attribute \"output_dtype\" is %lld, but its zero point is %s",
			     (long long)asked, rbk_onnx_dtype_name((uint32_t)dtype));
	if (dtype != RBK_ONNX_U8 && dtype != RBK_ONNX_I8)
		graph_refuse(graph, "it quantizes to %s, expected uint8 or int8",
			     rbk_onnx_dtype_name((uint32_t)dtype));
	if (graph->is_refused)
		return;
	if (is_float(in[1]) && (is_float(in[0]) || in[0]->dtype == RBK_ONNX_I32)) {
		const uint32_t divided = quotient_type(in[0], in[1], precision);

		in[0] = canon_cast(graph, in[0], divided);
		in[1] = canon_cast(graph, in[1], divided);
	}
	canon_out(
		graph, 0,
		graph_emit_1(graph, "QuantizeLinear", in, in[2] ? 3 : 2, attrs, ARRAY_SIZE(attrs)));
}

/* ---- Zero points per matrix ---- */

/*
 * Return true if @zero has the form [D1, D2, M, 1] or [D1, D2, 1, N], with zero points that differ
 * between matrices.
 */
static bool is_per_matrix(const struct tensor *zero, const struct tensor *of)
{
	bool differs = false;

	if (!zero || zero->dtype != of->dtype || zero->shape.rank < 3 ||
	    zero->shape.rank != of->shape.rank || shape_is_empty(&zero->shape))
		return false;
	for (unsigned int i = 0; i + 2 < zero->shape.rank; i++)
		differs |= zero->shape.dims[i] != 1 || (i == 0 && zero->shape.dynamic);
	return differs;
}

/* Sum @x along a dimension counted from the end, which is kept. */
static struct tensor *sum_along(struct graph *graph, struct tensor *x, unsigned int from_end)
{
	int64_t *axis = graph_take(graph, sizeof(*axis));
	struct attr attrs[2];

	if (!axis)
		return graph_unknown(graph);
	*axis = x->shape.rank - from_end;
	attrs[0] = ATTR_INTS("axes", axis, 1);
	attrs[1] = ATTR_INT("keepdims", 1);
	return canon_unary(graph, "ReduceSum", canon_cast(graph, x, RBK_ONNX_I32), attrs, 2);
}

static struct tensor *minus_product(struct graph *graph, struct tensor *from, struct tensor *a,
				    struct tensor *b)
{
	return canon_binary(graph, "Sub", from, canon_binary(graph, "Mul", a, b));
}

/*
 * The catalogue has zero points per row and per column that are the same for all matrices. Others
 * are subtracted after the product: the sum of (a - p)(b - q) is the sum of ab, minus p times the
 * sum of b, minus q times the sum of (a - p).
 */
void canon_mat_mul_integer(struct graph *graph)
{
	struct tensor *in[] = {canon_in(graph, 0), canon_in(graph, 1)}, *y, *z, *sum;
	struct tensor *p = canon_in(graph, 2), *q = canon_in(graph, 3);
	const struct shape *a = &in[0]->shape, *b = &in[1]->shape;
	struct shape column;

	if ((!is_per_matrix(p, in[0]) && !is_per_matrix(q, in[1])) || a->rank < 2 || b->rank < 2 ||
	    shape_is_empty(a) || shape_is_empty(b) || (p && p->dtype != in[0]->dtype) ||
	    (q && q->dtype != in[1]->dtype)) {
		canon_same(graph);
		return;
	}
	z = y = graph_emit_1(graph, "MatMulInteger", in, 2, NULL, 0);
	if (!y->known)
		return;
	sum = sum_along(graph, in[0], 1);
	if (p) {
		column = p->shape;
		if (column.rank == 1 && column.dims[0] != 1)
			column.dims[column.rank++] = 1;
		p = canon_cast(graph, canon_reshape(graph, p, &column), RBK_ONNX_I32);
		z = minus_product(graph, z, p, sum_along(graph, in[1], 2));
		sum = minus_product(graph, sum, p,
				    graph_scalar(graph, RBK_ONNX_I32, a->dims[a->rank - 1]));
	}
	if (q)
		z = minus_product(graph, z, canon_cast(graph, q, RBK_ONNX_I32), sum);
	if (z->known && !shape_equal(&z->shape, &y->shape))
		graph_refuse(graph, "its zero points are not those of %s by %s", SHAPE_TEXT(a),
			     SHAPE_TEXT(b));
	canon_out(graph, 0, z);
}
