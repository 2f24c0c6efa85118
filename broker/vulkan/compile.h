#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Compiling what plans need, several pipelines at once
 *
 * A driver takes some ms or tens of them for a pipeline, one after the other for a thread that asks
 * for one after the other; a plan may need tens. So a few threads are started for each part of
 * them, and end with it; the setup thread serves others meanwhile. Setup thread only.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>

#include "vulkan/lower.h"

struct vk_device;

enum { VK_COMPILE_JOBS = 4 };

/* A pipeline that is being compiled. */
struct vk_compile_job {
	struct vk_device *device;
	struct vk_pipeline *pipeline;
	bool has_helper;
	pthread_t helper;
	VkPipeline made;
	int result;
};

/* All 0 but for ended: nothing is under way. */
struct vk_compiler {
	struct vk_compile_job jobs[VK_COMPILE_JOBS];
	unsigned int n_jobs;
	unsigned int n_ended; /* jobs whose end the setup thread has taken from ended */
	sem_t ended;
};

/* For what plans are lowered on a device. */
void vk_compile_target(struct vk_device *device, struct vk_target *ret);

/*
 * Compiles a part of what the steps need and was not compiled, and waits for it: one pipeline for
 * each processor, or four. On a lost device nothing, and that is no failure.
 * Return: 0, all is there; EXECUTOR_E_MORE; negative errno, of any of them.
 */
int vk_compile_some(struct vk_device *device, const struct vk_lowered *lowered);

/*
 * The same without waiting: the next call takes what was compiled meanwhile and starts the next
 * part, also if it is of another plan. Leaves out what the driver refused when last asked.
 * Return: 0; EXECUTOR_E_MORE, something is being compiled, for this plan or another.
 */
int vk_compile_next(struct vk_device *device, const struct vk_lowered *lowered);

/* Waits for what is under way, before the device is closed. */
void vk_compile_end(struct vk_device *device);
