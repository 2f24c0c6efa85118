#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Processor use and waits, from /proc and cgroups
 *
 * These functions parse texts of the kernel, parts of which are chosen by users: names of threads
 * and cgroups. Each takes @bytes of @text, which need no NUL at their end. It returns false,
 * leaving *ret untouched, if the figure is missing or is no number.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	PROC_MAX_PROCESSORS = 1024,
	PROC_MASK_WORDS = PROC_MAX_PROCESSORS / 64,
	PROC_TEXT_BYTES = 65536, /* buffer for any of these files */
	PROC_NAME_BYTES = 16,
};

/* schedstat of a task. */
struct proc_schedstat {
	uint64_t run_ns, wait_ns, n_waits;
};
bool proc_parse_schedstat(const char *text, size_t bytes, struct proc_schedstat *ret);

/* nonvoluntary_ctxt_switches of a task's status. */
bool proc_parse_involuntary(const char *text, size_t bytes, uint64_t *ret);

/* stat of a task. */
struct proc_task {
	char name[PROC_NAME_BYTES];
	/* since the machine's start; with its number it identifies the task */
	uint64_t start_ticks;
};
bool proc_parse_task(const char *text, size_t bytes, struct proc_task *ret);

/* "some" of a pressure file. */
bool proc_parse_pressure(const char *text, size_t bytes, uint64_t *ret_ns);

/* /proc/stat: the sum over the processors in @mask. Processors without a line are not counted. */
struct proc_stat {
	uint64_t idle_ns, busy_ns, steal_ns;
	uint32_t n_processors;
};
bool proc_parse_stat(const char *text, size_t bytes, const uint64_t mask[static PROC_MASK_WORDS],
		     uint64_t tick_ns, struct proc_stat *ret);

/*
 * A task's cgroup: the path in the unified hierarchy if @controller is NULL, otherwise in the
 * version 1 hierarchy with that controller.
 */
bool proc_parse_cgroup(const char *text, size_t bytes, const char *controller, char *ret,
		       size_t ret_bytes);

/* Get the path of this process's cgroup in the unified hierarchy. Return: false: unknown. */
bool proc_own_cgroup(char *ret, size_t bytes);

/* cpu.stat of a cgroup, of either version: time in which its quota throttled it. */
bool proc_parse_throttled(const char *text, size_t bytes, uint64_t *ret_ns);

/*
 * cpu.max of a cgroup, or its quota and period of version 1 in the same form: the processors that
 * it allows, in thousandths.
 * Return: false if there is no quota.
 */
bool proc_parse_quota(const char *text, size_t bytes, uint64_t *ret_thousandths);

/*
 * /proc/self/mounts: the mount point of the first "cgroup2" or, if @controller is not NULL, of the
 * "cgroup" with that controller.
 */
bool proc_parse_mounts(const char *text, size_t bytes, const char *controller, char *ret,
		       size_t ret_bytes);

/*
 * Read a file from its start, and add a NUL, which does not count.
 * Return: bytes in @ret; 0: the file is empty, or cannot be read.
 */
size_t proc_read_fd(int fd, char *ret, size_t bytes);
size_t proc_read(char *ret, size_t bytes, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
