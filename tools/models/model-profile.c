/* SPDX-License-Identifier: MIT */
/*
 * Measuring the nodes of a model one by one
 *
 * A broker runs plans and reports the execution time of each task. Each step therefore becomes a
 * plan of its own, which runs over the results of the steps before it. Real data is used, since an
 * operator's time may depend on it. Results are kept by the tensor's number. In the same way the
 * node with an index out of range is found, which the broker does not report.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/model-private.h"
#include "models/model.h"
#include "util/cleanup.h"

/* a tensor that a step wrote */
struct kept {
	struct kept *next;
	uint32_t tensor;
	uint64_t bytes;
	unsigned char data[];
};

static void free_kept(struct kept **first)
{
	struct kept *next;

	for (struct kept *kept = *first; kept; kept = next) {
		next = kept->next;
		free(kept);
	}
}

/*
 * Find the data of input @bound of a step, for the task's rows.
 * Return: NULL if no step wrote it.
 */
static const void *find_input(const struct model *model, const struct kept *kept,
			      const struct rbk_onnx_bound *bound, uint64_t bytes)
{
	if (bound->index < model->n_inputs && model->inputs[bound->index].array &&
	    strcmp(model->inputs[bound->index].value.name, bound->name) == 0)
		return (const char *)model->inputs[bound->index].array->data +
		       model->part_first * bound->bytes_row;
	for (; kept; kept = kept->next)
		if (kept->tensor == bound->tensor)
			return kept->bytes == bytes ? kept->data : NULL;
	return NULL;
}

/* Return the rows of a step's task: 1 if its tensors do not depend on the count. */
static uint32_t rows_of(const struct model *model, const struct prepared *prepared)
{
	for (unsigned int i = 0; i < prepared->n_bound; i++)
		if (prepared->bound[i].per_count)
			return model->part_rows;
	return 1;
}

static int fill(const struct model *model, const struct prepared *prepared, const struct kept *kept,
		char why[MODEL_WHY_BYTES])
{
	for (unsigned int i = 0; i < prepared->n_bound; i++) {
		const struct rbk_onnx_bound *bound = &prepared->bound[i];
		uint64_t bytes = bound_bytes(bound, model->part_rows);
		const void *data;

		if (bound->is_output || bytes == 0)
			continue;
		data = find_input(model, kept, bound, bytes);
		if (!data)
			return model_fail(why, -EPROTO, "no step has written %.200s", bound->name);
		memcpy(prepared->places[i], data, bytes);
	}
	return 0;
}

static int keep(const struct prepared *prepared, uint32_t rows, struct kept **first,
		char why[MODEL_WHY_BYTES])
{
	for (unsigned int i = 0; i < prepared->n_bound; i++) {
		uint64_t bytes = bound_bytes(&prepared->bound[i], rows);
		struct kept *kept;

		if (!prepared->bound[i].is_output)
			continue;
		kept = malloc(sizeof(*kept) + bytes);
		if (!kept)
			return model_fail(why, -ENOMEM, "out of memory");
		kept->tensor = prepared->bound[i].tensor;
		kept->bytes = bytes;
		memcpy(kept->data, prepared->places[i], bytes);
		kept->next = *first;
		*first = kept;
	}
	return 0;
}

static int compare_times(const void *first, const void *second)
{
	const uint64_t *a = first, *b = second;

	return *a < *b ? -1 : *a > *b;
}

static int measure(struct prepared *prepared, uint32_t rows, unsigned int device,
		   unsigned int n_repeats, uint64_t *samples, struct model_node *node,
		   char why[MODEL_WHY_BYTES])
{
	for (unsigned int i = 0; i <= n_repeats; i++) {
		struct model_times times = {.n_tasks = 0};
		int r = prepared_run(prepared, rows, RBK_STRATEGY_DEVICE(device), &times, why);

		if (r)
			return r;
		/* Another device may have taken the task; the first run is the warm-up. */
		if (!times.n_tasks_on[device])
			return 0;
		if (i > 0)
			samples[i - 1] = times.exec_ns;
	}
	qsort(samples, n_repeats, sizeof(*samples), compare_times);
	node->can[device] = true;
	node->exec_ns[device] = samples[n_repeats / 2];
	return 0;
}

static int profile_step(struct model *model, struct rbk *rbk, unsigned int step, uint32_t devices,
			unsigned int n_repeats, uint64_t *samples, struct model_node *node,
			struct kept **kept, char why[MODEL_WHY_BYTES])
{
	struct rbk_onnx_options options = model->options;
	struct rbk_plan_info info;
	struct prepared prepared;
	uint32_t rows;
	int r;

	options.first_step = step;
	options.n_steps = 1;
	if (rbk_onnx_step(model->onnx, step, &node->step))
		return model_fail(why, -EPROTO, "step %u is missing", step);
	r = prepared_init(&prepared, model->onnx, rbk, &options, model->task_rows, why);
	if (r)
		return r;
	rbk_plan_info(prepared.plan, &info);
	rows = rows_of(model, &prepared);
	r = fill(model, &prepared, *kept, why);
	for (unsigned int device = 0; device < RBK_MAX_DEVICES && r == 0; device++)
		if (devices & info.devices & 1u << device)
			r = measure(&prepared, rows, device, n_repeats, samples, node, why);
	if (r == 0 && !(devices & info.devices)) {
		/* No device is measured; the results are for later steps. */
		struct model_times times = {.n_tasks = 0};

		r = prepared_run(&prepared, rows, RBK_STRATEGY_AUTO, &times, why);
	}
	if (r == 0)
		r = keep(&prepared, rows, kept, why);
	prepared_deinit(&prepared);
	return r;
}

int model_profile(struct model *model, struct rbk *rbk, uint32_t devices, unsigned int n_repeats,
		  const struct model_how *how, struct model_node **ret, char why[MODEL_WHY_BYTES])
{
	unsigned int n_steps = rbk_onnx_n_steps(model->onnx);
	_cleanup_(freep) struct model_node *nodes = calloc(n_steps + 1, sizeof(*nodes));
	_cleanup_(freep) uint64_t *samples = calloc(n_repeats + 1, sizeof(*samples));
	_cleanup_(free_kept) struct kept *kept = NULL;
	int r;

	if (!nodes || !samples)
		return model_fail(why, -ENOMEM, "out of memory");
	prepared_deinit(&model->prepared);
	model->part_first = 0;
	model->part_rows = model->task_rows;
	for (unsigned int i = 0; i < n_steps; i++) {
		r = profile_step(model, rbk, i, devices, n_repeats, samples, &nodes[i], &kept, why);
		if (r)
			return r;
		if (how->progress)
			how->progress(how->data, i + 1);
	}
	*ret = steal_ptr(nodes);
	return 0;
}

/* ---- The index out of range ---- */

/*
 * Find the indices of a step, the last integer input, behind the tensor that they index.
 * Return: NULL if not known.
 */
static const void *find_indices(const struct prepared *prepared, const char *op, uint64_t rows,
				const struct rbk_onnx_bound **ret)
{
	const void *data = NULL;
	unsigned int n_read = 0;

	for (unsigned int i = 0; i < prepared->n_bound; i++) {
		const struct rbk_onnx_bound *bound = &prepared->bound[i];

		if (bound->is_output)
			continue;
		/* Scatter's updates follow the indices. */
		if (strncmp(op, "Scatter", 7) == 0 && ++n_read > 2)
			break;
		data = NULL;
		if ((bound->dtype == RBK_ONNX_I64 || bound->dtype == RBK_ONNX_I32) &&
		    bound_bytes(bound, rows) > 0) {
			data = prepared->places[i];
			*ret = bound;
		}
	}
	return data;
}

static void describe_index(const struct prepared *prepared, const struct rbk_onnx_step *step,
			   uint64_t rows, char why[MODEL_WHY_BYTES])
{
	const struct rbk_onnx_bound *bound = NULL;
	const void *data = find_indices(prepared, step->op, rows, &bound);
	int64_t least = INT64_MAX, most = INT64_MIN;
	uint64_t n;

	if (!data) {
		model_fail(why, 0, "%s %.200s: an index is out of range", step->op, step->name);
		return;
	}
	n = bound_bytes(bound, rows) / (bound->dtype == RBK_ONNX_I64 ? 8 : 4);
	for (uint64_t i = 0; i < n; i++) {
		const int64_t index = bound->dtype == RBK_ONNX_I64 ? ((const int64_t *)data)[i]
								   : ((const int32_t *)data)[i];

		least = index < least ? index : least;
		most = index > most ? index : most;
	}
	model_fail(why, 0,
		   "%s %.200s: an index in %.200s, which are from %" PRId64 " to %" PRId64
		   ", is out of range",
		   step->op, step->name, bound->name[0] ? bound->name : "its indices", least, most);
}

void model_find_index(struct model *model, struct rbk *rbk, unsigned int strategy,
		      char why[MODEL_WHY_BYTES])
{
	_cleanup_(free_kept) struct kept *kept = NULL;
	struct rbk_onnx_options options = model->options;
	char other[MODEL_WHY_BYTES];
	int r = 0;

	prepared_deinit(&model->prepared);
	for (unsigned int i = 0; i < rbk_onnx_n_steps(model->onnx) && r == 0; i++) {
		struct model_times times = {.n_tasks = 0};
		struct rbk_onnx_step step;
		struct prepared prepared;
		uint32_t rows;

		options.first_step = i;
		options.n_steps = 1;
		if (rbk_onnx_step(model->onnx, i, &step) ||
		    prepared_init(&prepared, model->onnx, rbk, &options, model->part_rows, other))
			return;
		rows = rows_of(model, &prepared);
		r = fill(model, &prepared, kept, other);
		if (r == 0)
			r = prepared_run(&prepared, rows, strategy, &times, other);
		if (r == 0)
			r = keep(&prepared, rows, &kept, other);
		else if (r == -EDOM)
			describe_index(&prepared, &step, rows, why);
		prepared_deinit(&prepared);
	}
}
