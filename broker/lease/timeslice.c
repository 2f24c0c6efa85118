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

#include "lease/lease.h"
#include "tenant/tenant.h"
#include "util/fair.h"
#include "util/number.h"
#include "util/priority.h"

static const uint64_t max_ahead_ns = 10000000000;
/* Longest time for which an overdue lease is charged; kernels reset a device after less. */
static const uint64_t hanging_ns = 10000000000;
/* Pause in which a program is taken to go on. */
static const uint64_t recent_ns = 20000000;
/* A shorter timeslice may have ended before the program noticed it. */
static const uint64_t least_slice_ns = 500000;

static struct lease *lease_of(struct list_node *node)
{
	return container_of(node, struct lease, timeslice.link);
}

static struct timeslice_device *device_of(const struct lease *lease)
{
	return &lease->leases->timeslices.devices[lease->device];
}

static uint64_t *tag_of(const struct lease *lease)
{
	return &lease->tenant->leases->timeslice_ns[lease->device];
}

/* Return the clock of the leases of the same tenant. */
static struct timeslice_clock *clock_of(const struct lease *lease)
{
	return &lease->tenant->leases->timeslice_clocks[lease->device];
}

uint32_t timeslice_share(const struct lease *lease)
{
	return lease->timeslice.share > 0 ? lease->timeslice.share : FAIR_WEIGHT;
}

/* Return @ns of the device's time as a difference of tags of this weight. */
static uint64_t virtual_of(uint64_t weight, uint64_t ns)
{
	return ns * FAIR_WEIGHT / max_u64(weight, 1);
}

/* Return the device's time for a difference of tags of this weight. */
static uint64_t time_of(uint64_t weight, uint64_t tag)
{
	return tag * max_u64(weight, 1) / FAIR_WEIGHT;
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

/* Return true if the tenant has had more than its share, by more than the lag. */
static bool is_ahead(const struct lease *lease)
{
	uint64_t lag = virtual_of(lease->tenant->weight, TIMESLICE_LAG_NS);

	return *tag_of(lease) > device_of(lease)->clock.virtual_ns + lag;
}

/* Return the class that counts now. */
static uint8_t class_of(const struct lease *lease)
{
	const uint8_t normal = priority_class(RBK_PRIORITY_NORMAL), class = timeslice_class(lease);

	return class < normal && is_ahead(lease) ? normal : class;
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

/* Begin to look for the least tag of those that are served. */
static void clock_begin(struct timeslice_clock *clock)
{
	clock->least = UINT64_MAX;
	clock->best = UINT8_MAX;
}

/* Note the tag of one that is served; only those of the best class count. */
static void clock_note(struct timeslice_clock *clock, uint8_t class, uint64_t tag)
{
	if (class < clock->best)
		clock->least = UINT64_MAX;
	if (class <= clock->best)
		clock->least = min_u64(clock->least, tag);
	clock->best = class < clock->best ? class : clock->best;
}

static void clock_end(struct timeslice_clock *clock)
{
	if (clock->least != UINT64_MAX)
		clock->virtual_ns = max_u64(clock->virtual_ns, clock->least);
}

static void device_advance(struct timeslice_device *device, uint64_t now_ns)
{
	const uint8_t normal = priority_class(RBK_PRIORITY_NORMAL);

	clock_begin(&device->clock);
	list_for_each (node, &device->leases)
		clock_begin(clock_of(lease_of(node)));
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
	clock_end(&device->clock);
	list_for_each (node, &device->leases)
		clock_end(clock_of(lease_of(node)));
}

/*
 * Return the time that plans of a tenant, or of all, have used since *known, which is brought up to
 * date. A prediction may be corrected downwards, and a tenant begins at 0 again: these count 0.
 */
static uint64_t plans_used_since(const struct timeslices *timeslices, const struct tenant *tenant,
				 uint8_t device, uint64_t *known)
{
	float factor = 1;
	const uint64_t used_ns =
		timeslices->plans_used(timeslices->plans_context, tenant, device, &factor);
	const uint64_t more_ns = used_ns > *known ? used_ns - *known : 0;

	*known = used_ns;
	return (uint64_t)((double)more_ns / (double)(factor > 1 ? factor : 1));
}

/* Charge a tenant for what its plans have used since the last look. */
static void charge_plans(const struct timeslices *timeslices, const struct lease *lease)
{
	const uint64_t weight = lease->tenant->weight;
	const uint64_t most =
		device_of(lease)->clock.virtual_ns + virtual_of(weight, TIMESLICE_DEBT_NS);
	struct tenant_leases *own = lease->tenant->leases;
	uint64_t *tag = tag_of(lease), *looked_ns = &own->plans_looked_ns[lease->device];
	uint64_t used_ns;

	/* The tenant may have several leases. */
	if (*looked_ns == device_of(lease)->looked_ns)
		return;
	*looked_ns = device_of(lease)->looked_ns;
	used_ns = plans_used_since(timeslices, lease->tenant, lease->device,
				   &own->plans_used_ns[lease->device]);
	if (used_ns == 0)
		return;
	*tag = max_u64(*tag, min_u64(*tag + virtual_of(weight, used_ns), most));
	own->plans_charged_ns[lease->device] = device_of(lease)->looked_ns;
}

/* Look at what plans have used, since the last look. */
static void device_look(struct timeslice_device *device, uint64_t now_ns)
{
	const struct lease *first = lease_of(device->leases.next);
	const struct timeslices *timeslices = &first->leases->timeslices;

	if (!timeslices->plans_used || now_ns < device->looked_ns + TIMESLICE_LOOK_NS)
		return;
	/* None have ended since. */
	if (!device->has_plans && device->plans_ns < device->looked_ns)
		return;
	device->looked_ns = now_ns;
	device->plans_owed_ns +=
		plans_used_since(timeslices, NULL, first->device, &device->plans_used_ns);
	/* They may have used the device while no lease had it. */
	device->plans_owed_ns = min_u64(device->plans_owed_ns, TIMESLICE_LAG_NS);
	list_for_each (node, &device->leases)
		charge_plans(timeslices, lease_of(node));
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
		device_look(device, now_ns);
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

/* Bound the time by which a tag of this weight is behind. */
static void catch_up(const struct timeslice_clock *clock, uint64_t weight, uint64_t *tag)
{
	const uint64_t lag = virtual_of(weight, TIMESLICE_LAG_NS);

	if (*tag + lag < clock->virtual_ns)
		*tag = clock->virtual_ns - lag;
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

/* Return true if @a, which waits, comes before @b, which waits. */
static bool is_before(const struct lease *a, const struct lease *b)
{
	if (class_of(a) != class_of(b))
		return class_of(a) < class_of(b);
	if (*tag_of(a) != *tag_of(b))
		return *tag_of(a) < *tag_of(b);
	if (a->tenant == b->tenant && a->timeslice.tag != b->timeslice.tag)
		return a->timeslice.tag < b->timeslice.tag;
	return a->timeslice.wanted_ns < b->timeslice.wanted_ns;
}

/* Return true if a lease of this class waits while tasks of plans are under way. */
static bool is_behind_plans(const struct lease *lease)
{
	return class_of(lease) > priority_class(RBK_PRIORITY_NORMAL);
}

static bool has_plans(const struct timeslice_device *device, uint64_t pause_ns, uint64_t now_ns)
{
	return device->has_plans || (device->plans_ns > 0 && now_ns < device->plans_ns + pause_ns);
}

/* Return the time for which tasks of plans were under way. */
static uint64_t plans_total_ns(const struct timeslice_device *device, uint64_t now_ns)
{
	return device->plans_total_ns + (device->has_plans ? now_ns - device->plans_ns : 0);
}

/* Return true if leases have to obey the timeslice, since others use the device. */
static bool is_shared(const struct timeslice_device *device, uint64_t now_ns)
{
	return device->n_leases > 1 ||
	       (device->n_leases == 1 && has_plans(device, TIMESLICE_PAUSE_NS, now_ns));
}

/* Return true if the lease can have the timeslice once other leases let it. */
static bool is_waiting(const struct timeslice_device *device, const struct lease *lease,
		       uint64_t now_ns)
{
	if (lease->timeslice.n_wanting == 0 || lease->timeslice.is_under_way)
		return false;
	return !is_behind_plans(lease) || has_waited_long(lease, now_ns) ||
	       !has_plans(device, TIMESLICE_PLANS_NS, now_ns);
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

		if (is_waiting(device, lease, now_ns) && (!best || is_before(lease, best)))
			best = lease;
	}
	list_for_each (node, &device->leases) {
		struct lease *lease = lease_of(node);

		if (is_waiting(device, lease, now_ns) && has_waited_long(lease, now_ns) &&
		    (class_of(lease) > class_of(best) ||
		     (is_before(best, lease) && is_behind_own_plans(lease))) &&
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
	return holder->timeslice.charged_ns + time_of(weight, left) + 1;
}

/*
 * Return the time at which the holder's timeslice ends because @next waits: once its tenant has
 * used more, or the holder itself if both are of one tenant. Without that, two tenants with one
 * program each would have equal parts: the holder does not wait when its timeslice ends. A holder
 * that is not charged waits for an overdue lease.
 */
static uint64_t end_for_ns(const struct lease *holder, const struct lease *next, bool is_charged)
{
	uint64_t least_ns = holder->timeslice.held_ns + TIMESLICE_NS, behind, due_ns;
	uint8_t class = class_of(holder), next_class = class_of(next);

	if (next_class < class)
		return holder->timeslice.was_late ? least_ns : 0;
	if (next_class > class)
		return max_u64(least_ns, min_u64(late_from_ns(next), ahead_from_ns(holder)));
	if (!is_charged)
		return least_ns;
	if (holder->tenant == next->tenant) {
		behind = next->timeslice.tag - min_u64(holder->timeslice.tag, next->timeslice.tag);
		due_ns = holder->timeslice.charged_ns + time_of(timeslice_share(holder), behind);
	} else {
		behind = *tag_of(next) - min_u64(*tag_of(holder), *tag_of(next));
		/* A lease that was ahead is urgent again. */
		if (timeslice_class(next) < next_class)
			behind -=
				min_u64(behind, virtual_of(next->tenant->weight, TIMESLICE_LAG_NS));
		due_ns = holder->timeslice.charged_ns + time_of(holder->tenant->weight, behind);
	}
	if (is_behind_own_plans(next))
		due_ns = min_u64(due_ns, late_from_ns(next));
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
	uint64_t end_ns = UINT64_MAX, plans_end_ns;

	*ret_for = NULL;
	for (const struct list_node *node = device->leases.next; node != &device->leases;
	     node = node->next) {
		const struct lease *lease = container_of(node, struct lease, timeslice.link);
		uint64_t lease_end_ns;

		if (!is_waiting(device, lease, now_ns))
			continue;
		lease_end_ns = end_for_ns(holder, lease, is_charged);
		if (lease_end_ns < end_ns ||
		    (*ret_for && lease_end_ns == end_ns && is_before(lease, *ret_for)))
			*ret_for = lease;
		end_ns = min_u64(end_ns, lease_end_ns);
	}
	if (state_of(holder) == RBK_TIMESLICE_CLOSED)
		return end_ns == UINT64_MAX ? UINT64_MAX
					    : holder->timeslice.closed_ns + TIMESLICE_GRACE_NS;
	if (is_behind_plans(holder) && has_plans(device, TIMESLICE_PLANS_NS, now_ns)) {
		plans_end_ns =
			holder->timeslice.was_late ? holder->timeslice.held_ns + TIMESLICE_NS : 0;
		if (plans_end_ns < end_ns)
			*ret_for = NULL;
		end_ns = min_u64(end_ns, plans_end_ns);
	}
	return end_ns;
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
		if (is_behind_plans(lease))
			slice->record.plans_ns =
				plans_total_ns(device, now_ns) - slice->wanted_plans_ns;
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
		if (lease == device->holder)
			device_give(device, lease, false, now_ns);
		else
			lease_publish(lease, RBK_TIMESLICE_CLOSED);
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

static void device_run(struct timeslice_device *device, uint64_t now_ns)
{
	struct lease *next;
	bool is_late;

	device_charge(device, now_ns);
	if (!is_shared(device, now_ns)) {
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
	if (!next)
		return;
	device_give(device, next, is_late, now_ns);
	holder_press(device, now_ns);
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
		timeslices->devices[i] = (struct timeslice_device){.holder = NULL};
		list_init(&timeslices->devices[i].leases);
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

/* Note that a timeslice has ended, and nothing of earlier ones is in front of its work. */
static void device_overtake(struct timeslice_device *device, const struct lease *ended)
{
	list_for_each (node, &device->leases) {
		struct lease_timeslice *slice = &lease_of(node)->timeslice;

		if (slice->is_under_way && lease_of(node) != device->holder &&
		    slice->closed_ns <= ended->timeslice.held_ns)
			slice->is_overtaken = true;
	}
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
		device_overtake(device, lease);
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

/* Charge the tenant, and if this is the device's first lease, all tenants, from now on. */
static void note_plans_used(const struct lease *lease)
{
	const struct timeslices *timeslices = &lease->leases->timeslices;
	struct timeslice_device *device = device_of(lease);

	if (!timeslices->plans_used)
		return;
	plans_used_since(timeslices, lease->tenant, lease->device,
			 &lease->tenant->leases->plans_used_ns[lease->device]);
	if (device->n_leases == 0)
		plans_used_since(timeslices, NULL, lease->device, &device->plans_used_ns);
}

int timeslice_join(struct lease_member *member, uint32_t priority, uint64_t now_ns)
{
	struct lease *lease = member->lease;
	struct timeslice_device *device = device_of(lease);
	uint32_t *n_leases = &lease->tenant->leases->n_sharing[lease->device];

	if (lease->timeslice.n_members == 0) {
		if (*n_leases >= TIMESLICE_MAX_LEASES)
			return TIMESLICE_E_FULL;
		if ((*n_leases)++ == 0)
			note_plans_used(lease);
		list_init(&lease->timeslice.members);
		list_append(&device->leases, &lease->timeslice.link);
		device->n_leases++;
		lease->leases->timeslices.n_leases++;
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
		slice->wanted_plans_ns = plans_total_ns(device, now_ns);
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

	if (!lease || !member->timeslice.is_sharing)
		return;
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
	device_run(device, now_ns);
}

void timeslice_note_plans(struct timeslices *timeslices, uint32_t devices, uint64_t now_ns)
{
	if (timeslices->n_leases == 0)
		return;
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++) {
		struct timeslice_device *device = &timeslices->devices[i];
		bool had_plans = device->has_plans;

		if (device->n_leases == 0)
			continue;
		device->plans_total_ns = plans_total_ns(device, now_ns);
		device->has_plans = devices & 1u << i;
		if (had_plans || device->has_plans)
			device->plans_ns = now_ns;
		if (had_plans != device->has_plans)
			device_run(device, now_ns);
	}
}

void timeslice_skip(struct timeslices *timeslices, uint64_t now_ns)
{
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++)
		list_for_each (node, &timeslices->devices[i].leases)
			lease_of(node)->timeslice.charged_ns = now_ns;
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

/* Return the time at which something is due because plans pause, or leases wait long. */
static uint64_t plans_next_ns(const struct timeslice_device *device, uint64_t now_ns)
{
	uint64_t next_ns = UINT64_MAX;

	if (device->plans_ns == 0)
		return UINT64_MAX;
	if (!device->has_plans && device->n_leases == 1 &&
	    state_of(lease_of(device->leases.next)) != RBK_TIMESLICE_OPEN)
		next_ns = device->plans_ns + TIMESLICE_PAUSE_NS;
	for (const struct list_node *node = device->leases.next; node != &device->leases;
	     node = node->next) {
		const struct lease *lease = container_of(node, struct lease, timeslice.link);

		if (lease->timeslice.n_wanting == 0 || lease->timeslice.is_under_way ||
		    is_waiting(device, lease, now_ns))
			continue;
		next_ns = min_u64(next_ns, late_from_ns(lease));
		if (!device->has_plans)
			next_ns = min_u64(next_ns, device->plans_ns + TIMESLICE_PLANS_NS);
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
