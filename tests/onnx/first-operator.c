/* SPDX-License-Identifier: MIT */
/*
 * The first operator of a model
 *
 * The report names the operator even if the model cannot be loaded. The path through the file is
 * short enough to parse without a library: ModelProto.graph is field 7, GraphProto.node field 1,
 * NodeProto.op_type field 4.
 */
#include "onnx/first-operator.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* bytes read of the file; the first node is at its beginning */
enum { MAX_BYTES = 1 << 20 };
enum { FIELD_GRAPH = 7, FIELD_NODE = 1, FIELD_OP_TYPE = 4 };
enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct message {
	const unsigned char *at, *end;
};

static bool take_varint(struct message *message, uint64_t *ret)
{
	uint64_t value = 0;

	for (unsigned int shift = 0; shift < 64 && message->at < message->end; shift += 7) {
		unsigned char byte = *message->at++;

		value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80) {
			*ret = value;
			return true;
		}
	}
	return false;
}

/*
 * Find the first field @field of @message among those with wire type 2 (length-delimited), and
 * return its contents.
 */
static bool find(struct message message, unsigned int field, struct message *ret)
{
	uint64_t tag, n;

	while (take_varint(&message, &tag)) {
		switch (tag & 7) {
		case WIRE_VARINT:
			if (!take_varint(&message, &n))
				return false;
			continue;
		case WIRE_FIXED64:
			n = 8;
			break;
		case WIRE_FIXED32:
			n = 4;
			break;
		case WIRE_BYTES:
			if (!take_varint(&message, &n))
				return false;
			break;
		default:
			return false;
		}
		if (tag >> 3 == field && (tag & 7) == WIRE_BYTES) {
			/* The rest of a message beyond the bytes read is not needed. */
			if (n > (uint64_t)(message.end - message.at))
				n = (uint64_t)(message.end - message.at);
			*ret = (struct message){message.at, message.at + n};
			return true;
		}
		if (n > (uint64_t)(message.end - message.at))
			return false;
		message.at += n;
	}
	return false;
}

bool first_operator(const char *path, char *ret, size_t ret_bytes)
{
	unsigned char *bytes = malloc(MAX_BYTES);
	FILE *file = bytes ? fopen(path, "rb") : NULL;
	struct message message = {bytes, bytes};
	bool is_there;

	if (file) {
		message.end = bytes + fread(bytes, 1, MAX_BYTES, file);
		fclose(file);
	}
	is_there = find(message, FIELD_GRAPH, &message) && find(message, FIELD_NODE, &message) &&
		   find(message, FIELD_OP_TYPE, &message) && message.end > message.at;
	if (is_there)
		snprintf(ret, ret_bytes, "%.*s", (int)(message.end - message.at), message.at);
	for (char *c = ret; is_there && *c; c++)
		if (*c <= ' ' || *c > '~')
			*c = '?';
	free(bytes);
	return is_there;
}
