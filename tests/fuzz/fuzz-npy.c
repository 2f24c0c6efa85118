/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing array_parse_npy()
 *
 * The input is the file. The parsed elements must lie within the file, or have the size that its
 * header states. A rejected file must yield a message, and an array must equal itself.
 */
#undef NDEBUG /* assertions are the point of this file */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct array_difference difference;
	char why[ARRAY_WHY_BYTES] = "", text[ARRAY_WHY_BYTES];
	struct array array;
	int r;

	r = array_parse_npy(data, bytes, "name", &array, why);
	if (r) {
		assert(r < 0 && strncmp(why, "name ", 5) == 0 && strlen(why) > 10);
		return 0;
	}
	assert(array.bytes <= bytes);
	assert(array.bytes == array.n_elems * array_dtype_bytes(array.dtype));
	assert(array.owned || ((const uint8_t *)array.data >= data &&
			       (const uint8_t *)array.data + array.bytes <= data + bytes));
	assert(array_compare(&array, &array, 0, 0, &difference) == 0);
	array_describe(&array, text);
	if (array.n_elems) {
		array_element_text(&array, array.n_elems - 1, text);
		assert(strlen(text) > 0);
	}
	array_deinit(&array);
	return 0;
}
