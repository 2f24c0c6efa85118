/* SPDX-License-Identifier: MIT */
/*
 * Waking the reactor: see waker.h. The fences pair with each other: either side sees the other's
 * write.
 */
#include "util/waker.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/error.h"

int waker_init(struct waker *waker)
{
	atomic_init(&waker->armed, 0);
	waker->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return waker->fd < 0 ? error_origin(-errno) : 0;
}

void waker_deinit(struct waker *waker)
{
	waker->fd = close_fd(waker->fd);
}

void waker_arm(struct waker *waker)
{
	atomic_store_explicit(&waker->armed, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
}

void waker_disarm(struct waker *waker)
{
	uint64_t count;

	/*
	 * The thread that took the flag writes the eventfd; if it has yet to, one spurious wake
	 * follows.
	 */
	if (atomic_exchange_explicit(&waker->armed, 0, memory_order_acq_rel) == 0)
		while (read(waker->fd, &count, sizeof(count)) < 0 && errno == EINTR)
			;
}

void waker_ring(struct waker *waker)
{
	const uint64_t one = 1;

	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&waker->armed, memory_order_relaxed) == 0)
		return;
	if (atomic_exchange_explicit(&waker->armed, 0, memory_order_acq_rel) == 0)
		return;
	while (write(waker->fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}
