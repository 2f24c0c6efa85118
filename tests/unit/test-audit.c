/* SPDX-License-Identifier: MIT */
/* Audits of whether processes keep to their leases: broker/lease/audit.h. */
#include <stdlib.h>

#include "lease/audit.h"
#include "support/test.h"
#include "tenant/tenant.h"

enum { DEVICE = 1, TOLERANCE = 10 };

static struct account_book *book;
static struct tenant tenant;
static struct leases leases;

static int set_up(void **state)
{
	struct account_limits limits = {{0}};

	for (unsigned int i = 0; i < ACCOUNT_SLOT_COUNT; i++)
		limits.max[i] = 1000;
	tenant = (struct tenant){.lease_tolerance = TOLERANCE, .n_refs = 1, .is_named = true};
	assert_int_equal(leases_init(&leases), 0);
	assert_int_equal(account_book_new(&book), 0);
	assert_int_equal(account_new(book, "t", &limits, &tenant.account), 0);
	return 0;
}

static int tear_down(void **state)
{
	leases_deinit(&leases);
	account_unref(tenant.account);
	free(tenant.leases);
	account_book_free(book);
	return 0;
}

static struct lease *make(uint64_t bytes)
{
	const struct lease_about about = {
		.tenant = &tenant,
		.device = DEVICE,
		.min_bytes = 1,
		.wish_bytes = bytes,
		.max_bytes = 1000,
		.name = "test",
	};
	struct lease *lease;

	assert_int_equal(lease_new(&leases, &about, &lease), 0);
	assert_int_equal(lease_grant(lease, bytes, false), 0);
	audit_begin_anew(lease);
	return lease;
}

static void join(struct lease *lease, struct lease_member *member, pid_t pid, uint64_t credit)
{
	*member = (struct lease_member){.lease = NULL};
	lease_join(lease, member, pid);
	member->joined_ns = 100;
	assert_int_equal(lease_take(member, credit), 0);
}

TEST(test_find_lease, set_up, tear_down)
{
	struct lease_member member, unknown;
	struct lease *lease = make(100);

	join(lease, &member, 7, 0);
	join(lease, &unknown, 8, 0);
	unknown.joined_ns = 0;
	assert_ptr_equal(audit_find_lease(&leases, DEVICE, 7, 99), lease);
	assert_ptr_equal(audit_find_lease(&leases, DEVICE, 7, 100), lease);
	/* A later process with the same pid. */
	assert_null(audit_find_lease(&leases, DEVICE, 7, 101));
	assert_null(audit_find_lease(&leases, DEVICE, 8, 99));
	assert_null(audit_find_lease(&leases, DEVICE, 9, 99));
	assert_null(audit_find_lease(&leases, DEVICE + 1, 7, 99));
	lease_leave(&unknown);
	lease_leave(&member);
	lease_free(lease);
}

TEST(test_add_up, set_up, tear_down)
{
	struct lease_member members[3];
	struct lease *lease = make(100), *other = make(10);
	const struct audit_process processes[] = {
		{.pid = 1, .bytes = 500, .started_ns = 1, .lease = other},
		{.pid = 2, .bytes = 70, .started_ns = 1, .lease = lease},
		{.pid = 3, .bytes = 60, .started_ns = 1, .lease = lease},
		{.pid = 4, .bytes = 900, .started_ns = 1},
	};
	struct audit_sum sum;

	/* A process with two connections counts once. */
	join(lease, &members[0], 2, 40);
	join(lease, &members[1], 2, 25);
	join(lease, &members[2], 3, 10);
	audit_add_up(lease, processes, 4, &sum);
	assert_fields(sum, (seen_bytes, 130), (allowed_bytes, 100 + 2 * TOLERANCE));
	/* Process 3 uses less than process 2, but exceeds its small credit by more. */
	assert_int_equal(sum.worst, 2);
	audit_add_up(lease, processes, 1, &sum);
	assert_fields(sum, (worst, UINT32_MAX), (seen_bytes, 0));
	for (unsigned int i = 0; i < 3; i++)
		lease_leave(&members[i]);
	lease_free(other);
	lease_free(lease);
}

/* Bytes that the lease had when the list was made count, though they have been given back since. */
TEST(test_add_up__shrunk_meanwhile, set_up, tear_down)
{
	struct lease *lease = make(100);
	const struct audit_process process = {.pid = 2, .bytes = 300, .lease = lease};
	struct audit_sum sum;

	assert_int_equal(lease_grant(lease, 300, false), 0);
	assert_int_equal(lease_grant(lease, 100, false), 0);
	audit_add_up(lease, &process, 1, &sum);
	assert_int_equal(sum.allowed_bytes, 300 + TOLERANCE);
	audit_begin_anew(lease);
	audit_add_up(lease, &process, 1, &sum);
	assert_int_equal(sum.allowed_bytes, 100 + TOLERANCE);
	lease_free(lease);
}

/*
 * A process that reconnects after a restart of the broker is charged for the bytes it uses, not for
 * the bytes it reports.
 */
TEST(test_confirm, set_up, tear_down)
{
	struct lease_member member, second;
	struct lease *lease = make(100);
	struct audit_process process = {.pid = 2, .bytes = 80, .started_ns = 1, .lease = lease};

	join(lease, &member, 2, 30);
	/* A process that was not restored. */
	assert_null(audit_confirm(lease, &process, 60, false));
	assert_int_equal(member.credit_bytes, 30);
	/* The list was begun before the process was restored. */
	member.restored_ns = 50;
	assert_null(audit_confirm(lease, &process, 50, false));
	assert_int_equal(member.credit_bytes, 30);
	/* The process reported these bytes on another connection. */
	join(lease, &second, 2, 45);
	assert_null(audit_confirm(lease, &process, 60, false));
	lease_leave(&second);
	assert_null(audit_confirm(lease, &process, 60, true));
	assert_int_equal(member.credit_bytes, 30);

	assert_ptr_equal(audit_confirm(lease, &process, 60, false), &member);
	assert_int_equal(member.credit_bytes, 80);
	assert_int_equal(lease->credited_bytes, 80);
	assert_int_equal(lease_own_credit(&member), 30);
	assert_int_equal(lease_give(&member, 31), LEASE_E_LACKING);
	/* The charge follows the freed bytes down, and the process is named once. */
	process.bytes = 60;
	assert_null(audit_confirm(lease, &process, 70, false));
	assert_int_equal(member.credit_bytes, 60);
	process.bytes = 35;
	assert_null(audit_confirm(lease, &process, 80, false));
	assert_int_equal(member.credit_bytes, 30);
	/* The charge may exceed the grant, whatever the limits. */
	process.bytes = 500;
	assert_null(audit_confirm(lease, &process, 90, false));
	assert_int_equal(lease_granted(lease), 500);
	assert_int_equal(account_used(tenant.account, account_vram(DEVICE)), 500);
	lease_leave(&member);
	assert_int_equal(lease->credited_bytes, 0);
	lease_free(lease);
}

TEST(test_step__a_second_list)
{
	struct audit_case audit = {.noticed_ns = 50};

	/*
	 * The list was begun before the process was noticed, so it may describe an earlier process.
	 */
	assert_int_equal(audit_step(&audit, POLICY_AUDIT_STOP, 49, 60), 0);
	assert_int_equal(audit_step(&audit, POLICY_AUDIT_STOP, 50, 60), 0);
	assert_int_equal(audit_step(&audit, POLICY_AUDIT_STOP, 51, 60),
			 AUDIT_TELL | AUDIT_TERMINATE);
	assert_int_equal(audit_step(&audit, POLICY_AUDIT_STOP, 52, 60 + AUDIT_KILL_NS - 1), 0);
	assert_int_equal(audit_step(&audit, POLICY_AUDIT_STOP, 53, 60 + AUDIT_KILL_NS), AUDIT_KILL);
	assert_int_equal(audit_step(&audit, POLICY_AUDIT_STOP, 54, 60 + 5 * AUDIT_KILL_NS), 0);
}

TEST(test_step__milder_then_stricter_policy)
{
	for (unsigned int action = 0; action < POLICY_AUDIT_STOP; action++) {
		struct audit_case audit = {.noticed_ns = 50};

		assert_int_equal(audit_step(&audit, action, 51, 60),
				 action == POLICY_AUDIT_OFF ? 0 : AUDIT_TELL);
		assert_int_equal(audit_step(&audit, action, 52, 60 + 5 * AUDIT_KILL_NS), 0);
		/* The policy becomes stricter. */
		assert_true(audit_step(&audit, POLICY_AUDIT_STOP, 53, 61 + 5 * AUDIT_KILL_NS) &
			    AUDIT_TERMINATE);
	}
}

static bool spares(pid_t pid, uid_t uid, bool has_lease, uint64_t started_ns)
{
	const struct audit_suspect suspect = {
		.pid = pid, .uid = uid, .has_lease = has_lease, .started_ns = started_ns};

	return audit_spares(&suspect, 77, 1000) != NULL;
}

TEST(test_spared_processes)
{
	assert_false(spares(5, 1000, false, 1001));
	assert_false(spares(5, 1000, true, 999));
	assert_true(spares(5, 1000, false, 999));
	assert_true(spares(5, 0, true, 1001));
	assert_true(spares(77, 1000, true, 1001));
	assert_true(spares(1, 1000, true, 1001));
	assert_true(spares(0, 1000, true, 1001));
	assert_true(spares(-1, 1000, true, 1001));
}
