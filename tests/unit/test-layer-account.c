/* SPDX-License-Identifier: MIT */
/*
 * Credit of a lease in the Vulkan layer: chunks, rejections, waits, shrinking; without Vulkan or a
 * broker.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/layer/account.h"
#include "libclient/layer/budget.h"
#include "support/test.h"

#define KIB 1024u
#define MIB (1024u * KIB)

/* A fake lease with a single member. */
struct giver {
	struct account account;
	struct rbk_lease_page page;
	pthread_mutex_t lock;
	unsigned int n_takes, n_gives, n_waits;
	int fault, give_fault; /* error instead of an answer; 0: none */
	/* Bytes that become free during a wait. */
	uint64_t freed_meanwhile_bytes;
};

static uint64_t ungiven(const struct giver *giver)
{
	return giver->page.granted_bytes - giver->page.credited_bytes;
}

static int take(void *context, uint64_t want_bytes, uint64_t least_bytes, uint64_t wait_ns,
		uint64_t *ret_bytes)
{
	struct giver *giver = context;
	uint64_t bytes;

	assert_true(least_bytes <= want_bytes && least_bytes > 0);
	if (wait_ns > 0 && giver->freed_meanwhile_bytes > 0)
		account_release(&giver->account, giver->freed_meanwhile_bytes);
	pthread_mutex_lock(&giver->lock);
	giver->n_takes++;
	giver->n_waits += wait_ns > 0;
	bytes = ungiven(giver) < want_bytes ? ungiven(giver) : want_bytes;
	if (giver->fault || bytes < least_bytes) {
		pthread_mutex_unlock(&giver->lock);
		return giver->fault ? giver->fault : wait_ns ? -ETIMEDOUT : -ENOMEM;
	}
	giver->page.credited_bytes += bytes;
	pthread_mutex_unlock(&giver->lock);
	__atomic_fetch_add(&giver->account.credit_bytes, bytes, __ATOMIC_RELAXED);
	*ret_bytes = bytes;
	return 0;
}

static int give(void *context, uint64_t bytes)
{
	struct giver *giver = context;

	assert_true(bytes > 0);
	giver->n_gives++;
	if (giver->give_fault)
		return giver->give_fault;
	pthread_mutex_lock(&giver->lock);
	assert_true(bytes <= giver->page.credited_bytes);
	giver->page.credited_bytes -= bytes;
	pthread_mutex_unlock(&giver->lock);
	__atomic_fetch_sub(&giver->account.credit_bytes, bytes, __ATOMIC_RELAXED);
	return 0;
}

static const struct account_source source = {.take = take, .give = give};

static struct giver *giver_new(uint64_t granted_bytes)
{
	struct giver *giver = NULL;

	assert_int_equal(posix_memalign((void **)&giver, 64, sizeof(*giver)), 0);
	memset(giver, 0, sizeof(*giver));
	pthread_mutex_init(&giver->lock, NULL);
	giver->page.max_bytes = giver->page.granted_bytes = giver->page.wish_bytes = granted_bytes;
	account_init(&giver->account, &source, giver, &giver->page);
	return giver;
}

/* Free the lease after all charges are released: no credit is lost or given twice. */
static void giver_free(struct giver *giver)
{
	account_trim_all(&giver->account);
	assert_fields(*giver, (account.free_bytes, 0), (account.credit_bytes, 0),
		      (page.credited_bytes, 0));
	free(giver);
}

TEST(test_account__within_credit_asks_no_broker)
{
	struct giver *giver = giver_new(1024 * MIB);

	assert_int_equal(account_charge(&giver->account, 64 * KIB, 0), 0);
	assert_fields(*giver, (n_takes, 1), (account.credit_bytes, 16 * MIB));
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(account_charge(&giver->account, 64 * KIB, 0), 0);
		account_release(&giver->account, 64 * KIB);
	}
	assert_fields(*giver, (n_takes, 1), (n_gives, 0));
	assert_int_equal(account_spent(&giver->account), 64 * KIB);
	account_release(&giver->account, 64 * KIB);
	giver_free(giver);
}

/* At the border of a chunk, the broker is not asked repeatedly. */
TEST(test_account__hysteresis)
{
	struct giver *giver = giver_new(1024 * MIB);

	for (int i = 0; i < 4; i++)
		assert_int_equal(account_charge(&giver->account, 16 * MIB, 0), 0);
	assert_int_equal(giver->n_takes, 4);
	for (int i = 0; i < 100; i++) {
		account_release(&giver->account, 16 * MIB);
		assert_int_equal(account_charge(&giver->account, 16 * MIB, 0), 0);
	}
	assert_fields(*giver, (n_takes, 4), (n_gives, 0));
	for (int i = 0; i < 4; i++)
		account_release(&giver->account, 16 * MIB);
	assert_true(giver->n_gives > 0);
	assert_true(giver->account.credit_bytes <= 32 * MIB);
	giver_free(giver);
}

TEST(test_account__uses_the_last_byte)
{
	struct giver *giver = giver_new(10 * MIB);

	/* Less than a chunk is left, and can be charged. */
	for (int i = 0; i < 10; i++)
		assert_int_equal(account_charge(&giver->account, MIB, 0), 0);
	assert_int_equal(account_left(&giver->account), 0);
	assert_int_equal(account_charge(&giver->account, 4 * KIB, 0), -ENOMEM);
	/* memory.c counts refused allocations: other charges are retried. */
	assert_int_equal(giver->account.n_refused, 0);
	account_release(&giver->account, MIB);
	assert_int_equal(account_left(&giver->account), MIB);
	assert_int_equal(account_charge(&giver->account, MIB + 4 * KIB, 0), -ENOMEM);
	assert_int_equal(account_charge(&giver->account, MIB, 0), 0);
	account_release(&giver->account, 10 * MIB);
	giver_free(giver);
}

TEST(test_account__above_the_maximum)
{
	struct giver *giver = giver_new(10 * MIB);

	/* A charge above the maximum fails without a request and without a wait. */
	assert_int_equal(account_charge(&giver->account, 10 * MIB + 1, 1000000), -ENOMEM);
	assert_int_equal(account_charge(&giver->account, UINT64_MAX, 1000000), -ENOMEM);
	assert_int_equal(giver->n_takes, 0);
	/* Together with its present charge it would exceed the lease, and wait for itself. */
	assert_int_equal(account_charge(&giver->account, 6 * MIB, 0), 0);
	assert_int_equal(account_charge(&giver->account, 6 * MIB, 1000000), -ENOMEM);
	assert_int_equal(giver->n_waits, 0);
	account_release(&giver->account, 6 * MIB);
	giver_free(giver);
}

TEST(test_account__waiting_gives_back_first)
{
	struct giver *giver = giver_new(64 * MIB);

	/* Another member has most of the lease. */
	giver->page.credited_bytes = 50 * MIB;
	assert_int_equal(account_charge(&giver->account, 6 * MIB, 0), 0);
	assert_int_equal(account_charge(&giver->account, 12 * MIB, 1000000), -ETIMEDOUT);
	assert_int_equal(giver->n_waits, 1);
	/* Free credit was returned, because another waiter may need it. */
	assert_fields(*giver, (account.free_bytes, 0), (page.credited_bytes, 56 * MIB),
		      (account.n_waiting, 0));
	/* Another thread frees memory during this wait, and the broker grants it. */
	giver->freed_meanwhile_bytes = 6 * MIB;
	assert_int_equal(account_charge(&giver->account, 12 * MIB, 1000000), 0);
	assert_int_equal(giver->n_waits, 2);
	account_release(&giver->account, 12 * MIB);
	giver->freed_meanwhile_bytes = 0;
	account_trim_all(&giver->account);
	giver->page.credited_bytes -= 50 * MIB;
	giver_free(giver);
}

TEST(test_account__without_an_answer)
{
	struct giver *giver = giver_new(64 * MIB);

	assert_int_equal(account_charge(&giver->account, MIB, 0), 0);
	giver->fault = giver->give_fault = -ECONNRESET;
	/* Without a broker, charges within the present credit work. */
	assert_int_equal(account_charge(&giver->account, MIB, 0), 0);
	assert_int_equal(account_charge(&giver->account, 32 * MIB, 1000000), -ECONNRESET);
	account_release(&giver->account, 2 * MIB);
	account_trim_all(&giver->account);
	assert_int_equal(account_spent(&giver->account), 0);
	assert_int_equal(giver->account.free_bytes, giver->account.credit_bytes);
	giver->fault = giver->give_fault = 0;
	giver_free(giver);
}

TEST(test_account__shrinking)
{
	struct giver *giver = giver_new(256 * MIB);

	assert_int_equal(account_charge(&giver->account, 100 * MIB, 0), 0);
	giver->page.wish_bytes = 64 * MIB;
	assert_true(account_is_shrinking(&giver->account));
	/* Freed credit is returned at once, however little. */
	account_release(&giver->account, 4 * KIB);
	assert_fields(*giver, (account.free_bytes, 0), (page.credited_bytes, 100 * MIB - 4 * KIB));
	assert_int_equal(account_left(&giver->account), 0);
	/* Only the needed bytes are requested. */
	assert_int_equal(account_charge(&giver->account, 4 * KIB, 0), 0);
	assert_int_equal(giver->account.free_bytes, 0);
	account_release(&giver->account, 100 * MIB);
	assert_int_equal(account_left(&giver->account), 64 * MIB);
	giver_free(giver);
}

TEST(test_account__extra)
{
	struct giver *giver = giver_new(64 * MIB);

	assert_int_equal(account_charge(&giver->account, 60 * MIB, 0), 0);
	account_set_extra(&giver->account, 3 * MIB);
	assert_int_equal(giver->account.extra_bytes, 3 * MIB);
	assert_int_equal(account_left(&giver->account), MIB);
	/*
	 * Extra bytes are charged as far as credit exists; the rest is taken from memory that
	 * becomes free.
	 */
	account_set_extra(&giver->account, 6 * MIB);
	assert_int_equal(giver->account.extra_bytes, 4 * MIB);
	assert_int_equal(account_charge(&giver->account, 4 * KIB, 0), -ENOMEM);
	account_release(&giver->account, 10 * MIB);
	account_set_extra(&giver->account, 6 * MIB);
	assert_int_equal(giver->account.extra_bytes, 6 * MIB);
	assert_int_equal(account_left(&giver->account), 8 * MIB);
	account_set_extra(&giver->account, 0);
	assert_int_equal(account_left(&giver->account), 14 * MIB);
	account_release(&giver->account, 50 * MIB);
	giver_free(giver);
}

TEST(test_account__child)
{
	struct giver *giver = giver_new(64 * MIB);

	assert_int_equal(account_charge(&giver->account, MIB, 0), 0);
	/* The kernel zeroes this memory in a child. */
	memset(&giver->account, 0, sizeof(giver->account));
	assert_int_equal(account_charge(&giver->account, MIB, 1000000), -ECHILD);
	account_release(&giver->account, MIB);
	account_trim_all(&giver->account);
	account_set_extra(&giver->account, MIB);
	assert_fields(*giver, (account.free_bytes, 0), (n_takes, 1), (n_gives, 0));
	free(giver);
}

/* ---- Threads ---- */

enum { THREADS = 32, ROUNDS = 4000, HELD = 8 };
#define LEASE_BYTES (64 * MIB)

static struct giver *shared;
static uint64_t n_refused, held_bytes; /* accessed atomically */
static pthread_barrier_t all_hold;

static void hold(uint64_t *at, uint64_t bytes, uint64_t wait_ns)
{
	if (account_charge(&shared->account, bytes, wait_ns)) {
		__atomic_fetch_add(&n_refused, 1, __ATOMIC_RELAXED);
		return;
	}
	*at = bytes;
	assert_true(__atomic_add_fetch(&held_bytes, bytes, __ATOMIC_SEQ_CST) <= LEASE_BYTES);
}

static void *churn(void *argument)
{
	uint64_t seed = (uint64_t)(uintptr_t)argument * 2654435761u + 1, held[HELD] = {0};

	/* All threads together want more than the lease, however few run at a time. */
	for (int i = 0; i < HELD; i++)
		hold(&held[i], MIB, 0);
	pthread_barrier_wait(&all_hold);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t *at;

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		at = &held[(seed >> 40) % HELD];
		if (*at) {
			__atomic_fetch_sub(&held_bytes, *at, __ATOMIC_SEQ_CST);
			account_release(&shared->account, *at);
			*at = 0;
			continue;
		}
		hold(at, ((seed >> 20) % 1024 + 1) * 4096, i % 16 == 0 ? 1000 : 0);
	}
	for (int i = 0; i < HELD; i++) {
		__atomic_fetch_sub(&held_bytes, held[i], __ATOMIC_SEQ_CST);
		account_release(&shared->account, held[i]);
	}
	return NULL;
}

TEST(test_account__threads)
{
	pthread_t threads[THREADS];

	shared = giver_new(LEASE_BYTES);
	pthread_barrier_init(&all_hold, NULL, THREADS);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&all_hold);
	assert_true(n_refused > 0);
	assert_true(shared->n_takes > 1);
	assert_int_equal(account_spent(&shared->account), 0);
	assert_int_equal(account_left(&shared->account), LEASE_BYTES);
	giver_free(shared);
}

/* ---- Budgets ---- */

static void check_budget(struct budget_heap heap, uint64_t used_bytes, uint64_t budget_bytes)
{
	uint64_t used, budget;

	budget_of_heap(&heap, &used, &budget);
	assert_int_equal(used, used_bytes);
	assert_int_equal(budget, budget_bytes);
}

TEST(test_budget)
{
	assert_int_equal(budget_heap_bytes(8 * MIB, 4 * MIB), 4 * MIB);
	assert_int_equal(budget_heap_bytes(2 * MIB, 4 * MIB), 2 * MIB);
	/* A driver that reports no figures. */
	check_budget((struct budget_heap){.size_bytes = 100, .counted_bytes = 30, .left_bytes = 50},
		     30, 80);
	check_budget((struct budget_heap){.size_bytes = 100,
					  .driver_used_bytes = 40,
					  .driver_budget_bytes = 1000,
					  .counted_bytes = 30,
					  .kept_bytes = 5,
					  .left_bytes = 50},
		     45, 95);
	/* The budget exceeds neither the heap nor the driver's budget. */
	check_budget((struct budget_heap){.size_bytes = 60, .counted_bytes = 30, .left_bytes = 50},
		     30, 60);
	check_budget((struct budget_heap){.size_bytes = 100,
					  .driver_budget_bytes = 70,
					  .counted_bytes = 30,
					  .left_bytes = 50},
		     30, 70);
	/* A budget is never 0. */
	check_budget((struct budget_heap){.size_bytes = 100}, 0, 1);
	check_budget((struct budget_heap){.size_bytes = 100,
					  .counted_bytes = 2,
					  .left_bytes = UINT64_MAX},
		     2, 100);
}
