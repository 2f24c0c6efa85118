/* SPDX-License-Identifier: MIT */
/* Cuts by time: what nodes take on devices, alone and as segments */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "place/cut-private.h"
#include "util/error.h"

static void find_uses(struct cut_model *model)
{
	const struct plan *plan = model->plan;

	for (uint16_t t = 0; t < plan->n_tensors; t++)
		model->writer[t] = model->reader[t] = PLAN_NO_NODE;
	for (uint16_t i = 0; i < plan->n_nodes; i++) {
		const struct node *node = &plan->nodes[i];

		for (uint32_t k = 0; k < node->n_in; k++)
			if (node->in[k] != PLAN_NO_TENSOR)
				model->reader[node->in[k]] = i;
		for (uint32_t k = 0; k < node->n_out; k++)
			if (node->out[k] != PLAN_NO_TENSOR)
				model->writer[node->out[k]] = i;
	}
}

void cut_model_deinit(struct cut_model *model)
{
	free(model->writer);
	free(model->reader);
	free(model->seen);
	*model = (struct cut_model){.basis = NULL};
}

int cut_model_init(struct cut_model *model, const struct place_cut_basis *basis,
		   const struct plan *plan)
{
	*model = (struct cut_model){.basis = basis, .plan = plan};
	model->writer = calloc(model->plan->n_tensors, sizeof(*model->writer));
	model->reader = calloc(model->plan->n_tensors, sizeof(*model->reader));
	model->seen = calloc(model->plan->n_tensors, sizeof(*model->seen));
	if (!model->writer || !model->reader || !model->seen) {
		cut_model_deinit(model);
		return error_origin(-ENOMEM);
	}
	find_uses(model);
	return 0;
}

double cut_submission_ns(const struct place_cut_device *device)
{
	return (double)device->profile.task_ns + CUT_HOP_NS;
}

/* Return true if the device has the operator, and memory that holds the types. */
static bool has_node(const struct place_cut_device *device, const struct plan *plan,
		     const struct node *node)
{
	if (!(node->devices & device->kind))
		return false;
	for (uint32_t i = 0; device->types && i < (uint32_t)node->n_in + node->n_out; i++) {
		const uint16_t t = i < node->n_in ? node->in[i] : node->out[i - node->n_in];

		if (t != PLAN_NO_TENSOR && !(device->types & OP_TYPE(plan->tensors[t].dtype)))
			return false;
	}
	return true;
}

uint64_t cut_bytes_of(const struct cut_model *model, uint16_t t)
{
	return tensor_bytes(&model->plan->tensors[t], model->count);
}

/* Count a tensor that a range reads, once. */
static void add_in(struct cut_model *model, struct cut_range *range, uint16_t t, uint16_t first)
{
	const uint16_t writer = model->writer[t];

	if (model->seen[t] == model->mark)
		return;
	model->seen[t] = model->mark;
	if (writer != PLAN_NO_NODE && writer >= first)
		return;
	range->touched_bytes += cut_bytes_of(model, t);
	if (model->plan->tensors[t].kind == RBK_TENSOR_CONSTANT)
		return;
	range->n_in++;
	range->in_bytes += (double)cut_bytes_of(model, t);
}

/* Count a tensor that a range writes, if others need it. */
static void add_out(struct cut_model *model, struct cut_range *range, uint16_t t, uint16_t end)
{
	const uint16_t reader = model->reader[t];

	if (model->plan->tensors[t].kind != RBK_TENSOR_OUTPUT &&
	    (reader == PLAN_NO_NODE || reader < end))
		return;
	range->touched_bytes += cut_bytes_of(model, t);
	range->n_out++;
	range->out_bytes += (double)cut_bytes_of(model, t);
}

struct cut_range cut_measure(struct cut_model *model, uint16_t first, uint16_t end)
{
	struct cut_range ret = {.n_in = 0};

	model->mark++;
	for (uint16_t i = first; i < end; i++) {
		const struct node *node = &model->plan->nodes[i];

		for (uint32_t k = 0; k < node->n_in; k++)
			if (node->in[k] != PLAN_NO_TENSOR)
				add_in(model, &ret, node->in[k], first);
		for (uint32_t k = 0; k < node->n_out; k++)
			if (node->out[k] != PLAN_NO_TENSOR)
				add_out(model, &ret, node->out[k], end);
	}
	return ret;
}

double cut_around_ns(const struct place_cut_device *device, const struct cut_range *range)
{
	const struct place_profile *profile = &device->profile;
	double ns = cut_submission_ns(device);

	if (!(profile->up_bytes_per_ns > 0) || !(profile->down_bytes_per_ns > 0))
		return ns;
	ns += (double)profile->link_ns * (range->n_in + range->n_out);
	return ns + range->in_bytes / (double)profile->up_bytes_per_ns +
	       range->out_bytes / (double)profile->down_bytes_per_ns;
}

double cut_node_ns(const struct cut_model *model, uint16_t i, uint32_t d)
{
	const struct place_cut_device *device = &model->basis->devices[d];
	const struct node *node = &model->plan->nodes[i];
	double ns = 0, work_ns;

	if (!has_node(device, model->plan, node))
		return INFINITY;
	if (node->computed_by == PLAN_NO_NODE)
		ns = place_profile_cost_ns(&device->profile, node->op->family, &node->cost, 1,
					   model->count, &work_ns);
	return ns;
}

double cut_least_of(const struct cut_model *model, const struct cut_times *times)
{
	double ns = INFINITY;

	for (uint32_t d = 0; d < model->basis->n_devices; d++)
		ns = fmin(ns, times->ns[d]);
	return ns;
}

struct cut_times cut_node_times(const struct cut_model *model, uint16_t i)
{
	struct cut_times ret = {{0}};

	for (uint32_t d = 0; d < model->basis->n_devices; d++)
		ret.ns[d] = cut_node_ns(model, i, d);
	return ret;
}

void cut_add_times(const struct cut_model *model, struct cut_times *sum,
		   const struct cut_times *times)
{
	for (uint32_t d = 0; d < model->basis->n_devices; d++)
		sum->ns[d] += times->ns[d];
}

bool cut_has_room(const struct place_cut_device *device, const struct plan *plan)
{
	return plan->constant_bytes <= device->room_bytes &&
	       plan->scratch_bytes <= device->room_bytes - plan->constant_bytes;
}

bool cut_has_any_room(const struct cut_model *model)
{
	for (uint32_t d = 1; d < model->basis->n_devices; d++)
		if (cut_has_room(&model->basis->devices[d], model->plan))
			return true;
	return false;
}

/* Return the time of the whole plan on a device; INFINITY: it lacks memory or an operator. */
static double predict_whole(const struct cut_model *model, const struct cut_range *all, uint32_t d)
{
	const struct place_cut_device *device = &model->basis->devices[d];
	double ns = cut_has_room(device, model->plan) ? cut_around_ns(device, all) : INFINITY;

	for (uint16_t i = 0; i < model->plan->n_nodes && !isinf(ns); i++)
		ns += cut_node_ns(model, i, d);
	return ns;
}

struct cut_times cut_predict(struct cut_model *model, uint32_t count)
{
	struct cut_times ret = {{0}};
	struct cut_range all;

	model->count = count;
	all = cut_measure(model, 0, model->plan->n_nodes);
	for (uint32_t d = 0; d < model->basis->n_devices; d++)
		ret.ns[d] = predict_whole(model, &all, d);
	return ret;
}

bool cut_is_whole(const struct cut_model *model, const struct cut_times *whole)
{
	for (uint32_t d = 1; d < model->basis->n_devices; d++)
		if (!isinf(whole->ns[d]))
			return true;
	return false;
}
