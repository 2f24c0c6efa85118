/* SPDX-License-Identifier: MIT */
/*
 * Times of devices and bytes of links while the tasks of a group's first graph run under GRAPH_OURS
 *
 * A device's time has three parts: it runs nodes; it waits between its first and its last node,
 * which are bubbles; or it has not begun, or has nothing left to do.
 */
#include "graph-outcome.h"
#include "report.h"
#include "util/cleanup.h"
#include "util/error.h"

struct shares {
	double busy, bubbles, idle;
};

static struct shares shares_of(const struct graph_result *result, uint32_t device)
{
	const double busy_ns = result->busy_ns[device];
	const double used_ns = result->last_ns[device] - result->first_ns[device];

	return (struct shares){
		.busy = busy_ns / result->span_ns,
		.bubbles = (used_ns - busy_ns) / result->span_ns,
		.idle = 1 - used_ns / result->span_ns,
	};
}

static void table_group(FILE *file, const struct scenario_graphs *graphs, const char *group,
			const struct graph_result *result, uint32_t n_devices)
{
	char from[SCENARIO_NAME_BYTES], to[SCENARIO_NAME_BYTES];

	for (uint32_t d = 0; d < n_devices; d++) {
		const struct shares shares = shares_of(result, d);

		fprintf(file, "  %-16s %-16s %7u %7.1f%% %7.1f%% %7.1f%%\n", d ? "" : group,
			graph_device_name(graphs, d, from), result->n_run[d], shares.busy * 100,
			shares.bubbles * 100, shares.idle * 100);
	}
	for (uint32_t d = 0; d < n_devices; d++)
		for (uint32_t e = 0; e < n_devices; e++)
			if (result->link_bytes[d][e] > 0)
				fprintf(file, "  %-16s %s to %s: %.4g MB\n", "",
					graph_device_name(graphs, d, from),
					graph_device_name(graphs, e, to),
					result->link_bytes[d][e] * 1e-6);
	fprintf(file, "  %-16s ends after %.4g ms\n", "", result->span_ns * 1e-6);
}

static void json_begin(FILE *file, const struct scenario *scenario, const char *group)
{
	fputs("{\"scenario\":", file);
	report_json_string(file, scenario->name);
	fprintf(file, ",\"%s\":", scenario->graphs.n_models > 0 ? "model" : "family");
	report_json_string(file, group);
}

static void json_group(FILE *file, const struct scenario *scenario, const char *group,
		       const struct graph_result *result, uint32_t n_devices)
{
	char name[SCENARIO_NAME_BYTES];

	for (uint32_t d = 0; d < n_devices; d++) {
		const struct shares shares = shares_of(result, d);

		json_begin(file, scenario, group);
		fputs(",\"device\":", file);
		report_json_string(file, graph_device_name(&scenario->graphs, d, name));
		report_json_number(file, "nodes", result->n_run[d]);
		report_json_number(file, "busy", shares.busy);
		report_json_number(file, "bubbles", shares.bubbles);
		report_json_number(file, "idle", shares.idle);
		fputs("}\n", file);
	}
	for (uint32_t d = 0; d < n_devices; d++)
		for (uint32_t e = 0; e < n_devices; e++) {
			if (!(result->link_bytes[d][e] > 0))
				continue;
			json_begin(file, scenario, group);
			fputs(",\"from\":", file);
			report_json_string(file, graph_device_name(&scenario->graphs, d, name));
			fputs(",\"to\":", file);
			report_json_string(file, graph_device_name(&scenario->graphs, e, name));
			report_json_number(file, "bytes", result->link_bytes[d][e]);
			fputs("}\n", file);
		}
}

static int show_group(FILE *file, bool is_json, const struct scenario *scenario,
		      const char *models_dir, uint32_t group, uint64_t seed,
		      char message[SCENARIO_MESSAGE_BYTES])
{
	const struct scenario_graphs *graphs = &scenario->graphs;
	const char *name = graph_group_name(graphs, group);
	_cleanup_(place_graph_freep) struct place_graph *graph = NULL;
	struct graph_result result;
	struct graph_run run;
	int r;

	r = graph_of_group(scenario, models_dir, group, 0, seed, message, &graph);
	if (r)
		return r == SCENARIO_E_INVALID ? r : error_fold(r);
	run = (struct graph_run){
		.graph = graph,
		.truth = {graphs->noise, graphs->is_contended, seed},
		.n_tasks = graphs->n_tasks,
		.n_in_flight = graphs->n_in_flight,
	};
	r = graph_run(&run, GRAPH_OURS, &result);
	if (r)
		return error_fold(r);
	if (is_json)
		json_group(file, scenario, name, &result, graph->n_devices);
	else
		table_group(file, graphs, name, &result, graph->n_devices);
	return 0;
}

int graph_utilization(FILE *file, bool is_json, const struct scenario *scenario,
		      const char *models_dir, uint64_t seed, char message[SCENARIO_MESSAGE_BYTES])
{
	const struct scenario_graphs *graphs = &scenario->graphs;
	int r = 0;

	seed = seed ? seed : scenario->seed;
	if (!is_json)
		fprintf(file,
			"%s: devices and links under ours, first graph of each\n  %-16s %-16s "
			"%7s %8s %8s %8s\n",
			scenario->name, graphs->n_models > 0 ? "model" : "family", "device",
			"nodes", "busy", "bubbles", "idle");
	for (uint32_t i = 0; !r && i < graph_n_groups(graphs); i++)
		if (graph_has_group(graphs, i))
			r = show_group(file, is_json, scenario, models_dir, i,
				       graph_seed(seed, i, 0), message);
	if (!is_json)
		fputc('\n', file);
	fflush(file);
	return r;
}
