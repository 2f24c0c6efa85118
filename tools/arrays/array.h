#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Arrays in files
 *
 * This library reads, writes and compares NumPy's .npy files and the tensors of ONNX's test data.
 * Files are untrusted and may contain anything. Truncating a file while it is mapped ends the
 * program (SIGBUS), as for any mapped file.
 *
 * Functions that fail return a negative errno and a sentence without a full stop, which begins with
 * the file's path.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ARRAY_MAX_RANK = 16, ARRAY_WHY_BYTES = 512, ARRAY_TEXT_BYTES = 256 };

/* The numbers are those of ONNX. */
enum array_dtype {
	ARRAY_F32 = 1,
	ARRAY_U8 = 2,
	ARRAY_I8 = 3,
	ARRAY_I32 = 6,
	ARRAY_I64 = 7,
	ARRAY_BOOL = 9, /* one byte per element */
	ARRAY_F16 = 10,
	ARRAY_F64 = 11,
	ARRAY_BF16 = 16, /* not in .npy */
};

struct array {
	uint32_t dtype;
	unsigned int rank;
	int64_t dims[ARRAY_MAX_RANK];
	const void *data; /* elements in C order without gaps, at any alignment */
	uint64_t n_elems;
	size_t bytes;
	/* freed by array_deinit() */
	void *owned;
	void *mapping;
	size_t mapping_bytes;
};

/* Return the bytes of one element; 0 if the type is not supported. */
size_t array_dtype_bytes(uint32_t dtype);
/* Return true if the elements are floating-point numbers. */
bool array_is_float(const struct array *array);
/* Return a name such as "float32". Static storage. */
const char *array_dtype_name(uint32_t dtype);

/* Describe an array: "float32 [2,3]". */
void array_describe(const struct array *array, char ret[ARRAY_TEXT_BYTES]);
/* Format @n dimensions: "[2,3]". */
void array_dims_text(const int64_t *dims, unsigned int n, char ret[ARRAY_TEXT_BYTES]);
/* Compute the indices of element @index in each dimension. */
void array_place(const struct array *array, uint64_t index, int64_t ret[ARRAY_MAX_RANK]);
/* Format an element: "0.25", "-7" or "true". */
void array_element_text(const struct array *array, uint64_t index, char ret[ARRAY_TEXT_BYTES]);
/* Return an element as a double; 64-bit integers are rounded to the nearest one. */
double array_number(const struct array *array, uint64_t index);

/*
 * Make an array of zeros. @ret_data receives its memory, for the caller to fill.
 * Return: 0; -ENOMEM; -EOVERFLOW: larger than any address space; -EINVAL: the type is not
 * supported.
 */
int array_new(uint32_t dtype, unsigned int rank, const int64_t *dims, struct array *ret,
	      void **ret_data);
/*
 * Compute n_elems and bytes from the type and the shape.
 * Return: 0, -EOVERFLOW or -EINVAL.
 */
int array_measure(struct array *array);
void array_deinit(struct array *array);

/* ---- .npy (npy.c) ------------------------------------------------------------------------- */

/*
 * Read a file of format 1, 2 or 3 into @ret. The array's memory is the mapped file where possible.
 * Fortran order is converted to C order. Types are float16, float32, float64, bool and the integers
 * above, little endian; all others are rejected.
 * Return: 0; -EBADMSG: not a .npy file, or a broken one; -EOPNOTSUPP: rejected; -ENOMEM; or another
 * errno of open() and mmap().
 */
int array_read_npy(const char *path, struct array *ret, char why[ARRAY_WHY_BYTES]);
/*
 * Read @n_bytes in memory like array_read_npy(); @why calls them @name. @ret->data may point into
 * @bytes.
 */
int array_parse_npy(const void *bytes, size_t n_bytes, const char *name, struct array *ret,
		    char why[ARRAY_WHY_BYTES]);
/*
 * Return true if @path is a regular file with the magic of .npy; false also if it cannot be read.
 */
bool array_is_npy(const char *path);
/*
 * Write a file of format 1.0. If writing a regular file fails, no partial file is left.
 * Return: also -EOPNOTSUPP: the format has no bfloat16.
 */
int array_write_npy(const char *path, const struct array *array, char why[ARRAY_WHY_BYTES]);

/* ---- TensorProto (tensor-proto.c) --------------------------------------------------------- */

/* Write a file with one TensorProto, named @name. */
int array_write_tensor_proto(const char *path, const struct array *array, const char *name,
			     char why[ARRAY_WHY_BYTES]);

/* ---- Comparing (compare.c) ---------------------------------------------------------------- */

/* Outcomes of array_compare(); 0: equal within the tolerance. */
enum {
	ARRAY_E_DTYPE = 1, /* the types differ */
	ARRAY_E_SHAPE,
	ARRAY_E_VALUES,
};

struct array_difference {
	uint64_t n_elems;
	uint64_t n_different;
	uint64_t first, worst; /* indices of elements, if any differs */
	double worst_allowed;  /* tolerance at the worst element */
	/* largest difference of two finite numbers, and the number expected there */
	double largest, largest_of;
};

/*
 * Compare @got with @want element by element. Floating-point numbers match if they are equal, both
 * NaN, or finite and at most @atol + @rtol * |want| apart. Other types match only if equal.
 * Return: 0 or ARRAY_E_*.
 */
int array_compare(const struct array *got, const struct array *want, double rtol, double atol,
		  struct array_difference *ret);
/*
 * Describe the result of array_compare(): "3 of 120 elements differ, most of all [1,2]: 0.5 instead
 * of 0.75, off by 0.25 (0.00075 allowed)". @result: the value that it returned.
 */
void array_difference_text(int result, const struct array *got, const struct array *want,
			   const struct array_difference *difference, char ret[ARRAY_WHY_BYTES]);

/* ---- float16 ------------------------------------------------------------------------------ */

float array_half_to_float(uint16_t half);
