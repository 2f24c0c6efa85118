#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What the lowerers of the operators share. Private to broker/vulkan; setup thread only, but for
 * the functions that they put into steps.
 *
 * Shapes are turned into as few dimensions as possible first (dimensions of size 1 vanish, those
 * that lie alike in every operand become one), so that the common cases are flat and the
 * shaders' index arithmetic is short. Grids are folded: a shader computes one workgroup number
 * from x and y, because no implementation need allow more than 65,535 in a dimension; batches
 * that exceed that in z are looped over in the shader.
 *
 * All numbers fit into 32 bits because vk_lower_some() refuses tensors of more elements.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "plan/executor.h"
#include "plan/plan.h"
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
	 * To be filled: info, fill, perhaps turns and args. Operands are the node's first inputs
	 * and outputs in order. Moves when another step is added.
	 */
	struct vk_step *step;
	struct vk_lowered *lowered;
	uint32_t max_steps;      /* that there is room for */
	uint64_t work_used;      /* of the node's own scratch */
	enum vk_numbers numbers; /* of the node's operands: what steps begin with */

	uint32_t apart; /* the function that no step of the node computes along; 0: none */

	uint32_t max_pipelines; /* that there is room for in lowered->first_uses */
	uint64_t *is_used;      /* by number of a pipeline, in bits: there is a first use */
	uint32_t n_used_words;

	unsigned int stage; /* of vk_lower_some(), */
	uint32_t next;      /* and which of its items is the next */
};

/*
 * The lowerers, one per operator, each in the file of its family. Called with one step, they fill
 * it, add others with lower_add() where an operator takes several, which see the results of those
 * before them, or take it away with lower_drop().
 * Return: 0; EXECUTOR_E_UNSUPPORTED: the device cannot run the node; -ENOMEM.
 */
typedef int lower_fn(struct lowering *l);

/*
 * The contents of a file: its lowerers, and tables of the pipes that they choose from. An operator
 * of a family that is there is added in its file alone, beside its shader, which meson.build lists.
 */
struct vk_family {
	lower_fn *const *lowerers; /* by kind of operator; NULL: that is of another family */
	size_t n_lowerers;
	const struct vk_pipes *pipes;
	size_t n_pipes;
};
#define VK_FAMILY(name)                                                                   \
	const struct vk_family vk_family_##name = {lowerers, ARRAY_SIZE(lowerers), pipes, \
						   ARRAY_SIZE(pipes)}
/* @table: a pipe or an array of them, which may have gaps. */
#define VK_PIPES(table) VK_CURVED_PIPES(table, 0)
#define VK_CURVED_PIPES(table, curve)                                                           \
	{                                                                                       \
		(const struct vk_pipe *)&(table), sizeof(table) / sizeof(struct vk_pipe), curve \
	}

/*
 * Pipes: a shader, what a workgroup of it computes, and its constants, the first of which is the
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
/* One result per invocation; one per workgroup; some vectors of @width elements per invocation. */
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

enum { VK_CONV_FEW = 4 }; /* output channels per group: with fewer, a convolution is narrow */

/*
 * By shape of tiles, of which the first is for what was not measured: see tiles.h. Of products also
 * by which of the matrices is transposed: 1, A; 2, B; 3, both.
 */
extern const struct vk_pipe vk_matmul_tiles[EXEC_MAX_TILES][4], vk_conv_tiles[EXEC_MAX_TILES];

/* The step that works element by element: of its node, which may be another's activation. */
lower_fn lower_elementwise;
/* A copy of all bytes of @tensor. Return: 0; EXECUTOR_E_UNSUPPORTED. */
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
 * A Conv whose window is one element, as a product of matrices; in lower-matmul.c.
 * Return: false: it is none.
 */
bool lower_pointwise(struct lowering *l);

/*
 * The words of a product of tensors @a and @b, and of a convolution with tensor @weights without
 * bias; with groups. In lower-matmul.c and lower-window.c.
 */
void vk_set_product(const struct vk_step *step, const struct plan *plan, uint32_t count, uint16_t a,
		    uint16_t b, struct vk_params *params);
void vk_set_conv(const struct vk_step *step, const struct plan *plan, uint32_t count,
		 uint16_t weights, struct vk_params *params);
uint64_t vk_turns_conv(const struct vk_step *step, const struct vk_params *params);

/*
 * The words of a step's activation, for all pipelines of the operators that may have one; in
 * lower-elementwise.c.
 */
void vk_set_activation(const struct vk_step *step, struct vk_params *params);
/* The function that an activation's pipeline is to be compiled for; 0: its words say it all. */
uint32_t vk_curve_of(const struct node *activation);

/*
 * Adds a step behind those that the node has, with the node's operands, if there is a node; l->step
 * is the new one from now on. Return: 0, -ENOMEM.
 */
int lower_add(struct lowering *l);
/* Takes the last step away. */
void lower_drop(struct lowering *l);

/*
 * Scratch of the node's own: @bytes, at max_count, for the node's steps alone. All together must be
 * within node->work_bytes, which the row's work() tells.
 */
struct vk_operand lower_work(struct lowering *l, uint64_t bytes);

static inline const struct shape *vk_shape_of(const struct plan *plan, uint16_t tensor)
{
	return &plan->tensors[tensor].shape;
}

/* Elements of dimensions [@from, @to). */
static inline uint32_t vk_elems(const struct shape *shape, uint32_t count, unsigned int from,
				unsigned int to)
{
	uint32_t n = 1;

	for (unsigned int i = from; i < to; i++)
		n *= shape_dim(shape, i, count);
	return n;
}

/* Return: the tensor, PLAN_NO_TENSOR if absent. */
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

/* @n workgroups, folded over x and y, for each of @batch. */
static inline void vk_set_groups(struct vk_params *params, uint32_t n, uint32_t batch)
{
	params->groups[0] = n < VK_MAX_GROUPS ? n : VK_MAX_GROUPS;
	params->groups[1] = vk_divide_up(n, VK_MAX_GROUPS);
	params->groups[2] = batch < VK_MAX_GROUPS ? batch : VK_MAX_GROUPS;
	params->groups[3] = 0;
	params->w[ALL_GROUPS] = n;
	params->w[BATCH_BEGIN] = 0;
	params->w[BATCH_END] = batch;
}

/* Strides of @shape as if broadcast to @rank dimensions. */
void vk_broadcast_strides(const struct shape *shape, uint32_t count, unsigned int rank,
			  uint64_t strides[RBK_MAX_RANK]);
