/* SPDX-License-Identifier: MIT */
/* The optimum of a small graph without GLPK: only graph_exact() is available. */
#include "graph-exact.h"

#include <errno.h>

int graph_exact_glpk(const struct place_graph *graph, double upper_ns, double seconds,
		     double *ret_ns)
{
	return -EOPNOTSUPP;
}
