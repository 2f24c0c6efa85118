/* SPDX-License-Identifier: MIT */
/*
 * Plans of one node, for tests of operators
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/executor.h"
#include "shm/operators/op-call.h"
#include "support/one-op.h"
#include "support/test.h"

static struct exec_arena arenas[2] = {
	{.bytes = ONE_OP_ARENA_BYTES, .immutable = true, .dev = 1, .ino = 1},
	{.bytes = ONE_OP_ARENA_BYTES, .immutable = true, .dev = 1, .ino = 2},
};

static struct exec_arena *find_arena(void *context, uint16_t arena_id, const char **ret_why)
{
	if (arena_id == 1 || arena_id == 2)
		return &arenas[arena_id - 1];
	*ret_why = arena_id == 3 ? "arena 3 is not sealed against writing" : "no such arena";
	return NULL;
}

const struct plan_arena_lookup one_op_arenas = {.find = find_arena};

/* Reads "[count,3]" and moves *at behind it. */
static unsigned int parse_shape(const char **at, uint32_t dims[RBK_MAX_RANK])
{
	unsigned int rank = 0;

	for ((*at)++; **at != ']';) {
		char *end;

		if (!strncmp(*at, "count", 5)) {
			dims[rank++] = DESCRIBE_COUNT;
			*at += 5;
		} else {
			dims[rank++] = (uint32_t)strtoul(*at, &end, 10);
			*at = end;
		}
		*at += **at == ',';
	}
	(*at)++;
	return rank;
}

static void parse_attr(struct describe *describe, const char *name, const char *value)
{
	int64_t values[16];
	unsigned int n = 0;
	char *end;

	if (value[0] == '[') {
		for (value++; *value && *value != ']'; value = end + (*end == ','))
			values[n++] = strtoll(value, &end, 10);
		describe_attr_ints(describe, name, n, values);
	} else if (value[0] != '-' && (value[0] < '0' || value[0] > '9')) {
		describe_attr_string(describe, name, value);
	} else if (strchr(value, '.')) {
		describe_attr_float(describe, name, strtof(value, NULL));
	} else {
		describe_attr_int(describe, name, strtoll(value, NULL, 10));
	}
}

struct describe *one_op(const char *op, const char *inputs, const char *attrs)
{
	const struct op *known = op_by_name(op);
	unsigned int n_out = known ? known->min_out : 1;
	struct describe *describe =
		describe_new("one", strstr(inputs, "count") ? ONE_OP_MAX_COUNT : 1);
	char in[64] = "", out[64] = "", name[2] = "a", text[256], *token, *next;

	while (*inputs) {
		uint32_t dims[RBK_MAX_RANK];

		if (*inputs == ' ') {
			inputs++;
			continue;
		}
		strcat(in, in[0] ? "," : "");
		if (*inputs == '-') {
			strcat(in, "-");
			inputs++;
		} else {
			unsigned int rank = parse_shape(&inputs, dims);

			describe_input(describe, name, rank, dims);
			strcat(in, name);
		}
		name[0]++;
	}
	name[0] = 'y';
	for (unsigned int i = 0; i < n_out; i++, name[0]++) {
		const bool is_index =
			known && ((known->kind == OP_TOP_K && i == 1) ||
				  known->kind == OP_ARG_MAX || known->kind == OP_ARG_MIN);

		describe_inferred(describe, name, RBK_TENSOR_OUTPUT,
				  is_index                                ? RBK_DTYPE_I64
				  : known && known->out_classes[0] == 'B' ? RBK_DTYPE_BOOL
									  : RBK_DTYPE_F32);
		strcat(out, i ? "," : "");
		strcat(out, name);
	}
	describe_node(describe, op, "it", in, out);
	snprintf(text, sizeof(text), "%s", attrs);
	for (token = strtok_r(text, " ", &next); token; token = strtok_r(NULL, " ", &next)) {
		char *value = strchr(token, '=');

		*value++ = 0;
		parse_attr(describe, token, value);
	}
	return describe;
}

struct plan *expect_plan(struct describe *describe)
{
	char message[PLAN_MESSAGE_BYTES] = "";
	struct plan *plan = NULL;
	size_t bytes;
	void *desc;
	int r;

	desc = describe_finish(describe, &bytes);
	r = plan_new(desc, bytes, &one_op_arenas, message, &plan);
	free(desc);
	if (r)
		fail_msg("refused with %d: %s", r, message);
	return plan;
}

struct tensor *expect_tensor(struct plan *plan, const char *name)
{
	for (unsigned int i = 0; i < plan->n_tensors; i++) {
		if (!strcmp(plan->tensors[i].name, name))
			return &plan->tensors[i];
	}
	fail_msg("no tensor %s", name);
	return NULL;
}

void expect_infers(const char *op, const char *inputs, const char *attrs, const char *shape)
{
	struct plan *plan = expect_plan(one_op(op, inputs, attrs));

	assert_string_equal(SHAPE_TEXT(&expect_tensor(plan, "y")->shape), shape);
	plan_free(plan);
}

static void expect_bytes_refused_va(const void *desc, size_t desc_bytes, va_list words)
{
	char message[PLAN_MESSAGE_BYTES] = "";
	struct plan *plan = NULL;
	const char *word;
	int r;

	r = plan_new(desc, desc_bytes, &one_op_arenas, message, &plan);
	if (r != PLAN_E_INVALID) {
		plan_free(plan);
		fail_msg("expected a refusal, got %d", r);
	}
	assert_null(plan);
	while ((word = va_arg(words, const char *))) {
		if (!strstr(message, word))
			fail_msg("\"%s\" is not in: %s", word, message);
	}
	for (size_t i = 0; message[i]; i++)
		assert_in_range(message[i], 0x20, 0x7e);
}

static void expect_refused_va(struct describe *describe, va_list words)
{
	size_t bytes;
	void *desc = describe_finish(describe, &bytes);

	expect_bytes_refused_va(desc, bytes, words);
	free(desc);
}

void expect_refuses(const char *op, const char *inputs, const char *attrs, ...)
{
	char node[64];
	va_list words;

	snprintf(node, sizeof(node), "node 0 \"it\" (%s): ", op);
	expect_refused(one_op(op, inputs, attrs), node, NULL);
	va_start(words, attrs);
	expect_refused_va(one_op(op, inputs, attrs), words);
	va_end(words);
}

void expect_refused(struct describe *describe, ...)
{
	va_list words;

	va_start(words, describe);
	expect_refused_va(describe, words);
	va_end(words);
}

void expect_bytes_refused(const void *desc, size_t desc_bytes, ...)
{
	va_list words;

	va_start(words, desc_bytes);
	expect_bytes_refused_va(desc, desc_bytes, words);
	va_end(words);
}
