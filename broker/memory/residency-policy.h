#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Residency policy: which plan may displace which on a device
 *
 * Pure functions of numbers. They decide whether a plan that requests memory may take it from a
 * plan that holds it, and which of several plans is evicted first. memory/residency.h carries the
 * decisions out.
 *
 * Memory is taken back in this order: from tenants above vram-high, then from tenants above their
 * reserve, then from the requesting tenant itself; in each group from the least wanted plan first.
 * A request within its tenant's reserve is never refused in favour of tenants above theirs. An
 * eviction takes no tenant below its reserve, except for a request within another tenant's reserve:
 * a plan that straddles the reserve cannot be kept in part. Two plans cannot displace each other in
 * turn this way, because the evicted plan's request exceeds its tenant's reserve.
 *
 * A lease (lease.h) stands for a program whose tasks the broker does not see. It may take memory
 * within its tenant's reserve. Above the reserve it may take memory from its own tenant's plans,
 * however wanted. If its tenant stays below vram-high, it may also take memory from other tenants
 * above vram-high. It is never evicted.
 *
 * A plan's value tells how much the plan is wanted: the number of its tasks, which decays by half
 * every RESIDENCY_HALF_LIFE_NS. A request above its tenant's reserve needs more than
 * RESIDENCY_HYSTERESIS times the value of the plan that it displaces. Otherwise two plans that do
 * not fit together would take turns, and moving memory costs more than running on the CPU. A wanted
 * plan whose tenant stays below vram-high may displace plans of a tenant above vram-high
 * whatever their value.
 *
 * A plan that was wanted often and has fallen silent counts for at most RESIDENCY_SILENT_VALUE
 * against other plans. Without this limit, other plans would have to be busy for as long as the
 * silent plan was; they cannot reach its value, because they run on the CPU meanwhile. A plan is
 * silent if it was not wanted for RESIDENCY_SILENCE_NS, nor for RESIDENCY_SILENT_INTERVALS of its
 * usual intervals between tasks. RESIDENCY_SILENCE_NS is the time that moving a model takes:
 * waiting for that time costs at most twice what knowing the future would. A silent plan that is
 * wanted again has its former value.
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
	RESIDENCY_LRU,    /* for comparison: the least recently used plan is displaced */
	RESIDENCY_STAY,   /* for comparison: a resident plan is never displaced */
};

/* A plan that holds or requests memory on a device, with the limits and use of its tenant. */
struct residency_claim {
	struct tenant_share share;
	uint32_t tenant;  /* number, by which claims of one tenant are recognised */
	uint64_t used;    /* VRAM bytes that the tenant holds on the device */
	uint64_t bytes;   /* bytes that the plan requests, or frees if it is evicted */
	double value;     /* decayed number of tasks */
	uint64_t used_ns; /* time of the last request for the plan, for RESIDENCY_LRU */
	bool is_lease;    /* a lease, not a plan; only as a request */
};

enum { RESIDENCY_KEEP = -1 };

/*
 * Rank a plan for eviction in favour of @wish.
 * Return: RESIDENCY_KEEP: @wish may not displace @holder; or a rank: plans with lower ranks are
 * evicted first, of equal ranks the one with the lower value.
 */
int residency_rank(enum residency_policy policy, const struct residency_claim *wish,
		   const struct residency_claim *holder);

/*
 * Rank a plan for eviction when processes outside the broker need memory. Return values are those
 * of residency_rank(); no tenant is taken below its reserve.
 */
int residency_rank_pressure(const struct residency_claim *holder);

/* Return true if @a is to be evicted before @b, given their ranks. */
bool residency_goes_first(enum residency_policy policy, int rank_a, const struct residency_claim *a,
			  int rank_b, const struct residency_claim *b);

/* Return true if @a's request precedes @b's when there is no room for both. */
bool residency_comes_first(const struct residency_claim *a, const struct residency_claim *b);

/*
 * Return the value after @n_wanted more tasks, as if they had arrived evenly: @value was computed
 * @elapsed_ns ago, and the last task arrived @since_last_ns ago.
 */
double residency_value(double value, uint32_t n_wanted, uint64_t elapsed_ns,
		       uint64_t since_last_ns);

/*
 * Return the value with which a plan is compared with other plans: @value, or at most
 * RESIDENCY_SILENT_VALUE if the plan is silent. @idle_ns: time since the plan was last wanted.
 */
double residency_value_heard(double value, uint64_t idle_ns);
