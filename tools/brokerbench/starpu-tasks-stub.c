/* SPDX-License-Identifier: MIT */
/* Stub of starpu-tasks.c and starpu-cholesky.c for builds without StarPU's headers */
#include "starpu-cholesky.h"
#include "starpu-tasks.h"

#include <errno.h>
#include <stddef.h>

int starpu_tasks_new(int worker_cpu, struct starpu_tasks **ret, const char **ret_reason)
{
	*ret_reason = "built without libstarpu-dev";
	return STARPU_TASKS_E_ABSENT;
}

struct starpu_tasks *starpu_tasks_free(struct starpu_tasks *tasks)
{
	return NULL;
}

int starpu_tasks_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	return -ENOSYS;
}

int starpu_cholesky_new(unsigned int n_workers, uint32_t n, uint32_t side, float *tiles,
			struct starpu_cholesky **ret, const char **ret_reason)
{
	*ret_reason = "built without libstarpu-dev";
	return STARPU_TASKS_E_ABSENT;
}

struct starpu_cholesky *starpu_cholesky_free(struct starpu_cholesky *cholesky)
{
	return NULL;
}

void starpu_cholesky_resume(struct starpu_cholesky *cholesky)
{
}

void starpu_cholesky_pause(struct starpu_cholesky *cholesky)
{
}

int starpu_cholesky_run(struct starpu_cholesky *cholesky)
{
	return -ENOSYS;
}
