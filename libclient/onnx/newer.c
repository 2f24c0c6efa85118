/* SPDX-License-Identifier: MIT */
/*
 * Fields that are newer than the schema
 *
 * A field that the schema has is found by its name, so this file compiles with old and new schemas.
 * For a field that the schema lacks, unpacking keeps the bytes after the tag: a length, and that
 * many bytes.
 */
#include <errno.h>
#include <string.h>

#include "libclient/onnx/newer.h"

#define NODE_OVERLOAD            8
#define FUNCTION_OVERLOAD        13
#define FUNCTION_ATTRIBUTE_PROTO 11

/* Return the bytes of an unknown field; NULL: it has another tag, or no length. */
static const uint8_t *unknown_bytes(const ProtobufCMessageUnknownField *field, uint32_t tag,
				    size_t *ret_n)
{
	size_t at = 0;

	if (field->tag != tag || field->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
		return NULL;
	while (at < field->len && field->data[at] & 0x80)
		at++;
	if (at == field->len)
		return NULL;
	*ret_n = field->len - at - 1;
	return field->data + at + 1;
}

/* Find a string; the last one if there are several, as protobuf defines. */
static const char *find_string(struct mem *mem, const ProtobufCMessage *message, const char *name,
			       uint32_t tag)
{
	const ProtobufCFieldDescriptor *field =
		protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);
	const char *text = NULL;
	size_t n = 0;
	char *copy;

	if (field) {
		memcpy(&text, (const char *)message + field->offset, sizeof(text));
		return text ? text : "";
	}
	for (unsigned int i = 0; i < message->n_unknown_fields; i++) {
		const uint8_t *bytes = unknown_bytes(&message->unknown_fields[i], tag, &n);

		if (bytes)
			text = (const char *)bytes;
	}
	if (!text)
		return "";
	copy = mem_zero(mem, n + 1, 1);
	return copy ? memcpy(copy, text, n) : NULL;
}

const char *newer_node_overload(struct mem *mem, const Onnx__NodeProto *proto)
{
	return find_string(mem, &proto->base, "overload", NODE_OVERLOAD);
}

const char *newer_function_overload(struct mem *mem, const Onnx__FunctionProto *proto)
{
	return find_string(mem, &proto->base, "overload", FUNCTION_OVERLOAD);
}

int newer_function_defaults(struct mem *mem, const Onnx__FunctionProto *proto,
			    Onnx__AttributeProto *const **ret, size_t *ret_n,
			    struct rbk_error *error)
{
	const ProtobufCMessage *message = &proto->base;
	const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(
		message->descriptor, "attribute_proto");
	Onnx__AttributeProto **attrs;
	size_t n = 0;
	int r = 0;

	if (field) {
		memcpy(ret_n, (const char *)message + field->quantifier_offset, sizeof(*ret_n));
		memcpy(ret, (const char *)message + field->offset, sizeof(*ret));
		return 0;
	}
	attrs = mem_take(mem, message->n_unknown_fields * sizeof(*attrs));
	if (!attrs)
		return onnx_error(error, mem_error(mem), "the model needs too much memory");
	for (unsigned int i = 0; !r && i < message->n_unknown_fields; i++) {
		size_t n_bytes;
		const uint8_t *bytes = unknown_bytes(&message->unknown_fields[i],
						     FUNCTION_ATTRIBUTE_PROTO, &n_bytes);
		ProtobufCMessage *attr;

		if (!bytes)
			continue;
		r = onnx_unpack(mem, &onnx__attribute_proto__descriptor, bytes, n_bytes, &attr,
				error);
		if (!r)
			attrs[n++] = (Onnx__AttributeProto *)attr;
	}
	*ret = attrs;
	*ret_n = n;
	return r;
}
