/* SPDX-License-Identifier: MIT */
/*
 * Unpacking bytes into protobuf messages
 *
 * Messages are scanned first (scan.c), and unpacked into limited memory.
 */
#include <errno.h>

#include "libclient/onnx/model.h"
#include "libclient/onnx/scan.h"

static void *unpack_alloc(void *data, size_t bytes)
{
	return mem_take(data, bytes);
}

static void unpack_free(void *data, void *place)
{
}

int onnx_unpack(struct mem *mem, const ProtobufCMessageDescriptor *descriptor, const void *bytes,
		size_t n_bytes, ProtobufCMessage **ret, struct rbk_error *error)
{
	ProtobufCAllocator allocator = {unpack_alloc, unpack_free, mem};
	ProtobufCMessage *message;
	const char *trouble;
	uint64_t at;

	trouble = scan_message(descriptor, bytes, n_bytes, &at);
	if (trouble)
		return onnx_error(error, -EBADMSG, "it is not a valid %s: %s, at byte %llu",
				  descriptor->short_name, trouble, (unsigned long long)at);
	message = protobuf_c_message_unpack(descriptor, &allocator, n_bytes, bytes);
	if (!message && mem->limited)
		return onnx_error(error, -EFBIG, "it unpacks to more than %llu bytes",
				  (unsigned long long)mem->max_bytes);
	if (!message && mem->failed)
		return onnx_error(error, -ENOMEM, "out of memory");
	if (!message)
		return onnx_error(error, -EBADMSG, "it is not a valid %s", descriptor->short_name);
	*ret = message;
	return 0;
}
