#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The setup thread
 *
 * What takes long and is asked for by a client (packing weights, compiling shaders, importing and
 * unmapping memory) must not stop the reactor. Each such thing is a job: run() on one setup
 * thread, then done() on the reactor, inside loop_turn().
 *
 * Owners share the thread by weight in the time that their jobs take (util/fair.h); jobs of one
 * owner run in order, and an owner belongs to one setup thread. The thread does not interrupt
 * run(), so a job that takes longer than a few milliseconds does a part of its work and sets
 * has_more: it is run again behind its owner's other jobs, when it is its owner's turn again. Jobs
 * whose end other owners wait for, such as those that give memory back, go first of their owner's,
 * one after the other.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/cleanup.h"
#include "util/fair.h"

struct loop;
struct offload;

/* Cause of a slice of the setup thread. */
enum offload_cause {
	OFFLOAD_OTHER,
	OFFLOAD_PLAN_VERIFY,
	OFFLOAD_PLAN_MEASURE,
	OFFLOAD_PLAN_PREPARE,
	OFFLOAD_PLAN_RELEASE,
	OFFLOAD_ARENA_MAP,
	OFFLOAD_ARENA_UNMAP,
	OFFLOAD_RING,
	OFFLOAD_LOAD,
	OFFLOAD_UNLOAD,
	OFFLOAD_REOPEN,
	OFFLOAD_CALIBRATION,
	OFFLOAD_FILE,
	OFFLOAD_CAUSES,
};

/* Embedded in the caller's object, which must live until done() was called. */
struct offload_job {
	void (*run)(struct offload_job *job);  /* setup thread */
	void (*done)(struct offload_job *job); /* reactor; may free the job or submit it again */
	struct fair_flow *owner;  /* borrowed, until done() was called; NULL: the broker itself */
	uint32_t weight;          /* the owner's from now on; 0: FAIR_WEIGHT */
	uint32_t tenant;          /* number of the tenant that it is for; 0: none */
	uint8_t cause;            /* enum offload_cause */
	bool goes_first;          /* all of its slices come before its owner's other jobs */
	bool has_more;            /* run() sets it to be called again; it finds it false */
	bool has_begun;           /* run() was called; for done() of what was cancelled */
	atomic_bool is_cancelled; /* a long run() looks at it and returns early */

	/* offload.c's */
	struct list_node link;
	struct offload_job *below; /* in a stack */
	uint64_t since_ns;         /* when it began to wait for its next slice */
	uint8_t state;
};

/* Totals of the thread's slices of one cause. */
struct offload_stats {
	uint64_t n_slices;
	uint64_t total_ns, longest_ns;
	uint32_t longest_tenant; /* whose slice took longest_ns; 0: no tenant's */
};

/* A slice, or the wait for one. */
struct offload_time {
	uint64_t ns;
	enum offload_cause cause;
	uint32_t tenant; /* number; 0: none */
};

/* Figures since the thread began, or since offload_reset(). */
struct offload_report {
	uint64_t n_waiting;               /* jobs that wait for a slice now */
	struct offload_time running;      /* the slice that runs now, so far; all 0: none */
	struct offload_time longest_wait; /* of a job for a slice, the first or a later one */
	/* By enum offload_cause; longest_ns is of the running slice if that is the longest. */
	struct offload_stats causes[OFFLOAD_CAUSES];
};

/*
 * Starts the thread, "rb-setup". It blocks all signals but those that its own faults raise. @loop
 * must outlive it. Reactor. Return: 0; -ENOMEM, -EMFILE, -EAGAIN (no more threads).
 */
int offload_new(struct loop *loop, struct offload **ret);
/* The same with another name, as thread_start() takes. */
int offload_new_named(struct loop *loop, const char *name, struct offload **ret);

/* Waits until every submitted job has run and calls its done(). Reactor. Return: NULL. */
struct offload *offload_free(struct offload *offload);

/* Reactor. Never fails, never blocks. Of @job the caller has set the members before has_more. */
void offload_submit(struct offload *offload, struct offload_job *job);

/*
 * Cancels a job that was submitted and whose done() was not called yet; any other stays as it is.
 * If it waits, also for its next slice, run() is not called any more; if it runs, it finds
 * is_cancelled set and is not run again. done() is called from loop_turn() in any case, once, and
 * looks at is_cancelled and has_begun. Reactor. Never fails, never blocks.
 */
void offload_cancel(struct offload *offload, struct offload_job *job);

/* Report what the thread does and did. Reactor. */
void offload_describe(struct offload *offload, struct offload_report *ret);
/* Begins the figures anew, but for what waits and what runs. Reactor. */
void offload_reset(struct offload *offload);

DEFINE_CLEANUP(struct offload *, offload_free)
