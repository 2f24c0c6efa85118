/* SPDX-License-Identifier: MIT */
/* Timeslices that end before their work has: timeslice_ending(), in virtual time. */
#include <stdlib.h>

#include "lease/lease.h"
#include "support/test.h"
#include "tenant/tenant.h"

enum { DEVICE = 1 };

static const uint64_t us = 1000, ms = 1000000, s = 1000000000;

static struct account_book *book;
static struct tenant tenants[2];
static struct leases leases;
static struct lease *all[2];
static struct lease_member members[2];
static uint64_t now_ns;

static int setup(void **state)
{
	const struct account_limits none = {{0}};
	const struct lease_about about = {
		.device = DEVICE, .min_bytes = 1, .wish_bytes = 1, .max_bytes = 1, .name = "test"};

	now_ns = s;
	assert_int_equal(account_book_new(&book), 0);
	assert_int_equal(leases_init(&leases), 0);
	for (unsigned int i = 0; i < 2; i++) {
		struct lease_about of_tenant = about;

		tenants[i] = (struct tenant){.number = i + 1,
					     .n_refs = 1,
					     .weight = 100,
					     .priority_max = RBK_PRIORITY_URGENT};
		assert_int_equal(account_new(book, "t", &none, &tenants[i].account), 0);
		of_tenant.tenant = &tenants[i];
		assert_int_equal(lease_new(&leases, &of_tenant, &all[i]), 0);
		lease_join(all[i], &members[i], 1);
		assert_int_equal(timeslice_join(&members[i], RBK_PRIORITY_NORMAL, now_ns), 0);
	}
	return 0;
}

static int teardown(void **state)
{
	for (unsigned int i = 0; i < 2; i++) {
		timeslice_leave(&members[i], now_ns);
		lease_leave(&members[i]);
		lease_free(all[i]);
	}
	leases_deinit(&leases);
	for (unsigned int i = 0; i < 2; i++) {
		account_unref(tenants[i].account);
		free(tenants[i].leases);
	}
	account_book_free(book);
	return 0;
}

static enum rbk_timeslice state_of(unsigned int i)
{
	return RBK_TIMESLICE_STATE(all[i]->timeslice.word);
}

static uint64_t used_ns(unsigned int i)
{
	timeslice_count_time(&leases.timeslices, now_ns);
	return all[i]->timeslice.used_ns;
}

/* Have lease @i, which has the timeslice, lose it to the other one. Return: its word. */
static uint32_t close_slice(unsigned int i)
{
	timeslice_want(&members[1 - i], now_ns);
	assert_int_equal(state_of(i), RBK_TIMESLICE_WANTED);
	now_ns += TIMESLICE_NS;
	timeslice_run(&leases.timeslices, now_ns);
	assert_int_equal(state_of(i), RBK_TIMESLICE_CLOSED);
	return all[i]->timeslice.word;
}

/* The next lease begins at once, and the rest of the work is charged to the one before it. */
TEST(test_rest__is_charged_once, setup, teardown)
{
	const uint64_t rest_ns = 300 * us;
	uint32_t word;
	uint64_t used[2];

	assert_int_equal(state_of(0), RBK_TIMESLICE_HELD);
	word = close_slice(0);
	used[0] = used_ns(0);
	used[1] = used_ns(1);
	timeslice_ending(&members[0], word, rest_ns, now_ns);
	assert_int_equal(state_of(1), RBK_TIMESLICE_HELD);
	assert_int_equal(used_ns(0), used[0] + rest_ns);
	now_ns += rest_ns;
	assert_int_equal(used_ns(1), used[1]);
	now_ns += ms;
	assert_int_equal(used_ns(1), used[1] + ms);
	assert_int_equal(used_ns(0), used[0] + rest_ns);

	/* A longer rest is not believed. */
	word = close_slice(1);
	used[1] = used_ns(1);
	timeslice_ending(&members[1], word, s, now_ns);
	assert_int_equal(state_of(0), RBK_TIMESLICE_HELD);
	assert_int_equal(used_ns(1), used[1] + TIMESLICE_REST_NS);
}

/* A word of the past has no effect. */
TEST(test_old_word__is_ignored, setup, teardown)
{
	const uint32_t old = all[0]->timeslice.word, word = close_slice(0);
	const uint64_t before_ns = used_ns(0);

	timeslice_ending(&members[0], old, ms, now_ns);
	assert_int_equal(state_of(0), RBK_TIMESLICE_CLOSED);
	assert_int_equal(state_of(1), RBK_TIMESLICE_CLOSED);
	assert_int_equal(used_ns(0), before_ns);
	timeslice_ending(&members[0], word, 0, now_ns);
	assert_int_equal(state_of(1), RBK_TIMESLICE_HELD);
	assert_int_equal(used_ns(0), before_ns);
}

TEST_MAIN(NULL, NULL)
