/* SPDX-License-Identifier: MIT */
/*
 * Attention that is written as two products and a Softmax
 *
 * softmax(scale * q k^T + mask) v, with heads in a dimension of their own. The scale stands behind
 * the first product, or in parts before its operands. The keys are somebody's Transpose, which is
 * undone; often that is the one that brought heads to the front as well, and then it only changes.
 */
#include "libclient/onnx/fuse.h"

enum { QUERIES, KEYS, VALUES, MASK };

/* Takes products with and quotients by known numbers off @tensor. Return: what is left. */
static struct tensor *unscaled(struct tensor *tensor, double *scale)
{
	for (;;) {
		const struct step *product = fuse_only_maker(tensor, "Mul");
		const struct step *step = product ? product : fuse_only_maker(tensor, "Div");
		struct tensor *rest;
		double number;

		if (step && fuse_number(step->in[1], &number))
			rest = step->in[0];
		else if (product && fuse_number(step->in[0], &number))
			rest = step->in[1];
		else
			return tensor;
		if (!shape_equal(&rest->shape, &tensor->shape))
			return tensor;
		*scale = product ? *scale * number : *scale / number;
		tensor = rest;
	}
}

/* The Softmax along the last dimension that makes @tensor. Return: of what. */
static struct tensor *softmax_of(const struct tensor *tensor)
{
	const struct step *softmax = fuse_only_maker(tensor, "Softmax");
	const struct attr *axis = softmax ? fuse_attr(softmax, "axis") : NULL;

	return axis && axis->i == tensor->shape.rank - 1 ? softmax->in[0] : NULL;
}

/* Return: the first product; *ret_mask is what is added to it, or NULL. */
static const struct step *scores_of(struct tensor *tensor, struct tensor **ret_mask, double *scale)
{
	const struct step *sum = fuse_only_maker(tensor, "Add"), *product;

	*ret_mask = NULL;
	for (unsigned int i = 0; sum && i < 2; i++) {
		*ret_mask = sum->in[1 - i];
		*scale = 1;
		product = fuse_only_maker(unscaled(sum->in[i], scale), "MatMul");
		if (product && shape_equal(&product->out[0]->shape, &tensor->shape))
			return product;
	}
	*scale = 1;
	return sum ? NULL : fuse_only_maker(unscaled(tensor, scale), "MatMul");
}

/* Attention allows masks of fewer keys, which are others than those that repeat. */
static bool is_mask(const struct tensor *mask, const struct shape *scores)
{
	const struct shape *shape = &mask->shape;

	return shape->rank >= 2 && shape->dims[shape->rank - 1] == scores->dims[3];
}

/* What @keys is with its last dimensions swapped, by another Transpose if need be. */
static struct tensor *swapped(struct graph *graph, struct tensor *keys)
{
	const struct step *transpose = fuse_maker(keys, "Transpose");
	const struct attr *perm = transpose ? fuse_attr(transpose, "perm") : NULL;
	bool is_identity = true;
	struct attr attr;
	int64_t *dims;

	if (!perm || perm->n != 4)
		return NULL;
	dims = graph_take(graph, 4 * sizeof(*dims));
	if (!dims)
		return NULL;
	for (unsigned int i = 0; i < 4; i++) {
		dims[i] = perm->ints[i < 2 ? i : 5 - i];
		is_identity &= dims[i] == i;
	}
	attr = ATTR_INTS("perm", dims, 4);
	return is_identity ? transpose->in[0]
			   : graph_emit_1(graph, "Transpose", &transpose->in[0], 1, &attr, 1);
}

bool fuse_attention(struct graph *graph, struct step *step)
{
	const uint32_t n_steps = graph->n_steps;
	double scale = 1, q_scale = 1, k_scale = 1;
	struct tensor *in[4], *mask, *scores;
	const struct step *product;
	struct attr attr;

	if (step->in[0]->shape.rank != 4 || step->in[1]->shape.rank != 4)
		return false;
	scores = softmax_of(step->in[0]);
	product = scores ? scores_of(scores, &mask, &scale) : NULL;
	if (!product || product->in[0]->shape.rank != 4 || product->in[1]->shape.rank != 4 ||
	    (mask && !is_mask(mask, &scores->shape)))
		return false;
	in[QUERIES] = unscaled(product->in[0], &q_scale);
	in[KEYS] = swapped(graph, unscaled(product->in[1], &k_scale));
	in[VALUES] = step->in[1];
	in[MASK] = mask;
	attr = ATTR_FLOAT("scale", (float)(scale * q_scale * k_scale));
	if (in[KEYS] && fuse_replace(graph, step, "Attention", in, mask ? 4 : 3, &attr, 1))
		return true;
	graph->n_steps = n_steps;
	return false;
}
