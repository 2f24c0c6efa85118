#pragma once
/* SPDX-License-Identifier: MIT */
/* Declarations shared by the stats*.c files. */
#include "stats/stats.h"

enum { STATS_BUCKETS = 256 };

/*
 * Allocation of the records of a root page's section, whether the page exists or not; the lowest
 * free record is taken first.
 */
struct stats_slots {
	enum rbk_stats_section_id section;
	uint32_t n;
	uint32_t end;                            /* after the last record taken */
	uint64_t taken[STATS_MAX_SESSIONS / 64]; /* bits; no section has more records */
};

struct stats {
	uint32_t n_devices;
	uint32_t n_tenants;
	uint64_t started_ns;
	uint64_t period_ns;
	uint64_t n_resets, reset_ns; /* resets of all statistics */
	uint64_t updated_ns;
	int64_t monotonic_offset_ns, realtime_offset_ns;
	uint64_t plan_stride;
	struct list_node tenants;
	struct stats_tenant *buckets[STATS_BUCKETS]; /* tenants by number, linked by next */
	struct stats_page root;
	struct stats_device_counts counts[RBK_MAX_DEVICES];
	struct rbk_stats_device devices[RBK_MAX_DEVICES]; /* figures set last */
	struct stats_slots tenant_slots;
	struct {
		struct stats_slots slots;
		struct list_node list; /* struct stats_shown */
		uint32_t n;            /* length of the list */
	} shown[STATS_SHOWN_KINDS];
	uint32_t n_threads;                                  /* used records of THREADS */
	struct rbk_stats_reset resets[RBK_STATS_ALL_RESETS]; /* the last ones, in no order */
};

/* Layout of a page's sections. */
struct stats_layout {
	enum rbk_stats_kind kind;
	uint64_t bytes;
	uint64_t backed_bytes; /* bytes with memory from the start */
	struct rbk_stats_section sections[RBK_STATS_SECTION_COUNT];
};

/* Show the resets of a tenant in its new page. */
void stats_show_resets(struct stats_tenant *tenant);

void stats_layout_tenant(const struct stats *stats, struct stats_layout *ret);
void stats_layout_root(const struct stats *stats, struct stats_layout *ret);

/*
 * Create a page of @layout without a header, with its first backed_bytes allocated, mapped here and
 * sealed against writing through any other mapping. Any thread.
 * Return: 0; -ENOMEM; another negative errno.
 */
int stats_page_new(const struct stats_layout *layout, struct stats_page *ret);
/* Write the header of a new page. */
void stats_page_open(const struct stats *stats, const struct stats_layout *layout, uint64_t now_ns,
		     const struct stats_page *page);
/* Mark a page closed for its readers. A missing page is accepted. */
void stats_page_close(const struct stats_page *page, uint64_t now_ns);

/*
 * Allocate memory for a record unless it has some.
 * Return: true if the record may be written; a store into a record without memory would raise
 * SIGBUS if the system has none.
 */
bool stats_page_back(struct stats_page *page, unsigned int section, uint32_t index);

/* Return a record of an existing page. */
static inline void *stats_page_record(const struct stats_page *page, unsigned int section,
				      uint32_t index)
{
	const struct rbk_stats_section *at = &page->header->sections[section];

	return (char *)page->header + at->offset + (uint64_t)at->stride * index;
}

/* Copy a record except its sequence, which the caller holds. Both are aligned to 8 bytes. */
static inline void stats_record_store(void *to, const void *from, size_t bytes)
{
	const uint64_t *source = from;
	uint32_t *head = to;
	uint64_t *target = to;

	__atomic_store_n(&head[1], ((const uint32_t *)from)[1], __ATOMIC_RELAXED);
	for (size_t i = 1; i < bytes / sizeof(*target); i++)
		stats_store(&target[i], source[i]);
}

/* stats-slots.c. Take a slot. Return: STATS_NO_SLOT: none is free. */
uint32_t stats_slot_take(struct stats *stats, struct stats_slots *slots);
/* Free a slot, whose record was cleared; STATS_NO_SLOT is accepted. */
void stats_slot_give(struct stats *stats, struct stats_slots *slots, uint32_t slot);
/* Show the free records in a new root page. */
void stats_slots_show(struct stats *stats);

/* stats-delay.c: clear the record of delays in the root page that belongs to a tenant's slot. */
void stats_delay_clear(struct stats *stats, uint32_t root_slot);

/*
 * stats-shown.c: give a tenant's sessions and leases their records in a new page, or take them away
 * before the page is removed.
 */
void stats_shown_map(struct stats_tenant *tenant);
void stats_shown_unmap(struct stats_tenant *tenant);

/* Update the heartbeat of one page. */
void stats_page_touch(const struct stats *stats, const struct stats_page *page);
/* Show that the page's counts were reset. */
void stats_page_reset(const struct stats_page *page, uint64_t now_ns);
