#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The setup thread
 *
 * What takes long and is asked for by a client (packing weights, compiling shaders, importing and
 * unmapping memory) must not stop the reactor. It becomes a job: run() on one setup thread, in
 * order, then done() on the reactor, inside loop_turn().
 */
#include "util/cleanup.h"

struct loop;
struct offload;

/* Embedded in the caller's object, which must live until done() was called. */
struct offload_job {
	void (*run)(struct offload_job *job);  /* setup thread */
	void (*done)(struct offload_job *job); /* reactor; may free the job or submit it again */
	struct offload_job *next;
};

/*
 * Starts the thread. It blocks all signals but those that its own faults raise. @loop must outlive
 * it. Reactor. Return: 0; -ENOMEM, -EMFILE, -EAGAIN (no more threads).
 */
int offload_new(struct loop *loop, struct offload **ret);

/* Waits until every submitted job has run and calls its done(). Reactor. Return: NULL. */
struct offload *offload_free(struct offload *offload);

/* Reactor. Never fails, never blocks. */
void offload_submit(struct offload *offload, struct offload_job *job);

DEFINE_CLEANUP(struct offload *, offload_free)
