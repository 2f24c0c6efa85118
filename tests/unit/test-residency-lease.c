/* SPDX-License-Identifier: MIT */
/* Room for leases on a device, among plans and other leases: broker/memory/residency-lease.c */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "fail-alloc.h"
#include "memory/residency-private.h"
#include "support/residency-rig.h"
#include "support/test.h"
#include "util/clock.h"

#define MIB       (1ull << 20)
#define LONG_NS   60000000000ull
#define NOT_DONE  1
#define MAX_ASKED 8

/* A lease with one member, and the answer to a request for it. */
struct asked {
	struct lease *lease;
	struct lease_member member;
	struct lease_wait wait;
	int res; /* result, or NOT_DONE */
	unsigned int order;
};

static struct residency_rig rig;
static struct asked asked[MAX_ASKED];
static unsigned int n_asked, n_done;

static int setup(void **state)
{
	residency_rig_init(&rig, 1, 100 * MIB, 0, RESIDENCY_WANTED);
	n_asked = n_done = 0;
	return 0;
}

static void end_lease(struct asked *a)
{
	if (!a->lease)
		return;
	if (a->res == NOT_DONE)
		residency_lease_withdraw(rig.residency, &a->wait);
	lease_leave(&a->member);
	a->lease = lease_free(a->lease);
	residency_leases_changed(rig.residency, RIG_DEVICE);
}

static int teardown(void **state)
{
	for (unsigned int i = 0; i < n_asked; i++)
		end_lease(&asked[i]);
	residency_rig_deinit(&rig);
	return 0;
}

static void on_done(struct lease_wait *wait, int res)
{
	struct asked *a = container_of(wait, struct asked, wait);

	assert_int_equal(a->res, NOT_DONE);
	a->res = res;
	a->order = ++n_done;
	if (res == 0 && !a->member.lease)
		lease_join(a->lease, &a->member, 1);
}

/* Open a lease of at least @min MiB, at best @wish MiB, and wait at most @patience_ns for it. */
static struct asked *ask(unsigned int tenant, uint64_t min, uint64_t wish, uint64_t patience_ns)
{
	const struct lease_about about = {
		.tenant = &rig.tenants[tenant],
		.device = RIG_DEVICE,
		.min_bytes = min * MIB,
		.wish_bytes = wish * MIB,
		.max_bytes = 100 * MIB,
		.name = "test",
	};
	struct asked *a = &asked[n_asked++];

	*a = (struct asked){.res = NOT_DONE};
	assert_int_equal(residency_lease_new(rig.residency, &about, &a->lease), 0);
	a->wait = (struct lease_wait){.lease = a->lease,
				      .least_bytes = min * MIB,
				      .want_bytes = wish * MIB,
				      .done = on_done};
	residency_lease_ask(rig.residency, &a->wait, patience_ns);
	return a;
}

/* Ask for credit of @least MiB more for an open lease. */
static void ask_more(struct asked *a, uint64_t least, uint64_t patience_ns)
{
	a->res = NOT_DONE;
	a->wait = (struct lease_wait){.lease = a->lease,
				      .member = &a->member,
				      .least_bytes = least * MIB,
				      .want_bytes = least * MIB,
				      .done = on_done};
	residency_lease_ask(rig.residency, &a->wait, patience_ns);
}

static uint64_t granted(const struct asked *a)
{
	return lease_granted(a->lease) / MIB;
}

static void settle(void)
{
	rig_settle(&rig);
	rig_check(&rig);
}

/* A tenant's first lease is refused if there is no memory for its records. */
TEST(test_open__out_of_memory, setup, teardown)
{
	struct lease_about about = {.device = RIG_DEVICE, .max_bytes = MIB, .name = "test"};
	const struct leases *leases = residency_leases(rig.residency);
	struct lease *lease = NULL;
	unsigned int n = 0;
	bool has_failed;

	do {
		int r;

		assert_true(n < RIG_MAX_TENANTS);
		about.tenant = &rig.tenants[n++];
		fail_alloc_at(n);
		r = residency_lease_new(rig.residency, &about, &lease);
		has_failed = fail_alloc_stop();
		assert_int_equal(r, has_failed ? -ENOMEM : 0);
		assert_fields(*leases, (n, !has_failed), (n_tenants[RIG_DEVICE], !has_failed));
		assert_int_equal(leases_of(about.tenant)->n_all, !has_failed);
		assert_int_equal(about.tenant->n_refs, has_failed ? 1 : 2);
	} while (has_failed);
	assert_int_equal(n, 4);
	lease_free(lease);
	assert_int_equal(leases_of(about.tenant)->n_all, 0);
	assert_int_equal(leases->n_tenants[RIG_DEVICE], 0);
}

/* Memory is granted or refused at once. */
TEST(test_open__free_room, setup, teardown)
{
	struct asked *a = ask(0, 60, 60, 0), *b;

	assert_int_equal(a->res, 0);
	assert_int_equal(granted(a), 60);
	/* The grant is as much of the wish as is free. */
	b = ask(1, 10, 90, 0);
	assert_int_equal(b->res, 0);
	assert_int_equal(granted(b), 40);
	assert_int_equal(ask(1, 1, 1, 0)->res, -ENOMEM);
	rig_check(&rig);
	end_lease(a);
	settle();
	assert_int_equal(account_used(rig.tenants[0].account, account_vram(RIG_DEVICE)), 0);
}

/*
 * Plans of the lease's tenant are evicted for it, however wanted, when their tasks have completed.
 */
TEST(test_open__own_plans_leave, setup, teardown)
{
	struct plan_memory *memory = rig_plan_of(&rig, 0, 70 * MIB);
	struct asked *a;

	rig_add(&rig, memory);
	settle();
	rig_want(&rig, memory, 1000000);
	memory->n_on_device[RIG_DEVICE] = 1;
	a = ask(0, 20, 50, 0);
	settle();
	/*
	 * The request waits for the eviction, despite a patience of 0. Its bytes are reserved
	 * against other requests.
	 */
	assert_int_equal(a->res, NOT_DONE);
	assert_int_equal(ask(1, 51, 51, 0)->res, -ENOMEM);
	rig_idle(&rig, memory);
	settle();
	assert_int_equal(a->res, 0);
	assert_int_equal(granted(a), 50);
	assert_false(rig_is_ready(memory));
	end_lease(a);
	settle();
}

/*
 * Other tenants' plans are evicted for a lease only if those tenants are above vram-high, or if the
 * lease is within its tenant's reserve.
 */
TEST(test_open__plans_of_other_tenants, setup, teardown)
{
	struct plan_memory *memory = rig_plan_of(&rig, 1, 70 * MIB);
	struct rig_wish wish;
	struct asked *a;

	rig_share(&rig, 1, 100 * MIB, 80 * MIB, 0);
	rig_add(&rig, memory);
	settle();
	/* This holds even if the plan is not wanted. */
	assert_int_equal(ask(0, 40, 40, 0)->res, -ENOMEM);
	settle();
	assert_true(rig_is_ready(memory));
	rig_want(&rig, memory, 1000000);
	rig_share(&rig, 1, 100 * MIB, 60 * MIB, 0);
	rig_share(&rig, 0, 100 * MIB, 50 * MIB, 0);
	/* A tenant above its own vram-high takes nothing from other tenants. */
	assert_int_equal(ask(0, 60, 60, 0)->res, -ENOMEM);
	a = ask(0, 40, 40, 0);
	settle();
	assert_int_equal(a->res, 0);
	assert_false(rig_is_ready(memory));
	end_lease(a);
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 0);
	rig_ask(&rig, memory, &wish, RESIDENCY_PREFETCH);
	assert_true(rig_is_ready(memory));
	rig_share(&rig, 0, 100 * MIB, 100 * MIB, 40 * MIB);
	a = ask(0, 40, 40, 0);
	settle();
	assert_int_equal(a->res, 0);
	assert_false(rig_is_ready(memory));
}

/*
 * Leases are never evicted, so they are not granted bytes of another tenant's reserve, even if that
 * tenant uses none.
 */
TEST(test_open__reserves_of_others, setup, teardown)
{
	struct plan_memory *memory = rig_plan_of(&rig, 0, 40 * MIB);
	struct asked *a, *b;

	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 40 * MIB);
	assert_int_equal(ask(0, 61, 61, 0)->res, -ENOMEM);
	a = ask(0, 1, 100, 0);
	assert_int_equal(a->res, 0);
	assert_int_equal(granted(a), 60);
	residency_lease_look(rig.residency, &a->wait);
	assert_int_equal(a->wait.available_bytes, 0);
	ask_more(a, 61, 0);
	assert_int_equal(a->res, -ENOMEM);
	/* Plans may use the reserve meanwhile, because they can be evicted. */
	rig_add(&rig, memory);
	rig_want(&rig, memory, 10);
	settle();
	assert_true(rig_is_ready(memory));
	b = ask(1, 30, 30, 0);
	settle();
	assert_int_equal(b->res, 0);
	assert_int_equal(granted(b), 30);
	/* The part of the reserve that its tenant's lease holds is not reserved twice. */
	ask_more(a, 61, 0);
	assert_int_equal(a->res, -ENOMEM);
	rig_remove(&rig, memory);
	settle();
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 0);
	ask_more(a, 70, 0);
	assert_int_equal(a->res, 0);
	assert_int_equal(granted(a), 70);
}

/*
 * If usable memory is less than the sum of reserves, a tenant's own reserve is not held back for
 * other tenants.
 */
TEST(test_open__own_reserve, setup, teardown)
{
	rig_share(&rig, 0, 100 * MIB, 100 * MIB, 50 * MIB);
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 50 * MIB);
	residency_set_usable(rig.residency, RIG_DEVICE, 50 * MIB, 0);
	assert_int_equal(ask(0, 40, 40, 0)->res, 0);
	residency_set_usable(rig.residency, RIG_DEVICE, 100 * MIB, 0);
}

/*
 * Memory that a tenant's program claims to have had from an ended broker is believed as far as it
 * is free or in use outside the broker.
 */
TEST(test_claim_after_restart, setup, teardown)
{
	struct plan_memory *memory = rig_plan_of(&rig, 1, 30 * MIB);
	struct rig_wish wish;
	struct asked *a;

	rig_add(&rig, memory);
	rig_ask(&rig, memory, &wish, RESIDENCY_PREFETCH);
	settle();
	assert_true(rig_is_ready(memory));
	assert_int_equal(residency_lease_believed(rig.residency, RIG_DEVICE, &rig.tenants[0]),
			 70 * MIB);
	/*
	 * Bytes reserved for other tenants are not believed, except those in use outside the
	 * broker.
	 */
	rig_share(&rig, 2, 100 * MIB, 100 * MIB, 80 * MIB);
	assert_int_equal(residency_lease_believed(rig.residency, RIG_DEVICE, &rig.tenants[0]),
			 20 * MIB);
	residency_set_outside(rig.residency, RIG_DEVICE, 15 * MIB);
	assert_int_equal(residency_lease_believed(rig.residency, RIG_DEVICE, &rig.tenants[0]),
			 35 * MIB);
	/* Believed bytes no longer count as use outside the broker. */
	residency_lease_believe(rig.residency, RIG_DEVICE, &rig.tenants[0], 30 * MIB);
	assert_int_equal(residency_lease_believed(rig.residency, RIG_DEVICE, &rig.tenants[0]),
			 35 * MIB);
	a = ask(0, 30, 30, 0);
	assert_int_equal(a->res, 0);
	assert_int_equal(residency_lease_believed(rig.residency, RIG_DEVICE, &rig.tenants[0]),
			 5 * MIB);
	end_lease(a);
	/* The tenant's own maximum applies. */
	rig_share(&rig, 0, 25 * MIB, 25 * MIB, 0);
	assert_int_equal(residency_lease_believed(rig.residency, RIG_DEVICE, &rig.tenants[0]),
			 25 * MIB);
	residency_set_outside(rig.residency, RIG_DEVICE, 0);
	residency_set_usable(rig.residency, RIG_DEVICE, 100 * MIB, 0);
}

/*
 * No plan gets the bytes of a lease, whatever the plan's value, and even if its tenant has since
 * been given a reserve.
 */
TEST(test_plans__never_take_lease_bytes, setup, teardown)
{
	struct plan_memory *memory = rig_plan_of(&rig, 1, 50 * MIB);
	struct rig_wish wish;
	struct asked *a;

	a = ask(0, 60, 60, 0);
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 50 * MIB);
	rig_add(&rig, memory);
	settle();
	rig_want(&rig, memory, 1000000);
	settle();
	assert_false(rig_is_ready(memory));
	rig_ask(&rig, memory, &wish, RESIDENCY_PREFETCH);
	assert_true(wish.n_done == 1 && wish.res == -ENOMEM);
	rig_check(&rig);
	/* Only the reserve is held for the plan, so other leases may use the rest. */
	assert_int_equal(ask(2, 1, 1, 0)->res, -ENOMEM);
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 0);
	assert_int_equal(ask(2, 40, 40, 0)->res, 0);
	/* Pressure does not shrink leases. */
	residency_set_usable(rig.residency, RIG_DEVICE, 50 * MIB, 0);
	settle();
	assert_int_equal(granted(a), 60);
	residency_set_usable(rig.residency, RIG_DEVICE, 100 * MIB, 0);
	end_lease(a);
	settle();
	rig_want(&rig, memory, 1000);
	settle();
	assert_true(rig_is_ready(memory));
}

/* Within a tenant, memory is granted in the order of requests, not to the smallest first. */
TEST(test_wait__in_order, setup, teardown)
{
	struct asked *holder = ask(0, 50, 50, 0), *big, *small, *last;

	big = ask(1, 80, 80, LONG_NS);
	small = ask(1, 10, 10, LONG_NS);
	assert_int_equal(big->res, NOT_DONE);
	assert_int_equal(small->res, NOT_DONE);
	/* A request with a patience of 0 does not overtake waiting requests either. */
	assert_int_equal(ask(1, 10, 10, 0)->res, -ENOMEM);
	last = ask(1, 20, 20, LONG_NS);
	settle();
	assert_int_equal(n_done, 2);
	end_lease(holder);
	settle();
	assert_int_equal(big->res, 0);
	assert_int_equal(small->res, 0);
	assert_true(big->order < small->order);
	assert_int_equal(last->res, NOT_DONE);
	end_lease(small);
	settle();
	assert_int_equal(last->res, 0);
}

/* A request above its tenant's part of the device delays no other tenant. */
TEST(test_wait__above_part, setup, teardown)
{
	struct asked *b = ask(1, 35, 35, 0), *a = ask(0, 1, 1, 0), *small;

	assert_int_equal(lease_take(&b->member, 35 * MIB), 0);
	assert_int_equal(lease_take(&a->member, 1 * MIB), 0);
	ask_more(a, 68, LONG_NS);
	assert_int_equal(a->res, NOT_DONE);
	ask_more(b, 5, 0);
	assert_int_equal(b->res, 0);
	assert_int_equal(ask(1, 7, 7, 0)->res, 0);
	/* This tenant is above its own part, too. */
	small = ask(1, 10, 10, 0);
	assert_int_equal(small->res, 0);
	end_lease(small);
	small = ask(2, 10, 10, 0);
	assert_int_equal(small->res, 0);
	/* Requests of the waiter's own tenant queue behind it. */
	assert_int_equal(ask(0, 1, 1, 0)->res, -ENOMEM);
	end_lease(small);
	end_lease(b);
	settle();
	assert_int_equal(a->res, 0);
}

/*
 * A request within its tenant's part of the device is served from tenants above their parts, and
 * from no other tenant.
 */
TEST(test_wait__within_part, setup, teardown)
{
	struct asked *b = ask(1, 80, 80, 0), *a, *more, *c;

	assert_int_equal(lease_take(&b->member, 80 * MIB), 0);
	a = ask(0, 30, 30, LONG_NS);
	assert_int_equal(a->res, NOT_DONE);
	more = ask(1, 5, 5, 0);
	assert_int_equal(more->res, -ENOMEM);
	/* 20 MiB are free, and all are reserved for a. */
	assert_fields(more->wait, (available_bytes, 0), (ahead_bytes, 30 * MIB));
	end_lease(more);
	c = ask(2, 15, 30, 0);
	assert_int_equal(c->res, 0);
	/* The grant is what is free of the wish within the tenant's part. */
	assert_int_equal(granted(c), 20);
	/* a gets the freed bytes although b asks first each time. */
	lease_resize(b->lease, 60 * MIB);
	for (unsigned int left = 75; left >= 50 && a->res == NOT_DONE; left -= 5) {
		assert_int_equal(lease_give(&b->member, 5 * MIB), 0);
		lease_resize(b->lease, 100 * MIB);
		ask_more(b, 5, 0);
		assert_int_equal(b->res, -ENOMEM);
		b->lease->wish_bytes = 50 * MIB;
		residency_leases_changed(rig.residency, RIG_DEVICE);
		settle();
	}
	assert_int_equal(a->res, 0);
	assert_int_equal(granted(a), 30);
}

/*
 * While a request waits, leases are asked to sleep that can give memory: of its own tenant, and of
 * tenants above their parts; idle ones first, then those that can give most; one after the other.
 */
TEST(test_wait__asks_leases_to_sleep, setup, teardown)
{
	/* Tenant 1 is above its part of 50 MiB, tenant 2 is not. */
	struct asked *busy = ask(1, 40, 40, 0), *small = ask(1, 5, 5, 0),
		     *large = ask(1, 30, 30, 0);
	struct asked *within = ask(2, 20, 20, 0), *a;
	struct asked *const all[] = {busy, small, large, within};

	for (unsigned int i = 0; i < 4; i++) {
		assert_int_equal(lease_take(&all[i]->member, lease_granted(all[i]->lease)), 0);
		assert_false(all[i]->lease->sleep.is_asked);
	}
	busy->lease->has_busy = true;
	busy->lease->busy_percent = 50;
	a = ask(0, 25, 25, LONG_NS);
	assert_int_equal(a->res, NOT_DONE);
	/* Leases that cannot give enough together are not asked. */
	sleep_report(&small->member, 5 * MIB, 0);
	residency_leases_changed(rig.residency, RIG_DEVICE);
	assert_false(small->lease->sleep.is_asked);
	for (unsigned int i = 0; i < 4; i++)
		sleep_report(&all[i]->member, lease_granted(all[i]->lease), 0);
	residency_leases_changed(rig.residency, RIG_DEVICE);
	assert_true(large->lease->sleep.is_asked);
	assert_false(small->lease->sleep.is_asked || busy->lease->sleep.is_asked ||
		     within->lease->sleep.is_asked);
	/* It has a while. */
	residency_leases_changed(rig.residency, RIG_DEVICE);
	assert_false(small->lease->sleep.is_asked);
	/* Part of its memory cannot be moved; the report is enough to have its lease shrink. */
	assert_int_equal(lease_give(&large->member, 15 * MIB), 0);
	assert_int_equal(lease_granted(large->lease), 30 * MIB);
	sleep_report(&large->member, 15 * MIB, 15 * MIB);
	assert_int_equal(lease_granted(large->lease), 15 * MIB);
	residency_leases_changed(rig.residency, RIG_DEVICE);
	assert_int_equal(a->res, NOT_DONE);
	rig.residency->devices[RIG_DEVICE].asked_ns -= UINT64_C(2000000001);
	residency_leases_changed(rig.residency, RIG_DEVICE);
	assert_true(small->lease->sleep.is_asked);
	assert_false(busy->lease->sleep.is_asked);
	rig.residency->devices[RIG_DEVICE].asked_ns -= UINT64_C(2000000001);
	residency_leases_changed(rig.residency, RIG_DEVICE);
	assert_true(busy->lease->sleep.is_asked);
	assert_false(within->lease->sleep.is_asked);
	assert_int_equal(lease_give(&small->member, 5 * MIB), 0);
	sleep_report(&small->member, 5 * MIB, 5 * MIB);
	residency_leases_changed(rig.residency, RIG_DEVICE);
	settle();
	assert_int_equal(a->res, 0);
	/* Now no request waits. */
	residency_leases_changed(rig.residency, RIG_DEVICE);
	for (unsigned int i = 0; i < 4; i++)
		assert_false(all[i]->lease->sleep.is_asked);
}

/* A request that waiting cannot satisfy delays no other request, also within its tenant. */
TEST(test_wait__hopeless, setup, teardown)
{
	struct asked *a = ask(0, 1, 1, 0);

	rig_share(&rig, 2, 100 * MIB, 100 * MIB, 40 * MIB);
	ask_more(a, 61, LONG_NS);
	assert_int_equal(a->res, NOT_DONE);
	assert_int_equal(ask(0, 10, 10, 0)->res, 0);
	assert_int_equal(ask(1, 10, 10, 0)->res, 0);
	assert_int_equal(a->res, NOT_DONE);
}

/* A wait is limited to LEASE_MAX_WAIT_NS. */
TEST(test_wait__longest_time_is_limited, setup, teardown)
{
	struct asked *a;

	ask(0, 80, 80, 0);
	a = ask(1, 30, 30, UINT64_MAX);
	assert_int_equal(a->res, NOT_DONE);
	assert_true(a->wait.until_ns <= clock_now_ns() + LEASE_MAX_WAIT_NS);
}

/* A request that waits because of its tenant's own limits delays no other tenant. */
TEST(test_wait__own_limits, setup, teardown)
{
	struct asked *holder, *mine, *same, *other;

	rig_share(&rig, 0, 40 * MIB, 40 * MIB, 0);
	holder = ask(0, 30, 30, 0);
	mine = ask(0, 20, 20, LONG_NS);
	other = ask(1, 60, 60, 0);
	assert_int_equal(other->res, 0);
	assert_int_equal(mine->res, NOT_DONE);
	same = ask(0, 5, 5, LONG_NS);
	assert_int_equal(same->res, NOT_DONE);
	/* Bytes already granted to a lease are available to its members. */
	ask_more(holder, 30, 0);
	assert_int_equal(holder->res, 0);
	end_lease(holder);
	settle();
	assert_int_equal(mine->res, 0);
	assert_int_equal(same->res, 0);
	assert_true(mine->order < same->order);
	/* The same with the lease's own maximum. */
	lease_resize(other->lease, 60 * MIB);
	ask_more(other, 61, LONG_NS);
	assert_int_equal(other->res, NOT_DONE);
	assert_int_equal(ask(2, 5, 5, 0)->res, 0);
}

/* A request within its tenant's reserve does not wait behind other tenants' requests. */
TEST(test_wait__reserve_overtakes, setup, teardown)
{
	struct asked *mine;

	rig_share(&rig, 2, 100 * MIB, 100 * MIB, 30 * MIB);
	ask(0, 50, 50, 0);
	assert_int_equal(ask(1, 60, 60, LONG_NS)->res, NOT_DONE);
	mine = ask(2, 30, 30, 0);
	assert_int_equal(mine->res, 0);
}

TEST(test_wait__times_out, setup, teardown)
{
	struct asked *a;

	ask(0, 80, 80, 0);
	a = ask(1, 30, 30, 20000000);
	assert_int_equal(a->res, NOT_DONE);
	for (int i = 0; i < 100000 && a->res == NOT_DONE; i++)
		rig_turn(&rig);
	assert_int_equal(a->res, -ETIMEDOUT);
	assert_true(list_is_empty(&rig.residency->leases.waits[RIG_DEVICE]));
}

/* When a wait times out, the requests behind it are served in the same pass. */
TEST(test_wait__timeout_serves_the_next, setup, teardown)
{
	struct asked *a, *b;

	ask(0, 90, 90, 0);
	a = ask(1, 20, 20, 20000000);
	b = ask(1, 5, 5, LONG_NS);
	assert_int_equal(b->res, NOT_DONE);
	for (int i = 0; i < 100000 && a->res == NOT_DONE; i++)
		rig_turn(&rig);
	assert_int_equal(a->res, -ETIMEDOUT);
	assert_int_equal(b->res, 0);
	end_lease(b);

	/* The same after a wait was withdrawn. */
	a = ask(1, 20, 20, LONG_NS);
	b = ask(1, 5, 5, LONG_NS);
	assert_int_equal(b->res, NOT_DONE);
	end_lease(a);
	settle();
	assert_int_equal(b->res, 0);
}

TEST(test_wait__withdrawn, setup, teardown)
{
	struct plan_memory *memory = rig_plan_of(&rig, 0, 70 * MIB);
	struct asked *a;

	rig_add(&rig, memory);
	settle();
	memory->n_on_device[RIG_DEVICE] = 1;
	a = ask(0, 50, 50, 0);
	assert_int_equal(a->res, NOT_DONE);
	assert_int_equal(rig.tenants[0].memory->awaited[RIG_DEVICE], 50 * MIB);
	end_lease(a);
	assert_fields(rig, (tenants[0].memory->awaited[RIG_DEVICE], 0),
		      (residency->devices[RIG_DEVICE].awaited_bytes, 0));
	rig_idle(&rig, memory);
	settle();
}

/* Each lease waits for bytes that the other holds. */
TEST(test_wait__deadlock, setup, teardown)
{
	struct asked *a = ask(0, 40, 40, 0), *b = ask(1, 40, 40, 0);

	ask_more(a, 40, 0);
	ask_more(b, 40, 0);
	assert_int_equal(lease_take(&a->member, 40 * MIB), 0);
	assert_int_equal(lease_take(&b->member, 40 * MIB), 0);
	ask_more(a, 40, LONG_NS);
	assert_int_equal(a->res, NOT_DONE);
	ask_more(b, 40, LONG_NS);
	assert_int_equal(b->res, -EDEADLK);
	assert_int_equal(a->res, NOT_DONE);
	/* The holder that got -EDEADLK ends, and the other lease gets its bytes. */
	end_lease(b);
	settle();
	assert_int_equal(a->res, 0);
	assert_int_equal(granted(a), 80);
}

/* Plans that can be removed are no deadlock. */
TEST(test_wait__plans_of_others, setup, teardown)
{
	struct plan_memory *memory = rig_plan_of(&rig, 2, 30 * MIB);
	struct asked *a = ask(0, 60, 60, 0);

	rig_add(&rig, memory);
	settle();
	assert_true(rig_is_ready(memory));
	assert_int_equal(lease_take(&a->member, 60 * MIB), 0);
	ask_more(a, 20, LONG_NS);
	settle();
	assert_int_equal(a->res, NOT_DONE);
	rig_remove(&rig, memory);
	settle();
	assert_int_equal(a->res, 0);
}

TEST(test_limits__lowered, setup, teardown)
{
	struct asked *a = ask(0, 10, 60, 0), *b = ask(0, 10, 30, 0);
	struct rbk_lease_page page = {.magic = 0};

	a->lease->page = &page;
	assert_int_equal(lease_take(&a->member, 50 * MIB), 0);
	rig_share(&rig, 0, 40 * MIB, 40 * MIB, 0);
	residency_limits_changed(rig.residency);
	/*
	 * Bytes in use stay granted until they are given back; unused bytes are taken back at once.
	 */
	assert_int_equal(granted(a), 50);
	assert_true(lease_is_shrinking(a->lease));
	assert_true(granted(b) <= 20);
	assert_true(page.wish_bytes <= 40 * MIB);
	assert_true(page.wish_bytes < page.granted_bytes);
	assert_int_equal(lease_give(&a->member, 50 * MIB), 0);
	residency_leases_changed(rig.residency, RIG_DEVICE);
	settle();
	assert_true(granted(a) + granted(b) <= 40);
	assert_false(lease_is_shrinking(a->lease));
	ask_more(a, 41, LONG_NS);
	assert_int_equal(a->res, NOT_DONE);
	rig_share(&rig, 0, 100 * MIB, 100 * MIB, 0);
	residency_limits_changed(rig.residency);
	settle();
	assert_int_equal(a->res, 0);
	assert_int_equal(page.wish_bytes, 100 * MIB);
	a->lease->page = NULL;
}

/* A lost or drained device grants nothing more; granted leases stay. */
TEST(test_device__drained, setup, teardown)
{
	struct asked *a = ask(0, 60, 60, 0), *b;

	residency_set_drained(rig.residency, RIG_DEVICE, true);
	b = ask(1, 10, 10, LONG_NS);
	assert_int_equal(ask(1, 10, 10, 0)->res, -ENOMEM);
	settle();
	assert_int_equal(b->res, NOT_DONE);
	assert_int_equal(granted(a), 60);
	residency_set_drained(rig.residency, RIG_DEVICE, false);
	settle();
	assert_int_equal(b->res, 0);
}

/*
 * With the device, its programs' memory is lost. But holders are not told, so their leases stay
 * granted.
 */
TEST(test_device__lost, setup, teardown)
{
	struct plan_memory *memory = rig_plan_of(&rig, 0, 20 * MIB);
	struct asked *a = ask(0, 60, 60, 0), *b;

	rig_add(&rig, memory);
	settle();
	assert_true(rig_is_ready(memory));
	atomic_store(&rig.devices[RIG_DEVICE].n_failed_reopens, 1);
	atomic_store(&rig.devices[RIG_DEVICE].is_lost, true);
	assert_true(residency_device_lost(rig.residency, RIG_DEVICE));
	b = ask(1, 30, 30, LONG_NS);
	assert_int_equal(b->res, NOT_DONE);
	assert_int_equal(granted(a), 60);
	while (!residency_is_up(rig.residency, RIG_DEVICE))
		rig_turn(&rig);
	settle();
	assert_int_equal(b->res, 0);
	assert_int_equal(granted(a), 60);
	end_lease(b);
	end_lease(a);
	settle();
}

/* Check the stored sums against the existing leases. */
static void check_sums(void)
{
	const struct leases *leases = residency_leases(rig.residency);
	uint64_t of_reserves = 0;
	uint32_t n = 0;

	for (unsigned int i = 0; i < RIG_MAX_TENANTS; i++) {
		uint64_t leased = leases_of(&rig.tenants[i])->granted[RIG_DEVICE];
		uint64_t reserve = rig.tenants[i].shares[RIG_DEVICE].reserve;
		bool has_leases = false;

		list_for_each (node, &leases->all)
			has_leases |=
				container_of(node, struct lease, link)->tenant == &rig.tenants[i];
		of_reserves += leased < reserve ? leased : reserve;
		n += has_leases;
	}
	assert_fields(*leases, (of_reserves_bytes[RIG_DEVICE], of_reserves),
		      (n_tenants[RIG_DEVICE], n));
}

/*
 * Random operations: never more than the device's memory, no lost bytes, and no request that waits
 * for ever.
 */
TEST(test_random, setup, teardown)
{
	struct plan_memory *memories[4];
	uint64_t seed = 88172645463325252ull;

	rig_share(&rig, 0, 70 * MIB, 50 * MIB, 20 * MIB);
	rig_share(&rig, 1, 90 * MIB, 60 * MIB, 0);
	for (unsigned int i = 0; i < 4; i++)
		rig_add(&rig, memories[i] = rig_plan_of(&rig, i % 3, (10 + 5 * i) * MIB));
	for (unsigned int round = 0; round < 3000; round++) {
		unsigned int i;

		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		i = seed % MAX_ASKED;
		if (i < n_asked && asked[i].lease) {
			if (asked[i].res == 0 && seed >> 20 & 1)
				ask_more(&asked[i], 1 + (seed >> 24) % 30,
					 seed >> 30 & 1 ? LONG_NS : 0);
			else
				end_lease(&asked[i]);
		} else {
			unsigned int n = n_asked;

			n_asked = i < n ? i : n;
			ask((seed >> 8) % 3, 1 + (seed >> 12) % 40, 41 + (seed >> 18) % 30,
			    seed >> 30 & 1 ? LONG_NS : 0);
			n_asked = n_asked > n ? n_asked : n;
		}
		rig_want(&rig, memories[(seed >> 40) % 4], 10);
		rig_turn(&rig);
		rig_check(&rig);
		if (round % 100 == 0)
			rig_share(&rig, 0, 70 * MIB, 50 * MIB, round / 100 * MIB);
		check_sums();
		assert_true(rig.residency->leases.granted_bytes[RIG_DEVICE] <= 100 * MIB);
	}
	for (unsigned int i = 0; i < n_asked; i++)
		end_lease(&asked[i]);
	settle();
	assert_fields(*rig.residency, (leases.granted_bytes[RIG_DEVICE], 0),
		      (devices[RIG_DEVICE].awaited_bytes, 0));
}

/* ---- Many waiters ---- */

enum { MANY = 1000, LOOKS_EACH = 16 };

static struct asked many[MANY];

static void ask_many(unsigned int tenant, uint64_t mib)
{
	const struct lease_about about = {
		.tenant = &rig.tenants[tenant],
		.device = RIG_DEVICE,
		.min_bytes = mib * MIB,
		.wish_bytes = mib * MIB,
		.max_bytes = 100 * MIB,
		.name = "test",
	};

	for (unsigned int i = 0; i < MANY; i++) {
		struct asked *a = &many[i];

		*a = (struct asked){.res = NOT_DONE};
		assert_int_equal(residency_lease_new(rig.residency, &about, &a->lease), 0);
		a->wait = (struct lease_wait){.lease = a->lease,
					      .least_bytes = mib * MIB,
					      .want_bytes = mib * MIB,
					      .done = on_done};
		residency_lease_ask(rig.residency, &a->wait, LONG_NS);
		assert_int_equal(a->res, NOT_DONE);
	}
}

/*
 * Serve the requests once.
 * Return: the number of requests, leases and plans looked at.
 */
static uint64_t serve_many(void)
{
	struct leases *leases = residency_leases(rig.residency);

	leases->n_looks = 0;
	residency_leases_serve(&rig.residency->devices[RIG_DEVICE]);
	return leases->n_looks;
}

static void end_many(void)
{
	for (unsigned int i = MANY; i-- > 0;)
		end_lease(&many[i]);
}

/* All waits time out together. */
TEST(test_many__time_is_up, setup, teardown)
{
	const struct list_node *waits = &rig.residency->leases.waits[RIG_DEVICE];
	uint64_t n_looks = 0;

	ask(1, 100, 100, 0);
	ask_many(0, 1);
	for (unsigned int i = 0; i < MANY; i++)
		many[i].wait.until_ns = many[i].wait.grace_ns = 0;
	while (!list_is_empty(waits)) {
		uint64_t n = serve_many();

		n_looks = n > n_looks ? n : n_looks;
	}
	end_many();
	for (unsigned int i = 0; i < MANY; i++) {
		assert_fields(many[i], (res, -ETIMEDOUT), (wait.available_bytes, 0));
	}
	assert_in_range(n_looks, 1, LOOKS_EACH * MANY);
}

/* No request could be served even alone, so none stops the others from being examined. */
TEST(test_many__hopeless, setup, teardown)
{
	uint64_t n_looks;
	uint32_t n_waits;

	rig_share(&rig, 2, 100 * MIB, 100 * MIB, 40 * MIB);
	ask_many(0, 61);
	n_looks = serve_many();
	n_waits = rig.residency->leases.n_waits[RIG_DEVICE];
	end_many();
	assert_int_equal(n_waits, MANY);
	assert_in_range(n_looks, 1, LOOKS_EACH * MANY);
}
