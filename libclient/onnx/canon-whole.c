/* SPDX-License-Identifier: MIT */
/*
 * Rules: MatMul, Gemm and some reductions of int32 and int64
 *
 * The catalogue multiplies matrices of floats and of bytes. Other integer matrices are rare and
 * small (counts, positions, tables). All their products are therefore computed and then summed:
 * [.., m, k, 1] times [.., 1, k, n], over k, wrapping around as integers do. This takes memory for
 * m * k * n elements, so larger products are left to the catalogue to refuse.
 *
 * Reductions other than sum, product and extremes are lowered to these by ONNX's definitions. A
 * final root or logarithm is computed in float32.
 */
#include <math.h>
#include <string.h>

#include "libclient/onnx/canon.h"

/* limit of the products of one node */
static const double max_products = 1 << 26;

static bool is_whole(const struct tensor *tensor)
{
	return tensor->known && OP_INDICES & OP_TYPE(tensor->dtype) &&
	       !shape_is_empty(&tensor->shape);
}

struct tensor *canon_whole_product(struct graph *graph, struct tensor *a, struct tensor *b)
{
	const unsigned int a_rank = a->shape.rank, b_rank = b->shape.rank;
	struct shape left = a->shape, right = b->shape;
	struct attr attrs[2];
	unsigned int k_at, rank;
	double n_products = 1;
	int64_t *axes;

	if (!is_whole(a) || !is_whole(b) || a->dtype != b->dtype)
		return NULL;
	if (a_rank == 0 || b_rank == 0 || a_rank >= RBK_MAX_RANK || b_rank >= RBK_MAX_RANK)
		return NULL;
	k_at = b_rank > 1 ? b_rank - 2 : 0;
	/* A sum over the count is not supported. */
	if ((left.dynamic && a_rank == 1) || (right.dynamic && k_at == 0) ||
	    left.dims[a_rank - 1] != right.dims[k_at])
		return NULL;
	left.dims[left.rank++] = 1;
	if (b_rank == 1) {
		right.dims[right.rank++] = 1;
	} else if (a_rank > 1) {
		for (unsigned int i = right.rank++; i > k_at; i--)
			right.dims[i] = right.dims[i - 1];
		right.dims[k_at] = 1;
	}
	for (unsigned int i = 0; i < left.rank; i++)
		n_products *= left.dims[i];
	for (unsigned int i = 0; i < right.rank; i++)
		n_products *= i + 2 == right.rank ? 1 : right.dims[i];
	axes = graph_zero(graph, 2, sizeof(*axes));
	if (n_products > max_products || !axes)
		return NULL;
	rank = left.rank > right.rank ? left.rank : right.rank;
	axes[0] = (int64_t)rank - 2;
	axes[1] = (int64_t)rank - 1;
	attrs[0] = ATTR_INTS("axes", axes, b_rank == 1 ? 2 : 1);
	attrs[1] = ATTR_INT("keepdims", 0);
	return canon_unary(graph, "ReduceSum",
			   canon_binary(graph, "Mul", canon_reshape(graph, a, &left),
					canon_reshape(graph, b, &right)),
			   attrs, 2);
}

/* Multiply @tensor by a whole number. */
static struct tensor *scaled(struct graph *graph, struct tensor *tensor, float by)
{
	if (by == 1)
		return tensor;
	return canon_binary(graph, "Mul", tensor, graph_scalar(graph, tensor->dtype, (double)by));
}

static struct tensor *transposed(struct graph *graph, struct tensor *tensor, bool is_transposed)
{
	int64_t *perm = graph_zero(graph, 2, sizeof(*perm));
	struct attr attr;

	if (!is_transposed || !perm)
		return tensor;
	perm[0] = 1;
	attr = ATTR_INTS("perm", perm, 2);
	return canon_unary(graph, "Transpose", tensor, &attr, 1);
}

struct tensor *canon_whole_gemm(struct graph *graph, struct tensor *const *in, float alpha,
				float beta, bool trans_a, bool trans_b)
{
	const float most = 1 << 24;
	struct tensor *y;

	if (!is_whole(in[0]) || !is_whole(in[1]) || in[0]->shape.rank != 2 ||
	    in[1]->shape.rank != 2)
		return NULL;
	if (truncf(alpha) != alpha || truncf(beta) != beta || fabsf(alpha) > most ||
	    fabsf(beta) > most)
		return NULL;
	y = canon_whole_product(graph, transposed(graph, in[0], trans_a),
				transposed(graph, in[1], trans_b));
	if (!y)
		return NULL;
	y = scaled(graph, y, alpha);
	return in[2] ? canon_binary(graph, "Add", y, scaled(graph, in[2], beta)) : y;
}

/*
 * Return the number of elements of @x that are reduced into one along @axes; 0: it depends on the
 * count.
 */
static uint64_t n_terms(const struct tensor *x, const struct attr *axes)
{
	uint64_t n = 1;

	for (unsigned int i = 0; i < axes->n; i++) {
		if (x->shape.dynamic && axes->ints[i] == 0)
			return 0;
		n *= x->shape.dims[axes->ints[i]];
	}
	return n;
}

/* Compute @op of @a in float32, and cast the result back. */
static struct tensor *by_floats(struct graph *graph, const char *op, struct tensor *a,
				const struct attr *attrs, unsigned int n_attrs)
{
	const uint32_t dtype = a->dtype;

	a = canon_unary(graph, op, canon_cast(graph, a, RBK_ONNX_F32), attrs, n_attrs);
	return canon_cast(graph, a, dtype);
}

struct tensor *canon_whole_reduce(struct graph *graph, const char *op, struct tensor *x,
				  const struct attr attrs[2])
{
	const bool is_l2 = !strcmp(op, "ReduceL2");
	uint64_t n;

	if (!is_whole(x))
		return canon_unary(graph, op, x, attrs, 2);
	n = n_terms(x, &attrs[0]);
	if (!strcmp(op, "ReduceMean") && n > 0 && n <= INT32_MAX)
		return canon_binary(graph, "Div", canon_unary(graph, "ReduceSum", x, attrs, 2),
				    graph_scalar(graph, x->dtype, (double)n));
	if (!strcmp(op, "ReduceL1"))
		return canon_unary(graph, "ReduceSum", canon_unary(graph, "Abs", x, NULL, 0), attrs,
				   2);
	if (is_l2 || !strcmp(op, "ReduceSumSquare")) {
		x = canon_unary(graph, "ReduceSum", canon_binary(graph, "Mul", x, x), attrs, 2);
		return is_l2 ? by_floats(graph, "Sqrt", x, NULL, 0) : x;
	}
	if (!strcmp(op, "ReduceLogSum"))
		return by_floats(graph, "Log", canon_unary(graph, "ReduceSum", x, attrs, 2), NULL,
				 0);
	if (!strcmp(op, "ReduceLogSumExp"))
		return by_floats(graph, op, x, attrs, 2);
	return canon_unary(graph, op, x, attrs, 2);
}
