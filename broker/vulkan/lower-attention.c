/* SPDX-License-Identifier: MIT */
/*
 * Lowering of Attention and RotaryEmbedding. See lower-private.h.
 *
 * Attention reads its keys and values from one place each. If there are past keys, or the present
 * keys are an output, an earlier step concatenates them, in the output or in scratch; likewise for
 * values.
 */
#include "util/error.h"
#include "vulkan/lower-private.h"

enum {
	VK_ATTENTION_HEAD = 64,
	VK_ATTENTION_MAX_VALUE = 1024, /* elements of a value: limit of shared memory */
};

static const struct vk_pipe rotary = VK_SPREAD("RotaryEmbedding", rotary, 1, 32, 2);
static const struct vk_pipe present = VK_SPREAD("Attention, present", present, 1, 32, 4);
/*
 * One query per workgroup; several; several of more than VK_ATTENTION_HEAD elements, on software
 * devices.
 */
static const struct vk_pipe attention = VK_ROWS("Attention", attention, 8, 64);
#define QUERIES(size) VK_INFO("Attention, queries", attention_queries, 8, 1, 8, size)
static const struct vk_pipe attention_block =
	VK_PIPE(QUERIES(16), VK_INFO("Attention, queries", attention_block, 4, 1, 64));
static const struct vk_pipe attention_block_wide = VK_PIPE(QUERIES(32), VK_NONE);

static void fill_rotary(const struct vk_step *step, const struct plan *plan, uint32_t count,
			struct vk_params *params)
{
	const struct node *node = step->node;
	const struct shape *x = vk_shape_of(plan, node->in[0]);
	const bool heads_first = x->rank == 4;
	const uint32_t heads = node->params.rotary.heads, dim = node->params.rotary.dim;
	const uint32_t seq = x->dims[heads_first ? 2 : 1];
	const uint32_t size = x->dims[x->rank - 1] / (heads_first ? 1 : heads);
	uint32_t *w = params->w;

	w[ROTARY_TOTAL] = shape_dim(x, 0, count) * seq * heads * (size - dim / 2);
	w[ROTARY_GROUPS] = div_up(w[ROTARY_TOTAL], step->info->tile_cols);
	w[ROTARY_HEADS] = heads;
	w[ROTARY_SEQ] = seq;
	w[ROTARY_HEAD] = size;
	w[ROTARY_DIM] = dim;
	w[ROTARY_INTERLEAVED] = node->params.rotary.interleaved;
	w[ROTARY_POSITIONS] = 0;
	if (vk_has_operand(step, 3))
		w[ROTARY_POSITIONS] = vk_shape_of(plan, node->in[1])->dims[0];
	w[ROTARY_SEQ_STRIDE] = heads_first ? size : heads * size;
	w[ROTARY_HEAD_STRIDE] = heads_first ? seq * size : size;
	vk_set_groups(params, w[ROTARY_GROUPS], 1);
}

static int lower_rotary(struct lowering *l)
{
	lower_pipe(l, &rotary);
	l->step->fill = fill_rotary;
	return 0;
}

/* Sizes and strides, in elements, of queries (which 0), keys (which 1) or values (which 2). */
struct heads {
	uint32_t n, seq, past, size;
	uint32_t batch_stride, head_stride, row_stride;
};

static struct heads heads_of(const struct plan *plan, const struct node *node, unsigned int which)
{
	const struct shape *x = vk_shape_of(plan, node->in[which]);
	const bool heads_first = x->rank == 4;
	const uint16_t past = vk_node_in(node, 3 + which);
	struct heads heads = {
		.n = which == 0 ? node->params.attention.q_heads : node->params.attention.kv_heads,
		.seq = x->dims[heads_first ? 2 : 1],
		.past = which > 0 && past != PLAN_NO_TENSOR ? vk_shape_of(plan, past)->dims[2] : 0,
	};

	heads.size = x->dims[x->rank - 1] / (heads_first ? 1 : heads.n);
	heads.batch_stride = heads.n * heads.seq * heads.size;
	heads.head_stride = heads_first ? heads.seq * heads.size : heads.size;
	heads.row_stride = heads_first ? heads.size : heads.n * heads.size;
	return heads;
}

/* args[0]: 1 for keys, 2 for values. */
static void fill_present(const struct vk_step *step, const struct plan *plan, uint32_t count,
			 struct vk_params *params)
{
	const struct heads heads = heads_of(plan, step->node, step->args[0]);
	const uint32_t batch = shape_dim(vk_shape_of(plan, step->node->in[0]), 0, count);
	uint32_t *w = params->w;

	w[PRESENT_TOTAL] = batch * heads.n * (heads.past + heads.seq) * heads.size;
	w[PRESENT_GROUPS] = div_up(w[PRESENT_TOTAL], step->info->tile_cols);
	w[PRESENT_HEADS] = heads.n;
	w[PRESENT_PAST] = heads.past;
	w[PRESENT_SEQ] = heads.seq;
	w[PRESENT_SIZE] = heads.size;
	w[PRESENT_HEAD_STRIDE] = heads.head_stride;
	w[PRESENT_ROW_STRIDE] = heads.row_stride;
	vk_set_groups(params, w[PRESENT_GROUPS], 1);
}

/* args[0]: keys and values were concatenated, by heads. */
static void fill_attention(const struct vk_step *step, const struct plan *plan, uint32_t count,
			   struct vk_params *params)
{
	const struct node *node = step->node;
	const struct heads q = heads_of(plan, node, 0), k = heads_of(plan, node, 1),
			   v = heads_of(plan, node, 2);
	const uint32_t batch = shape_dim(vk_shape_of(plan, node->in[0]), 0, count);
	const uint32_t total = k.past + k.seq;
	const bool together = step->args[0];
	uint32_t *w = params->w;

	w[ATTENTION_QUERIES] = batch * q.n * q.seq;
	w[ATTENTION_KEYS] = total;
	w[ATTENTION_Q_HEADS] = q.n;
	w[ATTENTION_KV_HEADS] = k.n;
	w[ATTENTION_Q_LEN] = q.seq;
	w[ATTENTION_PAST] = k.past;
	w[ATTENTION_HEAD] = q.size;
	w[ATTENTION_VALUE] = v.size;
	w[ATTENTION_Q_BATCH] = q.batch_stride;
	w[ATTENTION_Q_HEAD] = q.head_stride;
	w[ATTENTION_Q_ROW] = q.row_stride;
	w[ATTENTION_K_BATCH] = together ? k.n * total * k.size : k.batch_stride;
	w[ATTENTION_K_HEAD] = together ? total * k.size : k.head_stride;
	w[ATTENTION_K_ROW] = together ? k.size : k.row_stride;
	w[ATTENTION_V_BATCH] = together ? v.n * total * v.size : v.batch_stride;
	w[ATTENTION_V_HEAD] = together ? total * v.size : v.head_stride;
	w[ATTENTION_V_ROW] = together ? v.size : v.row_stride;
	w[ATTENTION_Y_BATCH] = q.n * q.seq * v.size;
	w[ATTENTION_Y_HEAD] = q.head_stride / q.size * v.size;
	w[ATTENTION_Y_ROW] = q.row_stride / q.size * v.size;
	w[ATTENTION_MASK_BATCH] = w[ATTENTION_MASK_HEAD] = w[ATTENTION_MASK_ROW] = 0;
	w[ATTENTION_MASK_COLS] = 0;
	w[ATTENTION_SCALE] = vk_float_bits(node->params.attention.scale);
	w[ATTENTION_SOFTCAP] = vk_float_bits(node->params.attention.softcap);
	w[ATTENTION_QK_MODE] = node->params.attention.qk_mode;
	w[ATTENTION_FLAGS] = node->params.attention.causal ? ATTENTION_CAUSAL : 0;
	if (vk_has_operand(step, 3)) {
		const struct tensor *mask = &plan->tensors[node->in[3]];
		const unsigned int rank = mask->shape.rank;
		uint32_t stride = 1;

		w[ATTENTION_FLAGS] |=
			mask->dtype == RBK_DTYPE_BOOL  ? ATTENTION_HAS_MASK | ATTENTION_MASK_BOOL
			: mask->dtype == RBK_DTYPE_F16 ? ATTENTION_HAS_MASK | ATTENTION_MASK_HALF
						       : ATTENTION_HAS_MASK;
		for (unsigned int i = rank; i-- > 0;) {
			const uint32_t dim = shape_dim(&mask->shape, i, count);

			if (i + 1 == rank)
				w[ATTENTION_MASK_COLS] = dim;
			else if (dim > 1)
				w[ATTENTION_MASK_BATCH + 4 - rank + i] = stride;
			stride *= dim;
		}
	}
	if (vk_has_operand(step, 4))
		w[ATTENTION_FLAGS] |= ATTENTION_HAS_VALID;
	if (vk_has_operand(step, VK_OUT + 1))
		w[ATTENTION_FLAGS] |= ATTENTION_HAS_QK;
	w[ATTENTION_BLOCKS] = div_up((uint64_t)q.n / k.n * q.seq, step->info->tile_rows);
	w[ATTENTION_GROUPS] = batch * k.n * w[ATTENTION_BLOCKS];
	vk_set_groups(params,
		      step->info->tile_rows == 1 ? w[ATTENTION_QUERIES] : w[ATTENTION_GROUPS], 1);
}

static uint64_t turns_attention(const struct vk_step *step, const struct vk_params *params)
{
	const uint32_t *w = params->w;
	const uint64_t lanes = step->info->spec[0], blocks = w[ATTENTION_KEYS] / lanes + 1;
	const uint64_t at_once = step->info->tile_rows == 1 ? 8 : 4;
	const uint64_t product = w[ATTENTION_HEAD] / at_once + 8;
	const uint64_t values = w[ATTENTION_VALUE] / lanes + 1;

	if (lanes == step->info->tile_rows)
		return 2 * (uint64_t)w[ATTENTION_KEYS];
	/* Count the scores, perhaps twice, two sums over subgroups, the values, and the output. */
	return blocks * (2 * product + 2 * lanes + values * (lanes + 1)) + 2 * values;
}

/* Return the element type of queries, keys and values; a mask has a type of its own. */
static enum vk_numbers numbers_of(const struct lowering *l)
{
	return l->plan->tensors[l->node->in[0]].dtype == RBK_DTYPE_F16 ? VK_HALVES : VK_FLOATS;
}

/*
 * Concatenate past and present keys or values, in output @which or in scratch; *ret is the result.
 */
static int lower_present(struct lowering *l, unsigned int which, struct vk_operand *ret)
{
	const struct node *node = l->node;
	const struct heads heads = heads_of(l->plan, node, which);
	const uint64_t batch = shape_dim(vk_shape_of(l->plan, node->in[0]), 0, l->plan->max_count);

	if (vk_node_out(node, which) != PLAN_NO_TENSOR)
		*ret = (struct vk_operand){.tensor = vk_node_out(node, which)};
	else
		*ret = lower_work(l, batch * heads.n * (heads.past + heads.seq) * heads.size *
					     sizeof(float));
	vk_clear_operands(l->step);
	l->step->operands[0].tensor = vk_node_in(node, 3 + which);
	l->step->operands[1].tensor = node->in[which];
	l->step->operands[VK_OUT] = *ret;
	l->step->numbers = numbers_of(l);
	lower_pipe(l, &present);
	l->step->fill = fill_present;
	l->step->args[0] = which;
	return lower_add(l);
}

/* Choose a pipe: several queries of the same keys share a workgroup. */
static const struct vk_pipe *attention_pipe(const struct lowering *l)
{
	const struct heads q = heads_of(l->plan, l->node, 0), k = heads_of(l->plan, l->node, 1);
	const uint32_t v_size = heads_of(l->plan, l->node, 2).size;
	const uint32_t size = q.size > v_size ? q.size : v_size;
	const uint32_t least = q.size < v_size ? q.size : v_size;

	if (q.n / k.n * (uint64_t)q.seq == 1 || least < 4 || size > 2 * VK_ATTENTION_HEAD)
		return &attention;
	if (size > VK_ATTENTION_HEAD && l->target.variant == VK_VARIANT_PLAIN)
		return &attention_block_wide;
	return &attention_block;
}

static int lower_attention(struct lowering *l)
{
	const struct node *node = l->node;
	const bool together = vk_node_in(node, 4) != PLAN_NO_TENSOR ||
			      vk_node_out(node, 1) != PLAN_NO_TENSOR ||
			      vk_node_out(node, 2) != PLAN_NO_TENSOR;
	struct vk_operand keys = {.tensor = node->in[1]}, values = {.tensor = node->in[2]};
	int r = 0;

	if (heads_of(l->plan, node, 2).size > VK_ATTENTION_MAX_VALUE)
		return EXECUTOR_E_UNSUPPORTED;
	if (together) {
		r = lower_present(l, 1, &keys);
		if (!r)
			r = lower_present(l, 2, &values);
		if (r)
			return error_fold(r);
	}
	vk_clear_operands(l->step);
	l->step->operands[0].tensor = node->in[0];
	l->step->operands[1] = keys;
	l->step->operands[2] = values;
	l->step->operands[3].tensor = vk_node_in(node, 3);
	l->step->operands[4].tensor = vk_node_in(node, 6);
	l->step->operands[VK_OUT].tensor = node->out[0];
	l->step->operands[VK_OUT + 1].tensor = vk_node_out(node, 3);
	l->step->numbers = numbers_of(l);
	lower_pipe(l, attention_pipe(l));
	l->step->fill = fill_attention;
	l->step->turns = turns_attention;
	l->step->args[0] = together;
	return 0;
}

static lower_fn *const lowerers[] = {[OP_ROTARY] = lower_rotary, [OP_ATTENTION] = lower_attention};
static const struct vk_pipes pipes[] = {VK_PIPES(rotary), VK_PIPES(present), VK_PIPES(attention),
					VK_PIPES(attention_block), VK_PIPES(attention_block_wide)};
VK_FAMILY(attention);
