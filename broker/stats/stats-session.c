/* SPDX-License-Identifier: MIT */
/*
 * Statistics: sessions
 *
 * A session has a record in the root page, whether the page exists or not, and one in its tenant's
 * page while the page exists. The lowest free record is taken first, so that a reader that knows
 * the number of sessions need not scan all records. Nothing is counted in the records. The code
 * that computes the figures copies them here, into the existing pages.
 */
#include "stats/stats-private.h"

static void take_own_slot(struct stats_session *session)
{
	struct stats_tenant *tenant = session->tenant;

	if (!tenant || !tenant->page.header || tenant->own_sessions == UINT64_MAX)
		return;
	session->own_slot = (uint32_t)__builtin_ctzll(~tenant->own_sessions);
	tenant->own_sessions |= 1ull << session->own_slot;
}
_Static_assert(STATS_OWN_SESSIONS == 64, "bits of stats_tenant.own_sessions");

static void store(const struct stats_page *page, uint32_t slot,
		  const struct rbk_stats_session *figures)
{
	struct rbk_stats_session *shown = stats_page_record(page, RBK_STATS_SECTION_SESSIONS, slot);

	stats_begin(&shown->sequence);
	stats_record_store(shown, figures, sizeof(*figures));
	stats_end(&shown->sequence);
}

void stats_session_init(struct stats_session *session, struct stats *stats,
			struct stats_tenant *tenant, void *owner)
{
	*session = (struct stats_session){
		.stats = stats,
		.tenant = tenant,
		.root_slot = stats_slot_take(stats, &stats->session_slots),
		.own_slot = STATS_NO_SLOT,
		.owner = owner,
	};
	list_init(&session->of_tenant);
	take_own_slot(session);
	if (tenant)
		list_append(&tenant->sessions, &session->of_tenant);
	list_append(&stats->sessions, &session->link);
	stats->n_sessions++;
}

void stats_session_deinit(struct stats_session *session)
{
	static const struct rbk_stats_session nobody;
	struct stats *stats = session->stats;

	if (!stats)
		return;
	stats_set_session(session, &nobody);
	stats_slot_give(stats, &stats->session_slots, session->root_slot);
	if (session->own_slot != STATS_NO_SLOT)
		session->tenant->own_sessions &= ~(1ull << session->own_slot);
	list_remove(&session->of_tenant);
	list_remove(&session->link);
	stats->n_sessions--;
	session->stats = NULL;
}

struct stats_session *stats_first_session(const struct stats *stats)
{
	return list_is_empty(&stats->sessions)
		       ? NULL
		       : container_of(stats->sessions.next, struct stats_session, link);
}

uint32_t stats_n_sessions(const struct stats *stats)
{
	return stats->n_sessions;
}

void stats_session_last(struct stats_session *session)
{
	list_remove(&session->link);
	list_append(&session->stats->sessions, &session->link);
}

void stats_set_session(struct stats_session *session, const struct rbk_stats_session *figures)
{
	struct stats_page *root = &session->stats->root;

	if (root->header && session->root_slot != STATS_NO_SLOT &&
	    stats_page_back(root, RBK_STATS_SECTION_SESSIONS, session->root_slot))
		store(root, session->root_slot, figures);
	if (session->own_slot != STATS_NO_SLOT)
		store(&session->tenant->page, session->own_slot, figures);
}

void stats_sessions_map(struct stats_tenant *tenant)
{
	tenant->own_sessions = 0;
	list_for_each (node, &tenant->sessions)
		take_own_slot(container_of(node, struct stats_session, of_tenant));
}

void stats_sessions_unmap(struct stats_tenant *tenant)
{
	list_for_each (node, &tenant->sessions)
		container_of(node, struct stats_session, of_tenant)->own_slot = STATS_NO_SLOT;
	tenant->own_sessions = 0;
}
