/* SPDX-License-Identifier: MIT */
/* See metrics-rig.h. */
#include "tests/unit/metrics-rig.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * Append a section of @count records to the page.
 * Return: the section's first record.
 */
static void *section(struct metrics_rig *rig, enum rbk_stats_section_id id, uint64_t bytes,
		     uint32_t count)
{
	struct rbk_stats_section *section = &rig->header->sections[id];

	*section = (struct rbk_stats_section){
		.offset = (uint32_t)rig->header->page_bytes,
		.stride = (uint32_t)bytes,
		.count = count,
	};
	rig->header->page_bytes += bytes * count;
	return (char *)rig->page + section->offset;
}

void metrics_rig_init(struct metrics_rig *rig, uint32_t n_tenants)
{
	const size_t room = 1 << 16;

	rig->page = calloc(1, room + n_tenants * (sizeof(struct rbk_stats_tenant) +
						  sizeof(struct rbk_stats_delay)));
	assert(rig->page);
	rig->header = rig->page;
	*rig->header = (struct rbk_stats_header){
		.magic = RBK_STATS_MAGIC,
		.abi_major = RBK_STATS_ABI_MAJOR,
		.abi_minor = 2,
		.kind = RBK_STATS_ROOT,
		.n_devices = METRICS_RIG_DEVICES,
		.page_bytes = sizeof(*rig->header),
		.n_sections = RBK_STATS_SECTION_COUNT,
		.n_updates = 1,
	};
	rig->broker = section(rig, RBK_STATS_SECTION_BROKER, sizeof(*rig->broker), 1);
	rig->contention = section(rig, RBK_STATS_SECTION_CONTENTION, sizeof(*rig->contention), 1);
	rig->devices =
		section(rig, RBK_STATS_SECTION_DEVICES, sizeof(*rig->devices), METRICS_RIG_DEVICES);
	rig->threads =
		section(rig, RBK_STATS_SECTION_THREADS, sizeof(*rig->threads), METRICS_RIG_THREADS);
	rig->tenants = section(rig, RBK_STATS_SECTION_TENANTS, sizeof(*rig->tenants), n_tenants);
	rig->delays = section(rig, RBK_STATS_SECTION_DELAYS, sizeof(*rig->delays), n_tenants);
	rig->leases =
		section(rig, RBK_STATS_SECTION_LEASES, sizeof(*rig->leases), METRICS_RIG_LEASES);
	rig->upkeep = section(rig, RBK_STATS_SECTION_UPKEEP, sizeof(*rig->upkeep), 1);
	assert(rbk_stats_view(&rig->view, rig->page, rig->header->page_bytes));
}

void metrics_rig_deinit(struct metrics_rig *rig)
{
	free(rig->page);
}

/* Fill words with consecutive numbers, so that two swapped words show. */
static void number_words(void *first, void *end, uint64_t from)
{
	for (uint64_t *word = first; word < (uint64_t *)end; word++)
		*word = from++;
}

static void fill_delay(struct rbk_stats_delay *delay, uint64_t from)
{
	delay->flags = RBK_STATS_DELAY_USED | RBK_STATS_DELAY_KNOWN;
	number_words(&delay->run_ns, &delay->n_causes, from);
	snprintf(delay->causes[0].comm, sizeof(delay->causes[0].comm), "stranger");
}

void metrics_rig_tenant(struct metrics_rig *rig, uint32_t index, const char *name)
{
	struct rbk_stats_tenant *tenant = &rig->tenants[index];

	*tenant = (struct rbk_stats_tenant){
		.number = index + 1,
		.flags = RBK_STATS_TENANT_USED,
		.weight = 100 + index,
	};
	snprintf(tenant->name, sizeof(tenant->name), "%s", name);
	number_words(&tenant->n_tasks, &tenant->inline_ns, 1000 * (index + 1));
	tenant->exec_ns = 5000000000 + index;
	tenant->inline_ns = 1000000000;
	tenant->n_reactor = 40 + index;
	number_words(&tenant->slice_ns, tenant->reserved, 7000000 + 1000 * index);
	for (uint32_t i = 0; i < METRICS_RIG_DEVICES; i++) {
		struct rbk_stats_tenant_device *device = &tenant->devices[i];

		number_words(&device->n_tasks, device + 1, 100 * (i + 1) + 1000 * index);
		device->share = 0.25 * (i + 1);
	}
	tenant->devices[0].memory_max = tenant->devices[0].gtt_max = RBK_STATS_ABSENT;
	for (unsigned int i = 0; i < RBK_STATS_BUCKETS; i++) {
		tenant->queue_histogram[i] = 1;
		tenant->latency_histogram[i] = i % (index + 2);
	}
	fill_delay(&rig->delays[index], 2000 * (index + 1));
}

static void fill_devices(struct metrics_rig *rig)
{
	for (uint32_t i = 0; i < METRICS_RIG_DEVICES; i++) {
		struct rbk_stats_device *device = &rig->devices[i];

		number_words(&device->n_tasks, device->paths, 10000 * (i + 1));
		device->index = device->kind = device->breaker = i;
		device->success_rate = 1;
		device->contention = 1 + 0.5 * i;
		device->explored_share = 0.0125;
		device->utilization = 1.0 / 3;
		device->n_servers = i + 3;
		device->n_stalls = i + 5;
		device->load_percent = 83;
		device->memory_load_percent = 7;
		device->temperature_millicelsius = 71500;
		device->power_microwatts = 134250000;
	}
	snprintf(rig->devices[0].name, RBK_STATS_NAME_BYTES, "CPU");
	snprintf(rig->devices[0].paths, RBK_STATS_NAME_BYTES, "avx2");
	snprintf(rig->devices[1].name, RBK_STATS_NAME_BYTES, "AMD Radeon RX 580 (\"POLARIS10\\\")");
	snprintf(rig->devices[1].driver, RBK_STATS_NAME_BYTES, "radv");
	snprintf(rig->devices[1].paths, RBK_STATS_NAME_BYTES, "udmabuf+exported");
	rig->devices[0].memory_budget = RBK_STATS_ABSENT;
	rig->devices[0].power_microwatts = RBK_STATS_ABSENT;
	rig->devices[1].flags = RBK_STATS_DEVICE_LOST;
}

static void fill_threads(struct metrics_rig *rig)
{
	for (uint32_t i = 0; i < METRICS_RIG_THREADS; i++) {
		rig->threads[i].tid = i + 1;
		rig->threads[i].role = i == 0                         ? RBK_STATS_ROLE_REACTOR
				       : i == METRICS_RIG_THREADS - 1 ? RBK_STATS_ROLE_OTHER
								      : RBK_STATS_ROLE_WORKER;
		fill_delay(&rig->threads[i].delay, 100 * (i + 1));
	}
}

/*
 * Write two leases of tenant 1 with an unused record between them, and one of tenant 2; then one of
 * an unknown tenant, and one of an unknown device.
 */
static void fill_leases(struct metrics_rig *rig)
{
	static const struct rbk_stats_lease leases[METRICS_RIG_LEASES] = {
		{.number = 1,
		 .tenant = 1,
		 .device = 1,
		 .granted_bytes = 1000,
		 .credited_bytes = 600,
		 .used_bytes = 500,
		 .extra_bytes = 7,
		 .moved_bytes = 70,
		 .seen_bytes = RBK_STATS_ABSENT,
		 .longest_part_ns = 612345},
		{.number = 0, .tenant = 1, .device = 1, .granted_bytes = 55},
		{.number = 3,
		 .tenant = 1,
		 .device = 1,
		 .flags = RBK_STATS_LEASE_CAPPED,
		 .granted_bytes = 2000,
		 .credited_bytes = 900,
		 .used_bytes = 800,
		 .moved_bytes = 4,
		 .seen_bytes = 810,
		 .longest_part_ns = 500},
		{.number = 4,
		 .tenant = 2,
		 .device = 1,
		 .granted_bytes = 40000,
		 .credited_bytes = 300,
		 .used_bytes = 200,
		 .seen_bytes = RBK_STATS_ABSENT},
		{.number = 5, .tenant = 77, .device = 1, .granted_bytes = 66},
		{.number = 6, .tenant = 2, .device = 15, .granted_bytes = 77},
	};

	for (uint32_t i = 0; i < METRICS_RIG_LEASES; i++)
		rig->leases[i] = leases[i];
}

static void fill_upkeep(struct metrics_rig *rig)
{
	struct rbk_stats_upkeep *upkeep = rig->upkeep;

	number_words(&upkeep->n_setup_waiting, upkeep->setup, 300);
	number_words(upkeep->setup, &upkeep->n_closers, 400);
	upkeep->n_closers = 7;
	upkeep->n_closers_max = 32;
	upkeep->n_closers_stuck = 4;
	upkeep->n_closings_waiting = 11;
	upkeep->n_closers_ever_stuck = 12;
	upkeep->longest_turn_cpu_ns = 39;
	upkeep->sandbox = RBK_STATS_SANDBOX_LOG;
	upkeep->n_calls_refused = 13;
	number_words(upkeep->mended, upkeep + 1, 600);
}

void metrics_rig_fill(struct metrics_rig *rig)
{
	struct rbk_stats_header *header = rig->header;

	header->started_at_ns = 1000000000;
	header->updated_at_ns = 61250000000;
	header->n_resets = 2;
	header->reset_at_ns = 31000000001;
	header->realtime_offset_ns = 1700000000000000000;
	number_words(&rig->broker->n_sessions, rig->broker + 1, 10);
	rig->broker->flags = RBK_STATS_BROKER_FORCE_CPU;
	number_words(&rig->contention->n_began, rig->contention->reserved, 50);
	rig->contention->flags = RBK_STATS_CONTENDED;
	rig->contention->n_workers = 5;
	rig->contention->n_workers_total = 8;
	rig->contention->factor = 1.75;
	fill_upkeep(rig);
	fill_devices(rig);
	fill_threads(rig);
	fill_leases(rig);
	metrics_rig_tenant(rig, 0, "web");
	metrics_rig_tenant(rig, 1, "batch");
}
