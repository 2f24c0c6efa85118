#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A device's queue and its two threads
 *
 * The submitting thread ("rb-vk-N") takes tasks from the reactor, loads them into recorded slots
 * and submits them: several at once if several wait, urgent tasks first. The waiting thread
 * ("rb-vkw-N") waits for the tasks in order and hands them back. There are two threads because a
 * thread that waits for the device cannot submit its next work meanwhile. The waiting thread
 * submits tasks that come while it has nothing to wait for and is awake (awake.h). Only the thread
 * that holds "submitting" touches the VkQueue. Both threads outlive the logical device: while the
 * device is lost or being reopened, they hand tasks back and touch nothing of the logical device.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <volk.h>

#include "plan/executor.h"
#include "util/spsc.h"
#include "vulkan/awake.h"

struct vk_device;

enum {
	VK_QUEUE_TASKS = 256, /* maximum number of tasks between submit and reap */
	VK_QUEUE_BATCH = 64,  /* tasks in one vkQueueSubmit() */
	VK_QUEUE_DEFERRED = VK_QUEUE_TASKS + 1, /* all tasks, and one setup submission */
};

/* A list of tasks that the submitting thread holds, linked through executor_private[0]. */
struct vk_queue_list {
	struct exec_task *first, *last;
};

struct vk_queue {
	struct spsc in;       /* reactor -> submitting thread: struct exec_task */
	struct spsc setup_in; /* setup thread -> submitting thread: struct vk_queue */
	struct spsc begun;    /* submitting -> waiting thread: struct exec_task or vk_queue */
	struct spsc out;      /* waiting thread -> reactor: struct exec_task */
	sem_t work;           /* semaphore on which the submitting thread sleeps */
	sem_t begun_work;     /* semaphore on which the waiting thread sleeps */
	/*
	 * Held by the thread that submits, which is what "submitting thread" means in comments: the
	 * thread of this name while it is awake, or the waiting thread.
	 */
	pthread_mutex_t submitting;
	pthread_t submitter, waiter;
	bool has_submitter, has_waiter, has_semaphores;
	_Atomic bool stop, stop_waiter;
	_Atomic bool dead;        /* the driver said that the device is lost */
	_Atomic bool awaits_slot; /* the submitting thread is to be woken when a slot is freed */
	VkSemaphore timeline;
	uint64_t submitted;          /* submitting thread: last value promised to the timeline */
	_Atomic uint64_t came_ticks; /* submitting thread: when the newest held task came */
	uint64_t turn;               /* submitting thread: number of passes over the held tasks */
	struct vk_queue_list urgent; /* submitting thread: held urgent tasks, in order */
	struct vk_queue_list others; /* submitting thread: held other tasks, in order */
	uint64_t last_end_ticks;     /* waiting thread: end of the last submission */
	/* Waiting thread: ring of items popped from begun while an earlier submission timed out. */
	void *deferred[VK_QUEUE_DEFERRED];
	unsigned int first_deferred, n_deferred;

	struct vk_awake awake;

	uint32_t n_in_flight; /* reactor: tasks between submit and reap */
	uint32_t n_unflushed; /* reactor: tasks submitted since the last flush */

	/*
	 * Setup thread: one command buffer, for setup work and uploads without a queue of their
	 * own.
	 */
	VkCommandPool setup_pool;
	VkCommandBuffer setup_commands;
	/* value of the uploads' timeline that the setup work waits for; 0: none */
	uint64_t setup_uploads;
	uint64_t setup_value;
	int setup_result;
	int *setup_ret; /* destination of the running work's result; NULL: no work runs */
	sem_t setup_done;
};

/*
 * Make a timeline, and a pool of command buffers for a family of queues. After an error the caller
 * destroys what was made.
 * Return: 0 or negative errno.
 */
int vk_timeline_new(struct vk_device *device, uint32_t family, uint32_t n_commands,
		    VkSemaphore *ret_timeline, VkCommandPool *ret_pool,
		    VkCommandBuffer *ret_commands);

/*
 * Make and free the objects that live as long as the logical device. No task is in flight.
 * Return: 0 or negative errno.
 */
int vk_queue_open(struct vk_device *device);
void vk_queue_close(struct vk_device *device);

/* Start the threads, once. Return: 0 or negative errno. */
int vk_queue_start(struct vk_device *device);
/* End the threads, while nothing is in flight. Accepts a queue that was never started. */
void vk_queue_stop(struct vk_device *device);

/* Main function of the submitting thread, in submit.c. */
void *vk_submitter_main(void *device);

/*
 * Take the tasks and the setup work that wait, and submit what can run: one pass, in submit.c. The
 * caller holds queue->submitting.
 * Return: true if something was submitted, so that another pass may find more.
 */
bool vk_submit_some(struct vk_device *device);

/*
 * Store in executor_private[1] the timeline value of a task's submission and the number @n of its
 * tasks. A submission is one task, or several short tasks of one plan, with one timeline value.
 * Value 0: the task is not submitted to the device.
 */
static inline void vk_queue_set_value(struct exec_task *task, uint64_t value, unsigned int n)
{
	task->executor_private[1] = (void *)(uintptr_t)(value << 8 | n);
}

static inline uint64_t vk_queue_value(const struct exec_task *task, unsigned int *ret_n)
{
	const uint64_t both = (uintptr_t)task->executor_private[1];

	*ret_n = both & 0xff;
	return both >> 8;
}

/* Submit, flush and reap, as in struct executor_ops. Reactor. */
int vk_queue_submit(struct vk_device *device, struct exec_task *task);
void vk_queue_flush(struct vk_device *device);
unsigned int vk_queue_reap(struct vk_device *device, struct exec_task **ret, unsigned int max);

static inline bool vk_queue_is_dead(const struct vk_queue *queue)
{
	return atomic_load_explicit(&queue->dead, memory_order_acquire);
}
