#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The setup thread
 *
 * Long work that clients ask for (packing weights, compiling shaders, importing and unmapping
 * memory) must not stop the reactor. Each piece of such work is a job: run() on one setup thread,
 * then done() on the reactor, inside loop_turn().
 *
 * Owners share the thread's time by weight (util/fair.h). Jobs of one owner run in order, and an
 * owner belongs to one setup thread. The thread does not interrupt run(), so a job that takes
 * longer than a few milliseconds does a part of its work and sets has_more. The job's next slice
 * comes after its owner's other jobs, when its owner's turn comes again. Jobs whose end other
 * owners wait for, such as jobs that release memory, run before their owner's other jobs, one after
 * the other.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/cleanup.h"
#include "util/fair.h"

struct loop;
struct offload;

/* The cause of a slice of the setup thread. */
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

/* Embedded in the caller's object, which must live until done() is called. */
struct offload_job {
	void (*run)(struct offload_job *job);  /* setup thread */
	void (*done)(struct offload_job *job); /* reactor; may free or resubmit the job */
	struct fair_flow *owner;  /* borrowed until done() is called; NULL: the broker itself */
	uint32_t weight;          /* the owner's weight from now on; 0: FAIR_WEIGHT */
	uint32_t tenant;          /* number of the tenant that the job is for; 0: none */
	uint8_t cause;            /* enum offload_cause */
	bool goes_first;          /* all its slices come before its owner's other jobs */
	bool has_more;            /* set by run() to be called again; false on entry */
	bool has_begun;           /* run() was called; for done() of a cancelled job */
	uint64_t cpu_ns;          /* processor time of the last slice, for done() */
	atomic_bool is_cancelled; /* a long run() polls it and returns early */

	/* Private to offload.c */
	struct list_node link;
	struct offload_job *below; /* next older job of a stack */
	uint64_t since_ns;         /* time at which the wait for the next slice began */
	uint8_t state;
};

/* Totals of the thread's slices of one cause. */
struct offload_stats {
	uint64_t n_slices;
	uint64_t total_ns, longest_ns;
	uint32_t longest_tenant; /* tenant of the slice of longest_ns; 0: none */
};

/* Duration of a slice, or of a wait for a slice. */
struct offload_time {
	uint64_t ns;
	enum offload_cause cause;
	uint32_t tenant; /* number; 0: none */
};

/* Figures since the thread started, or since offload_reset(). */
struct offload_report {
	uint64_t n_waiting;          /* jobs that wait for a slice now */
	struct offload_time running; /* the current slice so far; all 0: none */
	/* the longest wait of a job for its first or a later slice */
	struct offload_time longest_wait;
	/* Indexed by enum offload_cause. longest_ns includes the current slice. */
	struct offload_stats causes[OFFLOAD_CAUSES];
};

/*
 * Start the thread, "rb-setup". It blocks all signals except those raised by its own faults. @loop
 * must outlive it. Reactor.
 * Return: 0; -ENOMEM, -EMFILE, -EAGAIN (no more threads).
 */
int offload_new(struct loop *loop, struct offload **ret);
/* Do the same with another thread name, in the form that thread_start() takes. */
int offload_new_named(struct loop *loop, const char *name, struct offload **ret);

/*
 * Do the same, but without the thread. offload_start() starts it, and offload_stop() ends it when
 * no job is left. Both may wait for the process's memory map, so a thread other than the reactor
 * may call them; meanwhile the reactor must not use the offload.
 * Return: as offload_new().
 */
int offload_new_idle(struct loop *loop, struct offload **ret);
int offload_start(struct offload *offload, const char *name);
void offload_stop(struct offload *offload);

/*
 * Wait until every submitted job has run, and call its done(). Then stop the thread, if it runs,
 * and free @offload. Reactor. Return: NULL.
 */
struct offload *offload_free(struct offload *offload);

/*
 * Submit @job, in which the caller has set the members before has_more. Reactor. Never fails, never
 * blocks.
 */
void offload_submit(struct offload *offload, struct offload_job *job);

/*
 * Cancel a job that was submitted and whose done() was not called yet; any other job stays as it
 * is. If the job waits for its first or next slice, run() is not called any more. If the job runs,
 * it finds is_cancelled set and is not run again. In both cases loop_turn() calls done() once,
 * which reads is_cancelled and has_begun. Reactor. Never fails; waits at most for a short critical
 * section of the thread.
 */
void offload_cancel(struct offload *offload, struct offload_job *job);

/* Report the thread's figures. Reactor. */
void offload_describe(struct offload *offload, struct offload_report *ret);
/* Reset the figures, except those of waiting jobs and of the current slice. Reactor. */
void offload_reset(struct offload *offload);

DEFINE_CLEANUP(struct offload *, offload_free)
