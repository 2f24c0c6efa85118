#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A folder with files as /proc and a cgroup hierarchy have them, for run_queue_options
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/clock.h"

extern char fake_proc[64];   /* where it is */
extern char fake_cgroup[64]; /* another folder beside it */

/* For cmocka: a new one, with nothing in it; away with it. */
int fake_proc_set_up(void **state);
int fake_proc_tear_down(void **state);

/* A file below the folder of both, "proc/stat", with the folders on its way. */
void fake_put(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fake_link(const char *target, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fake_remove(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* proc/stat, of @n processors with those ticks each. */
void fake_put_stat(unsigned int n, uint64_t busy, uint64_t idle, uint64_t steal);
/* A thread of this process: its name, when it was started, schedstat and involuntary switches. */
void fake_put_thread(pid_t tid, const char *name, uint64_t start, uint64_t run_ns, uint64_t wait_ns,
		     uint64_t n_involuntary);
/* Has the calling thread's own schedstat be the real one. */
void fake_link_own_schedstat(void);
/* A process with one thread. */
void fake_put_process(pid_t pid, const char *name, uint64_t start, uint64_t run_ns,
		      uint64_t wait_ns);

/* A millisecond. */
void fake_moment(void);

/* Asks again and again, for as long as a test may take; include test.h before. */
#define WAIT_UNTIL(condition)                                                   \
	do {                                                                    \
		uint64_t start_ns_ = clock_now_ns();                            \
		while (!(condition)) {                                          \
			assert_true(clock_now_ns() - start_ns_ < 60000000000u); \
			fake_moment();                                          \
		}                                                               \
	} while (0)
