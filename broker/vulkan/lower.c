/* SPDX-License-Identifier: MIT */
/*
 * From nodes to dispatches: see lower.h.
 *
 * Shapes are turned into as few dimensions as possible first (dimensions of size 1 vanish, those
 * that lie alike in every operand become one), so that the common cases are flat and the
 * shaders' index arithmetic is short. Grids are folded: a shader computes one workgroup number
 * from x and y, because no implementation need allow more than 65,535 in a dimension; batches
 * that exceed that in z are looped over in the shader.
 *
 * All numbers fit into 32 bits because vk_lower() refuses tensors of more than MAX_ELEMENTS.
 *
 * lavapipe of Mesa 22 silently ends all loops of an invocation when they have taken 65,535 turns
 * together (the counter is one per invocation, so nesting does not help). count_turns() mirrors the
 * loops in shaders/; a node that needs more is refused on a software device, whose results would be
 * wrong.
 */
#include "vulkan/lower.h"

#include <string.h>

#include "util/checked.h"
#include "vulkan/device.h"

static const uint64_t MAX_ELEMENTS = (uint64_t)VK_MAX_GROUPS * VK_MAX_GROUPS;

static const struct shape *shape_of(const struct plan *plan, uint16_t tensor)
{
	return &plan->tensors[tensor].shape;
}

static uint32_t divide_up(uint64_t value, uint32_t by)
{
	return (value + by - 1) / by;
}

static void set_groups(struct vk_params *params, uint32_t n, uint32_t batch)
{
	params->groups[0] = n < VK_MAX_GROUPS ? n : VK_MAX_GROUPS;
	params->groups[1] = divide_up(n, VK_MAX_GROUPS);
	params->groups[2] = batch < VK_MAX_GROUPS ? batch : VK_MAX_GROUPS;
	params->groups[3] = 0;
	params->w[ALL_GROUPS] = n;
	params->w[BATCH_BEGIN] = 0;
	params->w[BATCH_END] = batch;
}

static uint32_t float_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* MatMul, Gemm */

static void set_matmul(const struct vk_pipe_info *info, struct vk_params *params, uint32_t m,
		       uint32_t n, uint32_t k, uint32_t lda, uint32_t ldb, uint32_t batch)
{
	uint32_t *w = params->w;

	w[MATMUL_M] = m;
	w[MATMUL_N] = n;
	w[MATMUL_K] = k;
	w[MATMUL_LDA] = lda;
	w[MATMUL_LDB] = ldb;
	w[MATMUL_COL_TILES] = divide_up(n, info->tile_cols);
	w[MATMUL_TILES] = w[MATMUL_COL_TILES] * divide_up(m, info->tile_rows);
	w[MATMUL_BATCH_DIMS] = 0;
	w[MATMUL_ALPHA] = float_bits(1.0f);
	w[MATMUL_BETA] = 0;
	w[MATMUL_C_ROW] = 0;
	w[MATMUL_C_COL] = 0;
	set_groups(params, w[MATMUL_TILES], batch);
}

void vk_fill_bare_matmul(const struct vk_pipe_info *info, uint32_t m, uint32_t n, uint32_t k,
			 struct vk_params *params)
{
	set_matmul(info, params, m, n, k, k, n, 1);
}

static void fill_matmul(const struct vk_step *step, const struct plan *plan, uint32_t count,
			struct vk_params *params)
{
	const struct shape *a = shape_of(plan, step->node->in[0]);
	const struct shape *b = shape_of(plan, step->node->in[1]);
	uint32_t m = a->rank > 1 ? shape_dim(a, a->rank - 2, count) : 1;
	uint32_t k = shape_dim(a, a->rank - 1, count);
	uint32_t n = b->rank > 1 ? shape_dim(b, b->rank - 1, count) : 1;
	unsigned int a_batch = a->rank > 2 ? a->rank - 2 : 0;
	unsigned int b_batch = b->rank > 2 ? b->rank - 2 : 0;
	unsigned int rank = a_batch > b_batch ? a_batch : b_batch;
	uint64_t a_stride = (uint64_t)m * k, b_stride = (uint64_t)k * n, batch = 1, b_elems = 1;
	uint64_t a_elems = 1;

	for (unsigned int i = rank; i-- > 0;) {
		/* Dimensions are aligned at the end; absent ones are 1. */
		uint32_t a_dim = i + a_batch >= rank ? shape_dim(a, i + a_batch - rank, count) : 1;
		uint32_t b_dim = i + b_batch >= rank ? shape_dim(b, i + b_batch - rank, count) : 1;
		uint32_t dim = a_dim > b_dim ? a_dim : b_dim;

		params->w[MATMUL_DIMS + i] = dim;
		params->w[MATMUL_A_STRIDES + i] = a_dim > 1 ? a_stride : 0;
		params->w[MATMUL_B_STRIDES + i] = b_dim > 1 ? b_stride : 0;
		a_stride *= a_dim;
		b_stride *= b_dim;
		batch *= dim;
		a_elems *= a_dim;
		b_elems *= b_dim;
	}
	/* One B for all of A: the batch is nothing but more rows. */
	if (b_elems == 1 && a_elems == batch) {
		set_matmul(step->info, params, m * batch, n, k, k, n, 1);
		return;
	}
	set_matmul(step->info, params, m, n, k, k, n, batch);
	params->w[MATMUL_BATCH_DIMS] = rank;
}

static void fill_gemm(const struct vk_step *step, const struct plan *plan, uint32_t count,
		      struct vk_params *params)
{
	const struct node *node = step->node;
	const struct shape *a = shape_of(plan, node->in[0]), *b = shape_of(plan, node->in[1]);
	const struct shape *c;
	uint32_t lda = shape_dim(a, 1, count), ldb = shape_dim(b, 1, count);
	uint32_t m = node->params.gemm.trans_a ? lda : shape_dim(a, 0, count);
	uint32_t k = node->params.gemm.trans_a ? shape_dim(a, 0, count) : lda;
	uint32_t n = node->params.gemm.trans_b ? shape_dim(b, 0, count) : ldb;
	uint32_t rows = 1, cols = 1;

	set_matmul(step->info, params, m, n, k, lda, ldb, 1);
	params->w[MATMUL_ALPHA] = float_bits(node->params.gemm.alpha);
	if (step->operands[2].tensor == PLAN_NO_TENSOR)
		return;
	c = shape_of(plan, node->in[2]);
	if (c->rank > 0)
		cols = shape_dim(c, c->rank - 1, count);
	if (c->rank > 1)
		rows = shape_dim(c, c->rank - 2, count);
	params->w[MATMUL_BETA] = float_bits(node->params.gemm.beta);
	params->w[MATMUL_C_ROW] = rows > 1 ? cols : 0;
	params->w[MATMUL_C_COL] = cols > 1;
}

/* Add, Mul, Relu, Transpose */

struct dims {
	unsigned int n;
	uint32_t size[RBK_MAX_RANK];
	uint64_t a[RBK_MAX_RANK], b[RBK_MAX_RANK];
};

/* Appends an inner dimension, joining it with the last one where all operands allow that. */
static void dims_append(struct dims *dims, uint32_t size, uint64_t a, uint64_t b)
{
	unsigned int last = dims->n - 1;

	if (size == 1)
		return;
	if (dims->n > 0 && dims->a[last] == a * size && dims->b[last] == b * size) {
		dims->size[last] *= size;
		dims->a[last] = a;
		dims->b[last] = b;
		return;
	}
	dims->size[dims->n] = size;
	dims->a[dims->n] = a;
	dims->b[dims->n] = b;
	dims->n++;
}

static void set_elementwise(const struct vk_step *step, const struct dims *dims, uint64_t total,
			    struct vk_params *params)
{
	uint32_t *w = params->w;

	w[ELEMENTWISE_TOTAL] = total;
	w[ELEMENTWISE_GROUPS] = divide_up(total, step->info->tile_cols);
	w[ELEMENTWISE_RANK] = dims->n;
	for (unsigned int i = 0; i < dims->n; i++) {
		w[ELEMENTWISE_DIMS + i] = dims->size[i];
		w[ELEMENTWISE_A + i] = dims->a[i];
		w[ELEMENTWISE_B + i] = dims->b[i];
	}
	set_groups(params, w[ELEMENTWISE_GROUPS], 1);
}

/* Strides of @shape as if broadcast to @rank dimensions. */
static void broadcast_strides(const struct shape *shape, uint32_t count, unsigned int rank,
			      uint64_t strides[RBK_MAX_RANK])
{
	uint64_t stride = 1;

	for (unsigned int i = rank; i-- > 0;) {
		uint32_t dim = i + shape->rank >= rank
				       ? shape_dim(shape, i + shape->rank - rank, count)
				       : 1;

		strides[i] = dim > 1 ? stride : 0;
		stride *= dim;
	}
}

static void fill_elementwise(const struct vk_step *step, const struct plan *plan, uint32_t count,
			     struct vk_params *params)
{
	const struct node *node = step->node;
	const struct shape *out = shape_of(plan, node->out[0]);
	uint64_t a[RBK_MAX_RANK], b[RBK_MAX_RANK];
	struct dims dims = {0};

	broadcast_strides(shape_of(plan, node->in[0]), count, out->rank, a);
	broadcast_strides(shape_of(plan, node->in[node->n_in - 1]), count, out->rank, b);
	for (unsigned int i = 0; i < out->rank; i++)
		dims_append(&dims, shape_dim(out, i, count), a[i], b[i]);
	if (dims.n == 1 && dims.a[0] == 1 && dims.b[0] == 1)
		dims.n = 0;
	set_elementwise(step, &dims, shape_elems(out, count), params);
}

static void fill_transpose(const struct vk_step *step, const struct plan *plan, uint32_t count,
			   struct vk_params *params)
{
	const struct shape *in = shape_of(plan, step->node->in[0]);
	uint64_t strides[RBK_MAX_RANK];
	struct dims dims = {0};

	broadcast_strides(in, count, in->rank, strides);
	for (unsigned int i = 0; i < in->rank; i++) {
		unsigned int from = step->node->params.transpose.perm[i];

		dims_append(&dims, shape_dim(in, from, count), strides[from], strides[from]);
	}
	if (dims.n == 0)
		dims = (struct dims){.n = 1, .size = {1}};
	set_elementwise(step, &dims, shape_elems(in, count), params);
}

/* Softmax, TopK */

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
	w[ROWS_GROUPS] = divide_up(w[ROWS_TOTAL], step->info->tile_cols);
	set_groups(params, w[ROWS_GROUPS], 1);
}

static void fill_softmax(const struct vk_step *step, const struct plan *plan, uint32_t count,
			 struct vk_params *params)
{
	set_rows(step, shape_of(plan, step->node->in[0]), step->node->params.softmax.axis, count,
		 params);
}

static void fill_top_k(const struct vk_step *step, const struct plan *plan, uint32_t count,
		       struct vk_params *params)
{
	const struct node *node = step->node;

	set_rows(step, shape_of(plan, node->in[0]), node->params.top_k.axis, count, params);
	params->w[ROWS_K] = node->params.top_k.k;
	params->w[ROWS_FLIP] = node->params.top_k.largest ? 0 : UINT32_MAX;
}

/* ReduceSum */

static void fill_reduce(const struct vk_step *step, const struct plan *plan, uint32_t count,
			struct vk_params *params)
{
	const struct shape *in = shape_of(plan, step->node->in[0]);
	uint8_t axes = step->node->params.reduce.axes;
	uint32_t n[2] = {0, 0}, total[2] = {1, 1}, *w = params->w;
	uint64_t strides[RBK_MAX_RANK];
	int last = -1;

	broadcast_strides(in, count, in->rank, strides);
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
	w[REDUCE_GROUPS] = divide_up(total[0], step->info->tile_cols);
	set_groups(params, w[REDUCE_GROUPS], 1);
}

/* Conv, MaxPool */

static void set_window(const struct vk_step *step, const struct plan *plan, uint32_t count,
		       struct vk_params *params)
{
	const struct shape *in = shape_of(plan, step->node->in[0]);
	const struct shape *out = shape_of(plan, step->node->out[0]);
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
	uint64_t total = shape_elems(shape_of(plan, step->node->out[0]), count);

	set_window(step, plan, count, params);
	params->w[WINDOW_TOTAL] = total;
	set_groups(params, divide_up(total, step->info->tile_cols), 1);
}

static void fill_conv(const struct vk_step *step, const struct plan *plan, uint32_t count,
		      struct vk_params *params)
{
	const struct shape *in = shape_of(plan, step->node->in[0]);
	const struct shape *weights = shape_of(plan, step->node->in[1]);
	uint32_t groups = step->node->params.window.group, *w = params->w;

	set_window(step, plan, count, params);
	w[CONV_IN_CHANNELS] = shape_dim(weights, 1, count);
	w[CONV_OUT_CHANNELS] = shape_dim(weights, 0, count) / groups;
	w[CONV_GROUPS] = groups;
	w[CONV_COL_TILES] =
		divide_up((uint64_t)w[WINDOW_OUT_H] * w[WINDOW_OUT_W], step->info->tile_cols);
	w[CONV_TILES] = w[CONV_COL_TILES] * divide_up(w[CONV_OUT_CHANNELS], step->info->tile_rows);
	w[CONV_HAS_BIAS] = step->operands[2].tensor != PLAN_NO_TENSOR;
	/* Images times groups. */
	set_groups(params, w[CONV_TILES], shape_dim(in, 0, count) * groups);
}

/* Copies */

static void fill_copy(const struct vk_step *step, const struct plan *plan, uint32_t count,
		      struct vk_params *params)
{
	params->w[COPY_WORDS] = tensor_bytes(&plan->tensors[step->operands[0].tensor], count) / 4;
	params->w[COPY_GROUPS] = divide_up(params->w[COPY_WORDS], step->info->tile_cols);
	set_groups(params, params->w[COPY_GROUPS], 1);
}

static void lower_copy(struct vk_step *step, uint16_t tensor, bool inwards)
{
	step->pipe = VK_PIPE_COPY;
	step->fill = fill_copy;
	step->operands[0] = (struct vk_operand){.tensor = tensor, .bound = inwards};
	step->operands[VK_OUT] = (struct vk_operand){.tensor = tensor, .bound = !inwards};
}

/* Nodes */

static bool lower_node(const struct plan *plan, const struct node *node, int variant,
		       struct vk_step *step)
{
	const union op_params *op = &node->params;
	const struct shape *in = shape_of(plan, node->in[0]);
	/* From which length on a row is worth a workgroup. */
	uint64_t rows_from = variant == VK_VARIANT_SHARED ? 256 : 8192, size = 1;

	step->node = node;
	for (unsigned int i = 0; i < node->n_in && i < VK_OUT; i++)
		step->operands[i].tensor = node->in[i];
	for (unsigned int i = 0; i < node->n_out && VK_OUT + i < PARAM_ADDRESSES; i++)
		step->operands[VK_OUT + i].tensor = node->out[i];

	switch (node->op->kind) {
	case OP_MATMUL:
		step->pipe = VK_PIPE_MATMUL;
		step->fill = fill_matmul;
		return true;
	case OP_GEMM:
		step->pipe = VK_PIPE_MATMUL + op->gemm.trans_a + 2 * op->gemm.trans_b;
		step->fill = fill_gemm;
		return true;
	case OP_ADD:
	case OP_MUL:
	case OP_RELU:
		step->pipe = node->op->kind == OP_ADD   ? VK_PIPE_ADD
			     : node->op->kind == OP_MUL ? VK_PIPE_MUL
							: VK_PIPE_RELU;
		step->fill = fill_elementwise;
		return true;
	case OP_SOFTMAX:
		size = shape_dim(in, op->softmax.axis, plan->max_count);
		step->pipe = size >= rows_from ? VK_PIPE_SOFTMAX_ROWS : VK_PIPE_SOFTMAX;
		step->fill = fill_softmax;
		return true;
	case OP_REDUCE_SUM:
		for (unsigned int i = 0; i < in->rank; i++)
			if (op->reduce.axes >> i & 1)
				size *= shape_dim(in, i, plan->max_count);
		step->pipe = size >= rows_from ? VK_PIPE_REDUCE_ROWS : VK_PIPE_REDUCE;
		step->fill = fill_reduce;
		return true;
	case OP_TRANSPOSE:
		step->pipe = VK_PIPE_TRANSPOSE;
		step->fill = fill_transpose;
		return true;
	case OP_CONV:
		size = shape_of(plan, node->in[1])->dims[0] / op->window.group;
		step->pipe = size < 4 ? VK_PIPE_CONV_NARROW : VK_PIPE_CONV;
		step->fill = fill_conv;
		return true;
	case OP_MAX_POOL:
		step->pipe = VK_PIPE_MAX_POOL;
		step->fill = fill_max_pool;
		return true;
	case OP_TOP_K:
		if (op->top_k.k > VK_TOP_K_MAX || node->n_out < 2 ||
		    node->out[0] == PLAN_NO_TENSOR || node->out[1] == PLAN_NO_TENSOR)
			return false;
		step->pipe = op->top_k.k <= VK_TOP_K_SMALL ? VK_PIPE_TOP_K : VK_PIPE_TOP_K_LARGE;
		step->fill = fill_top_k;
		return true;
	default:
		break;
	}
	return false;
}

/* Turns of all loops of one invocation, at max_count: an upper bound. */
static uint64_t count_turns(const struct vk_step *step, const struct plan *plan)
{
	const union op_params *op = step->node ? &step->node->params : NULL;
	uint64_t lanes = step->info->spec[0], batches = 1;
	struct vk_params params = {0};
	const uint32_t *w = params.w;

	step->fill(step, plan, plan->max_count, &params);
	switch (step->pipe) {
	case VK_PIPE_MATMUL:
	case VK_PIPE_MATMUL_T_A:
	case VK_PIPE_MATMUL_T_B:
	case VK_PIPE_MATMUL_T_AB:
		/* K / 4 or K / 16, the rest of K, the batch's dimensions and columns at the end. */
		batches = divide_up(w[BATCH_END], VK_MAX_GROUPS);
		return batches * (w[MATMUL_K] / 4 + w[MATMUL_BATCH_DIMS] + 32);
	case VK_PIPE_CONV:
	case VK_PIPE_CONV_NARROW:
		batches = divide_up(w[BATCH_END], VK_MAX_GROUPS);
		return batches *
		       (w[CONV_IN_CHANNELS] *
				(1 + op->window.kernel[0] * (1 + (uint64_t)op->window.kernel[1])) +
			32);
	case VK_PIPE_MAX_POOL:
		return op->window.kernel[0] * (1 + (uint64_t)op->window.kernel[1]);
	case VK_PIPE_SOFTMAX:
		return 3 * (w[ROWS_SIZE] / 8ull + 1);
	case VK_PIPE_SOFTMAX_ROWS:
		return 3 * (w[ROWS_SIZE] / (8 * lanes) + 1) + 2 * lanes;
	case VK_PIPE_REDUCE:
		return w[REDUCE_SIZE] / 8ull + 1;
	case VK_PIPE_REDUCE_ROWS:
		return w[REDUCE_SIZE] / (8 * lanes) + 1 + lanes;
	case VK_PIPE_TOP_K:
		return w[ROWS_SIZE] / (8 * lanes) + 1 + VK_TOP_K_SMALL * 16;
	case VK_PIPE_TOP_K_LARGE:
		return w[ROWS_K] * (w[ROWS_SIZE] / (8 * lanes) + 16ull);
	default:
		/* A fixed number of elements each, and at most eight dimensions for any of them. */
		return 1024;
	}
}

static bool tensors_fit(const struct plan *plan)
{
	for (unsigned int i = 0; i < plan->n_tensors; i++)
		if (plan->tensors[i].max_bytes / sizeof(float) > MAX_ELEMENTS)
			return false;
	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		const struct node *node = &plan->nodes[i];

		for (unsigned int j = 0; j < node->n_in; j++)
			if (node->in[j] != PLAN_NO_TENSOR &&
			    plan->tensors[node->in[j]].dtype != RBK_DTYPE_F32)
				return false;
	}
	return true;
}

bool vk_lower(const struct plan *plan, const struct vk_target *target, struct vk_step *steps,
	      uint32_t *ret_n_steps)
{
	bool bounces = target->bounces;
	uint32_t n = 0, max = vk_lower_max_steps(plan);

	if (!(plan->ops_devices & OP_ON_VULKAN) || !tensors_fit(plan))
		return false;
	for (uint32_t i = 0; i < max; i++) {
		steps[i] = (struct vk_step){0};
		for (unsigned int j = 0; j < PARAM_ADDRESSES; j++)
			steps[i].operands[j].tensor = PLAN_NO_TENSOR;
	}

	for (uint16_t i = 0; i < plan->n_tensors && bounces; i++)
		if (plan->tensors[i].kind == RBK_TENSOR_INPUT ||
		    plan->tensors[i].kind == RBK_TENSOR_STATE)
			lower_copy(&steps[n++], i, true);
	for (uint16_t i = 0; i < plan->n_nodes; i++)
		if (!lower_node(plan, &plan->nodes[i], target->variant, &steps[n++]))
			return false;
	for (uint16_t i = 0; i < plan->n_tensors && bounces; i++)
		if (plan->tensors[i].kind == RBK_TENSOR_OUTPUT ||
		    plan->tensors[i].kind == RBK_TENSOR_STATE)
			lower_copy(&steps[n++], i, false);

	for (uint32_t i = 0; i < n; i++) {
		steps[i].info = vk_pipe_info(steps[i].pipe, target->variant);
		if (target->max_turns && count_turns(&steps[i], plan) > target->max_turns)
			return false;
	}
	*ret_n_steps = n;
	return true;
}
