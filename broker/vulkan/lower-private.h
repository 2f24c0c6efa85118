#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Definitions that the lowerers of the operators share. Private to broker/vulkan; setup thread
 * only, but for the functions that lowerers put into steps.
 *
 * Shapes are first reduced to as few dimensions as possible: dimensions of size 1 vanish, and
 * dimensions that are contiguous in every operand are joined. So the common cases are flat, and the
 * shaders' index arithmetic is short. Grids are folded: a shader computes one workgroup number from
 * x and y, because implementations need not allow more than 65,535 workgroups in a dimension.
 * Batches beyond that in z are looped over in the shader.
 *
 * All numbers fit into 32 bits, because vk_lower_some() rejects tensors of more elements.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "plan/executor.h"
#include "plan/plan.h"
#include "shm/number.h"
#include "util/checked.h"
#include "vulkan/device.h"
#include "vulkan/lower.h"
#include "vulkan/pipeline.h"
#include "vulkan/shaders.h"
#include "vulkan/words.h"

struct lowering {
	const struct plan *plan;
	struct vk_target target;
	const struct node *node;
	/*
	 * The step to fill in: info, fill, perhaps turns and args. Its operands are the node's
	 * first inputs and outputs, in order. The pointer changes when another step is added.
	 */
	struct vk_step *step;
	struct vk_lowered *lowered;
	uint32_t max_steps; /* capacity of lowered->steps */
	uint64_t work_used; /* bytes of the node's own scratch in use */
	/* element type of the node's operands, initial value for its steps */
	enum vk_numbers numbers;

	uint32_t apart; /* activation that must be a step of its own for this node; 0: none */

	uint32_t max_pipelines; /* capacity of lowered->first_uses */
	uint64_t *is_used;      /* bit by pipeline number: in lowered->first_uses */
	uint32_t n_used_words;

	unsigned int stage; /* current stage of vk_lower_some() */
	uint32_t next;      /* next item of the stage */
};

/*
 * A lowerer; each operator has one, in the file of its family. A lowerer is called with one step.
 * It fills the step in and adds steps with lower_add() if the operator needs several; a step sees
 * the results of the steps before it. It removes the step with lower_drop() if the operator needs
 * none.
 * Return: 0; EXECUTOR_E_UNSUPPORTED if the device cannot run the node; -ENOMEM.
 */
typedef int lower_fn(struct lowering *l);

/*
 * The contents of a lowerers' file: its lowerers, and the tables of pipes that they choose from. To
 * add an operator to an existing family, change only the family's file, the shader, and the list of
 * shaders in meson.build.
 */
struct vk_family {
	lower_fn *const *lowerers; /* by kind of operator; NULL: in another family */
	size_t n_lowerers;
	const struct vk_pipes *pipes;
	size_t n_pipes;
};
#define VK_FAMILY(name)                                                                   \
	const struct vk_family vk_family_##name = {lowerers, ARRAY_SIZE(lowerers), pipes, \
						   ARRAY_SIZE(pipes)}
/* @table: a pipe or an array of pipes, which may have gaps. */
#define VK_PIPES(table) VK_CURVED_PIPES(table, 0)
#define VK_CURVED_PIPES(table, curve)                                                           \
	{                                                                                       \
		(const struct vk_pipe *)&(table), sizeof(table) / sizeof(struct vk_pipe), curve \
	}

/*
 * Pipes: a shader, the output tile of a workgroup, and the constants, of which the first is the
 * workgroup's size.
 */
#define VK_INFO(label, code, rows, cols, ...)                                   \
	{                                                                       \
		.name = label, .shader = &vk_shader_##code,                     \
		.n_spec = sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), \
		.spec = {__VA_ARGS__}, .tile_rows = rows, .tile_cols = cols     \
	}
#define VK_PIPE(plain, shared)                                                   \
	{                                                                        \
		{                                                                \
			[VK_VARIANT_PLAIN] = plain, [VK_VARIANT_SHARED] = shared \
		}                                                                \
	}
#define VK_NONE              \
	{                    \
		.name = NULL \
	}
/*
 * One result per invocation; one per workgroup; several vectors of @width elements per invocation.
 */
#define VK_EACH(label, code, ...)                             \
	VK_PIPE(VK_INFO(label, code, 1, 8, 8, ##__VA_ARGS__), \
		VK_INFO(label, code, 1, 64, 64, ##__VA_ARGS__))
#define VK_ROWS(label, code, plain, shared, ...)                  \
	VK_PIPE(VK_INFO(label, code, 1, 1, plain, ##__VA_ARGS__), \
		VK_INFO(label, code, 1, 1, shared, ##__VA_ARGS__))
#define VK_SPREAD(label, code, width, plain, shared, ...)                                \
	VK_PIPE(VK_INFO(label, code, 1, 8 * (plain) * (width), 8, plain, ##__VA_ARGS__), \
		VK_INFO(label, code, 1, 256 * (shared) * (width), 256, shared, ##__VA_ARGS__))

extern const struct vk_family vk_family_matmul, vk_family_elementwise, vk_family_move,
	vk_family_reduce, vk_family_norm, vk_family_attention, vk_family_window, vk_family_quantize,
	vk_family_gather;

enum { VK_CONV_FEW = 4 }; /* fewer output channels per group make a convolution narrow */

/*
 * Pipes by tile shape, see tiles.h; shape 0 is used where nothing was measured or guessed.
 * Products: second index by transposed matrices: 1: A; 2: B; 3: both.
 */
extern const struct vk_pipe vk_matmul_tiles[EXEC_MAX_TILES][4], vk_conv_tiles[EXEC_MAX_TILES];

/* Lower an element-wise node, which may be the activation of another node. */
lower_fn lower_elementwise;
/* Copy all bytes of @tensor. Return: 0; EXECUTOR_E_UNSUPPORTED. */
int lower_bytes(struct lowering *l, const struct tensor *tensor);

static inline void lower_pipe(struct lowering *l, const struct vk_pipe *pipe)
{
	l->step->info = &pipe->of[l->target.variant];
}

/* Choose the shape of tiles for @batch results of @rows times @cols elements. */
static inline unsigned int lower_tile(const struct lowering *l, enum exec_tile_op op, uint64_t rows,
				      uint64_t cols, uint64_t batch)
{
	return l->target.tiles.of[op][exec_tile_class(rows, cols, batch)];
}

/*
 * Lower a Conv whose window is one element, as a product of matrices; in lower-matmul.c.
 * Return: false if the Conv is not such a product.
 */
bool lower_pointwise(struct lowering *l);

/*
 * Set the words of a product of tensors @a and @b; of a convolution with tensor @weights, with
 * groups, without bias. In lower-matmul.c and lower-window.c.
 */
void vk_set_product(const struct vk_step *step, const struct plan *plan, uint32_t count, uint16_t a,
		    uint16_t b, struct vk_params *params);
void vk_set_conv(const struct vk_step *step, const struct plan *plan, uint32_t count,
		 uint16_t weights, struct vk_params *params);
uint64_t vk_turns_conv(const struct vk_step *step, const struct vk_params *params);

/*
 * Set the words of a step's activation, the same for all pipelines of operators that may have one;
 * in lower-elementwise.c.
 */
void vk_set_activation(const struct vk_step *step, struct vk_params *params);
/*
 * Return the curve that an activation's pipeline must be compiled for; 0: the words describe it
 * fully.
 */
uint32_t vk_curve_of(const struct node *activation);

/*
 * Add a step behind the node's other steps, with the node's operands if there is a node, and make
 * it l->step. Return: 0, -ENOMEM.
 */
int lower_add(struct lowering *l);
/* Remove the last step. */
void lower_drop(struct lowering *l);

/*
 * Reserve @bytes of scratch, at max_count, for the node's steps alone. The total of a node must be
 * within node->work_bytes, the result of work() in the operator's row.
 */
struct vk_operand lower_work(struct lowering *l, uint64_t bytes);

static inline const struct shape *vk_shape_of(const struct plan *plan, uint16_t tensor)
{
	return &plan->tensors[tensor].shape;
}

/* Return the number of elements of dimensions [@from, @to). */
static inline uint32_t vk_elems(const struct shape *shape, uint32_t count, unsigned int from,
				unsigned int to)
{
	uint32_t n = 1;

	for (unsigned int i = from; i < to; i++)
		n *= shape_dim(shape, i, count);
	return n;
}

/* Return input @i of the node; PLAN_NO_TENSOR if it is absent. */
static inline uint16_t vk_node_in(const struct node *node, unsigned int i)
{
	return i < node->n_in ? node->in[i] : PLAN_NO_TENSOR;
}

static inline uint16_t vk_node_out(const struct node *node, unsigned int i)
{
	return i < node->n_out ? node->out[i] : PLAN_NO_TENSOR;
}

static inline bool vk_has_operand(const struct vk_step *step, unsigned int i)
{
	return step->operands[i].tensor != PLAN_NO_TENSOR;
}

static inline void vk_clear_operands(struct vk_step *step)
{
	for (unsigned int i = 0; i < PARAM_ADDRESSES; i++)
		step->operands[i] = (struct vk_operand){.tensor = PLAN_NO_TENSOR};
}

static inline uint32_t vk_float_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* Dispatch @n workgroups, folded over x and y, for each of @batch. */
static inline void vk_set_groups(struct vk_params *params, uint32_t n, uint32_t batch)
{
	params->groups[0] = n < VK_MAX_GROUPS ? n : VK_MAX_GROUPS;
	params->groups[1] = div_up(n, VK_MAX_GROUPS);
	params->groups[2] = batch < VK_MAX_GROUPS ? batch : VK_MAX_GROUPS;
	params->groups[3] = 0;
	params->w[ALL_GROUPS] = n;
	params->w[BATCH_BEGIN] = 0;
	params->w[BATCH_END] = batch;
}

/* Compute the strides of @shape, broadcast to @rank dimensions. */
void vk_broadcast_strides(const struct shape *shape, uint32_t count, unsigned int rank,
			  uint64_t strides[RBK_MAX_RANK]);
