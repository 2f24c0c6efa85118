/* SPDX-License-Identifier: MIT */
/*
 * Bfloat16
 *
 * The catalogue moves and casts it, and computes with none. So nodes that compute read their
 * bfloat16 inputs as float32, compute in float32, with all sums, and are rounded to bfloat16
 * behind, once each: what lies between two nodes is rounded, as the model says it is, and patterns
 * are not looked for across that. No tensor is cast twice.
 *
 * A rounding is left out where that changes nothing. Some operators only select elements, or change
 * their sign: what they give of bfloat16s is exact, and of something that was rounded it is what
 * they give of the unrounded, rounded. That brings an activation back to what it is applied to.
 */
#include "libclient/onnx/canon.h"

static bool is_one_of(const struct model_node *node, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n && !node->domain[0]; i++)
		if (!strcmp(names[i], node->proto->op_type))
			return true;
	return false;
}

static bool is_bfloat(const struct tensor *tensor)
{
	return tensor && tensor->known && tensor->dtype == RBK_ONNX_BF16;
}

static bool takes_bfloat(const struct op *op)
{
	for (unsigned int i = 0; op && i < OP_MAX_CLASSES; i++)
		if (op->classes[i].cpu & OP_BFLOAT16)
			return true;
	return false;
}

/*
 * Does it put elements elsewhere, or look at nothing but types and shapes? What the catalogue's
 * operator for it takes as it is, unless the rule computes something, too.
 */
static bool moves(const struct model_node *node, const struct canon *canon)
{
	static const char *const computing[] = {"Hardmax", "NonZero", "Range"};

	if (!canon || node->domain[0] || is_one_of(node, computing, ARRAY_SIZE(computing)) ||
	    !takes_bfloat(op_by_name(canon->needs ? canon->needs : canon->op)))
		return false;
	for (size_t i = 0; i < node->proto->n_attribute; i++) {
		const Onnx__AttributeProto *attr = node->proto->attribute[i];

		if (!strcmp(attr->name, "reduction") &&
		    (attr->s.len != 4 || memcmp(attr->s.data, "none", 4)))
			return false;
	}
	return true;
}

/* Does it commute with rounding? MaxPool's indices would find other ones of equal elements. */
static bool selects(const struct model_node *node)
{
	static const char *const names[] = {
		"Abs", "GlobalMaxPool", "Max",       "MaxPool", "Min",
		"Neg", "ReduceMax",     "ReduceMin", "Relu",
	};

	return is_one_of(node, names, ARRAY_SIZE(names)) &&
	       (node->n_out < 2 || node->out[1] == ONNX_ABSENT);
}

/* May its inputs be of several types of floating point? */
static bool may_mix(const struct model_node *node)
{
	static const char *const names[] = {
		"Attention", "BatchNormalization", "DequantizeLinear", "Pow", "QuantizeLinear",
		"Resize",    "RMSNormalization",
	};

	return node->domain[0] || is_one_of(node, names, ARRAY_SIZE(names));
}

/* What the catalogue would say, if it saw what there was before the casts. */
static void check_types(struct graph *graph)
{
	const struct model_node *node = graph->node;

	for (uint32_t i = 0; i < node->n_in && !may_mix(node); i++) {
		const struct tensor *in =
			node->in[i] == ONNX_ABSENT ? NULL : graph->values[node->in[i]];

		if (!in || !in->known || in->dtype == RBK_ONNX_BF16 || !eval_is_float(in->dtype))
			continue;
		graph_refuse(graph, "its input \"%s\" is %s, and another one bfloat16", in->name,
			     rbk_onnx_dtype_name(in->dtype));
		return;
	}
}

void bfloat_begin(struct graph *graph, const struct canon *canon)
{
	const struct model_node *node = graph->node;

	graph->computes_bfloat = false;
	for (uint32_t i = 0; i < node->n_in; i++)
		if (node->in[i] != ONNX_ABSENT)
			graph->computes_bfloat |= is_bfloat(graph_value(graph, node->in[i]));
	graph->computes_bfloat &= !moves(node, canon);
	graph->selects_bfloat = graph->computes_bfloat && selects(node);
	if (graph->computes_bfloat)
		check_types(graph);
}

struct tensor *bfloat_in(struct graph *graph, struct tensor *tensor)
{
	if (!graph->computes_bfloat || !is_bfloat(tensor))
		return tensor;
	if (graph->selects_bfloat && tensor->unrounded)
		return tensor->unrounded;
	return bfloat_widen(graph, tensor);
}

/* The input that says what type output @i has; ONNX_ABSENT: it is always float32. */
static uint32_t type_giver(struct graph *graph, unsigned int i)
{
	const struct model_node *node = graph->node;
	const char *op = node->proto->op_type;

	if (!strcmp(op, "LayerNormalization") && i > 0)
		return ONNX_ABSENT;
	/* The last one is the sum. */
	if (!strcmp(op, "SkipLayerNormalization") && i > 0 && i < 3)
		return ONNX_ABSENT;
	if (!strcmp(op, "DequantizeLinear")) {
		const int64_t asked = canon_int(graph, "output_dtype", 0);

		if (asked && asked != RBK_ONNX_BF16)
			return ONNX_ABSENT;
	}
	if (!strcmp(op, "RMSNormalization"))
		return node->in[1];
	if (!strcmp(op, "BatchNormalization") && i > 0)
		return node->in[3];
	for (uint32_t j = 0; j < node->n_in; j++)
		if (node->in[j] != ONNX_ABSENT && eval_is_float(graph->values[node->in[j]]->dtype))
			return node->in[j];
	return ONNX_ABSENT;
}

struct tensor *bfloat_out(struct graph *graph, unsigned int i, struct tensor *tensor)
{
	const struct model_node *node = graph->node;
	bool is_exact = graph->selects_bfloat;
	struct tensor *rounded;
	uint32_t giver;

	if (!graph->computes_bfloat || !tensor->known || tensor->dtype != RBK_ONNX_F32)
		return tensor;
	giver = type_giver(graph, i);
	if (giver == ONNX_ABSENT || !is_bfloat(graph->values[giver]))
		return tensor;
	for (uint32_t j = 0; j < node->n_in; j++) {
		struct tensor *in = node->in[j] == ONNX_ABSENT ? NULL : graph->values[node->in[j]];

		if (!is_bfloat(in))
			continue;
		/* The node changed nothing. */
		if (tensor == in->widened || tensor == in->unrounded)
			return in;
		is_exact &= !in->unrounded;
	}
	rounded = canon_cast(graph, tensor, RBK_ONNX_BF16);
	if (!rounded->known || rounded->constant)
		return rounded;
	if (is_exact)
		rounded->widened = tensor;
	else
		rounded->unrounded = tensor;
	return rounded;
}
