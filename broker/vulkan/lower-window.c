/* SPDX-License-Identifier: MIT */
/* Lowering of Conv and pooling. See lower-private.h. */
#include "vulkan/lower-private.h"
#include "vulkan/map.glsl"

enum { VK_CONV_MANY = 32 }; /* output channels per group from which tiles are used */

#define REGISTERS(sets) VK_INFO("Conv, registers", conv_register, 8 * (sets), 32, 8, 8, sets)
#define TILES(size, lanes, sides, steps)                                                         \
	VK_INFO("Conv, tiles", conv_tiled, (size) / (lanes)*4, (lanes)*4 * (sides), size, lanes, \
		sides, steps)
const struct vk_pipe vk_conv_tiles[EXEC_MAX_TILES] = {
	VK_PIPE(REGISTERS(1), TILES(256, 16, 2, 16)),
	VK_PIPE(REGISTERS(2), TILES(256, 16, 1, 16)),
	VK_PIPE(REGISTERS(4), TILES(128, 16, 1, 16)),
	VK_PIPE(VK_NONE, TILES(64, 16, 1, 8)),
};

/*
 * For fewer than VK_CONV_MANY output channels per group; for fewer than VK_CONV_FEW, as in
 * depthwise convolution.
 */
static const struct vk_pipe conv_few =
	VK_PIPE(VK_INFO("Conv, registers", conv_register, 8, 32, 8, 8),
		VK_INFO("Conv, direct", conv_direct, 8, 128, 64, 8, 2));
static const struct vk_pipe conv_narrow =
	VK_PIPE(VK_INFO("Conv, narrow", conv_register, 1, 32, 8, 1),
		VK_INFO("Conv, direct", conv_direct, 1, 128, 64, 1, 2));
/* For three spatial dimensions. */
static const struct vk_pipe conv_volume = VK_EACH("Conv, volume", conv_volume);
static const struct vk_pipe conv_transpose = VK_EACH("ConvTranspose", conv_transpose);

/* Last constants: the kind of pooling, and whether bytes are signed. */
static const struct vk_pipe max_pool = VK_EACH("MaxPool", pool, POOL_MAX, 0);
static const struct vk_pipe max_pool_i8 = VK_EACH("MaxPool, int8", pool_bytes, POOL_MAX, 1);
static const struct vk_pipe max_pool_u8 = VK_EACH("MaxPool, uint8", pool_bytes, POOL_MAX, 0);
static const struct vk_pipe average_pool = VK_EACH("AveragePool", pool, POOL_AVERAGE, 0);
static const struct vk_pipe lp_pool = VK_EACH("LpPool", pool, POOL_LP, 0);

static void set_window(const struct vk_step *step, const struct plan *plan,
		       struct vk_params *params)
{
	const struct shape *in = vk_shape_of(plan, step->node->in[0]);
	const struct shape *out = vk_shape_of(plan, step->node->out[0]);
	const union op_params *op = &step->node->params;
	uint32_t *w = params->w;

	for (unsigned int i = 0; i < OP_MAX_SPATIAL; i++) {
		w[WINDOW_OF(WINDOW_IN_H, i)] = shape_spatial(in, i);
		w[WINDOW_OF(WINDOW_OUT_H, i)] = shape_spatial(out, i);
		w[WINDOW_OF(WINDOW_KERNEL_H, i)] = op->window.kernel[i];
		w[WINDOW_OF(WINDOW_STRIDE_H, i)] = op->window.stride[i];
		w[WINDOW_OF(WINDOW_DILATION_H, i)] = op->window.dilation[i];
		w[WINDOW_OF(WINDOW_PAD_H, i)] = op->window.pad_begin[i];
	}
}

/* Use one invocation for each output element. */
static void set_total(const struct vk_step *step, const struct plan *plan, uint32_t count,
		      struct vk_params *params)
{
	const uint64_t total = shape_elems(vk_shape_of(plan, step->node->out[0]), count);

	params->w[WINDOW_TOTAL] = (uint32_t)total;
	vk_set_groups(params, div_up(total, step->info->tile_cols), 1);
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
			(vk_has_operand(step, VK_OUT + 1) ? POOL_HAS_INDEX : 0);
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
	params->w[CONV_HAS_BIAS] = vk_has_operand(step, 2);
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
		div_up((uint64_t)w[WINDOW_OUT_H] * w[WINDOW_OUT_W], step->info->tile_cols);
	w[CONV_TILES] = w[CONV_COL_TILES] * div_up(w[CONV_OUT_CHANNELS], step->info->tile_rows);
	/* The batch is images times groups. */
	vk_set_groups(params, w[CONV_TILES], shape_dim(in, 0, count) * w[CONV_GROUPS]);
}

static void fill_conv(const struct vk_step *step, const struct plan *plan, uint32_t count,
		      struct vk_params *params)
{
	vk_set_conv(step, plan, count, step->node->in[1], params);
	vk_set_activation(step, params);
	params->w[CONV_HAS_BIAS] = vk_has_operand(step, 2);
}

uint64_t vk_turns_conv(const struct vk_step *step, const struct vk_params *params)
{
	const uint32_t *w = params->w;
	const uint64_t batches = div_up(w[BATCH_END], VK_MAX_GROUPS);

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

static void set_tiles(struct lowering *l)
{
	struct vk_params params = {0};
	const uint32_t *w = params.w;

	lower_pipe(l, &vk_conv_tiles[0]);
	fill_conv(l->step, l->plan, l->plan->max_count, &params);
	lower_pipe(l, &vk_conv_tiles[lower_tile(l, EXEC_TILE_CONV, w[CONV_OUT_CHANNELS],
						(uint64_t)w[WINDOW_OUT_H] * w[WINDOW_OUT_W],
						w[BATCH_END])]);
	/* Gelu beside a convolution takes more registers than five waves on AMD leave. */
	l->apart = MAP_GELU;
}

static int lower_conv(struct lowering *l)
{
	const struct shape *weights = vk_shape_of(l->plan, l->node->in[1]);
	const uint32_t filters = weights->dims[0] / l->node->params.window.group;
	const uint32_t rows_from =
		l->target.variant == VK_VARIANT_SHARED ? VK_CONV_MANY / 2 : VK_CONV_FEW;

	/* A product's tile has many rows, most of which a few filters would leave empty. */
	if (filters >= rows_from && lower_pointwise(l))
		return 0;
	if (weights->rank == 2 + OP_MAX_SPATIAL || l->numbers == VK_DOUBLES) {
		lower_pipe(l, &conv_volume);
		l->step->fill = fill_conv_volume;
		l->step->turns = turns_conv_volume;
		return 0;
	}
	l->step->fill = fill_conv;
	l->step->turns = vk_turns_conv;
	if (filters >= VK_CONV_MANY)
		set_tiles(l);
	else
		lower_pipe(l, filters < VK_CONV_FEW ? &conv_narrow : &conv_few);
	return 0;
}

static uint64_t turns_pool(const struct vk_step *step, const struct vk_params *params)
{
	const uint32_t *w = params->w;
	uint64_t taps = 1, powers = w[POOL_P] ? 32 - (uint64_t)__builtin_clz(w[POOL_P]) : 0;

	/* Count at most the taps inside. Cap before each product, so that it fits into 64 bits. */
	for (unsigned int i = 0; i < OP_MAX_SPATIAL; i++) {
		const uint32_t inside =
			w[WINDOW_OF(WINDOW_KERNEL_H, i)] < w[WINDOW_OF(WINDOW_IN_H, i)]
				? w[WINDOW_OF(WINDOW_KERNEL_H, i)]
				: w[WINDOW_OF(WINDOW_IN_H, i)];

		taps = (taps < UINT32_MAX ? taps : UINT32_MAX) * (1 + (uint64_t)inside);
	}
	return taps * (1 + powers);
}

static int lower_pool(struct lowering *l)
{
	const uint8_t dtype = l->plan->tensors[l->node->in[0]].dtype;

	lower_pipe(l, l->node->op->kind == OP_AVERAGE_POOL ? &average_pool
		      : l->node->op->kind == OP_LP_POOL    ? &lp_pool
		      : dtype == RBK_DTYPE_I8              ? &max_pool_i8
		      : dtype == RBK_DTYPE_U8              ? &max_pool_u8
							   : &max_pool);
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
	w[CONV_HAS_BIAS] = vk_has_operand(step, 2);
	set_total(step, plan, count, params);
}

static uint64_t turns_conv_transpose(const struct vk_step *step, const struct vk_params *params)
{
	const uint32_t *w = params->w;

	/* Cannot overflow: at most the weights' elements, plus the turns of the outer loops. */
	return w[WINDOW_KERNEL_D] *
	       (1 + w[WINDOW_KERNEL_H] *
			    (1 + w[WINDOW_KERNEL_W] * (1 + (uint64_t)w[CONV_IN_CHANNELS])));
}

static int lower_conv_transpose(struct lowering *l)
{
	lower_pipe(l, &conv_transpose);
	l->step->fill = fill_conv_transpose;
	l->step->turns = turns_conv_transpose;
	return 0;
}

/* clang-format off */
static lower_fn *const lowerers[] = {
	[OP_CONV] = lower_conv,
	[OP_CONV_TRANSPOSE] = lower_conv_transpose,
	[OP_MAX_POOL] = lower_pool,
	[OP_AVERAGE_POOL] = lower_pool,
	[OP_LP_POOL] = lower_pool,
};
/* clang-format on */
static const struct vk_pipes pipes[] = {
	VK_CURVED_PIPES(vk_conv_tiles, MAP_GELU_TANH),
	VK_CURVED_PIPES(conv_few, MAP_GELU),
	VK_CURVED_PIPES(conv_narrow, MAP_GELU),
	VK_CURVED_PIPES(conv_volume, MAP_GELU),
	VK_CURVED_PIPES(conv_transpose, MAP_GELU),
	VK_PIPES(max_pool),
	VK_PIPES(max_pool_i8),
	VK_PIPES(max_pool_u8),
	VK_PIPES(average_pool),
	VK_PIPES(lp_pool),
};
VK_FAMILY(window);
