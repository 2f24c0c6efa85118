/* SPDX-License-Identifier: MIT */
/*
 * Where scratch tensors lie in a plan's scratch block
 *
 * Two tensors may share bytes if no node needs both: their lives, counted in nodes and both ends
 * included, do not meet. Nodes execute in order, so whoever runs two of them at once must treat
 * overlapping bytes as a dependency.
 *
 * Finding the smallest block is NP-hard; placing the largest tensors first, each into the smallest
 * gap between those already placed that live at the same time, comes close in practice. Offsets are
 * computed for max_count and kept at every count. Quadratic in the number of scratch tensors, which
 * is bounded by RBK_MAX_PLAN_TENSORS.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan-layout.h"
#include "plan/plan-parse.h"
#include "util/checked.h"
#include "util/cleanup.h"
#include "util/error.h"

struct block {
	uint16_t tensor;
	struct plan_life life;
	uint64_t bytes; /* a multiple of PLAN_SCRATCH_ALIGN */
	uint64_t offset;
};

/* Largest first; equal ones in the order of their tensors, so that layouts are reproducible. */
static int compare_blocks(const void *a, const void *b)
{
	const struct block *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static bool lives_meet(struct plan_life a, struct plan_life b)
{
	return a.first <= b.last && b.first <= a.last;
}

/* Finds an offset for @block among @placed, which are sorted by offset. */
static uint64_t find_gap(struct block *const *placed, unsigned int n_placed,
			 const struct block *block)
{
	uint64_t end = 0, best_offset = 0, best_bytes = UINT64_MAX;

	for (unsigned int i = 0; i < n_placed; i++) {
		const struct block *other = placed[i];

		if (!lives_meet(other->life, block->life))
			continue;
		if (other->offset > end && other->offset - end >= block->bytes &&
		    other->offset - end < best_bytes) {
			best_bytes = other->offset - end;
			best_offset = end;
		}
		if (other->offset + other->bytes > end)
			end = other->offset + other->bytes;
	}
	return best_bytes == UINT64_MAX ? end : best_offset;
}

/* Is it scratch, with bytes of its own? */
static bool needs_block(const struct plan *plan, unsigned int i)
{
	return plan->tensors[i].kind == RBK_TENSOR_SCRATCH && plan->tensors[i].root == i;
}

int plan_layout(struct plan *plan, const struct plan_life *lives, char message[PLAN_MESSAGE_BYTES])
{
	_cleanup_(freep) struct block *blocks = NULL;
	_cleanup_(freep) struct block **placed = NULL;
	uint64_t total = 0;
	unsigned int n = 0;

	for (unsigned int i = 0; i < plan->n_tensors; i++)
		n += needs_block(plan, i);
	if (n == 0)
		return 0;
	blocks = calloc(n, sizeof(*blocks));
	placed = calloc(n, sizeof(struct block *));
	if (!blocks || !placed)
		return error_origin(-ENOMEM);

	n = 0;
	for (unsigned int i = 0; i < plan->n_tensors; i++) {
		const struct tensor *tensor = &plan->tensors[i];

		if (!needs_block(plan, i))
			continue;
		blocks[n].tensor = (uint16_t)i;
		blocks[n].life = lives[i];
		/* Cannot overflow: see PLAN_MAX_BYTES. */
		checked_align(tensor->max_bytes, PLAN_SCRATCH_ALIGN, &blocks[n].bytes);
		n++;
	}
	qsort(blocks, n, sizeof(*blocks), compare_blocks);

	for (unsigned int i = 0; i < n; i++) {
		struct block *block = &blocks[i];
		unsigned int at = i;

		block->offset = find_gap(placed, i, block);
		while (at > 0 && placed[at - 1]->offset > block->offset)
			at--;
		memmove(&placed[at + 1], &placed[at], (i - at) * sizeof(*placed));
		placed[at] = block;
		plan->tensors[block->tensor].scratch_offset = block->offset;
		if (block->offset + block->bytes > total)
			total = block->offset + block->bytes;
	}
	if (total > PLAN_MAX_BYTES)
		return plan_refuse(message,
				   "the plan needs %llu bytes of scratch memory, expected at most "
				   "%llu",
				   (unsigned long long)total, (unsigned long long)PLAN_MAX_BYTES);
	plan->scratch_bytes = total;
	for (unsigned int i = 0; i < plan->n_tensors; i++)
		if (plan->tensors[i].kind == RBK_TENSOR_SCRATCH)
			plan->tensors[i].scratch_offset =
				plan->tensors[plan->tensors[i].root].scratch_offset;
	return 0;
}
