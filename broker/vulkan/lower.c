/* SPDX-License-Identifier: MIT */
/*
 * Lowering: from nodes to dispatches. See lower.h, and lower-private.h for what the operators'
 * files share.
 *
 * lavapipe of Mesa 22 silently ends all loops of an invocation after 65,535 turns together (one
 * counter per invocation, so nesting does not help). Steps tell how many turns their loops in
 * shaders/ take. A node that needs more is rejected on a software device, because its results would
 * be wrong.
 */
#include "vulkan/lower.h"

#include <errno.h>
#include <stdlib.h>

#include "shm/dtype.h"
#include "util/checked.h"
#include "util/error.h"
#include "vulkan/lower-private.h"

/* Some shaders use a workgroup for each element, in two dimensions. */
_Static_assert((uint64_t)VK_MAX_GROUPS *VK_MAX_GROUPS == RBK_MAX_GPU_ELEMENTS, "abi.h");

/*
 * Assumed turns of steps without turns(): a fixed number of elements, of at most eight dimensions
 * each.
 */
enum { FEW_TURNS = 1024 };

/* Maximum items and steps of one vk_lower_some(), plus one node: less than a millisecond. */
enum { PART_STEPS = 2048 };

/* Copies */

/* Add a copy of tensor @i between the task's memory and the device, if the tensor needs one. */
static int lower_copy(struct lowering *l, uint32_t i, bool inwards)
{
	const uint8_t kind = l->plan->tensors[i].kind;
	int r;

	if (kind != RBK_TENSOR_STATE && kind != (inwards ? RBK_TENSOR_INPUT : RBK_TENSOR_OUTPUT))
		return 0;
	l->node = NULL;
	r = lower_add(l);
	if (r)
		return error_fold(r);
	r = lower_bytes(l, &l->plan->tensors[i]);
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

static const struct vk_family *const families[] = {
	&vk_family_matmul, &vk_family_elementwise, &vk_family_move,
	&vk_family_reduce, &vk_family_norm,        &vk_family_attention,
	&vk_family_window, &vk_family_quantize,    &vk_family_gather,
};

const struct vk_pipes *vk_pipes_at(unsigned int i)
{
	for (unsigned int k = 0; k < ARRAY_SIZE(families); i -= families[k++]->n_pipes)
		if (i < families[k]->n_pipes)
			return &families[k]->pipes[i];
	return NULL;
}

/* Return: NULL if there is none. */
static lower_fn *lowerer_of(uint8_t kind)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(families); i++)
		if (kind < families[i]->n_lowerers && families[i]->lowerers[kind])
			return families[i]->lowerers[kind];
	return NULL;
}

/* Return float64 if a tensor of the node has it, else float16 if one has it, else float32. */
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

/* Compute the activation along with the last step, or in a step of its own, in place. */
static int lower_activation(struct lowering *l, const struct node *activation)
{
	const uint32_t curve = vk_curve_of(activation);
	int r;

	if (curve && curve == l->apart) {
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
	lower_fn *lower = lowerer_of(node->op->kind);
	const uint32_t first = l->lowered->n_steps;
	int r;

	if (node->computed_by != PLAN_NO_NODE)
		return 0;
	l->node = node;
	l->work_used = 0;
	l->apart = 0;
	l->numbers = numbers_of(l->plan, node);
	r = lower_add(l);
	if (!r)
		r = lower ? lower(l) : EXECUTOR_E_UNSUPPORTED;
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

/* Return true if the device can take as many turns as @step may need at max_count. */
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

/* Note step @i as the first use of its pipeline, if it is. Return: 0; -ENOMEM. */
static int use_pipeline(struct lowering *l, uint32_t i)
{
	const uint32_t number = l->lowered->steps[i].pipeline->number;
	const uint32_t wanted = l->max_pipelines ? 2 * l->max_pipelines : 4;
	uint32_t *larger;
	uint64_t *words;

	if (number / 64 >= l->n_used_words) {
		words = reallocarray(l->is_used, number / 64 + 1, sizeof(*words));
		if (!words)
			return error_origin(-ENOMEM);
		for (l->is_used = words; l->n_used_words <= number / 64; l->n_used_words++)
			words[l->n_used_words] = 0;
	}
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

	/* From here on, operands name the tensors whose memory they use. */
	for (unsigned int k = 0; k < PARAM_ADDRESSES; k++)
		if (step->operands[k].tensor < plan->n_tensors)
			step->operands[k].tensor = plan->tensors[step->operands[k].tensor].root;
	if (!step->info->shader || !step->info->shader->code[step->numbers].words ||
	    !turns_fit(step, plan, l->target.max_turns))
		return EXECUTOR_E_UNSUPPORTED;
	l->lowered->checks_indices |= step->checks_indices;
	/* Neighbouring steps often share a pipeline: skip the search. */
	if (i > 0 && step[-1].info == step->info && step[-1].numbers == step->numbers &&
	    step[-1].curve == step->curve) {
		step->pipeline = step[-1].pipeline;
		return 0;
	}
	step->pipeline =
		vk_pipeline_find(l->target.pipelines, step->info, step->numbers, step->curve);
	if (!step->pipeline)
		return error_origin(-ENOMEM);
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

/* Free unused capacity for steps: a plan is charged for the steps that it has. */
static int trim(struct lowering *l)
{
	struct vk_lowered *lowered = l->lowered;
	struct vk_step *smaller;

	/* Keep room for one: reallocarray() to no bytes may free the array and return NULL. */
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
	if (l)
		free(l->is_used);
	free(l);
	return NULL;
}

void vk_lowered_deinit(struct vk_lowered *lowered)
{
	free(lowered->steps);
	free(lowered->first_uses);
	*lowered = (struct vk_lowered){0};
}
