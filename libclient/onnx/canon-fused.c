/* SPDX-License-Identifier: MIT */
/*
 * Rules: operators that ONNX Runtime's optimiser writes in the place of several nodes
 *
 * They are of domain com.microsoft, except SimplifiedLayerNormalization, which is in ONNX's own
 * domain. They become the ONNX operators for which they stand; forms that these operators lack are
 * refused.
 */
#include "libclient/onnx/canon.h"

/* ---- Products ---- */

static struct tensor *last_two_swapped(struct graph *graph, struct tensor *x)
{
	const unsigned int rank = x->shape.rank;
	int64_t *perm = graph_zero(graph, RBK_MAX_RANK, sizeof(*perm));
	struct attr attr;

	if (!perm || !x->known)
		return graph_unknown(graph);
	/* Vectors stay unchanged. */
	if (rank < 2)
		return x;
	for (unsigned int i = 0; i < rank; i++)
		perm[i] = i;
	perm[rank - 2] = rank - 1;
	perm[rank - 1] = rank - 2;
	attr = ATTR_INTS("perm", perm, rank);
	return canon_unary(graph, "Transpose", x, &attr, 1);
}

/* Multiply @x by a number of its type. */
static struct tensor *scaled(struct graph *graph, struct tensor *x, float by)
{
	if (by == 1 || !x->known)
		return x;
	return canon_binary(graph, "Mul", x, graph_scalar(graph, x->dtype, (double)by));
}

void canon_fused_mat_mul(struct graph *graph)
{
	const bool trans_a = canon_int(graph, "transA", 0) != 0;
	const bool trans_b = canon_int(graph, "transB", 0) != 0;
	const float alpha = canon_float(graph, "alpha", 1);
	struct tensor *a = canon_in(graph, 0), *b = canon_in(graph, 1);

	for (unsigned int i = 0; i < 2; i++)
		if (canon_int(graph, i ? "transBatchB" : "transBatchA", 0) != 0) {
			graph_refuse(graph, "attribute \"%s\" must be 0",
				     i ? "transBatchB" : "transBatchA");
			return;
		}
	if (trans_a && a->shape.dynamic && a->shape.rank == 2) {
		graph_refuse(graph, "with transA it would add up different rows of the batch");
		return;
	}
	if (trans_a)
		a = last_two_swapped(graph, a);
	if (trans_b)
		b = last_two_swapped(graph, b);
	canon_out(graph, 0, scaled(graph, canon_binary(graph, "MatMul", a, b), alpha));
}

/* ---- Activations ---- */

/* BiasGelu, FastGelu and Gelu: FastGelu uses the approximation by tanh. */
void canon_biased_gelu(struct graph *graph)
{
	const bool is_fast = !strcmp(graph->node->proto->op_type, "FastGelu");
	const struct attr attr = ATTR_STRING("approximate", is_fast ? "tanh" : "none");
	struct tensor *x = canon_in(graph, 0), *bias = canon_in(graph, 1);

	if (bias && bias->shape.rank != 1) {
		graph_refuse(graph, "its input \"%s\" is %s, expected one dimension", bias->name,
			     SHAPE_TEXT(&bias->shape));
		return;
	}
	if (bias)
		x = canon_binary(graph, "Add", x, bias);
	canon_out(graph, 0, canon_unary(graph, "Gelu", x, &attr, 1));
}

void canon_quick_gelu(struct graph *graph)
{
	const struct attr attr = ATTR_FLOAT("alpha", canon_float(graph, "alpha", 1.702f));

	canon_out(graph, 0, canon_unary(graph, "Swish", canon_in(graph, 0), &attr, 1));
}

/* ---- Normalisation ---- */

/* Cast float16 to float32, the accumulator type of sums. */
static struct tensor *wide(struct graph *graph, struct tensor *x)
{
	return OP_FLOATS & OP_TYPE(x->dtype) ? canon_cast(graph, x, RBK_ONNX_F32) : x;
}

/* Check that @tensor is a list with one element for each of @x's last dimension. */
static bool check_list(struct graph *graph, const struct tensor *tensor, const struct tensor *x)
{
	if (!tensor || (tensor->shape.rank == 1 && !tensor->shape.dynamic && x->shape.rank > 0 &&
			tensor->shape.dims[0] == x->shape.dims[x->shape.rank - 1]))
		return true;
	graph_refuse(graph,
		     "its input \"%s\" is %s, expected one element for each of the last "
		     "dimension of %s",
		     tensor->name, SHAPE_TEXT(&tensor->shape), SHAPE_TEXT(&x->shape));
	return false;
}

/*
 * Emit LayerNormalization or RMSNormalization of the sum of input, skip and bias, with their
 * outputs, and the sum as the last output.
 */
static void skip_norm(struct graph *graph, bool is_rms)
{
	const unsigned int bias_at = is_rms ? 3 : 4;
	const struct attr attrs[] = {ATTR_INT("axis", -1),
				     ATTR_FLOAT("epsilon", canon_float(graph, "epsilon", 1e-12f))};
	struct tensor *x = canon_in(graph, 0), *skip = canon_in(graph, 1), *in[3], *out[3], *sum;
	struct tensor *bias = canon_in(graph, bias_at);
	const uint32_t dtype = x->dtype;
	unsigned int n_in = 2, n_out = 1;

	in[1] = canon_in(graph, 2);
	in[2] = is_rms ? NULL : canon_in(graph, 3);
	if (!check_list(graph, in[1], x) || !check_list(graph, in[2], x) ||
	    !check_list(graph, bias, x))
		return;
	for (unsigned int i = 1; i < 3; i++) {
		if (!canon_wants(graph, i))
			continue;
		if (is_rms) {
			graph_refuse(graph, "output %u is for training only", i);
			return;
		}
		n_out = i + 1;
	}
	sum = canon_binary(graph, "Add", wide(graph, x), wide(graph, skip));
	if (sum->known && !shape_equal(&sum->shape, &x->shape)) {
		graph_refuse(graph, "its input \"%s\" is %s, expected one that is added to %s",
			     skip->name, SHAPE_TEXT(&skip->shape), SHAPE_TEXT(&x->shape));
		return;
	}
	if (bias)
		sum = canon_binary(graph, "Add", sum, wide(graph, bias));
	in[0] = sum;
	in[1] = wide(graph, in[1]);
	if (in[2]) {
		in[2] = wide(graph, in[2]);
		n_in = 3;
	}
	graph_emit(graph, is_rms ? "RMSNormalization" : "LayerNormalization", in, n_in, out, n_out,
		   attrs, ARRAY_SIZE(attrs));
	canon_out(graph, 0, canon_cast(graph, out[0], dtype));
	for (unsigned int i = 1; i < n_out; i++)
		canon_out(graph, i, out[i]);
	if (canon_wants(graph, 3))
		canon_out(graph, 3, canon_cast(graph, sum, dtype));
}

void canon_skip_layer_norm(struct graph *graph)
{
	skip_norm(graph, false);
}

void canon_skip_rms_norm(struct graph *graph)
{
	skip_norm(graph, true);
}

/* ---- Attention ---- */

/* Add the slice of the bias that starts at @start to @x; the bias is that of all heads. */
static struct tensor *with_bias(struct graph *graph, struct tensor *x, struct tensor *bias,
				int64_t start)
{
	int64_t *ints = graph_zero(graph, 4, sizeof(*ints));
	struct attr attrs[4];

	if (!bias || !ints || !x->known)
		return x;
	ints[0] = start;
	ints[1] = start + x->shape.dims[2];
	ints[3] = 1;
	attrs[0] = ATTR_INTS("starts", ints, 1);
	attrs[1] = ATTR_INTS("ends", ints + 1, 1);
	attrs[2] = ATTR_INTS("axes", ints + 2, 1);
	attrs[3] = ATTR_INTS("steps", ints + 3, 1);
	return canon_binary(graph, "Add", x, canon_unary(graph, "Slice", bias, attrs, 4));
}

/* Refuse forms that ONNX's Attention lacks. Return: true after a refusal. */
static bool refuse_form(struct graph *graph)
{
	static const struct {
		unsigned int i;
		const char *what;
	} absent[] = {
		{4, "key_padding_mask"},
		{8, "past_sequence_length"},
		{9, "cache_indirection"},
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(absent); i++)
		if (canon_in(graph, absent[i].i)) {
			graph_refuse(graph, "its input %u, %s, is given, expected none",
				     absent[i].i, absent[i].what);
			return true;
		}
	for (unsigned int i = 0; i < 3; i++) {
		const struct tensor *x = canon_in(graph, i);

		if (x && x->shape.rank == 3)
			continue;
		graph_refuse(graph,
			     "its input %u, the %s, is %s, expected [batch, sequence, heads * "
			     "size], each of its own",
			     i,
			     i == 0   ? "query"
			     : i == 1 ? "keys"
				      : "values",
			     x ? SHAPE_TEXT(&x->shape) : "missing");
		return true;
	}
	/* With fewer queries than keys, the positions of the queries are ambiguous. */
	if (canon_int(graph, "unidirectional", 0) != 0 &&
	    (canon_in(graph, 6) ||
	     canon_in(graph, 0)->shape.dims[1] != canon_in(graph, 1)->shape.dims[1])) {
		graph_refuse(graph, "attribute \"unidirectional\" is not 0, but there are not as "
				    "many keys as queries");
		return true;
	}
	if (canon_wants(graph, 3)) {
		graph_refuse(graph, "output 3, qk, is not supported");
		return true;
	}
	return false;
}

void canon_multi_head_attention(struct graph *graph)
{
	const int64_t n_heads = canon_int(graph, "num_heads", 0);
	const float scale = canon_float(graph, "scale", 0);
	struct tensor *bias = canon_in(graph, 3), *in[6], *out[3];
	unsigned int n_in = 3, n_out = 1, n_attrs = 0;
	struct attr attrs[4];
	int64_t start = 0;

	/* The attribute is for masks of 0 and 1, which are refused. */
	canon_ignore(graph, "mask_filter_value");
	if (refuse_form(graph))
		return;
	for (unsigned int i = 0; i < 3; i++) {
		struct tensor *x = canon_in(graph, i);

		in[i] = with_bias(graph, x, bias, start);
		start += x->shape.dims[2];
	}
	if (bias &&
	    (bias->shape.rank != 1 || bias->shape.dynamic || bias->shape.dims[0] != start)) {
		graph_refuse(graph, "its input \"%s\" is %s, expected [%lld]", bias->name,
			     SHAPE_TEXT(&bias->shape), (long long)start);
		return;
	}
	in[3] = canon_in(graph, 5);
	in[4] = canon_in(graph, 6);
	in[5] = canon_in(graph, 7);
	for (unsigned int i = 3; i < 6; i++)
		if (in[i])
			n_in = i + 1;
	for (unsigned int i = 1; i < 3; i++)
		if (canon_wants(graph, i))
			n_out = i + 1;
	attrs[n_attrs++] = ATTR_INT("q_num_heads", n_heads);
	attrs[n_attrs++] = ATTR_INT("kv_num_heads", n_heads);
	attrs[n_attrs++] = ATTR_INT("is_causal", canon_int(graph, "unidirectional", 0) != 0);
	if (scale != 0)
		attrs[n_attrs++] = ATTR_FLOAT("scale", scale);
	graph_emit(graph, "Attention", in, n_in, out, n_out, attrs, n_attrs);
	for (unsigned int i = 0; i < n_out; i++)
		canon_out(graph, i, out[i]);
}
