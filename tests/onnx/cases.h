#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Cases of operators, as files
 *
 * A case is a model, arrays for its inputs and those that its outputs are to be. Two layouts: ours,
 * of the test data, with case.json and .npy files; and ONNX's own, where each test_data_set_N
 * beside a model has input_I.pb and output_I.pb. Whatever cannot be read is a case, too, with a
 * complaint, so that a damaged folder does not pass for an empty one.
 */
#include <stdbool.h>
#include <stddef.h>

enum { CASE_MAX_TENSORS = 64, CASE_WHY_BYTES = 512 };

struct case_tensor {
	char *file; /* NULL: an optional one that is absent */
	char *name; /* of the model's input or output; NULL: it is the next one */
	double rtol, atol;
	bool is_any_order; /* its elements may come in any order */
};

struct onnx_case {
	char *name;  /* below the folder: "Add/add_bcast" */
	char *op;    /* of its first node */
	char *model; /* path */
	unsigned int n_inputs, n_outputs;
	struct case_tensor inputs[CASE_MAX_TENSORS], outputs[CASE_MAX_TENSORS];
	char complaint[CASE_WHY_BYTES]; /* "": none */
};

struct onnx_cases {
	struct onnx_case *cases;
	size_t n, n_room;
};

/*
 * All cases below @folder, ordered by operator and name. Return: 0; a negative errno of opening the
 * folder, or -ENOMEM.
 */
int cases_find(const char *folder, struct onnx_cases *ret);
void cases_deinit(struct onnx_cases *cases);

/* Tolerances that ONNX's own tests have, by element type (enum array_dtype). */
void cases_tolerance(unsigned int dtype, double *ret_rtol, double *ret_atol);
