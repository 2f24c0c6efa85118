#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Work: single operators of given shapes, run through brokerd and checked
 *
 * A struct work has a plan of one operator over a dynamic number of rows, its tensors in arenas,
 * and the expected result from a plain computation in this process.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ringbroker.h>

enum work_op {
	WORK_MATMUL,   /* [rows, inner] x [inner, columns] */
	WORK_CONV,     /* [rows, channels, side, side], 3x3, padded: [rows, filters, side, side] */
	WORK_MAX_POOL, /* [rows, channels, side, side], 2x2, stride 2 */
	WORK_ADD,      /* [rows, columns] + [rows, columns] */
	WORK_RELU,     /* [rows, columns] */
	WORK_SOFTMAX,  /* [rows, columns] by row */
	WORK_REDUCE_SUM, /* [rows, columns] by row */
	WORK_TRANSPOSE,  /* [rows, inner, columns]: each row's matrix */
};

struct work_shape {
	const char *name;
	enum work_op op;
	uint32_t rows;
	uint32_t inner, columns;
	uint32_t channels, side, filters;
};

struct work {
	struct work_shape shape;
	struct rbk_arena *constants, *data;
	struct rbk_builder *builder;
	struct rbk_plan *plan;
	struct rbk_plan_info info;
	float *left, *right; /* inputs; right: the weights, the second input, or NULL */
	float *outputs;      /* [n_outputs], output_stride floats apart */
	/* expected result of shape.rows rows; NULL: large, checked by projection */
	float *expected;
	uint32_t n_outputs;
	size_t output_stride;
};

/*
 * Make the plan and its tensors, with room for @n_outputs results of shape->rows rows. @shape is
 * copied.
 * Return: 0; a negative errno, with a sentence in @error.
 */
int work_init(struct work *work, struct rbk *rbk, const struct work_shape *shape,
	      uint32_t n_outputs, struct rbk_error *error);
/*
 * Free the plan and its arenas. No task of the plan may be in flight. A zeroed or partly
 * initialized @work is accepted.
 */
void work_deinit(struct work *work);

/*
 * Return the bytes that a task of @rows rows reads and writes, and its operations, as reported by
 * the broker.
 */
uint64_t work_bytes(const struct work *work, uint32_t rows);
uint64_t work_flops(const struct work *work, uint32_t rows);

/* Write text such as "float32 [418, 418] x [418, 418] -> [418, 418]". */
void work_describe(const struct work *work, uint32_t rows, char *text, size_t bytes);

float *work_output(const struct work *work, uint32_t output);
size_t work_output_elems(const struct work *work, uint32_t rows);

/* Fill an output with NaN, then prepare @sqe for a task that writes the output. */
void work_prepare(const struct work *work, uint32_t rows, uint32_t output, struct rbk_sqe *sqe);

/* Return true if the first @rows rows of the output are right. */
bool work_is_right(const struct work *work, uint32_t rows, uint32_t output);
