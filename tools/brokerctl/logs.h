#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Decision logs of tenant pages
 *
 * A log is a ring: records that are not read in time are overwritten. Indices of records only
 * increase.
 */
#include <stdbool.h>

#include "judge.h"
#include "monitor/pages.h"

/* Return the number of records ever written to the tenant's log. */
uint64_t log_head(const struct tenant_page *tenant);
/* Return the index of the first record since the last reset. */
uint64_t log_first(const struct tenant_page *tenant);
/* Return the oldest index that can still be read from a log whose head is @head. */
uint64_t log_oldest(const struct tenant_page *tenant, uint64_t head);

/* A record and its tenant. */
struct log_entry {
	struct rbk_stats_decision decision;
	unsigned int tenant; /* index in struct pages */
};

/*
 * Copy the records of each tenant of @pages, ordered by the end of their tasks.
 * Return: 0 and an array that the caller frees, or -ENOMEM.
 */
int log_read(const struct pages *pages, struct log_entry **ret, size_t *ret_n);
/* Sort entries by the end of their tasks. */
void log_sort(struct log_entry *entries, size_t n_entries);

/*
 * Return the number of records ever written to the tenant's segments, and set *ret_oldest to the
 * oldest index that can still be read.
 */
uint64_t segments_head(const struct tenant_page *tenant, uint64_t *ret_oldest);

/*
 * Copy the segments that the pages show, ordered by tenant, task and the order in which they ran.
 * Return: 0 and an array that the caller frees, or -ENOMEM.
 */
int segments_read(const struct pages *pages, struct segment_entry **ret, size_t *ret_n);

/*
 * Find the segments of a task of the decision log in a list of that order.
 * Return: the first of the *ret_n segments: in order, from segment 0 on, to the last one or, of a
 * task that failed, to the one that did. NULL: the task's plan is not cut, or segments were
 * overwritten.
 */
const struct segment_entry *segments_find(const struct segment_entry *entries, size_t n_entries,
					  unsigned int tenant,
					  const struct rbk_stats_decision *task, uint32_t *ret_n);

/* A timeslice and its tenant. */
struct slice_entry {
	struct rbk_stats_slice slice;
	unsigned int tenant; /* index in struct pages, or another number of the tenant */
};

/*
 * Return the number of records ever written to the tenant's timeslices, and set *ret_oldest to the
 * oldest index that can still be read.
 */
uint64_t slices_head(const struct tenant_page *tenant, uint64_t *ret_oldest);
/*
 * Copy a timeslice.
 * Return: true; false: it was overwritten, or it ended before the last reset, or its times are
 * impossible.
 */
bool slice_copy(const struct tenant_page *tenant, uint64_t index, struct rbk_stats_slice *ret);
/* Return the name of a priority: "urgent", "high", "normal" or "background". */
const char *slice_priority(uint8_t priority);
/* Sort timeslices by device and begin. */
void slices_sort(struct slice_entry *entries, size_t n_entries);
/*
 * Copy the timeslices that the pages show, since the last reset, sorted.
 * Return: 0 and an array that the caller frees, or -ENOMEM.
 */
int slices_read(const struct pages *pages, struct slice_entry **ret, size_t *ret_n);
/*
 * Find the first timeslice on the device that began after @entry, of sorted entries, was told to
 * end, of a lease of another tenant that waited then.
 * Return: NULL: none is known.
 */
const struct slice_entry *slices_after(const struct slice_entry *entries, size_t n_entries,
				       const struct slice_entry *entry);

/*
 * Copy the resets that the pages show, in no order: of all tenants, or of those whose pages are
 * there.
 * Return: their number.
 */
unsigned int resets_read(const struct pages *pages,
			 struct rbk_stats_reset ret[static RBK_STATS_ALL_RESETS]);

/* A refused entry and its tenant. */
struct refused_entry {
	struct rbk_stats_refused refused;
	unsigned int tenant; /* index in struct pages */
};

/*
 * Copy the refused entries that the pages show, since the last reset, oldest first. Texts are
 * printable.
 * Return: 0 and an array that the caller frees, or -ENOMEM.
 */
int refused_read(const struct pages *pages, struct refused_entry **ret, size_t *ret_n);

/*
 * Copy the name of the record's plan; "" if the plan's slot has been reused.
 * Return: the number of the plan's segments, 1 if it is not cut; 0: not known.
 */
uint32_t log_plan_name(const struct tenant_page *tenant, const struct rbk_stats_decision *decision,
		       char name[RBK_NAME_BYTES]);
