/* SPDX-License-Identifier: MIT */
/*
 * Reopening a lost device
 *
 * The executor, its threads, prepared plans and imports of arenas outlive the logical device.
 * Everything that belonged to the logical device is gone when vk_device_reopen() is called, except
 * for the segments of arenas, which are dropped here.
 *
 * After a reset, the same VkPhysicalDevice makes another logical device. After the card was
 * unplugged or its driver reloaded, an instance keeps listing the devices that existed when it was
 * made. So a new instance is asked for the device with the same PCI address or UUID. The old
 * instance must be destroyed first: RADV knows a card by its name for as long as any instance of
 * the process holds it, even if the card is gone. So a card that was unplugged stays away while
 * another device is open.
 *
 * Facts found out before (names, sizes, paths, rates) still hold: the reactor reads them meanwhile.
 */
#include <errno.h>

#include "util/error.h"
#include "util/log.h"
#include "vulkan/device.h"
#include "vulkan/driver.h"
#include "vulkan/instance.h"
#include "vulkan/rates.h"

static int open_again(struct vk_device *device)
{
	int r;

	if (!device->physical)
		return -EIO;
	r = vk_device_open(device, false);
	if (!r && device->memory.page_bytes != device->executor.info.memory_page_bytes) {
		log_warning_of(LOG_OF_DEVICE(device->executor.index), LOG_DEVICE_CHANGED,
			       "%s has changed: not reopened", device->name);
		vk_device_close(device);
		r = error_origin(-EIO);
	}
	return r;
}

int vk_device_reopen(struct vk_device *device)
{
	struct vk_queue *queue = &device->submit;
	int r = -EIO;

	if (!vk_device_is_lost(device))
		return 0;
	if (device->handle) {
		vk_device_settle(device);
		vk_imports_drop(device);
		vk_device_close(device);
	}
	if (vk_device_fault(device, VULKAN_FAULT_OPEN) != VULKAN_FAULT_LOST) {
		/*
		 * Drivers report various errors for a card that is gone, "out of memory" among
		 * them.
		 */
		r = open_again(device);
		if (r)
			r = vk_instance_renew(device->instance);
		if (!r && !device->handle)
			r = open_again(device);
	}
	if (r)
		return r == -EIO ? r : error_fold(r);
	vk_rates_apply(device);
	/* The threads touch nothing of the new device before they see that it is not lost. */
	atomic_store_explicit(&queue->dead, false, memory_order_release);
	atomic_store_explicit(&device->lost, false, memory_order_release);
	vk_imports_restore(device);
	return 0;
}
