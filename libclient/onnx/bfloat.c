/* SPDX-License-Identifier: MIT */
/*
 * Bfloat16
 *
 * The catalogue moves and casts bfloat16, but does not compute with it. A node that computes
 * therefore reads its bfloat16 inputs as float32, computes in float32, including all sums, and
 * rounds each output once to bfloat16. Values between two nodes are rounded, as the model
 * specifies, and patterns are not searched across a rounding. No tensor is cast twice.
 *
 * A rounding is omitted where it has no effect. Some operators only select elements, or change
 * their sign. Their result for bfloat16 inputs is exact. If an input was rounded, their result is
 * the rounded result for the unrounded input. An activation can thereby be fused with the operator
 * before it.
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
 * Return true if the node only moves elements, or reads only types and shapes: the catalogue's
 * operator accepts bfloat16, and the rule itself computes nothing.
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

/*
 * Return true if the node commutes with rounding. MaxPool with indices does not: it may find
 * another of several elements that rounding makes equal.
 */
static bool selects(const struct model_node *node)
{
	static const char *const names[] = {
		"Abs", "GlobalMaxPool", "Max",       "MaxPool", "Min",
		"Neg", "ReduceMax",     "ReduceMin", "Relu",
	};

	return is_one_of(node, names, ARRAY_SIZE(names)) &&
	       (node->n_out < 2 || node->out[1] == ONNX_ABSENT);
}

/* Return true if the node's inputs may be of several float types. */
static bool may_mix(const struct model_node *node)
{
	static const char *const names[] = {
		"Attention", "BatchNormalization", "DequantizeLinear", "Pow", "QuantizeLinear",
		"Resize",    "RMSNormalization",
	};

	return node->domain[0] || is_one_of(node, names, ARRAY_SIZE(names));
}

/*
 * Refuse a node that mixes bfloat16 with another float type. The catalogue would refuse it, but
 * sees only float32 after the casts.
 */
static void check_types(struct graph *graph)
{
	const struct model_node *node = graph->node;

	for (uint32_t i = 0; i < node->n_in && !may_mix(node); i++) {
		const struct tensor *in =
			node->in[i] == ONNX_ABSENT ? NULL : graph->values[node->in[i]];

		if (!in || !in->known || in->dtype == RBK_ONNX_BF16 || !eval_is_float(in->dtype))
			continue;
		graph_refuse(graph, "its input \"%s\" is %s, but another input is bfloat16",
			     in->name, rbk_onnx_dtype_name(in->dtype));
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

/*
 * Return the input that determines the type of output @i; ONNX_ABSENT: the output is always
 * float32.
 */
static uint32_t type_giver(struct graph *graph, unsigned int i)
{
	const struct model_node *node = graph->node;
	const char *op = node->proto->op_type;

	if (!strcmp(op, "LayerNormalization") && i > 0)
		return ONNX_ABSENT;
	/* The last output is the sum. */
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
