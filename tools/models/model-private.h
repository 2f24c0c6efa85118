#pragma once
/* SPDX-License-Identifier: MIT */
/* What the files of models share. */
#include "models/model.h"

/* A sentence into @why. Return: @error. */
int model_fail(char why[MODEL_WHY_BYTES], int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* An input of the model. */
struct model_input {
	struct rbk_onnx_value value;
	const struct array *array; /* NULL: not given */
	const char *called;        /* the array */
};

/* A plan with memory for one task of it at a time. */
struct prepared {
	struct rbk_plan *plan;
	struct rbk_arena *arena;
	struct rbk_ring *ring;
	unsigned int n_bound;
	struct rbk_onnx_bound bound[RBK_MAX_REFS];
	void *places[RBK_MAX_REFS]; /* in the arena */
	uint64_t refs[RBK_MAX_REFS];
	uint64_t table_ref;
};

struct model {
	struct rbk_onnx *onnx;
	unsigned int n_inputs, n_outputs;
	struct model_input *inputs;
	struct array *outputs; /* as long as they are made, all rows */
	struct rbk_onnx_options options;
	uint32_t disable; /* RBK_ONNX_OPT_* */
	bool is_compiled;
	bool has_rows; /* else shapes are fixed */
	uint64_t n_rows;
	uint32_t task_rows;
	/* Rows that the last task had. */
	uint64_t part_first;
	uint32_t part_rows;
	struct prepared prepared;
};

/* Of an array that a task of @rows rows has, or all of them; no more than it has is 0. */
uint64_t bound_bytes(const struct rbk_onnx_bound *bound, uint64_t rows);

/* As array_describe(), of @rows rows or of all. Return: how many elements that are. */
uint64_t bound_describe(const struct rbk_onnx_bound *bound, uint64_t rows,
			char text[ARRAY_TEXT_BYTES]);

/* What the loader and the broker are to prepare for tasks of @rows. */
uint32_t model_max_count(const struct model *model, uint32_t rows);

/* Has @options of the compiled model prepared, for tasks of @rows. Return: 0 or a negative errno.
 */
int prepared_init(struct prepared *prepared, struct rbk_onnx *onnx, struct rbk *rbk,
		  const struct rbk_onnx_options *options, uint32_t rows, char why[MODEL_WHY_BYTES]);
void prepared_deinit(struct prepared *prepared);
/* Runs one task of @rows over what lies in its places, and adds it to @times. */
int prepared_run(struct prepared *prepared, uint32_t rows, unsigned int strategy,
		 struct model_times *times, char why[MODEL_WHY_BYTES]);
