#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * ONNX models, run over arrays
 *
 * For programs with a model, a file for each of its inputs, and a broker. The shapes of the files
 * settle the dimensions that the model leaves open, rows beyond one task are divided among several
 * tasks, and each output becomes one array.
 *
 * Functions that fail return a negative errno or a MODEL_E_*, and a sentence without a full stop in
 * @why. A model is used by one thread. It is opened, given its inputs, compiled, prepared for a
 * broker and then run, any number of times; each of the later steps may be repeated.
 */
#include <stdbool.h>
#include <stdint.h>

#include <ringbroker.h>
#include <ringbroker/onnx.h>

#include "arrays/array.h"

enum { MODEL_WHY_BYTES = 1024 };

/* Errors about the model or its inputs */
enum {
	MODEL_E_REFUSED = 1, /* not runnable; rbk_onnx_refusal() of model_onnx() has the reasons */
	MODEL_E_INPUT,  /* an input is missing, or has another type or shape than the model wants */
	MODEL_E_DEVICE, /* none of the allowed devices can run it */
	MODEL_E_AWAY,   /* a device that could run it is switched off or failing */
};

struct model;

/*
 * Load the model at @path.
 * Return: 0, or as rbk_onnx_load(), with a sentence that has the path.
 */
int model_open(const char *path, struct model **ret, char why[MODEL_WHY_BYTES]);
struct model *model_free(struct model *model);
/* Return the loaded model, to be read only; valid as long as the model. */
struct rbk_onnx *model_onnx(const struct model *model);

/*
 * Give input @index a value. Its memory stays the caller's and must remain valid; @name names it in
 * messages. A second call replaces the value.
 * Return: 0; MODEL_E_INPUT if the value has another type, or a shape that the model does not allow.
 */
int model_give(struct model *model, unsigned int index, const struct array *array, const char *name,
	       char why[MODEL_WHY_BYTES]);

/*
 * Check that input @index has a type that arrays can have.
 * Return: 0; MODEL_E_INPUT if it cannot be given.
 */
int model_check_input(const struct model *model, unsigned int index, char why[MODEL_WHY_BYTES]);

/* Disable optimisations of the loader, RBK_ONNX_OPT_*, from the next model_compile() on. */
void model_disable(struct model *model, uint32_t optimisations);

/*
 * Settle shapes and compile. @max_rows: most rows of one task; 0: the default.
 * Return: 0; MODEL_E_REFUSED; MODEL_E_INPUT; -EINVAL if nodes compute rows from other rows, so that
 * tasks of @max_rows would give other results, or if there are no rows to divide into tasks; or as
 * rbk_onnx_compile().
 */
int model_compile(struct model *model, uint32_t max_rows, char why[MODEL_WHY_BYTES]);
/*
 * Compile without all arrays, to see whether the model can be run. An open dimension that no array
 * settles becomes @size; a leading one stays open, or becomes 1 where nodes want a number. Give all
 * arrays and compile before preparing.
 * Return: as model_compile().
 */
int model_try(struct model *model, uint32_t size, char why[MODEL_WHY_BYTES]);
/*
 * Return the rows of the inputs, and the rows of one task; both are 1 if shapes are fixed. With 0
 * rows neither inputs nor outputs have elements, and a run takes no task.
 */
uint64_t model_rows(const struct model *model);
uint32_t model_task_rows(const struct model *model);
/* Return true if tasks have a count of rows. */
bool model_has_rows(const struct model *model);

/*
 * Return true if the file declares output @index with another type, or with other numbers as
 * dimensions, than the model computes; @why describes the difference. A leading 1 stands for any
 * number of rows; after model_try() so does any number. Refers to the last compilation, before the
 * model is profiled.
 */
bool model_contradicts(const struct model *model, unsigned int index, char why[MODEL_WHY_BYTES]);

/*
 * Prepare the model with the broker, as rbk_onnx_plan(), and allocate memory for its tasks. The
 * memory is freed with the model, or when it is prepared again. If the broker has no room for tasks
 * of this many rows, tasks get fewer rows.
 * Return: 0, or a negative errno.
 */
int model_prepare(struct model *model, struct rbk *rbk, char why[MODEL_WHY_BYTES]);
/* Return the broker's information about the plan in *ret. */
void model_plan_info(const struct model *model, struct rbk_plan_info *ret);

/* Times of tasks, summed over one model_run() */
struct model_times {
	uint64_t wall_ns; /* from submission to completion */
	uint64_t queue_ns, exec_ns;
	uint64_t n_tasks, n_rows;
	uint64_t n_tasks_on[RBK_MAX_DEVICES];
	uint64_t n_partitioned; /* tasks on several devices, counted where most of each ran */
	unsigned int reason;    /* enum rbk_reason of the last task */
	uint64_t user_data;     /* of the last task, by which the broker's logs know it */
};

struct model_how {
	unsigned int strategy; /* enum rbk_strategy */
	/* Called after each task; may be NULL. */
	void (*progress)(void *data, uint64_t rows_done);
	void *data;
};

/*
 * Run the model over all rows.
 * Return: 0; MODEL_E_DEVICE; a negative errno of a task's completion or of a lost connection.
 */
int model_run(struct model *model, const struct model_how *how, struct model_times *ret,
	      char why[MODEL_WHY_BYTES]);

/*
 * Find the node with an index out of range, after a model_run() that ended with -EDOM, by running
 * the rows of the failed task node by node. @why gets the node and the range of its indices, or
 * stays as it is if the node is not found. Prepare the model again before its next run.
 */
void model_find_index(struct model *model, struct rbk *rbk, unsigned int strategy,
		      char why[MODEL_WHY_BYTES]);

/* A step of the plan that none of the requested devices runs */
struct model_unable {
	struct rbk_onnx_step step;
	char reason[512]; /* a sentence about these devices, such as "the operator is not there" */
};

/*
 * Find the steps that none of @devices (a mask of 1 << RBK_DEVICE_*) runs, and the reasons, by
 * planning each step by itself. Call after a model_run() that ended with MODEL_E_DEVICE. There may
 * be no such step, if only the whole model is too large. @how's progress gets the number of planned
 * steps. Prepare the model again before its next run.
 * Return: 0 with an array of *ret_n, which the caller frees; MODEL_E_AWAY if one of @devices runs
 * the whole model but is not available; or as rbk_onnx_plan().
 */
int model_find_unable(struct model *model, struct rbk *rbk, uint32_t devices,
		      const struct model_how *how, struct model_unable **ret, unsigned int *ret_n,
		      char why[MODEL_WHY_BYTES]);

/* The task that model_run() submits first, for a program that submits it by itself */
struct model_task {
	uint32_t plan_id, count;
	unsigned int n_refs;
	uint64_t refs[RBK_MAX_REFS];
	const void *tensors[RBK_MAX_REFS]; /* memory of the references */
	uint64_t bytes[RBK_MAX_REFS];      /* bytes of it that the task uses */
};

/*
 * Copy the first task's rows of the inputs to its memory, and describe the task. It is valid until
 * the prepared model is run, prepared again or freed. The model must have rows.
 */
void model_first_task(struct model *model, struct model_task *ret);

/* Return output @index of the last run, valid until the model is run or freed. */
const struct array *model_output(const struct model *model, unsigned int index);

/* ---- Measuring nodes ---- */

struct model_node {
	struct rbk_onnx_step step;
	bool can[RBK_MAX_DEVICES];         /* true if the device ran the node */
	uint64_t exec_ns[RBK_MAX_DEVICES]; /* median of one task */
};

/*
 * Run the steps of a compiled model one after the other, each as a plan of its own, over the
 * earlier steps' results for the first task's rows. Each device of @devices (a mask of 1 <<
 * RBK_DEVICE_*) that can run a step runs it once to warm up, and @n_repeats times to measure.
 * @how's progress gets the number of finished nodes. Prepare and run the model anew afterwards.
 * Return: 0 with an array of rbk_onnx_n_steps() nodes, which the caller frees; or as
 * model_prepare() and model_run().
 */
int model_profile(struct model *model, struct rbk *rbk, uint32_t devices, unsigned int n_repeats,
		  const struct model_how *how, struct model_node **ret, char why[MODEL_WHY_BYTES]);

/* ---- Files ---- */

/*
 * Read a .npy file, or a TensorProto if the file is named .pb.
 * Return: 0; a negative errno, with a sentence that begins with the path.
 */
int model_read_array(const char *path, struct array *ret, char why[MODEL_WHY_BYTES]);
/* Write a TensorProto if the file is named .pb, otherwise a .npy file. */
int model_write_array(const char *path, const struct array *array, const char *name,
		      char why[MODEL_WHY_BYTES]);
