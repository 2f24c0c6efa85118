#pragma once
/* SPDX-License-Identifier: MIT */
/* Parts shared by the elementwise kernels. Included by their sources only. */
#include "cpu/kernels.h"

/*
 * Defines a kernel of two operands. The including file defines an inline function for one
 * combination of steps:
 *
 *   	name##_row(n, in0, steps0, in1, steps1, out)
 *
 * where steps0 and steps1 are constants: false for an operand that repeats one element.
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
 * Table entries, by operator, of the functions of floats that give floats. The including file
 * defines a static kernel of each of these names for its type, map_ROW for each of
 * OP_FLOAT_FUNCTIONS.
 */
#define MAP_FUNCTION(KIND, row, ...) [CPU_MAP_##KIND] = map_##row
#define MAP_FUNCTIONS                                                                          \
	OP_FLOAT_FUNCTIONS(MAP_FUNCTION),                                                      \
		[CPU_MAP_GELU_TANH] = map_gelu_tanh, [CPU_MAP_ADD] = add, [CPU_MAP_SUB] = sub, \
		[CPU_MAP_MUL] = mul, [CPU_MAP_DIV] = div_, [CPU_MAP_MIN] = min,                \
		[CPU_MAP_MAX] = max, [CPU_MAP_PRELU] = prelu, [CPU_MAP_FMOD] = fmod_,          \
		[CPU_MAP_POW] = pow_
