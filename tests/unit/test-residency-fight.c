/* SPDX-License-Identifier: MIT */
/*
 * test-residency-fight [N]
 *
 * Three tenants compete for a device that only counts bytes, with random operations from N seeds:
 * broker/memory/residency.h.
 */
#include <stdlib.h>

#include "support/residency-rig.h"
#include "support/test.h"

#define MIB (1ull << 20)

enum { N_PLANS = 60 };

static unsigned int n_seeds = 2;

static uint32_t random_below(uint64_t *seed, uint32_t n)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*seed >> 33) % n;
}

/*
 * Ask, and turn the loop until the answer. Many turns may be needed: a long review delays the next
 * one.
 */
static int ask(struct residency_rig *rig, struct plan_memory *memory, enum residency_wish what)
{
	struct rig_wish wish;

	rig_ask(rig, memory, &wish, what);
	for (int i = 0; i < 100000 && wish.n_done == 0; i++)
		rig_turn(rig);
	assert_int_equal(wish.n_done, 1);
	return wish.res;
}

/* With nothing in flight, check that a tenant that asks for no more than its reserve gets it. */
static void claim(struct residency_rig *rig, struct plan_memory *const *memories,
		  unsigned int tenant, unsigned int *n_claims)
{
	struct plan_memory *wanted = NULL;
	struct residency_about about;

	for (unsigned int i = 0; i < N_PLANS; i++)
		if (memories[i])
			rig_idle(rig, memories[i]);
	rig_settle(rig);
	for (unsigned int i = tenant; i < N_PLANS; i += 3) {
		if (!memories[i])
			continue;
		residency_about(rig->residency, memories[i], RIG_DEVICE, &about);
		if (about.required_bytes <= rig->tenants[tenant].shares[RIG_DEVICE].reserve)
			wanted = memories[i];
		assert_int_equal(ask(rig, memories[i], RESIDENCY_EVICT), 0);
	}
	if (!wanted)
		return;
	assert_int_equal(account_used(rig->tenants[tenant].account, account_vram(RIG_DEVICE)), 0);
	if (ask(rig, wanted, RESIDENCY_PREFETCH) != 0)
		fail_msg("tenant %u is denied its reserve", tenant);
	assert_true(rig_is_ready(wanted));
	++*n_claims;
}

/*
 * Check that no tenant exceeds its maximum or is denied its reserve, while the device shrinks and
 * grows.
 */
static void fight(uint64_t seed)
{
	enum { N_STEPS = 4000 };
	struct plan_memory *memories[N_PLANS] = {NULL};
	struct residency_rig rig;
	unsigned int n_claims = 0;

	residency_rig_begin(&rig);
	rig_share(&rig, 0, 100 * MIB, 70 * MIB, 0);
	rig_share(&rig, 1, 50 * MIB, 40 * MIB, 30 * MIB);
	rig_share(&rig, 2, 20 * MIB, 20 * MIB, 20 * MIB);
	for (int step = 0; step < N_STEPS; step++) {
		uint32_t i = random_below(&seed, N_PLANS);
		struct plan_memory *memory = memories[i];

		switch (random_below(&seed, 8)) {
		case 0:
		case 1:
			if (memory)
				break;
			memories[i] = rig_plan(&rig, i % 3, (1 + random_below(&seed, 12)) * MIB,
					       (const uint32_t[]){1 + random_below(&seed, 9),
								  20 + random_below(&seed, 9), 0});
			rig_add(&rig, memories[i]);
			break;
		case 2:
			if (!memory || memory->n_on_device[RIG_DEVICE] > 0)
				break;
			rig_remove(&rig, memory);
			memories[i] = NULL;
			break;
		case 3:
			residency_set_usable(rig.residency, RIG_DEVICE,
					     (60 + random_below(&seed, 41)) * MIB, 0);
			break;
		case 4:
			if (memory && memory->n_on_device[RIG_DEVICE] > 0) {
				rig_idle(&rig, memory);
			} else if (memory && rig_is_ready(memory)) {
				memory->n_on_device[RIG_DEVICE] = 1;
			}
			break;
		case 5:
			/* While a block is loaded, its parts are counted up to this number. */
			rig_settle(&rig);
			rig.devices[RIG_DEVICE].n_parts = 1 + random_below(&seed, 5);
			if (random_below(&seed, 8) == 0)
				claim(&rig, memories, 1 + random_below(&seed, 2), &n_claims);
			break;
		default:
			if (memory)
				rig_want(&rig, memory, 1 + random_below(&seed, 100));
			break;
		}
		rig_turn(&rig);
		rig_check(&rig);
	}
	for (int i = 0; i < N_PLANS; i++) {
		if (!memories[i])
			continue;
		rig_idle(&rig, memories[i]);
		rig_remove(&rig, memories[i]);
	}
	assert_true(rig.devices[RIG_DEVICE].most_allocated <= 100 * MIB);
	assert_true(residency_counts(rig.residency, &rig.tenants[0])->n_evictions > 0 &&
		    residency_counts(rig.residency, &rig.tenants[0])->n_returns > 0);
	assert_true(n_claims > 0);
	residency_rig_deinit(&rig);
}

TEST(test_fight__random)
{
	for (unsigned int i = 0; i < n_seeds; i++) {
		print_message("seed %u\n", 42 + i);
		fight(42 + i);
	}
}

int main(int argc, char **argv)
{
	if (argc > 1)
		n_seeds = (unsigned int)atoi(argv[1]);
	return test_run(NULL, NULL);
}
