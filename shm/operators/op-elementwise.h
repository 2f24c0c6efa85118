#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The element-wise operators: OP_ELEMENTWISE(X) is X(KIND, row, ONNX's name, number of inputs,
 * ONNX's first opset that has the name, members of struct op) for each, with commas between. The
 * members are macros of op-elementwise.c. Their first argument is the opset in which the operator
 * got the semantics implemented here; the types are those that ONNX allows and ringbroker supports.
 *
 * Shaders identify each function by the number of its line in this list
 * (broker/vulkan/meson.build). An operator added at the end does not change the other numbers.
 *
 * ONNX inputs that must be constant are attributes here. Clip's limits are "min" and "max";
 * "int_min" and "int_max", which take precedence, hold integers that no float can represent. Min
 * and Max have two inputs, where ONNX allows any number. Pow's exponent has its base's type.
 */
/* clang-format off */
#define OP_ELEMENTWISE(X) \
	OP_BROADCASTING(X), OP_FLOAT_FUNCTIONS(X), OP_PREDICATES(X)

/* Operators of several inputs, or of every type. */
#define OP_BROADCASTING(X) \
	X(ADD, add, "Add", 2, 1, BINARY(14, OP_ALL_NUMBERS)), \
	X(SUB, sub, "Sub", 2, 1, BINARY(14, OP_ALL_NUMBERS)), \
	X(MUL, mul, "Mul", 2, 1, BINARY(14, OP_ALL_NUMBERS)), \
	X(DIV, div, "Div", 2, 1, BINARY(14, OP_ALL_NUMBERS)), \
	X(POW, pow, "Pow", 2, 1, BINARY_FLOAT64_ON_CPU(15, OP_ALL_FLOATS | OP_INDICES)), \
	X(MOD, mod, "Mod", 2, 10, BINARY_WITH(13, OP_ALL_NUMBERS, mod_attrs, mod_infer)), \
	X(MIN, min, "Min", 2, 1, BINARY(13, OP_ALL_NUMBERS)), \
	X(MAX, max, "Max", 2, 1, BINARY(13, OP_ALL_NUMBERS)), \
	X(PRELU, prelu, "PRelu", 2, 1, \
	  BINARY_WITH(16, OP_ALL_FLOATS | OP_INDICES, op_no_attrs, prelu_infer)), \
	X(EQUAL, equal, "Equal", 2, 1, COMPARISON(19, OP_COMPUTABLE | OP_FLOAT64)), \
	X(LESS, less, "Less", 2, 1, COMPARISON(13, OP_ALL_NUMBERS)), \
	X(LESS_OR_EQUAL, less_or_equal, "LessOrEqual", 2, 12, COMPARISON(16, OP_ALL_NUMBERS)), \
	X(GREATER, greater, "Greater", 2, 1, COMPARISON(13, OP_ALL_NUMBERS)), \
	X(GREATER_OR_EQUAL, greater_or_equal, "GreaterOrEqual", 2, 12, \
	  COMPARISON(16, OP_ALL_NUMBERS)), \
	X(AND, and, "And", 2, 1, BINARY(7, OP_BOOL)), \
	X(OR, or, "Or", 2, 1, BINARY(7, OP_BOOL)), \
	X(XOR, xor, "Xor", 2, 1, BINARY(7, OP_BOOL)), \
	X(BITWISE_AND, bitwise_and, "BitwiseAnd", 2, 18, BINARY(18, INTEGERS)), \
	X(BITWISE_OR, bitwise_or, "BitwiseOr", 2, 18, BINARY(18, INTEGERS)), \
	X(BITWISE_XOR, bitwise_xor, "BitwiseXor", 2, 18, BINARY(18, INTEGERS)), \
	X(BIT_SHIFT, bit_shift, "BitShift", 2, 11, \
	  BINARY_WITH(11, OP_TYPE(RBK_DTYPE_U8), bit_shift_attrs, bit_shift_infer)), \
	X(WHERE, where, "Where", 3, 9, \
	  ROW(16, ELEMENTWISE, "BT", "T", op_no_attrs, where_infer, ANY, BOOLS)), \
	X(CAST, cast, "Cast", 1, 1, \
	  ROW(25, ELEMENTWISE, "T", "U", cast_attrs, cast_infer, ANY, ANY_TO))

#define OP_PREDICATES(X) \
	X(IS_NAN, is_nan, "IsNaN", 1, 9, PREDICATE(20, op_no_attrs, unary_infer)), \
	X(IS_INF, is_inf, "IsInf", 1, 10, PREDICATE(20, is_inf_attrs, is_inf_infer)), \
	X(NOT, not, "Not", 1, 1, UNARY(1, ELEMENTWISE, OP_BOOL)), \
	X(BITWISE_NOT, bitwise_not, "BitwiseNot", 1, 18, UNARY(18, ELEMENTWISE, INTEGERS))

/* Second functions of operators, chosen by an attribute: X(FUNCTION, the operator's KIND). */
#define OP_OTHER_FORMS(X) \
	X(FMOD, MOD), \
	X(GELU_TANH, GELU), \
	X(SHIFT_RIGHT, BIT_SHIFT)

/* Functions of one float; some also take integers. */
#define OP_FLOAT_FUNCTIONS(X) \
	OP_ALGEBRAIC(X), OP_ANGLES(X), OP_CURVES(X)

#define OP_ALGEBRAIC(X) \
	X(CLIP, clip, "Clip", 1, 1, \
	  UNARY_WITH(13, FUSED_ELEMENTWISE, OP_ALL_NUMBERS, clip_attrs, clip_infer)), \
	X(ABS, abs, "Abs", 1, 1, UNARY(13, ELEMENTWISE, OP_ALL_NUMBERS)), \
	X(NEG, neg, "Neg", 1, 1, UNARY(13, ELEMENTWISE, OP_ALL_FLOATS | SIGNED_INTEGERS)), \
	X(SIGN, sign, "Sign", 1, 9, UNARY(13, ELEMENTWISE, OP_ALL_NUMBERS)), \
	X(FLOOR, floor, "Floor", 1, 1, UNARY(13, ELEMENTWISE, OP_ALL_FLOATS)), \
	X(CEIL, ceil, "Ceil", 1, 1, UNARY(13, ELEMENTWISE, OP_ALL_FLOATS)), \
	X(ROUND, round, "Round", 1, 11, UNARY(22, ELEMENTWISE, OP_ALL_FLOATS)), \
	X(SQRT, sqrt, "Sqrt", 1, 1, UNARY(13, ELEMENTWISE, OP_ALL_FLOATS)), \
	X(RECIPROCAL, reciprocal, "Reciprocal", 1, 1, UNARY(13, ELEMENTWISE, OP_ALL_FLOATS)), \
	X(EXP, exp, "Exp", 1, 1, UNARY(13, ACTIVATION, OP_ALL_FLOATS)), \
	X(LOG, log, "Log", 1, 1, UNARY(13, ACTIVATION, OP_ALL_FLOATS)), \
	X(ERF, erf, "Erf", 1, 9, UNARY(13, ACTIVATION, OP_ALL_FLOATS))

/* GPUs lack these functions for float64. */
#define OP_ANGLES(X) \
	X(SIN, sin, "Sin", 1, 7, ANGLE(22)), \
	X(COS, cos, "Cos", 1, 7, ANGLE(22)), \
	X(TAN, tan, "Tan", 1, 7, ANGLE(22)), \
	X(ASIN, asin, "Asin", 1, 7, ANGLE(22)), \
	X(ACOS, acos, "Acos", 1, 7, ANGLE(22)), \
	X(ATAN, atan, "Atan", 1, 7, ANGLE(22))

#define OP_CURVES(X) \
	X(SINH, sinh, "Sinh", 1, 9, UNARY(22, ACTIVATION, OP_ALL_FLOATS)), \
	X(COSH, cosh, "Cosh", 1, 9, UNARY(22, ACTIVATION, OP_ALL_FLOATS)), \
	X(TANH, tanh, "Tanh", 1, 1, UNARY(13, FUSED_ACTIVATION, OP_ALL_FLOATS)), \
	X(ASINH, asinh, "Asinh", 1, 9, UNARY(22, ACTIVATION, OP_ALL_FLOATS)), \
	X(ACOSH, acosh, "Acosh", 1, 9, UNARY(22, ACTIVATION, OP_ALL_FLOATS)), \
	X(ATANH, atanh, "Atanh", 1, 9, UNARY(22, ACTIVATION, OP_ALL_FLOATS)), \
	X(RELU, relu, "Relu", 1, 1, UNARY(14, FUSED_ACTIVATION, OP_ALL_FLOATS | SIGNED_INTEGERS)), \
	X(LEAKY_RELU, leaky_relu, "LeakyRelu", 1, 1, \
	  FLOATS_WITH(16, FUSED_ACTIVATION, FLOAT("alpha", 0.01f))), \
	X(THRESHOLDED_RELU, thresholded_relu, "ThresholdedRelu", 1, 10, \
	  FLOATS_WITH(22, ACTIVATION, FLOAT("alpha", 1))), \
	X(ELU, elu, "Elu", 1, 1, FLOATS_WITH(22, FUSED_ACTIVATION, FLOAT("alpha", 1))), \
	X(SELU, selu, "Selu", 1, 1, \
	  FLOATS_WITH(22, ACTIVATION, FLOAT("alpha", 1.67326319217681884765625f), \
	              FLOAT("gamma", 1.05070102214813232421875f))), \
	X(CELU, celu, "Celu", 1, 12, FLOATS_WITH(12, ACTIVATION, FLOAT("alpha", 1))), \
	X(GELU, gelu, "Gelu", 1, 20, \
	  UNARY_WITH(20, FUSED_ACTIVATION, OP_ALL_FLOATS, gelu_attrs, gelu_infer)), \
	X(SIGMOID, sigmoid, "Sigmoid", 1, 1, UNARY(13, FUSED_ACTIVATION, OP_ALL_FLOATS)), \
	X(HARD_SIGMOID, hard_sigmoid, "HardSigmoid", 1, 1, \
	  FLOATS_WITH(22, FUSED_ACTIVATION, FLOAT("alpha", 0.2f), FLOAT("beta", 0.5f))), \
	X(HARD_SWISH, hard_swish, "HardSwish", 1, 14, UNARY(22, FUSED_ACTIVATION, OP_ALL_FLOATS)), \
	X(SWISH, swish, "Swish", 1, 24, FLOATS_WITH(24, FUSED_ACTIVATION, FLOAT("alpha", 1))), \
	X(MISH, mish, "Mish", 1, 18, UNARY(22, FUSED_ACTIVATION, OP_ALL_FLOATS)), \
	X(SOFTPLUS, softplus, "Softplus", 1, 1, UNARY(22, ACTIVATION, OP_ALL_FLOATS)), \
	X(SOFTSIGN, softsign, "Softsign", 1, 1, UNARY(22, ACTIVATION, OP_ALL_FLOATS)), \
	X(SHRINK, shrink, "Shrink", 1, 9, \
	  FLOATS_WITH(9, FUSED_ACTIVATION, FLOAT("lambd", 0.5f), FLOAT("bias", 0)))
/* clang-format on */
