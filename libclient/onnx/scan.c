/* SPDX-License-Identifier: MIT */
/*
 * Checks of a protobuf message before it is unpacked
 *
 * The scan walks the wire format by the schema's descriptors, without recursion. A stack holds at
 * most SCAN_MAX_DEPTH open messages, each with a descriptor, an end, and a bit mask of the singular
 * submessages seen. The scan steps over a tensor's bytes, so its time depends on the number of
 * fields and not on the size of the weights. Unknown fields are allowed (newer files have some);
 * groups, which are obsolete in proto2, are not.
 */
#include <stdbool.h>
#include <string.h>

#include "libclient/onnx/scan.h"

enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* Limit of fields in a message of ONNX: a field's index in its descriptor is a bit. */
#define SCAN_MAX_FIELDS 64

struct level {
	const ProtobufCMessageDescriptor *descriptor;
	size_t end;
	uint64_t seen; /* bit mask: singular messages */
};

struct scan {
	const uint8_t *bytes;
	size_t at;
	unsigned int depth;
	struct level levels[SCAN_MAX_DEPTH];
};

static bool read_varint(struct scan *scan, size_t end, uint64_t *ret)
{
	uint64_t value = 0;

	for (unsigned int shift = 0; shift < 70 && scan->at < end; shift += 7) {
		uint8_t byte = scan->bytes[scan->at++];

		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = value;
			return true;
		}
	}
	return false;
}

static int field_index(const ProtobufCMessageDescriptor *descriptor, uint64_t id)
{
	for (unsigned int i = 0; i < descriptor->n_fields; i++)
		if (descriptor->fields[i].id == id)
			return (int)i;
	return -1;
}

static enum wire_type wire_type_of(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return WIRE_BYTES;
	case PROTOBUF_C_TYPE_FLOAT:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_SFIXED32:
		return WIRE_32;
	case PROTOBUF_C_TYPE_DOUBLE:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_SFIXED64:
		return WIRE_64;
	default:
		return WIRE_VARINT;
	}
}

/* Open the message of @n bytes that starts at scan->at. */
static const char *enter(struct scan *scan, const ProtobufCFieldDescriptor *field, int index,
			 size_t n)
{
	struct level *level = &scan->levels[scan->depth - 1];

	if (field->label != PROTOBUF_C_LABEL_REPEATED) {
		if (level->seen >> index & 1)
			return "a message that may occur once occurs twice";
		level->seen |= 1ull << index;
	}
	if (scan->depth == SCAN_MAX_DEPTH)
		return "messages are nested too deeply";
	scan->levels[scan->depth++] =
		(struct level){.descriptor = field->descriptor, .end = scan->at + n};
	return NULL;
}

static const char *scan_field(struct scan *scan)
{
	const struct level *level = &scan->levels[scan->depth - 1];
	const ProtobufCFieldDescriptor *field = NULL;
	unsigned int wire;
	uint64_t tag, value;
	bool is_packed;
	int index;

	if (!read_varint(scan, level->end, &tag) || tag >> 3 == 0 || tag >> 32)
		return "a field has no valid number";
	wire = tag & 7;
	index = field_index(level->descriptor, tag >> 3);
	if (index >= 0)
		field = &level->descriptor->fields[index];
	is_packed = field && wire == WIRE_BYTES && field->label == PROTOBUF_C_LABEL_REPEATED;
	if (field && wire != (unsigned int)wire_type_of(field->type) && !is_packed)
		return "a field has the wrong type";

	switch (wire) {
	case WIRE_VARINT:
		return read_varint(scan, level->end, &value) ? NULL : "a number is cut off";
	case WIRE_32:
	case WIRE_64:
		value = wire == WIRE_32 ? 4 : 8;
		break;
	case WIRE_BYTES:
		if (!read_varint(scan, level->end, &value))
			return "a length is cut off";
		break;
	default:
		return "a field has no valid type";
	}
	if (value > level->end - scan->at)
		return "it is cut off";
	if (field && field->type == PROTOBUF_C_TYPE_MESSAGE)
		return enter(scan, field, index, (size_t)value);
	scan->at += (size_t)value;
	return NULL;
}

const char *scan_message(const ProtobufCMessageDescriptor *descriptor, const void *bytes,
			 size_t n_bytes, uint64_t *ret_at)
{
	struct scan scan = {.bytes = bytes, .depth = 1};
	const char *trouble = NULL;
	size_t at = 0;

	scan.levels[0] = (struct level){.descriptor = descriptor, .end = n_bytes};
	while (!trouble && scan.depth > 0) {
		const struct level *level = &scan.levels[scan.depth - 1];

		at = scan.at;
		if (level->descriptor->n_fields > SCAN_MAX_FIELDS)
			trouble = "its schema is too large";
		else if (scan.at == level->end)
			scan.depth--;
		else
			trouble = scan_field(&scan);
	}
	*ret_at = at;
	return trouble;
}

/*
 * Step over a field of the outermost message. Return: false if there is no valid field;
 * *ret_missing is then the number of bytes by which the field exceeds the message, or 0.
 */
static bool step_over(struct scan *scan, size_t n_bytes, uint64_t *ret_tag, uint64_t *ret_missing)
{
	uint64_t value = 0;

	*ret_missing = 0;
	if (scan->at == n_bytes || !read_varint(scan, n_bytes, ret_tag))
		return false;
	switch (*ret_tag & 7) {
	case WIRE_VARINT:
		return read_varint(scan, n_bytes, &value);
	case WIRE_32:
	case WIRE_64:
		value = (*ret_tag & 7) == WIRE_32 ? 4 : 8;
		break;
	case WIRE_BYTES:
		if (!read_varint(scan, n_bytes, &value))
			return false;
		break;
	default:
		return false;
	}
	if (value > n_bytes - scan->at) {
		*ret_missing = value - (n_bytes - scan->at);
		return false;
	}
	scan->at += (size_t)value;
	return true;
}

bool scan_has(const void *bytes, size_t n_bytes, uint64_t tag)
{
	struct scan scan = {.bytes = bytes};
	uint64_t found, missing;

	while (step_over(&scan, n_bytes, &found, &missing))
		if (found == tag)
			return true;
	return false;
}

uint64_t scan_missing(const ProtobufCMessageDescriptor *descriptor, const void *bytes,
		      size_t n_bytes)
{
	struct scan scan = {.bytes = bytes};
	uint64_t tag = 0, missing;
	bool is_sound;

	do {
		int index;

		is_sound = step_over(&scan, n_bytes, &tag, &missing);
		index = field_index(descriptor, tag >> 3);
		if (index < 0 ||
		    (unsigned int)wire_type_of(descriptor->fields[index].type) != (tag & 7))
			return 0;
	} while (is_sound);
	return missing;
}
