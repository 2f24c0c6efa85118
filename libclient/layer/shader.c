/* SPDX-License-Identifier: MIT */
/*
 * Reading SPIR-V
 *
 * Source: SPIR-V Specification 1.6, 2.3 "Physical Layout of a SPIR-V Module", 3.21 "BuiltIn", 3.49
 * "Instructions". The code is the program's: each word is checked before it is used. Only what
 * compilers make of gl_NumWorkGroups.x is understood: a variable is loaded whole and a component
 * extracted, or a component's address is loaded. Anything else reads all three.
 */
#include "libclient/layer/shader.h"

#include <stdbool.h>
#include <stdlib.h>

enum {
	MAGIC = 0x07230203,
	HEADER_WORDS = 5,
	MAX_BOUND = 1 << 22,
	BUILT_IN = 11,
	NUM_WORKGROUPS = 24,
};

/* Numbers of instructions. */
enum {
	OP_EXT_INST = 12, /* a function of a library, such as max() */
	OP_CONSTANT = 43,
	OP_FUNCTION = 54, /* instructions before it declare */
	OP_VARIABLE = 59,
	OP_LOAD = 61,
	OP_ACCESS_CHAIN = 65,
	OP_IN_BOUNDS_ACCESS_CHAIN = 66,
	OP_DECORATE = 71,
	OP_MEMBER_DECORATE = 72,
	OP_COMPOSITE_EXTRACT = 81,
	OP_ATOMIC_LOAD = 227,
	OP_ATOMIC_XOR = 242,
	OP_ATOMIC_FLAG_TEST_AND_SET = 318,
	OP_ATOMIC_FLAG_CLEAR = 319,
	OP_EXECUTION_MODE_ID = 331,
	OP_DECORATE_ID = 332,
	OP_ATOMIC_F_MIN_EXT = 5614,
	OP_ATOMIC_F_MAX_EXT = 5615,
	OP_DECORATE_STRING = 5632,
	OP_ATOMIC_F_ADD_EXT = 6035,
};

/* Knowledge about an id. */
enum { UNKNOWN, CONSTANT_0, CONSTANT_1, CONSTANT_2, THE_VARIABLE, THE_VECTOR };

static bool is_atomic(uint32_t op)
{
	return (op >= OP_ATOMIC_LOAD && op <= OP_ATOMIC_XOR) || op == OP_ATOMIC_FLAG_TEST_AND_SET ||
	       op == OP_ATOMIC_FLAG_CLEAR || op == OP_ATOMIC_F_MIN_EXT ||
	       op == OP_ATOMIC_F_MAX_EXT || op == OP_ATOMIC_F_ADD_EXT;
}

/* Instructions whose operands are no use of a value: names, types, constants, decorations. */
static bool declares(uint32_t op)
{
	return (op < OP_FUNCTION && op != OP_EXT_INST) || op == OP_VARIABLE || op == OP_DECORATE ||
	       op == OP_MEMBER_DECORATE || op == OP_EXECUTION_MODE_ID || op == OP_DECORATE_ID ||
	       op == OP_DECORATE_STRING;
}

/* Note what a declaration says of an id. Return: axes that must stay whole. */
static uint32_t note(const uint32_t *words, uint32_t op, uint32_t n, uint8_t *kinds, uint32_t bound)
{
	if (op == OP_DECORATE && n == 4 && words[2] == BUILT_IN && words[3] == NUM_WORKGROUPS &&
	    words[1] < bound)
		kinds[words[1]] = THE_VARIABLE;
	if (op == OP_CONSTANT && n == 4 && words[3] < 3 && words[2] < bound)
		kinds[words[2]] = (uint8_t)(CONSTANT_0 + words[3]);
	return op == OP_MEMBER_DECORATE && n == 5 && words[3] == BUILT_IN &&
			       words[4] == NUM_WORKGROUPS
		       ? SHADER_ALL_AXES
		       : 0;
}

/* Return the axes that an instruction reads. @kinds: what is known of each id below @bound. */
static uint32_t read_by(const uint32_t *words, uint32_t op, uint32_t n, uint8_t *kinds,
			uint32_t bound)
{
	uint32_t axes = 0;

	if (is_atomic(op))
		return SHADER_ALL_AXES;
	if (declares(op))
		return note(words, op, n, kinds, bound);
	if (op == OP_LOAD && n >= 4 && words[2] < bound && words[3] < bound &&
	    kinds[words[3]] == THE_VARIABLE) {
		kinds[words[2]] = THE_VECTOR;
		return 0;
	}
	if ((op == OP_ACCESS_CHAIN || op == OP_IN_BOUNDS_ACCESS_CHAIN) && n == 5 &&
	    words[3] < bound && kinds[words[3]] == THE_VARIABLE && words[4] < bound &&
	    kinds[words[4]] >= CONSTANT_0 && kinds[words[4]] <= CONSTANT_2)
		return 1u << (kinds[words[4]] - CONSTANT_0);
	if (op == OP_COMPOSITE_EXTRACT && n == 5 && words[3] < bound &&
	    kinds[words[3]] == THE_VECTOR && words[4] < 3)
		return 1u << words[4];
	/* Operands may be numbers that look like ids: too much is kept whole then, never too
	 * little. */
	for (uint32_t i = 1; i < n; i++)
		if (words[i] < bound &&
		    (kinds[words[i]] == THE_VARIABLE || kinds[words[i]] == THE_VECTOR))
			axes = SHADER_ALL_AXES;
	return axes;
}

/* Read all instructions. Return: the axes that they read. */
static uint32_t read_all(const uint32_t *words, size_t n_words, uint8_t *kinds, uint32_t bound)
{
	uint32_t axes = 0, n;

	for (size_t at = HEADER_WORDS; at < n_words; at += n) {
		n = words[at] >> 16;
		if (n == 0 || n > n_words - at)
			return SHADER_ALL_AXES;
		axes |= read_by(words + at, words[at] & 0xffff, n, kinds, bound);
	}
	return axes;
}

uint32_t shader_whole_axes(const uint32_t *words, size_t n_words)
{
	uint32_t axes, bound;
	uint8_t *kinds;

	if (n_words < HEADER_WORDS || words[0] != MAGIC || words[3] > MAX_BOUND)
		return SHADER_ALL_AXES;
	bound = words[3];
	kinds = calloc(bound ? bound : 1, sizeof(*kinds));
	if (!kinds)
		return SHADER_ALL_AXES;
	/* A loop may name what comes only later (OpPhi), so all ids are known first. */
	(void)read_all(words, n_words, kinds, bound);
	axes = read_all(words, n_words, kinds, bound);
	free(kinds);
	return axes;
}
