/* SPDX-License-Identifier: MIT */
/*
 * Graphs of ONNX models
 *
 * The model is compiled as for a broker, and described as on the wire. brokerd's own plan_new()
 * makes a plan of the description, and place_cut_graph() the graph of the plan's units, whose times
 * are predicted from the devices' profiles.
 */
#include "graph-model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model-describe.h"
#include "models/model.h"
#include "place/cut-devices.h"
#include "plans.h"
#include "util/cleanup.h"
#include "util/error.h"

enum { OPEN_SIZE = 64, MAX_INPUTS = 256 };

/* An array of the folder. The model refers to both. */
struct given {
	struct array array;
	char path[1100];
};

DEFINE_CLEANUP(struct model *, model_free)

/* Give the model the arrays that the folder has; *ret_n is their number. */
static int give_inputs(struct model *model, const char *folder, struct given *given,
		       unsigned int *ret_n, char why[MODEL_WHY_BYTES])
{
	int r;

	*ret_n = 0;
	for (unsigned int i = 0; i < rbk_onnx_n_inputs(model_onnx(model)) && i < MAX_INPUTS; i++) {
		snprintf(given[i].path, sizeof(given[i].path), "%s/in%u.npy", folder, i);
		r = model_read_array(given[i].path, &given[i].array, why);
		if (r == -ENOENT)
			continue;
		if (r == 0)
			r = model_give(model, i, &given[i].array, given[i].path, why);
		if (r)
			return r;
		++*ret_n;
	}
	return 0;
}

static int compile(struct model *model, const char *folder, struct given *given,
		   char why[MODEL_WHY_BYTES])
{
	unsigned int n;
	int r;

	r = give_inputs(model, folder, given, &n, why);
	if (r)
		return r;
	r = n == rbk_onnx_n_inputs(model_onnx(model)) ? model_compile(model, 0, why)
						      : model_try(model, OPEN_SIZE, why);
	if (r == MODEL_E_REFUSED)
		strncat(why, "; brokerctl run --check says more",
			MODEL_WHY_BYTES - strlen(why) - 1);
	return r;
}

static int make_plan(struct model *model, char why[MODEL_WHY_BYTES], struct plan **ret)
{
	_cleanup_(freep) void *desc = NULL;
	struct rbk_error error = {""};
	size_t bytes;
	int r;

	r = model_describe(model_onnx(model), &desc, &bytes, &error);
	if (!r)
		return plans_of_description(desc, bytes, why, ret);
	snprintf(why, MODEL_WHY_BYTES, "%s", error.text);
	return r;
}

static int make_graph(const struct plan *plan, const struct place_profile *profiles,
		      uint32_t n_profiles, char why[MODEL_WHY_BYTES], struct place_graph **ret)
{
	_cleanup_(freep) struct place_cut_basis *basis =
		calloc(1, sizeof(*basis) + n_profiles * sizeof(basis->devices[0]));
	int r;

	if (!basis)
		return error_origin(-ENOMEM);
	basis->n_devices = n_profiles;
	for (uint32_t d = 0; d < n_profiles; d++)
		basis->devices[d] = (struct place_cut_device){
			.profile = profiles[d],
			.room_bytes =
				profiles[d].memory_bytes ? profiles[d].memory_bytes : UINT64_MAX,
			.kind = d == RBK_DEVICE_CPU ? OP_ON_CPU : OP_ON_VULKAN,
		};
	r = place_cut_graph(basis, plan, ret);
	if (r == -EOPNOTSUPP)
		snprintf(why, MODEL_WHY_BYTES, "no device has all of its operators");
	return r;
}

int graph_model_new(const char *folder, const struct place_profile *profiles, uint32_t n_profiles,
		    char message[SCENARIO_MESSAGE_BYTES], struct place_graph **ret)
{
	_cleanup_(freep) struct given *given = calloc(MAX_INPUTS, sizeof(*given));
	_cleanup_(model_freep) struct model *model = NULL;
	_cleanup_(plan_freep) struct plan *plan = NULL;
	char path[1100], why[MODEL_WHY_BYTES] = "";
	int r;

	if (!given)
		return error_origin(-ENOMEM);
	snprintf(path, sizeof(path), "%s/model.onnx", folder);
	r = model_open(path, &model, why);
	if (!r)
		r = compile(model, folder, given, why);
	if (!r)
		r = make_plan(model, why, &plan);
	if (!r)
		r = make_graph(plan, profiles, n_profiles, why, ret);
	for (unsigned int i = 0; i < MAX_INPUTS; i++)
		array_deinit(&given[i].array);
	if (!r || r == -ENOMEM)
		return r ? error_origin(r) : 0;
	snprintf(message, SCENARIO_MESSAGE_BYTES, "%s", why);
	return SCENARIO_E_INVALID;
}
