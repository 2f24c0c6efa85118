/* SPDX-License-Identifier: MIT */
/*
 * Statistics: timeslices of leases, and resets
 *
 * A tenant's page has the last of them in a ring. Some thousands may end in a second, so each one
 * costs a few stores.
 */
#include "stats/stats-private.h"

/* Return the element to be replaced. */
static struct rbk_stats_reset *oldest(struct rbk_stats_reset *resets, unsigned int n)
{
	struct rbk_stats_reset *ret = resets;

	for (unsigned int i = 1; i < n; i++)
		if (resets[i].at_ns < ret->at_ns)
			ret = &resets[i];
	return ret;
}

/* Show a reset in the page of its tenant. */
static void show_reset(struct stats_tenant *tenant, const struct rbk_stats_reset *record)
{
	const uint64_t *from = (const uint64_t *)record;
	struct rbk_stats_tenant *totals = tenant->totals;
	/* They follow the tenant's record. */
	uint64_t *words =
		(uint64_t *)oldest((struct rbk_stats_reset *)(totals + 1), RBK_STATS_RESETS);

	/* Pairs with the acquire fence in rbk_stats_copy_logged(). */
	__atomic_store_n(&words[0], 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	for (size_t i = 1; i < sizeof(*record) / sizeof(*words); i++)
		stats_store(&words[i], from[i]);
	__atomic_store_n(&words[0], from[0], __ATOMIC_RELEASE);
}

void stats_lost(struct stats *stats, struct stats_tenant *tenant,
		const struct rbk_stats_reset *record)
{
	*oldest(stats->resets, RBK_STATS_ALL_RESETS) = *record;
	if (tenant && tenant->page.header)
		show_reset(tenant, record);
}

void stats_show_resets(struct stats_tenant *tenant)
{
	const struct rbk_stats_reset *resets = tenant->stats->resets;

	for (unsigned int i = 0; i < RBK_STATS_ALL_RESETS; i++)
		if (resets[i].at_ns > 0 && resets[i].tenant == tenant->own.number)
			show_reset(tenant, &resets[i]);
}

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
