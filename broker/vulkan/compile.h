#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Compiling the pipelines that plans need, several at once
 *
 * A driver needs some ms or some tens of ms for a pipeline, and compiles sequentially for a thread
 * that asks sequentially; a plan may need tens of pipelines. So a few helper threads are started
 * for each batch of pipelines and end with it. The setup thread serves other requests meanwhile.
 * Setup thread only.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>

#include "vulkan/lower.h"

struct vk_device;

enum { VK_COMPILE_JOBS = 4 };

/* One pipeline in compilation. */
struct vk_compile_job {
	struct vk_device *device;
	struct vk_pipeline *pipeline;
	bool has_helper;
	pthread_t helper;
	VkPipeline made;
	int result;
};

/* The compilations in progress. All 0 but for ended: none. */
struct vk_compiler {
	struct vk_compile_job jobs[VK_COMPILE_JOBS];
	unsigned int n_jobs;
	/* jobs whose end the setup thread has taken from the semaphore ended */
	unsigned int n_ended;
	sem_t ended;
};

/* Describe the device as a target for lowering plans. */
void vk_compile_target(struct vk_device *device, struct vk_target *ret);

/*
 * Compile a batch of the missing pipelines of the steps, and wait for it: one pipeline per
 * processor, at most four. On a lost device do nothing; that is not a failure.
 * Return: 0 if all are compiled; EXECUTOR_E_MORE; negative errno if any failed.
 */
int vk_compile_some(struct vk_device *device, const struct vk_lowered *lowered);

/*
 * Compile a batch like vk_compile_some(), but without waiting: the next call collects it and starts
 * the next batch, even for another plan. Pipelines that the driver refused at the last attempt are
 * left out.
 * Return: 0; EXECUTOR_E_MORE if pipelines are being compiled, for this plan or another.
 */
int vk_compile_next(struct vk_device *device, const struct vk_lowered *lowered);

/* Wait for the compilations in progress, before the device is closed. */
void vk_compile_end(struct vk_device *device);
