/* SPDX-License-Identifier: MIT */
/*
 * brokerctl stats: what the broker, its devices, tenants and plans do
 *
 * Records are copied once and printed, as tables or as one JSON object per broker, device, tenant
 * and plan. Data for administrators only is omitted for other users without an error.
 */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "monitor/interval.h"
#include "objects.h"
#include "output.h"
#include "records.h"
#include "util/plural.h"

/* --- Tables --- */

static void table_broker(const struct rbk_stats_view *root)
{
	struct rbk_stats_broker broker;
	const struct rbk_stats_header *page = root->page;
	uint64_t updated_at_ns = rbk_stats_load(&page->updated_at_ns);

	broker_copy(root, &broker);
	printf("brokerd, process %u, up %s: %llu session%s, %llu plan%s, "
	       "%llu %s completed, "
	       "%llu in flight; force-cpu is %s\n\n",
	       page->pid, text_ns((double)(updated_at_ns - page->started_at_ns)),
	       (unsigned long long)broker.n_sessions, plural(broker.n_sessions),
	       (unsigned long long)broker.n_plans, plural(broker.n_plans),
	       (unsigned long long)broker.n_completed,
	       broker.n_completed == 1 ? "entry" : "entries",
	       (unsigned long long)broker.n_in_flight,
	       broker.flags & RBK_STATS_BROKER_FORCE_CPU ? "on" : "off");
}

static void table_devices(const struct rbk_stats_view *root)
{
	static const char *const heads[] = {"<DEVICE", "<NAME",       "1TASKS",   "2FAILED",
					    "1BUSY",   "4BACKLOG",    "3QUEUED",  "2BREAKER",
					    "8OPENED", "6CONTENTION", "3CHARGED", "6OUTSIDE",
					    "5BUDGET", "4LOAD",       NULL};
	struct rbk_stats_device device;

	table_begin("Devices", heads);
	for (uint32_t i = 0; i < rbk_stats_count(root, RBK_STATS_SECTION_DEVICES); i++) {
		device_copy(root, i, &device);
		table_cell("%s", device_label(device.index));
		table_cell("%s", text_name(device.name));
		table_cell("%llu", (unsigned long long)device.n_tasks);
		table_faults(device.n_failed);
		table_cell("%s", text_percent(device.utilization, 1));
		table_cell("%s", text_ns((double)device.backlog_ns));
		table_cell("%llu", (unsigned long long)(device.n_queued + device.n_released));
		table_cell("%s", stats_breaker_name(device.breaker));
		table_mark(mark_of_breaker(device.breaker));
		table_cell("%llu", (unsigned long long)device.n_opened);
		table_cell("%.2f", device.contention);
		table_cell("%s", text_bytes(device.memory_charged));
		table_cell("%s", text_bytes(device.memory_outside));
		table_cell("%s", text_bytes(device.memory_budget));
		if (device.load_percent == RBK_STATS_ABSENT)
			table_cell("-");
		else
			table_cell("%llu%%", (unsigned long long)device.load_percent);
	}
	table_end();
}

static void tenant_row(const struct rbk_stats_tenant *tenant, uint32_t n_devices)
{
	uint64_t gpu_tasks = 0, gpu_memory = 0;
	double gpu_share = 0;

	for (uint32_t i = RBK_DEVICE_GPU; i < n_devices; i++) {
		gpu_tasks += tenant->devices[i].n_tasks;
		gpu_memory += tenant->devices[i].memory_used;
		gpu_share += tenant->devices[i].share;
	}
	table_cell("%s", text_name(tenant->name));
	table_cell("%llu", (unsigned long long)tenant->n_tasks);
	table_cell("%s", text_percent((double)gpu_tasks, (double)tenant->n_tasks));
	table_faults(tenant->n_errors);
	table_cell("%llu", (unsigned long long)tenant->reasons[RBK_REASON_CPU_FALLBACK]);
	table_cell("%llu", (unsigned long long)tenant->n_deadlines_missed);
	table_cell("%s", text_ns(histogram_quantile(tenant->queue_histogram, 0.99)));
	table_cell("%s", text_ns(histogram_quantile(tenant->latency_histogram, 0.5)));
	table_cell("%s", text_ns(histogram_quantile(tenant->latency_histogram, 0.99)));
	table_cell("%s", text_percent(tenant->devices[RBK_DEVICE_CPU].share, 1));
	table_cell("%s", text_percent(gpu_share, n_devices > 1 ? n_devices - 1 : 0));
	table_cell("%s", text_bytes(gpu_memory));
	table_cell("%s", text_bytes(tenant->host_used));
	table_cell("%llu", (unsigned long long)tenant->n_evictions);
	table_cell("%s", text_ns((double)tenant->throttled_ns));
}

static void table_tenants_begin(void)
{
	static const char *const heads[] = {
		"<TENANT",      "TASKS",      "3ON GPU",    "1ERRORS",
		"5FALLBACKS",   "4LATE",      "4P99 QUEUE", "3P50 LATENCY",
		"1P99 LATENCY", "5CPU SHARE", "4GPU SHARE", "2GPU MEMORY",
		"6HOST MEMORY", "6EVICTIONS", "7THROTTLED", NULL};

	table_begin("Tenants", heads);
}

static void table_plans(const struct pages *pages)
{
	static const char *const heads[] = {
		"<TENANT", "5SESSION", "<PLAN",    "<DEVICE",   "1TASKS",      "1TOOK",    "4ALONE",
		"2NOW",    "2ERROR",   "3TRUSTED", "4SPEED-UP", "6BREAK-EVEN", "<3MEMORY", NULL};
	union plan_copy copy;

	table_begin("Plans", heads);
	for (unsigned int i = 0; i < pages->n_tenants; i++) {
		const struct tenant_page *tenant = &pages->tenants[i];
		uint32_t n = rbk_stats_count(&tenant->view, RBK_STATS_SECTION_PLANS);

		for (uint32_t slot = 0; slot < n; slot++) {
			if (!page_copy_plan(&tenant->view, slot, &copy))
				continue;
			for (uint32_t k = 0; k < tenant->view.n_devices; k++) {
				const struct rbk_stats_plan_device *device = &copy.plan.devices[k];

				if (k != RBK_DEVICE_CPU && device->state == RBK_MEMORY_UNSUPPORTED)
					continue;
				table_cell("%s", text_name(tenant->name));
				table_cell("%u", copy.plan.session);
				table_cell("%s%s", text_name(copy.plan.name),
					   copy.plan.state == RBK_STATS_PLAN_GONE ? " (gone)" : "");
				table_cell("%s", device_label(k));
				table_cell("%llu", (unsigned long long)device->n_tasks);
				table_cell("%s",
					   text_ns(mean_of(device->exec_ns, device->n_tasks)));
				table_cell("%s", text_ns(device->estimate_ns));
				table_cell("%s", text_ns(stats_now_ns(device)));
				table_cell("%s",
					   text_percent(device->mean_error, device->n_tasks > 0));
				table_cell("%s", device->is_trusted ? "yes" : "no");
				if (device->speedup > 0)
					table_cell("%.2f", device->speedup);
				else
					table_cell("-");
				if (device->break_even > 0)
					table_cell("%u", device->break_even);
				else
					table_cell("-");
				table_cell("%s", stats_memory_state_name(device->state));
			}
		}
	}
	table_end();
}

/* --- All of it --- */

/* Call @each for the tenants that were selected. */
static void each_tenant(const struct pages *pages,
			void (*each)(const struct rbk_stats_tenant *tenant, uint32_t n_devices))
{
	struct rbk_stats_tenant tenant;

	if (pages->has_all) {
		for (uint32_t i = 0; i < rbk_stats_used(&pages->root, RBK_STATS_SECTION_TENANTS);
		     i++)
			if (tenant_copy(&pages->root, i, &tenant))
				each(&tenant, pages->root.n_devices);
		return;
	}
	for (unsigned int i = 0; i < pages->n_tenants; i++)
		if (tenant_copy(&pages->tenants[i].view, 0, &tenant))
			each(&tenant, pages->tenants[i].view.n_devices);
}

static void print_json(const struct pages *pages)
{
	struct rbk_stats_device device;
	union plan_copy copy;

	if (pages->has_all) {
		json_broker(&pages->root);
		for (uint32_t i = 0; i < rbk_stats_count(&pages->root, RBK_STATS_SECTION_DEVICES);
		     i++) {
			device_copy(&pages->root, i, &device);
			json_device(&device);
		}
	}
	each_tenant(pages, json_tenant);
	for (unsigned int i = 0; i < pages->n_tenants; i++) {
		const struct tenant_page *tenant = &pages->tenants[i];
		uint32_t n = rbk_stats_count(&tenant->view, RBK_STATS_SECTION_PLANS);

		for (uint32_t slot = 0; slot < n; slot++)
			if (page_copy_plan(&tenant->view, slot, &copy))
				json_plan(tenant->name, &copy, tenant->view.n_devices);
	}
}

static void print_tables(const struct pages *pages)
{
	if (pages->has_all) {
		table_broker(&pages->root);
		table_devices(&pages->root);
	}
	table_tenants_begin();
	each_tenant(pages, tenant_row);
	table_end();
	table_plans(pages);
}

int run_stats(struct control *control, const struct arguments *arguments)
{
	struct pages pages;
	int status = control_map(control, arguments->values[OPT_TENANT], &pages);

	if (status)
		return status;
	if (arguments->values[OPT_JSON])
		print_json(&pages);
	else
		print_tables(&pages);
	pages_unmap(&pages);
	return EXIT_OK;
}
