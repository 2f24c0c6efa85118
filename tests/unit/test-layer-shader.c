/* SPDX-License-Identifier: MIT */
/* The layer reads from SPIR-V which axes of a dispatch must stay whole. */
#include <stdlib.h>
#include <string.h>

#include "libclient/layer/shader.h"
#include "support/test.h"

enum { MAX_WORDS = 256 };

/* Ids of the modules below. */
enum { VARIABLE = 1, ZERO, ONE, TWO, VECTOR, INDEX, RESULT, POINTER, TYPE, BOUND };

struct code {
	uint32_t words[MAX_WORDS];
	size_t n;
};

static void put(struct code *code, uint32_t op, size_t n, const uint32_t *operands)
{
	code->words[code->n++] = (uint32_t)(n + 1) << 16 | op;
	memcpy(code->words + code->n, operands, n * sizeof(*operands));
	code->n += n;
}
#define PUT(code, op, ...)                                                        \
	put(code, op, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), \
	    (const uint32_t[]){__VA_ARGS__})

/* A module with OpDecorate %VARIABLE BuiltIn NumWorkgroups, constants, and the variable. */
static struct code begin(void)
{
	struct code code = {.words = {0x07230203, 0x00010000, 0, BOUND, 0}, .n = 5};

	PUT(&code, 71, VARIABLE, 11, 24);
	/* A type whose width is the variable's number: not a use of it. */
	PUT(&code, 21, TYPE, VARIABLE, 0);
	PUT(&code, 43, TYPE, ZERO, 0);
	PUT(&code, 43, TYPE, ONE, 1);
	PUT(&code, 43, TYPE, TWO, 2);
	PUT(&code, 59, POINTER, VARIABLE, 1);
	PUT(&code, 54, TYPE, RESULT, 0, TYPE);
	return code;
}

static uint32_t axes_of(const struct code *code)
{
	/* A copy of the exact size: a read behind it is an error that sanitizers see. */
	uint32_t *words = malloc(code->n * sizeof(*words)), axes;

	memcpy(words, code->words, code->n * sizeof(*words));
	axes = shader_whole_axes(words, code->n);
	free(words);
	return axes;
}

TEST(test_shader__reads_nothing)
{
	struct code code = begin();

	assert_int_equal(axes_of(&code), 0);
}

TEST(test_shader__address_of_a_component)
{
	for (uint32_t axis = 0; axis < 3; axis++) {
		struct code code = begin();

		PUT(&code, 65, POINTER, INDEX, VARIABLE, ZERO + axis);
		assert_int_equal(axes_of(&code), 1u << axis);
	}
}

TEST(test_shader__component_of_the_vector)
{
	struct code code = begin();

	PUT(&code, 61, TYPE, VECTOR, VARIABLE);
	assert_int_equal(axes_of(&code), 0);
	PUT(&code, 81, TYPE, RESULT, VECTOR, 2);
	assert_int_equal(axes_of(&code), 4);
	PUT(&code, 81, TYPE, RESULT, VECTOR, 0);
	assert_int_equal(axes_of(&code), 5);
}

/* Any other use of the variable reads all of it. */
TEST(test_shader__anything_else)
{
	struct code code = begin();

	/* an index that is not known */
	PUT(&code, 65, POINTER, INDEX, VARIABLE, RESULT);
	assert_int_equal(axes_of(&code), SHADER_ALL_AXES);
	code = begin();
	PUT(&code, 61, TYPE, VECTOR, VARIABLE);
	/* OpIMul of the whole vector; OpStore; OpFunctionCall with the variable */
	PUT(&code, 132, TYPE, RESULT, VECTOR, VECTOR);
	assert_int_equal(axes_of(&code), SHADER_ALL_AXES);
	code = begin();
	PUT(&code, 57, TYPE, RESULT, INDEX, VARIABLE);
	assert_int_equal(axes_of(&code), SHADER_ALL_AXES);
	/* OpExtInst: max() of the vector */
	code = begin();
	PUT(&code, 61, TYPE, VECTOR, VARIABLE);
	PUT(&code, 12, TYPE, RESULT, TYPE, 41, VECTOR, VECTOR);
	assert_int_equal(axes_of(&code), SHADER_ALL_AXES);
	/* OpPhi at the head of a loop, which names what its body loads */
	code = begin();
	PUT(&code, 245, TYPE, INDEX, ZERO, RESULT, VECTOR, RESULT);
	PUT(&code, 61, TYPE, VECTOR, VARIABLE);
	assert_int_equal(axes_of(&code), SHADER_ALL_AXES);
	/* OpMemberDecorate of a block */
	code = begin();
	PUT(&code, 72, TYPE, 0, 11, 24);
	assert_int_equal(axes_of(&code), SHADER_ALL_AXES);
}

TEST(test_shader__atomics)
{
	/* OpAtomicLoad, OpAtomicIAdd, OpAtomicFlagClear, OpAtomicFAddEXT */
	static const uint32_t ops[] = {227, 234, 319, 6035};

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		struct code code = begin();

		PUT(&code, ops[i], TYPE, RESULT, INDEX, ONE, ZERO, ONE);
		assert_int_equal(axes_of(&code), SHADER_ALL_AXES);
	}
}

TEST(test_shader__no_code)
{
	struct code code = begin(), cut;

	cut = code;
	cut.words[0] = 0;
	assert_int_equal(axes_of(&cut), SHADER_ALL_AXES);
	cut = code;
	cut.words[3] = UINT32_MAX;
	assert_int_equal(axes_of(&cut), SHADER_ALL_AXES);
	cut = code;
	cut.words[5] = 71; /* an instruction of no words */
	assert_int_equal(axes_of(&cut), SHADER_ALL_AXES);
	for (cut = code; cut.n > 0; cut.n--)
		axes_of(&cut);
	assert_int_equal(shader_whole_axes(NULL, 0), SHADER_ALL_AXES);
}

TEST(test_shader__random_words)
{
	uint32_t random_bits = 1;

	for (unsigned int i = 0; i < 100000; i++) {
		struct code code = begin();

		for (unsigned int k = 0; k < 8; k++) {
			random_bits = random_bits * 1664525 + 1013904223;
			code.words[5 + (random_bits >> 8) % (code.n - 5)] =
				random_bits >> (random_bits % 32);
		}
		assert_true(axes_of(&code) <= SHADER_ALL_AXES);
	}
}
