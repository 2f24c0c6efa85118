/* SPDX-License-Identifier: MIT */
/*
 * A device's queue and its two threads: see queue.h.
 *
 * A task's way: reactor -> in -> submitting thread -> device -> waiting thread -> out -> reactor.
 * Every hop is a single-producer, single-consumer queue of fixed size, and since the reactor never
 * has more than VK_QUEUE_TASKS under way, no later queue can be full. Tasks that never reach the
 * device (cancelled, device lost) take the same way with timeline value 0, so that "out" has one
 * producer and order is kept. What the submitting thread does is in submit.c.
 *
 * One timeline semaphore counts submissions. Its value n is reached only after the commands of the
 * n-th submission, which may be several tasks', and their writes are complete; the waiting thread
 * waits for the values one by one.
 *
 * Loss: "lost" means that no new work is begun; "dead" that the driver declared the device lost, so
 * that nothing runs on it any more and waiting is pointless. A timeout sets only the first: Vulkan
 * cannot cancel, so the waiting thread goes on waiting for the very task, and if the device
 * finishes it after all, its result is as good as any. Tasks that the device has not seen do not
 * wait for that: they overtake it.
 *
 * Setup work goes through the submitting thread as well; an item of "begun" that is the queue
 * itself stands for it.
 */
#include "vulkan/queue.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "util/thread.h"
#include "util/waker.h"
#include "vulkan/device.h"
#include "vulkan/record.h"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

static const uint64_t gpu_timeout_ns = 10ull * 1000 * 1000 * 1000;
/* How often is looked for what can be handed back meanwhile. */
static const uint64_t hung_look_ns = 20ull * 1000 * 1000;
/* A software device shares the processor with everybody: slow is not stuck. */
static const uint64_t software_timeout_ns = 300ull * 1000 * 1000 * 1000;

void vk_device_lose(struct vk_device *device, const char *why)
{
	if (!atomic_exchange_explicit(&device->lost, true, memory_order_acq_rel))
		log_warning_of(LOG_OF_DEVICE(device->executor.index), LOG_DEVICE_LOST,
			       "%s is lost: %s; its tasks go elsewhere", device->name, why);
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

/* The waiting thread */

enum { WAIT_E_TIMEOUT = 1 };

/* The device does not come back. Who held tasks ready for it hands them back, and is told. */
static void note_timeout(struct vk_device *device)
{
	vk_device_lose(device, "a task takes longer than the timeout");
	sem_post(&device->submit.work);
	waker_ring(device->executor.waker);
}

/* Return: as vk_device_wait(), or WAIT_E_TIMEOUT: the device is lost, and was waited for a bit. */
static int wait_once(struct vk_device *device, VkSemaphore timeline, uint64_t value)
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
		return WAIT_E_TIMEOUT;
	}
	vk_device_die(device, "waiting failed");
	return -EIO;
}

int vk_device_wait(struct vk_device *device, VkSemaphore timeline, uint64_t value)
{
	int r;

	do
		r = wait_once(device, timeline, value);
	while (r == WAIT_E_TIMEOUT);
	return r;
}

/* --- What overtakes --- */

static void defer(struct vk_queue *queue, void *item)
{
	assert(queue->n_deferred < VK_QUEUE_DEFERRED);
	queue->deferred[(queue->first_deferred + queue->n_deferred++) % VK_QUEUE_DEFERRED] = item;
}

/* NULL: there is none. */
static void *pop_begun(struct vk_queue *queue)
{
	void *item;

	if (queue->n_deferred == 0)
		return spsc_pop(&queue->begun);
	item = queue->deferred[queue->first_deferred];
	queue->first_deferred = (queue->first_deferred + 1) % VK_QUEUE_DEFERRED;
	queue->n_deferred--;
	return item;
}

/* Waiting thread: the next item, NULL once it is to end. */
static void *next_begun(struct vk_queue *queue)
{
	void *item;

	for (;;) {
		item = pop_begun(queue);
		if (item || atomic_load_explicit(&queue->stop_waiter, memory_order_acquire))
			return item;
		while (sem_wait(&queue->begun_work) < 0 && errno == EINTR)
			;
	}
}

static bool finish(struct vk_queue *queue, struct exec_task *task)
{
	struct vk_slot *slot = task->executor_private[0];

	if (!slot || !vk_slot_finish(slot, task))
		return false;
	/* Pairs with the store in vk_submitter_main(). */
	return atomic_exchange_explicit(&queue->awaits_slot, false, memory_order_seq_cst);
}

static void hand_back(struct vk_device *device, struct exec_task *const *tasks, unsigned int n)
{
	bool pushed;

	for (unsigned int i = 0; i < n; i++) {
		pushed = spsc_push(&device->submit.out, tasks[i]);
		assert(pushed);
	}
	waker_ring(device->executor.waker);
}

/* While the device does not come back: what it has not seen is none of its affair. */
static void overtake(struct vk_device *device)
{
	struct vk_queue *queue = &device->submit;
	struct exec_task *task;
	unsigned int n;
	void *item;

	while ((item = spsc_pop(&queue->begun))) {
		task = item;
		if (item == queue ? queue->setup_value != 0 : vk_queue_value(task, &n) != 0) {
			defer(queue, item);
		} else if (item == queue) {
			sem_post(&queue->setup_done);
		} else {
			if (finish(queue, task))
				sem_post(&queue->work);
			task->end_ticks = clock_ticks();
			hand_back(device, &task, 1);
		}
	}
}

static int await(struct vk_device *device, uint64_t value)
{
	int r;

	while ((r = wait_once(device, device->submit.timeline, value)) == WAIT_E_TIMEOUT)
		overtake(device);
	return r;
}

/* @tasks were submitted together. */
static void complete(struct vk_device *device, struct exec_task *const *tasks, unsigned int n,
		     uint64_t value)
{
	struct vk_queue *queue = &device->submit;
	uint64_t start_ticks = tasks[0]->start_ticks, end_ticks;
	bool is_awaited = false;
	int res = tasks[0]->res;

	if (value)
		res = await(device, value);
	for (unsigned int i = 0; i < n; i++) {
		tasks[i]->res = res;
		is_awaited |= finish(queue, tasks[i]);
	}
	if (is_awaited)
		sem_post(&queue->work);

	end_ticks = clock_ticks();
	for (unsigned int i = 0; i < n; i++)
		tasks[i]->end_ticks = end_ticks;
	if (value) {
		/* Submitted ahead of time, it began when its predecessor ended. */
		if (start_ticks < queue->last_end_ticks)
			start_ticks = queue->last_end_ticks;
		queue->last_end_ticks = end_ticks;
		for (unsigned int i = 0; i < n; i++)
			tasks[i]->start_ticks = start_ticks;
		if (res == 0 && tasks[0]->plan->n_parts[device->executor.index] <= 1)
			vk_plan_learn(tasks[0]->plan->exec[device->executor.index], tasks, n,
				      end_ticks - start_ticks);
	}
	hand_back(device, tasks, n);
}

static void *waiter_main(void *argument)
{
	struct vk_device *device = argument;
	struct vk_queue *queue = &device->submit;
	struct exec_task *tasks[VK_QUEUE_BATCH];
	uint64_t value;
	unsigned int n;
	void *item;

	while ((item = next_begun(queue))) {
		if (item == queue) {
			if (queue->setup_value)
				queue->setup_result = await(device, queue->setup_value);
			sem_post(&queue->setup_done);
			continue;
		}
		tasks[0] = item;
		value = vk_queue_value(item, &n);
		/* The others of its submission are there or about to come. */
		for (unsigned int i = 1; i < n; i++)
			tasks[i] = next_begun(queue);
		complete(device, tasks, n, value);
	}
	return NULL;
}

/* The reactor */

int vk_queue_submit(struct vk_device *device, struct exec_task *task)
{
	struct vk_queue *queue = &device->submit;
	bool pushed;

	if (queue->n_in_flight == VK_QUEUE_TASKS)
		return EXECUTOR_E_BUSY;
	queue->n_in_flight++;
	task->busy_ticks = 0;
	pushed = spsc_push(&queue->in, task);
	assert(pushed);
	return 0;
}

void vk_queue_flush(struct vk_device *device)
{
	/* Also without anything new: what was cancelled is handed back. */
	sem_post(&device->submit.work);
}

unsigned int vk_queue_reap(struct vk_device *device, struct exec_task **ret, unsigned int max)
{
	struct vk_queue *queue = &device->submit;
	unsigned int n = 0;

	while (n < max && queue->n_in_flight > 0) {
		ret[n] = spsc_pop(&queue->out);
		if (!ret[n])
			break;
		queue->n_in_flight--;
		n++;
	}
	return n;
}

/* The setup thread */

int vk_setup_begin(struct vk_device *device, VkCommandBuffer *ret)
{
	struct vk_queue *queue = &device->submit;
	const VkCommandBufferBeginInfo info = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
		.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
	};
	int r;

	/* Another plan's work that still runs comes first; on a lost device it may run for ever. */
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

	/* What setup wrote is there for whatever is submitted later. */
	device->vk.vkCmdPipelineBarrier(
		queue->setup_commands,
		VK_PIPELINE_STAGE_TRANSFER_BIT | VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
		VK_PIPELINE_STAGE_TRANSFER_BIT | VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT |
			VK_PIPELINE_STAGE_HOST_BIT,
		0, 1, &barrier, 0, NULL, 0, NULL);
	r = vk_result(device->vk.vkEndCommandBuffer(queue->setup_commands), "vkEndCommandBuffer");
	if (r)
		return error_fold(r);
	/* The submitting thread's copy: uploads go on meanwhile. */
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

/* Set-up and end */

static int start_thread(struct vk_device *device, pthread_t *thread, const char *prefix,
			void *(*main)(void *))
{
	char name[THREAD_NAME_BYTES];

	snprintf(name, sizeof(name), "%s%u", prefix, device->slot % 100);
	return thread_start(thread, name, main, device);
}

int vk_queue_open(struct vk_device *device)
{
	struct vk_queue *queue = &device->submit;
	const VkSemaphoreTypeCreateInfo type = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
		.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE,
	};
	const VkSemaphoreCreateInfo semaphore = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
		.pNext = &type,
	};
	const VkCommandPoolCreateInfo pool = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
		.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
		.queueFamilyIndex = device->queue_family,
	};
	VkCommandBufferAllocateInfo commands = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
		.commandBufferCount = 1,
	};
	int r;

	queue->submitted = 0;
	r = vk_result(
		device->vk.vkCreateSemaphore(device->handle, &semaphore, NULL, &queue->timeline),
		"vkCreateSemaphore");
	if (r)
		return error_fold(r);
	r = vk_result(
		device->vk.vkCreateCommandPool(device->handle, &pool, NULL, &queue->setup_pool),
		"vkCreateCommandPool");
	if (r)
		return error_fold(r);
	commands.commandPool = queue->setup_pool;
	return vk_result(device->vk.vkAllocateCommandBuffers(device->handle, &commands,
							     &queue->setup_commands),
			 "vkAllocateCommandBuffers");
}

void vk_queue_close(struct vk_device *device)
{
	struct vk_queue *queue = &device->submit;

	if (queue->setup_pool)
		device->vk.vkDestroyCommandPool(device->handle, queue->setup_pool, NULL);
	if (queue->timeline)
		device->vk.vkDestroySemaphore(device->handle, queue->timeline, NULL);
	queue->setup_pool = VK_NULL_HANDLE;
	queue->timeline = VK_NULL_HANDLE;
}

int vk_queue_start(struct vk_device *device)
{
	struct vk_queue *queue = &device->submit;
	int r;

	if (!spsc_init(&queue->in, VK_QUEUE_TASKS) || !spsc_init(&queue->out, VK_QUEUE_TASKS) ||
	    !spsc_init(&queue->begun, 2 * VK_QUEUE_TASKS) || !spsc_init(&queue->setup_in, 2))
		return error_origin(-ENOMEM);
	sem_init(&queue->work, 0, 0);
	sem_init(&queue->begun_work, 0, 0);
	sem_init(&queue->setup_done, 0, 0);
	queue->has_semaphores = true;

	r = start_thread(device, &queue->waiter, "rb-vkw-", waiter_main);
	if (r)
		return error_fold(r);
	queue->has_waiter = true;
	r = start_thread(device, &queue->submitter, "rb-vk-", vk_submitter_main);
	if (r)
		return error_fold(r);
	queue->has_submitter = true;
	return 0;
}

void vk_queue_stop(struct vk_device *device)
{
	struct vk_queue *queue = &device->submit;

	assert(queue->n_in_flight == 0);
	vk_device_settle(device);
	if (queue->has_submitter) {
		atomic_store_explicit(&queue->stop, true, memory_order_release);
		sem_post(&queue->work);
		pthread_join(queue->submitter, NULL);
		queue->has_submitter = false;
	}
	if (queue->has_waiter) {
		atomic_store_explicit(&queue->stop_waiter, true, memory_order_release);
		sem_post(&queue->begun_work);
		pthread_join(queue->waiter, NULL);
		queue->has_waiter = false;
	}
	if (queue->has_semaphores) {
		sem_destroy(&queue->work);
		sem_destroy(&queue->begun_work);
		sem_destroy(&queue->setup_done);
		queue->has_semaphores = false;
	}
	spsc_deinit(&queue->in);
	spsc_deinit(&queue->out);
	spsc_deinit(&queue->begun);
	spsc_deinit(&queue->setup_in);
}
