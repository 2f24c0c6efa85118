/* SPDX-License-Identifier: MIT */
/*
 * Tests of libclient/onnx: real models
 *
 *	test-onnx-models FOLDER    of test data; skips without it
 *
 * Every conformance case must load, and compile or be refused with meaningful reasons, for one row
 * and for many. Counts the cases that compile; another program checks their results.
 */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/ringbroker/onnx.h"

static unsigned int n_wrong;

static int wrong(const char *path, const char *what, const char *why)
{
	fprintf(stderr, "%s: %s: %s\n", path, what, why);
	n_wrong++;
	return 1;
}

static void check_refusals(const char *path, const struct rbk_onnx *model)
{
	unsigned int n = rbk_onnx_n_refusals(model);

	if (n == 0)
		wrong(path, "refused", "without a reason");
	for (unsigned int i = 0; i < n; i++) {
		struct rbk_onnx_refusal refusal;

		if (rbk_onnx_refusal(model, i, &refusal) || strlen(refusal.reason) < 8 ||
		    (refusal.node != UINT32_MAX && (!refusal.op[0] || refusal.opset == 0)))
			wrong(path, "refused", "without saying what and why");
	}
}

static int check_model(const char *path, uint32_t max_count)
{
	const struct rbk_onnx_options options = {.size = sizeof(options), .max_count = max_count};
	struct rbk_error error = {""};
	struct rbk_onnx *model;
	int r;

	r = rbk_onnx_load(path, &model, &error);
	if (r) {
		wrong(path, "does not load", error.text);
		return r;
	}
	r = rbk_onnx_compile(model, &options, &error);
	if (r == -EOPNOTSUPP)
		check_refusals(path, model);
	else if (r)
		wrong(path, "does not compile", error.text);
	else if (rbk_onnx_n_bound(model) == 0 || rbk_onnx_n_steps(model) == 0)
		wrong(path, "compiles", "to nothing");
	for (unsigned int i = 0; r == 0 && i < rbk_onnx_n_steps(model); i++) {
		struct rbk_onnx_step step;

		if (rbk_onnx_step(model, i, &step) || !step.name[0] || !step.op[0])
			wrong(path, "compiles", "to a step without a name");
	}
	rbk_onnx_free(model);
	return r;
}

int main(int argc, char **argv)
{
	unsigned int n_compiled = 0;
	char pattern[4096];
	glob_t found;

	snprintf(pattern, sizeof(pattern), "%s/onnx-ops/*/*/model.onnx", argc > 1 ? argv[1] : "");
	if (glob(pattern, 0, NULL, &found)) {
		printf("no models in %s\n", pattern);
		return 77;
	}
	for (size_t i = 0; i < found.gl_pathc; i++) {
		n_compiled += !check_model(found.gl_pathv[i], 1);
		check_model(found.gl_pathv[i], 7);
	}
	printf("%zu models, %u compile, %u wrong\n", found.gl_pathc, n_compiled, n_wrong);
	globfree(&found);
	return n_wrong != 0;
}
