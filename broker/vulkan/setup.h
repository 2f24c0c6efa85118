#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Setup work: commands of the setup thread, which the submitting thread hands to the device. All
 * functions are for the setup thread.
 */
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <volk.h>

struct vk_device;

/*
 * Begin the setup command buffer, after waiting for the work started before; run it and wait for
 * it.
 * Return: 0; negative errno, -EIO if the device is lost.
 */
int vk_setup_begin(struct vk_device *device, VkCommandBuffer *ret);
int vk_setup_run(struct vk_device *device);
/*
 * Run the setup command buffer without waiting, instead of vk_setup_run(). *@result is
 * VK_SETUP_E_RUNS until the work has run; then vk_setup_begin() or vk_setup_await() sets it to 0 or
 * a negative errno. @result must stay valid until then.
 * Return: 0; negative errno, and *@result is not used.
 */
enum { VK_SETUP_E_RUNS = 1 };
int vk_setup_start(struct vk_device *device, int *result);
/*
 * Wait at most @wait_ns (UINT64_MAX: without limit) for started setup work, of any caller.
 * Return: true if no work runs any more.
 */
bool vk_setup_await(struct vk_device *device, uint64_t wait_ns);

/*
 * Take one from @sem, waiting at most @wait_ns (UINT64_MAX: without limit).
 * Return: true if one was taken.
 */
bool vk_wait_for(sem_t *sem, uint64_t wait_ns);

/*
 * Submit an empty command buffer, to see whether the device answers. Do not call between
 * vk_setup_begin() and its run.
 * Return: true if the device is lost.
 */
bool vk_device_check(struct vk_device *device);
