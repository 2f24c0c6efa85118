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

struct sim_client_options {
	const char *socket_path;
	/*
	 * Calls and devices do not fail: every request succeeds, and every task that is not
	 * cancelled.
	 */
	bool is_strict;
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
