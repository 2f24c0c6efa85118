/* SPDX-License-Identifier: MIT */
/*
 * Statistics: timeslices of leases
 *
 * A tenant's page has the last of them in a ring. Some thousands may end in a second, so each one
 * costs a few stores.
 */
#include "stats/stats-private.h"

void stats_slice_ended(struct stats_tenant *tenant, const struct rbk_stats_slice *record)
{
	struct rbk_stats_tenant *totals = tenant->totals;
	const uint64_t *from = (const uint64_t *)record;
	const uint64_t index = totals->slices_head;
	uint64_t *words;

	if (!tenant->page.header)
		return;
	words = stats_page_record(&tenant->page, RBK_STATS_SECTION_SLICES,
				  (uint32_t)(index & (STATS_SLICE_RECORDS - 1)));
	/* Pairs with the acquire fence in rbk_stats_slice(). */
	__atomic_store_n(&words[0], 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	for (size_t i = 1; i < sizeof(*record) / sizeof(*words); i++)
		stats_store(&words[i], from[i]);
	__atomic_store_n(&words[0], index + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&totals->slices_head, index + 1, __ATOMIC_RELEASE);
}
