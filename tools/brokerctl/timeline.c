/* SPDX-License-Identifier: MIT */
/*
 * Assignment of spans to lanes without overlap
 *
 * Spans are processed in the order of their beginnings. A span needs a new lane only if all lanes
 * are taken, so a track has as many lanes as spans at its busiest moment. Each track has two heaps:
 * taken lanes, ordered by the time they become free, and free lanes, ordered by number, so that the
 * first lanes fill up first.
 */
#include "timeline.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

struct lane {
	uint64_t key; /* time at which the lane becomes free, or its number */
	uint32_t number;
};

struct heap {
	struct lane *lanes;
	size_t n;
};

static void heap_push(struct heap *heap, struct lane lane)
{
	size_t at = heap->n++;

	for (; at > 0 && heap->lanes[(at - 1) / 2].key > lane.key; at = (at - 1) / 2)
		heap->lanes[at] = heap->lanes[(at - 1) / 2];
	heap->lanes[at] = lane;
}

static struct lane heap_pop(struct heap *heap)
{
	const struct lane first = heap->lanes[0], last = heap->lanes[--heap->n];
	size_t at = 0, child;

	while ((child = 2 * at + 1) < heap->n) {
		if (child + 1 < heap->n && heap->lanes[child + 1].key < heap->lanes[child].key)
			child++;
		if (heap->lanes[child].key >= last.key)
			break;
		heap->lanes[at] = heap->lanes[child];
		at = child;
	}
	heap->lanes[at] = last;
	return first;
}

static int compare_begins(const struct span *a, const struct span *b)
{
	if (a->began_ns != b->began_ns)
		return a->began_ns < b->began_ns ? -1 : 1;
	return (a->ended_ns < b->ended_ns) - (a->ended_ns > b->ended_ns);
}

static int compare_tracks(const void *first, const void *second)
{
	const struct span *a = first, *b = second;

	if (a->track != b->track)
		return a->track < b->track ? -1 : 1;
	return compare_begins(a, b);
}

static int compare_times(const void *first, const void *second)
{
	const struct span *a = first, *b = second;
	int order = compare_begins(a, b);

	if (order == 0 && a->track != b->track)
		order = a->track < b->track ? -1 : 1;
	if (order == 0)
		order = (a->lane > b->lane) - (a->lane < b->lane);
	return order;
}

int timeline_assign(struct span *spans, size_t n_spans)
{
	struct heap taken = {.n = 0}, free_ones = {.n = 0};
	uint32_t n_lanes = 0;

	if (n_spans == 0)
		return 0;
	taken.lanes = calloc(n_spans + 1, sizeof(*taken.lanes));
	free_ones.lanes = calloc(n_spans + 1, sizeof(*free_ones.lanes));
	if (!taken.lanes || !free_ones.lanes) {
		free(taken.lanes);
		free(free_ones.lanes);
		return -ENOMEM;
	}
	qsort(spans, n_spans, sizeof(*spans), compare_tracks);
	for (size_t i = 0; i < n_spans; i++) {
		if (i > 0 && spans[i].track != spans[i - 1].track)
			taken.n = free_ones.n = n_lanes = 0;
		while (taken.n > 0 && taken.lanes[0].key <= spans[i].began_ns) {
			uint32_t number = heap_pop(&taken).number;

			heap_push(&free_ones, (struct lane){number, number});
		}
		spans[i].lane = free_ones.n > 0 ? heap_pop(&free_ones).number : n_lanes++;
		heap_push(&taken, (struct lane){spans[i].ended_ns, spans[i].lane});
	}
	qsort(spans, n_spans, sizeof(*spans), compare_times);
	free(taken.lanes);
	free(free_ones.lanes);
	return 0;
}
