#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Moving entries through a ring
 *
 * These are the atomic accesses that both sides make on struct rbk_sq_area and struct rbk_cq_area,
 * so that each pairing is written once. The indices that a side owns are private to it: it
 * publishes them and never reads them back. Every access to the other side's memory is an atomic
 * load: the compiler may repeat plain loads, and the other side may write during the read.
 */
#include <stdbool.h>
#include <stdint.h>
#include <ringbroker/abi.h>

/*
 * Load the other side's index. Pairs with its rbk_ring_publish(): entries before the index are
 * visible.
 */
static inline uint32_t rbk_ring_observe(const uint32_t *index)
{
	return __atomic_load_n(index, __ATOMIC_ACQUIRE);
}

/*
 * Publish an index. Pairs with rbk_ring_observe(): a side that sees @value sees all earlier writes.
 */
static inline void rbk_ring_publish(uint32_t *index, uint32_t value)
{
	__atomic_store_n(index, value, __ATOMIC_RELEASE);
}

/*
 * Return the other side's sleep token, 0 if it is awake; call after publishing. A side that sees a
 * token for which it has not rung yet rings the bell, once per token. The fence pairs with the one
 * in rbk_ring_announce_sleep(), see "Sleeping" in abi.h.
 */
static inline uint32_t rbk_ring_sleep_token(const uint32_t *wait)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(wait, __ATOMIC_RELAXED);
}

/*
 * Leave the fences of rbk_ring_sleep_token() to the broker from now on: @unfenced is
 * rbk_sq_area.unfenced. The fence pairs with the one in rbk_ring_announce_sleep(): the broker sees
 * the word, or this side sees the token.
 */
static inline void rbk_ring_leave_fences(uint32_t *unfenced)
{
	__atomic_store_n(unfenced, 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/*
 * Execute them on this side again. Pairs with rbk_ring_has_fences(): a broker that sees the word
 * also sees what was published without fences.
 */
static inline void rbk_ring_keep_fences(uint32_t *unfenced)
{
	__atomic_store_n(unfenced, 0, __ATOMIC_RELEASE);
}

/*
 * Return true if the client executes fences; call after announcing a sleep. Otherwise the broker
 * has to execute one on the client's processor before it checks the ring once more.
 */
static inline bool rbk_ring_has_fences(const uint32_t *unfenced)
{
	return __atomic_load_n(unfenced, __ATOMIC_ACQUIRE) == 0;
}

/*
 * Return the token as rbk_ring_sleep_token() does, for a client that has left its fences to the
 * broker. Pairs with the membarrier() after rbk_ring_announce_sleep().
 */
static inline uint32_t rbk_ring_sleep_token_unfenced(const uint32_t *wait)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(wait, __ATOMIC_RELAXED);
}

/*
 * Ask to be woken once completions up to @cq_tail are published; 0: any. Call before
 * rbk_ring_announce_sleep(), whose fence pairs with the one in rbk_ring_sleep_token(): the broker
 * sees the token and this index, or the client sees what the broker has published.
 */
static inline void rbk_ring_want(uint32_t *cq_wanted, uint32_t cq_tail)
{
	__atomic_store_n(cq_wanted, cq_tail, __ATOMIC_RELAXED);
}

/* Return true if a client that sleeps waits for no more; call after rbk_ring_sleep_token(). */
static inline bool rbk_ring_is_wanted(const uint32_t *cq_wanted, uint32_t cq_tail)
{
	const uint32_t wanted = __atomic_load_n(cq_wanted, __ATOMIC_RELAXED);

	return wanted == 0 || (int32_t)(cq_tail - wanted) >= 0;
}

/*
 * Announce a sleep with a non-zero @token that differs from the last sleep's. The caller must check
 * the other side's index once more afterwards.
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

/*
 * Fetch the cache line of a slot that will be written soon, for writing, from the other side's
 * processor. Old processors ignore it; gcc's __builtin_prefetch() would therefore leave it out.
 */
static inline void rbk_ring_claim(const void *slot)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" ::"m"(*(const char *)slot));
#else
	__builtin_prefetch(slot, 1);
#endif
}

/* Copy an entry out of memory that its writer may be changing. Only the copy may be validated. */
static inline void rbk_sqe_load(struct rbk_sqe *to, const struct rbk_sqe *from)
{
	const uint64_t *source = (const uint64_t *)from;
	uint64_t *target = (uint64_t *)to;

	/* gcc does not unroll the loop by itself; unrolled, an entry costs a tenth less. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC unroll 8
#endif
	for (unsigned int i = 0; i < sizeof(*to) / sizeof(*target); i++)
		target[i] = __atomic_load_n(source + i, __ATOMIC_RELAXED);
}

/* Return rbk_cq_area.commit; @chain: RBK_COMMIT_CHAIN_*. */
static inline uint64_t rbk_commit_word(uint32_t sq_head, uint32_t cq_tail, uint64_t chain)
{
	const uint64_t cq_mask = (1u << RBK_COMMIT_CQ_BITS) - 1;

	return sq_head | (cq_tail & cq_mask) << RBK_COMMIT_CQ_SHIFT | chain;
}

/* Return the number closest to @base whose low @n_bits are those of @low. */
static inline uint64_t rbk_commit_index(uint64_t base, uint64_t low, unsigned int n_bits)
{
	const unsigned int rest = 64 - n_bits;

	return base + (uint64_t)((int64_t)((low - base) << rest) >> rest);
}

/*
 * Load what the broker of a completion area has committed, also if it is committing more.
 * Return: RBK_COMMIT_CHAIN_*.
 */
static inline uint64_t rbk_commit_load(const struct rbk_cq_area *cq, struct rbk_commit *ret)
{
	const uint64_t word = __atomic_load_n(&cq->commit, __ATOMIC_ACQUIRE);

	ret->sq_head = rbk_commit_index(__atomic_load_n(&cq->commit_base.sq_head, __ATOMIC_RELAXED),
					word, 32);
	ret->cq_tail = rbk_commit_index(__atomic_load_n(&cq->commit_base.cq_tail, __ATOMIC_RELAXED),
					word >> RBK_COMMIT_CQ_SHIFT, RBK_COMMIT_CQ_BITS);
	return word & (RBK_COMMIT_CHAIN_OPEN | RBK_COMMIT_CHAIN_BROKEN);
}

/* The records of a completion area of @n entries, with RBK_FEAT_REATTACH. */
static inline struct rbk_task_record *rbk_ring_records(const struct rbk_cq_area *cq, uint32_t n)
{
	return (struct rbk_task_record *)((char *)(uintptr_t)cq + RBK_CQ_RECORDS_OFFSET(n));
}

/* The room for states in a completion area of @n entries, with RBK_FEAT_UNDO. */
static inline uint8_t *rbk_ring_undo(const struct rbk_cq_area *cq, uint32_t n)
{
	return (uint8_t *)(uintptr_t)cq + RBK_CQ_UNDO_OFFSET(n);
}

/* The failures in a completion area of @n entries, with RBK_FEAT_REATTACH and RBK_FEAT_AFTER. */
static inline uint64_t *rbk_ring_failed(const struct rbk_cq_area *cq, uint32_t n)
{
	return (uint64_t *)((char *)(uintptr_t)cq + RBK_CQ_FAILED_OFFSET(n));
}

/*
 * Return @sqe as an entry without RBK_SQE_AFTER: what is left of it is checked as in any other
 * entry. A RUN with RBK_SQE_AFTER_REFS references at most, or with a table, stays valid.
 */
static inline struct rbk_sqe rbk_sqe_without_after(const struct rbk_sqe *sqe)
{
	struct rbk_sqe rest = *sqe;

	rest.flags &= (uint8_t)~RBK_SQE_AFTER;
	for (unsigned int i = 0; i < RBK_SQE_AFTER_MAX; i++)
		rest.after[i] = 0;
	return rest;
}

/* Return the bit mask of @n units from @first on, which end at RBK_UNDO_UNITS at the latest. */
static inline uint64_t rbk_undo_mask(unsigned int first, unsigned int n)
{
	return n ? UINT64_MAX >> (RBK_UNDO_UNITS - n) << first : 0;
}

/* Return true if the record is live: see struct rbk_task_record. */
static inline bool rbk_record_is_live(const struct rbk_task_record *record,
				      const struct rbk_commit *commit)
{
	const uint32_t flags = __atomic_load_n(&record->flags, __ATOMIC_ACQUIRE);

	return (flags & RBK_TASK_TAKEN) && record->sq_index < commit->sq_head &&
	       !((flags & RBK_TASK_POSTED) && record->cq_index < commit->cq_tail);
}

static inline bool rbk_is_power_of_two(uint32_t n)
{
	return n != 0 && (n & (n - 1)) == 0;
}
