#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Statistics pages: waiting for a processor, a part of <ringbroker/stats.h>, which explains how
 * records are read
 */
#include <stdint.h>

#define RBK_STATS_COMM_BYTES     16  /* comm of a process, with the NUL */
#define RBK_STATS_CGROUP_BYTES   128 /* a cgroup's path, cut, with the NUL */
#define RBK_STATS_MAX_CAUSES     3
#define RBK_STATS_MAX_SENTENCES  6
#define RBK_STATS_SENTENCE_BYTES 256

/* Source of the run-queue delay, best first; each later one knows less. */
enum rbk_stats_source {
	RBK_STATS_SOURCE_NONE = 0,
	RBK_STATS_SOURCE_EBPF = 1,      /* probes in the scheduler: all of the below */
	RBK_STATS_SOURCE_SCHEDSTAT = 2, /* /proc/PID/schedstat: counts without causes */
	RBK_STATS_SOURCE_PSI = 3,       /* /proc/pressure/cpu: whether any task waits */
	RBK_STATS_SOURCE_STAT = 4,      /* /proc/stat: how busy the processors are */
};

/* struct rbk_stats_contention.flags */
#define RBK_STATS_CONTENDED       (1u << 0) /* the broker's workers wait for processors */
#define RBK_STATS_CONTENTION_ACTS (1u << 1) /* placement takes contention into account */

#define RBK_STATS_MAX_FACTOR      100 /* struct rbk_stats_contention.factor saturates here */

/* The CPU, as of the last look; the broker does not look while there is no task to run. */
struct rbk_stats_contention {
	uint32_t sequence;
	uint32_t source;                     /* enum rbk_stats_source */
	uint32_t flags;                      /* RBK_STATS_CONTENDED, RBK_STATS_CONTENTION_ACTS */
	uint32_t n_workers, n_workers_total; /* CPU workers in use, and CPU workers in total */
	uint32_t reserved32;
	double factor;    /* factor by which tasks on the CPU take longer because of contention */
	uint64_t n_began; /* beginnings of contention, since start or the last reset */
	uint64_t began_at_ns;    /* time of the last beginning; 0: never */
	uint64_t contended_ns;   /* total time of contention */
	uint64_t n_unwatched;    /* tenants beyond those that can be watched at a time */
	uint64_t n_dropped;      /* threads and processes that could not be watched */
	uint64_t n_probe_events; /* runs of the probes; 0 unless kernel.bpf_stats_enabled is set */
	uint64_t probe_ns;       /* total time of these runs */
	uint64_t reserved[13];
	/* Reasons why no better source is used; unused ones are empty. */
	char sentences[RBK_STATS_MAX_SENTENCES][RBK_STATS_SENTENCE_BYTES];
};

/* struct rbk_stats_cause.flags */
#define RBK_STATS_CAUSE_BROKER (1u << 0) /* a thread of the broker itself */
#define RBK_STATS_CAUSE_OWN    (1u << 1) /* a process of the record's own tenant */

/*
 * A process that ran instead. In tenant pages, a process that is neither the broker's nor the
 * tenant's own has only comm and cgroup, which /proc shows to all users. It has nothing but the
 * counts if /proc is mounted so that it hides processes (hidepid).
 */
struct rbk_stats_cause {
	char comm[RBK_STATS_COMM_BYTES]; /* '?' replaces unprintable characters */
	/* '?' likewise; only the last part if the cgroup is gone */
	char cgroup[RBK_STATS_CGROUP_BYTES];
	/* process id when first seen; 0: withheld, or not in the broker's pid namespace */
	uint32_t pid;
	uint32_t tenant; /* number of the tenant it belongs to; 0: none */
	uint32_t flags;  /* RBK_STATS_CAUSE_* */
	uint32_t reserved32;
	uint64_t wait_ns; /* time that it made others wait */
	uint64_t n_preemptions;
};

/* struct rbk_stats_delay.flags */
#define RBK_STATS_DELAY_USED  (1u << 0) /* it is watched; otherwise all is 0 */
#define RBK_STATS_DELAY_KNOWN (1u << 1) /* preemptions, percentiles and causes are known too */

/*
 * Run-queue delay: the time from when a thread could run until it ran. The record is of a thread of
 * the broker, or of all processes of a tenant's clients together. Counts are as of the last report,
 * from the time the broker began to watch or the last reset of the whole broker. Percentiles, the
 * maximum and the causes are of the last ten seconds.
 */
struct rbk_stats_delay {
	uint32_t sequence;
	uint32_t flags;   /* RBK_STATS_DELAY_* */
	uint64_t run_ns;  /* time on a processor */
	uint64_t wait_ns; /* time that it waited because others ran */
	/* time that it waited while its processor was idle: throttled by a quota, or late */
	uint64_t idle_wait_ns;
	uint64_t n_waits;
	uint64_t n_preemptions; /* times that it was replaced while it ran */
	uint64_t n_involuntary; /* times that it was stopped although it could have run on */
	uint64_t n_throttled;   /* n_involuntary by throttling, or that left its processor idle */
	uint64_t n_migrations;  /* moves to another processor */
	uint64_t caused_ns;     /* tenants: time that the broker's threads waited because of it */
	uint64_t throttled_ns;  /* time throttled by its cgroup's quota; 0 if unknown */
	uint64_t p50_ns, p99_ns, max_ns;
	uint32_t n_causes;
	uint32_t reserved32;
	uint64_t reserved[9];
	struct rbk_stats_cause causes[RBK_STATS_MAX_CAUSES]; /* worst first */
};

enum rbk_stats_role {
	RBK_STATS_ROLE_OTHER = 0,
	RBK_STATS_ROLE_REACTOR = 1,
	RBK_STATS_ROLE_WORKER = 2,
};

/* A thread of the broker. */
struct rbk_stats_thread {
	uint32_t sequence;
	uint32_t tid;  /* 0: no such thread now */
	uint32_t role; /* enum rbk_stats_role */
	uint32_t reserved32;
	char name[RBK_STATS_COMM_BYTES];
	uint64_t reserved[4];
	struct rbk_stats_delay delay; /* its sequence is unused */
};
