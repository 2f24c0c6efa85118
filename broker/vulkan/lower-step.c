/* SPDX-License-Identifier: MIT */
/*
 * Steps that lowerers add, and their operands and scratch: see lower-private.h. Lowerers call this
 * file, not the reverse.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "util/error.h"
#include "vulkan/lower-private.h"

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

int lower_add(struct lowering *l)
{
	struct vk_lowered *lowered = l->lowered;
	/* Mostly enough: growing the array would move up to tens of megabytes. */
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
	vk_clear_operands(l->step);
	if (!l->node)
		return 0;
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

	l->work_used += round_up(bytes, PLAN_SCRATCH_ALIGN);
	assert(l->work_used <= l->node->work_bytes);
	if (l->work_used > l->lowered->work_bytes)
		l->lowered->work_bytes = l->work_used;
	return operand;
}
