/* SPDX-License-Identifier: MIT */
/*
 * Credit of one lease in this process
 *
 * Free credit is one number. Charging subtracts from it, releasing adds to it, and neither sends a
 * request until the credit is too small or far too large. The two limits differ by a chunk, so a
 * program that repeatedly allocates and frees the same memory sends no requests.
 *
 * A request for credit holds a lock, so that one of 32 threads without credit fetches a chunk for
 * all. The thread adds the granted credit to the free credit and tries again, because another
 * thread may have freed or taken credit meanwhile. Only a thread that waits for room keeps its
 * grant. It first gives back all free credit, and holds no lock while it waits. Meanwhile other
 * threads give back free credit at once, because the broker knows which request is next.
 *
 * Giving back only tries the lock. The holder of the lock looks again after releasing it, so no
 * surplus is forgotten, and vkFreeMemory() never waits for an allocation.
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

/* Return the part of @free_bytes to give back. */
static uint64_t excess(const struct account *account, uint64_t free_bytes)
{
	uint64_t chunk_bytes = load(&account->chunk_bytes);

	if (__atomic_load_n(&account->n_waiting, __ATOMIC_SEQ_CST) > 0 ||
	    account_is_shrinking(account))
		return free_bytes;
	return free_bytes > 2 * chunk_bytes ? free_bytes - chunk_bytes : 0;
}

/* Give @bytes back. Under the lock. Return: 0; negative errno: they are free credit again. */
static int give(struct account *account, uint64_t bytes)
{
	int r = account->source->give(account->context, bytes);

	if (r)
		__atomic_fetch_add(&account->free_bytes, bytes, __ATOMIC_SEQ_CST);
	return r;
}

/*
 * Give the surplus back, or everything if @all. Under the lock. Return: 0, also if there was none;
 * as give().
 */
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
		/* The holder of the lock will look again. */
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

/*
 * Request @least_bytes, rounded up to a chunk, and add them to the free credit. Return: 0; as
 * take().
 */
static int fetch(struct account *account, uint64_t least_bytes)
{
	uint64_t chunk_bytes = load(&account->chunk_bytes), want_bytes = least_bytes, given_bytes;
	uint64_t rest = least_bytes % chunk_bytes;
	int r;

	/* A lease that must shrink hoards no credit. */
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
			r = 0; /* another thread freed credit meanwhile */
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
	return r;
}

/* ---- Driver overhead ---- */

/* Spend @bytes of credit on driver overhead, as far as available. Under the lock. */
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

	/* If another thread holds the lock, a later call sets the overhead. */
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

/* ---- Figures ---- */

uint64_t account_left(const struct account *account)
{
	const struct rbk_lease_page *page = page_of(account);
	uint64_t limit_bytes = load(&page->granted_bytes);
	uint64_t wish_bytes = load(&page->wish_bytes);
	uint64_t credited_bytes = load(&page->credited_bytes);

	if (limit_bytes > wish_bytes)
		limit_bytes = wish_bytes;
	/* Free credit may have to be given back, too. */
	if (credited_bytes > limit_bytes) {
		uint64_t free_bytes = load(&account->free_bytes);
		uint64_t over_bytes = credited_bytes - limit_bytes;

		return free_bytes > over_bytes ? free_bytes - over_bytes : 0;
	}
	return limit_bytes - credited_bytes + load(&account->free_bytes);
}

uint64_t account_spent(const struct account *account)
{
	/* In this order: credit fetched in between makes the result too small, not too large. */
	uint64_t credit_bytes = __atomic_load_n(&account->credit_bytes, __ATOMIC_ACQUIRE);
	uint64_t free_bytes = load(&account->free_bytes);

	return credit_bytes > free_bytes ? credit_bytes - free_bytes : 0;
}
