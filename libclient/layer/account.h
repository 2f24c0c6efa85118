#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Credit
 *
 * A member of a lease draws credit in chunks, allocates out of it by a compare-and-swap, and gives
 * back what it has too much of. Knows nothing of Vulkan or of sockets: whom it asks is a source.
 *
 * Any thread may call these at any time. Charging takes a lock only to ask for more, and none while
 * it waits for room; releasing never waits for who asks.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <ringbroker/lease.h>

/*
 * Who gives credit. Both add what was given to account->credit_bytes, and take from there what was
 * given back, together with whatever else they have to keep in step with it.
 */
struct account_source {
	/* As rbk_lease_take(). */
	int (*take)(void *context, uint64_t want_bytes, uint64_t least_bytes, uint64_t wait_ns,
		    uint64_t *ret_bytes);
	/* Return: 0; negative errno: nothing was given back. */
	int (*give)(void *context, uint64_t bytes);
};

struct account {
	/* The first cache line is all that an allocation within the credit touches. */
	uint64_t free_bytes;               /* atomic: of the credit, not spent */
	uint64_t trim_above;               /* atomic; of free_bytes: then it is given back */
	uint32_t n_waiting;                /* atomic: threads */
	uint32_t is_ours;                  /* 0 in fork()ed children, where the memory is wiped */
	const struct rbk_lease_page *page; /* atomic */
	const struct account_source *source;

	uint64_t credit_bytes; /* atomic: spent or not, without what was moved to objects */
	uint64_t extra_bytes;  /* atomic: of it, spent on what the driver took for itself */
	uint64_t chunk_bytes;
	uint32_t n_refused; /* atomic */
	void *context;      /* the source's */
	pthread_mutex_t asking;
};

/* Of zeroed memory, which stays where it is. */
void account_init(struct account *account, const struct account_source *source, void *context,
		  const struct rbk_lease_page *page);

/* The lease has another page, or another maximum. */
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

/* Return: 0; -ENOMEM, -ETIMEDOUT, -EDEADLK or that of a broken connection: refused. */
static inline int account_charge(struct account *account, uint64_t bytes, uint64_t wait_ns)
{
	if (__builtin_expect(account->is_ours && account_try(account, bytes), 1))
		return 0;
	return account_charge_slowly(account, bytes, wait_ns);
}

/* Is it asked to have less than it was granted? */
static inline bool account_is_shrinking(const struct account *account)
{
	const struct rbk_lease_page *page = __atomic_load_n(&account->page, __ATOMIC_ACQUIRE);

	return __atomic_load_n(&page->wish_bytes, __ATOMIC_RELAXED) <
	       __atomic_load_n(&page->granted_bytes, __ATOMIC_RELAXED);
}

/* Undoes account_charge(). */
static inline void account_release(struct account *account, uint64_t bytes)
{
	uint64_t free_bytes;

	if (!account->is_ours)
		return;
	/* Before it looks for who waits: who waits says so, and then looks for what is free. */
	free_bytes = __atomic_add_fetch(&account->free_bytes, bytes, __ATOMIC_SEQ_CST);
	if (__builtin_expect(free_bytes > __atomic_load_n(&account->trim_above, __ATOMIC_RELAXED) ||
				     __atomic_load_n(&account->n_waiting, __ATOMIC_SEQ_CST) > 0 ||
				     account_is_shrinking(account),
			     0))
		account_trim(account);
}

/*
 * What the driver has beside what is counted, as far as is known: takes credit for it, or gives it
 * back; as much as there is. What is lacking is missing from what can be allocated.
 */
void account_set_extra(struct account *account, uint64_t bytes);

/* Gives back all credit that is not spent. */
void account_trim_all(struct account *account);

/* What can be allocated yet, as far as that is granted. */
uint64_t account_left(const struct account *account);

/* What is spent, on allocations and extra. */
uint64_t account_spent(const struct account *account);
