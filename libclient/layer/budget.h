#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Heaps and budgets of a lease, as numbers
 *
 * By Vulkan's definition a budget is neither 0 nor larger than the heap, and it is a program's
 * total, not the remainder.
 */
#include <stdint.h>

/* Sizes of a device-local heap. */
struct budget_heap {
	uint64_t size_bytes;          /* size reported to the program */
	uint64_t driver_used_bytes;   /* 0 if the driver does not report it */
	uint64_t driver_budget_bytes; /* 0 if the driver does not report it */
	uint64_t counted_bytes;
	uint64_t kept_bytes; /* charged in addition to counted_bytes */
	uint64_t left_bytes; /* left of the lease */
};

/* Return the size to report for a heap under a lease of at most @max_bytes. */
static inline uint64_t budget_heap_bytes(uint64_t heap_bytes, uint64_t max_bytes)
{
	return heap_bytes < max_bytes ? heap_bytes : max_bytes;
}

static inline void budget_of_heap(const struct budget_heap *heap, uint64_t *ret_used_bytes,
				  uint64_t *ret_budget_bytes)
{
	uint64_t used_bytes = heap->driver_used_bytes > heap->counted_bytes
				      ? heap->driver_used_bytes
				      : heap->counted_bytes;
	uint64_t budget_bytes;

	used_bytes += heap->kept_bytes;
	if (__builtin_add_overflow(used_bytes, heap->left_bytes, &budget_bytes))
		budget_bytes = UINT64_MAX;
	if (heap->driver_budget_bytes > 0 && budget_bytes > heap->driver_budget_bytes)
		budget_bytes = heap->driver_budget_bytes;
	if (budget_bytes > heap->size_bytes)
		budget_bytes = heap->size_bytes;
	*ret_used_bytes = used_bytes;
	*ret_budget_bytes = budget_bytes ? budget_bytes : 1;
}
