/* SPDX-License-Identifier: MIT */
/*
 * A device's queue and its two threads: see queue.h.
 *
 * A task's way: reactor -> in -> submitting thread -> begun -> waiting thread -> out -> reactor.
 * Every hop is a single-producer, single-consumer queue of fixed size. No later queue can overflow,
 * because the reactor never has more than VK_QUEUE_TASKS in flight. Tasks that never reach the
 * device (cancelled, device lost) take the same way with timeline value 0, so that "out" has one
 * producer and the order is kept. The submitting thread is in submit.c.
 *
 * One timeline semaphore counts submissions. Its value n is reached only after the commands and the
 * writes of the n-th submission, which may hold several tasks, are complete. The waiting thread
 * waits for the values one by one.
 *
 * After a timeout the waiting thread keeps waiting for the same submission (see driver.c). If the
 * device finishes it after all, its result is valid. Tasks that the device has not seen do not wait
 * for it: they overtake it.
 *
 * Setup work (setup.c) passes through the submitting thread as well; in "begun", the pointer to the
 * queue itself stands for setup work.
 */
#include "vulkan/queue.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "util/clock.h"
#include "util/error.h"
#include "util/thread.h"
#include "util/waker.h"
#include "vulkan/awake.h"
#include "vulkan/device.h"
#include "vulkan/driver.h"
#include "vulkan/record.h"

/* The waiting thread */

static void defer(struct vk_queue *queue, void *item)
{
	assert(queue->n_deferred < VK_QUEUE_DEFERRED);
	queue->deferred[(queue->first_deferred + queue->n_deferred++) % VK_QUEUE_DEFERRED] = item;
}

/* Return: the next item; NULL if there is none. */
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

/*
 * Wait for the next item, on the waiting thread. Return: the item; NULL once the thread is to end.
 */
static void *next_begun(struct vk_device *device)
{
	struct vk_queue *queue = &device->submit;
	void *item;

	for (;;) {
		item = pop_begun(queue);
		if (item || atomic_load_explicit(&queue->stop_waiter, memory_order_acquire))
			return item;
		if (vk_awake_watch(device))
			continue;
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

/*
 * Hand back tasks that the device has not seen, while an earlier submission is hung; defer all
 * other items.
 */
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

	while ((r = vk_device_wait_once(device, device->submit.timeline, value)) ==
	       VK_WAIT_E_TIMEOUT)
		overtake(device);
	return r;
}

/* Wait for a submission and hand back its tasks. */
static void complete(struct vk_device *device, struct exec_task *const *tasks, unsigned int n,
		     uint64_t value)
{
	struct vk_queue *queue = &device->submit;
	uint64_t start_ticks = tasks[0]->start_ticks, end_ticks;
	bool is_awaited = false;
	int res = tasks[0]->res;

	if (value) {
		vk_awake_note_gap(device);
		vk_awake_until_end(device, tasks, n, value);
		res = await(device, value);
	}
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
		/* A task that was submitted ahead of time began when its predecessor ended. */
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

	while ((item = next_begun(device))) {
		if (item == queue) {
			if (queue->setup_value)
				queue->setup_result = await(device, queue->setup_value);
			sem_post(&queue->setup_done);
			continue;
		}
		tasks[0] = item;
		value = vk_queue_value(item, &n);
		/* The other tasks of the submission are queued or about to be queued. */
		for (unsigned int i = 1; i < n; i++)
			tasks[i] = next_begun(device);
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
	queue->n_unflushed++;
	task->busy_ticks = 0;
	task->executor_private[1] = (void *)(uintptr_t)clock_ticks();
	pushed = spsc_push(&queue->in, task);
	assert(pushed);
	return 0;
}

void vk_queue_flush(struct vk_device *device)
{
	struct vk_queue *queue = &device->submit;
	const bool has_new = queue->n_unflushed > 0;

	queue->n_unflushed = 0;
	/*
	 * A thread that watches has seen a held task perhaps, but not its cancellation. The load of
	 * awaits_slot pairs with the store in vk_submit_some().
	 */
	if (has_new && vk_awake_is_watching(&queue->awake) &&
	    !atomic_load_explicit(&queue->awaits_slot, memory_order_relaxed))
		return;
	/* Wake the thread even without a new task: it hands back cancelled tasks. */
	sem_post(&queue->work);
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

/* Set-up and end */

static int start_thread(struct vk_device *device, pthread_t *thread, const char *prefix,
			void *(*main)(void *))
{
	char name[THREAD_NAME_BYTES];

	snprintf(name, sizeof(name), "%s%u", prefix, device->slot % 100);
	return thread_start(thread, name, main, device);
}

int vk_timeline_new(struct vk_device *device, uint32_t family, uint32_t n_commands,
		    VkSemaphore *ret_timeline, VkCommandPool *ret_pool,
		    VkCommandBuffer *ret_commands)
{
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
		.queueFamilyIndex = family,
	};
	VkCommandBufferAllocateInfo commands = {
		.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
		.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
		.commandBufferCount = n_commands,
	};
	int r;

	r = vk_result(device->vk.vkCreateSemaphore(device->handle, &semaphore, NULL, ret_timeline),
		      "vkCreateSemaphore");
	if (r)
		return error_fold(r);
	r = vk_result(device->vk.vkCreateCommandPool(device->handle, &pool, NULL, ret_pool),
		      "vkCreateCommandPool");
	if (r)
		return error_fold(r);
	commands.commandPool = *ret_pool;
	return vk_result(
		device->vk.vkAllocateCommandBuffers(device->handle, &commands, ret_commands),
		"vkAllocateCommandBuffers");
}

int vk_queue_open(struct vk_device *device)
{
	struct vk_queue *queue = &device->submit;

	queue->submitted = 0;
	return vk_timeline_new(device, device->queue_family, 1, &queue->timeline,
			       &queue->setup_pool, &queue->setup_commands);
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
	pthread_mutex_init(&queue->submitting, NULL);
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
		pthread_mutex_destroy(&queue->submitting);
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
