#pragma once
/* SPDX-License-Identifier: MIT */
/* Declarations shared by the files of models */
#include "models/model.h"

/*
 * Write a sentence to @why.
 * Return: @error.
 */
int model_fail(char why[MODEL_WHY_BYTES], int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* An input of the model */
struct model_input {
	struct rbk_onnx_value value;
	const struct array *array; /* NULL: not given */
	const char *called;        /* the array's name */
};

/* A plan with memory for one task at a time */
struct prepared {
	struct rbk_plan *plan;
	struct rbk_arena *arena;
	struct rbk_ring *ring;
	unsigned int n_bound;
	struct rbk_onnx_bound bound[RBK_MAX_REFS];
	void *places[RBK_MAX_REFS]; /* addresses in the arena */
	uint64_t refs[RBK_MAX_REFS];
	uint64_t table_ref;
};

struct model {
	struct rbk_onnx *onnx;
	unsigned int n_inputs, n_outputs;
	struct model_input *inputs;
	struct array *outputs; /* owned, with all rows */
	struct rbk_onnx_options options;
	uint32_t disable; /* disabled optimisations, RBK_ONNX_OPT_* */
	bool is_compiled;
	bool has_rows; /* false: shapes are fixed */
	uint64_t n_rows;
	uint32_t task_rows;
	/* rows of the last task */
	uint64_t part_first;
	uint32_t part_rows;
	struct prepared prepared;
};

/*
 * Return the bytes of a bound tensor for a task of @rows rows, or for all rows; 0 without elements.
 */
uint64_t bound_bytes(const struct rbk_onnx_bound *bound, uint64_t rows);

/*
 * Describe a bound tensor of @rows rows as array_describe() does.
 * Return: the number of its elements.
 */
uint64_t bound_describe(const struct rbk_onnx_bound *bound, uint64_t rows,
			char text[ARRAY_TEXT_BYTES]);

/* Return the count that the loader and the broker prepare for tasks of @rows. */
uint32_t model_max_count(const struct model *model, uint32_t rows);

/*
 * Prepare @options of the compiled model for tasks of @rows.
 * Return: 0 or a negative errno.
 */
int prepared_init(struct prepared *prepared, struct rbk_onnx *onnx, struct rbk *rbk,
		  const struct rbk_onnx_options *options, uint32_t rows, char why[MODEL_WHY_BYTES]);
void prepared_deinit(struct prepared *prepared);
/* Run one task of @rows rows over the contents of its places, and add its times to @times. */
int prepared_run(struct prepared *prepared, uint32_t rows, unsigned int strategy,
		 struct model_times *times, char why[MODEL_WHY_BYTES]);
