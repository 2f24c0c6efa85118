#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The waiting thread, awake when it will be needed
 *
 * A thread that sleeps until the device signals is late by what the signal and the wake-up take: 20
 * us on an H100, where a small task takes 11. And a task that comes while the submitting thread
 * sleeps waits until that thread has woken up. So, where a processor is left (executor.may_poll)
 * and the device takes none itself, the waiting thread polls at two moments:
 *
 * - It rises shortly before a submission's predicted end, and polls until the end. How long before:
 *   by as much as its own sleeps were too long and ends came too early. It sleeps again once the
 *   end is late by what a sleep costs.
 * - After the last end it watches the reactor's queue for as long, if the last task came that soon
 *   after the one before it. What comes then it submits itself. The submitting thread sleeps on.
 *
 * So a task of 1 ms costs some microseconds of polling, and a GPU that is used now and then none.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct exec_task;
struct vk_device;

/* A part of struct vk_queue; the waiting thread's unless a comment says otherwise. */
struct vk_awake {
	uint64_t lag_ticks;   /* time by which a sleep until shortly before an end takes too long */
	uint64_t early_ticks; /* time by which submissions end before their prediction */
	bool comes_soon;      /* the last task came soon after the end of the one before */
	bool is_due;          /* a submission has ended since the last vk_awake_watch() */
	_Atomic bool is_watching; /* read by the reactor: tasks need no wake-up */
	uint64_t n_submitted;     /* submissions that the thread made itself */
};

/* Say that the thread watches the reactor's queue. */
static inline void vk_awake_begin_watch(struct vk_awake *awake)
{
	atomic_store_explicit(&awake->is_watching, true, memory_order_relaxed);
}

/* Say that it stops, before it looks at the queue for the last time. */
static inline void vk_awake_end_watch(struct vk_awake *awake)
{
	atomic_store_explicit(&awake->is_watching, false, memory_order_relaxed);
	/* Pairs with the fence in vk_awake_is_watching(): see tasks without a wake-up. */
	atomic_thread_fence(memory_order_seq_cst);
}

/*
 * Return true if the thread sees the tasks that were queued before this call, so that they need no
 * wake-up. Reactor.
 */
static inline bool vk_awake_is_watching(const struct vk_awake *awake)
{
	/* Pairs with the fence in vk_awake_end_watch(). */
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&awake->is_watching, memory_order_relaxed);
}

/*
 * Pass the time until a submission of @n tasks has ended, or is too late for polling, or until a
 * moment at which a sleep takes no longer than the rest. The caller waits for it all the same.
 * @value: its timeline value.
 */
void vk_awake_until_end(struct vk_device *device, struct exec_task *const *tasks, unsigned int n,
			uint64_t value);

/* Note how long after the end of the last submission the newest task came. */
void vk_awake_note_gap(struct vk_device *device);

/*
 * With nothing to wait for: watch the reactor's queue for a moment, if a task is likely to come,
 * and submit what comes. Call it before the thread sleeps.
 * Return: true if the caller may have something to wait for.
 */
bool vk_awake_watch(struct vk_device *device);
