/* SPDX-License-Identifier: MIT */
/* Make an input of a model a constant, with the value in a file. */
#include <ringbroker.h>
#include <ringbroker/onnx.h>
#include <stdio.h>

int bind(struct rbk_onnx *model, const char *input, const char *path)
{
	struct rbk_onnx_tensor tensor;
	struct rbk_error error;
	int r = rbk_onnx_tensor_load(path, &tensor, &error);

	if (r == 0) {
		r = rbk_onnx_set_input(model, input, &tensor, &error);
		rbk_onnx_tensor_free(&tensor);
	}
	if (r)
		fprintf(stderr, "%s\n", error.text);
	return r;
}
