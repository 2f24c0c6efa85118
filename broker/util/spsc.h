#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Single-producer, single-consumer queues of pointers
 *
 * Tasks pass through such queues between the reactor and one executor thread. A queue is bounded,
 * allocated once, and has no locks. Each side keeps a private copy of the other's index and
 * refreshes it only when it has to.
 */
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

struct spsc {
	alignas(128) _Atomic uint32_t tail; /* written by the producer */
	uint32_t tail_private;
	uint32_t head_seen;
	alignas(128) _Atomic uint32_t head; /* written by the consumer */
	uint32_t head_private;
	uint32_t tail_seen;
	alignas(128) void **slots;
	uint32_t mask;
};

/*
 * Initialize; @n_slots is a power of two.
 * Return: false if out of memory.
 */
static inline bool spsc_init(struct spsc *queue, uint32_t n_slots)
{
	*queue = (struct spsc){.mask = n_slots - 1};
	queue->slots = calloc(n_slots, sizeof(*queue->slots));
	return queue->slots != NULL;
}

static inline void spsc_deinit(struct spsc *queue)
{
	free(queue->slots);
	queue->slots = NULL;
}

/*
 * Push an item. Producer.
 * Return: false if full.
 */
static inline bool spsc_push(struct spsc *queue, void *item)
{
	if (queue->tail_private - queue->head_seen > queue->mask) {
		/* Pairs with the release in spsc_pop(): the slot is free. */
		queue->head_seen = atomic_load_explicit(&queue->head, memory_order_acquire);
		if (queue->tail_private - queue->head_seen > queue->mask)
			return false;
	}
	queue->slots[queue->tail_private++ & queue->mask] = item;
	/* Pairs with the acquire in spsc_pop(): the item is visible. */
	atomic_store_explicit(&queue->tail, queue->tail_private, memory_order_release);
	return true;
}

/* Return the number of items that can be pushed at least. Producer. */
static inline uint32_t spsc_room(struct spsc *queue)
{
	/* Pairs with the release in spsc_pop(): the counted slots are free. */
	queue->head_seen = atomic_load_explicit(&queue->head, memory_order_acquire);
	return queue->mask + 1 - (queue->tail_private - queue->head_seen);
}

/*
 * Pop the oldest item. Consumer.
 * Return: NULL if empty.
 */
static inline void *spsc_pop(struct spsc *queue)
{
	void *item;

	if (queue->head_private == queue->tail_seen) {
		queue->tail_seen = atomic_load_explicit(&queue->tail, memory_order_acquire);
		if (queue->head_private == queue->tail_seen)
			return NULL;
	}
	item = queue->slots[queue->head_private++ & queue->mask];
	atomic_store_explicit(&queue->head, queue->head_private, memory_order_release);
	return item;
}

/*
 * Return true if there is an item that the consumer has not popped. Any thread; the answer may be
 * old, and nothing is ordered by it.
 */
static inline bool spsc_has_items(const struct spsc *queue)
{
	return atomic_load_explicit(&queue->tail, memory_order_relaxed) !=
	       atomic_load_explicit(&queue->head, memory_order_relaxed);
}
