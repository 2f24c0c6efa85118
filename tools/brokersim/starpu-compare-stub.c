/* SPDX-License-Identifier: MIT */
/* The tasks of a scenario on StarPU's schedulers: not built with StarPU */
#include "starpu-compare.h"

int starpu_compare(FILE *file, const struct scenario *scenario, const struct run_options *options)
{
	fputs("brokersim: built without StarPU\n", stderr);
	return 1;
}
