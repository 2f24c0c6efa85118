/* SPDX-License-Identifier: MIT */
/*
 * A statistics page as metrics
 *
 * Figures that are one number of one record are in tables; other figures have functions. A family's
 * samples must be adjacent, so the page is copied first, and the copy is traversed once for each
 * family: 5 KB for each tenant, which stay in the processor's cache.
 */
#include "control/metrics-page.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control/metrics-private.h"
#include "util/error.h"

enum {
	NAP_NS = 100000,
	MAX_NAPS = 100, /* per copy of a page */
};

int metrics_page_new(const struct rbk_stats_view *view, struct metrics_page **ret)
{
	size_t n = rbk_stats_count(view, RBK_STATS_SECTION_TENANTS);
	_cleanup_(metrics_page_freep) struct metrics_page *page =
		calloc(1, sizeof(*page) + n * sizeof(page->tenants[0]));

	if (!page)
		return error_origin(-ENOMEM);
	page->keys = calloc(n ? n : 1, sizeof(page->keys[0]));
	if (!page->keys)
		return error_origin(-ENOMEM);
	page->max_tenants = (uint32_t)n;
	*ret = steal_ptr(page);
	return 0;
}

struct metrics_page *metrics_page_free(struct metrics_page *page)
{
	if (!page)
		return NULL;
	free(page->keys);
	free(page);
	return NULL;
}

static void copy_record(void *to, const void *record, size_t bytes, unsigned int *n_naps)
{
	static const struct timespec nap = {.tv_nsec = NAP_NS};

	while (!rbk_stats_copy(to, record, bytes) && *n_naps < MAX_NAPS) {
		nanosleep(&nap, NULL);
		++*n_naps;
	}
}

static void copy_header(struct metrics_page *page, const struct rbk_stats_view *view)
{
	const struct rbk_stats_header *from = view->page;
	struct rbk_stats_header *to = &page->header;

	/* Copied first, or the copied figures may be newer than the page's time. */
	to->n_updates = rbk_stats_load(&from->n_updates);
	to->updated_at_ns = rbk_stats_load(&from->updated_at_ns);
	to->n_resets = rbk_stats_load(&from->n_resets);
	to->reset_at_ns = rbk_stats_load(&from->reset_at_ns);
	to->realtime_offset_ns = __atomic_load_n(&from->realtime_offset_ns, __ATOMIC_RELAXED);
	to->started_at_ns = from->started_at_ns;
	to->abi_major = from->abi_major;
	to->abi_minor = from->abi_minor;
}

/* Add a thread to its role: sums of times and counts, and the worst thread's percentiles. */
static void add_thread(struct rbk_stats_delay *role, const struct rbk_stats_delay *thread)
{
	role->flags |= thread->flags;
	role->wait_ns += thread->wait_ns;
	role->n_waits += thread->n_waits;
	role->n_preemptions += thread->n_preemptions;
	if (thread->p50_ns > role->p50_ns)
		role->p50_ns = thread->p50_ns;
	if (thread->p99_ns > role->p99_ns)
		role->p99_ns = thread->p99_ns;
	if (thread->max_ns > role->max_ns)
		role->max_ns = thread->max_ns;
}

static void copy_threads(struct metrics_page *page, const struct rbk_stats_view *view,
			 unsigned int *n_naps)
{
	const struct rbk_stats_thread *record;
	struct rbk_stats_thread thread;
	uint32_t i = 0;

	memset(page->roles, 0, sizeof(page->roles));
	page->has_roles = false;
	while ((record = rbk_stats_record(view, RBK_STATS_SECTION_THREADS, i++))) {
		copy_record(&thread, record, sizeof(thread), n_naps);
		if (thread.tid == 0 || !(thread.delay.flags & RBK_STATS_DELAY_USED) ||
		    (thread.role != RBK_STATS_ROLE_REACTOR && thread.role != RBK_STATS_ROLE_WORKER))
			continue;
		page->has_roles = true;
		add_thread(&page->roles[thread.role - RBK_STATS_ROLE_REACTOR], &thread.delay);
	}
}

/* FNV-1a. */
static uint64_t hash(const char *text)
{
	uint64_t value = 0xcbf29ce484222325u;

	for (; *text; text++)
		value = (value ^ (unsigned char)*text) * 0x100000001b3u;
	return value;
}

/*
 * Write a tenant's label. A scraper refuses all series if two have one name. Names are unique while
 * the policy is right; of two equal names, the later one gets its number appended, after a
 * character that no name of a policy has.
 */
static void label_tenant(struct metrics_page *page, struct tenant_copy *tenant)
{
	uint32_t index = (uint32_t)(tenant - page->tenants);
	char name[2 * RBK_STATS_NAME_BYTES];

	tenant->figures.name[RBK_STATS_NAME_BYTES - 1] = '\0';
	metrics_escape(name, sizeof(name), tenant->figures.name);
	snprintf(tenant->label, sizeof(tenant->label), "tenant=\"%s\"", name);
	page->keys[index] = (struct tenant_key){hash(tenant->label), tenant->figures.number};
	for (uint32_t i = 0; i < index; i++) {
		if (page->keys[i].hash != page->keys[index].hash ||
		    strcmp(page->tenants[i].label, tenant->label) != 0)
			continue;
		snprintf(tenant->label, sizeof(tenant->label), "tenant=\"%s#%u\"", name,
			 tenant->figures.number);
		return;
	}
}

static void copy_tenants(struct metrics_page *page, const struct rbk_stats_view *view,
			 unsigned int *n_naps)
{
	const struct rbk_stats_tenant *record;
	const struct rbk_stats_delay *delay;
	struct tenant_copy *tenant;

	page->n_tenants = 0;
	for (uint32_t i = 0; i < rbk_stats_used(view, RBK_STATS_SECTION_TENANTS) &&
			     page->n_tenants < page->max_tenants;
	     i++) {
		record = rbk_stats_record(view, RBK_STATS_SECTION_TENANTS, i);
		if (!(__atomic_load_n(&record->flags, __ATOMIC_RELAXED) & RBK_STATS_TENANT_USED))
			continue;
		tenant = &page->tenants[page->n_tenants];
		copy_record(&tenant->figures, record, sizeof(tenant->figures), n_naps);
		if (!(tenant->figures.flags & RBK_STATS_TENANT_USED))
			continue;
		delay = rbk_stats_record(view, RBK_STATS_SECTION_DELAYS, i);
		if (delay)
			copy_record(&tenant->delay, delay, sizeof(tenant->delay), n_naps);
		else
			tenant->delay.flags = 0;
		label_tenant(page, tenant);
		page->n_tenants++;
	}
}

static struct tenant_copy *find_tenant(struct metrics_page *page, uint32_t number)
{
	for (uint32_t i = 0; i < page->n_tenants; i++)
		if (page->keys[i].number == number)
			return &page->tenants[i];
	return NULL;
}

static void copy_leases(struct metrics_page *page, const struct rbk_stats_view *view,
			unsigned int *n_naps)
{
	const uint32_t n = rbk_stats_used(view, RBK_STATS_SECTION_LEASES);
	const struct rbk_stats_lease *record;
	struct rbk_stats_lease lease;
	struct tenant_copy *tenant;
	struct lease_sum *sum;

	page->has_leases = rbk_stats_count(view, RBK_STATS_SECTION_LEASES) > 0;
	for (uint32_t i = 0; i < page->n_tenants; i++)
		memset(page->tenants[i].leases, 0, sizeof(page->tenants[i].leases));
	for (uint32_t i = 0; i < n; i++) {
		record = rbk_stats_record(view, RBK_STATS_SECTION_LEASES, i);
		if (__atomic_load_n(&record->number, __ATOMIC_RELAXED) == 0)
			continue;
		copy_record(&lease, record, sizeof(lease), n_naps);
		tenant = find_tenant(page, lease.tenant);
		if (lease.number == 0 || !tenant || lease.device >= page->n_devices)
			continue;
		sum = &tenant->leases[lease.device];
		sum->n++;
		sum->granted_bytes += lease.granted_bytes;
		if (lease.flags & RBK_STATS_LEASE_CAPPED)
			sum->capped_bytes += lease.granted_bytes;
		sum->credited_bytes += lease.credited_bytes;
		sum->used_bytes += lease.used_bytes + lease.extra_bytes;
		sum->moved_bytes += lease.moved_bytes;
		if (lease.longest_part_ns > sum->longest_part_ns)
			sum->longest_part_ns = lease.longest_part_ns;
		if (lease.seen_bytes != RBK_STATS_ABSENT) {
			sum->is_seen = true;
			sum->seen_bytes += lease.seen_bytes;
		}
	}
}

void metrics_page_take(struct metrics_page *page, const struct rbk_stats_view *view)
{
	const struct rbk_stats_broker *broker = rbk_stats_record(view, RBK_STATS_SECTION_BROKER, 0);
	const struct rbk_stats_contention *contention =
		rbk_stats_record(view, RBK_STATS_SECTION_CONTENTION, 0);
	const struct rbk_stats_upkeep *upkeep = rbk_stats_record(view, RBK_STATS_SECTION_UPKEEP, 0);
	unsigned int n_naps = 0;

	copy_header(page, view);
	if (broker)
		copy_record(&page->broker, broker, sizeof(page->broker), &n_naps);
	page->has_contention = contention != NULL;
	if (contention)
		copy_record(&page->contention, contention, sizeof(page->contention), &n_naps);
	page->has_upkeep = upkeep != NULL;
	if (upkeep)
		copy_record(&page->upkeep, upkeep, sizeof(page->upkeep), &n_naps);
	page->n_devices = 0;
	while (page->n_devices < view->n_devices &&
	       page->n_devices < rbk_stats_count(view, RBK_STATS_SECTION_DEVICES)) {
		struct rbk_stats_device *device = &page->devices[page->n_devices];

		copy_record(device,
			    rbk_stats_record(view, RBK_STATS_SECTION_DEVICES, page->n_devices),
			    sizeof(*device), &n_naps);
		device->name[RBK_STATS_NAME_BYTES - 1] = '\0';
		device->driver[RBK_STATS_NAME_BYTES - 1] = '\0';
		device->paths[RBK_STATS_NAME_BYTES - 1] = '\0';
		page->n_devices++;
	}
	copy_tenants(page, view, &n_naps);
	copy_leases(page, view, &n_naps);
	copy_threads(page, view, &n_naps);
}

void metrics_page_write(const struct metrics_page *page, const char *version,
			const struct metrics_process *process, struct metrics_text *text)
{
	metrics_write_broker(page, version, text);
	metrics_process_write(process, text);
	metrics_write_upkeep(page, text);
	metrics_write_devices(page, text);
	metrics_write_tenants(page, text);
	metrics_end(text);
}
