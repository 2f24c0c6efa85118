/* SPDX-License-Identifier: MIT */
/*
 * Statistics: allocation of the root page's records
 *
 * There is room for many more records than most brokers use. The lowest free record is taken first,
 * and the page shows after which record all are free. A reader therefore need not scan the rest,
 * nor make the system allocate memory for it.
 */
#include "stats/stats-private.h"

static void show_free(struct stats *stats, enum rbk_stats_section_id id, uint32_t end)
{
	struct rbk_stats_section *section;

	if (!stats->root.header)
		return;
	section = &stats->root.header->sections[id];
	/* No pairing is needed: a reader that sees the value too early finds a free record. */
	__atomic_store_n(&section->n_free, section->count - end, __ATOMIC_RELAXED);
}

static void show(struct stats *stats, const struct stats_slots *slots)
{
	show_free(stats, slots->section, slots->end);
	/* Records of delays have the same indices as those of tenants. */
	if (slots->section == RBK_STATS_SECTION_TENANTS)
		show_free(stats, RBK_STATS_SECTION_DELAYS, slots->end);
}

static bool is_taken(const struct stats_slots *slots, uint32_t slot)
{
	return slots->taken[slot / 64] >> slot % 64 & 1;
}

uint32_t stats_slot_take(struct stats *stats, struct stats_slots *slots)
{
	uint32_t slot;

	for (uint32_t i = 0; i < slots->n / 64; i++) {
		if (slots->taken[i] == UINT64_MAX)
			continue;
		slot = i * 64 + (uint32_t)__builtin_ctzll(~slots->taken[i]);
		slots->taken[i] |= 1ull << slot % 64;
		if (slot >= slots->end) {
			slots->end = slot + 1;
			show(stats, slots);
		}
		return slot;
	}
	return STATS_NO_SLOT;
}

void stats_slot_give(struct stats *stats, struct stats_slots *slots, uint32_t slot)
{
	if (slot == STATS_NO_SLOT)
		return;
	slots->taken[slot / 64] &= ~(1ull << slot % 64);
	if (slot + 1 < slots->end)
		return;
	while (slots->end > 0 && !is_taken(slots, slots->end - 1))
		slots->end--;
	show(stats, slots);
}

void stats_slots_show(struct stats *stats)
{
	show(stats, &stats->tenant_slots);
	for (unsigned int kind = 0; kind < STATS_SHOWN_KINDS; kind++)
		show(stats, &stats->shown[kind].slots);
}
