#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Cases: operators' test cases, as files
 *
 * A case is a model, arrays for its inputs and the expected arrays of its outputs. Cases have two
 * layouts: the project's own test data with case.json and .npy files, and ONNX's, where each
 * test_data_set_N beside a model has input_I.pb and output_I.pb. An unreadable case is recorded
 * with a complaint, so that a damaged folder does not pass for an empty one.
 */
#include <stdbool.h>
#include <stddef.h>

enum { CASE_MAX_TENSORS = 64, CASE_WHY_BYTES = 512 };

struct case_tensor {
	char *file; /* path; NULL: an absent optional tensor */
	char *name; /* model's input or output; NULL: the next */
	double rtol, atol;
	bool is_any_order; /* elements may come in any order */
};

struct onnx_case {
	char *name;  /* path below the folder: "Add/add_bcast" */
	char *op;    /* operator of the model's first node */
	char *model; /* path of the model */
	unsigned int n_inputs, n_outputs;
	struct case_tensor inputs[CASE_MAX_TENSORS], outputs[CASE_MAX_TENSORS];
	char complaint[CASE_WHY_BYTES]; /* "": none */
};

struct onnx_cases {
	struct onnx_case *cases;
	size_t n, n_room;
};

/*
 * Find all cases below @folder, ordered by operator and name.
 * Return: 0, a negative errno of opening the folder, or -ENOMEM.
 */
int cases_find(const char *folder, struct onnx_cases *ret);
void cases_deinit(struct onnx_cases *cases);

/*
 * Return the relative and the absolute tolerance of ONNX's own tests for elements of @dtype (enum
 * array_dtype).
 */
void cases_tolerance(unsigned int dtype, double *ret_rtol, double *ret_atol);
