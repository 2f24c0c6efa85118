#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Definitions shared by the files of run-queue.c
 *
 * Each part of struct run_queue belongs to the reactor, to the thread, or to both, and is then
 * atomic. There are no locks.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "contention/cgroup-name.h"
#include "contention/delay-causes.h"
#include "contention/delay-window.h"
#include "contention/probes.h"
#include "contention/run-queue.h"
#include "util/pace.h"
#include "util/proc.h"
#include "util/spsc.h"

enum {
	RUN_QUEUE_MAX_SENTENCES = 8,
	RUN_QUEUE_WATCHED_PROCESSES = 1024, /* processes watched at a time */
	RUN_QUEUE_MAX_COMMANDS = 4096,      /* commands queued for the thread; a power of two */
	RUN_QUEUE_OPEN_THREADS = 64,        /* threads whose files stay open */
	RUN_QUEUE_TENANT_CGROUPS = 8,       /* cgroups per tenant whose throttling is reported */
	RUN_QUEUE_ROOT_BYTES = 256,
	RUN_QUEUE_NO_ROLE = 0xff,
	RUN_QUEUE_ANY_PROCESSOR = 0xffff,
};

static const uint64_t run_queue_ms_ns = 1000000u;
static const uint64_t run_queue_second_ns = 1000000000u;

/* A copy that one thread writes and any thread reads; see util/seqlock.h. */
#define RUN_QUEUE_PUBLISHED(type)                                           \
	struct {                                                            \
		_Atomic uint32_t sequence;                                  \
		_Atomic uint64_t words[2][sizeof(type) / sizeof(uint64_t)]; \
	}

/* A published report, if there is one. */
struct run_queue_thread_copy {
	uint64_t is_valid;
	struct run_queue_thread_report report;
};
struct run_queue_copy {
	uint64_t is_valid;
	struct run_queue_report report;
};
_Static_assert(sizeof(struct run_queue_thread_copy) % 8 == 0, "published by words");
_Static_assert(sizeof(struct run_queue_copy) % 8 == 0, "published by words");
_Static_assert(sizeof(struct run_queue_totals) % 8 == 0, "published by words");

/* Cumulative figures of a thread or a tenant, whatever the source. */
struct run_queue_figures {
	uint64_t run_ns, wait_ns, idle_wait_ns, n_waits;
	uint64_t n_preemptions, n_involuntary, n_throttled, n_migrations;
	uint64_t caused_ns;
};

/* Data from which a report is made. */
struct run_queue_subject {
	struct run_queue_figures base; /* figures at the start of the counts */
	struct delay_window window;
	struct delay_causes causers; /* last member: its tables follow it */
};

struct run_queue_thread {
	pid_t tid; /* 0: the slot is free */
	enum run_queue_role role;
	char name[RUN_QUEUE_NAME_BYTES];
	uint64_t start_ticks;
	bool is_listed; /* found by the listing in progress */
	int schedstat_fd, status_fd;
	struct run_queue_figures read; /* last figures read from /proc */
	struct run_queue_subject *subject;
};

/* Throttling of a cgroup that contains tasks of a tenant. */
struct run_queue_throttled {
	uint64_t key; /* hash of its path */
	uint64_t last_ns;
	bool is_seen;
};

struct run_queue_tenant {
	uint32_t generation; /* 0: no tenant */
	struct run_queue_subject *subject;
	struct run_queue_figures read;                  /* sum of the figures read from /proc */
	uint64_t last_run_ns, last_wait_ns, last_waits; /* sums at the last look */
	bool has_last;
	uint64_t throttled_ns, throttled_base_ns;
	struct run_queue_throttled throttled[RUN_QUEUE_TENANT_CGROUPS];
};

struct run_queue_watched_process {
	pid_t pid; /* 0: free */
	uint16_t tenant;
	uint32_t n_watches;
	uint64_t start_ticks;
};

struct run_queue_watched_cgroup {
	char *path; /* NULL: free */
	uint64_t id;
	uint16_t tenant;
	uint32_t n_watches;
};

/* A worker's delay in progress, as of the last reading. */
struct run_queue_stretch {
	uint64_t waiting_since_ns, n_throttled;
	bool is_throttled; /* it began by a quota's throttling */
};

/* Commands from the reactor to the thread. */
enum run_queue_command_kind {
	RUN_QUEUE_WATCH_PROCESS,
	RUN_QUEUE_UNWATCH_PROCESS,
	RUN_QUEUE_WATCH_CGROUP,
	RUN_QUEUE_UNWATCH_CGROUP,
};
struct run_queue_command {
	enum run_queue_command_kind kind;
	uint16_t tenant;
	uint32_t generation;
	pid_t pid;
	uint64_t start_ticks; /* start time of the process; 0: /proc does not show it */
	char path[];
};

/* State of a tenant's slot. */
enum run_queue_slot_state {
	RUN_QUEUE_SLOT_FREE,
	RUN_QUEUE_SLOT_USED,
	RUN_QUEUE_SLOT_ENDING, /* to be freed by the thread */
};

struct run_queue {
	/* Set by run_queue_new(). */
	char proc_path[RUN_QUEUE_ROOT_BYTES];
	char cgroup_path[RUN_QUEUE_ROOT_BYTES];     /* empty: there is none */
	char cpu_cgroup_path[RUN_QUEUE_ROOT_BYTES]; /* of cgroup version 1; empty: there is none */
	struct probes *probes; /* kept after the probes were lost: the maps stay */
	uint32_t n_tables;     /* tables of causers of a tenant: one per processor */
	uint64_t tick_ns;
	pid_t pid;
	pthread_t thread;
	bool has_thread;
	bool defers_probes; /* the thread loads them first */

	/* Shared. */
	_Atomic bool stop;
	struct pace pace;
	struct spsc commands;
	_Atomic bool has_news; /* commands, slots or a reset wait for the thread */
	_Atomic uint32_t n_resets;
	_Atomic uint32_t source;
	_Atomic uint32_t n_sentences;
	char sentences[RUN_QUEUE_MAX_SENTENCES][RUN_QUEUE_WHY_BYTES];
	_Atomic uint64_t n_dropped;
	_Atomic uint32_t slot_states[RUN_QUEUE_MAX_TENANTS];
	_Atomic uint32_t slot_generations[RUN_QUEUE_MAX_TENANTS];
	_Atomic uint8_t roles[RUN_QUEUE_MAX_THREADS]; /* RUN_QUEUE_NO_ROLE: free */
	_Atomic uint32_t n_slots;                     /* slots of threads that were ever used */
	/* The processor that a worker is pinned to; RUN_QUEUE_ANY_PROCESSOR: several. */
	_Atomic uint16_t pinned[RUN_QUEUE_MAX_THREADS];
	_Atomic uint64_t mask[PROC_MASK_WORDS]; /* processors that may be used */
	/* changes of workers or the mask, after which sums cover others */
	_Atomic uint32_t n_changes;
	_Atomic uint64_t steal_ns;
	_Atomic uint64_t cost_events, cost_ns;
	RUN_QUEUE_PUBLISHED(struct run_queue_totals) totals;
	RUN_QUEUE_PUBLISHED(struct run_queue_copy) workers;
	RUN_QUEUE_PUBLISHED(struct run_queue_copy) tenant_copies[RUN_QUEUE_MAX_TENANTS];
	RUN_QUEUE_PUBLISHED(struct run_queue_thread_copy) thread_copies[RUN_QUEUE_MAX_THREADS];

	/* The reactor's. */
	uint64_t n_unwatched;
	uint32_t n_owed; /* watches not removed yet, for whose removal the queue keeps room */
	uint32_t n_owed_of[RUN_QUEUE_MAX_TENANTS]; /* part of n_owed, by tenant */
	/* last totals returned from the probes, so that figures never decrease */
	struct run_queue_totals told;
	uint32_t n_changes_told;
	struct run_queue_stretch stretches[RUN_QUEUE_MAX_THREADS];

	/* The thread's. */
	struct cgroup_names *names; /* NULL: there is no hierarchy */
	struct run_queue_thread threads[RUN_QUEUE_MAX_THREADS];
	struct run_queue_tenant tenants[RUN_QUEUE_MAX_TENANTS];
	struct run_queue_watched_process processes[RUN_QUEUE_WATCHED_PROCESSES];
	uint32_t n_processes; /* index after the last used process */
	struct run_queue_watched_cgroup cgroups[RUN_QUEUE_MAX_CGROUPS];
	struct run_queue_totals read; /* last totals read from /proc and published */
	bool is_new_mask;
	uint32_t n_resets_done;
	uint32_t n_copies; /* threads published last */
	uint32_t next_tenant;
	bool needs_walk, has_walk_failed;
	bool is_new_list; /* threads have to be listed before the next reading */
	uint64_t walked_ns, walk_cost_ns, checked_ns, listed_ns, read_ns, stat_ns, stat_cost_ns,
		reported_ns, beaten_ns, throttled_ns;
	uint64_t held_until_ns;
	uint32_t held_pace;
	uint64_t beat_switches, beat_own, beat_waits;
	bool has_beat;
	int stat_fd, pressure_fd;
	char text[PROC_TEXT_BYTES];
};

/* Load a counter that the probes may be writing. */
static inline uint64_t run_queue_load(const unsigned long long *at)
{
	return __atomic_load_n(at, __ATOMIC_RELAXED);
}

/* run-queue.c */
void run_queue_say(struct run_queue *rq, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Choose the best available source from @from on. The thread, or run_queue_new(). */
void run_queue_choose(struct run_queue *rq, enum run_queue_source from);

/* run-queue-watch.c: which processes to watch. The thread, except for the first function. */
/*
 * Look up a process; *ret_start_ticks is its start time, 0: /proc does not show it. Any thread.
 * Return: true if it exists and @pidfd (-1: none) refers to it.
 */
bool run_queue_look_up(const struct run_queue *rq, pid_t pid, int pidfd, uint64_t *ret_start_ticks);
/* Execute the reactor's commands. */
void run_queue_take_news(struct run_queue *rq, uint64_t now_ns);
/* Stop watching processes that ended, or whose number another process has now. */
void run_queue_check_processes(struct run_queue *rq, uint64_t now_ns);
/* Restart the counts of reports. */
void run_queue_begin_counts(struct run_queue *rq);
/* Find the broker's threads. */
void run_queue_list_threads(struct run_queue *rq, uint64_t now_ns);
/* Release all watched objects. */
void run_queue_forget_all(struct run_queue *rq);

/* run-queue-sources.c: reading /proc. */
/* Return true if /proc shows this process's threads by the numbers that it uses itself. */
bool run_queue_has_threads(struct run_queue *rq, char ret_why[static RUN_QUEUE_WHY_BYTES]);
/* Return true if the source is available. If not, @ret_why says why, and names the remedy. */
bool run_queue_has_schedstat(struct run_queue *rq, char ret_why[static RUN_QUEUE_WHY_BYTES]);
bool run_queue_has_pressure(struct run_queue *rq, char ret_why[static RUN_QUEUE_WHY_BYTES]);
bool run_queue_has_stat(struct run_queue *rq, char ret_why[static RUN_QUEUE_WHY_BYTES]);
/* Read the totals for the reactor. */
void run_queue_read_totals(struct run_queue *rq, uint64_t now_ns);
/* Read the figures of a thread of the broker. Unreadable figures stay unchanged. */
void run_queue_read_thread(struct run_queue *rq, uint32_t slot);
/* Read the usable processors' figures from /proc/stat, only as often as is cheap. */
void run_queue_read_processors(struct run_queue *rq, uint64_t now_ns, uint64_t least_ns);
/* Read the figures of tenants, by their processes or cgroups. */
void run_queue_read_tenants(struct run_queue *rq);
/* Read the throttling of tenants by quotas. */
void run_queue_read_throttled(struct run_queue *rq);
/* Read the mask of processors that the known threads of the broker may use. */
void run_queue_read_mask(struct run_queue *rq);

/* run-queue-report.c */
/*
 * Sum up the figures of a thread's or a tenant's slot, as of now; only the probes fill @ret_delays.
 */
void run_queue_sum_thread(const struct run_queue *rq, uint32_t slot, struct run_queue_figures *ret,
			  struct delay_counts *ret_delays);
void run_queue_sum_tenant(const struct run_queue *rq, uint16_t slot, struct run_queue_figures *ret,
			  struct delay_counts *ret_delays);
/*
 * Allocate a subject.
 * Return: NULL if out of memory.
 */
struct run_queue_subject *run_queue_subject_new(const struct run_queue *rq, uint32_t n_tables);
/* Make and publish the reports of all threads and tenants. */
void run_queue_make_reports(struct run_queue *rq, uint64_t now_ns);
void run_queue_unpublish_tenant(struct run_queue *rq, uint16_t slot);

/*
 * run-queue-privilege.c: drop the privileges of this thread, except CAP_BPF if @keeps_bpf.
 * Return: 0 or negative errno.
 */
int run_queue_keep_privileges(bool keeps_bpf);
