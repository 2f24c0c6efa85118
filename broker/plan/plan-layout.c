/* SPDX-License-Identifier: MIT */
/*
 * Layout of scratch tensors in a plan's scratch block
 *
 * Two tensors may share bytes if no node needs both: their lives, counted in nodes and both ends
 * included, do not meet. Nodes execute in order, so a caller that runs two of them at once must
 * treat overlapping bytes as a dependency.
 *
 * Finding the smallest block is NP-hard. A heuristic comes close in practice: place the largest
 * tensors first, each into the smallest gap between the placed tensors that live at the same time.
 * Offsets are computed for max_count and kept at every count.
 *
 * Clients choose the graph, so no graph may make the layout slow. Two kinds of trees avoid
 * comparing each tensor with every other.
 *
 * Trees over the nodes know, for any span of nodes, the highest end of the tensors placed there,
 * and the largest sum of their bytes. If the difference is smaller than a tensor, no gap fits it,
 * and the tensor is placed on top. Long chains, and graphs where all tensors live at once, are such
 * cases.
 *
 * Otherwise a tree over the tensors, in the order of their births, finds those whose lives meet the
 * new one's. Only a graph made for the purpose is slow: thousands of tensors that live at once and
 * leave gaps. After SEARCH_STEPS steps, further tensors are placed on top without a search. They
 * waste bytes, which are charged to the client.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan-layout.h"
#include "plan/plan-parse.h"
#include "util/checked.h"
#include "util/error.h"
#include "util/number.h"

enum { SEARCH_STEPS = 1 << 19 };

struct block {
	uint16_t tensor;
	uint16_t birth; /* index in layout.born */
	struct plan_life life;
	uint64_t bytes; /* a multiple of PLAN_SCRATCH_ALIGN */
	uint64_t offset;
};

/* The bytes of a placed block. */
struct extent {
	uint64_t begin, end;
};

/* A node of a binary tree over the plan's nodes, for a span of them. */
struct span {
	/* Over blocks that cover the span, except those that cover the parent's span as well. */
	uint64_t covering_top, covering_bytes;
	/*
	 * Maxima over the nodes of the span, of all blocks except those that cover the parent's
	 * span.
	 */
	uint64_t top, bytes;
};

/* Sorting may take a copy; a tree has fewer than four nodes for each leaf that is needed. */
_Static_assert(2 * sizeof(struct block) + 2 * sizeof(struct block *) + sizeof(struct extent) +
			       4 * sizeof(uint32_t) <=
		       PLAN_LAYOUT_TENSOR_BYTES,
	       "plan-layout.h");
_Static_assert(4 * sizeof(struct span) <= PLAN_LAYOUT_NODE_BYTES, "plan-layout.h");

void layout_deinit(struct layout *layout)
{
	free(layout->blocks);
	free(layout->born);
	free(layout->found);
	free(layout->spans);
	free(layout->lasts);
}

/* Order by size, largest first; equal blocks by tensor index, so that layouts are reproducible. */
static int compare_blocks(const void *a, const void *b)
{
	const struct block *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static int compare_births(const void *a, const void *b)
{
	const struct block *const *x = a, *const *y = b;

	if ((*x)->life.first != (*y)->life.first)
		return (*x)->life.first < (*y)->life.first ? -1 : 1;
	return ((*x)->tensor > (*y)->tensor) - ((*x)->tensor < (*y)->tensor);
}

static int compare_extents(const void *a, const void *b)
{
	const struct extent *x = a, *y = b;

	return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Enter @block into the spans below @at, which covers the nodes from @first to @last. */
static void span_add(struct span *spans, uint32_t at, uint32_t first, uint32_t last,
		     const struct block *block)
{
	const uint32_t middle = first + (last - first) / 2;
	struct span *span = &spans[at];

	if (block->life.last < first || last < block->life.first)
		return;
	if (block->life.first <= first && last <= block->life.last) {
		span->covering_top = max_u64(span->covering_top, block->offset + block->bytes);
		span->covering_bytes += block->bytes;
		span->top = max_u64(span->top, span->covering_top);
		span->bytes += block->bytes;
		return;
	}
	span_add(spans, 2 * at, first, middle, block);
	span_add(spans, 2 * at + 1, middle + 1, last, block);
	span->top = max_u64(span->covering_top, max_u64(spans[2 * at].top, spans[2 * at + 1].top));
	span->bytes = span->covering_bytes + max_u64(spans[2 * at].bytes, spans[2 * at + 1].bytes);
}

/*
 * Raise the results to the maxima over the nodes of @life, below @at. Blocks that cover the
 * parents' spans do not count.
 */
static void span_get(const struct span *spans, uint32_t at, uint32_t first, uint32_t last,
		     struct plan_life life, uint64_t *ret_top, uint64_t *ret_bytes)
{
	const uint32_t middle = first + (last - first) / 2;
	const struct span *span = &spans[at];
	uint64_t top = 0, bytes = 0;

	if (life.last < first || last < life.first)
		return;
	if (life.first <= first && last <= life.last) {
		*ret_top = max_u64(*ret_top, span->top);
		*ret_bytes = max_u64(*ret_bytes, span->bytes);
		return;
	}
	span_get(spans, 2 * at, first, middle, life, &top, &bytes);
	span_get(spans, 2 * at + 1, middle + 1, last, life, &top, &bytes);
	*ret_top = max_u64(*ret_top, max_u64(span->covering_top, top));
	*ret_bytes = max_u64(*ret_bytes, span->covering_bytes + bytes);
}

/*
 * Find, below node @at of layout->lasts, placed blocks that live when @life does. Counts its steps.
 * Return: the number of blocks found so far, @n included.
 */
static uint32_t find_living(struct layout *layout, uint32_t at, uint32_t first, uint32_t n_leaves,
			    struct plan_life life, uint32_t n)
{
	layout->n_steps++;
	if (layout->lasts[at] <= life.first || layout->n_steps > SEARCH_STEPS)
		return n;
	/* Later entries have later births. */
	if (first >= layout->n_blocks || layout->born[first]->life.first > life.last)
		return n;
	if (n_leaves == 1) {
		layout->found[n].begin = layout->born[first]->offset;
		layout->found[n].end = layout->found[n].begin + layout->born[first]->bytes;
		return n + 1;
	}
	n = find_living(layout, 2 * at, first, n_leaves / 2, life, n);
	return find_living(layout, 2 * at + 1, first + n_leaves / 2, n_leaves / 2, life, n);
}

/* Find an offset for @block among the placed blocks whose lives meet its own. */
static uint64_t find_gap(struct layout *layout, const struct block *block)
{
	uint64_t end = 0, best_offset = 0, best_bytes = UINT64_MAX;
	uint64_t top = 0, bytes = 0;
	uint32_t n;

	span_get(layout->spans, 1, 0, layout->n_span_leaves - 1, block->life, &top, &bytes);
	if (top - bytes < block->bytes || layout->n_steps > SEARCH_STEPS)
		return top;
	n = find_living(layout, 1, 0, layout->n_last_leaves, block->life, 0);
	for (uint32_t k = n; k > 0; k /= 2)
		layout->n_steps += n;
	if (layout->n_steps > SEARCH_STEPS)
		return top;
	qsort(layout->found, n, sizeof(*layout->found), compare_extents);
	for (uint32_t i = 0; i < n; i++) {
		const struct extent *other = &layout->found[i];

		if (other->begin > end && other->begin - end >= block->bytes &&
		    other->begin - end < best_bytes) {
			best_bytes = other->begin - end;
			best_offset = end;
		}
		end = max_u64(end, other->end);
	}
	return best_bytes == UINT64_MAX ? end : best_offset;
}

void layout_place(struct layout *layout, struct plan *plan, uint32_t i)
{
	struct block *block = &layout->blocks[i];
	uint32_t at = layout->n_last_leaves + block->birth;

	block->offset = find_gap(layout, block);
	span_add(layout->spans, 1, 0, layout->n_span_leaves - 1, block);
	for (; at > 0; at /= 2)
		layout->lasts[at] =
			(uint32_t)max_u64(layout->lasts[at], (uint64_t)block->life.last + 1);
	plan->tensors[block->tensor].scratch_offset = block->offset;
	layout->total_bytes = max_u64(layout->total_bytes, block->offset + block->bytes);
}

static uint32_t power_of_two(uint32_t n)
{
	uint32_t power = 1;

	while (power < n)
		power *= 2;
	return power;
}

/* Return true if the tensor is scratch with bytes of its own. */
static bool needs_block(const struct plan *plan, unsigned int i)
{
	return plan->tensors[i].kind == RBK_TENSOR_SCRATCH && plan->tensors[i].root == i;
}

int layout_init(struct layout *layout, const struct plan *plan, const struct plan_life *lives)
{
	uint32_t n_times = 1, n = 0;

	*layout = (struct layout){.n_blocks = 0};
	for (unsigned int i = 0; i < plan->n_tensors; i++)
		n += needs_block(plan, i);
	if (n == 0)
		return 0;
	layout->blocks = calloc(n, sizeof(*layout->blocks));
	layout->born = calloc(n, sizeof(struct block *));
	layout->found = calloc(n, sizeof(*layout->found));
	if (!layout->blocks || !layout->born || !layout->found)
		return error_origin(-ENOMEM);
	for (unsigned int i = 0; i < plan->n_tensors; i++) {
		const struct tensor *tensor = &plan->tensors[i];
		struct block *block = &layout->blocks[layout->n_blocks];

		if (!needs_block(plan, i))
			continue;
		block->tensor = (uint16_t)i;
		block->life = lives[i];
		n_times = (uint32_t)max_u64(n_times, (uint64_t)lives[i].last + 1);
		/* Cannot overflow: see PLAN_MAX_BYTES. */
		checked_align(tensor->max_bytes, PLAN_SCRATCH_ALIGN, &block->bytes);
		layout->n_blocks++;
	}
	qsort(layout->blocks, n, sizeof(*layout->blocks), compare_blocks);
	for (uint32_t i = 0; i < n; i++)
		layout->born[i] = &layout->blocks[i];
	qsort(layout->born, n, sizeof(struct block *), compare_births);
	for (uint32_t i = 0; i < n; i++)
		layout->born[i]->birth = (uint16_t)i;

	layout->n_span_leaves = power_of_two(n_times);
	layout->n_last_leaves = power_of_two(n);
	layout->spans = calloc(2 * (size_t)layout->n_span_leaves, sizeof(*layout->spans));
	layout->lasts = calloc(2 * (size_t)layout->n_last_leaves, sizeof(*layout->lasts));
	if (!layout->spans || !layout->lasts)
		return error_origin(-ENOMEM);
	return 0;
}

int layout_end(const struct layout *layout, struct plan *plan, char message[PLAN_MESSAGE_BYTES])
{
	if (layout->total_bytes > PLAN_MAX_BYTES)
		return plan_refuse(message,
				   "the plan needs %llu bytes of scratch memory, expected at most "
				   "%llu",
				   ull(layout->total_bytes), ull(PLAN_MAX_BYTES));
	plan->scratch_bytes = layout->total_bytes;
	for (unsigned int i = 0; i < plan->n_tensors; i++)
		if (plan->tensors[i].kind == RBK_TENSOR_SCRATCH)
			plan->tensors[i].scratch_offset =
				plan->tensors[plan->tensors[i].root].scratch_offset;
	return 0;
}
