#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Time as a thread has it that always wants a processor
 *
 * What is promised within some time is promised for a machine that has a processor for it. A thread
 * of the stopwatch computes as long as it runs, and what that was given is the time that it shows:
 * as much as any clock where processors are to be had, and less in proportion where others use them
 * too. Whoever waits for what does not come is told either way.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

struct stopwatch {
	pthread_t thread;
	clockid_t clock; /* of the thread */
	atomic_bool is_over;
};

/* Caller's storage, which must stay where it is until stopwatch_stop_ms(). */
void stopwatch_start(struct stopwatch *stopwatch);
double stopwatch_ms(const struct stopwatch *stopwatch);
/* Return: the time at the end. */
double stopwatch_stop_ms(struct stopwatch *stopwatch);
