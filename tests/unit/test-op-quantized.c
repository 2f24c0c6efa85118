/* SPDX-License-Identifier: MIT */
/*
 * Shape rules: quantization, and products and convolutions of quantized tensors. The tests call the
 * rules directly, because the inputs have several types.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/operators/op-call.h"
#include "support/test.h"

enum { MAX_IN = 9, COUNT = 7 };

/* A node: its inputs as "u8[count,3]", separated by blanks, "-" if absent; attributes are ints. */
struct question {
	const char *op, *inputs;
	struct {
		const char *name;
		int64_t value;
	} attrs[6];
};

static void parse(const char *text, struct op_tensor *tensor)
{
	const char *at = strchr(text, '[');

	tensor->dtype = !strncmp(text, "u8", 2)    ? RBK_DTYPE_U8
			: !strncmp(text, "i8", 2)  ? RBK_DTYPE_I8
			: !strncmp(text, "i32", 3) ? RBK_DTYPE_I32
						   : RBK_DTYPE_F32;
	for (at++; *at != ']';) {
		char *end;

		if (!strncmp(at, "count", 5)) {
			tensor->shape.dynamic = true;
			tensor->shape.dims[tensor->shape.rank++] = COUNT;
			at += 5;
		} else {
			tensor->shape.dims[tensor->shape.rank++] = (uint32_t)strtoul(at, &end, 10);
			at = end;
		}
		at += *at == ',';
	}
}

/*
 * Infer the node's outputs. @answer gets them as "u8[count,3]", or the reason of a refusal.
 * Return: as op_call_infer().
 */
static int ask(const struct question *question, char answer[OP_MESSAGE_BYTES])
{
	static const char *const names[MAX_IN] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
	struct op_tensor in[MAX_IN] = {{0}}, out[3] = {{.name = "y"}, {.name = "z"}, {.name = "w"}};
	struct rbk_plan_attr attrs[6] = {{{0}}};
	int64_t values[6];
	char text[256], message[OP_MESSAGE_BYTES] = "", *token, *next;
	struct op_call call = {.op = op_by_name(question->op),
			       .node_name = "",
			       .attrs = attrs,
			       .blob = (const uint8_t *)values,
			       .message = message};
	int r;

	assert_non_null(call.op);
	call.n_out = call.op->min_out;
	for (unsigned int i = 0; i < call.n_out; i++)
		call.out[i] = &out[i];
	snprintf(text, sizeof(text), "%s", question->inputs);
	for (token = strtok_r(text, " ", &next); token; token = strtok_r(NULL, " ", &next)) {
		const unsigned int i = call.n_in++;

		if (token[0] == '-')
			continue;
		in[i].name = names[i];
		parse(token, &in[i]);
		call.in[i] = &in[i];
	}
	for (unsigned int i = 0; i < 6 && question->attrs[i].name; i++) {
		struct rbk_plan_attr *attr = &attrs[call.n_attrs++];

		snprintf(attr->name, sizeof(attr->name), "%s", question->attrs[i].name);
		attr->type = RBK_ATTR_INT;
		attr->n = 1;
		attr->blob_offset = i * (uint32_t)sizeof(values[0]);
		values[i] = question->attrs[i].value;
	}
	r = op_call_check_arity(&call);
	if (!r)
		r = op_call_infer(&call);
	if (r)
		memcpy(answer, message, sizeof(message));
	else
		snprintf(answer, OP_MESSAGE_BYTES, "%s%s", dtype_name(call.out_dtype[0]),
			 SHAPE_TEXT(&call.out_shape[0]));
	return r;
}

#define INFERS(answer, ...)                                     \
	do {                                                    \
		const struct question question = {__VA_ARGS__}; \
		char got[OP_MESSAGE_BYTES];                     \
		ask(&question, got);                            \
		assert_string_equal(got, answer);               \
	} while (0)
#define REFUSES(words, ...)                                          \
	do {                                                         \
		const struct question question = {__VA_ARGS__};      \
		char got[OP_MESSAGE_BYTES];                          \
		assert_int_equal(ask(&question, got), OP_E_INVALID); \
		if (!strstr(got, words))                             \
			fail_msg("%s", got);                         \
	} while (0)

TEST(test_quantize__shapes)
{
	INFERS("uint8[count,3]", "QuantizeLinear", "f[count,3] f[]");
	INFERS("uint8[4]", "QuantizeLinear", "f[4] f[1] u8[1]");
	INFERS("int8[count,3]", "QuantizeLinear", "f[count,3] f[3] i8[3]");
	INFERS("int8[count,3]", "QuantizeLinear", "f[count,3] f[count]",
	       {{"axis", 0}, {"output_dtype", 3}});
	INFERS("uint8[2,5]", "QuantizeLinear", "f[2,5] f[2,3] u8[2,3]", {{"block_size", 2}});
	INFERS("uint8[2,5]", "QuantizeLinear", "f[2,5] f[5]", {{"axis", -1}});
	INFERS("float32[2,5]", "DequantizeLinear", "i32[2,5] f[]");
	INFERS("float32[2,5]", "DequantizeLinear", "i8[2,5] f[2,5] i8[2,5]", {{"block_size", 1}});
	INFERS("uint8[count,5]", "DynamicQuantizeLinear", "f[count,5]");

	REFUSES("expected one scale, or one for each", "QuantizeLinear", "f[2,3] f[2]");
	REFUSES("expected a dimension", "QuantizeLinear", "f[2,3] f[2]", {{"axis", 2}});
	REFUSES("for each block of 2", "QuantizeLinear", "f[2,5] f[2,2]", {{"block_size", 2}});
	REFUSES("for each block of 2", "QuantizeLinear", "f[count,5] f[4,5]",
		{{"block_size", 2}, {"axis", 0}});
	REFUSES("as \"b\"", "QuantizeLinear", "f[2,3] f[3] u8[]");
	REFUSES("output_dtype", "QuantizeLinear", "f[2,3] f[] u8[]", {{"output_dtype", 3}});
	REFUSES("output_dtype", "QuantizeLinear", "f[2,3] f[]", {{"output_dtype", 17}});
	REFUSES("is float32, expected", "DequantizeLinear", "f[2,3] f[]");
	REFUSES("expected int8 as \"a\"", "DequantizeLinear", "i8[2,3] f[] u8[]");
}

TEST(test_products__shapes)
{
	INFERS("int32[count,4]", "MatMulInteger", "u8[count,3] i8[3,4]");
	INFERS("int32[count,4]", "MatMulInteger", "u8[count,3] i8[3,4] u8[count] i8[4]");
	INFERS("int32[count,4]", "MatMulInteger", "u8[count,3] i8[3,4] - i8[1,4]");
	INFERS("int32[2,5,4]", "MatMulInteger", "i8[2,5,3] i8[3,4] i8[5]");
	INFERS("int8[2,4]", "QLinearMatMul", "u8[2,3] f[] u8[] u8[3,4] f[4] u8[4] f[] i8[]");
	INFERS("float32[count,2,6]", "MatMulNBits", "f[count,2,20] u8[6,2,8] f[12] u8[6]",
	       {{"K", 20}, {"N", 6}, {"block_size", 16}, {"bits", 4}});
	INFERS("float32[count,6]", "MatMulNBits", "f[count,20] u8[6,2,8] f[6,2] f[6,2] - f[6]",
	       {{"K", 20}, {"N", 6}, {"block_size", 16}});

	REFUSES("inner dimensions 3 and 4", "MatMulInteger", "u8[2,3] i8[4,4]");
	REFUSES("expected one element, or 2 along", "MatMulInteger", "u8[2,3] i8[3,4] u8[3]");
	REFUSES("expected one element, or 4 along", "MatMulInteger", "u8[2,3] i8[3,4] u8[] i8[2]");
	REFUSES("expected one element", "QLinearMatMul",
		"u8[2,3] f[] u8[] u8[3,4] f[4] u8[4] f[2] i8[]");
	REFUSES("expected uint8 as \"a\"", "QLinearMatMul",
		"u8[2,3] f[] i8[] u8[3,4] f[4] u8[4] f[] i8[]");
	REFUSES("power of two", "MatMulNBits", "f[2,20] u8[6,2,8] f[12]",
		{{"K", 20}, {"N", 6}, {"block_size", 24}});
	REFUSES("expected 96 elements", "MatMulNBits", "f[2,20] u8[6,1,8] f[12]",
		{{"K", 20}, {"N", 6}, {"block_size", 16}});
	REFUSES("bits", "MatMulNBits", "f[2,20] u8[6,2,8] f[12]",
		{{"K", 20}, {"N", 6}, {"block_size", 16}, {"bits", 8}});
	REFUSES("g_idx", "MatMulNBits", "f[2,20] u8[6,2,8] f[12] - i32[20]",
		{{"K", 20}, {"N", 6}, {"block_size", 16}});
	REFUSES("its last dimension to be 20", "MatMulNBits", "f[2,21] u8[6,2,8] f[12]",
		{{"K", 20}, {"N", 6}, {"block_size", 16}});
}

TEST(test_convolutions__shapes)
{
	INFERS("int32[count,4,5,6]", "ConvInteger", "u8[count,3,5,6] i8[4,3,1,1] u8[] i8[4]");
	INFERS("uint8[1,4,6,8]", "QLinearConv",
	       "i8[1,2,8,8] f[] i8[] i8[4,1,3,1] f[4] i8[4] f[] u8[] i32[4]", {{"group", 2}});
	REFUSES("expected one element", "ConvInteger", "u8[2,3,5,6] i8[4,3,1,1] u8[3]");
	REFUSES("expected one element, or 4", "ConvInteger", "u8[2,3,5,6] i8[4,3,1,1] u8[] i8[3]");
	REFUSES("one per channel", "QLinearConv",
		"i8[1,2,8,8] f[] i8[] i8[4,2,3,1] f[4] i8[4] f[] u8[] i32[3]");
	REFUSES("at least 8", "QLinearConv", "i8[1,2,8,8] f[] i8[] i8[4,2,3,1] f[4] i8[4] f[]");
}
