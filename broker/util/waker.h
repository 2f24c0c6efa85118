#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Waking the reactor from the broker's own threads
 *
 * One eventfd that only the broker holds and a flag: a thread that has put something into a queue
 * calls waker_ring(), which costs a fence and a load while the reactor is awake. The reactor calls
 * waker_arm() before it looks at the queues for the last time and sleeps, waker_disarm() after.
 */
#include <stdatomic.h>
#include <stdint.h>

struct waker {
	_Atomic uint32_t armed;
	int fd; /* readable when rung; owned */
};

/* Return: 0 or -errno. */
int waker_init(struct waker *waker);
void waker_deinit(struct waker *waker);

/* Reactor only. After arming, look at every queue again before sleeping. */
void waker_arm(struct waker *waker);
void waker_disarm(struct waker *waker);

/* Any thread, after its item is visible in the queue. */
void waker_ring(struct waker *waker);
