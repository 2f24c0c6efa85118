#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The dispatcher: from entries to completions
 *
 * One reactor thread polls the rings of active sessions in turn, validates each entry once, places
 * it, runs it inline or hands it to an executor, and posts completions. It sleeps in the event loop
 * when no ring is active and nothing is in flight that it should spin for.
 */
#include <stdbool.h>
#include <stdint.h>

#include "plan/executor.h"
#include "session/server.h"
#include "util/cleanup.h"

struct dispatch;
struct loop;
struct residency;
struct waker;

struct dispatch_options {
	struct loop *loop;
	struct waker *waker; /* that the executors ring */
	struct executor *const *executors;
	uint32_t n_executors;
	struct residency *residency;
	uint64_t threshold_bytes; /* see place/place.h */
	int64_t spin_ns;          /* before sleeping; -1: adaptive; 0: never spin */
	uint32_t n_processors;    /* that the broker may use */
	/*
	 * Told how much is going on, for who watches devices, or NULL: in each turn that gave tasks
	 * to a device other than the CPU, and before sleeping. Must be cheap.
	 */
	void (*set_pace)(void *context, bool is_busy, bool has_sessions);
	void *pace_context;
};

/* Everything pointed to is borrowed. Return: 0 or negative errno. */
int dispatch_new(const struct dispatch_options *options, struct dispatch **ret);

/* For server_new(); valid as long as the dispatcher. */
struct server_hooks dispatch_hooks(struct dispatch *dispatch);

/*
 * Serves @server until dispatch_stop() was called and everything has drained.
 * Return: 0 or negative errno (the loop broke).
 */
int dispatch_run(struct dispatch *dispatch, struct server *server);

/*
 * Drains: no entry is admitted any more, tasks in flight complete, sessions end, dispatch_run()
 * returns. For a handler in the loop.
 */
void dispatch_stop(struct dispatch *dispatch);

/* No ring may be left. Return: NULL. */
struct dispatch *dispatch_free(struct dispatch *dispatch);

DEFINE_CLEANUP(struct dispatch *, dispatch_free)
