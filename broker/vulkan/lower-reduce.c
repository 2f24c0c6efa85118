/* SPDX-License-Identifier: MIT */
/* Lowering of reductions and of operators along one dimension. See lower-private.h. */
#include "vulkan/lower-private.h"

enum {
	VK_TOP_K_SMALL = 8, /* maximum k for one pass; a larger k takes k passes */
	VK_TOP_K_MAX = 256,
};

/* One result per invocation; for long rows, one per workgroup. */
static const struct vk_pipe softmax[] = {VK_EACH("Softmax", softmax),
					 VK_ROWS("Softmax, subgroups", softmax_rows, 8, 256)};
static const struct vk_pipe reduce_sum[] = {
	VK_EACH("ReduceSum", reduce, 1), VK_ROWS("ReduceSum, subgroups", reduce_rows, 8, 256, 1)};
/* All reductions but sum and mean. */
static const struct vk_pipe reduce_any[] = {VK_EACH("Reduce", reduce, 0),
					    VK_ROWS("Reduce, subgroups", reduce_rows, 8, 256, 0)};
static const struct vk_pipe arg[] = {VK_EACH("ArgMax", arg, 0),
				     VK_ROWS("ArgMax, rows", arg, 8, 256, 1)};
/* For small k; for large k. */
static const struct vk_pipe top_k[] = {VK_ROWS("TopK", top_k, 8, 256, 1),
				       VK_ROWS("TopK, large k", top_k, 64, 256, 0)};
static const struct vk_pipe scan = VK_EACH("CumSum", scan);
static const struct vk_pipe lp_norm = VK_EACH("LpNormalization", lp_norm);

/*
 * The same for integers; bools are bytes. ArgMax and TopK only need the order of elements, which
 * float64 has as well; the other operators compute with the elements.
 */
enum { I32, I64, I8, U8, F64, N_TYPES };

#define REDUCE(type, dtype)                                                                 \
	{                                                                                   \
		VK_EACH("Reduce, " type, reduce_integer, 0, dtype, 0),                      \
			VK_ROWS("Reduce, rows, " type, reduce_integer, 8, 256, 0, dtype, 1) \
	}
static const struct vk_pipe reduce_typed[N_TYPES][2] = {
	[I32] = REDUCE("int32", RBK_DTYPE_I32),
	[I64] = REDUCE("int64", RBK_DTYPE_I64),
	[I8] = REDUCE("int8", RBK_DTYPE_I8),
	[U8] = REDUCE("uint8", RBK_DTYPE_U8),
};
#define ARG(type, dtype)                                                              \
	{                                                                             \
		VK_EACH("ArgMax, " type, arg_integer, 0, dtype),                      \
			VK_ROWS("ArgMax, rows, " type, arg_integer, 8, 256, 1, dtype) \
	}
static const struct vk_pipe arg_typed[N_TYPES][2] = {
	[I32] = ARG("int32", RBK_DTYPE_I32),   [I64] = ARG("int64", RBK_DTYPE_I64),
	[I8] = ARG("int8", RBK_DTYPE_I8),      [U8] = ARG("uint8", RBK_DTYPE_U8),
	[F64] = ARG("float64", RBK_DTYPE_F64),
};
#define TOP_K(type, dtype)                                                                \
	{                                                                                 \
		VK_ROWS("TopK, " type, top_k_integer, 8, 256, 1, dtype),                  \
			VK_ROWS("TopK, large k, " type, top_k_integer, 64, 256, 0, dtype) \
	}
static const struct vk_pipe top_k_typed[N_TYPES][2] = {
	[I32] = TOP_K("int32", RBK_DTYPE_I32),   [I64] = TOP_K("int64", RBK_DTYPE_I64),
	[I8] = TOP_K("int8", RBK_DTYPE_I8),      [U8] = TOP_K("uint8", RBK_DTYPE_U8),
	[F64] = TOP_K("float64", RBK_DTYPE_F64),
};
static const struct vk_pipe scan_typed[N_TYPES] = {
	[I32] = VK_EACH("CumSum, int32", scan_integer, RBK_DTYPE_I32),
	[I64] = VK_EACH("CumSum, int64", scan_integer, RBK_DTYPE_I64),
};

static void set_rows(const struct vk_step *step, const struct shape *shape, unsigned int axis,
		     uint32_t count, struct vk_params *params)
{
	const uint32_t inner = vk_elems(shape, count, axis + 1, shape->rank);
	uint32_t *w = params->w;

	w[ROWS_TOTAL] = vk_elems(shape, count, 0, axis) * inner;
	w[ROWS_SIZE] = shape_dim(shape, axis, count);
	w[ROWS_INNER] = inner;
	w[ROWS_GROUPS] = div_up(w[ROWS_TOTAL], step->info->tile_cols);
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
	w[REDUCE_GROUPS] = div_up(total[0], step->info->tile_cols);
	vk_set_groups(params, w[REDUCE_GROUPS], 1);
}

/* Return the length from which a row gets a workgroup. */
static uint64_t rows_from(const struct lowering *l)
{
	return l->target.variant == VK_VARIANT_SHARED ? 256 : 8192;
}

static uint64_t turns_softmax(const struct vk_step *step, const struct vk_params *params)
{
	const uint64_t size = params->w[ROWS_SIZE], lanes = step->info->spec[0];

	if (step->info->tile_cols > 1)
		return 3 * (size / 8 + 1);
	return 3 * (size / (8 * lanes) + 1) + 2 * lanes;
}

static int lower_softmax(struct lowering *l)
{
	const struct shape *in = vk_shape_of(l->plan, l->node->in[0]);
	const uint64_t size = shape_dim(in, l->node->params.softmax.axis, l->plan->max_count);

	lower_pipe(l, &softmax[size >= rows_from(l)]);
	l->step->fill = fill_softmax;
	l->step->turns = turns_softmax;
	return 0;
}

static unsigned int type_of(const struct lowering *l)
{
	switch (l->plan->tensors[l->node->in[0]].dtype) {
	case RBK_DTYPE_I32:
		return I32;
	case RBK_DTYPE_I64:
		return I64;
	case RBK_DTYPE_I8:
		return I8;
	case RBK_DTYPE_F64:
		return F64;
	default:
		return U8;
	}
}

/*
 * Use the pipeline for floats, which may have code for float64, or else the pipeline for the
 * input's type.
 * Return: 0; EXECUTOR_E_UNSUPPORTED.
 */
static int set_typed(struct lowering *l, const struct vk_pipe *floats, const struct vk_pipe *typed)
{
	const uint8_t dtype = l->plan->tensors[l->node->in[0]].dtype;

	lower_pipe(l, floats);
	if (OP_TYPE(dtype) & OP_FLOATS ||
	    (dtype == RBK_DTYPE_F64 && l->step->info->shader->code[VK_DOUBLES].words))
		return 0;
	lower_pipe(l, typed);
	l->step->numbers = VK_FLOATS;
	return l->target.has_half && l->target.has_bytes ? 0 : EXECUTOR_E_UNSUPPORTED;
}

static uint64_t turns_reduce(const struct vk_step *step, const struct vk_params *params)
{
	const uint64_t size = params->w[REDUCE_SIZE], lanes = step->info->spec[0];

	/* LogSumExp reads its elements twice. */
	if (step->info->tile_cols > 1)
		return 2 * (size / 8 + 1);
	return 2 * (size / (8 * lanes) + 1 + lanes);
}

static int lower_reduce(struct lowering *l)
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
		return set_typed(l, &reduce_sum[shares], &reduce_typed[type_of(l)][shares]);
	return set_typed(l, &reduce_any[shares], &reduce_typed[type_of(l)][shares]);
}

static uint64_t turns_arg(const struct vk_step *step, const struct vk_params *params)
{
	const uint64_t size = params->w[ROWS_SIZE], lanes = step->info->spec[0];

	return step->info->tile_cols > 1 ? size / 8 + 1 : size / (8 * lanes) + 1 + 16;
}

static int lower_arg(struct lowering *l)
{
	const struct shape *in = vk_shape_of(l->plan, l->node->in[0]);
	const uint64_t size = shape_dim(in, l->node->params.arg.axis, l->plan->max_count);
	const bool shares = size >= rows_from(l);

	l->step->fill = fill_arg;
	l->step->turns = turns_arg;
	return set_typed(l, &arg[shares], &arg_typed[type_of(l)][shares]);
}

static uint64_t turns_columns(const struct vk_step *step, const struct vk_params *params)
{
	return 2 * (params->w[ROWS_SIZE] / 8 + 1);
}

static int lower_cum_sum(struct lowering *l)
{
	l->step->fill = fill_cum_sum;
	l->step->turns = turns_columns;
	return set_typed(l, &scan, &scan_typed[type_of(l)]);
}

static int lower_lp_norm(struct lowering *l)
{
	lower_pipe(l, &lp_norm);
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

static int lower_top_k(struct lowering *l)
{
	const uint32_t k = l->node->params.top_k.k;
	const bool is_large = k > VK_TOP_K_SMALL;

	if (k > VK_TOP_K_MAX)
		return EXECUTOR_E_UNSUPPORTED;
	l->step->fill = fill_top_k;
	l->step->turns = turns_top_k;
	return set_typed(l, &top_k[is_large], &top_k_typed[type_of(l)][is_large]);
}

/* clang-format off */
static lower_fn *const lowerers[] = {
	[OP_SOFTMAX] = lower_softmax,
	[OP_LOG_SOFTMAX] = lower_softmax,
	[OP_REDUCE_SUM] = lower_reduce,
	[OP_REDUCE_MEAN] = lower_reduce,
	[OP_REDUCE_SUM_SQUARE] = lower_reduce,
	[OP_REDUCE_L1] = lower_reduce,
	[OP_REDUCE_L2] = lower_reduce,
	[OP_REDUCE_LOG_SUM] = lower_reduce,
	[OP_REDUCE_LOG_SUM_EXP] = lower_reduce,
	[OP_REDUCE_PROD] = lower_reduce,
	[OP_REDUCE_MAX] = lower_reduce,
	[OP_REDUCE_MIN] = lower_reduce,
	[OP_ARG_MAX] = lower_arg,
	[OP_ARG_MIN] = lower_arg,
	[OP_CUM_SUM] = lower_cum_sum,
	[OP_LP_NORM] = lower_lp_norm,
	[OP_TOP_K] = lower_top_k,
};
/* clang-format on */
static const struct vk_pipes pipes[] = {
	VK_PIPES(softmax), VK_PIPES(reduce_sum), VK_PIPES(reduce_any), VK_PIPES(reduce_typed),
	VK_PIPES(arg),     VK_PIPES(arg_typed),  VK_PIPES(top_k),      VK_PIPES(top_k_typed),
	VK_PIPES(scan),    VK_PIPES(scan_typed), VK_PIPES(lp_norm),
};
VK_FAMILY(reduce);
