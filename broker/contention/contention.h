#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Reacting to CPU contention caused by other processes
 *
 * Every 10 ms while there is work, the scheduler's figures (run-queue.h) are judged
 * (contention-judge.h), and the verdict is passed to the placer, the CPU executor and the
 * dispatcher. This module also selects the processes to watch for each tenant, and logs the
 * beginning and end of contention. Reactor thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "contention/run-queue.h"
#include "session/server.h"
#include "util/cleanup.h"

struct contention;
struct dispatch;
struct executor;
struct loop;
struct stats;

struct contention_options {
	struct loop *loop;
	struct run_queue *run_queue;
	struct executor *cpu;
	/*
	 * Mask of devices that compute on the same processors. Contention slows their tasks as much
	 * as the CPU's, so it is no reason to place a task on them.
	 */
	uint32_t software_gpus;
	/* The cgroup of this process, which must not count as a tenant's; NULL: read from /proc. */
	const char *own_cgroup;
	bool observes; /* watch and report contention without reacting to it */
};

/*
 * Create the module; all options are borrowed.
 * Return: 0 or negative errno.
 */
int contention_new(const struct contention_options *options, struct contention **ret);
/*
 * Free the module, after the server and the dispatcher.
 * Return: NULL.
 */
struct contention *contention_free(struct contention *contention);

/* Return the observer for server_new(). */
struct server_observer contention_observer(struct contention *contention);
/* Callback for struct dispatch_options; @context is the contention. */
void contention_work_begins(void *context);
/* Start; the module does nothing before. @dispatch is borrowed until it is freed. */
void contention_start(struct contention *contention, struct dispatch *dispatch);

/*
 * Set whether contention is only observed, after the configuration was read again. The next look
 * starts or reverts reactions.
 */
void contention_set_observes(struct contention *contention, bool observes);
/* Set whether a client reads statistics. */
void contention_set_watched(struct contention *contention, bool is_watched);
/* Restart the counts. */
void contention_reset(struct contention *contention);

/* Update the statistics pages. In contention-report.c. */
void contention_publish(const struct contention *contention, struct stats *stats);

/* Return a phrase for people: "watched by eBPF", "not watched". */
const char *contention_watched_by(const struct contention *contention);

/* State as of the last look. */
struct contention_status {
	bool is_contended;
	bool observes;
	float factor;
	uint32_t n_workers, n_workers_total; /* workers in use, and workers in total */
	uint64_t n_began;
	uint64_t began_at_ns;  /* the broker's clock, clock_ticks_to_ns(); 0: never */
	uint64_t contended_ns; /* total time of contention */
	uint64_t n_unwatched, n_dropped;
};
void contention_status(const struct contention *contention, struct contention_status *ret);
/* Return true if /proc hides other users' processes. */
bool contention_hides_others(const struct contention *contention);
struct run_queue *contention_run_queue(const struct contention *contention);
/*
 * Return the slot of a tenant in reports, or RUN_QUEUE_NO_TENANT; and the tenant of a slot, 0:
 * none.
 */
uint16_t contention_slot(const struct contention *contention, uint32_t tenant);
uint32_t contention_tenant(const struct contention *contention, uint16_t slot);

DEFINE_CLEANUP(struct contention *, contention_free)
