/* SPDX-License-Identifier: MIT */
/*
 * Writing TensorProto files
 *
 * Four fields of the message need no library: dims (1), data_type (2), name (8) and raw_data (9).
 * raw_data comes last, so that everything but the elements is a short header.
 */
#include "arrays/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/write.h"
#include "util/cleanup.h"

enum { VARINT_BYTES = 10, FIELD_DIMS = 1, FIELD_DATA_TYPE = 2, FIELD_NAME = 8, FIELD_RAW_DATA = 9 };
enum { WIRE_VARINT = 0, WIRE_BYTES = 2 };

static unsigned char *put_varint(unsigned char *at, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		*at++ = (unsigned char)(value | 0x80);
	*at++ = (unsigned char)value;
	return at;
}

static unsigned char *put_tag(unsigned char *at, unsigned int field, unsigned int wire)
{
	return put_varint(at, field << 3 | wire);
}

int array_write_tensor_proto(const char *path, const struct array *array, const char *name,
			     char why[ARRAY_WHY_BYTES])
{
	size_t name_bytes = strlen(name);
	_cleanup_(freep) unsigned char *header = NULL;
	unsigned char *at;

	header = malloc((ARRAY_MAX_RANK + 6) * 2 * VARINT_BYTES + name_bytes);
	if (!header)
		return array_refuse(why, -ENOMEM, path, "cannot be written: out of memory");
	at = header;
	for (unsigned int i = 0; i < array->rank; i++) {
		at = put_tag(at, FIELD_DIMS, WIRE_VARINT);
		at = put_varint(at, (uint64_t)array->dims[i]);
	}
	at = put_tag(at, FIELD_DATA_TYPE, WIRE_VARINT);
	at = put_varint(at, array->dtype);
	at = put_tag(at, FIELD_NAME, WIRE_BYTES);
	at = put_varint(at, name_bytes);
	memcpy(at, name, name_bytes);
	at += name_bytes;
	at = put_tag(at, FIELD_RAW_DATA, WIRE_BYTES);
	at = put_varint(at, array->bytes);
	return array_write_file(path, header, (size_t)(at - header), array->data, array->bytes,
				why);
}
