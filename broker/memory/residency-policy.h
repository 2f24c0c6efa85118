#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Who gives way to whom on a device
 *
 * Pure functions of numbers: whether a plan that wants memory may take it from a plan that has it,
 * and which of several goes first. What carries it out is memory/residency.h.
 *
 * The order in which memory is taken back: from tenants above vram-high, then from tenants above
 * their reserve, then from the wisher's own tenant; within each, the least wanted first. A tenant
 * that fills its reserve is never refused for others that are above theirs. Nobody is taken below
 * the reserve, but by a wish within another's reserve: a plan that straddles the line cannot be
 * kept by half. That cannot go back and forth, because the plan that left wants more than its
 * reserve.
 *
 * A lease (lease.h) stands for a program whose tasks nobody sees. It may take what is within its
 * tenant's reserve; above that, what its own tenant's plans have, however wanted, and what other
 * tenants have above vram-high; and it never leaves by itself.
 *
 * What is wanted is told from the tasks of late: value is their number, decaying by half every
 * RESIDENCY_HALF_LIFE_NS. A wish above its reserve must be wanted RESIDENCY_HYSTERESIS times as
 * much as what it displaces, so that two plans that cannot both be there do not take turns: moving
 * memory costs more than running on the processor.
 *
 * A plan that was wanted often and has fallen silent is worth no more than RESIDENCY_SILENT_VALUE
 * to others, who may be busy for as long as it was: they run on the processor meanwhile, which is
 * why they cannot be wanted as often as it was on the device. Silent is who was not wanted for
 * RESIDENCY_SILENCE_NS, which is what moving a model takes (waiting as long as moving would take
 * costs at most twice what knowing the future would), nor for RESIDENCY_SILENT_INTERVALS of the
 * intervals at which it used to be. Who is heard again has his value back.
 */
#include <stdbool.h>
#include <stdint.h>

#include "tenant/tenant.h"

#define RESIDENCY_HYSTERESIS   1.25
#define RESIDENCY_HALF_LIFE_NS 5000000000ull
#define RESIDENCY_SILENCE_NS   250000000ull
#define RESIDENCY_SILENT_VALUE 6.0

enum { RESIDENCY_SILENT_INTERVALS = 8 };

enum residency_policy {
	RESIDENCY_WANTED, /* as above */
	RESIDENCY_LRU,  /* for comparison: whoever wants memory displaces the least recently used */
	RESIDENCY_STAY, /* for comparison: who is there stays */
};

/* A plan that has or wants memory on one device, with its tenant's standing there. */
struct residency_claim {
	struct tenant_share share;
	uint32_t tenant;  /* number: claims of one tenant are told from others */
	uint64_t used;    /* bytes that the tenant holds on the device now */
	uint64_t bytes;   /* of this plan: wanted more, or given back if it goes */
	double value;     /* how much it is wanted */
	uint64_t used_ns; /* when it was wanted last, for RESIDENCY_LRU */
	bool is_lease;    /* a lease, not a plan: only wishes */
};

enum { RESIDENCY_KEEP = -1 };

/*
 * May @wish take what @holder has? Return: RESIDENCY_KEEP, or a rank: lower ones go first, among
 * equal ones the lower value.
 */
int residency_rank(enum residency_policy policy, const struct residency_claim *wish,
		   const struct residency_claim *holder);

/*
 * The same when memory must be given back to processes outside the broker: down to the reserves,
 * no further.
 */
int residency_rank_pressure(const struct residency_claim *holder);

/* Is @a to go before @b, of which ranks are given? */
bool residency_goes_first(enum residency_policy policy, int rank_a, const struct residency_claim *a,
			  int rank_b, const struct residency_claim *b);

/* Is @a to come before @b, when both wish and not both can? */
bool residency_comes_first(const struct residency_claim *a, const struct residency_claim *b);

/*
 * The value after @n_wanted tasks, the last of them @since_last_ns ago, over the @elapsed_ns since
 * @value was true. As if they had come evenly between.
 */
double residency_value(double value, uint32_t n_wanted, uint64_t elapsed_ns,
		       uint64_t since_last_ns);

/* What @value counts for if the plan was wanted last @idle_ns ago. */
double residency_value_heard(double value, uint64_t idle_ns);
