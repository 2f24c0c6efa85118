/* SPDX-License-Identifier: MIT */
/*
 * Statistics: leases
 *
 * As with sessions (stats-session.c), a lease has a record in the root page, whether the page
 * exists or not, and one in its tenant's page while the page exists.
 */
#include "stats/stats-private.h"

static void take_own_slot(struct stats_lease *lease)
{
	struct stats_tenant *tenant = lease->tenant;

	if (!tenant->page.header || tenant->own_leases == UINT64_MAX)
		return;
	lease->own_slot = (uint32_t)__builtin_ctzll(~tenant->own_leases);
	tenant->own_leases |= 1ull << lease->own_slot;
}
_Static_assert(STATS_OWN_LEASES == 64, "bits of stats_tenant.own_leases");

static void store(const struct stats_page *page, uint32_t slot,
		  const struct rbk_stats_lease *figures)
{
	struct rbk_stats_lease *shown = stats_page_record(page, RBK_STATS_SECTION_LEASES, slot);

	stats_begin(&shown->sequence);
	stats_record_store(shown, figures, sizeof(*figures));
	stats_end(&shown->sequence);
}

void stats_lease_init(struct stats_lease *lease, struct stats_tenant *tenant, void *owner)
{
	struct stats *stats = tenant->stats;

	*lease = (struct stats_lease){
		.stats = stats,
		.tenant = tenant,
		.root_slot = stats_slot_take(stats, &stats->lease_slots),
		.own_slot = STATS_NO_SLOT,
		.owner = owner,
	};
	take_own_slot(lease);
	list_append(&tenant->leases, &lease->of_tenant);
	list_append(&stats->leases, &lease->link);
	stats->n_leases++;
}

void stats_lease_deinit(struct stats_lease *lease)
{
	static const struct rbk_stats_lease nobody;
	struct stats *stats = lease->stats;

	if (!stats)
		return;
	stats_set_lease(lease, &nobody);
	stats_slot_give(stats, &stats->lease_slots, lease->root_slot);
	if (lease->own_slot != STATS_NO_SLOT)
		lease->tenant->own_leases &= ~(1ull << lease->own_slot);
	list_remove(&lease->of_tenant);
	list_remove(&lease->link);
	stats->n_leases--;
	lease->stats = NULL;
}

struct stats_lease *stats_first_lease(const struct stats *stats)
{
	return list_is_empty(&stats->leases)
		       ? NULL
		       : container_of(stats->leases.next, struct stats_lease, link);
}

uint32_t stats_n_leases(const struct stats *stats)
{
	return stats->n_leases;
}

void stats_lease_last(struct stats_lease *lease)
{
	list_remove(&lease->link);
	list_append(&lease->stats->leases, &lease->link);
}

void stats_set_lease(struct stats_lease *lease, const struct rbk_stats_lease *figures)
{
	struct stats_page *root = &lease->stats->root;

	if (root->header && lease->root_slot != STATS_NO_SLOT &&
	    stats_page_back(root, RBK_STATS_SECTION_LEASES, lease->root_slot))
		store(root, lease->root_slot, figures);
	if (lease->own_slot != STATS_NO_SLOT)
		store(&lease->tenant->page, lease->own_slot, figures);
}

void stats_leases_map(struct stats_tenant *tenant)
{
	tenant->own_leases = 0;
	list_for_each (node, &tenant->leases)
		take_own_slot(container_of(node, struct stats_lease, of_tenant));
}

void stats_leases_unmap(struct stats_tenant *tenant)
{
	list_for_each (node, &tenant->leases)
		container_of(node, struct stats_lease, of_tenant)->own_slot = STATS_NO_SLOT;
	tenant->own_leases = 0;
}
