/* SPDX-License-Identifier: MIT */
/*
 * digits: prepare and evaluate the demo of a model, before and after brokerctl run
 *
 *   digits pictures PICTURES N OUT  write the first N of [n,...] uint8 as float32
 *   digits right LOGITS LABELS N    print how many of N rows are largest at their label
 *
 * All files are .npy files. Exit status: 0; 1 if a file cannot be read or has another type.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/array.h"

static _Noreturn void fail(const char *why)
{
	fprintf(stderr, "digits: %s\n", why);
	exit(EXIT_FAILURE);
}

/* Read an array of at least @n rows of type @dtype. */
static struct array read_rows(const char *path, uint32_t dtype, int64_t n)
{
	char why[ARRAY_WHY_BYTES];
	struct array array;

	if (array_read_npy(path, &array, why))
		fail(why);
	if (array.dtype != dtype || array.rank < 1 || array.dims[0] < n || n < 1) {
		array_describe(&array, why);
		fprintf(stderr, "digits: %s is %s, expected %s [%lld,...]\n", path, why,
			array_dtype_name(dtype), (long long)n);
		exit(EXIT_FAILURE);
	}
	return array;
}

static void write_pictures(const char *from, int64_t n, const char *to)
{
	struct array bytes = read_rows(from, ARRAY_U8, n), floats;
	char why[ARRAY_WHY_BYTES];
	void *data;

	bytes.dims[0] = n;
	if (array_new(ARRAY_F32, bytes.rank, bytes.dims, &floats, &data))
		fail("out of memory");
	for (uint64_t i = 0; i < floats.n_elems; i++)
		((float *)data)[i] = ((const uint8_t *)bytes.data)[i];
	if (array_write_npy(to, &floats, why))
		fail(why);
	array_deinit(&floats);
	array_deinit(&bytes);
}

static void count_right(const char *logits_path, const char *labels_path, int64_t n)
{
	struct array logits = read_rows(logits_path, ARRAY_F32, n);
	struct array labels = read_rows(labels_path, ARRAY_U8, n);
	uint64_t n_columns = logits.n_elems / (uint64_t)logits.dims[0];
	int64_t n_right = 0;

	for (int64_t i = 0; i < n; i++) {
		uint64_t first = (uint64_t)i * n_columns, best = 0;

		for (uint64_t k = 1; k < n_columns; k++)
			if (array_number(&logits, first + k) > array_number(&logits, first + best))
				best = k;
		n_right += best == ((const uint8_t *)labels.data)[i];
	}
	printf("%lld\n", (long long)n_right);
	array_deinit(&logits);
	array_deinit(&labels);
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "pictures") == 0)
		write_pictures(argv[2], atoll(argv[3]), argv[4]);
	else if (argc == 5 && strcmp(argv[1], "right") == 0)
		count_right(argv[2], argv[3], atoll(argv[4]));
	else
		fail("usage: digits pictures PICTURES N OUT | digits right LOGITS LABELS N");
	return EXIT_SUCCESS;
}
