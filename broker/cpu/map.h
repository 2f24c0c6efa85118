#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Elementwise kernels
 *
 * A part of kernels.h: the keys of each function, and the common form of all functions. A kernel
 * computes n elements. Each operand either advances or repeats one element, so that every broadcast
 * is a loop over calls.
 *
 * Integers wrap around on overflow. Behaviour that C leaves undefined is defined here, equally at
 * every level and on every device:
 * - a quotient and a remainder by 0 are 0;
 * - a shift by the width or more gives 0;
 * - a cast of a float to an integer truncates, saturates at the ends of the range, and gives 0 for
 * a NaN;
 * - an integer power with a negative exponent is exact for the bases 1 and -1, else 0.
 */
#include <stddef.h>
#include <stdint.h>

#include "shm/operators/op-elementwise.h"

enum cpu_type {
	CPU_F32,
	CPU_F64,
	CPU_F16,  /* casts and moves only; other kernels get float32 */
	CPU_BF16, /* casts and moves only */
	CPU_I32,
	CPU_I64,
	CPU_I8,
	CPU_U8,
	CPU_BOOL, /* one byte; any value but 0 is true */
	CPU_TYPE_COUNT,
};

/*
 * ONNX's operators. The first are the functions of one float to a float, which map-float-hot.c and
 * map-double-hot.c define. Parameters, if any, are those of union op_params: f, d (float64) or i of
 * struct cpu_map.
 */
#define CPU_MAP_KIND(KIND, ...) CPU_MAP_##KIND
enum cpu_map_op {
	OP_FLOAT_FUNCTIONS(CPU_MAP_KIND),
	CPU_MAP_GELU_TANH,
	CPU_MAP_IS_NAN, /* result: bool, as for the next */
	CPU_MAP_IS_INF, /* i[0]: bit 0 detects negative, bit 1 positive infinities */
	CPU_MAP_NOT,
	CPU_MAP_BITWISE_NOT,
	CPU_MAP_N_UNARY, /* end of the unary operators, whose operand advances */

	CPU_MAP_ADD = CPU_MAP_N_UNARY,
	CPU_MAP_SUB,
	CPU_MAP_MUL,
	CPU_MAP_DIV,
	CPU_MAP_POW,
	CPU_MAP_MOD,  /* integers; the remainder has the divisor's sign */
	CPU_MAP_FMOD, /* the remainder has the dividend's sign */
	CPU_MAP_MIN,
	CPU_MAP_MAX,
	CPU_MAP_PRELU,
	CPU_MAP_EQUAL, /* result: bool, as for the next four */
	CPU_MAP_LESS,
	CPU_MAP_LESS_OR_EQUAL,
	CPU_MAP_GREATER,
	CPU_MAP_GREATER_OR_EQUAL,
	CPU_MAP_AND, /* bools, as for the next two */
	CPU_MAP_OR,
	CPU_MAP_XOR,
	CPU_MAP_BITWISE_AND,
	CPU_MAP_BITWISE_OR,
	CPU_MAP_BITWISE_XOR,
	CPU_MAP_SHIFT_LEFT,
	CPU_MAP_SHIFT_RIGHT,
	CPU_MAP_COUNT,
};

/* Arguments for at least one element. With several elements, at least one operand advances. */
struct cpu_map {
	const void *in[3];
	void *out;       /* may be an advancing operand of the same element size */
	uint8_t step[3]; /* elements: 1, or 0 for a repeated operand */
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
