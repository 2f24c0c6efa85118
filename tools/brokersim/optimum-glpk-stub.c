/* SPDX-License-Identifier: MIT */
/* The offline optimum where GLPK is not installed: the bound only. */
#include "optimum.h"

int optimum_exact(const struct optimum_task *tasks, uint32_t n_tasks,
		  const double speeds[OPTIMUM_DEVICES], double seconds, double *ret_ns)
{
	return OPTIMUM_E_ABSENT;
}
