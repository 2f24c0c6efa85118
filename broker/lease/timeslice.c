/* SPDX-License-Identifier: MIT */
/*
 * Timeslices: see timeslice.h.
 *
 * Each tenant has a tag by device: the time that its leases have had the timeslice, divided by its
 * weight. A device's virtual time is the least tag of the tenants whose leases have the timeslice
 * or wait for it, without background leases where there are others, and never decreases. A tenant
 * that comes back gets a tag that is not behind it by more than the lag: programs pause between
 * submissions, and would otherwise lose their share in each pause. No tag is ahead of it by more
 * than max_ahead_ns, so that a program that hung the device does not cost its tenant the device for
 * long.
 *
 * A tenant's time on a device is divided among its leases in the same way, by their shares: each
 * lease has a tag, and each tenant a virtual time of its own on each device.
 *
 * Devices do work in the order in which it came. While leases are overdue, the one whose timeslice
 * ended first is charged, and no other. That ends when a later timeslice has ended: then nothing of
 * the overdue lease is in front of others, as if its program was stopped.
 *
 * Every function takes O(n) of the leases that share the device and of a lease's members that do.
 */
#include "lease/timeslice.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lease/timeslice-private.h"

static const uint64_t max_ahead_ns = 10000000000;
/* Longest time for which an overdue lease is charged; kernels reset a device after less. */
static const uint64_t hanging_ns = 10000000000;
/* Pause in which a program is taken to go on. */
static const uint64_t recent_ns = 20000000;
/* A shorter timeslice may have ended before the program noticed it. */
static const uint64_t least_slice_ns = 500000;

static uint64_t *tag_of(const struct lease *lease)
{
	return tenant_tag(device_of(lease), lease->tenant);
}

/* Return the clock of the leases of the same tenant. */
static struct timeslice_clock *clock_of(const struct lease *lease)
{
	return tenant_clock(device_of(lease), lease->tenant);
}

uint32_t timeslice_share(const struct lease *lease)
{
	return lease->timeslice.share > 0 ? lease->timeslice.share : FAIR_WEIGHT;
}

static enum rbk_timeslice state_of(const struct lease *lease)
{
	return RBK_TIMESLICE_STATE(lease->timeslice.word);
}

static struct lease_member *member_of(struct list_node *node)
{
	return container_of(node, struct lease_member, timeslice.link);
}

/* Publish a state to the lease's members. */
static void lease_publish(struct lease *lease, enum rbk_timeslice state)
{
	struct lease_timeslice *slice = &lease->timeslice;

	slice->n_opened += state == RBK_TIMESLICE_OPEN;
	slice->word = ((slice->word >> 2) + 1) << 2 | state;
	if (!lease->page)
		return;
	/* Pairs with the acquire loads of members. */
	__atomic_store_n(&lease->page->timeslice, slice->word, __ATOMIC_RELEASE);
	syscall(SYS_futex, &lease->page->timeslice, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- Accounts ---- */

/* Return true if the lease keeps the device busy although its timeslice has ended. */
static bool is_overdue(const struct timeslice_device *device, const struct lease *lease,
		       uint64_t now_ns)
{
	const struct lease_timeslice *slice = &lease->timeslice;

	return slice->is_under_way && lease != device->holder && !slice->is_overtaken &&
	       now_ns < slice->closed_ns + hanging_ns;
}

/* Return the lease whose work the device does: the first overdue one, or the holder; or NULL. */
static struct lease *device_user(const struct timeslice_device *device, uint64_t now_ns)
{
	struct lease *user = NULL;

	for (struct list_node *node = device->leases.next; node != &device->leases;
	     node = node->next) {
		struct lease *lease = lease_of(node);

		if (is_overdue(device, lease, now_ns) &&
		    (!user || lease->timeslice.closed_ns < user->timeslice.closed_ns))
			user = lease;
	}
	if (user || !device->holder || !device->holder->timeslice.is_under_way)
		return user;
	return device->holder;
}

/* Return the class that counts now. */
static uint8_t class_of(const struct lease *lease)
{
	return counted_class(device_of(lease), lease->tenant, timeslice_class(lease));
}

/* Return true if the lease is served, or was a moment ago, as between two submissions. */
static bool is_served(const struct timeslice_device *device, const struct lease *lease,
		      uint64_t now_ns)
{
	const struct lease_timeslice *slice = &lease->timeslice;

	if (lease == device->holder)
		return true;
	if (slice->is_under_way)
		return false;
	if (slice->n_wanting > 0)
		return true;
	/* One that used the device for less than it pauses since would hold the others back. */
	return slice->done_ns > 0 &&
	       now_ns < slice->done_ns + min_u64(recent_ns, slice->done_ns - slice->held_ns);
}

static void device_advance(struct timeslice_device *device, uint64_t now_ns)
{
	const uint8_t normal = priority_class(RBK_PRIORITY_NORMAL);

	clock_begin(&device->clock);
	list_for_each (node, &device->leases)
		clock_begin(clock_of(lease_of(node)));
	plans_begin_clocks(device);
	list_for_each (node, &device->leases) {
		const struct lease *lease = lease_of(node);
		uint8_t class = timeslice_class(lease);

		if (!is_served(device, lease, now_ns))
			continue;
		/* Urgent leases must not be ahead of normal ones by more than the lag. */
		class = class < normal ? normal : class;
		clock_note(&device->clock, class, *tag_of(lease));
		clock_note(clock_of(lease), class, lease->timeslice.tag);
	}
	plans_advance(device);
	clock_end(&device->clock);
	list_for_each (node, &device->leases)
		clock_end(clock_of(lease_of(node)));
	plans_end_clocks(device);
}

static struct tenant_shared *shared_of(const struct lease *lease)
{
	return &lease->tenant->leases->shared;
}

/* Count the time for which the lease has waited, up to now. */
static void lease_count_wait(struct lease *lease, uint64_t now_ns)
{
	struct lease_timeslice *slice = &lease->timeslice;
	uint64_t ns = slice->n_wanting > 0 ? saturating_sub(now_ns, slice->counted_ns) : 0;

	slice->counted_ns += ns;
	slice->waited_ns += ns;
	shared_of(lease)->waited_ns += ns;
}

/* Count a wait that ends now, if there is one. */
static void lease_end_wait(struct lease *lease, uint64_t now_ns)
{
	struct lease_timeslice *slice = &lease->timeslice;

	if (slice->n_wanting == 0)
		return;
	lease_count_wait(lease, now_ns);
	recent_note(&slice->longest_wait, saturating_sub(now_ns, slice->wanted_ns), now_ns);
	slice->n_wanting = 0;
}

/* Charge the lease that uses the device, up to now. */
static void device_charge(struct timeslice_device *device, uint64_t now_ns)
{
	const struct lease *user = device_user(device, now_ns);
	uint64_t plans_ns;

	if (device->n_leases > 0)
		plans_charge(device, user, now_ns);
	list_for_each (node, &device->leases) {
		struct lease *lease = lease_of(node);
		struct lease_timeslice *slice = &lease->timeslice;
		uint64_t ns = now_ns > slice->charged_ns ? now_ns - slice->charged_ns : 0;

		slice->charged_ns += ns;
		if (lease != user)
			continue;
		slice->used_ns += ns;
		shared_of(lease)->used_ns += ns;
		/* Tasks may have waited for this lease's work: their times do not say. */
		plans_ns = min_u64(ns / 2, device->plans_owed_ns);
		device->plans_owed_ns -= plans_ns;
		ns -= plans_ns;
		slice->tag += virtual_of(timeslice_share(lease), ns);
		*tag_of(lease) += virtual_of(lease->tenant->weight, ns);
	}
	device_advance(device, now_ns);
	list_for_each (node, &device->leases) {
		struct lease *lease = lease_of(node);
		uint64_t most = virtual_of(lease->tenant->weight, max_ahead_ns);
		uint64_t most_within = virtual_of(timeslice_share(lease), max_ahead_ns);

		*tag_of(lease) = min_u64(*tag_of(lease), device->clock.virtual_ns + most);
		lease->timeslice.tag =
			min_u64(lease->timeslice.tag, clock_of(lease)->virtual_ns + most_within);
	}
}

/* Bound the time that a lease and its tenant are behind, as it begins to use the device or to wait.
 */
static void lease_return(struct lease *lease)
{
	catch_up(&device_of(lease)->clock, lease->tenant->weight, tag_of(lease));
	catch_up(clock_of(lease), timeslice_share(lease), &lease->timeslice.tag);
}

/* ---- Whose turn it is ---- */

/* Return the time from which a lease that waits comes next. */
static uint64_t late_from_ns(const struct lease *lease)
{
	const uint64_t late_ns = device_of(lease)->late_ns;

	return max_u64(lease->timeslice.lacking_ns, late_ns) + TIMESLICE_PATIENCE_NS;
}

static bool has_waited_long(const struct lease *lease, uint64_t now_ns)
{
	return now_ns >= late_from_ns(lease);
}

/* Return true if plans of the lease's tenant have used the device since it has waited long. */
static bool is_behind_own_plans(const struct lease *lease)
{
	return lease->tenant->leases->plans_charged_ns[lease->device] + TIMESLICE_PATIENCE_NS >
	       late_from_ns(lease);
}

/* Return the lease as one that wants the device. */
static struct timeslice_contender contender_of(const struct lease *lease)
{
	return (struct timeslice_contender){
		.tenant = lease->tenant,
		.tag = *tag_of(lease),
		.inner_tag = lease->timeslice.tag,
		.since_ns = lease->timeslice.wanted_ns,
		.late_from_ns = late_from_ns(lease),
		.class = class_of(lease),
		.full_class = timeslice_class(lease),
		.has_patience = is_behind_own_plans(lease),
	};
}

static bool lease_is_before(const struct lease *a, const struct lease *b)
{
	const struct timeslice_contender first = contender_of(a), second = contender_of(b);

	return is_before(&first, &second);
}

/*
 * Return true if a lease must not use the device while there are tasks of a higher priority, or
 * were a moment ago: background work would be in front of each next one.
 */
static bool is_behind_plans(const struct timeslice_device *device, const struct lease *lease,
			    uint64_t now_ns)
{
	const uint8_t class = class_of(lease);

	return class > priority_class(RBK_PRIORITY_NORMAL) &&
	       plans_come_before(device, class, TIMESLICE_PLANS_NS, now_ns);
}

/* Return true if leases have to obey the timeslice, since others use the device. */
static bool is_shared(const struct timeslice_device *device, uint64_t now_ns)
{
	return device->n_leases > 1 ||
	       (device->n_leases == 1 && plans_are_there(device, TIMESLICE_PAUSE_NS, now_ns));
}

/* Return true if the lease can have the timeslice once other leases let it. */
static bool is_waiting(const struct timeslice_device *device, const struct lease *lease,
		       uint64_t now_ns)
{
	if (lease->timeslice.n_wanting == 0 || lease->timeslice.is_under_way)
		return false;
	return !is_behind_plans(device, lease, now_ns) || has_waited_long(lease, now_ns);
}

/*
 * Return the next lease: the first one, or one that has waited long behind higher priorities;
 * *ret_is_late: it has waited long. NULL: none waits that has told that its earlier work has ended.
 */
static struct lease *device_choose(struct timeslice_device *device, uint64_t now_ns,
				   bool *ret_is_late)
{
	struct lease *best = NULL, *late = NULL;

	list_for_each (node, &device->leases) {
		struct lease *lease = lease_of(node);

		if (is_waiting(device, lease, now_ns) && (!best || lease_is_before(lease, best)))
			best = lease;
	}
	list_for_each (node, &device->leases) {
		struct lease *lease = lease_of(node);

		if (is_waiting(device, lease, now_ns) && has_waited_long(lease, now_ns) &&
		    (class_of(lease) > class_of(best) ||
		     (lease_is_before(best, lease) && is_behind_own_plans(lease))) &&
		    (!late || lease->timeslice.lacking_ns < late->timeslice.lacking_ns))
			late = lease;
	}
	*ret_is_late = late || (best && has_waited_long(best, now_ns));
	return late ? late : best;
}

/* Return the time from which the holder, if it has the device until then, is not urgent. */
static uint64_t ahead_from_ns(const struct lease *holder)
{
	const uint64_t weight = holder->tenant->weight;
	uint64_t most = device_of(holder)->clock.virtual_ns + virtual_of(weight, TIMESLICE_LAG_NS);
	uint64_t left = most - min_u64(*tag_of(holder), most);

	if (class_of(holder) >= priority_class(RBK_PRIORITY_NORMAL))
		return UINT64_MAX;
	/* Tags count in units of the weight. */
	return holder->timeslice.charged_ns + time_of(weight, left + 1) + 1;
}

/*
 * Return the time at which the holder's timeslice ends because @next waits: once its tenant has
 * used more, or the holder itself if both are of one tenant. Without that, two tenants with one
 * program each would have equal parts: the holder does not wait when its timeslice ends. A holder
 * that is not charged waits for an overdue lease.
 */
static uint64_t end_for_ns(const struct lease *holder, const struct timeslice_contender *next,
			   bool is_charged)
{
	const struct timeslice_contender own = contender_of(holder);
	uint64_t least_ns = holder->timeslice.held_ns + TIMESLICE_NS, behind, due_ns;

	if (next->class < own.class)
		return holder->timeslice.was_late ? least_ns : 0;
	if (next->class > own.class)
		return max_u64(least_ns, min_u64(next->late_from_ns, ahead_from_ns(holder)));
	if (!is_charged)
		return least_ns;
	if (own.tenant == next->tenant) {
		behind = next->inner_tag - min_u64(own.inner_tag, next->inner_tag);
		due_ns = holder->timeslice.charged_ns + time_of(timeslice_share(holder), behind);
	} else {
		behind = next->tag - min_u64(own.tag, next->tag);
		/* One that was ahead is urgent again. */
		if (next->full_class < next->class)
			behind -=
				min_u64(behind, virtual_of(next->tenant->weight, TIMESLICE_LAG_NS));
		due_ns = holder->timeslice.charged_ns + time_of(own.tenant->weight, behind);
	}
	if (next->has_patience)
		due_ns = min_u64(due_ns, next->late_from_ns);
	return max_u64(least_ns, due_ns);
}

/*
 * Return the time at which the holder's timeslice ends, or is overdue. UINT64_MAX: nothing waits
 * for that. *ret_for is the lease that it ends for; NULL: it ends for tasks of plans.
 */
static uint64_t holder_end_ns(const struct timeslice_device *device, uint64_t now_ns,
			      const struct lease **ret_for)
{
	const struct lease *holder = device->holder;
	const bool is_charged = device_user(device, now_ns) == holder;
	uint64_t end_ns = UINT64_MAX, plans_end_ns = UINT64_MAX;

	*ret_for = NULL;
	for (const struct list_node *node = device->leases.next; node != &device->leases;
	     node = node->next) {
		const struct lease *lease = container_of(node, struct lease, timeslice.link);
		struct timeslice_contender contender;
		uint64_t lease_end_ns;

		if (!is_waiting(device, lease, now_ns))
			continue;
		contender = contender_of(lease);
		lease_end_ns = end_for_ns(holder, &contender, is_charged);
		if (lease_end_ns < end_ns ||
		    (*ret_for && lease_end_ns == end_ns && lease_is_before(lease, *ret_for)))
			*ret_for = lease;
		end_ns = min_u64(end_ns, lease_end_ns);
	}
	for (const struct list_node *node = device->plans.next; node != &device->plans;
	     node = node->next) {
		const struct timeslice_plans *plans =
			container_of(node, struct timeslice_plans, link);
		struct timeslice_contender contender;

		if (now_ns < plans_contend_ns(plans))
			continue;
		contender = plans_contender(device, plans);
		plans_end_ns = min_u64(plans_end_ns, end_for_ns(holder, &contender, is_charged));
	}
	if (state_of(holder) == RBK_TIMESLICE_CLOSED)
		return min_u64(end_ns, plans_end_ns) == UINT64_MAX
			       ? UINT64_MAX
			       : holder->timeslice.closed_ns + TIMESLICE_GRACE_NS;
	if (is_behind_plans(device, holder, now_ns))
		plans_end_ns =
			holder->timeslice.was_late ? holder->timeslice.held_ns + TIMESLICE_NS : 0;
	if (plans_end_ns < end_ns)
		*ret_for = NULL;
	return min_u64(end_ns, plans_end_ns);
}

static void device_give(struct timeslice_device *device, struct lease *lease, bool is_late,
			uint64_t now_ns)
{
	struct lease_timeslice *slice = &lease->timeslice;

	device->holder = lease;
	slice->was_late = is_late;
	if (slice->was_late)
		device->late_ns = now_ns;
	lease_return(lease);
	slice->record = (struct timeslice_record){
		.began_ns = now_ns, .class = timeslice_class(lease), .is_late = is_late};
	if (slice->n_wanting > 0) {
		slice->record.wanted_ns = slice->wanted_ns;
		slice->record.plans_ns = plans_total_ns(device, slice->wanted_class, now_ns) -
					 slice->wanted_plans_ns;
	}
	lease_end_wait(lease, now_ns);
	slice->held_ns = now_ns;
	/* The rest of the work of the lease before it is that lease's time: timeslice_ending(). */
	slice->charged_ns = max_u64(slice->charged_ns, now_ns);
	slice->is_under_way = true;
	slice->is_overtaken = slice->has_given_up = false;
	/* Members that did not wait have nothing to tell. */
	list_for_each (node, &lease->timeslice.members) {
		struct member_timeslice *member = &member_of(node)->timeslice;

		slice->n_done -= member->is_wanting && member->is_done;
		member->is_done = member->is_done && !member->is_wanting;
		member->is_wanting = false;
	}
	lease_publish(lease, RBK_TIMESLICE_HELD);
}

/* Note that nothing of the lease's timeslice is under way any more. */
static void lease_end(struct lease *lease, uint64_t now_ns)
{
	const struct timeslices *timeslices = &lease->leases->timeslices;
	struct lease_timeslice *slice = &lease->timeslice;

	if (!slice->is_under_way)
		return;
	slice->is_under_way = false;
	slice->record.ended_ns = now_ns;
	if (timeslices->ended)
		timeslices->ended(timeslices->context, lease, &slice->record);
}

/* Leave the only lease unrestrained. */
static void device_open(struct timeslice_device *device, uint64_t now_ns)
{
	struct lease *lease = lease_of(device->leases.next);
	struct lease_timeslice *slice = &lease->timeslice;

	device->holder = lease;
	slice->record.is_alone = true;
	lease_end(lease, now_ns);
	slice->n_done = 0;
	lease_end_wait(lease, now_ns);
	list_for_each (node, &lease->timeslice.members) {
		member_of(node)->timeslice.is_wanting = false;
		member_of(node)->timeslice.is_done = false;
	}
	if (state_of(lease) != RBK_TIMESLICE_OPEN)
		lease_publish(lease, RBK_TIMESLICE_OPEN);
}

/* Restrain leases that were alone, or have joined. */
static void device_restrain(struct timeslice_device *device, uint64_t now_ns)
{
	list_for_each (node, &device->leases) {
		struct lease *lease = lease_of(node);

		if (state_of(lease) != RBK_TIMESLICE_OPEN)
			continue;
		if (lease == device->holder) {
			device_give(device, lease, false, now_ns);
			/* It had the device so far, and no task waited. */
			if (device->n_leases == 1) {
				plans_forgive(device, lease);
				lease->timeslice.held_ns = saturating_sub(now_ns, TIMESLICE_NS);
			}
		} else {
			lease_publish(lease, RBK_TIMESLICE_CLOSED);
		}
	}
}

/* Note that the holder's timeslice is to end, for a lease or, if NULL, for tasks of plans. */
static void holder_close(struct lease *holder, const struct lease *next, uint64_t now_ns)
{
	struct timeslice_record *record = &holder->timeslice.record;

	holder->timeslice.closed_ns = record->closed_ns = now_ns;
	record->for_lease = next ? next->number : 0;
	record->for_tenant = next ? next->tenant->number : 0;
	record->is_for_plans = !next;
	lease_publish(holder, RBK_TIMESLICE_CLOSED);
}

/* End the holder's timeslice, or announce its end. */
static void holder_press(struct timeslice_device *device, uint64_t now_ns)
{
	struct lease *holder = device->holder;
	struct lease_timeslice *slice = &holder->timeslice;
	const struct lease *next;
	uint64_t end_ns = holder_end_ns(device, now_ns, &next);
	bool is_due = now_ns >= end_ns;

	if (state_of(holder) == RBK_TIMESLICE_CLOSED) {
		if (!is_due)
			return;
		slice->n_overdue++;
		slice->record.is_overdue = true;
		shared_of(holder)->n_overdue++;
		device->holder = NULL;
	} else if (is_due) {
		if (now_ns >= slice->held_ns + least_slice_ns)
			slice->lacking_ns = 0;
		holder_close(holder, next, now_ns);
	} else if (end_ns < UINT64_MAX && state_of(holder) == RBK_TIMESLICE_HELD) {
		lease_publish(holder, RBK_TIMESLICE_WANTED);
	}
}

/* Note that a timeslice or a turn has ended, and nothing of earlier ones is in front of its work.
 */
static void device_overtake(struct timeslice_device *device, uint64_t began_ns)
{
	list_for_each (node, &device->leases) {
		struct lease_timeslice *slice = &lease_of(node)->timeslice;

		if (slice->is_under_way && lease_of(node) != device->holder &&
		    slice->closed_ns <= began_ns)
			slice->is_overtaken = true;
	}
}

/* Give the device to the lease, or to the plans, that come next. */
static void device_begin(struct timeslice_device *device, struct lease *next, bool is_late,
			 uint64_t now_ns)
{
	const struct timeslice_contender contender =
		next ? contender_of(next) : (struct timeslice_contender){.class = UINT8_MAX};
	struct timeslice_plans *plans;
	struct timeslice_contender first;
	bool are_late = false, is_turn;

	plans = plans_choose(device, next ? &contender : NULL, is_late, now_ns, &are_late);
	if (plans)
		first = plans_contender(device, plans);
	/* Without a lease that waits, tasks under way are enough for a turn. */
	if (!next)
		is_turn = device->plans_classes != 0;
	else if (are_late && is_late)
		is_turn = plans->waiting_ns < next->timeslice.lacking_ns;
	else
		is_turn = plans && (are_late || (!is_late && is_before(&first, &contender)));
	if (is_turn) {
		plans_begin_turn(device, are_late ? plans : NULL, now_ns);
		plans_go_on(device, next ? &contender : NULL, is_late, device_user(device, now_ns),
			    now_ns);
	} else if (next) {
		device_give(device, next, is_late, now_ns);
		holder_press(device, now_ns);
	}
}

/* Note whether the plans' turn goes on beside @next. */
static void device_go_on(struct timeslice_device *device, const struct lease *next, bool is_late,
			 uint64_t now_ns)
{
	const bool is_user = device_user(device, now_ns);
	struct timeslice_contender contender;

	if (next)
		contender = contender_of(next);
	if (plans_go_on(device, next ? &contender : NULL, is_late, is_user, now_ns))
		return;
	/* Tasks that have ended show that nothing of an overdue lease is in front of others. */
	if (device->turn_closed_ns > 0 && now_ns < device->turn_closed_ns + TIMESLICE_GRACE_NS)
		device_overtake(device, device->turn_ns);
	plans_end_turn(device, is_user, now_ns);
	device_advance(device, now_ns);
}

/* Decide who has the device. */
static void device_decide(struct timeslice_device *device, uint64_t now_ns)
{
	bool is_late = false;
	struct lease *next;

	device_charge(device, now_ns);
	if (!is_shared(device, now_ns)) {
		if (device->is_plans_turn)
			plans_end_turn(device, false, now_ns);
		if (device->n_leases == 1)
			device_open(device, now_ns);
		return;
	}
	device_restrain(device, now_ns);
	if (device->holder)
		holder_press(device, now_ns);
	if (device->holder)
		return;
	next = device_choose(device, now_ns, &is_late);
	if (device->is_plans_turn)
		device_go_on(device, next, is_late, now_ns);
	if (!device->is_plans_turn)
		device_begin(device, next, is_late, now_ns);
}

static void device_run(struct timeslice_device *device, uint64_t now_ns)
{
	struct timeslice_contender holder, contender;
	const struct lease *next;
	bool is_late, has_holder;

	if (device->n_leases == 0)
		return;
	device_decide(device, now_ns);
	if (list_is_empty(&device->plans))
		return;
	next = device_choose(device, now_ns, &is_late);
	if (next)
		contender = contender_of(next);
	/* A lease that is alone, and open, holds nothing back. */
	has_holder = device->holder && state_of(device->holder) != RBK_TIMESLICE_OPEN;
	if (has_holder)
		holder = contender_of(device->holder);
	plans_show(device, has_holder ? &holder : NULL, next ? &contender : NULL, now_ns);
}

/* ---- Events ---- */

uint8_t timeslice_class(const struct lease *lease)
{
	const uint8_t most = priority_class(lease->tenant->priority_max);

	return lease->timeslice.class > most ? lease->timeslice.class : most;
}

void timeslices_init(struct timeslices *timeslices)
{
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++) {
		timeslices->devices[i] = (struct timeslice_device){.number = (uint8_t)i};
		list_init(&timeslices->devices[i].leases);
		list_init(&timeslices->devices[i].plans);
	}
}

static void lease_find_class(struct lease *lease)
{
	/* Its last member is leaving. */
	if (lease->timeslice.n_members == 0)
		return;
	lease->timeslice.class = UINT8_MAX;
	if (lease->timeslice.set_priority > 0 &&
	    lease->timeslice.set_priority != 1 + RBK_PRIORITY_NONE) {
		lease->timeslice.class = priority_class(lease->timeslice.set_priority - 1);
		return;
	}
	list_for_each (node, &lease->timeslice.members) {
		const struct member_timeslice *member = &member_of(node)->timeslice;

		if (member->is_sharing && member->class < lease->timeslice.class)
			lease->timeslice.class = member->class;
	}
}

/* Give the lease back the time in its timeslice that was the tasks', as for device_charge(). */
static void lease_refund(struct lease *lease, uint64_t now_ns)
{
	struct lease_timeslice *slice = &lease->timeslice;
	const uint64_t ns = min_u64(plans_settle(device_of(lease), now_ns),
				    saturating_sub(now_ns, slice->held_ns) / 2);

	slice->tag = saturating_sub(slice->tag, virtual_of(timeslice_share(lease), ns));
	*tag_of(lease) = saturating_sub(*tag_of(lease), virtual_of(lease->tenant->weight, ns));
}

/* End the lease's timeslice if all members have told DONE. */
static void lease_check_done(struct lease *lease, uint64_t now_ns)
{
	struct timeslice_device *device = device_of(lease);
	struct lease_timeslice *slice = &lease->timeslice;

	if (slice->n_done < slice->n_members || state_of(lease) == RBK_TIMESLICE_OPEN)
		return;
	/* Work that is still under way may wait for that of an overdue lease. */
	if (slice->is_under_way && !slice->has_given_up)
		device_overtake(device, slice->held_ns);
	if (slice->is_under_way && device->holder == lease)
		lease_refund(lease, now_ns);
	lease_end(lease, now_ns);
	slice->done_ns = now_ns;
	if (slice->n_wanting == 0)
		slice->lacking_ns = 0;
	if (device->holder != lease)
		return;
	device->holder = NULL;
	if (state_of(lease) == RBK_TIMESLICE_CLOSED)
		return;
	slice->lacking_ns = 0;
	lease_publish(lease, RBK_TIMESLICE_CLOSED);
}

int timeslice_join(struct lease_member *member, uint32_t priority, uint64_t now_ns)
{
	struct lease *lease = member->lease;
	struct timeslice_device *device = device_of(lease);
	uint32_t *n_leases = &lease->tenant->leases->n_sharing[lease->device];

	if (lease->timeslice.n_members == 0) {
		if (*n_leases >= TIMESLICE_MAX_LEASES)
			return TIMESLICE_E_FULL;
		(*n_leases)++;
		list_init(&lease->timeslice.members);
		list_append(&device->leases, &lease->timeslice.link);
		plans_begin_account(lease);
		device->n_leases++;
		lease->leases->timeslices.n_leases++;
		lease->leases->timeslices.shared_devices |= 1u << lease->device;
		/* It did not wait so far, so its tenant's other leases owe it nothing. */
		lease->timeslice.tag = max_u64(lease->timeslice.tag, clock_of(lease)->virtual_ns);
		lease_return(lease);
	}
	if (!member->timeslice.is_sharing) {
		if (lease->timeslice.n_members >= TIMESLICE_MAX_MEMBERS)
			return TIMESLICE_E_FULL;
		lease->timeslice.n_members++;
		list_append(&lease->timeslice.members, &member->timeslice.link);
		/* While the lease is open, it may have begun to use the device. */
		member->timeslice.is_done = state_of(lease) != RBK_TIMESLICE_OPEN;
		lease->timeslice.n_done += member->timeslice.is_done;
	}
	member->timeslice.is_sharing = true;
	member->timeslice.class = priority_class(priority);
	lease_find_class(lease);
	device_run(device, now_ns);
	return 0;
}

/* Have a lease be ahead or behind by the same time of the device as with its former share. */
static void lease_rescale(struct lease *lease, uint32_t old_share)
{
	const uint64_t virtual_ns = clock_of(lease)->virtual_ns, share = timeslice_share(lease);
	uint64_t *tag = &lease->timeslice.tag;

	if (*tag > virtual_ns)
		*tag = virtual_ns + virtual_of(share, time_of(old_share, *tag - virtual_ns));
	else
		*tag = saturating_sub(virtual_ns,
				      virtual_of(share, time_of(old_share, virtual_ns - *tag)));
}

void timeslice_set(struct lease *lease, uint32_t priority, uint32_t share, uint64_t now_ns)
{
	bool is_sharing = lease->timeslice.n_members > 0;
	const uint32_t old_share = timeslice_share(lease);

	if (is_sharing)
		device_charge(device_of(lease), now_ns);
	if (priority > 0)
		lease->timeslice.set_priority = priority;
	if (share > 0)
		lease->timeslice.share = share;
	if (!is_sharing)
		return;
	lease_rescale(lease, old_share);
	lease_find_class(lease);
	device_run(device_of(lease), now_ns);
}

void timeslice_want(struct lease_member *member, uint64_t now_ns)
{
	struct lease *lease = member->lease;
	struct timeslice_device *device = device_of(lease);
	struct lease_timeslice *slice = &lease->timeslice;

	if (state_of(lease) != RBK_TIMESLICE_CLOSED) {
		slice->n_done -= member->timeslice.is_done;
		member->timeslice.is_done = false;
		return;
	}
	if (member->timeslice.is_wanting)
		return;
	/* The virtual time advances by what others have used, before the lease counts. */
	device_charge(device, now_ns);
	member->timeslice.is_wanting = true;
	if (slice->n_wanting++ == 0) {
		slice->wanted_ns = slice->counted_ns = now_ns;
		slice->wanted_class = class_of(lease);
		slice->wanted_plans_ns = plans_total_ns(device, slice->wanted_class, now_ns);
		if (slice->lacking_ns == 0)
			slice->lacking_ns = now_ns;
		lease_return(lease);
	}
	device_run(device, now_ns);
}

void timeslice_done(struct lease_member *member, uint32_t word, uint64_t now_ns)
{
	struct lease *lease = member->lease;

	if (word != lease->timeslice.word || member->timeslice.is_done)
		return;
	device_charge(device_of(lease), now_ns);
	member->timeslice.is_done = true;
	lease->timeslice.n_done++;
	lease_check_done(lease, now_ns);
	device_run(device_of(lease), now_ns);
}

void timeslice_give_up(struct lease_member *member, uint32_t word, uint64_t now_ns)
{
	if (word == member->lease->timeslice.word && !member->timeslice.is_done)
		member->lease->timeslice.has_given_up = true;
	timeslice_done(member, word, now_ns);
}

void timeslice_ending(struct lease_member *member, uint32_t word, uint64_t rest_ns, uint64_t now_ns)
{
	struct lease *lease = member->lease;

	/* Time that has been charged is not charged again, to whichever lease. */
	if (word == lease->timeslice.word && !member->timeslice.is_done)
		device_charge(device_of(lease), now_ns + min_u64(rest_ns, TIMESLICE_REST_NS));
	timeslice_done(member, word, now_ns);
}

void timeslice_leave(struct lease_member *member, uint64_t now_ns)
{
	struct lease *lease = member->lease;
	struct timeslice_device *device;
	struct lease_timeslice *slice;
	struct leases *leases;

	if (!lease || !member->timeslice.is_sharing)
		return;
	leases = lease->leases;
	device = device_of(lease);
	slice = &lease->timeslice;
	device_charge(device, now_ns);
	slice->n_members--;
	slice->n_done -= member->timeslice.is_done;
	if (member->timeslice.is_wanting && slice->n_wanting == 1)
		lease_end_wait(lease, now_ns);
	else
		slice->n_wanting -= member->timeslice.is_wanting;
	list_remove(&member->timeslice.link);
	member->timeslice = (struct member_timeslice){.is_sharing = false};
	lease_find_class(lease);
	slice->record.is_left = slice->n_members == 0;
	lease_check_done(lease, now_ns);
	if (slice->n_members == 0) {
		list_remove(&slice->link);
		device->n_leases--;
		lease->leases->timeslices.n_leases--;
		lease->tenant->leases->n_sharing[lease->device]--;
		if (device->holder == lease)
			device->holder = NULL;
		slice->is_under_way = false;
		lease_publish(lease, RBK_TIMESLICE_OPEN);
	}
	if (device->n_leases == 0) {
		plans_forget(device);
		leases->timeslices.shared_devices &= ~(1u << device->number);
	}
	device_run(device, now_ns);
}

void timeslice_share_plans(struct timeslices *timeslices, uint8_t number,
			   struct timeslice_plans *changed, uint64_t now_ns)
{
	struct timeslice_device *device = &timeslices->devices[number];

	if (device->n_leases == 0)
		return;
	device_charge(device, now_ns);
	plans_note(device, changed, now_ns);
	device_run(device, now_ns);
}

void timeslice_skip(struct timeslices *timeslices, uint64_t now_ns)
{
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++) {
		timeslices->devices[i].turn_charged_ns = now_ns;
		list_for_each (node, &timeslices->devices[i].leases)
			lease_of(node)->timeslice.charged_ns = now_ns;
	}
}

void timeslice_count_time(struct timeslices *timeslices, uint64_t now_ns)
{
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++) {
		if (timeslices->devices[i].n_leases == 0)
			continue;
		device_charge(&timeslices->devices[i], now_ns);
		list_for_each (node, &timeslices->devices[i].leases)
			lease_count_wait(lease_of(node), now_ns);
	}
}

void timeslice_run(struct timeslices *timeslices, uint64_t now_ns)
{
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++)
		if (timeslices->devices[i].n_leases > 0)
			device_run(&timeslices->devices[i], now_ns);
}

/* Return the time at which something is due because of plans, or of leases that wait long. */
static uint64_t plans_next_ns(const struct timeslice_device *device, uint64_t now_ns)
{
	const uint64_t last_ns = plans_last_ns(device, TIMESLICE_CLASSES);
	uint64_t next_ns = UINT64_MAX;

	if (last_ns == 0)
		return UINT64_MAX;
	if (device->holder)
		next_ns = plans_next_contender_ns(device, now_ns);
	if (!device->plans_classes && device->n_leases == 1 &&
	    state_of(lease_of(device->leases.next)) != RBK_TIMESLICE_OPEN)
		next_ns = min_u64(next_ns, last_ns + TIMESLICE_PAUSE_NS);
	for (const struct list_node *node = device->leases.next; node != &device->leases;
	     node = node->next) {
		const struct lease *lease = container_of(node, struct lease, timeslice.link);

		if (lease->timeslice.n_wanting == 0 || lease->timeslice.is_under_way)
			continue;
		if (is_waiting(device, lease, now_ns)) {
			if (device->is_plans_turn)
				next_ns = min_u64(next_ns, plans_turn_ns(device, now_ns));
			continue;
		}
		next_ns = min_u64(next_ns, late_from_ns(lease));
		if (!plans_come_before(device, class_of(lease), 0, now_ns))
			next_ns = min_u64(next_ns, plans_last_ns(device, class_of(lease)) +
							   TIMESLICE_PLANS_NS);
	}
	return next_ns;
}

uint64_t timeslice_next_ns(const struct timeslices *timeslices, uint64_t now_ns)
{
	uint64_t next_ns = UINT64_MAX;
	const struct lease *next;

	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++) {
		const struct timeslice_device *device = &timeslices->devices[i];

		if (device->n_leases == 0)
			continue;
		next_ns = min_u64(next_ns, plans_next_ns(device, now_ns));
		if (is_shared(device, now_ns) && device->holder)
			next_ns = min_u64(next_ns, holder_end_ns(device, now_ns, &next));
	}
	return next_ns;
}
