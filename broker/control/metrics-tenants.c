/* SPDX-License-Identifier: MIT */
/* Metrics of tenants: of each, of each on each device, and of its leases. */
#include "control/metrics-private.h"

#include <string.h>

#include "util/checked.h"

static const struct member tenant_members[] = {
	GAUGE(rbk_stats_tenant, weight, NUMBER, "tenant_weight",
	      "Its share of devices, against the others'"),
	GAUGE(rbk_stats_tenant, n_sessions, COUNT, "tenant_sessions", "Clients that are connected"),
	GAUGE(rbk_stats_tenant, n_plans, COUNT, "tenant_plans", "Plans that they have"),
	FLAG_OF(rbk_stats_tenant, flags, RBK_STATS_TENANT_DRAINED, "tenant_drained",
		"Is no new work of it taken, as an administrator asked"),
	COUNTER(rbk_stats_tenant, n_inline, COUNT, SINCE_RESET, "tenant_inline_tasks",
		"Tasks that ran at once, without a queue"),
	COUNTER(rbk_stats_tenant, n_errors, COUNT, SINCE_RESET, "tenant_task_errors",
		"Tasks that failed"),
	COUNTER(rbk_stats_tenant, n_deadlines_missed, COUNT, SINCE_RESET, "tenant_deadlines_missed",
		"Tasks that were complete after their deadline"),
	COUNTER(rbk_stats_tenant, n_partitioned, COUNT, SINCE_RESET, "tenant_partitioned_tasks",
		"Tasks that were split over devices"),
	COUNTER(rbk_stats_tenant, n_explored, COUNT, SINCE_RESET, "tenant_explored_tasks",
		"Tasks that ran where they did so that the broker learns"),
	COUNTER(rbk_stats_tenant, exec_ns, NS, SINCE_RESET, "tenant_execution_seconds",
		"Times of its tasks from start to end, together"),
	COUNTER(rbk_stats_tenant, copied_bytes, COUNT, SINCE_RESET, "tenant_copied_bytes",
		"Tensor bytes that a processor copied"),
	COUNTER(rbk_stats_tenant, transferred_bytes, COUNT, SINCE_RESET, "tenant_transferred_bytes",
		"Bytes that devices moved by themselves"),
	COUNTER(rbk_stats_tenant, n_throttled, COUNT, SINCE_RESET, "tenant_throttlings",
		"How often its CPU quota was used up"),
	COUNTER(rbk_stats_tenant, throttled_ns, NS, SINCE_RESET, "tenant_throttled_seconds",
		"Time in which its CPU quota held its tasks up"),
	COUNTER(rbk_stats_tenant, n_evictions, COUNT, SINCE_START, "tenant_evictions",
		"Plans that had to leave device memory"),
	COUNTER(rbk_stats_tenant, n_returns, COUNT, SINCE_START, "tenant_returns",
		"Plans that came back to device memory"),
	COUNTER(rbk_stats_tenant, n_memory_constraints, COUNT, SINCE_START,
		"tenant_memory_constraints", "Tasks that ran elsewhere for want of device memory"),
	COUNTER(rbk_stats_tenant, n_refused, COUNT, SINCE_START, "tenant_requests_refused",
		"Requests that were refused because a limit was reached"),
	GAUGE(rbk_stats_tenant, host_used, COUNT, "tenant_host_memory_bytes",
	      "Host memory that it is charged for"),
	GAUGE(rbk_stats_tenant, host_max, COUNT, "tenant_host_memory_max_bytes",
	      "Its limit; none: it has no limit"),
};

static const struct member tenant_device_members[] = {
	COUNTER(rbk_stats_tenant_device, n_tasks, COUNT, SINCE_RESET, "tenant_device_tasks",
		"Tasks that ran there; split ones where most of it ran"),
	COUNTER(rbk_stats_tenant_device, n_failed, COUNT, SINCE_RESET, "tenant_device_task_errors",
		"Tasks that ran there and failed"),
	COUNTER(rbk_stats_tenant_device, exec_ns, NS, SINCE_RESET,
		"tenant_device_execution_seconds",
		"Times of its tasks there from start to end, together"),
	COUNTER(rbk_stats_tenant_device, device_ns, NS, SINCE_RESET, "tenant_device_busy_seconds",
		"Time that the device's servers worked on them, together"),
	GAUGE(rbk_stats_tenant_device, share, REAL, "tenant_device_share_ratio",
	      "Its part of what all tenants use of the device"),
	GAUGE(rbk_stats_tenant_device, memory_used, COUNT, "tenant_device_memory_used_bytes",
	      "Device memory that it is charged for; of the CPU host memory"),
	GAUGE(rbk_stats_tenant_device, memory_max, COUNT, "tenant_device_memory_max_bytes",
	      "Its limit; none: it has no limit"),
	GAUGE(rbk_stats_tenant_device, memory_reserve, COUNT, "tenant_device_memory_reserve_bytes",
	      "What it is never denied"),
	GAUGE(rbk_stats_tenant_device, memory_high, COUNT, "tenant_device_memory_high_bytes",
	      "Beyond that it is the first to give memory back"),
	GAUGE(rbk_stats_tenant_device, gtt_used, COUNT, "tenant_device_gtt_used_bytes",
	      "Host memory that the device uses for it"),
	GAUGE(rbk_stats_tenant_device, gtt_max, COUNT, "tenant_device_gtt_max_bytes",
	      "Its limit; none: it has no limit"),
};

/*
 * Bounds of buckets, which are bounds of the page's finer ones, so that no count has to be divided.
 * Each is twice the one before where tasks usually are, four times that at the ends.
 */
static const struct {
	unsigned int bucket; /* the first of the page's that is beyond */
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
	metrics_write_created(page, text, SINCE_RESET, labels, NULL);
}

static void write_latencies(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family queue = {
		"tenant_queue_seconds",
		"Times of tasks from admission to start, but of those that ran inline",
		METRICS_HISTOGRAM};
	static const struct metrics_family latency = {
		"tenant_latency_seconds",
		"Times of tasks from admission to end, but of those that ran inline",
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
		"How long its clients' threads waited for a processor; quantiles of the last ten "
		"seconds",
		METRICS_SUMMARY,
	};
	static const struct metrics_family caused = {
		"tenant_caused_delay_seconds",
		"How long the broker's threads waited because its clients ran", METRICS_COUNTER};
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
		metrics_write_created(page, text, SINCE_RESET, tenant->label, NULL);
	}
}

/* ---- Leases ---- */

static const struct lease_member {
	size_t offset; /* in struct lease_sum */
	bool is_seen;  /* only where that is */
	struct metrics_family family;
} lease_members[] = {
	{offsetof(struct lease_sum, n),
	 false,
	 {"leases", "Leases that programs have of the device's memory", METRICS_GAUGE}},
	{offsetof(struct lease_sum, granted_bytes),
	 false,
	 {"lease_granted_bytes", "Device memory that its leases were granted", METRICS_GAUGE}},
	{offsetof(struct lease_sum, capped_bytes),
	 false,
	 {"lease_capped_bytes", "What of that the kernel holds programs to, too", METRICS_GAUGE}},
	{offsetof(struct lease_sum, credited_bytes),
	 false,
	 {"lease_credited_bytes", "What was handed out to programs of what was granted",
	  METRICS_GAUGE}},
	{offsetof(struct lease_sum, used_bytes),
	 false,
	 {"lease_used_bytes", "What programs say that they and their drivers use of it",
	  METRICS_GAUGE}},
	{offsetof(struct lease_sum, seen_bytes),
	 true,
	 {"lease_seen_bytes", "What the kernel says that these programs use", METRICS_GAUGE}},
};

static void write_leases(const struct metrics_page *page, struct metrics_text *text)
{
	const struct lease_sum *sum;
	char device[32];
	uint64_t value;

	for (size_t k = 0; page->has_leases && k < ARRAY_SIZE(lease_members); k++) {
		metrics_begin(text, &lease_members[k].family);
		for (uint32_t i = 0; i < page->n_tenants; i++) {
			for (uint32_t n = RBK_DEVICE_GPU; n < page->n_devices; n++) {
				sum = &page->tenants[i].leases[n];
				if (lease_members[k].is_seen && !sum->is_seen)
					continue;
				metrics_device_label(device, n);
				memcpy(&value, (const char *)sum + lease_members[k].offset,
				       sizeof(value));
				metrics_count(text, NULL, page->tenants[i].label, device, value);
			}
		}
	}
}

/* ---- All of it ---- */

void metrics_write_tenants(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family tasks = {
		"tenant_tasks",
		"Tasks that were placed and completed, by why they ran where they did",
		METRICS_COUNTER};
	char device[32];

	metrics_begin(text, &tasks);
	for (uint32_t i = 0; i < page->n_tenants; i++)
		metrics_write_reasons(page, text, page->tenants[i].figures.reasons,
				      page->tenants[i].label);
	for (size_t k = 0; k < ARRAY_SIZE(tenant_members); k++) {
		metrics_begin(text, &tenant_members[k].family);
		for (uint32_t i = 0; i < page->n_tenants; i++)
			metrics_write_member(page, text, &tenant_members[k],
					     &page->tenants[i].figures, page->tenants[i].label,
					     NULL);
	}
	for (size_t k = 0; k < ARRAY_SIZE(tenant_device_members); k++) {
		metrics_begin(text, &tenant_device_members[k].family);
		for (uint32_t i = 0; i < page->n_tenants; i++) {
			for (uint32_t n = 0; n < page->n_devices; n++) {
				metrics_device_label(device, n);
				metrics_write_member(page, text, &tenant_device_members[k],
						     &page->tenants[i].figures.devices[n],
						     page->tenants[i].label, device);
			}
		}
	}
	write_latencies(page, text);
	write_tenant_delays(page, text);
	write_leases(page, text);
}
