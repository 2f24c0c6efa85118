/* SPDX-License-Identifier: MIT */
/*
 * A device's queue and its two threads: see queue.h.
 *
 * A task's way: reactor -> in -> submitting thread -> device -> waiting thread -> out -> reactor.
 * Every hop is a single-producer, single-consumer queue of fixed size, and since the reactor never
 * has more than VK_QUEUE_TASKS under way, no later queue can be full. Tasks that never reach the
 * device (cancelled, device lost) take the same way with timeline value 0, so that "out" has one
 * producer and order is kept.
 *
 * One timeline semaphore counts submissions. Its value n is reached only after the n-th task's
 * commands and their writes are complete; the waiting thread waits for the values one by one.
 *
 * Loss: "lost" means that no new work is begun; "dead" that the driver declared the device lost, so
 * that nothing runs on it any more and waiting is pointless. A timeout sets only the first: Vulkan
 * cannot cancel, so the waiting thread goes on waiting for the very task, and if the device
 * finishes it after all, its result is as good as any.
 *
 * Setup work goes through the submitting thread as well; an item of "begun" that is the queue
 * itself stands for it.
 */
#include "vulkan/queue.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "util/thread.h"
#include "util/waker.h"
#include "vulkan/device.h"
#include "vulkan/record.h"

static const uint64_t gpu_timeout_ns = 10ull * 1000 * 1000 * 1000;
/* A software device shares the processor with everybody: slow is not stuck. */
static const uint64_t software_timeout_ns = 300ull * 1000 * 1000 * 1000;

void vk_device_lose(struct vk_device *device, const char *why)
{
	if (!atomic_exchange_explicit(&device->lost, true, memory_order_acq_rel))
		log_warning_of(LOG_OF_DEVICE(device->executor.index), LOG_DEVICE_LOST,
			       "%s is lost: %s; its tasks go elsewhere", device->name, why);
}

static void die(struct vk_device *device, const char *why)
{
	atomic_store_explicit(&device->submit.dead, true, memory_order_release);
	vk_device_lose(device, why);
}

void vk_device_settle(struct vk_device *device)
{
	if (device->handle && vk_queue_is_dead(&device->submit))
		device->vk.vkDeviceWaitIdle(device->handle);
}

/* The submitting thread */

struct batch {
	unsigned int n;
	VkSubmitInfo infos[VK_QUEUE_BATCH];
	VkTimelineSemaphoreSubmitInfo values[VK_QUEUE_BATCH];
	VkCommandBuffer commands[VK_QUEUE_BATCH];
	uint64_t value[VK_QUEUE_BATCH];
	void *items[VK_QUEUE_BATCH]; /* struct exec_task, or the queue for setup work */
};

static void begun(struct vk_queue *queue, void *item)
{
	bool pushed = spsc_push(&queue->begun, item);

	assert(pushed);
	sem_post(&queue->begun_work);
}

static void batch_add(struct vk_device *device, struct batch *batch, VkCommandBuffer commands,
		      void *item)
{
	struct vk_queue *queue = &device->submit;
	unsigned int i = batch->n++;

	batch->commands[i] = commands;
	batch->value[i] = queue->submitted + batch->n;
	batch->items[i] = item;
	batch->values[i] = (VkTimelineSemaphoreSubmitInfo){
		.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
		.signalSemaphoreValueCount = 1,
		.pSignalSemaphoreValues = &batch->value[i],
	};
	batch->infos[i] = (VkSubmitInfo){
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.pNext = &batch->values[i],
		.commandBufferCount = 1,
		.pCommandBuffers = &batch->commands[i],
		.signalSemaphoreCount = 1,
		.pSignalSemaphores = &queue->timeline,
	};
}

/* Setup work comes after all uploads, and everything submitted later comes after it. */
static void batch_add_setup(struct vk_device *device, struct batch *batch)
{
	static const VkPipelineStageFlags all = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
	const struct vk_upload *upload = &device->upload;
	struct vk_queue *queue = &device->submit;
	unsigned int i = batch->n;

	batch_add(device, batch, queue->setup_commands, queue);
	if (!upload->queue || upload->submitted == 0)
		return;
	batch->values[i].waitSemaphoreValueCount = 1;
	batch->values[i].pWaitSemaphoreValues = &upload->submitted;
	batch->infos[i].waitSemaphoreCount = 1;
	batch->infos[i].pWaitSemaphores = &upload->timeline;
	batch->infos[i].pWaitDstStageMask = &all;
}

/* Hands a task on that the device will not see. */
static void skip(struct vk_queue *queue, struct exec_task *task, int res)
{
	task->res = res;
	task->start_ticks = clock_ticks();
	task->copied_bytes = 0;
	task->transferred_bytes = 0;
	task->executor_private[0] = NULL;
	task->executor_private[1] = NULL;
	begun(queue, task);
}

/* Return: false if no slot is free, the task is held back then. */
static bool take_task(struct vk_device *device, struct batch *batch, struct exec_task *task)
{
	struct vk_plan *plan = task->plan->exec[device->executor.index];
	struct vk_queue *queue = &device->submit;
	struct vk_slot *slot;
	int r;

	if (vk_device_is_lost(device) || !vk_plan_is_loaded(plan)) {
		r = vk_device_is_lost(device) ? -EIO : -ENOMEM;
		skip(queue, task, exec_task_begin(task) ? r : -ECANCELED);
		return true;
	}

	slot = vk_plan_find_slot(plan);
	if (!slot) {
		/* Pairs with the exchange in complete(): a slot freed now is seen or announced. */
		atomic_store_explicit(&queue->awaits_slot, true, memory_order_seq_cst);
		slot = vk_plan_find_slot(plan);
		if (!slot)
			return false;
	}
	if (!exec_task_begin(task)) {
		skip(queue, task, -ECANCELED);
		return true;
	}
	task->copied_bytes = 0;
	task->transferred_bytes = 0;
	r = vk_slot_load(plan, slot, task);
	if (r) {
		skip(queue, task, r);
		return true;
	}
	task->executor_private[0] = slot;
	batch_add(device, batch, vk_slot_commands(slot), task);
	return true;
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
		die(device, "submission failed");
	return error_fold(r);
}

static void submit_batch(struct vk_device *device, struct batch *batch)
{
	struct vk_queue *queue = &device->submit;
	uint64_t now = clock_ticks();
	int res;

	res = vk_device_submit(device, device->queue, batch->n, batch->infos);
	if (res == 0)
		queue->submitted += batch->n;
	for (unsigned int i = 0; i < batch->n; i++) {
		struct exec_task *task = batch->items[i];

		if (batch->items[i] == queue) {
			queue->setup_result = res;
			queue->setup_value = res ? 0 : batch->value[i];
		} else {
			task->res = res;
			task->start_ticks = now;
			task->executor_private[1] = (void *)(uintptr_t)(res ? 0 : batch->value[i]);
		}
		begun(queue, batch->items[i]);
	}
}

static void *submitter_main(void *argument)
{
	struct vk_device *device = argument;
	struct vk_queue *queue = &device->submit;
	struct exec_task *task;
	struct batch batch;

	for (;;) {
		batch.n = 0;
		if (spsc_pop(&queue->setup_in)) {
			if (vk_queue_is_dead(queue)) {
				queue->setup_result = -EIO;
				queue->setup_value = 0;
				begun(queue, queue);
			} else {
				batch_add_setup(device, &batch);
			}
		}
		while (batch.n < VK_QUEUE_BATCH) {
			task = queue->held_back;
			queue->held_back = NULL;
			if (!task)
				task = spsc_pop(&queue->in);
			if (!task)
				break;
			if (!take_task(device, &batch, task)) {
				queue->held_back = task;
				break;
			}
		}
		if (batch.n > 0) {
			submit_batch(device, &batch);
			continue;
		}
		if (atomic_load_explicit(&queue->stop, memory_order_acquire))
			break;
		while (sem_wait(&queue->work) < 0 && errno == EINTR)
			;
	}
	return NULL;
}

/* The waiting thread */

int vk_device_wait(struct vk_device *device, VkSemaphore timeline, uint64_t value)
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
	for (;;) {
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
		if (result == VK_TIMEOUT)
			vk_device_lose(device, "a task takes longer than the timeout");
		else
			die(device, "waiting failed");
	}
}

static void complete(struct vk_device *device, struct exec_task *task)
{
	struct vk_slot *slot = task->executor_private[0];
	uint64_t value = (uintptr_t)task->executor_private[1];
	struct vk_queue *queue = &device->submit;
	bool pushed;

	if (value)
		task->res = vk_device_wait(device, queue->timeline, value);
	if (slot) {
		if (task->res == 0)
			vk_slot_store(slot, task);
		vk_slot_put(slot);
		/* Pairs with the store in take_task(). */
		if (atomic_exchange_explicit(&queue->awaits_slot, false, memory_order_seq_cst))
			sem_post(&queue->work);
	}

	/* Submitted ahead of time, it began when its predecessor ended. */
	task->end_ticks = clock_ticks();
	if (value && task->start_ticks < queue->last_end_ticks)
		task->start_ticks = queue->last_end_ticks;
	if (value)
		queue->last_end_ticks = task->end_ticks;
	pushed = spsc_push(&queue->out, task);
	assert(pushed);
	waker_ring(device->executor.waker);
}

static void *waiter_main(void *argument)
{
	struct vk_device *device = argument;
	struct vk_queue *queue = &device->submit;
	void *item;

	for (;;) {
		item = spsc_pop(&queue->begun);
		if (item == queue) {
			if (queue->setup_value)
				queue->setup_result =
					vk_device_wait(device, queue->timeline, queue->setup_value);
			sem_post(&queue->setup_done);
		} else if (item) {
			complete(device, item);
		} else if (atomic_load_explicit(&queue->stop_waiter, memory_order_acquire)) {
			break;
		} else {
			while (sem_wait(&queue->begun_work) < 0 && errno == EINTR)
				;
		}
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
	queue->unflushed = true;
	pushed = spsc_push(&queue->in, task);
	assert(pushed);
	return 0;
}

void vk_queue_flush(struct vk_device *device)
{
	if (!device->submit.unflushed)
		return;
	device->submit.unflushed = false;
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

	if (vk_device_is_lost(device))
		return error_origin(-EIO);
	r = vk_result(device->vk.vkBeginCommandBuffer(queue->setup_commands, &info),
		      "vkBeginCommandBuffer");
	if (r)
		return error_fold(r);
	*ret = queue->setup_commands;
	return 0;
}

int vk_setup_run(struct vk_device *device)
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
	pushed = spsc_push(&queue->setup_in, queue);
	assert(pushed);
	sem_post(&queue->work);
	while (sem_wait(&queue->setup_done) < 0 && errno == EINTR)
		;
	return queue->setup_result ? error_origin(queue->setup_result) : 0;
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
	r = start_thread(device, &queue->submitter, "rb-vk-", submitter_main);
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
