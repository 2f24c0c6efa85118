#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Operators that only move elements
 *
 * Whatever such a node does is one or several moves: a box of elements that goes from one tensor to
 * another, each dimension of the box with a distance of its own on either side. That takes a piece
 * out of a tensor, puts it into another, turns it around, changes the order of dimensions or
 * repeats it. A box of which every element is one value comes from nowhere.
 *
 * Dimensions that are next to each other on both sides are one, and those of 1 are dropped, so that
 * what is contiguous is so in the last dimension. Only the first one may depend on the count, and
 * no distance does.
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"

/* Tile takes two for each of a tensor's. */
enum { MOVE_MAX_DIMS = 2 * RBK_MAX_RANK };

struct move {
	uint16_t from, to; /* tensors; from PLAN_NO_TENSOR: value; from may be to: then apart */
	uint64_t value;    /* the element's bits, as often as they fit in */
	/* Those of the node's moves neither read nor write what another one of them writes. */
	bool is_independent;
	unsigned int element_bytes; /* 1, 2, 4 or 8; 16 if it was widened to that */
	unsigned int n_dims;
	bool dynamic; /* extent[0] is to be multiplied by the count */
	uint64_t extent[MOVE_MAX_DIMS];
	/* All in bytes; what is read and written lies within the tensors. */
	int64_t from_stride[MOVE_MAX_DIMS], to_stride[MOVE_MAX_DIMS];
	uint64_t from_first, to_first;
};

/* Return: does nodes of @kind nothing but move elements? */
bool plan_moves(enum op_kind kind);

/* How many moves one of them may take, which are done in their order. */
unsigned int plan_n_moves(const struct plan *plan, const struct node *node);

/* The @i-th of them. Neither fails nor allocates. Return: false: there is nothing to be moved. */
bool plan_move(const struct plan *plan, const struct node *node, unsigned int i, struct move *ret);

/*
 * Makes larger elements of those that are contiguous on both sides, of up to @max_bytes, a power of
 * two, where all of them are aligned to that.
 */
void move_widen(struct move *move, unsigned int max_bytes);
