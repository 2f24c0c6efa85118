/* SPDX-License-Identifier: MIT */
/*
 * Statistics: entries that were refused
 *
 * A tenant's page has the last of them in a ring of records, each protected by its own sequence, as
 * the records of the decision log are.
 */
#include "stats/stats-private.h"

void stats_note_refused(struct stats_tenant *tenant, const struct rbk_stats_refused *record)
{
	const uint64_t *from = (const uint64_t *)record;
	uint64_t *words;

	if (!tenant->page.header)
		return;
	words = stats_page_record(&tenant->page, RBK_STATS_SECTION_REFUSED,
				  (uint32_t)(tenant->n_refused % STATS_REFUSED_RECORDS));
	/* Pairs with the acquire fence in rbk_stats_refused(). */
	__atomic_store_n(&words[0], 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	for (size_t i = 1; i < sizeof(*record) / sizeof(*words); i++)
		stats_store(&words[i], from[i]);
	__atomic_store_n(&words[0], ++tenant->n_refused, __ATOMIC_RELEASE);
}
