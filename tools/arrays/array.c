/* SPDX-License-Identifier: MIT */
/*
 * Arrays in memory
 *
 * Elements are read with memcpy(), since a mapped file guarantees no alignment.
 */
#include "arrays/array.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct {
	uint32_t dtype;
	unsigned int bytes;
	const char *name;
} dtypes[] = {
	{ARRAY_F32, 4, "float32"}, {ARRAY_U8, 1, "uint8"},    {ARRAY_I8, 1, "int8"},
	{ARRAY_I32, 4, "int32"},   {ARRAY_I64, 8, "int64"},   {ARRAY_BOOL, 1, "bool"},
	{ARRAY_F16, 2, "float16"}, {ARRAY_F64, 8, "float64"}, {ARRAY_BF16, 2, "bfloat16"},
};

size_t array_dtype_bytes(uint32_t dtype)
{
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
		if (dtypes[i].dtype == dtype)
			return dtypes[i].bytes;
	return 0;
}

const char *array_dtype_name(uint32_t dtype)
{
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
		if (dtypes[i].dtype == dtype)
			return dtypes[i].name;
	return "unknown";
}

int array_measure(struct array *array)
{
	bool is_empty = false;

	if (!array_dtype_bytes(array->dtype) || array->rank > ARRAY_MAX_RANK)
		return -EINVAL;
	array->n_elems = 1;
	for (unsigned int i = 0; i < array->rank; i++) {
		if (array->dims[i] < 0 || array->dims[i] > UINT32_MAX)
			return -EOVERFLOW;
		is_empty |= array->dims[i] == 0;
	}
	for (unsigned int i = 0; i < array->rank && !is_empty; i++)
		if (__builtin_mul_overflow(array->n_elems, (uint64_t)array->dims[i],
					   &array->n_elems))
			return -EOVERFLOW;
	if (is_empty)
		array->n_elems = 0;
	if (__builtin_mul_overflow(array->n_elems, array_dtype_bytes(array->dtype),
				   &array->bytes) ||
	    array->bytes > PTRDIFF_MAX)
		return -EOVERFLOW;
	return 0;
}

int array_new(uint32_t dtype, unsigned int rank, const int64_t *dims, struct array *ret,
	      void **ret_data)
{
	struct array array = {.dtype = dtype, .rank = rank};
	int r;

	if (rank > ARRAY_MAX_RANK)
		return -EINVAL;
	if (rank)
		memcpy(array.dims, dims, rank * sizeof(*dims));
	r = array_measure(&array);
	if (r)
		return r;
	array.owned = calloc(1, array.bytes ? array.bytes : 1);
	if (!array.owned)
		return -ENOMEM;
	array.data = array.owned;
	*ret_data = array.owned;
	*ret = array;
	return 0;
}

void array_deinit(struct array *array)
{
	if (array->mapping)
		munmap(array->mapping, array->mapping_bytes);
	free(array->owned);
	*array = (struct array){0};
}

void array_dims_text(const int64_t *dims, unsigned int n, char ret[ARRAY_TEXT_BYTES])
{
	int at = snprintf(ret, ARRAY_TEXT_BYTES, "[");

	/* Room for 16 dimensions of ten digits. */
	for (unsigned int i = 0; i < n && at < ARRAY_TEXT_BYTES - 24; i++)
		at += snprintf(ret + at, (size_t)(ARRAY_TEXT_BYTES - at), "%s%" PRId64,
			       i ? "," : "", dims[i]);
	snprintf(ret + at, (size_t)(ARRAY_TEXT_BYTES - at), "]");
}

void array_place(const struct array *array, uint64_t index, int64_t ret[ARRAY_MAX_RANK])
{
	for (unsigned int i = array->rank; i-- > 0;) {
		ret[i] = (int64_t)(index % (uint64_t)array->dims[i]);
		index /= (uint64_t)array->dims[i];
	}
}

void array_describe(const struct array *array, char ret[ARRAY_TEXT_BYTES])
{
	char dims[ARRAY_TEXT_BYTES];

	array_dims_text(array->dims, array->rank, dims);
	snprintf(ret, ARRAY_TEXT_BYTES, "%s %.240s", array_dtype_name(array->dtype), dims);
}

float array_half_to_float(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31,
		 fraction = half & 0x3ff, bits;
	float value;

	if (exponent == 31) {
		bits = sign | 0x7f800000 | fraction << 13;
	} else if (exponent) {
		bits = sign | (exponent + 112) << 23 | fraction << 13;
	} else {
		/* Subnormal: 2^-24 times the fraction, which is exact. */
		value = (float)fraction * 0x1p-24f;
		return sign ? -value : value;
	}
	memcpy(&value, &bits, sizeof(value));
	return value;
}

static int64_t integer_at(const struct array *array, uint64_t index)
{
	const char *at = (const char *)array->data + index * array_dtype_bytes(array->dtype);
	int64_t i64;
	int32_t i32;

	switch (array->dtype) {
	case ARRAY_U8:
	case ARRAY_BOOL:
		return (unsigned char)*at;
	case ARRAY_I8:
		return (signed char)*at;
	case ARRAY_I32:
		memcpy(&i32, at, sizeof(i32));
		return i32;
	default:
		memcpy(&i64, at, sizeof(i64));
		return i64;
	}
}

bool array_is_float(const struct array *array)
{
	return array->dtype == ARRAY_F32 || array->dtype == ARRAY_F16 ||
	       array->dtype == ARRAY_F64 || array->dtype == ARRAY_BF16;
}

double array_number(const struct array *array, uint64_t index)
{
	const char *at = array->data;
	uint32_t bits;
	uint16_t half;
	double wide;
	float value;

	if (!array_is_float(array))
		return (double)integer_at(array, index);
	if (array->dtype == ARRAY_F16) {
		memcpy(&half, at + index * sizeof(half), sizeof(half));
		return (double)array_half_to_float(half);
	}
	if (array->dtype == ARRAY_BF16) {
		/* bfloat16 is the upper half of a float. */
		memcpy(&half, at + index * sizeof(half), sizeof(half));
		bits = (uint32_t)half << 16;
		memcpy(&value, &bits, sizeof(value));
		return (double)value;
	}
	if (array->dtype == ARRAY_F64) {
		memcpy(&wide, at + index * sizeof(wide), sizeof(wide));
		return wide;
	}
	memcpy(&value, at + index * sizeof(value), sizeof(value));
	return (double)value;
}

void array_element_text(const struct array *array, uint64_t index, char ret[ARRAY_TEXT_BYTES])
{
	/* Significant digits that distinguish adjacent numbers. */
	static const int digits[] = {
		[ARRAY_F32] = 9, [ARRAY_F16] = 5, [ARRAY_F64] = 17, [ARRAY_BF16] = 4};
	int64_t integer;

	if (array_is_float(array)) {
		snprintf(ret, ARRAY_TEXT_BYTES, "%.*g", digits[array->dtype],
			 array_number(array, index));
		return;
	}
	integer = integer_at(array, index);
	if (array->dtype == ARRAY_BOOL && (integer == 0 || integer == 1))
		snprintf(ret, ARRAY_TEXT_BYTES, "%s", integer ? "true" : "false");
	else
		snprintf(ret, ARRAY_TEXT_BYTES, "%" PRId64, integer);
}
