/* SPDX-License-Identifier: MIT */
/* Setup work: see setup.h. */
#include "vulkan/setup.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

#include "util/error.h"
#include "vulkan/device.h"
#include "vulkan/driver.h"
#include "vulkan/queue.h"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

int vk_setup_begin(struct vk_device *device, VkCommandBuffer *ret)
{
	struct vk_queue *queue = &device->submit;
	const VkCommandBufferBeginInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
		.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
	};
	int r;

	/* Wait for another plan's work that still runs; on a lost device it may run for ever. */
	if (!vk_device_is_lost(device))
		vk_setup_await(device, UINT64_MAX);
	if (vk_device_is_lost(device))
		return error_origin(-EIO);
	r = vk_result(device->vk.vkBeginCommandBuffer(queue->setup_commands, &info),
		      "vkBeginCommandBuffer");
	if (r)
		return error_fold(r);
	*ret = queue->setup_commands;
	return 0;
}

int vk_setup_start(struct vk_device *device, int *result)
{
	const VkMemoryBarrier barrier = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
		.srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT | VK_ACCESS_SHADER_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
				 VK_ACCESS_TRANSFER_WRITE_BIT | VK_ACCESS_HOST_READ_BIT,
	};
	struct vk_queue *queue = &device->submit;
	bool pushed;
	int r;

	/* Make the results of setup work visible to later submissions. */
	device->vk.vkCmdPipelineBarrier(
		queue->setup_commands,
		VK_PIPELINE_STAGE_TRANSFER_BIT | VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
		VK_PIPELINE_STAGE_TRANSFER_BIT | VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT |
			VK_PIPELINE_STAGE_HOST_BIT,
		0, 1, &barrier, 0, NULL, 0, NULL);
	r = vk_result(device->vk.vkEndCommandBuffer(queue->setup_commands), "vkEndCommandBuffer");
	if (r)
		return error_fold(r);
	/* Copy the value for the submitting thread: later uploads change it meanwhile. */
	queue->setup_uploads = device->upload.queue ? device->upload.submitted : 0;
	pushed = spsc_push(&queue->setup_in, queue);
	assert(pushed);
	*result = VK_SETUP_E_RUNS;
	queue->setup_ret = result;
	sem_post(&queue->work);
	return 0;
}

bool vk_wait_for(sem_t *sem, uint64_t wait_ns)
{
	struct timespec until;
	int r;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)(wait_ns % 1000000000);
	until.tv_sec += (time_t)(wait_ns / 1000000000) + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	do
		r = wait_ns == UINT64_MAX ? sem_wait(sem)
					  : sem_clockwait(sem, CLOCK_MONOTONIC, &until);
	while (r < 0 && errno == EINTR);
#ifdef __SANITIZE_THREAD__
	/* ThreadSanitizer knows sem_post() and sem_wait(), but not sem_clockwait(). */
	if (r == 0)
		__tsan_acquire(sem);
#endif
	return r == 0;
}

bool vk_setup_await(struct vk_device *device, uint64_t wait_ns)
{
	struct vk_queue *queue = &device->submit;

	if (!queue->setup_ret)
		return true;
	if (!vk_wait_for(&queue->setup_done, wait_ns))
		return false;
	*queue->setup_ret = queue->setup_result ? error_origin(queue->setup_result) : 0;
	queue->setup_ret = NULL;
	return true;
}

int vk_setup_run(struct vk_device *device)
{
	int result, r;

	r = vk_setup_start(device, &result);
	if (r)
		return error_fold(r);
	vk_setup_await(device, UINT64_MAX);
	return result ? error_fold(result) : 0;
}

bool vk_device_check(struct vk_device *device)
{
	VkCommandBuffer commands;

	if (vk_setup_begin(device, &commands) == 0)
		vk_setup_run(device);
	return vk_device_is_lost(device);
}
