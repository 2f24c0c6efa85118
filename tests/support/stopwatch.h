#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Processor time of a thread that always wants a processor
 *
 * Time limits in tests assume that a processor is free. The stopwatch's thread computes all the
 * time, and the stopwatch shows the thread's processor time. That is wall-clock time while
 * processors are free, and proportionally less while other programs use them. The thread always
 * makes some progress, so a wait for an event that never comes still ends.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

struct stopwatch {
	pthread_t thread;
	clockid_t clock; /* CPU clock of the thread */
	atomic_bool is_over;
};

/* Start a stopwatch. The caller's storage must not move until stopwatch_stop_ms(). */
void stopwatch_start(struct stopwatch *stopwatch);
double stopwatch_ms(const struct stopwatch *stopwatch);
/*
 * Stop the stopwatch.
 * Return: the milliseconds at the end.
 */
double stopwatch_stop_ms(struct stopwatch *stopwatch);
