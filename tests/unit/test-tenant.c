/* SPDX-License-Identifier: MIT */
/* Tenants: limits from a policy, references, allocation failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "fail-alloc.h"
#include "tenant/tenant.h"

#define GIB ((uint64_t)1 << 30)

static const struct tenants_machine machine = {
	.host_bytes = 16 * GIB,
	.vram_bytes = {0, 8 * GIB},
	.gtt_bytes = {0, 12 * GIB},
	.n_devices = 2,
	.n_fds = 1000,
	.n_mappings = 2000,
};

static void test_defaults__limits(void **state)
{
	const struct peer peer = {.pid = 1, .uid = 7, .gid = 7};
	struct tenants *tenants = NULL;
	struct account_book *book = NULL;
	struct policy *policy = NULL;
	struct tenant *tenant;
	char *errors = NULL;

	assert_int_equal(account_book_new(&book), 0);
	assert_int_equal(policy_defaults(&policy), 0);
	assert_int_equal(tenants_new(book, &machine, policy, &tenants, &errors), 0);
	assert_ptr_equal(tenants_book(tenants), book);
	assert_ptr_equal(tenants_policy(tenants), policy);

	tenant = tenants_find(tenants, &peer);
	assert_string_equal(tenant_name(tenant), "default");
	assert_ptr_equal(tenant, tenants_first(tenants));
	assert_null(tenants_next(tenants, tenant));
	assert_int_equal(tenant->n_refs, 1);
	assert_int_equal(tenant->shares[1].max, 8 * GIB);
	assert_int_equal(tenant->shares[1].reserve, 0);
	assert_int_equal(tenant->shares[1].high, 8 * GIB);
	assert_int_equal(tenant->shares[0].max, 0);
	assert_int_equal(account_limit(tenant->account, account_vram(1)), 8 * GIB);
	assert_int_equal(account_limit(tenant->account, account_gtt(1)), 6 * GIB);
	assert_int_equal(account_limit(tenant->account, account_vram(0)), 0);
	assert_int_equal(account_limit(tenant->account, ACCOUNT_HOST_BYTES), 12 * GIB);
	assert_int_equal(account_limit(tenant->account, ACCOUNT_FDS), 1000);
	assert_int_equal(account_limit(tenant->account, ACCOUNT_MAPPINGS), 2000);
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

static void test_new__allocation(void **state)
{
	struct tenants *tenants = NULL;
	struct account_book *book = NULL;
	struct policy *policy = NULL;
	char *errors = NULL;
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
		assert_null(errors);
	}
	assert_int_equal(r, 0);
	assert_true(n > 4);
	tenants_free(tenants);
	account_book_free(book);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults__limits),
		cmocka_unit_test(test_new__allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
