/* SPDX-License-Identifier: MIT */
/* brokerctl sessions: connected clients, as of the last update. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "objects.h"
#include "output.h"
#include "records.h"

struct row {
	struct row_key key;
	struct rbk_stats_session session;
	char tenant[RBK_STATS_NAME_BYTES];
};

enum sort_by {
	BY_SESSION,
	BY_TENANT,
	BY_NAME,
	BY_TASKS,
	BY_AGE,
	BY_IN_FLIGHT,
	BY_ARENAS,
	BY_ERRORS,
	BY_MEMORY,
	BY_LATENCY,
};
const char *const session_sort_keys[] = {
	"session", "tenant", "name",   "tasks",   "age", "in-flight",
	"arenas",  "errors", "memory", "latency", NULL,
};

/* figures that serve as sort keys unchanged */
static const char *const sort_figures[] = {
	[BY_TASKS] = "tasks",   [BY_IN_FLIGHT] = "in_flight", [BY_ARENAS] = "arena_bytes",
	[BY_ERRORS] = "errors", [BY_MEMORY] = "memory_used",  [BY_LATENCY] = "p99_ns",
};

static void row_key(struct row *row, const char *sort)
{
	const struct rbk_stats_session *session = &row->session;
	unsigned int by = 0;

	while (strcmp(session_sort_keys[by], sort + (sort[0] == '-')) != 0)
		by++;
	switch (by) {
	case BY_SESSION:
		/* Oldest first. */
		row->key.number = -(double)session->number;
		break;
	case BY_TENANT:
		memcpy(row->key.text, row->tenant, sizeof(row->key.text) - 1);
		break;
	case BY_NAME:
		memcpy(row->key.text, session->name, sizeof(row->key.text) - 1);
		break;
	case BY_AGE:
		row->key.number = -(double)session->began_at_ns;
		break;
	default:
		row->key.number = row_number(session_figures, sort_figures[by], session);
	}
}

static uint32_t rows_fill(const struct rbk_stats_view *view, const char *sort, struct row *rows)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rbk_stats_used(view, RBK_STATS_SECTION_SESSIONS); i++) {
		struct row *row = &rows[n];
		const char *tenant;

		if (!session_copy(view, i, &row->session))
			continue;
		tenant = tenant_name(view, row->session.tenant);
		snprintf(row->tenant, sizeof(row->tenant), "%s", tenant ? tenant : "-");
		if (sort)
			row_key(row, sort);
		n++;
	}
	return n;
}

static void print_row(const struct rbk_stats_view *view, const struct row *row)
{
	const struct rbk_stats_session *session = &row->session;
	uint64_t now_ns = rbk_stats_load(&view->page->updated_at_ns);

	table_cell("%u", session->number);
	table_cell("%s", text_name(row->tenant));
	table_cell("%s", text_name(session->name));
	table_cell("%s", session->comm[0] ? text_name(session->comm) : "-");
	if (session->pid)
		table_cell("%u", session->pid);
	else
		table_cell("-");
	table_cell("%u", session->uid);
	table_cell("%s", text_ns((double)(int64_t)(now_ns - session->began_at_ns)));
	table_cell("%llu", (unsigned long long)session->n_tasks);
	table_cell("%s", text_percent((double)session->n_gpu_tasks, (double)session->n_tasks));
	table_figures(session_figures, session);
	table_cell("%s%s", session->flags & RBK_STATS_SESSION_ADMIN ? "admin " : "",
		   session->flags & RBK_STATS_SESSION_ENDING ? "ending" : "");
	table_mark(MARK_NOTE);
}

static void print_rows(const struct arguments *arguments, const struct rbk_stats_view *view,
		       const struct row *rows, uint32_t n)
{
	static const char *const heads[] = {
		"SESSION", "<TENANT", "<3NAME",  "<5COMMAND", "4PID", "8UID",
		"5AGE",    "1TASKS",  "6ON GPU", "<IS",       NULL,
	};

	table_begin_figures(arguments->values[OPT_NO_HEADER] ? NULL : "Sessions", heads,
			    session_figures);
	for (uint32_t i = 0; i < n; i++)
		print_row(view, &rows[i]);
	table_end();
}

int run_sessions(struct control *control, const struct arguments *arguments)
{
	const char *tenant = arguments->values[OPT_TENANT], *sort = arguments->values[OPT_SORT];
	const struct rbk_stats_view *view;
	struct row *rows = NULL;
	struct pages pages;
	uint32_t n = 0;
	int status;

	status = tenant ? control_map(control, tenant, &pages) : control_map_root(control, &pages);
	if (status)
		return status;
	view = pages.has_all ? &pages.root : &pages.tenants[0].view;
	if (!view->sections[RBK_STATS_SECTION_SESSIONS].offset)
		status =
			control_fail(EXIT_FAILED, "this broker (%s) is older: it lists no sessions",
				     text_name(rbk_broker_name(control->rbk)));
	else
		rows = calloc(rbk_stats_count(view, RBK_STATS_SECTION_SESSIONS) + 1, sizeof(*rows));
	if (status == EXIT_OK && !rows)
		status = control_fail(EXIT_FAILED, "out of memory");
	if (status == EXIT_OK)
		n = rows_fill(view, sort, rows);
	if (sort)
		rows_sort(rows, n, sizeof(*rows), sort);
	if (status == EXIT_OK && !arguments->values[OPT_JSON])
		print_rows(arguments, view, rows, n);
	else
		for (uint32_t i = 0; i < n; i++)
			json_session(view, &rows[i].session);
	free(rows);
	pages_unmap(&pages);
	return status;
}
