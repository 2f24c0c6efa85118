#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * StarPU, loaded and started. Private to the files that are built with StarPU's headers.
 *
 * StarPU's workers spin while idle, which would take the processors from the other side's rounds,
 * so they are paused outside its own rounds. Its files about the machine are written to a directory
 * of this run, not to the user's home. The library is loaded on request and not linked, since
 * loading it takes longer than some benches.
 */
#include <stdbool.h>
#include <starpu.h>

#define STARPU_FUNCTIONS(f)             \
	f(starpu_conf_init);            \
	f(starpu_init);                 \
	f(starpu_shutdown);             \
	f(starpu_pause);                \
	f(starpu_resume);               \
	f(starpu_task_create);          \
	f(starpu_task_submit);          \
	f(starpu_task_wait_for_all);    \
	f(starpu_vector_data_register); \
	f(starpu_data_unregister);      \
	f(starpu_worker_get_id)

struct starpu_runtime {
#define DECLARE(name) __typeof__(name) *name
	STARPU_FUNCTIONS(DECLARE);
#undef DECLARE
	bool is_running;
	char home[64];
};

#define STARPU_RUNTIME_INIT \
	{                   \
		0           \
	}

enum {
	STARPU_E_ABSENT = 1, /* not installed, or not built in; see @ret_reason */
};

/*
 * Start StarPU with @n_workers CPU workers, paused. @cpu: the processor of the only one; below 0:
 * StarPU binds them. @policy: its scheduler; NULL: its default. The reason lives as long as the
 * program. Call starpu_runtime_stop() also after a failure.
 * Return: 0; STARPU_E_ABSENT; a negative errno.
 */
int starpu_runtime_start(struct starpu_runtime *runtime, unsigned int n_workers, int cpu,
			 const char *policy, const char **ret_reason);

/* Stop StarPU, whose data must have been unregistered, and remove its files. */
void starpu_runtime_stop(struct starpu_runtime *runtime);

static inline float *starpu_runtime_floats(void *interface)
{
	return (float *)((struct starpu_vector_interface *)interface)->ptr;
}
