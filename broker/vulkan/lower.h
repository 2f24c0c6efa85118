#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Lowering: from nodes to dispatches
 *
 * vk_lower_some() turns a plan into steps, some per call. A step is a pipeline and the tensors that
 * it reads and writes. Its fill() computes the numbers of its parameter block for a count. fill()
 * is called on the submitting thread whenever the count changes, and must neither fail nor
 * allocate.
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/executor.h"
#include "plan/plan.h"
#include "shaders/params.glsl"
#include "shm/number.h"
#include "vulkan/pipeline.h"

/* The parameter block that a shader reads: shaders/params.glsl explains the words. */
struct vk_params {
	/* x, y, z as in VkDispatchIndirectCommand; [3]: first workgroup over x and y */
	uint32_t groups[4];
	uint64_t address[PARAM_ADDRESSES];
	uint32_t w[PARAM_WORDS];
};
_Static_assert(sizeof(struct vk_params) == 256, "shared with shaders/common.glsl");

/* Index in address[] of the first output; inputs come before it. */
enum { VK_OUT = PARAM_OUT };

enum { VK_WORK = 0xfffe }; /* struct vk_operand.tensor: the step's own scratch */

struct vk_operand {
	uint16_t tensor; /* index in the plan; PLAN_NO_TENSOR: none; VK_WORK */
	bool bound;      /* the task's own tensor, even if the plan has a bounce copy of it */
	uint64_t offset, bytes; /* VK_WORK only: range within the slot's scratch */
};

struct vk_step {
	const struct vk_pipe_info *info;
	enum vk_numbers numbers;       /* element type that the pipeline is compiled for */
	uint32_t curve;                /* curve of the activation, see struct vk_pipeline */
	struct vk_pipeline *pipeline;  /* NULL until the plan is lowered */
	const struct node *node;       /* NULL: the step is a copy */
	const struct node *activation; /* activation node that the step also computes; NULL: none */
	uint32_t share;                /* number of steps of its node */
	/* Independent steps of a node neither read nor write each other's outputs. */
	bool is_independent;
	/* the shader may set w[ALL_OUT_OF_RANGE], which fill() does not touch */
	bool checks_indices;
	uint32_t args[4]; /* arguments of the lowerer to fill() */
	struct vk_operand operands[PARAM_ADDRESSES];
	void (*fill)(const struct vk_step *step, const struct plan *plan, uint32_t count,
		     struct vk_params *params);
	/*
	 * Return the maximum number of turns of all loops of one invocation together, for a block
	 * that fill() has filled. NULL: few turns.
	 */
	uint64_t (*turns)(const struct vk_step *step, const struct vk_params *params);
};

struct lowering;

/* A plan's steps, in order. */
struct vk_lowered {
	struct vk_step *steps;
	uint32_t n_steps;
	uint64_t work_bytes; /* scratch that steps need behind the plan's own, in a slot */
	bool checks_indices; /* true if any step checks indices */
	/* The first step that uses each pipeline; each pipeline occurs once. */
	uint32_t *first_uses;
	uint32_t n_pipelines;
};

/* Return the offset at which the plan's own scratch ends and the steps' scratch begins. */
static inline uint64_t vk_work_offset(const struct plan *plan)
{
	return round_up(plan->scratch_bytes, PLAN_SCRATCH_ALIGN);
}

/* The properties of a device that vk_lower_some() needs. */
struct vk_target {
	int variant;             /* enum vk_variant */
	struct exec_tiles tiles; /* tile shapes to use, see tiles.h */
	bool bounces; /* bound tensors are copied in at the beginning and out at the end */
	bool has_half, has_bytes; /* storage of 16-bit and 8-bit elements */
	bool has_doubles;         /* float64 */
	uint64_t max_turns;       /* maximum turns of all loops of one invocation; 0: no limit */
	struct vk_pipelines *pipelines; /* the device's pipelines; borrowed */
};

/*
 * Begin lowering @plan into @to, which is emptied first. The caller frees *@to with
 * vk_lowered_deinit(), even if it is half filled. @plan and @to are borrowed.
 * Return: NULL if out of memory.
 */
struct lowering *vk_lowering_new(const struct plan *plan, const struct vk_target *target,
				 struct vk_lowered *to);
/*
 * Add the steps of some more nodes.
 * Return: 0 if all are added; EXECUTOR_E_MORE; EXECUTOR_E_UNSUPPORTED if the device cannot run the
 * plan; -ENOMEM.
 */
int vk_lower_some(struct lowering *lowering);
/* Return: NULL. */
struct lowering *vk_lowering_free(struct lowering *lowering);
void vk_lowered_deinit(struct vk_lowered *lowered);

/* A table of pipes. */
struct vk_pipes {
	const struct vk_pipe *pipes;
	size_t n;
	/* activation that needs the most registers in these pipes; 0: none can compute one */
	uint32_t curve;
};

/* Return table @i of all tables of pipes, from 0 on; NULL if there is no table @i. */
const struct vk_pipes *vk_pipes_at(unsigned int i);

/* Pipes for use without a plan: copies, and products for the benchmark. */
extern const struct vk_pipe vk_pipe_copy, vk_pipe_copy_bytes, vk_pipe_naive_matmul;

/* Fill in a bare product for the benchmark: groups and words, not addresses. */
void vk_fill_bare_matmul(const struct vk_pipe_info *info, uint32_t m, uint32_t n, uint32_t k,
			 struct vk_params *params);
