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
 * kernel of each of these names for its own type, map_ROW for each of OP_FLOAT_FUNCTIONS.
 */
#define MAP_FUNCTION(KIND, row, ...) [CPU_MAP_##KIND] = map_##row
#define MAP_FUNCTIONS                                                                          \
	OP_FLOAT_FUNCTIONS(MAP_FUNCTION),                                                      \
		[CPU_MAP_GELU_TANH] = map_gelu_tanh, [CPU_MAP_ADD] = add, [CPU_MAP_SUB] = sub, \
		[CPU_MAP_MUL] = mul, [CPU_MAP_DIV] = div_, [CPU_MAP_MIN] = min,                \
		[CPU_MAP_MAX] = max, [CPU_MAP_PRELU] = prelu, [CPU_MAP_FMOD] = fmod_,          \
		[CPU_MAP_POW] = pow_
