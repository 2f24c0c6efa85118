/* SPDX-License-Identifier: MIT */
/* Stub of starpu-tasks.c for builds without StarPU's headers */
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
