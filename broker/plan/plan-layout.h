#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Where scratch tensors lie in a plan's scratch block. Private to broker/plan.
 */
#include <stdint.h>

#include "plan/plan.h"

/* Most bytes that a layout allocates while it is made, for each tensor and each node. */
enum { PLAN_LAYOUT_TENSOR_BYTES = 128, PLAN_LAYOUT_NODE_BYTES = 128 };

/* In which nodes a tensor is alive: from the one that writes it to the last that reads it. */
struct plan_life {
	uint16_t first;
	uint16_t last;
};

struct block;
struct extent;
struct span;

/* A layout that is being made. */
struct layout {
	struct block *blocks; /* largest first */
	struct block **born;  /* the same by the start of their lives */
	struct extent *found; /* scratch of find_gap() */
	/*
	 * Binary trees of n_leaves leaves, a power of two; node 1 is the root, and the children of
	 * i are 2 * i and 2 * i + 1. Leaves of spans are nodes of the plan, those of lasts are
	 * entries of born: the last node in whose execution one of those placed is alive, plus 1.
	 */
	struct span *spans;
	uint32_t *lasts;
	uint32_t n_span_leaves, n_last_leaves;
	uint32_t n_blocks;    /* to be placed */
	uint32_t n_steps;     /* of searches, so far */
	uint64_t total_bytes; /* of the scratch block, so far */
};

/* Sorts what is to be placed; @lives is indexed by tensor. Return: 0; -ENOMEM. */
int layout_init(struct layout *layout, const struct plan *plan, const struct plan_life *lives);
void layout_deinit(struct layout *layout);

/* Places block @i and sets its tensor's scratch_offset. Call it for all n_blocks, in order. */
void layout_place(struct layout *layout, struct plan *plan, uint32_t i);
/*
 * Sets scratch_offset of tensors that are views, and scratch_bytes of the plan.
 * Return: 0; PLAN_E_INVALID, the block would be too large.
 */
int layout_end(const struct layout *layout, struct plan *plan, char message[PLAN_MESSAGE_BYTES]);
