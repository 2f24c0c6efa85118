/* SPDX-License-Identifier: MIT */
/*
 * The cost of a request for device memory with many plans: broker/memory/residency-seek.c, over
 * devices that only count bytes
 */
#include <errno.h>
#include <stdlib.h>

#include "loop/loop.h"
#include "loop/turn.h"
#include "memory/residency-private.h"
#include "support/residency-rig.h"
#include "support/test.h"
#include "util/clock.h"

/* visits: each visit sums up the bytes that a plan would free */
static uint32_t n_summed;

uint64_t __wrap_residence_bytes(const struct residence *residence);
uint64_t __real_residence_bytes(const struct residence *residence);

uint64_t __wrap_residence_bytes(const struct residence *residence)
{
	n_summed++;
	return __real_residence_bytes(residence);
}

/* Add a plan, and wait until it is resident. */
static void add(struct residency_rig *rig, struct plan_memory *memory)
{
	rig_add(rig, memory);
	while (!rig_is_ready(memory))
		rig_turn(rig);
}

enum {
	N_RESIDENT = 16 * RESIDENCY_SMALL,
	MOST_LIMITED = 4000,
	FEW = 32,
};

enum {
	VISITS_OF_ADD,
	VISITS_OF_PREFETCH,
	VISITS_OF_PASS, /* a pass over requests for leases */
	VISITS_OF_HOPELESS,
	VISITS_OF_MESSAGE, /* a message that has waiting requests examined */
	VISITS
};

enum { N_WAITS = 100 };

struct many_waits {
	struct lease *leases[N_WAITS];
	struct lease_wait of[N_WAITS];
};

static uint32_t n_ended_waits;

static void on_wait_done(struct lease_wait *wait, int res)
{
	assert_int_equal(res, -ETIMEDOUT);
	n_ended_waits++;
}

/* Ask for @n leases of @bytes each, by the first @n_tenants tenants in turn. */
static void wait_many(struct residency_rig *rig, struct many_waits *waits, uint64_t bytes,
		      uint32_t n, uint32_t n_tenants)
{
	struct lease_about about = {
		.device = RIG_DEVICE,
		.min_bytes = bytes,
		.wish_bytes = bytes,
		.max_bytes = 100 << 20,
		.name = "test",
	};

	for (uint32_t i = 0; i < n; i++) {
		about.tenant = &rig->tenants[i % n_tenants];
		assert_int_equal(residency_lease_new(rig->residency, &about, &waits->leases[i]), 0);
		waits->of[i] = (struct lease_wait){.lease = waits->leases[i],
						   .least_bytes = bytes,
						   .want_bytes = bytes,
						   .done = on_wait_done};
		residency_lease_ask(rig->residency, &waits->of[i], 1000000000);
	}
}

static void end_waits(struct residency_rig *rig, struct many_waits *waits, uint32_t n)
{
	const uint32_t before = n_ended_waits;

	for (uint32_t i = 0; i < n; i++)
		waits->of[i].until_ns = waits->of[i].grace_ns = 0;
	residency_review_in(rig->residency, 0);
	while (n_ended_waits < before + n)
		rig_turn(rig);
	for (uint32_t i = 0; i < n; i++)
		lease_free(waits->leases[i]);
}

static uint32_t n_summed_until_done;

static void on_prefetched(struct residency_waiter *waiter, int res)
{
	n_summed_until_done = n_summed;
	rig_on_done(waiter, res);
}

/* Return the number of visits until the prefetch is refused, without visits by later reviews. */
static uint32_t refused_prefetch(struct residency_rig *rig, struct plan_memory *memory)
{
	struct rig_wish wish = {.waiter.done = on_prefetched};

	n_summed = 0;
	residency_ask(rig->residency, memory, &wish.waiter, RESIDENCY_PREFETCH, RBK_DEVICE_NONE);
	rig_settle(rig);
	assert_int_equal(wish.n_done, 1);
	assert_int_equal(wish.res, -ENOMEM);
	return n_summed_until_done;
}

/*
 * Count the visits of requests that cannot be granted. Tenant 0 has @n plans of @bytes each; if
 * @bytes is 0, tenant 1 fills the device.
 */
static void count_visits(uint32_t n, uint64_t bytes, uint32_t *ret)
{
	const uint64_t room = bytes ? n * bytes : RIG_PAGE;
	struct plan_memory **memories = calloc(n, sizeof(*memories)), *other = NULL, *more;
	static struct many_waits waits;

	assert_non_null(memories);
	RESIDENCY_RIG(rig, 1, room, 0, RESIDENCY_WANTED);
	for (uint32_t i = 0; i < n; i++)
		add(&rig, memories[i] = bytes ? rig_plan_of(&rig, 0, bytes)
					      : rig_plan(&rig, 0, 0, (const uint32_t[]){0}));
	if (!bytes)
		add(&rig, other = rig_plan_of(&rig, 1, room));
	rig_settle(&rig);
	/* A new plan must have a lower value, however long the setup took. */
	for (uint32_t i = 0; i < n; i++)
		rig_want(&rig, memories[i], 1000);
	if (other)
		rig_want(&rig, other, 1000);

	n_summed = 0;
	rig_add(&rig, more = rig_plan_of(&rig, 0, room));
	ret[VISITS_OF_ADD] = n_summed;
	ret[VISITS_OF_PREFETCH] = refused_prefetch(&rig, more);
	rig_remove(&rig, more);

	wait_many(&rig, &waits, room, N_WAITS, 1);
	n_summed = 0;
	residency_leases_serve(&rig.residency->devices[RIG_DEVICE]);
	ret[VISITS_OF_PASS] = n_summed;
	end_waits(&rig, &waits, N_WAITS);

	/* A request that exceeds its tenant's maximum. */
	rig_share(&rig, 0, room - 1, room - 1, 0);
	wait_many(&rig, &waits, room, 1, 1);
	n_summed = 0;
	residency_leases_changed(rig.residency, RIG_DEVICE);
	ret[VISITS_OF_HOPELESS] = n_summed;
	rig_share(&rig, 0, room, room, 0);
	end_waits(&rig, &waits, 1);

	wait_many(&rig, &waits, room, 1, 1);
	/* The first call may serve the request at once, and find that it takes long. */
	residency_leases_changed(rig.residency, RIG_DEVICE);
	n_summed = 0;
	residency_leases_changed(rig.residency, RIG_DEVICE);
	ret[VISITS_OF_MESSAGE] = n_summed;
	end_waits(&rig, &waits, 1);

	rig_check(&rig);
	free(memories);
}

/* Plans that hold no bytes are never visited. */
TEST(test_many__plans_without_bytes)
{
	uint32_t n_visits[VISITS];

	count_visits(N_RESIDENT, 0, n_visits);
	for (int i = 0; i < VISITS; i++)
		assert_in_range(n_visits[i], 0, FEW);
}

/* A request visits a limited number of small plans. */
TEST(test_many__small_plans)
{
	uint32_t n_visits[VISITS];

	count_visits(N_RESIDENT, RIG_PAGE, n_visits);
	assert_in_range(n_visits[VISITS_OF_ADD], 0, 2 * RESIDENCY_SMALL);
	assert_in_range(n_visits[VISITS_OF_PREFETCH], 1, 2 * RESIDENCY_SMALL);
	assert_in_range(n_visits[VISITS_OF_PASS], 1, 8 * RESIDENCY_SMALL);
	assert_int_equal(n_visits[VISITS_OF_HOPELESS], 0);
	assert_in_range(n_visits[VISITS_OF_MESSAGE], 0, RESIDENCY_SLICE + RESIDENCY_MAX_VICTIMS);
}

/*
 * A round over waiting requests is divided into passes. Each pass continues after the requests
 * already tried, and the round ends.
 */
TEST(test_many__waits_in_passes)
{
	enum { N = 4 * RIG_MAX_TENANTS * RESIDENCY_SMALL, MOST = 16 * RESIDENCY_SMALL };
	struct plan_memory *memories[N];
	static struct many_waits waits;
	struct residency_device *device;
	uint32_t n_passes = 0;

	RESIDENCY_RIG(rig, 1, N * RIG_PAGE, 0, RESIDENCY_WANTED);
	device = &rig.residency->devices[RIG_DEVICE];
	for (uint32_t i = 0; i < N; i++)
		add(&rig, memories[i] = rig_plan_of(&rig, i % RIG_MAX_TENANTS, RIG_PAGE));
	rig_settle(&rig);
	wait_many(&rig, &waits, N / RIG_MAX_TENANTS * RIG_PAGE, N_WAITS, RIG_MAX_TENANTS);
	while (device->is_round_cut)
		residency_leases_serve(device);
	do {
		n_summed = 0;
		residency_leases_serve(device);
		assert_in_range(n_summed, 1, MOST);
		assert_in_range(++n_passes, 1, RIG_MAX_TENANTS);
	} while (device->is_round_cut);
	assert_in_range(n_passes, 2, RIG_MAX_TENANTS);
	end_waits(&rig, &waits, N_WAITS);
}

/* A tenant's own small plan is found among any number of another tenant's. */
TEST(test_many__plans_of_another_tenant)
{
	enum { N = 4 * RESIDENCY_SMALL };
	struct plan_memory *memories[N], *mine, *next;
	struct rig_wish wish;

	RESIDENCY_RIG(rig, 1, (N + 1) * RIG_PAGE, 0, RESIDENCY_WANTED);
	for (uint32_t i = 0; i < N; i++)
		add(&rig, memories[i] = rig_plan_of(&rig, 0, RIG_PAGE));
	add(&rig, mine = rig_plan_of(&rig, 1, RIG_PAGE));
	for (uint32_t i = 0; i < N; i++)
		rig_want(&rig, memories[i], 1000);
	rig_add(&rig, next = rig_plan_of(&rig, 1, RIG_PAGE));
	rig_ask(&rig, next, &wish, RESIDENCY_PREFETCH);
	rig_settle(&rig);
	assert_int_equal(wish.res, 0);
	assert_true(rig_is_ready(next));
	assert_false(rig_is_ready(mine));
}

/* A large plan is evicted even if any number of its tenant's small plans came before it. */
TEST(test_many__large_among_small)
{
	enum { N = 4 * RESIDENCY_SMALL };
	struct plan_memory *memories[N], *large, *next;
	struct rig_wish wish;

	RESIDENCY_RIG(rig, 1, 2 * N * RIG_PAGE, 0, RESIDENCY_WANTED);
	for (uint32_t i = 0; i < N; i++)
		add(&rig, memories[i] = rig_plan_of(&rig, 0, RIG_PAGE));
	add(&rig, large = rig_plan_of(&rig, 0, N * RIG_PAGE));
	for (uint32_t i = 0; i < N; i++)
		rig_want(&rig, memories[i], 1000);
	rig_add(&rig, next = rig_plan_of(&rig, 0, N * RIG_PAGE));
	rig_ask(&rig, next, &wish, RESIDENCY_PREFETCH);
	rig_settle(&rig);
	assert_int_equal(wish.res, 0);
	assert_true(rig_is_ready(next));
	assert_false(rig_is_ready(large));
}

/* ---- Turns without time ---- */

/* Give each turn time for only one piece of work, and begin no other review. */
static void be_short_of_time(struct residency_rig *rig)
{
	turn_set_budget(loop_current(rig->loop), 0);
	rig->residency->reviewed_ns = clock_now_ns();
	rig->residency->review_ns = 3600000000000;
}

static void end_shortage(struct residency_rig *rig)
{
	rig->residency->review_ns = 0;
	residency_review_in(rig->residency, 0);
	rig_settle(rig);
}

static uint32_t n_there(struct plan_memory **memories, uint32_t n)
{
	uint32_t n_ready = 0;

	for (uint32_t i = 0; i < n; i++)
		n_ready += rig_is_ready(memories[i]);
	return n_ready;
}

/* Check that some plans above a maximum are evicted in each turn, without a pause between turns. */
static void leave_in_turns(struct residency_rig *rig, struct plan_memory **memories, uint32_t n,
			   uint32_t n_left)
{
	uint32_t before = n_there(memories, n), now;

	assert_in_range(before, n - RESIDENCY_MAX_VICTIMS, n - 1);
	be_short_of_time(rig);
	/* A walk over all plans would also continue in the next turns, so stop it. */
	rig->residency->walk.next = NULL;
	while (before > n_left) {
		assert_true(residency_goes_on(rig->residency));
		rig_turn(rig);
		now = n_there(memories, n);
		assert_in_range(before - now, 0, RESIDENCY_MAX_VICTIMS);
		before = now;
	}
	assert_int_equal(before, n_left);
	end_shortage(rig);
	assert_int_equal(n_there(memories, n), n_left);
}

TEST(test_short__of_limit_and_device_memory)
{
	enum { N = 600, N_WITHIN = 300, N_LEFT = 10 };
	static struct plan_memory *memories[N];

	RESIDENCY_RIG(rig, 1, N * RIG_PAGE, 0, RESIDENCY_WANTED);
	for (uint32_t i = 0; i < N; i++)
		add(&rig, memories[i] = rig_plan_of(&rig, 0, RIG_PAGE));
	rig_settle(&rig);
	turn_set_budget(loop_current(rig.loop), 0);
	residency_set_usable(rig.residency, RIG_DEVICE, N_WITHIN * RIG_PAGE, 0);
	leave_in_turns(&rig, memories, N, N_WITHIN);

	rig_share(&rig, 0, N_LEFT * RIG_PAGE, N_LEFT * RIG_PAGE, 0);
	residency_review(rig.residency);
	be_short_of_time(&rig);
	rig.residency->walk.next = NULL;
	for (uint32_t i = 0; n_there(memories, N) > N_LEFT; i++) {
		assert_in_range(i, 0, 1000);
		rig_turn(&rig);
	}
	end_shortage(&rig);
}

/* Plans of a tenant above a lowered maximum that share a block are evicted without a pause, too. */
TEST(test_short__of_a_limit_on_sharers)
{
	enum { N = 200 };
	static struct plan_memory *memories[N];

	RESIDENCY_RIG(rig, 1, N * RIG_PAGE, 0, RESIDENCY_WANTED);
	for (uint32_t i = 0; i < N; i++)
		add(&rig, memories[i] = rig_plan(&rig, 0, RIG_PAGE, (const uint32_t[]){1, 0}));
	rig_settle(&rig);
	turn_set_budget(loop_current(rig.loop), 0);
	rig_share(&rig, 0, RIG_PAGE - 1, RIG_PAGE - 1, 0);
	residency_review(rig.residency);
	leave_in_turns(&rig, memories, N, 0);
}

/*
 * Lower the maximum of a tenant with @n resident plans to @n_left pages; with @shares they share a
 * block. Return: the number of visits until the other plans are gone.
 */
static uint32_t visits_of_limit(uint32_t n, uint32_t n_left, bool shares)
{
	static struct plan_memory *memories[MOST_LIMITED];
	uint32_t n_visits;

	assert_true(n <= MOST_LIMITED);
	RESIDENCY_RIG(rig, 1, n * RIG_PAGE, 0, RESIDENCY_WANTED);
	for (uint32_t i = 0; i < n; i++)
		add(&rig,
		    memories[i] = shares ? rig_plan(&rig, 0, RIG_PAGE, (const uint32_t[]){1, 0})
					 : rig_plan_of(&rig, 0, RIG_PAGE));
	rig_settle(&rig);
	/* A turn that a busy machine cuts short makes the search begin again. */
	turn_set_budget(loop_current(rig.loop), 1000000000000);
	n_summed = 0;
	rig_share(&rig, 0, n_left * RIG_PAGE, n_left * RIG_PAGE, 0);
	residency_limits_changed(rig.residency);
	/* Evicted plans that want to return search once their tenant is within its maximum. */
	while (n_there(memories, n) > n_left)
		rig_turn(&rig);
	n_visits = n_summed;
	rig_settle(&rig);
	return n_visits;
}

/* Enforcing a lowered maximum takes as many visits for each plan, however many there are. */
TEST(test_limit__is_linear)
{
	/* A search visits RESIDENCY_SMALL plans and evicts RESIDENCY_MAX_VICTIMS of them. */
	enum { VISITS_EACH = 2 * RESIDENCY_SMALL / RESIDENCY_MAX_VICTIMS };

	for (uint32_t n = MOST_LIMITED / 4; n <= MOST_LIMITED; n *= 2) {
		assert_in_range(visits_of_limit(n, n / 2, false), n / 2, VISITS_EACH * n);
		/* All of them must go before the memory of the block is free. */
		assert_in_range(visits_of_limit(n, 0, true), n, VISITS_EACH * n);
	}
}

/* While a lowered maximum is enforced, an evicted plan that wants to return causes no search. */
TEST(test_limit__no_search_before_its_end)
{
	enum { N = 16 * RESIDENCY_MAX_VICTIMS };
	static struct plan_memory *memories[N];
	struct residence *out = NULL;

	RESIDENCY_RIG(rig, 1, N * RIG_PAGE, 0, RESIDENCY_WANTED);
	for (uint32_t i = 0; i < N; i++)
		add(&rig, memories[i] = rig_plan_of(&rig, 0, RIG_PAGE));
	rig_settle(&rig);
	turn_set_budget(loop_current(rig.loop), 0);
	rig_share(&rig, 0, RIG_PAGE, RIG_PAGE, 0);
	residency_review(rig.residency);
	while (!out) {
		rig_turn(&rig);
		for (uint32_t i = 0; i < N && !out; i++)
			if (memories[i]->residency->on[RIG_DEVICE].state == RESIDENCE_OUT)
				out = &memories[i]->residency->on[RIG_DEVICE];
	}
	assert_in_range(n_there(memories, N), 1, N - 1);
	n_summed = 0;
	assert_int_equal(residence_try(out, RESIDENCY_BY_VALUE), TRY_NO_ROOM);
	assert_int_equal(n_summed, 0);
	turn_set_budget(loop_current(rig.loop), 1000000000);
	rig_settle(&rig);
}

/* Under pressure, the evictable plan is found among any number of plans protected by a reserve. */
TEST(test_many__one_plan_above_the_reserve)
{
	enum { N_KEPT = 4 * RESIDENCY_SMALL, N = N_KEPT + 1 };
	static struct plan_memory *memories[N];

	RESIDENCY_RIG(rig, 1, 4 * N * RIG_PAGE, 0, RESIDENCY_WANTED);
	for (uint32_t i = 0; i < N; i++)
		add(&rig, memories[i] = rig_plan_of(&rig, 0, i < N_KEPT ? 2 * RIG_PAGE : RIG_PAGE));
	rig_share(&rig, 0, 4 * N * RIG_PAGE, 4 * N * RIG_PAGE, 2 * N_KEPT * RIG_PAGE);
	rig_settle(&rig);
	turn_set_budget(loop_current(rig.loop), 0);
	residency_set_usable(rig.residency, RIG_DEVICE, N_KEPT * RIG_PAGE, 0);
	be_short_of_time(&rig);
	for (uint32_t i = 0; i < N && residency_goes_on(rig.residency); i++)
		rig_turn(&rig);
	assert_false(residency_goes_on(rig.residency));
	assert_false(rig_is_ready(memories[N_KEPT]));
	assert_int_equal(n_there(memories, N), N_KEPT);
	end_shortage(&rig);
}

/* ---- Shared blocks ---- */

enum {
	SHARED_PAGES = 40,
	OTHER_PAGES = 50,
	ALL_PAGES = 100,
};

struct shared {
	struct residency_rig rig;
	struct plan_memory *sharers[2], *other;
};

/*
 * Begin with two plans of tenant 0, above its vram-high, that share a block, and a plan of tenant
 * 1.
 */
static void shared_begin(struct shared *shared)
{
	struct residency_rig *rig = &shared->rig;

	residency_rig_init(rig, 1, ALL_PAGES * RIG_PAGE, 0, RESIDENCY_WANTED);
	rig_share(rig, 0, ALL_PAGES * RIG_PAGE, RIG_PAGE, 0);
	for (int i = 0; i < 2; i++)
		add(rig, shared->sharers[i] = rig_plan(rig, 0, SHARED_PAGES * RIG_PAGE,
						       (const uint32_t[]){1, 0}));
	add(rig, shared->other = rig_plan_of(rig, 1, OTHER_PAGES * RIG_PAGE));
	rig_settle(rig);
}

static void shared_end(struct shared *shared)
{
	struct residency_rig *rig = &shared->rig;
	struct residency_about about;

	for (int i = 0; i < 2; i++)
		assert_false(rig_is_ready(shared->sharers[i]));
	residency_about(rig->residency, shared->other, RIG_DEVICE, &about);
	assert_int_equal(about.n_evictions, 0);
	rig_check(rig);
	for (int i = 0; i < 2; i++)
		rig_remove(rig, shared->sharers[i]);
	rig_remove(rig, shared->other);
	assert_int_equal(rig->residency->devices[RIG_DEVICE].leaving_bytes, 0);
	residency_rig_deinit(rig);
}

/* When all plans that share a block are leaving, no other plan is evicted for the same bytes. */
TEST(test_shared__leaving_block_counts_once)
{
	struct shared shared;

	shared_begin(&shared);
	residency_set_usable(shared.rig.residency, RIG_DEVICE,
			     (ALL_PAGES - SHARED_PAGES / 2) * RIG_PAGE, 0);
	rig_settle(&shared.rig);
	shared_end(&shared);
}

TEST(test_shared__evicted_for_a_request)
{
	struct plan_memory *owed;
	struct shared shared;
	struct rig_wish wish;

	shared_begin(&shared);
	rig_share(&shared.rig, 2, ALL_PAGES * RIG_PAGE, ALL_PAGES * RIG_PAGE,
		  SHARED_PAGES * RIG_PAGE);
	rig_add(&shared.rig, owed = rig_plan_of(&shared.rig, 2, SHARED_PAGES * RIG_PAGE));
	rig_ask(&shared.rig, owed, &wish, RESIDENCY_PREFETCH);
	assert_true(wish.n_done == 1 && wish.res == 0);
	rig_remove(&shared.rig, owed);
	shared_end(&shared);
}

static enum residence_state state_of(const struct plan_memory *memory)
{
	return memory->residency->on[RIG_DEVICE].state;
}

/*
 * A round over reservations ends, and begins no review. One plan whose reservation can be met is
 * loaded per turn.
 */
TEST(test_short__reservations_need_no_review)
{
	struct plan_memory *busy, *memories[RIG_MAX_TENANTS];
	struct residency_device *device;
	uint32_t n_coming = 0, n_before;

	RESIDENCY_RIG(rig, 1, RIG_MAX_TENANTS * RIG_PAGE, 0, RESIDENCY_WANTED);
	device = &rig.residency->devices[RIG_DEVICE];
	add(&rig, busy = rig_plan_of(&rig, 0, RIG_MAX_TENANTS * RIG_PAGE));
	busy->n_on_device[RIG_DEVICE] = 1;
	for (uint32_t i = 0; i < RIG_MAX_TENANTS; i++) {
		rig_add(&rig, memories[i] = rig_plan_of(&rig, i, RIG_PAGE));
		rig_want(&rig, memories[i], 1000);
	}
	rig_settle(&rig);
	for (uint32_t i = 0; i < RIG_MAX_TENANTS; i++)
		assert_int_equal(state_of(memories[i]), RESIDENCE_AWAITED);

	/* No reservation can be met yet, and finding that out takes no time. */
	turn_set_budget(loop_current(rig.loop), 0);
	rig.residency->timer_ns = 0;
	residency_review(rig.residency);
	assert_false(device->is_bringing);
	assert_int_equal(rig.residency->timer_ns, 0);

	atomic_store(&rig.devices[RIG_DEVICE].is_held, true);
	rig_idle(&rig, busy);
	for (uint32_t turns = 0; n_coming < RIG_MAX_TENANTS; turns++) {
		assert_in_range(turns, 0, 10000);
		n_before = n_coming;
		n_coming = 0;
		rig_turn(&rig);
		for (uint32_t i = 0; i < RIG_MAX_TENANTS; i++)
			n_coming += state_of(memories[i]) != RESIDENCE_AWAITED;
		assert_in_range(n_coming - n_before, 0, 1);
		if (n_coming == 0)
			continue;
		be_short_of_time(&rig);
		assert_true(n_coming == RIG_MAX_TENANTS || device->is_bringing);
	}
	assert_false(device->is_bringing);
	atomic_store(&rig.devices[RIG_DEVICE].is_held, false);
	end_shortage(&rig);
	assert_int_equal(n_there(memories, RIG_MAX_TENANTS), RIG_MAX_TENANTS);
}

static void on_granted(struct lease_wait *wait, int res)
{
	assert_int_equal(res, 0);
	n_ended_waits++;
}

/* A request for a lease is answered behind any number of others, also between reviews. */
TEST(test_short__lease_request_between_reviews)
{
	static struct many_waits waits;
	struct residency_rig rig;
	struct lease_about about = {
		.tenant = &rig.tenants[2],
		.device = RIG_DEVICE,
		.min_bytes = RIG_PAGE,
		.wish_bytes = RIG_PAGE,
		.max_bytes = RIG_PAGE,
		.name = "test",
	};
	struct lease_wait wait = {
		.least_bytes = RIG_PAGE, .want_bytes = RIG_PAGE, .done = on_granted};
	struct plan_memory *full;

	residency_rig_init(&rig, 1, 100 * RIG_PAGE, 0, RESIDENCY_WANTED);
	add(&rig, full = rig_plan_of(&rig, 1, 99 * RIG_PAGE));
	rig_want(&rig, full, 100000);
	wait_many(&rig, &waits, 100 * RIG_PAGE, N_WAITS, 1);
	rig_settle(&rig);
	be_short_of_time(&rig);
	n_ended_waits = 0;
	assert_int_equal(residency_lease_new(rig.residency, &about, &wait.lease), 0);
	residency_lease_ask(rig.residency, &wait, 0);
	assert_int_equal(n_ended_waits, 0);
	for (uint32_t i = 0; i < 10000 && n_ended_waits == 0; i++)
		rig_turn(&rig);
	assert_int_equal(n_ended_waits, 1);
	lease_free(wait.lease);
	end_shortage(&rig);
	end_waits(&rig, &waits, N_WAITS);
	residency_rig_deinit(&rig);
}

/* One candidate per turn: plans with waiters first, then wanted plans. */
TEST(test_short__of_candidates)
{
	struct plan_memory *there, *awaited, *wanted;
	struct residency_walk *walk;
	struct rig_wish wish;

	RESIDENCY_RIG(rig, 1, 2 * RIG_PAGE, 0, RESIDENCY_WANTED);
	walk = &rig.residency->walk;
	add(&rig, there = rig_plan_of(&rig, 0, 2 * RIG_PAGE));
	rig_want(&rig, there, 1000);
	rig_add(&rig, awaited = rig_plan_of(&rig, 1, 2 * RIG_PAGE));
	rig_add(&rig, wanted = rig_plan_of(&rig, 1, 2 * RIG_PAGE));
	rig_ask(&rig, awaited, &wish, RESIDENCY_WAIT);
	rig_want(&rig, wanted, 1);
	while (walk->next)
		rig_turn(&rig);
	be_short_of_time(&rig);
	residency_review(rig.residency);
	assert_true(walk->waiting.n == 1 && walk->waiting.n_tried == 1);
	assert_true(walk->wanted.n == 1 && walk->wanted.n_tried == 0);
	while (walk->next)
		rig_turn(&rig);
	assert_int_equal(walk->wanted.n_tried, 1);
	end_shortage(&rig);
	assert_true(rig_is_ready(there));
}

/* A tenant at its maximum of reservations may still get the second tier. */
TEST(test_promises__second_tier)
{
	enum { N = RESIDENCY_MAX_AWAITED + 1 };
	struct plan_memory *busy, *memories[N];
	static struct rig_wish wishes[N];

	RESIDENCY_RIG(rig, 1, 2 * N * RIG_PAGE, 0, RESIDENCY_WANTED);
	add(&rig, busy = rig_plan_of(&rig, 0, 2 * N * RIG_PAGE));
	busy->n_on_device[RIG_DEVICE] = 1;
	for (uint32_t i = 0; i < N; i++) {
		if (i == RESIDENCY_MAX_AWAITED)
			residency_set_usable(rig.residency, RIG_DEVICE, 2 * N * RIG_PAGE, RIG_PAGE);
		rig_add(&rig, memories[i] = rig_plan_of(&rig, 0, RIG_PAGE));
		rig_ask(&rig, memories[i], &wishes[i], RESIDENCY_PREFETCH);
	}
	assert_int_equal(rig.tenants[0].memory->n_awaited[RIG_DEVICE], RESIDENCY_MAX_AWAITED);
	assert_int_equal(n_there(memories, N), 1);
	rig_idle(&rig, busy);
	rig_settle(&rig);
	assert_int_equal(n_there(memories, N), N);
}

/* ---- Operations on all plans ---- */

/* When a device is drained, resident plans and reservations are cleared some at a time. */
TEST(test_all__drained_in_turns)
{
	enum { N = 4 * RESIDENCY_SLICE };
	static struct plan_memory *memories[N];
	struct residency_device *device;
	uint32_t before, now;

	RESIDENCY_RIG(rig, 1, N * RIG_PAGE, 0, RESIDENCY_WANTED);
	device = &rig.residency->devices[RIG_DEVICE];
	for (uint32_t i = 0; i < N; i++)
		add(&rig, memories[i] = rig_plan_of(&rig, 0, RIG_PAGE));
	rig_settle(&rig);
	turn_set_budget(loop_current(rig.loop), 1000000000);
	residency_set_drained(rig.residency, RIG_DEVICE, true);
	assert_non_null(device->evict_next);
	for (before = N; device->evict_next; before = now) {
		now = n_there(memories, N);
		assert_in_range(before - now, 0, RESIDENCY_SLICE + 1);
		assert_true(residency_goes_on(rig.residency));
		rig_turn(&rig);
	}
	rig_settle(&rig);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(memories[i]->plan->device_state[RIG_DEVICE], PLAN_DEVICE_FAILED);
	rig_check(&rig);
	residency_set_drained(rig.residency, RIG_DEVICE, false);
	while (n_there(memories, N) < N)
		rig_turn(&rig);
}

/* An administrator's eviction works the same way. */
TEST(test_all__evicted_in_turns)
{
	enum { N = 4 * RESIDENCY_SLICE };
	const struct residency_victims all = {.device = RBK_DEVICE_NONE};
	static struct plan_memory *memories[N];
	uint64_t n, bytes;
	uint32_t before, now;

	RESIDENCY_RIG(rig, 1, N * RIG_PAGE, 0, RESIDENCY_WANTED);
	for (uint32_t i = 0; i < N; i++)
		add(&rig, memories[i] = rig_plan_of(&rig, 0, RIG_PAGE));
	rig_settle(&rig);
	assert_true(residency_evict(rig.residency, &all, &n, &bytes));
	assert_true(n == N && bytes == N * RIG_PAGE);
	for (before = N; before > 0; before = now) {
		now = n_there(memories, N);
		assert_in_range(before - now, 0, RESIDENCY_SLICE);
		rig_turn(&rig);
	}
	rig_settle(&rig);
	assert_int_equal(n_there(memories, N), 0);
}

static uint32_t n_told(const struct rig_wish *wishes, uint32_t n)
{
	uint32_t n_done = 0;

	for (uint32_t i = 0; i < n; i++)
		n_done += wishes[i].n_done > 0;
	return n_done;
}

/* Clients that wait for plans that can no longer be loaded are answered some at a time. */
TEST(test_all__answered_in_turns)
{
	enum { N = 4 * RESIDENCY_SLICE };
	static struct plan_memory *memories[N];
	static struct rig_wish wishes[N];
	struct plan_memory *full;
	uint32_t before, now;

	RESIDENCY_RIG(rig, 1, 4 * RIG_PAGE, 0, RESIDENCY_WANTED);
	add(&rig, full = rig_plan_of(&rig, 1, 4 * RIG_PAGE));
	rig_want(&rig, full, 100000);
	for (uint32_t i = 0; i < N; i++) {
		rig_add(&rig, memories[i] = rig_plan_of(&rig, 0, 2 * RIG_PAGE));
		wishes[i] = (struct rig_wish){.waiter.done = rig_on_done};
		residency_ask(rig.residency, memories[i], &wishes[i].waiter, RESIDENCY_WAIT,
			      RBK_DEVICE_NONE);
	}
	rig_settle(&rig);
	turn_set_budget(loop_current(rig.loop), 1000000000);
	rig_share(&rig, 0, RIG_PAGE, RIG_PAGE, 0);
	residency_limits_changed(rig.residency);
	for (before = 0; before < N; before = now) {
		now = n_told(wishes, N);
		assert_in_range(now - before, 0, RESIDENCY_SLICE);
		assert_true(now == N || residency_goes_on(rig.residency));
		rig_turn(&rig);
	}
	rig_settle(&rig);
	for (uint32_t i = 0; i < N; i++) {
		assert_int_equal(wishes[i].res, -ENOMEM);
		assert_int_equal(memories[i]->plan->device_state[RIG_DEVICE],
				 PLAN_DEVICE_NO_MEMORY);
	}
}

/* ---- Plans that move ---- */

/*
 * The search for plans to move up from the second tier takes several turns if there are many plans.
 */
TEST(test_moves__from_second_tier_in_turns)
{
	enum { N = 4 * RESIDENCY_SLICE };
	static struct plan_memory *memories[N];
	struct residency_device *device;
	struct plan_memory *full;
	uint32_t before;

	RESIDENCY_RIG(rig, 1, N * RIG_PAGE, 2 * N * RIG_PAGE, RESIDENCY_WANTED);
	device = &rig.residency->devices[RIG_DEVICE];
	residency_set_usable(rig.residency, RIG_DEVICE, (N - 1) * RIG_PAGE, 2 * N * RIG_PAGE);
	add(&rig, full = rig_plan_of(&rig, 1, (N - 1) * RIG_PAGE));
	rig_want(&rig, full, 100000);
	for (uint32_t i = 0; i < N; i++)
		add(&rig, memories[i] = rig_plan_of(&rig, 0, i < N - 1 ? 2 * RIG_PAGE : RIG_PAGE));
	rig_settle(&rig);
	assert_int_equal(device->n_second_tier, N);

	turn_set_budget(loop_current(rig.loop), 0);
	residency_set_usable(rig.residency, RIG_DEVICE, N * RIG_PAGE, 2 * N * RIG_PAGE);
	residency_review(rig.residency);
	be_short_of_time(&rig);
	before = device->n_to_promote;
	assert_int_equal(before, N - RESIDENCY_SLICE);
	while (device->n_to_promote > 0) {
		assert_in_range(before - device->n_to_promote, 0, RESIDENCY_SLICE);
		before = device->n_to_promote;
		assert_true(residency_goes_on(rig.residency));
		rig_turn(&rig);
	}
	end_shortage(&rig);
	assert_int_equal(memories[N - 1]->residency->on[RIG_DEVICE].tier, EXEC_TIER_VRAM);
	assert_int_equal(device->n_second_tier, N - 1);
	rig_check(&rig);
	rig_remove(&rig, full);
	for (uint32_t i = 0; i < N; i++)
		rig_remove(&rig, memories[i]);
	assert_int_equal(device->n_second_tier, 0);
}

/*
 * All plans that share a block are renewed over several turns. Plans that need the first one to be
 * back are not tried before.
 */
TEST(test_moves__sharers_in_turns)
{
	enum { N = 4 * RESIDENCY_SLICE };
	static struct plan_memory *memories[N];
	struct residency_device *device;
	uint64_t before;
	uint32_t n_out;

	RESIDENCY_RIG(rig, 1, N * RIG_PAGE, 0, RESIDENCY_WANTED);
	device = &rig.residency->devices[RIG_DEVICE];
	for (uint32_t i = 0; i < N; i++)
		add(&rig, memories[i] = rig_plan(&rig, 0, RIG_PAGE, (const uint32_t[]){1, 0}));
	rig_settle(&rig);
	turn_set_budget(loop_current(rig.loop), 1000000000);
	assert_true(residency_renew(rig.residency, RIG_DEVICE, clock_now_ns()));
	n_out = N - n_there(memories, N);
	assert_in_range(n_out, 1, RESIDENCY_SLICE + 1);
	assert_true(residency_renew(rig.residency, RIG_DEVICE, clock_now_ns()));
	while (device->renew_next) {
		assert_true(residency_goes_on(rig.residency));
		before = n_out;
		rig_turn(&rig);
		n_out = N - n_there(memories, N);
		assert_in_range(n_out - before, 0, RESIDENCY_SLICE);
	}
	assert_int_equal(n_out, N);

	atomic_store(&rig.devices[RIG_DEVICE].is_held, true);
	while (rig.tenants[0].memory->n_loads[RIG_DEVICE] == 0)
		rig_turn(&rig);
	before = rig.residency->n_drafts;
	residency_review(rig.residency);
	assert_in_range(rig.residency->n_drafts - before, 0, 2 * RESIDENCY_MAX_LOADS);
	atomic_store(&rig.devices[RIG_DEVICE].is_held, false);
	while (n_there(memories, N) < N)
		rig_turn(&rig);
	assert_int_equal(rig.devices[RIG_DEVICE].n_block_loads, 2);
	rig_settle(&rig);
}

/* A renewal ends, however long the chain of plans that share blocks with each other. */
TEST(test_moves__chain)
{
	enum { N = 20 };
	struct plan_memory *memories[N];
	uint32_t n_loads;

	RESIDENCY_RIG(rig, 1, 4 * N * RIG_PAGE, 0, RESIDENCY_WANTED);
	/* The first plan shares with the last, the last with the one before it, and so on. */
	for (uint32_t i = 0; i < N; i++)
		add(&rig, memories[i] = rig_plan(
				  &rig, 0, RIG_PAGE,
				  (const uint32_t[]){i ? N - i + 1 : 1, i ? N - i + 2 : 2, 0}));
	rig_settle(&rig);
	n_loads = rig.devices[RIG_DEVICE].n_plan_loads;
	assert_true(residency_renew(rig.residency, RIG_DEVICE, clock_now_ns()));
	rig_settle(&rig);
	assert_in_range(rig.devices[RIG_DEVICE].n_plan_loads - n_loads, 2, N / 2);
	assert_int_equal(n_there(memories, N), N);
}

static void limit_mappings(struct residency_rig *rig, uint64_t most)
{
	struct account_limits limits;

	for (int slot = 0; slot < ACCOUNT_SLOT_COUNT; slot++)
		limits.max[slot] = UINT64_MAX;
	limits.max[ACCOUNT_MAPPINGS] = most;
	account_set_limits(rig->tenants[0].account, &limits);
	rig->devices[RIG_DEVICE].executor.info.allocation_mappings = 1;
}

/*
 * Plans are loaded while their tenant's limit of mappings allows it; plans that have their mappings
 * stay.
 */
TEST(test_short__of_mappings)
{
	enum { N = 5, MOST = 10, EACH = 3 };
	struct plan_memory *plans[N];
	struct residency_about about;
	const struct account *account;

	RESIDENCY_RIG(rig, 1, 100 * RIG_PAGE, 0, RESIDENCY_WANTED);
	limit_mappings(&rig, MOST);
	account = rig.tenants[0].account;
	for (unsigned int i = 0; i < N; i++) {
		rig_add(&rig, plans[i] = rig_plan_of(&rig, 0, RIG_PAGE));
		rig_settle(&rig);
		assert_int_equal(rig_is_ready(plans[i]), i < MOST / EACH);
	}
	assert_int_equal(account_used(account, ACCOUNT_MAPPINGS), MOST / EACH * EACH);
	rig_want(&rig, plans[N - 1], 100);
	rig_settle(&rig);
	for (unsigned int i = 0; i < N; i++) {
		residency_about(rig.residency, plans[i], RIG_DEVICE, &about);
		assert_int_equal(about.n_evictions, 0);
		assert_int_equal(rig_is_ready(plans[i]), i < MOST / EACH);
	}
	rig_remove(&rig, plans[0]);
	rig_settle(&rig);
	assert_true(rig_is_ready(plans[N - 1]));
	for (unsigned int i = 1; i < N; i++)
		rig_remove(&rig, plans[i]);
	assert_int_equal(account_used(account, ACCOUNT_MAPPINGS), 0);
}

/* The first plans take few enough slots to leave mappings for later plans. */
TEST(test_short__of_mappings_for_slots)
{
	enum { N = 20, MOST = 200, MAX_SLOTS = 32, SLOT = 2 };
	struct plan_memory *plans[N];

	RESIDENCY_RIG(rig, 1, 100 * RIG_PAGE, 0, RESIDENCY_WANTED);
	limit_mappings(&rig, MOST);
	for (unsigned int i = 0; i < N; i++) {
		plans[i] = rig_plan_of(&rig, 0, RIG_PAGE);
		plans[i]->plan->footprint[RIG_DEVICE].max_slots = MAX_SLOTS;
		plans[i]->plan->footprint[RIG_DEVICE].slot_mappings = SLOT;
		rig_add(&rig, plans[i]);
		rig_settle(&rig);
		assert_true(rig_is_ready(plans[i]));
	}
}
