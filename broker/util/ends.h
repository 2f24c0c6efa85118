#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A row of items, taken from both ends
 *
 * One thread takes from the front, the others from the back, until they meet. Threads that repeat
 * this over the same row get about the same half each time, whose memory is in their processor's
 * caches. No thread waits while items remain.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest row: no count overflows its half, even after one vain attempt per thread. */
#define ENDS_MAX ((size_t)1 << 30)

struct ends {
	_Atomic uint64_t taken; /* items from the front, plus 2^32 * items from the back */
};

enum ends_take {
	ENDS_NONE = 0, /* all were taken before */
	ENDS_ONE,
	ENDS_LAST, /* the last item was taken now */
};

/* Initialize before any thread takes: @front items, and @back at the other end, count as taken. */
static inline void ends_reset(struct ends *ends, uint32_t front, uint32_t back)
{
	atomic_store_explicit(&ends->taken, (uint64_t)back << 32 | front, memory_order_relaxed);
}

/*
 * Get the numbers of taken items, once no thread takes any more.
 * Return: false, with nothing set, if all of the @n items were taken.
 */
static inline bool ends_left(const struct ends *ends, size_t n, uint32_t *ret_front,
			     uint32_t *ret_back)
{
	const uint64_t taken = atomic_load_explicit(&ends->taken, memory_order_relaxed);
	const uint32_t front = (uint32_t)taken, back = (uint32_t)(taken >> 32);

	if ((size_t)front + back >= n)
		return false;
	*ret_front = front;
	*ret_back = back;
	return true;
}

/*
 * Take an item; *ret is its index. Any thread; orders no other memory access. @n: items in the row,
 * at most ENDS_MAX.
 */
static inline enum ends_take ends_take(struct ends *ends, size_t n, bool from_back, size_t *ret)
{
	const uint64_t taken = atomic_fetch_add_explicit(
		&ends->taken, from_back ? (uint64_t)1 << 32 : 1, memory_order_relaxed);
	const size_t front = (uint32_t)taken, back = (size_t)(taken >> 32);

	if (front + back >= n)
		return ENDS_NONE;
	*ret = from_back ? n - 1 - back : front;
	return front + back + 1 == n ? ENDS_LAST : ENDS_ONE;
}
