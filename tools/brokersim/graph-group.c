/* SPDX-License-Identifier: MIT */
/* Groups of a scenario's graphs: see graph-group.h */
#include "graph-group.h"

#include <stdio.h>

#include "graph-family.h"
#include "graph-model.h"
#include "util/error.h"

uint32_t graph_n_groups(const struct scenario_graphs *graphs)
{
	return graphs->n_models > 0 ? graphs->n_models : n_graph_families;
}

const char *graph_group_name(const struct scenario_graphs *graphs, uint32_t group)
{
	return graphs->n_models > 0 ? graphs->models[group] : graph_families[group].name;
}

bool graph_has_group(const struct scenario_graphs *graphs, uint32_t group)
{
	return graphs->families == 0 || graphs->families >> group & 1;
}

uint32_t graph_n_of_group(const struct scenario_graphs *graphs)
{
	return graphs->n_models > 0 ? graphs->n : graphs->n * graphs->n_ratios;
}

uint64_t graph_seed(uint64_t seed, uint32_t group, uint32_t k)
{
	return seed + group * 1000003ull + k;
}

const char *graph_device_name(const struct scenario_graphs *graphs, uint32_t device,
			      char buffer[SCENARIO_NAME_BYTES])
{
	if (graphs->n_models > 0)
		return graphs->profile_names[device];
	snprintf(buffer, SCENARIO_NAME_BYTES, "device %u", device);
	return buffer;
}

static int model_of(const struct scenario *scenario, const char *models_dir, uint32_t group,
		    char message[SCENARIO_MESSAGE_BYTES], struct place_graph **ret)
{
	const struct scenario_graphs *graphs = &scenario->graphs;
	char folder[1024], why[SCENARIO_MESSAGE_BYTES] = "";
	int r;

	if (!models_dir) {
		snprintf(message, SCENARIO_MESSAGE_BYTES,
			 "%s:%u: models need --models=DIR, the folder that they are in",
			 scenario->path, graphs->models_line);
		return SCENARIO_E_INVALID;
	}
	if (snprintf(folder, sizeof(folder), "%s/%s", models_dir, graphs->models[group]) >=
	    (int)sizeof(folder)) {
		snprintf(message, SCENARIO_MESSAGE_BYTES, "--models: the path is too long");
		return SCENARIO_E_INVALID;
	}
	r = graph_model_new(folder, graphs->profiles, graphs->n_profiles, why, ret);
	if (r == SCENARIO_E_INVALID)
		snprintf(message, SCENARIO_MESSAGE_BYTES, "%s:%u: model %s: %.400s", scenario->path,
			 graphs->models_line, graphs->models[group], why);
	return r;
}

static int family_of(const struct scenario_graphs *graphs, uint32_t group, uint32_t k,
		     uint64_t seed, struct place_graph **ret)
{
	const uint32_t of_ratio = k % graphs->n;
	const uint32_t n_devices =
		graphs->devices_min + of_ratio % (graphs->devices_max - graphs->devices_min + 1);

	return graph_families[group].make(graphs->n_nodes, n_devices, graphs->ratios[k / graphs->n],
					  seed, ret);
}

int graph_of_group(const struct scenario *scenario, const char *models_dir, uint32_t group,
		   uint32_t k, uint64_t seed, char message[SCENARIO_MESSAGE_BYTES],
		   struct place_graph **ret)
{
	const struct scenario_graphs *graphs = &scenario->graphs;
	int r;

	if (graphs->n_models > 0)
		r = model_of(scenario, models_dir, group, message, ret);
	else
		r = family_of(graphs, group, k, seed, ret);
	if (r)
		return r == SCENARIO_E_INVALID ? r : error_fold(r);
	place_graph_improve(*ret, graphs->n_steps);
	return 0;
}
