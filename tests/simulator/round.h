#pragma once
/* SPDX-License-Identifier: MIT */
/* Rounds: what happens on the simulated machine, all of it decided by a seed */
#include <stdbool.h>
#include <stdint.h>

/* Figures of a round */
struct sim_round_figures {
	uint64_t n_steps, virtual_ns;
	uint64_t n_entries, n_completions, n_tasks, n_failed, n_cancelled;
	uint64_t n_broker_deaths, n_client_deaths, n_reattached, n_losses, n_sessions_lost;
	uint64_t n_states_lost, n_reloads, n_leases;
};

/*
 * Run the round of @seed, in this process, which must not have run another one. It ends the process
 * with status 1 where something is violated. @folder is empty, for sockets and files.
 */
void sim_round(uint64_t seed, const char *folder, bool is_verbose, struct sim_round_figures *ret);
