/* SPDX-License-Identifier: MIT */
/* Metrics of tenants: of each tenant, of each on each device, and of its leases */
#include "control/metrics-private.h"

#include <string.h>

#include "util/checked.h"

/*
 * Bounds of buckets. They are bounds of the page's finer buckets, so that no count has to be
 * divided. Each is twice the one before where tasks usually are, four times at the ends.
 */
static const struct {
	unsigned int bucket; /* first bucket of the page beyond the bound */
	const char *label;
} bounds[] = {
	{12, "le=\"1.024e-06\""},           {20, "le=\"4.096e-06\""},
	{24, "le=\"8.192e-06\""},           {28, "le=\"1.6384e-05\""},
	{32, "le=\"3.2768e-05\""},          {36, "le=\"6.5536e-05\""},
	{40, "le=\"0.000131072\""},         {44, "le=\"0.000262144\""},
	{48, "le=\"0.000524288\""},         {52, "le=\"0.001048576\""},
	{56, "le=\"0.002097152\""},         {60, "le=\"0.004194304\""},
	{64, "le=\"0.008388608\""},         {68, "le=\"0.016777216\""},
	{72, "le=\"0.033554432\""},         {76, "le=\"0.067108864\""},
	{80, "le=\"0.134217728\""},         {84, "le=\"0.268435456\""},
	{88, "le=\"0.536870912\""},         {92, "le=\"1.073741824\""},
	{100, "le=\"4.294967296\""},        {108, "le=\"17.179869184\""},
	{RBK_STATS_BUCKETS, "le=\"+Inf\""},
};

static void write_histogram(const struct metrics_page *page, struct metrics_text *text,
			    const uint64_t *histogram, uint64_t sum_ns, const char *labels)
{
	unsigned int bucket = 0;
	uint64_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(bounds); i++) {
		while (bucket < bounds[i].bucket)
			n += histogram[bucket++];
		metrics_count(text, "_bucket", labels, bounds[i].label, n);
	}
	metrics_decimal(text, "_sum", labels, NULL, sum_ns, 9);
	metrics_count(text, "_count", labels, NULL, n);
	metrics_write_created(page, text, FIGURE_SINCE_RESET, labels, NULL);
}

static void write_latencies(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family queue = {
		"tenant_queue_seconds",
		"Time of tasks from admission to start, except of tasks that ran inline",
		METRICS_HISTOGRAM};
	static const struct metrics_family latency = {
		"tenant_latency_seconds",
		"Time of tasks from admission to end, except of tasks that ran inline",
		METRICS_HISTOGRAM};

	metrics_begin(text, &queue);
	for (uint32_t i = 0; i < page->n_tenants; i++) {
		const struct rbk_stats_tenant *tenant = &page->tenants[i].figures;

		write_histogram(page, text, tenant->queue_histogram, tenant->queue_ns,
				page->tenants[i].label);
	}
	metrics_begin(text, &latency);
	for (uint32_t i = 0; i < page->n_tenants; i++) {
		const struct rbk_stats_tenant *tenant = &page->tenants[i].figures;
		uint64_t exec_ns = tenant->exec_ns > tenant->inline_ns
					   ? tenant->exec_ns - tenant->inline_ns
					   : 0;

		write_histogram(page, text, tenant->latency_histogram, tenant->queue_ns + exec_ns,
				page->tenants[i].label);
	}
}

static void write_tenant_delays(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family delay = {
		"tenant_run_queue_delay_seconds",
		"Time that threads of the tenant's clients waited for a processor: quantiles of "
		"the last ten seconds",
		METRICS_SUMMARY,
	};
	static const struct metrics_family caused = {
		"tenant_caused_delay_seconds",
		"Time that the broker's threads waited for a processor while the tenant's clients "
		"ran",
		METRICS_COUNTER};
	const struct tenant_copy *tenant;

	metrics_begin(text, &delay);
	for (tenant = page->tenants; tenant < page->tenants + page->n_tenants; tenant++)
		if (tenant->delay.flags & RBK_STATS_DELAY_USED)
			metrics_write_delay(page, text, &tenant->delay, tenant->label);
	metrics_begin(text, &caused);
	for (tenant = page->tenants; tenant < page->tenants + page->n_tenants; tenant++) {
		if (!(tenant->delay.flags & RBK_STATS_DELAY_KNOWN))
			continue;
		metrics_decimal(text, NULL, tenant->label, NULL, tenant->delay.caused_ns, 9);
		metrics_write_created(page, text, FIGURE_SINCE_RESET, tenant->label, NULL);
	}
}

/* ---- Leases ---- */

static const struct lease_member {
	size_t offset; /* in struct lease_sum */
	bool is_seen;  /* written only if sum->is_seen */
	struct metrics_family family;
} lease_members[] = {
	{offsetof(struct lease_sum, n),
	 false,
	 {"leases", "Leases that the tenant's programs have on the device's memory",
	  METRICS_GAUGE}},
	{offsetof(struct lease_sum, granted_bytes),
	 false,
	 {"lease_granted_bytes", "Device memory that is granted to the tenant's leases",
	  METRICS_GAUGE}},
	{offsetof(struct lease_sum, capped_bytes),
	 false,
	 {"lease_capped_bytes",
	  "Granted device memory on which the kernel enforces the leases' limits, too",
	  METRICS_GAUGE}},
	{offsetof(struct lease_sum, credited_bytes),
	 false,
	 {"lease_credited_bytes", "Granted device memory that was credited to programs",
	  METRICS_GAUGE}},
	{offsetof(struct lease_sum, used_bytes),
	 false,
	 {"lease_used_bytes",
	  "Device memory that the programs report that they and their drivers use", METRICS_GAUGE}},
	{offsetof(struct lease_sum, moved_bytes),
	 false,
	 {"lease_moved_bytes",
	  "Memory of idle programs that has moved from the device to host memory", METRICS_GAUGE}},
	{offsetof(struct lease_sum, seen_bytes),
	 true,
	 {"lease_seen_bytes", "Device memory that these programs use, as the kernel reports it",
	  METRICS_GAUGE}},
};

static void write_longest_parts(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family longest = {
		"lease_longest_part_seconds",
		"Longest time of a part of the tenant's leases in the last ten to twenty seconds; "
		"0: none",
		METRICS_GAUGE};

	metrics_begin(text, &longest);
	for (uint32_t i = 0; i < page->n_tenants; i++)
		for (uint32_t n = RBK_DEVICE_GPU; n < page->n_devices; n++)
			metrics_decimal(text, NULL, page->tenants[i].label, metrics_device_label(n),
					page->tenants[i].leases[n].longest_part_ns, 9);
}

static void write_leases(const struct metrics_page *page, struct metrics_text *text)
{
	const struct lease_sum *sum;
	const char *device;
	uint64_t value;

	for (size_t k = 0; page->has_leases && k < ARRAY_SIZE(lease_members); k++) {
		metrics_begin(text, &lease_members[k].family);
		for (uint32_t i = 0; i < page->n_tenants; i++) {
			for (uint32_t n = RBK_DEVICE_GPU; n < page->n_devices; n++) {
				sum = &page->tenants[i].leases[n];
				if (lease_members[k].is_seen && !sum->is_seen)
					continue;
				device = metrics_device_label(n);
				memcpy(&value, (const char *)sum + lease_members[k].offset,
				       sizeof(value));
				metrics_count(text, NULL, page->tenants[i].label, device, value);
			}
		}
	}
}

/* ---- All families ---- */

void metrics_write_tenants(const struct metrics_page *page, struct metrics_text *text)
{
	const struct figure *figure;
	const char *device;

	for (figure = tenant_figures; !figure_is_end(figure); figure++) {
		if (!metrics_begin_figure(text, figure))
			continue;
		for (uint32_t i = 0; i < page->n_tenants; i++)
			metrics_write_figure(page, text, figure, &page->tenants[i].figures,
					     page->tenants[i].label, NULL);
	}
	for (figure = tenant_device_figures; !figure_is_end(figure); figure++) {
		if (!metrics_begin_figure(text, figure))
			continue;
		for (uint32_t i = 0; i < page->n_tenants; i++) {
			for (uint32_t n = 0; n < page->n_devices; n++) {
				device = metrics_device_label(n);
				metrics_write_figure(page, text, figure,
						     &page->tenants[i].figures.devices[n],
						     page->tenants[i].label, device);
			}
		}
	}
	write_latencies(page, text);
	write_tenant_delays(page, text);
	write_leases(page, text);
	if (page->has_leases)
		write_longest_parts(page, text);
}
