#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Moves: operators that only move elements
 *
 * Such a node consists of one or several moves. A move copies a box of elements from one tensor to
 * another; each dimension of the box has a stride of its own on either side. Moves can take a piece
 * out of a tensor, insert a piece, reverse dimensions, permute them, or repeat elements. A move
 * that fills a box with one value has no source tensor.
 *
 * Dimensions that are contiguous on both sides are merged, and dimensions of 1 are dropped, so that
 * contiguous elements are in the last dimension. Only the first dimension may depend on the count;
 * no stride does.
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"

/* Tile takes two for each dimension of a tensor. */
enum { MOVE_MAX_DIMS = 2 * RBK_MAX_RANK };

struct move {
	/*
	 * Tensor indices. With PLAN_NO_TENSOR as from, the box is filled with value. If both are
	 * the same tensor, source and destination do not overlap.
	 */
	uint16_t from, to;
	uint64_t value; /* the element's bits, repeated to 64 bits */
	/* No move of the node reads or writes bytes that another of its moves writes. */
	bool is_independent;
	unsigned int element_bytes; /* 1, 2, 4 or 8; up to 16 after move_widen() */
	unsigned int n_dims;
	bool dynamic; /* extent[0] is multiplied by the count */
	uint64_t extent[MOVE_MAX_DIMS];
	/* In bytes; all accesses are within the tensors. */
	int64_t from_stride[MOVE_MAX_DIMS], to_stride[MOVE_MAX_DIMS];
	uint64_t from_first, to_first;
};

/* Return: true if nodes of @kind only move elements. */
bool plan_moves(enum op_kind kind);

/* Return the maximum number of moves of a node. They are done in ascending order. */
unsigned int plan_n_moves(const struct plan *plan, const struct node *node);

/*
 * Describe the @i-th move of a node. Does not fail or allocate. Return: false: nothing is to be
 * moved.
 */
bool plan_move(const struct plan *plan, const struct node *node, unsigned int i, struct move *ret);

/*
 * Replace contiguous elements by larger ones of up to @max_bytes, a power of two, where all of them
 * are aligned to that size.
 */
void move_widen(struct move *move, unsigned int max_bytes);
