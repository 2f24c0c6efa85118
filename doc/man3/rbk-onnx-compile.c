/* SPDX-License-Identifier: MIT */
/* Make a plan of a model for tasks of up to 16 rows; print every reason if the model is refused. */
#include <ringbroker.h>
#include <ringbroker/onnx.h>
#include <stdio.h>

/* The author of the file chooses the names: a byte such as ESC could steer the terminal. */
static void print_name(FILE *file, const char *name)
{
	for (; *name; name++)
		fputc(*name >= ' ' && *name <= '~' ? *name : '?', file);
}

struct rbk_plan *plan_of(struct rbk *rbk, struct rbk_onnx *model)
{
	const struct rbk_onnx_options options = {.size = sizeof(options), .max_count = 16};
	struct rbk_onnx_refusal refusal;
	struct rbk_plan *plan = NULL;
	struct rbk_error error;

	if (rbk_onnx_compile(model, &options, &error) == 0 &&
	    rbk_onnx_plan(model, rbk, &options, &plan, &error) == 0)
		return plan;
	fprintf(stderr, "%s\n", error.text);
	for (unsigned int i = 0; rbk_onnx_refusal(model, i, &refusal) == 0; i++) {
		print_name(stderr, refusal.name);
		fprintf(stderr, ": %s\n", refusal.reason);
	}
	return NULL;
}
