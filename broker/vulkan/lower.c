/* SPDX-License-Identifier: MIT */
/*
 * From nodes to dispatches: see lower.h, and lowering.h for what the operators' files share.
 *
 * lavapipe of Mesa 22 silently ends all loops of an invocation when they have taken 65,535 turns
 * together (the counter is one per invocation, so nesting does not help). Steps say how many turns
 * their loops in shaders/ take; a node that needs more is refused on a software device, whose
 * results would be wrong.
 */
#include "vulkan/lower.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "shm/dtype.h"
#include "util/checked.h"
#include "util/error.h"
#include "vulkan/lowering.h"
#include "vulkan/tiles.h"

/* Some shaders have a workgroup for each element, in two dimensions. */
_Static_assert((uint64_t)VK_MAX_GROUPS *VK_MAX_GROUPS == RBK_MAX_GPU_ELEMENTS, "abi.h");

/* Of steps without turns(): a fixed number of elements, and at most eight dimensions for each. */
enum { FEW_TURNS = 1024 };

/* Items and steps of one vk_lower_some(), and a node more at most: less than a millisecond. */
enum { PART_STEPS = 2048 };

void vk_broadcast_strides(const struct shape *shape, uint32_t count, unsigned int rank,
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

/* Steps */

static int add_step(struct lowering *l)
{
	struct vk_lowered *lowered = l->lowered;
	/* Mostly enough: growing moves what may be tens of megabytes. */
	const uint32_t likely = l->plan->n_nodes + l->plan->n_pieces / 2 + 1;
	const uint32_t wanted = l->max_steps ? 2 * l->max_steps : likely;
	struct vk_step *larger;

	if (lowered->n_steps == l->max_steps) {
		larger = reallocarray(lowered->steps, wanted, sizeof(*larger));
		if (!larger)
			return error_origin(-ENOMEM);
		lowered->steps = larger;
		l->max_steps = wanted;
	}
	l->step = &lowered->steps[lowered->n_steps++];
	*l->step = (struct vk_step){.node = l->node, .share = 1};
	for (unsigned int i = 0; i < PARAM_ADDRESSES; i++)
		l->step->operands[i].tensor = PLAN_NO_TENSOR;
	return 0;
}

int lower_add(struct lowering *l)
{
	int r = add_step(l);

	if (r)
		return error_fold(r);
	for (unsigned int i = 0; i < l->node->n_in && i < VK_OUT; i++)
		l->step->operands[i].tensor = l->node->in[i];
	for (unsigned int i = 0; i < l->node->n_out && VK_OUT + i < PARAM_ADDRESSES; i++)
		l->step->operands[VK_OUT + i].tensor = l->node->out[i];
	l->step->numbers = l->numbers;
	return 0;
}

void lower_drop(struct lowering *l)
{
	l->lowered->n_steps--;
	l->step = NULL;
}

struct vk_operand lower_work(struct lowering *l, uint64_t bytes)
{
	const struct vk_operand operand = {
		.tensor = VK_WORK,
		.offset = vk_work_offset(l->plan) + l->work_used,
		.bytes = bytes,
	};

	l->work_used += (bytes + PLAN_SCRATCH_ALIGN - 1) & ~(uint64_t)(PLAN_SCRATCH_ALIGN - 1);
	assert(l->work_used <= l->node->work_bytes);
	if (l->work_used > l->lowered->work_bytes)
		l->lowered->work_bytes = l->work_used;
	return operand;
}

/* Copies */

static void fill_copy(const struct vk_step *step, const struct plan *plan, uint32_t count,
		      struct vk_params *params)
{
	const uint64_t bytes = tensor_bytes(&plan->tensors[step->operands[0].tensor], count);

	params->w[COPY_WORDS] = (uint32_t)(bytes / 4);
	params->w[COPY_REST] = bytes % 4;
	params->w[COPY_GROUPS] = vk_divide_up((bytes + 3) / 4, step->info->tile_cols);
	vk_set_groups(params, params->w[COPY_GROUPS], 1);
}

/* Of all bytes of @tensor. Return: 0; EXECUTOR_E_UNSUPPORTED. */
static int set_copy(struct lowering *l, const struct tensor *tensor)
{
	l->step->pipe = VK_PIPE_COPY;
	l->step->numbers = VK_FLOATS;
	l->step->fill = fill_copy;
	if ((tensor->fixed_bytes | tensor->row_bytes) % 4 == 0)
		return 0;
	l->step->pipe = VK_PIPE_COPY_BYTES;
	return l->target.has_bytes ? 0 : EXECUTOR_E_UNSUPPORTED;
}

static int lower_reshape(struct lowering *l)
{
	const struct tensor *tensors = l->plan->tensors;

	if (tensors[l->node->in[0]].root == tensors[l->node->out[0]].root) {
		lower_drop(l);
		return 0;
	}
	return set_copy(l, &tensors[l->node->in[0]]);
}

/* A copy of tensor @i between where the task has it and the device, if it needs one. */
static int lower_copy(struct lowering *l, uint32_t i, bool inwards)
{
	const uint8_t kind = l->plan->tensors[i].kind;
	int r;

	if (kind != RBK_TENSOR_STATE && kind != (inwards ? RBK_TENSOR_INPUT : RBK_TENSOR_OUTPUT))
		return 0;
	l->node = NULL;
	r = add_step(l);
	if (r)
		return error_fold(r);
	r = set_copy(l, &l->plan->tensors[i]);
	if (r)
		return r;
	l->step->operands[0] = (struct vk_operand){.tensor = (uint16_t)i, .bound = inwards};
	l->step->operands[VK_OUT] = (struct vk_operand){.tensor = (uint16_t)i, .bound = !inwards};
	return 0;
}

static int lower_copy_in(struct lowering *l, uint32_t i)
{
	return lower_copy(l, i, true);
}

static int lower_copy_out(struct lowering *l, uint32_t i)
{
	return lower_copy(l, i, false);
}

/* Nodes */

#define ELEMENTWISE(KIND, row) [OP_##KIND] = lower_elementwise

/* clang-format off */
static lower_fn *const lowerers[] = {
	[OP_MATMUL] = lower_matmul,
	[OP_GEMM] = lower_gemm,
	OP_ELEMENTWISE(ELEMENTWISE),
	[OP_SOFTMAX] = lower_softmax,
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
	[OP_LOG_SOFTMAX] = lower_softmax,
	[OP_LAYER_NORM] = lower_layer_norm,
	[OP_RMS_NORM] = lower_layer_norm,
	[OP_INSTANCE_NORM] = lower_group_norm,
	[OP_GROUP_NORM] = lower_group_norm,
	[OP_BATCH_NORM] = lower_batch_norm,
	[OP_LP_NORM] = lower_lp_norm,
	[OP_ROTARY] = lower_rotary,
	[OP_ATTENTION] = lower_attention,
	[OP_TRANSPOSE] = lower_moves,
	[OP_SLICE] = lower_moves,
	[OP_CONCAT] = lower_moves,
	[OP_SPLIT] = lower_moves,
	[OP_EXPAND] = lower_moves,
	[OP_TILE] = lower_moves,
	[OP_PAD] = lower_moves,
	[OP_RESHAPE] = lower_reshape,
	[OP_CONV] = lower_conv,
	[OP_MAX_POOL] = lower_pool,
	[OP_AVERAGE_POOL] = lower_pool,
	[OP_LP_POOL] = lower_pool,
	[OP_CONV_TRANSPOSE] = lower_conv_transpose,
	[OP_TOP_K] = lower_top_k,
	[OP_QUANTIZE_LINEAR] = lower_quantize,
	[OP_DEQUANTIZE_LINEAR] = lower_quantize,
	[OP_DYNAMIC_QUANTIZE_LINEAR] = lower_dynamic_quantize,
	[OP_MATMUL_INTEGER] = lower_matmul_integer,
	[OP_QLINEAR_MATMUL] = lower_matmul_integer,
	[OP_CONV_INTEGER] = lower_conv_integer,
	[OP_QLINEAR_CONV] = lower_conv_integer,
	[OP_MATMUL_NBITS] = lower_nbits,
	[OP_GATHER] = lower_gather,
	[OP_GATHER_ELEMENTS] = lower_gather_elements,
	[OP_GATHER_ND] = lower_gather,
	[OP_SCATTER_ELEMENTS] = lower_scatter,
	[OP_SCATTER_ND] = lower_scatter,
	[OP_ONE_HOT] = lower_one_hot,
	[OP_TRILU] = lower_trilu,
};
/* clang-format on */
_Static_assert(sizeof(lowerers) / sizeof(lowerers[0]) == OP_KIND_COUNT, "one per operator");

/* Those of a type of their own decide. */
static enum vk_numbers numbers_of(const struct plan *plan, const struct node *node)
{
	enum vk_numbers numbers = VK_FLOATS;

	for (unsigned int i = 0; i < (unsigned int)node->n_in + node->n_out; i++) {
		const uint16_t t = i < node->n_in ? node->in[i] : node->out[i - node->n_in];

		if (t != PLAN_NO_TENSOR && plan->tensors[t].dtype == RBK_DTYPE_F64)
			return VK_DOUBLES;
		if (t != PLAN_NO_TENSOR && plan->tensors[t].dtype == RBK_DTYPE_F16)
			numbers = VK_HALVES;
	}
	return numbers;
}

/* Along with the last step, or as one of its own in place. */
static int lower_activation(struct lowering *l, const struct node *activation)
{
	const uint32_t curve = vk_curve_of(activation);
	int r;

	/* That takes more registers beside a convolution's than leave five waves of AMD's. */
	if (curve == MAP_GELU && l->step->pipe == VK_PIPE_CONV) {
		l->node = activation;
		r = lower_add(l);
		return r ? error_fold(r) : lower_elementwise(l);
	}
	l->step->activation = activation;
	l->step->curve = curve;
	return 0;
}

static int lower_node(struct lowering *l, uint32_t index)
{
	const struct node *node = &l->plan->nodes[index];
	const uint32_t first = l->lowered->n_steps;
	int r;

	if (node->computed_by != PLAN_NO_NODE)
		return 0;
	l->node = node;
	l->work_used = 0;
	l->numbers = numbers_of(l->plan, node);
	r = lower_add(l);
	if (!r)
		r = lowerers[node->op->kind](l);
	if (!r && node->activation != PLAN_NO_NODE)
		r = lower_activation(l, &l->plan->nodes[node->activation]);
	if (r)
		return r < 0 ? error_fold(r) : r;
	for (uint32_t i = first; i < l->lowered->n_steps; i++)
		l->lowered->steps[i].share = l->lowered->n_steps - first;
	return 0;
}

static int check_tensor(struct lowering *l, uint32_t i)
{
	const struct tensor *tensor = &l->plan->tensors[i];
	const uint64_t element = dtype_bytes(tensor->dtype);
	const struct vk_target *target = &l->target;

	if (tensor->max_bytes / element > RBK_MAX_GPU_ELEMENTS ||
	    (element == 2 && !target->has_half) || (element == 1 && !target->has_bytes) ||
	    (tensor->dtype == RBK_DTYPE_F64 && !target->has_doubles))
		return EXECUTOR_E_UNSUPPORTED;
	return 0;
}

/* Can the device take as many turns as @step may, at max_count? */
static bool turns_fit(const struct vk_step *step, const struct plan *plan, uint64_t max_turns)
{
	struct vk_params params = {0};
	uint64_t turns = FEW_TURNS;

	if (max_turns == 0)
		return true;
	step->fill(step, plan, plan->max_count, &params);
	if (step->turns)
		turns = step->turns(step, &params);
	return turns <= max_turns;
}

/* By how large its result is, at max_count. */
static void choose_tile(struct vk_step *step, const struct plan *plan,
			const struct vk_target *target)
{
	const bool is_conv = step->pipe >= VK_PIPE_CONV;
	struct vk_params params = {0};
	const uint32_t *w = params.w;

	step->fill(step, plan, plan->max_count, &params);
	if (!is_conv && w[MATMUL_M] == 1 && vk_pipe_info(VK_PIPE_MATMUL_ROW, target->variant)) {
		step->pipe += VK_PIPE_MATMUL_ROW - VK_PIPE_MATMUL;
		step->info = vk_pipe_info(step->pipe, target->variant);
		return;
	}
	step->pipe = vk_tiles_pipe(
		&target->tiles, step->pipe, step->numbers == VK_HALVES,
		is_conv ? w[CONV_OUT_CHANNELS] : w[MATMUL_M],
		is_conv ? (uint64_t)w[WINDOW_OUT_H] * w[WINDOW_OUT_W] : w[MATMUL_N], w[BATCH_END]);
	step->info = vk_pipe_info(step->pipe, target->variant);
}

static uint32_t pipeline_number(const struct vk_step *step)
{
	const uint32_t curve = step->curve ? step->curve - VK_FIRST_CURVE + 1 : 0;

	return ((uint32_t)step->pipe * VK_N_NUMBERS + step->numbers) * (VK_N_CURVES + 1) + curve;
}

/* Return: 0; -ENOMEM. */
static int use_pipeline(struct lowering *l, uint32_t i)
{
	const uint32_t number = pipeline_number(&l->lowered->steps[i]);
	const uint32_t wanted = l->max_pipelines ? 2 * l->max_pipelines : 4;
	uint32_t *larger;

	assert(number < LOWERING_PIPELINES);
	if (l->is_used[number / 64] >> number % 64 & 1)
		return 0;
	if (l->lowered->n_pipelines == l->max_pipelines) {
		larger = reallocarray(l->lowered->first_uses, wanted, sizeof(*larger));
		if (!larger)
			return error_origin(-ENOMEM);
		l->lowered->first_uses = larger;
		l->max_pipelines = wanted;
	}
	l->is_used[number / 64] |= 1ull << number % 64;
	l->lowered->first_uses[l->lowered->n_pipelines++] = i;
	return 0;
}

static int end_step(struct lowering *l, uint32_t i)
{
	const struct plan *plan = l->plan;
	struct vk_step *step = &l->lowered->steps[i];

	/* From here on it is where the bytes are that counts. */
	for (unsigned int k = 0; k < PARAM_ADDRESSES; k++)
		if (step->operands[k].tensor < plan->n_tensors)
			step->operands[k].tensor = plan->tensors[step->operands[k].tensor].root;
	step->info = vk_pipe_info(step->pipe, l->target.variant);
	if (step->pipe < VK_PIPE_MATMUL_ROW)
		choose_tile(step, plan, &l->target);
	if (!step->info || !step->info->shader->code[step->numbers].words ||
	    !turns_fit(step, plan, l->target.max_turns))
		return EXECUTOR_E_UNSUPPORTED;
	l->lowered->checks_indices |= step->checks_indices;
	return use_pipeline(l, i);
}

static uint32_t by_tensor(const struct lowering *l)
{
	return l->plan->n_tensors;
}

static uint32_t by_copy(const struct lowering *l)
{
	return l->target.bounces ? l->plan->n_tensors : 0;
}

static uint32_t by_node(const struct lowering *l)
{
	return l->plan->n_nodes;
}

static uint32_t by_step(const struct lowering *l)
{
	return l->lowered->n_steps;
}

/* The stages of lowering, in order: each calls item() for every index below n_items(). */
static const struct {
	uint32_t (*n_items)(const struct lowering *l);
	int (*item)(struct lowering *l, uint32_t index);
} stages[] = {
	{by_tensor, check_tensor}, {by_copy, lower_copy_in}, {by_node, lower_node},
	{by_copy, lower_copy_out}, {by_step, end_step},
};

struct lowering *vk_lowering_new(const struct plan *plan, const struct vk_target *target,
				 struct vk_lowered *to)
{
	struct lowering *l = calloc(1, sizeof(*l));

	*to = (struct vk_lowered){0};
	if (!l)
		return NULL;
	l->plan = plan;
	l->target = *target;
	l->lowered = to;
	return l;
}

/* Gives back the room for steps that was not needed: a plan is charged for those that it has. */
static int trim(struct lowering *l)
{
	struct vk_lowered *lowered = l->lowered;
	struct vk_step *smaller;

	/* Room for one is kept: reallocarray() to no bytes may free the array and return NULL. */
	l->max_steps = lowered->n_steps ? lowered->n_steps : 1;
	smaller = reallocarray(lowered->steps, l->max_steps, sizeof(*smaller));
	if (!smaller)
		return error_origin(-ENOMEM);
	lowered->steps = smaller;
	return 0;
}

int vk_lower_some(struct lowering *l)
{
	const uint32_t first_step = l->lowered->n_steps;
	uint32_t n = 0;
	int r;

	if (!(l->plan->ops_devices & OP_ON_VULKAN))
		return EXECUTOR_E_UNSUPPORTED;
	for (; l->stage < ARRAY_SIZE(stages); l->stage++) {
		while (l->next < stages[l->stage].n_items(l)) {
			if (n++ + l->lowered->n_steps - first_step >= PART_STEPS)
				return EXECUTOR_E_MORE;
			r = stages[l->stage].item(l, l->next++);
			if (r)
				return r < 0 ? error_fold(r) : r;
		}
		l->next = 0;
	}
	return trim(l);
}

struct lowering *vk_lowering_free(struct lowering *l)
{
	free(l);
	return NULL;
}

void vk_lowered_deinit(struct vk_lowered *lowered)
{
	free(lowered->steps);
	free(lowered->first_uses);
	*lowered = (struct vk_lowered){0};
}
