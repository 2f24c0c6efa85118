#pragma once
/* SPDX-License-Identifier: MIT */
/* Sleeping at a pace that another thread sets, and detecting a suspended machine */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * A pace, which one thread sets for another that sleeps by it. Paces are numbers; 0 is the slowest.
 */
struct pace {
	_Atomic uint32_t wanted;
	_Atomic uint32_t granted; /* pace the sleeper sleeps by; fastest: it is awake */
	uint32_t fastest;
	int fd; /* an eventfd; owned */
};

/*
 * Initialize; wanted is 0, the slowest.
 * Return: 0 or -errno.
 */
int pace_init(struct pace *pace, uint32_t fastest);
void pace_deinit(struct pace *pace);

/*
 * Set the pace. Setter thread; never blocks.
 * Return: true if the sleeper was woken.
 */
bool pace_set(struct pace *pace, uint32_t wanted);
/* End the sleep, whatever the pace. Any thread. */
void pace_interrupt(struct pace *pace);

/* Return the wanted pace. Sleeper thread. */
uint32_t pace_get(const struct pace *pace);
/*
 * Sleep for @ns (UINT64_MAX: no limit), or until the pace is faster than @granted. Sleeper thread.
 */
void pace_sleep(struct pace *pace, uint32_t granted, uint64_t ns);

/*
 * Detection of suspends: CLOCK_BOOTTIME advances while the machine is suspended, CLOCK_MONOTONIC
 * does not.
 */
struct suspend {
	int64_t most_ns; /* upper bound of the clocks' difference at the last look */
	bool has_looked;
};

/*
 * Compare @boot_ns, read between @before_ns and @after_ns of CLOCK_MONOTONIC, with the last call's.
 * Return: true if the machine has been suspended since the last call.
 */
bool suspend_step(struct suspend *suspend, uint64_t before_ns, uint64_t boot_ns, uint64_t after_ns);
/* Read the clocks and call suspend_step(). */
bool suspend_look(struct suspend *suspend);
