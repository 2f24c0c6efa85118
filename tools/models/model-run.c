/* SPDX-License-Identifier: MIT */
/*
 * Running models
 *
 * One task at a time runs on one set of places in an arena. A one-shot program waits for the
 * computation; copying a task's rows is negligible. Rows are copied in and out for each task;
 * tensors without rows are copied in once, before the first task.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/model-private.h"
#include "models/model.h"
#include "shm/number.h"
#include "util/clock.h"

enum { WAIT_NS = 200000000 };

/* ---- One plan ---- */

static uint64_t place_bytes(const struct rbk_onnx_bound *bound, uint32_t rows)
{
	uint64_t bytes = bound_bytes(bound, rows);

	/* A tensor without elements has a place, too, since references must differ. */
	return bytes ? round_up(bytes, RBK_REF_ALIGN) : RBK_REF_ALIGN;
}

static int make_places(struct prepared *prepared, struct rbk *rbk, uint32_t rows,
		       char why[MODEL_WHY_BYTES])
{
	uint64_t bytes = RBK_MAX_REFS * sizeof(uint64_t);
	struct rbk_error error = {""};
	uint64_t *table;
	int r;

	for (unsigned int i = 0; i < prepared->n_bound; i++)
		if (__builtin_add_overflow(bytes, place_bytes(&prepared->bound[i], rows), &bytes))
			return model_fail(why, -ENOMEM,
					  "no memory has room for the tensors of the task");
	r = rbk_arena_new(rbk, bytes, &prepared->arena, &error);
	if (r)
		return model_fail(why, r, "%s", error.text);
	table = rbk_arena_alloc(prepared->arena, RBK_MAX_REFS * sizeof(uint64_t));
	for (unsigned int i = 0; i < prepared->n_bound; i++) {
		prepared->places[i] =
			rbk_arena_alloc(prepared->arena, place_bytes(&prepared->bound[i], rows));
		if (!table || !prepared->places[i])
			return model_fail(why, -ENOMEM, "its tensors do not fit into an arena");
		prepared->refs[i] = rbk_ref(prepared->arena, prepared->places[i]);
		table[i] = prepared->refs[i];
	}
	prepared->table_ref = rbk_ref(prepared->arena, table);
	return 0;
}

int prepared_init(struct prepared *prepared, struct rbk_onnx *onnx, struct rbk *rbk,
		  const struct rbk_onnx_options *options, uint32_t rows, char why[MODEL_WHY_BYTES])
{
	struct rbk_error error = {""};
	int r;

	*prepared = (struct prepared){.n_bound = 0};
	r = rbk_onnx_plan(onnx, rbk, options, &prepared->plan, &error);
	if (r)
		return model_fail(why, r, "%s", error.text);
	prepared->n_bound = rbk_onnx_n_bound(onnx);
	if (prepared->n_bound > RBK_MAX_REFS)
		r = model_fail(why, -E2BIG, "it has more than %u inputs and outputs", RBK_MAX_REFS);
	for (unsigned int i = 0; i < prepared->n_bound && r == 0; i++)
		if (rbk_onnx_bound(onnx, i, &prepared->bound[i]))
			r = model_fail(why, -EPROTO, "bound tensor %u is missing", i);
	if (r == 0)
		r = make_places(prepared, rbk, rows, why);
	if (r == 0) {
		r = rbk_ring_new(rbk, 1, &prepared->ring, &error);
		if (r)
			model_fail(why, r, "%s", error.text);
	}
	if (r)
		prepared_deinit(prepared);
	return r;
}

/*
 * Describe why a task completed with @error.
 * Return: MODEL_E_DEVICE, or @error.
 */
static int task_failed(int error, char why[MODEL_WHY_BYTES])
{
	switch (error) {
	case -ENODEV:
		return model_fail(why, MODEL_E_DEVICE,
				  "no device that it may run on runs all of its operators");
	case -ENOMEM:
		return model_fail(why, error, "there is no room for it in the device's memory");
	case -EDOM:
		return model_fail(why, error, "an index among its data is out of range");
	case -EIO:
		return model_fail(why, error, "the device failed");
	}
	return model_fail(why, error, "the task failed: %s", strerror(-error));
}

static int await(struct rbk_ring *ring, struct rbk_cqe *ret)
{
	const struct rbk_cqe *cqe;
	int r;

	do {
		r = rbk_wait_cqe_timeout(ring, &cqe, WAIT_NS);
	} while (r == -ETIME || r == -EINTR);
	if (r)
		return r;
	*ret = *cqe;
	rbk_cqe_seen(ring, cqe);
	return 0;
}

int prepared_run(struct prepared *prepared, uint32_t rows, unsigned int strategy,
		 struct model_times *times, char why[MODEL_WHY_BYTES])
{
	struct rbk_sqe *sqe = rbk_get_sqe(prepared->ring);
	uint64_t began_ns = clock_now_ns();
	struct rbk_cqe cqe = {0};
	int r = sqe ? 0 : -ECONNRESET;

	if (sqe && prepared->n_bound <= RBK_SQE_REFS)
		rbk_prep_run(sqe, rbk_plan_id(prepared->plan), rows, prepared->refs,
			     prepared->n_bound);
	else if (sqe)
		rbk_prep_run_table(sqe, rbk_plan_id(prepared->plan), rows, prepared->table_ref,
				   prepared->n_bound);
	if (sqe) {
		rbk_sqe_set_strategy(sqe, strategy);
		/* The time tells the task from others in the broker's logs. */
		rbk_sqe_set_data64(sqe, began_ns);
		times->user_data = began_ns;
		r = rbk_submit(prepared->ring);
	}
	if (r >= 0)
		r = await(prepared->ring, &cqe);
	if (r < 0)
		return model_fail(why, r, "the broker is gone: %s", strerror(-r));
	times->wall_ns += clock_now_ns() - began_ns;
	if (cqe.res)
		return task_failed(cqe.res, why);
	times->queue_ns += cqe.queue_ns;
	times->exec_ns += cqe.exec_ns;
	times->n_tasks++;
	times->n_rows += rows;
	if (cqe.device < RBK_MAX_DEVICES)
		times->n_tasks_on[cqe.device]++;
	times->n_partitioned += (cqe.flags & RBK_CQE_PARTITIONED) != 0;
	times->reason = cqe.reason;
	return 0;
}

/* ---- All rows ---- */

/* Make the output arrays for all rows. */
static int make_outputs(struct model *model, char why[MODEL_WHY_BYTES])
{
	for (unsigned int i = 0; i < model->n_outputs; i++)
		array_deinit(&model->outputs[i]);
	for (unsigned int i = 0; i < model->prepared.n_bound; i++) {
		const struct rbk_onnx_bound *bound = &model->prepared.bound[i];
		int64_t dims[ARRAY_MAX_RANK];
		void *data;
		int r;

		if (!bound->is_output)
			continue;
		if (bound->index >= model->n_outputs)
			return model_fail(why, -EPROTO, "%.200s is no output of the model",
					  bound->name);
		for (unsigned int k = 0; k < bound->rank && k < ARRAY_MAX_RANK; k++)
			dims[k] = bound->dims[k];
		if (bound->rank > 0 && bound->dims[0] == RBK_DIM_COUNT)
			dims[0] = (int64_t)(bound->per_count * model->n_rows);
		r = array_new(bound->dtype, bound->rank, dims, &model->outputs[bound->index],
			      &data);
		if (r)
			return model_fail(why, r, "output %.200s: %s", bound->name,
					  r == -EINVAL ? "it has elements of another type"
						       : strerror(-r));
	}
	for (unsigned int i = 0; i < model->n_outputs; i++)
		if (!model->outputs[i].data)
			return model_fail(why, -EPROTO, "output %u is not among what tasks bind",
					  i);
	return 0;
}

int model_prepare(struct model *model, struct rbk *rbk, char why[MODEL_WHY_BYTES])
{
	struct rbk_error error = {""};
	int r;

	prepared_deinit(&model->prepared);
	if (!model->is_compiled)
		return model_fail(why, -EINVAL, "it is not compiled");
	for (;;) {
		r = prepared_init(&model->prepared, model->onnx, rbk, &model->options,
				  model->task_rows, why);
		if ((r != -EDQUOT && r != -ENOMEM && r != -ENOSPC) || model->task_rows == 1)
			break;
		/* Fewer rows per task may fit. */
		model->task_rows /= 2;
		model->options.max_count = model_max_count(model, model->task_rows);
		r = rbk_onnx_compile(model->onnx, &model->options, &error);
		if (r)
			return model_fail(why, r, "%s", error.text);
	}
	return r ? r : make_outputs(model, why);
}

void model_plan_info(const struct model *model, struct rbk_plan_info *ret)
{
	rbk_plan_info(model->prepared.plan, ret);
}

/*
 * Copy rows [@first, @first + @rows) of the tensors that tasks read, or of those that tasks write.
 */
static void copy_rows(struct model *model, uint64_t first, uint32_t rows, bool is_output)
{
	for (unsigned int i = 0; i < model->prepared.n_bound; i++) {
		const struct rbk_onnx_bound *bound = &model->prepared.bound[i];
		uint64_t offset = first * bound->bytes_row, bytes = bound_bytes(bound, rows);

		if (bound->is_output != is_output || bytes == 0)
			continue;
		if (is_output)
			memcpy((char *)model->outputs[bound->index].owned + offset,
			       model->prepared.places[i], bytes);
		else if (bound->bytes_row || first == 0)
			memcpy(model->prepared.places[i],
			       (const char *)model->inputs[bound->index].array->data + offset,
			       bytes);
	}
}

int model_run(struct model *model, const struct model_how *how, struct model_times *ret,
	      char why[MODEL_WHY_BYTES])
{
	struct model_times times = {.n_tasks = 0};
	uint32_t rows;
	int r;

	if (!model->prepared.plan)
		return model_fail(why, -EINVAL, "it is not prepared");
	for (uint64_t first = 0; first < model->n_rows; first += rows) {
		rows = model->n_rows - first < model->task_rows ? (uint32_t)(model->n_rows - first)
								: model->task_rows;
		model->part_first = first;
		model->part_rows = rows;
		copy_rows(model, first, rows, false);
		r = prepared_run(&model->prepared, rows, how->strategy, &times, why);
		if (r)
			return r;
		copy_rows(model, first, rows, true);
		if (how->progress)
			how->progress(how->data, first + rows);
	}
	*ret = times;
	return 0;
}

void model_first_task(struct model *model, struct model_task *ret)
{
	const struct prepared *prepared = &model->prepared;
	const uint32_t rows =
		model->n_rows < model->task_rows ? (uint32_t)model->n_rows : model->task_rows;

	copy_rows(model, 0, rows, false);
	*ret = (struct model_task){
		.plan_id = rbk_plan_id(prepared->plan),
		.count = rows,
		.n_refs = prepared->n_bound,
	};
	for (unsigned int i = 0; i < prepared->n_bound; i++) {
		ret->refs[i] = prepared->refs[i];
		ret->tensors[i] = prepared->places[i];
		ret->bytes[i] = bound_bytes(&prepared->bound[i], rows);
	}
}

const struct array *model_output(const struct model *model, unsigned int index)
{
	return &model->outputs[index];
}
