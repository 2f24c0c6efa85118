/* SPDX-License-Identifier: MIT */
/*
 * Uploads: see upload.h.
 *
 * The upload queue has a timeline of its own. The host waits for every upload before it loads a
 * plan that needs it. The submission that ends the loading of a plan waits for the uploads'
 * timeline on the device (submit.c), which makes the writes of one queue visible on the other.
 */
#include "vulkan/upload.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "plan/executor.h"
#include "util/error.h"
#include "vulkan/device.h"
#include "vulkan/driver.h"
#include "vulkan/setup.h"

void vk_upload_find_queue(struct vk_device *device)
{
	/*
	 * Skip families for video, optical flow and the like: they may not be plain transfer
	 * queues.
	 */
	const VkQueueFlags plain = VK_QUEUE_TRANSFER_BIT | VK_QUEUE_SPARSE_BINDING_BIT;
	struct vk_upload *upload = &device->upload;
	VkQueueFamilyProperties families[16];
	uint32_t n = 16;

	vkGetPhysicalDeviceQueueFamilyProperties(device->physical, &n, families);
	upload->has_queue = false;
	for (uint32_t i = 0; i < n && !upload->has_queue; i++)
		if ((families[i].queueFlags & VK_QUEUE_TRANSFER_BIT) &&
		    !(families[i].queueFlags & ~plain) && families[i].queueCount > 0) {
			upload->has_queue = true;
			upload->family = i;
			upload->index = 0;
		}
	if (!upload->has_queue && device->queue_family < n &&
	    families[device->queue_family].queueCount > 1) {
		upload->has_queue = true;
		upload->family = device->queue_family;
		upload->index = 1;
	}
	if (!upload->has_queue)
		upload->family = device->queue_family;
}

int vk_upload_open(struct vk_device *device)
{
	struct vk_upload *upload = &device->upload;
	int r;

	if (!upload->has_queue)
		return 0;
	r = vk_timeline_new(device, upload->family, VK_UPLOAD_CHUNKS, &upload->timeline,
			    &upload->pool, upload->commands);
	if (r)
		return error_fold(r);
	device->vk.vkGetDeviceQueue(device->handle, upload->family, upload->index, &upload->queue);
	return 0;
}

void vk_upload_drop_staging(struct vk_device *device)
{
	for (unsigned int i = 0; i < VK_UPLOAD_CHUNKS; i++)
		vk_memory_free(device, &device->upload.staging[i]);
}

void vk_upload_close(struct vk_device *device)
{
	struct vk_upload *upload = &device->upload;

	vk_upload_drop_staging(device);
	memset(upload->value, 0, sizeof(upload->value));
	if (upload->pool)
		device->vk.vkDestroyCommandPool(device->handle, upload->pool, NULL);
	if (upload->timeline)
		device->vk.vkDestroySemaphore(device->handle, upload->timeline, NULL);
	upload->pool = VK_NULL_HANDLE;
	upload->timeline = VK_NULL_HANDLE;
	upload->queue = VK_NULL_HANDLE;
	upload->submitted = 0;
}

static int wait_value(struct vk_device *device, uint64_t value)
{
	return value ? vk_device_wait(device, device->upload.timeline, value) : 0;
}

int vk_upload_staging(struct vk_device *device, unsigned int chunk, struct vk_allocation **ret)
{
	struct vk_allocation *staging = &device->upload.staging[chunk];
	int r;

	r = wait_value(device, device->upload.value[chunk]);
	if (r)
		return error_fold(r);
	if (staging->bytes == 0) {
		r = vk_memory_alloc(device, VK_MEMORY_OWN, VK_UPLOAD_CHUNK_BYTES, staging);
		if (r)
			return r == EXECUTOR_E_NO_MEMORY ? r : error_fold(r);
	}
	*ret = staging;
	return 0;
}

int vk_upload_begin(struct vk_device *device, unsigned int chunk, VkCommandBuffer *ret)
{
	const VkCommandBufferBeginInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
		.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
	};
	struct vk_upload *upload = &device->upload;
	int r;

	if (!upload->queue)
		return vk_setup_begin(device, ret);
	if (vk_device_is_lost(device))
		return error_origin(-EIO);
	r = wait_value(device, upload->value[chunk]);
	if (!r)
		r = vk_result(device->vk.vkBeginCommandBuffer(upload->commands[chunk], &info),
			      "vkBeginCommandBuffer");
	if (r)
		return error_fold(r);
	*ret = upload->commands[chunk];
	return 0;
}

int vk_upload_submit(struct vk_device *device, unsigned int chunk)
{
	struct vk_upload *upload = &device->upload;
	const uint64_t value = upload->submitted + 1;
	const VkTimelineSemaphoreSubmitInfo values = {
		.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
		.signalSemaphoreValueCount = 1,
		.pSignalSemaphoreValues = &value,
	};
	const VkSubmitInfo info = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.pNext = &values,
		.commandBufferCount = 1,
		.pCommandBuffers = &upload->commands[chunk],
		.signalSemaphoreCount = 1,
		.pSignalSemaphores = &upload->timeline,
	};
	int r;

	if (!upload->queue)
		return vk_setup_run(device);
	r = vk_result(device->vk.vkEndCommandBuffer(upload->commands[chunk]), "vkEndCommandBuffer");
	if (!r)
		r = vk_device_submit(device, upload->queue, 1, &info);
	if (r)
		return error_fold(r);
	upload->submitted = value;
	upload->value[chunk] = value;
	return 0;
}

int vk_upload_wait(struct vk_device *device)
{
	int r;

	r = wait_value(device, device->upload.submitted);
	return r ? error_fold(r) : 0;
}
