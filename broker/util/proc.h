#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What /proc and cgroups say of processors and of who waits for them
 *
 * Parsers of texts of the kernel's, in parts of which others have a say: names of threads and
 * cgroups. Each takes @bytes of @text, which need no NUL at their end, and returns false, leaving
 * *ret untouched, if what it looks for is not there or is no number.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	PROC_MAX_PROCESSORS = 1024,
	PROC_MASK_WORDS = PROC_MAX_PROCESSORS / 64,
	PROC_TEXT_BYTES = 65536, /* of any of these files that is read */
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
	uint64_t start_ticks; /* after the machine's start; with its number, what it is known by */
};
bool proc_parse_task(const char *text, size_t bytes, struct proc_task *ret);

/* "some" of a pressure file. */
bool proc_parse_pressure(const char *text, size_t bytes, uint64_t *ret_ns);

/* /proc/stat: all processors in @mask together. Those that are not listed are not counted. */
struct proc_stat {
	uint64_t idle_ns, busy_ns, steal_ns;
	uint32_t n_processors;
};
bool proc_parse_stat(const char *text, size_t bytes, const uint64_t mask[static PROC_MASK_WORDS],
		     uint64_t tick_ns, struct proc_stat *ret);

/*
 * A task's cgroup: the path in the unified hierarchy if @controller is NULL, else where the first
 * version's hierarchy with that controller has it.
 */
bool proc_parse_cgroup(const char *text, size_t bytes, const char *controller, char *ret,
		       size_t ret_bytes);

/* cpu.stat of a cgroup: time in which its quota held it back, of either version. */
bool proc_parse_throttled(const char *text, size_t bytes, uint64_t *ret_ns);

/*
 * /proc/self/mounts: where the first "cgroup2" is mounted, or, if @controller is not NULL, the
 * "cgroup" with it.
 */
bool proc_parse_mounts(const char *text, size_t bytes, const char *controller, char *ret,
		       size_t ret_bytes);

/*
 * Reads from the start. Return: bytes in @ret; 0: there is nothing, or it cannot be read. With an
 * end of NUL, which does not count.
 */
size_t proc_read_fd(int fd, char *ret, size_t bytes);
size_t proc_read(char *ret, size_t bytes, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
