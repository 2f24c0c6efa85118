/* SPDX-License-Identifier: MIT */
/* Arrays in files: reading, writing, comparing. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrays/array.h"
#include "support/test.h"

/*
 * Write a file of format @major with @header, followed by @data.
 * Return: the file's bytes.
 */
static size_t make_file(unsigned char *file, unsigned int major, const char *header,
			const void *data, size_t data_bytes)
{
	size_t n = strlen(header), at = 8;

	memcpy(file, "\x93NUMPY", 6);
	file[6] = (unsigned char)major;
	file[7] = 0;
	file[at++] = (unsigned char)(n & 0xff);
	file[at++] = (unsigned char)(n >> 8);
	if (major > 1) {
		file[at++] = 0;
		file[at++] = 0;
	}
	memcpy(file + at, header, n);
	if (data_bytes)
		memcpy(file + at + n, data, data_bytes);
	return at + n + data_bytes;
}

static int parse(const char *header, const void *data, size_t data_bytes, struct array *ret,
		 char why[ARRAY_WHY_BYTES])
{
	unsigned char file[4096];
	size_t bytes = make_file(file, 1, header, data, data_bytes);
	/* The buffer has exactly the file's size, so that a sanitizer sees an overread. */
	unsigned char *exact = malloc(bytes);
	int r;

	assert_non_null(exact);
	memcpy(exact, file, bytes);
	r = array_parse_npy(exact, bytes, "x.npy", ret, why);
	if (r == 0 && !ret->owned)
		ret->owned = exact;
	else
		free(exact);
	return r;
}

TEST(test_npy__each_type_and_format)
{
	static const struct {
		const char *descr;
		uint32_t dtype;
		size_t bytes;
	} types[] = {{"<f4", ARRAY_F32, 4},  {"<f2", ARRAY_F16, 2}, {"|u1", ARRAY_U8, 1},
		     {"|i1", ARRAY_I8, 1},   {"<i4", ARRAY_I32, 4}, {"<i8", ARRAY_I64, 8},
		     {"|b1", ARRAY_BOOL, 1}, {"=f4", ARRAY_F32, 4}, {">u1", ARRAY_U8, 1},
		     {"<f8", ARRAY_F64, 8}};
	const unsigned char data[48] = {1, 0, 1, 1};
	char why[ARRAY_WHY_BYTES], header[256];
	unsigned char file[4096];
	struct array array;
	size_t bytes;

	for (unsigned int i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		for (unsigned int major = 1; major <= 3; major++) {
			snprintf(header, sizeof(header),
				 "{'descr': '%s', 'fortran_order': False, 'shape': (2, 3), }  \n",
				 types[i].descr);
			bytes = make_file(file, major, header, data, 6 * types[i].bytes);
			assert_int_equal(array_parse_npy(file, bytes, "x", &array, why), 0);
			assert_fields(array, (dtype, types[i].dtype), (rank, 2), (dims[0], 2),
				      (dims[1], 3), (n_elems, 6), (bytes, 6 * types[i].bytes));
			assert_memory_equal(array.data, data, array.bytes);
			array_deinit(&array);
		}
	}
}

TEST(test_npy__spellings)
{
	static const char *const same[] = {
		"{'shape':(3,),'fortran_order':False,'descr':'<i4'}",
		"{ \"descr\" : \"<i4\" , 'fortran_order' : False , 'shape' : ( 3 , ) , }\n",
		"{'descr': '<i4', 'fortran_order': True, 'shape': (3L,)}",
		"  {'descr': 'i4', 'fortran_order': False, 'shape': (3), }\n\n",
	};
	const int32_t data[] = {-1, 0, 7};
	char why[ARRAY_WHY_BYTES];
	struct array array;

	for (unsigned int i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
		assert_int_equal(parse(same[i], data, sizeof(data), &array, why), 0);
		assert_fields(array, (rank, 1), (dims[0], 3));
		assert_true(array_number(&array, 0) == -1 && array_number(&array, 2) == 7);
		array_deinit(&array);
	}
}

TEST(test_npy__scalars_and_empty_arrays)
{
	const float one = 1.5f;
	char why[ARRAY_WHY_BYTES], text[ARRAY_TEXT_BYTES];
	struct array array;

	assert_int_equal(parse("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", &one, 4,
			       &array, why),
			 0);
	assert_fields(array, (rank, 0), (n_elems, 1));
	array_describe(&array, text);
	assert_string_equal(text, "float32 []");
	array_deinit(&array);
	/* A dimension of 0 beside dimensions whose product overflows. */
	assert_int_equal(parse("{'descr': '<f4', 'fortran_order': True, 'shape': (4294967295, 0, "
			       "4294967295, 4294967295), }",
			       NULL, 0, &array, why),
			 0);
	assert_fields(array, (n_elems, 0), (bytes, 0));
	array_deinit(&array);
}

TEST(test_npy__fortran_order)
{
	int32_t data[24], n = 0;
	char why[ARRAY_WHY_BYTES];
	struct array array;

	for (int k = 0; k < 4; k++)
		for (int j = 0; j < 3; j++)
			for (int i = 0; i < 2; i++)
				data[n++] = 100 * i + 10 * j + k;
	assert_int_equal(parse("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3, 4), }",
			       data, sizeof(data), &array, why),
			 0);
	n = 0;
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 3; j++)
			for (int k = 0; k < 4; k++)
				assert_true(array_number(&array, (uint64_t)n++) ==
					    100 * i + 10 * j + k);
	array_deinit(&array);
}

TEST(test_npy__refusals)
{
	static const struct {
		const char *header;
		size_t data_bytes;
		int error;
		const char *says;
	} wrong[] = {
		{"{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }", 16, -EOPNOTSUPP,
		 "elements of type '<c8'; float32"},
		{"{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", 8, -EOPNOTSUPP,
		 "big endian"},
		{"{'descr': '<V2', 'fortran_order': False, 'shape': (2,), }", 4, -EOPNOTSUPP,
		 "bfloat16 and other types alike: save it as a TensorProto"},
		{"{'descr': '<U3', 'fortran_order': False, 'shape': (2,), }", 24, -EOPNOTSUPP,
		 "type '<U3'"},
		{"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", 8,
		 -EOPNOTSUPP, "several fields"},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 7, -EBADMSG,
		 "cut short"},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 9, -EBADMSG,
		 "there are bytes after the last element"},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", 8, -EBADMSG,
		 "header"},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,), }", 8, -EBADMSG,
		 "impossible shape"},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': "
		 "(4294967295,4294967295,4294967295), }",
		 8, -EBADMSG, "impossible shape"},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 8,
		 -EBADMSG, "header"},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': "
		 "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1), }",
		 4, -EOPNOTSUPP, "dimensions"},
		{"{'descr': '<f4', 'fortran_order': False, }", 4, -EBADMSG, "header"},
		{"{'descr': '<f4', 'descr': '<f4', 'shape': (1,), }", 4, -EBADMSG, "header"},
		{"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,), }", 4, -EBADMSG,
		 "header"},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x", 4, -EBADMSG,
		 "header"},
		{"{'descr': '<f4\\x', 'fortran_order': False, 'shape': (1,), }", 4, -EOPNOTSUPP,
		 "type"},
		{"", 4, -EBADMSG, "header"},
	};
	const unsigned char data[64] = {0};
	char why[ARRAY_WHY_BYTES];
	struct array array;

	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		int r = parse(wrong[i].header, data, wrong[i].data_bytes, &array, why);

		if (r != wrong[i].error || !strstr(why, wrong[i].says))
			fail_msg("%s: %d, %s", wrong[i].header, r, why);
		assert_memory_equal(why, "x.npy ", 6);
	}
}

/* A file that is cut short anywhere is rejected. */
TEST(test_npy__cut_short)
{
	const float data[] = {1, 2};
	char why[ARRAY_WHY_BYTES];
	unsigned char file[256];
	struct array array;
	size_t bytes;

	bytes = make_file(file, 2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
			  data, sizeof(data));
	for (size_t n = 0; n < bytes; n++) {
		unsigned char *exact = malloc(n ? n : 1);

		memcpy(exact, file, n);
		assert_int_equal(array_parse_npy(exact, n, "x", &array, why), -EBADMSG);
		free(exact);
	}
	file[6] = 4;
	assert_int_equal(array_parse_npy(file, bytes, "x", &array, why), -EOPNOTSUPP);
	file[6] = 3;
	file[11] = 0x7f;
	assert_int_equal(array_parse_npy(file, bytes, "x", &array, why), -EBADMSG);
}

static void make_folder(char path[64])
{
	strcpy(path, "/tmp/rbk-arrays-XXXXXX");
	assert_non_null(mkdtemp(path));
}

TEST(test_write__round_trip)
{
	static const uint32_t types[] = {ARRAY_F32, ARRAY_F16, ARRAY_U8,   ARRAY_I8,
					 ARRAY_I32, ARRAY_I64, ARRAY_BOOL, ARRAY_F64};
	static const int64_t dims[] = {3, 1, 5, 2, 0};
	char folder[64], path[128], why[ARRAY_WHY_BYTES];
	struct array array, again;
	struct stat status;
	void *data;

	make_folder(folder);
	snprintf(path, sizeof(path), "%s/a.npy", folder);
	for (unsigned int i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		for (unsigned int rank = 0; rank <= 5; rank++) {
			assert_int_equal(array_new(types[i], rank, dims, &array, &data), 0);
			for (size_t k = 0; k < array.bytes; k++)
				((unsigned char *)data)[k] = (unsigned char)(k * 37 + 1);
			assert_int_equal(array_write_npy(path, &array, why), 0);
			assert_int_equal(array_read_npy(path, &again, why), 0);
			assert_true(array_is_npy(path));
			assert_fields(again, (dtype, array.dtype), (rank, rank));
			assert_memory_equal(again.dims, array.dims, sizeof(array.dims));
			assert_int_equal(again.bytes, array.bytes);
			assert_memory_equal(again.data, array.data, array.bytes);
			/* Data begins at a multiple of 64 bytes, for readers that map the file. */
			assert_int_equal(stat(path, &status), 0);
			assert_int_equal(((size_t)status.st_size - array.bytes) % 64, 0);
			array_deinit(&again);
			array_deinit(&array);
		}
	}
	unlink(path);
	assert_int_equal(rmdir(folder), 0);
}

TEST(test_read__missing_files)
{
	char folder[64], path[128], why[ARRAY_WHY_BYTES];
	struct array array;

	make_folder(folder);
	assert_int_equal(array_read_npy(folder, &array, why), -EISDIR);
	snprintf(path, sizeof(path), "%s/none", folder);
	assert_int_equal(array_read_npy(path, &array, why), -ENOENT);
	assert_false(array_is_npy(path));
	close(open(path, O_WRONLY | O_CREAT, 0600));
	assert_int_equal(array_read_npy(path, &array, why), -EBADMSG);
	assert_non_null(strstr(why, "is empty"));
	unlink(path);
	rmdir(folder);
}

TEST(test_read__pipe)
{
	const float data[] = {1, 2, 3};
	char path[64], why[ARRAY_WHY_BYTES];
	unsigned char file[256];
	struct array array;
	int fds[2];
	size_t bytes = make_file(file, 1, "{'descr':'<f4','fortran_order':False,'shape':(3,)}",
				 data, sizeof(data));

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(write(fds[1], file, bytes), bytes);
	close(fds[1]);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
	assert_int_equal(array_read_npy(path, &array, why), 0);
	assert_true(array_number(&array, 2) == 3);
	array_deinit(&array);
	close(fds[0]);
}

/* An endless file is read as far as its header says, and not at all if it has no valid header. */
TEST(test_read__endless)
{
	static const char header[] = "{'descr':'<f4','fortran_order':False,'shape':(3,)}";
	const float data[100] = {1, 2, 3};
	char path[64], why[ARRAY_WHY_BYTES];
	unsigned char file[1024];
	struct array array;
	size_t bytes;
	int fds[2];

	assert_int_equal(array_read_npy("/dev/zero", &array, why), -EBADMSG);
	assert_non_null(strstr(why, "/dev/zero is not a .npy file"));
	for (unsigned int cut = 0; cut < 2; cut++) {
		bytes = make_file(file, 1, header, data, cut ? 8 : sizeof(data));
		assert_int_equal(pipe(fds), 0);
		assert_int_equal(write(fds[1], file, bytes), bytes);
		/* The other end stays open: waiting for more bytes than needed would never end. */
		if (cut)
			close(fds[1]);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
		assert_int_equal(array_read_npy(path, &array, why), -EBADMSG);
		assert_non_null(strstr(why, cut ? "it is cut short"
						: "there are bytes after the last element"));
		if (!cut)
			close(fds[1]);
		close(fds[0]);
	}
}

TEST(test_write__fails)
{
	const int64_t dims[] = {3};
	char why[ARRAY_WHY_BYTES];
	struct array array;
	void *data;

	assert_int_equal(array_new(ARRAY_F32, 1, dims, &array, &data), 0);
	assert_int_equal(array_write_npy("/nonexistent/x.npy", &array, why), -ENOENT);
	assert_non_null(strstr(why, "/nonexistent/x.npy cannot be written: No such file"));
	assert_int_equal(array_write_npy("/dev/full", &array, why), -ENOSPC);
	assert_int_equal(array_write_npy("/dev/null", &array, why), 0);
	array_deinit(&array);
}

TEST(test_write__tensor_proto)
{
	static const unsigned char expected[] = {0x08, 2,   0x08, 0xac, 0x02, 0x10, 2, 0x42, 3,
						 'a',  'b', 'c',  0x4a, 0xd8, 0x04, 0, 1,    2};
	const int64_t dims[] = {2, 300};
	char folder[64], path[128], why[ARRAY_WHY_BYTES];
	unsigned char file[1024];
	struct array array;
	void *data;
	FILE *stream;

	make_folder(folder);
	snprintf(path, sizeof(path), "%s/a.pb", folder);
	assert_int_equal(array_new(ARRAY_U8, 2, dims, &array, &data), 0);
	for (unsigned int i = 0; i < 600; i++)
		((unsigned char *)data)[i] = (unsigned char)i;
	assert_int_equal(array_write_tensor_proto(path, &array, "abc", why), 0);
	stream = fopen(path, "rb");
	assert_non_null(stream);
	assert_int_equal(fread(file, 1, sizeof(file), stream), sizeof(expected) - 3 + 600);
	fclose(stream);
	assert_memory_equal(file, expected, sizeof(expected));
	array_deinit(&array);
	unlink(path);
	rmdir(folder);
}

TEST(test_new__impossible)
{
	const int64_t huge[] = {UINT32_MAX, UINT32_MAX, UINT32_MAX}, negative[] = {-1};
	struct array array;
	void *data;

	assert_int_equal(array_new(ARRAY_F32, 3, huge, &array, &data), -EOVERFLOW);
	assert_int_equal(array_new(ARRAY_I64, 2, huge, &array, &data), -EOVERFLOW);
	assert_int_equal(array_new(ARRAY_F32, 1, negative, &array, &data), -EOVERFLOW);
	assert_int_equal(array_new(99, 0, NULL, &array, &data), -EINVAL);
	assert_int_equal(array_new(ARRAY_F32, ARRAY_MAX_RANK + 1, huge, &array, &data), -EINVAL);
}

/* ---- Comparing ---------------------------------------------------------------------------- */

static struct array floats(const float *data, int64_t n)
{
	struct array array = {.dtype = ARRAY_F32, .rank = 1, .dims = {n}, .data = data};

	assert_int_equal(array_measure(&array), 0);
	return array;
}

static bool is_close(float got, float want, double rtol, double atol)
{
	struct array a = floats(&got, 1), b = floats(&want, 1);
	struct array_difference difference;

	return array_compare(&a, &b, rtol, atol, &difference) == 0;
}

TEST(test_compare__rule)
{
	assert_true(is_close(1.0f, 1.0f, 0, 0));
	assert_true(is_close(0.0f, -0.0f, 0, 0));
	assert_true(is_close(100.0f, 101.0f, 0.01, 0));
	assert_false(is_close(99.9f, 101.0f, 0.01, 0));
	assert_true(is_close(1e-7f, 0, 1e-3, 1e-6));
	assert_false(is_close(1e-5f, 0, 1e-3, 1e-6));
	assert_true(is_close(NAN, NAN, 0, 0));
	assert_true(is_close(-NAN, NAN, 0, 0));
	assert_false(is_close(NAN, 1, 1, 1));
	assert_false(is_close(1, NAN, 1, 1));
	assert_true(is_close(INFINITY, INFINITY, 0, 0));
	assert_false(is_close(-INFINITY, INFINITY, 1, 1));
	/* An infinite reference does not make the tolerance infinite. */
	assert_false(is_close(1, INFINITY, 1e-3, 0));
	assert_false(is_close(INFINITY, 1, 1e-3, 0));
	/* The difference of these numbers overflows a float. */
	assert_false(is_close(3e38f, -3e38f, 1e-3, 0));
}

TEST(test_compare__report)
{
	const float got[] = {1, 2, 3.5f, 4, NAN, 6}, want[] = {1, 2, 3, 4, 5, 7};
	struct array a = floats(got, 6), b = floats(want, 6);
	struct array_difference difference;
	char text[ARRAY_WHY_BYTES];

	a.rank = b.rank = 2;
	a.dims[0] = b.dims[0] = 2;
	a.dims[1] = b.dims[1] = 3;
	assert_int_equal(array_compare(&a, &b, 0, 0.25, &difference), ARRAY_E_VALUES);
	assert_fields(difference, (n_different, 3), (first, 2), (worst, 4));
	assert_true(difference.largest == 1 && difference.largest_of == 7);
	array_difference_text(ARRAY_E_VALUES, &a, &b, &difference, text);
	assert_string_equal(text, "3 of 6 elements differ, most of all [1,1]: nan instead of 5");

	a.data = want;
	b.data = got;
	b.n_elems = a.n_elems = 3;
	assert_int_equal(array_compare(&a, &b, 0, 0.25, &difference), ARRAY_E_VALUES);
	array_difference_text(ARRAY_E_VALUES, &a, &b, &difference, text);
	assert_string_equal(
		text,
		"1 of 3 elements differs, at [0,2]: 3 instead of 3.5, off by 0.5 (0.25 allowed)");

	assert_int_equal(array_compare(&a, &a, 0, 0, &difference), 0);
	array_difference_text(0, &a, &a, &difference, text);
	assert_string_equal(text, "all 3 elements are as expected");
}

TEST(test_compare__other_kinds)
{
	const int64_t got[] = {INT64_MAX, -5}, want[] = {INT64_MAX - 1, -5};
	struct array a = {.dtype = ARRAY_I64, .rank = 1, .dims = {2}, .data = got}, b = a, c;
	struct array_difference difference;
	char text[ARRAY_WHY_BYTES];

	b.data = want;
	assert_int_equal(array_measure(&a), 0);
	assert_int_equal(array_measure(&b), 0);
	/* Integers are exact at any tolerance, also where a double cannot tell them apart. */
	assert_int_equal(array_compare(&a, &b, 1, 1, &difference), ARRAY_E_VALUES);
	array_difference_text(ARRAY_E_VALUES, &a, &b, &difference, text);
	assert_non_null(strstr(text, "1 of 2 elements differs, at [0]: 9223372036854775807 instead "
				     "of 9223372036854775806"));

	c = b;
	c.dtype = ARRAY_I32;
	assert_int_equal(array_compare(&c, &b, 1, 1, &difference), ARRAY_E_DTYPE);
	array_difference_text(ARRAY_E_DTYPE, &c, &b, &difference, text);
	assert_string_equal(text, "it is int32 [2] instead of int64 [2]");
	c = b;
	c.dims[0] = 1;
	assert_int_equal(array_compare(&c, &b, 1, 1, &difference), ARRAY_E_SHAPE);
	c = b;
	c.rank = 2;
	c.dims[1] = 1;
	assert_int_equal(array_compare(&c, &b, 1, 1, &difference), ARRAY_E_SHAPE);

	/* Two empty arrays of one shape are equal. */
	a.dims[0] = b.dims[0] = 0;
	assert_int_equal(array_measure(&a), 0);
	assert_int_equal(array_measure(&b), 0);
	assert_int_equal(array_compare(&a, &b, 0, 0, &difference), 0);
}

/* bfloat16 is printed and compared as numbers. .npy cannot store it. */
TEST(test_bfloat)
{
	const uint16_t bits[] = {0x3f80, 0xc049, 0x0001, 0x7f7f, 0x7fc0, 0xff80};
	const double numbers[] = {1, -3.140625, 0x1p-133, 0x1.fep127};
	struct array a = {.dtype = ARRAY_BF16, .rank = 1, .dims = {6}, .data = bits}, b = a;
	struct array_difference difference;
	char text[ARRAY_TEXT_BYTES], why[ARRAY_WHY_BYTES];
	uint16_t near[6];

	assert_int_equal(array_measure(&a), 0);
	assert_int_equal(a.bytes, sizeof(bits));
	for (unsigned int i = 0; i < 4; i++)
		assert_true(array_number(&a, i) == numbers[i]);
	assert_true(isnan(array_number(&a, 4)));
	assert_true(array_number(&a, 5) == -INFINITY);
	array_element_text(&a, 1, text);
	assert_string_equal(text, "-3.141");
	array_describe(&a, text);
	assert_string_equal(text, "bfloat16 [6]");

	memcpy(near, bits, sizeof(near));
	near[0]++;
	near[4] |= 1;
	b.data = near;
	assert_int_equal(array_measure(&b), 0);
	assert_int_equal(array_compare(&b, &a, 1e-2, 0, &difference), 0);
	assert_int_equal(array_compare(&b, &a, 1e-3, 0, &difference), ARRAY_E_VALUES);
	assert_int_equal(difference.n_different, 1);

	assert_int_equal(array_write_npy("/dev/null", &a, why), -EOPNOTSUPP);
	assert_non_null(strstr(why, "a .npy file cannot hold bfloat16; name it .pb"));
}

TEST(test_double)
{
	const double numbers[] = {0.1, -0x1.fffffffffffffp1023, 3, INFINITY};
	struct array a = {.dtype = ARRAY_F64, .rank = 1, .dims = {4}, .data = numbers}, b = a;
	struct array_difference difference;
	char text[ARRAY_TEXT_BYTES];
	double near[4];

	assert_int_equal(array_measure(&a), 0);
	assert_int_equal(a.bytes, sizeof(numbers));
	assert_true(array_is_float(&a));
	for (unsigned int i = 0; i < 4; i++)
		assert_true(array_number(&a, i) == numbers[i]);
	array_element_text(&a, 0, text);
	assert_string_equal(text, "0.10000000000000001");
	array_describe(&a, text);
	assert_string_equal(text, "float64 [4]");

	memcpy(near, numbers, sizeof(near));
	near[2] = 3 + 0x1p-40;
	b.data = near;
	assert_int_equal(array_measure(&b), 0);
	assert_int_equal(array_compare(&b, &a, 1e-12, 0, &difference), 0);
	assert_int_equal(array_compare(&b, &a, 1e-13, 0, &difference), ARRAY_E_VALUES);
	assert_fields(difference, (n_different, 1), (worst, 2));
}

TEST(test_half__all)
{
	for (unsigned int bits = 0; bits < 65536; bits++) {
		const int exponent = (int)(bits >> 10 & 31), mantissa = (int)(bits & 1023);
		float expected, got = array_half_to_float((uint16_t)bits);

		if (exponent == 31)
			expected = mantissa ? NAN : INFINITY;
		else if (exponent == 0)
			expected = ldexpf((float)mantissa, -24);
		else
			expected = ldexpf((float)(mantissa + 1024), exponent - 25);
		if (bits >> 15)
			expected = -expected;
		if (isnan(expected))
			assert_true(isnan(got));
		else
			assert_memory_equal(&got, &expected, sizeof(got));
	}
}
