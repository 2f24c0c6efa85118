#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Timeslices: what timeslice.c and timeslice-plans.c have in common
 *
 * A contender wants a device, and is compared with others: it is a lease, or the tasks of a
 * tenant's plans. A tenant has one tag on a device for all its contenders, and each contender has a
 * tag within the tenant.
 */
#include "lease/lease.h"
#include "tenant/tenant.h"
#include "util/fair.h"
#include "util/number.h"
#include "util/priority.h"

struct timeslice_contender {
	const struct tenant *tenant;
	uint64_t tag, inner_tag;   /* of the tenant; within the tenant */
	uint64_t since_ns;         /* begin of its wait */
	uint64_t late_from_ns;     /* when it comes next, whatever comes before it */
	uint8_t class, full_class; /* that counts now; that counts unless the tenant is ahead */
	bool has_patience;         /* the same among equals */
};

static inline struct lease *lease_of(struct list_node *node)
{
	return container_of(node, struct lease, timeslice.link);
}

static inline struct timeslice_plans *plans_of(struct list_node *node)
{
	return container_of(node, struct timeslice_plans, link);
}

static inline struct timeslice_device *device_of(const struct lease *lease)
{
	return &lease->leases->timeslices.devices[lease->device];
}

/* Return the time that the tenant has had, divided by its weight. */
static inline uint64_t *tenant_tag(const struct timeslice_device *device,
				   const struct tenant *tenant)
{
	return &tenant->leases->timeslice_ns[device->number];
}

/* Return the clock of the leases and plans of a tenant. */
static inline struct timeslice_clock *tenant_clock(const struct timeslice_device *device,
						   const struct tenant *tenant)
{
	return &tenant->leases->timeslice_clocks[device->number];
}

/* Return @ns of the device's time as a difference of tags of this weight. */
static inline uint64_t virtual_of(uint64_t weight, uint64_t ns)
{
	return ns * FAIR_WEIGHT / max_u64(weight, 1);
}

/* Return the device's time for a difference of tags of this weight. */
static inline uint64_t time_of(uint64_t weight, uint64_t tag)
{
	return tag * max_u64(weight, 1) / FAIR_WEIGHT;
}

/* Bound the time by which a tag of this weight is behind. */
static inline void catch_up(const struct timeslice_clock *clock, uint64_t weight, uint64_t *tag)
{
	const uint64_t lag = virtual_of(weight, TIMESLICE_LAG_NS);

	if (*tag + lag < clock->virtual_ns)
		*tag = clock->virtual_ns - lag;
}

/* Return the class of a tenant that counts now: not an urgent one while the tenant is ahead. */
static inline uint8_t counted_class(const struct timeslice_device *device,
				    const struct tenant *tenant, uint8_t class)
{
	const uint8_t normal = priority_class(RBK_PRIORITY_NORMAL);
	const uint64_t lag = virtual_of(tenant->weight, TIMESLICE_LAG_NS);
	const bool is_ahead = *tenant_tag(device, tenant) > device->clock.virtual_ns + lag;

	return class < normal && is_ahead ? normal : class;
}

/* Return true if @a comes before @b. */
static inline bool is_before(const struct timeslice_contender *a,
			     const struct timeslice_contender *b)
{
	if (a->class != b->class)
		return a->class < b->class;
	if (a->tag != b->tag)
		return a->tag < b->tag;
	if (a->tenant == b->tenant && a->inner_tag != b->inner_tag)
		return a->inner_tag < b->inner_tag;
	return a->since_ns < b->since_ns;
}

/* ---- Virtual time ---- */

/* Begin to look for the least tag of those that are served. */
static inline void clock_begin(struct timeslice_clock *clock)
{
	clock->least = UINT64_MAX;
	clock->best = UINT8_MAX;
}

/* Note the tag of one that is served; only those of the best class count. */
static inline void clock_note(struct timeslice_clock *clock, uint8_t class, uint64_t tag)
{
	if (class < clock->best)
		clock->least = UINT64_MAX;
	if (class <= clock->best)
		clock->least = min_u64(clock->least, tag);
	clock->best = class < clock->best ? class : clock->best;
}

static inline void clock_end(struct timeslice_clock *clock)
{
	if (clock->least != UINT64_MAX)
		clock->virtual_ns = max_u64(clock->virtual_ns, clock->least);
}

/* ---- timeslice-plans.c ---- */

/* Return true if tasks are there, or were within @pause_ns, of a class before @class. */
bool plans_come_before(const struct timeslice_device *device, uint8_t class, uint64_t pause_ns,
		       uint64_t now_ns);
/* Return true if tasks of any class are there, or were within @pause_ns. */
bool plans_are_there(const struct timeslice_device *device, uint64_t pause_ns, uint64_t now_ns);
/* Return the last time at which tasks of a class before @class are known; 0: never. */
uint64_t plans_last_ns(const struct timeslice_device *device, uint8_t class);
/*
 * Return the time, since leases share the device, in which a lease of @class waited behind plans:
 * there were tasks, or for a class that does not wait for all of them, it was their turn.
 */
uint64_t plans_total_ns(const struct timeslice_device *device, uint8_t class, uint64_t now_ns);

/* Note which tasks there are now. The time until now was charged. */
void plans_note(struct timeslice_device *device, struct timeslice_plans *changed, uint64_t now_ns);
/* Forget what plans have used so far: @lease is its tenant's first one that shares the device. */
void plans_begin_account(const struct lease *lease);
/* Forget all plans: no lease shares the device any more. */
void plans_forget(struct timeslice_device *device);
/* Let the tags of plans not be ahead of a lease that was not restrained so far. */
void plans_forgive(struct timeslice_device *device, const struct lease *lease);

/*
 * Charge tenants for what their plans have used. @is_user: work of a lease is on the device, or in
 * front of the tasks.
 */
void plans_charge(struct timeslice_device *device, bool is_user, uint64_t now_ns);
/*
 * Look at what plans have used, at the end of a lease's timeslice.
 * Return: the time of tasks that was not taken from the lease's so far.
 */
uint64_t plans_settle(struct timeslice_device *device, uint64_t now_ns);
/* Note the tags of plans that are served, see device_advance(). */
void plans_begin_clocks(struct timeslice_device *device);
void plans_advance(struct timeslice_device *device);
void plans_end_clocks(struct timeslice_device *device);

/*
 * Return the plans that come first of those with tasks that wait and were not told to start, or
 * that have waited long (*ret_is_late); NULL: there are none. @next: the lease that comes next, or
 * has waited long (@is_next_late); NULL: none.
 */
struct timeslice_plans *plans_choose(struct timeslice_device *device,
				     const struct timeslice_contender *next, bool is_next_late,
				     uint64_t now_ns, bool *ret_is_late);
/* Return from when on the plans want the device for themselves; UINT64_MAX: not yet. */
uint64_t plans_contend_ns(const struct timeslice_plans *plans);
/* Return the next time at which plans begin to do so; UINT64_MAX: none do without an event. */
uint64_t plans_next_contender_ns(const struct timeslice_device *device, uint64_t now_ns);
/* Return the plans as a contender, with their most urgent tasks. There must be some. */
struct timeslice_contender plans_contender(const struct timeslice_device *device,
					   const struct timeslice_plans *plans);
/* Begin the plans' turn. @late: plans that have waited long; NULL: none. */
void plans_begin_turn(struct timeslice_device *device, struct timeslice_plans *late,
		      uint64_t now_ns);
/*
 * Decide whether the plans' turn goes on beside a lease that waits, @next; NULL: none. @is_user: as
 * for plans_charge().
 * Return: true: it goes on; false: it is over, after plans_end_turn().
 */
bool plans_go_on(struct timeslice_device *device, const struct timeslice_contender *next,
		 bool is_late, bool is_user, uint64_t now_ns);
void plans_end_turn(struct timeslice_device *device, bool is_user, uint64_t now_ns);
/* Return when the turn is to be looked at again, while a lease waits. */
uint64_t plans_turn_ns(const struct timeslice_device *device, uint64_t now_ns);

/*
 * Set which tasks may start. @holder: the lease that has the timeslice; @next: the one that waits
 * and comes next; NULL: there is none.
 */
void plans_show(struct timeslice_device *device, const struct timeslice_contender *holder,
		const struct timeslice_contender *next, uint64_t now_ns);
