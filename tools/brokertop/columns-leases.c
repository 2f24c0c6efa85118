/* SPDX-License-Identifier: MIT */
/* Columns of leases, with the terms of brokerctl leases. */
#include <string.h>

#include "columns.h"
#include "figures.h"
#include "monitor/text.h"

static double key_state(ROW)
{
	const struct figure *state;
	double key = 0;

	for (unsigned int i = 0; (state = lease_state_figure(i)); i++)
		key = 2 * key + (double)figure_number(state, &row->lease->now);
	return key;
}

static void draw_state(CELL)
{
	cell_set(ret, text_lease_states(&row->lease->now));
	if (row->lease->now.flags &
	    (RBK_STATS_LEASE_OVER | RBK_STATS_LEASE_WAITING | RBK_STATS_LEASE_SHRINKING))
		ret->style = STYLE_WARN;
}

static const char *key_tenant(ROW)
{
	return row->tenant ? row->tenant->now.name : "";
}

static void draw_tenant(CELL)
{
	if (!row->tenant) {
		cell_set(ret, "–");
		return;
	}
	cell_set(ret, text_name(row->tenant->now.name));
	ret->style = tenant_style(row->tenant->now.number);
}

static const char *key_name(ROW)
{
	return row->lease->now.name;
}

static void draw_name(CELL)
{
	cell_set(ret, text_name(row->lease->now.name));
}

static double key_device(ROW)
{
	return row->lease->now.device;
}

static void draw_device(CELL)
{
	cell_set(ret, device_label(row->lease->now.device));
}

static double key_age(ROW)
{
	uint64_t opened_at_ns = row->lease->now.opened_at_ns;

	return model->updated_at_ns > opened_at_ns ? (double)(model->updated_at_ns - opened_at_ns)
						   : 0;
}

static double key_used(ROW)
{
	return model_lease_used(row->lease);
}

static double key_had(ROW)
{
	return row->lease->had_part;
}

static double key_wait(ROW)
{
	return row->lease->wait_part;
}

static double key_parts(ROW)
{
	return row->lease->parts_per_s;
}

static double key_submits(ROW)
{
	return row->lease->submissions_per_s;
}

/* Return the bytes that the lease waits for; 0: not waiting. */
static double key_waiting(ROW)
{
	return (double)row->lease->now.waiting_bytes;
}

static void draw_waiting(CELL)
{
	cell_set(ret, row->lease->now.waiting_bytes
			      ? figure_bytes_of(row->lease->now.waiting_bytes).text
			      : "–");
}

const struct column lease_columns[] = {
	FIGURE_COLUMN("LEASE", 10, 3, 0, "lease"),
	TEXT_COLUMN("TENANT", 12, 1, 0, tenant),
	TEXT_COLUMN("NAME", 15, 0, 0, name),
	FIGURE_COLUMN("PID", 7, 3, 0, "pid"),
	FIGURE_COLUMN("USER", 10, 7, 0, "uid"),
	{"DEVICE", 6, 5, COLUMN_LEFT, draw_device, key_device, NULL},
	NUMBER_COLUMN("AGE", 7, 4, DOWN, age, ns),
	FIGURE_COLUMN("MEMBERS", 7, 5, DOWN, "members"),
	FIGURE_COLUMN("MIN", 8, 6, DOWN, "min_bytes"),
	FIGURE_COLUMN("WISH", 8, 6, DOWN, "wish_bytes"),
	FIGURE_COLUMN("GRANTED", 8, 0, DOWN, "granted_bytes"),
	FIGURE_COLUMN("MAX", 8, 1, DOWN, "max_bytes"),
	FIGURE_COLUMN("DRAWN", 8, 5, DOWN, "credited_bytes"),
	NUMBER_COLUMN("USED", 8, 0, DOWN, used, bytes),
	FIGURE_COLUMN("MOVED", 8, 7, DOWN, "moved_bytes"),
	FIGURE_COLUMN("PEAK", 8, 3, DOWN, "peak_bytes"),
	FIGURE_COLUMN("SEEN", 8, 2, DOWN, "seen_bytes"),
	FIGURE_COLUMN("BUSY", 5, 2, DOWN, "busy_percent"),
	NUMBER_COLUMN("HAD/s", 5, 3, DOWN, had, part),
	NUMBER_COLUMN("WAITED/s", 8, 4, DOWN, wait, part),
	NUMBER_COLUMN("PARTS/s", 8, 5, DOWN, parts, rate),
	NUMBER_COLUMN("SUBMITS/s", 9, 7, DOWN, submits, rate),
	FIGURE_COLUMN("LONGEST", 7, 4, DOWN, "longest_part_ns"),
	FIGURE_COLUMN("OVERDUE", 7, 6, DOWN | COLUMN_BAD, "overdue"),
	COLUMN("WAITING", 8, 6, DOWN, waiting),
	FIGURE_COLUMN("REFUSED", 7, 5, DOWN | COLUMN_BAD, "refused"),
	{"IS", 15, 1, COLUMN_LEFT | COLUMN_FLEX | DOWN, draw_state, key_state, NULL},
};
const unsigned int n_lease_columns = sizeof(lease_columns) / sizeof(lease_columns[0]);
_Static_assert(sizeof(lease_columns) / sizeof(lease_columns[0]) <= TABLE_MAX_COLUMNS, "room");
