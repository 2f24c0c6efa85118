#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Run-queue delay, and its causers
 *
 * This module watches the run-queue delay of the broker's own threads and of its tenants'
 * processes, and names the tasks that ran instead. It uses the best available source, in this
 * order:
 *
 *	ebpf       probes in the scheduler (bpf/): every delay, with its causer
 *	schedstat  /proc/PID/task/TID/schedstat and status: totals, preemptions, no causers
 *	psi        /proc/pressure/cpu and cpu.pressure of cgroups: time in which some task waited
 *	stat       /proc/stat: how busy the processors are, and with which use
 *	none
 *
 * A separate thread ("rb-run-queue") does the slow work: it finds the threads of watched processes,
 * reads /proc, adds up, resolves names of cgroups, and notices that probes were detached (it then
 * uses the next source, and says so). The reactor reads totals with run_queue_read(): plain loads
 * from the probes' maps, or from the thread's last readings.
 *
 * run_queue_new() opens, loads and attaches the probes. It is called before any other thread is
 * started and needs CAP_BPF and CAP_PERFMON, or root; run_queue_drop_privileges() then drops both
 * for the calling thread and all threads that it starts. On kernels before 5.19 the thread
 * "rb-run-queue" keeps CAP_BPF, since walking the map of tasks again requires it.
 *
 * Two kinds of time are kept apart from run-queue delay caused by others: time in which the
 * processor was idle (idle_wait_ns) is a cfs quota's throttling or a late wake-up; steal_ns is time
 * that the hypervisor gave to other machines.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/cleanup.h"

struct run_queue;

enum run_queue_source {
	RUN_QUEUE_SOURCE_AUTO = 0, /* for options: the best available */
	RUN_QUEUE_SOURCE_EBPF = 1,
	RUN_QUEUE_SOURCE_SCHEDSTAT = 2,
	RUN_QUEUE_SOURCE_PSI = 3,
	RUN_QUEUE_SOURCE_STAT = 4,
	RUN_QUEUE_SOURCE_NONE = 5,
};
/* Return "auto", "ebpf", "schedstat", "psi", "stat" or "none". */
const char *run_queue_source_name(enum run_queue_source source);

enum {
	RUN_QUEUE_TOP = 3, /* causers per report */
	RUN_QUEUE_WHY_BYTES = 256,
	RUN_QUEUE_NAME_BYTES = 16,
	RUN_QUEUE_PATH_BYTES = 128,
	RUN_QUEUE_NO_TENANT = UINT16_MAX,
};

struct run_queue_options {
	enum run_queue_source source; /* first source to try; later sources are fallbacks */
	/*
	 * Mount points of /proc and of the unified cgroup hierarchy; NULL: "/proc", and the mounted
	 * hierarchy. For tests.
	 */
	const char *proc_path;
	const char *cgroup_path;
	/*
	 * Have the thread load the probes after a second, because the kernel verifies them for a
	 * tenth of a second; the next source serves until then.
	 */
	bool defers_probes;
};

/*
 * Create the watcher.
 * Return: 0, with *ret even if nothing can be watched (source none); negative errno.
 */
int run_queue_new(const struct run_queue_options *options, struct run_queue **ret);
/*
 * End the thread and unload the probes.
 * Return: NULL.
 */
struct run_queue *run_queue_free(struct run_queue *rq);

/*
 * Drop CAP_BPF and CAP_PERFMON (and CAP_SYS_RESOURCE, which memlock limits require before Linux
 * 5.11) for this thread and the threads that it starts. Also drop root's capabilities that brokerd
 * does not need: CAP_SYS_ADMIN, which implies both, and those to change the machine.
 * Return: 0 or negative errno.
 */
int run_queue_drop_privileges(void);

enum run_queue_source run_queue_source(const struct run_queue *rq);
/*
 * Return sentence @i on why no better source is used, and the remedy; NULL beyond the last. There
 * is one sentence per source that failed, also for probes that were lost later. Any thread; a
 * string stays valid until run_queue_free().
 */
const char *run_queue_sentence(const struct run_queue *rq, unsigned int i);

/* Rate of readings, by the amount of work. Reactor; costs a load while it is unchanged. */
enum run_queue_pace {
	RUN_QUEUE_PACE_IDLE,      /* no sessions: nothing is read */
	RUN_QUEUE_PACE_SESSIONS,  /* reports once a second */
	RUN_QUEUE_PACE_BUSY,      /* tasks run: totals every 10 ms if they have to be read */
	RUN_QUEUE_PACE_CONTENDED, /* as BUSY, and reports every 100 ms */
};
void run_queue_set_pace(struct run_queue *rq, enum run_queue_pace pace);

/* --- Processes to watch: the reactor; none of these blocks --- */

/*
 * Return a slot for a tenant to be watched. A slot that was removed is reused with its figures at
 * 0. RUN_QUEUE_NO_TENANT: all slots are taken (counted in run_queue_totals.n_unwatched), or tenants
 * cannot be watched; the functions below accept it and do nothing.
 */
uint16_t run_queue_add_tenant(struct run_queue *rq);
void run_queue_remove_tenant(struct run_queue *rq, uint16_t tenant);

/*
 * Count all threads of a process, and all processes that it starts from now on, for that tenant
 * until run_queue_unwatch_process(). @pidfd refers to the process (SO_PEERPIDFD or pidfd_open());
 * -1: only @pid is known. @pidfd is not kept, so pending requests hold no descriptors.
 * Return: true if the process is watched; it must then be unwatched as often. false if it has
 * ended, or if there is no room: then it is counted as dropped. Unwatching a watched process never
 * fails.
 */
bool run_queue_watch_process(struct run_queue *rq, pid_t pid, int pidfd, uint16_t tenant);
void run_queue_unwatch_process(struct run_queue *rq, pid_t pid, uint16_t tenant);
/*
 * Count all tasks in that cgroup (a path of the unified hierarchy) or below, now and later, for the
 * tenant.
 */
bool run_queue_watch_cgroup(struct run_queue *rq, const char *path, uint16_t tenant);
void run_queue_unwatch_cgroup(struct run_queue *rq, const char *path, uint16_t tenant);

/* --- Totals, for placement: the reactor --- */

/* Cumulative totals; a delay or run in progress counts up to now. */
struct run_queue_totals {
	uint64_t at_ns;   /* CLOCK_MONOTONIC time of these figures */
	bool has_workers; /* run_ns to idle_wait_ns are known */
	uint64_t run_ns;  /* sum over all worker threads ("rb-cpu-N"), time on a processor */
	uint64_t wait_ns; /* run-queue delay because others ran */
	uint64_t n_preemptions;
	uint64_t idle_wait_ns; /* delay while the processor was idle, see above; 0: unknown */
	bool has_processors;   /* idle_ns to n_processors are known */
	uint64_t idle_ns;      /* idle time of the processors that workers may use */
	uint64_t others_ns;    /* time used by other processes than the broker */
	uint64_t steal_ns;
	uint32_t n_processors; /* processors that workers may use */
	bool has_stall;
	uint64_t stall_ns;    /* time in which some task waited (PSI, "some") */
	uint64_t n_unwatched; /* tenants without a slot */
	uint64_t n_dropped;   /* tasks that could not be watched */
};
void run_queue_read(struct run_queue *rq, struct run_queue_totals *ret);

/*
 * Return the part of the delay of the broker's threads since the start that this tenant's tasks
 * caused.
 */
uint64_t run_queue_caused_ns(struct run_queue *rq, uint16_t tenant);

/* --- Reports, for people --- */

enum run_queue_role { RUN_QUEUE_REACTOR, RUN_QUEUE_WORKER, RUN_QUEUE_OTHER };

struct run_queue_cause {
	char comm[RUN_QUEUE_NAME_BYTES];   /* unprintable bytes are replaced by '?' */
	char cgroup[RUN_QUEUE_PATH_BYTES]; /* path, or its last part if the cgroup is gone */
	pid_t pid;                         /* process id when first seen */
	uint16_t tenant;                   /* slot, or RUN_QUEUE_NO_TENANT */
	bool is_own;                       /* another thread of the broker */
	uint64_t wait_ns;                  /* time that it made others wait */
	uint64_t n_preemptions;
};

/*
 * Report of a thread or a tenant. Counts are since it is watched, or run_queue_reset().
 * Percentiles, the maximum and the causers are of the last ten seconds.
 */
struct run_queue_report {
	bool has_delays; /* percentiles, maximum, preemptions and causers are known */
	uint64_t run_ns, wait_ns, idle_wait_ns, n_waits;
	uint64_t n_preemptions, n_involuntary, n_throttled, n_migrations;
	uint64_t caused_ns; /* tenants: delay of the broker's threads caused by the tenant */
	uint64_t p50_ns, p99_ns, max_ns;
	/* Throttling by its cgroup's cpu.stat; 0 also if unavailable. */
	uint64_t throttled_ns;
	uint32_t n_causes;
	struct run_queue_cause causes[RUN_QUEUE_TOP];
};

struct run_queue_thread_report {
	pid_t tid;
	enum run_queue_role role;
	char name[RUN_QUEUE_NAME_BYTES];
	struct run_queue_report report;
};

/*
 * Get the last report of thread @i, of a tenant, or of all worker threads together. Any thread; a
 * copy under a sequence lock.
 * Return: false if there is none.
 */
bool run_queue_thread(const struct run_queue *rq, uint32_t i, struct run_queue_thread_report *ret);
bool run_queue_tenant(const struct run_queue *rq, uint16_t tenant, struct run_queue_report *ret);
bool run_queue_workers(const struct run_queue *rq, struct run_queue_report *ret);

/* Restart the counts of reports from now. Reactor. */
void run_queue_reset(struct run_queue *rq);

/* Cost of the probes, if kernel.bpf_stats_enabled is set; 0: unknown. */
struct run_queue_cost {
	uint64_t n_events, event_ns; /* sums over all probes */
};
void run_queue_cost(struct run_queue *rq, struct run_queue_cost *ret);

DEFINE_CLEANUP(struct run_queue *, run_queue_free)
