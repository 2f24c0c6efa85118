/* SPDX-License-Identifier: MIT */
/* The layer reads from SPIR-V which axes of a dispatch must stay whole, and rewrites shaders. */
#include <stdlib.h>
#include <string.h>

#include "libclient/layer/shader.h"
#include "support/test.h"
#include "support/torture-shaders.h"

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

/* Numbers that are equal to ids are no use of them. */
TEST(test_shader__numbers)
{
	struct code code = begin();

	PUT(&code, 61, TYPE, VECTOR, VARIABLE);
	/* OpLine, OpCompositeExtract, OpCompositeInsert, OpVectorShuffle */
	PUT(&code, 8, TWO, VECTOR, VARIABLE);
	PUT(&code, 81, TYPE, RESULT, INDEX, VECTOR);
	PUT(&code, 82, TYPE, RESULT, INDEX, INDEX, VARIABLE);
	PUT(&code, 79, TYPE, RESULT, INDEX, INDEX, VARIABLE, VECTOR);
	/* OpSelectionMerge, OpLoopMerge, OpBranchConditional with weights, OpSwitch */
	PUT(&code, 247, RESULT, VARIABLE);
	PUT(&code, 246, RESULT, INDEX, VARIABLE, VECTOR);
	PUT(&code, 250, INDEX, RESULT, RESULT, VARIABLE, VECTOR);
	PUT(&code, 251, INDEX, RESULT, VARIABLE, RESULT);
	assert_int_equal(axes_of(&code), 0);
	/* Their values are. */
	PUT(&code, 82, TYPE, RESULT, INDEX, VECTOR, 0);
	assert_int_equal(axes_of(&code), SHADER_ALL_AXES);
	code = begin();
	PUT(&code, 61, TYPE, VECTOR, VARIABLE);
	PUT(&code, 79, TYPE, RESULT, INDEX, VECTOR, 0);
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

/* ---- Rewriting ---- */

/* Return the number of instructions @op. */
static unsigned int count(const uint32_t *words, size_t n_words, uint32_t op)
{
	unsigned int found = 0;

	for (size_t at = 5; at < n_words; at += words[at] >> 16)
		found += (words[at] & 0xffff) == op;
	return found;
}

/* Return true if a member of a block has the offset @offset. */
static bool has_offset(const uint32_t *words, size_t n_words, uint32_t offset)
{
	for (size_t at = 5; at < n_words; at += words[at] >> 16)
		if ((words[at] & 0xffff) == 72 && words[at + 3] == 35 && words[at + 4] == offset)
			return true;
	return false;
}

TEST(test_rewrite__reads_no_number)
{
	static const enum torture_shader readers[] = {
		TORTURE_SHADER_NUMBER_X_1, TORTURE_SHADER_NUMBER_Y_2, TORTURE_SHADER_NUMBER_Z_1,
		TORTURE_SHADER_NUMBER_ALL_2};

	for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++) {
		const uint32_t *words = torture_shaders[readers[i]].words;
		const size_t n_words = torture_shaders[readers[i]].bytes / sizeof(*words);
		uint32_t *rewritten;
		size_t n;

		assert_int_not_equal(shader_whole_axes(words, n_words), 0);
		assert_true(shader_can_rewrite(words, n_words));
		assert_false(has_offset(words, n_words, 68));
		rewritten = shader_rewrite(words, n_words, 68, &n);
		assert_non_null(rewritten);
		assert_int_equal(shader_whole_axes(rewritten, n), 0);
		assert_true(has_offset(rewritten, n, 68));
		/* There is still one variable of push constants. */
		assert_int_equal(count(rewritten, n, 32), count(words, n_words, 32));
		/* A shader without a number to read is none to rewrite. */
		assert_false(shader_can_rewrite(rewritten, n));
		/* Nothing is read behind code that ends early. */
		for (size_t k = 0; k < n_words; k++) {
			uint32_t *cut = malloc((k + 1) * sizeof(*cut)), *result;
			size_t n_result;

			memcpy(cut, words, k * sizeof(*cut));
			result = shader_rewrite(cut, k, 68, &n_result);
			free(result);
			free(cut);
		}
		free(rewritten);
	}
}

/* Shaders without a number, with atomic operations, with uses that are not understood */
TEST(test_rewrite__refuses)
{
	static const enum torture_shader others[] = {TORTURE_SHADER_PLAIN_1,
						     TORTURE_SHADER_ATOMIC_1};
	struct code code = begin();
	size_t n;

	for (size_t i = 0; i < 2; i++)
		assert_null(shader_rewrite(torture_shaders[others[i]].words,
					   torture_shaders[others[i]].bytes / 4, 0, &n));
	PUT(&code, 61, TYPE, VECTOR, VARIABLE);
	/* The variable's type is not declared. */
	assert_false(shader_can_rewrite(code.words, code.n));
}

/* The number's address goes to a function, which may expect an input. */
TEST(test_rewrite__address_elsewhere)
{
	const uint32_t *words = torture_shaders[TORTURE_SHADER_NUMBER_X_1].words;
	const size_t n_words = torture_shaders[TORTURE_SHADER_NUMBER_X_1].bytes / sizeof(*words);
	uint32_t *changed = malloc(n_words * sizeof(*changed));
	unsigned int n_loads = 0;

	memcpy(changed, words, n_words * sizeof(*words));
	for (size_t at = 5; at < n_words; at += words[at] >> 16) {
		uint32_t *each = changed + at;

		/* OpLoad of an address of the variable becomes OpCopyObject. */
		if ((each[0] & 0xffff) == 61)
			each[0] = (each[0] & 0xffff0000) | 83;
		n_loads += (each[0] & 0xffff) == 83;
	}
	assert_true(n_loads > 0);
	assert_false(shader_can_rewrite(changed, n_words));
	free(changed);
}

/* ---- Changed modules ---- */

/* Copy a shader that reads the number of workgroups along x, with room for more instructions. */
static uint32_t *copy_reader(size_t n_more, size_t *ret_n_words)
{
	const uint32_t *words = torture_shaders[TORTURE_SHADER_NUMBER_X_1].words;
	uint32_t *copy;

	*ret_n_words = torture_shaders[TORTURE_SHADER_NUMBER_X_1].bytes / sizeof(*words);
	copy = calloc(*ret_n_words + n_more, sizeof(*copy));
	memcpy(copy, words, *ret_n_words * sizeof(*words));
	return copy;
}

/* Return gl_NumWorkGroups of a module. */
static uint32_t variable_of(const uint32_t *words, size_t n_words)
{
	for (size_t at = 5; at < n_words; at += words[at] >> 16)
		if ((words[at] & 0xffff) == 71 && words[at + 2] == 11 && words[at + 3] == 24)
			return words[at + 1];
	return 0;
}

/* Return the place of the first address of a component. */
static size_t place_of_address(const uint32_t *words, size_t n_words)
{
	const uint32_t variable = variable_of(words, n_words);

	for (size_t at = 5; at < n_words; at += words[at] >> 16)
		if ((words[at] & 0xffff) == 65 && words[at + 3] == variable)
			return at;
	return 0;
}

/* Insert @n words at a place. */
static void insert(uint32_t *words, size_t *n_words, size_t at, const uint32_t *more, size_t n)
{
	memmove(words + at + n, words + at, (*n_words - at) * sizeof(*words));
	memcpy(words + at, more, n * sizeof(*words));
	*n_words += n;
}

/* Each use of a number has an address of its own in code that is not optimised. */
TEST(test_rewrite__many_addresses)
{
	enum { N = 300, ADDRESS_WORDS = 5 };
	size_t n_words, n, at;
	uint32_t *words = copy_reader(N * ADDRESS_WORDS, &n_words), *rewritten;

	at = place_of_address(words, n_words);
	assert_true(at > 0);
	for (unsigned int i = 0; i < N; i++) {
		const uint32_t address[] = {words[at], words[at + 1], words[3]++, words[at + 3],
					    words[at + 4]};

		insert(words, &n_words, at, address, ADDRESS_WORDS);
	}
	assert_true(shader_can_rewrite(words, n_words));
	rewritten = shader_rewrite(words, n_words, 64, &n);
	assert_non_null(rewritten);
	assert_int_equal(shader_whole_axes(rewritten, n), 0);
	free(rewritten);
	free(words);
}

/* A line of the source may have the number that is the variable's id. */
TEST(test_rewrite__lines)
{
	size_t n_words, at;
	uint32_t *words = copy_reader(4, &n_words);
	const uint32_t variable = variable_of(words, n_words),
		       line[] = {4 << 16 | 8, 1, variable, variable};

	at = place_of_address(words, n_words);
	assert_true(at > 0);
	insert(words, &n_words, at, line, 4);
	assert_true(shader_can_rewrite(words, n_words));
	free(words);
}

/* Vulkan has no ids beyond a limit. */
TEST(test_rewrite__too_many_ids)
{
	enum { MAX_BOUND = 4194303 };
	size_t n_words, n;
	uint32_t *words = copy_reader(0, &n_words), *rewritten;
	unsigned int n_rewritten = 0;

	for (words[3] = MAX_BOUND - 20; words[3] < MAX_BOUND; words[3]++) {
		rewritten = shader_rewrite(words, n_words, 64, &n);
		assert_true(!rewritten || rewritten[3] <= MAX_BOUND);
		n_rewritten += rewritten != NULL;
		free(rewritten);
	}
	assert_true(n_rewritten > 0);
	free(words);
}
