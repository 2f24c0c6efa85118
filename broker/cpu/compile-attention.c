/* SPDX-License-Identifier: MIT */
/*
 * Attention and RotaryEmbedding
 *
 * Operands have three or four dimensions; heads are strides. The kernel reads past and present keys
 * in place. If the two together are an output, a separate step concatenates them there.
 */
#include "cpu/compile.h"
#include "cpu/run-attention.h"

static int compile_rotary(struct compiler *c)
{
	const struct shape *x = &node_in(c, 0)->shape, *cache = &node_in(c, 1)->shape;
	struct cpu_step_rotary *step = compile_args(c);
	struct cpu_rotary *args = &step->args;
	const bool heads_first = x->rank == 4;

	c->step->run = cpu_run_rotary;
	c->step->units = cpu_units_rotary;
	step->batch = extent_range(x, 0, 1);
	args->heads = c->node->params.rotary.heads;
	args->seq = x->dims[heads_first ? 2 : 1];
	args->head = x->dims[x->rank - 1] / (heads_first ? 1 : args->heads);
	args->rotary = c->node->params.rotary.dim;
	args->interleaved = c->node->params.rotary.interleaved;
	args->batch_stride = args->heads * args->seq * args->head;
	args->seq_stride = heads_first ? args->head : args->heads * args->head;
	args->head_stride = heads_first ? args->seq * args->head : args->head;
	if (node_in(c, 3))
		args->n_positions = cache->dims[0];
	return 0;
}

/*
 * Compute the strides, in elements, between batches, heads and positions of @heads of @seq by
 * @size.
 */
static void strides(bool heads_first, size_t heads, size_t seq, size_t size, size_t *ret_batch,
		    size_t *ret_head, size_t *ret_row)
{
	*ret_batch = heads * seq * size;
	*ret_head = heads_first ? seq * size : size;
	*ret_row = heads_first ? size : heads * size;
}

static void set_mask(const struct shape *mask, uint8_t dtype, struct cpu_attention *args)
{
	/* Strides of [batch][heads][queries][keys]; 0 where the extent is 1 or missing */
	size_t by[4] = {0}, stride = 1;

	for (unsigned int i = mask->rank; i-- > 0;) {
		const bool dynamic = i == 0 && mask->dynamic;

		if (dynamic || mask->dims[i] > 1)
			by[4 - mask->rank + i] = stride;
		stride *= mask->dims[i];
	}
	args->mask_batch = by[0];
	args->mask_head = by[1];
	args->mask_row = by[2];
	args->mask_cols = mask->dims[mask->rank - 1];
	args->mask_is_bool = dtype == RBK_DTYPE_BOOL;
}

/*
 * Add a step that writes input @past followed by input @present to output @out, if the output
 * exists.
 */
static int add_present(struct compiler *c, unsigned int out, unsigned int past,
		       unsigned int present, const struct cpu_attention *attention, size_t size,
		       size_t head_stride, size_t row_stride)
{
	struct cpu_step_present *step;
	int r;

	if (!node_out(c, out))
		return 0;
	r = compile_add(c);
	if (r)
		return r;
	step = compile_args(c);
	c->step->run = cpu_run_present;
	c->step->units = cpu_units_present;
	c->step->in[0] = compile_operand(c, node_in(c, past));
	c->step->in[1] = compile_operand(c, node_in(c, present));
	c->step->out[0] = compile_operand(c, node_out(c, out));
	step->batch = extent_range(&node_in(c, 0)->shape, 0, 1);
	step->heads = attention->kv_heads;
	step->past = attention->past_len;
	step->seq = attention->kv_len;
	step->size = size;
	step->head_stride = head_stride;
	step->row_stride = row_stride;
	return 0;
}

static int compile_attention(struct compiler *c)
{
	const struct shape *q = &node_in(c, 0)->shape, *k = &node_in(c, 1)->shape;
	const struct shape *v = &node_in(c, 2)->shape;
	const struct tensor *mask = node_in(c, 3), *past = node_in(c, 4);
	const bool heads_first = q->rank == 4;
	struct cpu_step_attention *step;
	struct cpu_attention args = {
		.q_heads = c->node->params.attention.q_heads,
		.kv_heads = c->node->params.attention.kv_heads,
		.q_len = q->dims[heads_first ? 2 : 1],
		.kv_len = k->dims[heads_first ? 2 : 1],
		.past_len = past ? past->shape.dims[2] : 0,
		.causal = c->node->params.attention.causal,
		.scale = c->node->params.attention.scale,
		.softcap = c->node->params.attention.softcap,
		.qk_mode = (enum cpu_attention_qk)c->node->params.attention.qk_mode,
	};
	int r;

	args.head = q->dims[q->rank - 1] / (heads_first ? 1 : args.q_heads);
	args.v_head = v->dims[v->rank - 1] / (heads_first ? 1 : args.kv_heads);
	strides(heads_first, args.q_heads, args.q_len, args.head, &args.q_batch, &args.q_head,
		&args.q_row);
	strides(heads_first, args.kv_heads, args.kv_len, args.head, &args.k_batch, &args.k_head,
		&args.k_row);
	strides(heads_first, args.kv_heads, args.kv_len, args.v_head, &args.v_batch,
		&args.v_head_stride, &args.v_row);
	strides(heads_first, args.q_heads, args.q_len, args.v_head, &args.y_batch, &args.y_head,
		&args.y_row);
	if (mask)
		set_mask(&mask->shape, mask->dtype, &args);
	c->step->run = cpu_run_attention;
	c->step->units = cpu_units_attention;
	step = compile_args(c);
	step->args = args;
	step->batch = extent_range(q, 0, 1);
	r = add_present(c, 1, 4, 1, &args, args.head, args.k_head, args.k_row);
	if (!r)
		r = add_present(c, 2, 5, 2, &args, args.v_head, args.v_head_stride, args.v_row);
	return r;
}

const struct cpu_op cpu_op_rotary = {.compile = compile_rotary};
const struct cpu_op cpu_op_attention = {.compile = compile_attention};
