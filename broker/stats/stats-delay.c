/* SPDX-License-Identifier: MIT */
/*
 * Statistics: delays by waiting for a processor
 *
 * The broker does not count these delays; it copies them from reports, record by record. The caller
 * makes two copies of a tenant's record, and removes from one of them figures that the tenant must
 * not learn.
 */
#include "stats/stats-private.h"

static void store(uint32_t *sequence, const void *figures, size_t bytes)
{
	stats_begin(sequence);
	stats_record_store(sequence, figures, bytes);
	stats_end(sequence);
}

void stats_set_contention(struct stats *stats, const struct rbk_stats_contention *figures)
{
	struct rbk_stats_contention *shown;

	if (!stats->root.header)
		return;
	shown = stats_page_record(&stats->root, RBK_STATS_SECTION_CONTENTION, 0);
	store(&shown->sequence, figures, sizeof(*figures));
}

void stats_set_thread(struct stats *stats, uint32_t index, const struct rbk_stats_thread *figures)
{
	struct rbk_stats_thread *shown;

	if (!stats->root.header || index >= STATS_MAX_THREADS)
		return;
	shown = stats_page_record(&stats->root, RBK_STATS_SECTION_THREADS, index);
	store(&shown->sequence, figures, sizeof(*figures));
}

void stats_set_n_threads(struct stats *stats, uint32_t n)
{
	static const struct rbk_stats_thread nobody;

	for (uint32_t i = n; i < stats->n_threads; i++)
		stats_set_thread(stats, i, &nobody);
	stats->n_threads = n;
}

void stats_set_delay(struct stats_tenant *tenant, const struct rbk_stats_delay *figures,
		     const struct rbk_stats_delay *own)
{
	struct stats_page *root = &tenant->stats->root;
	const bool is_used = figures->flags & RBK_STATS_DELAY_USED;
	struct rbk_stats_delay *shown;

	/* A thousand tenants without data cost nothing. */
	if (!is_used && !tenant->has_delay)
		return;
	tenant->has_delay = is_used;
	if (root->header && tenant->root_slot != STATS_NO_SLOT &&
	    stats_page_back(root, RBK_STATS_SECTION_DELAYS, tenant->root_slot)) {
		shown = stats_page_record(root, RBK_STATS_SECTION_DELAYS, tenant->root_slot);
		store(&shown->sequence, figures, sizeof(*figures));
	}
	if (tenant->page.header) {
		shown = stats_page_record(&tenant->page, RBK_STATS_SECTION_DELAYS, 0);
		store(&shown->sequence, own, sizeof(*own));
	}
}

void stats_delay_clear(struct stats *stats, uint32_t root_slot)
{
	static const struct rbk_stats_delay nobody;
	struct rbk_stats_delay *shown;

	shown = stats_page_record(&stats->root, RBK_STATS_SECTION_DELAYS, root_slot);
	store(&shown->sequence, &nobody, sizeof(nobody));
}
