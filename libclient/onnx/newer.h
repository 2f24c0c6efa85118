#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Fields that are newer than the schema
 *
 * The schema is the system's, which may lack fields of newer files. Unpacking keeps the bytes of
 * such fields.
 */
#include "libclient/onnx/model.h"

/* Return NodeProto.overload or FunctionProto.overload: "" if absent; NULL without memory. */
const char *newer_node_overload(struct mem *mem, const Onnx__NodeProto *proto);
const char *newer_function_overload(struct mem *mem, const Onnx__FunctionProto *proto);

/*
 * Read FunctionProto.attribute_proto: attributes and their defaults.
 * Return: 0; -EBADMSG, -EFBIG, -ENOMEM.
 */
int newer_function_defaults(struct mem *mem, const Onnx__FunctionProto *proto,
			    Onnx__AttributeProto *const **ret, size_t *ret_n,
			    struct rbk_error *error);
