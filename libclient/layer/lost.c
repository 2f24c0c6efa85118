/* SPDX-License-Identifier: MIT */
/*
 * Lost devices: see lost.h.
 *
 * The kernel tells a process whether its own work was the reason, never whose else. So each program
 * tells the broker about itself, and the broker tells the others. Drivers report a loss late: RADV
 * when something is submitted next.
 */
#include "libclient/layer/lost.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "libclient/layer/dispatch.h"
#include "libclient/layer/gpu.h"
#include "libclient/layer/process.h"
#include "libclient/layer/say.h"
#include "libclient/private.h"
#include "shm/reset-verdict.h"

/* The broker's answer may change for less than two seconds. */
enum { TRIES = 25 };
static const struct timespec pause_between = {.tv_nsec = 100000000};

void lost_resolve(struct device *device)
{
#define RESOLVE(member, name) \
	device->below.member = (PFN_##name)device->get_proc_addr(device->handle, #name)
	RESOLVE(wait_for_fences, vkWaitForFences);
	RESOLVE(get_fence_status, vkGetFenceStatus);
	RESOLVE(queue_wait_idle, vkQueueWaitIdle);
	RESOLVE(device_wait_idle, vkDeviceWaitIdle);
	RESOLVE(queue_bind_sparse, vkQueueBindSparse);
	RESOLVE(get_query_pool_results, vkGetQueryPoolResults);
	RESOLVE(wait_semaphores, vkWaitSemaphores);
	RESOLVE(wait_semaphores_khr, vkWaitSemaphoresKHR);
	RESOLVE(get_counter, vkGetSemaphoreCounterValue);
	RESOLVE(get_counter_khr, vkGetSemaphoreCounterValueKHR);
	RESOLVE(queue_present, vkQueuePresentKHR);
	RESOLVE(acquire_next_image, vkAcquireNextImageKHR);
	RESOLVE(acquire_next_image2, vkAcquireNextImage2KHR);
#undef RESOLVE
}

/* ---- Telling ---- */

/* Ask the broker. Return: 0, or an errno, negative or CLIENT_E_GONE. */
static int ask(struct gpu *gpu, enum reset_verdict verdict, struct client_lost *ret)
{
	int r;

	pthread_rwlock_rdlock(&layer_process->using);
	r = client_lease_lost(gpu->lease, verdict, ret);
	pthread_rwlock_unlock(&layer_process->using);
	return r;
}

static void tell_of(struct gpu *gpu, enum reset_verdict verdict)
{
	struct client_lost lost = {.is_final = false};
	int r = ask(gpu, verdict, &lost);

	for (unsigned int i = 1; i < TRIES && !r && !lost.is_final; i++) {
		nanosleep(&pause_between, NULL);
		r = ask(gpu, verdict, &lost);
	}
	if (!r)
		say_error("the device of lease %u was lost: %s", rbk_lease_number(gpu->lease),
			  lost.text);
	else if (verdict == RESET_VERDICT_GUILTY)
		say_error("the device of lease %u was lost: the kernel reset it because of this "
			  "program's own work",
			  rbk_lease_number(gpu->lease));
	else
		say_error("the device of lease %u was lost%s", rbk_lease_number(gpu->lease),
			  verdict == RESET_VERDICT_INNOCENT
				  ? ": the kernel reset it because of another program's work"
				  : "");
}

void lost_tell(struct device *device)
{
	const int before_errno = errno; /* programs rely on their errno */
	enum reset_verdict verdict;
	int state;

	if (!device || device->n_gpus == 0 ||
	    __atomic_exchange_n(&device->is_lost, 1, __ATOMIC_RELAXED))
		return;
	verdict = reset_verdict(device->physical->render_node, device->physical->primary_node);
	/* Few of these calls are cancellation points. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	for (uint32_t i = 0; i < device->n_gpus; i++) {
		struct gpu *gpu = device->gpus[i];

		if (gpu && gpu_is_ours(gpu) && gpu_state(gpu) == GPU_LEASED)
			tell_of(gpu, verdict);
	}
	pthread_setcancelstate(state, &state);
	errno = before_errno;
}

/* ---- Functions ---- */

static VKAPI_ATTR VkResult VKAPI_CALL wait_for_fences(VkDevice handle, uint32_t n,
						      const VkFence *fences, VkBool32 waits_for_all,
						      uint64_t timeout)
{
	struct device *device = dispatch_device(handle);

	return lost_note(device,
			 device->below.wait_for_fences(handle, n, fences, waits_for_all, timeout));
}

static VKAPI_ATTR VkResult VKAPI_CALL get_fence_status(VkDevice handle, VkFence fence)
{
	struct device *device = dispatch_device(handle);

	return lost_note(device, device->below.get_fence_status(handle, fence));
}

static VKAPI_ATTR VkResult VKAPI_CALL queue_wait_idle(VkQueue queue)
{
	struct device *device = dispatch_device(queue);

	return lost_note(device, device->below.queue_wait_idle(queue));
}

static VKAPI_ATTR VkResult VKAPI_CALL device_wait_idle(VkDevice handle)
{
	struct device *device = dispatch_device(handle);

	return lost_note(device, device->below.device_wait_idle(handle));
}

static VKAPI_ATTR VkResult VKAPI_CALL queue_bind_sparse(VkQueue queue, uint32_t n,
							const VkBindSparseInfo *infos,
							VkFence fence)
{
	struct device *device = dispatch_device(queue);

	return lost_note(device, device->below.queue_bind_sparse(queue, n, infos, fence));
}

static VKAPI_ATTR VkResult VKAPI_CALL get_query_pool_results(VkDevice handle, VkQueryPool pool,
							     uint32_t first, uint32_t n,
							     size_t bytes, void *data,
							     VkDeviceSize stride,
							     VkQueryResultFlags flags)
{
	struct device *device = dispatch_device(handle);

	return lost_note(device, device->below.get_query_pool_results(handle, pool, first, n, bytes,
								      data, stride, flags));
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_semaphores(VkDevice handle,
						      const VkSemaphoreWaitInfo *info,
						      uint64_t timeout)
{
	struct device *device = dispatch_device(handle);

	return lost_note(device, device->below.wait_semaphores(handle, info, timeout));
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_semaphores_khr(VkDevice handle,
							  const VkSemaphoreWaitInfo *info,
							  uint64_t timeout)
{
	struct device *device = dispatch_device(handle);

	return lost_note(device, device->below.wait_semaphores_khr(handle, info, timeout));
}

static VKAPI_ATTR VkResult VKAPI_CALL get_counter(VkDevice handle, VkSemaphore semaphore,
						  uint64_t *ret)
{
	struct device *device = dispatch_device(handle);

	return lost_note(device, device->below.get_counter(handle, semaphore, ret));
}

static VKAPI_ATTR VkResult VKAPI_CALL get_counter_khr(VkDevice handle, VkSemaphore semaphore,
						      uint64_t *ret)
{
	struct device *device = dispatch_device(handle);

	return lost_note(device, device->below.get_counter_khr(handle, semaphore, ret));
}

static VKAPI_ATTR VkResult VKAPI_CALL queue_present(VkQueue queue, const VkPresentInfoKHR *info)
{
	struct device *device = dispatch_device(queue);

	return lost_note(device, device->below.queue_present(queue, info));
}

static VKAPI_ATTR VkResult VKAPI_CALL acquire_next_image(VkDevice handle, VkSwapchainKHR swapchain,
							 uint64_t timeout, VkSemaphore semaphore,
							 VkFence fence, uint32_t *ret)
{
	struct device *device = dispatch_device(handle);

	return lost_note(device, device->below.acquire_next_image(handle, swapchain, timeout,
								  semaphore, fence, ret));
}

static VKAPI_ATTR VkResult VKAPI_CALL acquire_next_image2(VkDevice handle,
							  const VkAcquireNextImageInfoKHR *info,
							  uint32_t *ret)
{
	struct device *device = dispatch_device(handle);

	return lost_note(device, device->below.acquire_next_image2(handle, info, ret));
}

static const struct function {
	const char *name;
	PFN_vkVoidFunction function;
} functions[] = {
	{"vkWaitForFences", (PFN_vkVoidFunction)wait_for_fences},
	{"vkGetFenceStatus", (PFN_vkVoidFunction)get_fence_status},
	{"vkQueueWaitIdle", (PFN_vkVoidFunction)queue_wait_idle},
	{"vkDeviceWaitIdle", (PFN_vkVoidFunction)device_wait_idle},
	{"vkQueueBindSparse", (PFN_vkVoidFunction)queue_bind_sparse},
	{"vkGetQueryPoolResults", (PFN_vkVoidFunction)get_query_pool_results},
	{"vkWaitSemaphores", (PFN_vkVoidFunction)wait_semaphores},
	{"vkWaitSemaphoresKHR", (PFN_vkVoidFunction)wait_semaphores_khr},
	{"vkGetSemaphoreCounterValue", (PFN_vkVoidFunction)get_counter},
	{"vkGetSemaphoreCounterValueKHR", (PFN_vkVoidFunction)get_counter_khr},
	{"vkQueuePresentKHR", (PFN_vkVoidFunction)queue_present},
	{"vkAcquireNextImageKHR", (PFN_vkVoidFunction)acquire_next_image},
	{"vkAcquireNextImage2KHR", (PFN_vkVoidFunction)acquire_next_image2},
};

PFN_vkVoidFunction lost_function(const char *name)
{
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
		if (strcmp(functions[i].name, name) == 0)
			return functions[i].function;
	return NULL;
}
