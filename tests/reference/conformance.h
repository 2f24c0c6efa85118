#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * ONNX's own test cases
 *
 * Reads the directory onnx-ops of the test data: one folder per operator and case, with case.json
 * and arrays in .npy files. Each case of an operator of the catalogue becomes a plan of one node.
 * The node has at most as many inputs as the catalogue's operator; its results are compared with
 * the outputs that ONNX expects. Tests only. An unreadable file aborts with a message, so that a
 * damaged directory does not pass for an empty one.
 *
 * Attributes are those of the model (so the shape rule resolves auto_pad), with exceptions. The
 * case's resolved attributes give k, axes, Clip's limits and other inputs that are attributes in
 * the catalogue.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reference/reference.h"

struct conformance_case {
	const char *name; /* "Conv/basic_conv_without_padding" */
	struct plan *plan;
	/* Memory by binding: inputs as given, outputs as expected. */
	struct reference_buffers buffers;
	double rtol;
	double atol;
	/* Padding that the case expects for auto_pad: begin, then end; -1: unspecified. */
	int64_t pads[2 * OP_MAX_SPATIAL];
};

/*
 * Call @run for every case of each operator, in no particular order; the case is freed afterwards.
 * plan_new() must reject cases with a tensor without elements; they count as refused, and so do
 * cases with float16 tensors.
 * Return: the number of cases run, or -ENOENT if there is no such directory; *ret_refused: the
 * number of cases rightly refused.
 */
int conformance_each(const char *data_dir, void (*run)(const struct conformance_case *, void *),
		     void *context, unsigned int *ret_refused);
