/* SPDX-License-Identifier: MIT */
/* brokerctl plans: where plans are resident, what they need, and how they perform. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "objects.h"
#include "output.h"
#include "records.h"

struct row {
	struct row_key key;
	const struct tenant_page *tenant;
	/* sums over all devices, and over all GPUs */
	uint64_t n_tasks, n_gpu_tasks, cpu_ns, gpu_ns;
	uint64_t resident_bytes, footprint_bytes;
	/* the least of all GPUs, learned and predicted now; 0: none */
	double gpu_alone_ns, gpu_now_ns;
	double speedup; /* highest speed-up over the CPU, of all devices */
	union plan_copy copy;
};

enum sort_by { BY_NAME, BY_TENANT, BY_TASKS, BY_TIME, BY_FOOTPRINT, BY_RESIDENT, BY_EVICTIONS };
const char *const plan_sort_keys[] = {
	"name", "tenant", "tasks", "time", "footprint", "resident", "evictions", NULL,
};

static void row_key(struct row *row, const char *sort)
{
	unsigned int by = 0;

	while (strcmp(plan_sort_keys[by], sort + (sort[0] == '-')) != 0)
		by++;
	switch (by) {
	case BY_NAME:
		snprintf(row->key.text, sizeof(row->key.text), "%s", row->copy.plan.name);
		break;
	case BY_TENANT:
		memcpy(row->key.text, row->tenant->name, sizeof(row->key.text) - 1);
		break;
	case BY_TASKS:
		row->key.number = (double)row->n_tasks;
		break;
	case BY_TIME:
		row->key.number = (double)(row->cpu_ns + row->gpu_ns);
		break;
	case BY_FOOTPRINT:
		row->key.number = (double)row->footprint_bytes;
		break;
	case BY_RESIDENT:
		row->key.number = (double)row->resident_bytes;
		break;
	case BY_EVICTIONS:
		row->key.number = (double)row->copy.plan.n_evictions;
		break;
	}
}

static void row_times(struct row *row)
{
	const struct rbk_stats_plan *plan = &row->copy.plan;
	const uint32_t n_devices = row->tenant->view.n_devices;
	const uint32_t alone = plan_fastest_gpu(plan, n_devices, false);
	const uint32_t now = plan_fastest_gpu(plan, n_devices, true);

	row->gpu_alone_ns = alone ? plan->devices[alone].estimate_ns : 0;
	row->gpu_now_ns = now ? stats_now_ns(&plan->devices[now]) : 0;
}

static void row_sums(struct row *row)
{
	for (uint32_t i = 0; i < row->tenant->view.n_devices; i++) {
		const struct rbk_stats_plan_device *device = &row->copy.plan.devices[i];

		row->n_tasks += device->n_tasks;
		if (i == RBK_DEVICE_CPU) {
			row->cpu_ns = device->exec_ns;
			continue;
		}
		row->n_gpu_tasks += device->n_tasks;
		row->gpu_ns += device->exec_ns;
		row->resident_bytes += device->resident_bytes;
		if (device->footprint_bytes > row->footprint_bytes)
			row->footprint_bytes = device->footprint_bytes;
		if (device->speedup > row->speedup)
			row->speedup = device->speedup;
	}
}

/*
 * List the GPUs on which the plan is resident, and how many of its segments are, if it has some; if
 * there are none, return its memory state.
 */
static const char *place_of(const struct row *row, char *text, size_t bytes)
{
	const struct rbk_stats_plan *plan = &row->copy.plan;
	const char *state = "-";
	size_t n = 0;

	text[0] = '\0';
	for (uint32_t i = RBK_DEVICE_GPU; i < row->tenant->view.n_devices && n < bytes; i++) {
		const struct rbk_stats_plan_device *device = &row->copy.plan.devices[i];

		if (device->state == RBK_MEMORY_RESIDENT)
			n += (size_t)snprintf(text + n, bytes - n, "%s%s%s", n ? "," : "",
					      device_label(i),
					      device->tier == RBK_TIER_GTT ? " (gtt)" : "");
		else
			state = stats_memory_state_name(device->state);
	}
	if (n > 0 && n < bytes && plan->n_segments > 1)
		snprintf(text + n, bytes - n, " %u/%u", plan->n_segments_resident,
			 plan->n_segments);
	return n ? text : state;
}

static void print_row(const struct row *row)
{
	const struct rbk_stats_plan *plan = &row->copy.plan;
	const bool has_last = row->n_tasks > 0 && plan->last_device < row->tenant->view.n_devices;
	const struct rbk_stats_plan_device *last =
		&plan->devices[has_last ? plan->last_device : RBK_DEVICE_CPU];
	uint64_t n_cpu_tasks = plan->devices[RBK_DEVICE_CPU].n_tasks;
	char place[TABLE_CELL_BYTES];

	table_cell("%s", text_name(row->tenant->name));
	table_cell("%u", plan->session);
	table_cell("%u", plan->plan_id);
	table_cell("%s%s", text_name(plan->name),
		   plan->state == RBK_STATS_PLAN_GONE ? " (gone)" : "");
	table_cell("%s", place_of(row, place, sizeof(place)));
	table_cell("%s", row->footprint_bytes ? text_bytes(row->footprint_bytes) : "-");
	table_cell("%llu", (unsigned long long)row->n_tasks);
	table_cell("%s", text_percent((double)row->n_gpu_tasks, (double)row->n_tasks));
	table_cell("%s", text_ns(mean_of(row->cpu_ns, n_cpu_tasks)));
	table_cell("%s", text_ns(mean_of(row->gpu_ns, row->n_gpu_tasks)));
	table_cell("%s", text_ns(stats_now_ns(&plan->devices[RBK_DEVICE_CPU])));
	table_cell("%s", text_ns(row->gpu_now_ns));
	table_cell("%s", text_ns(plan->devices[RBK_DEVICE_CPU].estimate_ns));
	table_cell("%s", text_ns(row->gpu_alone_ns));
	table_cell("%s", has_last ? text_percent(last->mean_error, 1) : "-");
	table_cell("%s", !has_last ? "-" : last->is_trusted ? "yes" : "no");
	if (row->speedup > 0)
		table_cell("%.2f", row->speedup);
	else
		table_cell("-");
	table_cell("%s", device_label(plan->last_device));
	table_cell("%s", row->n_tasks ? rbk_reason_name(plan->last_reason) : "-");
	table_figures(plan_figures, plan);
	table_cell("%llu", (unsigned long long)plan->n_evictions);
}

static void print_rows(const struct arguments *arguments, const struct row *rows, size_t n)
{
	static const char *const heads[] = {
		"<TENANT",      "6SESSION",   "8PLAN ID",  "<PLAN",     "<1IN",      "4FOOTPRINT",
		"1TASKS",       "3ON GPU",    "2CPU TOOK", "2GPU TOOK", "5CPU NOW",  "5GPU NOW",
		"7CPU ALONE",   "7GPU ALONE", "7ERROR",    "7TRUSTED",  "4SPEED-UP", "<5LAST",
		"<5FOR REASON", "6EVICTIONS", NULL,
	};

	table_begin_figures(arguments->values[OPT_NO_HEADER] ? NULL : "Plans", heads, plan_figures);
	for (size_t i = 0; i < n; i++)
		print_row(&rows[i]);
	table_end();
}

static size_t rows_fill(const struct pages *pages, const char *sort, struct row *rows)
{
	size_t n = 0;

	for (unsigned int i = 0; i < pages->n_tenants; i++) {
		const struct tenant_page *tenant = &pages->tenants[i];
		uint32_t n_slots = rbk_stats_count(&tenant->view, RBK_STATS_SECTION_PLANS);

		for (uint32_t slot = 0; slot < n_slots; slot++) {
			struct row *row = &rows[n];

			if (!page_copy_plan(&tenant->view, slot, &row->copy))
				continue;
			row->tenant = tenant;
			row_sums(row);
			row_times(row);
			if (sort)
				row_key(row, sort);
			n++;
		}
	}
	return n;
}

int run_plans(struct control *control, const struct arguments *arguments)
{
	const char *sort = arguments->values[OPT_SORT];
	struct pages pages;
	struct row *rows;
	size_t n = 0;
	int status = control_map(control, arguments->values[OPT_TENANT], &pages);

	if (status)
		return status;
	for (unsigned int i = 0; i < pages.n_tenants; i++)
		n += rbk_stats_count(&pages.tenants[i].view, RBK_STATS_SECTION_PLANS);
	rows = calloc(n + 1, sizeof(*rows));
	if (!rows) {
		pages_unmap(&pages);
		return control_fail(EXIT_FAILED, "out of memory");
	}
	n = rows_fill(&pages, sort, rows);
	if (sort)
		rows_sort(rows, n, sizeof(*rows), sort);
	if (arguments->values[OPT_JSON])
		for (size_t i = 0; i < n; i++)
			json_plan(rows[i].tenant->name, &rows[i].copy,
				  rows[i].tenant->view.n_devices);
	else
		print_rows(arguments, rows, n);
	free(rows);
	pages_unmap(&pages);
	return EXIT_OK;
}
