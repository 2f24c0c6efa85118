#pragma once
/* SPDX-License-Identifier: MIT */
/* A scenario of graphs under several policies, and what comes of it */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "graph-group.h"
#include "graph-run.h"
#include "scenario.h"

/* All graphs of a family, or that of a model; ratios are geometric means over graphs */
struct graph_group_outcome {
	uint32_t n;
	double over_bound[GRAPH_POLICIES]; /* last end, by the lower bound; NAN: there is none */
	double lead[GRAPH_POLICIES];       /* last end, by that of GRAPH_OURS */
	double busy[GRAPH_POLICIES];       /* mean share of the busiest device */
	double span_ns[GRAPH_POLICIES];    /* last end, mean */
};

enum graph_figure {
	GRAPH_FIG_OPTIMUM_MEAN,   /* GRAPH_OURS by the optimum, mean over graphs that were solved */
	GRAPH_FIG_OPTIMUM_WORST,  /* the largest of these */
	GRAPH_FIG_OPTIMUM_SOLVED, /* share of the graphs */
	/* largest GRAPH_OURS by the bound of the families where HEFT's is at most 1.15 */
	GRAPH_FIG_BOUND_WORST,
	GRAPH_FIG_LEAD_WORST,  /* least of families: the better of HEFT and PEFT by GRAPH_OURS */
	GRAPH_FIG_LEAD_MEDIAN, /* the same, median of graphs */
	GRAPH_FIG_DMDAS_WORST, /* least of families: dmdas by GRAPH_OURS */
	GRAPH_FIG_BUSY,        /* least of families: share of time of the busiest device, ours */
	GRAPH_FIG_COUNT
};

struct graph_outcome {
	const struct scenario *scenario;
	uint32_t n_graphs, n_solved;
	struct graph_group_outcome groups[GRAPH_MAX_GROUPS];
	double figures[GRAPH_FIG_COUNT]; /* NAN: there is none */
};

/*
 * Run a scenario of graphs. @seed 0: the scenario's; the search for an optimum takes at most
 * @solver_seconds for each graph; @models_dir as in graph-group.h.
 * Return: as graph_of_group().
 */
int graph_outcome_run(struct graph_outcome *ret, const struct scenario *scenario,
		      const char *models_dir, uint64_t seed, double solver_seconds,
		      char message[SCENARIO_MESSAGE_BYTES]);

/* Return false if there is no figure @name; @outcome NULL: only look for the name. */
bool graph_figure_find(const struct graph_outcome *outcome, const char *name, double *ret);

/* Return which keys a figure needs that the scenario lacks; NULL: it has them. */
const char *graph_figure_lacks(const struct scenario *scenario, const char *name);

/* Print a line for each family or model, and a few for all. */
void graph_report_table(FILE *file, const struct graph_outcome *outcome);
/* Print a JSON object for each family or model, and policy, and one of all figures, a line each. */
void graph_report_json(FILE *file, const struct graph_outcome *outcome);

/*
 * Print what devices and links did under GRAPH_OURS, for the first graph of each family or model: a
 * table, or a JSON object for each device and each link that moved something.
 * Return: as graph_of_group().
 */
int graph_utilization(FILE *file, bool is_json, const struct scenario *scenario,
		      const char *models_dir, uint64_t seed, char message[SCENARIO_MESSAGE_BYTES]);

/*
 * Write DIRECTORY/SCENARIO.svg: the nodes of the first graph's tasks on their devices. @path as in
 * svg.h. Return: 0; a negative errno; SCENARIO_E_INVALID, as graph_of_group().
 */
int graph_svg(const char *directory, const struct scenario *scenario, const char *models_dir,
	      uint64_t seed, char *path, size_t path_bytes, char message[SCENARIO_MESSAGE_BYTES]);
