/* SPDX-License-Identifier: MIT */
/*
 * Columns of tenants and their sessions
 *
 * In the tree a tenant's sessions share its columns; columns for tenants only are empty for them.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "columns.h"
#include "figures.h"
#include "monitor/text.h"

/* Write a count that is a problem unless 0. */
static void set_bad(struct cell_text *ret, uint64_t n)
{
	cell_set(ret, figure_count((double)n).text);
	if (n > 0)
		ret->style = STYLE_WARN;
}

/* Write percentages on the CPU and on GPUs: "96 /  4". */
static void set_parts(struct cell_text *ret, double gpu_part)
{
	if (gpu_part < 0)
		cell_set(ret, "–");
	else
		snprintf(ret->text, sizeof(ret->text), "%.0f / %2.0f", 100 - 100 * gpu_part,
			 100 * gpu_part);
}

/* --- Tenants --- */

static void draw_name(CELL)
{
	if (!row->is_child) {
		cell_set(ret, text_name(row->tenant->now.name));
		ret->style = tenant_style(row->tenant->now.number);
		if (row->tenant->now.flags & RBK_STATS_TENANT_DRAINED)
			ret->mark = " (drained)";
		return;
	}
	snprintf(ret->text, sizeof(ret->text), "%s %u %s", row->is_last_child ? "└─" : "├─",
		 row->session->now.pid, text_name(row->session->now.name));
}

static const char *key_name(ROW)
{
	return row->tenant->now.name;
}

static void draw_vram(CELL)
{
	uint64_t used, limit;

	if (row->session) {
		cell_set(ret, figure_bytes((double)row->session->now.memory_used).text);
		return;
	}
	used = model_gpu_memory(model, &row->tenant->now);
	limit = model_gpu_limit(model, &row->tenant->now);
	cell_set(ret, figure_bytes((double)used).text);
	if (limit != UINT64_MAX && used > 0 && (double)used >= 0.95 * (double)limit)
		ret->style = STYLE_WARN;
}

static double key_vram(ROW)
{
	return row->session ? (double)row->session->now.memory_used
			    : (double)model_gpu_memory(model, &row->tenant->now);
}

static void draw_vram_max(CELL)
{
	if (!row->is_child)
		cell_set(ret, figure_bytes_of(model_gpu_limit(model, &row->tenant->now)).text);
}

static double key_vram_max(ROW)
{
	return (double)model_gpu_limit(model, &row->tenant->now);
}

/* A check mark means that the reserve is available at any time. */
static void draw_reserve(CELL)
{
	double reserve = 0;
	bool is_kept = true;

	if (row->is_child)
		return;
	for (uint32_t i = RBK_DEVICE_GPU; i < model->n_devices; i++) {
		const struct rbk_stats_tenant_device *memory = &row->tenant->now.devices[i];

		reserve += (double)memory->memory_reserve;
		if (memory->memory_used < memory->memory_reserve && !model_keeps_reserves(model, i))
			is_kept = false;
	}
	if (!(reserve > 0)) {
		cell_set(ret, "–");
		return;
	}
	snprintf(ret->text, sizeof(ret->text), "%s%s", is_kept ? "✓" : "▲",
		 figure_bytes(reserve).text);
	ret->style = is_kept ? STYLE_PLAIN : STYLE_BAD;
}

static double key_reserve(ROW)
{
	double sum = 0;

	for (uint32_t i = RBK_DEVICE_GPU; i < model->n_devices; i++)
		sum += (double)row->tenant->now.devices[i].memory_reserve;
	return sum;
}

static void set_share(struct cell_text *ret, double share, double weight)
{
	if (!isfinite(share) || share < 0)
		cell_set(ret, "–");
	else
		snprintf(ret->text, sizeof(ret->text), "%s of %2.0f", figure_part(share).text,
			 fmax(0, fmin(100, 100 * weight)));
}

static void draw_gpu_share(CELL)
{
	if (row->session)
		cell_set(ret, figure_part(model_session_gpu_share(model, row->session)).text);
	else
		set_share(ret, model_gpu_share(model, &row->tenant->now),
			  model_weight_part(model, &row->tenant->now));
}

static double key_gpu_share(ROW)
{
	return row->session ? model_session_gpu_share(model, row->session)
			    : model_gpu_share(model, &row->tenant->now);
}

static void draw_cpu_share(CELL)
{
	if (!row->is_child)
		set_share(ret, row->tenant->now.devices[RBK_DEVICE_CPU].share,
			  model_weight_part(model, &row->tenant->now));
}

static double key_cpu_share(ROW)
{
	return row->tenant->now.devices[RBK_DEVICE_CPU].share;
}

static double key_tasks(ROW)
{
	return row->session ? row->session->tasks_per_s : row->tenant->tasks_per_s;
}

static void draw_parts(CELL)
{
	set_parts(ret, row->session ? row->session->gpu_part : row->tenant->gpu_part);
}

static double key_parts(ROW)
{
	return row->session ? row->session->gpu_part : row->tenant->gpu_part;
}

#define QUANTILE(name, member)                                                                \
	static double key_##name(ROW)                                                         \
	{                                                                                     \
		return row->session ? (double)row->session->now.member : row->tenant->member; \
	}

QUANTILE(p50, p50_ns)
QUANTILE(p99, p99_ns)

static double key_queue(ROW)
{
	return row->tenant->queue_p99_ns;
}

static double key_evictions(ROW)
{
	return (double)(row->session ? row->session->now.n_evictions
				     : row->tenant->now.n_evictions);
}

static void draw_evictions(CELL)
{
	cell_set(ret, figure_count(key_evictions(model, row)).text);
	if (!row->session && row->tenant->has_new_evictions)
		ret->style = STYLE_WARN;
}

static uint64_t fallbacks(ROW)
{
	return row->session ? row->session->now.n_fallbacks
			    : row->tenant->now.reasons[RBK_REASON_CPU_FALLBACK];
}

static void draw_fallbacks(CELL)
{
	set_bad(ret, fallbacks(model, row));
}

static double key_fallbacks(ROW)
{
	return (double)fallbacks(model, row);
}

static uint64_t errors(ROW)
{
	return row->session ? row->session->now.n_errors : row->tenant->now.n_errors;
}

static void draw_errors(CELL)
{
	set_bad(ret, errors(model, row));
}

static double key_errors(ROW)
{
	return (double)errors(model, row);
}

static double key_wait(ROW)
{
	return row->tenant->has_delay ? (double)row->tenant->delay->p99_ns : 0;
}

static const char *causer(ROW)
{
	return row->is_child ? "" : model_causer(row->tenant);
}

static void draw_causer(CELL)
{
	const char *name = causer(model, row);

	if (!row->is_child)
		cell_set(ret, name[0] ? text_name(name) : "–");
}

static double key_copied(ROW)
{
	return row->session
		       ? row->session->copied_bytes_per_s
		       : row->tenant->copied_bytes_per_s + row->tenant->transferred_bytes_per_s;
}

static double key_host(ROW)
{
	return (double)(row->session ? row->session->now.arena_bytes : row->tenant->now.host_used);
}

static double key_n_plans(ROW)
{
	return (double)(row->session ? row->session->now.n_plans : row->tenant->now.n_plans);
}

static const char *key_causer(ROW)
{
	return causer(model, row);
}

const struct column tenant_columns[] = {
	TEXT_COLUMN("TENANT", 12, 0, COLUMN_FLEX, name),
	FIGURE_COLUMN("SESS", 5, 4, DOWN, "sessions"),
	COLUMN("VRAM", 8, 0, DOWN | COLUMN_GPU, vram),
	COLUMN("/ MAX", 8, 2, DOWN | COLUMN_GPU, vram_max),
	COLUMN("RESERVE", 9, 3, DOWN | COLUMN_GPU, reserve),
	COLUMN("GPU-SHARE", 10, 2, DOWN | COLUMN_GPU, gpu_share),
	COLUMN("CPU-SHARE", 10, 2, DOWN, cpu_share),
	NUMBER_COLUMN("TASKS/s", 8, 0, DOWN, tasks, rate),
	COLUMN("CPU/GPU", 8, 3, DOWN | COLUMN_GPU, parts),
	NUMBER_COLUMN("P50", 7, 3, DOWN, p50, ns),
	NUMBER_COLUMN("P99", 7, 0, DOWN, p99, ns),
	COLUMN("EVICT", 6, 4, DOWN | COLUMN_GPU, evictions),
	COLUMN("FALLBK", 6, 5, DOWN | COLUMN_GPU, fallbacks),
	NUMBER_COLUMN("RQ-WAIT", 7, 5, DOWN | COLUMN_OWN, wait, ns),
	TEXT_COLUMN("BEHIND", 15, 6, 0, causer),
	NUMBER_COLUMN("COPIED/s", 8, 6, DOWN, copied, bytes),
	COLUMN("ERRORS", 6, 6, DOWN, errors),
	NUMBER_COLUMN("QUEUE99", 7, 7, DOWN | COLUMN_OWN, queue, ns),
	NUMBER_COLUMN("HOST", 8, 7, DOWN, host, bytes),
	NUMBER_COLUMN("PLANS", 5, 7, DOWN, n_plans, count),
	FIGURE_COLUMN("LATE", 5, 7, DOWN | COLUMN_BAD, "deadlines_missed"),
	FIGURE_COLUMN("NO-MEM", 6, 8, DOWN | COLUMN_GPU | COLUMN_BAD, "memory_constraints"),
	FIGURE_COLUMN("REFUSED", 7, 8, DOWN | COLUMN_BAD, "refused"),
	FIGURE_COLUMN("THROTTLD", 8, 8, DOWN, "throttled_ns"),
};
const unsigned int n_tenant_columns = sizeof(tenant_columns) / sizeof(tenant_columns[0]);
_Static_assert(sizeof(tenant_columns) / sizeof(tenant_columns[0]) <= TABLE_MAX_COLUMNS, "room");

/* --- Sessions --- */

/* Processes are watched per tenant, so a session shows its tenant's value. */
static double key_s_wait(ROW)
{
	return row->tenant ? key_wait(model, row) : 0;
}

static const char *key_s_causer(ROW)
{
	return row->tenant ? model_causer(row->tenant) : "";
}

static void draw_s_causer(CELL)
{
	const char *name = key_s_causer(model, row);

	cell_set(ret, name[0] ? text_name(name) : "–");
}

static const char *key_s_tenant(ROW)
{
	if (row->session->now.flags & RBK_STATS_SESSION_ADMIN)
		return "(admin)";
	return row->tenant ? row->tenant->now.name : "";
}

static void draw_s_tenant(CELL)
{
	const char *name = key_s_tenant(model, row);

	cell_set(ret, name[0] ? text_name(name) : "–");
	if (row->tenant)
		ret->style = tenant_style(row->tenant->now.number);
}

static const char *key_s_name(ROW)
{
	return row->session->now.name;
}

static void draw_s_name(CELL)
{
	snprintf(ret->text, sizeof(ret->text), "%s%s", text_name(row->session->now.name),
		 row->session->now.flags & RBK_STATS_SESSION_ENDING ? " (ending)" : "");
}

static const char *key_s_comm(ROW)
{
	return row->session->now.comm;
}

static void draw_s_comm(CELL)
{
	cell_set(ret, text_name(row->session->now.comm));
}

static double key_s_age(ROW)
{
	uint64_t began_at_ns = row->session->now.began_at_ns;

	return model->updated_at_ns > began_at_ns ? (double)(model->updated_at_ns - began_at_ns)
						  : 0;
}

const struct column session_columns[] = {
	FIGURE_COLUMN("SESSION", 7, 3, 0, "session"),
	FIGURE_COLUMN("PID", 7, 0, 0, "pid"),
	FIGURE_COLUMN("USER", 6, 5, 0, "uid"),
	TEXT_COLUMN("TENANT", 12, 0, 0, s_tenant),
	TEXT_COLUMN("NAME", 14, 1, COLUMN_FLEX, s_name),
	TEXT_COLUMN("COMMAND", 15, 6, 0, s_comm),
	COLUMN("VRAM", 8, 1, DOWN | COLUMN_GPU, vram),
	COLUMN("GPU-SHARE", 9, 2, DOWN | COLUMN_GPU, gpu_share),
	NUMBER_COLUMN("TASKS/s", 8, 0, DOWN, tasks, rate),
	COLUMN("CPU/GPU", 8, 3, DOWN | COLUMN_GPU, parts),
	NUMBER_COLUMN("P50", 7, 3, DOWN, p50, ns),
	NUMBER_COLUMN("P99", 7, 1, DOWN, p99, ns),
	FIGURE_COLUMN("IN-FLIGHT", 9, 4, DOWN, "in_flight"),
	COLUMN("EVICT", 6, 4, DOWN | COLUMN_GPU, evictions),
	NUMBER_COLUMN("PLANS", 5, 4, DOWN, n_plans, count),
	FIGURE_COLUMN("RESIDENT", 8, 4, DOWN | COLUMN_GPU, "plans_resident"),
	NUMBER_COLUMN("ARENAS", 8, 4, DOWN, host, bytes),
	NUMBER_COLUMN("COPIED/s", 8, 5, DOWN, copied, bytes),
	COLUMN("FALLBK", 6, 4, DOWN | COLUMN_GPU, fallbacks),
	COLUMN("ERRORS", 6, 4, DOWN, errors),
	NUMBER_COLUMN("TENANT-RQ", 9, 5, DOWN, s_wait, ns),
	TEXT_COLUMN("TENANT-BEHIND", 15, 6, 0, s_causer),
	NUMBER_COLUMN("AGE", 7, 5, DOWN, s_age, ns),
	FIGURE_COLUMN("TASKS", 7, 6, DOWN, "tasks"),
	FIGURE_COLUMN("RINGS", 5, 7, DOWN, "rings"),
};
const unsigned int n_session_columns = sizeof(session_columns) / sizeof(session_columns[0]);
_Static_assert(sizeof(session_columns) / sizeof(session_columns[0]) <= TABLE_MAX_COLUMNS, "room");
