/* SPDX-License-Identifier: MIT */
/*
 * Tensors in a model file
 *
 * A TensorProto has its elements in one of many places: raw bytes, one of five typed lists (small
 * types, float16 bit patterns and bool all share int32_data), or another file. Each type may use
 * raw bytes and just one of the lists. Whatever the encoding, the result is a row-major array: the
 * file's own bytes where they have that form, else converted elements. The file must have exactly
 * as many elements as the shape, so a shape of gigabytes alone allocates nothing.
 */
#include <errno.h>
#include <string.h>

#include "libclient/onnx/model.h"

struct type_info {
	uint32_t dtype;
	const char *name;
	unsigned int bits;
	enum list { LIST_NONE, LIST_FLOAT, LIST_INT32, LIST_INT64, LIST_DOUBLE, LIST_UINT64 } list;
};

static const struct type_info types[] = {
	{RBK_ONNX_F32, "float32", 32, LIST_FLOAT},   {RBK_ONNX_U8, "uint8", 8, LIST_INT32},
	{RBK_ONNX_I8, "int8", 8, LIST_INT32},        {RBK_ONNX_U16, "uint16", 16, LIST_INT32},
	{RBK_ONNX_I16, "int16", 16, LIST_INT32},     {RBK_ONNX_I32, "int32", 32, LIST_INT32},
	{RBK_ONNX_I64, "int64", 64, LIST_INT64},     {RBK_ONNX_BOOL, "bool", 8, LIST_INT32},
	{RBK_ONNX_F16, "float16", 16, LIST_INT32},   {RBK_ONNX_F64, "float64", 64, LIST_DOUBLE},
	{RBK_ONNX_U32, "uint32", 32, LIST_UINT64},   {RBK_ONNX_U64, "uint64", 64, LIST_UINT64},
	{RBK_ONNX_BF16, "bfloat16", 16, LIST_INT32}, {RBK_ONNX_U4, "uint4", 4, LIST_INT32},
	{RBK_ONNX_I4, "int4", 4, LIST_INT32},
};

/* Types of which only the name is known. */
static const struct {
	uint32_t dtype;
	const char *name;
} unread[] = {
	{8, "string"},          {14, "complex64"},  {15, "complex128"},     {17, "float8e4m3fn"},
	{18, "float8e4m3fnuz"}, {19, "float8e5m2"}, {20, "float8e5m2fnuz"}, {23, "float4e2m1"},
	{24, "float8e8m0"},     {25, "uint2"},      {26, "int2"},
};

static const struct type_info *type_find(uint32_t dtype)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (types[i].dtype == dtype)
			return &types[i];
	return NULL;
}

ONNX_EXPORT const char *rbk_onnx_dtype_name(uint32_t dtype)
{
	const struct type_info *type = type_find(dtype);

	for (size_t i = 0; i < sizeof(unread) / sizeof(unread[0]); i++)
		if (unread[i].dtype == dtype)
			return unread[i].name;
	return type ? type->name : "unknown";
}

ONNX_EXPORT uint64_t rbk_onnx_dtype_bytes(uint32_t dtype, uint64_t n_elems)
{
	const struct type_info *type = type_find(dtype);

	if (!type)
		return 0;
	return type->bits < 8 ? n_elems / 2 + n_elems % 2 : n_elems * (type->bits / 8);
}

unsigned int onnx_dtype_size(uint32_t dtype)
{
	const struct type_info *type = type_find(dtype);

	return type ? type->bits / 8 : 0;
}

bool constant_measure(struct constant *constant)
{
	uint64_t n = 1;
	bool is_empty = false;

	for (uint32_t i = 0; i < constant->rank; i++)
		is_empty |= constant->dims[i] == 0;
	for (uint32_t i = 0; !is_empty && i < constant->rank; i++)
		if (__builtin_mul_overflow(n, (uint64_t)constant->dims[i], &n) ||
		    n > ONNX_MAX_WEIGHT_BYTES)
			return false;
	constant->n_elems = is_empty ? 0 : n;
	constant->n_bytes = rbk_onnx_dtype_bytes(constant->dtype, constant->n_elems);
	return constant->n_bytes <= ONNX_MAX_WEIGHT_BYTES;
}

/*
 * Convert int32_data to elements of 8 or 16 bits: bit patterns, of which the upper bits are
 * ignored.
 */
static int narrow(struct mem *mem, const int32_t *from, uint64_t n, unsigned int bytes,
		  const void **ret)
{
	uint8_t *to = mem_take(mem, n * bytes);

	if (!to)
		return mem_error(mem);
	for (uint64_t i = 0; i < n; i++)
		memcpy(to + i * bytes, &from[i], bytes);
	*ret = to;
	return 0;
}

static int widen(struct mem *mem, const uint64_t *from, uint64_t n, const void **ret)
{
	uint32_t *to = mem_take(mem, n * sizeof(*to));

	if (!to)
		return mem_error(mem);
	for (uint64_t i = 0; i < n; i++)
		to[i] = (uint32_t)from[i];
	*ret = to;
	return 0;
}

/* Return the typed list of the tensor's type, as an array of its elements. */
static int decode_list(struct mem *mem, const Onnx__TensorProto *proto,
		       const struct type_info *type, uint64_t n, const void **ret)
{
	switch (type->list) {
	case LIST_FLOAT:
		*ret = proto->float_data;
		return 0;
	case LIST_INT64:
		*ret = proto->int64_data;
		return 0;
	case LIST_DOUBLE:
		*ret = proto->double_data;
		return 0;
	case LIST_INT32:
		if (type->bits != 32)
			return narrow(mem, proto->int32_data, n, type->bits == 16 ? 2 : 1, ret);
		*ret = proto->int32_data;
		return 0;
	case LIST_UINT64:
		if (type->bits != 64)
			return widen(mem, proto->uint64_data, n, ret);
		*ret = proto->uint64_data;
		return 0;
	default:
		return -EBADMSG;
	}
}

static size_t list_length(const Onnx__TensorProto *proto, enum list list)
{
	switch (list) {
	case LIST_FLOAT:
		return proto->n_float_data;
	case LIST_INT32:
		return proto->n_int32_data;
	case LIST_INT64:
		return proto->n_int64_data;
	case LIST_DOUBLE:
		return proto->n_double_data;
	case LIST_UINT64:
		return proto->n_uint64_data;
	default:
		return 0;
	}
}

/* Convert bools: bytes other than 0 and 1 would differ in meaning between devices. */
static int normalise_bools(struct mem *mem, struct constant *constant)
{
	const uint8_t *from = constant->data;
	uint8_t *to;

	for (uint64_t i = 0; i < constant->n_bytes; i++) {
		if (from[i] <= 1)
			continue;
		to = mem_take(mem, constant->n_bytes);
		if (!to)
			return mem_error(mem);
		for (i = 0; i < constant->n_bytes; i++)
			to[i] = from[i] != 0;
		constant->data = to;
		return 0;
	}
	return 0;
}

/* Copy the elements if they are not aligned: bytes of another file may start anywhere. */
static int align(struct mem *mem, struct constant *constant, unsigned int bytes)
{
	void *copy;

	if (bytes == 0 || (uintptr_t)constant->data % bytes == 0)
		return 0;
	/* The file has as many bytes: raise the limit by them. */
	mem->max_bytes += constant->n_bytes;
	copy = mem_take(mem, constant->n_bytes);
	if (!copy)
		return mem_error(mem);
	memcpy(copy, constant->data, constant->n_bytes);
	constant->data = copy;
	return 0;
}

int constant_set_shape(struct constant *constant, const int64_t *dims, size_t n_dims,
		       const char *what, const char *name, struct rbk_error *error)
{
	if (n_dims > RBK_ONNX_MAX_RANK)
		return onnx_error(error, -EOPNOTSUPP,
				  "%s \"%s\" has %zu dimensions, expected at most %d", what, name,
				  n_dims, RBK_ONNX_MAX_RANK);
	for (size_t i = 0; i < n_dims; i++) {
		if (dims[i] < 0)
			return onnx_error(error, -EBADMSG, "%s \"%s\": dimension %zu is %lld", what,
					  name, i, (long long)dims[i]);
		if (dims[i] > INT32_MAX)
			return onnx_error(error, -EFBIG,
					  "%s \"%s\": dimension %zu is %lld, expected at most %d",
					  what, name, i, (long long)dims[i], INT32_MAX);
		constant->dims[i] = dims[i];
	}
	constant->rank = (uint32_t)n_dims;
	if (!constant_measure(constant))
		return onnx_error(error, -EFBIG, "%s \"%s\" would have more than 64 GiB", what,
				  name);
	return 0;
}

static int decode_elements(struct mem *mem, struct external *external,
			   const Onnx__TensorProto *proto, const char *what,
			   const struct type_info *type, struct constant *constant,
			   struct rbk_error *error)
{
	const char *name = proto->name ? proto->name : "";
	uint64_t n = type->bits < 8 ? constant->n_bytes : constant->n_elems;
	uint64_t n_given;

	if (proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
		if (!external || external->folder < 0)
			return onnx_error(
				error, -EBADMSG,
				"%s \"%s\" is in another file, but the folder of that file is "
				"unknown",
				what, name);
		return external_find(external, mem, proto, constant->n_bytes, &constant->data,
				     error);
	}
	if (proto->has_raw_data) {
		if (proto->raw_data.len != constant->n_bytes)
			return onnx_error(
				error, -EBADMSG,
				"%s \"%s\" has %zu bytes, but its type %s and shape require %llu",
				what, name, proto->raw_data.len, type->name,
				(unsigned long long)constant->n_bytes);
		constant->data = proto->raw_data.data;
		return 0;
	}
	n_given = list_length(proto, type->list);
	if (n_given != n)
		return onnx_error(
			error, -EBADMSG,
			"%s \"%s\" has %llu elements, but its type %s and shape require %llu", what,
			name, (unsigned long long)n_given, type->name, (unsigned long long)n);
	return decode_list(mem, proto, type, n, &constant->data);
}

int constant_decode(struct mem *mem, struct external *external, const Onnx__TensorProto *proto,
		    const char *what, struct constant *ret, struct rbk_error *error)
{
	static const uint64_t nothing;
	const char *name = proto->name ? proto->name : "";
	struct constant constant = {.dtype = (uint32_t)proto->data_type};
	const struct type_info *type = type_find(constant.dtype);
	int r;

	if (!type)
		return onnx_error(error, -EOPNOTSUPP,
				  "%s \"%s\" is of element type %s (%d), which is not supported",
				  what, name, rbk_onnx_dtype_name(constant.dtype),
				  proto->data_type);
	if (proto->segment)
		return onnx_error(error, -EOPNOTSUPP,
				  "%s \"%s\" is in segments, which are not supported", what, name);
	r = constant_set_shape(&constant, proto->dims, proto->n_dims, what, name, error);
	if (!r)
		r = decode_elements(mem, external, proto, what, type, &constant, error);
	if (r)
		return r == -ENOMEM ? onnx_error(error, r, "out of memory") : r;
	if (constant.n_bytes == 0)
		constant.data = &nothing;
	r = align(mem, &constant, type->bits / 8);
	if (!r && constant.dtype == RBK_ONNX_BOOL)
		r = normalise_bools(mem, &constant);
	if (r)
		return onnx_error(error, r, "out of memory for %s \"%s\"", what, name);
	*ret = constant;
	return 0;
}
