#pragma once
/* SPDX-License-Identifier: MIT */
/* Fake /proc: a folder with the files of /proc and of a cgroup hierarchy, for run_queue_options */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/clock.h"

extern char fake_proc[64];   /* path of the fake /proc */
extern char fake_cgroup[64]; /* path of the fake cgroup hierarchy */

/* cmocka fixtures: create new, empty folders; remove them. */
int fake_proc_set_up(void **state);
int fake_proc_tear_down(void **state);

/* Write a file below the parent of both folders, such as "proc/stat"; create missing folders. */
void fake_put(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fake_link(const char *target, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fake_remove(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Write proc/stat for @n processors, each with the given ticks. */
void fake_put_stat(unsigned int n, uint64_t busy, uint64_t idle, uint64_t steal);
/* Write a thread of this process: name, start time, schedstat and involuntary switches. */
void fake_put_thread(pid_t tid, const char *name, uint64_t start, uint64_t run_ns, uint64_t wait_ns,
		     uint64_t n_involuntary);
/* Link the calling thread's fake schedstat to its real one. */
void fake_link_own_schedstat(void);
/* Write a process with one thread. */
void fake_put_process(pid_t pid, const char *name, uint64_t start, uint64_t run_ns,
		      uint64_t wait_ns);

/* Sleep for 1 ms. */
void fake_moment(void);

/* Poll @condition every 1 ms, for at most 60 s. Include test.h before this header. */
#define WAIT_UNTIL(condition)                                                   \
	do {                                                                    \
		uint64_t start_ns_ = clock_now_ns();                            \
		while (!(condition)) {                                          \
			assert_true(clock_now_ns() - start_ns_ < 60000000000u); \
			fake_moment();                                          \
		}                                                               \
	} while (0)
