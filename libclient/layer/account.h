#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Credit of one lease in this process
 *
 * A member of a lease takes credit in chunks, allocates from it by compare-and-swap, and gives back
 * the surplus. This module knows nothing of Vulkan or of sockets: it requests credit from an
 * account_source.
 *
 * Any thread may call these functions at any time. Charging takes a lock only to request more
 * credit, and holds no lock while it waits for room. Releasing never waits for a thread that
 * requests credit.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <ringbroker/lease.h>

/*
 * Source of credit. take() adds the granted bytes to account->credit_bytes, and give() subtracts
 * the returned bytes, together with any state that must stay in step.
 */
struct account_source {
	/* as rbk_lease_take() */
	int (*take)(void *context, uint64_t want_bytes, uint64_t least_bytes, uint64_t wait_ns,
		    uint64_t *ret_bytes);
	/* Return: 0; negative errno: no credit was given back */
	int (*give)(void *context, uint64_t bytes);
};

struct account {
	/* An allocation within the credit touches only the first cache line. */
	uint64_t free_bytes; /* atomic: unspent part of credit_bytes */
	uint64_t trim_above; /* atomic: limit of free_bytes above which credit is given back */
	uint32_t n_waiting;  /* atomic: threads that wait for room */
	uint32_t is_ours;    /* 0 in fork()ed children, where the memory is wiped */
	const struct rbk_lease_page *page; /* atomic */
	const struct account_source *source;

	uint64_t credit_bytes; /* atomic: spent or not, without credit moved to objects */
	uint64_t extra_bytes;  /* atomic: part of credit_bytes spent on driver overhead */
	uint64_t chunk_bytes;
	uint32_t n_refused; /* atomic; allocations of the program; memory.c counts */
	void *context;      /* argument of source's functions */
	pthread_mutex_t asking;
};

/* Initialise an account in zeroed memory, which must not move. */
void account_init(struct account *account, const struct account_source *source, void *context,
		  const struct rbk_lease_page *page);

/* Use another page, or the page's new maximum. */
void account_set_page(struct account *account, const struct rbk_lease_page *page);

int account_charge_slowly(struct account *account, uint64_t bytes, uint64_t wait_ns);
void account_trim(struct account *account);

static inline bool account_try(struct account *account, uint64_t bytes)
{
	uint64_t free_bytes = __atomic_load_n(&account->free_bytes, __ATOMIC_RELAXED);

	while (free_bytes >= bytes)
		if (__atomic_compare_exchange_n(&account->free_bytes, &free_bytes,
						free_bytes - bytes, true, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED))
			return true;
	return false;
}

/*
 * Charge @bytes. Return: 0; refused: -ENOMEM, -ETIMEDOUT, -EDEADLK or the errno of a lost
 * connection.
 */
static inline int account_charge(struct account *account, uint64_t bytes, uint64_t wait_ns)
{
	if (__builtin_expect(account->is_ours && account_try(account, bytes), 1))
		return 0;
	return account_charge_slowly(account, bytes, wait_ns);
}

/* Return true if the broker asks the lease to have less than it was granted. */
static inline bool account_is_shrinking(const struct account *account)
{
	const struct rbk_lease_page *page = __atomic_load_n(&account->page, __ATOMIC_ACQUIRE);

	return __atomic_load_n(&page->wish_bytes, __ATOMIC_RELAXED) <
	       __atomic_load_n(&page->granted_bytes, __ATOMIC_RELAXED);
}

/* Undo account_charge(). */
static inline void account_release(struct account *account, uint64_t bytes)
{
	uint64_t free_bytes;

	if (!account->is_ours)
		return;
	/*
	 * Add before reading n_waiting: a waiter raises n_waiting before it reads free_bytes, so
	 * one of the two sees the other.
	 */
	free_bytes = __atomic_add_fetch(&account->free_bytes, bytes, __ATOMIC_SEQ_CST);
	if (__builtin_expect(free_bytes > __atomic_load_n(&account->trim_above, __ATOMIC_RELAXED) ||
				     __atomic_load_n(&account->n_waiting, __ATOMIC_SEQ_CST) > 0 ||
				     account_is_shrinking(account),
			     0))
		account_trim(account);
}

/*
 * Set the driver overhead, in bytes: take credit for it or give credit back, as far as credit is
 * available. Overhead without credit reduces what can still be allocated.
 */
void account_set_extra(struct account *account, uint64_t bytes);

/* Give back all unspent credit. */
void account_trim_all(struct account *account);

/* Return the bytes that can still be allocated from what is granted. */
uint64_t account_left(const struct account *account);

/* Return the bytes spent, on allocations and driver overhead. */
uint64_t account_spent(const struct account *account);
