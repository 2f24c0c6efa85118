/* SPDX-License-Identifier: MIT */
/*
 * vulkan/awake.h: the reactor queues tasks, and wakes the submitting thread unless the waiting
 * thread watches the queue. The waiting thread watches for a moment, and looks once more when it
 * has stopped. No task stays in the queue. A thread that looks after it was woken stands for the
 * submitting thread.
 */
#include "models/weak-memory.h"
#include "models/weak-scenarios.h"
#include "util/spsc.h"
#include "vulkan/awake.h"

enum { N_TASKS = 2, N_LOOKS = 2 };

static void *slots[N_TASKS];
static struct spsc queue;
static struct vk_awake awake;
static struct weak_bell work;
static int task;

static void set_up(void)
{
	queue = (struct spsc){.mask = N_TASKS - 1, .slots = slots};
	awake = (struct vk_awake){0};
	work = (struct weak_bell){0};
}

/* As vk_queue_submit() and vk_queue_flush() */
static void submit(void)
{
	for (unsigned int i = 0; i < N_TASKS; i++) {
		weak_check(spsc_push(&queue, &task));
		if (!vk_awake_is_watching(&awake))
			weak_bell_ring(&work);
	}
}

static unsigned int take(void)
{
	unsigned int n = 0;

	while (spsc_pop(&queue))
		n++;
	return n;
}

static void watch(void)
{
	unsigned int n = 0;

	vk_awake_begin_watch(&awake);
	for (unsigned int i = 0; i < N_LOOKS && !spsc_has_items(&queue); i++)
		;
	vk_awake_end_watch(&awake);
	if (spsc_has_items(&queue))
		n = take();
	while (n < N_TASKS) {
		weak_bell_hear(&work, true);
		n += take();
	}
}

const struct weak_scenario weak_awake = {
	.name = "awake",
	.n_threads = 2,
	.names = (const struct weak_name[]){{&awake.is_watching, "watching"},
					    {&queue.tail, "tail"},
					    {&queue.head, "head"},
					    {&work, "work"},
					    {NULL, NULL}},
	.set_up = set_up,
	.threads = {submit, watch},
};
