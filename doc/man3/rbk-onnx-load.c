/* SPDX-License-Identifier: MIT */
/* List the inputs of a model. */
#include <ringbroker.h>
#include <ringbroker/onnx.h>
#include <stdio.h>

/* The author of the file chooses the names: a byte such as ESC could steer the terminal. */
static void print_name(const char *name)
{
	for (; *name; name++)
		putchar(*name >= ' ' && *name <= '~' ? *name : '?');
}

int main(int argc, char **argv)
{
	struct rbk_onnx_value value;
	struct rbk_onnx *model;
	struct rbk_error error;

	if (argc != 2 || rbk_onnx_load(argv[1], &model, &error)) {
		fprintf(stderr, "%s\n", argc == 2 ? error.text : "usage: PROGRAM FILE");
		return 1;
	}
	for (unsigned int i = 0; rbk_onnx_input(model, i, &value) == 0; i++) {
		print_name(value.name);
		printf(": %s\n", rbk_onnx_dtype_name(value.dtype));
	}
	rbk_onnx_free(model);
	return 0;
}
