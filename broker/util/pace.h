#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Sleeping by a pace that another thread sets, and what a clock says of a suspended machine
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * The pace, set by one thread for another that sleeps by it: numbers, the slowest is 0.
 */
struct pace {
	_Atomic uint32_t wanted;
	_Atomic uint32_t granted; /* what the sleeper has reckoned with; the fastest: it is awake */
	uint32_t fastest;
	int fd; /* an eventfd; owned */
};

/* Wanted is the slowest at first. Return: 0 or -errno. */
int pace_init(struct pace *pace, uint32_t fastest);
void pace_deinit(struct pace *pace);

/* The setter; never blocks. Return: was the sleeper woken? */
bool pace_set(struct pace *pace, uint32_t wanted);
/* Any thread: ends the sleep, whatever the pace. */
void pace_interrupt(struct pace *pace);

/* The sleeper. */
uint32_t pace_get(const struct pace *pace);
/* Sleeps for @ns, UINT64_MAX: without end, or until the pace is faster than @granted. */
void pace_sleep(struct pace *pace, uint32_t granted, uint64_t ns);

/*
 * CLOCK_BOOTTIME goes on while the machine is suspended and CLOCK_MONOTONIC does not.
 */
struct suspend {
	int64_t most_ns; /* the difference at the last look, at most */
	bool has_looked;
};

/*
 * @boot_ns was read after @before_ns and before @after_ns, which are of CLOCK_MONOTONIC. Return:
 * has the machine been suspended since the last call?
 */
bool suspend_step(struct suspend *suspend, uint64_t before_ns, uint64_t boot_ns, uint64_t after_ns);
/* The same, reading the clocks. */
bool suspend_look(struct suspend *suspend);
