/* SPDX-License-Identifier: MIT */
/*
 * The plain reference against ONNX's own test cases
 *
 *	test-conformance DATA-DIRECTORY
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/conformance.h"

static bool check_pads(const struct conformance_case *test)
{
	const union op_params *params = &test->plan->nodes[0].params;
	bool same = true;

	for (unsigned int i = 0; i < OP_MAX_SPATIAL && test->pads[0] >= 0; i++)
		same &= params->window.pad_begin[i] == test->pads[i] &&
			params->window.pad_end[i] == test->pads[OP_MAX_SPATIAL + i];
	if (!same)
		fprintf(stderr, "%s: other padding than expected\n", test->name);
	return same;
}

static void run(const struct conformance_case *test, void *context)
{
	struct reference_buffers got;
	unsigned int *n_failed = context;
	bool same;

	/* Outputs begin with values that no case expects. */
	reference_buffers_copy(&got, &test->buffers);
	for (unsigned int i = 0; i < got.n; i++) {
		if (test->plan->bindings[i].written)
			memset(got.bindings[i], 0xa5, got.bytes[i]);
	}
	reference_run(test->plan, 1, got.bindings);
	same = reference_buffers_close(test->plan, 1, &got, &test->buffers, test->rtol, test->atol);
	same &= check_pads(test);
	if (!same)
		fprintf(stderr, "FAILED %s\n", test->name);
	*n_failed += !same;
	reference_buffers_deinit(&got);
}

int main(int argc, char **argv)
{
	unsigned int n_failed = 0, n_refused;
	int n_run;

	if (argc != 2) {
		fprintf(stderr, "usage: %s DATA-DIRECTORY\n", argv[0]);
		return 2;
	}
	n_run = conformance_each(argv[1], run, &n_failed, &n_refused);
	if (n_run == -ENOENT) {
		printf("skipped: there are no conformance cases in %s\n", argv[1]);
		return 77;
	}
	printf("%d cases, %u failed, %u refused for tensors without elements\n", n_run, n_failed,
	       n_refused);
	return n_failed > 0 || n_run < 60;
}
