/* SPDX-License-Identifier: MIT */
/*
 * Requests for device memory by which a tenant must not harm others: broker/memory/residency.h,
 * over devices that only count bytes
 */
#include <errno.h>
#include <stdlib.h>

#include "loop/loop.h"
#include "loop/turn.h"
#include "memory/residency-policy.h"
#include "memory/residency-private.h"
#include "support/residency-rig.h"
#include "support/test.h"
#include "util/clock.h"

#define MIB (1ull << 20)

/*
 * Turn the loop @n times, and on until no review is due (at most 10 s): a slow machine delays
 * reviews.
 */
static void turns(struct residency_rig *rig, unsigned int n)
{
	const uint64_t end_ns = clock_now_ns() + 10000000000;

	for (unsigned int i = 0; i < n || (rig_review_is_due(rig) && clock_now_ns() < end_ns); i++)
		rig_turn(rig);
}

struct wish {
	struct residency_waiter waiter;
	int n_done;
	int res;
	unsigned int *n_answers; /* answers to all requests */
	unsigned int number;     /* order of this request's answer */
};

static void on_done(struct residency_waiter *waiter, int res)
{
	struct wish *wish = container_of(waiter, struct wish, waiter);

	wish->n_done++;
	wish->res = res;
	if (wish->n_answers)
		wish->number = ++*wish->n_answers;
}

static void ask_device(struct residency_rig *rig, struct plan_memory *memory, struct wish *wish,
		       enum residency_wish what, uint8_t device)
{
	wish->waiter.done = on_done;
	residency_ask(rig->residency, memory, &wish->waiter, what, device);
}

static void ask(struct residency_rig *rig, struct plan_memory *memory, struct wish *wish,
		enum residency_wish what)
{
	ask_device(rig, memory, wish, what, RBK_DEVICE_NONE);
}

/* ---- Room ---- */

/*
 * A tenant with a maximum of 40 MiB, whose plan's task does not complete, asks for two more plans.
 * Only its own 40 MiB are reserved against other tenants.
 */
TEST(test_promises__within_the_maximum)
{
	struct plan_memory *busy, *wanted[2], *other;
	struct wish wishes[2] = {{.res = 1}, {.res = 1}};

	BEGIN(rig);
	rig_share(&rig, 0, 40 * MIB, 40 * MIB, 0);
	busy = rig_settled(&rig, 0, 40 * MIB);
	busy->n_on_device[RIG_DEVICE] = 1;
	for (int i = 0; i < 2; i++) {
		rig_add(&rig, wanted[i] = rig_plan_of(&rig, 0, 40 * MIB));
		ask(&rig, wanted[i], &wishes[i], RESIDENCY_PREFETCH);
		rig_settle(&rig);
	}
	assert_int_equal(wishes[0].n_done, 0);
	assert_int_equal(wishes[1].res, -ENOMEM);
	assert_int_equal(rig.residency->devices[RIG_DEVICE].awaited_bytes, 40 * MIB);

	other = rig_settled(&rig, 1, 60 * MIB);
	assert_true(rig_is_ready(other));
	rig_idle(&rig, busy);
	rig_settle(&rig);
	assert_true(wishes[0].n_done == 1 && wishes[0].res == 0);
}

/*
 * A reservation that a lowered limit no longer allows is cancelled, also while another tenant's
 * plan is being loaded.
 */
TEST(test_promises__limit_lowered)
{
	struct plan_memory *busy, *wanted, *loading;
	struct wish wish = {.res = 1};

	BEGIN(rig);
	busy = rig_settled(&rig, 0, 60 * MIB);
	busy->n_on_device[RIG_DEVICE] = 1;
	rig_add(&rig, wanted = rig_plan_of(&rig, 0, 60 * MIB));
	ask(&rig, wanted, &wish, RESIDENCY_PREFETCH);
	rig_settle(&rig);
	assert_int_equal(rig.residency->devices[RIG_DEVICE].awaited_bytes, 60 * MIB);
	rig.devices[RIG_DEVICE].is_held = true;
	rig_add(&rig, loading = rig_plan_of(&rig, 1, MIB));
	rig_share(&rig, 0, 10 * MIB, 10 * MIB, 0);
	residency_limits_changed(rig.residency);
	turns(&rig, 20);
	assert_true(wish.n_done == 1 && wish.res == -ENOMEM);
	assert_int_equal(rig.residency->devices[RIG_DEVICE].awaited_bytes, 0);
	rig.devices[RIG_DEVICE].is_held = false;
	rig_idle(&rig, busy);
	rig_settle(&rig);
}

/*
 * A plan that cannot be loaded for lack of host memory evicts no other plan, however often it is
 * tried.
 */
TEST(test_host_limit__evicts_no_plan)
{
	struct account_limits limits;
	struct plan_memory *there, *poor;
	struct wish wish = {.res = 1};

	BEGIN(rig);
	rig_share(&rig, 0, 100 * MIB, 100 * MIB, 60 * MIB);
	for (int slot = 0; slot < ACCOUNT_SLOT_COUNT; slot++)
		limits.max[slot] = slot == ACCOUNT_HOST_BYTES ? 4096 : UINT64_MAX;
	account_set_limits(rig.tenants[0].account, &limits);
	there = rig_settled(&rig, 1, 80 * MIB);
	poor = rig_plan_of(&rig, 0, 60 * MIB);
	poor->plan->footprint[RIG_DEVICE].slot_host_bytes = 8192;
	rig_add(&rig, poor);
	ask(&rig, poor, &wish, RESIDENCY_PREFETCH);
	rig_settle(&rig);
	assert_true(wish.n_done == 1 && wish.res == -ENOMEM);
	assert_true(rig_is_ready(there));
	assert_int_equal(residency_counts(rig.residency, &rig.tenants[1])->n_evictions, 0);
	/* No room is reserved that the plan cannot use. */
	rig_remove(&rig, there);
	rig_settle(&rig);
	assert_int_equal(rig.residency->devices[RIG_DEVICE].awaited_bytes, 0);
}

/* ---- The setup thread ---- */

/* A tenant that loads as many plans as it can leaves other tenants their turn. */
TEST(test_loads__of_each_tenant)
{
	enum { N_GREEDY = 8 };
	struct plan_memory *greedy[3][N_GREEDY], *modest;

	BEGIN(rig);
	rig.devices[RIG_DEVICE].is_held = true;
	for (unsigned int t = 0; t < 3; t++)
		for (int i = 0; i < N_GREEDY; i++)
			rig_add(&rig, greedy[t][i] = rig_plan_of(&rig, t, MIB));
	rig_add(&rig, modest = rig_plan_of(&rig, 3, MIB));
	turns(&rig, 5);
	assert_int_equal(rig_used(&rig, 3), MIB);
	assert_in_range(rig_used(&rig, 0), MIB, 4 * MIB);
	rig.devices[RIG_DEVICE].is_held = false;
	rig_settle(&rig);
	assert_true(rig_is_ready(modest));
}

/* ---- Plans that are added ---- */

static unsigned int n_added;

static void on_added(struct plan_memory *memory)
{
	n_added++;
}

enum meanwhile { EVICTED, EVICTED_BY_HAND, DRAINED };

/*
 * A plan loses its device memory while it is being loaded. The caller of residency_add() is told
 * once, and not again when the plan is loaded later. Loading a plan without constants cannot be
 * stopped: the plan is loaded, then evicted.
 */
static void add_and_take(enum meanwhile meanwhile, bool has_constant)
{
	const struct residency_victims all = {.device = RBK_DEVICE_NONE};
	struct wish wish = {.res = 1};
	struct plan_memory *memory;
	uint64_t n, bytes;

	BEGIN(rig);
	n_added = 0;
	rig.devices[RIG_DEVICE].is_held = true;
	memory = rig_plan(&rig, 0, MIB, (const uint32_t[]){has_constant ? 1 : 0, 0});
	assert_int_equal(residency_add(rig.residency, memory, on_added), 0);
	turns(&rig, 3);
	assert_int_equal(n_added, 0);
	if (meanwhile == EVICTED)
		assert_true(residency_evict(rig.residency, &all, &n, &bytes));
	else if (meanwhile == EVICTED_BY_HAND)
		ask(&rig, memory, &wish, RESIDENCY_EVICT);
	else
		residency_set_drained(rig.residency, RIG_DEVICE, true);
	turns(&rig, 3);
	rig.devices[RIG_DEVICE].is_held = false;
	rig_settle(&rig);
	assert_int_equal(n_added, 1);
	assert_false(rig_is_ready(memory));

	/* The plan is loaded when it is asked for, as after any eviction. */
	residency_set_drained(rig.residency, RIG_DEVICE, false);
	wish = (struct wish){.res = 1};
	ask(&rig, memory, &wish, RESIDENCY_PREFETCH);
	rig_settle(&rig);
	assert_true(wish.n_done == 1 && wish.res == 0);
	assert_true(rig_is_ready(memory));
	assert_int_equal(n_added, 1);
}

TEST(test_add__evicted_while_loading)
{
	add_and_take(EVICTED, true);
	add_and_take(EVICTED, false);
	add_and_take(EVICTED_BY_HAND, true);
	add_and_take(EVICTED_BY_HAND, false);
}

TEST(test_add__drained_while_loading)
{
	add_and_take(DRAINED, true);
	add_and_take(DRAINED, false);
}

/*
 * The driver refuses the memory, so another plan is to be evicted for the new one. Then the new
 * plan is evicted itself.
 */
TEST(test_add__evicted_while_awaited)
{
	const struct residency_victims all = {.device = RBK_DEVICE_NONE};
	struct plan_memory *busy, *memory;
	uint64_t n, bytes;

	BEGIN(rig);
	n_added = 0;
	rig_share(&rig, 0, 100 * MIB, 0, 0);
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 60 * MIB);
	busy = rig_settled(&rig, 0, 40 * MIB);
	assert_true(rig_is_ready(busy));
	busy->n_on_device[RIG_DEVICE] = 1;
	rig.devices[RIG_DEVICE].is_held = true;
	rig.devices[RIG_DEVICE].n_refused = 1;
	memory = rig_plan_of(&rig, 1, 60 * MIB);
	assert_int_equal(residency_add(rig.residency, memory, on_added), 0);
	turns(&rig, 3);
	residency_set_usable(rig.residency, RIG_DEVICE, 70 * MIB, 0);
	rig.devices[RIG_DEVICE].is_held = false;
	rig_settle(&rig);
	assert_int_equal(n_added, 0);
	assert_true(busy->leaving);
	assert_true(residency_evict(rig.residency, &all, &n, &bytes));
	assert_int_equal(n_added, 1);
	rig_idle(&rig, busy);
	rig_settle(&rig);
	assert_int_equal(n_added, 1);
}

/* ---- Requests ---- */

/* Both requests in one turn: the second applies to the state that the first leaves. */
TEST(test_wishes__evict_then_prefetch)
{
	struct plan_memory *memory;
	struct wish evict = {.res = 1}, prefetch = {.res = 1};

	BEGIN(rig);
	memory = rig_settled(&rig, 0, 60 * MIB);
	ask(&rig, memory, &evict, RESIDENCY_EVICT);
	ask(&rig, memory, &prefetch, RESIDENCY_PREFETCH);
	rig_settle(&rig);
	assert_true(evict.n_done == 1 && evict.res == 0);
	assert_true(prefetch.n_done == 1 && prefetch.res == 0);
	assert_true(rig_is_ready(memory));

	/* The same while the plan is being loaded. */
	evict = prefetch = (struct wish){.res = 1};
	ask(&rig, memory, &evict, RESIDENCY_EVICT);
	rig_settle(&rig);
	evict = (struct wish){.res = 1};
	rig.devices[RIG_DEVICE].is_held = true;
	ask(&rig, memory, &prefetch, RESIDENCY_WAIT);
	turns(&rig, 10);
	assert_int_equal(rig_used(&rig, 0), 60 * MIB);
	residency_withdraw(rig.residency, &prefetch.waiter);
	ask(&rig, memory, &evict, RESIDENCY_EVICT);
	prefetch = (struct wish){.res = 1};
	ask(&rig, memory, &prefetch, RESIDENCY_PREFETCH);
	turns(&rig, 10);
	rig.devices[RIG_DEVICE].is_held = false;
	rig_settle(&rig);
	assert_true(evict.n_done == 1 && evict.res == 0);
	assert_true(prefetch.n_done == 1 && prefetch.res == 0);
	assert_true(rig_is_ready(memory));
}

/*
 * Evict the plan by hand while it is being loaded, with enough room: the result is -EINTR, not
 * -ENOMEM.
 */
static void evict_on_the_way(bool is_administrators)
{
	const struct residency_victims all = {.device = RBK_DEVICE_NONE};
	struct wish evict = {.res = 1}, prefetch = {.res = 1};
	struct plan_memory *memory;
	uint64_t n, bytes;

	BEGIN(rig);
	memory = rig_settled(&rig, 0, 60 * MIB);
	ask(&rig, memory, &evict, RESIDENCY_EVICT);
	rig_settle(&rig);
	assert_true(evict.n_done == 1 && !rig_is_ready(memory));

	rig.devices[RIG_DEVICE].is_held = true;
	ask(&rig, memory, &prefetch, RESIDENCY_PREFETCH);
	turns(&rig, 10);
	assert_int_equal(rig_used(&rig, 0), 60 * MIB);
	assert_int_equal(prefetch.n_done, 0);
	evict = (struct wish){.res = 1};
	if (is_administrators)
		assert_true(residency_evict(rig.residency, &all, &n, &bytes));
	else
		ask(&rig, memory, &evict, RESIDENCY_EVICT);
	turns(&rig, 10);
	rig.devices[RIG_DEVICE].is_held = false;
	rig_settle(&rig);
	assert_true(prefetch.n_done == 1 && prefetch.res == -EINTR);
	assert_true(is_administrators || (evict.n_done == 1 && evict.res == 0));
	assert_false(rig_is_ready(memory));
}

TEST(test_wishes__evicted_while_loading)
{
	evict_on_the_way(false);
	evict_on_the_way(true);
}

/* A use before the eviction by hand does not bring the plan back. */
TEST(test_wishes__evict_after_want)
{
	struct plan_memory *memory;
	struct wish wish = {.res = 1};

	BEGIN(rig);
	memory = rig_settled(&rig, 0, 60 * MIB);
	rig_want(&rig, memory, 10);
	ask(&rig, memory, &wish, RESIDENCY_EVICT);
	rig_settle(&rig);
	assert_true(wish.n_done == 1 && wish.res == 0);
	/* The plan is parked, not held off for a limited time. */
	assert_true(memory->residency->is_parked);
	assert_false(rig_is_ready(memory));
	rig_want(&rig, memory, 1);
	rig_settle(&rig);
	assert_false(memory->residency->is_parked);
}

/* A plan that is resident on one device still counts as waiting for another. */
TEST(test_wishes__of_a_named_device)
{
	struct plan_memory *there, *waiting;
	struct wish first = {.res = 1}, second = {.res = 1};

	RESIDENCY_RIG(rig, 2, 100 * MIB, 0, RESIDENCY_WANTED);
	there = rig_settled(&rig, 1, 60 * MIB);
	assert_true(rig_is_ready(there));
	waiting = rig_settled(&rig, 0, 60 * MIB);
	assert_int_equal(waiting->plan->device_state[RIG_DEVICE + 1], PLAN_DEVICE_READY);
	rig_want(&rig, there, 1000);
	ask_device(&rig, waiting, &first, RESIDENCY_WAIT, RIG_DEVICE);
	ask_device(&rig, waiting, &second, RESIDENCY_WAIT, RIG_DEVICE + 1);
	rig_settle(&rig);
	assert_int_equal(first.n_done, 0);
	assert_true(second.n_done == 1 && second.res == 0);
	rig_remove(&rig, there);
	rig_settle(&rig);
	assert_true(first.n_done == 1 && first.res == 0);
	assert_true(rig_is_ready(waiting));
}

/* A thousand requests for the same plan are examined together. */
TEST(test_storm__of_one_plan)
{
	enum { N = 1000 };
	struct residency_rig rig;
	struct plan_memory *there, *large;
	struct wish *wishes = calloc(N, sizeof(*wishes));
	uint64_t n_drafts;

	assert_non_null(wishes);
	residency_rig_begin(&rig);
	rig_share(&rig, 1, 100 * MIB, 100 * MIB, 60 * MIB);
	there = rig_settled(&rig, 1, 60 * MIB);
	large = rig_settled(&rig, 0, 60 * MIB);
	n_drafts = rig.residency->n_drafts;
	for (int i = 0; i < N; i++)
		ask(&rig, large, &wishes[i], RESIDENCY_PREFETCH);
	for (int i = 0; i < 1000 && wishes[N - 1].n_done == 0; i++)
		rig_turn(&rig);
	for (int i = 0; i < N; i++)
		assert_true(wishes[i].n_done == 1 && wishes[i].res == -ENOMEM);
	/* A busy machine may cut a turn short, so a few drafts are accepted. */
	assert_in_range(rig.residency->n_drafts - n_drafts, 1, N / 10);
	rig_remove(&rig, there);
	rig_remove(&rig, large);
	residency_rig_deinit(&rig);
	free(wishes);
}

/* A request does not wait for all earlier requests of another tenant. */
TEST(test_storm__tenants_take_turns)
{
	enum { N = 500 };
	struct residency_rig rig;
	struct plan_memory *memories[N], *modest;
	struct wish *wishes = calloc(N + 1, sizeof(*wishes));
	unsigned int n_answers = 0;

	assert_non_null(wishes);
	residency_rig_begin(&rig);
	rig_share(&rig, 0, MIB, MIB, 0);
	for (int i = 0; i < N; i++) {
		rig_add(&rig, memories[i] = rig_plan_of(&rig, 0, 2 * MIB));
		wishes[i].n_answers = &n_answers;
	}
	wishes[N].n_answers = &n_answers;
	modest = rig_settled(&rig, 1, MIB);
	assert_true(rig_is_ready(modest));
	for (int i = 0; i < N; i++)
		ask(&rig, memories[i], &wishes[i], RESIDENCY_PREFETCH);
	ask(&rig, modest, &wishes[N], RESIDENCY_PREFETCH);
	for (int i = 0; i < 10000 && n_answers < N + 1; i++)
		rig_turn(&rig);
	assert_int_equal(n_answers, N + 1);
	assert_int_equal(wishes[N].res, 0);
	assert_in_range(wishes[N].number, 1, 3);
	rig_remove(&rig, modest);
	for (int i = 0; i < N; i++)
		rig_remove(&rig, memories[i]);
	residency_rig_deinit(&rig);
	free(wishes);
}

/* Each of many waiters for a plan is answered exactly once. */
TEST(test_storm__each_waiter_is_answered)
{
	enum { N = 1000, N_WISHES = 3 };
	struct residency_rig rig;
	struct plan_memory *memory;
	struct wish *wishes = calloc(N * N_WISHES, sizeof(*wishes));
	unsigned int n_answers = 0;

	assert_non_null(wishes);
	residency_rig_begin(&rig);
	memory = rig_settled(&rig, 0, 60 * MIB);
	for (int i = 0; i < N * N_WISHES; i++) {
		wishes[i].n_answers = &n_answers;
		ask(&rig, memory, &wishes[i],
		    i < N       ? RESIDENCY_EVICT
		    : i < 2 * N ? RESIDENCY_PREFETCH
				: RESIDENCY_WAIT);
	}
	for (int i = 0; i < 100000 && n_answers < N * N_WISHES; i++)
		rig_turn(&rig);
	for (int i = 0; i < N * N_WISHES; i++)
		assert_true(wishes[i].n_done == 1 && wishes[i].res == 0);
	assert_true(rig_is_ready(memory));

	/* Waiters that were put off stay queued when other waiters withdraw. */
	residency_set_usable(rig.residency, RIG_DEVICE, 10 * MIB, 0);
	rig_settle(&rig);
	assert_false(rig_is_ready(memory));
	n_answers = 0;
	for (int i = 0; i < N; i++) {
		wishes[i].n_done = 0;
		ask(&rig, memory, &wishes[i], RESIDENCY_WAIT);
	}
	for (int i = 0; i < 1000; i++)
		rig_turn(&rig);
	assert_int_equal(n_answers, 0);
	for (int i = 0; i < N / 2; i++)
		residency_withdraw(rig.residency, &wishes[i].waiter);
	residency_set_usable(rig.residency, RIG_DEVICE, 100 * MIB, 0);
	for (int i = 0; i < 100000 && n_answers < N / 2; i++)
		rig_turn(&rig);
	for (int i = 0; i < N; i++)
		assert_int_equal(wishes[i].n_done, i >= N / 2);

	/* The remaining waiters are answered when the plan is removed, too. */
	residency_set_usable(rig.residency, RIG_DEVICE, 10 * MIB, 0);
	rig_settle(&rig);
	for (int i = 0; i < N; i++) {
		wishes[i].n_done = 0;
		ask(&rig, memory, &wishes[i], RESIDENCY_WAIT);
	}
	turns(&rig, 100);
	rig_remove(&rig, memory);
	for (int i = 0; i < N; i++)
		assert_true(wishes[i].n_done == 1 && wishes[i].res == -ECANCELED);
	residency_rig_deinit(&rig);
	free(wishes);
}

/* ---- Many plans ---- */

/* calls of residency_value(): one for each plan that is examined */
static uint32_t n_looked_at;

double __wrap_residency_value(double value, uint32_t n_wanted, uint64_t elapsed_ns,
			      uint64_t since_last_ns);
double __real_residency_value(double value, uint32_t n_wanted, uint64_t elapsed_ns,
			      uint64_t since_last_ns);

double __wrap_residency_value(double value, uint32_t n_wanted, uint64_t elapsed_ns,
			      uint64_t since_last_ns)
{
	n_looked_at++;
	return __real_residency_value(value, n_wanted, elapsed_ns, since_last_ns);
}

/* calls of residence_bytes() */
static uint32_t n_summed;

uint64_t __wrap_residence_bytes(const struct residence *residence);
uint64_t __real_residence_bytes(const struct residence *residence);

uint64_t __wrap_residence_bytes(const struct residence *residence)
{
	n_summed++;
	return __real_residence_bytes(residence);
}

enum { N_MANY = 4 * RESIDENCY_SLICE };

/*
 * Add N_MANY plans of tenant 0. One is resident and leaves 40 MiB of the device; the others wait
 * for its eviction.
 */
static struct plan_memory **hold_many(struct residency_rig *rig)
{
	struct plan_memory **memories = calloc(N_MANY, sizeof(*memories));

	assert_non_null(memories);
	for (int i = 0; i < N_MANY; i++)
		rig_add(rig, memories[i] = rig_plan_of(rig, 0, 60 * MIB));
	rig_settle(rig);
	assert_true(rig_is_ready(memories[0]));
	return memories;
}

static void remove_many(struct residency_rig *rig, struct plan_memory **memories)
{
	for (int i = 0; i < N_MANY; i++)
		if (memories[i])
			rig_remove(rig, memories[i]);
	free(memories);
}

/* A new plan is compared only with the plans in its way, however many there are. */
TEST_IN("many", test_many__add_visits_few_plans)
{
	struct plan_memory **memories, *fits, *displaces;

	BEGIN(rig);
	memories = hold_many(&rig);
	n_looked_at = 0;
	rig_add(&rig, fits = rig_plan_of(&rig, 1, 10 * MIB));
	rig_add(&rig, displaces = rig_plan_of(&rig, 1, 60 * MIB));
	assert_true(n_looked_at <= 8);
	rig_settle(&rig);
	assert_true(rig_is_ready(fits));
	rig_remove(&rig, displaces);
	rig_remove(&rig, fits);
	remove_many(&rig, memories);
}

/* residency_about() does not walk the plans that the tenant has already. */
TEST_IN("many", test_many__about_visits_no_plan)
{
	enum { N_SMALL = 100 };
	struct plan_memory *memories[N_SMALL];
	struct residency_about about;

	BEGIN(rig);
	rig_share(&rig, 0, 50 * MIB, 50 * MIB, 0);
	for (int i = 0; i < N_SMALL; i++)
		rig_add(&rig, memories[i] = rig_plan_of(&rig, 0, RIG_PAGE));
	rig_settle(&rig);
	assert_int_equal(rig_used(&rig, 0), N_SMALL * RIG_PAGE);
	n_summed = 0;
	residency_about(rig.residency, memories[0], RIG_DEVICE, &about);
	assert_int_equal(about.available_bytes, 50 * MIB);
	assert_int_equal(n_summed, 0);
}

/*
 * Turn the loop until at least @n_least plans have been examined and no review is due.
 * Return: the maximum of plans examined in one turn.
 */
static uint32_t most_in_a_turn(struct residency_rig *rig, uint32_t n_least)
{
	uint32_t n_most = 0, n_all = 0;

	while (n_all < n_least || rig_review_is_due(rig)) {
		n_looked_at = 0;
		rig_turn(rig);
		n_all += n_looked_at;
		if (n_looked_at > n_most)
			n_most = n_looked_at;
	}
	return n_most;
}

/* A review examines all plans in many turns, and finds the best of all. */
TEST_IN("many", test_many__review_in_slices)
{
	struct plan_memory **memories;

	BEGIN(rig);
	memories = hold_many(&rig);
	rig_want(&rig, memories[3], 10);
	rig_want(&rig, memories[N_MANY - 2], 1000);
	rig_want(&rig, memories[N_MANY / 2], 100);
	/* Each slice may also compare each candidate with the plans on the device. */
	assert_true(most_in_a_turn(&rig, N_MANY) <= RESIDENCY_SLICE + 2 * RESIDENCY_MAX_DRAFTS);
	rig_settle(&rig);
	assert_true(rig_is_ready(memories[N_MANY - 2]));
	assert_false(rig_is_ready(memories[0]));
	rig_check(&rig);
	remove_many(&rig, memories);
}

/* Remove the plan that the running review would examine next. */
static void remove_next(struct residency_rig *rig, struct plan_memory **memories)
{
	for (int i = 0; i < N_MANY; i++) {
		if (!memories[i] || rig->residency->walk.next != &memories[i]->residency->link)
			continue;
		rig_remove(rig, memories[i]);
		memories[i] = NULL;
		return;
	}
	fail_msg("the review was at its end");
}

/* A plan removed during a review is neither examined nor loaded. */
TEST_IN("many", test_many__removed_meanwhile)
{
	struct plan_memory **memories;

	BEGIN(rig);
	memories = hold_many(&rig);
	for (int i = 1; i < N_MANY; i += 2) {
		rig_want(&rig, memories[i], (uint32_t)i);
		rig_turn(&rig);
		rig_remove(&rig, memories[i]);
		memories[i] = NULL;
	}
	for (int i = 0; i < 4; i++) {
		rig_settle(&rig);
		rig_want(&rig, memories[N_MANY - 2], 1);
		while (!rig.residency->walk.next)
			rig_turn(&rig);
		remove_next(&rig, memories);
	}
	rig_settle(&rig);
	rig_check(&rig);
	remove_many(&rig, memories);
}

/* Add @n resident plans of tenant 0, of a page each. */
static void fill(struct residency_rig *rig, struct plan_memory **memories, int n)
{
	for (int i = 0; i < n; i++)
		rig_add(rig, memories[i] = rig_plan_of(rig, 0, RIG_PAGE));
	rig_settle(rig);
	assert_int_equal(rig_used(rig, 0), (uint64_t)n * RIG_PAGE);
}

static int n_there(struct plan_memory **memories, int n)
{
	int n_ready = 0;

	for (int i = 0; i < n; i++)
		n_ready += rig_is_ready(memories[i]);
	return n_ready;
}

/* When a maximum is lowered, each turn evicts some plans of the tenant, the least wanted first. */
TEST_IN("many", test_many__limit_lowered)
{
	enum { N = 200, N_LEFT = 10 };
	struct plan_memory *memories[N];
	int before = N, now;

	BEGIN(rig);
	fill(&rig, memories, N);
	for (int i = 0; i < N_LEFT; i++)
		rig_want(&rig, memories[i * 17], 1000);
	rig_share(&rig, 0, N_LEFT * RIG_PAGE, N_LEFT * RIG_PAGE, 0);
	residency_limits_changed(rig.residency);
	turn_set_budget(loop_current(rig.loop), 0);
	while (before > N_LEFT) {
		rig_turn(&rig);
		now = n_there(memories, N);
		assert_in_range(before - now, 0, RESIDENCY_MAX_VICTIMS);
		before = now;
	}
	rig_settle(&rig);
	for (int i = 0; i < N_LEFT; i++)
		assert_true(rig_is_ready(memories[i * 17]));
	assert_int_equal(n_there(memories, N), N_LEFT);
}

/* Plans that cannot be loaded are tried over several turns. */
TEST_IN("many", test_many__candidates_in_turns)
{
	enum { N = 50, N_WISHES = 6 };
	struct plan_memory *memories[N], *wanted[N_WISHES];
	uint32_t n_most = 0, n_all = 0;

	BEGIN(rig);
	fill(&rig, memories, N);
	for (int i = 0; i < N_WISHES; i++)
		rig_add(&rig, wanted[i] = rig_plan_of(&rig, 1, 100 * MIB));
	rig_settle(&rig);
	turn_set_budget(loop_current(rig.loop), 0);
	for (int i = 0; i < N; i++)
		rig_want(&rig, memories[i], 1000);
	for (int i = 0; i < N_WISHES; i++)
		rig_want(&rig, wanted[i], 1);
	while (n_all < N_WISHES * N) {
		n_summed = 0;
		rig_turn(&rig);
		n_all += n_summed;
		n_most = n_summed > n_most ? n_summed : n_most;
	}
	assert_in_range(n_most, N, 2 * N);
}

/*
 * The reservations of a tenant are limited in number, because each one is examined again and again.
 */
TEST_IN("many", test_many__promises)
{
	enum { N = 2 * RESIDENCY_MAX_AWAITED };
	struct plan_memory *busy, *memories[N];
	static struct wish wishes[N];

	BEGIN(rig);
	busy = rig_settled(&rig, 0, 100 * MIB);
	busy->n_on_device[RIG_DEVICE] = 1;
	for (int i = 0; i < N; i++) {
		wishes[i] = (struct wish){.res = 1};
		rig_add(&rig, memories[i] = rig_plan_of(&rig, 0, RIG_PAGE));
		ask(&rig, memories[i], &wishes[i], RESIDENCY_PREFETCH);
	}
	turns(&rig, 200);
	assert_int_equal(rig.tenants[0].memory->n_awaited[RIG_DEVICE], RESIDENCY_MAX_AWAITED);
	assert_int_equal(rig.residency->devices[RIG_DEVICE].awaited_bytes,
			 RESIDENCY_MAX_AWAITED * RIG_PAGE);
	rig_idle(&rig, busy);
	while (n_there(memories, N) < N)
		rig_turn(&rig);
	for (int i = 0; i < N; i++)
		assert_true(wishes[i].n_done == 1 && wishes[i].res == 0);
	rig_settle(&rig);
	assert_int_equal(rig.tenants[0].memory->n_awaited[RIG_DEVICE], 0);
}

/* A plan that no device with memory can run is not examined and causes no review. */
TEST_IN("many", test_many__without_a_device)
{
	struct plan_memory *unable;
	struct residency_victims victims = {.device = RBK_DEVICE_NONE};
	struct wish wish = {0};
	uint64_t n, bytes;
	unsigned int n_answers = 0;

	BEGIN(rig);
	rig_settled(&rig, 0, 60 * MIB);
	unable = rig_plan_of(&rig, 1, 60 * MIB);
	unable->plan->device_state[RIG_DEVICE] = PLAN_DEVICE_UNSUPPORTED;
	n_looked_at = 0;
	rig_add(&rig, unable);
	assert_false(rig_review_is_due(&rig));

	/* An administrator's eviction includes the plan, and a request for it is answered. */
	victims.tenant = &rig.tenants[1];
	assert_true(residency_evict(rig.residency, &victims, &n, &bytes));
	assert_true(n == 0 && bytes == 0);
	assert_int_equal(n_looked_at, 0);
	wish = (struct wish){.waiter.done = on_done, .n_answers = &n_answers};
	residency_ask(rig.residency, unable, &wish.waiter, RESIDENCY_WAIT, RBK_DEVICE_NONE);
	rig_settle(&rig);
	assert_true(wish.n_done == 1 && wish.res == -ENODEV);

	rig_remove(&rig, unable);
	assert_false(rig_review_is_due(&rig));
}

/*
 * Fire the timer of reviews.
 * Return: true if a review began.
 */
static bool timer_fires(struct residency_rig *rig)
{
	const uint64_t before_ns = rig->residency->reviewed_ns;

	loop_timer_arm(rig->residency->timer, 0);
	for (rig->residency->timer_ns = 1; rig->residency->timer_ns == 1;)
		rig_turn(rig);
	return rig->residency->reviewed_ns != before_ns;
}

/*
 * The timer may have been set before the last review's duration was known. Such a review waits for
 * the pause after the last one, but only once, however long the pause has become.
 */
TEST(test_review__postponed_once)
{
	const uint64_t hour_ns = 3600000000000;

	BEGIN(rig);
	rig_settle(&rig);
	for (unsigned int i = 0; i < 2; i++) {
		rig.residency->reviewed_ns = clock_now_ns();
		rig.residency->review_ns = hour_ns;
		assert_false(timer_fires(&rig));
		assert_true(rig.residency->timer_ns > clock_now_ns() + hour_ns);
		assert_true(timer_fires(&rig));
	}
}

int main(void)
{
	int n_failed = test_run(NULL, NULL);

#ifndef __SANITIZE_THREAD__
	/*
	 * The test's own thread counts as load. With the thread sanitizer it is so slow that
	 * reviews pause for minutes.
	 */
	n_failed += test_run_group("many", NULL, NULL);
#endif
	return n_failed;
}
