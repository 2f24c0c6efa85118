#pragma once
/* SPDX-License-Identifier: MIT */
/* Graphs of ONNX models: the units of which brokerd would choose a plan's segments */
#include <stdint.h>

#include "scenario.h"

struct place_graph;

/*
 * Make the graph of @folder/model.onnx on devices with these profiles, of which the first is the
 * CPU. The arrays @folder/in0.npy, in1.npy, ... are the model's inputs, in its order. Of an input
 * without an array an open dimension is 64, a leading one 1, or 2 if rows are computed by
 * themselves. Return: 0; SCENARIO_E_INVALID with a sentence in @message; -ENOMEM.
 */
int graph_model_new(const char *folder, const struct place_profile *profiles, uint32_t n_profiles,
		    char message[SCENARIO_MESSAGE_BYTES], struct place_graph **ret);
