#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Arrays in files
 *
 * NumPy's .npy, and the tensors of ONNX's test data: reading, writing and comparing them. Files are
 * others' and may say anything; a file that is cut short while it is mapped ends the program, as
 * it ends any that maps one.
 *
 * Functions that fail return a negative errno and a sentence without a full stop, which begins with
 * the file's path.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ARRAY_MAX_RANK = 16, ARRAY_WHY_BYTES = 512, ARRAY_TEXT_BYTES = 256 };

/* The numbers are ONNX's. */
enum array_dtype {
	ARRAY_F32 = 1,
	ARRAY_U8 = 2,
	ARRAY_I8 = 3,
	ARRAY_I32 = 6,
	ARRAY_I64 = 7,
	ARRAY_BOOL = 9, /* a byte */
	ARRAY_F16 = 10,
	ARRAY_F64 = 11,
	ARRAY_BF16 = 16, /* not in .npy */
};

struct array {
	uint32_t dtype;
	unsigned int rank;
	int64_t dims[ARRAY_MAX_RANK];
	const void *data; /* C order, no gaps; of any alignment */
	uint64_t n_elems;
	size_t bytes;
	/* What array_deinit() gives back. */
	void *owned;
	void *mapping;
	size_t mapping_bytes;
};

/* Of one element; 0: not a type that arrays here have. */
size_t array_dtype_bytes(uint32_t dtype);
/* Are its elements numbers of floating point? */
bool array_is_float(const struct array *array);
/* "float32". Static. */
const char *array_dtype_name(uint32_t dtype);

/* "float32 [2,3]". */
void array_describe(const struct array *array, char ret[ARRAY_TEXT_BYTES]);
/* "[2,3]", of @n dimensions. */
void array_dims_text(const int64_t *dims, unsigned int n, char ret[ARRAY_TEXT_BYTES]);
/* The indices of element @index in each of its dimensions. */
void array_place(const struct array *array, uint64_t index, int64_t ret[ARRAY_MAX_RANK]);
/* An element as people write it: "0.25", "-7", "true". */
void array_element_text(const struct array *array, uint64_t index, char ret[ARRAY_TEXT_BYTES]);
/* An element as a number; of 64-bit integers the nearest one. */
double array_number(const struct array *array, uint64_t index);

/*
 * A new array of zeros. Return: 0; -ENOMEM; -EOVERFLOW: no address space has it; -EINVAL: there is
 * no such type. @ret_data is its memory, to be filled.
 */
int array_new(uint32_t dtype, unsigned int rank, const int64_t *dims, struct array *ret,
	      void **ret_data);
/* Fills in n_elems and bytes from the type and the shape. Return: 0, -EOVERFLOW or -EINVAL. */
int array_measure(struct array *array);
void array_deinit(struct array *array);

/* ---- .npy (npy.c) ------------------------------------------------------------------------- */

/*
 * Reads the file, of format 1, 2 or 3, into @ret, whose memory is the mapped file where that will
 * do. Fortran order becomes C order. float16, float32, float64, bool and the integers above, little
 * endian; others are refused. Return: 0; -EBADMSG: not such a file, or a broken one; -EOPNOTSUPP:
 * one that is refused; -ENOMEM; or another errno of open() and mmap().
 */
int array_read_npy(const char *path, struct array *ret, char why[ARRAY_WHY_BYTES]);
/* The same of @n_bytes in memory, called @name in @why. @ret->data may point into them. */
int array_parse_npy(const void *bytes, size_t n_bytes, const char *name, struct array *ret,
		    char why[ARRAY_WHY_BYTES]);
/* Does the regular file begin as a .npy file does? One that cannot be read does not. */
bool array_is_npy(const char *path);
/* Format 1.0; -EOPNOTSUPP: it has no bfloat16. What could not be written is not left behind half,
 * if @path is a regular file. */
int array_write_npy(const char *path, const struct array *array, char why[ARRAY_WHY_BYTES]);

/* ---- TensorProto (tensor-proto.c) --------------------------------------------------------- */

/* Writes a file with one TensorProto, named @name. */
int array_write_tensor_proto(const char *path, const struct array *array, const char *name,
			     char why[ARRAY_WHY_BYTES]);

/* ---- Comparing (compare.c) ---------------------------------------------------------------- */

/* Outcomes of array_compare(), beside 0: all is as expected. */
enum {
	ARRAY_E_DTYPE = 1, /* of another type */
	ARRAY_E_SHAPE,
	ARRAY_E_VALUES,
};

struct array_difference {
	uint64_t n_elems;
	uint64_t n_different;
	uint64_t first, worst;      /* indices, if any is different */
	double worst_allowed;       /* that it may be off by */
	double largest, largest_of; /* difference of two finite numbers, and what was expected */
};

/*
 * Compares @got with @want element by element. Numbers of floating point are the same if they are
 * equal, or both NaN, or no further apart than @atol + @rtol * |want|, of which an infinity is not;
 * everything else only if equal. Return: 0 or ARRAY_E_*.
 */
int array_compare(const struct array *got, const struct array *want, double rtol, double atol,
		  struct array_difference *ret);
/*
 * What array_compare() found, in words: "3 of 120 elements differ, most of all [1,2]: 0.5 instead
 * of 0.75, off by 0.25 (0.00075 allowed)". @result: what it returned.
 */
void array_difference_text(int result, const struct array *got, const struct array *want,
			   const struct array_difference *difference, char ret[ARRAY_WHY_BYTES]);

/* ---- float16 ------------------------------------------------------------------------------ */

float array_half_to_float(uint16_t half);
