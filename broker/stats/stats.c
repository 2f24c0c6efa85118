/* SPDX-License-Identifier: MIT */
/*
 * Statistics: tenants, plans and derived figures
 *
 * Counts are in the page, where readers see them. A tenant without a page has a private record of
 * the same type; giving or taking a page copies one record into the other. The hot path therefore
 * writes through a pointer without checks.
 *
 * A slot of the plans' section belongs to a plan until the plan is removed. It keeps the plan's
 * figures until another plan needs it. Slots that were never used are taken first, then the one
 * with the oldest figures. Plans beyond the slots, and those of a tenant without a page, count in a
 * spill record.
 *
 * The root page has copies of tenants' totals, made while a watcher exists. It is for a person or a
 * scraper, and copying a few kilobytes four times a second is cheaper than counting twice.
 */
#include "stats/stats.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "shm/stats-figures.h"
#include "stats/stats-private.h"
#include "util/checked.h"
#include "util/error.h"
#include "util/utf8.h"

/*
 * Tenants' totals, some kilobytes each, copied at once into a root page. A new page has as many
 * tenants as brokers usually have; an update is a part of a turn.
 */
enum { NEW_COPIES = 256, UPDATE_COPIES = 64 };

/* Store a member of a sequence-protected record, of any type that a processor stores at once. */
#define STATS_SET(member, value)                                         \
	do {                                                             \
		__typeof__(member) value_ = (__typeof__(member))(value); \
		__atomic_store(&(member), &value_, __ATOMIC_RELAXED);    \
	} while (0)

/* Return true if the root page's records of a tenant have memory. */
static bool root_back(struct stats *stats, uint32_t slot)
{
	return stats_page_back(&stats->root, RBK_STATS_SECTION_TENANTS, slot) &&
	       stats_page_back(&stats->root, RBK_STATS_SECTION_DELAYS, slot);
}

int stats_new(uint32_t n_devices, uint64_t now_ns, struct stats **ret)
{
	struct stats *stats = calloc(1, sizeof(*stats));

	if (!stats)
		return error_origin(-ENOMEM);
	stats->n_devices = n_devices < RBK_MAX_DEVICES ? n_devices : RBK_MAX_DEVICES;
	stats->started_ns = stats->reset_ns = stats->updated_ns = now_ns;
	stats->plan_stride = sizeof(struct rbk_stats_plan) +
			     stats->n_devices * sizeof(struct rbk_stats_plan_device);
	stats->root.fd = -1;
	stats->tenant_slots.section = RBK_STATS_SECTION_TENANTS;
	stats->tenant_slots.n = STATS_MAX_TENANTS;
	stats->shown[STATS_SESSIONS].slots.section = RBK_STATS_SECTION_SESSIONS;
	stats->shown[STATS_SESSIONS].slots.n = STATS_MAX_SESSIONS;
	stats->shown[STATS_LEASES].slots.section = RBK_STATS_SECTION_LEASES;
	stats->shown[STATS_LEASES].slots.n = STATS_MAX_LEASES;
	list_init(&stats->tenants);
	for (unsigned int kind = 0; kind < STATS_SHOWN_KINDS; kind++)
		list_init(&stats->shown[kind].list);
	*ret = stats;
	return 0;
}

struct stats *stats_free(struct stats *stats)
{
	if (!stats)
		return NULL;
	list_for_each_safe (node, &stats->tenants)
		stats_tenant_free(container_of(node, struct stats_tenant, link));
	stats_root_unmap(stats, stats->updated_ns);
	free(stats);
	return NULL;
}

const struct stats_page *stats_root(const struct stats *stats)
{
	return &stats->root;
}

const struct stats_device_counts *stats_device_counts(const struct stats *stats, uint32_t device)
{
	return &stats->counts[device];
}

void stats_set_period(struct stats *stats, uint64_t period_ns)
{
	stats->period_ns = period_ns;
}

/* --- Tenants --- */

int stats_tenant_new(struct stats *stats, uint32_t number, const char *name,
		     struct stats_tenant **ret)
{
	struct stats_tenant *tenant = calloc(1, sizeof(*tenant));

	if (!tenant)
		return error_origin(-ENOMEM);
	/* Room for every device that a decision can name. */
	tenant->spill = calloc(1, sizeof(*tenant->spill) +
					  RBK_MAX_DEVICES * sizeof(tenant->spill->devices[0]));
	if (!tenant->spill) {
		free(tenant);
		return error_origin(-ENOMEM);
	}
	tenant->stats = stats;
	tenant->devices = stats->counts;
	tenant->totals = &tenant->own;
	tenant->log = &tenant->own_log;
	tenant->page.fd = -1;
	tenant->root_slot = STATS_NO_SLOT;
	tenant->is_changed = true;
	tenant->own.number = number;
	tenant->own.flags = RBK_STATS_TENANT_USED;
	copy_printable(name, SIZE_MAX, tenant->own.name, sizeof(tenant->own.name));
	list_init(&tenant->plans);
	list_init(&tenant->resets);
	list_init(&tenant->gathered);
	for (unsigned int kind = 0; kind < STATS_SHOWN_KINDS; kind++)
		list_init(&tenant->shown[kind].list);
	list_append(&stats->tenants, &tenant->link);
	tenant->next = stats->buckets[number % STATS_BUCKETS];
	stats->buckets[number % STATS_BUCKETS] = tenant;
	stats->n_tenants++;
	*ret = tenant;
	return 0;
}

struct stats_tenant *stats_tenant_free(struct stats_tenant *tenant)
{
	struct stats_tenant **at;
	struct stats *stats;
	struct rbk_stats_tenant *shown;

	if (!tenant)
		return NULL;
	assert(list_is_empty(&tenant->plans));
	stats = tenant->stats;
	stats_page_close(&tenant->page, stats->updated_ns);
	stats_page_free(&tenant->page);
	if (tenant->root_slot != STATS_NO_SLOT && stats->root.header &&
	    root_back(stats, tenant->root_slot)) {
		shown = stats_page_record(&stats->root, RBK_STATS_SECTION_TENANTS,
					  tenant->root_slot);
		stats_begin(&shown->sequence);
		STATS_SET(shown->flags, 0);
		stats_end(&shown->sequence);
		stats_delay_clear(stats, tenant->root_slot);
	}
	stats_slot_give(stats, &stats->tenant_slots, tenant->root_slot);
	list_remove(&tenant->link);
	for (at = &stats->buckets[tenant->own.number % STATS_BUCKETS]; *at != tenant;)
		at = &(*at)->next;
	*at = tenant->next;
	stats->n_tenants--;
	free(tenant->spill);
	free(tenant);
	return NULL;
}

struct stats_tenant *stats_first_tenant(const struct stats *stats)
{
	return list_is_empty(&stats->tenants)
		       ? NULL
		       : container_of(stats->tenants.next, struct stats_tenant, link);
}

struct stats_tenant *stats_next_tenant(const struct stats *stats, const struct stats_tenant *tenant)
{
	return tenant->link.next == &stats->tenants
		       ? NULL
		       : container_of(tenant->link.next, struct stats_tenant, link);
}

uint32_t stats_n_tenants(const struct stats *stats)
{
	return stats->n_tenants;
}

void stats_tenant_last(struct stats_tenant *tenant)
{
	list_remove(&tenant->link);
	list_append(&tenant->stats->tenants, &tenant->link);
}

struct stats_tenant *stats_tenant_find(const struct stats *stats, uint32_t number)
{
	struct stats_tenant *tenant = stats->buckets[number % STATS_BUCKETS];

	while (tenant && tenant->own.number != number)
		tenant = tenant->next;
	return tenant;
}

/* --- Plans --- */

static struct rbk_stats_plan *slot_record(const struct stats_tenant *tenant, uint32_t slot)
{
	return stats_page_record(&tenant->page, RBK_STATS_SECTION_PLANS, slot);
}

/* Return: a slot that is free, or whose plan is gone; STATS_NO_SLOT: none is. */
static uint32_t find_slot(struct stats_tenant *tenant)
{
	uint64_t oldest_at_ns = UINT64_MAX;
	uint32_t oldest = STATS_NO_SLOT;

	if (!tenant->page.header)
		return STATS_NO_SLOT;
	if (tenant->next_slot < STATS_MAX_PLANS)
		return tenant->next_slot++;
	if (tenant->n_gone == 0)
		return STATS_NO_SLOT;
	tenant->n_gone--;
	for (uint32_t i = 0; i < STATS_MAX_PLANS; i++) {
		const struct rbk_stats_plan *record = slot_record(tenant, i);

		if (record->state == RBK_STATS_PLAN_GONE && record->made_at_ns < oldest_at_ns) {
			oldest_at_ns = record->made_at_ns;
			oldest = i;
		}
	}
	return oldest;
}

/* Clear all but the identity: counts, and learned figures. */
static void plan_record_clear(const struct stats *stats, struct rbk_stats_plan *record)
{
	uint64_t *words = (uint64_t *)record;
	size_t first = offsetof(struct rbk_stats_plan, n_inline) / sizeof(*words);

	for (size_t i = first; i < stats->plan_stride / sizeof(*words); i++)
		stats_store(&words[i], 0);
}

static void plan_take_slot(struct stats_plan *plan)
{
	struct stats_tenant *tenant = plan->tenant;
	uint64_t name[RBK_NAME_BYTES / sizeof(uint64_t)];
	uint32_t slot = find_slot(tenant);
	struct rbk_stats_plan *record;

	plan->slot = (uint16_t)slot;
	if (slot == STATS_NO_SLOT) {
		plan->record = tenant->spill;
		tenant->n_unlisted++;
		return;
	}
	record = plan->record = slot_record(tenant, slot);
	memcpy(name, plan->name, sizeof(name));
	stats_begin(&record->sequence);
	plan_record_clear(tenant->stats, record);
	STATS_SET(record->state, RBK_STATS_PLAN_LIVE);
	STATS_SET(record->session, plan->session);
	STATS_SET(record->plan_id, plan->plan_id);
	for (unsigned int i = 0; i < ARRAY_SIZE(name); i++)
		stats_store((uint64_t *)record->name + i, name[i]);
	STATS_SET(record->fingerprint, plan->fingerprint);
	STATS_SET(record->made_at_ns, plan->made_ns);
	STATS_SET(record->last_device, RBK_DEVICE_NONE);
	stats_end(&record->sequence);
}

static void plan_drop_slot(struct stats_plan *plan)
{
	if (plan->slot == STATS_NO_SLOT) {
		plan->tenant->n_unlisted--;
	} else {
		stats_begin(&plan->record->sequence);
		STATS_SET(plan->record->state, RBK_STATS_PLAN_GONE);
		stats_end(&plan->record->sequence);
		plan->tenant->n_gone++;
	}
	plan->slot = STATS_NO_SLOT;
	plan->record = plan->tenant->spill;
}

void stats_plan_init(struct stats_plan *plan, struct stats_tenant *tenant,
		     const struct stats_plan_about *about, uint64_t now_ns)
{
	*plan = (struct stats_plan){
		.tenant = tenant,
		.plan_id = about->plan_id,
		.session = about->session,
		.fingerprint = about->fingerprint,
		.made_ns = now_ns,
		.owner = about->owner,
	};
	memcpy(plan->name, about->name, sizeof(plan->name));
	plan->name[sizeof(plan->name) - 1] = '\0';
	list_init(&plan->gathered);
	list_append(&tenant->plans, &plan->link);
	list_append(&tenant->resets, &plan->reset);
	tenant->n_plans++;
	plan_take_slot(plan);
}

void stats_plan_deinit(struct stats_plan *plan)
{
	if (!plan->tenant)
		return;
	stats_inline_flush(plan);
	plan_drop_slot(plan);
	list_remove(&plan->link);
	list_remove(&plan->reset);
	plan->tenant->n_plans--;
	plan->tenant = NULL;
}

static void tenant_flush(struct stats_tenant *tenant)
{
	list_for_each_safe (node, &tenant->gathered)
		stats_inline_flush(container_of(node, struct stats_plan, gathered));
}

void stats_flush(struct stats *stats)
{
	list_for_each (node, &stats->tenants)
		tenant_flush(container_of(node, struct stats_tenant, link));
}

/* --- Pages --- */

/* Show a device's name, driver, paths, kind and memory in a tenant's page. */
static void show_device(const struct stats *stats, const struct stats_page *page, uint32_t index)
{
	struct rbk_stats_device *shown = stats_page_record(page, RBK_STATS_SECTION_DEVICES, index);
	const struct rbk_stats_device *figures = &stats->devices[index];
	struct rbk_stats_device about = {
		.index = index,
		.kind = figures->kind,
		.memory_total = figures->memory_total,
	};

	memcpy(about.name, figures->name, sizeof(about.name));
	memcpy(about.driver, figures->driver, sizeof(about.driver));
	memcpy(about.paths, figures->paths, sizeof(about.paths));
	stats_begin(&shown->sequence);
	stats_record_store(shown, &about, sizeof(about));
	stats_end(&shown->sequence);
}

void stats_tenant_map(struct stats_tenant *tenant, const struct stats_page *page, uint64_t now_ns)
{
	const struct stats *stats = tenant->stats;
	struct rbk_stats_tenant *totals;
	struct stats_layout layout;

	assert(!tenant->page.header);
	tenant->page = *page;
	stats_layout_tenant(stats, &layout);
	stats_page_open(stats, &layout, now_ns, &tenant->page);

	for (uint32_t i = 0; i < stats->n_devices; i++)
		show_device(stats, &tenant->page, i);
	totals = stats_page_record(&tenant->page, RBK_STATS_SECTION_TENANTS, 0);
	tenant->own.flags |= RBK_STATS_TENANT_PAGE;
	/* The log of an earlier page and the records in own_log are gone. */
	tenant->own.log_first = tenant->own.log_head;
	stats_record_store(totals, &tenant->own, sizeof(*totals));
	tenant->totals = totals;
	stats_show_resets(tenant);
	tenant->log = stats_page_record(&tenant->page, RBK_STATS_SECTION_DECISIONS, 0);
	tenant->log_mask = STATS_LOG_RECORDS - 1;
	tenant->segments = stats_page_record(&tenant->page, RBK_STATS_SECTION_SEGMENTS, 0);
	tenant->next_slot = tenant->n_gone = 0;
	tenant->n_unlisted = tenant->n_plans;
	tenant->is_changed = true;
	/* Stop when the slots are used up: the remaining plans have no slots already. */
	list_for_each (node, &tenant->plans) {
		if (tenant->next_slot == STATS_MAX_PLANS)
			break;
		plan_take_slot(container_of(node, struct stats_plan, link));
		tenant->n_unlisted--;
	}
	stats_shown_map(tenant);
}

struct stats_page stats_tenant_unmap(struct stats_tenant *tenant, uint64_t now_ns)
{
	const struct stats_page none = {.fd = -1};
	struct stats_page page = tenant->page;

	if (!page.header)
		return none;
	tenant_flush(tenant);
	stats_shown_unmap(tenant);
	list_for_each (node, &tenant->plans) {
		plan_drop_slot(container_of(node, struct stats_plan, link));
		tenant->n_unlisted++;
	}
	/* The private record has no other readers or writers. */
	memcpy(&tenant->own, tenant->totals, sizeof(tenant->own));
	tenant->own.sequence = 0;
	tenant->own.flags &= ~RBK_STATS_TENANT_PAGE;
	tenant->totals = &tenant->own;
	tenant->log = &tenant->own_log;
	tenant->log_mask = 0;
	tenant->segments = NULL;
	tenant->is_changed = true;
	stats_page_close(&page, now_ns);
	tenant->page = none;
	return page;
}

/* Show a device's counts with its last derived figures. */
static void update_device(struct stats *stats, uint32_t index)
{
	const struct stats_device_counts *counts = &stats->counts[index];
	struct rbk_stats_device *shown, figures = stats->devices[index];

	if (!stats->root.header)
		return;
	figures.index = index;
	figures.n_tasks = counts->n_tasks;
	figures.n_failed = counts->n_failed;
	figures.n_explored = counts->n_explored;
	figures.exec_ns = counts->exec_ns;
	figures.device_ns = counts->device_ns;
	memcpy(figures.reasons, counts->reasons, sizeof(figures.reasons));
	shown = stats_page_record(&stats->root, RBK_STATS_SECTION_DEVICES, index);
	stats_begin(&shown->sequence);
	stats_record_store(shown, &figures, sizeof(figures));
	stats_end(&shown->sequence);
}

/* Copy a tenant's figures to the root page. Return: false if there is no room for them. */
static bool show_tenant(struct stats *stats, struct stats_tenant *tenant)
{
	struct rbk_stats_tenant *shown;

	if (tenant->root_slot == STATS_NO_SLOT)
		tenant->root_slot = stats_slot_take(stats, &stats->tenant_slots);
	if (tenant->root_slot == STATS_NO_SLOT || !root_back(stats, tenant->root_slot))
		return false;
	tenant->is_changed = false;
	tenant->published_tasks = tenant->totals->n_tasks;
	shown = stats_page_record(&stats->root, RBK_STATS_SECTION_TENANTS, tenant->root_slot);
	stats_begin(&shown->sequence);
	stats_record_store(shown, tenant->totals, sizeof(*shown));
	stats_end(&shown->sequence);
	return true;
}

void stats_tenant_show(struct stats_tenant *tenant)
{
	if (tenant->stats->root.header)
		show_tenant(tenant->stats, tenant);
}

/* Copy the changed figures of devices, and of at most @max tenants. */
static void copy_tenants(struct stats *stats, unsigned int max)
{
	unsigned int n_copied = 0;

	if (!stats->root.header)
		return;
	for (uint32_t i = 0; i < stats->n_devices; i++)
		update_device(stats, i);
	/* Remaining tenants are nearer to the front the next time: see stats_tenant_last(). */
	list_for_each (node, &stats->tenants) {
		struct stats_tenant *tenant = container_of(node, struct stats_tenant, link);

		if (n_copied == max)
			break;
		if (!tenant->is_changed && tenant->published_tasks == tenant->totals->n_tasks)
			continue;
		n_copied += show_tenant(stats, tenant);
	}
}

int stats_root_map(struct stats *stats, uint64_t now_ns)
{
	struct stats_layout layout;
	int r;

	if (stats->root.header)
		return 0;
	stats_layout_root(stats, &layout);
	r = stats_page_new(&layout, &stats->root);
	if (r)
		return error_fold(r);
	stats_page_open(stats, &layout, now_ns, &stats->root);
	stats_slots_show(stats);
	for (uint32_t i = 0; i < stats->n_devices; i++)
		update_device(stats, i);
	list_for_each (node, &stats->tenants)
		container_of(node, struct stats_tenant, link)->is_changed = true;
	copy_tenants(stats, NEW_COPIES);
	return 0;
}

void stats_root_unmap(struct stats *stats, uint64_t now_ns)
{
	stats_page_close(&stats->root, now_ns);
	stats_page_free(&stats->root);
}

void stats_update_root(struct stats *stats)
{
	copy_tenants(stats, UPDATE_COPIES);
}

void stats_heartbeat(struct stats *stats, uint64_t now_ns, int64_t monotonic_offset_ns,
		     int64_t realtime_offset_ns)
{
	stats->updated_ns = now_ns;
	stats->monotonic_offset_ns = monotonic_offset_ns;
	stats->realtime_offset_ns = realtime_offset_ns;
	stats_page_touch(stats, &stats->root);
	list_for_each (node, &stats->tenants)
		stats_page_touch(stats, &container_of(node, struct stats_tenant, link)->page);
}

/* --- Resets --- */

static void clear_words(void *from, void *to)
{
	for (uint64_t *word = from; word < (uint64_t *)to; word++)
		stats_store(word, 0);
}

void stats_tenant_reset(struct stats_tenant *tenant, uint64_t now_ns)
{
	struct rbk_stats_tenant *totals = tenant->totals;

	stats_begin(&totals->sequence);
	clear_words(&totals->n_tasks, &totals->log_head);
	stats_store(&totals->inline_ns, 0);
	stats_store(&totals->n_entries_refused, 0);
	stats_store(&totals->n_reactor, 0);
	stats_store(&totals->log_first, totals->log_head);
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++) {
		struct rbk_stats_tenant_device *device = &totals->devices[i];

		clear_words(&device->n_tasks, &device->share);
		clear_words(&device->n_segments, device->reserved);
	}
	clear_words(totals->queue_histogram, totals + 1);
	stats_end(&totals->sequence);
	tenant->is_changed = true;
	stats_page_reset(&tenant->page, now_ns);
}

static void record_reset(const struct stats_tenant *tenant, struct rbk_stats_plan *record)
{
	stats_begin(&record->sequence);
	plan_record_clear(tenant->stats, record);
	STATS_SET(record->last_device, RBK_DEVICE_NONE);
	stats_end(&record->sequence);
}

struct stats_plan *stats_tenant_reset_plan(struct stats_tenant *tenant)
{
	struct list_node *node = tenant->resets.next;
	struct stats_plan *plan = container_of(node, struct stats_plan, reset);

	if (node == &tenant->resets)
		return NULL;
	list_remove(node);
	list_append(&tenant->resets, node);
	/* Devices keep the tasks that it has gathered; the totals are reset after all plans. */
	stats_inline_flush(plan);
	plan->seen_tasks = 0;
	if (plan->slot != STATS_NO_SLOT)
		record_reset(tenant, plan->record);
	return plan;
}

bool stats_tenant_reset_record(struct stats_tenant *tenant, uint32_t slot)
{
	struct rbk_stats_plan *record;

	if (!tenant->page.header || slot >= tenant->next_slot)
		return false;
	record = slot_record(tenant, slot);
	/* The record of a live plan is reset with the plan, which fills the record in. */
	if (record->state != RBK_STATS_PLAN_LIVE)
		record_reset(tenant, record);
	return true;
}

void stats_reset(struct stats *stats, uint64_t now_ns)
{
	memset(stats->counts, 0, sizeof(stats->counts));
	stats->n_resets++;
	stats->reset_ns = now_ns;
	stats_update_root(stats);
	stats_page_reset(&stats->root, now_ns);
}

/* --- Derived figures --- */

static void store_computed(const struct figure *figures, void *record, const void *from)
{
	for (const struct figure *figure = figures; !figure_is_end(figure); figure++) {
		const char *value = (const char *)from + figure->offset;
		char *member = (char *)record + figure->offset;

		if (figure->flag || !figure_is_computed(figure))
			continue;
		if (figure->type == FIGURE_U32)
			STATS_SET(*(uint32_t *)member, *(const uint32_t *)value);
		else
			STATS_SET(*(uint64_t *)member, *(const uint64_t *)value);
	}
}

void stats_set_tenant(struct stats_tenant *tenant, const struct rbk_stats_tenant *figures)
{
	const uint32_t own_flags = RBK_STATS_TENANT_USED | RBK_STATS_TENANT_PAGE;
	struct rbk_stats_tenant *totals = tenant->totals;

	stats_begin(&totals->sequence);
	STATS_SET(totals->flags, (totals->flags & own_flags) | (figures->flags & ~own_flags));
	store_computed(tenant_figures, totals, figures);
	STATS_SET(totals->n_plans_unlisted, tenant->n_unlisted);
	for (uint32_t i = 0; i < tenant->stats->n_devices; i++)
		store_computed(tenant_device_figures, &totals->devices[i], &figures->devices[i]);
	stats_end(&totals->sequence);
	tenant->is_changed = true;
}

void stats_set_plan(struct stats_plan *plan, const struct rbk_stats_plan_device *figures,
		    uint32_t n_devices, const struct stats_plan_memory *memory)
{
	struct rbk_stats_plan *record = plan->record;

	if (plan->slot == STATS_NO_SLOT)
		return;
	stats_begin(&record->sequence);
	for (uint32_t i = 0; i < n_devices && i < plan->tenant->stats->n_devices; i++) {
		struct rbk_stats_plan_device *device = &record->devices[i];

		store_computed(plan_device_figures, device, &figures[i]);
		STATS_SET(device->is_trusted, figures[i].is_trusted);
		STATS_SET(device->contention, figures[i].contention);
		STATS_SET(device->state, figures[i].state);
		STATS_SET(device->tier, figures[i].tier);
	}
	STATS_SET(record->n_evictions, memory->n_evictions);
	STATS_SET(record->n_returns, memory->n_returns);
	STATS_SET(record->n_memory_constraints, memory->n_constraints);
	STATS_SET(record->n_segments, memory->n_segments);
	STATS_SET(record->n_segments_resident, memory->n_segments_resident);
	STATS_SET(record->n_streamed, memory->n_streamed);
	STATS_SET(record->cut, memory->cut);
	STATS_SET(record->cut_ns, memory->cut_ns);
	STATS_SET(record->whole_ns, memory->whole_ns);
	stats_end(&record->sequence);
}

void stats_set_device(struct stats *stats, uint32_t device, const struct rbk_stats_device *figures)
{
	bool is_first = stats->devices[device].name[0] == '\0';

	stats->devices[device] = *figures;
	update_device(stats, device);
	if (!is_first)
		return;
	list_for_each (node, &stats->tenants) {
		struct stats_tenant *tenant = container_of(node, struct stats_tenant, link);

		if (tenant->page.header)
			show_device(stats, &tenant->page, device);
	}
}

void stats_set_broker(struct stats *stats, const struct rbk_stats_broker *figures)
{
	struct rbk_stats_broker about = *figures, *shown;

	if (!stats->root.header)
		return;
	if (stats->n_tenants > STATS_MAX_TENANTS)
		about.n_tenants_unlisted = stats->n_tenants - STATS_MAX_TENANTS;
	memcpy(about.resets, stats->resets, sizeof(about.resets));
	shown = stats_page_record(&stats->root, RBK_STATS_SECTION_BROKER, 0);
	stats_begin(&shown->sequence);
	stats_record_store(shown, &about, sizeof(about));
	stats_end(&shown->sequence);
}

/* Set the only record of a section of the root page; its first member is the sequence. */
static void set_only(struct stats *stats, enum rbk_stats_section_id section, const void *figures,
		     size_t bytes)
{
	uint32_t *sequence;

	if (!stats->root.header)
		return;
	sequence = stats_page_record(&stats->root, section, 0);
	stats_begin(sequence);
	stats_record_store(sequence, figures, bytes);
	stats_end(sequence);
}

void stats_set_upkeep(struct stats *stats, const struct rbk_stats_upkeep *figures)
{
	set_only(stats, RBK_STATS_SECTION_UPKEEP, figures, sizeof(*figures));
}

void stats_set_reload(struct stats *stats, const struct rbk_stats_reload *figures)
{
	set_only(stats, RBK_STATS_SECTION_RELOAD, figures, sizeof(*figures));
}

void stats_set_waiting(struct stats *stats, const struct rbk_stats_waiting *figures)
{
	set_only(stats, RBK_STATS_SECTION_WAITING, figures, sizeof(*figures));
}
