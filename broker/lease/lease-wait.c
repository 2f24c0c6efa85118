/* SPDX-License-Identifier: MIT */
/*
 * Leases: waits, and the search for deadlocked waits
 *
 * Two members that each hold 300 of 700 and each wait for 300 more wait for each other. Limits of
 * the lease, the tenant or the device may keep them waiting. The search finds such waits by
 * simulation. It assumes that all memory not held by waiting members is free, plans' memory
 * included. Each wait that fits is served and gives back in the end what its member holds, and so
 * on. The waits that remain wait only for each other. The search errs on the side of waiting: every
 * wait has a timeout.
 *
 * A wait that could not be served even if it were alone waits for something else: a limit that is
 * raised, or programs outside the broker.
 */
#include <string.h>

#include "lease/lease.h"
#include "tenant/tenant.h"
#include "util/checked.h"
#include "util/number.h"

void lease_wait_begin(struct lease_wait *wait)
{
	struct lease *lease = wait->lease;

	list_append(&lease->leases->waits[lease->device], &wait->link);
	lease->leases->n_waits[lease->device]++;
	lease->tenant->leases->n_waits[lease->device]++;
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
	lease->tenant->leases->n_waits[lease->device]--;
	lease->n_waits--;
	lease->waiting_bytes -= wait->least_bytes;
	if (wait->member)
		wait->member->n_waits--;
}

/* ---- The simulation ---- */

static bool asks_less(const struct heap_node *a, const struct heap_node *b)
{
	return container_of(a, struct lease_wait, thought_node)->least_bytes <
	       container_of(b, struct lease_wait, thought_node)->least_bytes;
}

static struct lease *lease_of(const struct heap_node *node)
{
	return container_of(node, struct lease, thought.node);
}

static bool lacks_less(const struct heap_node *a, const struct heap_node *b)
{
	return lease_of(a)->thought.lacking_bytes < lease_of(b)->thought.lacking_bytes;
}

static void move_to(struct lease *lease, struct heap_node **heap)
{
	struct lease_thought *thought = &lease->thought;

	if (thought->heap)
		heap_remove(thought->heap, &thought->node, lacks_less);
	thought->heap = heap;
	if (heap)
		heap_insert(heap, &thought->node, lacks_less);
}

/* Compute the lease's bytes anew: members that wait keep the bytes that they hold. */
static void think_of(struct lease_search *search, struct lease *lease)
{
	struct lease_thought *thought = &lease->thought;
	uint64_t before = thought->bytes;

	thought->kept_bytes = thought->credit_bytes;
	/* It is not examined which member holds an object: all are kept if all members wait. */
	if (thought->n_keeping > 0 && thought->n_keeping == lease->n_members)
		thought->kept_bytes += lease->object_bytes;
	thought->bytes = thought->n_keeping > 0
				 ? max_u64(thought->kept_bytes,
					   min_u64(lease->wish_bytes, lease_granted(lease)))
				 : 0;
	search->bytes += thought->bytes - before;
	lease->tenant->leases->thought_bytes += thought->bytes - before;
}

/*
 * Put the lease among those that may be served, by its smallest request, unless its own limit is in
 * the way.
 */
static void place(struct lease_search *search, struct lease *lease)
{
	struct lease_thought *thought = &lease->thought;
	uint64_t need;

	move_to(lease, NULL);
	if (!thought->unserved)
		return;
	need = thought->kept_bytes +
	       container_of(thought->unserved, struct lease_wait, thought_node)->least_bytes;
	thought->lacking_bytes = need > thought->bytes ? need - thought->bytes : 0;
	if (need <= lease->limit_bytes)
		move_to(lease, &search->leases);
}

static bool fits_tenant(const struct lease_search *search, const struct lease *lease)
{
	return checked_range(lease->tenant->leases->thought_bytes, lease->thought.lacking_bytes,
			     lease->tenant->shares[search->device].max);
}

/* Simulate the end of @wait: its member gives back what it holds, unless it has other waits. */
static void let_go(struct lease_search *search, struct lease_wait *wait)
{
	struct lease *lease = wait->lease;
	struct tenant_leases *of_tenant = lease->tenant->leases;

	wait->is_served = true;
	heap_remove(&lease->thought.unserved, &wait->thought_node, asks_less);
	if (wait->member && --wait->member->n_unserved == 0) {
		lease->thought.n_keeping--;
		lease->thought.credit_bytes -= wait->member->credit_bytes;
		think_of(search, lease);
	}
	place(search, lease);
	while (of_tenant->thought_leases &&
	       fits_tenant(search, lease_of(of_tenant->thought_leases)))
		move_to(lease_of(of_tenant->thought_leases), &search->leases);
}

/*
 * Serve all requests that fit. The lease that lacks least is the first to find room. Room only
 * grows during the search. So a lease for which the device has no room ends the search, and one for
 * which its tenant has no room is set aside until the tenant has more. Each request is visited a
 * fixed number of times.
 */
static void serve_all(struct leases *leases, struct lease_search *search)
{
	while (search->leases) {
		struct lease *lease = lease_of(search->leases);

		leases->n_looks++;
		if (!checked_range(search->bytes, lease->thought.lacking_bytes,
				   search->usable_bytes))
			break;
		if (!fits_tenant(search, lease))
			move_to(lease, &lease->tenant->leases->thought_leases);
		else
			let_go(search, container_of(lease->thought.unserved, struct lease_wait,
						    thought_node));
	}
}

static void search_begin(struct leases *leases, struct lease_search *search)
{
	struct list_node *waits = &leases->waits[search->device];

	list_for_each (node, waits) {
		struct lease_wait *wait = lease_wait_of(node);

		wait->lease->thought = (struct lease_thought){.heap = NULL};
		wait->lease->tenant->leases->thought_bytes = 0;
		wait->lease->tenant->leases->thought_leases = NULL;
		if (wait->member)
			wait->member->n_unserved = 0;
	}
	list_for_each (node, waits) {
		struct lease_wait *wait = lease_wait_of(node);
		struct lease_thought *thought = &wait->lease->thought;

		leases->n_looks++;
		wait->is_served = false;
		heap_insert(&thought->unserved, &wait->thought_node, asks_less);
		if (!wait->member || wait->member->n_unserved++ > 0)
			continue;
		thought->n_keeping++;
		thought->credit_bytes += wait->member->credit_bytes;
	}
	list_for_each (node, waits) {
		struct lease *lease = lease_wait_of(node)->lease;

		think_of(search, lease);
		if (!lease->thought.heap)
			place(search, lease);
	}
}

bool lease_wait_is_hopeless(const struct lease_wait *wait, uint64_t usable_bytes)
{
	const struct lease *lease = wait->lease;
	uint64_t alone = (wait->member ? wait->member->credit_bytes : 0) + wait->least_bytes;

	return alone > lease->limit_bytes || alone > usable_bytes ||
	       alone > lease->tenant->shares[lease->device].max;
}

struct lease_wait *lease_find_deadlocked(struct leases *leases, uint8_t device,
					 uint64_t usable_bytes)
{
	leases->search = (struct lease_search){
		.device = device,
		.usable_bytes = usable_bytes,
		.at = leases->waits[device].prev,
	};
	search_begin(leases, &leases->search);
	return lease_find_next_deadlocked(leases);
}

struct lease_wait *lease_find_next_deadlocked(struct leases *leases)
{
	struct lease_search *search = &leases->search;

	serve_all(leases, search);
	while (search->at != &leases->waits[search->device]) {
		struct lease_wait *wait = lease_wait_of(search->at);

		leases->n_looks++;
		search->at = search->at->prev;
		if (wait->is_served || lease_wait_is_hopeless(wait, search->usable_bytes))
			continue;
		let_go(search, wait);
		return wait;
	}
	return NULL;
}
