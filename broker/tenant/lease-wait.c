/* SPDX-License-Identifier: MIT */
/*
 * Leases: who waits, and who waits in vain
 *
 * Two members that each hold 300 of 700 and each wait for 300 more wait for each other. To see that
 * whatever the limits are that keep them waiting (the lease's, the tenant's, the device's), those
 * who wait are served in thought: all that nobody who waits holds is taken for free, plans
 * included; then whoever can be served is, and gives back in the end what he holds; and so on.
 * Those whom this leaves wait for nobody but each other. It errs on the side of waiting: that has
 * an end anyway.
 *
 * One who could not be served even if everybody else were gone waits for something else: a limit
 * that is raised, or programs outside the broker.
 */
#include <string.h>

#include "tenant/lease.h"
#include "tenant/tenant.h"
#include "util/checked.h"

static struct lease_wait *wait_of(struct list_node *node)
{
	return container_of(node, struct lease_wait, link);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

void lease_wait_begin(struct lease_wait *wait)
{
	struct lease *lease = wait->lease;

	list_append(&lease->leases->waits[lease->device], &wait->link);
	lease->leases->n_waits[lease->device]++;
	lease->n_waits++;
	lease->waiting_bytes += wait->least_bytes;
	if (wait->member)
		wait->member->n_waits++;
}

void lease_wait_end(struct lease_wait *wait)
{
	struct lease *lease = wait->lease;

	list_remove(&wait->link);
	lease->leases->n_waits[lease->device]--;
	lease->n_waits--;
	lease->waiting_bytes -= wait->least_bytes;
	if (wait->member)
		wait->member->n_waits--;
}

/* What a lease has, in thought: its members who wait keep what they hold. */
static void think_of(struct lease *lease, uint64_t *sum)
{
	uint64_t kept = 0;
	uint32_t n_keeping = 0;

	list_for_each (node, &lease->members) {
		const struct lease_member *member = container_of(node, struct lease_member, link);

		if (member->n_unserved == 0)
			continue;
		n_keeping++;
		kept += member->credit_bytes;
	}
	/* Who shares what is not looked at more closely. */
	if (n_keeping > 0 && n_keeping == lease->n_members)
		kept += lease->object_bytes;
	*sum -= lease->thought_bytes;
	lease->tenant->thought_bytes -= lease->thought_bytes;
	lease->kept_bytes = kept;
	lease->thought_bytes =
		n_keeping > 0 ? most(kept, least(lease->wish_bytes, lease_granted(lease))) : 0;
	*sum += lease->thought_bytes;
	lease->tenant->thought_bytes += lease->thought_bytes;
}

static bool can_be_served(const struct lease_wait *wait, uint64_t sum, uint64_t usable_bytes)
{
	const struct lease *lease = wait->lease;
	uint64_t need = lease->kept_bytes + wait->least_bytes;
	uint64_t more = need > lease->thought_bytes ? need - lease->thought_bytes : 0;

	return need <= lease->limit_bytes && checked_range(sum, more, usable_bytes) &&
	       checked_range(lease->tenant->thought_bytes, more,
			     lease->tenant->shares[lease->device].max);
}

bool lease_wait_is_hopeless(const struct lease_wait *wait, uint64_t usable_bytes)
{
	const struct lease *lease = wait->lease;
	uint64_t alone = (wait->member ? wait->member->credit_bytes : 0) + wait->least_bytes;

	return alone > lease->limit_bytes || alone > usable_bytes ||
	       alone > lease->tenant->shares[lease->device].max;
}

static bool serve_once(struct list_node *waits, uint64_t *sum, uint64_t usable_bytes)
{
	bool has_served = false;

	list_for_each (node, waits) {
		struct lease_wait *wait = wait_of(node);

		if (wait->is_served || !can_be_served(wait, *sum, usable_bytes))
			continue;
		wait->is_served = has_served = true;
		if (wait->member && --wait->member->n_unserved == 0)
			think_of(wait->lease, sum);
	}
	return has_served;
}

struct lease_wait *lease_find_deadlocked(struct leases *leases, uint8_t device,
					 uint64_t usable_bytes)
{
	struct list_node *waits = &leases->waits[device];
	struct lease_wait *newest = NULL;
	uint64_t sum = 0;

	list_for_each (node, &leases->all) {
		struct lease *lease = container_of(node, struct lease, link);

		lease->thought_bytes = lease->tenant->thought_bytes = 0;
		list_for_each (member_node, &lease->members)
			container_of(member_node, struct lease_member, link)->n_unserved = 0;
	}
	list_for_each (node, waits) {
		struct lease_wait *wait = wait_of(node);

		wait->is_served = false;
		if (wait->member)
			wait->member->n_unserved++;
	}
	list_for_each (node, &leases->all) {
		struct lease *lease = container_of(node, struct lease, link);

		if (lease->device == device)
			think_of(lease, &sum);
	}
	while (serve_once(waits, &sum, usable_bytes))
		;
	list_for_each (node, waits)
		if (!wait_of(node)->is_served &&
		    !lease_wait_is_hopeless(wait_of(node), usable_bytes))
			newest = wait_of(node);
	return newest;
}
