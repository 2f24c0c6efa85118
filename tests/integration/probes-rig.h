#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Processes that compete for a processor, and cgroups for them, for tests of the scheduler probes
 *
 * All run on one processor, the last one that the test may use. Each process dies with the test,
 * and by itself after two minutes. For cmocka tests: an error in these functions fails the running
 * test.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "contention/probes.h"

/* Pin this thread and its future children to one processor. Return: the processor's number. */
int rig_pin(void);

/*
 * Load the probes. Ends the program with status 1 if the probes should work here and do not.
 * Return: NULL, with the reason printed, if the test is to be skipped.
 */
struct probes *rig_probes(void);

/* Return the processor time of a process, in ns. */
uint64_t rig_cpu_ns(pid_t pid);

/* Commands to a process. */
enum rig_what {
	RIG_WAIT,    /* wait for the next command */
	RIG_SPIN,    /* compute */
	RIG_THREADS, /* compute in two more threads */
	RIG_FORK,    /* compute in a child, which ends with the process */
	RIG_BRIEF,   /* compute for two milliseconds in one child after the other */
};

struct rig_process {
	pid_t pid;
	int fd; /* for commands */
};

/* Start a process that waits. @name may contain any byte but 0; NULL: a plain name. */
void rig_start(struct rig_process *process, const char *name);
void rig_tell(const struct rig_process *process, enum rig_what what);
/* Kill the process with SIGKILL and wait for its end. Does nothing if it did not run. */
void rig_end(struct rig_process *process);

/* A cgroup in the unified hierarchy. */
struct rig_cgroup {
	char path[256];
	uint64_t id; /* 0: none */
};

/* Make a cgroup. @parent may be NULL. Return: false if cgroups cannot be made here. */
bool rig_cgroup_make(struct rig_cgroup *cgroup, const struct rig_cgroup *parent, const char *name);
void rig_cgroup_enter(const struct rig_cgroup *cgroup, pid_t pid);
/* Remove the cgroup once it is empty. Does nothing if there is none. */
void rig_cgroup_remove(struct rig_cgroup *cgroup);

/*
 * Throttle a process after a tenth of each period. Return: false if cgroups with the cpu controller
 * cannot be made here.
 */
bool rig_throttle(struct rig_cgroup *cgroup, pid_t pid);

/*
 * Compute and sleep in turns for about a millisecond each, so that this thread waits for other
 * threads.
 */
void rig_work(void);

/* Return true during the first half minute of waiting; then fail the test. See rig_until(). */
bool rig_may_go_on(uint64_t *since_ns);
/* Repeat @what until @condition holds, for half a minute at most. */
#define rig_until(condition, what)                                    \
	do {                                                          \
		uint64_t rig_since_ns_ = 0;                           \
		while (!(condition) && rig_may_go_on(&rig_since_ns_)) \
			what;                                         \
		assert_true(condition);                               \
	} while (0)

/* Sums over all processors. */
struct rig_sum {
	uint64_t run_ns, wait_ns, idle_wait_ns, n_throttled, n_preemptions, n_involuntary,
		caused_ns;
};
struct rig_sum rig_tenant(const struct probes *probes, uint16_t tenant);

/*
 * Find a causer by its command name. @cgroup 0: any cgroup. Return: NULL if the record has no such
 * causer.
 */
const struct run_queue_causer *rig_causer(const struct run_queue_record *record, const char *comm,
					  uint64_t cgroup);
