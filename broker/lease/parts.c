/* SPDX-License-Identifier: MIT */
/*
 * Parts: see parts.h.
 *
 * Members may report anything. A count that is below an earlier one changes nothing, and a sum ends
 * at most_sum, so no sum decreases or overflows.
 */
#include "lease/parts.h"

#include "lease/lease.h"
#include "tenant/tenant.h"
#include "util/number.h"

/* More than a program reaches in years. */
static const uint64_t most_count = 1ull << 48;
static const uint64_t most_sum = 1ull << 62;

void recent_note(struct recent *recent, uint64_t value, uint64_t now_ns)
{
	if (recent->begin_ns == 0 || now_ns >= recent->begin_ns + PARTS_RECENT_NS) {
		const bool is_next =
			recent->begin_ns > 0 && now_ns < recent->begin_ns + 2 * PARTS_RECENT_NS;

		recent->most_then = is_next ? recent->most : 0;
		recent->most = 0;
		recent->begin_ns = now_ns;
	}
	recent->most = max_u64(recent->most, value);
}

uint64_t recent_most(const struct recent *recent, uint64_t now_ns)
{
	if (now_ns < recent->begin_ns + PARTS_RECENT_NS)
		return max_u64(recent->most, recent->most_then);
	return now_ns < recent->begin_ns + 2 * PARTS_RECENT_NS ? recent->most : 0;
}

void parts_report(struct lease_member *member, const struct parts_report *report, uint64_t now_ns)
{
	struct lease *lease = member->lease;
	uint64_t *sums = lease->tenant->leases->shared.parts;

	lease->parts.is_reported = true;
	for (unsigned int i = 0; i < PARTS_COUNTS; i++) {
		uint64_t count = min_u64(report->counts[i], most_count);
		uint64_t more = saturating_sub(count, member->parts.counts[i]);

		member->parts.counts[i] += more;
		lease->parts.counts[i] = min_u64(lease->parts.counts[i] + more, most_sum);
		sums[i] = min_u64(sums[i] + more, most_sum);
	}
	if (report->longest_ns > 0)
		recent_note(&lease->parts.longest, min_u64(report->longest_ns, most_count), now_ns);
}
