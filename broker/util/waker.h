#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Waking the reactor from the broker's own threads
 *
 * A waker is a flag and an eventfd that only the broker holds. A thread that has queued an item
 * calls waker_ring(), which costs a fence and a load while the reactor is awake. The reactor calls
 * waker_arm() before it checks the queues for the last time and sleeps, and waker_disarm()
 * afterwards.
 */
#include <stdatomic.h>
#include <stdint.h>

struct waker {
	_Atomic uint32_t armed;
	int fd; /* readable when rung; owned */
};

/*
 * Initialize.
 * Return: 0 or -errno.
 */
int waker_init(struct waker *waker);
void waker_deinit(struct waker *waker);

/* Reactor only. After arming, check every queue again before sleeping. */
void waker_arm(struct waker *waker);
void waker_disarm(struct waker *waker);

/* Wake the reactor if it sleeps. Any thread, after its item is visible in the queue. */
void waker_ring(struct waker *waker);
