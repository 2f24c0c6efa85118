/* SPDX-License-Identifier: MIT */
/* Tenants: limits from a policy, lifetime across reloads, and reloads that fail */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fail-alloc.h"
#include "support/test.h"
#include "tenant/policy-private.h"
#include "tenant/tenant.h"

#define GIB ((uint64_t)1 << 30)

static const struct tenants_machine machine = {
	.host_bytes = 16 * GIB,
	.vram_bytes = {0, 8 * GIB},
	.gtt_bytes = {0, 12 * GIB},
	.n_devices = 2,
	.n_fds = 1000,
	.n_mappings = 2000,
	.n_watches = 3000,
};

TEST(test_defaults__limits)
{
	const struct peer peer = {.pid = 1, .uid = 7, .gid = 7};
	struct tenants *tenants = NULL;
	struct account_book *book = NULL;
	struct policy *policy = NULL;
	struct tenant *tenant;
	struct policy_errors errors = {.n = 0};

	assert_int_equal(account_book_new(&book), 0);
	assert_int_equal(policy_defaults(&policy), 0);
	assert_int_equal(tenants_new(book, &machine, policy, &tenants, &errors), 0);
	assert_ptr_equal(tenants_book(tenants), book);
	assert_ptr_equal(tenants_policy(tenants), policy);

	tenant = tenants_find(tenants, &peer);
	assert_string_equal(tenant_name(tenant), "default");
	assert_ptr_equal(tenant, tenants_first(tenants));
	assert_null(tenants_next(tenants, tenant));
	assert_fields(*tenant, (n_refs, 1), (shares[1].max, 8 * GIB), (shares[1].reserve, 0),
		      (shares[1].high, 8 * GIB), (shares[0].max, 0));
	assert_int_equal(account_limit(tenant->account, account_vram(1)), 8 * GIB);
	assert_int_equal(account_limit(tenant->account, account_gtt(1)), 6 * GIB);
	assert_int_equal(account_limit(tenant->account, account_vram(0)), 0);
	assert_int_equal(account_limit(tenant->account, ACCOUNT_HOST_BYTES), 12 * GIB);
	assert_int_equal(account_limit(tenant->account, ACCOUNT_FDS), 1000);
	assert_int_equal(account_limit(tenant->account, ACCOUNT_MAPPINGS), 2000);
	assert_int_equal(account_limit(tenant->account, ACCOUNT_WATCHES), 3000);
	assert_int_equal(account_limit(tenant->account, ACCOUNT_SESSIONS), 16384);
	assert_int_equal(account_limit(tenant->account, ACCOUNT_RINGS), 65536);
	/* Two users of a tenant are two owners. */
	assert_int_equal(tenant_owner(tenant, 7), tenant_owner(tenant, 7));
	assert_int_not_equal(tenant_owner(tenant, 7), tenant_owner(tenant, 8));
	assert_int_not_equal(tenant_owner(tenant, 0), 0);
	tenant_unref(tenant);
	assert_null(tenant_unref(NULL));

	assert_string_equal(account_name(tenants_broker_account(tenants)), "broker");
	assert_int_equal(account_limit(tenants_broker_account(tenants), account_vram(1)),
			 UINT64_MAX);
	assert_null(tenants_free(tenants));
	assert_null(tenants_free(NULL));
	account_book_free(book);
}

TEST(test_new__allocation)
{
	struct tenants *tenants = NULL;
	struct account_book *book = NULL;
	struct policy *policy = NULL;
	struct policy_errors errors = {.n = 0};
	unsigned int n;
	int r;

	assert_int_equal(account_book_new(&book), 0);
	assert_int_equal(policy_defaults(&policy), 0);
	for (n = 1;; n++) {
		fail_alloc_at(n);
		r = tenants_new(book, &machine, policy, &tenants, &errors);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_null(tenants);
		assert_null(errors.text);
	}
	assert_int_equal(r, 0);
	assert_true(n > 4);
	tenants_free(tenants);
	account_book_free(book);
}

static struct policy *load(const char *text)
{
	struct policy *policy = NULL;
	struct policy_errors errors = {.n = 0};

	if (policy_load_text("f", text, strlen(text), NULL, &policy, &errors))
		fail_msg("%s", errors.text);
	return policy;
}

static const char two[] = "[tenant a]\nmatch-uid = 1\nvram-max = 50%\nvram-reserve = 1GiB\n"
			  "vram-high = 25%\nhost-max = 1GiB\nsessions-max = 2\narenas-max = 3\n"
			  "arena-bytes-max = 4\nplans-max = 5\ntasks-max = 6\nweight = 7\n"
			  "gtt-max = 8\npriority-max = high\ncpu-max = 50%\n"
			  "[tenant b]\nmatch-uid = 2\n";

struct fixture {
	struct account_book *book;
	struct tenants *tenants;
};

static void fixture_init(struct fixture *fixture, const char *text)
{
	struct policy_errors errors = {.n = 0};

	assert_int_equal(account_book_new(&fixture->book), 0);
	assert_int_equal(
		tenants_new(fixture->book, &machine, load(text), &fixture->tenants, &errors), 0);
}

static void fixture_deinit(struct fixture *fixture)
{
	tenants_free(fixture->tenants);
	account_book_free(fixture->book);
}

#define FIXTURE(name, ...) SCOPED(fixture, name, fixture_init, fixture_deinit, __VA_ARGS__)

static struct tenant *find(struct fixture *fixture, uid_t uid)
{
	const struct peer peer = {.pid = 1, .uid = uid, .gid = 100};

	return tenants_find(fixture->tenants, &peer);
}

static void reload(struct fixture *fixture, const char *text)
{
	struct policy_errors errors = {.n = 0};

	assert_int_equal(tenants_reload(fixture->tenants, load(text), &errors), 0);
}

static unsigned int count(const struct fixture *fixture)
{
	unsigned int n = 0;

	for (struct tenant *t = tenants_first(fixture->tenants); t;
	     t = tenants_next(fixture->tenants, t))
		n++;
	return n;
}

TEST(test_limits__from_policy)
{
	struct tenant *a, *b, *other;
	struct account *account;

	FIXTURE(fixture, two);
	a = find(&fixture, 1);
	b = find(&fixture, 2);
	other = find(&fixture, 3);
	assert_string_equal(tenant_name(a), "a");
	assert_string_equal(tenant_name(b), "b");
	assert_string_equal(tenant_name(other), "default");
	assert_int_not_equal(a->number, b->number);
	assert_int_equal(count(&fixture), 3);

	account = a->account;
	assert_fields(*a, (shares[1].max, 4 * GIB), (shares[1].reserve, GIB),
		      (shares[0].reserve, 0), (shares[1].high, 2 * GIB), (weight, 7));
	assert_float_equal(a->cpu_max, 0.5, 0);
	assert_float_equal(b->cpu_max, 0, 0);
	assert_int_equal(a->priority_max, RBK_PRIORITY_HIGH);
	assert_int_equal(account_limit(account, account_vram(1)), 4 * GIB);
	assert_int_equal(account_limit(account, account_gtt(1)), 8);
	assert_int_equal(account_limit(account, ACCOUNT_HOST_BYTES), GIB);
	assert_int_equal(account_limit(account, ACCOUNT_SESSIONS), 2);
	assert_int_equal(account_limit(account, ACCOUNT_RINGS), 8);
	assert_int_equal(account_limit(account, ACCOUNT_ARENAS), 3);
	assert_int_equal(account_limit(account, ACCOUNT_ARENA_BYTES), 4);
	assert_int_equal(account_limit(account, ACCOUNT_PLANS), 5);
	assert_int_equal(account_limit(account, ACCOUNT_TASKS), 6);
	/* The process's limits are divided by three. */
	assert_int_equal(account_limit(account, ACCOUNT_FDS), 333);
	assert_int_equal(account_limit(b->account, ACCOUNT_MAPPINGS), 666);
	assert_int_equal(account_limit(b->account, ACCOUNT_WATCHES), 1000);
	tenant_unref(a);
	tenant_unref(b);
	tenant_unref(other);
}

/* Shares in bytes and in percent: vram-high stays between reserve and maximum. */
TEST(test_limits__mixed)
{
	struct tenant *a;

	FIXTURE(fixture, "[tenant a]\nmatch-uid = 1\nvram-max = 100GiB\n"
			 "vram-reserve = 4GiB\nvram-high = 10%\n");
	a = find(&fixture, 1);
	assert_fields(a->shares[1], (max, 8 * GIB), (high, 4 * GIB));
	reload(&fixture, "[tenant a]\nmatch-uid = 1\nvram-max = 25%\nvram-high = 6GiB\n");
	assert_fields(a->shares[1], (max, 2 * GIB), (high, 2 * GIB));
	tenant_unref(a);
}

TEST(test_reload__frees_unused_tenants)
{
	struct charge charge = CHARGE_INIT;
	struct tenant *a, *again, *b;
	uint32_t number;

	FIXTURE(fixture, two);
	a = find(&fixture, 1);
	b = find(&fixture, 2);
	number = b->number;
	assert_int_equal(account_charge(a->account, &charge, ACCOUNT_PLANS, 5), 0);
	tenant_unref(b);

	/* b had no references and is freed. a is no longer named, but stays with its limits. */
	reload(&fixture, "[tenant c]\nmatch-uid = 1\n");
	assert_int_equal(count(&fixture), 3);
	assert_false(a->is_named);
	assert_int_equal(account_limit(a->account, ACCOUNT_PLANS), 5);
	again = find(&fixture, 1);
	assert_string_equal(tenant_name(again), "c");
	tenant_unref(again);

	/* a is named again: the same tenant with new limits. c is freed. */
	reload(&fixture, "[tenant a]\nmatch-uid = 1\nplans-max = 1\n[tenant b]\nmatch-uid = 2\n");
	again = find(&fixture, 1);
	assert_ptr_equal(again, a);
	assert_true(a->is_named);
	assert_int_equal(account_limit(a->account, ACCOUNT_PLANS), 1);
	assert_int_equal(account_used(a->account, ACCOUNT_PLANS), 5);
	assert_int_equal(count(&fixture), 3);
	b = find(&fixture, 2);
	assert_true(b->number > number);
	tenant_unref(b);
	tenant_unref(again);

	/* The tenant is freed with its last session, while a charge still holds the account. */
	reload(&fixture, "");
	assert_int_equal(count(&fixture), 2);
	tenant_unref(a);
	assert_int_equal(count(&fixture), 1);
	assert_int_equal(account_used(charge.account, ACCOUNT_PLANS), 5);
	charge_deinit(&charge);
}

TEST(test_cgroup__matched_by_one_tenant)
{
	const struct peer in_a = {.pid = 1, .uid = 7, .cgroup = "/a"},
			  in_b = {.pid = 1, .uid = 7, .cgroup = "/b"}, elsewhere = {.uid = 7};
	struct tenant *a, *b, *other;

	FIXTURE(fixture, "[tenant a]\nmatch-cgroup = /a\n"
			 "[tenant b]\nmatch-cgroup = /b\nmatch-uid = 7\n");
	a = tenants_find(fixture.tenants, &in_a);
	b = tenants_find(fixture.tenants, &in_b);
	other = tenants_find(fixture.tenants, &elsewhere);
	assert_string_equal(tenant_name(b), "b");
	assert_true(tenants_is_cgroup(fixture.tenants, a));
	assert_false(tenants_is_cgroup(fixture.tenants, b));
	assert_false(tenants_is_cgroup(fixture.tenants, other));
	/* The tenants are no longer named. */
	reload(&fixture, "");
	assert_false(tenants_is_cgroup(fixture.tenants, a));
	tenant_unref(a);
	tenant_unref(b);
	tenant_unref(other);
}

TEST(test_reload__failure_changes_nothing)
{
	struct policy *policy = load("[tenant a]\nmatch-uid = 1\nvram-reserve = 7GiB\n"
				     "vram-max = 100%\nplans-max = 77\n"
				     "[tenant new]\nmatch-uid = 2\nvram-reserve = 1GiB\n");
	const struct policy *before;
	struct policy_errors errors = {.n = 0};
	struct tenant *a;
	unsigned int n;
	int r;

	FIXTURE(fixture, two);
	before = tenants_policy(fixture.tenants);
	a = find(&fixture, 1);
	assert_int_equal(tenants_reload(fixture.tenants, policy, &errors), POLICY_E_INVALID);
	assert_non_null(
		strstr(errors.text, "f:8: vram-reserve: with tenant new, 2 tenants reserve "));
	policy_errors_deinit(&errors);
	policy_free(policy);
	assert_ptr_equal(tenants_policy(fixture.tenants), before);
	assert_int_equal(account_limit(a->account, ACCOUNT_PLANS), 5);
	assert_int_equal(count(&fixture), 3);

	policy = load("[tenant a]\nmatch-uid = 1\nplans-max = 77\n[tenant new]\nmatch-uid = 2\n"
		      "[tenant newer]\nmatch-uid = 3\n");
	for (n = 1;; n++) {
		fail_alloc_at(n);
		r = tenants_reload(fixture.tenants, policy, &errors);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_ptr_equal(tenants_policy(fixture.tenants), before);
		assert_int_equal(account_limit(a->account, ACCOUNT_PLANS), 5);
		assert_int_equal(count(&fixture), 3);
	}
	assert_int_equal(r, 0);
	assert_int_equal(n, 7);
	assert_int_equal(account_limit(a->account, ACCOUNT_PLANS), 77);
	assert_int_equal(count(&fixture), 4);
	tenant_unref(a);
}

/* ---- Limits set by administrators ---- */

static void expect_set(struct tenants *tenants, struct tenant *tenant, const char *key,
		       const char *value, const char *why)
{
	char *errors = NULL;
	int r = tenants_set(tenants, tenant, key, value, &errors);

	assert_int_equal(r, why ? POLICY_E_INVALID : 0);
	if (why)
		assert_non_null(strstr(errors, why));
	else
		assert_null(errors);
	free(errors);
}

static void expect_reload(struct tenants *tenants, const char *text)
{
	struct policy_errors errors = {.n = 0};

	assert_int_equal(tenants_reload(tenants, load(text), &errors), 0);
}

TEST(test_set)
{
	static const char text[] = "[tenant default]\nweight = 5\n"
				   "[tenant a]\nmatch-uid = 1\nvram-reserve = 10%\n";
	struct account_book *book = NULL;
	struct tenants *tenants = NULL;
	struct tenant *a, *first;
	struct policy_errors errors = {.n = 0};
	uint64_t whole;

	assert_int_equal(account_book_new(&book), 0);
	assert_int_equal(tenants_new(book, &machine, load(text), &tenants, &errors), 0);
	first = tenants_get(tenants, 1);
	a = tenants_get(tenants, 2);
	assert_string_equal(tenant_name(first), "default");
	assert_string_equal(tenant_name(a), "a");
	assert_null(tenants_get(tenants, 3));
	assert_null(tenants_get(tenants, 0));
	whole = a->shares[1].max;

	/* A limit that follows another one continues to follow it. */
	expect_set(tenants, a, "vram-max", "50%", NULL);
	assert_fields(a->shares[1], (max, whole / 2), (high, whole / 2));
	assert_true(a->is_changed);
	assert_false(first->is_changed);
	expect_set(tenants, a, "vram-high", "60%", "more than vram-max");
	expect_set(tenants, a, "vram-max", "5%", "more than vram-max");
	expect_set(tenants, a, "vram-max", "lots", "is not a size");
	expect_set(tenants, a, "match-uid", "2", "cannot be changed");
	expect_set(tenants, a, "nonsense", "2", "no such key");
	assert_int_equal(a->shares[1].max, whole / 2);
	/* The sum of all reserves must fit. */
	expect_set(tenants, first, "vram-reserve", "94%", "may be reserved");
	assert_false(first->is_changed);
	assert_int_equal(first->shares[1].reserve, 0);
	expect_set(tenants, first, "vram-reserve", "40%", NULL);
	expect_set(tenants, first, "weight", "6", NULL);
	assert_int_equal(first->weight, 6);

	/* A reload of an unchanged file keeps set limits. A key that changes takes the file's
	 * value. */
	expect_reload(tenants, text);
	assert_int_equal(first->weight, 6);
	assert_int_equal(a->shares[1].max, whole / 2);
	expect_reload(tenants, "[tenant default]\nweight = 7\n"
			       "[tenant a]\nmatch-uid = 1\nvram-reserve = 10%\n");
	assert_int_equal(first->weight, 7);
	assert_true(first->shares[1].reserve > 0);
	/* Reserves in the file take precedence. */
	expect_reload(tenants, "[tenant a]\nmatch-uid = 1\nvram-reserve = 80%\n");
	assert_int_equal(first->shares[1].reserve, 0);
	assert_false(first->is_changed);
	assert_false(a->is_changed);
	assert_int_equal(a->shares[1].max, whole);

	expect_set(tenants, a, "weight", "9", NULL);
	expect_set(tenants, a, "weight", "default", NULL);
	expect_set(tenants, a, "weight", "default", NULL);
	assert_int_equal(a->weight, 100);
	assert_false(a->is_changed);
	/*
	 * Set limits end with their tenant. A tenant that is no longer named has no section to
	 * change.
	 */
	expect_set(tenants, a, "weight", "9", NULL);
	tenant_ref(a);
	expect_reload(tenants, "");
	expect_set(tenants, a, "weight", "10", "no longer names");
	tenant_unref(a);
	assert_null(tenants_get(tenants, 2));
	tenants_free(tenants);
	account_book_free(book);
}

static void expect_note(const struct tenants *tenants, const struct tenant *tenant, const char *key,
			const char *note)
{
	char *text = tenants_note(tenants, tenant, key);

	if (note)
		assert_string_equal(text, note);
	else
		assert_null(text);
	free(text);
}

/* A limit above what the machine has is accepted, with a note. */
TEST(test_set__beyond_the_machine)
{
	struct account_book *book = NULL;
	struct tenants *tenants = NULL;
	struct tenant *tenant;
	struct policy_errors errors = {.n = 0};

	assert_int_equal(account_book_new(&book), 0);
	assert_int_equal(tenants_new(book, &machine, load("[tenant default]\n"), &tenants, &errors),
			 0);
	tenant = tenants_get(tenants, 1);
	expect_set(tenants, tenant, "vram-max", "9GiB", NULL);
	expect_note(tenants, tenant, "vram-max",
		    "above the 8 GiB of device 1, which limits it there");
	assert_int_equal(tenant->shares[1].max, 8 * GIB);
	expect_note(tenants, tenant, "weight", NULL);
	expect_set(tenants, tenant, "vram-max", "8GiB", NULL);
	expect_note(tenants, tenant, "vram-max", NULL);
	expect_set(tenants, tenant, "gtt-max", "13GiB", NULL);
	expect_note(tenants, tenant, "gtt-max",
		    "above the 12 GiB of GTT of device 1, which limits it there");
	expect_set(tenants, tenant, "host-max", "16385MiB", NULL);
	expect_note(tenants, tenant, "host-max",
		    "above the 16 GiB (17179869184 bytes) of all tenants together, the broker's "
		    "host-max, which limits it");
	tenants_free(tenants);
	account_book_free(book);
}

/* A refused change is explained without a place in a file, and without a line break. */
TEST(test_set__sentence)
{
	struct account_book *book = NULL;
	struct tenants *tenants = NULL;
	char *errors = NULL;

	assert_int_equal(account_book_new(&book), 0);
	assert_int_equal(tenants_new(book, &machine,
				     load("[tenant default]\n[tenant a]\nmatch-uid = 1\n"
					  "vram-reserve = 25%\nvram-max = 4GiB\n"),
				     &tenants, &(struct policy_errors){.n = 0}),
			 0);
	assert_int_equal(tenants_set(tenants, tenants_get(tenants, 2), "vram-max", "1GiB", &errors),
			 POLICY_E_INVALID);
	assert_string_equal(errors, "vram-reserve: tenant a reserves 2 GiB of device 1, more than "
				    "its vram-max of 1 GiB on that device");
	free(errors);
	tenants_free(tenants);
	account_book_free(book);
}

TEST(test_keys)
{
	struct account_book *book = NULL;
	struct tenants *tenants = NULL;
	struct tenant_key key;
	struct tenant *tenant;
	struct policy_errors errors = {.n = 0};

	assert_int_equal(account_book_new(&book), 0);
	assert_int_equal(tenants_new(book, &machine, load("[tenant default]\nvram-max = 50%\n"),
				     &tenants, &errors),
			 0);
	tenant = tenants_get(tenants, 1);
	assert_true(tenants_key(tenants, tenant, 0, &key));
	assert_string_equal(key.name, "vram-max");
	assert_string_equal(key.value, "50%");
	assert_false(key.is_changed);
	expect_set(tenants, tenant, "vram-max", "1GiB", NULL);
	assert_true(tenants_key(tenants, tenant, 0, &key));
	assert_string_equal(key.value, "1GiB");
	assert_string_equal(key.policy_value, "50%");
	assert_true(key.is_changed);
	assert_true(tenants_key(tenants, tenant, tenants_n_keys() - 1, &key));
	assert_false(tenants_key(tenants, tenant, tenants_n_keys(), &key));
	assert_false(tenants_key(tenants, tenant, UINT32_MAX, &key));
	tenants_free(tenants);
	account_book_free(book);
}

TEST(test_set__allocation)
{
	struct account_book *book = NULL;
	struct tenants *tenants = NULL;
	struct tenant *first;
	char *errors = NULL;
	unsigned int n;
	int r;

	assert_int_equal(account_book_new(&book), 0);
	assert_int_equal(
		tenants_new(book, &machine, load(""), &tenants, &(struct policy_errors){.n = 0}),
		0);
	first = tenants_get(tenants, 1);
	expect_set(tenants, first, "plans-max", "3", NULL);
	for (n = 1;; n++) {
		fail_alloc_at(n);
		r = tenants_set(tenants, first, "weight", "9", &errors);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_null(errors);
		assert_int_equal(first->weight, 100);
		assert_int_equal(account_limit(first->account, ACCOUNT_PLANS), 3);
	}
	assert_int_equal(r, 0);
	assert_int_equal(first->weight, 9);
	assert_true(n > 3);
	tenants_free(tenants);
	account_book_free(book);
}
