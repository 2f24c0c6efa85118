#pragma once
/* SPDX-License-Identifier: MIT */
/* Layout of scratch tensors in a plan's scratch block. Private to broker/plan. */
#include <stdint.h>

#include "plan/plan.h"

/* Upper bounds of the bytes that a layout allocates temporarily, for each tensor and each node. */
enum { PLAN_LAYOUT_TENSOR_BYTES = 128, PLAN_LAYOUT_NODE_BYTES = 128 };

/* The life of a tensor, in node indices: from its writer to its last reader. */
struct plan_life {
	uint16_t first;
	uint16_t last;
};

struct block;
struct extent;
struct span;

/* A layout in progress. */
struct layout {
	struct block *blocks; /* blocks to be placed, largest first */
	struct block **born;  /* the same blocks by the start of their lives */
	struct extent *found; /* used by find_gap() */
	/*
	 * Binary trees of n_leaves leaves, a power of two; node 1 is the root, and the children of
	 * i are 2 * i and 2 * i + 1. Leaves of spans are nodes of the plan. Leaves of lasts are
	 * entries of born; a node of lasts is 1 + the last plan node at which a placed block below
	 * it is alive.
	 */
	struct span *spans;
	uint32_t *lasts;
	uint32_t n_span_leaves, n_last_leaves;
	uint32_t n_blocks;    /* blocks to be placed */
	uint32_t n_steps;     /* steps of searches so far */
	uint64_t total_bytes; /* size of the scratch block so far */
};

/* Sort the blocks to be placed; @lives is indexed by tensor. Return: 0; -ENOMEM. */
int layout_init(struct layout *layout, const struct plan *plan, const struct plan_life *lives);
void layout_deinit(struct layout *layout);

/* Place block @i and set its tensor's scratch_offset. Call it for all n_blocks, in order. */
void layout_place(struct layout *layout, struct plan *plan, uint32_t i);
/*
 * Set scratch_offset of tensors that are views, and scratch_bytes of the plan.
 * Return: 0; PLAN_E_INVALID: the block would be too large.
 */
int layout_end(const struct layout *layout, struct plan *plan, char message[PLAN_MESSAGE_BYTES]);
