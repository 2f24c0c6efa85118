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
static int item;

struct waker weak_waker_object;
struct weak_bell weak_eventfd;

ssize_t write(int fd, const void *bytes, size_t n)
{
	weak_check(fd == WEAK_EVENTFD);
	weak_bell_ring(&weak_eventfd);
	return (ssize_t)n;
}

ssize_t read(int fd, void *bytes, size_t n)
{
	weak_check(fd == WEAK_EVENTFD);
	return (ssize_t)n;
}

void weak_waker_reset(void)
{
	weak_waker_object = (struct waker){.fd = WEAK_EVENTFD};
	weak_eventfd = (struct weak_bell){0};
}

/* The loop's multishot poll has one event for each write, whether the eventfd is read or not. */
void weak_waker_sleep(void)
{
	weak_bell_hear(&weak_eventfd, true);
}

static void set_up(void)
{
	queue = (struct spsc){.mask = N_ITEMS - 1, .slots = slots};
	weak_waker_reset();
}

static void queue_items(void)
{
	for (unsigned int i = 0; i < N_ITEMS; i++) {
		weak_check(spsc_push(&queue, &item));
		waker_ring(&weak_waker_object);
	}
}

/* The loop polls, arms, polls once more, sleeps until the eventfd is written, and disarms. */
static void react(void)
{
	unsigned int n = 0;

	while (n < N_ITEMS) {
		if (spsc_pop(&queue)) {
			n++;
			continue;
		}
		waker_arm(&weak_waker_object);
		if (spsc_pop(&queue))
			n++;
		else
			weak_waker_sleep();
		waker_disarm(&weak_waker_object);
	}
}

const struct weak_scenario weak_waker = {
	.name = "waker",
	.n_threads = 2,
	.names = (const struct weak_name[]){{&weak_waker_object.armed, "armed"},
					    {&queue.tail, "tail"},
					    {&queue.head, "head"},
					    {&weak_eventfd, "eventfd"},
					    {NULL, NULL}},
	.set_up = set_up,
	.threads = {queue_items, react},
};
