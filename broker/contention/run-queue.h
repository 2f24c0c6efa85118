#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Who waits for a processor, and for whom
 *
 * Watches the run-queue delay of the broker's own threads and of its tenants' processes, and names
 * who ran instead. The best source that can be had is used, in this order:
 *
 *	ebpf       probes in the scheduler (bpf/): every delay, with its causer
 *	schedstat  /proc/PID/task/TID/schedstat and status: totals, preemptions, no causers
 *	psi        /proc/pressure/cpu and cpu.pressure of cgroups: how long somebody waited
 *	stat       /proc/stat: how busy the processors are, and with whom
 *	none
 *
 * A thread of its own ("rb-run-queue") does what takes time: finding the threads of those that are
 * watched, reading /proc, adding up, resolving names of cgroups, noticing that probes were detached
 * (then the next source is used, and said). The reactor reads totals with run_queue_read(): plain
 * loads from the probes' maps, or from what the thread has read last.
 *
 * Opens, loads and attaches in run_queue_new(), which is called before any other thread is started
 * and needs CAP_BPF and CAP_PERFMON, or root; run_queue_drop_privileges() then gives both up for
 * the calling thread and all that it starts. On kernels before 5.19 the thread "rb-run-queue" keeps
 * CAP_BPF, since only with it the map of tasks may be walked again.
 *
 * Where run-queue delay is told apart from what is none: time in which the processor was idle
 * (idle_wait_ns) is a cfs quota's throttling or a late wake-up; steal_ns is what the hypervisor
 * gave to others.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/cleanup.h"

struct run_queue;

enum run_queue_source {
	RUN_QUEUE_SOURCE_AUTO = 0, /* to ask for: the best that can be had */
	RUN_QUEUE_SOURCE_EBPF = 1,
	RUN_QUEUE_SOURCE_SCHEDSTAT = 2,
	RUN_QUEUE_SOURCE_PSI = 3,
	RUN_QUEUE_SOURCE_STAT = 4,
	RUN_QUEUE_SOURCE_NONE = 5,
};
/* "auto", "ebpf", "schedstat", "psi", "stat", "none". */
const char *run_queue_source_name(enum run_queue_source source);

enum {
	RUN_QUEUE_TOP = 3, /* causers told */
	RUN_QUEUE_WHY_BYTES = 256,
	RUN_QUEUE_NAME_BYTES = 16,
	RUN_QUEUE_PATH_BYTES = 128,
	RUN_QUEUE_NO_TENANT = UINT16_MAX,
};

struct run_queue_options {
	enum run_queue_source source; /* where to begin; sources below it are fallen back to */
	/*
	 * Where /proc and the unified cgroup hierarchy are; NULL: "/proc", and the one that is
	 * mounted. For tests.
	 */
	const char *proc_path;
	const char *cgroup_path;
};

/* Return: 0, *ret also where nothing can be watched (source none); negative errno. */
int run_queue_new(const struct run_queue_options *options, struct run_queue **ret);
/* Ends the thread; unloads the probes. Return: NULL. */
struct run_queue *run_queue_free(struct run_queue *rq);

/*
 * Gives up CAP_BPF and CAP_PERFMON (and CAP_SYS_RESOURCE, which memlock limits ask for before Linux
 * 5.11) for this thread and those that it starts, and what root has beside them and brokerd has no
 * use for: CAP_SYS_ADMIN, which would do for both, and those to change the machine. Return: 0 or
 * negative errno.
 */
int run_queue_drop_privileges(void);

enum run_queue_source run_queue_source(const struct run_queue *rq);
/*
 * Why no better source is used, and what would help; a sentence each, one per source that was tried
 * in vain, also of probes that were lost later. NULL beyond the last. Any thread; a string stays
 * until run_queue_free().
 */
const char *run_queue_sentence(const struct run_queue *rq, unsigned int i);

/* How much is going on; the reactor. Costs a load while it stays the same. */
enum run_queue_pace {
	RUN_QUEUE_PACE_IDLE,      /* nobody is there: nothing is read */
	RUN_QUEUE_PACE_SESSIONS,  /* reports once a second */
	RUN_QUEUE_PACE_BUSY,      /* tasks run: totals every 10 ms where they have to be read */
	RUN_QUEUE_PACE_CONTENDED, /* also reports, every 100 ms */
};
void run_queue_set_pace(struct run_queue *rq, enum run_queue_pace pace);

/* --- Whom to watch: the reactor; none of these blocks --- */

/*
 * A tenant's slot, for as long as it is watched; a slot given back is used anew with its figures at
 * 0. RUN_QUEUE_NO_TENANT: all are taken (counted in run_queue_totals.n_unwatched), or nothing can
 * be watched per tenant; it may be given to the functions below, which do nothing then.
 */
uint16_t run_queue_add_tenant(struct run_queue *rq);
void run_queue_remove_tenant(struct run_queue *rq, uint16_t tenant);

/*
 * All threads of a process, and what it starts from now on, are that tenant's, until
 * run_queue_unwatch_process(). @pidfd refers to it (SO_PEERPIDFD or pidfd_open()), -1: only @pid is
 * known. It is not kept: what is waiting to be watched holds no descriptor. Return: is it watched,
 * so that it has to be unwatched, as often? Else it has ended, or there is no room: then it is
 * counted as dropped. What is watched can always be unwatched.
 */
bool run_queue_watch_process(struct run_queue *rq, pid_t pid, int pidfd, uint16_t tenant);
void run_queue_unwatch_process(struct run_queue *rq, pid_t pid, uint16_t tenant);
/* So are all tasks that are or come into that cgroup (a path of the unified hierarchy) or below. */
bool run_queue_watch_cgroup(struct run_queue *rq, const char *path, uint16_t tenant);
void run_queue_unwatch_cgroup(struct run_queue *rq, const char *path, uint16_t tenant);

/* --- Totals, for placement: the reactor --- */

/* Cumulative; those of a delay or a stretch that goes on include it up to now. */
struct run_queue_totals {
	uint64_t at_ns;   /* CLOCK_MONOTONIC, of these figures */
	bool has_workers; /* the next four are known */
	uint64_t run_ns;  /* of all worker threads ("rb-cpu-N") together, on a processor */
	uint64_t wait_ns; /* run-queue delay because others ran */
	uint64_t n_preemptions;
	uint64_t idle_wait_ns; /* delay while the processor was idle, see above; 0: not known */
	bool has_processors;   /* the next three are: of those that workers may use, together */
	uint64_t idle_ns;
	uint64_t others_ns; /* used by who is not the broker */
	uint64_t steal_ns;
	uint32_t n_processors; /* those */
	bool has_stall;
	uint64_t stall_ns;    /* time in which somebody waited (PSI, "some") */
	uint64_t n_unwatched; /* tenants for which there was no slot */
	uint64_t n_dropped;   /* tasks that could not be watched */
};
void run_queue_read(struct run_queue *rq, struct run_queue_totals *ret);

/* Of what the broker's threads waited since the start, what this tenant's own tasks caused. */
uint64_t run_queue_caused_ns(struct run_queue *rq, uint16_t tenant);

/* --- Reports, for people --- */

enum run_queue_role { RUN_QUEUE_REACTOR, RUN_QUEUE_WORKER, RUN_QUEUE_OTHER };

struct run_queue_cause {
	char comm[RUN_QUEUE_NAME_BYTES];   /* unprintable bytes are replaced by '?' */
	char cgroup[RUN_QUEUE_PATH_BYTES]; /* path, or its last part if it is gone */
	pid_t pid;                         /* when it was first seen */
	uint16_t tenant;                   /* slot, or RUN_QUEUE_NO_TENANT */
	bool is_own;                       /* another thread of the broker */
	uint64_t wait_ns;                  /* that it made others wait */
	uint64_t n_preemptions;
};

/*
 * Of a thread or a tenant. Counts are since it is watched, or run_queue_reset(); percentiles, the
 * maximum and the causers are of the last ten seconds.
 */
struct run_queue_report {
	bool has_delays; /* percentiles, maximum, preemptions and causers are known */
	uint64_t run_ns, wait_ns, idle_wait_ns, n_waits;
	uint64_t n_preemptions, n_involuntary, n_throttled, n_migrations;
	uint64_t caused_ns; /* tenants: that the broker's threads waited because of it */
	uint64_t p50_ns, p99_ns, max_ns;
	/* By its cgroup's cpu.stat; 0 also if that cannot be had. */
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
 * The last report of thread @i, of a tenant, or of all worker threads together. Any thread; a copy
 * under a sequence lock. Return: false: there is none.
 */
bool run_queue_thread(const struct run_queue *rq, uint32_t i, struct run_queue_thread_report *ret);
bool run_queue_tenant(const struct run_queue *rq, uint16_t tenant, struct run_queue_report *ret);
bool run_queue_workers(const struct run_queue *rq, struct run_queue_report *ret);

/* Counts of reports begin anew, as seen from here on. Reactor. */
void run_queue_reset(struct run_queue *rq);

/* What the probes cost, if kernel.bpf_stats_enabled is set; 0: not known. */
struct run_queue_cost {
	uint64_t n_events, event_ns; /* together, of all probes */
};
void run_queue_cost(struct run_queue *rq, struct run_queue_cost *ret);

DEFINE_CLEANUP(struct run_queue *, run_queue_free)
