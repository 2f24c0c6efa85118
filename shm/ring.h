#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Moving entries through a ring
 *
 * The few atomic accesses that both sides make on struct rbk_sq_area and struct rbk_cq_area, so
 * that each pairing is written once. The indices that a side owns are private to it and are only
 * ever published, never read back. Every access to the other side's memory is an atomic load:
 * the compiler may repeat plain ones, and the other side may write while we read.
 */
#include <stdbool.h>
#include <stdint.h>
#include <ringbroker/abi.h>

/* Pairs with rbk_ring_publish() of the other side: the entries before the index are visible. */
static inline uint32_t rbk_ring_observe(const uint32_t *index)
{
	return __atomic_load_n(index, __ATOMIC_ACQUIRE);
}

/* Pairs with rbk_ring_observe(): everything written so far is visible to who sees @value. */
static inline void rbk_ring_publish(uint32_t *index, uint32_t value)
{
	__atomic_store_n(index, value, __ATOMIC_RELEASE);
}

/*
 * After publishing: the other side's sleep token, 0 if it is awake. Who sees a token that it has
 * not rung for before rings the bell, once per token. The fence pairs with the one in
 * rbk_ring_announce_sleep(), see "Sleeping" in abi.h.
 */
static inline uint32_t rbk_ring_sleep_token(const uint32_t *wait)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(wait, __ATOMIC_RELAXED);
}

/*
 * Before sleeping, with a non-zero @token that differs from the one of the last sleep; look at the
 * other side's index once more after it.
 */
static inline void rbk_ring_announce_sleep(uint32_t *wait, uint32_t token)
{
	__atomic_store_n(wait, token, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void rbk_ring_announce_awake(uint32_t *wait)
{
	__atomic_store_n(wait, 0, __ATOMIC_RELAXED);
}

/* Copies an entry out of memory that its writer may be changing. The copy is what is validated. */
static inline void rbk_sqe_load(struct rbk_sqe *to, const struct rbk_sqe *from)
{
	const uint64_t *source = (const uint64_t *)from;
	uint64_t *target = (uint64_t *)to;

	/* By itself gcc does not, and the loop is a tenth of what an entry costs. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC unroll 8
#endif
	for (unsigned int i = 0; i < sizeof(*to) / sizeof(*target); i++)
		target[i] = __atomic_load_n(source + i, __ATOMIC_RELAXED);
}

static inline bool rbk_is_power_of_two(uint32_t n)
{
	return n != 0 && (n & (n - 1)) == 0;
}
