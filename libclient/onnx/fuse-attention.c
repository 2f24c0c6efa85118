/* SPDX-License-Identifier: MIT */
/*
 * Fusing two products and a Softmax into Attention
 *
 * The pattern is softmax(scale * q k^T + mask) v. Heads have their own dimension, or share one with
 * the batch, which is then an attention of one head. The scale follows the first product, or its
 * parts precede the operands. The keys come from a Transpose, which is undone. Often this Transpose
 * also moved the heads to the front; it is then only changed.
 */
#include "libclient/onnx/fuse.h"

enum { QUERIES, KEYS, VALUES, MASK };

/* Strip products with and quotients by known numbers from @tensor. Return: the rest. */
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

/* Match a Softmax along the last dimension that writes @tensor. Return: its input, or NULL. */
static struct tensor *softmax_of(const struct tensor *tensor)
{
	const struct step *softmax = fuse_only_maker(tensor, "Softmax");
	const struct attr *axis = softmax ? fuse_attr(softmax, "axis") : NULL;

	return axis && axis->i == tensor->shape.rank - 1 ? softmax->in[0] : NULL;
}

/* Return: the first product, or NULL; *ret_mask is the tensor added to it, or NULL. */
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

/*
 * Return true if the mask has as many keys as the scores. Attention also allows masks of fewer
 * keys, which do not broadcast.
 */
static bool is_mask(const struct tensor *mask, const struct shape *scores)
{
	const struct shape *shape = &mask->shape;

	return shape->rank >= 2 && shape->dims[shape->rank - 1] == scores->dims[scores->rank - 1];
}

/*
 * Return @keys with the last two dimensions swapped, by another Transpose if necessary; NULL: @keys
 * comes from no Transpose.
 */
static struct tensor *swapped(struct graph *graph, struct tensor *keys)
{
	const struct step *transpose = fuse_maker(keys, "Transpose");
	const struct attr *perm = transpose ? fuse_attr(transpose, "perm") : NULL;
	const unsigned int rank = keys->shape.rank;
	bool is_identity = true;
	struct attr attr;
	int64_t *dims;

	if (!perm || perm->n != rank)
		return NULL;
	dims = graph_take(graph, rank * sizeof(*dims));
	if (!dims)
		return NULL;
	for (unsigned int i = 0; i < rank; i++) {
		dims[i] = perm->ints[i + 2 < rank ? i : 2 * rank - 3 - i];
		is_identity &= dims[i] == i;
	}
	attr = ATTR_INTS("perm", dims, rank);
	return is_identity ? transpose->in[0]
			   : graph_emit_1(graph, "Transpose", &transpose->in[0], 1, &attr, 1);
}

/* Insert the dimension of the one head into a mask of [batch, queries, keys]. */
static struct tensor *mask_of_one_head(struct graph *graph, struct tensor *mask)
{
	struct shape shape;

	if (!mask || mask->shape.rank != 3)
		return mask;
	shape = mask->shape;
	shape.rank = 4;
	shape.dims[1] = 1;
	for (unsigned int i = 2; i < 4; i++)
		shape.dims[i] = mask->shape.dims[i - 1];
	return canon_reshape(graph, mask, &shape);
}

bool fuse_attention(struct graph *graph, struct step *step)
{
	const uint32_t n_steps = graph->n_steps;
	const unsigned int rank = step->in[0]->shape.rank;
	double scale = 1, q_scale = 1, k_scale = 1;
	struct tensor *in[4], *mask, *scores;
	const struct step *product;
	struct attr attrs[3];

	if ((rank != 3 && rank != 4) || step->in[1]->shape.rank != rank)
		return false;
	scores = softmax_of(step->in[0]);
	product = scores ? scores_of(scores, &mask, &scale) : NULL;
	if (!product || product->in[0]->shape.rank != rank || product->in[1]->shape.rank != rank ||
	    (mask && !is_mask(mask, &scores->shape)))
		return false;
	in[QUERIES] = unscaled(product->in[0], &q_scale);
	in[KEYS] = swapped(graph, unscaled(product->in[1], &k_scale));
	in[VALUES] = step->in[1];
	in[MASK] = rank == 3 ? mask_of_one_head(graph, mask) : mask;
	attrs[0] = ATTR_FLOAT("scale", (float)(scale * q_scale * k_scale));
	attrs[1] = ATTR_INT("q_num_heads", 1);
	attrs[2] = ATTR_INT("kv_num_heads", 1);
	if (in[KEYS] &&
	    fuse_replace(graph, step, "Attention", in, mask ? 4 : 3, attrs, rank == 3 ? 3 : 1))
		return true;
	graph->n_steps = n_steps;
	return false;
}
