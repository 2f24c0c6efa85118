/* SPDX-License-Identifier: MIT */
/*
 * Credit
 *
 * Free credit is one number. What charges takes from it, what releases adds to it, and neither asks
 * anybody until it is too little or far too much; between the two lies a chunk, so that a program
 * that allocates and frees the same piece does not ask each time.
 *
 * Who asks holds a lock, so that of 32 threads that find nothing one fetches a chunk for all. It
 * never keeps what it was given apart: it adds that to what is free and tries again, because
 * another thread may have freed something, or have taken it. Only who waits for room is given its
 * own: it first gives back everything that is free, has no lock meanwhile, and while it waits,
 * others give back whatever becomes free at once, for the broker knows whose turn it is.
 *
 * To give back one tries for the lock. Who has it looks again after letting it go, so nothing is
 * forgotten, and vkFreeMemory() never waits for an allocation.
 */
#include "libclient/layer/account.h"

#include <errno.h>
#include <unistd.h>

enum { CHUNKS_PER_LEASE = 32, CHUNK_BYTES_MIN = 64 << 10, CHUNK_BYTES_MAX = 16 << 20 };

static uint64_t load(const uint64_t *from)
{
	return __atomic_load_n(from, __ATOMIC_RELAXED);
}

static const struct rbk_lease_page *page_of(const struct account *account)
{
	return __atomic_load_n(&account->page, __ATOMIC_ACQUIRE);
}

void account_set_page(struct account *account, const struct rbk_lease_page *page)
{
	uint64_t chunk_bytes = load(&page->max_bytes) / CHUNKS_PER_LEASE;

	if (chunk_bytes < CHUNK_BYTES_MIN)
		chunk_bytes = CHUNK_BYTES_MIN;
	if (chunk_bytes > CHUNK_BYTES_MAX)
		chunk_bytes = CHUNK_BYTES_MAX;
	chunk_bytes -= chunk_bytes % CHUNK_BYTES_MIN;
	__atomic_store_n(&account->chunk_bytes, chunk_bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&account->trim_above, 2 * chunk_bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&account->page, page, __ATOMIC_RELEASE);
}

void account_init(struct account *account, const struct account_source *source, void *context,
		  const struct rbk_lease_page *page)
{
	account->source = source;
	account->context = context;
	pthread_mutex_init(&account->asking, NULL);
	account_set_page(account, page);
	account->is_ours = 1;
}

/* ---- Giving back ---- */

/* Of free bytes, what is too much. */
static uint64_t excess(const struct account *account, uint64_t free_bytes)
{
	uint64_t chunk_bytes = load(&account->chunk_bytes);

	if (__atomic_load_n(&account->n_waiting, __ATOMIC_SEQ_CST) > 0 ||
	    account_is_shrinking(account))
		return free_bytes;
	return free_bytes > 2 * chunk_bytes ? free_bytes - chunk_bytes : 0;
}

/* Under the lock. Return: 0; negative errno: it is still here. */
static int give(struct account *account, uint64_t bytes)
{
	int r = account->source->give(account->context, bytes);

	if (r)
		__atomic_fetch_add(&account->free_bytes, bytes, __ATOMIC_SEQ_CST);
	return r;
}

/* Under the lock. Return: 0, also if there was nothing to be given; as give(). */
static int give_excess(struct account *account, bool all)
{
	uint64_t free_bytes = __atomic_load_n(&account->free_bytes, __ATOMIC_SEQ_CST), bytes;

	do {
		bytes = all ? free_bytes : excess(account, free_bytes);
		if (bytes == 0)
			return 0;
	} while (!__atomic_compare_exchange_n(&account->free_bytes, &free_bytes, free_bytes - bytes,
					      false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
	return give(account, bytes);
}

void account_trim(struct account *account)
{
	int r = 0;

	while (!r && excess(account, __atomic_load_n(&account->free_bytes, __ATOMIC_SEQ_CST)) > 0) {
		/* Who has it will look. */
		if (pthread_mutex_trylock(&account->asking))
			return;
		r = give_excess(account, false);
		pthread_mutex_unlock(&account->asking);
	}
}

static void done_asking(struct account *account)
{
	pthread_mutex_unlock(&account->asking);
	account_trim(account);
}

void account_trim_all(struct account *account)
{
	if (!account->is_ours || load(&account->free_bytes) == 0)
		return;
	pthread_mutex_lock(&account->asking);
	give_excess(account, true);
	done_asking(account);
}

/* ---- Asking ---- */

/* Asks for @least_bytes, or rather a chunk. Return: 0, added to what is free; as take(). */
static int fetch(struct account *account, uint64_t least_bytes)
{
	uint64_t chunk_bytes = load(&account->chunk_bytes), want_bytes = least_bytes, given_bytes;
	uint64_t rest = least_bytes % chunk_bytes;
	int r;

	/* What it is asked to come down from is not hoarded. */
	if (rest > 0 && !account_is_shrinking(account) &&
	    __builtin_add_overflow(want_bytes, chunk_bytes - rest, &want_bytes))
		want_bytes = least_bytes;
	r = account->source->take(account->context, want_bytes, least_bytes, 0, &given_bytes);
	if (r)
		return r;
	__atomic_fetch_add(&account->free_bytes, given_bytes, __ATOMIC_SEQ_CST);
	return 0;
}

static int ask(struct account *account, uint64_t bytes)
{
	int r = 0;

	pthread_mutex_lock(&account->asking);
	while (!account_try(account, bytes)) {
		uint64_t free_bytes = load(&account->free_bytes);

		if (free_bytes >= bytes)
			continue;
		r = fetch(account, bytes - free_bytes);
		if (r && account_try(account, bytes))
			r = 0; /* freed meanwhile */
		else if (!r)
			continue;
		break;
	}
	done_asking(account);
	return r;
}

static int wait_for(struct account *account, uint64_t bytes, uint64_t wait_ns)
{
	uint64_t given_bytes;
	int r;

	__atomic_fetch_add(&account->n_waiting, 1, __ATOMIC_SEQ_CST);
	account_trim_all(account);
	r = account->source->take(account->context, bytes, bytes, wait_ns, &given_bytes);
	__atomic_fetch_sub(&account->n_waiting, 1, __ATOMIC_SEQ_CST);
	if (r)
		return account_try(account, bytes) ? 0 : r;
	if (given_bytes > bytes)
		__atomic_fetch_add(&account->free_bytes, given_bytes - bytes, __ATOMIC_SEQ_CST);
	return 0;
}

int account_charge_slowly(struct account *account, uint64_t bytes, uint64_t wait_ns)
{
	uint64_t max_bytes, all_bytes;
	int r;

	if (!account->is_ours)
		return -ECHILD;
	max_bytes = load(&page_of(account)->max_bytes);
	r = bytes > max_bytes ? -ENOMEM : ask(account, bytes);
	if ((r == -ENOMEM || r == -ETIMEDOUT) && wait_ns > 0 &&
	    !__builtin_add_overflow(account_spent(account), bytes, &all_bytes) &&
	    all_bytes <= max_bytes)
		r = wait_for(account, bytes, wait_ns);
	if (r)
		__atomic_fetch_add(&account->n_refused, 1, __ATOMIC_RELAXED);
	return r;
}

/* ---- What the driver takes ---- */

/* Under the lock. */
static void take_extra(struct account *account, uint64_t bytes)
{
	while (bytes > 0) {
		uint64_t free_bytes = load(&account->free_bytes);
		uint64_t part = free_bytes < bytes ? free_bytes : bytes;

		if (part == 0) {
			if (account->source->take(account->context, bytes, 1, 0, &part))
				return;
			if (part > bytes) {
				__atomic_fetch_add(&account->free_bytes, part - bytes,
						   __ATOMIC_SEQ_CST);
				part = bytes;
			}
		} else if (!account_try(account, part)) {
			continue;
		}
		__atomic_fetch_add(&account->extra_bytes, part, __ATOMIC_RELAXED);
		bytes -= part;
	}
}

void account_set_extra(struct account *account, uint64_t bytes)
{
	uint64_t before;

	/* Whoever asks now will be followed by somebody who looks again. */
	if (!account->is_ours || load(&account->extra_bytes) == bytes ||
	    pthread_mutex_trylock(&account->asking))
		return;
	before = load(&account->extra_bytes);
	if (bytes > before) {
		take_extra(account, bytes - before);
	} else {
		__atomic_fetch_sub(&account->extra_bytes, before - bytes, __ATOMIC_RELAXED);
		__atomic_fetch_add(&account->free_bytes, before - bytes, __ATOMIC_SEQ_CST);
	}
	done_asking(account);
}

/* ---- What there is ---- */

uint64_t account_left(const struct account *account)
{
	const struct rbk_lease_page *page = page_of(account);
	uint64_t limit_bytes = load(&page->granted_bytes);
	uint64_t wish_bytes = load(&page->wish_bytes);
	uint64_t credited_bytes = load(&page->credited_bytes);

	if (limit_bytes > wish_bytes)
		limit_bytes = wish_bytes;
	/* What it must give back is of what is free, too. */
	if (credited_bytes > limit_bytes) {
		uint64_t free_bytes = load(&account->free_bytes);
		uint64_t over_bytes = credited_bytes - limit_bytes;

		return free_bytes > over_bytes ? free_bytes - over_bytes : 0;
	}
	return limit_bytes - credited_bytes + load(&account->free_bytes);
}

uint64_t account_spent(const struct account *account)
{
	/* In this order: what is fetched in between makes it too little, not too much. */
	uint64_t credit_bytes = __atomic_load_n(&account->credit_bytes, __ATOMIC_ACQUIRE);
	uint64_t free_bytes = load(&account->free_bytes);

	return credit_bytes > free_bytes ? credit_bytes - free_bytes : 0;
}
