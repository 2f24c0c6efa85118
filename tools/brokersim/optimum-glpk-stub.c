/* SPDX-License-Identifier: MIT */
/* The offline optimum without GLPK: only the bound is available. */
#include "optimum.h"

int optimum_exact(const struct optimum_task *tasks, uint32_t n_tasks,
		  const double speeds[OPTIMUM_DEVICES], double seconds, double *ret_ns)
{
	return OPTIMUM_E_ABSENT;
}
