#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What kernels that work element by element share. Included by their sources only.
 */
#include "cpu/kernels.h"

/*
 * A kernel of two operands. Who includes this has the same inline for one way that they advance:
 *
 *	name##_row(n, in0, steps0, in1, steps1, out)
 *
 * where steps0 and steps1 are constants: false for an operand that is one element for all n.
 */
#define MAP_BINARY(name)                                                                 \
	static void name(const struct cpu_map *args, size_t n)                           \
	{                                                                                \
		if (!args->step[1])                                                      \
			name##_row(n, args->in[0], true, args->in[1], false, args->out); \
		else if (!args->step[0])                                                 \
			name##_row(n, args->in[0], false, args->in[1], true, args->out); \
		else                                                                     \
			name##_row(n, args->in[0], true, args->in[1], true, args->out);  \
	}

/*
 * In a table by operator: functions of floats that give floats. Who includes this has a static
 * kernel of each of these names for its own type.
 */
#define MAP_FUNCTIONS                                                                              \
	[CPU_MAP_ABS] = abs_, [CPU_MAP_NEG] = neg, [CPU_MAP_SIGN] = sign_,                         \
	[CPU_MAP_FLOOR] = floor_, [CPU_MAP_CEIL] = ceil_, [CPU_MAP_ROUND] = round_,                \
	[CPU_MAP_SQRT] = sqrt_, [CPU_MAP_RECIPROCAL] = reciprocal, [CPU_MAP_CLIP] = clip,          \
	[CPU_MAP_RELU] = relu, [CPU_MAP_LEAKY_RELU] = leaky_relu,                                  \
	[CPU_MAP_THRESHOLDED_RELU] = thresholded_relu, [CPU_MAP_ELU] = elu, [CPU_MAP_SELU] = selu, \
	[CPU_MAP_CELU] = celu, [CPU_MAP_GELU] = gelu, [CPU_MAP_GELU_TANH] = gelu_tanh_,            \
	[CPU_MAP_SIGMOID] = sigmoid_, [CPU_MAP_HARD_SIGMOID] = hard_sigmoid_,                      \
	[CPU_MAP_HARD_SWISH] = hard_swish, [CPU_MAP_SWISH] = swish, [CPU_MAP_MISH] = mish_,        \
	[CPU_MAP_SOFTPLUS] = softplus, [CPU_MAP_SOFTSIGN] = softsign, [CPU_MAP_EXP] = exp_,        \
	[CPU_MAP_LOG] = log_, [CPU_MAP_ERF] = erf_, [CPU_MAP_SIN] = sin_, [CPU_MAP_COS] = cos_,    \
	[CPU_MAP_TAN] = tan_, [CPU_MAP_ASIN] = asin_, [CPU_MAP_ACOS] = acos_,                      \
	[CPU_MAP_ATAN] = atan_, [CPU_MAP_SINH] = sinh_, [CPU_MAP_COSH] = cosh_,                    \
	[CPU_MAP_TANH] = tanh_, [CPU_MAP_ASINH] = asinh_, [CPU_MAP_ACOSH] = acosh_,                \
	[CPU_MAP_ATANH] = atanh_, [CPU_MAP_ADD] = add, [CPU_MAP_SUB] = sub, [CPU_MAP_MUL] = mul,   \
	[CPU_MAP_DIV] = div_, [CPU_MAP_MIN] = min, [CPU_MAP_MAX] = max, [CPU_MAP_PRELU] = prelu,   \
	[CPU_MAP_FMOD] = fmod_, [CPU_MAP_POW] = pow_
