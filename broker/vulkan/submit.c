/* SPDX-License-Identifier: MIT */
/*
 * The submitting thread
 *
 * It holds the reactor's tasks in two lists, urgent tasks and others, and passes over them again
 * and again. Each task whose plan has a free slot is loaded into the slot and submitted; no task
 * that could be submitted is held back. So an urgent task overtakes all held tasks, and a plan
 * whose slots are busy, for as long as a task of many parts takes, does not block other plans. A
 * later part already has its slot and never waits for one. Tasks of one plan keep their order.
 *
 * A submission of its own costs a small task more than its execution does: the driver's work, and a
 * wake-up at the end. So neighbouring tasks of one plan that are known to be short share a
 * submission, as long as their sum stays short. Each task keeps its own command buffer and slot. No
 * task is delayed to wait for others.
 */
#include <assert.h>
#include <errno.h>
#include <semaphore.h>

#include "util/clock.h"
#include "util/error.h"
#include "vulkan/device.h"
#include "vulkan/driver.h"
#include "vulkan/queue.h"
#include "vulkan/record.h"

/* Maximum expected time of a shared submission: its first task completes only with its last. */
static const uint64_t shared_max_ns = 200000;

struct batch {
	unsigned int n, n_infos;
	VkSubmitInfo infos[VK_QUEUE_BATCH];
	VkTimelineSemaphoreSubmitInfo values[VK_QUEUE_BATCH];
	uint64_t value[VK_QUEUE_BATCH];           /* timeline value, by info */
	unsigned int first[VK_QUEUE_BATCH];       /* index of the first item, by info */
	VkCommandBuffer commands[VK_QUEUE_BATCH]; /* command buffer, by item */
	void *items[VK_QUEUE_BATCH]; /* by item: struct exec_task, or the queue for setup work */
	/* Properties of the last info. */
	const struct vk_plan *plan; /* plan of its tasks; NULL: not to be shared */
	uint64_t expected_ticks;
};

static void begun(struct vk_queue *queue, void *item)
{
	bool pushed = spsc_push(&queue->begun, item);

	assert(pushed);
}

static void batch_add(struct vk_device *device, struct batch *batch, VkCommandBuffer commands,
		      void *item)
{
	struct vk_queue *queue = &device->submit;
	unsigned int i = batch->n_infos++;

	batch->first[i] = batch->n;
	batch->items[batch->n] = item;
	batch->commands[batch->n] = commands;
	batch->value[i] = queue->submitted + batch->n_infos;
	batch->values[i] = (VkTimelineSemaphoreSubmitInfo){
		.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
		.signalSemaphoreValueCount = 1,
		.pSignalSemaphoreValues = &batch->value[i],
	};
	batch->infos[i] = (VkSubmitInfo){
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
		.pNext = &batch->values[i],
		.commandBufferCount = 1,
		.pCommandBuffers = &batch->commands[batch->n],
		.signalSemaphoreCount = 1,
		.pSignalSemaphores = &queue->timeline,
	};
	batch->plan = NULL;
	batch->n++;
}

/* Add the setup work: it waits for all uploads before it, and all later submissions wait for it. */
static void batch_add_setup(struct vk_device *device, struct batch *batch)
{
	static const VkPipelineStageFlags all = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
	struct vk_queue *queue = &device->submit;
	unsigned int i = batch->n_infos;

	batch_add(device, batch, queue->setup_commands, queue);
	if (queue->setup_uploads == 0)
		return;
	batch->values[i].waitSemaphoreValueCount = 1;
	batch->values[i].pWaitSemaphoreValues = &queue->setup_uploads;
	batch->infos[i].waitSemaphoreCount = 1;
	batch->infos[i].pWaitSemaphores = &device->upload.timeline;
	batch->infos[i].pWaitDstStageMask = &all;
}

/*
 * Add a task: to the last submission if that is of the same plan and both are short, else to a new
 * one.
 */
static void batch_add_task(struct vk_device *device, struct batch *batch, struct exec_task *task)
{
	const struct vk_plan *plan = task->plan->exec[device->executor.index];
	const uint64_t expected = vk_plan_expected_ticks(plan, task);
	VkCommandBuffer commands = vk_slot_commands(task->executor_private[0]);

	if (expected > 0 && batch->plan == plan &&
	    batch->expected_ticks + expected <= clock_ns_to_ticks(shared_max_ns)) {
		batch->expected_ticks += expected;
		batch->items[batch->n] = task;
		batch->commands[batch->n++] = commands;
		batch->infos[batch->n_infos - 1].commandBufferCount++;
		return;
	}
	batch_add(device, batch, commands, task);
	batch->plan = expected > 0 ? plan : NULL;
	batch->expected_ticks = expected;
}

/* Pass a task that the device will not see to the waiting thread. */
static void skip(struct vk_queue *queue, struct exec_task *task, int res)
{
	task->res = res;
	task->start_ticks = clock_ticks();
	task->copied_bytes = 0;
	task->transferred_bytes = 0;
	task->executor_private[0] = NULL;
	vk_queue_set_value(task, 0, 1);
	begun(queue, task);
	sem_post(&queue->begun_work);
}

/* Submit or skip a task. Return: false if no slot is free, and the task stays held. */
static bool take_task(struct vk_device *device, struct batch *batch, struct exec_task *task)
{
	struct vk_plan *plan = task->plan->exec[device->executor.index];
	struct vk_queue *queue = &device->submit;
	struct vk_slot *slot = NULL;
	bool is_lost = vk_device_is_lost(device);
	int r;

	if (vk_plan_is_loaded(plan) && (!is_lost || task->part > 0))
		slot = vk_plan_find_slot(plan, task, queue->turn);
	if (task->part > 0) {
		/*
		 * A part has run already. Without a slot, the plan was unloaded since, with its
		 * device.
		 */
		if (is_lost || !slot) {
			if (slot)
				vk_slot_drop(slot);
			skip(queue, task, -EIO);
			return true;
		}
		atomic_store_explicit(&task->state, EXEC_RUNNING, memory_order_relaxed);
	} else if (is_lost || !vk_plan_is_loaded(plan)) {
		r = is_lost ? -EIO : -ENOMEM;
		skip(queue, task, exec_task_begin(task) ? r : -ECANCELED);
		return true;
	} else if (!slot) {
		/* A task that was cancelled meanwhile is not held. */
		if (atomic_load_explicit(&task->state, memory_order_acquire) != EXEC_CANCELLED)
			return false;
		skip(queue, task, -ECANCELED);
		return true;
	} else if (!exec_task_begin(task)) {
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
	batch_add_task(device, batch, task);
	return true;
}

static void list_push(struct vk_queue_list *list, struct exec_task *task)
{
	task->executor_private[0] = NULL;
	if (list->last)
		list->last->executor_private[0] = task;
	else
		list->first = task;
	list->last = task;
}

/*
 * Submit the tasks of a list that can run. Return: true if a task remains held for lack of a slot.
 */
static bool take_list(struct vk_device *device, struct batch *batch, struct vk_queue_list *list)
{
	struct exec_task *task, *next, *before = NULL;

	for (task = list->first; task && batch->n < VK_QUEUE_BATCH; task = next) {
		next = task->executor_private[0];
		if (!take_task(device, batch, task)) {
			before = task;
			continue;
		}
		if (before)
			before->executor_private[0] = next;
		else
			list->first = next;
		if (!next)
			list->last = before;
	}
	return before != NULL;
}

static bool take_tasks(struct vk_device *device, struct batch *batch)
{
	struct vk_queue *queue = &device->submit;
	bool is_kept;

	queue->turn++;
	is_kept = take_list(device, batch, &queue->urgent);
	return take_list(device, batch, &queue->others) || is_kept;
}

static void submit_batch(struct vk_device *device, struct batch *batch)
{
	struct vk_queue *queue = &device->submit;
	uint64_t now = clock_ticks();
	int res;

	res = vk_device_submit(device, device->queue, batch->n_infos, batch->infos);
	if (res == 0)
		queue->submitted += batch->n_infos;
	for (unsigned int i = 0; i < batch->n_infos; i++) {
		const uint64_t value = res ? 0 : batch->value[i];
		const unsigned int n = batch->infos[i].commandBufferCount;

		for (unsigned int k = batch->first[i]; k < batch->first[i] + n; k++) {
			struct exec_task *task = batch->items[k];

			if (batch->items[k] == queue) {
				queue->setup_result = res;
				queue->setup_value = value;
			} else {
				task->res = res;
				task->start_ticks = now;
				vk_queue_set_value(task, value, n);
			}
			begun(queue, batch->items[k]);
		}
	}
	sem_post(&queue->begun_work);
}

bool vk_submit_some(struct vk_device *device)
{
	struct vk_queue *queue = &device->submit;
	struct exec_task *task;
	struct batch batch;

	batch.n = 0;
	batch.n_infos = 0;
	batch.plan = NULL;
	if (spsc_pop(&queue->setup_in)) {
		if (vk_queue_is_dead(queue)) {
			queue->setup_result = -EIO;
			queue->setup_value = 0;
			begun(queue, queue);
			sem_post(&queue->begun_work);
		} else {
			batch_add_setup(device, &batch);
		}
	}
	while ((task = spsc_pop(&queue->in))) {
		atomic_store_explicit(&queue->came_ticks, (uintptr_t)task->executor_private[1],
				      memory_order_relaxed);
		list_push(task->is_urgent ? &queue->urgent : &queue->others, task);
	}
	if (take_tasks(device, &batch) && batch.n == 0) {
		/*
		 * Pairs with the exchange in finish(): this pass sees a slot freed now, or the
		 * thread of this name is woken for it.
		 */
		atomic_store_explicit(&queue->awaits_slot, true, memory_order_seq_cst);
		/*
		 * Pairs with the fence in vk_awake_is_watching(): this pass sees a task that was
		 * cancelled before, or vk_queue_flush() sees the store.
		 */
		atomic_thread_fence(memory_order_seq_cst);
		take_tasks(device, &batch);
	}
	if (batch.n == 0)
		return false;
	submit_batch(device, &batch);
	return true;
}

void *vk_submitter_main(void *argument)
{
	struct vk_device *device = argument;
	struct vk_queue *queue = &device->submit;

	for (;;) {
		pthread_mutex_lock(&queue->submitting);
		while (vk_submit_some(device))
			;
		pthread_mutex_unlock(&queue->submitting);
		if (atomic_load_explicit(&queue->stop, memory_order_acquire))
			return NULL;
		while (sem_wait(&queue->work) < 0 && errno == EINTR)
			;
	}
}
