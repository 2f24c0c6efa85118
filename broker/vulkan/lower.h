#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * From nodes to dispatches
 *
 * vk_lower_some() turns a plan into steps, some at each call: which pipeline, over which tensors. A
 * step's fill() computes the numbers of its parameter block for a count; it is called on the
 * submitting thread whenever the count changes and must neither fail nor allocate.
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/executor.h"
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

/* address[VK_OUT] and the next are outputs, those before inputs */
enum { VK_OUT = PARAM_OUT };

enum { VK_WORK = 0xfffe }; /* struct vk_operand.tensor: a step's own scratch */

struct vk_operand {
	uint16_t tensor; /* PLAN_NO_TENSOR: none; VK_WORK */
	bool bound;      /* where the task has it, even if the plan has a copy near the device */
	uint64_t offset, bytes; /* VK_WORK: within the slot's scratch */
};

struct vk_step {
	const struct vk_pipe_info *info;
	enum vk_numbers numbers;       /* that the pipeline is for, */
	uint32_t curve;                /* what it has for the activation, see struct vk_pipeline, */
	struct vk_pipeline *pipeline;  /* and the pipeline, once the plan is lowered */
	const struct node *node;       /* NULL: a copy */
	const struct node *activation; /* that it computes as well; NULL: none */
	uint32_t share;                /* of how many steps of its node it is one */
	/* Other steps of its node that are so, too, neither read nor write what it writes. */
	bool is_independent;
	bool checks_indices; /* its shader may set w[ALL_OUT_OF_RANGE], which fill() leaves */
	uint32_t args[4];    /* of whoever made it, for fill() */
	struct vk_operand operands[PARAM_ADDRESSES];
	void (*fill)(const struct vk_step *step, const struct plan *plan, uint32_t count,
		     struct vk_params *params);
	/* Of all loops of one invocation together, at most, with what fill() gave; NULL: few. */
	uint64_t (*turns)(const struct vk_step *step, const struct vk_params *params);
};

struct lowering;

/* A plan's steps, in order. */
struct vk_lowered {
	struct vk_step *steps;
	uint32_t n_steps;
	uint64_t work_bytes; /* what they need in the slot's scratch behind the plan's own */
	bool checks_indices; /* of any step */
	/* By pipeline that they need, each once: the first step that does. */
	uint32_t *first_uses;
	uint32_t n_pipelines;
};

/* Where a plan's own scratch ends and the steps' begins. */
static inline uint64_t vk_work_offset(const struct plan *plan)
{
	return (plan->scratch_bytes + PLAN_SCRATCH_ALIGN - 1) & ~(uint64_t)(PLAN_SCRATCH_ALIGN - 1);
}

/* The properties of a device that vk_lower_some() needs. */
struct vk_target {
	int variant;              /* enum vk_variant */
	struct exec_tiles tiles;  /* which shapes it takes, see tiles.h */
	bool bounces;             /* bound tensors are copied in at the beginning, out at the end */
	bool has_half, has_bytes; /* storage of 16 and of 8 bits */
	bool has_doubles;         /* float64 */
	uint64_t max_turns;       /* of all loops of one invocation; 0: any number */
	struct vk_pipelines *pipelines; /* where those of the steps are found; borrowed */
};

/*
 * Begins with an empty *@to, which is freed by vk_lowered_deinit() also if it is half filled. @plan
 * and @to are borrowed. Return: NULL if out of memory.
 */
struct lowering *vk_lowering_new(const struct plan *plan, const struct vk_target *target,
				 struct vk_lowered *to);
/*
 * Adds the steps of some more nodes. Return: 0, all are there; EXECUTOR_E_MORE;
 * EXECUTOR_E_UNSUPPORTED: the device cannot run the plan; -ENOMEM.
 */
int vk_lower_some(struct lowering *lowering);
/* Return: NULL. */
struct lowering *vk_lowering_free(struct lowering *lowering);
void vk_lowered_deinit(struct vk_lowered *lowered);

static inline uint32_t vk_divide_up(uint64_t value, uint32_t by)
{
	return (uint32_t)((value + by - 1) / by);
}

/* A table of pipes. */
struct vk_pipes {
	const struct vk_pipe *pipes;
	size_t n;
	uint32_t curve; /* the activation that takes the most registers along with them; 0: none can
			 */
};

/* All tables of all pipes, from 0 on. Return: NULL: there is no table @i. */
const struct vk_pipes *vk_pipes_at(unsigned int i);

/* For whoever has no plan: copies, and products for the benchmark. */
extern const struct vk_pipe vk_pipe_copy, vk_pipe_copy_bytes, vk_pipe_naive_matmul;

/* A bare product for the benchmark: fills groups and words, not addresses. */
void vk_fill_bare_matmul(const struct vk_pipe_info *info, uint32_t m, uint32_t n, uint32_t k,
			 struct vk_params *params);
