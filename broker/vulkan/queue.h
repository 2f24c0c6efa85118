#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A device's queue and its two threads
 *
 * The submitting thread ("rb-vk-N") takes tasks from the reactor, loads them into recorded slots
 * and submits them, several at once where several wait; urgent ones first. The waiting thread
 * ("rb-vkw-N") waits for them in order and hands them back. Two, because a thread that waits for
 * the device could not give it its next work meanwhile. Only the submitting thread touches the
 * VkQueue. Both outlive the logical device: while it is lost or reopened they hand tasks back and
 * touch nothing of it.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <volk.h>

#include "plan/executor.h"
#include "util/spsc.h"

struct vk_device;

enum {
	VK_QUEUE_TASKS = 256,                   /* between submit and reap */
	VK_QUEUE_BATCH = 64,                    /* tasks in one vkQueueSubmit() */
	VK_QUEUE_DEFERRED = VK_QUEUE_TASKS + 1, /* and a setup */
};

/* Tasks that the submitting thread holds, linked through their executor_private[0]. */
struct vk_queue_list {
	struct exec_task *first, *last;
};

struct vk_queue {
	struct spsc in;       /* reactor -> submitting thread: struct exec_task */
	struct spsc setup_in; /* setup thread -> submitting thread: struct vk_queue */
	struct spsc begun;    /* submitting -> waiting thread: struct exec_task or vk_queue */
	struct spsc out;      /* waiting thread -> reactor: struct exec_task */
	sem_t work;           /* the submitting thread sleeps on it */
	sem_t begun_work;     /* the waiting thread */
	pthread_t submitter, waiter;
	bool has_submitter, has_waiter, has_semaphores;
	_Atomic bool stop, stop_waiter;
	_Atomic bool dead;        /* the driver said that the device is lost */
	_Atomic bool awaits_slot; /* the submitting thread wants to know of freed slots */
	VkSemaphore timeline;
	uint64_t submitted;          /* submitting thread: last value promised to the timeline */
	uint64_t turn;               /* submitting thread: looks through what it holds */
	struct vk_queue_list urgent; /* submitting thread: not on the device yet, in order */
	struct vk_queue_list others; /* likewise */
	uint64_t last_end_ticks;     /* waiting thread */
	/* Waiting thread: taken from begun while it waited for what was before them. */
	void *deferred[VK_QUEUE_DEFERRED];
	unsigned int first_deferred, n_deferred;

	uint32_t n_in_flight; /* reactor */

	/* Setup thread: one command buffer for uploads and the like. */
	VkCommandPool setup_pool;
	VkCommandBuffer setup_commands;
	uint64_t setup_uploads; /* that it comes after: a value of the uploads' timeline, or 0 */
	uint64_t setup_value;
	int setup_result;
	int *setup_ret; /* where the result of what runs goes; NULL: nothing runs */
	sem_t setup_done;
};

/* What lives as long as the logical device; no task is under way. Return: 0 or negative errno. */
int vk_queue_open(struct vk_device *device);
void vk_queue_close(struct vk_device *device);

/* Starts the threads, once. Return: 0 or negative errno. */
int vk_queue_start(struct vk_device *device);
/* Ends them; nothing is in flight. Accepts a queue that was never started. */
void vk_queue_stop(struct vk_device *device);

/* submit.c: the submitting thread. */
void *vk_submitter_main(void *device);

/*
 * A submission is one or several tasks, small ones of one plan, with one value of the timeline. The
 * first of them knows how many, in executor_private[1]; value 0: the device does not see it.
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

/* Reactor: as in struct executor_ops. */
int vk_queue_submit(struct vk_device *device, struct exec_task *task);
void vk_queue_flush(struct vk_device *device);
unsigned int vk_queue_reap(struct vk_device *device, struct exec_task **ret, unsigned int max);

static inline bool vk_queue_is_dead(const struct vk_queue *queue)
{
	return atomic_load_explicit(&queue->dead, memory_order_acquire);
}
