/* SPDX-License-Identifier: MIT */
/* The waiting thread, awake when it will be needed: see awake.h. */
#include "vulkan/awake.h"

#include "util/clock.h"
#include "util/longest.h"
#include "util/thread.h"
#include "vulkan/device.h"
#include "vulkan/queue.h"
#include "vulkan/record.h"

/* The longest time to poll before or after a predicted moment: what a sleep costs */
static const uint64_t most_ns = 50000;
/*
 * The longest sleep until shortly before a predicted end. A longer task gains nothing, and the
 * caller's wait is what notices a device that hangs.
 */
static const uint64_t most_sleep_ns = 100000000;

static bool may_poll(const struct vk_device *device)
{
	/* A software device computes on the processors. */
	return !device->is_software && !vk_device_is_lost(device) &&
	       atomic_load_explicit(&device->executor.may_poll, memory_order_relaxed);
}

/* Return the predicted end; 0: unknown. */
static uint64_t predict(const struct vk_device *device, struct exec_task *const *tasks,
			unsigned int n)
{
	const struct vk_plan *plan = tasks[0]->plan->exec[device->executor.index];
	uint64_t start_ticks = tasks[0]->start_ticks, ticks = 0, expected;

	for (unsigned int i = 0; i < n; i++) {
		expected = vk_plan_expected_ticks(plan, tasks[i]);
		if (expected == 0)
			return 0;
		ticks += expected;
	}
	if (start_ticks < device->submit.last_end_ticks)
		start_ticks = device->submit.last_end_ticks;
	return start_ticks + ticks;
}

static bool has_ended(struct vk_device *device, uint64_t value)
{
	uint64_t reached = 0;

	/* After an error the caller's wait tells what is wrong. */
	return device->vk.vkGetSemaphoreCounterValue(device->handle, device->submit.timeline,
						     &reached) != VK_SUCCESS ||
	       reached >= value;
}

/* Sleep for @ns, or until the submission has ended. */
static void sleep_for(struct vk_device *device, uint64_t value, uint64_t ns)
{
	const VkSemaphoreWaitInfo info = {
		.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
		.semaphoreCount = 1,
		.pSemaphores = &device->submit.timeline,
		.pValues = &value,
	};

	(void)device->vk.vkWaitSemaphores(device->handle, &info, ns);
}

void vk_awake_until_end(struct vk_device *device, struct exec_task *const *tasks, unsigned int n,
			uint64_t value)
{
	const uint64_t most_ticks = clock_ns_to_ticks(most_ns);
	struct vk_awake *awake = &device->submit.awake;
	uint64_t due_ticks, ahead_ticks, now_ticks = clock_ticks();

	if (!may_poll(device))
		return;
	due_ticks = predict(device, tasks, n);
	if (due_ticks == 0)
		return;
	ahead_ticks = awake->lag_ticks + awake->early_ticks;
	if (ahead_ticks > most_ticks)
		ahead_ticks = most_ticks;
	if (now_ticks + ahead_ticks < due_ticks) {
		if (due_ticks - ahead_ticks - now_ticks > clock_ns_to_ticks(most_sleep_ns))
			return;
		sleep_for(device, value, clock_ticks_to_ns(due_ticks - ahead_ticks - now_ticks));
		now_ticks = clock_ticks();
		if (!has_ended(device, value))
			longest_follow(&awake->lag_ticks,
				       now_ticks + ahead_ticks > due_ticks
					       ? now_ticks + ahead_ticks - due_ticks
					       : 0,
				       most_ticks);
	}
	while (!has_ended(device, value)) {
		if (now_ticks >= due_ticks + most_ticks)
			return;
		thread_relax();
		now_ticks = clock_ticks();
	}
	longest_follow(&awake->early_ticks, now_ticks < due_ticks ? due_ticks - now_ticks : 0,
		       most_ticks);
}

void vk_awake_note_gap(struct vk_device *device)
{
	const struct vk_queue *queue = &device->submit;
	const uint64_t came_ticks = atomic_load_explicit(&queue->came_ticks, memory_order_relaxed);
	struct vk_awake *awake = &device->submit.awake;

	awake->is_due = true;
	/* A task that came before that end says nothing. */
	if (came_ticks >= queue->last_end_ticks)
		awake->comes_soon = came_ticks - queue->last_end_ticks < clock_ns_to_ticks(most_ns);
}

static bool has_work(const struct vk_queue *queue)
{
	return spsc_has_items(&queue->in) || spsc_has_items(&queue->setup_in);
}

bool vk_awake_watch(struct vk_device *device)
{
	struct vk_queue *queue = &device->submit;
	struct vk_awake *awake = &queue->awake;
	const uint64_t begin_ticks = clock_ticks(), most_ticks = clock_ns_to_ticks(most_ns);

	if (!awake->is_due || !awake->comes_soon || !may_poll(device))
		return false;
	awake->is_due = false;
	vk_awake_begin_watch(awake);
	while (!has_work(queue) && !spsc_has_items(&queue->begun) &&
	       clock_ticks() - begin_ticks < most_ticks)
		thread_relax();
	vk_awake_end_watch(awake);
	if (!has_work(queue))
		return true;
	if (pthread_mutex_trylock(&queue->submitting) == 0) {
		while (vk_submit_some(device))
			awake->n_submitted++;
		pthread_mutex_unlock(&queue->submitting);
	} else {
		/* It may have looked for the last time. */
		sem_post(&queue->work);
	}
	return true;
}
