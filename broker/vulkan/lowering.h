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
#include "vulkan/device.h"
#include "vulkan/lower.h"
#include "vulkan/pipeline.h"

enum { LOWERING_PIPELINES = VK_PIPE_COUNT * VK_N_NUMBERS * (VK_N_CURVES + 1) };

struct lowering {
	const struct plan *plan;
	struct vk_target target;
	const struct node *node;
	/*
	 * To be filled: pipe, fill, perhaps turns and args. Operands are the node's first inputs
	 * and outputs in order. Moves when another step is added.
	 */
	struct vk_step *step;
	struct vk_lowered *lowered;
	uint32_t max_steps;      /* that there is room for */
	uint64_t work_used;      /* of the node's own scratch */
	enum vk_numbers numbers; /* of the node's operands: what steps begin with */

	uint32_t max_pipelines; /* that there is room for in lowered->first_uses */
	/* By number, see pipeline_number(): there is a first use. */
	uint64_t is_used[LOWERING_PIPELINES / 64 + 1];

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
lower_fn lower_matmul, lower_gemm; /* lower-matmul.c */
lower_fn lower_elementwise;        /* lower-elementwise.c */
lower_fn lower_moves;              /* lower-move.c: whatever plan_moves() */
lower_fn lower_softmax, lower_reduce, lower_top_k, lower_arg, lower_cum_sum,
	lower_lp_norm;                                         /* lower-reduce.c */
lower_fn lower_layer_norm, lower_group_norm, lower_batch_norm; /* lower-norm.c */
lower_fn lower_rotary, lower_attention;                        /* lower-attention.c */
lower_fn lower_conv, lower_conv_transpose, lower_pool;         /* lower-window.c */
lower_fn lower_quantize, lower_dynamic_quantize, lower_matmul_integer, lower_conv_integer,
	lower_nbits; /* lower-quantize.c */
lower_fn lower_gather, lower_gather_elements, lower_scatter, lower_one_hot,
	lower_trilu; /* lower-gather.c */

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
 * Adds a step behind those that the node has, with the node's operands; l->step is it from now on.
 * Return: 0, -ENOMEM.
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

static inline uint32_t vk_divide_up(uint64_t value, uint32_t by)
{
	return (uint32_t)((value + by - 1) / by);
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
