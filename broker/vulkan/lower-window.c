/* SPDX-License-Identifier: MIT */
/* From nodes to dispatches: Conv and pooling. See lowering.h. */
#include "vulkan/lowering.h"

/* Dimension @i of depth, height, width, which does not depend on the count. */
static uint32_t spatial(const struct shape *shape, unsigned int i)
{
	const unsigned int missing = 2 + OP_MAX_SPATIAL - shape->rank;

	return i < missing ? 1 : shape->dims[2 + i - missing];
}

static void set_window(const struct vk_step *step, const struct plan *plan,
		       struct vk_params *params)
{
	const struct shape *in = vk_shape_of(plan, step->node->in[0]);
	const struct shape *out = vk_shape_of(plan, step->node->out[0]);
	const union op_params *op = &step->node->params;
	uint32_t *w = params->w;

	for (unsigned int i = 0; i < OP_MAX_SPATIAL; i++) {
		w[WINDOW_OF(WINDOW_IN_H, i)] = spatial(in, i);
		w[WINDOW_OF(WINDOW_OUT_H, i)] = spatial(out, i);
		w[WINDOW_OF(WINDOW_KERNEL_H, i)] = op->window.kernel[i];
		w[WINDOW_OF(WINDOW_STRIDE_H, i)] = op->window.stride[i];
		w[WINDOW_OF(WINDOW_DILATION_H, i)] = op->window.dilation[i];
		w[WINDOW_OF(WINDOW_PAD_H, i)] = op->window.pad_begin[i];
	}
}

/* One invocation for each output. */
static void set_total(const struct vk_step *step, const struct plan *plan, uint32_t count,
		      struct vk_params *params)
{
	const uint64_t total = shape_elems(vk_shape_of(plan, step->node->out[0]), count);

	params->w[WINDOW_TOTAL] = (uint32_t)total;
	vk_set_groups(params, vk_divide_up(total, step->info->tile_cols), 1);
}

static void fill_pool(const struct vk_step *step, const struct plan *plan, uint32_t count,
		      struct vk_params *params)
{
	const union op_params *op = &step->node->params;
	uint32_t *w = params->w;

	set_window(step, plan, params);
	for (unsigned int i = 0; i < OP_MAX_SPATIAL; i++)
		w[POOL_PAD_END + i] = op->window.pad_end[i];
	w[POOL_P] = op->window.p;
	w[POOL_FLAGS] = (op->window.includes_pad ? POOL_INCLUDES_PAD : 0) |
			(op->window.is_column_major ? POOL_COLUMN_MAJOR : 0) |
			(step->operands[VK_OUT + 1].tensor != PLAN_NO_TENSOR ? POOL_HAS_INDEX : 0);
	set_total(step, plan, count, params);
}

static void set_weights(const struct vk_step *step, const struct plan *plan, uint16_t tensor,
			struct vk_params *params)
{
	const struct shape *weights = vk_shape_of(plan, tensor);
	uint32_t *w = params->w;

	set_window(step, plan, params);
	w[CONV_GROUPS] = step->node->params.window.group;
	w[CONV_IN_CHANNELS] = weights->dims[1];
	w[CONV_OUT_CHANNELS] = weights->dims[0] / w[CONV_GROUPS];
}

static void fill_conv_volume(const struct vk_step *step, const struct plan *plan, uint32_t count,
			     struct vk_params *params)
{
	set_weights(step, plan, step->node->in[1], params);
	vk_set_activation(step, params);
	params->w[CONV_HAS_BIAS] = step->operands[2].tensor != PLAN_NO_TENSOR;
	set_total(step, plan, count, params);
}

void vk_set_conv(const struct vk_step *step, const struct plan *plan, uint32_t count,
		 uint16_t weights, struct vk_params *params)
{
	const struct shape *in = vk_shape_of(plan, step->node->in[0]);
	uint32_t *w = params->w;

	set_weights(step, plan, weights, params);
	w[CONV_HAS_BIAS] = 0;
	w[CONV_COL_TILES] =
		vk_divide_up((uint64_t)w[WINDOW_OUT_H] * w[WINDOW_OUT_W], step->info->tile_cols);
	w[CONV_TILES] =
		w[CONV_COL_TILES] * vk_divide_up(w[CONV_OUT_CHANNELS], step->info->tile_rows);
	/* Images times groups. */
	vk_set_groups(params, w[CONV_TILES], shape_dim(in, 0, count) * w[CONV_GROUPS]);
}

static void fill_conv(const struct vk_step *step, const struct plan *plan, uint32_t count,
		      struct vk_params *params)
{
	vk_set_conv(step, plan, count, step->node->in[1], params);
	vk_set_activation(step, params);
	params->w[CONV_HAS_BIAS] = step->operands[2].tensor != PLAN_NO_TENSOR;
}

uint64_t vk_turns_conv(const struct vk_step *step, const struct vk_params *params)
{
	const uint32_t *w = params->w;
	const uint64_t batches = vk_divide_up(w[BATCH_END], VK_MAX_GROUPS);

	return batches * (w[CONV_IN_CHANNELS] *
				  (1 + w[WINDOW_KERNEL_H] * (1 + (uint64_t)w[WINDOW_KERNEL_W])) +
			  32);
}

static uint64_t turns_conv_volume(const struct vk_step *step, const struct vk_params *params)
{
	const uint32_t *w = params->w;

	return w[CONV_IN_CHANNELS] *
	       (1 +
		w[WINDOW_KERNEL_D] * (1 + w[WINDOW_KERNEL_H] * (1 + (uint64_t)w[WINDOW_KERNEL_W])));
}

int lower_conv(struct lowering *l)
{
	const struct shape *weights = vk_shape_of(l->plan, l->node->in[1]);
	const uint32_t filters = weights->dims[0] / l->node->params.window.group;
	const uint32_t rows_from =
		l->target.variant == VK_VARIANT_SHARED ? VK_CONV_MANY / 2 : VK_CONV_FEW;

	/* A product's tile has many rows, most of which few filters would leave empty. */
	if (filters >= rows_from && lower_pointwise(l))
		return 0;
	if (weights->rank == 2 + OP_MAX_SPATIAL || l->numbers == VK_DOUBLES) {
		l->step->pipe = VK_PIPE_CONV_VOLUME;
		l->step->fill = fill_conv_volume;
		l->step->turns = turns_conv_volume;
		return 0;
	}
	l->step->pipe = filters < VK_CONV_FEW    ? VK_PIPE_CONV_NARROW
			: filters < VK_CONV_MANY ? VK_PIPE_CONV_FEW
						 : VK_PIPE_CONV;
	l->step->fill = fill_conv;
	l->step->turns = vk_turns_conv;
	return 0;
}

static uint64_t turns_pool(const struct vk_step *step, const struct vk_params *params)
{
	const uint32_t *w = params->w;
	uint64_t taps = 1, powers = w[POOL_P] ? 32 - (uint64_t)__builtin_clz(w[POOL_P]) : 0;

	/* Of taps inside at most; products of three of them fit into 64 bits after the second. */
	for (unsigned int i = 0; i < OP_MAX_SPATIAL; i++) {
		const uint32_t inside =
			w[WINDOW_OF(WINDOW_KERNEL_H, i)] < w[WINDOW_OF(WINDOW_IN_H, i)]
				? w[WINDOW_OF(WINDOW_KERNEL_H, i)]
				: w[WINDOW_OF(WINDOW_IN_H, i)];

		taps = (taps < UINT32_MAX ? taps : UINT32_MAX) * (1 + (uint64_t)inside);
	}
	return taps * (1 + powers);
}

int lower_pool(struct lowering *l)
{
	const uint8_t dtype = l->plan->tensors[l->node->in[0]].dtype;

	l->step->pipe = l->node->op->kind == OP_AVERAGE_POOL ? VK_PIPE_AVERAGE_POOL
			: l->node->op->kind == OP_LP_POOL    ? VK_PIPE_LP_POOL
			: dtype == RBK_DTYPE_I8              ? VK_PIPE_MAX_POOL_I8
			: dtype == RBK_DTYPE_U8              ? VK_PIPE_MAX_POOL_U8
							     : VK_PIPE_MAX_POOL;
	l->step->fill = fill_pool;
	l->step->turns = turns_pool;
	return 0;
}

static void fill_conv_transpose(const struct vk_step *step, const struct plan *plan, uint32_t count,
				struct vk_params *params)
{
	const struct shape *weights = vk_shape_of(plan, step->node->in[1]);
	uint32_t *w = params->w;

	set_window(step, plan, params);
	w[CONV_GROUPS] = step->node->params.window.group;
	w[CONV_IN_CHANNELS] = weights->dims[0] / w[CONV_GROUPS];
	w[CONV_OUT_CHANNELS] = weights->dims[1];
	vk_set_activation(step, params);
	w[CONV_HAS_BIAS] = step->operands[2].tensor != PLAN_NO_TENSOR;
	set_total(step, plan, count, params);
}

static uint64_t turns_conv_transpose(const struct vk_step *step, const struct vk_params *params)
{
	const uint32_t *w = params->w;

	/* Cannot overflow: no more than the weights' elements, and few loops around. */
	return w[WINDOW_KERNEL_D] *
	       (1 + w[WINDOW_KERNEL_H] *
			    (1 + w[WINDOW_KERNEL_W] * (1 + (uint64_t)w[CONV_IN_CHANNELS])));
}

int lower_conv_transpose(struct lowering *l)
{
	l->step->pipe = VK_PIPE_CONV_TRANSPOSE;
	l->step->fill = fill_conv_transpose;
	l->step->turns = turns_conv_transpose;
	return 0;
}
