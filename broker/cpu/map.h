#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Kernels that work element by element
 *
 * A part of kernels.h: what each function is called by, and the one form that all of them have. A
 * kernel computes n elements; operands either advance or repeat one element, which makes every
 * broadcast a loop over calls.
 *
 * Integers wrap where a result does not fit. What C leaves undefined is defined here, alike at
 * every level and on every device: a quotient and a remainder by 0 are 0; shifts by the width or
 * more give 0; casts of floats to integers truncate, go to the nearest end of the range where the
 * value lies outside, and make 0 of what is not a number; integer powers by a negative exponent are
 * those of 1 and -1, else 0.
 */
#include <stddef.h>
#include <stdint.h>

#include "shm/operators/op-elementwise.h"

enum cpu_type {
	CPU_F32,
	CPU_F64,
	CPU_F16,  /* only casts and moves know it; all else goes by float32 */
	CPU_BF16, /* only casts and moves know it */
	CPU_I32,
	CPU_I64,
	CPU_I8,
	CPU_U8,
	CPU_BOOL, /* a byte; what is not 0 is true */
	CPU_TYPE_COUNT,
};

/*
 * ONNX's operators: first those of one float that give a float, of which map-float-hot.c and
 * map-double-hot.c have the functions. Parameters where they have any, as in union op_params: f, of
 * float64 d, or i of struct cpu_map.
 */
#define CPU_MAP_KIND(KIND, ...) CPU_MAP_##KIND
enum cpu_map_op {
	OP_FLOAT_FUNCTIONS(CPU_MAP_KIND),
	CPU_MAP_GELU_TANH,
	CPU_MAP_IS_NAN, /* these two give bools */
	CPU_MAP_IS_INF, /* i[0]: bit 0 finds negative ones, bit 1 positive ones */
	CPU_MAP_NOT,
	CPU_MAP_BITWISE_NOT,
	CPU_MAP_N_UNARY, /* here and above: one operand, which advances */

	CPU_MAP_ADD = CPU_MAP_N_UNARY,
	CPU_MAP_SUB,
	CPU_MAP_MUL,
	CPU_MAP_DIV,
	CPU_MAP_POW,
	CPU_MAP_MOD,  /* the remainder has the divisor's sign; integers */
	CPU_MAP_FMOD, /* it has the dividend's */
	CPU_MAP_MIN,
	CPU_MAP_MAX,
	CPU_MAP_PRELU,
	CPU_MAP_EQUAL, /* these five give bools */
	CPU_MAP_LESS,
	CPU_MAP_LESS_OR_EQUAL,
	CPU_MAP_GREATER,
	CPU_MAP_GREATER_OR_EQUAL,
	CPU_MAP_AND, /* bools */
	CPU_MAP_OR,
	CPU_MAP_XOR,
	CPU_MAP_BITWISE_AND,
	CPU_MAP_BITWISE_OR,
	CPU_MAP_BITWISE_XOR,
	CPU_MAP_SHIFT_LEFT,
	CPU_MAP_SHIFT_RIGHT,
	CPU_MAP_COUNT,
};

/* At least one element; with more, not all operands repeat. */
struct cpu_map {
	const void *in[3];
	void *out;       /* may be an operand that advances and whose elements are as wide */
	uint8_t step[3]; /* elements: 1, or 0 where an operand repeats */
	union {
		float f[2];
		double d[2];
		int64_t i[2];
	};
};

typedef void cpu_map_fn(const struct cpu_map *args, size_t n);

/* clang-format off */
#define CPU_MAP_KERNELS(KERNEL, TABLE, ROUTINE) \
	/* ONNX Where, by the logarithm of the bytes of an element; operand 0 is the condition. */ \
	TABLE(cpu_map_fn, where, 4)
/* clang-format on */
