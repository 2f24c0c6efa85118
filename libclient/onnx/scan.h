#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A look at a protobuf message before it is unpacked
 *
 * protobuf-c unpacks by recursion and merges what comes twice; neither is bounded. So it only ever
 * gets what passed here.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <protobuf-c/protobuf-c.h>

/* How deep messages may be nested. ONNX needs 6, and 4 for each If that another one's branch has.
 */
#define SCAN_MAX_DEPTH 70

/*
 * Checks that @bytes are a message of @descriptor: every length within its message, known fields of
 * their wire type, messages that are not repeated at most once, no more than SCAN_MAX_DEPTH deep.
 * Return: NULL, or what is wrong, for "the file is broken: %s at byte N", which goes to *ret_at.
 */
const char *scan_message(const ProtobufCMessageDescriptor *descriptor, const void *bytes,
			 size_t n_bytes, uint64_t *ret_at);

/* Has the message a field of that tag, before anything in it that is not sound? */
bool scan_has(const void *bytes, size_t n_bytes, uint64_t tag);
/*
 * How many bytes the last field has beyond the end, where everything before it is fields of
 * @descriptor: the file was cut off. Else 0.
 */
uint64_t scan_missing(const ProtobufCMessageDescriptor *descriptor, const void *bytes,
		      size_t n_bytes);
