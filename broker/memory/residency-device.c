/* SPDX-License-Identifier: MIT */
/*
 * Residency: plans leave a device, because it is lost, drained, or forgot to keep them
 *
 * When a device is lost its executor hands back every task, so plans drain; then everything on it
 * is unloaded and uncharged, and the executor is reopened (residency-reopen.c). Placement sees
 * PLAN_DEVICE_FAILED until the device is back, then the plans return as after any eviction.
 *
 * Renewal is for a device that is well, of whose memory the driver has moved a part elsewhere:
 * nothing but allocating it anew brings that back, and nobody knows which part it was.
 */
#include "loop/loop.h"
#include "loop/turn.h"
#include "memory/residency-private.h"
#include "util/checked.h"

/* Each slice of what leaves a device takes at most that part of a turn's budget. */
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
	/* The plan was in the way of no other one, so the plan may be back at once. */
	residence->holdoff_ns = 0;
}

/* Promises first: what is there has an end, since nothing comes any more. */
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

/* Draining, and eviction by somebody else than the tenant */

void residency_set_drained(struct residency *residency, unsigned int index, bool is_drained)
{
	struct residency_device *device = &residency->devices[index];

	device->is_drained = is_drained;
	if (is_drained && device->state == RESIDENCY_DEVICE_UP) {
		device->state = RESIDENCY_DEVICE_DRAINED;
		residency->must_show = true;
		empty(device);
		/* Tells who waits for something to come there, too. */
		residency_review_in(residency, 0);
	} else if (!is_drained && device->state == RESIDENCY_DEVICE_DRAINED) {
		device->state = RESIDENCY_DEVICE_UP;
		residency->must_show = true;
		residency_review_in(residency, 0);
	}
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
		/* What was wanted until now does not bring it back. */
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
	/* Looks at those that must go. */
	if (n_gone >= RESIDENCY_SLICE)
		residency_review_in(residency, 0);
	return is_any;
}

/* Renewal */

enum {
	RENEW_SWEEPS = 4, /* for plans that share with those that share, and so on, at most */
	RENEW_PART = 4,   /* each slice of a sweep takes at most that part of a turn's budget */
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

/* It goes, and its blocks are to be freed. Return: are there more that others share, too? */
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

/* Begins a sweep, or lets those that have left come back. */
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
	 * A block is freed with the last who stays in it, so all must go, and with them those who
	 * share another one with one of those: else such a plan would go several times.
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
