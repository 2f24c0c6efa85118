/* SPDX-License-Identifier: MIT */
/* StarPU, loaded and started: see starpu-runtime.h. */
#include "starpu-runtime.h"

#include <dlfcn.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
	(void)status;
	(void)kind;
	(void)walk;
	return remove(path);
}

void starpu_runtime_stop(struct starpu_runtime *runtime)
{
	if (runtime->is_running)
		runtime->starpu_shutdown();
	runtime->is_running = false;
	if (*runtime->home)
		nftw(runtime->home, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	*runtime->home = '\0';
}

static int load(struct starpu_runtime *runtime, const char **ret_reason)
{
	void *handle = dlopen("libstarpu-1.3.so.9", RTLD_NOW | RTLD_LOCAL);
	bool is_complete = true;

	*ret_reason = "libstarpu-1.3.so.9 is not installed";
	if (!handle)
		return STARPU_E_ABSENT;
#define LOOK_UP(name)                                             \
	runtime->name = (__typeof__(name) *)dlsym(handle, #name); \
	is_complete = is_complete && runtime->name
	STARPU_FUNCTIONS(LOOK_UP);
#undef LOOK_UP
	*ret_reason = "libstarpu-1.3.so.9 lacks functions";
	return is_complete ? 0 : STARPU_E_ABSENT;
}

int starpu_runtime_start(struct starpu_runtime *runtime, unsigned int n_workers, int cpu,
			 const char *policy, const char **ret_reason)
{
	struct starpu_conf configuration;
	int r;

	*runtime = (struct starpu_runtime)STARPU_RUNTIME_INIT;
	r = load(runtime, ret_reason);
	if (r)
		return r;
	snprintf(runtime->home, sizeof(runtime->home), "/tmp/brokerbench-starpu-XXXXXX");
	if (!mkdtemp(runtime->home)) {
		*runtime->home = '\0';
		return -errno;
	}
	setenv("STARPU_SILENT", "1", 1);
	setenv("STARPU_HOME", runtime->home, 1);
	setenv("STARPU_PERF_MODEL_DIR", runtime->home, 1);
	if (runtime->starpu_conf_init(&configuration) < 0)
		return -EIO;
	configuration.precedence_over_environment_variables = 1;
	configuration.ncpus = (int)n_workers;
	configuration.ncuda = 0;
	configuration.nopencl = 0;
	configuration.catch_signals = 0;
	configuration.sched_policy_name = policy;
	if (cpu >= 0) {
		configuration.use_explicit_workers_bindid = 1;
		configuration.workers_bindid[0] = (unsigned int)cpu;
	}
	if (runtime->starpu_init(&configuration))
		return -EIO;
	runtime->is_running = true;
	runtime->starpu_pause();
	return 0;
}
