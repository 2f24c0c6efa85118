#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * ONNX's own test cases
 *
 * Reads the directory onnx-ops of the test data: one folder per operator and case, with case.json
 * and arrays in .npy files. Each case of an operator of the catalogue becomes a plan of one node,
 * as many inputs as the operator has here, and the outputs that ONNX expects. Tests only; what
 * cannot be read aborts with a message, so that a damaged directory does not pass for an empty one.
 *
 * Attributes are given as the model gives them (so auto_pad is resolved by the shape rule), except:
 * k, axes, Clip's limits and other inputs that are attributes in the catalogue are taken from the
 * case's resolved ones.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reference/reference.h"

struct conformance_case {
	const char *name; /* "Conv/basic_conv_without_padding" */
	struct plan *plan;
	/* Binding by binding: inputs as given, outputs as expected. */
	struct reference_buffers buffers;
	double rtol;
	double atol;
	/* What padding the case expects auto_pad to mean: begin, then end; -1: it does not say. */
	int64_t pads[2 * OP_MAX_SPATIAL];
};

/*
 * Calls @run for every case of each operator, in no particular order; the case is freed afterwards.
 * Cases with a tensor without elements must be refused by plan_new(); they count as refused, and so
 * do those with tensors of float16.
 * Return: how many cases were run; *ret_refused: how many were refused as they should be.
 * -ENOENT if there is no such directory.
 */
int conformance_each(const char *data_dir, void (*run)(const struct conformance_case *, void *),
		     void *context, unsigned int *ret_refused);
