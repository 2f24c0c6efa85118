#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * ONNX models, run over arrays
 *
 * What a program does that has a model, a file for each of its inputs and a broker: the shapes of
 * the files settle what the model leaves open, rows beyond one task are given to several, and each
 * output becomes one array.
 *
 * Functions that fail return a negative errno, or a MODEL_E_*, and a sentence without a full stop
 * in @why. For one thread. A model is opened, given its inputs, compiled, prepared for a broker and
 * then run, as often as wanted; of the later steps each may be done again.
 */
#include <stdbool.h>
#include <stdint.h>

#include <ringbroker.h>
#include <ringbroker/onnx.h>

#include "arrays/array.h"

enum { MODEL_WHY_BYTES = 1024 };

/* Outcomes that are about the model or what it was given. */
enum {
	MODEL_E_REFUSED =
		1,      /* it cannot be run: rbk_onnx_refusal() of model_onnx() has all reasons */
	MODEL_E_INPUT,  /* an input has another type or shape than the model wants, or is missing */
	MODEL_E_DEVICE, /* no device that it may run on can */
	MODEL_E_AWAY,   /* one could, but is not to be had now: switched off or failing */
};

struct model;

/* Return: 0, or as rbk_onnx_load(), with a sentence that has the path. */
int model_open(const char *path, struct model **ret, char why[MODEL_WHY_BYTES]);
struct model *model_free(struct model *model);
/* For looking at; as long as the model. */
struct rbk_onnx *model_onnx(const struct model *model);

/*
 * Gives its input @index a value, whose memory stays the caller's and must stay; @name is what the
 * sentence calls it. Again: another one. Return: 0; MODEL_E_INPUT: of another type, or a shape that
 * the model does not allow.
 */
int model_give(struct model *model, unsigned int index, const struct array *array, const char *name,
	       char why[MODEL_WHY_BYTES]);

/*
 * Is its input @index of a type that arrays can have? Return: 0; MODEL_E_INPUT: it cannot be given.
 */
int model_check_input(const struct model *model, unsigned int index, char why[MODEL_WHY_BYTES]);

/* What the loader is not to do, RBK_ONNX_OPT_*, from the next model_compile() on. */
void model_disable(struct model *model, uint32_t optimisations);

/*
 * Settles shapes. @max_rows: of one task; 0: as many as seem right. Return: 0; MODEL_E_REFUSED,
 * MODEL_E_INPUT; -EINVAL: nodes compute rows from other rows, so that tasks of @max_rows would give
 * something else, or there are no rows to make tasks of; or as rbk_onnx_compile().
 */
int model_compile(struct model *model, uint32_t max_rows, char why[MODEL_WHY_BYTES]);
/*
 * Compiles it without having all arrays, to see whether it can be run: what is open and no array
 * tells has @size, a leading dimension any number, or 1 where nodes want one. Give all arrays and
 * compile it before it is prepared. Return: as model_compile().
 */
int model_try(struct model *model, uint32_t size, char why[MODEL_WHY_BYTES]);
/*
 * How many rows the inputs have, and how many go into one task; both 1 where shapes are fixed. No
 * rows: neither inputs nor outputs have elements, and running it takes no task.
 */
uint64_t model_rows(const struct model *model);
uint32_t model_task_rows(const struct model *model);
/* Do tasks have a count of rows at all? */
bool model_has_rows(const struct model *model);

/*
 * Does the file declare its output @index otherwise than the model computes it, in type or in
 * dimensions that it has as numbers? @why says how. A leading 1 stands for any number of rows;
 * after a model_try() so does any number. Of the model as it was compiled last, before it is
 * profiled.
 */
bool model_contradicts(const struct model *model, unsigned int index, char why[MODEL_WHY_BYTES]);

/*
 * Has the broker prepare it, as rbk_onnx_plan(), and takes memory for its tasks, which is given
 * back with the model, or when it is prepared again. Where the broker has no room for tasks of so
 * many rows, they get fewer. Return: 0, or a negative errno.
 */
int model_prepare(struct model *model, struct rbk *rbk, char why[MODEL_WHY_BYTES]);
/* What the broker said about the plan. */
void model_plan_info(const struct model *model, struct rbk_plan_info *ret);

/* How tasks went, those of one model_run() together. */
struct model_times {
	uint64_t wall_ns; /* between submitting and completing them */
	uint64_t queue_ns, exec_ns;
	uint64_t n_tasks, n_rows;
	uint64_t n_tasks_on[RBK_MAX_DEVICES];
	unsigned int reason; /* enum rbk_reason of the last */
};

struct model_how {
	unsigned int strategy; /* enum rbk_strategy */
	/* Called after each task; may be NULL. */
	void (*progress)(void *data, uint64_t rows_done);
	void *data;
};

/*
 * Runs it over all rows. Return: 0; MODEL_E_DEVICE; or a negative errno, with which a task
 * completed or the connection was lost.
 */
int model_run(struct model *model, const struct model_how *how, struct model_times *ret,
	      char why[MODEL_WHY_BYTES]);

/*
 * After a model_run() that ended with -EDOM: says in @why which node's index is out of range, and
 * what its indices are, by running the rows of that task node by node. @why stays if that does not
 * tell. Prepare the model anew before it is run again.
 */
void model_find_index(struct model *model, struct rbk *rbk, unsigned int strategy,
		      char why[MODEL_WHY_BYTES]);

/* A step of the plan that no device runs of those that are asked for. */
struct model_unable {
	struct rbk_onnx_step step;
	char reason[512]; /* a sentence, of those devices: "the operator is not there" */
};

/*
 * After a model_run() that ended with MODEL_E_DEVICE: which steps none of @devices (bit by
 * RBK_DEVICE_*) runs, by having each one planned, and why. There may be none: the model is too much
 * as a whole. @how's progress is told how many are planned. Prepare the model anew before it is run
 * again. Return: 0, with an array of *ret_n, to be freed; MODEL_E_AWAY: one of @devices runs the
 * whole, and it is not the model's fault; or as rbk_onnx_plan().
 */
int model_find_unable(struct model *model, struct rbk *rbk, uint32_t devices,
		      const struct model_how *how, struct model_unable **ret, unsigned int *ret_n,
		      char why[MODEL_WHY_BYTES]);

/* Its output @index as the last run wrote it, as long as the model is neither run nor freed. */
const struct array *model_output(const struct model *model, unsigned int index);

/* ---- Measuring nodes ---------------------------------------------------------------------- */

struct model_node {
	struct rbk_onnx_step step;
	bool can[RBK_MAX_DEVICES];         /* run there */
	uint64_t exec_ns[RBK_MAX_DEVICES]; /* median, of one task */
};

/*
 * Runs the steps of a compiled model one after the other, each as a plan of its own over what the
 * ones before it made of the first task's rows: once on each device of @devices (bit by
 * RBK_DEVICE_*) that can, to warm it up, and @n_repeats times to measure. @progress is told how
 * many nodes are done. Prepare and run the model anew afterwards. Return: 0, with an array of as
 * many nodes as rbk_onnx_n_steps() says, to be freed; or as model_prepare() and model_run().
 */
int model_profile(struct model *model, struct rbk *rbk, uint32_t devices, unsigned int n_repeats,
		  const struct model_how *how, struct model_node **ret, char why[MODEL_WHY_BYTES]);

/* ---- Files -------------------------------------------------------------------------------- */

/*
 * Reads a .npy file, or, where it is called .pb, a TensorProto. Return: 0; a negative errno, with a
 * sentence that begins with the path.
 */
int model_read_array(const char *path, struct array *ret, char why[MODEL_WHY_BYTES]);
/* Writes a TensorProto where it is called .pb, else a .npy file. */
int model_write_array(const char *path, const struct array *array, const char *name,
		      char why[MODEL_WHY_BYTES]);
