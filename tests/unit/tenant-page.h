#pragma once
/* SPDX-License-Identifier: MIT */
/* A tenant's statistics page, for tests. */
#include "stats/stats.h"

/*
 * Map a page for the tenant, unless it has one.
 * Return: as stats_tenant_page_new().
 */
static inline int tenant_page_map(struct stats_tenant *tenant, uint64_t now_ns)
{
	struct stats_page page;
	int r = tenant->page.header ? 0 : stats_tenant_page_new(tenant->stats, &page);

	if (r == 0 && !tenant->page.header)
		stats_tenant_map(tenant, &page, now_ns);
	return r;
}

static inline void tenant_page_unmap(struct stats_tenant *tenant, uint64_t now_ns)
{
	struct stats_page page = stats_tenant_unmap(tenant, now_ns);

	stats_page_free(&page);
}
