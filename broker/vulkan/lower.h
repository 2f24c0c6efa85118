#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * From nodes to dispatches
 *
 * vk_lower() turns a plan into steps: which pipeline, over which tensors. A step's fill() computes
 * the numbers of its parameter block for a count; it is called on the submitting thread whenever
 * the count changes and must neither fail nor allocate.
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"
#include "shaders/params.glsl"
#include "vulkan/pipeline.h"

/* What a shader sees: shaders/params.glsl says what the words mean. */
struct vk_params {
	uint32_t groups[4]; /* x, y, z as in VkDispatchIndirectCommand; the first over x and y */
	uint64_t address[PARAM_ADDRESSES];
	uint32_t w[PARAM_WORDS];
};
_Static_assert(sizeof(struct vk_params) == 256, "shared with shaders/common.glsl");

enum { VK_OUT = 3 }; /* address[VK_OUT] and the next are outputs, those before inputs */

struct vk_operand {
	uint16_t tensor; /* PLAN_NO_TENSOR: none */
	bool bound;      /* where the task has it, even if the plan has a copy near the device */
};

struct vk_step {
	enum vk_pipe pipe;
	const struct vk_pipe_info *info;
	const struct node *node; /* NULL: a copy */
	struct vk_operand operands[PARAM_ADDRESSES];
	void (*fill)(const struct vk_step *step, const struct plan *plan, uint32_t count,
		     struct vk_params *params);
};

/* How many steps a plan can have at most. */
static inline uint32_t vk_lower_max_steps(const struct plan *plan)
{
	return plan->n_nodes + 2u * plan->n_bindings;
}

/* What vk_lower() needs to know of a device. */
struct vk_target {
	int variant;        /* enum vk_variant */
	bool bounces;       /* bound tensors are copied in at the beginning, out at the end */
	uint64_t max_turns; /* of all loops of one invocation; 0: any number */
};

/*
 * @steps has room for vk_lower_max_steps().
 * Return: true; false if the device cannot run the plan.
 */
bool vk_lower(const struct plan *plan, const struct vk_target *target, struct vk_step *steps,
	      uint32_t *ret_n_steps);

/* A bare product for the benchmark: fills groups and words, not addresses. */
void vk_fill_bare_matmul(const struct vk_pipe_info *info, uint32_t m, uint32_t n, uint32_t k,
			 struct vk_params *params);
