/* SPDX-License-Identifier: MIT */
/* From nodes to dispatches: along one dimension, and reductions. See lowering.h. */
#include "vulkan/lowering.h"

static void set_rows(const struct vk_step *step, const struct shape *shape, unsigned int axis,
		     uint32_t count, struct vk_params *params)
{
	uint32_t outer = 1, inner = 1, *w = params->w;

	for (unsigned int i = 0; i < axis; i++)
		outer *= shape_dim(shape, i, count);
	for (unsigned int i = axis + 1; i < shape->rank; i++)
		inner *= shape_dim(shape, i, count);
	w[ROWS_TOTAL] = outer * inner;
	w[ROWS_SIZE] = shape_dim(shape, axis, count);
	w[ROWS_INNER] = inner;
	w[ROWS_GROUPS] = vk_divide_up(w[ROWS_TOTAL], step->info->tile_cols);
	vk_set_groups(params, w[ROWS_GROUPS], 1);
}

static void fill_softmax(const struct vk_step *step, const struct plan *plan, uint32_t count,
			 struct vk_params *params)
{
	set_rows(step, vk_shape_of(plan, step->node->in[0]), step->node->params.softmax.axis, count,
		 params);
	params->w[ROWS_LOG] = step->node->op->kind == OP_LOG_SOFTMAX;
}

static void fill_arg(const struct vk_step *step, const struct plan *plan, uint32_t count,
		     struct vk_params *params)
{
	const struct node *node = step->node;

	set_rows(step, vk_shape_of(plan, node->in[0]), node->params.arg.axis, count, params);
	params->w[ROWS_FLIP] = node->op->kind == OP_ARG_MAX ? 0 : UINT32_MAX;
	params->w[ROWS_LAST] = node->params.arg.last;
}

static void fill_cum_sum(const struct vk_step *step, const struct plan *plan, uint32_t count,
			 struct vk_params *params)
{
	const struct node *node = step->node;

	set_rows(step, vk_shape_of(plan, node->in[0]), node->params.cum_sum.axis, count, params);
	params->w[ROWS_SCAN] = node->params.cum_sum.exclusive + 2u * node->params.cum_sum.reverse;
}

static void fill_lp_norm(const struct vk_step *step, const struct plan *plan, uint32_t count,
			 struct vk_params *params)
{
	const struct node *node = step->node;

	set_rows(step, vk_shape_of(plan, node->in[0]), node->params.lp_norm.axis, count, params);
	params->w[ROWS_P] = node->params.lp_norm.p;
}

static void fill_top_k(const struct vk_step *step, const struct plan *plan, uint32_t count,
		       struct vk_params *params)
{
	const struct node *node = step->node;

	set_rows(step, vk_shape_of(plan, node->in[0]), node->params.top_k.axis, count, params);
	params->w[ROWS_K] = node->params.top_k.k;
	params->w[ROWS_FLIP] = node->params.top_k.largest ? 0 : UINT32_MAX;
}

static void fill_reduce(const struct vk_step *step, const struct plan *plan, uint32_t count,
			struct vk_params *params)
{
	const struct shape *in = vk_shape_of(plan, step->node->in[0]);
	uint8_t axes = step->node->params.reduce.axes;
	uint32_t n[2] = {0, 0}, total[2] = {1, 1}, *w = params->w;
	uint64_t strides[RBK_MAX_RANK];
	int last = -1;

	vk_broadcast_strides(in, count, in->rank, strides);
	for (unsigned int i = 0; i < in->rank; i++) {
		uint32_t dim = shape_dim(in, i, count);
		int summed = axes >> i & 1;
		uint32_t *dims = w + (summed ? REDUCE_SUM_DIMS : REDUCE_KEPT_DIMS);
		uint32_t *steps = w + (summed ? REDUCE_SUM_STRIDE : REDUCE_KEPT_STRIDE);

		if (dim == 1)
			continue;
		total[summed] *= dim;
		if (summed == last) {
			dims[n[summed] - 1] *= dim;
		} else {
			dims[n[summed]] = dim;
			n[summed]++;
		}
		steps[n[summed] - 1] = strides[i];
		last = summed;
	}
	w[REDUCE_OUTPUTS] = total[0];
	w[REDUCE_SIZE] = total[1];
	w[REDUCE_KEPT] = n[0];
	w[REDUCE_SUMMED] = n[1];
	w[REDUCE_KIND] = step->node->op->kind - OP_REDUCE_SUM;
	w[REDUCE_GROUPS] = vk_divide_up(total[0], step->info->tile_cols);
	vk_set_groups(params, w[REDUCE_GROUPS], 1);
}

/* From which length on a row is worth a workgroup. */
static uint64_t rows_from(const struct lowering *l)
{
	return l->target.variant == VK_VARIANT_SHARED ? 256 : 8192;
}

static uint64_t turns_softmax(const struct vk_step *step, const struct vk_params *params)
{
	const uint64_t size = params->w[ROWS_SIZE], lanes = step->info->spec[0];

	if (step->pipe == VK_PIPE_SOFTMAX)
		return 3 * (size / 8 + 1);
	return 3 * (size / (8 * lanes) + 1) + 2 * lanes;
}

int lower_softmax(struct lowering *l)
{
	const struct shape *in = vk_shape_of(l->plan, l->node->in[0]);
	const uint64_t size = shape_dim(in, l->node->params.softmax.axis, l->plan->max_count);

	l->step->pipe = size >= rows_from(l) ? VK_PIPE_SOFTMAX_ROWS : VK_PIPE_SOFTMAX;
	l->step->fill = fill_softmax;
	l->step->turns = turns_softmax;
	return 0;
}

/*
 * Takes the pipeline for integers of the input's type, of those from @first on, or for floats
 * @floats; for float64 whichever it is that has it. Return: 0; EXECUTOR_E_UNSUPPORTED.
 */
static int set_typed(struct lowering *l, enum vk_pipe floats, enum vk_pipe first)
{
	const uint8_t dtype = l->plan->tensors[l->node->in[0]].dtype;

	l->step->pipe = floats;
	if (OP_TYPE(dtype) & OP_FLOATS ||
	    (dtype == RBK_DTYPE_F64 &&
	     vk_pipe_info(floats, l->target.variant)->shader->code[VK_DOUBLES].words))
		return 0;
	l->step->pipe = vk_pipe_integer(first, dtype);
	l->step->numbers = VK_FLOATS;
	return l->target.has_half && l->target.has_bytes ? 0 : EXECUTOR_E_UNSUPPORTED;
}

static uint64_t turns_reduce(const struct vk_step *step, const struct vk_params *params)
{
	const uint64_t size = params->w[REDUCE_SIZE], lanes = step->info->spec[0];

	/* LogSumExp goes over its elements twice. */
	if (step->info->tile_cols > 1)
		return 2 * (size / 8 + 1);
	return 2 * (size / (8 * lanes) + 1 + lanes);
}

int lower_reduce(struct lowering *l)
{
	const struct shape *in = vk_shape_of(l->plan, l->node->in[0]);
	uint64_t size = 1;
	bool shares;

	for (unsigned int i = 0; i < in->rank; i++)
		if (l->node->params.reduce.axes >> i & 1)
			size *= shape_dim(in, i, l->plan->max_count);
	shares = size >= rows_from(l);
	l->step->fill = fill_reduce;
	l->step->turns = turns_reduce;
	if (l->node->op->kind == OP_REDUCE_SUM || l->node->op->kind == OP_REDUCE_MEAN)
		return set_typed(l, shares ? VK_PIPE_REDUCE_ROWS : VK_PIPE_REDUCE,
				 shares ? VK_PIPE_REDUCE_INTEGER_ROWS : VK_PIPE_REDUCE_INTEGER);
	return set_typed(l, shares ? VK_PIPE_REDUCE_ANY_ROWS : VK_PIPE_REDUCE_ANY,
			 shares ? VK_PIPE_REDUCE_INTEGER_ROWS : VK_PIPE_REDUCE_INTEGER);
}

static uint64_t turns_arg(const struct vk_step *step, const struct vk_params *params)
{
	const uint64_t size = params->w[ROWS_SIZE], lanes = step->info->spec[0];

	return step->info->tile_cols > 1 ? size / 8 + 1 : size / (8 * lanes) + 1 + 16;
}

int lower_arg(struct lowering *l)
{
	const struct shape *in = vk_shape_of(l->plan, l->node->in[0]);
	const uint64_t size = shape_dim(in, l->node->params.arg.axis, l->plan->max_count);

	l->step->fill = fill_arg;
	l->step->turns = turns_arg;
	if (size >= rows_from(l))
		return set_typed(l, VK_PIPE_ARG_ROWS, VK_PIPE_ARG_INTEGER_ROWS);
	return set_typed(l, VK_PIPE_ARG, VK_PIPE_ARG_INTEGER);
}

static uint64_t turns_columns(const struct vk_step *step, const struct vk_params *params)
{
	return 2 * (params->w[ROWS_SIZE] / 8 + 1);
}

int lower_cum_sum(struct lowering *l)
{
	l->step->fill = fill_cum_sum;
	l->step->turns = turns_columns;
	return set_typed(l, VK_PIPE_SCAN, VK_PIPE_SCAN_INTEGER);
}

int lower_lp_norm(struct lowering *l)
{
	l->step->pipe = VK_PIPE_LP_NORM;
	l->step->fill = fill_lp_norm;
	l->step->turns = turns_columns;
	return 0;
}

static uint64_t turns_top_k(const struct vk_step *step, const struct vk_params *params)
{
	const uint64_t size = params->w[ROWS_SIZE], lanes = step->info->spec[0];

	if (step->info->spec[1])
		return size / (8 * lanes) + 1 + VK_TOP_K_SMALL * 16;
	return params->w[ROWS_K] * (size / (8 * lanes) + 16);
}

int lower_top_k(struct lowering *l)
{
	const uint32_t k = l->node->params.top_k.k;

	if (k > VK_TOP_K_MAX)
		return EXECUTOR_E_UNSUPPORTED;
	l->step->fill = fill_top_k;
	l->step->turns = turns_top_k;
	if (k <= VK_TOP_K_SMALL)
		return set_typed(l, VK_PIPE_TOP_K, VK_PIPE_TOP_K_INTEGER);
	return set_typed(l, VK_PIPE_TOP_K_LARGE, VK_PIPE_TOP_K_LARGE_INTEGER);
}
