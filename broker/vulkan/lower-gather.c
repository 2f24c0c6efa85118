/* SPDX-License-Identifier: MIT */
/*
 * Lowering of Gather, GatherElements, GatherND, ScatterElements, ScatterND, OneHot, Trilu and
 * GridSample. See lower-private.h.
 */
#include "shm/dtype.h"
#include "vulkan/lower-private.h"

enum {
	MAX_PIECE_BYTES = 16,
	/*
	 * Maximum updates that one element of a scatter's output reads; maximum for all elements
	 * together.
	 */
	SCATTER_MAX_UPDATES = 1 << 14,
	SCATTER_MAX_LOOKS = 1 << 28,
};

/* Indexed by the logarithm of the bytes moved at once. */
#define MOVED(label, code, log) VK_SPREAD(label, code, 1, 32, 4, log)
#define MOVED_EACH(label, code)                                                                \
	MOVED(label ", 1 byte", code##_narrow, 0), MOVED(label ", 2 bytes", code##_narrow, 1), \
		MOVED(label ", 4 bytes", code, 2), MOVED(label ", 8 bytes", code, 3)
static const struct vk_pipe gather[] = {MOVED_EACH("Gather", gather),
					MOVED("Gather, 16 bytes", gather, 4)};
static const struct vk_pipe gather_elements[] = {MOVED_EACH("GatherElements", gather_elements)};
static const struct vk_pipe one_hot[] = {MOVED_EACH("OneHot", one_hot)};
static const struct vk_pipe trilu[] = {MOVED_EACH("Trilu", trilu)};

#define SCATTER(type, code, dtype) VK_SPREAD("Scatter, " type, code, 1, 4, 1, dtype)
static const struct vk_pipe scatter[] = {
	SCATTER("float32", scatter, RBK_DTYPE_F32),
	SCATTER("float16", scatter, RBK_DTYPE_F16),
	SCATTER("int32", scatter, RBK_DTYPE_I32),
	SCATTER("int64", scatter, RBK_DTYPE_I64),
	SCATTER("int8", scatter, RBK_DTYPE_I8),
	SCATTER("uint8", scatter, RBK_DTYPE_U8),
	SCATTER("float64", scatter_double, RBK_DTYPE_F64),
};

/* Indexed by enum op_sample and the number of spatial dimensions. */
#define SAMPLE(label, mode, rank) VK_SPREAD("GridSample, " label, grid_sample, 1, 4, 1, mode, rank)
static const struct vk_pipe grid_sample[][2] = {
	[OP_SAMPLE_LINEAR] = {SAMPLE("linear", OP_SAMPLE_LINEAR, 2),
			      SAMPLE("linear, 3-D", OP_SAMPLE_LINEAR, 3)},
	[OP_SAMPLE_NEAREST] = {SAMPLE("nearest", OP_SAMPLE_NEAREST, 2),
			       SAMPLE("nearest, 3-D", OP_SAMPLE_NEAREST, 3)},
	[OP_SAMPLE_CUBIC] = {SAMPLE("cubic", OP_SAMPLE_CUBIC, 2)},
};

static uint32_t is_wide(const struct plan *plan, uint16_t tensor)
{
	return plan->tensors[tensor].dtype == RBK_DTYPE_I64;
}

static uint32_t stride_of(const struct shape *shape, unsigned int i)
{
	return vk_elems(shape, 0, i + 1, shape->rank);
}

/* Set the number of output elements and of groups, the first words of every block. */
static void set_total(const struct vk_step *step, uint64_t total, struct vk_params *params)
{
	_Static_assert(GATHER_GROUPS == 1 && ELEMENTS_GROUPS == 1 && SCATTER_GROUPS == 1 &&
			       ONE_HOT_GROUPS == 1 && TRILU_GROUPS == 1 && SAMPLE_GROUPS == 1,
		       "alike");
	params->w[GATHER_TOTAL] = (uint32_t)total;
	params->w[GATHER_GROUPS] = div_up(total, step->info->tile_cols);
	vk_set_groups(params, params->w[GATHER_GROUPS], 1);
}

/* Use the pipe of @table that moves @bytes at once. Return: 0; EXECUTOR_E_UNSUPPORTED. */
static int set_moved(struct lowering *l, const struct vk_pipe *table, uint64_t bytes)
{
	lower_pipe(l, &table[__builtin_ctzll(bytes)]);
	l->step->numbers = VK_FLOATS;
	return bytes < 4 && !(l->target.has_half && l->target.has_bytes) ? EXECUTOR_E_UNSUPPORTED
									 : 0;
}

/* Treat Gather as a GatherND without batches whose outer elements share their indices. */
static void fill_gather(const struct vk_step *step, const struct plan *plan, uint32_t count,
			struct vk_params *params)
{
	const struct node *node = step->node;
	const struct shape *x = vk_shape_of(plan, node->in[0]),
			   *at = vk_shape_of(plan, node->in[1]);
	const bool is_nd = node->op->kind == OP_GATHER_ND;
	const unsigned int batch =
		is_nd ? node->params.gather.batch_dims : node->params.gather.axis;
	const uint32_t n = is_nd ? at->dims[at->rank - 1] : 1;
	const uint32_t rows = is_nd ? vk_elems(at, count, batch, at->rank - 1u)
				    : vk_elems(at, count, 0, at->rank);
	/*
	 * Lengths count pieces of this many bytes; a piece is a part of an element, or several
	 * elements.
	 */
	const uint32_t piece = 1u << step->info->spec[2];
	const uint64_t bytes = dtype_bytes(plan->tensors[node->in[0]].dtype);
	uint32_t *w = params->w;

	w[GATHER_WIDE] = is_wide(plan, node->in[1]);
	w[GATHER_N] = n;
	w[GATHER_ROWS] = rows;
	w[GATHER_RUN] = (uint32_t)(vk_elems(x, count, batch + n, x->rank) * bytes / piece);
	w[GATHER_X_OUTER] = (uint32_t)(vk_elems(x, 0, batch, x->rank) * bytes / piece);
	w[GATHER_INDEX_OUTER] = is_nd && batch > 0 ? rows * n : 0;
	for (uint32_t i = 0; i < n; i++) {
		w[GATHER_LIMITS + i] = x->dims[batch + i];
		w[GATHER_STRIDES + i] = (uint32_t)(stride_of(x, batch + i) * bytes / piece);
	}
	set_total(step, shape_elems(vk_shape_of(plan, node->out[0]), count) * bytes / piece,
		  params);
}

static int lower_gather(struct lowering *l)
{
	const struct node *node = l->node;
	const struct shape *x = vk_shape_of(l->plan, node->in[0]);
	const struct shape *at = vk_shape_of(l->plan, node->in[1]);
	const unsigned int last = node->op->kind == OP_GATHER ? node->params.gather.axis
							      : node->params.gather.batch_dims +
									at->dims[at->rank - 1] - 1;
	uint64_t bytes = stride_of(x, last) * dtype_bytes(l->plan->tensors[node->in[0]].dtype);

	/* Find the largest power of two that divides a row. */
	bytes &= ~bytes + 1;
	l->step->fill = fill_gather;
	l->step->checks_indices = true;
	return set_moved(l, gather, bytes < MAX_PIECE_BYTES ? bytes : MAX_PIECE_BYTES);
}

static void fill_gather_elements(const struct vk_step *step, const struct plan *plan,
				 uint32_t count, struct vk_params *params)
{
	const struct node *node = step->node;
	const struct shape *x = vk_shape_of(plan, node->in[0]),
			   *at = vk_shape_of(plan, node->in[1]);
	const unsigned int axis = node->params.gather.axis;
	uint32_t *w = params->w;

	w[ELEMENTS_WIDE] = is_wide(plan, node->in[1]);
	w[ELEMENTS_LIMIT] = x->dims[axis];
	w[ELEMENTS_STEP] = stride_of(x, axis);
	w[ELEMENTS_RANK] = at->rank;
	for (unsigned int i = 0; i < at->rank; i++) {
		w[ELEMENTS_DIMS + i] = shape_dim(at, i, count);
		w[ELEMENTS_STRIDES + i] = i == axis ? 0 : stride_of(x, i);
	}
	set_total(step, shape_elems(at, count), params);
}

static int lower_gather_elements(struct lowering *l)
{
	l->step->fill = fill_gather_elements;
	l->step->checks_indices = true;
	return set_moved(l, gather_elements, dtype_bytes(l->plan->tensors[l->node->in[0]].dtype));
}

/* Return the number of updates that an output element reads. */
static uint32_t n_updates(const struct plan *plan, const struct node *node, uint32_t count)
{
	const struct shape *at = vk_shape_of(plan, node->in[1]);

	if (node->op->kind == OP_SCATTER_ND)
		return vk_elems(at, count, 0, at->rank - 1u);
	return shape_dim(at, node->params.gather.axis, count);
}

static void fill_scatter(const struct vk_step *step, const struct plan *plan, uint32_t count,
			 struct vk_params *params)
{
	const struct node *node = step->node;
	const struct shape *y = vk_shape_of(plan, node->out[0]),
			   *at = vk_shape_of(plan, node->in[1]);
	const unsigned int axis = node->params.gather.axis;
	uint32_t *w = params->w;

	w[SCATTER_WIDE] = is_wide(plan, node->in[1]);
	w[SCATTER_REDUCTION] = node->params.gather.reduction;
	w[SCATTER_COUNT] = n_updates(plan, node, count);
	w[SCATTER_N] = 0;
	set_total(step, shape_elems(y, count), params);
	if (node->op->kind == OP_SCATTER_ND) {
		const uint32_t n = at->dims[at->rank - 1];

		w[SCATTER_N] = n;
		w[SCATTER_RUN] = stride_of(y, n - 1);
		for (uint32_t i = 0; i < n; i++) {
			w[SCATTER_LIMITS + i] = y->dims[i];
			w[SCATTER_STRIDES + i] = stride_of(y, i) / w[SCATTER_RUN];
		}
		return;
	}
	w[SCATTER_RANK] = y->rank;
	w[SCATTER_AXIS] = axis;
	w[SCATTER_STEP] = stride_of(at, axis);
	for (unsigned int i = 0; i < y->rank; i++) {
		w[SCATTER_DIMS + i] = shape_dim(y, i, count);
		w[SCATTER_FLAT_DIMS + i] = i == axis ? 1 : shape_dim(at, i, count);
		w[SCATTER_FLAT + i] = stride_of(at, i);
	}
}

static uint64_t turns_scatter(const struct vk_step *step, const struct vk_params *params)
{
	const uint64_t of_one = RBK_MAX_RANK + (uint64_t)params->w[SCATTER_COUNT] *
						       (1 + (uint64_t)params->w[SCATTER_N]);

	return step->info->spec[1] * (1 + of_one);
}

/* Return the pipe for elements of @dtype; bools are bytes. */
static const struct vk_pipe *scatter_of(uint8_t dtype)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(scatter); i++)
		if (scatter[i].of[VK_VARIANT_PLAIN].spec[2] == dtype)
			return &scatter[i];
	/* Other types are only moved: the width decides. */
	return scatter_of(dtype == RBK_DTYPE_BF16 ? RBK_DTYPE_F16 : RBK_DTYPE_U8);
}

static int lower_scatter(struct lowering *l)
{
	const struct tensor *y = &l->plan->tensors[l->node->out[0]];
	const uint64_t n = n_updates(l->plan, l->node, l->plan->max_count);

	if (!l->target.has_half || !l->target.has_bytes || n > SCATTER_MAX_UPDATES ||
	    n * shape_elems(&y->shape, l->plan->max_count) > SCATTER_MAX_LOOKS)
		return EXECUTOR_E_UNSUPPORTED;
	l->step->numbers = VK_FLOATS;
	lower_pipe(l, scatter_of(y->dtype));
	l->step->fill = fill_scatter;
	l->step->turns = turns_scatter;
	l->step->checks_indices = true;
	return 0;
}

static void fill_one_hot(const struct vk_step *step, const struct plan *plan, uint32_t count,
			 struct vk_params *params)
{
	const struct shape *y = vk_shape_of(plan, step->node->out[0]);

	params->w[ONE_HOT_WIDE] = is_wide(plan, step->node->in[0]);
	params->w[ONE_HOT_DEPTH] = step->node->params.one_hot.depth;
	params->w[ONE_HOT_INNER] = stride_of(y, step->node->params.one_hot.axis);
	set_total(step, shape_elems(y, count), params);
}

static int lower_one_hot(struct lowering *l)
{
	l->step->fill = fill_one_hot;
	return set_moved(l, one_hot, dtype_bytes(l->plan->tensors[l->node->out[0]].dtype));
}

static void fill_trilu(const struct vk_step *step, const struct plan *plan, uint32_t count,
		       struct vk_params *params)
{
	const struct shape *x = vk_shape_of(plan, step->node->in[0]);

	params->w[TRILU_ROWS] = shape_dim(x, x->rank - 2u, count);
	params->w[TRILU_COLUMNS] = shape_dim(x, x->rank - 1u, count);
	params->w[TRILU_K] = (uint32_t)step->node->params.trilu.k;
	params->w[TRILU_UPPER] = step->node->params.trilu.upper;
	set_total(step, shape_elems(x, count), params);
}

static int lower_trilu(struct lowering *l)
{
	l->step->fill = fill_trilu;
	return set_moved(l, trilu, dtype_bytes(l->plan->tensors[l->node->in[0]].dtype));
}

static void fill_grid_sample(const struct vk_step *step, const struct plan *plan, uint32_t count,
			     struct vk_params *params)
{
	const struct node *node = step->node;
	const struct shape *x = vk_shape_of(plan, node->in[0]),
			   *y = vk_shape_of(plan, node->out[0]);
	uint32_t *w = params->w;

	_Static_assert(SAMPLE_ZEROS == OP_SAMPLE_ZEROS && SAMPLE_BORDER == OP_SAMPLE_BORDER,
		       "shared with grid-sample.comp");
	w[SAMPLE_CHANNELS] = x->dims[1];
	w[SAMPLE_POINTS] = stride_of(y, 1);
	for (unsigned int i = 0; i < OP_MAX_SPATIAL; i++)
		w[SAMPLE_SIZES + i] = i + 2u < x->rank ? x->dims[x->rank - 1u - i] : 1;
	w[SAMPLE_PADDING] = node->params.grid_sample.padding;
	w[SAMPLE_ALIGN] = node->params.grid_sample.align_corners;
	set_total(step, shape_elems(y, count), params);
}

/* The shader reads both inputs as elements of one type. */
static int lower_grid_sample(struct lowering *l)
{
	const struct tensor *x = &l->plan->tensors[l->node->in[0]],
			    *grid = &l->plan->tensors[l->node->in[1]];

	if (x->dtype != grid->dtype)
		return EXECUTOR_E_UNSUPPORTED;
	lower_pipe(l, &grid_sample[l->node->params.grid_sample.mode][x->shape.rank - 4]);
	l->step->fill = fill_grid_sample;
	return 0;
}

/* clang-format off */
static lower_fn *const lowerers[] = {
	[OP_GATHER] = lower_gather,
	[OP_GATHER_ELEMENTS] = lower_gather_elements,
	[OP_GATHER_ND] = lower_gather,
	[OP_SCATTER_ELEMENTS] = lower_scatter,
	[OP_SCATTER_ND] = lower_scatter,
	[OP_ONE_HOT] = lower_one_hot,
	[OP_TRILU] = lower_trilu,
	[OP_GRID_SAMPLE] = lower_grid_sample,
};
/* clang-format on */
static const struct vk_pipes pipes[] = {VK_PIPES(gather),  VK_PIPES(gather_elements),
					VK_PIPES(scatter), VK_PIPES(one_hot),
					VK_PIPES(trilu),   VK_PIPES(grid_sample)};
VK_FAMILY(gather);
