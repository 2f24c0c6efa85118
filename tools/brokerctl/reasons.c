/* SPDX-License-Identifier: MIT */
/* brokerctl reasons: why tasks ran where they ran, with explanations. */
#include "reasons.h"

#include <stdio.h>
#include <string.h>

#include <ringbroker/stats.h>

#include "command.h"
#include "output.h"
#include "records.h"

const char *reason_meaning(unsigned int reason)
{
	static const char *const meanings[RBK_REASON_COUNT] = {
		[RBK_REASON_NONE] = "nothing was placed",
		[RBK_REASON_GPU_AVAILABLE] = "large enough, and a GPU can run it",
		[RBK_REASON_GPU_UNAVAILABLE] = "no GPU is there, or none can run it",
		[RBK_REASON_CPU_FALLBACK] = "failed on a GPU, then ran on the CPU",
		[RBK_REASON_COST_MODEL] = "predicted to serve the task or its plan best there",
		[RBK_REASON_MEMORY_CONSTRAINT] = "no room in the device's memory",
		[RBK_REASON_USER_PREFERENCE] = "the client asked for it",
		[RBK_REASON_BELOW_THRESHOLD] = "too small to be worth a transfer",
		[RBK_REASON_CONTENTION] = "other programs kept the CPU busy",
		[RBK_REASON_BREAKER_OPEN] = "the GPU had failed too often and was not used",
	};

	return reason < RBK_REASON_COUNT ? meanings[reason] : "unknown";
}

/* Sums over the selected tenants. */
struct counts {
	uint64_t n[RBK_STATS_MAX_REASONS];
	uint64_t n_all;
};

static void add_tenant(struct counts *counts, const struct rbk_stats_tenant *tenant)
{
	for (unsigned int i = RBK_REASON_NONE + 1; i < RBK_REASON_COUNT; i++) {
		counts->n[i] += tenant->reasons[i];
		counts->n_all += tenant->reasons[i];
	}
}

static void print_counts(const struct arguments *arguments, const struct counts *counts)
{
	static const char *const heads[] = {"<REASON", "TASKS", "SHARE", "<MEANING", NULL};

	table_begin(arguments->values[OPT_NO_HEADER] ? NULL : "Why tasks ran where they ran",
		    heads);
	for (unsigned int i = RBK_REASON_NONE + 1; i < RBK_REASON_COUNT; i++) {
		table_cell("%s", rbk_reason_name(i));
		table_cell("%llu", (unsigned long long)counts->n[i]);
		table_cell("%s", text_percent((double)counts->n[i], (double)counts->n_all));
		table_cell("%s", reason_meaning(i));
	}
	table_end();
}

/* Per-device counts exist only for all tenants together. */
static void json_counts(const struct counts *counts, const struct rbk_stats_view *root)
{
	struct rbk_stats_device device;

	for (unsigned int i = RBK_REASON_NONE + 1; i < RBK_REASON_COUNT; i++) {
		json_begin();
		json_string("type", "reason");
		json_string("reason", rbk_reason_name(i));
		json_unsigned("tasks", counts->n[i]);
		json_number("share", mean_of(counts->n[i], counts->n_all));
		json_string("meaning", reason_meaning(i));
		json_array("devices");
		for (uint32_t k = 0; root && k < root->n_devices; k++) {
			device_copy(root, k, &device);
			json_item();
			json_unsigned("device", device.index);
			json_unsigned("tasks", device.reasons[i]);
			json_object_end();
		}
		json_array_end();
		json_end();
	}
}

int run_reasons(struct control *control, const struct arguments *arguments)
{
	const char *tenant_name_given = arguments->values[OPT_TENANT];
	struct counts counts = {.n_all = 0};
	struct rbk_stats_tenant tenant;
	const struct rbk_stats_view *view;
	struct pages pages;
	int status;

	status = tenant_name_given ? control_map(control, tenant_name_given, &pages)
				   : control_map_root(control, &pages);
	if (status)
		return status;
	view = pages.has_all ? &pages.root : &pages.tenants[0].view;
	for (uint32_t i = 0; i < rbk_stats_used(view, RBK_STATS_SECTION_TENANTS); i++)
		if (tenant_copy(view, i, &tenant))
			add_tenant(&counts, &tenant);
	if (arguments->values[OPT_JSON])
		json_counts(&counts, pages.has_all ? &pages.root : NULL);
	else
		print_counts(arguments, &counts);
	pages_unmap(&pages);
	return EXIT_OK;
}
