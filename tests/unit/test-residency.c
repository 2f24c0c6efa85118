/* SPDX-License-Identifier: MIT */
/* Plans in device memory: broker/memory/residency.h, over devices that only count bytes */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "fail-alloc.h"
#include "loop/offload.h"
#include "support/residency-rig.h"
#include "support/test.h"
#include "util/clock.h"

#define MIB (1ull << 20)

/* ---- Loading and eviction ---- */

TEST(test_add__loads_and_charges)
{
	struct plan_memory *memory;

	BEGIN(rig);
	memory = rig_plan_of(&rig, 0, 10 * MIB + 1);
	rig_add(&rig, memory);
	assert_false(rig_is_ready(memory));
	rig_settle(&rig);
	assert_true(rig_is_ready(memory));
	assert_int_equal(rig_used(&rig, 0), 10 * MIB + RIG_PAGE);
	rig_check(&rig);
	rig_remove(&rig, memory);
	assert_int_equal(rig_used(&rig, 0), 0);
}

TEST(test_add__parts)
{
	struct plan_memory *memories[3];

	BEGIN(rig);
	rig.devices[RIG_DEVICE].n_parts = 7;
	for (int i = 0; i < 3; i++)
		rig_add(&rig, memories[i] = rig_plan_of(&rig, 0, MIB));
	rig_settle(&rig);
	for (int i = 0; i < 3; i++) {
		assert_true(rig_is_ready(memories[i]));
		rig_remove(&rig, memories[i]);
	}
}

TEST(test_remove__while_loading)
{
	struct plan_memory *memory;

	BEGIN(rig);
	rig.devices[RIG_DEVICE].n_parts = 1000000;
	memory = rig_plan_of(&rig, 0, MIB);
	rig_add(&rig, memory);
	for (int i = 0; i < 10; i++)
		rig_turn(&rig);
	rig_remove(&rig, memory);
	assert_int_equal(rig.devices[RIG_DEVICE].n_block_loads, 0);
}

/*
 * The plans of a drained tenant without tasks leave, and none is loaded until draining ends. Other
 * tenants' plans stay.
 */
TEST(test_emptied)
{
	struct plan_memory *first, *other, *late;

	BEGIN(rig);
	first = rig_settled(&rig, 0, 10 * MIB);
	other = rig_settled(&rig, 1, 10 * MIB);
	assert_true(residency_holds_plans(rig.residency, &rig.tenants[0], RIG_DEVICE));
	rig.tenants[0].is_emptied = true;
	residency_emptied(rig.residency);
	rig_settle(&rig);
	assert_false(rig_is_ready(first));
	assert_true(rig_is_ready(other));
	assert_int_equal(rig_used(&rig, 0), 0);
	assert_false(residency_holds_plans(rig.residency, &rig.tenants[0], RBK_DEVICE_NONE));
	assert_true(residency_holds_plans(rig.residency, &rig.tenants[1], RBK_DEVICE_NONE));
	assert_true(residency_holds_plans(rig.residency, NULL, RIG_DEVICE));

	late = rig_plan_of(&rig, 0, MIB);
	rig_add(&rig, late);
	rig_want(&rig, first, 5);
	rig_settle(&rig);
	assert_false(rig_is_ready(first));
	assert_false(rig_is_ready(late));

	rig.tenants[0].is_emptied = false;
	residency_emptied(rig.residency);
	rig_settle(&rig);
	assert_true(rig_is_ready(first));
	assert_true(rig_is_ready(late));
}

/* A job of another tenant. */
struct bystander {
	struct offload_job job;
	struct fair_flow flow;
	bool is_done;
};

static void bystander_run(struct offload_job *job)
{
}

static void bystander_done(struct offload_job *job)
{
	container_of(job, struct bystander, job)->is_done = true;
}

static void bystander_pass(struct residency_rig *rig)
{
	struct bystander bystander = {
		.job = {.run = bystander_run, .done = bystander_done, .owner = &bystander.flow}};

	fair_flow_init(&bystander.flow);
	offload_submit(rig->offload, &bystander.job);
	while (!bystander.is_done)
		rig_turn(rig);
}

/*
 * A plan's own memory is allocated and freed in parts, with other tenants' jobs between them.
 * Removing a plan stops its load, also without a block of its own.
 */
TEST(test_remove__while_loading_plan)
{
	struct plan_memory *first, *memory;
	struct counting *device;

	BEGIN(rig);
	device = &rig.devices[RIG_DEVICE];
	/* The device checks that further calls for the plan do not ask for the block again. */
	atomic_store(&device->n_load_parts, 3);
	rig_add(&rig, first = rig_plan(&rig, 0, MIB, (const uint32_t[]){1, 2, 0}));
	rig_settle(&rig);
	assert_true(rig_is_ready(first));

	atomic_store(&device->n_load_parts, UINT32_MAX);
	rig_add(&rig, memory = rig_plan(&rig, 0, MIB, (const uint32_t[]){1, 2, 0}));
	bystander_pass(&rig);
	assert_false(rig_is_ready(memory));
	rig_remove(&rig, memory);
	assert_int_equal(device->n_plan_loads, 1);

	assert_int_equal(device->n_unload_slices, 1);
	atomic_store(&device->n_unload_parts, 3);
	rig_remove(&rig, first);
	assert_int_equal(device->n_unload_slices, 1 + 3);
}

TEST(test_share__one_copy_for_all)
{
	struct plan_memory *a, *b, *other;
	struct residency_about about;

	BEGIN(rig);
	rig_add(&rig, a = rig_plan(&rig, 0, MIB, (const uint32_t[]){1, 2, 3, 0}));
	rig_settle(&rig);
	rig_add(&rig, b = rig_plan(&rig, 0, MIB, (const uint32_t[]){2, 3, 4, 0}));
	rig_settle(&rig);
	assert_int_equal(rig_used(&rig, 0), 4 * MIB);
	assert_int_equal(rig.devices[RIG_DEVICE].n_block_loads, 2);
	residency_about(rig.residency, b, RIG_DEVICE, &about);
	assert_fields(about, (required_bytes, 3 * MIB), (resident_bytes, MIB + 3 * MIB / 2));

	/* Plans of different owners never share. */
	rig_add(&rig, other = rig_plan(&rig, 1, MIB, (const uint32_t[]){1, 2, 3, 0}));
	rig_settle(&rig);
	assert_int_equal(rig_used(&rig, 1), 3 * MIB);

	/*
	 * The first plan is removed. Its blocks stay for the second plan, which is now charged for
	 * all of them.
	 */
	rig_remove(&rig, a);
	assert_true(rig_is_ready(b));
	assert_int_equal(rig_used(&rig, 0), 4 * MIB);
	residency_about(rig.residency, b, RIG_DEVICE, &about);
	assert_int_equal(about.resident_bytes, 4 * MIB);
	rig_check(&rig);
	rig_remove(&rig, b);
	assert_int_equal(rig_used(&rig, 0), 0);
}

/* When the last plan of many blocks is removed, some blocks are freed at a time. */
TEST(test_share__many_blocks)
{
	enum { N = 100, MOST_AT_ONCE = 20 };
	uint32_t constants[N + 1] = {0};
	struct plan_memory *each[N], *last;
	struct offload_report report;

	BEGIN(rig);
	for (unsigned int i = 0; i < N; i++) {
		constants[i] = i + 1;
		each[i] = rig_plan(&rig, 0, RIG_PAGE, (const uint32_t[]){i + 1, 0});
		rig_add(&rig, each[i]);
		rig_settle(&rig);
	}
	rig_add(&rig, last = rig_plan(&rig, 0, RIG_PAGE, constants));
	rig_settle(&rig);
	assert_int_equal(rig.devices[RIG_DEVICE].n_block_loads, N);
	for (unsigned int i = 0; i < N; i++)
		rig_remove(&rig, each[i]);
	assert_int_equal(rig_used(&rig, 0), N * RIG_PAGE);
	offload_reset(rig.offload);
	rig_remove(&rig, last);
	offload_describe(rig.offload, &report);
	assert_int_equal(rig_used(&rig, 0), 0);
	assert_true(report.causes[OFFLOAD_UNLOAD].n_slices >= 1 + N / MOST_AT_ONCE);
}

/* Two plans of the same constants loaded at the same time still share one copy. */
TEST(test_share__while_loading)
{
	struct plan_memory *a, *b;

	BEGIN(rig);
	rig.devices[RIG_DEVICE].n_parts = 50;
	rig_add(&rig, a = rig_plan(&rig, 0, MIB, (const uint32_t[]){1, 2, 0}));
	rig_add(&rig, b = rig_plan(&rig, 0, MIB, (const uint32_t[]){1, 2, 0}));
	rig_settle(&rig);
	assert_true(rig_is_ready(a) && rig_is_ready(b));
	assert_int_equal(rig_used(&rig, 0), 2 * MIB);
	assert_int_equal(rig.devices[RIG_DEVICE].n_block_loads, 1);
}

TEST(test_add__more_than_ever_fits)
{
	struct plan_memory *device, *tenant;
	struct residency_about about;

	BEGIN(rig);
	rig_share(&rig, 1, 30 * MIB, 30 * MIB, 0);
	rig_add(&rig, device = rig_plan_of(&rig, 0, 101 * MIB));
	tenant = rig_settled(&rig, 1, 31 * MIB);
	assert_int_equal(device->plan->device_state[RIG_DEVICE], PLAN_DEVICE_NO_MEMORY);
	assert_int_equal(tenant->plan->device_state[RIG_DEVICE], PLAN_DEVICE_NO_MEMORY);
	residency_about(rig.residency, tenant, RIG_DEVICE, &about);
	assert_fields(about, (required_bytes, 31 * MIB), (available_bytes, 30 * MIB));

	/* With a higher limit the plan is loaded. */
	rig_share(&rig, 1, 40 * MIB, 40 * MIB, 0);
	residency_limits_changed(rig.residency);
	rig_settle(&rig);
	assert_true(rig_is_ready(tenant));
}

/* ---- Plans to evict ---- */

TEST(test_limit__own_plans_make_way)
{
	struct plan_memory *cold, *hot, *other;

	BEGIN(rig);
	rig_share(&rig, 0, 50 * MIB, 50 * MIB, 0);
	rig_add(&rig, other = rig_plan_of(&rig, 1, 20 * MIB));
	cold = rig_settled(&rig, 0, 30 * MIB);
	rig_want(&rig, cold, 10);
	hot = rig_settled(&rig, 0, 30 * MIB);
	assert_true(rig_is_ready(cold) && !rig_is_ready(hot));
	rig_want(&rig, hot, 1000);
	rig_settle(&rig);
	assert_true(!rig_is_ready(cold) && rig_is_ready(hot) && rig_is_ready(other));
}

/* A plan as wanted as the resident one does not displace it: plans do not alternate. */
TEST(test_device__equal_plans_do_not_alternate)
{
	struct plan_memory *a, *b;

	BEGIN(rig);
	rig_add(&rig, a = rig_plan_of(&rig, 0, 75 * MIB));
	b = rig_settled(&rig, 1, 75 * MIB);
	for (int i = 0; i < 200; i++) {
		rig_want(&rig, a, 1);
		rig_want(&rig, b, 1);
		rig_settle(&rig);
		rig_check(&rig);
	}
	assert_int_equal(rig.devices[RIG_DEVICE].n_block_loads, 1);
	assert_true(rig_is_ready(a));
	rig_remove(&rig, a);
	rig_settle(&rig);
	assert_true(rig_is_ready(b));
}

/* A plan wanted much more is evicted once it is silent, long before its value has decayed. */
TEST(test_device__silent_makes_way)
{
	struct plan_memory *loud, *busy;
	uint64_t start_ns;

	BEGIN(rig);
	rig_add(&rig, loud = rig_plan_of(&rig, 0, 75 * MIB));
	busy = rig_settled(&rig, 1, 75 * MIB);
	rig_want(&rig, loud, 1000000);
	rig_settle(&rig);
	assert_true(rig_is_ready(loud));
	start_ns = clock_now_ns();
	while (!rig_is_ready(busy) && clock_now_ns() - start_ns < RESIDENCY_HALF_LIFE_NS) {
		rig_want(&rig, busy, 1);
		rig_settle(&rig);
		usleep(1000);
	}
	assert_true(rig_is_ready(busy));
	assert_false(rig_is_ready(loud));
}

TEST(test_reserve__evicts_other_tenants)
{
	struct plan_memory *greedy[10], *modest;

	BEGIN(rig);
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 25 * MIB);
	for (int i = 0; i < 10; i++) {
		rig_add(&rig, greedy[i] = rig_plan_of(&rig, 0, 10 * MIB));
		rig_settle(&rig);
		rig_want(&rig, greedy[i], 100000);
	}
	assert_int_equal(rig_used(&rig, 0), 100 * MIB);
	modest = rig_settled(&rig, 1, 25 * MIB);
	assert_true(rig_is_ready(modest));
	assert_int_equal(rig_used(&rig, 0), 70 * MIB);
	rig_check(&rig);
	/* The plan stays, although it is not wanted. */
	for (int i = 0; i < 10; i++)
		rig_want(&rig, greedy[i], 100000);
	rig_settle(&rig);
	assert_true(rig_is_ready(modest));
}

TEST(test_in_flight__is_never_taken)
{
	struct plan_memory *busy, *wanted;

	BEGIN(rig);
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 60 * MIB);
	busy = rig_settled(&rig, 0, 60 * MIB);
	busy->n_on_device[RIG_DEVICE] = 1;
	wanted = rig_settled(&rig, 1, 60 * MIB);
	/* The plan is leaving: no new task runs on the device, and its bytes are still charged. */
	assert_false(rig_is_ready(busy));
	assert_false(rig_is_ready(wanted));
	assert_int_equal(busy->leaving, 1u << RIG_DEVICE);
	assert_int_equal(rig_used(&rig, 0), 60 * MIB);
	rig_check(&rig);
	rig_idle(&rig, busy);
	rig_settle(&rig);
	assert_true(rig_is_ready(wanted));
	assert_int_equal(rig_used(&rig, 0), 0);
}

TEST(test_limit__lowered_below_use)
{
	struct plan_memory *memories[5];

	BEGIN(rig);
	for (int i = 0; i < 5; i++) {
		rig_add(&rig, memories[i] = rig_plan_of(&rig, 0, 10 * MIB));
		rig_settle(&rig);
		rig_want(&rig, memories[i], 100 * (uint32_t)(i + 1));
	}
	for (uint32_t i = 1; i < rig.n_devices; i++)
		rig.tenants[0].shares[i] = (struct tenant_share){25 * MIB, 0, 25 * MIB};
	residency_limits_changed(rig.residency);
	rig_settle(&rig);
	assert_int_equal(rig_used(&rig, 0), 20 * MIB);
	assert_true(rig_is_ready(memories[3]) && rig_is_ready(memories[4]));
}

/* ---- Pressure from outside ---- */

TEST(test_pressure__yields_and_returns)
{
	struct plan_memory *memories[8], *kept;

	BEGIN(rig);
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 20 * MIB);
	rig_add(&rig, kept = rig_plan_of(&rig, 1, 20 * MIB));
	for (int i = 0; i < 8; i++)
		rig_add(&rig, memories[i] = rig_plan_of(&rig, 0, 10 * MIB));
	rig_settle(&rig);
	assert_int_equal(rig_used(&rig, 0), 80 * MIB);

	residency_set_usable(rig.residency, RIG_DEVICE, 52 * MIB, 0);
	rig_settle(&rig);
	assert_int_equal(rig_used(&rig, 0), 30 * MIB);
	assert_true(rig_is_ready(kept));
	/* Plans are evicted down to the reserves, but no further. */
	residency_set_usable(rig.residency, RIG_DEVICE, 5 * MIB, 0);
	rig_settle(&rig);
	assert_int_equal(rig_used(&rig, 0), 0);
	assert_true(rig_is_ready(kept));

	residency_set_usable(rig.residency, RIG_DEVICE, 100 * MIB, 0);
	for (int i = 0; i < 4000 && rig_used(&rig, 0) < 80 * MIB; i++) {
		rig_turn(&rig);
		usleep(1000);
	}
	rig_settle(&rig);
	assert_int_equal(rig_used(&rig, 0), 80 * MIB);
	rig_check(&rig);
	assert_true(residency_counts(rig.residency, &rig.tenants[0])->n_evictions == 8 &&
		    residency_counts(rig.residency, &rig.tenants[0])->n_returns == 8);
	assert_int_equal(residency_counts(rig.residency, &rig.tenants[1])->n_evictions, 0);
}

/* A program outside that keeps taking and freeing memory does not cause as many evictions. */
TEST(test_pressure__no_thrashing)
{
	BEGIN(rig);
	rig_settled(&rig, 0, 60 * MIB);
	for (int i = 0; i < 100; i++) {
		residency_set_usable(rig.residency, RIG_DEVICE, 50 * MIB, 0);
		rig_settle(&rig);
		residency_set_usable(rig.residency, RIG_DEVICE, 100 * MIB, 0);
		rig_settle(&rig);
	}
	assert_in_range(rig.devices[RIG_DEVICE].n_block_loads, 1, 6);
}

/* ---- Failures ---- */

TEST(test_no_memory__one_refusal_is_retried)
{
	struct plan_memory *memory;

	BEGIN(rig);
	rig.devices[RIG_DEVICE].n_refused = 1;
	memory = rig_settled(&rig, 0, 10 * MIB);
	assert_true(rig_is_ready(memory));
}

/* The ledger had room, but another program held it: a less wanted plan is evicted. */
TEST(test_no_memory__others_make_way)
{
	struct plan_memory *there, *memory;

	BEGIN(rig);
	rig_add(&rig, there = rig_plan_of(&rig, 0, 40 * MIB));
	memory = rig_plan_of(&rig, 0, 40 * MIB);
	rig_settle(&rig);
	atomic_store(&rig.devices[RIG_DEVICE].is_held, true);
	rig_add(&rig, memory);
	rig_want(&rig, memory, 1000);
	rig.devices[RIG_DEVICE].n_refused = 1;
	atomic_store(&rig.devices[RIG_DEVICE].is_held, false);
	rig_settle(&rig);
	assert_true(rig_is_ready(memory));
	assert_int_equal(residency_counts(rig.residency, &rig.tenants[0])->n_evictions, 1);
	rig_check(&rig);
	rig_remove(&rig, there);
	rig_remove(&rig, memory);
	/*
	 * Counts since start are kept when a tenant's last plan is removed, which is no eviction.
	 * A tenant without plans counts none.
	 */
	assert_int_equal(residency_counts(rig.residency, &rig.tenants[0])->n_evictions, 1);
	assert_int_equal(residency_counts(rig.residency, &rig.tenants[1])->n_evictions, 0);
}

TEST(test_no_memory__twice_is_given_up)
{
	struct plan_memory *memory;
	struct rig_wish wish;

	BEGIN(rig);
	rig.devices[RIG_DEVICE].n_refused = 2;
	memory = rig_settled(&rig, 0, 10 * MIB);
	assert_false(rig_is_ready(memory));
	assert_int_equal(rig_used(&rig, 0), 0);
	rig_check(&rig);
	rig_ask(&rig, memory, &wish, RESIDENCY_PREFETCH);
	assert_true(wish.n_done == 1 && wish.res == 0);
}

static void on_reopened(void *context, unsigned int device)
{
	assert_int_equal(device, RIG_DEVICE);
	++*(unsigned int *)context;
}

TEST(test_lost__everything_is_given_back)
{
	struct plan_memory *busy, *idle;
	struct rig_wish wish;

	BEGIN(rig);
	rig_add(&rig, busy = rig_plan_of(&rig, 0, 10 * MIB));
	idle = rig_settled(&rig, 1, 10 * MIB);
	rig.devices[RIG_DEVICE].n_failed_reopens = 3;
	atomic_store(&rig.devices[RIG_DEVICE].is_lost, true);
	busy->n_on_device[RIG_DEVICE] = 2;
	residency_device_lost(rig.residency, RIG_DEVICE);
	residency_device_lost(rig.residency, RIG_DEVICE);
	rig_settle(&rig);
	assert_int_equal(busy->plan->device_state[RIG_DEVICE], PLAN_DEVICE_FAILED);
	assert_int_equal(idle->plan->device_state[RIG_DEVICE], PLAN_DEVICE_FAILED);
	assert_int_equal(rig_used(&rig, 1), 0);
	rig_ask(&rig, idle, &wish, RESIDENCY_PREFETCH);
	assert_true(wish.n_done == 1 && wish.res == -EIO);

	rig_idle(&rig, busy);
	for (int i = 0; i < 20000 && !(rig_is_ready(busy) && rig_is_ready(idle)); i++)
		rig_turn(&rig);
	assert_true(rig_is_ready(busy) && rig_is_ready(idle));
	assert_int_equal(rig.devices[RIG_DEVICE].n_failed_reopens, 0);
}

TEST(test_lost__while_loading)
{
	struct plan_memory *memory;

	BEGIN(rig);
	atomic_store(&rig.devices[RIG_DEVICE].is_held, true);
	rig_add(&rig, memory = rig_plan_of(&rig, 0, 10 * MIB));
	rig_turn(&rig);
	atomic_store(&rig.devices[RIG_DEVICE].is_lost, true);
	atomic_store(&rig.devices[RIG_DEVICE].is_held, false);
	for (int i = 0; i < 20000 && !rig_is_ready(memory); i++)
		rig_turn(&rig);
	assert_true(rig_is_ready(memory));
}

/*
 * A plan whose load loses the device is tried at growing intervals; other plans are loaded between
 * its tries.
 */
TEST(test_lost__by_loading_one_plan)
{
	uint64_t begin_ns = clock_now_ns();
	struct plan_memory *fatal, *other;
	struct counting *device;

	BEGIN(rig);
	device = &rig.devices[RIG_DEVICE];
	atomic_store(&device->fatal_pages, 11 * MIB / RIG_PAGE);
	rig_add(&rig, fatal = rig_plan_of(&rig, 0, 11 * MIB));
	rig_add(&rig, other = rig_plan_of(&rig, 1, 10 * MIB));
	for (unsigned int n = 1; n <= 3; n++) {
		while (residency_n_reopened(rig.residency, RIG_DEVICE) < n ||
		       !rig_is_ready(other)) {
			assert_false(rig_is_ready(fatal));
			rig_turn(&rig);
		}
	}
	/* Tries after 250 ms and after 500 ms. */
	assert_true(clock_now_ns() - begin_ns >= 750000000);
	atomic_store(&device->fatal_pages, 0);
	while (!rig_is_ready(fatal))
		rig_turn(&rig);
	assert_true(rig_is_ready(other));
	assert_int_equal(residency_n_reopened(rig.residency, RIG_DEVICE), 3);
}

/* Draining the tenant of such a plan, which displaces nothing, does not bring its next try forward.
 */
TEST(test_lost__by_loading_then_emptied)
{
	uint64_t begin_ns = clock_now_ns();
	struct plan_memory *fatal;
	struct counting *device;

	BEGIN(rig);
	device = &rig.devices[RIG_DEVICE];
	atomic_store(&device->fatal_pages, 11 * MIB / RIG_PAGE);
	rig_add(&rig, fatal = rig_plan_of(&rig, 0, 11 * MIB));
	while (residency_n_reopened(rig.residency, RIG_DEVICE) < 1)
		rig_turn(&rig);
	rig.tenants[0].is_emptied = true;
	residency_emptied(rig.residency);
	for (int i = 0; i < 10; i++)
		rig_turn(&rig);
	rig.tenants[0].is_emptied = false;
	residency_emptied(rig.residency);
	while (residency_n_reopened(rig.residency, RIG_DEVICE) < 2)
		rig_turn(&rig);
	assert_true(clock_now_ns() - begin_ns >= 250000000);
	atomic_store(&device->fatal_pages, 0);
	while (!rig_is_ready(fatal))
		rig_turn(&rig);
}

/*
 * While a guest has its own memory on a lost device, the device is not opened again. The guest's
 * memory is not accounted for.
 */
TEST(test_lost__not_reopened_beside_guest)
{
	struct counting *device;
	struct plan_memory *memory;

	BEGIN(rig);
	device = &rig.devices[RIG_DEVICE];
	memory = rig_settled(&rig, 0, 10 * MIB);
	assert_true(residency_guest_enter(rig.residency, RIG_DEVICE));
	/* As plan_load() would, on the setup thread, which is idle. */
	device->allocated[EXEC_TIER_VRAM] += MIB;
	residency_limits_changed(rig.residency);
	rig_settle(&rig);

	atomic_store(&device->is_lost, true);
	assert_true(residency_device_lost(rig.residency, RIG_DEVICE));
	rig_settle(&rig);
	assert_false(rig_is_ready(memory));
	assert_int_equal(residency_n_reopened(rig.residency, RIG_DEVICE), 0);
	assert_false(residency_guest_enter(rig.residency, RIG_DEVICE));

	device->allocated[EXEC_TIER_VRAM] -= MIB;
	residency_guest_leave(rig.residency, RIG_DEVICE);
	for (int i = 0; i < 20000 && !rig_is_ready(memory); i++)
		rig_turn(&rig);
	assert_true(rig_is_ready(memory));
	assert_int_equal(residency_n_reopened(rig.residency, RIG_DEVICE), 1);
	/* Entering the CPU always succeeds: residency does not manage its memory. */
	assert_true(residency_guest_enter(rig.residency, RBK_DEVICE_CPU));
	residency_guest_leave(rig.residency, RBK_DEVICE_CPU);
}

/* The loss of the device is reported from outside, before any task failed. */
TEST(test_gone__reported_without_a_task)
{
	struct plan_memory *memory;
	unsigned int reopened = 0;

	BEGIN(rig);
	residency_on_reopened(rig.residency, on_reopened, &reopened);
	memory = rig_settled(&rig, 0, 10 * MIB);
	assert_false(residency_device_lost(rig.residency, RIG_DEVICE));
	rig.devices[RIG_DEVICE].n_failed_reopens = UINT32_MAX;
	residency_device_gone(rig.residency, RIG_DEVICE, "it was pulled out");
	residency_device_gone(rig.residency, RIG_DEVICE, "it was pulled out");
	for (int i = 0; i < 20000 && rig.devices[RIG_DEVICE].n_failed_reopens > UINT32_MAX - 3; i++)
		rig_turn(&rig);
	assert_int_equal(memory->plan->device_state[RIG_DEVICE], PLAN_DEVICE_FAILED);
	assert_int_equal(rig_used(&rig, 0), 0);
	assert_int_equal(residency_n_reopened(rig.residency, RIG_DEVICE), 0);

	/* Without the report, the next try would be in 800 ms. */
	rig_settle(&rig);
	rig.devices[RIG_DEVICE].n_failed_reopens = 0;
	residency_device_present(rig.residency, RIG_DEVICE);
	rig_settle(&rig);
	assert_true(rig_is_ready(memory));
	assert_int_equal(reopened, 1);
	assert_int_equal(residency_n_reopened(rig.residency, RIG_DEVICE), 1);
	residency_device_present(rig.residency, RIG_DEVICE);
	rig_settle(&rig);
	assert_int_equal(reopened, 1);
}

/* ---- Renewal ---- */

TEST(test_renew__oldest_idle_first)
{
	struct plan_memory *memories[3];
	struct residency_about about;
	uint64_t before_ns;

	BEGIN(rig);
	for (int i = 0; i < 3; i++) {
		rig_add(&rig, memories[i] = rig_plan_of(&rig, 0, 10 * MIB));
		rig_settle(&rig);
	}
	before_ns = clock_now_ns();
	memories[0]->n_on_device[RIG_DEVICE] = 1;
	for (uint32_t n = 4; n <= 5; n++) {
		assert_true(residency_renew(rig.residency, RIG_DEVICE, before_ns));
		/*
		 * The second plan is renewed first, because the first has a task. No other plan
		 * leaves meanwhile.
		 */
		assert_true(rig_is_ready(memories[0]) && rig_is_ready(memories[n == 4 ? 2 : 1]));
		assert_false(rig_is_ready(memories[n == 4 ? 1 : 2]));
		assert_true(residency_renew(rig.residency, RIG_DEVICE, before_ns));
		rig_settle(&rig);
		assert_true(rig_is_ready(memories[1]) && rig_is_ready(memories[2]));
		assert_int_equal(rig.devices[RIG_DEVICE].n_block_loads, n);
	}
	assert_true(residency_renew(rig.residency, RIG_DEVICE, before_ns));
	rig_settle(&rig);
	assert_false(rig_is_ready(memories[0]));
	rig_idle(&rig, memories[0]);
	rig_settle(&rig);
	assert_int_equal(rig.devices[RIG_DEVICE].n_block_loads, 6);
	assert_false(residency_renew(rig.residency, RIG_DEVICE, before_ns));

	/* A renewal does not count as an eviction. */
	for (int i = 0; i < 3; i++) {
		assert_true(rig_is_ready(memories[i]));
		residency_about(rig.residency, memories[i], RIG_DEVICE, &about);
		assert_true(about.n_evictions == 0 && about.n_returns == 0);
	}
	assert_true(residency_counts(rig.residency, &rig.tenants[0])->n_evictions == 0 &&
		    residency_counts(rig.residency, &rig.tenants[0])->n_returns == 0);
}

/* A block is loaded anew only when all plans that share it have left. */
TEST(test_renew__shared_block_after_last_plan)
{
	struct plan_memory *first, *second, *third, *other;

	BEGIN(rig);
	rig_add(&rig, first = rig_plan(&rig, 0, 10 * MIB, (const uint32_t[]){1, 0}));
	rig_settle(&rig);
	rig_add(&rig, second = rig_plan(&rig, 0, 10 * MIB, (const uint32_t[]){1, 2, 0}));
	rig_settle(&rig);
	rig_add(&rig, third = rig_plan(&rig, 0, 10 * MIB, (const uint32_t[]){2, 0}));
	rig_add(&rig, other = rig_plan(&rig, 0, 10 * MIB, (const uint32_t[]){3, 0}));
	rig_settle(&rig);
	assert_int_equal(rig.devices[RIG_DEVICE].n_block_loads, 3);
	third->n_on_device[RIG_DEVICE] = 1;
	assert_true(residency_renew(rig.residency, RIG_DEVICE, clock_now_ns()));
	rig_settle(&rig);
	/* The plans wait for the one with a task, or they would find the old blocks. */
	assert_false(rig_is_ready(first) || rig_is_ready(second) || rig_is_ready(third));
	assert_true(rig_is_ready(other));
	assert_int_equal(rig.devices[RIG_DEVICE].n_block_loads, 3);
	rig_idle(&rig, third);
	for (int i = 0; i < 20000 && !(rig_is_ready(second) && rig_is_ready(third)); i++)
		rig_turn(&rig);
	rig_settle(&rig);
	assert_true(rig_is_ready(first) && rig_is_ready(second) && rig_is_ready(third));
	assert_int_equal(rig.devices[RIG_DEVICE].n_block_loads, 5);
	assert_int_equal(rig_used(&rig, 0), 30 * MIB);
}

/* A plan is removed, or its room is lost, during its renewal. */
TEST(test_renew__interrupted)
{
	struct plan_memory *removed, *squeezed;
	struct residency_about about;

	BEGIN(rig);
	removed = rig_settled(&rig, 0, 10 * MIB);
	assert_true(residency_renew(rig.residency, RIG_DEVICE, clock_now_ns()));
	rig_remove(&rig, removed);
	rig_settle(&rig);
	assert_int_equal(rig_used(&rig, 0), 0);

	squeezed = rig_settled(&rig, 0, 10 * MIB);
	assert_true(residency_renew(rig.residency, RIG_DEVICE, clock_now_ns()));
	residency_set_usable(rig.residency, RIG_DEVICE, MIB, 0);
	rig_settle(&rig);
	assert_false(rig_is_ready(squeezed));
	residency_about(rig.residency, squeezed, RIG_DEVICE, &about);
	assert_int_equal(about.n_evictions, 1);
	assert_true(residency_is_pressed(rig.residency));
	residency_set_usable(rig.residency, RIG_DEVICE, 100 * MIB, 0);
	for (int i = 0; i < 20000 && !rig_is_ready(squeezed); i++)
		rig_turn(&rig);
	rig_settle(&rig);
	residency_about(rig.residency, squeezed, RIG_DEVICE, &about);
	assert_int_equal(about.n_returns, 1);
	assert_false(residency_is_pressed(rig.residency));
}

/* residency_add() uses the sums of constants computed on the setup thread. */
TEST(test_add__constants_were_summed)
{
	struct residency_about about;
	struct plan_memory *memory;

	BEGIN(rig);
	memory = rig_plan(&rig, 0, MIB, (const uint32_t[]){1, 2, 3, 0});
	assert_int_equal(memory->plan->block_bytes[1], 3 * MIB);
	for (unsigned int i = 0; i < 3; i++)
		memory->plan->constants[i].bytes = 2 * MIB;
	rig_add(&rig, memory);
	residency_about(rig.residency, memory, 1, &about);
	assert_int_equal(about.required_bytes, 3 * MIB);
	rig_settle(&rig);
}

TEST(test_add__out_of_memory)
{
	struct plan_memory *memory;

	BEGIN(rig);
	memory = rig_plan(&rig, 0, MIB, (const uint32_t[]){1, 2, 3, 0});
	for (unsigned int n = 1;; n++) {
		int r;

		fail_alloc_at(n);
		r = residency_add(rig.residency, memory, NULL);
		if (!fail_alloc_stop()) {
			assert_int_equal(r, 0);
			break;
		}
		if (r < 0) {
			assert_int_equal(r, -ENOMEM);
			continue;
		}
		/* The plan was added, but without its device memory. */
		assert_int_equal(r, RESIDENCY_E_SETTLED);
		rig_check(&rig);
		rig_remove(&rig, memory);
		memory = rig_plan(&rig, 0, MIB, (const uint32_t[]){1, 2, 3, 0});
	}
	rig_settle(&rig);
	assert_true(rig_is_ready(memory));
}

/* A plan that finds no host memory when its room is free is tried again, though nothing happens. */
TEST(test_prefetch__out_of_memory)
{
	struct plan_memory *plans[2];
	struct rig_wish wish;
	bool has_failed = true;

	BEGIN(rig);
	plans[0] = rig_settled(&rig, 0, 60 * MIB);
	plans[1] = rig_settled(&rig, 0, 60 * MIB);
	for (unsigned int n = 1; has_failed; n++) {
		struct plan_memory *wanted = plans[rig_is_ready(plans[0])];

		/* The other plan is evicted for it. */
		wish = (struct rig_wish){.waiter.done = rig_on_done, .res = 1};
		fail_alloc_at(n);
		residency_ask(rig.residency, wanted, &wish.waiter, RESIDENCY_PREFETCH,
			      RBK_DEVICE_NONE);
		for (unsigned int turn = 0; turn < 200 && wish.n_done == 0; turn++)
			rig_turn(&rig);
		has_failed = fail_alloc_stop();
		for (unsigned int turn = 0; turn < 5000 && wish.n_done == 0; turn++)
			rig_turn(&rig);
		assert_int_equal(wish.n_done, 1);
		rig_settle(&rig);
	}
	assert_int_equal(wish.res, 0);
}

/* ---- Tiers and devices ---- */

TEST(test_gtt__used_if_vram_is_full)
{
	struct plan_memory *a, *b;
	struct residency_about about;

	RESIDENCY_RIG(rig, 1, 100 * MIB, 1000 * MIB, RESIDENCY_WANTED);
	for (unsigned int i = 0; i < 2; i++)
		rig_share(&rig, i, 100 * MIB, 100 * MIB, 0);
	a = rig_settled(&rig, 0, 70 * MIB);
	rig_want(&rig, a, 100);
	b = rig_settled(&rig, 1, 70 * MIB);
	assert_true(rig_is_ready(a) && rig_is_ready(b));
	residency_about(rig.residency, b, RIG_DEVICE, &about);
	assert_int_equal(about.tier, EXEC_TIER_GTT);
	assert_int_equal(rig_used(&rig, 1), 0);
	assert_int_equal(account_used(rig.tenants[1].account, account_gtt(RIG_DEVICE)), 70 * MIB);
	assert_int_equal(account_used(rig.tenants[1].account, ACCOUNT_HOST_BYTES), 70 * MIB);
	rig_check(&rig);

	/* The plan moves up again when there is room. */
	rig_remove(&rig, a);
	for (int i = 0; i < 20000 && rig_used(&rig, 1) == 0; i++)
		rig_turn(&rig);
	rig_settle(&rig);
	residency_about(rig.residency, b, RIG_DEVICE, &about);
	assert_int_equal(about.tier, EXEC_TIER_VRAM);
	assert_int_equal(account_used(rig.tenants[1].account, ACCOUNT_HOST_BYTES), 0);
}

TEST(test_devices__plan_goes_to_free_device)
{
	struct plan_memory *a, *b;

	RESIDENCY_RIG(rig, 2, 100 * MIB, 0, RESIDENCY_WANTED);
	rig_add(&rig, a = rig_plan_of(&rig, 0, 70 * MIB));
	b = rig_settled(&rig, 0, 70 * MIB);
	assert_fields(*a->plan, (device_state[1], PLAN_DEVICE_READY),
		      (device_state[2], PLAN_DEVICE_EVICTED));
	assert_int_equal(b->plan->device_state[2], PLAN_DEVICE_READY);
}
