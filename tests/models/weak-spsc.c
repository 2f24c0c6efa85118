/* SPDX-License-Identifier: MIT */
/* util/spsc.h: items and what they point to arrive once, in order, also through a full queue. */
#include "models/weak-scenarios.h"
#include "models/weak-memory.h"
#include "util/spsc.h"

enum { N_SLOTS = 2, N_ITEMS = 3 };

static void *slots[N_SLOTS];
static struct spsc queue;
static unsigned int items[N_ITEMS];

static void set_up(void)
{
	queue = (struct spsc){.mask = N_SLOTS - 1, .slots = slots};
	for (unsigned int i = 0; i < N_ITEMS; i++)
		items[i] = 0;
}

static void produce(void)
{
	for (unsigned int i = 0; i < N_ITEMS; i++) {
		items[i] = i + 1;
		while (!spsc_push(&queue, &items[i]))
			weak_wait_for_news();
	}
}

static void consume(void)
{
	const unsigned int *item;

	for (unsigned int i = 0; i < N_ITEMS; i++) {
		while (!(item = spsc_pop(&queue)))
			weak_wait_for_news();
		weak_check(item == &items[i] && *item == i + 1);
	}
	weak_check(!spsc_pop(&queue));
}

static const struct weak_name names[] = {
	{&queue.tail, "tail"}, {&queue.head, "head"}, {NULL, NULL}};

const struct weak_scenario weak_spsc = {
	.name = "spsc",
	.n_threads = 2,
	.names = names,
	.set_up = set_up,
	.threads = {produce, consume},
};
