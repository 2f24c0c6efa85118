/* SPDX-License-Identifier: MIT */
/*
 * Pipelines of what works element by element: see pipeline.h
 *
 * One for each function of floats, and one for each function and type that typed.comp has. The
 * tables hold what the shaders' constants are; the numbers of their elements are the pipelines'.
 */
#include "shaders/map.glsl"
#include "vulkan/device.h"
#include "vulkan/pipeline.h"
#include "vulkan/shaders.h"

enum { F32 = RBK_DTYPE_F32, F16 = RBK_DTYPE_F16, I32 = RBK_DTYPE_I32, I64 = RBK_DTYPE_I64 };
enum { I8 = RBK_DTYPE_I8, U8 = RBK_DTYPE_U8, BOOL = RBK_DTYPE_BOOL };
enum { BF16 = RBK_DTYPE_BF16, F64 = RBK_DTYPE_F64 };

/* With 8 and 256 invocations in a workgroup, each has some groups of four elements. */
#define FLOATS(label, operation)                          \
	[operation] = {{.name = label,                    \
			.shader = &vk_shader_elementwise, \
			.n_spec = 3,                      \
			.spec = {8, operation, 16},       \
			.tile_rows = 1,                   \
			.tile_cols = 512},                \
		       {.name = label,                    \
			.shader = &vk_shader_elementwise, \
			.n_spec = 3,                      \
			.spec = {256, operation, 2},      \
			.tile_rows = 1,                   \
			.tile_cols = 2048}}
_Static_assert(VK_VARIANT_PLAIN == 0 && VK_VARIANT_SHARED == 1, "in the order of variants");

static const struct vk_pipe_info floats[MAP_FLOATS][VK_VARIANT_COUNT] = {
	FLOATS("Add", MAP_ADD),
	FLOATS("Sub", MAP_SUB),
	FLOATS("Mul", MAP_MUL),
	FLOATS("Div", MAP_DIV),
	FLOATS("Pow", MAP_POW),
	FLOATS("Mod", MAP_FMOD),
	FLOATS("Min", MAP_MIN),
	FLOATS("Max", MAP_MAX),
	FLOATS("PRelu", MAP_PRELU),
	FLOATS("Clip", MAP_CLIP),
	FLOATS("Abs", MAP_ABS),
	FLOATS("Neg", MAP_NEG),
	FLOATS("Sign", MAP_SIGN),
	FLOATS("Floor", MAP_FLOOR),
	FLOATS("Ceil", MAP_CEIL),
	FLOATS("Round", MAP_ROUND),
	FLOATS("Sqrt", MAP_SQRT),
	FLOATS("Reciprocal", MAP_RECIPROCAL),
	FLOATS("Exp", MAP_EXP),
	FLOATS("Log", MAP_LOG),
	FLOATS("Erf", MAP_ERF),
	FLOATS("Sin", MAP_SIN),
	FLOATS("Cos", MAP_COS),
	FLOATS("Tan", MAP_TAN),
	FLOATS("Asin", MAP_ASIN),
	FLOATS("Acos", MAP_ACOS),
	FLOATS("Atan", MAP_ATAN),
	FLOATS("Sinh", MAP_SINH),
	FLOATS("Cosh", MAP_COSH),
	FLOATS("Tanh", MAP_TANH),
	FLOATS("Asinh", MAP_ASINH),
	FLOATS("Acosh", MAP_ACOSH),
	FLOATS("Atanh", MAP_ATANH),
	FLOATS("Relu", MAP_RELU),
	FLOATS("LeakyRelu", MAP_LEAKY_RELU),
	FLOATS("ThresholdedRelu", MAP_THRESHOLDED_RELU),
	FLOATS("Elu", MAP_ELU),
	FLOATS("Selu", MAP_SELU),
	FLOATS("Celu", MAP_CELU),
	FLOATS("Gelu", MAP_GELU),
	FLOATS("Gelu, tanh", MAP_GELU_TANH),
	FLOATS("Sigmoid", MAP_SIGMOID),
	FLOATS("HardSigmoid", MAP_HARD_SIGMOID),
	FLOATS("HardSwish", MAP_HARD_SWISH),
	FLOATS("Swish", MAP_SWISH),
	FLOATS("Mish", MAP_MISH),
	FLOATS("Softplus", MAP_SOFTPLUS),
	FLOATS("Softsign", MAP_SOFTSIGN),
};

#define TYPED_BY(code, label, operation, type, to)                                               \
	{                                                                                        \
		{.name = label,                                                                  \
		 .shader = &(code),                                                              \
		 .n_spec = 5,                                                                    \
		 .spec = {8, operation, 32, type, to},                                           \
		 .tile_rows = 1,                                                                 \
		 .tile_cols = 256},                                                              \
		{                                                                                \
			.name = label, .shader = &(code), .n_spec = 5,                           \
			.spec = {256, operation, 4, type, to}, .tile_rows = 1, .tile_cols = 1024 \
		}                                                                                \
	}
#define TYPED(label, operation, type, to) TYPED_BY(vk_shader_typed, label, operation, type, to)

#define SIGNED_INTEGERS(label, operation)                                     \
	TYPED(label, operation, I32, I32), TYPED(label, operation, I64, I64), \
		TYPED(label, operation, I8, I8)
#define INTEGERS(label, operation) \
	SIGNED_INTEGERS(label, operation), TYPED(label, operation, U8, U8)
#define COMPARISON(label, operation)                                                  \
	TYPED(label, operation, I32, BOOL), TYPED(label, operation, I64, BOOL),       \
		TYPED(label, operation, I8, BOOL), TYPED(label, operation, U8, BOOL), \
		OF_FLOATS(label, operation)
#define OF_FLOATS(label, operation) \
	TYPED(label, operation, F32, BOOL), TYPED(label, operation, F16, BOOL)
#define CASTS(from)                                                                     \
	TYPED("Cast", MAP_CAST, from, F32), TYPED("Cast", MAP_CAST, from, F16),         \
		TYPED("Cast", MAP_CAST, from, I32), TYPED("Cast", MAP_CAST, from, I64), \
		TYPED("Cast", MAP_CAST, from, I8), TYPED("Cast", MAP_CAST, from, U8),   \
		TYPED("Cast", MAP_CAST, from, BOOL), TYPED("Cast", MAP_CAST, from, BF16)
#define WHERE(type)                  TYPED("Where", MAP_WHERE, type, type)
#define DOUBLES(label, operation)    TYPED_BY(vk_shader_typed_double, label, operation, F64, F64)
#define OF_DOUBLES(label, operation) TYPED_BY(vk_shader_typed_double, label, operation, F64, BOOL)
#define CASTS_OF_DOUBLES(type)                                         \
	TYPED_BY(vk_shader_typed_double, "Cast", MAP_CAST, type, F64), \
		TYPED_BY(vk_shader_typed_double, "Cast", MAP_CAST, F64, type)

static const struct vk_pipe_info typed[][VK_VARIANT_COUNT] = {
	INTEGERS("Add", MAP_ADD),
	INTEGERS("Sub", MAP_SUB),
	INTEGERS("Mul", MAP_MUL),
	INTEGERS("Div", MAP_DIV),
	INTEGERS("Mod", MAP_MOD),
	INTEGERS("Mod", MAP_FMOD),
	INTEGERS("Min", MAP_MIN),
	INTEGERS("Max", MAP_MAX),
	INTEGERS("Clip", MAP_CLIP),
	INTEGERS("Abs", MAP_ABS),
	INTEGERS("Sign", MAP_SIGN),
	INTEGERS("BitwiseAnd", MAP_BITWISE_AND),
	INTEGERS("BitwiseOr", MAP_BITWISE_OR),
	INTEGERS("BitwiseXor", MAP_BITWISE_XOR),
	INTEGERS("BitwiseNot", MAP_BITWISE_NOT),
	SIGNED_INTEGERS("Neg", MAP_NEG),
	SIGNED_INTEGERS("Relu", MAP_RELU),
	TYPED("Pow", MAP_POW, I32, I32),
	TYPED("Pow", MAP_POW, I64, I64),
	TYPED("PRelu", MAP_PRELU, I32, I32),
	TYPED("PRelu", MAP_PRELU, I64, I64),
	TYPED("BitShift", MAP_SHIFT_LEFT, U8, U8),
	TYPED("BitShift", MAP_SHIFT_RIGHT, U8, U8),
	TYPED("And", MAP_AND, BOOL, BOOL),
	TYPED("Or", MAP_OR, BOOL, BOOL),
	TYPED("Xor", MAP_XOR, BOOL, BOOL),
	TYPED("Not", MAP_NOT, BOOL, BOOL),
	TYPED("Equal", MAP_EQUAL, BOOL, BOOL),
	COMPARISON("Equal", MAP_EQUAL),
	COMPARISON("Less", MAP_LESS),
	COMPARISON("LessOrEqual", MAP_LESS_OR_EQUAL),
	COMPARISON("Greater", MAP_GREATER),
	COMPARISON("GreaterOrEqual", MAP_GREATER_OR_EQUAL),
	OF_FLOATS("IsNaN", MAP_IS_NAN),
	OF_FLOATS("IsInf", MAP_IS_INF),
	CASTS(F32),
	CASTS(F16),
	CASTS(I32),
	CASTS(I64),
	CASTS(I8),
	CASTS(U8),
	CASTS(BOOL),
	CASTS(BF16),
	WHERE(F32), /* one for each width */
	WHERE(F16),
	WHERE(I64),
	WHERE(U8),
	DOUBLES("Add", MAP_ADD),
	DOUBLES("Sub", MAP_SUB),
	DOUBLES("Mul", MAP_MUL),
	DOUBLES("Div", MAP_DIV),
	DOUBLES("Mod", MAP_FMOD),
	DOUBLES("Min", MAP_MIN),
	DOUBLES("Max", MAP_MAX),
	DOUBLES("PRelu", MAP_PRELU),
	DOUBLES("Clip", MAP_CLIP),
	DOUBLES("Abs", MAP_ABS),
	DOUBLES("Neg", MAP_NEG),
	DOUBLES("Sign", MAP_SIGN),
	DOUBLES("Floor", MAP_FLOOR),
	DOUBLES("Ceil", MAP_CEIL),
	DOUBLES("Round", MAP_ROUND),
	DOUBLES("Sqrt", MAP_SQRT),
	DOUBLES("Reciprocal", MAP_RECIPROCAL),
	DOUBLES("Relu", MAP_RELU),
	DOUBLES("LeakyRelu", MAP_LEAKY_RELU),
	DOUBLES("ThresholdedRelu", MAP_THRESHOLDED_RELU),
	DOUBLES("HardSigmoid", MAP_HARD_SIGMOID),
	DOUBLES("HardSwish", MAP_HARD_SWISH),
	DOUBLES("Softsign", MAP_SOFTSIGN),
	DOUBLES("Exp", MAP_EXP),
	DOUBLES("Log", MAP_LOG),
	DOUBLES("Erf", MAP_ERF),
	DOUBLES("Sinh", MAP_SINH),
	DOUBLES("Cosh", MAP_COSH),
	DOUBLES("Tanh", MAP_TANH),
	DOUBLES("Asinh", MAP_ASINH),
	DOUBLES("Acosh", MAP_ACOSH),
	DOUBLES("Atanh", MAP_ATANH),
	DOUBLES("Elu", MAP_ELU),
	DOUBLES("Selu", MAP_SELU),
	DOUBLES("Celu", MAP_CELU),
	DOUBLES("Gelu", MAP_GELU),
	DOUBLES("Gelu, tanh", MAP_GELU_TANH),
	DOUBLES("Sigmoid", MAP_SIGMOID),
	DOUBLES("Swish", MAP_SWISH),
	DOUBLES("Mish", MAP_MISH),
	DOUBLES("Softplus", MAP_SOFTPLUS),
	OF_DOUBLES("Equal", MAP_EQUAL),
	OF_DOUBLES("Less", MAP_LESS),
	OF_DOUBLES("LessOrEqual", MAP_LESS_OR_EQUAL),
	OF_DOUBLES("Greater", MAP_GREATER),
	OF_DOUBLES("GreaterOrEqual", MAP_GREATER_OR_EQUAL),
	OF_DOUBLES("IsNaN", MAP_IS_NAN),
	OF_DOUBLES("IsInf", MAP_IS_INF),
	CASTS_OF_DOUBLES(F32),
	CASTS_OF_DOUBLES(F16),
	CASTS_OF_DOUBLES(I32),
	CASTS_OF_DOUBLES(I64),
	CASTS_OF_DOUBLES(I8),
	CASTS_OF_DOUBLES(U8),
	CASTS_OF_DOUBLES(BOOL),
	CASTS_OF_DOUBLES(BF16),
	TYPED_BY(vk_shader_typed_double, "Cast", MAP_CAST, F64, F64),
};
_Static_assert(sizeof(typed) / sizeof(typed[0]) == VK_N_TYPED, "pipelines");
_Static_assert(MAP_FLOATS == VK_N_MAP, "pipelines");

const struct vk_pipe_info *vk_map_info(enum vk_pipe pipe, int variant)
{
	if (pipe < VK_PIPE_TYPED)
		return &floats[pipe - VK_PIPE_MAP][variant];
	return &typed[pipe - VK_PIPE_TYPED][variant];
}

enum vk_pipe vk_pipe_map(uint32_t operation)
{
	return (enum vk_pipe)(VK_PIPE_MAP + operation);
}

enum vk_pipe vk_pipe_typed(uint32_t operation, uint8_t type, uint8_t to)
{
	for (unsigned int i = 0; i < VK_N_TYPED; i++) {
		const uint32_t *spec = typed[i][0].spec;

		if (spec[1] == operation && spec[3] == type && spec[4] == to)
			return (enum vk_pipe)(VK_PIPE_TYPED + i);
	}
	return VK_PIPE_COUNT;
}
