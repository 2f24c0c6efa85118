#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Acting upon a CPU that others keep busy
 *
 * The scheduler's figures (run-queue.h) are judged (verdict.h), and the verdict goes to the placer,
 * to the CPU executor and to the dispatcher, every 10 ms while there is work. Also says whom to
 * watch for which tenant, and tells the log when contention begins and ends. Reactor thread.
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
	 * Devices that compute on the same processors, as a mask: their tasks take as much longer
	 * as the CPU's, so contention is no reason to go there.
	 */
	uint32_t software_gpus;
	/* The cgroup that this process is in, so as not to take it for a tenant's; NULL: /proc's
	 * word. */
	const char *own_cgroup;
	bool observes; /* watch and say it, but do nothing about it */
};

/* Everything is borrowed. Return: 0 or negative errno. */
int contention_new(const struct contention_options *options, struct contention **ret);
/* After the server and the dispatcher are gone. Return: NULL. */
struct contention *contention_free(struct contention *contention);

/* For server_new(). */
struct server_observer contention_observer(struct contention *contention);
/* For struct dispatch_options; @context is the contention. */
void contention_work_begins(void *context);
/* Nothing is done before. @dispatch is borrowed until it is freed. */
void contention_start(struct contention *contention, struct dispatch *dispatch);

/* The configuration was read again. Acts, or takes back what it did, with the next look. */
void contention_set_observes(struct contention *contention, bool observes);
/* Somebody looks at statistics, or nobody does any more. */
void contention_set_watched(struct contention *contention, bool is_watched);
/* Counts begin anew. */
void contention_reset(struct contention *contention);

/* contention-report.c: brings the pages up to date. */
void contention_publish(const struct contention *contention, struct stats *stats);

/* For people: "watched by eBPF", "not watched". */
const char *contention_watched_by(const struct contention *contention);

/* As of the last look. */
struct contention_status {
	bool is_contended;
	bool observes;
	float factor;
	uint32_t n_workers, n_workers_total; /* used, those that there are */
	uint64_t n_began;
	uint64_t began_at_ns;  /* the broker's clock, clock_ticks_to_ns(); 0: never */
	uint64_t contended_ns; /* together */
	uint64_t n_unwatched, n_dropped;
};
void contention_status(const struct contention *contention, struct contention_status *ret);
/* Does /proc show users nothing of others' processes? */
bool contention_hides_others(const struct contention *contention);
struct run_queue *contention_run_queue(const struct contention *contention);
/* The slot that stands for a tenant in reports; RUN_QUEUE_NO_TENANT. And back; 0: none. */
uint16_t contention_slot(const struct contention *contention, uint32_t tenant);
uint32_t contention_tenant(const struct contention *contention, uint16_t slot);

DEFINE_CLEANUP(struct contention *, contention_free)
