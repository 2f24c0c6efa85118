/* SPDX-License-Identifier: MIT */
/* Requests by hand, reserves, and memory that is freed in parts: broker/memory/residency.h */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "loop/offload.h"
#include "memory/residency-private.h"
#include "support/residency-rig.h"
#include "support/test.h"

#define MIB (1ull << 20)

TEST(test_wish__evict_and_prefetch)
{
	struct plan_memory *memory;
	struct rig_wish wish;

	BEGIN(rig);
	memory = rig_settled(&rig, 0, 60 * MIB);
	rig_ask(&rig, memory, &wish, RESIDENCY_EVICT);
	assert_true(wish.n_done == 1 && wish.res == 0);
	assert_int_equal(rig_used(&rig, 0), 0);
	/* The plan stays evicted although there is room. */
	residency_set_usable(rig.residency, RIG_DEVICE, 99 * MIB, 0);
	rig_settle(&rig);
	assert_false(rig_is_ready(memory));
	rig_ask(&rig, memory, &wish, RESIDENCY_EVICT);
	assert_true(wish.n_done == 1 && wish.res == 0);
	rig_ask(&rig, memory, &wish, RESIDENCY_PREFETCH);
	assert_true(wish.n_done == 1 && wish.res == 0);
	assert_true(rig_is_ready(memory));
	rig_ask(&rig, memory, &wish, RESIDENCY_PREFETCH);
	assert_true(wish.n_done == 1 && wish.res == 0);
}

/*
 * A prefetch evicts plans of its own tenant, whatever their value, but not those of other tenants.
 */
TEST(test_wish__prefetch_displaces_own)
{
	struct plan_memory *mine, *next, *theirs, *large;
	struct rig_wish wish;

	BEGIN(rig);
	rig_add(&rig, mine = rig_plan_of(&rig, 0, 40 * MIB));
	theirs = rig_settled(&rig, 1, 60 * MIB);
	rig_want(&rig, mine, 100000);
	rig_want(&rig, theirs, 100000);
	rig_add(&rig, next = rig_plan_of(&rig, 0, 40 * MIB));
	large = rig_settled(&rig, 0, 50 * MIB);
	rig_ask(&rig, next, &wish, RESIDENCY_PREFETCH);
	assert_true(wish.n_done == 1 && wish.res == 0);
	assert_true(rig_is_ready(next) && !rig_is_ready(mine) && rig_is_ready(theirs));
	rig_ask(&rig, large, &wish, RESIDENCY_PREFETCH);
	assert_true(wish.n_done == 1 && wish.res == -ENOMEM);
	assert_true(rig_is_ready(theirs));
}

/* A plan that holds shared constants stays, however little it is wanted. */
TEST(test_wish__keeps_plan_of_shared_block)
{
	struct plan_memory *sharer, *other, *memory;
	struct rig_wish wish;

	BEGIN(rig);
	rig_add(&rig, sharer = rig_plan(&rig, 0, 30 * MIB, (const uint32_t[]){1, 2, 0}));
	rig_add(&rig, other = rig_plan(&rig, 0, 30 * MIB, (const uint32_t[]){9, 0}));
	rig_settle(&rig);
	rig_want(&rig, other, 1000);
	rig_add(&rig, memory = rig_plan(&rig, 0, 30 * MIB, (const uint32_t[]){1, 3, 0}));
	rig_ask(&rig, memory, &wish, RESIDENCY_PREFETCH);
	assert_true(wish.n_done == 1 && wish.res == 0);
	assert_true(rig_is_ready(memory) && rig_is_ready(sharer) && !rig_is_ready(other));
	assert_int_equal(rig_used(&rig, 0), 90 * MIB);
}

/* A request is answered, however many requests wait that cannot be granted. */
TEST(test_wish__each_is_answered)
{
	enum { N_OTHERS = 3 * RESIDENCY_MAX_DRAFTS };
	struct rig_wish evict = {.waiter.done = rig_on_done, .res = 1}, bring = evict,
			waits[N_OTHERS];
	struct plan_memory *there, *small, *memories[N_OTHERS];

	BEGIN(rig);
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 95 * MIB);
	rig_add(&rig, there = rig_plan_of(&rig, 1, 95 * MIB));
	small = rig_settled(&rig, 0, 5 * MIB);
	for (int i = 0; i < N_OTHERS; i++) {
		rig_add(&rig, memories[i] = rig_plan_of(&rig, 0, 10 * MIB));
		rig_want(&rig, memories[i], 1000);
		waits[i] = (struct rig_wish){.waiter.done = rig_on_done, .res = 1};
		residency_ask(rig.residency, memories[i], &waits[i].waiter, RESIDENCY_WAIT,
			      RBK_DEVICE_NONE);
	}
	for (int i = 0; i < 20; i++)
		rig_turn(&rig);
	residency_ask(rig.residency, small, &evict.waiter, RESIDENCY_EVICT, RBK_DEVICE_NONE);
	residency_ask(rig.residency, small, &bring.waiter, RESIDENCY_PREFETCH, RBK_DEVICE_NONE);
	for (int i = 0; i < 20000 && bring.n_done == 0; i++)
		rig_turn(&rig);
	assert_true(evict.n_done == 1 && evict.res == 0);
	assert_true(bring.n_done == 1 && bring.res == 0);
	for (int i = 0; i < N_OTHERS; i++) {
		assert_int_equal(waits[i].n_done, 0);
		rig_remove(&rig, memories[i]);
		assert_int_equal(waits[i].res, -ECANCELED);
	}
}

/* A waiter is answered once its plan can no longer be loaded. */
TEST(test_wish__limit_lowered_or_device_lost)
{
	struct plan_memory *memory;
	struct rig_wish wish;

	BEGIN(rig);
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 90 * MIB);
	rig_settled(&rig, 1, 90 * MIB);
	rig_add(&rig, memory = rig_plan_of(&rig, 0, 60 * MIB));
	rig_ask(&rig, memory, &wish, RESIDENCY_WAIT);
	assert_int_equal(wish.n_done, 0);
	rig_share(&rig, 0, 50 * MIB, 50 * MIB, 0);
	residency_limits_changed(rig.residency);
	assert_true(wish.n_done == 1 && wish.res == -ENOMEM);

	rig_share(&rig, 0, 100 * MIB, 100 * MIB, 0);
	residency_limits_changed(rig.residency);
	rig_ask(&rig, memory, &wish, RESIDENCY_WAIT);
	assert_int_equal(wish.n_done, 0);
	rig.devices[RIG_DEVICE].n_failed_reopens = 1;
	atomic_store(&rig.devices[RIG_DEVICE].is_lost, true);
	residency_device_lost(rig.residency, RIG_DEVICE);
	for (int i = 0; i < 20000 && wish.n_done == 0; i++)
		rig_turn(&rig);
	assert_true(wish.n_done == 1 && wish.res == -EIO);
}

static void release(struct residency_rig *rig)
{
	atomic_store(&rig->devices[RIG_DEVICE].is_held, false);
}

static void hold(struct residency_rig *rig)
{
	atomic_store(&rig->devices[RIG_DEVICE].has_held, false);
	atomic_store(&rig->devices[RIG_DEVICE].is_held, true);
}

/* Wait until the device executes a load that is held. */
static void await_held(struct residency_rig *rig)
{
	while (!atomic_load(&rig->devices[RIG_DEVICE].has_held))
		rig_turn(rig);
}

/* A waiter for room keeps waiting when its plan is evicted by hand. */
TEST(test_wish__wait_outlasts_eviction)
{
	struct plan_memory *memory, *other;
	struct rig_wish evict, wait;

	BEGIN(rig);
	memory = rig_settled(&rig, 0, 60 * MIB);
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 90 * MIB);
	other = rig_settled(&rig, 1, 90 * MIB);
	assert_true(rig_is_ready(other) && !rig_is_ready(memory));
	rig_ask(&rig, memory, &wait, RESIDENCY_WAIT);
	rig_ask(&rig, memory, &evict, RESIDENCY_EVICT);
	assert_true(evict.n_done == 1 && evict.res == 0 && wait.n_done == 0);
	rig_remove(&rig, other);
	rig_settle(&rig);
	assert_true(wait.n_done == 1 && wait.res == 0);
	assert_true(rig_is_ready(memory));
}

/* Other plans are being loaded into all memory. They must give up the reserve again. */
TEST(test_owed__while_other_plans_load)
{
	struct plan_memory *others[2], *modest;
	struct rig_wish wish = {.waiter.done = rig_on_done, .res = 1};

	BEGIN(rig);
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 25 * MIB);
	rig_add(&rig, modest = rig_plan_of(&rig, 1, 25 * MIB));
	rig_ask(&rig, modest, &wish, RESIDENCY_EVICT);
	hold(&rig);
	for (int i = 0; i < 2; i++)
		rig_add(&rig, others[i] = rig_plan_of(&rig, 0, 50 * MIB));
	wish = (struct rig_wish){.waiter.done = rig_on_done, .res = 1};
	residency_ask(rig.residency, modest, &wish.waiter, RESIDENCY_PREFETCH, RBK_DEVICE_NONE);
	for (int i = 0; i < 20; i++)
		rig_turn(&rig);
	assert_int_equal(wish.n_done, 0);
	release(&rig);
	rig_settle(&rig);
	assert_true(wish.n_done == 1 && wish.res == 0);
	assert_true(rig_is_ready(modest));
	assert_int_equal(rig_is_ready(others[0]) + rig_is_ready(others[1]), 1);
}

/*
 * A load that is stopped keeps its memory until the device has answered. Its tenant's next request
 * waits for that memory instead of being refused.
 */
TEST(test_owed__while_an_own_plan_stops_loading)
{
	struct rig_wish evict = {.waiter.done = rig_on_done, .res = 1}, wish = evict;
	struct plan_memory *loading, *next;

	BEGIN(rig);
	rig_share(&rig, 1, 25 * MIB, 25 * MIB, 25 * MIB);
	rig_add(&rig, next = rig_plan_of(&rig, 1, 25 * MIB));
	rig_ask(&rig, next, &evict, RESIDENCY_EVICT);
	hold(&rig);
	rig_add(&rig, loading = rig_plan_of(&rig, 1, 25 * MIB));
	await_held(&rig);
	evict.n_done = 0;
	residency_ask(rig.residency, loading, &evict.waiter, RESIDENCY_EVICT, RBK_DEVICE_NONE);
	residency_ask(rig.residency, next, &wish.waiter, RESIDENCY_PREFETCH, RBK_DEVICE_NONE);
	for (int i = 0; i < 20; i++)
		rig_turn(&rig);
	assert_int_equal(evict.n_done + wish.n_done, 0);
	release(&rig);
	rig_settle(&rig);
	assert_true(evict.n_done == 1 && evict.res == 0);
	assert_true(wish.n_done == 1 && wish.res == 0);
	assert_true(rig_is_ready(next) && !rig_is_ready(loading));
	assert_int_equal(rig_used(&rig, 1), 25 * MIB);
}

/* All memory is reserved for another tenant's plan. */
TEST(test_owed__before_reservations)
{
	struct plan_memory *busy, *promised, *modest;
	struct rig_wish first, wish;

	BEGIN(rig);
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 30 * MIB);
	rig_add(&rig, modest = rig_plan_of(&rig, 1, 30 * MIB));
	rig_ask(&rig, modest, &wish, RESIDENCY_EVICT);
	busy = rig_settled(&rig, 0, 90 * MIB);
	busy->n_on_device[RIG_DEVICE] = 1;
	rig_add(&rig, promised = rig_plan_of(&rig, 0, 95 * MIB));
	rig_ask(&rig, promised, &first, RESIDENCY_WAIT);
	rig_ask(&rig, modest, &wish, RESIDENCY_PREFETCH);
	assert_int_equal(wish.n_done, 0);
	rig_idle(&rig, busy);
	rig_settle(&rig);
	assert_true(wish.n_done == 1 && wish.res == 0);
	assert_true(rig_is_ready(modest) && !rig_is_ready(promised));
}

/*
 * The device shrinks while the request waits. It keeps waiting as long as there is enough for the
 * reserve.
 */
TEST(test_owed__stays_promised_under_pressure)
{
	struct plan_memory *busy, *modest;
	struct rig_wish wish;

	BEGIN(rig);
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 30 * MIB);
	rig_add(&rig, modest = rig_plan_of(&rig, 1, 30 * MIB));
	rig_ask(&rig, modest, &wish, RESIDENCY_EVICT);
	busy = rig_settled(&rig, 0, 90 * MIB);
	busy->n_on_device[RIG_DEVICE] = 1;
	rig_ask(&rig, modest, &wish, RESIDENCY_PREFETCH);
	assert_int_equal(wish.n_done, 0);
	residency_set_usable(rig.residency, RIG_DEVICE, 29 * MIB, 0);
	rig_settle(&rig);
	/* 29 MiB are less than the reserve. */
	assert_true(wish.n_done == 1 && wish.res == -ENOMEM);
	residency_set_usable(rig.residency, RIG_DEVICE, 100 * MIB, 0);
	rig_ask(&rig, modest, &wish, RESIDENCY_PREFETCH);
	residency_set_usable(rig.residency, RIG_DEVICE, 30 * MIB, 0);
	rig_settle(&rig);
	assert_int_equal(wish.n_done, 0);
	rig_idle(&rig, busy);
	rig_settle(&rig);
	assert_true(wish.n_done == 1 && wish.res == 0);
}

/* GTT memory does not satisfy a reserve of VRAM. */
TEST(test_owed__not_met_by_gtt)
{
	struct plan_memory *others[4], *modest;
	struct residency_about about;

	RESIDENCY_RIG(rig, 1, 100 * MIB, 1000 * MIB, RESIDENCY_WANTED);
	for (int i = 0; i < 4; i++) {
		rig_add(&rig, others[i] = rig_plan_of(&rig, 0, 25 * MIB));
		rig_settle(&rig);
		rig_want(&rig, others[i], 1000);
	}
	modest = rig_settled(&rig, 1, 25 * MIB);
	residency_about(rig.residency, modest, RIG_DEVICE, &about);
	assert_int_equal(about.tier, EXEC_TIER_GTT);
	/* The plan's tenant gets a reserve. */
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 25 * MIB);
	residency_limits_changed(rig.residency);
	for (int i = 0; i < 20000 && rig_used(&rig, 1) == 0; i++)
		rig_turn(&rig);
	rig_settle(&rig);
	residency_about(rig.residency, modest, RIG_DEVICE, &about);
	assert_true(rig_is_ready(modest) && about.tier == EXEC_TIER_VRAM);
}

TEST(test_wish__wait_until_room)
{
	struct plan_memory *there, *waiting;
	struct rig_wish wish, never;

	BEGIN(rig);
	there = rig_settled(&rig, 1, 60 * MIB);
	rig_want(&rig, there, 1000);
	rig_add(&rig, waiting = rig_plan_of(&rig, 0, 60 * MIB));
	rig_ask(&rig, waiting, &wish, RESIDENCY_WAIT);
	assert_int_equal(wish.n_done, 0);
	rig_remove(&rig, there);
	rig_settle(&rig);
	assert_true(wish.n_done == 1 && wish.res == 0);
	assert_true(rig_is_ready(waiting));

	/* A withdrawn waiter gets no answer. A waiter of a removed plan gets -ECANCELED. */
	residency_set_usable(rig.residency, RIG_DEVICE, 10 * MIB, 0);
	rig_settle(&rig);
	rig_ask(&rig, waiting, &never, RESIDENCY_WAIT);
	residency_withdraw(rig.residency, &never.waiter);
	rig_ask(&rig, waiting, &wish, RESIDENCY_WAIT);
	rig_remove(&rig, waiting);
	assert_true(wish.n_done == 1 && wish.res == -ECANCELED);
	assert_int_equal(never.n_done, 0);
}

/*
 * Wait for a plan that shares a constant with the plans that fill its tenant's maximum. Where only
 * the last of them could make room, the constant goes with it and is loaded again.
 */
TEST(test_wish__wait_for_sharer)
{
	static const uint32_t constants[][3] = {{1, 2}, {1, 3}};
	struct plan_memory *there, *waiting;
	struct rig_wish wish;

	BEGIN(rig);
	rig_share(&rig, 0, 30 * MIB, 30 * MIB, 0);
	rig_add(&rig, there = rig_plan(&rig, 0, 15 * MIB, constants[0]));
	rig_settle(&rig);
	assert_true(rig_is_ready(there));
	rig_want(&rig, there, 1000);
	rig_add(&rig, waiting = rig_plan(&rig, 0, 15 * MIB, constants[1]));
	rig_ask(&rig, waiting, &wish, RESIDENCY_WAIT);
	rig_settle(&rig);
	assert_true(wish.n_done == 1 && wish.res == 0);
	assert_true(rig_is_ready(waiting) && !rig_is_ready(there));
	assert_int_equal(rig_used(&rig, 0), 30 * MIB);

	/* The same holds for the first plan, and for a device that one tenant fills. */
	rig_share(&rig, 0, 100 * MIB, 100 * MIB, 0);
	residency_set_usable(rig.residency, RIG_DEVICE, 30 * MIB, 0);
	rig_ask(&rig, there, &wish, RESIDENCY_WAIT);
	rig_settle(&rig);
	assert_true(wish.n_done == 1 && wish.res == 0);
	assert_true(rig_is_ready(there) && !rig_is_ready(waiting));
}

/* Blocks are whole pages: the plan needs no more bytes alone than with the block that it shares. */
TEST(test_wish__wait_for_small_sharer)
{
	static const uint32_t constants[][3] = {{1, 2}, {1, 3}};
	struct plan_memory *there, *waiting;
	struct rig_wish wish;

	BEGIN(rig);
	rig_share(&rig, 0, RIG_PAGE, RIG_PAGE, 0);
	rig_add(&rig, there = rig_plan(&rig, 0, RIG_PAGE / 2, constants[0]));
	rig_settle(&rig);
	assert_true(rig_is_ready(there));
	assert_int_equal(rig_used(&rig, 0), RIG_PAGE);
	rig_add(&rig, waiting = rig_plan(&rig, 0, RIG_PAGE / 2, constants[1]));
	rig_ask(&rig, waiting, &wish, RESIDENCY_WAIT);
	rig_settle(&rig);
	assert_true(wish.n_done == 1 && wish.res == 0);
	assert_true(rig_is_ready(waiting) && !rig_is_ready(there));
}

/* Set aside what the plan needs without the sharer, which is busy: no other plan gets it meanwhile.
 */
TEST(test_wish__wait_for_busy_sharer)
{
	static const uint32_t constants[][3] = {{1, 2}, {1, 3}};
	struct plan_memory *busy, *waiting, *rival;
	struct rig_wish wish;

	BEGIN(rig);
	residency_set_usable(rig.residency, RIG_DEVICE, 40 * MIB, 0);
	rig_add(&rig, busy = rig_plan(&rig, 0, 15 * MIB, constants[0]));
	rig_settle(&rig);
	busy->n_on_device[RIG_DEVICE] = 1;
	rig_add(&rig, waiting = rig_plan(&rig, 0, 15 * MIB, constants[1]));
	rig_ask(&rig, waiting, &wish, RESIDENCY_WAIT);
	rig_settle(&rig);
	assert_int_equal(wish.n_done, 0);
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 0);
	rig_add(&rig, rival = rig_plan_of(&rig, 1, 20 * MIB));
	rig_want(&rig, rival, 1000000);
	rig_settle(&rig);
	assert_int_equal(rig.residency->devices[RIG_DEVICE].awaited_bytes, 30 * MIB);
	rig_idle(&rig, busy);
	rig_settle(&rig);
	assert_true(wish.n_done == 1 && wish.res == 0);
}

/* A plan that others keep is not reloaded: one of them goes, and the shared constant stays. */
TEST(test_wish__wait_beside_sharers)
{
	static const uint32_t constants[][3] = {{1}, {1, 2}, {1, 3}, {1, 4}};
	struct plan_memory *memories[4];
	struct rig_wish wish;
	uint32_t n_loads, n_ready = 0;

	BEGIN(rig);
	rig_share(&rig, 0, 30 * MIB, 30 * MIB, 0);
	for (unsigned int i = 0; i < 3; i++) {
		rig_add(&rig, memories[i] = rig_plan(&rig, 0, 10 * MIB, constants[i]));
		rig_settle(&rig);
		assert_true(rig_is_ready(memories[i]));
		rig_want(&rig, memories[i], 1000);
	}
	/* Without the plan of the constant alone, the block of constant 1 has two sharers. */
	rig_remove(&rig, memories[0]);
	rig_add(&rig, memories[3] = rig_plan(&rig, 0, 10 * MIB, constants[3]));
	n_loads = rig.devices[RIG_DEVICE].n_block_loads;
	rig_ask(&rig, memories[3], &wish, RESIDENCY_WAIT);
	rig_settle(&rig);
	assert_true(wish.n_done == 1 && wish.res == 0);
	for (unsigned int i = 1; i < 4; i++)
		n_ready += rig_is_ready(memories[i]);
	assert_int_equal(n_ready, 2);
	assert_true(rig_is_ready(memories[3]));
	assert_int_equal(rig.devices[RIG_DEVICE].n_block_loads, n_loads + 1);
}

/* A plan that is owed its bytes displaces a sharer, although the sharer's block goes with it. */
TEST(test_wish__wait_for_sharer_within_reserve)
{
	static const uint32_t constants[][3] = {{1, 2}, {1, 3}};
	struct plan_memory *there, *waiting, *other;
	struct rig_wish wish;

	BEGIN(rig);
	rig_share(&rig, 0, 30 * MIB, 30 * MIB, 30 * MIB);
	other = rig_settled(&rig, 1, 70 * MIB);
	rig_want(&rig, other, 1000);
	rig_add(&rig, there = rig_plan(&rig, 0, 15 * MIB, constants[0]));
	rig_settle(&rig);
	assert_true(rig_is_ready(there));
	rig_add(&rig, waiting = rig_plan(&rig, 0, 15 * MIB, constants[1]));
	rig_ask(&rig, waiting, &wish, RESIDENCY_WAIT);
	rig_settle(&rig);
	assert_true(wish.n_done == 1 && wish.res == 0);
	assert_true(rig_is_ready(waiting) && !rig_is_ready(there) && rig_is_ready(other));
}

TEST(test_wish__impossible_plan)
{
	struct plan_memory *large, *unsupported;
	struct rig_wish wish;

	BEGIN(rig);
	rig_add(&rig, large = rig_plan_of(&rig, 0, 200 * MIB));
	unsupported = rig_plan_of(&rig, 0, MIB);
	unsupported->plan->device_state[RIG_DEVICE] = PLAN_DEVICE_UNSUPPORTED;
	rig_add(&rig, unsupported);
	rig_ask(&rig, large, &wish, RESIDENCY_WAIT);
	assert_true(wish.n_done == 1 && wish.res == -ENOMEM);
	rig_ask(&rig, unsupported, &wish, RESIDENCY_PREFETCH);
	assert_true(wish.n_done == 1 && wish.res == -ENODEV);
	rig_ask(&rig, unsupported, &wish, RESIDENCY_EVICT);
	assert_true(wish.n_done == 1 && wish.res == 0);
}

/* A job of a tenant that asks for more slices until it is cancelled. */
struct endless {
	struct offload_job job;
	const struct counting *device;
	unsigned int n_between; /* slices between the first and the last slice of an unload */
	bool is_done;
};

static void endless_run(struct offload_job *job)
{
	struct endless *endless = container_of(job, struct endless, job);

	endless->n_between += endless->device->n_unload_slices > 0 &&
			      endless->device->allocated[EXEC_TIER_VRAM] > 0;
	job->has_more = true;
}

static void endless_done(struct offload_job *job)
{
	container_of(job, struct endless, job)->is_done = true;
}

/* Memory freed in parts does not wait for its tenant's other jobs at each part. */
TEST(test_remove__not_behind_own_jobs)
{
	enum { N = 100, PARTS = 50 };
	struct endless jobs[N] = {0};
	struct plan_memory *memory;
	struct counting *device;
	unsigned int n = 0;

	BEGIN(rig);
	device = &rig.devices[RIG_DEVICE];
	device->n_parts = PARTS;
	memory = rig_settled(&rig, 0, MIB);
	assert_true(rig_is_ready(memory));

	atomic_store(&device->n_unload_parts, PARTS);
	for (int i = 0; i < N; i++) {
		jobs[i].device = device;
		jobs[i].job = (struct offload_job){
			.run = endless_run, .done = endless_done, .owner = &rig.tenants[0].setup};
		offload_submit(rig.offload, &jobs[i].job);
	}
	rig_remove(&rig, memory);
	for (int i = 0; i < N; i++) {
		offload_cancel(rig.offload, &jobs[i].job);
		while (!jobs[i].is_done)
			rig_turn(&rig);
		n += jobs[i].n_between;
	}
	assert_true(device->n_unload_slices >= PARTS);
	assert_int_equal(n, 0);
}

/* If a part of a block fails to load, the parts before it are freed in parts, too. */
TEST(test_lost__load_frees_earlier_parts)
{
	enum { PARTS = 20 };
	struct plan_memory *memory;
	struct counting *device;

	BEGIN(rig);
	device = &rig.devices[RIG_DEVICE];
	device->n_parts = PARTS;
	device->lost_part = PARTS / 2;
	rig_add(&rig, memory = rig_plan_of(&rig, 0, MIB));
	for (int i = 0; i < 20000 && !rig_is_ready(memory); i++)
		rig_turn(&rig);
	assert_true(rig_is_ready(memory));
	assert_int_equal(device->n_shrink_slices, PARTS / 2);
}

static enum residence_state state_of(const struct plan_memory *memory)
{
	return memory->residency->on[RIG_DEVICE].state;
}

/* ---- Streaming ---- */

enum { N_STREAMED = 3 };

/*
 * Make three segments of one plan, of 40 MiB each, and another plan of 20 MiB, all of them wanted:
 * the last segment is out, and the second was used last.
 */
static void make_segments(struct residency_rig *rig, struct plan_memory *segments[N_STREAMED],
			  struct plan_memory **ret_other)
{
	*ret_other = rig_settled(rig, 0, 20 * MIB);
	rig_want(rig, *ret_other, 10);
	for (int i = 0; i < N_STREAMED; i++) {
		rig_add(rig, segments[i] = rig_plan_of(rig, 0, 40 * MIB));
		segments[i]->session = 7;
		segments[i]->id = 3;
		segments[i]->is_streamed = true;
		rig_want(rig, segments[i], 10);
		rig_settle(rig);
	}
	rig_want(rig, segments[1], 1);
	assert_true(rig_is_ready(segments[0]) && rig_is_ready(segments[1]));
	assert_true(rig_is_ready(*ret_other) && !rig_is_ready(segments[2]));
}

/* The segment that was used last makes way, unless tasks use it: it is the one needed last. */
TEST(test_stream__segment_used_last_makes_way)
{
	struct plan_memory *segments[N_STREAMED], *other;
	struct rig_wish wish;

	BEGIN(rig);
	make_segments(&rig, segments, &other);
	rig_ask(&rig, segments[2], &wish, RESIDENCY_STREAM);
	assert_true(wish.n_done == 1 && wish.res == 0);
	assert_true(rig_is_ready(segments[0]) && !rig_is_ready(segments[1]));
	assert_true(rig_is_ready(segments[2]) && rig_is_ready(other));

	segments[2]->n_on_device[RIG_DEVICE] = 1;
	rig_want(&rig, segments[2], 1);
	rig_ask(&rig, segments[1], &wish, RESIDENCY_STREAM);
	assert_true(wish.n_done == 1 && wish.res == 0);
	assert_true(rig_is_ready(segments[2]) && !rig_is_ready(segments[0]));
	rig_idle(&rig, segments[2]);
}

/* Nothing but segments that are streamed makes way, whatever else the tenant has there. */
TEST(test_stream__nothing_else_makes_way)
{
	struct plan_memory *segments[N_STREAMED], *other;
	struct rig_wish wish;

	BEGIN(rig);
	make_segments(&rig, segments, &other);
	segments[0]->is_streamed = segments[1]->is_streamed = false;
	rig_ask(&rig, segments[2], &wish, RESIDENCY_STREAM);
	assert_true(wish.n_done == 1 && wish.res == -ENOMEM);
	segments[0]->is_streamed = true;
	segments[0]->id = 4;
	rig_ask(&rig, segments[2], &wish, RESIDENCY_STREAM);
	assert_true(wish.n_done == 1 && wish.res == -ENOMEM);
	segments[0]->id = 3;
	segments[0]->n_on_device[RIG_DEVICE] = 1;
	rig_ask(&rig, segments[2], &wish, RESIDENCY_STREAM);
	assert_true(wish.n_done == 1 && wish.res == -ENOMEM);
	assert_true(rig_is_ready(segments[0]) && rig_is_ready(segments[1]));
	assert_true(rig_is_ready(other) && !rig_is_ready(segments[2]));
	rig_idle(&rig, segments[0]);
}

/* The time that a plan took to come is known, and what is left of it while it comes. */
TEST(test_stream__time_to_bring)
{
	struct plan_memory *first, *next;
	struct rig_wish wish;
	uint64_t whole_ns;

	BEGIN(rig);
	hold(&rig);
	rig_add(&rig, first = rig_plan_of(&rig, 0, 40 * MIB));
	assert_int_equal(residency_bring_ns(first, RIG_DEVICE), 0);
	await_held(&rig);
	usleep(20000);
	release(&rig);
	rig_settle(&rig);
	assert_true(rig_is_ready(first));
	whole_ns = residency_bring_ns(first, RIG_DEVICE);
	assert_in_range(whole_ns, 10000000, 10000000000);
	/* A plan that never came is judged by its bytes. */
	next = rig_plan_of(&rig, 0, 80 * MIB);
	rig_add(&rig, next);
	assert_true(residency_bring_ns(next, RIG_DEVICE) > whole_ns);

	rig_ask(&rig, next, &wish, RESIDENCY_EVICT);
	rig_ask(&rig, first, &wish, RESIDENCY_EVICT);
	hold(&rig);
	wish = (struct rig_wish){.waiter.done = rig_on_done, .res = 1};
	residency_ask(rig.residency, first, &wish.waiter, RESIDENCY_STREAM, RIG_DEVICE);
	await_held(&rig);
	usleep(5000);
	assert_true(residency_bring_ns(first, RIG_DEVICE) + 4000000 < whole_ns);
	release(&rig);
	rig_settle(&rig);
	assert_true(wish.n_done == 1 && wish.res == 0);

	/* A time that was learned long ago counts for nothing, but the link is as fast as before.
	 */
	assert_true(first->residency->on[RIG_DEVICE].bring_ns > 0);
	first->residency->on[RIG_DEVICE].brought_ns -= 4000000000000ull;
	assert_true(residency_bring_ns(first, RIG_DEVICE) > 1000000);
}

/* Evict the plan, and have it come for a waiting task in @us microseconds. */
static void bring_in(struct residency_rig *rig, struct plan_memory *memory, unsigned int us)
{
	struct rig_wish wish;

	rig_ask(rig, memory, &wish, RESIDENCY_EVICT);
	hold(rig);
	wish = (struct rig_wish){.waiter.done = rig_on_done, .res = 1};
	residency_ask(rig->residency, memory, &wish.waiter, RESIDENCY_STREAM, RIG_DEVICE);
	await_held(rig);
	usleep(us);
	release(rig);
	rig_settle(rig);
	assert_true(wish.n_done == 1 && wish.res == 0);
}

/* A load that is late once says little; loads that are late each time are believed. */
TEST(test_stream__one_late_load)
{
	enum { USUAL_US = 10000, LATE_US = 600000, SLOW_US = 100000 };
	struct plan_memory *memory;

	BEGIN(rig);
	hold(&rig);
	rig_add(&rig, memory = rig_plan_of(&rig, 0, 40 * MIB));
	await_held(&rig);
	usleep(USUAL_US);
	release(&rig);
	rig_settle(&rig);
	bring_in(&rig, memory, USUAL_US);
	bring_in(&rig, memory, LATE_US);
	/* A quarter of the late one alone would be more. */
	assert_true(residency_bring_ns(memory, RIG_DEVICE) < LATE_US * 1000ull / 6);
	for (unsigned int i = 0; i < 16; i++)
		bring_in(&rig, memory, SLOW_US);
	assert_true(residency_bring_ns(memory, RIG_DEVICE) > SLOW_US * 1000ull * 3 / 4);
}

/* ---- Loads that the driver refuses ---- */

/* Add @memory while loads are held, ask @what, and wait until the request has been examined. */
static void add_and_ask(struct residency_rig *rig, struct plan_memory *memory,
			struct rig_wish *wish, enum residency_wish what)
{
	*wish = (struct rig_wish){.waiter.done = rig_on_done, .res = 1};
	atomic_store(&rig->devices[RIG_DEVICE].is_held, true);
	rig_add(rig, memory);
	assert_int_equal(state_of(memory), RESIDENCE_LOADING);
	residency_ask(rig->residency, memory, &wish->waiter, what, RBK_DEVICE_NONE);
	while (memory->residency->n_held[what] == 0)
		rig_turn(rig);
}

/* A refused load is tried again later if other loads of its tenant prevent that now. */
TEST(test_refused__retried_after_other_loads)
{
	struct plan_memory *memory;
	struct rig_wish wish;

	BEGIN(rig);
	rig.devices[RIG_DEVICE].n_refused = 1;
	add_and_ask(&rig, memory = rig_plan_of(&rig, 0, MIB), &wish, RESIDENCY_PREFETCH);
	rig.tenants[0].memory->n_loads[RIG_DEVICE] += RESIDENCY_MAX_LOADS;
	atomic_store(&rig.devices[RIG_DEVICE].is_held, false);
	while (state_of(memory) != RESIDENCE_OUT)
		rig_turn(&rig);
	assert_int_equal(wish.n_done, 0);
	rig.tenants[0].memory->n_loads[RIG_DEVICE] -= RESIDENCY_MAX_LOADS;
	for (int i = 0; i < 20000 && !rig_is_ready(memory); i++)
		rig_turn(&rig);
	assert_true(wish.n_done == 1 && wish.res == 0);
}

/* A plan evicted by hand while it is loading is not tried again when its load is refused. */
TEST(test_refused__when_evicted)
{
	struct plan_memory *sharer, *memory;
	struct rig_wish wish;

	BEGIN(rig);
	rig_add(&rig, sharer = rig_plan(&rig, 0, MIB, (const uint32_t[]){1, 0}));
	rig_settle(&rig);
	add_and_ask(&rig, memory = rig_plan(&rig, 0, MIB, (const uint32_t[]){1, 0}), &wish,
		    RESIDENCY_EVICT);
	rig.devices[RIG_DEVICE].n_refused = 1;
	atomic_store(&rig.devices[RIG_DEVICE].is_held, false);
	for (int i = 0; i < 20000 && wish.n_done == 0; i++)
		rig_turn(&rig);
	assert_true(wish.n_done == 1 && wish.res == 0);
	rig_settle(&rig);
	assert_int_equal(state_of(memory), RESIDENCE_OUT);
}

static void ask_and_wait(struct residency_rig *rig, struct plan_memory *memory,
			 struct rig_wish *wish, enum residency_wish what)
{
	const uint32_t n_held = memory->residency->n_held[what];

	*wish = (struct rig_wish){.waiter.done = rig_on_done, .res = 1};
	residency_ask(rig->residency, memory, &wish->waiter, what, RBK_DEVICE_NONE);
	while (memory->residency->n_held[what] == n_held)
		rig_turn(rig);
}

/*
 * Nor is it tried again if it is evicted by hand while what the refused load has done is undone;
 * but a wish that comes later loads it.
 */
static void evict_undone(bool is_wanted)
{
	struct rig_wish before, evict, after = {.n_done = 1};
	struct plan_memory *memory;

	BEGIN(rig);
	rig.devices[RIG_DEVICE].n_refused = 1;
	rig.devices[RIG_DEVICE].n_unload_parts = UINT_MAX;
	rig_add(&rig, memory = rig_plan_of(&rig, 0, MIB));
	while (state_of(memory) != RESIDENCE_UNLOADING)
		rig_turn(&rig);
	ask_and_wait(&rig, memory, &before, RESIDENCY_PREFETCH);
	ask_and_wait(&rig, memory, &evict, RESIDENCY_EVICT);
	if (is_wanted)
		ask_and_wait(&rig, memory, &after, RESIDENCY_PREFETCH);
	assert_int_equal(state_of(memory), RESIDENCE_UNLOADING);
	assert_true(before.n_done == 1 && before.res == -EINTR);
	rig.devices[RIG_DEVICE].n_unload_parts = 0;
	for (int i = 0; i < 20000 && (evict.n_done == 0 || after.n_done == 0); i++)
		rig_turn(&rig);
	assert_true(evict.n_done == 1 && evict.res == 0);
	assert_true(after.n_done == 1 && after.res == 0);
	rig_settle(&rig);
	assert_int_equal(state_of(memory), is_wanted ? RESIDENCE_IN : RESIDENCE_OUT);
}

TEST(test_refused__evicted_while_undone)
{
	evict_undone(false);
	evict_undone(true);
}

/* When a plan is the last user of many blocks, some blocks are freed in each turn. */
TEST(test_evict__many_blocks)
{
	enum { N = 3 * RESIDENCY_SLICE + 10 };
	struct plan_memory *memories[N], *sharer;
	struct rig_wish wish = {.waiter.done = rig_on_done};
	uint32_t constants[N + 1] = {0};
	uint64_t before, now;

	BEGIN(rig);
	for (uint32_t i = 0; i < N; i++) {
		constants[i] = i + 1;
		rig_add(&rig,
			memories[i] = rig_plan(&rig, 0, RIG_PAGE, (const uint32_t[]){i + 1, 0}));
	}
	rig_settle(&rig);
	rig_add(&rig, sharer = rig_plan(&rig, 0, RIG_PAGE, constants));
	rig_settle(&rig);
	for (uint32_t i = 0; i < N; i++)
		rig_remove(&rig, memories[i]);
	before = rig_used(&rig, 0);
	assert_int_equal(before, N * RIG_PAGE);
	residency_ask(rig.residency, sharer, &wish.waiter, RESIDENCY_EVICT, RBK_DEVICE_NONE);
	while (wish.n_done == 0) {
		rig_turn(&rig);
		now = rig_used(&rig, 0);
		assert_in_range(before - now, 0, RESIDENCY_SLICE * RIG_PAGE);
		before = now;
	}
	assert_int_equal(before, 0);
}
