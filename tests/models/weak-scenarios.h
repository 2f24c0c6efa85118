#pragma once
/* SPDX-License-Identifier: MIT */
/* Scenarios of test-weak-memory.c, a file for each subject, compiled with -fsanitize=thread. */
#include "models/weak-memory.h"
#include "util/waker.h"

/* Litmus tests: two results of one bit each; bit 2 * first + second of weak_outcomes is set. */
extern const struct weak_scenario weak_store_buffers, weak_store_buffers_unfenced, weak_message,
	weak_message_fences, weak_coherence, weak_causality, weak_load_first, weak_exchange;
extern unsigned int weak_outcomes;

extern const struct weak_scenario weak_spsc;
/* Bit r of weak_exec_results: a task ended with r - 1: cancelled (-1), done, or unfinished. */
extern const struct weak_scenario weak_cancel, weak_stop;
extern unsigned int weak_exec_results;
/*
 * A client that waits for each entry; one that waits for several completions at once; one that
 * submits more than fit at once, and waits for room and for completions; one whose event loop arms
 * the ring; each with a broker that sleeps.
 */
extern const struct weak_scenario weak_ring, weak_ring_several, weak_ring_full, weak_ring_armed;
/* A client that has left its fences to the broker, one that begins to, and one that ends it. */
extern const struct weak_scenario weak_ring_unfenced, weak_ring_leaving, weak_ring_keeping;
/* A broker's records and commits. Bit n of weak_commit_seen: n entries were seen as committed. */
extern const struct weak_scenario weak_commit;
extern unsigned int weak_commit_seen;
extern const struct weak_scenario weak_seqlock, weak_record;
extern const struct weak_scenario weak_waker;
/* A thread that watches a GPU's queue for a moment, beside one that sleeps. */
extern const struct weak_scenario weak_awake;
/* A worker that sleeps, gets tasks, and is stopped; two, of which one is limited. */
extern const struct weak_scenario weak_pool, weak_pool_limited, weak_pool_team;

/* The reactor's waker of a scenario, and its eventfd: weak-waker.c */
enum { WEAK_EVENTFD = 101 };
extern struct waker weak_waker_object;
extern struct weak_bell weak_eventfd;
void weak_waker_reset(void);
/* Sleep until the eventfd is written. */
void weak_waker_sleep(void);
