/* SPDX-License-Identifier: MIT */
/*
 * Compiling the pipelines that plans need: see compile.h.
 *
 * A helper has one job and touches nothing else that changes: the driver synchronises its pipeline
 * cache itself, and everything else that compiling reads is constant meanwhile. The setup thread
 * joins the helpers and stores their pipelines, before the next batch is compiled or the device is
 * closed. If a helper cannot be started, the setup thread does its job.
 *
 * A pipeline that the driver refuses is marked. vk_plan_prepare() tries it again; no helper does
 * before.
 */
#include "vulkan/compile.h"

#include <sched.h>

#include "util/error.h"
#include "util/thread.h"
#include "vulkan/device.h"
#include "vulkan/setup.h"

enum {
	SOFTWARE_MAX_TURNS = 65000, /* see lower.c */
	AHEAD_WAIT_NS = 1000000,
};

void vk_compile_target(struct vk_device *device, struct vk_target *ret)
{
	*ret = (struct vk_target){
		.variant = device->variant,
		.bounces = device->bounces,
		.has_half = device->has_half,
		.has_bytes = device->has_bytes,
		.has_doubles = device->has_doubles,
		.max_turns = device->is_software ? SOFTWARE_MAX_TURNS : 0,
		.pipelines = &device->pipelines,
	};
	executor_get_tiles(&device->executor, &ret->tiles);
}

static unsigned int count_processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : (unsigned int)CPU_COUNT(&set);
}

/* Return true if the pipeline must be compiled; with @again, also if the driver has refused it. */
static bool is_wanted(const struct vk_pipeline *pipeline, bool again)
{
	return !pipeline->handle && (again || !pipeline->has_failed);
}

static bool wants_any(const struct vk_lowered *lowered, bool again)
{
	for (uint32_t i = 0; i < lowered->n_pipelines; i++)
		if (is_wanted(lowered->steps[lowered->first_uses[i]].pipeline, again))
			return true;
	return false;
}

static bool is_taken(const struct vk_compiler *compiler, const struct vk_pipeline *pipeline)
{
	for (unsigned int i = 0; i < compiler->n_jobs; i++)
		if (compiler->jobs[i].pipeline == pipeline)
			return true;
	return false;
}

/* Do a job, on the setup thread or a helper. */
static void *run(void *data)
{
	struct vk_compile_job *job = data;
	struct vk_device *device = job->device;

	job->result = vk_pipeline_compile(device, job->pipeline->info, job->pipeline->numbers,
					  job->pipeline->curve, &job->made);
	sem_post(&device->compiler.ended);
	return NULL;
}

/* Start compiling a batch of the pipelines of the steps; no job is in progress. */
static void start(struct vk_device *device, const struct vk_lowered *lowered, bool again)
{
	struct vk_compiler *compiler = &device->compiler;
	unsigned int most = count_processors();

	if (most > VK_COMPILE_JOBS)
		most = VK_COMPILE_JOBS;
	for (uint32_t i = 0; i < lowered->n_pipelines && compiler->n_jobs < most; i++) {
		struct vk_pipeline *pipeline = lowered->steps[lowered->first_uses[i]].pipeline;

		if (is_wanted(pipeline, again) && !is_taken(compiler, pipeline))
			compiler->jobs[compiler->n_jobs++] =
				(struct vk_compile_job){.device = device, .pipeline = pipeline};
	}
	for (unsigned int i = 0; i < compiler->n_jobs; i++) {
		struct vk_compile_job *job = &compiler->jobs[i];

		job->has_helper = thread_start(&job->helper, "rb-compile", run, job) == 0;
		if (!job->has_helper)
			run(job);
	}
}

/* Join the helpers and store their pipelines. Return: 0; negative errno if any job failed. */
static int collect(struct vk_device *device)
{
	struct vk_compiler *compiler = &device->compiler;
	int r = 0;

	for (unsigned int i = 0; i < compiler->n_jobs; i++) {
		struct vk_compile_job *job = &compiler->jobs[i];

		if (job->has_helper)
			pthread_join(job->helper, NULL);
		job->pipeline->has_failed = job->result != 0;
		if (job->result)
			r = job->result;
		else if (job->pipeline->handle)
			device->vk.vkDestroyPipeline(device->handle, job->made, NULL);
		else
			vk_pipeline_put(device, job->pipeline, job->made);
	}
	compiler->n_jobs = compiler->n_ended = 0;
	return r;
}

/* Return: 0 if no job is in progress; EXECUTOR_E_MORE after @wait_ns; negative errno. */
static int await(struct vk_device *device, uint64_t wait_ns)
{
	struct vk_compiler *compiler = &device->compiler;

	for (; compiler->n_ended < compiler->n_jobs; compiler->n_ended++)
		if (!vk_wait_for(&compiler->ended, wait_ns))
			return EXECUTOR_E_MORE;
	return collect(device);
}

void vk_compile_end(struct vk_device *device)
{
	await(device, UINT64_MAX);
}

int vk_compile_some(struct vk_device *device, const struct vk_lowered *lowered)
{
	int r;

	if (vk_device_is_lost(device) || !wants_any(lowered, true))
		return 0;
	vk_compile_end(device);
	start(device, lowered, true);
	r = await(device, UINT64_MAX);
	if (r)
		return error_fold(r);
	return wants_any(lowered, true) ? EXECUTOR_E_MORE : 0;
}

int vk_compile_next(struct vk_device *device, const struct vk_lowered *lowered)
{
	int r;

	if (vk_device_is_lost(device) || !wants_any(lowered, false))
		return 0;
	r = await(device, AHEAD_WAIT_NS);
	if (!wants_any(lowered, false))
		return 0;
	if (r != EXECUTOR_E_MORE)
		start(device, lowered, false);
	return EXECUTOR_E_MORE;
}
