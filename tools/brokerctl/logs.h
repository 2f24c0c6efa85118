#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Decision logs of tenant pages
 *
 * A log is a ring: what is not read in time is overwritten. Its indices count up for ever.
 */
#include <stdbool.h>

#include "monitor/pages.h"

/* How many records the tenant's log ever had. */
uint64_t log_head(const struct tenant_page *tenant);
/* The first one since the last reset. */
uint64_t log_first(const struct tenant_page *tenant);
/* The oldest index that can still be read of a log that has come to @head. */
uint64_t log_oldest(const struct tenant_page *tenant, uint64_t head);

/* A record, and whose it is. */
struct log_entry {
	struct rbk_stats_decision decision;
	unsigned int tenant; /* in struct pages */
};

/*
 * Copies the last @n_last records of each tenant of @pages, in the order in which their tasks
 * ended. Return: 0 and an array, to be freed; -ENOMEM.
 */
int log_read(const struct pages *pages, uint64_t n_last, struct log_entry **ret, size_t *ret_n);
/* By when tasks ended. */
void log_sort(struct log_entry *entries, size_t n_entries);

/* The name of the plan that a record is of; "" if its slot has another one by now. */
void log_plan_name(const struct tenant_page *tenant, const struct rbk_stats_decision *decision,
		   char name[RBK_NAME_BYTES]);
