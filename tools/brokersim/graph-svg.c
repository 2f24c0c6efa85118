/* SPDX-License-Identifier: MIT */
/*
 * The first graph of a scenario as a picture: a lane per device, a bar per node, coloured by task,
 * and beside each device how long it was busy
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "graph-outcome.h"
#include "picture/picture.h"
#include "util/cleanup.h"
#include "util/error.h"

enum { LANE = 34, MAX_BARS = 4000 };

static void draw(FILE *file, const struct scenario *scenario, const struct graph_run *run,
		 const struct graph_result *result, const char *family)
{
	const uint32_t n_devices = run->graph->n_devices;
	const uint32_t n_events = run->n_tasks * run->graph->n_nodes;
	const uint32_t n = n_events < MAX_BARS ? n_events : MAX_BARS;
	/* Bars beyond MAX_BARS are cut off at the end. */
	const double span_ns = n < n_events ? run->events[n - 1].start_ns : result->span_ns;
	const double bottom = 46 + n_devices * LANE;
	char text[256], name[SCENARIO_NAME_BYTES];
	int n_chars;

	snprintf(text, sizeof(text), "%s: %s, %u nodes, %u task%s on %u devices", scenario->name,
		 family, run->graph->n_nodes, run->n_tasks, run->n_tasks == 1 ? "" : "s",
		 n_devices);
	picture_text(file, PICTURE_LEFT, 24, "t", "start", text);
	picture_axis(file, span_ns, 36, bottom, " ms", 1e-6);
	for (uint32_t d = 0; d < n_devices; d++) {
		snprintf(text, sizeof(text), "%s, %.0f%%",
			 graph_device_name(&scenario->graphs, d, name),
			 result->busy_ns[d] / result->span_ns * 100);
		picture_text(file, PICTURE_LEFT - 8, 46 + d * LANE + 19, "n", "end", text);
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct graph_event *event = &run->events[i];

		if (event->end_ns > span_ns)
			continue;
		picture_bar(file, PICTURE_LEFT + event->start_ns / span_ns * PICTURE_SPAN,
			    46 + event->device * LANE + 4,
			    (event->end_ns - event->start_ns) / span_ns * PICTURE_SPAN, LANE - 8,
			    picture_colour(event->task), 0.9);
	}
	n_chars = snprintf(text, sizeof(text), "a colour is a task; %.3g GB moved between devices",
			   result->moved_bytes * 1e-9);
	/* Several tasks in flight follow no schedule. */
	if (run->n_in_flight == 1)
		snprintf(text + n_chars, sizeof(text) - (size_t)n_chars,
			 "; %u of %u nodes ran elsewhere than advised", result->n_left_plan,
			 n_events);
	picture_text(file, PICTURE_LEFT, bottom + 40, "s", "start", text);
}

int graph_svg(const char *directory, const struct scenario *scenario, const char *models_dir,
	      uint64_t seed, char *path, size_t path_bytes, char message[SCENARIO_MESSAGE_BYTES])
{
	const struct scenario_graphs *graphs = &scenario->graphs;
	const uint32_t group = graphs->families ? (uint32_t)__builtin_ctzll(graphs->families) : 0;
	_cleanup_(place_graph_freep) struct place_graph *graph = NULL;
	_cleanup_(freep) struct graph_event *events = NULL;
	_cleanup_(fclosep) FILE *file = NULL;
	struct graph_result result;
	struct graph_run run;
	int r;

	seed = graph_seed(seed ? seed : scenario->seed, group, 0);
	r = graph_of_group(scenario, models_dir, group, 0, seed, message, &graph);
	if (r)
		return r == SCENARIO_E_INVALID ? r : error_fold(r);
	events = calloc((size_t)graphs->n_tasks * graph->n_nodes, sizeof(*events));
	if (!events)
		return error_origin(-ENOMEM);
	run = (struct graph_run){
		graph,           {graphs->noise, graphs->is_contended, seed},
		graphs->n_tasks, graphs->n_in_flight,
		events,
	};
	r = graph_run(&run, GRAPH_OURS, &result);
	if (r)
		return error_fold(r);
	if (snprintf(path, path_bytes, "%s/%s.svg", directory, scenario->name) >= (int)path_bytes)
		return error_origin(-ENAMETOOLONG);
	file = fopen(path, "we");
	if (!file)
		return error_origin(-errno);
	picture_begin(file, 46 + graph->n_devices * LANE + 60);
	draw(file, scenario, &run, &result, graph_group_name(graphs, group));
	return picture_end(file);
}
