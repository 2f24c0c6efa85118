#pragma once
/* SPDX-License-Identifier: MIT */
/* brokerctl why lease: where a lease's time on its device went */
#include <stdbool.h>

#include "monitor/pages.h"

/* A lease that the question is about. */
struct lease_subject {
	uint32_t number;
	unsigned int tenant; /* index of its tenant's page; UINT_MAX: the tenant has no page */
	uint32_t tenant_number;
	char tenant_name[RBK_STATS_NAME_BYTES];
	bool is_listed; /* false: it has ended, but timeslices or the loss of its device are logged
			 */
	struct rbk_stats_lease lease;
};

/*
 * Find a lease by number or name, the latest of several; @wanted: name or number of its tenant,
 * NULL: any.
 * Return: true if there is one.
 */
bool why_lease_find(const struct pages *pages, const char *name, const char *wanted,
		    struct lease_subject *ret);

/* Print the answer. Return: EXIT_*. */
int why_lease_answer(const struct pages *pages, const struct lease_subject *subject, bool is_json);
