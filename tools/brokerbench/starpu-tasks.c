/* SPDX-License-Identifier: MIT */
/* StarPU as a baseline */
#include "starpu-tasks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "starpu-runtime.h"
#include "util/clock.h"

#define N_FLOATS      16
#define ROUND_SAMPLES 1024u

_Static_assert((int)STARPU_E_ABSENT == (int)STARPU_TASKS_E_ABSENT, "one status for all callers");

struct starpu_tasks {
	struct starpu_runtime runtime;
	struct starpu_codelet none, one, three;
	starpu_data_handle_t handles[STARPU_TASKS_SETS][3];
	float buffers[STARPU_TASKS_SETS][3][N_FLOATS];
};

static void run_none(void *buffers[], void *argument)
{
	(void)buffers;
	(void)argument;
}

static void run_one(void *buffers[], void *argument)
{
	static const float left[N_FLOATS] = {1}, right[N_FLOATS] = {2};
	float *out = starpu_runtime_floats(buffers[0]);

	(void)argument;
	for (int i = 0; i < N_FLOATS; i++)
		out[i] = left[i] + right[i];
}

static void run_three(void *buffers[], void *argument)
{
	const float *left = starpu_runtime_floats(buffers[0]),
		    *right = starpu_runtime_floats(buffers[1]);
	float *out = starpu_runtime_floats(buffers[2]);

	(void)argument;
	for (int i = 0; i < N_FLOATS; i++)
		out[i] = left[i] + right[i];
}

struct starpu_tasks *starpu_tasks_free(struct starpu_tasks *tasks)
{
	if (!tasks)
		return NULL;
	if (tasks->runtime.is_running) {
		tasks->runtime.starpu_resume();
		for (unsigned int set = 0; set < STARPU_TASKS_SETS; set++)
			for (unsigned int i = 0; i < 3; i++)
				tasks->runtime.starpu_data_unregister(tasks->handles[set][i]);
	}
	starpu_runtime_stop(&tasks->runtime);
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

int starpu_tasks_new(int worker_cpu, struct starpu_tasks **ret, const char **ret_reason)
{
	struct starpu_tasks *tasks = calloc(1, sizeof(*tasks));
	int r;

	if (!tasks)
		return -ENOMEM;
	r = starpu_runtime_start(&tasks->runtime, 1, worker_cpu, NULL, ret_reason);
	if (r) {
		starpu_tasks_free(tasks);
		return r;
	}
	describe_codelets(tasks);
	for (unsigned int set = 0; set < STARPU_TASKS_SETS; set++)
		for (unsigned int i = 0; i < 3; i++)
			tasks->runtime.starpu_vector_data_register(
				&tasks->handles[set][i], STARPU_MAIN_RAM,
				(uintptr_t)tasks->buffers[set][i], N_FLOATS, sizeof(float));
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
		task = tasks->runtime.starpu_task_create();
		if (!task)
			return -ENOMEM;
		task->cl = codelet;
		set = tasks->handles[i % STARPU_TASKS_SETS];
		if (n_buffers == 1)
			task->handles[0] = set[2];
		else
			memcpy(task->handles, set, n_buffers * sizeof(*set));
		if (tasks->runtime.starpu_task_submit(task))
			return -EIO;
	}
	return tasks->runtime.starpu_task_wait_for_all() ? -EIO : 0;
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
	at->tasks->runtime.starpu_resume();
	r = run_tasks(at->tasks, at->n_buffers);
	budget = clock_ns_to_ticks(budget_ns);
	start_ticks = last = clock_ticks();
	for (i = 0; !r && i < ROUND_SAMPLES && (i == 0 || last - start_ticks < budget); i++) {
		r = run_tasks(at->tasks, at->n_buffers);
		now = clock_ticks();
		samples_add(samples, (double)clock_elapsed_ns(last, now) / STARPU_TASKS_N);
		last = now;
	}
	at->tasks->runtime.starpu_pause();
	return r;
}
