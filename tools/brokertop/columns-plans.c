/* SPDX-License-Identifier: MIT */
/* Columns of plans and decisions. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "columns.h"
#include "figures.h"
#include "monitor/text.h"

/* --- Plans --- */

static const char *key_tenant(ROW)
{
	return row->plan->tenant_name;
}

static void draw_tenant(CELL)
{
	cell_set(ret, text_name(row->plan->tenant_name));
	ret->style = tenant_style(row->plan->tenant);
}

static const char *key_name(ROW)
{
	return row->plan->now.name;
}

static void draw_name(CELL)
{
	bool is_gone = row->plan->now.state == RBK_STATS_PLAN_GONE;

	snprintf(ret->text, sizeof(ret->text), "%s%s", text_name(row->plan->now.name),
		 is_gone ? " (gone)" : "");
	if (is_gone)
		ret->style = STYLE_DIM;
}

static double key_state(ROW)
{
	return row->plan->state;
}

static void draw_state(CELL)
{
	const struct model_plan *plan = row->plan;

	if (plan->now.state == RBK_STATS_PLAN_GONE || plan->gpu == 0) {
		cell_set(ret, "–");
		return;
	}
	if (plan->state == RBK_MEMORY_RESIDENT && plan->now.n_segments > 1)
		snprintf(ret->text, sizeof(ret->text), "%u of %u", plan->now.n_segments_resident,
			 plan->now.n_segments);
	else
		snprintf(ret->text, sizeof(ret->text), "%s%s", memory_state_name(plan->state),
			 plan->state == RBK_MEMORY_RESIDENT && plan->tier == RBK_TIER_GTT ? " GTT"
											  : "");
	if (plan->state == RBK_MEMORY_EVICTED || plan->state == RBK_MEMORY_LOST ||
	    plan->state == RBK_MEMORY_NEVER_FITS)
		ret->style = STYLE_WARN;
}

static double key_size(ROW)
{
	return (double)row->plan->footprint_bytes;
}

static void draw_size(CELL)
{
	cell_set(ret, row->plan->footprint_bytes ? figure_bytes(key_size(model, row)).text : "–");
}

static double key_tasks(ROW)
{
	return row->plan->tasks_per_s;
}

static double key_cpu(ROW)
{
	return row->plan->cpu_now_ns;
}

static double key_gpu(ROW)
{
	return row->plan->gpu_now_ns;
}

static double key_cpu_alone(ROW)
{
	return row->plan->cpu_ns;
}

static double key_gpu_alone(ROW)
{
	return row->plan->gpu_ns;
}

static double key_speedup(ROW)
{
	return row->plan->speedup;
}

static void draw_speedup(CELL)
{
	double speedup = row->plan->speedup;

	if (speedup > 0 && speedup < 1e4)
		snprintf(ret->text, sizeof(ret->text), "%.*f", speedup < 10 ? 2 : 0, speedup);
	else
		cell_set(ret, "–");
}

static double key_error(ROW)
{
	return row->plan->window_error;
}

static void draw_error(CELL)
{
	cell_set(ret, figure_part(row->plan->window_error).text);
	if (row->plan->window_error > 0 && !row->plan->is_trusted)
		ret->style = STYLE_WARN;
}

static double key_last(ROW)
{
	return row->plan->now.last_device;
}

static void draw_last(CELL)
{
	cell_set(ret, row->plan->n_tasks ? device_label(row->plan->now.last_device) : "–");
}

static const char *key_reason(ROW)
{
	return row->plan->n_tasks ? rbk_reason_name(row->plan->now.last_reason) : "";
}

static void draw_reason(CELL)
{
	cell_set(ret, row->plan->n_tasks ? key_reason(model, row) : "–");
	if (row->plan->now.last_reason == RBK_REASON_CPU_FALLBACK ||
	    row->plan->now.last_reason == RBK_REASON_MEMORY_CONSTRAINT ||
	    row->plan->now.last_reason == RBK_REASON_BREAKER_OPEN)
		ret->style = STYLE_WARN;
}

static double key_total(ROW)
{
	return (double)row->plan->n_tasks;
}

const struct column plan_columns[] = {
	TEXT_COLUMN("TENANT", 12, 0, 0, tenant),
	FIGURE_COLUMN("SESSION", 7, 4, 0, "session"),
	TEXT_COLUMN("PLAN", 14, 0, COLUMN_FLEX, name),
	{"STATE", 12, 1, COLUMN_LEFT | COLUMN_GPU, draw_state, key_state, NULL},
	COLUMN("SIZE", 8, 2, DOWN | COLUMN_GPU, size),
	NUMBER_COLUMN("TASKS/s", 8, 0, DOWN, tasks, rate),
	NUMBER_COLUMN("CPU NOW", 7, 1, DOWN, cpu, ns),
	NUMBER_COLUMN("GPU NOW", 7, 1, DOWN | COLUMN_GPU, gpu, ns),
	COLUMN("SPEED-UP", 8, 3, DOWN | COLUMN_GPU, speedup),
	{"LAST", 5, 3, COLUMN_LEFT, draw_last, key_last, NULL},
	TEXT_COLUMN("BECAUSE", 17, 2, 0, reason),
	COLUMN("ERROR", 5, 4, DOWN, error),
	NUMBER_COLUMN("CPU ALONE", 9, 5, DOWN, cpu_alone, ns),
	NUMBER_COLUMN("GPU ALONE", 9, 5, DOWN | COLUMN_GPU, gpu_alone, ns),
	FIGURE_COLUMN("EVICT", 5, 4, DOWN | COLUMN_GPU, "evictions"),
	FIGURE_COLUMN("RETURNS", 7, 5, DOWN | COLUMN_GPU, "returns"),
	FIGURE_COLUMN("NO-MEM", 6, 5, DOWN | COLUMN_GPU, "memory_constraints"),
	NUMBER_COLUMN("TASKS", 7, 5, DOWN, total, count),
};
const unsigned int n_plan_columns = sizeof(plan_columns) / sizeof(plan_columns[0]);
_Static_assert(sizeof(plan_columns) / sizeof(plan_columns[0]) <= TABLE_MAX_COLUMNS, "room");

/* --- Decisions --- */

static double key_d_time(ROW)
{
	return (double)row->decision->now.ended_at_ns;
}

static void draw_d_time(CELL)
{
	/* Unsigned, so that overflow is defined. */
	uint64_t ns = row->decision->now.ended_at_ns + (uint64_t)model->realtime_offset_ns;
	time_t seconds = (time_t)(ns / 1000000000u);
	struct tm local;

	if (!localtime_r(&seconds, &local)) {
		cell_set(ret, "–");
		return;
	}
	snprintf(ret->text, sizeof(ret->text), "%02d:%02d:%02d.%03u", local.tm_hour, local.tm_min,
		 local.tm_sec, (unsigned int)(ns / 1000000u % 1000u));
}

static const char *key_d_tenant(ROW)
{
	return row->decision->tenant_name;
}

static void draw_d_tenant(CELL)
{
	cell_set(ret, text_name(row->decision->tenant_name));
	ret->style = tenant_style(row->decision->tenant);
}

static const char *key_d_plan(ROW)
{
	return row->decision->plan_name;
}

static void draw_d_plan(CELL)
{
	if (row->decision->plan_name[0])
		cell_set(ret, text_name(row->decision->plan_name));
	else
		snprintf(ret->text, sizeof(ret->text), "(plan %u)", row->decision->now.plan_id);
}

static double key_d_count(ROW)
{
	return row->decision->now.count;
}

static double key_d_device(ROW)
{
	return row->decision->now.device;
}

static void draw_d_device(CELL)
{
	cell_set(ret, row->decision->now.split_count ? "split"
						     : device_label(row->decision->now.device));
}

static const char *key_d_reason(ROW)
{
	return rbk_reason_name(row->decision->now.reason);
}

static void draw_d_reason(CELL)
{
	cell_set(ret, key_d_reason(model, row));
	if (row->decision->now.reason == RBK_REASON_CPU_FALLBACK)
		ret->style = STYLE_WARN;
}

#define DECISION_NS(name, member)                         \
	static double key_##name(ROW)                     \
	{                                                 \
		return (double)row->decision->now.member; \
	}

DECISION_NS(d_predicted, predicted_ns)
DECISION_NS(d_exec, exec_ns)
DECISION_NS(d_queue, queue_ns)
DECISION_NS(d_other, other_ns)

/* Return the prediction error relative to the execution time; -1: not known. */
static double key_d_off(ROW)
{
	double predicted = row->decision->now.predicted_ns, took = row->decision->now.exec_ns;

	return predicted > 0 && took > 0 ? fabs(took - predicted) / took : -1;
}

static void draw_d_off(CELL)
{
	double off = key_d_off(model, row);

	cell_set(ret, figure_part(off).text);
	if (off > 0.5)
		ret->style = STYLE_WARN;
}

static double key_d_flags(ROW)
{
	return row->decision->now.flags;
}

static void draw_d_flags(CELL)
{
	static const struct {
		unsigned int flag;
		const char *name;
	} flags[] = {
		{RBK_DECISION_DEADLINE_MISSED, "late"}, {RBK_DECISION_PARTITIONED, "split"},
		{RBK_DECISION_EXPLORED, "explored"},    {RBK_DECISION_INLINE, "inline"},
		{RBK_DECISION_MOVED, "moved"},
	};
	size_t n = 0;

	for (unsigned int i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		if (row->decision->now.flags & flags[i].flag)
			n += (size_t)snprintf(ret->text + n, sizeof(ret->text) - n, "%s%s",
					      n ? " " : "", flags[i].name);
	if (row->decision->now.flags & RBK_DECISION_DEADLINE_MISSED)
		ret->style = STYLE_WARN;
}

static double key_d_result(ROW)
{
	return row->decision->now.res;
}

static void draw_d_result(CELL)
{
	if (row->decision->now.res >= 0) {
		cell_set(ret, "ok");
		return;
	}
	snprintf(ret->text, sizeof(ret->text), "%d", row->decision->now.res);
	ret->style = STYLE_BAD;
}

const struct column decision_columns[] = {
	COLUMN("TIME", 12, 0, DOWN, d_time),
	TEXT_COLUMN("TENANT", 12, 3, 0, d_tenant),
	TEXT_COLUMN("PLAN", 14, 0, COLUMN_FLEX, d_plan),
	NUMBER_COLUMN("COUNT", 6, 5, DOWN, d_count, count),
	{"ON", 5, 0, COLUMN_LEFT, draw_d_device, key_d_device, NULL},
	TEXT_COLUMN("BECAUSE", 17, 2, 0, d_reason),
	NUMBER_COLUMN("PREDICTED", 9, 2, DOWN, d_predicted, ns),
	NUMBER_COLUMN("TOOK", 7, 0, DOWN, d_exec, ns),
	COLUMN("OFF", 5, 4, DOWN, d_off),
	NUMBER_COLUMN("QUEUED", 7, 4, DOWN, d_queue, ns),
	NUMBER_COLUMN("ELSEWHERE", 9, 5, DOWN, d_other, ns),
	COLUMN("RESULT", 6, 4, 0, d_result),
	{"", 24, 6, COLUMN_LEFT, draw_d_flags, key_d_flags, NULL},
};
const unsigned int n_decision_columns = sizeof(decision_columns) / sizeof(decision_columns[0]);
_Static_assert(sizeof(decision_columns) / sizeof(decision_columns[0]) <= TABLE_MAX_COLUMNS, "room");
