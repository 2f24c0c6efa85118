/* SPDX-License-Identifier: MIT */
/* Graphs of ONNX models, without the loader: see graph-model.h */
#include "graph-model.h"

#include <stdio.h>

int graph_model_new(const char *folder, const struct place_profile *profiles, uint32_t n_profiles,
		    char message[SCENARIO_MESSAGE_BYTES], struct place_graph **ret)
{
	snprintf(message, SCENARIO_MESSAGE_BYTES,
		 "this brokersim is built without ONNX (meson option onnx)");
	return SCENARIO_E_INVALID;
}
