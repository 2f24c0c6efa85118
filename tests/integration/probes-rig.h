#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Processes that compete for a processor, and cgroups for them, for tests of the scheduler probes
 *
 * All run on one processor, the last one that the test may use. A hog dies with the test, and by
 * itself after two minutes. For cmocka tests: what goes wrong in here fails the running test.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "contention/probes.h"

/* This thread and what it starts run on one processor only. Return: its number. */
int rig_pin(void);

/*
 * The probes. Return: NULL, and the reason is printed: the test is to be skipped. Where they should
 * work and do not, the program ends with status 1.
 */
struct probes *rig_probes(void);

/* A processor's time that a process has used. */
uint64_t rig_cpu_ns(pid_t pid);

/* What a process can be told to do. */
enum rig_what {
	RIG_WAIT,    /* nothing until it is told something else */
	RIG_SPIN,    /* compute */
	RIG_THREADS, /* two more threads compute */
	RIG_FORK,    /* a child computes, which ends with it */
	RIG_BRIEF,   /* one child after the other computes for two milliseconds */
};

struct rig_process {
	pid_t pid;
	int fd; /* to tell it */
};

/* A process that waits. @name may hold anything but 0; NULL: a plain one. */
void rig_start(struct rig_process *process, const char *name);
void rig_tell(const struct rig_process *process, enum rig_what what);
/* SIGKILL, and waits for its end; nothing if it did not run. */
void rig_end(struct rig_process *process);

/* A cgroup in the unified hierarchy. */
struct rig_cgroup {
	char path[256];
	uint64_t id; /* 0: there is none */
};

/* Return: false: that may not be had here. @parent may be NULL. */
bool rig_cgroup_make(struct rig_cgroup *cgroup, const struct rig_cgroup *parent, const char *name);
void rig_cgroup_enter(const struct rig_cgroup *cgroup, pid_t pid);
/* When it is empty; nothing if there is none. */
void rig_cgroup_remove(struct rig_cgroup *cgroup);

/*
 * Has a process throttled after a tenth of each period. Return: false: cgroups with the cpu
 * controller may not be had here.
 */
bool rig_throttle(struct rig_cgroup *cgroup, pid_t pid);

/* Computes and sleeps in turns for about a millisecond each, so that it has to wait for others. */
void rig_work(void);

/* Ends the test after half a minute of waiting; see rig_until(). */
bool rig_may_go_on(uint64_t *since_ns);
/* Until @condition holds, half a minute at most, doing @what in the meantime. */
#define rig_until(condition, what)                                    \
	do {                                                          \
		uint64_t rig_since_ns_ = 0;                           \
		while (!(condition) && rig_may_go_on(&rig_since_ns_)) \
			what;                                         \
		assert_true(condition);                               \
	} while (0)

/* Of all processors together. */
struct rig_sum {
	uint64_t run_ns, wait_ns, idle_wait_ns, n_throttled, n_preemptions, n_involuntary,
		caused_ns;
};
struct rig_sum rig_tenant(const struct probes *probes, uint16_t tenant);

/* NULL: it is not among them. @cgroup 0: any. */
const struct run_queue_causer *rig_causer(const struct run_queue_record *record, const char *comm,
					  uint64_t cgroup);
