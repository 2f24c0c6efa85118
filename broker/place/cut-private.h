#pragma once
/* SPDX-License-Identifier: MIT */
/* Cuts by time: what their parts know of each other; cut-devices.h says what for. */
#include "place/cut-devices.h"
#include "util/cleanup.h"

/* Time between the end of a segment and the start of another that waits for it, in ns */
#define CUT_HOP_NS 10000.0

/* Times by device of the basis, in ns; INFINITY: it lacks something */
struct cut_times {
	double ns[RBK_MAX_DEVICES];
};

/* Nodes as a segment: tensors that a device must get before, and give back after */
struct cut_range {
	uint32_t n_in, n_out;
	double in_bytes, out_bytes;
	uint64_t touched_bytes; /* with constants, as the placer counts */
};

/* The times that a plan takes on the devices of a basis; both are borrowed */
struct cut_model {
	const struct place_cut_basis *basis;
	const struct plan *plan;
	uint32_t count; /* rows of the task that is predicted */
	/* By tensor: node that writes it, last that reads it, and mark of the last range with it */
	uint16_t *writer, *reader;
	uint32_t *seen, mark;
};

/* cut-model.c */

/* Return: 0; -ENOMEM, and nothing is left. */
int cut_model_init(struct cut_model *model, const struct place_cut_basis *basis,
		   const struct plan *plan);
void cut_model_deinit(struct cut_model *model);

/* Predict a task of @count rows of the whole plan on each device; later times are of as many. */
struct cut_times cut_predict(struct cut_model *model, uint32_t count);
/* Return true if a device beside the CPU can run the whole plan, of which @whole are the times. */
bool cut_is_whole(const struct cut_model *model, const struct cut_times *whole);
/* Return true if the plan's tenant has room for all of it on the device. */
bool cut_has_room(const struct place_cut_device *device, const struct plan *plan);
/* Return true if a device beside the CPU has room. */
bool cut_has_any_room(const struct cut_model *model);

/* Measure the nodes from @first to before @end. */
struct cut_range cut_measure(struct cut_model *model, uint16_t first, uint16_t end);
/* Return the time of a range's submission, and of moving what it reads and writes over the link. */
double cut_around_ns(const struct place_cut_device *device, const struct cut_range *range);
/* Return the fixed time that a submission adds. */
double cut_submission_ns(const struct place_cut_device *device);
uint64_t cut_bytes_of(const struct cut_model *model, uint16_t tensor);

/* Return the time of a node alone on a device; INFINITY: the device lacks it. */
double cut_node_ns(const struct cut_model *model, uint16_t i, uint32_t d);
/* The same on each device */
struct cut_times cut_node_times(const struct cut_model *model, uint16_t i);
double cut_least_of(const struct cut_model *model, const struct cut_times *times);
void cut_add_times(const struct cut_model *model, struct cut_times *sum,
		   const struct cut_times *times);

/* cut-pieces.c */

/*
 * Cut a plan into pieces, or where the device lacks operators, if these save more than submissions
 * take. Return: false: the CPU lacks a part of it, or there is no memory.
 */
bool cut_choose_pieces(struct cut_model *model, const struct cut_wish *wish,
		       struct cut_choice *ret);
