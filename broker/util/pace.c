/* SPDX-License-Identifier: MIT */
/*
 * Waking a sleeper only if it would oversleep
 *
 * The reactor changes the pace whenever a task is admitted or the last task has completed,
 * thousands of times a second. A system call each time would be too expensive. So the sleeper
 * publishes the pace it sleeps by, and is woken only if the new pace is faster. Then it recomputes
 * its timeout and sleeps for the rest, so that there is at most one wake per sample. The fences
 * pair with each other: either the setter sees the granted pace, or the sleeper sees the new pace
 * before it sleeps.
 */
#include "util/pace.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"

int pace_init(struct pace *pace, uint32_t fastest)
{
	atomic_init(&pace->wanted, 0);
	atomic_init(&pace->granted, fastest);
	pace->fastest = fastest;
	pace->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return pace->fd < 0 ? error_origin(-errno) : 0;
}

void pace_deinit(struct pace *pace)
{
	pace->fd = close_fd(pace->fd);
}

void pace_interrupt(struct pace *pace)
{
	const uint64_t one = 1;

	/* The eventfd's counter cannot be full; a full counter would be readable anyway. */
	while (write(pace->fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

bool pace_set(struct pace *pace, uint32_t wanted)
{
	uint32_t granted;

	if (atomic_load_explicit(&pace->wanted, memory_order_relaxed) == wanted)
		return false;
	atomic_store_explicit(&pace->wanted, wanted, memory_order_relaxed);
	/* Pairs with the fence in pace_sleep(). */
	atomic_thread_fence(memory_order_seq_cst);
	granted = atomic_load_explicit(&pace->granted, memory_order_relaxed);
	if (granted >= wanted ||
	    !atomic_compare_exchange_strong_explicit(&pace->granted, &granted, wanted,
						     memory_order_relaxed, memory_order_relaxed))
		return false;
	pace_interrupt(pace);
	return true;
}

uint32_t pace_get(const struct pace *pace)
{
	return atomic_load_explicit(&pace->wanted, memory_order_relaxed);
}

void pace_sleep(struct pace *pace, uint32_t granted, uint64_t ns)
{
	const struct timespec timeout = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
	struct pollfd pollfd = {.fd = pace->fd, .events = POLLIN};
	uint64_t count;

	atomic_store_explicit(&pace->granted, granted, memory_order_relaxed);
	/* Pairs with the fence in pace_set(). */
	atomic_thread_fence(memory_order_seq_cst);
	if (pace_get(pace) <= granted)
		ppoll(&pollfd, 1, ns == UINT64_MAX ? NULL : &timeout, NULL);
	atomic_store_explicit(&pace->granted, pace->fastest, memory_order_relaxed);
	/* If the setter has yet to write, one sleep will be too short. */
	while (read(pace->fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

bool suspend_step(struct suspend *suspend, uint64_t before_ns, uint64_t boot_ns, uint64_t after_ns)
{
	/* The difference lies between these two, however long the readings were interrupted. */
	int64_t least_ns = (int64_t)(boot_ns - after_ns), most_ns = (int64_t)(boot_ns - before_ns);
	bool was_suspended = suspend->has_looked && least_ns > suspend->most_ns;

	if (!suspend->has_looked || was_suspended || most_ns < suspend->most_ns)
		suspend->most_ns = most_ns;
	suspend->has_looked = true;
	return was_suspended;
}

bool suspend_look(struct suspend *suspend)
{
	const uint64_t before_ns = clock_now_ns(), boot_ns = clock_boot_ns();

	return suspend_step(suspend, before_ns, boot_ns, clock_now_ns());
}
