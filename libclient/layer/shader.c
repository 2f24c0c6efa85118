/* SPDX-License-Identifier: MIT */
/*
 * Reading SPIR-V
 *
 * The code is the program's: each word is checked before it is used. Only what compilers make of
 * gl_NumWorkGroups.x is understood: a variable is loaded whole and a component extracted, or a
 * component's address is loaded. Anything else reads all three.
 */
#include "libclient/layer/shader.h"

#include <stdbool.h>
#include <stdlib.h>

#include "libclient/layer/spirv.h"

/* Knowledge about an id. */
enum { UNKNOWN, CONSTANT_0, CONSTANT_1, CONSTANT_2, THE_VARIABLE, THE_VECTOR };

/* Note what a declaration says of an id. Return: axes that must stay whole. */
static uint32_t note(const uint32_t *words, uint32_t op, uint32_t n, uint8_t *kinds, uint32_t bound)
{
	if (op == OP_DECORATE && n == 4 && words[2] == DECORATION_BUILT_IN &&
	    words[3] == BUILT_IN_NUM_WORKGROUPS && words[1] < bound)
		kinds[words[1]] = THE_VARIABLE;
	if (op == OP_CONSTANT && n == 4 && words[3] < 3 && words[2] < bound)
		kinds[words[2]] = (uint8_t)(CONSTANT_0 + words[3]);
	return op == OP_MEMBER_DECORATE && n == 5 && words[3] == DECORATION_BUILT_IN &&
			       words[4] == BUILT_IN_NUM_WORKGROUPS
		       ? SHADER_ALL_AXES
		       : 0;
}

/* Return the axes that an instruction reads. @kinds: what is known of each id below @bound. */
static uint32_t read_by(const uint32_t *words, uint32_t op, uint32_t n, uint8_t *kinds,
			uint32_t bound)
{
	uint32_t axes = 0;

	if (spirv_is_atomic(op))
		return SHADER_ALL_AXES;
	if (spirv_declares(op))
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
	/* Some operands may be numbers that look like ids: too much is kept whole then, never too
	 * little. */
	for (uint32_t i = 1; i < spirv_id_words(op, n); i++)
		if (words[i] < bound &&
		    (kinds[words[i]] == THE_VARIABLE || kinds[words[i]] == THE_VECTOR))
			axes = SHADER_ALL_AXES;
	return axes;
}

/* Read all instructions. Return: the axes that they read. */
static uint32_t read_all(const uint32_t *words, size_t n_words, uint8_t *kinds, uint32_t bound)
{
	uint32_t axes = 0, n;

	for (size_t at = SPIRV_HEADER_WORDS; at < n_words; at += n) {
		n = spirv_length(words[at]);
		if (n == 0 || n > n_words - at)
			return SHADER_ALL_AXES;
		axes |= read_by(words + at, spirv_op(words[at]), n, kinds, bound);
	}
	return axes;
}

uint32_t shader_whole_axes(const uint32_t *words, size_t n_words)
{
	uint32_t axes, bound;
	uint8_t *kinds;

	if (n_words < SPIRV_HEADER_WORDS || words[0] != SPIRV_MAGIC ||
	    words[SPIRV_BOUND_AT] > SPIRV_MAX_BOUND)
		return SHADER_ALL_AXES;
	bound = words[SPIRV_BOUND_AT];
	kinds = calloc(bound ? bound : 1, sizeof(*kinds));
	if (!kinds)
		return SHADER_ALL_AXES;
	/* A loop may name what comes only later (OpPhi), so all ids are known first. */
	(void)read_all(words, n_words, kinds, bound);
	axes = read_all(words, n_words, kinds, bound);
	free(kinds);
	return axes;
}
