#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Clients that check each result
 *
 * Each has a thread, in which it submits tasks, waits, and checks their results: nothing may be
 * lost, nothing may complete twice, and no call may fail, whatever happens to the broker.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	CHECKER_DEPTH = 32, /* tasks in flight of a client */
	CHECKER_GAPS = 2048,
	CHECKER_PLANS = 100,
};

/* Zero-initialise it, and set the first three members. The thread writes the rest but for must_end.
 */
struct checker {
	bool by_event_loop;
	unsigned int n_plans; /* from 1 to CHECKER_PLANS; 0: 1 */
	uint64_t reattach_ns; /* as in struct rbk_options */

	pthread_t thread;
	const char *socket_path;
	atomic_bool must_end;
	char failure[256]; /* empty: none */
	_Atomic uint64_t n_done;
	atomic_bool has_ended;
	unsigned int n_reattached;
	atomic_uint n_callbacks;
	uint64_t gaps_ns[CHECKER_GAPS]; /* first re-attachments, without the wait for a broker */
	uint64_t longest_away_ns;       /* the longest re-attachment */
	uint64_t longest_wait_ns;       /* the longest wait for a completion */
};

/* Start the client, which connects to the broker at @socket_path. */
void checker_start(struct checker *client, const char *socket_path);

/* Wait until each client has completed more tasks than it can have in flight. */
void checkers_await_work(const struct checker *clients, unsigned int n);

/* End the clients. Fails the test if one of them has failed, or has completed nothing. */
void checkers_end(struct checker *clients, unsigned int n);
