/* SPDX-License-Identifier: MIT */
/*
 * A scenario of graphs: every family, communication ratio and number of devices, under all policies
 *
 * Each graph has a seed of its own, from which its times and what disturbs them are drawn, so all
 * policies meet the same. There is a lower bound for one task whose times are known.
 */
#include "graph-outcome.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph-bound.h"
#include "graph-exact.h"
#include "report.h"
#include "util/cleanup.h"
#include "util/error.h"

static const char *const figure_names[GRAPH_FIG_COUNT] = {
	[GRAPH_FIG_OPTIMUM_MEAN] = "optimum-mean",     [GRAPH_FIG_OPTIMUM_WORST] = "optimum-worst",
	[GRAPH_FIG_OPTIMUM_SOLVED] = "optimum-solved", [GRAPH_FIG_BOUND_WORST] = "bound-worst",
	[GRAPH_FIG_LEAD_WORST] = "lead-worst",         [GRAPH_FIG_LEAD_MEDIAN] = "lead-median",
	[GRAPH_FIG_DMDAS_WORST] = "dmdas-worst",       [GRAPH_FIG_BUSY] = "busy",
};

/* Families for which HEFT is that close to the bound say something about it. */
static const double near_bound = 1.15;

/* Sums while graphs are run */
struct sums {
	double optimum, optimum_worst;
	double *leads; /* by graph */
};

/* --- One graph --- */

static double busiest(const struct place_graph *graph, const struct graph_result *result)
{
	double ns = 0;

	for (uint32_t d = 0; d < graph->n_devices; d++)
		ns = fmax(ns, result->busy_ns[d]);
	return ns / result->span_ns;
}

/* Compare with the optimum, if the search for it ends. */
static int compare_optimum(struct graph_outcome *outcome, const struct place_graph *graph,
			   const double spans_ns[GRAPH_POLICIES], double seconds, struct sums *sums)
{
	double upper_ns = INFINITY, ns, ratio;
	int r;

	for (unsigned int p = 0; p < GRAPH_POLICIES; p++)
		upper_ns = fmin(upper_ns, spans_ns[p]);
	r = graph_exact(graph, upper_ns, seconds, &ns);
	if (r)
		return r < 0 ? error_fold(r) : 0;
	ratio = spans_ns[GRAPH_OURS] / ns;
	outcome->n_solved++;
	sums->optimum += ratio;
	sums->optimum_worst = fmax(sums->optimum_worst, ratio);
	return 0;
}

/* Run one graph under all policies, and add what comes of it to its group. */
static int run_graph(struct graph_outcome *outcome, struct graph_group_outcome *of,
		     struct place_graph *graph, uint64_t seed, double seconds, struct sums *sums)
{
	const struct scenario_graphs *graphs = &outcome->scenario->graphs;
	const struct graph_run run = {
		.graph = graph,
		.truth = {graphs->noise, graphs->is_contended, seed},
		.n_tasks = graphs->n_tasks,
		.n_in_flight = graphs->n_in_flight,
	};
	const double bound_ns = graph_times_are_known(graphs) ? graph_bound_ns(graph) : NAN;
	double spans_ns[GRAPH_POLICIES];
	struct graph_result result;
	int r;

	for (unsigned int p = 0; p < GRAPH_POLICIES; p++) {
		r = graph_run(&run, p, &result);
		if (r)
			return error_fold(r);
		spans_ns[p] = result.span_ns;
		of->over_bound[p] += log(result.span_ns / bound_ns);
		of->busy[p] += busiest(graph, &result);
		of->span_ns[p] += result.span_ns;
	}
	for (unsigned int p = 0; p < GRAPH_POLICIES; p++)
		of->lead[p] += log(spans_ns[p] / spans_ns[GRAPH_OURS]);
	sums->leads[outcome->n_graphs++] =
		fmin(spans_ns[GRAPH_HEFT], spans_ns[GRAPH_PEFT]) / spans_ns[GRAPH_OURS];
	of->n++;
	if (!outcome->scenario->is_exact)
		return 0;
	return compare_optimum(outcome, graph, spans_ns, seconds, sums);
}

/* --- All graphs --- */

static int by_value(const void *a, const void *b)
{
	const double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

static void finish_group(struct graph_group_outcome *of)
{
	for (unsigned int p = 0; p < GRAPH_POLICIES; p++) {
		of->over_bound[p] = exp(of->over_bound[p] / of->n);
		of->lead[p] = exp(of->lead[p] / of->n);
		of->busy[p] /= of->n;
		of->span_ns[p] /= of->n;
	}
}

static void finish(struct graph_outcome *outcome, struct sums *sums)
{
	double *figures = outcome->figures;

	for (unsigned int i = 0; i < GRAPH_FIG_COUNT; i++)
		figures[i] = NAN;
	for (uint32_t i = 0; i < graph_n_groups(&outcome->scenario->graphs); i++) {
		struct graph_group_outcome *of = &outcome->groups[i];

		if (of->n == 0)
			continue;
		finish_group(of);
		figures[GRAPH_FIG_LEAD_WORST] =
			fmin(figures[GRAPH_FIG_LEAD_WORST],
			     fmin(of->lead[GRAPH_HEFT], of->lead[GRAPH_PEFT]));
		figures[GRAPH_FIG_DMDAS_WORST] =
			fmin(figures[GRAPH_FIG_DMDAS_WORST], of->lead[GRAPH_DMDAS]);
		figures[GRAPH_FIG_BUSY] = fmin(figures[GRAPH_FIG_BUSY], of->busy[GRAPH_OURS]);
		if (of->over_bound[GRAPH_HEFT] <= near_bound)
			figures[GRAPH_FIG_BOUND_WORST] =
				fmax(figures[GRAPH_FIG_BOUND_WORST], of->over_bound[GRAPH_OURS]);
	}
	qsort(sums->leads, outcome->n_graphs, sizeof(*sums->leads), by_value);
	figures[GRAPH_FIG_LEAD_MEDIAN] = sums->leads[outcome->n_graphs / 2];
	if (outcome->n_solved == 0)
		return;
	figures[GRAPH_FIG_OPTIMUM_MEAN] = sums->optimum / outcome->n_solved;
	figures[GRAPH_FIG_OPTIMUM_WORST] = sums->optimum_worst;
	figures[GRAPH_FIG_OPTIMUM_SOLVED] = (double)outcome->n_solved / outcome->n_graphs;
}

int graph_outcome_run(struct graph_outcome *ret, const struct scenario *scenario,
		      const char *models_dir, uint64_t seed, double solver_seconds,
		      char message[SCENARIO_MESSAGE_BYTES])
{
	const struct scenario_graphs *graphs = &scenario->graphs;
	const uint32_t n_groups = graph_n_groups(graphs), n_of = graph_n_of_group(graphs);
	_cleanup_(freep) double *leads = calloc((size_t)n_groups * n_of + 1, sizeof(*leads));
	struct sums sums = {.leads = leads};
	int r;

	if (!leads)
		return error_origin(-ENOMEM);
	seed = seed ? seed : scenario->seed;
	*ret = (struct graph_outcome){.scenario = scenario};
	for (uint32_t i = 0; i < n_groups; i++)
		for (uint32_t k = 0; k < n_of && graph_has_group(graphs, i); k++) {
			_cleanup_(place_graph_freep) struct place_graph *graph = NULL;
			const uint64_t seed_of = graph_seed(seed, i, k);

			r = graph_of_group(scenario, models_dir, i, k, seed_of, message, &graph);
			if (r == 0)
				r = run_graph(ret, &ret->groups[i], graph, seed_of, solver_seconds,
					      &sums);
			if (r)
				return r == SCENARIO_E_INVALID ? r : error_fold(r);
		}
	finish(ret, &sums);
	return 0;
}

bool graph_figure_find(const struct graph_outcome *outcome, const char *name, double *ret)
{
	for (unsigned int i = 0; i < GRAPH_FIG_COUNT; i++) {
		if (strcmp(figure_names[i], name))
			continue;
		*ret = outcome ? outcome->figures[i] : NAN;
		return true;
	}
	return false;
}

const char *graph_figure_lacks(const struct scenario *scenario, const char *name)
{
	if (!strncmp(name, "optimum-", 8) && !scenario->is_exact)
		return "exact = yes in [scenario]";
	if (!strcmp(name, figure_names[GRAPH_FIG_BOUND_WORST]) &&
	    !graph_times_are_known(&scenario->graphs))
		return "known times and one task: no noise, contention or tasks";
	return NULL;
}

/* --- Output --- */

static void table_ratio(FILE *file, double ratio)
{
	if (isfinite(ratio))
		fprintf(file, " %6.3f", ratio);
	else
		fprintf(file, " %6s", "-");
}

/* Print what the graphs are of, and the devices. */
static void table_devices(FILE *file, const struct scenario_graphs *graphs)
{
	if (graphs->n_models > 0) {
		fputs("models on ", file);
		for (uint32_t d = 0; d < graphs->n_profiles; d++)
			fprintf(file, "%s%s", d ? " + " : "", graphs->profile_names[d]);
		fputc('\n', file);
		return;
	}
	fprintf(file, "about %u nodes on ", graphs->n_nodes);
	if (graphs->devices_min < graphs->devices_max)
		fprintf(file, "%u to ", graphs->devices_min);
	fprintf(file, "%u devices\n", graphs->devices_max);
}

void graph_report_table(FILE *file, const struct graph_outcome *outcome)
{
	const struct scenario_graphs *graphs = &outcome->scenario->graphs;

	fprintf(file, "%s: %u graph%s of ", outcome->scenario->name, outcome->n_graphs,
		outcome->n_graphs == 1 ? "" : "s");
	table_devices(file, graphs);
	if (*outcome->scenario->about)
		fprintf(file, "  %s\n", outcome->scenario->about);
	fprintf(file, "  %-16s %6s | %-27s | %-20s | busiest | time of\n  %-16s %6s |", "", "",
		"time by the lower bound", "time by that of ours",
		graphs->n_models > 0 ? "model" : "family", "graphs");
	for (unsigned int p = 0; p < GRAPH_POLICIES; p++)
		fprintf(file, " %6s", graph_policy_names[p]);
	fputs(" |", file);
	for (unsigned int p = 1; p < GRAPH_POLICIES; p++)
		fprintf(file, " %6s", graph_policy_names[p]);
	fputs(" | device  | ours, ms\n", file);
	for (uint32_t i = 0; i < graph_n_groups(graphs); i++) {
		const struct graph_group_outcome *of = &outcome->groups[i];

		if (of->n == 0)
			continue;
		fprintf(file, "  %-16s %6u |", graph_group_name(graphs, i), of->n);
		for (unsigned int p = 0; p < GRAPH_POLICIES; p++)
			table_ratio(file, of->over_bound[p]);
		fputs(" |", file);
		for (unsigned int p = 1; p < GRAPH_POLICIES; p++)
			table_ratio(file, of->lead[p]);
		fprintf(file, " | %6.1f%% | %8.3f\n", of->busy[GRAPH_OURS] * 100,
			of->span_ns[GRAPH_OURS] * 1e-6);
	}
	for (unsigned int i = 0; i < GRAPH_FIG_COUNT; i++)
		if (isfinite(outcome->figures[i]))
			fprintf(file, "  %-16s %8.4g\n", figure_names[i], outcome->figures[i]);
	fputc('\n', file);
	fflush(file);
}

static void json_begin(FILE *file, const struct scenario *scenario)
{
	fputs("{\"scenario\":", file);
	report_json_string(file, scenario->name);
}

void graph_report_json(FILE *file, const struct graph_outcome *outcome)
{
	const struct scenario_graphs *graphs = &outcome->scenario->graphs;

	for (uint32_t i = 0; i < graph_n_groups(graphs); i++)
		for (unsigned int p = 0; p < GRAPH_POLICIES; p++) {
			const struct graph_group_outcome *of = &outcome->groups[i];

			if (of->n == 0)
				continue;
			json_begin(file, outcome->scenario);
			fprintf(file, ",\"%s\":", graphs->n_models > 0 ? "model" : "family");
			report_json_string(file, graph_group_name(graphs, i));
			fprintf(file, ",\"policy\":\"%s\"", graph_policy_names[p]);
			report_json_number(file, "graphs", of->n);
			report_json_number(file, "over_bound", of->over_bound[p]);
			report_json_number(file, "by_ours", of->lead[p]);
			report_json_number(file, "busy", of->busy[p]);
			report_json_number(file, "span_ns", of->span_ns[p]);
			fputs("}\n", file);
		}
	json_begin(file, outcome->scenario);
	fputs(",\"family\":null,\"policy\":\"ours\"", file);
	for (unsigned int i = 0; i < GRAPH_FIG_COUNT; i++)
		report_json_number(file, figure_names[i], outcome->figures[i]);
	fputs("}\n", file);
	fflush(file);
}
