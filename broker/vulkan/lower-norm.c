/* SPDX-License-Identifier: MIT */
/* Lowering of normalisations. See lower-private.h. */
#include "vulkan/lower-private.h"

static const struct vk_pipe norm = VK_ROWS("normalisation", norm, 8, 128);
static const struct vk_pipe batch_norm = VK_SPREAD("BatchNormalization", batch_norm, 1, 32, 4);

static bool is_one(const struct plan *plan, uint16_t tensor)
{
	const struct shape *shape = vk_shape_of(plan, tensor);

	return !shape->dynamic && shape_elems(shape, 1) == 1;
}

static void set_norm(const struct vk_step *step, uint32_t rows, uint32_t len, uint32_t flags,
		     struct vk_params *params)
{
	uint32_t *w = params->w;

	w[NORM_ROWS] = rows;
	w[NORM_LEN] = len;
	w[NORM_EPSILON] = vk_float_bits(step->node->params.norm.epsilon);
	w[NORM_FLAGS] = flags | NORM_SCALE | (vk_has_operand(step, 2) ? NORM_BIAS : 0) |
			(vk_has_operand(step, VK_OUT + 1) ? NORM_MEAN : 0) |
			(vk_has_operand(step, VK_OUT + 2) ? NORM_INV : 0);
	vk_set_groups(params, rows, 1);
}

static void fill_layer_norm(const struct vk_step *step, const struct plan *plan, uint32_t count,
			    struct vk_params *params)
{
	const struct node *node = step->node;
	const struct shape *x = vk_shape_of(plan, node->in[0]);
	const unsigned int axis = node->params.norm.axis;
	const uint32_t rows = vk_elems(x, count, 0, axis), len = vk_elems(x, count, axis, x->rank);
	uint32_t flags = node->op->kind == OP_RMS_NORM ? NORM_RMS : 0;

	if (!is_one(plan, node->in[1]))
		flags |= NORM_SCALE_EACH;
	if (vk_has_operand(step, 2) && !is_one(plan, node->in[2]))
		flags |= NORM_BIAS_EACH;
	set_norm(step, rows, len, flags, params);
	params->w[NORM_RUN] = len;
	params->w[NORM_PERIOD] = 1;
}

static void fill_group_norm(const struct vk_step *step, const struct plan *plan, uint32_t count,
			    struct vk_params *params)
{
	const struct shape *x = vk_shape_of(plan, step->node->in[0]);
	const uint32_t groups = step->node->params.norm.groups,
		       run = vk_elems(x, count, 2, x->rank);

	set_norm(step, shape_dim(x, 0, count) * groups, run * (x->dims[1] / groups), 0, params);
	params->w[NORM_RUN] = run;
	params->w[NORM_PERIOD] = groups;
}

static uint64_t turns_norm(const struct vk_step *step, const struct vk_params *params)
{
	const uint64_t len = params->w[NORM_LEN], lanes = step->info->spec[0];

	return 3 * (len / (8 * lanes) + 1) + 2 * lanes;
}

static int lower_layer_norm(struct lowering *l)
{
	lower_pipe(l, &norm);
	l->step->fill = fill_layer_norm;
	l->step->turns = turns_norm;
	return 0;
}

static int lower_group_norm(struct lowering *l)
{
	lower_pipe(l, &norm);
	l->step->fill = fill_group_norm;
	l->step->turns = turns_norm;
	return 0;
}

static void fill_batch_norm(const struct vk_step *step, const struct plan *plan, uint32_t count,
			    struct vk_params *params)
{
	const struct shape *x = vk_shape_of(plan, step->node->in[0]);
	uint32_t *w = params->w;

	w[NORM_ROWS] = vk_elems(x, count, 0, x->rank);
	w[NORM_RUN] = vk_elems(x, count, 2, x->rank);
	w[NORM_PERIOD] = x->dims[1];
	w[NORM_EPSILON] = vk_float_bits(step->node->params.norm.epsilon);
	w[NORM_GROUPS] = div_up(w[NORM_ROWS], step->info->tile_cols);
	vk_set_groups(params, w[NORM_GROUPS], 1);
}

static int lower_batch_norm(struct lowering *l)
{
	lower_pipe(l, &batch_norm);
	l->step->fill = fill_batch_norm;
	return 0;
}

/* clang-format off */
static lower_fn *const lowerers[] = {
	[OP_LAYER_NORM] = lower_layer_norm,
	[OP_RMS_NORM] = lower_layer_norm,
	[OP_INSTANCE_NORM] = lower_group_norm,
	[OP_GROUP_NORM] = lower_group_norm,
	[OP_BATCH_NORM] = lower_batch_norm,
};
/* clang-format on */
static const struct vk_pipes pipes[] = {VK_PIPES(norm), VK_PIPES(batch_norm)};
VK_FAMILY(norm);
