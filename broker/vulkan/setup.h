#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Setup work: commands of the setup thread, which the submitting thread hands to the device. Every
 * function here is the setup thread's.
 */
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <volk.h>

struct vk_device;

/*
 * Begin the setup command buffer, waiting for what was started before; run it and wait for it.
 * Return: 0; negative errno, -EIO if the device is lost.
 */
int vk_setup_begin(struct vk_device *device, VkCommandBuffer *ret);
int vk_setup_run(struct vk_device *device);
/*
 * Run it without waiting, instead of vk_setup_run(). *@result is VK_SETUP_E_RUNS
 * from then on; vk_setup_begin() or vk_setup_await() makes it 0 or a negative errno once it has
 * run, until when it stays where it is. Return: 0; negative errno, *@result is not used.
 */
enum { VK_SETUP_E_RUNS = 1 };
int vk_setup_start(struct vk_device *device, int *result);
/*
 * Wait @wait_ns at most (UINT64_MAX: as long as it takes) for what was started, whoever started it.
 * Return: true if nothing runs any more.
 */
bool vk_setup_await(struct vk_device *device, uint64_t wait_ns);

/*
 * Take one from @sem, waiting @wait_ns at most (UINT64_MAX: as long as it takes).
 * Return: true if one was taken.
 */
bool vk_wait_for(sem_t *sem, uint64_t wait_ns);

/*
 * Submit nothing, to see whether the device answers; not between vk_setup_begin() and its run.
 * Return: true if the device has been lost.
 */
bool vk_device_check(struct vk_device *device);
