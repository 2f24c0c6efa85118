/* SPDX-License-Identifier: MIT */
/*
 * Compiling what plans need: see compile.h.
 *
 * A helper has a job and touches nothing else that changes: the driver synchronises its cache of
 * pipelines itself, all else that compiling looks at stays as it is meanwhile. What was made is put
 * in its place by the setup thread, once it has joined its helpers. So nothing outlives a call,
 * whatever becomes of the session, the device or the broker: they wait for the setup thread, as
 * ever. A helper that cannot be started leaves its job to the setup thread.
 */
#include "vulkan/compile.h"

#include <sched.h>

#include "util/error.h"
#include "util/thread.h"
#include "vulkan/device.h"

enum {
	MOST_JOBS = 4,
	SOFTWARE_MAX_TURNS = 65000, /* see lower.c */
};

struct job {
	struct vk_device *device;
	enum vk_pipe pipe;
	enum vk_numbers numbers;
	uint32_t curve;
	bool has_helper;
	pthread_t helper;
	VkPipeline pipeline;
	int result;
};

void vk_compile_target(const struct vk_device *device, struct vk_target *ret)
{
	*ret = (struct vk_target){
		.variant = device->variant,
		.bounces = device->bounces,
		.has_half = device->has_half,
		.has_bytes = device->has_bytes,
		.has_doubles = device->has_doubles,
		.max_turns = device->is_software ? SOFTWARE_MAX_TURNS : 0,
	};
	executor_get_tiles(&device->executor, &ret->tiles);
}

static unsigned int count_processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : (unsigned int)CPU_COUNT(&set);
}

static bool is_taken(const struct job *jobs, unsigned int n, const struct vk_step *step)
{
	for (unsigned int i = 0; i < n; i++)
		if (jobs[i].pipe == step->pipe && jobs[i].numbers == step->numbers &&
		    jobs[i].curve == step->curve)
			return true;
	return false;
}

/* Return: how many are to be compiled now; whether others are left. */
static unsigned int take_jobs(struct vk_device *device, const struct vk_lowered *lowered,
			      struct job jobs[MOST_JOBS], bool *ret_is_more)
{
	unsigned int most = count_processors(), n = 0;

	if (most > MOST_JOBS)
		most = MOST_JOBS;
	*ret_is_more = false;
	for (uint32_t i = 0; i < lowered->n_steps && !*ret_is_more; i++) {
		const struct vk_step *step = &lowered->steps[i];

		if (*vk_pipeline_place(device, step->pipe, step->numbers, step->curve) ||
		    is_taken(jobs, n, step))
			continue;
		if (n < most)
			jobs[n++] = (struct job){.device = device,
						 .pipe = step->pipe,
						 .numbers = step->numbers,
						 .curve = step->curve};
		else
			*ret_is_more = true;
	}
	return n;
}

/* The setup thread or a helper. */
static void *run(void *data)
{
	struct job *job = data;

	job->result =
		vk_pipeline_compile(job->device, vk_pipe_info(job->pipe, job->device->variant),
				    job->numbers, job->curve, &job->pipeline);
	return NULL;
}

int vk_compile_some(struct vk_device *device, const struct vk_lowered *lowered)
{
	struct job jobs[MOST_JOBS];
	unsigned int n;
	bool is_more;
	int r = 0;

	if (vk_device_is_lost(device))
		return 0;
	n = take_jobs(device, lowered, jobs, &is_more);
	for (unsigned int i = 1; i < n; i++)
		jobs[i].has_helper =
			thread_start(&jobs[i].helper, "rb-compile", run, &jobs[i]) == 0;
	for (unsigned int i = 0; i < n; i++)
		if (!jobs[i].has_helper)
			run(&jobs[i]);
	for (unsigned int i = 0; i < n; i++) {
		if (jobs[i].has_helper)
			pthread_join(jobs[i].helper, NULL);
		if (jobs[i].result)
			r = jobs[i].result;
		else
			vk_pipeline_put(device, jobs[i].pipe, jobs[i].numbers, jobs[i].curve,
					jobs[i].pipeline);
	}
	if (r)
		return error_fold(r);
	return is_more ? EXECUTOR_E_MORE : 0;
}

int vk_compile_ahead(struct vk_device *device, const struct plan *plan)
{
	struct vk_lowered lowered;
	struct vk_target target;
	int r;

	vk_compile_target(device, &target);
	if (vk_lower(plan, &target, &lowered))
		return 0;
	r = vk_compile_some(device, &lowered);
	vk_lowered_deinit(&lowered);
	return r == EXECUTOR_E_MORE ? r : 0;
}
