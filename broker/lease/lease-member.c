/* SPDX-License-Identifier: MIT */
/*
 * Leases: their members
 *
 * Members' reports are only added up, and cut to values whose sums cannot overflow. Only listings
 * depend on them, and audits, which compare them with the kernel's figures.
 */
#include <assert.h>

#include "lease/lease.h"
#include "util/number.h"

/* More than any device has; the sum over the maximum number of sessions fits into 64 bits. */
static const uint64_t max_reported_bytes = 1ull << 48;

void lease_join(struct lease *lease, struct lease_member *member, pid_t pid)
{
	assert(!member->lease);
	*member = (struct lease_member){.lease = lease, .pid = pid};
	list_init(&member->holdings);
	list_append(&lease->members, &member->link);
	lease->n_members++;
}

void lease_leave(struct lease_member *member)
{
	struct lease *lease = member->lease;

	if (!lease)
		return;
	assert(member->n_waits == 0 && !member->timeslice.is_sharing);
	/* Keep its number of refusals in the lease's sum. */
	lease_report(member, &(struct lease_use){.n_refused = member->n_refused});
	sleep_report(member, 0, 0);
	lease_objects_drop(member);
	lease->credited_bytes -= member->credit_bytes;
	member->credit_bytes = member->corrected_bytes = 0;
	list_remove(&member->link);
	member->lease = NULL;
	lease->n_members--;
	lease_trim(lease);
	lease_show(lease);
}

int lease_take(struct lease_member *member, uint64_t bytes)
{
	struct lease *lease = member->lease;

	if (bytes > lease_ungiven(lease))
		return LEASE_E_LACKING;
	lease->credited_bytes += bytes;
	lease->peak_credited_bytes = max_u64(lease->peak_credited_bytes, lease->credited_bytes);
	member->credit_bytes += bytes;
	lease->leases->n_changes++;
	lease_show(lease);
	return 0;
}

int lease_give(struct lease_member *member, uint64_t bytes)
{
	struct lease *lease = member->lease;

	if (bytes > lease_own_credit(member))
		return LEASE_E_LACKING;
	lease->credited_bytes -= bytes;
	member->credit_bytes -= bytes;
	lease->leases->n_changes++;
	lease_trim(lease);
	lease_show(lease);
	return 0;
}

void lease_correct(struct lease_member *member, uint64_t bytes)
{
	struct lease *lease = member->lease;
	uint64_t before = member->corrected_bytes, others = lease->credited_bytes - before;

	bytes = min_u64(bytes, lease->max_bytes > others ? lease->max_bytes - others : 0);
	if (bytes <= before) {
		member->corrected_bytes = bytes;
		if (bytes < before && lease_give(member, before - bytes))
			assert(!"it has that");
		return;
	}
	if (bytes - before > lease_ungiven(lease) &&
	    lease_grant(lease, lease->credited_bytes + bytes - before, true))
		assert(!"forced");
	if (lease_take(member, bytes - before))
		assert(!"it was granted");
	member->corrected_bytes = bytes;
}

void lease_report(struct lease_member *member, const struct lease_use *use)
{
	struct lease *lease = member->lease;
	uint64_t used = min_u64(use->used_bytes, max_reported_bytes);
	uint64_t extra = min_u64(use->extra_bytes, max_reported_bytes);
	uint64_t peak = min_u64(use->peak_bytes, max_reported_bytes);

	if (used != member->used_bytes || extra != member->extra_bytes)
		lease->leases->n_changes++;
	lease->used_bytes += used - member->used_bytes;
	lease->extra_bytes += extra - member->extra_bytes;
	/* The peak of the lease includes the other members' current use. */
	peak = lease->used_bytes + lease->extra_bytes - used - extra + max_u64(peak, used + extra);
	if (peak > lease->peak_bytes)
		lease->leases->n_changes++;
	lease->peak_bytes = max_u64(lease->peak_bytes, peak);
	lease->n_objects += (uint64_t)use->n_objects - member->n_objects;
	/* A count of past events does not decrease. */
	if (use->n_refused > member->n_refused) {
		lease->n_refused += use->n_refused - member->n_refused;
		member->n_refused = use->n_refused;
	}
	member->used_bytes = used;
	member->extra_bytes = extra;
	member->n_objects = use->n_objects;
	lease_show(lease);
}
