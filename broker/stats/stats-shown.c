/* SPDX-License-Identifier: MIT */
/*
 * Statistics: sessions and leases
 *
 * Each has a record in the root page, whether the page exists or not, and one in its tenant's page
 * while the page exists. The lowest free record is taken first, so that a reader that knows the
 * number of sessions need not scan all records. Nothing is counted in the records. The code that
 * computes the figures copies them here, into the existing pages.
 */
#include "stats/stats-private.h"

static const struct {
	enum rbk_stats_section_id section;
	size_t bytes;
} records[STATS_SHOWN_KINDS] = {
	[STATS_SESSIONS] = {RBK_STATS_SECTION_SESSIONS, sizeof(struct rbk_stats_session)},
	[STATS_LEASES] = {RBK_STATS_SECTION_LEASES, sizeof(struct rbk_stats_lease)},
};
_Static_assert(offsetof(struct rbk_stats_session, sequence) == 0 &&
		       offsetof(struct rbk_stats_lease, sequence) == 0,
	       "see store()");

static void take_own_slot(struct stats_shown *shown)
{
	struct stats_tenant *tenant = shown->tenant;
	uint64_t *taken;

	if (!tenant || !tenant->page.header)
		return;
	taken = &tenant->shown[shown->kind].taken;
	if (*taken == UINT64_MAX)
		return;
	shown->own_slot = (uint32_t)__builtin_ctzll(~*taken);
	*taken |= 1ull << shown->own_slot;
}
_Static_assert(STATS_OWN_SESSIONS == 64 && STATS_OWN_LEASES == 64, "bits of taken");

static void store(const struct stats_page *page, uint32_t slot, enum stats_shown_kind kind,
		  const void *figures)
{
	uint32_t *sequence = stats_page_record(page, records[kind].section, slot);

	stats_begin(sequence);
	stats_record_store(sequence, figures, records[kind].bytes);
	stats_end(sequence);
}

void stats_shown_init(struct stats_shown *shown, enum stats_shown_kind kind, struct stats *stats,
		      struct stats_tenant *tenant, void *owner)
{
	*shown = (struct stats_shown){
		.stats = stats,
		.tenant = tenant,
		.kind = kind,
		.root_slot = stats_slot_take(stats, &stats->shown[kind].slots),
		.own_slot = STATS_NO_SLOT,
		.owner = owner,
	};
	list_init(&shown->of_tenant);
	take_own_slot(shown);
	if (tenant)
		list_append(&tenant->shown[kind].list, &shown->of_tenant);
	list_append(&stats->shown[kind].list, &shown->link);
	stats->shown[kind].n++;
}

void stats_shown_deinit(struct stats_shown *shown)
{
	static const union {
		struct rbk_stats_session session;
		struct rbk_stats_lease lease;
	} nothing;
	struct stats *stats = shown->stats;

	if (!stats)
		return;
	stats_shown_set(shown, &nothing);
	stats_slot_give(stats, &stats->shown[shown->kind].slots, shown->root_slot);
	if (shown->own_slot != STATS_NO_SLOT)
		shown->tenant->shown[shown->kind].taken &= ~(1ull << shown->own_slot);
	list_remove(&shown->of_tenant);
	list_remove(&shown->link);
	stats->shown[shown->kind].n--;
	shown->stats = NULL;
}

struct stats_shown *stats_first_shown(const struct stats *stats, enum stats_shown_kind kind)
{
	const struct list_node *list = &stats->shown[kind].list;

	return list_is_empty(list) ? NULL : container_of(list->next, struct stats_shown, link);
}

uint32_t stats_n_shown(const struct stats *stats, enum stats_shown_kind kind)
{
	return stats->shown[kind].n;
}

void stats_shown_last(struct stats_shown *shown)
{
	list_remove(&shown->link);
	list_append(&shown->stats->shown[shown->kind].list, &shown->link);
}

void stats_shown_set(struct stats_shown *shown, const void *figures)
{
	struct stats_page *root = &shown->stats->root;

	if (root->header && shown->root_slot != STATS_NO_SLOT &&
	    stats_page_back(root, records[shown->kind].section, shown->root_slot))
		store(root, shown->root_slot, shown->kind, figures);
	if (shown->own_slot != STATS_NO_SLOT)
		store(&shown->tenant->page, shown->own_slot, shown->kind, figures);
}

void stats_shown_map(struct stats_tenant *tenant)
{
	for (unsigned int kind = 0; kind < STATS_SHOWN_KINDS; kind++) {
		tenant->shown[kind].taken = 0;
		list_for_each (node, &tenant->shown[kind].list)
			take_own_slot(container_of(node, struct stats_shown, of_tenant));
	}
}

void stats_shown_unmap(struct stats_tenant *tenant)
{
	for (unsigned int kind = 0; kind < STATS_SHOWN_KINDS; kind++) {
		list_for_each (node, &tenant->shown[kind].list)
			container_of(node, struct stats_shown, of_tenant)->own_slot = STATS_NO_SLOT;
		tenant->shown[kind].taken = 0;
	}
}
