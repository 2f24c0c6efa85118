/* SPDX-License-Identifier: MIT */
/* Sleep: see sleep.h. */
#include "lease/sleep.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lease/lease.h"
#include "util/number.h"

/* More than any device has; the sum over the maximum number of sessions fits into 64 bits. */
static const uint64_t most_bytes = 1ull << 48;

/* Publish the state, and wake members that are held. */
static void show(struct lease *lease)
{
	lease_trim(lease);
	lease_show(lease);
	if (lease->page)
		syscall(SYS_futex, &lease->page->sleep, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void sleep_set(struct lease *lease, uint32_t state)
{
	lease->sleep.set = state;
	show(lease);
}

void sleep_ask(struct lease *lease)
{
	lease->sleep.is_asked = true;
	show(lease);
}

void sleep_end_asking(struct leases *leases, uint8_t device)
{
	list_for_each (node, &leases->all) {
		struct lease *lease = container_of(node, struct lease, link);

		if (lease->device != device || !lease->sleep.is_asked)
			continue;
		lease->sleep.is_asked = false;
		show(lease);
	}
}

bool sleep_report(struct lease_member *member, uint64_t movable_bytes, uint64_t moved_bytes)
{
	struct lease *lease = member->lease;
	struct lease_sleep *sum = &lease->sleep;
	struct member_sleep *own = &member->sleep;

	movable_bytes = min_u64(movable_bytes, most_bytes);
	moved_bytes = min_u64(moved_bytes, movable_bytes);
	if (movable_bytes == own->movable_bytes && moved_bytes == own->moved_bytes)
		return false;
	sum->movable_bytes += movable_bytes - own->movable_bytes;
	sum->moved_bytes += moved_bytes - own->moved_bytes;
	own->movable_bytes = movable_bytes;
	own->moved_bytes = moved_bytes;
	lease->leases->n_changes++;
	lease_trim(lease);
	return true;
}
