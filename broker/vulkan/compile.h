#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Compiling what plans need, several pipelines at once
 *
 * A driver takes some ms or tens of them for a pipeline, one after the other for a thread that asks
 * for one after the other; a plan may need tens. So a few threads are started for each part of
 * them, and have ended when it is done. Setup thread only.
 */
#include "vulkan/lower.h"

struct vk_device;

/* For what plans are lowered on a device. */
void vk_compile_target(const struct vk_device *device, struct vk_target *ret);

/*
 * Compiles a part of what the steps need and was not compiled: one pipeline for each processor, or
 * four. On a lost device nothing, and that is no failure.
 * Return: 0, all is there; EXECUTOR_E_MORE; negative errno, of any of them.
 */
int vk_compile_some(struct vk_device *device, const struct vk_lowered *lowered);

/*
 * The same ahead of vk_plan_prepare(), which will say what is wrong with the plan or the device.
 * Return: 0; EXECUTOR_E_MORE.
 */
int vk_compile_ahead(struct vk_device *device, const struct plan *plan);
