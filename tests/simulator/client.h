#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Clients: programs that use libringbroker as it is meant to be used, and check everything
 *
 * A client makes arenas, plans and rings, submits entries of all kinds, waits in all ways, removes
 * its objects, and leaves, in the order that the seed decides. It knows what every completion and
 * every result must be. It does not know that the broker may die.
 */
#include <stdbool.h>
#include <stdint.h>

/* Acts of a client */
enum sim_act {
	SIM_PUT,
	SIM_SUBMIT,
	SIM_CONSUME,
	SIM_USE_SECOND,
	SIM_CHANGE_PLAN,
	SIM_CHANGE_RING,
	SIM_DRAIN,
	SIM_CHANGE_ARENA,
	SIM_CHANGE_CONSTANTS,
	SIM_LEAVE,
	SIM_ACTS
};

/* Kinds of entries that it puts into a ring */
enum sim_entry {
	SIM_RUN,
	SIM_STATE,
	SIM_CHAIN,
	SIM_JOIN,
	SIM_NOP,
	SIM_BARRIER,
	SIM_CANCEL,
	SIM_MEMORY,
	SIM_STALE,
	SIM_INVALID,
	SIM_ENTRIES
};

/* Ways in which it waits */
enum sim_way { SIM_WAIT, SIM_PEEK, SIM_LOOP, SIM_SUBMIT_AND_WAIT, SIM_WAYS };

enum { SIM_PLANS = 5, SIM_MAX_HELPERS = 3 };

/* Weights of what clients do, of which any but the first may be 0 */
struct sim_client_mix {
	uint16_t acts[SIM_ACTS], entries[SIM_ENTRIES], ways[SIM_WAYS];
	uint16_t plans[SIM_PLANS];   /* in the order of enum plan_kind */
	uint16_t devices[3];         /* any device, the card, the processor */
	uint16_t tables[2];          /* references in the entry, in a table */
	unsigned int n_slots;        /* most entries in flight */
	unsigned int burst;          /* most times in a row that it puts some */
	unsigned int max_ring_shift; /* rings have at most 4 << max_ring_shift entries */
	unsigned int n_helpers;      /* most threads that make and free other objects */
	unsigned int haste; /* of these threads, whose pauses are shorter by so many bits */
	uint64_t pause_ns;  /* most time within a chain */
};

struct sim_client_options {
	const char *socket_path;
	struct sim_client_mix mix;
	/*
	 * Calls and devices do not fail: every request succeeds, and every task that is not
	 * cancelled.
	 */
	bool is_strict;
	bool has_crashes;  /* tasks that seem to crash brokers are given up */
	uint64_t think_ns; /* mean time between two things that the client does; 0: none */
};

/* The main function of a simulated process. @data: struct sim_client_options. */
void sim_client_main(void *data);

/* From now on clients finish their tasks and end; director. */
void sim_clients_stop(void);

/* Figures since the simulator began */
struct sim_client_figures {
	uint64_t n_entries, n_completions, n_failed, n_cancelled, n_reattached, n_lost;
	uint64_t n_states_lost;
};
const struct sim_client_figures *sim_client_figures(void);
