/* SPDX-License-Identifier: MIT */
/* Accounts: exact limits, overflowing sums, ownership, and ledgers that do not balance. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fail-alloc.h"
#include "support/test.h"
#include "tenant/account.h"
#include "util/checked.h"

static struct account_book *book_make(void)
{
	struct account_book *book = NULL;

	assert_int_equal(account_book_new(&book), 0);
	return book;
}

/* Limits: @host_bytes host bytes, and two plans. */
static struct account_limits limits_make(uint64_t host_bytes)
{
	struct account_limits limits;

	for (int slot = 0; slot < ACCOUNT_SLOT_COUNT; slot++)
		limits.max[slot] = UINT64_MAX;
	limits.max[ACCOUNT_HOST_BYTES] = host_bytes;
	limits.max[ACCOUNT_PLANS] = 2;
	return limits;
}

static struct account *account_make(struct account_book *book, const char *name,
				    uint64_t host_bytes)
{
	const struct account_limits limits = limits_make(host_bytes);
	struct account *account = NULL;

	assert_int_equal(account_new(book, name, &limits, &account), 0);
	assert_string_equal(account_name(account), name);
	return account;
}

/* Return true if @function ends its process with SIGABRT, as a failed assertion does. */
static bool aborts(void (*function)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		dup2(null, STDERR_FILENO);
		signal(SIGABRT, SIG_DFL);
		function();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

TEST(test_charge__exact_limit)
{
	struct account_book *book = book_make();
	struct account *account = account_make(book, "web", 1000);
	struct charge a = CHARGE_INIT, b = CHARGE_INIT, c = CHARGE_INIT;
	char why[ACCOUNT_TEXT_BYTES];

	assert_int_equal(account_limit(account, ACCOUNT_HOST_BYTES), 1000);
	assert_int_equal(account_charge(account, &a, ACCOUNT_HOST_BYTES, 999), 0);
	assert_int_equal(account_charge(account, &b, ACCOUNT_HOST_BYTES, 2), ACCOUNT_E_QUOTA);
	assert_null(b.account);
	assert_int_equal(account_n_refused(account), 1);
	assert_string_equal(account_explain(account, why),
			    "tenant web may have 1000 B of host memory (host-max), has 999 B, and "
			    "asks for 2 B more");
	assert_int_equal(account_used(account, ACCOUNT_HOST_BYTES), 999);
	assert_int_equal(account_charge(account, &b, ACCOUNT_HOST_BYTES, 1), 0);
	assert_int_equal(account_used(account, ACCOUNT_HOST_BYTES), 1000);
	assert_int_equal(account_charge(account, &c, ACCOUNT_HOST_BYTES, 1), ACCOUNT_E_QUOTA);
	assert_int_equal(account_charge(account, &c, ACCOUNT_HOST_BYTES, 0), 0);
	charge_deinit(&c);

	/* Slots are independent. */
	assert_int_equal(account_charge(account, &c, account_vram(3), 5000), 0);
	assert_int_equal(account_used(account, account_vram(3)), 5000);

	charge_deinit(&a);
	charge_deinit(&a);
	assert_int_equal(account_used(account, ACCOUNT_HOST_BYTES), 1);
	assert_int_equal(account_charge(account, &a, ACCOUNT_HOST_BYTES, 999), 0);
	charge_deinit(&a);
	charge_deinit(&b);
	charge_deinit(&c);
	for (int slot = 0; slot < ACCOUNT_SLOT_COUNT; slot++) {
		assert_int_equal(account_used(account, slot), 0);
		assert_int_equal(account_book_total(book, slot), 0);
	}
	account_unref(account);
	assert_null(account_book_free(book));
}

TEST(test_charge__overflow)
{
	struct account_book *book = book_make();
	struct account *a = account_make(book, "a", UINT64_MAX);
	struct account *b = account_make(book, "b", UINT64_MAX);
	struct charge charge_a = CHARGE_INIT, charge_b = CHARGE_INIT;

	assert_int_equal(account_charge(a, &charge_a, ACCOUNT_HOST_BYTES, UINT64_MAX - 1), 0);
	/* Overflow of the account's sum, then of the book's alone. */
	assert_int_equal(account_charge(a, &charge_b, ACCOUNT_HOST_BYTES, 2), ACCOUNT_E_QUOTA);
	assert_int_equal(account_charge(a, &charge_b, ACCOUNT_HOST_BYTES, UINT64_MAX),
			 ACCOUNT_E_QUOTA);
	assert_int_equal(account_charge(b, &charge_b, ACCOUNT_HOST_BYTES, 2), ACCOUNT_E_QUOTA);
	assert_int_equal(account_used(b, ACCOUNT_HOST_BYTES), 0);
	assert_int_equal(account_charge(b, &charge_b, ACCOUNT_HOST_BYTES, 1), 0);
	assert_int_equal(account_book_total(book, ACCOUNT_HOST_BYTES), UINT64_MAX);
	charge_deinit(&charge_b);
	charge_deinit(&charge_a);
	account_unref(a);
	account_unref(b);
	account_book_free(book);
}

/* Two accounts of one name are distinct: a tenant that a policy dropped, and its successor. */
TEST(test_account__lifetime)
{
	struct account_book *book = book_make();
	struct account *a = account_make(book, "web", UINT64_MAX);
	struct account *b = account_make(book, "web", UINT64_MAX);
	struct account *again = account_ref(a);
	struct charge charge = CHARGE_INIT, moved = CHARGE_INIT;

	assert_int_equal(account_charge(a, &charge, ACCOUNT_PLANS, 2), 0);
	assert_int_equal(account_charge(again, &moved, ACCOUNT_PLANS, 1), ACCOUNT_E_QUOTA);
	assert_int_equal(account_charge(b, &moved, ACCOUNT_PLANS, 1), 0);
	assert_int_equal(account_book_total(book, ACCOUNT_PLANS), 3);
	charge_deinit(&moved);

	/* A charge keeps its account alive. A stolen charge is refunded once. */
	account_unref(a);
	account_unref(again);
	moved = charge_steal(&charge);
	assert_null(charge.account);
	charge_deinit(&charge);
	assert_int_equal(account_used(moved.account, ACCOUNT_PLANS), 2);
	assert_int_equal(account_book_total(book, ACCOUNT_PLANS), 2);
	charge_deinit(&moved);
	assert_int_equal(account_book_total(book, ACCOUNT_PLANS), 0);
	account_unref(b);
	assert_null(account_unref(NULL));
	assert_null(account_book_free(book));
	assert_null(account_book_free(NULL));
}

/* Existing charges stay; nothing is added until the account is below its new limit. */
TEST(test_limits__lowered)
{
	struct account_book *book = book_make();
	struct account *account = account_make(book, "web", 1000);
	struct charge a = CHARGE_INIT, b = CHARGE_INIT, c = CHARGE_INIT;
	struct account_limits lower = limits_make(100);

	assert_int_equal(account_charge(account, &a, ACCOUNT_HOST_BYTES, 600), 0);
	assert_int_equal(account_charge(account, &b, ACCOUNT_HOST_BYTES, 90), 0);
	account_set_limits(account, &lower);
	assert_int_equal(account_limit(account, ACCOUNT_HOST_BYTES), 100);
	assert_int_equal(account_used(account, ACCOUNT_HOST_BYTES), 690);
	assert_int_equal(account_charge(account, &c, ACCOUNT_HOST_BYTES, 1), ACCOUNT_E_QUOTA);
	assert_int_equal(account_charge(account, &c, ACCOUNT_HOST_BYTES, 0), 0);
	charge_deinit(&c);
	charge_deinit(&a);
	assert_int_equal(account_charge(account, &c, ACCOUNT_HOST_BYTES, 11), ACCOUNT_E_QUOTA);
	assert_int_equal(account_charge(account, &c, ACCOUNT_HOST_BYTES, 10), 0);
	charge_deinit(&b);
	charge_deinit(&c);
	account_unref(account);
	account_book_free(book);
}

TEST(test_charge_set__follows)
{
	struct account_book *book = book_make();
	struct account *broker = account_make(book, "broker", UINT64_MAX);
	struct account *web = account_make(book, "web", UINT64_MAX);
	struct charge driver = CHARGE_INIT, plan = CHARGE_INIT;
	enum account_slot slot = account_vram(1);

	account_charge_set(broker, &driver, slot, 500);
	assert_int_equal(account_charge(web, &plan, slot, 40), 0);
	assert_int_equal(account_used(broker, slot), 500);
	assert_int_equal(account_book_total(book, slot), 540);
	account_charge_set(broker, &driver, slot, 30);
	assert_int_equal(account_used(broker, slot), 30);
	assert_int_equal(account_book_total(book, slot), 70);
	account_charge_set(broker, &driver, slot, 0);
	assert_int_equal(account_book_total(book, slot), 40);
	/* Setting a charge ignores limits; only a sum that would overflow is cut off. */
	account_set_limits(broker, &(struct account_limits){{0}});
	account_charge_set(broker, &driver, slot, 1000);
	assert_int_equal(account_used(broker, slot), 1000);
	account_charge_set(broker, &driver, slot, UINT64_MAX);
	assert_int_equal(account_used(broker, slot), UINT64_MAX - 40);
	assert_int_equal(account_book_total(book, slot), UINT64_MAX);
	charge_deinit(&driver);
	charge_deinit(&plan);
	account_unref(broker);
	account_unref(web);
	account_book_free(book);
}

/* The longest texts that can occur. Each slot has its own. */
TEST(test_explain__fits)
{
	struct account_book *book = book_make();
	static char whys[ACCOUNT_SLOT_COUNT][ACCOUNT_TEXT_BYTES];
	char name[ACCOUNT_NAME_BYTES];
	struct charge charge = CHARGE_INIT, more = CHARGE_INIT;
	struct account_limits limits;
	struct account *account;

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	account = account_make(book, name, 0);
	for (int slot = 0; slot < ACCOUNT_SLOT_COUNT; slot++) {
		for (int i = 0; i < ACCOUNT_SLOT_COUNT; i++)
			limits.max[i] = UINT64_MAX;
		account_set_limits(account, &limits);
		assert_int_equal(account_charge(account, &charge, slot, UINT64_MAX), 0);
		assert_int_equal(account_charge(account, &more, slot, UINT64_MAX), ACCOUNT_E_QUOTA);
		account_explain(account, whys[slot]);
		assert_non_null(
			strstr(whys[slot], slot < ACCOUNT_ARENA_BYTES
						   ? ", and asks for 18446744073709551615 more"
						   : ", and asks for 16 EiB more"));
		for (int i = 0; i < slot; i++)
			assert_string_not_equal(whys[slot], whys[i]);
		charge_deinit(&charge);
	}
	account_unref(account);
	account_book_free(book);
}

TEST(test_account__many)
{
	enum { N_USERS = 300 };
	struct account_book *book = book_make();
	struct account *accounts[N_USERS];
	struct charge charges[N_USERS];
	unsigned int seed = 7;
	uint64_t total = 0;

	for (int i = 0; i < N_USERS; i++) {
		charges[i] = CHARGE_INIT;
		accounts[i] = account_make(book, "one of many", 100);
	}
	for (int round = 0; round < 20000; round++) {
		int i = rand_r(&seed) % N_USERS;
		uint64_t amount = rand_r(&seed) % 150;

		if (charges[i].account) {
			total -= charges[i].amount;
			charge_deinit(&charges[i]);
		} else if (amount > 100) {
			assert_int_equal(account_charge(accounts[i], &charges[i],
							ACCOUNT_HOST_BYTES, amount),
					 ACCOUNT_E_QUOTA);
		} else {
			assert_int_equal(account_charge(accounts[i], &charges[i],
							ACCOUNT_HOST_BYTES, amount),
					 0);
			total += amount;
		}
		assert_int_equal(account_book_total(book, ACCOUNT_HOST_BYTES), total);
	}
	for (int i = 0; i < N_USERS; i++) {
		account_unref(accounts[i]);
		charge_deinit(&charges[i]);
	}
	assert_int_equal(account_book_total(book, ACCOUNT_HOST_BYTES), 0);
	account_book_free(book);
}

static void leave_account(void)
{
	struct account_book *book = book_make();

	if (account_make(book, "left", 100))
		account_book_free(book);
}

static void leave_charge(void)
{
	struct account_book *book = book_make();
	struct account *account = account_make(book, "web", 100);
	struct charge charge = CHARGE_INIT;

	if (account_charge(account, &charge, ACCOUNT_ARENAS, 1))
		return;
	account_unref(account);
	account_book_free(book);
}

static void unref_too_often(void)
{
	struct account_book *book = book_make();
	struct account *account = account_make(book, "web", 100);
	struct charge charge = CHARGE_INIT;

	if (account_charge(account, &charge, ACCOUNT_ARENAS, 1))
		return;
	account_unref(account);
	account_unref(account);
}

static void charge_twice(void)
{
	struct account_book *book = book_make();
	struct account *account = account_make(book, "web", 100);
	struct charge charge = CHARGE_INIT;

	if (account_charge(account, &charge, ACCOUNT_ARENAS, 1))
		return;
	(void)account_charge(account, &charge, ACCOUNT_ARENAS, 1);
}

static void undo_copy(void)
{
	struct account_book *book = book_make();
	struct account *account = account_make(book, "web", 100);
	struct charge charge = CHARGE_INIT, copy;

	if (account_charge(account, &charge, ACCOUNT_ARENAS, 1))
		return;
	copy = charge;
	charge_deinit(&charge);
	charge_deinit(&copy);
}

static void set_others(void)
{
	struct account_book *book = book_make();
	struct account *account = account_make(book, "web", 100);
	struct account *other = account_make(book, "other", 100);
	struct charge charge = CHARGE_INIT;

	if (account_charge(account, &charge, ACCOUNT_ARENAS, 1))
		return;
	account_charge_set(other, &charge, ACCOUNT_ARENAS, 2);
}

static void balanced(void)
{
	struct account_book *book = book_make();
	struct account *account = account_make(book, "web", 100);
	struct charge charge = CHARGE_INIT;

	if (account_charge(account, &charge, ACCOUNT_ARENAS, 1))
		abort();
	account_unref(account);
	charge_deinit(&charge);
	account_book_free(book);
}

TEST(test_ledger__imbalance_is_fatal)
{
	assert_true(aborts(leave_account));
	assert_true(aborts(leave_charge));
	assert_true(aborts(unref_too_often));
	assert_true(aborts(charge_twice));
	assert_true(aborts(undo_copy));
	assert_true(aborts(set_others));
	assert_false(aborts(balanced));
}

TEST(test_new__allocation)
{
	struct account_limits limits = {{0}};
	struct account_book *book = NULL;
	struct account *account = NULL;
	int r;

	fail_alloc_at(1);
	r = account_book_new(&book);
	assert_true(fail_alloc_stop());
	assert_int_equal(r, -ENOMEM);
	assert_null(book);

	book = book_make();
	fail_alloc_at(1);
	r = account_new(book, "web", &limits, &account);
	assert_true(fail_alloc_stop());
	assert_int_equal(r, -ENOMEM);
	assert_null(account);
	account_book_free(book);
}

/* Where rounded sizes look as if the request fitted, the sentence has the exact excess. */
TEST(test_explain__excess)
{
	struct account_book *book;
	struct account *account;
	struct charge charge = CHARGE_INIT, more = CHARGE_INIT;
	char why[ACCOUNT_TEXT_BYTES];

	assert_int_equal(account_book_new(&book), 0);
	account = account_make(book, "web", 64 << 20);
	assert_int_equal(account_charge(account, &charge, ACCOUNT_HOST_BYTES, 60 << 20), 0);
	assert_int_equal(account_charge(account, &more, ACCOUNT_HOST_BYTES, (4 << 20) + 1),
			 ACCOUNT_E_QUOTA);
	assert_string_equal(account_explain(account, why),
			    "tenant web may have 64 MiB of host memory (host-max), has 60 MiB, and "
			    "asks for 4 MiB more, 1 byte too many");
	charge_deinit(&charge);
	account_unref(account);
	account_book_free(book);
}

/* All accounts together have a limit: a charge that fits the account may not fit the book. */
TEST(test_book__limit)
{
	struct account_limits limits = {{0}};
	struct account *first, *second;
	struct account_book *book;
	struct charge a = CHARGE_INIT, b = CHARGE_INIT, c = CHARGE_INIT;
	char text[ACCOUNT_TEXT_BYTES];

	limits.max[ACCOUNT_HOST_BYTES] = 100;
	limits.max[ACCOUNT_FDS] = 10;
	assert_int_equal(account_book_new(&book), 0);
	assert_int_equal(account_new(book, "first", &limits, &first), 0);
	assert_int_equal(account_new(book, "second", &limits, &second), 0);
	assert_true(account_book_max(book, ACCOUNT_HOST_BYTES) == UINT64_MAX);
	account_book_limit(book, ACCOUNT_HOST_BYTES, 150);
	assert_int_equal(account_charge(first, &a, ACCOUNT_HOST_BYTES, 90), 0);
	assert_int_equal(account_charge(second, &b, ACCOUNT_HOST_BYTES, 61), ACCOUNT_E_QUOTA);
	assert_string_equal(account_explain(second, text),
			    "all tenants together may have 150 B of host memory (the broker's "
			    "host-max), have 90 B, and tenant second asks for 61 B more");
	assert_int_equal(account_charge(second, &b, ACCOUNT_HOST_BYTES, 60), 0);
	assert_int_equal(account_charge(second, &c, ACCOUNT_HOST_BYTES, 0), 0);
	charge_deinit(&c);
	assert_int_equal(account_charge(second, &c, ACCOUNT_FDS, 10), 0);
	charge_deinit(&c);
	/* The account's own limit is named first. */
	assert_int_equal(account_charge(second, &c, ACCOUNT_HOST_BYTES, 41), ACCOUNT_E_QUOTA);
	assert_string_equal(
		account_explain(second, text),
		"tenant second may have 100 B of host memory (host-max), has 60 B, and asks for "
		"41 B more");
	account_book_limit(book, ACCOUNT_HOST_BYTES, 10);
	charge_deinit(&a);
	assert_int_equal(account_charge(first, &a, ACCOUNT_HOST_BYTES, 1), ACCOUNT_E_QUOTA);
	charge_deinit(&b);
	assert_int_equal(account_charge(first, &a, ACCOUNT_HOST_BYTES, 10), 0);
	charge_deinit(&a);
	account_unref(first);
	account_unref(second);
	account_book_free(book);
}
