/* SPDX-License-Identifier: MIT */
/*
 * The operators of ONNX that are read
 *
 * One row per operator: since which opset there is one of the name, up to which, how many inputs
 * and outputs it may have in any of the opsets that are read, and its rule. What differs between
 * opsets is in the rules.
 */
#include "libclient/onnx/canon.h"

#include <errno.h>

#define ANY 255

static const struct canon table[] = {
	/* Element by element */
	{"Abs", 1, 0, 1, 1, 1, NULL, canon_same},
	{"Acos", 7, 0, 1, 1, 1, NULL, canon_same},
	{"Acosh", 9, 0, 1, 1, 1, NULL, canon_same},
	{"Add", 1, 0, 2, 2, 1, NULL, canon_legacy_binary},
	{"And", 1, 0, 2, 2, 1, NULL, canon_legacy_binary},
	{"Asin", 7, 0, 1, 1, 1, NULL, canon_same},
	{"Asinh", 9, 0, 1, 1, 1, NULL, canon_same},
	{"Atan", 7, 0, 1, 1, 1, NULL, canon_same},
	{"Atanh", 9, 0, 1, 1, 1, NULL, canon_same},
	{"BitShift", 11, 0, 2, 2, 1, NULL, canon_same},
	{"BitwiseAnd", 18, 0, 2, 2, 1, NULL, canon_same},
	{"BitwiseNot", 18, 0, 1, 1, 1, NULL, canon_same},
	{"BitwiseOr", 18, 0, 2, 2, 1, NULL, canon_same},
	{"BitwiseXor", 18, 0, 2, 2, 1, NULL, canon_same},
	{"Cast", 1, 0, 1, 1, 1, NULL, canon_cast_node},
	{"CastLike", 15, 0, 2, 2, 1, "Cast", canon_cast_like},
	{"Ceil", 1, 0, 1, 1, 1, NULL, canon_same},
	{"Celu", 12, 0, 1, 1, 1, NULL, canon_same},
	{"Clip", 1, 0, 1, 3, 1, NULL, canon_clip},
	{"Cos", 7, 0, 1, 1, 1, NULL, canon_same},
	{"Cosh", 9, 0, 1, 1, 1, NULL, canon_same},
	{"Div", 1, 0, 2, 2, 1, NULL, canon_legacy_binary},
	{"Elu", 1, 0, 1, 1, 1, NULL, canon_same},
	{"Equal", 1, 0, 2, 2, 1, NULL, canon_legacy_binary},
	{"Erf", 9, 0, 1, 1, 1, NULL, canon_same},
	{"Exp", 1, 0, 1, 1, 1, NULL, canon_same},
	{"Floor", 1, 0, 1, 1, 1, NULL, canon_same},
	{"Gelu", 20, 0, 1, 1, 1, NULL, canon_same},
	{"Greater", 1, 0, 2, 2, 1, NULL, canon_legacy_binary},
	{"GreaterOrEqual", 12, 0, 2, 2, 1, NULL, canon_same},
	{"HardSigmoid", 1, 0, 1, 1, 1, NULL, canon_same},
	{"HardSwish", 14, 0, 1, 1, 1, NULL, canon_same},
	{"IsInf", 10, 0, 1, 1, 1, NULL, canon_same},
	{"IsNaN", 9, 0, 1, 1, 1, NULL, canon_same},
	{"LeakyRelu", 1, 0, 1, 1, 1, NULL, canon_same},
	{"Less", 1, 0, 2, 2, 1, NULL, canon_legacy_binary},
	{"LessOrEqual", 12, 0, 2, 2, 1, NULL, canon_same},
	{"Log", 1, 0, 1, 1, 1, NULL, canon_same},
	{"Max", 1, 0, 1, ANY, 1, NULL, canon_variadic},
	{"Mean", 1, 0, 1, ANY, 1, "Add", canon_variadic},
	{"Min", 1, 0, 1, ANY, 1, NULL, canon_variadic},
	{"Mish", 18, 0, 1, 1, 1, NULL, canon_same},
	{"Mod", 10, 0, 2, 2, 1, NULL, canon_same},
	{"Mul", 1, 0, 2, 2, 1, NULL, canon_legacy_binary},
	{"Neg", 1, 0, 1, 1, 1, NULL, canon_same},
	{"Not", 1, 0, 1, 1, 1, NULL, canon_same},
	{"Or", 1, 0, 2, 2, 1, NULL, canon_legacy_binary},
	{"PRelu", 1, 0, 2, 2, 1, NULL, canon_prelu},
	{"Pow", 1, 0, 2, 2, 1, NULL, canon_pow},
	{"Reciprocal", 1, 0, 1, 1, 1, NULL, canon_same},
	{"Relu", 1, 0, 1, 1, 1, NULL, canon_same},
	{"Round", 11, 0, 1, 1, 1, NULL, canon_same},
	{"Selu", 1, 0, 1, 1, 1, NULL, canon_same},
	{"Shrink", 9, 0, 1, 1, 1, "Where", canon_shrink},
	{"Sigmoid", 1, 0, 1, 1, 1, NULL, canon_same},
	{"Sign", 9, 0, 1, 1, 1, NULL, canon_same},
	{"Sin", 7, 0, 1, 1, 1, NULL, canon_same},
	{"Sinh", 9, 0, 1, 1, 1, NULL, canon_same},
	{"Softplus", 1, 0, 1, 1, 1, NULL, canon_same},
	{"Softsign", 1, 0, 1, 1, 1, NULL, canon_same},
	{"Sqrt", 1, 0, 1, 1, 1, NULL, canon_same},
	{"Sub", 1, 0, 2, 2, 1, NULL, canon_legacy_binary},
	{"Sum", 1, 0, 1, ANY, 1, "Add", canon_variadic},
	{"Swish", 24, 0, 1, 1, 1, NULL, canon_same},
	{"Tan", 7, 0, 1, 1, 1, NULL, canon_same},
	{"Tanh", 1, 0, 1, 1, 1, NULL, canon_same},
	{"ThresholdedRelu", 10, 0, 1, 1, 1, NULL, canon_same},
	{"Where", 9, 0, 3, 3, 1, NULL, canon_same},
	{"Xor", 1, 0, 2, 2, 1, NULL, canon_legacy_binary},

	/* Products, windows, normalisation, attention */
	{"Attention", 23, 0, 3, 7, 4, NULL, canon_attention},
	{"AveragePool", 1, 0, 1, 1, 1, NULL, canon_same},
	{"BatchNormalization", 1, 0, 5, 5, 5, NULL, canon_batch_norm},
	{"Conv", 1, 0, 2, 3, 1, NULL, canon_same},
	{"ConvInteger", 10, 0, 2, 4, 1, NULL, canon_conv_bytes},
	{"ConvTranspose", 1, 0, 2, 3, 1, NULL, canon_same},
	{"Gemm", 1, 0, 2, 3, 1, NULL, canon_gemm},
	{"GlobalAveragePool", 1, 0, 1, 1, 1, "ReduceMean", canon_global_pool},
	{"GlobalLpPool", 1, 0, 1, 1, 1, "LpPool", canon_global_pool},
	{"GlobalMaxPool", 1, 0, 1, 1, 1, "ReduceMax", canon_global_pool},
	{"GroupNormalization", 18, 0, 3, 3, 1, NULL, canon_group_norm},
	{"InstanceNormalization", 1, 0, 3, 3, 1, NULL, canon_same},
	{"LRN", 1, 0, 1, 1, 1, "AveragePool", canon_lrn},
	{"LayerNormalization", 17, 0, 2, 3, 3, NULL, canon_layer_norm},
	{"LpNormalization", 1, 0, 1, 1, 1, NULL, canon_same},
	{"LpPool", 1, 0, 1, 1, 1, NULL, canon_same},
	{"MatMul", 1, 0, 2, 2, 1, NULL, canon_mat_mul},
	{"MatMulInteger", 10, 0, 2, 4, 1, NULL, canon_mat_mul_integer},
	{"MaxPool", 1, 0, 1, 1, 2, NULL, canon_same},
	{"MeanVarianceNormalization", 9, 0, 1, 1, 1, "ReduceMean", canon_mean_variance},
	{"QLinearConv", 10, 0, 8, 9, 1, NULL, canon_conv_bytes},
	{"QLinearMatMul", 10, 0, 8, 8, 1, NULL, canon_same},
	{"RMSNormalization", 23, 0, 2, 2, 1, NULL, canon_rms_norm},
	{"RotaryEmbedding", 23, 0, 3, 4, 1, NULL, canon_same},

	/* Along dimensions */
	{"ArgMax", 1, 0, 1, 1, 1, NULL, canon_arg},
	{"ArgMin", 1, 0, 1, 1, 1, NULL, canon_arg},
	{"CumSum", 11, 0, 2, 2, 1, NULL, canon_cum_sum, 0x2},
	{"Hardmax", 1, 0, 1, 1, 1, "OneHot", canon_softmax},
	{"LogSoftmax", 1, 0, 1, 1, 1, NULL, canon_softmax},
	{"ReduceL1", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2},
	{"ReduceL2", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2},
	{"ReduceLogSum", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2},
	{"ReduceLogSumExp", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2},
	{"ReduceMax", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2},
	{"ReduceMean", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2},
	{"ReduceMin", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2},
	{"ReduceProd", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2},
	{"ReduceSum", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2},
	{"ReduceSumSquare", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2},
	{"Softmax", 1, 0, 1, 1, 1, NULL, canon_softmax},
	{"TopK", 1, 0, 1, 2, 2, NULL, canon_top_k, 0x2},

	/* Moving elements */
	{"Compress", 9, 0, 2, 2, 1, "Gather", canon_compress, 0x2},
	{"Concat", 1, 0, 1, ANY, 1, NULL, canon_concat},
	{"DepthToSpace", 1, 0, 1, 1, 1, "Transpose", canon_depth_space},
	{"Dropout", 1, 0, 1, 3, 2, "Reshape", canon_dropout, 0x6},
	{"Expand", 8, 0, 2, 2, 1, NULL, canon_expand, 0x2},
	{"Flatten", 1, 0, 1, 1, 1, "Reshape", canon_flatten},
	{"Gather", 1, 0, 2, 2, 1, NULL, canon_gather},
	{"GatherElements", 11, 0, 2, 2, 1, NULL, canon_gather},
	{"GatherND", 11, 0, 2, 2, 1, NULL, canon_gather},
	{"Identity", 1, 0, 1, 1, 1, "Reshape", canon_identity},
	{"OneHot", 9, 0, 3, 3, 1, NULL, canon_one_hot, 0x2},
	{"Pad", 1, 0, 1, 4, 1, NULL, canon_pad, 0xe},
	{"Reshape", 1, 0, 1, 2, 1, NULL, canon_reshape_node, 0x2},
	{"Resize", 10, 0, 1, 4, 1, "MatMul", canon_resize, 0xe},
	{"ReverseSequence", 10, 0, 2, 2, 1, "GatherND", canon_reverse_sequence, 0x2},
	{"Scatter", 9, 10, 3, 3, 1, "ScatterElements", canon_scatter},
	{"ScatterElements", 11, 0, 3, 3, 1, NULL, canon_scatter},
	{"ScatterND", 11, 0, 3, 3, 1, NULL, canon_scatter},
	{"Slice", 1, 0, 1, 5, 1, NULL, canon_slice, 0x1e},
	{"SpaceToDepth", 1, 0, 1, 1, 1, "Transpose", canon_depth_space},
	{"Split", 1, 0, 1, 2, ANY, NULL, canon_split, 0x2},
	{"Squeeze", 1, 0, 1, 2, 1, "Reshape", canon_squeeze, 0x2},
	{"TensorScatter", 24, 0, 2, 3, 1, "ScatterElements", canon_tensor_scatter},
	{"Tile", 1, 0, 2, 3, 1, NULL, canon_tile, 0x2},
	{"Transpose", 1, 0, 1, 1, 1, NULL, canon_transpose},
	{"Trilu", 14, 0, 1, 2, 1, NULL, canon_trilu, 0x2},
	{"Unsqueeze", 1, 0, 1, 2, 1, "Reshape", canon_unsqueeze, 0x2},
	{"Upsample", 1, 9, 1, 2, 1, "MatMul", canon_resize, 0x2},

	/* Control flow */
	{"If", 1, 0, 1, 1, ANY, "Reshape", canon_if, 0x1},

	/* Constants and shapes */
	{"Constant", 1, 0, 0, 0, 1, "Reshape", canon_constant},
	{"ConstantOfShape", 9, 0, 1, 1, 1, "Reshape", canon_constant_of_shape, 0x1},
	{"EyeLike", 9, 0, 1, 1, 1, "Reshape", canon_eye_like},
	{"NonZero", 9, 0, 1, 1, 1, "Reshape", canon_non_zero, 0x1},
	{"Range", 11, 0, 3, 3, 1, "Reshape", canon_range, 0x7},
	{"Shape", 1, 0, 1, 1, 1, "Reshape", canon_shape},
	{"Size", 1, 0, 1, 1, 1, "Reshape", canon_size},

	/* Quantized; those of four bits are no operator of ONNX's own */
	{"com.microsoft.MatMulNBits", 1, 0, 3, 6, 1, "MatMulNBits", canon_mat_mul_nbits},
	{"DequantizeLinear", 10, 0, 2, 3, 1, NULL, canon_dequantize},
	{"DynamicQuantizeLinear", 11, 0, 1, 1, 3, NULL, canon_same},
	{"QuantizeLinear", 10, 0, 2, 3, 1, NULL, canon_quantize},

	/* ONNX Runtime's; the first one it has among ONNX's own, too */
	{"SimplifiedLayerNormalization", 1, 0, 2, 2, 1, "RMSNormalization", canon_rms_norm},
	{"com.microsoft.SimplifiedLayerNormalization", 1, 0, 2, 2, 1, "RMSNormalization",
	 canon_rms_norm},
	{"com.microsoft.BiasGelu", 1, 0, 2, 2, 1, "Gelu", canon_biased_gelu},
	{"com.microsoft.DequantizeLinear", 1, 0, 2, 3, 1, "DequantizeLinear", canon_dequantize},
	{"com.microsoft.FastGelu", 1, 0, 1, 2, 1, "Gelu", canon_biased_gelu},
	{"com.microsoft.FusedMatMul", 1, 0, 2, 2, 1, "MatMul", canon_fused_mat_mul},
	{"com.microsoft.Gelu", 1, 0, 1, 1, 1, "Gelu", canon_biased_gelu},
	{"com.microsoft.MultiHeadAttention", 1, 0, 3, 10, 4, "Attention",
	 canon_multi_head_attention},
	{"com.microsoft.QGemm", 1, 0, 5, 9, 1, "Gemm", canon_qgemm},
	{"com.microsoft.QLinearAdd", 1, 0, 7, 8, 1, "Add", canon_qlinear_binary},
	{"com.microsoft.QLinearAveragePool", 1, 0, 4, 5, 1, "AveragePool", canon_qlinear_pool},
	{"com.microsoft.QLinearConcat", 1, 0, 5, ANY, 1, "Concat", canon_qlinear_concat},
	{"com.microsoft.QLinearGlobalAveragePool", 1, 0, 4, 5, 1, "ReduceMean",
	 canon_qlinear_global_pool},
	{"com.microsoft.QLinearLeakyRelu", 1, 0, 4, 5, 1, "LeakyRelu", canon_qlinear_unary},
	{"com.microsoft.QLinearMul", 1, 0, 7, 8, 1, "Mul", canon_qlinear_binary},
	{"com.microsoft.QLinearSigmoid", 1, 0, 4, 5, 1, "Sigmoid", canon_qlinear_unary},
	{"com.microsoft.QLinearSoftmax", 1, 0, 4, 5, 1, "Softmax", canon_qlinear_softmax},
	{"com.microsoft.QuantizeLinear", 1, 0, 2, 3, 1, "QuantizeLinear", canon_quantize},
	{"com.microsoft.QuickGelu", 1, 0, 1, 1, 1, "Swish", canon_quick_gelu},
	{"com.microsoft.SkipLayerNormalization", 1, 0, 3, 5, 4, "LayerNormalization",
	 canon_skip_layer_norm},
	{"com.microsoft.SkipSimplifiedLayerNormalization", 1, 0, 3, 4, 4, "RMSNormalization",
	 canon_skip_rms_norm},
};

/* May input @i be left out, although others behind it are not? Its rule looks which are there. */
static bool may_be_absent(const struct canon *canon, uint32_t i)
{
	return i > 0 && (!strncmp(canon->op, "com.microsoft.QLinear", 21) ||
			 !strcmp(canon->op, "com.microsoft.QGemm"));
}

/*
 * The operator of a row of that domain, "" being ONNX's own; NULL: it is of another one. Domains
 * have dots, operators none: a file may put them elsewhere.
 */
static const char *name_in(const struct canon *canon, const char *domain)
{
	const char *dot = strrchr(canon->op, '.');
	const size_t n = dot ? (size_t)(dot - canon->op) : 0;

	if (strlen(domain) != n || strncmp(canon->op, domain, n))
		return NULL;
	return dot ? dot + 1 : canon->op;
}

static const struct canon *find_rule(const char *domain, const char *op)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const char *name = name_in(&table[i], domain);

		if (name && !strcmp(name, op))
			return &table[i];
	}
	return NULL;
}

const struct canon *canon_row(unsigned int i)
{
	return i < ARRAY_SIZE(table) ? &table[i] : NULL;
}

static bool has_rows_of(const char *domain)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (name_in(&table[i], domain))
			return true;
	return false;
}

ONNX_EXPORT int rbk_onnx_operator(unsigned int i, struct rbk_onnx_operator *ret)
{
	for (size_t k = 0; k < ARRAY_SIZE(table); k++) {
		if (!table[k].needs || i-- > 0)
			continue;
		*ret = (struct rbk_onnx_operator){
			.name = table[k].op,
			.since = table[k].since,
			.until = table[k].until,
		};
		return 0;
	}
	return -EINVAL;
}

static void refuse_inputs(struct graph *graph, const struct canon *canon, uint32_t n_in)
{
	if (canon->max_in == ANY)
		graph_refuse(graph, "it has %u input%s, expected at least %u", n_in,
			     onnx_plural(n_in), canon->min_in);
	else if (canon->max_in == canon->min_in)
		graph_refuse(graph, "it has %u input%s, expected %u", n_in, onnx_plural(n_in),
			     canon->min_in);
	else
		graph_refuse(graph, "it has %u input%s, expected %u to %u", n_in, onnx_plural(n_in),
			     canon->min_in, canon->max_in);
}

static bool check_arity(struct graph *graph, const struct canon *canon)
{
	const struct model_node *node = graph->node;
	uint32_t n_in = node->n_in, n_out = node->n_out;

	while (n_in > 0 && node->in[n_in - 1] == ONNX_ABSENT)
		n_in--;
	while (n_out > 0 && node->out[n_out - 1] == ONNX_ABSENT)
		n_out--;
	if ((n_in > canon->max_in && canon->max_in != ANY) || n_in < canon->min_in) {
		refuse_inputs(graph, canon, n_in);
		return false;
	}
	if (n_out > canon->max_out && canon->max_out != ANY) {
		graph_refuse(graph, "it has %u output%s, expected at most %u", n_out,
			     onnx_plural(n_out), canon->max_out);
		return false;
	}
	for (uint32_t i = 0; i < canon->min_in; i++) {
		if (node->in[i] == ONNX_ABSENT && !may_be_absent(canon, i)) {
			graph_refuse(graph, "input %u is missing", i);
			return false;
		}
	}
	return true;
}

static void check_attributes(struct graph *graph)
{
	const Onnx__NodeProto *proto = graph->node->proto;

	for (size_t i = 0; i < proto->n_attribute; i++)
		if (!graph->attr_is_read[i])
			graph_refuse(graph, "attribute \"%s\" is not known",
				     proto->attribute[i]->name);
}

/*
 * Of opsets before ONNX_MIN_OPSET those operators that have always been what they are: files keep
 * the number of the opset that their operators came with.
 */
static bool is_of_old(const char *op)
{
	static const char *const ops[] = {
		"Constant",      "Flatten",   "Gather",   "GlobalAveragePool",
		"GlobalMaxPool", "Identity",  "LRN",      "LogSoftmax",
		"MatMul",        "Not",       "Shape",    "Size",
		"Softmax",       "Softplus",  "Softsign", "Squeeze",
		"Transpose",     "Unsqueeze",
	};

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		if (!strcmp(ops[i], op))
			return true;
	return false;
}

/* Refusals that need no shapes. Return: the rule, or NULL. */
static const struct canon *check_node(struct graph *graph)
{
	const struct model_node *node = graph->node;
	const struct canon *canon = find_rule(node->domain, node->proto->op_type);

	if (!canon) {
		nearest_refuse(graph, has_rows_of(node->domain));
		return NULL;
	}
	if (node->opset == 0) {
		graph_refuse(graph, "the model does not say which opset of domain \"%s\" it uses",
			     node->domain);
		return NULL;
	}
	if (node->opset < canon->since) {
		graph_refuse(graph, "the operator exists since opset %u", canon->since);
		return NULL;
	}
	if (!node->domain[0] && node->opset < ONNX_MIN_OPSET && !is_of_old(canon->op)) {
		graph_refuse(graph, "it is read since opset %u", ONNX_MIN_OPSET);
		return NULL;
	}
	if (canon->until && node->opset > canon->until) {
		graph_refuse(graph, "the operator exists up to opset %u only", canon->until);
		return NULL;
	}
	return check_arity(graph, canon) ? canon : NULL;
}

/* All of them at once, so that whoever gives them need not come back for each. */
static void need_values(struct graph *graph, const struct canon *canon)
{
	for (unsigned int i = 0; i < 8; i++) {
		struct tensor *in = canon->values >> i & 1 ? canon_in(graph, i) : NULL;

		if (in && !in->constant)
			graph_need(graph, in);
	}
}

/* Outputs of which nothing is known, but what they are computed from. */
static void unknown_outputs(struct graph *graph)
{
	const struct model_node *node = graph->node;
	struct step *step = graph_zero(graph, 1, sizeof(*step));

	for (uint32_t i = 0; step && i < node->n_in && step->n_in < OP_MAX_INPUTS; i++)
		if (node->in[i] != ONNX_ABSENT)
			step->in[step->n_in++] = graph_value(graph, node->in[i]);
	for (uint32_t i = 0; i < node->n_out; i++) {
		struct tensor *tensor;

		if (node->out[i] == ONNX_ABSENT || graph->values[node->out[i]])
			continue;
		tensor = graph_unknown(graph);
		tensor->producer = step;
		canon_out(graph, i, tensor);
	}
}

void canon_node(struct graph *graph, const struct model_node *node)
{
	const struct canon *canon;
	bool is_unknown = false;

	graph->node = node;
	graph->is_refused = false;
	graph->attr_is_read = graph_zero(graph, node->proto->n_attribute, 1);
	if (!graph->attr_is_read)
		return;
	for (uint32_t i = 0; i < node->n_in; i++)
		if (node->in[i] != ONNX_ABSENT)
			is_unknown |= !graph_value(graph, node->in[i])->known;
	bfloat_begin(graph);
	canon = check_node(graph);
	if (canon)
		need_values(graph, canon);
	if (canon && is_unknown && !op_by_name(canon->needs ? canon->needs : canon->op))
		graph_refuse(graph, "the catalogue has no operator %s",
			     canon->needs ? canon->needs : canon->op);
	if (canon && !is_unknown && !graph->fatal) {
		canon->rule(graph);
		if (!graph->is_refused)
			check_attributes(graph);
	}
	if (!graph->fatal)
		unknown_outputs(graph);
}
