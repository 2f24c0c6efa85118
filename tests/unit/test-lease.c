/* SPDX-License-Identifier: MIT */
/* The accounts of leases: broker/lease/lease.h. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "lease/lease.h"
#include "support/test.h"
#include "tenant/tenant.h"

enum { DEVICE = 1, N_TENANTS = 2, TOTAL = 700 };

static struct account_book *book;
static struct tenant tenants[N_TENANTS];
static struct leases leases;

static void allow(unsigned int tenant, uint64_t max_bytes)
{
	struct account_limits limits;

	for (int slot = 0; slot < ACCOUNT_SLOT_COUNT; slot++)
		limits.max[slot] = UINT64_MAX;
	limits.max[account_vram(DEVICE)] = max_bytes;
	account_set_limits(tenants[tenant].account, &limits);
	tenants[tenant].shares[DEVICE] = (struct tenant_share){.max = max_bytes};
}

static int setup(void **state)
{
	const struct account_limits none = {{0}};

	assert_int_equal(account_book_new(&book), 0);
	for (unsigned int i = 0; i < N_TENANTS; i++) {
		tenants[i] = (struct tenant){.number = i + 1, .n_refs = 1, .is_named = true};
		assert_int_equal(account_new(book, "t", &none, &tenants[i].account), 0);
		allow(i, TOTAL);
	}
	assert_int_equal(leases_init(&leases), 0);
	return 0;
}

static int teardown(void **state)
{
	leases_deinit(&leases);
	for (unsigned int i = 0; i < N_TENANTS; i++) {
		assert_int_equal(tenants[i].n_refs, 1);
		assert_int_equal(leases_of(&tenants[i])->granted[DEVICE], 0);
		account_unref(tenants[i].account);
		free(tenants[i].leases);
	}
	account_book_free(book);
	return 0;
}

static struct lease *make(unsigned int tenant, uint64_t wish, uint64_t max)
{
	const struct lease_about about = {
		.tenant = &tenants[tenant],
		.device = DEVICE,
		.min_bytes = 1,
		.wish_bytes = wish,
		.max_bytes = max,
		.name = "test",
	};
	struct lease *lease;

	assert_int_equal(lease_new(&leases, &about, &lease), 0);
	return lease;
}

/* Return a lease with a member that has @credit. */
static struct lease *make_with(unsigned int tenant, uint64_t wish, uint64_t max,
			       struct lease_member *member, uint64_t credit)
{
	struct lease *lease = make(tenant, wish, max);

	*member = (struct lease_member){.lease = NULL};
	lease_join(lease, member, 1);
	assert_int_equal(lease_grant(lease, wish, false), 0);
	assert_int_equal(lease_take(member, credit), 0);
	return lease;
}

static void leave(struct lease_member *member)
{
	struct lease *lease = member->lease;

	lease_leave(member);
	if (lease->n_members == 0)
		lease_free(lease);
}

static uint64_t used(unsigned int tenant)
{
	return account_used(tenants[tenant].account, account_vram(DEVICE));
}

/* Assert the invariants of all leases and accounts. */
static void check(void)
{
	uint64_t sums[N_TENANTS] = {0};

	list_for_each (node, &leases.all) {
		const struct lease *lease = container_of(node, struct lease, link);
		uint64_t credit = lease->object_bytes;

		list_for_each (member_node, &lease->members)
			credit +=
				container_of(member_node, struct lease_member, link)->credit_bytes;
		assert_int_equal(credit, lease->credited_bytes);
		assert_true(lease->credited_bytes <= lease_granted(lease));
		sums[lease->tenant->number - 1] += lease_granted(lease);
	}
	for (unsigned int i = 0; i < N_TENANTS; i++) {
		assert_int_equal(sums[i], used(i));
		assert_int_equal(sums[i], leases_of(&tenants[i])->granted[DEVICE]);
	}
	assert_int_equal(leases.granted_bytes[DEVICE], sums[0] + sums[1]);
}

TEST(test_credit, setup, teardown)
{
	struct lease_member first, second = {.lease = NULL};
	struct lease *lease = make_with(0, 100, 300, &first, 60);

	lease_join(lease, &second, 2);
	assert_int_equal(lease_take(&second, 41), LEASE_E_LACKING);
	assert_int_equal(lease_take(&second, 40), 0);
	assert_int_equal(lease_ungiven(lease), 0);
	assert_int_equal(lease_give(&second, 41), LEASE_E_LACKING);
	/* Bytes granted beyond the wish are given back together with the credit. */
	assert_int_equal(lease_grant(lease, 200, false), 0);
	assert_int_equal(lease_take(&second, 100), 0);
	check();
	assert_int_equal(lease_give(&second, 30), 0);
	assert_int_equal(lease_granted(lease), 170);
	leave(&second);
	assert_int_equal(lease_granted(lease), 100);
	assert_int_equal(used(0), 100);
	check();
	leave(&first);
	assert_int_equal(used(0), 0);
}

TEST(test_grant__limits, setup, teardown)
{
	struct lease_member member;
	struct lease *lease;

	allow(0, 150);
	lease = make_with(0, 100, 300, &member, 100);
	assert_int_equal(lease_grant(lease, 151, false), LEASE_E_QUOTA);
	assert_int_equal(lease_granted(lease), 100);
	assert_int_equal(lease_grant(lease, 151, true), 0);
	assert_int_equal(lease_granted(lease), 151);
	check();
	/* A smaller grant always succeeds, also above the limit. */
	allow(0, 50);
	assert_int_equal(lease_grant(lease, 120, false), 0);
	check();
	leave(&member);
}

TEST(test_resize, setup, teardown)
{
	struct lease_member member;
	struct lease *lease = make_with(0, 200, 300, &member, 80);

	lease_resize(lease, 50);
	assert_int_equal(lease_granted(lease), 80);
	assert_true(lease_is_shrinking(lease));
	assert_int_equal(lease_give(&member, 20), 0);
	assert_int_equal(lease_granted(lease), 60);
	assert_int_equal(lease_give(&member, 60), 0);
	assert_int_equal(lease_granted(lease), 50);
	assert_false(lease_is_shrinking(lease));
	lease_resize(lease, 300);
	assert_int_equal(lease->limit_bytes, 300);
	/* The lease gets what its tenant's limits leave. */
	lease_allow(lease, 30);
	assert_int_equal(lease_granted(lease), 30);
	check();
	leave(&member);
}

/* Figures of what was moved are sums of any reports, and a lease that sleeps keeps no free memory.
 */
TEST(test_sleep, setup, teardown)
{
	struct lease_member first, second = {.lease = NULL};
	struct lease *lease = make_with(0, 60, 80, &first, 40);

	lease_join(lease, &second, 2);
	sleep_report(&first, UINT64_MAX, UINT64_MAX);
	sleep_report(&second, 10, 11);
	assert_fields(lease->sleep, (movable_bytes, (1ull << 48) + 10),
		      (moved_bytes, (1ull << 48) + 10));
	sleep_report(&first, 30, 20);
	assert_fields(lease->sleep, (movable_bytes, 40), (moved_bytes, 30));
	assert_int_equal(lease_granted(lease), 60);
	sleep_set(lease, RBK_LEASE_SLEEPS);
	assert_int_equal(lease_granted(lease), 40);
	assert_int_equal(lease_give(&first, 30), 0);
	assert_int_equal(lease_granted(lease), 10);
	/* Without moved memory its free memory is that of any lease. */
	sleep_report(&first, 30, 0);
	sleep_report(&second, 10, 0);
	assert_int_equal(lease_grant(lease, 60, false), 0);
	assert_int_equal(lease_trim(lease), 0);
	sleep_ask(lease);
	sleep_set(lease, RBK_LEASE_AWAKE);
	assert_int_equal(sleep_state(&lease->sleep), RBK_LEASE_ASKED);
	sleep_end_asking(&leases, DEVICE + 1);
	assert_int_equal(sleep_state(&lease->sleep), RBK_LEASE_ASKED);
	sleep_end_asking(&leases, DEVICE);
	assert_int_equal(sleep_state(&lease->sleep), RBK_LEASE_AWAKE);
	sleep_report(&second, 7, 7);
	leave(&second);
	assert_fields(lease->sleep, (movable_bytes, 30), (moved_bytes, 0));
	leave(&first);
	check();
}

TEST(test_report__no_overflow, setup, teardown)
{
	struct lease_member members[3];
	struct lease *lease = make_with(0, 1, 1, &members[0], 0);

	for (unsigned int i = 1; i < 3; i++) {
		members[i] = (struct lease_member){.lease = NULL};
		lease_join(lease, &members[i], 1);
	}
	for (unsigned int i = 0; i < 3; i++)
		lease_report(&members[i], &(struct lease_use){UINT64_MAX, UINT64_MAX - 5,
							      UINT32_MAX, UINT32_MAX});
	assert_true(lease->used_bytes < UINT64_MAX / 4 && lease->peak_bytes < UINT64_MAX / 2);
	assert_int_equal(lease->n_objects, 3ull * UINT32_MAX);
	lease_report(&members[0], &(struct lease_use){10, 5, 2, 1});
	lease_report(&members[1], &(struct lease_use){.used_bytes = 0});
	lease_report(&members[2], &(struct lease_use){.used_bytes = 0});
	assert_fields(*lease, (used_bytes, 10), (extra_bytes, 5), (n_objects, 2));
	/* Counts do not decrease, also not when a member leaves. */
	assert_int_equal(lease->n_refused, 3ull * UINT32_MAX);
	leave(&members[2]);
	leave(&members[1]);
	assert_int_equal(lease->n_refused, 3ull * UINT32_MAX);
	leave(&members[0]);
}

static struct parts_report parts_of(uint64_t count, uint64_t longest_ns)
{
	struct parts_report report = {.longest_ns = longest_ns};

	for (unsigned int i = 0; i < PARTS_COUNTS; i++)
		report.counts[i] = count + i;
	return report;
}

static void report_parts(struct lease_member *member, uint64_t count, uint64_t longest_ns,
			 uint64_t now_ns)
{
	const struct parts_report report = parts_of(count, longest_ns);

	parts_report(member, &report, now_ns);
}

/* Counts of parts only go up: a lower one, a member that leaves, and one that lies change nothing.
 */
TEST(test_parts__never_decrease, setup, teardown)
{
	const struct tenant_shared *shared;
	struct lease_member members[2];
	struct lease *lease = make_with(0, 1, 1, &members[0], 0), *other;

	members[1] = (struct lease_member){.lease = NULL};
	lease_join(lease, &members[1], 1);
	shared = &leases_of(&tenants[0])->shared;
	assert_false(lease->parts.is_reported);
	report_parts(&members[0], 10, 0, 1);
	report_parts(&members[1], 100, 0, 1);
	assert_true(lease->parts.is_reported);
	assert_int_equal(lease->parts.counts[PARTS_SUBMISSIONS], 110);
	assert_int_equal(lease->parts.counts[PARTS_UNSLICED], 110 + 2 * PARTS_UNSLICED);
	report_parts(&members[0], 3, 0, 2);
	assert_int_equal(lease->parts.counts[PARTS_SUBMISSIONS], 110);
	report_parts(&members[0], 11, 0, 2);
	leave(&members[1]);
	assert_int_equal(lease->parts.counts[PARTS_DIVIDED], 111 + 2);
	/* A member that comes back counts anew. */
	members[1] = (struct lease_member){.lease = NULL};
	lease_join(lease, &members[1], 1);
	report_parts(&members[1], 5, 0, 3);
	assert_int_equal(lease->parts.counts[PARTS_SUBMISSIONS], 116);
	assert_int_equal(shared->parts[PARTS_SUBMISSIONS], 116);
	leave(&members[1]);
	leave(&members[0]);
	/* The tenant's sums outlive its leases. */
	other = make_with(0, 1, 1, &members[0], 0);
	report_parts(&members[0], 4, 0, 4);
	assert_int_equal(other->parts.counts[PARTS_SUBMISSIONS], 4);
	assert_int_equal(shared->parts[PARTS_SUBMISSIONS], 120);
	leave(&members[0]);
}

TEST(test_parts__no_overflow, setup, teardown)
{
	enum { N = 70000 };
	struct lease_member keeper, member;
	struct lease *lease = make_with(0, 1, 1, &keeper, 0);
	uint64_t before = 0;

	for (unsigned int i = 0; i < N; i++) {
		member = (struct lease_member){.lease = NULL};
		lease_join(lease, &member, 1);
		report_parts(&member, UINT64_MAX - PARTS_COUNTS, UINT64_MAX, 1 + i);
		assert_true(lease->parts.counts[PARTS_DIVIDED] >= before);
		before = lease->parts.counts[PARTS_DIVIDED];
		leave(&member);
	}
	assert_in_range(before, 1ull << 62, INT64_MAX);
	assert_true(recent_most(&lease->parts.longest, N) < INT64_MAX);
	leave(&keeper);
}

/* The longest part is that of the last ten seconds at least, and of twice that at most. */
TEST(test_parts__longest, setup, teardown)
{
	const uint64_t s = 1000000000;
	struct lease_member member;
	struct lease *lease = make_with(0, 1, 1, &member, 0);
	const struct recent *longest = &lease->parts.longest;

	assert_int_equal(recent_most(longest, s), 0);
	report_parts(&member, 1, 500, s);
	report_parts(&member, 1, 300, 5 * s);
	report_parts(&member, 1, 0, 6 * s);
	assert_int_equal(recent_most(longest, 6 * s), 500);
	report_parts(&member, 1, 200, 12 * s);
	assert_int_equal(recent_most(longest, 15 * s), 500);
	assert_int_equal(recent_most(longest, 22 * s), 200);
	report_parts(&member, 1, 100, 23 * s);
	assert_int_equal(recent_most(longest, 23 * s), 200);
	assert_int_equal(recent_most(longest, 34 * s), 100);
	assert_int_equal(recent_most(longest, 60 * s), 0);
	report_parts(&member, 1, 50, 60 * s);
	assert_int_equal(recent_most(longest, 61 * s), 50);
	leave(&member);
}

/* The peaks stay on the page when members have given back credit and left. */
TEST(test_peaks, setup, teardown)
{
	struct rbk_lease_page page = {.magic = 0};
	struct lease_member member, other = {.lease = NULL};
	struct lease *lease = make_with(0, 200, 300, &member, 80);
	uint64_t charged;

	lease->page = &page;
	lease_join(lease, &other, 1);
	lease_report(&member, &(struct lease_use){.used_bytes = 50, .extra_bytes = 9});
	assert_int_equal(page.peak_bytes, 59);
	assert_int_equal(lease_take(&other, 40), 0);
	lease_report(&other, &(struct lease_use){.used_bytes = 2, .n_refused = 3});
	/* An export costs nothing more; an import of an unpaid object does. */
	assert_int_equal(lease_object_add(&member, 1, 1, 30, 30, &charged), 0);
	assert_int_equal(page.peak_credited_bytes, 120);
	assert_int_equal(lease_object_add(&member, 1, 2, 7, 0, &charged), 0);
	assert_int_equal(lease_give(&member, 50), 0);
	leave(&other);
	assert_fields(page, (credited_bytes, 37), (peak_bytes, 61), (peak_credited_bytes, 127),
		      (n_refused, 3));
	lease->page = NULL;
	leave(&member);
}

/*
 * A member's peak between two reports counts together with the present use of others; it is not
 * kept as use.
 */
TEST(test_peaks__between_reports, setup, teardown)
{
	struct rbk_lease_page page = {.magic = 0};
	struct lease_member member, other = {.lease = NULL};
	struct lease *lease = make_with(0, 200, 300, &member, 80);

	lease->page = &page;
	lease_join(lease, &other, 1);
	lease_report(&member, &(struct lease_use){.used_bytes = 10, .peak_bytes = 70});
	assert_int_equal(page.peak_bytes, 70);
	assert_int_equal(lease->used_bytes, 10);
	lease_report(&other, &(struct lease_use){.used_bytes = 30, .peak_bytes = 30});
	assert_int_equal(page.peak_bytes, 70);
	lease_report(&member, &(struct lease_use){.used_bytes = 0, .peak_bytes = 45});
	assert_int_equal(page.peak_bytes, 75);
	/* A peak below the present use, and an impossible one. */
	lease_report(&member, &(struct lease_use){.used_bytes = 60, .peak_bytes = 1});
	assert_int_equal(page.peak_bytes, 90);
	lease_report(&member, &(struct lease_use){.peak_bytes = UINT64_MAX});
	assert_true(page.peak_bytes < UINT64_MAX / 2);
	lease->page = NULL;
	leave(&other);
	leave(&member);
}

/*
 * An object is exported, freed and imported elsewhere: exactly one lease pays for it at any time.
 */
TEST(test_object__export_and_import, setup, teardown)
{
	struct lease_member first, second = {.lease = NULL}, other;
	struct lease *lease = make_with(0, 100, 100, &first, 100);
	struct lease *another = make_with(0, 50, 50, &other, 50);
	uint64_t bytes;

	lease_join(lease, &second, 2);
	assert_int_equal(lease_object_add(&first, 1, 7, 60, 60, &bytes), 0);
	assert_int_equal(bytes, 60);
	assert_int_equal(first.credit_bytes, 40);
	assert_int_equal(lease->object_bytes, 60);
	check();
	/* Import within the lease, and into another lease of the tenant, which has no room. */
	assert_int_equal(lease_object_add(&second, 1, 7, 60, 0, &bytes), 0);
	assert_int_equal(bytes, 0);
	assert_int_equal(lease_object_add(&second, 1, 7, 60, 0, &bytes), LEASE_E_EXISTS);
	assert_int_equal(lease_object_add(&other, 1, 7, 60, 0, &bytes), 0);
	assert_int_equal(bytes, 0);
	check();
	assert_int_equal(lease_object_drop(&first, 1, 7), 0);
	assert_int_equal(lease_object_drop(&first, 1, 7), LEASE_E_UNKNOWN);
	assert_int_equal(lease->object_bytes, 60);
	check();
	/* The object stays charged: the other lease inherits it, beyond its own maximum. */
	assert_int_equal(lease_object_drop(&second, 1, 7), 0);
	assert_int_equal(lease->object_bytes, 0);
	assert_int_equal(another->object_bytes, 60);
	assert_int_equal(lease_granted(another), 110);
	assert_true(lease_is_shrinking(another));
	assert_int_equal(lease_granted(lease), 40);
	assert_int_equal(used(0), 150);
	check();
	/* The object is also inherited when the paying lease has ended. */
	assert_int_equal(lease_object_add(&second, 1, 7, 60, 0, &bytes), 0);
	leave(&other);
	assert_int_equal(lease->object_bytes, 60);
	check();
	leave(&second);
	leave(&first);
	assert_int_equal(leases.n_objects, 0);
	assert_int_equal(used(0), 0);
}

TEST(test_object__largest_reported_size_is_charged, setup, teardown)
{
	struct lease_member first, second;
	struct lease *lease = make_with(0, 100, 100, &first, 100);
	struct lease *other = make_with(0, 100, 100, &second, 0);
	uint64_t bytes;

	/* A member reports too small a size, so that others would pay nothing. */
	assert_int_equal(lease_object_add(&first, 1, 7, 1, 1, &bytes), 0);
	assert_int_equal(lease_object_cost(&second, 1, 7, 80, 0), 80);
	assert_int_equal(lease_object_add(&second, 1, 7, 80, 0, &bytes), 0);
	assert_int_equal(bytes, 80);
	assert_int_equal(lease->object_bytes, 0);
	assert_int_equal(other->object_bytes, 80);
	check();
	/* Each lease inherits the size that it reported itself. */
	assert_int_equal(lease_object_drop(&second, 1, 7), 0);
	assert_int_equal(lease->object_bytes, 1);
	check();
	/* Sizes above the lease, from credit that the member does not have. */
	assert_int_equal(lease_object_add(&second, 1, 8, 101, 0, &bytes), LEASE_E_LACKING);
	assert_int_equal(lease_object_add(&second, 1, 8, 10, 1, &bytes), LEASE_E_LACKING);
	assert_int_equal(lease_object_add(&second, 1, 8, UINT64_MAX, 0, &bytes), LEASE_E_LACKING);
	assert_int_equal(lease_object_add(&first, 1, 7, UINT64_MAX, 99, &bytes), LEASE_E_EXISTS);
	check();
	leave(&first);
	leave(&second);
}

/* Objects that another tenant names are separate: naming an object affects no other tenant. */
TEST(test_object__of_tenants, setup, teardown)
{
	struct lease_member first, second;
	struct lease *lease = make_with(0, 100, 100, &first, 100);
	struct lease *other = make_with(1, 100, 100, &second, 0);
	uint64_t bytes;

	assert_int_equal(lease_object_add(&first, 1, 7, 60, 60, &bytes), 0);
	assert_int_equal(lease_object_add(&second, 1, 7, 60, 0, &bytes), 0);
	assert_int_equal(bytes, 60);
	leave(&first);
	assert_int_equal(lease_granted(other), 100);
	assert_int_equal(other->object_bytes, 60);
	check();
	(void)lease;
	leave(&second);
}

TEST(test_object__many, setup, teardown)
{
	enum { N = 3000 };
	struct lease_member first, second;
	uint64_t bytes;

	allow(0, UINT64_MAX);
	make_with(0, N, N, &first, N);
	make_with(0, N, N, &second, 0);
	assert_true(leases.n_buckets < N);
	for (uint64_t i = 0; i < N; i++) {
		assert_int_equal(lease_object_add(&first, i % 3, i, 1, 1, &bytes), 0);
		assert_int_equal(lease_object_add(&second, i % 3, i, 1, 0, &bytes), 0);
	}
	assert_int_equal(leases.n_objects, N);
	assert_int_equal(first.n_holdings, N);
	for (uint64_t i = 0; i < N; i += 2)
		assert_int_equal(lease_object_drop(&first, i % 3, i), 0);
	check();
	leave(&second);
	assert_int_equal(leases.n_objects, N / 2);
	leave(&first);
	assert_int_equal(leases.n_objects, 0);
}

TEST(test_cgroup, setup, teardown)
{
	struct lease_member members[3];
	struct lease *lease = make_with(0, 100, 100, &members[0], 0);
	struct lease *other = make_with(1, 100, 100, &members[1], 0);
	int fd = open("/", O_PATH | O_CLOEXEC), same = dup(fd), another = dup(fd);
	uint64_t fds = account_used(tenants[0].account, ACCOUNT_FDS);

	assert_int_equal(lease->cgroup_fd, -1);
	assert_null(lease_of_cgroup(&leases, DEVICE, 7));
	assert_int_equal(lease_set_cgroup(lease, &fd, 7), 0);
	assert_int_equal(fd, -1);
	assert_true(lease->cgroup_fd >= 0);
	assert_int_equal(account_used(tenants[0].account, ACCOUNT_FDS), fds + 1);
	/*
	 * Setting the same cgroup again succeeds; that descriptor stays the caller's, as do
	 * rejected ones.
	 */
	assert_int_equal(lease_set_cgroup(lease, &same, 7), 0);
	assert_true(same >= 0);
	assert_int_equal(lease_set_cgroup(lease, &another, 8), LEASE_E_EXISTS);
	assert_int_equal(lease_set_cgroup(other, &another, 7), LEASE_E_TAKEN);
	assert_true(another >= 0);
	assert_ptr_equal(lease_of_cgroup(&leases, DEVICE, 7), lease);
	assert_null(lease_of_cgroup(&leases, DEVICE + 1, 7));
	fd = lease->cgroup_fd;
	leave(&members[0]);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	assert_int_equal(account_used(tenants[0].account, ACCOUNT_FDS), fds);
	assert_int_equal(lease_set_cgroup(other, &another, 7), 0);
	leave(&members[1]);
	close(same);
	check();
}

TEST(test_find_by_number, setup, teardown)
{
	struct lease_about about = {
		.tenant = &tenants[0], .uid = 5, .device = DEVICE, .name = "test"};
	struct lease *lease = make(0, 1, 1), *restored, *same;

	assert_ptr_equal(lease_find(&leases, lease->number, NULL, 0), lease);
	assert_null(lease_find(&leases, lease->number + 1, NULL, 0));
	/*
	 * A restored lease keeps its number if that is free. Otherwise only its own tenant and user
	 * find it by the old number.
	 */
	about.restored_number = lease->number + 100;
	assert_int_equal(lease_new(&leases, &about, &restored), 0);
	assert_int_equal(restored->number, lease->number + 100);
	about.restored_number = 0;
	about.restored_number = lease->number;
	assert_int_equal(lease_new(&leases, &about, &same), 0);
	assert_int_not_equal(same->number, lease->number);
	/* The number is that of a lease of another user, who finds that one. */
	assert_int_not_equal(lease->uid, 5);
	assert_ptr_equal(lease_find(&leases, lease->number, &tenants[0], 5), same);
	assert_ptr_equal(lease_find(&leases, lease->number, &tenants[0], lease->uid), lease);
	assert_ptr_equal(lease_find(&leases, lease->number, &tenants[0], 6), lease);
	assert_ptr_equal(lease_find(&leases, lease->number, NULL, 0), lease);
	/* A lease of the same user's own is found rather than one that had its number. */
	lease->uid = 5;
	assert_ptr_equal(lease_find(&leases, lease->number, &tenants[0], 5), lease);
	assert_ptr_equal(lease_find_restored(&leases, lease->number, &tenants[0], 5), same);
	lease_free(lease);
	assert_ptr_equal(lease_find(&leases, same->restored_number, &tenants[0], 5), same);
	assert_null(lease_find(&leases, same->restored_number, &tenants[0], 6));
	assert_null(lease_find(&leases, same->restored_number, &tenants[1], 5));
	lease_free(restored);
	lease_free(same);
}

/*
 * Bytes that are granted to restored leases of one tenant, but held by no member, are taken back.
 * New leases and @but keep theirs.
 */
TEST(test_take_back_unheld_grants, setup, teardown)
{
	struct lease_member members[4];
	struct lease *new = make_with(0, 30, 30, &members[0], 10);
	struct lease *first = make_with(0, 30, 30, &members[1], 10);
	struct lease *second = make_with(0, 20, 20, &members[2], 20);
	struct lease *other = make_with(1, 15, 15, &members[3], 5);

	first->restored_number = second->restored_number = other->restored_number = 7;
	assert_int_equal(leases_restored_ungiven(&leases, &tenants[0], DEVICE), 20);
	assert_int_equal(leases_restored_ungiven(&leases, &tenants[0], DEVICE + 1), 0);
	leases_take_back(&leases, first, &tenants[0], DEVICE, 5);
	leases_take_back(&leases, NULL, &tenants[0], DEVICE + 1, 5);
	assert_int_equal(lease_granted(first), 30);
	leases_take_back(&leases, second, &tenants[0], DEVICE, 5);
	assert_int_equal(lease_granted(first), 25);
	leases_take_back(&leases, second, &tenants[0], DEVICE, UINT64_MAX);
	assert_int_equal(lease_granted(first), 10);
	assert_int_equal(lease_granted(new), 30);
	assert_int_equal(lease_granted(second), 20);
	assert_int_equal(lease_granted(other), 15);
	assert_int_equal(used(0), 60);
	check();
	for (unsigned int i = 0; i < 4; i++)
		leave(&members[i]);
}

/* Deadlocks: waits are only examined here, and not answered. */

static struct lease_wait begin_wait(struct lease *lease, struct lease_member *member,
				    uint64_t least)
{
	return (struct lease_wait){.lease = lease, .member = member, .least_bytes = least};
}

TEST(test_deadlock__two_holders, setup, teardown)
{
	struct lease_member first, second;
	struct lease *a = make_with(0, 300, 700, &first, 300);
	struct lease *b = make_with(1, 300, 700, &second, 300);
	struct lease_wait of_a = begin_wait(a, &first, 300), of_b = begin_wait(b, &second, 300);

	assert_null(lease_find_deadlocked(&leases, DEVICE, TOTAL));
	lease_wait_begin(&of_a);
	/* The other lease does not wait, so it may give back memory. */
	assert_null(lease_find_deadlocked(&leases, DEVICE, TOTAL));
	lease_wait_begin(&of_b);
	assert_ptr_equal(lease_find_deadlocked(&leases, DEVICE, TOTAL), &of_b);
	/* With more room, one wait is served after the other. */
	assert_null(lease_find_deadlocked(&leases, DEVICE, 900));
	/* No wait on another device. */
	assert_null(lease_find_deadlocked(&leases, DEVICE + 1, TOTAL));
	lease_wait_end(&of_b);
	assert_null(lease_find_deadlocked(&leases, DEVICE, TOTAL));
	lease_wait_end(&of_a);
	leave(&first);
	leave(&second);
}

/* A wait that can be served ends the others, however many there are. */
TEST(test_deadlock__chain, setup, teardown)
{
	struct lease_member members[4];
	struct lease_wait waits[4];

	for (unsigned int i = 0; i < 4; i++) {
		struct lease *lease = make_with(i % 2, 150, 700, &members[i], 150);

		/*
		 * 100 bytes are free: the last wait needs exactly those, the others more and more.
		 */
		waits[i] = begin_wait(lease, &members[i], 400 - 100 * i);
		lease_wait_begin(&waits[i]);
	}
	assert_null(lease_find_deadlocked(&leases, DEVICE, TOTAL));
	lease_wait_end(&waits[3]);
	waits[3].least_bytes = 101;
	lease_wait_begin(&waits[3]);
	assert_ptr_equal(lease_find_deadlocked(&leases, DEVICE, TOTAL), &waits[3]);
	for (unsigned int i = 0; i < 4; i++) {
		lease_wait_end(&waits[i]);
		leave(&members[i]);
	}
}

/* Deadlocks over a tenant's maximum, while the device has plenty; and over a lease's maximum. */
TEST(test_deadlock__limits, setup, teardown)
{
	struct lease_member first, second, third;
	struct lease *a, *b;
	struct lease_wait of_a, of_b;

	allow(0, 400);
	a = make_with(0, 200, 400, &first, 200);
	b = make_with(0, 150, 400, &second, 150);
	of_a = begin_wait(a, &first, 200);
	of_b = begin_wait(b, &second, 100);
	lease_wait_begin(&of_a);
	lease_wait_begin(&of_b);
	assert_ptr_equal(lease_find_deadlocked(&leases, DEVICE, 10 * TOTAL), &of_b);
	/* A limit that no release could satisfy is no deadlock, because it may be raised. */
	lease_wait_end(&of_b);
	lease_wait_end(&of_a);
	of_a.least_bytes = 201;
	lease_wait_begin(&of_a);
	assert_null(lease_find_deadlocked(&leases, DEVICE, 10 * TOTAL));
	lease_wait_end(&of_a);
	leave(&second);

	third = (struct lease_member){.lease = NULL};
	lease_join(a, &third, 3);
	assert_int_equal(lease_grant(a, 400, false), 0);
	assert_int_equal(lease_take(&third, 200), 0);
	of_a = begin_wait(a, &first, 100);
	of_b = begin_wait(a, &third, 100);
	lease_wait_begin(&of_b);
	assert_null(lease_find_deadlocked(&leases, DEVICE, TOTAL));
	lease_wait_begin(&of_a);
	assert_ptr_equal(lease_find_deadlocked(&leases, DEVICE, TOTAL), &of_a);
	lease_wait_end(&of_a);
	lease_wait_end(&of_b);
	leave(&third);
	leave(&first);
}

/* A lease that is being opened holds nothing, so no wait depends on it. */
TEST(test_deadlock__opening, setup, teardown)
{
	struct lease_member first;
	struct lease *a = make_with(0, 300, 700, &first, 300), *opening = make(1, 500, 500);
	struct lease_wait of_a = begin_wait(a, &first, 300);
	struct lease_wait of_opening = begin_wait(opening, NULL, 500);

	lease_wait_begin(&of_opening);
	assert_null(lease_find_deadlocked(&leases, DEVICE, TOTAL));
	lease_wait_begin(&of_a);
	/* The opening lease is served after the first one. */
	assert_null(lease_find_deadlocked(&leases, DEVICE, TOTAL));
	lease_wait_end(&of_a);
	lease_wait_end(&of_opening);
	lease_free(opening);
	leave(&first);
}

/* Many waits; each lease has a credit of one byte. */
enum { MANY = 1000 };

static struct lease_member many[MANY];
static struct lease_wait many_waits[MANY];

/* Begin MANY waits: the first asks for @first bytes, each next one for @less bytes less. */
static void begin_many(uint64_t first, unsigned int less)
{
	for (unsigned int i = 0; i < N_TENANTS; i++)
		allow(i, 2 * MANY);
	for (unsigned int i = 0; i < MANY; i++) {
		struct lease *lease = make_with(i % N_TENANTS, 1, 2 * MANY, &many[i], 1);

		many_waits[i] = begin_wait(lease, &many[i], first - i * less);
		lease_wait_begin(&many_waits[i]);
	}
	leases.n_looks = 0;
}

static void end_many(unsigned int n_waiting)
{
	for (unsigned int i = 0; i < n_waiting; i++)
		lease_wait_end(&many_waits[i]);
	for (unsigned int i = 0; i < MANY; i++)
		leave(&many[i]);
}

/* All waits but the first depend on the others' memory: each is found once, the newest first. */
TEST(test_deadlock__each_found_once, setup, teardown)
{
	unsigned int n_waiting = MANY;
	struct lease_wait *found;

	begin_many(2, 0);
	found = lease_find_deadlocked(&leases, DEVICE, MANY + 1);
	/* A lease that gives back its byte leaves two free bytes for another one. */
	while (found && found == &many_waits[n_waiting - 1]) {
		lease_wait_end(&many_waits[--n_waiting]);
		found = lease_find_next_deadlocked(&leases);
	}
	end_many(n_waiting);
	assert_null(found);
	assert_int_equal(n_waiting, MANY - 1);
	assert_in_range(leases.n_looks, MANY, 8 * MANY);
}

/*
 * Slow reference by the definition: the bytes that leases keep if the members of these waits keep
 * what they hold.
 */

enum { N_RANDOM = 8, N_RANDOM_WAITS = 16 };

static struct lease_wait random_waits[N_RANDOM_WAITS];
static bool is_gone[N_RANDOM_WAITS]; /* rejected, or served hypothetically */

static uint64_t kept_by(const struct lease *lease, uint64_t *ret_bytes)
{
	uint64_t kept = 0, granted = lease_granted(lease);
	uint32_t n = 0;

	list_for_each (node, &lease->members) {
		const struct lease_member *member = container_of(node, struct lease_member, link);
		bool waits = false;

		for (unsigned int i = 0; i < N_RANDOM_WAITS; i++)
			waits |= !is_gone[i] && random_waits[i].member == member;
		n += waits;
		kept += waits ? member->credit_bytes : 0;
	}
	if (n > 0 && n == lease->n_members)
		kept += lease->object_bytes;
	if (granted > lease->wish_bytes)
		granted = lease->wish_bytes;
	*ret_bytes = n == 0 ? 0 : kept > granted ? kept : granted;
	return kept;
}

static bool can_serve(const struct lease_wait *wait, uint64_t usable_bytes)
{
	const struct lease *lease = wait->lease;
	uint64_t sum = 0, of_tenant = 0, bytes, more, need;

	list_for_each (node, &leases.all) {
		const struct lease *other = container_of(node, struct lease, link);

		kept_by(other, &bytes);
		sum += bytes;
		of_tenant += other->tenant == lease->tenant ? bytes : 0;
	}
	need = kept_by(lease, &bytes) + wait->least_bytes;
	more = need > bytes ? need - bytes : 0;
	return need <= lease->limit_bytes && sum + more <= usable_bytes &&
	       of_tenant + more <= lease->tenant->shares[DEVICE].max;
}

static struct lease_wait *find_slowly(uint64_t usable_bytes)
{
	for (unsigned int i = 0; i < N_RANDOM_WAITS; i++)
		if (!is_gone[i] && can_serve(&random_waits[i], usable_bytes)) {
			is_gone[i] = true;
			i = UINT32_MAX;
		}
	for (unsigned int i = N_RANDOM_WAITS; i-- > 0;)
		if (!is_gone[i] && !lease_wait_is_hopeless(&random_waits[i], usable_bytes))
			return &random_waits[i];
	return NULL;
}

static uint32_t random_below(uint64_t *seed, uint32_t n)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*seed >> 33) % n;
}

/* The deadlocked waits equal the reference's, for random tenants, leases and members. */
TEST(test_deadlock__random, setup, teardown)
{
	unsigned int n_found = 0, n_more = 0;
	uint64_t seed = 1;

	for (unsigned int round = 0; round < 3000; round++) {
		struct lease_member members[N_RANDOM];
		struct lease_wait *found;
		uint64_t usable = 20 + random_below(&seed, 80), charged;
		unsigned int n = 0;

		for (unsigned int i = 0; i < N_TENANTS; i++)
			allow(i, 200);
		for (unsigned int i = 0; i < N_RANDOM; i++) {
			uint64_t credit = random_below(&seed, 10);

			if (i > 0 && random_below(&seed, 2)) {
				struct lease *lease = members[i - 1].lease;

				members[i] = (struct lease_member){.lease = NULL};
				lease_join(lease, &members[i], 1);
				credit = credit < lease_ungiven(lease) ? credit
								       : lease_ungiven(lease);
				assert_int_equal(lease_take(&members[i], credit), 0);
			} else {
				make_with(random_below(&seed, N_TENANTS), 5 + credit,
					  20 + random_below(&seed, 60), &members[i], credit);
			}
			if (random_below(&seed, 4) == 0 && lease_ungiven(members[i].lease) > 0)
				assert_int_equal(
					lease_object_add(&members[i], 1, 100 + i, 1, 0, &charged),
					0);
		}
		for (unsigned int i = 0; i < N_TENANTS; i++)
			allow(i, 20 + random_below(&seed, 80));
		for (unsigned int i = 0; i < N_RANDOM_WAITS; i++) {
			struct lease_member *member = &members[random_below(&seed, N_RANDOM)];

			random_waits[i] =
				begin_wait(member->lease, member, random_below(&seed, 50));
			is_gone[i] = false;
			lease_wait_begin(&random_waits[i]);
		}
		for (found = lease_find_deadlocked(&leases, DEVICE, usable); found;
		     found = lease_find_next_deadlocked(&leases)) {
			unsigned int i = (unsigned int)(found - random_waits);

			assert_ptr_equal(found, find_slowly(usable));
			n_more += n++ > 0;
			is_gone[i] = true;
			lease_wait_end(found);
			found->lease = NULL;
		}
		assert_null(find_slowly(usable));
		n_found += n;
		for (unsigned int i = 0; i < N_RANDOM_WAITS; i++)
			if (random_waits[i].lease)
				lease_wait_end(&random_waits[i]);
		for (unsigned int i = 0; i < N_RANDOM; i++)
			leave(&members[i]);
	}
	assert_true(n_found > 300 && n_more > 100);
}

/* Each wait can be served after those behind it, which is found without a full scan for each. */
TEST(test_deadlock__many_in_turn, setup, teardown)
{
	struct lease_wait *found;

	begin_many(MANY, 1);
	found = lease_find_deadlocked(&leases, DEVICE, MANY + 1);
	end_many(MANY);
	assert_null(found);
	assert_in_range(leases.n_looks, MANY, 8 * MANY);
}
