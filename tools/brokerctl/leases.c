/* SPDX-License-Identifier: MIT */
/* brokerctl leases: device memory that programs have leased, as of the last update. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "objects.h"
#include "output.h"
#include "records.h"

struct row {
	struct row_key key;
	struct rbk_stats_lease lease;
	char tenant[RBK_STATS_NAME_BYTES];
};

enum sort_by {
	BY_LEASE,
	BY_TENANT,
	BY_NAME,
	BY_AGE,
	BY_GRANTED,
	BY_USED,
	BY_PEAK,
	BY_MOVED,
	BY_SEEN,
	BY_BUSY,
	BY_HAD,
	BY_WAITED,
	BY_SHARE,
	BY_OVERDUE,
	BY_PARTS,
	BY_LONGEST
};
const char *const lease_sort_keys[] = {
	"lease", "tenant", "name",   "age",   "granted", "used",  "peak",    "moved", "seen",
	"busy",  "had",    "waited", "share", "overdue", "parts", "longest", NULL,
};

/* figures that serve as sort keys unchanged */
static const char *const sort_figures[] = {
	[BY_GRANTED] = "granted_bytes",   [BY_PEAK] = "peak_bytes",
	[BY_MOVED] = "moved_bytes",       [BY_SEEN] = "seen_bytes",
	[BY_BUSY] = "busy_percent",       [BY_HAD] = "slice_ns",
	[BY_WAITED] = "slice_wait_ns",    [BY_SHARE] = "share",
	[BY_OVERDUE] = "overdue",         [BY_PARTS] = "parts",
	[BY_LONGEST] = "longest_part_ns",
};

static uint64_t used_of(const struct rbk_stats_lease *lease)
{
	return lease->used_bytes + lease->extra_bytes;
}

static void row_key(struct row *row, const char *sort)
{
	const struct rbk_stats_lease *lease = &row->lease;
	unsigned int by = 0;

	while (strcmp(lease_sort_keys[by], sort + (sort[0] == '-')) != 0)
		by++;
	switch (by) {
	case BY_LEASE:
		/* Oldest first. */
		row->key.number = -(double)lease->number;
		break;
	case BY_TENANT:
		memcpy(row->key.text, row->tenant, sizeof(row->key.text) - 1);
		break;
	case BY_NAME:
		memcpy(row->key.text, lease->name, sizeof(row->key.text) - 1);
		break;
	case BY_AGE:
		row->key.number = -(double)lease->opened_at_ns;
		break;
	case BY_USED:
		row->key.number = (double)used_of(lease);
		break;
	default:
		row->key.number = row_number(lease_figures, sort_figures[by], lease);
	}
}

static uint32_t rows_fill(const struct rbk_stats_view *view, const char *sort, struct row *rows)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rbk_stats_used(view, RBK_STATS_SECTION_LEASES); i++) {
		struct row *row = &rows[n];
		const char *tenant;

		if (!lease_copy(view, i, &row->lease))
			continue;
		tenant = tenant_name(view, row->lease.tenant);
		snprintf(row->tenant, sizeof(row->tenant), "%s", tenant ? tenant : "-");
		if (sort)
			row_key(row, sort);
		n++;
	}
	return n;
}

static void print_row(const struct rbk_stats_view *view, const struct row *row)
{
	const struct rbk_stats_lease *lease = &row->lease;
	uint64_t now_ns = rbk_stats_load(&view->page->updated_at_ns);

	table_cell("%u", lease->number);
	table_cell("%s", text_name(row->tenant));
	table_cell("%s", text_name(lease->name));
	if (lease->pid)
		table_cell("%u", lease->pid);
	else
		table_cell("-");
	table_cell("%s", device_label(lease->device));
	table_cell("%s", text_ns((double)(int64_t)(now_ns - lease->opened_at_ns)));
	table_cell("%u", lease->n_members);
	table_cell("%s", text_bytes(lease->granted_bytes));
	table_cell("%s", text_bytes(lease->max_bytes));
	table_cell("%s", text_bytes(lease->credited_bytes));
	table_cell("%s", text_bytes(used_of(lease)));
	table_figures(lease_figures, lease);
	table_cell("%s", text_lease_states(lease));
	table_mark(lease->flags & RBK_STATS_LEASE_OVER ? MARK_FAULT : MARK_NOTE);
}

static void print_rows(const struct arguments *arguments, const struct rbk_stats_view *view,
		       const struct row *rows, uint32_t n)
{
	static const char *const heads[] = {
		"LEASE",   "<TENANT", "<1NAME", "4PID", "<3DEVICE", "5AGE", "7MEMBERS",
		"GRANTED", "4MAX",    "6DRAWN", "USED", "<IS",      NULL,
	};

	table_begin_figures(arguments->values[OPT_NO_HEADER] ? NULL : "Leases", heads,
			    lease_figures);
	for (uint32_t i = 0; i < n; i++)
		print_row(view, &rows[i]);
	table_end();
}

/* Copy the processes without a lease that use a device which leases share. Return: their number. */
static uint32_t outside_fill(const struct pages *pages, struct rbk_stats_broker *broker)
{
	uint32_t n = 0;

	if (!pages->has_all)
		return 0;
	broker_copy(&pages->root, broker);
	while (n < RBK_STATS_MAX_OUTSIDE && broker->outside[n].pid > 0) {
		broker->outside[n].comm[sizeof(broker->outside[n].comm) - 1] = '\0';
		n++;
	}
	return n;
}

static void print_outside(const struct arguments *arguments, const struct rbk_stats_outside *rows,
			  uint32_t n)
{
	static const char *const heads[] = {"PID", "<NAME", "UID", "<DEVICE", "BUSY", NULL};

	if (n == 0)
		return;
	table_begin(arguments->values[OPT_NO_HEADER]
			    ? NULL
			    : "Programs without a lease, on devices that leases share",
		    heads);
	for (uint32_t i = 0; i < n; i++) {
		table_cell("%u", rows[i].pid);
		table_cell("%s", text_name(rows[i].comm));
		table_cell("%u", rows[i].uid);
		table_cell("%s", device_label(rows[i].device));
		table_cell("%u%%", rows[i].busy_percent);
		table_mark(MARK_NOTE);
	}
	table_end();
}

static void json_outside(const struct rbk_stats_outside *row)
{
	json_begin();
	json_string("type", "outside");
	json_unsigned("pid", row->pid);
	json_string("name", row->comm);
	json_unsigned("uid", row->uid);
	json_unsigned("device", row->device);
	json_unsigned("busy_percent", row->busy_percent);
	json_end();
}

int run_leases(struct control *control, const struct arguments *arguments)
{
	const char *tenant = arguments->values[OPT_TENANT], *sort = arguments->values[OPT_SORT];
	const struct rbk_stats_view *view;
	struct row *rows = NULL;
	struct rbk_stats_broker broker;
	struct pages pages;
	uint32_t n = 0, n_outside = 0;
	int status;

	status = tenant ? control_map(control, tenant, &pages) : control_map_root(control, &pages);
	if (status)
		return status;
	view = pages.has_all ? &pages.root : &pages.tenants[0].view;
	if (!view->sections[RBK_STATS_SECTION_LEASES].offset)
		status = control_fail(EXIT_FAILED, "this broker (%s) is older: it has no leases",
				      text_name(rbk_broker_name(control->rbk)));
	else
		rows = calloc(rbk_stats_count(view, RBK_STATS_SECTION_LEASES) + 1, sizeof(*rows));
	if (status == EXIT_OK && !rows)
		status = control_fail(EXIT_FAILED, "out of memory");
	if (status == EXIT_OK)
		n = rows_fill(view, sort, rows);
	if (sort)
		rows_sort(rows, n, sizeof(*rows), sort);
	if (status == EXIT_OK && !tenant)
		n_outside = outside_fill(&pages, &broker);
	if (status == EXIT_OK && !arguments->values[OPT_JSON]) {
		print_rows(arguments, view, rows, n);
		print_outside(arguments, broker.outside, n_outside);
	} else {
		for (uint32_t i = 0; i < n; i++)
			json_lease(view, &rows[i].lease);
		for (uint32_t i = 0; i < n_outside; i++)
			json_outside(&broker.outside[i]);
	}
	free(rows);
	pages_unmap(&pages);
	return status;
}
