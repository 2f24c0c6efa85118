/* SPDX-License-Identifier: MIT */
/*
 * Output of brokersim
 *
 * Numbers that JSON cannot represent become null. Scenario names come from file names and must be
 * escaped. Names of plans and tenants need no escaping, since the scenario's reader checks them.
 */
#include "report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shm/stats-names.h"
#include "util/cleanup.h"
#include "util/error.h"

void report_json_string(FILE *file, const char *text)
{
	fputc('"', file);
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		if (*c == '"' || *c == '\\')
			fprintf(file, "\\%c", *c);
		else if (*c < 0x20 || *c == 0x7f)
			fprintf(file, "\\u%04x", *c);
		else
			fputc(*c, file);
	}
	fputc('"', file);
}

void report_json_number(FILE *file, const char *name, double value)
{
	fputc(',', file);
	report_json_string(file, name);
	if (isfinite(value))
		fprintf(file, ":%.9g", value);
	else
		fputs(":null", file);
}

void report_json(FILE *file, const struct outcome *outcome)
{
	const struct scenario *scenario = outcome->scenario;

	for (unsigned int i = 0; i < outcome->n_measures; i++) {
		const struct measures *measures = &outcome->measures[i];

		fputs("{\"scenario\":", file);
		report_json_string(file, scenario->name);
		fputs(",\"policy\":", file);
		report_json_string(file, measures->policy->name);
		fputs(",\"cpu\":", file);
		report_json_string(file, scenario->profile_names[RBK_DEVICE_CPU]);
		fputs(",\"gpu\":", file);
		report_json_string(file, scenario->profile_names[RBK_DEVICE_GPU]);
		fputs(",\"bound_kind\":", file);
		report_json_string(file, bound_kind_name(outcome->bound_kind));
		report_json_number(file, "runs", measures->n_runs);
		for (unsigned int f = 0; f < FIG_COUNT; f++)
			report_json_number(file, figure_name(f), measures->figures[f]);
		report_json_number(file, "worst_ratio", measures->worst_ratio);
		for (uint32_t t = 0; t < scenario->n_tenants; t++) {
			char name[SCENARIO_NAME_BYTES + 8];

			snprintf(name, sizeof(name), "p99.%s", scenario->tenants[t].name);
			report_json_number(file, name, measures->tenant_p99[t]);
		}
		fputs("}\n", file);
	}
	fflush(file);
}

/* Print a time with three or four significant digits and a unit, in 8 columns. */
static void table_seconds(FILE *file, double seconds)
{
	static const struct {
		double seconds;
		const char *name;
	} units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
	unsigned int i = 0;

	if (!isfinite(seconds)) {
		fprintf(file, " %8s", "-");
		return;
	}
	while (i < 3 && seconds < units[i].seconds)
		i++;
	seconds /= units[i].seconds;
	fprintf(file, " %6.*f%-2s", seconds >= 100 ? 1 : 2, seconds, units[i].name);
}

static void table_number(FILE *file, int width, int decimals, double value)
{
	if (isfinite(value))
		fprintf(file, " %*.*f", width, decimals, value);
	else
		fprintf(file, " %*s", width, "-");
}

void report_table(FILE *file, const struct outcome *outcome)
{
	const struct scenario *scenario = outcome->scenario;

	fprintf(file, "%s: %s + %s, %.0f tasks, %u run%s, bound: %s\n", scenario->name,
		scenario->profile_names[RBK_DEVICE_CPU], scenario->profile_names[RBK_DEVICE_GPU],
		outcome->measures[0].figures[FIG_TASKS], outcome->measures[0].n_runs,
		outcome->measures[0].n_runs == 1 ? "" : "s", bound_kind_name(outcome->bound_kind));
	if (*scenario->about)
		fprintf(file, "  %s\n", scenario->about);
	fprintf(file, "  %-12s %8s %8s %6s %7s %7s %6s %8s %8s %5s %5s %6s %6s\n", "policy",
		"makespan", "bound", "ratio", "right", "regret", "jain", "p50", "p99", "cpu", "gpu",
		"falls", "moved");
	for (unsigned int i = 0; i < outcome->n_measures; i++) {
		const struct measures *measures = &outcome->measures[i];
		const double *figures = measures->figures;

		fprintf(file, "  %-12s", measures->policy->name);
		table_seconds(file, figures[FIG_MAKESPAN]);
		table_seconds(file, figures[FIG_BOUND]);
		table_number(file, 6, 3, figures[FIG_RATIO]);
		table_number(file, 6, 2, figures[FIG_ACCURACY] * 100);
		fputc('%', file);
		table_number(file, 6, 2, figures[FIG_REGRET] * 100);
		fputc('%', file);
		table_number(file, 6, 3, figures[FIG_JAIN]);
		table_seconds(file, figures[FIG_P50]);
		table_seconds(file, figures[FIG_P99]);
		table_number(file, 5, 2, figures[FIG_CPU_UTILIZATION]);
		table_number(file, 5, 2, figures[FIG_GPU_UTILIZATION]);
		table_number(file, 6, 0, figures[FIG_FALLBACKS]);
		table_number(file, 6, 0, figures[FIG_MOVED]);
		fputc('\n', file);
	}
	fputc('\n', file);
	fflush(file);
}

void report_checks_header(FILE *file)
{
	fprintf(file, "%-26s %-24s %-34s %12s %12s\n", "scenario", "devices", "figure", "target",
		"reached");
}

struct report_checks report_checks(FILE *file, const struct scenario *scenario, const char *devices,
				   report_find *find, const void *context)
{
	struct report_checks checks = {0};

	for (uint32_t i = 0; i < scenario->n_expected; i++) {
		const struct scenario_expected *expected = &scenario->expected[i];
		double value = NAN;
		bool is_met;

		find(context, scenario, expected->figure, &value);
		is_met = expected->relation == AT_LEAST ? value >= expected->value
							: value <= expected->value;
		if (is_met)
			checks.n_met++;
		else if (expected->is_aim)
			checks.n_short++;
		else
			checks.n_missed++;
		fprintf(file, "%-26s %-24s %-34s %s %9.6g %12.5g%s\n", scenario->name, devices,
			expected->figure,
			expected->relation == AT_LEAST ? ">=" : "<=", expected->value, value,
			is_met             ? ""
			: expected->is_aim ? "  short"
					   : "  missed");
	}
	fflush(file);
	return checks;
}

/*
 * Return the time lost by a decision. Misses are sorted by time, so that those that cost most come
 * first.
 */
static double lost_ns(const struct sim_verdict *verdict)
{
	return (double)verdict->loss * fmin((double)verdict->done_ns[RBK_DEVICE_CPU],
					    (double)verdict->done_ns[RBK_DEVICE_GPU]);
}

static int by_loss(const void *a, const void *b)
{
	double left = lost_ns(*(const struct sim_verdict *const *)a);
	double right = lost_ns(*(const struct sim_verdict *const *)b);

	return left > right ? -1 : left < right;
}

int report_misses(FILE *file, const struct sim *sim, uint32_t n)
{
	static const char *const reasons[RBK_REASON_COUNT] = {
#define NAME(id, name) [RBK_REASON_##id] = name,
		STATS_REASON_NAMES(NAME)
#undef NAME
	};
	const struct world *world = sim->world;
	_cleanup_(freep) const struct sim_verdict **worst =
		calloc(world->n_tasks + 1, sizeof(struct sim_verdict *));
	uint32_t n_wrong = 0;

	if (!worst)
		return error_origin(-ENOMEM);
	for (uint32_t i = 0; i < world->n_tasks; i++) {
		if (!sim->verdicts[i].is_right)
			worst[n_wrong++] = &sim->verdicts[i];
	}
	qsort(worst, n_wrong, sizeof(struct sim_verdict *), by_loss);
	fprintf(file, "%s: %u of %u decisions of %s lost 5%% or more\n", world->scenario->name,
		n_wrong, world->n_tasks, sim->policy->name);
	fprintf(file, "  %-20s %8s %7s %-6s %-17s %-5s %8s %8s %8s %8s %8s %8s %8s %8s %8s\n",
		"plan", "count", "nth", "went", "reason", "flags", "expected", "there", "lost",
		"thought", "cpu wait", "cpu done", "thought", "gpu wait", "gpu done");
	for (uint32_t i = 0; i < n && i < n_wrong; i++) {
		const struct sim_verdict *verdict = worst[i];
		const struct sim_task *task = &world->tasks[verdict - sim->verdicts];
		const struct place_decision *decision = &verdict->choice.decision;

		fprintf(file, "  %-20s %8u %7u %-6s %-17s %-5s",
			world->scenario->plans[task->plan].name, task->count, task->nth_of_plan,
			task->n_parts > 1 ? "split"
			: task->device    ? "gpu"
					  : "cpu",
			reasons[task->reason < RBK_REASON_COUNT ? task->reason : 0],
			decision->flags & PLACE_EXPLORES ? "e"
			: decision->flags & PLACE_PROBES ? "p"
							 : "");
		table_seconds(file, (double)decision->predicted_ns / 1e9);
		table_seconds(file, (double)decision->other_ns / 1e9);
		table_seconds(file, lost_ns(verdict) / 1e9);
		for (unsigned int d = 0; d < SCENARIO_DEVICES; d++) {
			table_seconds(file, (double)verdict->choice.wait_ns[d] / 1e9);
			table_seconds(file, fmax((double)verdict->wait_ns[d], 0) / 1e9);
			table_seconds(file, (double)verdict->done_ns[d] / 1e9);
		}
		fputc('\n', file);
	}
	return 0;
}
