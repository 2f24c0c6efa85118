#pragma once
/* SPDX-License-Identifier: MIT */
/* What the stats*.c files share. */
#include "stats/stats.h"

enum { STATS_BUCKETS = 256 };

/* Records of sections of the root page, whether that is there or not: who takes one takes the first
 * that is free. */
struct stats_slots {
	enum rbk_stats_section_id section;
	uint32_t n;
	uint32_t end;                            /* behind the last one that is taken */
	uint64_t taken[STATS_MAX_SESSIONS / 64]; /* bits; none has more */
};

struct stats {
	uint32_t n_devices;
	uint32_t n_tenants;
	uint64_t started_ns;
	uint64_t period_ns;
	uint64_t n_resets, reset_ns; /* of everything */
	uint64_t updated_ns;
	int64_t monotonic_offset_ns, realtime_offset_ns;
	uint64_t plan_stride;
	struct list_node tenants;
	struct stats_tenant *buckets[STATS_BUCKETS]; /* the same by number, linked by next */
	struct stats_page root;
	struct stats_device_counts counts[RBK_MAX_DEVICES];
	struct rbk_stats_device devices[RBK_MAX_DEVICES]; /* figures set last */
	struct stats_slots tenant_slots, session_slots, lease_slots;
	struct list_node sessions;
	uint32_t n_sessions;
	struct list_node leases;
	uint32_t n_leases;
	uint32_t n_threads; /* records of THREADS that are used */
};

/* How the sections of a page lie. */
struct stats_layout {
	enum rbk_stats_kind kind;
	uint64_t bytes;
	uint64_t backed_bytes; /* that have memory from the start */
	struct rbk_stats_section sections[RBK_STATS_SECTION_COUNT];
};

void stats_layout_tenant(const struct stats *stats, struct stats_layout *ret);
void stats_layout_root(const struct stats *stats, struct stats_layout *ret);

/*
 * A page of that layout without a header, its first backed_bytes allocated, mapped here and sealed
 * against writing through any other mapping. Any thread. Return: 0; -ENOMEM; other negative errno.
 */
int stats_page_new(const struct stats_layout *layout, struct stats_page *ret);
/* Writes the header of a new page. */
void stats_page_open(const struct stats *stats, const struct stats_layout *layout, uint64_t now_ns,
		     const struct stats_page *page);
/* Marks a page closed, for those who go on reading it. One that is not there is fine. */
void stats_page_close(const struct stats_page *page, uint64_t now_ns);

/*
 * Is there memory for a record, or can there be? It may be written if so; a store elsewhere would
 * be a SIGBUS where the system has none.
 */
bool stats_page_back(struct stats_page *page, unsigned int section, uint32_t index);

/* Its record, which is there. */
static inline void *stats_page_record(const struct stats_page *page, unsigned int section,
				      uint32_t index)
{
	const struct rbk_stats_section *at = &page->header->sections[section];

	return (char *)page->header + at->offset + (uint64_t)at->stride * index;
}

/* Copies a record but for its sequence, which the caller holds. Both have 8 bytes aligned. */
static inline void stats_record_store(void *to, const void *from, size_t bytes)
{
	const uint64_t *source = from;
	uint32_t *head = to;
	uint64_t *target = to;

	__atomic_store_n(&head[1], ((const uint32_t *)from)[1], __ATOMIC_RELAXED);
	for (size_t i = 1; i < bytes / sizeof(*target); i++)
		stats_store(&target[i], source[i]);
}

/* stats-slots.c. Return: STATS_NO_SLOT: there is none left. */
uint32_t stats_slot_take(struct stats *stats, struct stats_slots *slots);
/* Gives it back; also STATS_NO_SLOT. What it showed has been cleared. */
void stats_slot_give(struct stats *stats, struct stats_slots *slots, uint32_t slot);
/* Says in a root page that has just come which records are free. */
void stats_slots_show(struct stats *stats);

/* stats-delay.c: the record of the root page that stands beside that of a tenant means nobody. */
void stats_delay_clear(struct stats *stats, uint32_t root_slot);

/*
 * stats-session.c: the page of a tenant is there, or is about to go: its sessions get, and lose,
 * their records in it.
 */
void stats_sessions_map(struct stats_tenant *tenant);
void stats_sessions_unmap(struct stats_tenant *tenant);

/* stats-lease.c: likewise its leases. */
void stats_leases_map(struct stats_tenant *tenant);
void stats_leases_unmap(struct stats_tenant *tenant);

/* The heartbeat of one page. */
void stats_page_touch(const struct stats *stats, const struct stats_page *page);
/* Its counts have begun anew. */
void stats_page_reset(const struct stats_page *page, uint64_t now_ns);
