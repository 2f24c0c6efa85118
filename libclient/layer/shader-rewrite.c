/* SPDX-License-Identifier: MIT */
/*
 * Shaders that read the number of workgroups from push constants
 *
 * In a slice gl_NumWorkGroups would be the slice's. So the block of push constants gets another
 * member, an array of three numbers, and each access to the variable becomes one to the array. The
 * variable stays declared. A shader without push constants gets a block that has only this member.
 *
 * The code is the program's, and has not been validated: lengths and ids are checked before they
 * are used. Whatever is not understood makes the shader one that cannot be rewritten, also where
 * an operand is a number that only looks like an id (spirv_id_words()).
 *
 * Source: SPIR-V Specification 1.6, 2.4 "Logical Layout of a Module", 2.16 "Validation Rules";
 * the Vulkan specification, "Offset and Stride Assignment".
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/layer/shader.h"
#include "libclient/layer/spirv.h"

enum {
	AXES = 3,
	/*
	 * Words that are written at most beside those that are there: once; instead of a load; in
	 * the address of a component.
	 */
	MORE_WORDS = 96,
	MORE_LOAD_WORDS = AXES * (6 + 4) + 6,
	MORE_ADDRESS_WORDS = 1,
};

/* Declarations of the code; an id of 0 means that there is none. */
struct survey {
	const uint32_t *words;
	size_t n_words;
	uint32_t bound;
	uint32_t variable;           /* gl_NumWorkGroups */
	uint32_t variable_type;      /* a pointer */
	uint32_t vector, number;     /* types of the variable and of each component */
	uint32_t constants;          /* the variable of push constants */
	uint32_t constants_type;     /* a pointer */
	uint32_t block;              /* what it points to */
	uint32_t n_members;          /* of the block */
	uint32_t number_pointer;     /* a pointer to one of its numbers */
	size_t n_loads, n_addresses; /* of the whole variable; of its components */
	size_t n_entry_points;
	bool is_unknown;     /* something is not understood */
	uint8_t *is_address; /* by id: the address of a component */
};

struct instruction {
	const uint32_t *words;
	uint32_t op, n;
};

/* Read the instruction at word *at, and move *at behind it. Return: false at the end. */
static bool read_next(const struct survey *survey, size_t *at, struct instruction *ret)
{
	if (*at >= survey->n_words)
		return false;
	ret->words = survey->words + *at;
	ret->op = spirv_op(ret->words[0]);
	ret->n = spirv_length(ret->words[0]);
	*at += ret->n;
	return true;
}

static bool has_valid_lengths(const struct survey *survey)
{
	uint32_t n;

	for (size_t at = SPIRV_HEADER_WORDS; at < survey->n_words; at += n) {
		n = spirv_length(survey->words[at]);
		if (n == 0 || n > survey->n_words - at)
			return false;
	}
	return true;
}

static bool is_type_or_constant(uint32_t op)
{
	return op >= OP_TYPE_VOID && op <= OP_SPEC_CONSTANT_OP;
}

/* ---- What is declared ---- */

static void note_variable(struct survey *survey, const struct instruction *each)
{
	if (each->words[2] == survey->variable)
		survey->variable_type = each->words[1];
	if (each->words[3] != STORAGE_PUSH_CONSTANT)
		return;
	survey->is_unknown |= survey->constants && survey->constants != each->words[2];
	survey->constants = each->words[2];
	survey->constants_type = each->words[1];
}

static void note_pointer(struct survey *survey, const struct instruction *each)
{
	if (each->words[1] == survey->variable_type)
		survey->vector = each->words[3];
	if (each->words[1] == survey->constants_type)
		survey->block = each->words[3];
	if (each->words[2] == STORAGE_PUSH_CONSTANT && each->words[3] == survey->number)
		survey->number_pointer = each->words[1];
}

/* Note a declaration as far as it is known already for what it is. */
static void note(struct survey *survey, const struct instruction *each)
{
	/* A block of push constants may have no type. */
	survey->is_unknown |= each->op == OP_TYPE_UNTYPED_POINTER;
	if (each->op == OP_DECORATE && each->n == 4 && each->words[2] == DECORATION_BUILT_IN &&
	    each->words[3] == BUILT_IN_NUM_WORKGROUPS) {
		survey->is_unknown |= survey->variable && survey->variable != each->words[1];
		survey->variable = each->words[1];
	} else if (each->op == OP_VARIABLE && each->n >= 4) {
		note_variable(survey, each);
	} else if (each->op == OP_TYPE_POINTER && each->n == 4) {
		note_pointer(survey, each);
	} else if (each->op == OP_TYPE_VECTOR && each->n == 4 && each->words[1] == survey->vector &&
		   each->words[3] == AXES) {
		survey->number = each->words[2];
	} else if (each->op == OP_TYPE_STRUCT && each->n >= 2 && each->words[1] == survey->block) {
		survey->n_members = each->n - 2;
	}
}

static void read_declarations(struct survey *survey)
{
	struct instruction each;
	size_t at;

	/* Variables, types of variables, their parts, pointers to parts: a pass for each. */
	for (int pass = 0; pass < 4; pass++) {
		at = SPIRV_HEADER_WORDS;
		survey->n_entry_points = 0;
		while (read_next(survey, &at, &each) && each.op != OP_FUNCTION) {
			note(survey, &each);
			survey->n_entry_points += each.op == OP_ENTRY_POINT;
		}
	}
}

/* Return true if the number's type is declared as one of 32 bits. */
static bool has_number(const struct survey *survey)
{
	size_t at = SPIRV_HEADER_WORDS;
	struct instruction each;

	while (read_next(survey, &at, &each) && each.op != OP_FUNCTION)
		if (each.op == OP_TYPE_INT && each.n == 4 && each.words[1] == survey->number)
			return each.words[2] == 32;
	return false;
}

/* ---- How it is used ---- */

/* Return true if the instruction, which declares, makes use of the block beside push constants. */
static bool uses_block(const struct survey *survey, const struct instruction *each)
{
	uint32_t from = each->n;

	if (each->op == OP_TYPE_STRUCT || each->op == OP_TYPE_ARRAY ||
	    each->op == OP_TYPE_RUNTIME_ARRAY || each->op == OP_TYPE_FUNCTION)
		from = 2;
	else if (each->op == OP_TYPE_POINTER && each->n == 4)
		return each->words[3] == survey->block && each->words[2] != STORAGE_PUSH_CONSTANT;
	else if (each->op == OP_CONSTANT_COMPOSITE || each->op == OP_CONSTANT_NULL ||
		 each->op == OP_SPEC_CONSTANT_COMPOSITE || each->op == OP_SPEC_CONSTANT_OP)
		from = 1;
	for (uint32_t i = from; i < each->n; i++)
		if (each->words[i] == survey->block)
			return true;
	return false;
}

/* Note addresses of components, which are used only by what comes behind them, or by OpPhi. */
static void note_address(struct survey *survey, const struct instruction *each)
{
	if ((each->op == OP_ACCESS_CHAIN || each->op == OP_IN_BOUNDS_ACCESS_CHAIN) &&
	    each->n == 5 && each->words[3] == survey->variable && each->words[2] < survey->bound)
		survey->is_address[each->words[2]] = 1;
}

static bool is_address(const struct survey *survey, uint32_t id)
{
	return id < survey->bound && survey->is_address[id];
}

/* Return true if an instruction of a function can be kept, or rewritten. */
static bool is_understood(struct survey *survey, const struct instruction *each)
{
	const uint32_t n = spirv_id_words(each->op, each->n), *words = each->words;

	if (spirv_is_atomic(each->op) || (n > 1 && survey->block && words[1] == survey->block))
		return false;
	/* The variable is no result of an instruction. */
	if (n > 2 && words[2] == survey->variable)
		return false;
	if (each->op == OP_LOAD && each->n >= 4 && words[3] == survey->variable) {
		survey->n_loads++;
		return words[1] == survey->vector;
	}
	if (each->op == OP_LOAD && each->n >= 4 && is_address(survey, words[3]))
		return words[1] == survey->number;
	if ((each->op == OP_ACCESS_CHAIN || each->op == OP_IN_BOUNDS_ACCESS_CHAIN) &&
	    each->n == 5 && words[3] == survey->variable) {
		survey->n_addresses++;
		return words[2] < survey->bound && words[4] != survey->variable;
	}
	for (uint32_t i = 1; i < n; i++)
		if (words[i] == survey->variable || is_address(survey, words[i]))
			return false;
	return true;
}

/* Check all instructions. Return: false if the code cannot be rewritten. */
static bool check_uses(struct survey *survey)
{
	size_t at = SPIRV_HEADER_WORDS;
	struct instruction each;
	bool is_in_function = false, is_good = true;

	while (read_next(survey, &at, &each))
		note_address(survey, &each);
	at = SPIRV_HEADER_WORDS;
	while (is_good && read_next(survey, &at, &each)) {
		is_in_function |= each.op == OP_FUNCTION;
		if (each.op == OP_MEMBER_DECORATE)
			is_good = !(each.n == 5 && each.words[3] == DECORATION_BUILT_IN &&
				    each.words[4] == BUILT_IN_NUM_WORKGROUPS);
		else if (!is_in_function && spirv_declares(each.op))
			is_good = !survey->block || !uses_block(survey, &each);
		else
			is_good = is_understood(survey, &each);
	}
	return is_good && survey->n_loads + survey->n_addresses > 0;
}

/* Survey the code. Return: false if it cannot be rewritten. */
static bool look(struct survey *survey, const uint32_t *words, size_t n_words)
{
	*survey = (struct survey){.words = words, .n_words = n_words};
	if (n_words < SPIRV_HEADER_WORDS || words[0] != SPIRV_MAGIC ||
	    words[SPIRV_BOUND_AT] > SPIRV_MAX_BOUND || !has_valid_lengths(survey))
		return false;
	survey->bound = words[SPIRV_BOUND_AT];
	read_declarations(survey);
	if (survey->is_unknown || !survey->variable || survey->variable >= survey->bound ||
	    !survey->vector || !has_number(survey) || (survey->constants && !survey->n_members))
		return false;
	survey->is_address = calloc(survey->bound ? survey->bound : 1, 1);
	return survey->is_address && check_uses(survey);
}

/* ---- Writing ---- */

/* Code that is being written. Its ids are new, or those of the survey. */
struct output {
	const struct survey *survey;
	uint32_t *words;
	size_t n, n_room;
	bool is_full; /* not all of it was written */
	uint32_t next_id;
	uint32_t offset_bytes;
	uint32_t length, array, member; /* array of numbers: its length, type, and place */
	uint32_t index[AXES];
	uint32_t block, constants_type, constants, number_pointer;
	bool has_decorated, has_declared;
};

static void put(struct output *out, const uint32_t *words, size_t n)
{
	out->is_full |= n > out->n_room - out->n;
	if (out->is_full)
		return;
	memcpy(out->words + out->n, words, n * sizeof(*words));
	out->n += n;
}

/* Write an instruction: its number, and its operands. */
#define PUT(out, op, ...)                                                                         \
	put(out,                                                                                  \
	    (const uint32_t[]){(uint32_t)(sizeof((const uint32_t[]){0, __VA_ARGS__}) / 4) << 16 | \
				       (op),                                                      \
			       __VA_ARGS__},                                                      \
	    sizeof((const uint32_t[]){0, __VA_ARGS__}) / 4)

static void choose_ids(struct output *out)
{
	const struct survey *survey = out->survey;

	out->next_id = survey->bound;
	out->length = out->next_id++;
	out->array = out->next_id++;
	out->member = out->next_id++;
	for (uint32_t i = 0; i < AXES; i++)
		out->index[i] = out->next_id++;
	out->constants = survey->constants ? survey->constants : out->next_id++;
	out->block = survey->constants ? survey->block : out->next_id++;
	out->constants_type = survey->constants ? survey->constants_type : out->next_id++;
	out->number_pointer = survey->number_pointer ? survey->number_pointer : out->next_id++;
}

static void decorate(struct output *out)
{
	PUT(out, OP_DECORATE, out->array, DECORATION_ARRAY_STRIDE, sizeof(uint32_t));
	PUT(out, OP_MEMBER_DECORATE, out->block, out->survey->n_members, DECORATION_OFFSET,
	    out->offset_bytes);
	if (!out->survey->constants)
		PUT(out, OP_DECORATE, out->block, DECORATION_BLOCK);
}

/* Declare the array, before all other types: @number is the declaration of the number's type. */
static void declare(struct output *out, const struct instruction *number)
{
	const struct survey *survey = out->survey;

	put(out, number->words, number->n);
	PUT(out, OP_CONSTANT, survey->number, out->length, AXES);
	PUT(out, OP_CONSTANT, survey->number, out->member, survey->n_members);
	for (uint32_t i = 0; i < AXES; i++)
		PUT(out, OP_CONSTANT, survey->number, out->index[i], i);
	PUT(out, OP_TYPE_ARRAY, out->array, survey->number, out->length);
	if (!survey->number_pointer)
		PUT(out, OP_TYPE_POINTER, out->number_pointer, STORAGE_PUSH_CONSTANT,
		    survey->number);
	if (survey->constants)
		return;
	PUT(out, OP_TYPE_STRUCT, out->block, out->array);
	PUT(out, OP_TYPE_POINTER, out->constants_type, STORAGE_PUSH_CONSTANT, out->block);
	PUT(out, OP_VARIABLE, out->constants_type, out->constants, STORAGE_PUSH_CONSTANT);
}

static struct instruction find_number(const struct survey *survey)
{
	size_t at = SPIRV_HEADER_WORDS;
	struct instruction each = {0};

	while (read_next(survey, &at, &each) &&
	       !(each.op == OP_TYPE_INT && each.n == 4 && each.words[1] == survey->number))
		;
	return each;
}

/* Write an instruction with one more operand. */
static void extend(struct output *out, const struct instruction *each, uint32_t operand)
{
	const uint32_t head = (each->n + 1) << 16 | each->op;

	out->is_full |= each->n + 1 > UINT16_MAX;
	put(out, &head, 1);
	put(out, each->words + 1, each->n - 1);
	put(out, &operand, 1);
}

/* Since version 1.4 an entry point lists all variables that it uses, behind its name. */
static bool lists(const struct output *out, const struct instruction *each)
{
	uint32_t i = 3;

	if (out->survey->words[SPIRV_VERSION_AT] < SPIRV_VERSION_1_4)
		return true;
	/* The name ends with a byte of 0, in the last one of its words at the latest. */
	while (i < each->n && each->words[i] >> 24 != 0)
		i++;
	for (i++; i < each->n; i++)
		if (each->words[i] == out->constants)
			return true;
	return false;
}

static void put_address(struct output *out, uint32_t id, uint32_t index)
{
	PUT(out, OP_ACCESS_CHAIN, out->number_pointer, id, out->constants, out->member, index);
}

/* Write a load of the whole variable: of its components, from which a vector is made. */
static void put_load(struct output *out, const struct instruction *each)
{
	uint32_t numbers[AXES], address;

	for (uint32_t i = 0; i < AXES; i++) {
		address = out->next_id++;
		numbers[i] = out->next_id++;
		put_address(out, address, out->index[i]);
		PUT(out, OP_LOAD, out->survey->number, numbers[i], address);
	}
	PUT(out, OP_COMPOSITE_CONSTRUCT, each->words[1], each->words[2], numbers[0], numbers[1],
	    numbers[2]);
}

/* Write what an instruction becomes. */
static void rewrite(struct output *out, const struct instruction *each)
{
	const struct survey *survey = out->survey;
	const bool is_chain = each->op == OP_ACCESS_CHAIN || each->op == OP_IN_BOUNDS_ACCESS_CHAIN;

	if (!out->has_decorated && (each->op == OP_DECORATE || each->op == OP_MEMBER_DECORATE)) {
		decorate(out);
		out->has_decorated = true;
	}
	if (!out->has_declared && is_type_or_constant(each->op)) {
		const struct instruction number = find_number(survey);

		declare(out, &number);
		out->has_declared = true;
	}
	if (each->op == OP_TYPE_INT && each->n == 4 && each->words[1] == survey->number)
		return;
	if (each->op == OP_TYPE_STRUCT && each->n >= 2 && survey->constants &&
	    each->words[1] == survey->block)
		extend(out, each, out->array);
	else if (each->op == OP_ENTRY_POINT && !lists(out, each))
		extend(out, each, out->constants);
	else if (is_chain && each->n == 5 && each->words[3] == survey->variable)
		put_address(out, each->words[2], each->words[4]);
	else if (each->op == OP_LOAD && each->n >= 4 && each->words[3] == survey->variable)
		put_load(out, each);
	else
		put(out, each->words, each->n);
}

static uint32_t *write_all(const struct survey *survey, uint32_t offset_bytes, size_t *ret_n_words)
{
	struct output out = {.survey = survey, .offset_bytes = offset_bytes};
	size_t at = SPIRV_HEADER_WORDS;
	struct instruction each;

	out.n_room = survey->n_words + MORE_WORDS + survey->n_entry_points +
		     survey->n_loads * MORE_LOAD_WORDS + survey->n_addresses * MORE_ADDRESS_WORDS;
	out.words = reallocarray(NULL, out.n_room, sizeof(*out.words));
	if (!out.words)
		return NULL;
	choose_ids(&out);
	put(&out, survey->words, SPIRV_HEADER_WORDS);
	while (read_next(survey, &at, &each))
		rewrite(&out, &each);
	if (out.is_full || out.next_id > SPIRV_MAX_BOUND || !out.has_decorated ||
	    !out.has_declared) {
		free(out.words);
		return NULL;
	}
	out.words[SPIRV_BOUND_AT] = out.next_id;
	*ret_n_words = out.n;
	return out.words;
}

bool shader_can_rewrite(const uint32_t *words, size_t n_words)
{
	struct survey survey;
	const bool can = look(&survey, words, n_words);

	free(survey.is_address);
	return can;
}

uint32_t *shader_rewrite(const uint32_t *words, size_t n_words, uint32_t offset_bytes,
			 size_t *ret_n_words)
{
	struct survey survey;
	uint32_t *ret = NULL;

	if (look(&survey, words, n_words))
		ret = write_all(&survey, offset_bytes, ret_n_words);
	free(survey.is_address);
	return ret;
}
