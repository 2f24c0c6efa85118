/* SPDX-License-Identifier: MIT */
/* From nodes to dispatches: Conv and MaxPool. See lowering.h. */
#include "vulkan/lowering.h"

static void set_window(const struct vk_step *step, const struct plan *plan, uint32_t count,
		       struct vk_params *params)
{
	const struct shape *in = vk_shape_of(plan, step->node->in[0]);
	const struct shape *out = vk_shape_of(plan, step->node->out[0]);
	const union op_params *op = &step->node->params;
	uint32_t *w = params->w;

	w[WINDOW_IN_H] = in->rank > 3 ? shape_dim(in, in->rank - 2, count) : 1;
	w[WINDOW_IN_W] = shape_dim(in, in->rank - 1, count);
	w[WINDOW_OUT_H] = out->rank > 3 ? shape_dim(out, out->rank - 2, count) : 1;
	w[WINDOW_OUT_W] = shape_dim(out, out->rank - 1, count);
	w[WINDOW_KERNEL_H] = op->window.kernel[0];
	w[WINDOW_KERNEL_W] = op->window.kernel[1];
	w[WINDOW_STRIDE_H] = op->window.stride[0];
	w[WINDOW_STRIDE_W] = op->window.stride[1];
	w[WINDOW_DILATION_H] = op->window.dilation[0];
	w[WINDOW_DILATION_W] = op->window.dilation[1];
	w[WINDOW_PAD_H] = op->window.pad_begin[0];
	w[WINDOW_PAD_W] = op->window.pad_begin[1];
}

static void fill_max_pool(const struct vk_step *step, const struct plan *plan, uint32_t count,
			  struct vk_params *params)
{
	uint64_t total = shape_elems(vk_shape_of(plan, step->node->out[0]), count);

	set_window(step, plan, count, params);
	params->w[WINDOW_TOTAL] = total;
	vk_set_groups(params, vk_divide_up(total, step->info->tile_cols), 1);
}

static void fill_conv(const struct vk_step *step, const struct plan *plan, uint32_t count,
		      struct vk_params *params)
{
	const struct shape *in = vk_shape_of(plan, step->node->in[0]);
	const struct shape *weights = vk_shape_of(plan, step->node->in[1]);
	uint32_t groups = step->node->params.window.group, *w = params->w;

	set_window(step, plan, count, params);
	w[CONV_IN_CHANNELS] = shape_dim(weights, 1, count);
	w[CONV_OUT_CHANNELS] = shape_dim(weights, 0, count) / groups;
	w[CONV_GROUPS] = groups;
	w[CONV_COL_TILES] =
		vk_divide_up((uint64_t)w[WINDOW_OUT_H] * w[WINDOW_OUT_W], step->info->tile_cols);
	w[CONV_TILES] =
		w[CONV_COL_TILES] * vk_divide_up(w[CONV_OUT_CHANNELS], step->info->tile_rows);
	w[CONV_HAS_BIAS] = step->operands[2].tensor != PLAN_NO_TENSOR;
	/* Images times groups. */
	vk_set_groups(params, w[CONV_TILES], shape_dim(in, 0, count) * groups);
}

static uint64_t turns_conv(const struct vk_step *step, const struct vk_params *params)
{
	const uint32_t *w = params->w;
	const uint64_t batches = vk_divide_up(w[BATCH_END], VK_MAX_GROUPS);

	return batches * (w[CONV_IN_CHANNELS] *
				  (1 + w[WINDOW_KERNEL_H] * (1 + (uint64_t)w[WINDOW_KERNEL_W])) +
			  32);
}

int lower_conv(struct lowering *l)
{
	const struct shape *weights = vk_shape_of(l->plan, l->node->in[1]);
	const uint32_t filters = weights->dims[0] / l->node->params.window.group;
	const uint32_t rows_from =
		l->target->variant == VK_VARIANT_SHARED ? VK_CONV_MANY / 2 : VK_CONV_FEW;

	/* A product's tile has many rows, most of which few filters would leave empty. */
	if (filters >= rows_from && lower_pointwise(l))
		return 0;
	l->step->pipe = filters < VK_CONV_FEW    ? VK_PIPE_CONV_NARROW
			: filters < VK_CONV_MANY ? VK_PIPE_CONV_FEW
						 : VK_PIPE_CONV;
	l->step->fill = fill_conv;
	l->step->turns = turns_conv;
	return 0;
}

static uint64_t turns_max_pool(const struct vk_step *step, const struct vk_params *params)
{
	return params->w[WINDOW_KERNEL_H] * (1 + (uint64_t)params->w[WINDOW_KERNEL_W]);
}

int lower_max_pool(struct lowering *l)
{
	l->step->pipe = VK_PIPE_MAX_POOL;
	l->step->fill = fill_max_pool;
	l->step->turns = turns_max_pool;
	return 0;
}
