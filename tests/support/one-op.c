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

/* Parse a shape such as "[count,3]" and advance *at past it. */
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

static uint8_t parse_type(const char **at)
{
	static const struct {
		const char *name;
		uint8_t type;
	} types[] = {
		{"f32", RBK_DTYPE_F32}, {"f16", RBK_DTYPE_F16},   {"f64", RBK_DTYPE_F64},
		{"i64", RBK_DTYPE_I64}, {"i32", RBK_DTYPE_I32},   {"i8", RBK_DTYPE_I8},
		{"u8", RBK_DTYPE_U8},   {"bool", RBK_DTYPE_BOOL},
	};
	const size_t bytes = strcspn(*at, "[");

	for (size_t i = 0; bytes > 0 && i < sizeof(types) / sizeof(types[0]); i++)
		if (!strncmp(*at, types[i].name, bytes)) {
			*at += bytes;
			return types[i].type;
		}
	return RBK_DTYPE_F32;
}

/*
 * Return the type of the first input of output @i's type class. Without such an input: float32 if
 * the class has it, else the first type of the class.
 */
static uint8_t out_type(const struct op *op, unsigned int i, const uint8_t *in_types,
			unsigned int n_in)
{
	const size_t n_out = op ? strlen(op->out_classes) : 0, n = op ? strlen(op->in_classes) : 0;
	uint32_t types = OP_FLOAT32;
	char class;

	if (!op)
		return RBK_DTYPE_F32;
	class = op->out_classes[i < n_out ? i : n_out - 1];
	for (unsigned int j = 0; j < n_in; j++)
		if (op->in_classes[j < n ? j : n - 1] == class)
			return in_types[j];
	for (unsigned int c = 0; c < OP_MAX_CLASSES; c++)
		if (op->classes[c].name == class)
			types = op->classes[c].cpu | op->classes[c].vulkan;
	return types & OP_FLOAT32 ? RBK_DTYPE_F32 : (uint8_t)__builtin_ctz(types);
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
	return one_op_counted(op, inputs, attrs, ONE_OP_MAX_COUNT);
}

struct describe *one_op_counted(const char *op, const char *inputs, const char *attrs,
				uint32_t max_count)
{
	const struct op *known = op_by_name(op);
	unsigned int n_out = known ? known->min_out : 1;
	struct describe *describe = describe_new("one", strstr(inputs, "count") ? max_count : 1);
	char in[64] = "", out[64] = "", name[2] = "a", text[256], *token, *next;
	uint8_t in_types[OP_MAX_INPUTS] = {0};
	unsigned int n_in = 0;

	while (*inputs) {
		uint32_t dims[RBK_MAX_RANK];

		if (*inputs == ' ') {
			inputs++;
			continue;
		}
		strcat(in, in[0] ? "," : "");
		in_types[n_in] = RBK_DTYPE_F32;
		if (*inputs == '-') {
			strcat(in, "-");
			inputs++;
		} else {
			const bool is_constant = *inputs == '=';
			unsigned int rank;

			inputs += is_constant;
			in_types[n_in] = parse_type(&inputs);
			rank = parse_shape(&inputs, dims);
			describe_tensor(describe, name,
					is_constant ? RBK_TENSOR_CONSTANT : RBK_TENSOR_INPUT,
					in_types[n_in], is_constant ? RBK_REF(1, 0) : 0, rank,
					dims);
			strcat(in, name);
		}
		name[0]++;
		n_in++;
	}
	name[0] = 'y';
	for (unsigned int i = 0; i < n_out; i++, name[0]++) {
		describe_inferred(describe, name, RBK_TENSOR_OUTPUT,
				  out_type(known, i, in_types, n_in));
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

void expect_bytes_refused_(const void *desc, size_t desc_bytes, const char *const *words)
{
	char message[PLAN_MESSAGE_BYTES] = "";
	struct plan *plan = NULL;
	int r;

	r = plan_new(desc, desc_bytes, &one_op_arenas, message, &plan);
	if (r != PLAN_E_INVALID) {
		plan_free(plan);
		fail_msg("expected a refusal, got %d", r);
	}
	assert_null(plan);
	for (; *words; words++)
		if (!strstr(message, *words))
			fail_msg("\"%s\" is not in: %s", *words, message);
	for (size_t i = 0; message[i]; i++)
		assert_in_range(message[i], 0x20, 0x7e);
}

void expect_refused_(struct describe *describe, const char *const *words)
{
	size_t bytes;
	void *desc = describe_finish(describe, &bytes);

	expect_bytes_refused_(desc, bytes, words);
	free(desc);
}

void expect_refuses_(const char *op, const char *inputs, const char *attrs,
		     const char *const *words)
{
	char node[64];

	snprintf(node, sizeof(node), "node 0 \"it\" (%s): ", op);
	expect_refused(one_op(op, inputs, attrs), node);
	expect_refused_(one_op(op, inputs, attrs), words);
}
