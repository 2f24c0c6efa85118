#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Words of SPIR-V that shader.c and shader-rewrite.c read
 *
 * Source: SPIR-V Specification 1.6, 2.3 "Physical Layout of a SPIR-V Module", 3.7 "Storage Class",
 * 3.20 "Decoration", 3.21 "BuiltIn", 3.49 "Instructions".
 */
#include <stdbool.h>
#include <stdint.h>

enum {
	SPIRV_MAGIC = 0x07230203,
	SPIRV_HEADER_WORDS = 5,
	SPIRV_VERSION_AT = 1, /* in the header */
	SPIRV_BOUND_AT = 3,   /* all ids are below the bound */
	SPIRV_MAX_BOUND = (1 << 22) - 1,
	SPIRV_VERSION_1_4 = 0x00010400,
};

/* Decorations, a built-in variable, a storage class. */
enum {
	DECORATION_BLOCK = 2,
	DECORATION_ARRAY_STRIDE = 6,
	DECORATION_BUILT_IN = 11,
	DECORATION_OFFSET = 35,
	BUILT_IN_NUM_WORKGROUPS = 24,
	STORAGE_PUSH_CONSTANT = 9,
};

/* Numbers of instructions. */
enum {
	OP_NAME = 5,
	OP_LINE = 8,      /* of the source */
	OP_EXT_INST = 12, /* a function of a library, such as max() */
	OP_ENTRY_POINT = 15,
	OP_TYPE_VOID = 19, /* the first one of types and constants */
	OP_TYPE_INT = 21,
	OP_TYPE_VECTOR = 23,
	OP_TYPE_ARRAY = 28,
	OP_TYPE_RUNTIME_ARRAY = 29,
	OP_TYPE_STRUCT = 30,
	OP_TYPE_POINTER = 32,
	OP_TYPE_FUNCTION = 33,
	OP_TYPE_FORWARD_POINTER = 39,
	OP_CONSTANT_TRUE = 41,
	OP_CONSTANT = 43,
	OP_CONSTANT_COMPOSITE = 44,
	OP_CONSTANT_NULL = 46,
	OP_SPEC_CONSTANT_COMPOSITE = 51,
	OP_SPEC_CONSTANT_OP = 52, /* the last one */
	OP_FUNCTION = 54,         /* instructions before it declare */
	OP_VARIABLE = 59,
	OP_LOAD = 61,
	OP_ACCESS_CHAIN = 65,
	OP_IN_BOUNDS_ACCESS_CHAIN = 66,
	OP_DECORATE = 71,
	OP_MEMBER_DECORATE = 72,
	OP_VECTOR_SHUFFLE = 79,
	OP_COMPOSITE_CONSTRUCT = 80,
	OP_COMPOSITE_EXTRACT = 81,
	OP_COMPOSITE_INSERT = 82,
	OP_ATOMIC_LOAD = 227,
	OP_ATOMIC_XOR = 242,
	OP_LOOP_MERGE = 246,
	OP_SELECTION_MERGE = 247,
	OP_BRANCH_CONDITIONAL = 250,
	OP_SWITCH = 251,
	OP_ATOMIC_FLAG_TEST_AND_SET = 318,
	OP_ATOMIC_FLAG_CLEAR = 319,
	OP_EXECUTION_MODE_ID = 331,
	OP_DECORATE_ID = 332,
	OP_TYPE_UNTYPED_POINTER = 4417,
	OP_ATOMIC_F_MIN_EXT = 5614,
	OP_ATOMIC_F_MAX_EXT = 5615,
	OP_DECORATE_STRING = 5632,
	OP_ATOMIC_F_ADD_EXT = 6035,
};

static inline uint32_t spirv_op(uint32_t word)
{
	return word & 0xffff;
}

/* Return the number of words of an instruction, by its first one. */
static inline uint32_t spirv_length(uint32_t word)
{
	return word >> 16;
}

/*
 * Return the number of words of an instruction before those that are only numbers, which may be
 * equal to ids, and labels. @n: all of them.
 */
static inline uint32_t spirv_id_words(uint32_t op, uint32_t n)
{
	uint32_t n_ids = n;

	switch (op) {
	case OP_LINE:
	case OP_LOOP_MERGE:
	case OP_SELECTION_MERGE:
		n_ids = 1;
		break;
	case OP_BRANCH_CONDITIONAL:
	case OP_SWITCH:
		n_ids = 2;
		break;
	case OP_COMPOSITE_EXTRACT:
		n_ids = 4;
		break;
	case OP_VECTOR_SHUFFLE:
	case OP_COMPOSITE_INSERT:
		n_ids = 5;
		break;
	default:
		break;
	}
	return n_ids < n ? n_ids : n;
}

static inline bool spirv_is_atomic(uint32_t op)
{
	return (op >= OP_ATOMIC_LOAD && op <= OP_ATOMIC_XOR) || op == OP_ATOMIC_FLAG_TEST_AND_SET ||
	       op == OP_ATOMIC_FLAG_CLEAR || op == OP_ATOMIC_F_MIN_EXT ||
	       op == OP_ATOMIC_F_MAX_EXT || op == OP_ATOMIC_F_ADD_EXT;
}

/* Return true for instructions whose operands are no use of a value: names, types, constants. */
static inline bool spirv_declares(uint32_t op)
{
	return (op < OP_FUNCTION && op != OP_EXT_INST) || op == OP_VARIABLE || op == OP_DECORATE ||
	       op == OP_MEMBER_DECORATE || op == OP_EXECUTION_MODE_ID || op == OP_DECORATE_ID ||
	       op == OP_DECORATE_STRING;
}
