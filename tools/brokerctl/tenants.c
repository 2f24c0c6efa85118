/* SPDX-License-Identifier: MIT */
/* brokerctl tenants: what each tenant uses, and how its tasks perform. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "monitor/interval.h"
#include "objects.h"
#include "output.h"
#include "records.h"

struct row {
	struct row_key key;
	struct rbk_stats_tenant tenant;
	uint32_t n_devices;
	/* sums over all GPUs */
	uint64_t n_gpu_tasks, vram_used, vram_max, vram_reserve;
	double gpu_share;
};

enum sort_by {
	BY_NAME,
	BY_TASKS,
	BY_SESSIONS,
	BY_VRAM,
	BY_HOST,
	BY_SHARE,
	BY_LATENCY,
	BY_FALLBACKS,
	BY_EVICTIONS,
	BY_WEIGHT
};
const char *const tenant_sort_keys[] = {
	"name",    "tasks",     "sessions",  "vram",   "host", "share",
	"latency", "fallbacks", "evictions", "weight", NULL,
};

static double number_of(const struct row *row, unsigned int by)
{
	const struct rbk_stats_tenant *tenant = &row->tenant;

	switch (by) {
	case BY_NAME:
		return 0;
	case BY_VRAM:
		return (double)row->vram_used;
	case BY_HOST:
		return (double)tenant->host_used;
	case BY_SHARE:
		return row->gpu_share + tenant->devices[RBK_DEVICE_CPU].share;
	case BY_LATENCY:
		return histogram_quantile(tenant->latency_histogram, 0.99);
	}
	/* The other keys are JSON names. */
	return row_number(tenant_figures, tenant_sort_keys[by], tenant);
}

/* Add two limits; UINT64_MAX, also as the sum, means no limit. */
static uint64_t add_limits(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Return: true if such a tenant exists. */
static bool row_fill(const struct rbk_stats_view *view, uint32_t index, const char *sort,
		     struct row *ret)
{
	*ret = (struct row){.n_devices = view->n_devices};
	if (!tenant_copy(view, index, &ret->tenant))
		return false;
	for (uint32_t i = RBK_DEVICE_GPU; i < view->n_devices; i++) {
		const struct rbk_stats_tenant_device *device = &ret->tenant.devices[i];

		ret->n_gpu_tasks += device->n_tasks;
		ret->vram_used += device->memory_used;
		ret->vram_max = add_limits(ret->vram_max, device->memory_max);
		ret->vram_reserve += device->memory_reserve;
		ret->gpu_share += device->share;
	}
	memcpy(ret->key.text, ret->tenant.name, sizeof(ret->key.text) - 1);
	for (unsigned int by = 0; sort && tenant_sort_keys[by]; by++)
		if (strcmp(tenant_sort_keys[by], sort + (sort[0] == '-')) == 0)
			ret->key.number = number_of(ret, by);
	return true;
}

static void print_row(const struct row *row)
{
	const struct rbk_stats_tenant *tenant = &row->tenant;

	table_cell("%s", text_name(tenant->name));
	table_cell("%llu", (unsigned long long)tenant->n_sessions);
	table_cell("%llu", (unsigned long long)tenant->n_plans);
	table_cell("%u", tenant->weight);
	table_cell("%llu", (unsigned long long)tenant->n_tasks);
	table_cell("%s", text_percent((double)row->n_gpu_tasks, (double)tenant->n_tasks));
	table_cell("%s", text_bytes(row->vram_used));
	table_cell("%s", row->n_devices > 1 ? text_bytes(row->vram_max) : "-");
	table_cell("%s", text_bytes(row->vram_reserve));
	table_cell("%s", text_bytes(tenant->host_used));
	table_cell("%s", text_percent(tenant->devices[RBK_DEVICE_CPU].share, 1));
	table_cell("%s", text_percent(row->gpu_share, row->n_devices - 1));
	table_cell("%s", text_ns(histogram_quantile(tenant->latency_histogram, 0.99)));
	table_figures(tenant_figures, tenant);
	table_cell("%s%s%s", tenant->flags & RBK_STATS_TENANT_DRAINED ? "drained " : "",
		   tenant->flags & RBK_STATS_TENANT_CHANGED ? "changed " : "",
		   row->vram_used > row->vram_max ? "over" : "");
	table_mark(row->vram_used > row->vram_max ? MARK_FAULT : MARK_NOTE);
}

static void print_rows(const struct arguments *arguments, const struct row *rows, uint32_t n)
{
	static const char *const heads[] = {
		"<TENANT",    "5SESSIONS",  "6PLANS", "7WEIGHT",  "1TASKS",
		"4ON GPU",    "VRAM",       "2MAX",   "8RESERVE", "5HOST",
		"3CPU SHARE", "3GPU SHARE", "2P99",   "<IS",      NULL,
	};

	table_begin_figures(arguments->values[OPT_NO_HEADER] ? NULL : "Tenants", heads,
			    tenant_figures);
	for (uint32_t i = 0; i < n; i++)
		print_row(&rows[i]);
	table_end();
}

int run_tenants(struct control *control, const struct arguments *arguments)
{
	const char *tenant = arguments->values[OPT_TENANT], *sort = arguments->values[OPT_SORT];
	const struct rbk_stats_view *view;
	struct rbk_error error = {""};
	/* RBK_STATS_OWN: all records of the page */
	unsigned int whose = RBK_STATS_OWN;
	uint32_t n_records, number = 0, n = 0;
	struct pages pages;
	struct row *rows;
	int status, r;

	status = control_map_root(control, &pages);
	if (status)
		return status;
	/* Look the tenant up without its page, which exists only while the tenant has sessions. */
	r = tenant ? pages_find_tenant(control->rbk, tenant, &whose, &number, &error) : 0;
	if (r) {
		pages_unmap(&pages);
		return control_refused(control, r, &error);
	}
	/* A tenant's own page has a single record. */
	view = pages.has_all ? &pages.root : &pages.tenants[0].view;
	n_records = rbk_stats_used(view, RBK_STATS_SECTION_TENANTS);
	rows = calloc(n_records + 1, sizeof(*rows));
	if (!rows) {
		pages_unmap(&pages);
		return control_fail(EXIT_FAILED, "out of memory");
	}
	for (uint32_t i = 0; i < n_records; i++)
		if (row_fill(view, i, sort, &rows[n]) &&
		    (whose == RBK_STATS_OWN || rows[n].tenant.number == number))
			n++;
	if (sort)
		rows_sort(rows, n, sizeof(*rows), sort);
	if (arguments->values[OPT_JSON])
		for (uint32_t i = 0; i < n; i++)
			json_tenant(&rows[i].tenant, rows[i].n_devices);
	else
		print_rows(arguments, rows, n);
	free(rows);
	pages_unmap(&pages);
	return EXIT_OK;
}
