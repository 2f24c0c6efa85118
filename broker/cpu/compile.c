/* SPDX-License-Identifier: MIT */
/*
 * From nodes to steps
 *
 * What all operators have in common: operands become a base and an offset, costs a guess in
 * nanoseconds, and constants may get a packed form. The rest of a step is filled by the compiler of
 * its operator, in the other compile-*.c files.
 */
#include "cpu/compile.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/internal.h"
#include "plan/executor.h"
#include "plan/move.h"
#include "util/error.h"

/*
 * Nodes and steps that one call compiles, and a node more at most: less than a millisecond. Making
 * a pack, which is a system call or two, takes as long as PACK_STEPS of them.
 */
enum { PART_STEPS = 1024, PACK_STEPS = 4 };

/* What one thread does in a nanosecond, roughly and rather too little. */
static const double flops_per_ns = 40, bytes_per_ns = 8;

static struct cpu_operand operand_of(const struct compiler *c, const struct tensor *tensor)
{
	struct cpu_operand operand = {.present = tensor != NULL};

	if (!tensor)
		return operand;
	tensor = &c->plan->tensors[tensor->root];
	switch (tensor->kind) {
	case RBK_TENSOR_CONSTANT: {
		const struct plan_constant *constant = &c->plan->constants[tensor->constant];

		operand.base = CPU_BASE_ABSOLUTE;
		operand.offset = (uintptr_t)constant->arena->base + constant->offset;
		break;
	}
	case RBK_TENSOR_SCRATCH:
		operand.base = CPU_BASE_SCRATCH;
		operand.offset = tensor->scratch_offset;
		break;
	default:
		operand.base = (uint16_t)(CPU_BASE_BINDING + tensor->binding);
		break;
	}
	return operand;
}

struct cpu_operand compile_in(const struct compiler *c, unsigned int i)
{
	if (i < OP_MAX_INPUTS && c->stand_in[i].present)
		return c->stand_in[i];
	return operand_of(c, node_in(c, i));
}

struct cpu_operand compile_out(const struct compiler *c, unsigned int i)
{
	if (i < OP_MAX_OUTPUTS && c->stand_out[i].present)
		return c->stand_out[i];
	return operand_of(c, node_out(c, i));
}

struct cpu_operand compile_operand(const struct compiler *c, const struct tensor *tensor)
{
	for (unsigned int i = 0; tensor && i < c->node->n_in; i++)
		if (node_in(c, i) == tensor)
			return compile_in(c, i);
	for (unsigned int i = 0; tensor && i < c->node->n_out; i++)
		if (node_out(c, i) == tensor)
			return compile_out(c, i);
	return operand_of(c, tensor);
}

/* Room for one more of @bytes each, of which there are @n. */
static int reserve(void **array, uint32_t n, uint32_t *max, size_t bytes)
{
	const uint32_t wanted = *max ? 2 * *max : 16;
	void *larger;

	if (n < *max)
		return 0;
	larger = reallocarray(*array, wanted, bytes);
	if (!larger)
		return error_origin(-ENOMEM);
	*array = larger;
	*max = wanted;
	return 0;
}

static int reserve_pack(struct compiler *c)
{
	return reserve((void **)&c->compiled->packs, c->compiled->n_packs, &c->max_packs,
		       sizeof(*c->compiled->packs));
}

int compile_add(struct compiler *c)
{
	struct cpu_plan *compiled = c->compiled;
	struct cpu_step *step;
	int r;

	r = reserve((void **)&compiled->steps, compiled->n_steps, &c->max_steps,
		    sizeof(*compiled->steps));
	if (r)
		return error_fold(r);
	c->step = step = &compiled->steps[compiled->n_steps++];
	*step = (struct cpu_step){.kernels = c->cpu->kernels};
	for (unsigned int i = 0; i < CPU_MAX_IN; i++)
		step->in[i] = compile_in(c, i);
	for (unsigned int i = 0; i < CPU_MAX_OUT; i++)
		step->out[i] = compile_out(c, i);
	return 0;
}

int compile_add_conversion(struct compiler *c, struct cpu_operand from, struct cpu_operand to,
			   uint64_t fixed_bytes, uint64_t row_bytes)
{
	int r = compile_add(c);

	if (r)
		return error_fold(r);
	memset(c->step->in, 0, sizeof(c->step->in));
	memset(c->step->out, 0, sizeof(c->step->out));
	c->step->in[0] = from;
	c->step->out[0] = to;
	c->step->cost_fixed_ns = 2 * (double)fixed_bytes / bytes_per_ns;
	c->step->cost_row_ns = 2 * (double)row_bytes / bytes_per_ns;
	return 0;
}

void compile_drop(struct compiler *c)
{
	c->compiled->n_steps--;
	c->step = NULL;
}

struct cpu_operand compile_work(struct compiler *c, uint64_t bytes)
{
	const struct cpu_operand operand = {
		.base = CPU_BASE_SCRATCH,
		.offset = cpu_work_offset(c->plan) + c->work_used,
		.present = true,
	};

	c->work_used += (bytes + PLAN_SCRATCH_ALIGN - 1) & ~(uint64_t)(PLAN_SCRATCH_ALIGN - 1);
	assert(c->work_used <= c->work_max);
	if (c->work_used > c->compiled->work_bytes)
		c->compiled->work_bytes = c->work_used;
	return operand;
}

static bool has_cost(const struct cpu_step *step)
{
	return step->cost_fixed_ns > 0 || step->cost_row_ns > 0;
}

/* What the node costs, as if those of its steps were alike that do not know better. */
static void step_costs(struct compiler *c, uint32_t first)
{
	const struct cost *cost = &c->node->cost;
	const double flops = flops_per_ns * c->speed_up;
	uint32_t n = 0;

	for (uint32_t i = first; i < c->compiled->n_steps; i++)
		n += !has_cost(&c->compiled->steps[i]);
	for (uint32_t i = first; i < c->compiled->n_steps; i++) {
		struct cpu_step *step = &c->compiled->steps[i];

		if (has_cost(step))
			continue;
		step->cost_fixed_ns = ((double)cost->flops_fixed / flops +
				       (double)cost->bytes_fixed / bytes_per_ns) /
				      n;
		step->cost_row_ns =
			((double)cost->flops_row / flops + (double)cost->bytes_row / bytes_per_ns) /
			n;
	}
}

/*
 * Does the plan hold @pack already? Plans are compiled in turns: if one that was begun later has
 * been given the pack since, the list of packs has to tell.
 */
static bool is_held(const struct compiler *c, const struct cpu_pack *pack)
{
	const struct cpu_plan *compiled = c->compiled;

	if (pack->user <= c->number)
		return pack->user == c->number;
	for (uint32_t i = 0; i < compiled->n_packs; i++)
		if (compiled->packs[i] == pack)
			return true;
	return false;
}

int compile_pack_constant(struct compiler *c, const struct plan_constant *constant,
			  enum pack_form form, const uint64_t *params, unsigned int n_params,
			  size_t floats, struct cpu_pack **ret_pack, struct cpu_fill **ret)
{
	struct cpu_pack_key key = {
		.owner = constant->arena->owner,
		.dev = constant->arena->dev,
		.ino = constant->arena->ino,
		.offset = constant->offset,
		.bytes = constant->bytes,
		.form = {form | (uint64_t)c->plan->tensors[constant->tensor].dtype << 32},
	};
	struct cpu_plan *compiled = c->compiled;
	struct cpu_pack *pack;
	int r;

	*ret = NULL;
	if (n_params)
		memcpy(key.form + 1, params, n_params * sizeof(*params));
	r = reserve_pack(c);
	if (!r)
		r = reserve((void **)&compiled->fills, compiled->n_fills, &c->max_fills,
			    sizeof(*compiled->fills));
	if (!r)
		r = cpu_pack_get(&c->cpu->packs, &key, floats, &pack);
	if (r)
		return error_fold(r);
	*ret_pack = pack;
	/* Another node has the same: it is held, charged and filled once. */
	if (is_held(c, pack)) {
		cpu_pack_unref(&c->cpu->packs, pack);
		return 0;
	}
	c->n_made += pack->user == 0;
	if (pack->user < c->number)
		pack->user = c->number;
	compiled->packs[compiled->n_packs++] = pack;
	if (pack->is_filled)
		return 0;
	*ret = &compiled->fills[compiled->n_fills++];
	**ret = (struct cpu_fill){.pack = pack, .kernels = c->cpu->kernels};
	return 0;
}

int compile_pack(struct compiler *c, unsigned int i, enum pack_form form, const uint64_t *params,
		 unsigned int n_params, size_t floats, struct cpu_fill **ret)
{
	struct cpu_pack *pack = NULL;
	int r;

	r = compile_pack_constant(c, &c->plan->constants[node_constant(c, i)], form, params,
				  n_params, floats, &pack, ret);
	if (r)
		return error_fold(r);
	c->step->in[i].base = CPU_BASE_ABSOLUTE;
	c->step->in[i].offset = (uintptr_t)pack->data;
	return 0;
}

#define ELEMENTWISE(KIND, row) [OP_##KIND] = compile_elementwise

static int (*const compilers[])(struct compiler *c) = {
	[OP_MATMUL] = compile_matmul,
	[OP_GEMM] = compile_gemm,
	OP_ELEMENTWISE(ELEMENTWISE),
	[OP_SOFTMAX] = compile_softmax,
	[OP_REDUCE_SUM] = compile_reduce,
	[OP_REDUCE_MEAN] = compile_reduce,
	[OP_REDUCE_SUM_SQUARE] = compile_reduce,
	[OP_REDUCE_L1] = compile_reduce,
	[OP_REDUCE_L2] = compile_reduce,
	[OP_REDUCE_LOG_SUM] = compile_reduce,
	[OP_REDUCE_LOG_SUM_EXP] = compile_reduce,
	[OP_REDUCE_PROD] = compile_reduce,
	[OP_REDUCE_MAX] = compile_reduce,
	[OP_REDUCE_MIN] = compile_reduce,
	[OP_ARG_MAX] = compile_arg,
	[OP_ARG_MIN] = compile_arg,
	[OP_CUM_SUM] = compile_cum_sum,
	[OP_LOG_SOFTMAX] = compile_softmax,
	[OP_LAYER_NORM] = compile_layer_norm,
	[OP_RMS_NORM] = compile_layer_norm,
	[OP_INSTANCE_NORM] = compile_group_norm,
	[OP_GROUP_NORM] = compile_group_norm,
	[OP_BATCH_NORM] = compile_batch_norm,
	[OP_LP_NORM] = compile_lp_norm,
	[OP_ROTARY] = compile_rotary,
	[OP_ATTENTION] = compile_attention,
	[OP_TRANSPOSE] = compile_moves,
	[OP_SLICE] = compile_moves,
	[OP_CONCAT] = compile_concat,
	[OP_SPLIT] = compile_moves,
	[OP_EXPAND] = compile_moves,
	[OP_TILE] = compile_moves,
	[OP_PAD] = compile_moves,
	[OP_RESHAPE] = compile_reshape,
	[OP_CONV] = compile_conv,
	[OP_MAX_POOL] = compile_max_pool,
	[OP_AVERAGE_POOL] = compile_pool,
	[OP_LP_POOL] = compile_pool,
	[OP_CONV_TRANSPOSE] = compile_conv_transpose,
	[OP_TOP_K] = compile_top_k,
	[OP_QUANTIZE_LINEAR] = compile_quantize,
	[OP_DEQUANTIZE_LINEAR] = compile_quantize,
	[OP_DYNAMIC_QUANTIZE_LINEAR] = compile_dynamic_quantize,
	[OP_MATMUL_INTEGER] = compile_integer,
	[OP_QLINEAR_MATMUL] = compile_integer,
	[OP_CONV_INTEGER] = compile_integer_conv,
	[OP_QLINEAR_CONV] = compile_integer_conv,
	[OP_MATMUL_NBITS] = compile_nbits,
	[OP_GATHER] = compile_gather,
	[OP_GATHER_ELEMENTS] = compile_gather_elements,
	[OP_GATHER_ND] = compile_gather_nd,
	[OP_SCATTER_ELEMENTS] = compile_scatter_elements,
	[OP_SCATTER_ND] = compile_scatter_nd,
	[OP_ONE_HOT] = compile_one_hot,
	[OP_TRILU] = compile_trilu,
};
_Static_assert(sizeof(compilers) / sizeof(compilers[0]) == OP_KIND_COUNT, "one per operator");

bool compile_takes_half(const struct node *node)
{
	switch (node->op->kind) {
	case OP_RESHAPE:
	case OP_GATHER:
	case OP_GATHER_ELEMENTS:
	case OP_GATHER_ND:
	case OP_ONE_HOT:
	case OP_TRILU:
		return true;
	case OP_SCATTER_ELEMENTS:
	case OP_SCATTER_ND:
		return node->params.gather.reduction == OP_SCATTER_NONE;
	default:
		return plan_moves(node->op->kind) || (op_is_elementwise(node->op->kind));
	}
}

static int compile_node(struct compiler *c, const struct node *node)
{
	const uint32_t first = c->compiled->n_steps;
	int r;

	c->node = node;
	c->work_used = 0;
	c->work_max = node->work_bytes;
	c->speed_up = 1;
	memset(c->stand_in, 0, sizeof(c->stand_in));
	memset(c->stand_out, 0, sizeof(c->stand_out));
	r = compile_layout_begin(c);
	if (!r)
		r = compile_half_begin(c);
	if (!r)
		r = compile_add(c);
	if (!r)
		r = compilers[node->op->kind](c);
	if (!r && node->activation != PLAN_NO_NODE)
		compile_activation(c, &c->plan->nodes[node->activation]);
	if (!r)
		r = compile_half_end(c, first);
	if (!r)
		r = compile_layout_end(c);
	compile_half_deinit(c);
	if (r)
		return error_fold(r);
	step_costs(c, first);
	c->compiled->overhead_one_ns += compile_overhead_ns(c, first, 1);
	c->compiled->overhead_max_ns += compile_overhead_ns(c, first, c->plan->max_count);
	return 0;
}

/* Gives back the room that was not needed. */
static int trim_array(void **array, uint32_t n, size_t bytes)
{
	void *smaller;

	if (n == 0) {
		free(*array);
		*array = NULL;
		return 0;
	}
	smaller = reallocarray(*array, n, bytes);
	if (!smaller)
		return error_origin(-ENOMEM);
	*array = smaller;
	return 0;
}

static int trim(struct cpu_plan *compiled)
{
	int r = trim_array((void **)&compiled->steps, compiled->n_steps, sizeof(*compiled->steps));

	if (!r)
		r = trim_array((void **)&compiled->packs, compiled->n_packs,
			       sizeof(struct cpu_pack *));
	if (!r)
		r = trim_array((void **)&compiled->fills, compiled->n_fills,
			       sizeof(*compiled->fills));
	return r ? error_fold(r) : 0;
}

static int compile_begin(struct cpu_executor *cpu, const struct plan *plan,
			 struct cpu_plan *compiled)
{
	struct compiler *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return error_origin(-ENOMEM);
	compiled->compiler = c;
	c->cpu = cpu;
	c->plan = plan;
	c->compiled = compiled;
	c->number = ++cpu->n_compiled;
	/* Mostly enough: growing moves what may be a hundred megabytes. */
	c->max_steps = plan->n_nodes + plan->n_pieces / 2 + 1;
	compiled->steps = reallocarray(NULL, c->max_steps, sizeof(*compiled->steps));
	if (!compiled->steps)
		return error_origin(-ENOMEM);
	r = cpu_layout_init(&c->layout, plan, cpu->layout_wish);
	return r ? error_fold(r) : 0;
}

/* Nodes, steps and packs, as nodes and steps. */
static uint32_t work_done(const struct compiler *c)
{
	return c->next_node + c->compiled->n_steps + PACK_STEPS * c->n_made;
}

/* Return: 0, all nodes are compiled; EXECUTOR_E_MORE; -ENOMEM. */
static int compile_some(struct compiler *c)
{
	const struct plan *plan = c->plan;
	const uint32_t done_before = work_done(c);
	int r = cpu_layout_choose(&c->layout);

	if (r)
		return r < 0 ? error_fold(r) : r;
	while (c->next_node < plan->n_nodes) {
		const struct node *node = &plan->nodes[c->next_node];

		if (work_done(c) - done_before >= PART_STEPS)
			return EXECUTOR_E_MORE;
		c->next_node++;
		r = node->computed_by == PLAN_NO_NODE ? compile_node(c, node) : 0;
		if (r)
			return error_fold(r);
	}
	return 0;
}

int cpu_compile(struct cpu_executor *cpu, const struct plan *plan, struct cpu_plan *compiled)
{
	int r = compiled->compiler ? 0 : compile_begin(cpu, plan, compiled);

	if (!r)
		r = compile_some(compiled->compiler);
	if (r)
		return r < 0 ? error_fold(r) : r;
	cpu_compile_deinit(compiled);
	return trim(compiled);
}

void cpu_compile_deinit(struct cpu_plan *compiled)
{
	if (!compiled->compiler)
		return;
	cpu_layout_deinit(&compiled->compiler->layout);
	free(compiled->compiler);
	compiled->compiler = NULL;
}
