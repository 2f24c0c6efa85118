#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Checks of a protobuf message before it is unpacked
 *
 * protobuf-c unpacks by recursion and merges repeated messages; neither is bounded. It therefore
 * only receives messages that passed these checks.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <protobuf-c/protobuf-c.h>

/* Limit of nesting. ONNX needs 6 levels, and 4 for each If inside the branch of another. */
#define SCAN_MAX_DEPTH 70

/*
 * Check that @bytes are a message of @descriptor: every length lies within its message, known
 * fields have their wire type, messages that are not repeated occur at most once, and nesting is at
 * most SCAN_MAX_DEPTH.
 * Return: NULL, or the error for "the file is broken: %s at byte N"; N is stored in *ret_at.
 */
const char *scan_message(const ProtobufCMessageDescriptor *descriptor, const void *bytes,
			 size_t n_bytes, uint64_t *ret_at);

/* Return true if the message has a field of that tag, before any invalid field. */
bool scan_has(const void *bytes, size_t n_bytes, uint64_t tag);
/*
 * Return the number of bytes by which the last field exceeds the message, if all fields before it
 * are fields of @descriptor: the file was truncated. Else return 0.
 */
uint64_t scan_missing(const ProtobufCMessageDescriptor *descriptor, const void *bytes,
		      size_t n_bytes);
