/* SPDX-License-Identifier: MIT */
/*
 * util/waker.h: the reactor takes items from a queue and sleeps; another thread queues items. The
 * reactor does not sleep beside an item. Its eventfd is replaced below.
 */
#include <unistd.h>

#include "models/weak-memory.h"
#include "models/weak-scenarios.h"
#include "util/spsc.h"
#include "util/waker.h"

enum { N_ITEMS = 2 };

static void *slots[N_ITEMS];
static struct spsc queue;
static struct waker waker;
static struct weak_bell eventfd_bell;
static int item;

ssize_t write(int fd, const void *bytes, size_t n)
{
	weak_check(fd == waker.fd);
	weak_bell_ring(&eventfd_bell);
	return (ssize_t)n;
}

ssize_t read(int fd, void *bytes, size_t n)
{
	weak_check(fd == waker.fd);
	return weak_bell_hear(&eventfd_bell, false) ? (ssize_t)n : -1;
}

static void set_up(void)
{
	queue = (struct spsc){.mask = N_ITEMS - 1, .slots = slots};
	waker = (struct waker){.fd = 100};
	eventfd_bell = (struct weak_bell){0};
}

static void queue_items(void)
{
	for (unsigned int i = 0; i < N_ITEMS; i++) {
		weak_check(spsc_push(&queue, &item));
		waker_ring(&waker);
	}
}

/* As the loop: poll, arm, poll once more, sleep until the eventfd is readable, disarm. */
static void react(void)
{
	unsigned int n = 0;

	while (n < N_ITEMS) {
		if (spsc_pop(&queue)) {
			n++;
			continue;
		}
		waker_arm(&waker);
		if (spsc_pop(&queue)) {
			n++;
		} else {
			weak_bell_hear(&eventfd_bell, true);
			/* The loop polls the descriptor, and does not read it. */
			eventfd_bell.n_bytes = 1;
		}
		waker_disarm(&waker);
	}
}

const struct weak_scenario weak_waker = {
	.name = "waker",
	.n_threads = 2,
	.names = (const struct weak_name[]){{&waker.armed, "armed"},
					    {&queue.tail, "tail"},
					    {&queue.head, "head"},
					    {&eventfd_bell, "eventfd"},
					    {NULL, NULL}},
	.set_up = set_up,
	.threads = {queue_items, react},
};
