#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Groups of a scenario's graphs: a family, whose graphs are drawn from seeds, or a model, which has
 * one graph
 */
#include "place/graph.h"
#include "scenario.h"

enum { GRAPH_MAX_GROUPS = SCENARIO_MAX_MODELS };

/* Return the number of families, or that of the scenario's models. */
uint32_t graph_n_groups(const struct scenario_graphs *graphs);

/* Return the name of a group, as long as the scenario. */
const char *graph_group_name(const struct scenario_graphs *graphs, uint32_t group);

/* Return false for a family that the scenario leaves out. */
bool graph_has_group(const struct scenario_graphs *graphs, uint32_t group);

/* Return the number of graphs of each group. */
uint32_t graph_n_of_group(const struct scenario_graphs *graphs);

/* Return the seed of the @k-th graph of a group, for a run with @seed. */
uint64_t graph_seed(uint64_t seed, uint32_t group, uint32_t k);

/* Return the name of a device; devices of families have none, and are written to @buffer. */
const char *graph_device_name(const struct scenario_graphs *graphs, uint32_t device,
			      char buffer[SCENARIO_NAME_BYTES]);

/*
 * Make the @k-th graph of a group, with advice. @models_dir: the folder of models, or NULL.
 * Return: 0; SCENARIO_E_INVALID with a sentence in @message: a model cannot be loaded or run;
 * -ENOMEM.
 */
int graph_of_group(const struct scenario *scenario, const char *models_dir, uint32_t group,
		   uint32_t k, uint64_t seed, char message[SCENARIO_MESSAGE_BYTES],
		   struct place_graph **ret);
