#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A row of things, taken from both of its ends
 *
 * One thread takes from the front, the others from the back, until they meet. Whoever does the same
 * again and again then gets about the same half of it each time, whose memory is in the caches of
 * its processor, and still nobody waits as long as there is something to take.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest row: neither count leaves its half, even after all that take it once in vain. */
#define ENDS_MAX ((size_t)1 << 30)

struct ends {
	_Atomic uint64_t taken; /* from the front; times 2^32, from the back */
};

enum ends_take {
	ENDS_NONE = 0, /* all were taken */
	ENDS_ONE,
	ENDS_LAST, /* and now all are */
};

/* Initialize before any thread takes: @front things, and @back at the other end, count as taken. */
static inline void ends_reset(struct ends *ends, uint32_t front, uint32_t back)
{
	atomic_store_explicit(&ends->taken, (uint64_t)back << 32 | front, memory_order_relaxed);
}

/*
 * Get how many things were taken, once no thread takes any more. Return: false, with nothing set,
 * if all of the @n things were taken.
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

/* Any thread; orders nothing. @n: things in the row, at most ENDS_MAX. */
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
