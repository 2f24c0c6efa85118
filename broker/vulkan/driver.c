/* SPDX-License-Identifier: MIT */
/*
 * The driver's answers, and the loss of a device: see driver.h.
 *
 * A "lost" device gets no new work. A "dead" device was declared lost by the driver: nothing runs
 * on it any more, and waiting is pointless. A timeout makes a device lost, not dead, because Vulkan
 * cannot cancel work.
 */
#include "vulkan/driver.h"

#include <errno.h>

#include "util/error.h"
#include "util/log.h"
#include "util/waker.h"
#include "vulkan/device.h"
#include "vulkan/queue.h"

static const uint64_t gpu_timeout_ns = 10ull * 1000 * 1000 * 1000;
/* Period at which the tasks of a lost device are searched for tasks that can be handed back. */
static const uint64_t hung_look_ns = 20ull * 1000 * 1000;
/*
 * A software device shares the processor with everything else that runs: slow does not mean stuck.
 */
static const uint64_t software_timeout_ns = 300ull * 1000 * 1000 * 1000;

int vk_result(VkResult result, const char *what)
{
	if (result == VK_SUCCESS)
		return 0;
	log_debug(LOG_DETAIL, "%s failed: VkResult %d", what, result);
	if (result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY)
		return error_origin(-ENOMEM);
	return error_origin(-EIO);
}

enum vulkan_fault vk_device_fault(struct vk_device *device, enum vulkan_fault_point point)
{
	if (!device->options.fault)
		return VULKAN_FAULT_NONE;
	return device->options.fault(device->options.fault_context, point);
}

void vk_device_lose(struct vk_device *device, const char *why)
{
	if (!atomic_exchange_explicit(&device->lost, true, memory_order_acq_rel))
		log_warning_of(LOG_OF_DEVICE(device->executor.index), LOG_DEVICE_LOST,
			       "%s is lost: %s; tasks not yet submitted to it move to other "
			       "devices",
			       device->name, why);
}

void vk_device_die(struct vk_device *device, const char *why)
{
	atomic_store_explicit(&device->submit.dead, true, memory_order_release);
	vk_device_lose(device, why);
}

void vk_device_settle(struct vk_device *device)
{
	if (device->handle && vk_queue_is_dead(&device->submit))
		device->vk.vkDeviceWaitIdle(device->handle);
}

int vk_device_submit(struct vk_device *device, VkQueue queue, uint32_t n, const VkSubmitInfo *infos)
{
	VkResult result = VK_ERROR_DEVICE_LOST;
	int r;

	if (vk_device_fault(device, VULKAN_FAULT_SUBMIT) != VULKAN_FAULT_LOST)
		result = device->vk.vkQueueSubmit(queue, n, infos, VK_NULL_HANDLE);
	if (result == VK_SUCCESS)
		return 0;
	r = vk_result(result, "vkQueueSubmit");
	if (r != -ENOMEM)
		vk_device_die(device, "submission failed");
	return error_fold(r);
}

/*
 * Wake the submitting thread and the reactor, so that tasks that the device has not seen are handed
 * back.
 */
static void note_timeout(struct vk_device *device)
{
	vk_device_lose(device, "a task takes longer than the timeout");
	sem_post(&device->submit.work);
	waker_ring(device->executor.waker);
}

int vk_device_wait_once(struct vk_device *device, VkSemaphore timeline, uint64_t value)
{
	const VkSemaphoreWaitInfo info = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
		.semaphoreCount = 1,
		.pSemaphores = &timeline,
		.pValues = &value,
	};
	uint64_t timeout_ns = device->is_software ? software_timeout_ns : gpu_timeout_ns;
	enum vulkan_fault fault;
	VkResult result;

	if (device->options.timeout_ns)
		timeout_ns = device->options.timeout_ns;
	if (vk_device_is_lost(device) && timeout_ns > hung_look_ns)
		timeout_ns = hung_look_ns;
	if (vk_queue_is_dead(&device->submit))
		return -EIO;
	fault = vk_device_fault(device, VULKAN_FAULT_WAIT);
	if (fault == VULKAN_FAULT_LOST)
		result = VK_ERROR_DEVICE_LOST;
	else if (fault == VULKAN_FAULT_TIMEOUT)
		result = VK_TIMEOUT;
	else
		result = device->vk.vkWaitSemaphores(device->handle, &info, timeout_ns);
	if (result == VK_SUCCESS)
		return 0;
	if (result == VK_TIMEOUT) {
		note_timeout(device);
		return VK_WAIT_E_TIMEOUT;
	}
	vk_device_die(device, "waiting failed");
	return -EIO;
}

int vk_device_wait(struct vk_device *device, VkSemaphore timeline, uint64_t value)
{
	int r;

	do
		r = vk_device_wait_once(device, timeline, value);
	while (r == VK_WAIT_E_TIMEOUT);
	return r;
}
