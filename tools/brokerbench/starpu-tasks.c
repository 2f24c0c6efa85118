/* SPDX-License-Identifier: MIT */
/*
 * StarPU as a baseline
 *
 * StarPU's worker spins while idle, which would take the processor from the other side's rounds, so
 * it is paused outside its own rounds. StarPU's files about the machine are written to a directory
 * of this run, not to the user's home. The library is loaded on request and not linked, since
 * loading it takes longer than some benches.
 */
#include "starpu-tasks.h"

#include <dlfcn.h>
#include <errno.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <starpu.h>

#include "util/checked.h"
#include "util/clock.h"

#define N_FLOATS      16
#define ROUND_SAMPLES 1024u

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
	f(starpu_data_unregister)

struct starpu_tasks {
#define DECLARE(name) __typeof__(name) *name
	STARPU_FUNCTIONS(DECLARE);
#undef DECLARE
	bool is_running;
	char home[64];
	struct starpu_codelet none, one, three;
	starpu_data_handle_t handles[STARPU_TASKS_SETS][3];
	float buffers[STARPU_TASKS_SETS][3][N_FLOATS];
};

static float *buffer_of(void *interface)
{
	return (float *)((struct starpu_vector_interface *)interface)->ptr;
}

static void run_none(void *buffers[], void *argument)
{
	(void)buffers;
	(void)argument;
}

static void run_one(void *buffers[], void *argument)
{
	static const float left[N_FLOATS] = {1}, right[N_FLOATS] = {2};
	float *out = buffer_of(buffers[0]);

	(void)argument;
	for (int i = 0; i < N_FLOATS; i++)
		out[i] = left[i] + right[i];
}

static void run_three(void *buffers[], void *argument)
{
	const float *left = buffer_of(buffers[0]), *right = buffer_of(buffers[1]);
	float *out = buffer_of(buffers[2]);

	(void)argument;
	for (int i = 0; i < N_FLOATS; i++)
		out[i] = left[i] + right[i];
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
	(void)status;
	(void)kind;
	(void)walk;
	return remove(path);
}

struct starpu_tasks *starpu_tasks_free(struct starpu_tasks *tasks)
{
	if (!tasks)
		return NULL;
	if (tasks->is_running) {
		tasks->starpu_resume();
		for (unsigned int set = 0; set < STARPU_TASKS_SETS; set++)
			for (unsigned int i = 0; i < 3; i++)
				tasks->starpu_data_unregister(tasks->handles[set][i]);
		tasks->starpu_shutdown();
	}
	if (*tasks->home)
		nftw(tasks->home, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	free(tasks);
	return NULL;
}

static void describe_codelets(struct starpu_tasks *tasks)
{
	tasks->none = (struct starpu_codelet){.where = STARPU_CPU, .cpu_funcs = {run_none}};
	tasks->one = (struct starpu_codelet){
		.where = STARPU_CPU,
		.cpu_funcs = {run_one},
		.nbuffers = 1,
		.modes = {STARPU_W},
	};
	tasks->three = (struct starpu_codelet){
		.where = STARPU_CPU,
		.cpu_funcs = {run_three},
		.nbuffers = 3,
		.modes = {STARPU_R, STARPU_R, STARPU_W},
	};
}

static int start(struct starpu_tasks *tasks, int worker_cpu)
{
	struct starpu_conf configuration;

	setenv("STARPU_SILENT", "1", 1);
	setenv("STARPU_HOME", tasks->home, 1);
	setenv("STARPU_PERF_MODEL_DIR", tasks->home, 1);
	if (tasks->starpu_conf_init(&configuration) < 0)
		return -EIO;
	configuration.precedence_over_environment_variables = 1;
	configuration.ncpus = 1;
	configuration.ncuda = 0;
	configuration.nopencl = 0;
	configuration.catch_signals = 0;
	configuration.use_explicit_workers_bindid = 1;
	configuration.workers_bindid[0] = (unsigned int)worker_cpu;
	return tasks->starpu_init(&configuration) ? -EIO : 0;
}

int starpu_tasks_new(int worker_cpu, struct starpu_tasks **ret, const char **ret_reason)
{
	struct starpu_tasks *tasks;
	bool is_complete = true;
	void *handle;
	int r;

	handle = dlopen("libstarpu-1.3.so.9", RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		*ret_reason = "libstarpu-1.3.so.9 is not installed";
		return STARPU_TASKS_E_ABSENT;
	}
	tasks = calloc(1, sizeof(*tasks));
	if (!tasks)
		return -ENOMEM;
#define LOOK_UP(name)                                           \
	tasks->name = (__typeof__(name) *)dlsym(handle, #name); \
	is_complete = is_complete && tasks->name
	STARPU_FUNCTIONS(LOOK_UP);
#undef LOOK_UP
	if (!is_complete) {
		free(tasks);
		*ret_reason = "libstarpu-1.3.so.9 lacks functions";
		return STARPU_TASKS_E_ABSENT;
	}

	snprintf(tasks->home, sizeof(tasks->home), "/tmp/brokerbench-starpu-XXXXXX");
	if (!mkdtemp(tasks->home)) {
		r = -errno;
		free(tasks);
		return r;
	}
	r = start(tasks, worker_cpu);
	if (r) {
		starpu_tasks_free(tasks);
		return r;
	}
	describe_codelets(tasks);
	for (unsigned int set = 0; set < STARPU_TASKS_SETS; set++)
		for (unsigned int i = 0; i < 3; i++)
			tasks->starpu_vector_data_register(&tasks->handles[set][i], STARPU_MAIN_RAM,
							   (uintptr_t)tasks->buffers[set][i],
							   N_FLOATS, sizeof(float));
	tasks->is_running = true;
	tasks->starpu_pause();
	*ret = tasks;
	return 0;
}

static int run_tasks(struct starpu_tasks *tasks, unsigned int n_buffers)
{
	struct starpu_codelet *codelet = n_buffers == 0   ? &tasks->none
					 : n_buffers == 1 ? &tasks->one
							  : &tasks->three;
	starpu_data_handle_t *set;
	struct starpu_task *task;

	for (unsigned int i = 0; i < STARPU_TASKS_N; i++) {
		task = tasks->starpu_task_create();
		if (!task)
			return -ENOMEM;
		task->cl = codelet;
		set = tasks->handles[i % STARPU_TASKS_SETS];
		if (n_buffers == 1)
			task->handles[0] = set[2];
		else
			memcpy(task->handles, set, n_buffers * sizeof(*set));
		if (tasks->starpu_task_submit(task))
			return -EIO;
	}
	return tasks->starpu_task_wait_for_all() ? -EIO : 0;
}

int starpu_tasks_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	const struct starpu_tasks_round *at = data;
	uint64_t start_ticks, last, now, budget;
	unsigned int i;
	int r;

	r = samples_reserve(samples, ROUND_SAMPLES);
	if (r)
		return r;
	at->tasks->starpu_resume();
	r = run_tasks(at->tasks, at->n_buffers);
	budget = clock_ns_to_ticks(budget_ns);
	start_ticks = last = clock_ticks();
	for (i = 0; !r && i < ROUND_SAMPLES && (i == 0 || last - start_ticks < budget); i++) {
		r = run_tasks(at->tasks, at->n_buffers);
		now = clock_ticks();
		samples_add(samples, (double)clock_elapsed_ns(last, now) / STARPU_TASKS_N);
		last = now;
	}
	at->tasks->starpu_pause();
	return r;
}
