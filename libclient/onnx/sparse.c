/* SPDX-License-Identifier: MIT */
/*
 * Sparse tensors in a model file
 *
 * A sparse tensor has the elements that are not 0, and the place of each: its number in row-major
 * order, or an index for each dimension. Sparse tensors are made dense. A shape may be far larger
 * than the file, so the result is bounded by the limit of its memory.
 */
#include <errno.h>
#include <string.h>

#include "libclient/onnx/model.h"

/* Find the place of the @i-th index. Return: false if it is outside of the shape. */
static bool find_place(const struct constant *dense, const struct constant *indices, uint64_t i,
		       uint64_t *ret)
{
	const int64_t *index = indices->data;
	uint64_t place = 0;

	if (indices->rank == 1) {
		*ret = (uint64_t)index[i];
		return index[i] >= 0 && *ret < dense->n_elems;
	}
	index += i * dense->rank;
	for (uint32_t k = 0; k < dense->rank; k++) {
		if (index[k] < 0 || index[k] >= dense->dims[k])
			return false;
		place = place * (uint64_t)dense->dims[k] + (uint64_t)index[k];
	}
	*ret = place;
	return true;
}

static int spread(const struct constant *values, const struct constant *indices,
		  struct constant *dense, uint8_t *data, const char *what, const char *name,
		  struct rbk_error *error)
{
	const unsigned int size = onnx_dtype_size(values->dtype);
	uint64_t place, next = 0;

	for (uint64_t i = 0; i < values->n_elems; i++) {
		if (!find_place(dense, indices, i, &place))
			return onnx_error(error, -EBADMSG,
					  "%s \"%s\": index %llu is outside of its shape", what,
					  name, (unsigned long long)i);
		if (place < next)
			return onnx_error(error, -EBADMSG,
					  "%s \"%s\": index %llu is not larger than the index "
					  "before it",
					  what, name, (unsigned long long)i);
		next = place + 1;
		memcpy(data + place * size, (const uint8_t *)values->data + i * size, size);
	}
	return 0;
}

int sparse_decode(struct mem *mem, struct external *external, const Onnx__SparseTensorProto *proto,
		  const char *what, struct constant *ret, struct rbk_error *error)
{
	struct constant values, indices, dense = {0};
	const char *name;
	uint8_t *data;
	int r;

	if (!proto->values || !proto->indices)
		return onnx_error(error, -EBADMSG, "%s has no values, or no indices", what);
	name = proto->values->name ? proto->values->name : "";
	r = constant_decode(mem, external, proto->values, what, &values, error);
	if (!r)
		r = constant_decode(mem, external, proto->indices, what, &indices, error);
	if (r)
		return r;
	dense.dtype = values.dtype;
	r = constant_set_shape(&dense, proto->dims, proto->n_dims, what, name, error);
	if (r)
		return r;
	if (onnx_dtype_size(values.dtype) == 0)
		return onnx_error(error, -EOPNOTSUPP, "%s \"%s\" is of element type %s", what, name,
				  rbk_onnx_dtype_name(values.dtype));
	if (values.rank != 1 || indices.dtype != RBK_ONNX_I64 ||
	    (indices.rank != 1 && indices.rank != 2) || indices.dims[0] != values.dims[0] ||
	    (indices.rank == 2 && indices.dims[1] != (int64_t)dense.rank))
		return onnx_error(
			error, -EBADMSG,
			"%s \"%s\": its indices are not an int64, or %u of them, for each "
			"value",
			what, name, dense.rank);
	data = mem_zero(mem, dense.n_bytes, 1);
	if (!data)
		return onnx_error(error, mem_error(mem), "%s \"%s\" needs too much memory", what,
				  name);
	dense.data = data;
	r = spread(&values, &indices, &dense, data, what, name, error);
	if (!r)
		*ret = dense;
	return r;
}
