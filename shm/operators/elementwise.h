#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The operators that work element by element, by name
 *
 * OP_ELEMENTWISE(X) is X(KIND, row) for each, with commas between: enum op_kind has OP_KIND,
 * op-elementwise.c defines the row op_row, and every table by kind takes its lines from here. Rows
 * and rules say the rest. The kinds are adjacent, in this order.
 *
 * What ONNX gives as inputs that must be constant are attributes: Clip's limits, "min" and "max";
 * "int_min" and "int_max", which go before them, hold integers that no float does. Min and Max have
 * two inputs, ONNX's any number of them. Pow's exponent has its base's type.
 */

/* clang-format off */
#define OP_ELEMENTWISE(X)                                                                          \
	X(ADD, add),                            /* ONNX Add-14 */                                   \
	X(SUB, sub),                            /* ONNX Sub-14 */                                   \
	X(MUL, mul),                            /* ONNX Mul-14 */                                   \
	X(DIV, div),                            /* ONNX Div-14 */                                   \
	X(POW, pow),                            /* ONNX Pow-15 */                                   \
	X(MOD, mod),                            /* ONNX Mod-13 */                                   \
	X(MIN, min),                            /* ONNX Min-13 */                                   \
	X(MAX, max),                            /* ONNX Max-13 */                                   \
	X(PRELU, prelu),                        /* ONNX PRelu-16 */                                 \
	X(EQUAL, equal),                        /* ONNX Equal-19 */                                 \
	X(LESS, less),                          /* ONNX Less-13 */                                  \
	X(LESS_OR_EQUAL, less_or_equal),        /* ONNX LessOrEqual-16 */                           \
	X(GREATER, greater),                    /* ONNX Greater-13 */                               \
	X(GREATER_OR_EQUAL, greater_or_equal),  /* ONNX GreaterOrEqual-16 */                        \
	X(AND, and),                            /* ONNX And-7 */                                    \
	X(OR, or),                              /* ONNX Or-7 */                                     \
	X(XOR, xor),                            /* ONNX Xor-7 */                                    \
	X(BITWISE_AND, bitwise_and),            /* ONNX BitwiseAnd-18 */                            \
	X(BITWISE_OR, bitwise_or),              /* ONNX BitwiseOr-18 */                             \
	X(BITWISE_XOR, bitwise_xor),            /* ONNX BitwiseXor-18 */                            \
	X(BIT_SHIFT, bit_shift),                /* ONNX BitShift-11 */                              \
	X(WHERE, where),                        /* ONNX Where-16 */                                 \
	X(CAST, cast),                          /* ONNX Cast-25 */                                  \
	X(CLIP, clip),                          /* ONNX Clip-13 */                                  \
	X(ABS, abs),                            /* ONNX Abs-13 */                                   \
	X(NEG, neg),                            /* ONNX Neg-13 */                                   \
	X(SIGN, sign),                          /* ONNX Sign-13 */                                  \
	X(FLOOR, floor),                        /* ONNX Floor-13 */                                 \
	X(CEIL, ceil),                          /* ONNX Ceil-13 */                                  \
	X(ROUND, round),                        /* ONNX Round-22 */                                 \
	X(SQRT, sqrt),                          /* ONNX Sqrt-13 */                                  \
	X(RECIPROCAL, reciprocal),              /* ONNX Reciprocal-13 */                            \
	X(EXP, exp),                            /* ONNX Exp-13 */                                   \
	X(LOG, log),                            /* ONNX Log-13 */                                   \
	X(ERF, erf),                            /* ONNX Erf-13 */                                   \
	X(SIN, sin),                            /* ONNX Sin-22 */                                   \
	X(COS, cos),                            /* ONNX Cos-22 */                                   \
	X(TAN, tan),                            /* ONNX Tan-22 */                                   \
	X(ASIN, asin),                          /* ONNX Asin-22 */                                  \
	X(ACOS, acos),                          /* ONNX Acos-22 */                                  \
	X(ATAN, atan),                          /* ONNX Atan-22 */                                  \
	X(SINH, sinh),                          /* ONNX Sinh-22 */                                  \
	X(COSH, cosh),                          /* ONNX Cosh-22 */                                  \
	X(TANH, tanh),                          /* ONNX Tanh-13 */                                  \
	X(ASINH, asinh),                        /* ONNX Asinh-22 */                                 \
	X(ACOSH, acosh),                        /* ONNX Acosh-22 */                                 \
	X(ATANH, atanh),                        /* ONNX Atanh-22 */                                 \
	X(RELU, relu),                          /* ONNX Relu-14 */                                  \
	X(LEAKY_RELU, leaky_relu),              /* ONNX LeakyRelu-16 */                             \
	X(THRESHOLDED_RELU, thresholded_relu),  /* ONNX ThresholdedRelu-22 */                       \
	X(ELU, elu),                            /* ONNX Elu-22 */                                   \
	X(SELU, selu),                          /* ONNX Selu-22 */                                  \
	X(CELU, celu),                          /* ONNX Celu-12 */                                  \
	X(GELU, gelu),                          /* ONNX Gelu-20 */                                  \
	X(SIGMOID, sigmoid),                    /* ONNX Sigmoid-13 */                               \
	X(HARD_SIGMOID, hard_sigmoid),          /* ONNX HardSigmoid-22 */                           \
	X(HARD_SWISH, hard_swish),              /* ONNX HardSwish-22 */                             \
	X(SWISH, swish),                        /* ONNX Swish-24 */                                 \
	X(MISH, mish),                          /* ONNX Mish-22 */                                  \
	X(SOFTPLUS, softplus),                  /* ONNX Softplus-22 */                              \
	X(SOFTSIGN, softsign),                  /* ONNX Softsign-22 */                              \
	X(IS_NAN, is_nan),                      /* ONNX IsNaN-20 */                                 \
	X(IS_INF, is_inf),                      /* ONNX IsInf-20 */                                 \
	X(NOT, not),                            /* ONNX Not-1 */                                    \
	X(BITWISE_NOT, bitwise_not)            /* ONNX BitwiseNot-18 */
/* clang-format on */
