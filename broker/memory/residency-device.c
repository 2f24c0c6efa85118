/* SPDX-License-Identifier: MIT */
/*
 * Residency: plans leave a device that is lost, drained or renewed
 *
 * The executor of a lost device returns every task, so the plans drain. Then everything on the
 * device is unloaded and refunded, and the executor is reopened (residency-reopen.c). Placement
 * sees PLAN_DEVICE_FAILED until the device is up; then plans return as after any eviction.
 *
 * Renewal is for a working device of whose memory the driver has moved a part to the host. Only a
 * new allocation brings that memory back, and the broker cannot find out which part was moved.
 */
#include <sys/sysmacros.h>

#include "loop/loop.h"
#include "loop/turn.h"
#include "memory/residency-private.h"
#include "shm/reset-verdict.h"
#include "util/checked.h"
#include "util/clock.h"

/* A slice of evictions takes at most 1/EMPTY_PART of a turn's budget. */
enum { EMPTY_PART = 4 };

static void show_all(struct residency_device *device)
{
	list_for_each (node, &device->residency->plans) {
		struct residency_plan *plan = container_of(node, struct residency_plan, link);

		residence_show(&plan->on[device->index]);
	}
}

static void empty_one(struct residence *residence)
{
	residence_evict(residence);
	/* The plan was evicted for no other plan, so it may be loaded again at once. */
	residence->holdoff_ns = 0;
}

/*
 * Evict some plans, AWAITED ones first. The list of residences does not grow, because no load
 * begins. Return: true if no plan is left.
 */
static bool empty_some(struct residency_device *device)
{
	const struct turn *turn = loop_current(device->residency->options.loop);
	const uint64_t stop_ticks = turn_stop_ticks(turn, EMPTY_PART);

	for (uint32_t n = 0;; n++) {
		struct list_node *node = device->awaiting.next;

		if (node == &device->awaiting) {
			node = device->evict_next;
			device->evict_next = node->next;
		}
		if (node == &device->residences)
			return true;
		empty_one(container_of(node, struct residence, link));
		if (n >= RESIDENCY_SLICE || turn_used_ticks(turn) >= stop_ticks)
			return false;
	}
}

void residency_empty_on(struct residency_device *device)
{
	if (device->state == RESIDENCY_DEVICE_UP || empty_some(device))
		device->evict_next = NULL;
}

static void empty(struct residency_device *device)
{
	device->evict_next = device->residences.next;
	residency_empty_on(device);
	residency_go_on_soon(device->residency);
}

/* Tell whether the kernel found the broker's own work guilty. Its contexts still exist. */
static void tell_resets(const struct residency_device *device)
{
	const struct exec_identity *identity = &device->executor->info.identity;

	if (identity->has_render)
		resets_own_lost(
			&device->residency->leases.resets, (uint8_t)device->index,
			reset_verdict(makedev(identity->render_major, identity->render_minor), 0),
			clock_now_ns());
}

bool residency_device_lost(struct residency *residency, unsigned int index)
{
	struct residency_device *device = &residency->devices[index];

	if (device->state == RESIDENCY_DEVICE_NONE)
		return false;
	if (device->state > RESIDENCY_DEVICE_DRAINED)
		return true;
	if (!residency_device_is_lost(device))
		return false;
	device->state = RESIDENCY_DEVICE_LOST;
	tell_resets(device);
	show_all(device);
	empty(device);
	residency_device_settle(device);
	residency_review_in(residency, 0);
	return true;
}

void residency_device_gone(struct residency *residency, unsigned int index, const char *why)
{
	struct residency_device *device = &residency->devices[index];

	if ((device->state != RESIDENCY_DEVICE_UP && device->state != RESIDENCY_DEVICE_DRAINED) ||
	    !device->executor->ops->lose)
		return;
	device->executor->ops->lose(device->executor, why);
	residency_device_lost(residency, index);
}

/* Draining, and eviction by an administrator */

void residency_set_drained(struct residency *residency, unsigned int index, bool is_drained)
{
	struct residency_device *device = &residency->devices[index];

	device->is_drained = is_drained;
	if (is_drained && device->state == RESIDENCY_DEVICE_UP) {
		device->state = RESIDENCY_DEVICE_DRAINED;
		residency->must_show = true;
		empty(device);
		/* The review also answers the waiters for loads to this device. */
		residency_review_in(residency, 0);
	} else if (!is_drained && device->state == RESIDENCY_DEVICE_DRAINED) {
		device->state = RESIDENCY_DEVICE_UP;
		residency->must_show = true;
		residency_review_in(residency, 0);
	}
}

void residency_emptied(struct residency *residency)
{
	residency_review_in(residency, 0);
}

bool residency_holds_plans(const struct residency *residency, const struct tenant *tenant,
			   uint8_t device)
{
	for (unsigned int i = 1; i < residency->options.n_executors; i++) {
		if (device != RBK_DEVICE_NONE && device != i)
			continue;
		list_for_each (node, &residency->devices[i].residences)
			if (!tenant ||
			    container_of(node, struct residence, link)->plan->tenant == tenant)
				return true;
	}
	return false;
}

static bool is_meant(const struct residency_plan *plan, const struct residency_victims *victims)
{
	const struct plan_memory *memory = plan->memory;

	if (plan->removed || (victims->tenant && plan->tenant != victims->tenant))
		return false;
	return victims->session == 0 ||
	       (memory->session == victims->session && memory->id == victims->plan_id);
}

bool residency_evict(struct residency *residency, const struct residency_victims *victims,
		     uint64_t *ret_n, uint64_t *ret_bytes)
{
	bool is_any = false;
	uint32_t n_gone = 0;

	*ret_n = *ret_bytes = 0;
	list_for_each (node, &residency->unable)
		is_any |= is_meant(container_of(node, struct residency_plan, link), victims);
	list_for_each (node, &residency->plans) {
		struct residency_plan *plan = container_of(node, struct residency_plan, link);
		bool leaves = false;

		if (!is_meant(plan, victims))
			continue;
		is_any = true;
		/* Tasks counted until now do not end the parking. */
		residency_fold_plan(plan);
		plan->is_parked = true;
		for (unsigned int i = 1; i < residency->options.n_executors; i++) {
			struct residence *residence = &plan->on[i];

			if (victims->device != RBK_DEVICE_NONE && victims->device != i)
				continue;
			if (residence->state == RESIDENCE_IN) {
				leaves = true;
				*ret_bytes += residence_bytes(residence);
			}
			if (n_gone < RESIDENCY_SLICE)
				residence_evict_by_hand(residence);
			else
				plan->must_go |= (uint16_t)(1u << i);
		}
		*ret_n += leaves;
		n_gone += leaves;
	}
	/* The review's walk evicts the plans with must_go. */
	if (n_gone >= RESIDENCY_SLICE)
		residency_review_in(residency, 0);
	return is_any;
}

/* Renewal */

enum {
	/* most sweeps of a renewal; each unloads the sharers of blocks that the last one added */
	RENEW_SWEEPS = 4,
	RENEW_PART = 4, /* a slice of a sweep takes at most 1/RENEW_PART of a turn's budget */
};

static struct residence *find_oldest(struct residency_device *device, uint64_t before_ns)
{
	struct residence *oldest = NULL;
	uint32_t n = 0;

	list_for_each (node, &device->by_age) {
		struct residence *residence = container_of(node, struct residence, aging);

		if (residence->came_ns >= before_ns || n++ == RESIDENCY_SLICE)
			break;
		if (residence->plan->memory->n_on_device[device->index] == 0)
			return residence;
		if (!oldest)
			oldest = residence;
	}
	return oldest;
}

/*
 * Unload a residence in order to reload it, and mark its blocks to be freed.
 * Return: true if this marked a block that other plans share.
 */
static bool renew(struct residence *residence)
{
	const uint64_t number = residence->device->n_renewals;
	bool is_more = false;

	for (uint32_t i = 0; i < residence->n_sharing; i++) {
		struct resident_block *block = residence->sharing[i];

		is_more |= block->renewal_number != number && block->n_there > 1;
		block->renewal_number = number;
	}
	residence_move(residence);
	return is_more;
}

static bool shares_renewed(const struct residence *residence)
{
	for (uint32_t i = 0; i < residence->n_sharing; i++)
		if (residence->sharing[i]->renewal_number == residence->device->n_renewals)
			return true;
	return false;
}

/* Begin another sweep, or let the unloaded plans return. */
static void renew_next_sweep(struct residency_device *device)
{
	const bool goes_on = device->has_renew_grown && device->n_renew_sweeps < RENEW_SWEEPS;

	device->renew_next = goes_on ? device->by_age.next : NULL;
	device->has_renew_grown = false;
	device->n_renew_sweeps++;
	if (!goes_on)
		residency_review_in(device->residency, 0);
}

void residency_renew_on(struct residency_device *device)
{
	const struct turn *turn = loop_current(device->residency->options.loop);
	const uint64_t stop_ticks = turn_stop_ticks(turn, RENEW_PART);

	for (uint32_t n = 0; device->renew_next != &device->by_age; n++) {
		struct residence *residence =
			container_of(device->renew_next, struct residence, aging);

		if (n >= RESIDENCY_SLICE || (n > 0 && turn_used_ticks(turn) >= stop_ticks))
			return;
		device->renew_next = residence->aging.next;
		if (shares_renewed(residence))
			device->has_renew_grown |= renew(residence);
	}
	renew_next_sweep(device);
}

bool residency_renew(struct residency *residency, unsigned int index, uint64_t before_ns)
{
	struct residency_device *device = &residency->devices[index];
	struct residence *oldest;

	if (device->state != RESIDENCY_DEVICE_UP)
		return false;
	if (device->n_jobs > 0 || device->n_moving > 0 || device->leaving_bytes > 0 ||
	    device->renew_next)
		return true;
	oldest = find_oldest(device, before_ns);
	if (!oldest)
		return false;
	/*
	 * A block is freed when the last plan that uses it is unloaded, so all its users must be
	 * unloaded together. Plans that share another block with one of these users are unloaded as
	 * well, otherwise such a plan would be renewed several times.
	 */
	device->n_renewals++;
	device->n_renew_sweeps = 0;
	device->has_renew_grown = renew(oldest);
	renew_next_sweep(device);
	if (device->renew_next)
		residency_renew_on(device);
	residency_go_on_soon(residency);
	return true;
}
