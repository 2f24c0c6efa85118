#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * ONNX operators with a rule: CANON_LIST(X) expands to X(members of struct canon) for each
 *
 * A row has the opsets from which and up to which an operator of the name exists, the number of
 * inputs and outputs that it may have in any supported opset, and its rule. Rules handle the
 * differences between opsets. canon_same() keeps inputs, outputs and attributes; it also handles
 * operators of OP_ELEMENTWISE that have no row here. canon_legacy_binary() handles axis and
 * broadcast of opset 6.
 *
 * Attributes in the catalogue's form, where ONNX has inputs or other attributes instead:
 *
 *	Reshape   shape: at most one -1, which is then the first; no 0 that copies. Also for
 *	          Flatten, Squeeze, Unsqueeze, and where an output must be a copy
 *	Slice     starts, ends, axes, steps;  Split  axis, split;  Pad  pads (all axes), mode, value
 *	          (of floats) or int_value
 *	Expand    shape;  Tile  repeats;  TopK  k;  CumSum  axis
 *	Clip      min, max (of floats) or int_min, int_max
 *	Reduce*   axes (none is all of them), keepdims
 *	OneHot    axis, depth;  Trilu  k, upper
 */
#define CANON_ANY 255

/* clang-format off */
#define CANON_LIST(X) \
	/* Element by element */ \
	X("Add", 1, 0, 2, 2, 1, NULL, canon_legacy_binary, 0) \
	X("And", 1, 0, 2, 2, 1, NULL, canon_legacy_binary, 0) \
	X("Cast", 1, 0, 1, 1, 1, NULL, canon_cast_node, 0) \
	X("CastLike", 15, 0, 2, 2, 1, "Cast", canon_cast_like, 0) \
	X("Clip", 1, 0, 1, 3, 1, NULL, canon_clip, 0) \
	X("Div", 1, 0, 2, 2, 1, NULL, canon_legacy_binary, 0) \
	X("Equal", 1, 0, 2, 2, 1, NULL, canon_legacy_binary, 0) \
	X("Greater", 1, 0, 2, 2, 1, NULL, canon_legacy_binary, 0) \
	X("Less", 1, 0, 2, 2, 1, NULL, canon_legacy_binary, 0) \
	X("Max", 1, 0, 1, CANON_ANY, 1, NULL, canon_variadic, 0) \
	X("Mean", 1, 0, 1, CANON_ANY, 1, "Add", canon_variadic, 0) \
	X("Min", 1, 0, 1, CANON_ANY, 1, NULL, canon_variadic, 0) \
	X("Mul", 1, 0, 2, 2, 1, NULL, canon_legacy_binary, 0) \
	X("Or", 1, 0, 2, 2, 1, NULL, canon_legacy_binary, 0) \
	X("PRelu", 1, 0, 2, 2, 1, NULL, canon_prelu, 0) \
	X("Pow", 1, 0, 2, 2, 1, NULL, canon_pow, 0) \
	X("Shrink", 9, 0, 1, 1, 1, NULL, canon_shrink, 0) \
	X("Sub", 1, 0, 2, 2, 1, NULL, canon_legacy_binary, 0) \
	X("Sum", 1, 0, 1, CANON_ANY, 1, "Add", canon_variadic, 0) \
	X("Xor", 1, 0, 2, 2, 1, NULL, canon_legacy_binary, 0) \
	/* Products, windows, normalisation, attention */ \
	X("Attention", 23, 0, 3, 7, 4, NULL, canon_attention, 0) \
	X("AveragePool", 1, 0, 1, 1, 1, NULL, canon_same, 0) \
	X("BatchNormalization", 1, 0, 5, 5, 5, NULL, canon_batch_norm, 0) \
	X("Conv", 1, 0, 2, 3, 1, NULL, canon_same, 0) \
	X("ConvInteger", 10, 0, 2, 4, 1, NULL, canon_conv_bytes, 0) \
	X("ConvTranspose", 1, 0, 2, 3, 1, NULL, canon_same, 0) \
	X("Gemm", 1, 0, 2, 3, 1, NULL, canon_gemm, 0) \
	X("GlobalAveragePool", 1, 0, 1, 1, 1, "ReduceMean", canon_global_pool, 0) \
	X("GlobalLpPool", 1, 0, 1, 1, 1, "LpPool", canon_global_pool, 0) \
	X("GlobalMaxPool", 1, 0, 1, 1, 1, "ReduceMax", canon_global_pool, 0) \
	X("GroupNormalization", 18, 0, 3, 3, 1, NULL, canon_group_norm, 0) \
	X("InstanceNormalization", 1, 0, 3, 3, 1, NULL, canon_same, 0) \
	X("LRN", 1, 0, 1, 1, 1, "AveragePool", canon_lrn, 0) \
	X("LayerNormalization", 17, 0, 2, 3, 3, NULL, canon_layer_norm, 0) \
	X("LpNormalization", 1, 0, 1, 1, 1, NULL, canon_same, 0) \
	X("LpPool", 1, 0, 1, 1, 1, NULL, canon_same, 0) \
	X("MatMul", 1, 0, 2, 2, 1, NULL, canon_mat_mul, 0) \
	X("MatMulInteger", 10, 0, 2, 4, 1, NULL, canon_mat_mul_integer, 0) \
	X("MaxPool", 1, 0, 1, 1, 2, NULL, canon_same, 0) \
	X("MeanVarianceNormalization", 9, 0, 1, 1, 1, "ReduceMean", canon_mean_variance, 0) \
	X("QLinearConv", 10, 0, 8, 9, 1, NULL, canon_conv_bytes, 0) \
	X("QLinearMatMul", 10, 0, 8, 8, 1, NULL, canon_same, 0) \
	X("RMSNormalization", 23, 0, 2, 2, 1, NULL, canon_rms_norm, 0) \
	X("RotaryEmbedding", 23, 0, 3, 4, 1, NULL, canon_same, 0) \
	/* Along dimensions */ \
	X("ArgMax", 1, 0, 1, 1, 1, NULL, canon_arg, 0) \
	X("ArgMin", 1, 0, 1, 1, 1, NULL, canon_arg, 0) \
	X("CumSum", 11, 0, 2, 2, 1, NULL, canon_cum_sum, 0x2) \
	X("Hardmax", 1, 0, 1, 1, 1, "OneHot", canon_softmax, 0) \
	X("LogSoftmax", 1, 0, 1, 1, 1, NULL, canon_softmax, 0) \
	X("ReduceL1", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2) \
	X("ReduceL2", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2) \
	X("ReduceLogSum", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2) \
	X("ReduceLogSumExp", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2) \
	X("ReduceMax", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2) \
	X("ReduceMean", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2) \
	X("ReduceMin", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2) \
	X("ReduceProd", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2) \
	X("ReduceSum", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2) \
	X("ReduceSumSquare", 1, 0, 1, 2, 1, NULL, canon_reduce, 0x2) \
	X("Softmax", 1, 0, 1, 1, 1, NULL, canon_softmax, 0) \
	X("TopK", 1, 0, 1, 2, 2, NULL, canon_top_k, 0x2) \
	/* Moving elements */ \
	X("Compress", 9, 0, 2, 2, 1, "Gather", canon_compress, 0x2) \
	X("Concat", 1, 0, 1, CANON_ANY, 1, NULL, canon_concat, 0) \
	X("DepthToSpace", 1, 0, 1, 1, 1, "Transpose", canon_depth_space, 0) \
	X("Dropout", 1, 0, 1, 3, 2, "Reshape", canon_dropout, 0x6) \
	X("Expand", 8, 0, 2, 2, 1, NULL, canon_expand, 0x2) \
	X("Flatten", 1, 0, 1, 1, 1, "Reshape", canon_flatten, 0) \
	X("Gather", 1, 0, 2, 2, 1, NULL, canon_gather, 0) \
	X("GatherElements", 11, 0, 2, 2, 1, NULL, canon_gather, 0) \
	X("GatherND", 11, 0, 2, 2, 1, NULL, canon_gather, 0) \
	X("GridSample", 16, 0, 2, 2, 1, NULL, canon_same, 0) \
	X("Identity", 1, 0, 1, 1, 1, "Reshape", canon_identity, 0) \
	X("OneHot", 9, 0, 3, 3, 1, NULL, canon_one_hot, 0x2) \
	X("Pad", 1, 0, 1, 4, 1, NULL, canon_pad, 0xe) \
	X("Reshape", 1, 0, 1, 2, 1, NULL, canon_reshape_node, 0x2) \
	X("Resize", 10, 0, 1, 4, 1, "MatMul", canon_resize, 0xe) \
	X("ReverseSequence", 10, 0, 2, 2, 1, "GatherND", canon_reverse_sequence, 0x2) \
	X("Scatter", 9, 10, 3, 3, 1, "ScatterElements", canon_scatter, 0) \
	X("ScatterElements", 11, 0, 3, 3, 1, NULL, canon_scatter, 0) \
	X("ScatterND", 11, 0, 3, 3, 1, NULL, canon_scatter, 0) \
	X("Slice", 1, 0, 1, 5, 1, NULL, canon_slice, 0x1e) \
	X("SpaceToDepth", 1, 0, 1, 1, 1, "Transpose", canon_depth_space, 0) \
	X("Split", 1, 0, 1, 2, CANON_ANY, NULL, canon_split, 0x2) \
	X("Squeeze", 1, 0, 1, 2, 1, "Reshape", canon_squeeze, 0x2) \
	X("TensorScatter", 24, 0, 2, 3, 1, "ScatterElements", canon_tensor_scatter, 0) \
	X("Tile", 1, 0, 2, 3, 1, NULL, canon_tile, 0x2) \
	X("Transpose", 1, 0, 1, 1, 1, NULL, canon_transpose, 0) \
	X("Trilu", 14, 0, 1, 2, 1, NULL, canon_trilu, 0x2) \
	X("Unsqueeze", 1, 0, 1, 2, 1, "Reshape", canon_unsqueeze, 0x2) \
	X("Upsample", 1, 9, 1, 2, 1, "MatMul", canon_resize, 0x2) \
	/* Control flow */ \
	X("If", 1, 0, 1, 1, CANON_ANY, "Reshape", canon_if, 0x1) \
	/* Constants and shapes */ \
	X("Constant", 1, 0, 0, 0, 1, "Reshape", canon_constant, 0) \
	X("ConstantOfShape", 9, 0, 1, 1, 1, "Reshape", canon_constant_of_shape, 0x1) \
	X("EyeLike", 9, 0, 1, 1, 1, "Reshape", canon_eye_like, 0) \
	X("NonZero", 9, 0, 1, 1, 1, "Reshape", canon_non_zero, 0x1) \
	X("Range", 11, 0, 3, 3, 1, "Reshape", canon_range, 0x7) \
	X("Shape", 1, 0, 1, 1, 1, "Reshape", canon_shape, 0) \
	X("Size", 1, 0, 1, 1, 1, "Reshape", canon_size, 0) \
	/* Quantized; ONNX has no operator for the product with four bits */ \
	X("com.microsoft.MatMulNBits", 1, 0, 3, 6, 1, "MatMulNBits", canon_mat_mul_nbits, 0) \
	X("DequantizeLinear", 10, 0, 2, 3, 1, NULL, canon_dequantize, 0) \
	X("DynamicQuantizeLinear", 11, 0, 1, 1, 3, NULL, canon_same, 0) \
	X("QuantizeLinear", 10, 0, 2, 3, 1, NULL, canon_quantize, 0) \
	/* ONNX Runtime's, which has the first one in ONNX's own domain, too */ \
	X("SimplifiedLayerNormalization", 1, 0, 2, 2, 1, "RMSNormalization", canon_rms_norm, 0) \
	X("com.microsoft.SimplifiedLayerNormalization", 1, 0, 2, 2, 1, "RMSNormalization", \
	  canon_rms_norm, 0) \
	X("com.microsoft.BiasGelu", 1, 0, 2, 2, 1, "Gelu", canon_biased_gelu, 0) \
	X("com.microsoft.DequantizeLinear", 1, 0, 2, 3, 1, "DequantizeLinear", canon_dequantize, 0) \
	X("com.microsoft.FastGelu", 1, 0, 1, 2, 1, "Gelu", canon_biased_gelu, 0) \
	X("com.microsoft.FusedMatMul", 1, 0, 2, 2, 1, "MatMul", canon_fused_mat_mul, 0) \
	X("com.microsoft.Gelu", 1, 0, 1, 1, 1, "Gelu", canon_biased_gelu, 0) \
	X("com.microsoft.MultiHeadAttention", 1, 0, 3, 10, 4, "Attention", \
	  canon_multi_head_attention, 0) \
	X("com.microsoft.QGemm", 1, 0, 5, 9, 1, "Gemm", canon_qgemm, 0) \
	X("com.microsoft.QLinearAdd", 1, 0, 7, 8, 1, "Add", canon_qlinear_binary, 0) \
	X("com.microsoft.QLinearAveragePool", 1, 0, 4, 5, 1, "AveragePool", canon_qlinear_pool, 0) \
	X("com.microsoft.QLinearConcat", 1, 0, 5, CANON_ANY, 1, "Concat", canon_qlinear_concat, 0) \
	X("com.microsoft.QLinearGlobalAveragePool", 1, 0, 4, 5, 1, "ReduceMean", \
	  canon_qlinear_global_pool, 0) \
	X("com.microsoft.QLinearLeakyRelu", 1, 0, 4, 5, 1, "LeakyRelu", canon_qlinear_unary, 0) \
	X("com.microsoft.QLinearMul", 1, 0, 7, 8, 1, "Mul", canon_qlinear_binary, 0) \
	X("com.microsoft.QLinearSigmoid", 1, 0, 4, 5, 1, "Sigmoid", canon_qlinear_unary, 0) \
	X("com.microsoft.QLinearSoftmax", 1, 0, 4, 5, 1, "Softmax", canon_qlinear_softmax, 0) \
	X("com.microsoft.QuantizeLinear", 1, 0, 2, 3, 1, "QuantizeLinear", canon_quantize, 0) \
	X("com.microsoft.QuickGelu", 1, 0, 1, 1, 1, "Swish", canon_quick_gelu, 0) \
	X("com.microsoft.SkipLayerNormalization", 1, 0, 3, 5, 4, "LayerNormalization", \
	  canon_skip_layer_norm, 0) \
	X("com.microsoft.SkipSimplifiedLayerNormalization", 1, 0, 3, 4, 4, "RMSNormalization", \
	  canon_skip_rms_norm, 0)

/* ONNX operators without a row. */
#define CANON_OTHERS \
	"Adagrad", "Adam", "AffineGrid", "Bernoulli", "BitCast", "BlackmanWindow", \
	"CausalConvWithState", "CenterCropPad", "Col2Im", "ConcatFromSequence", "CumProd", \
	"DFT", "DeformConv", "Det", "Einsum", "GRU", "Gradient", "HammingWindow", \
	"HannWindow", "ImageDecoder", "LSTM", "LinearAttention", "Loop", "MaxRoiPool", \
	"MaxUnpool", "MelWeightMatrix", "Momentum", "Multinomial", "NegativeLogLikelihoodLoss", \
	"NonMaxSuppression", "Optional", "OptionalGetElement", "OptionalHasElement", "RNN", \
	"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", \
	"RegexFullMatch", "RoiAlign", "STFT", "Scan", "SequenceAt", "SequenceConstruct", \
	"SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap", \
	"SoftmaxCrossEntropyLoss", "SplitToSequence", "StringConcat", "StringNormalizer", \
	"StringSplit", "TfIdfVectorizer", "Unique"
/* clang-format on */
