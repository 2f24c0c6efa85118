#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Holders of leases: programs that use the card themselves, within a lease
 *
 * They open leases, take credit, give it back, change the wish, and leave, or are killed. The
 * memory that they use is what they have credit for.
 */
#include <stdbool.h>
#include <stdint.h>

struct sim_holder_options {
	const char *socket_path;
	uint64_t memory_bytes; /* of the card */
	bool is_strict;        /* as in struct sim_client_options */
};

/* The main function of a simulated process. @data: struct sim_holder_options. */
void sim_holder_main(void *data);

/* From now on holders end; director. */
void sim_holders_stop(void);

/* Return the bytes of the card that all holders use now. */
uint64_t sim_holders_bytes(void);
/* A process has ended, and uses nothing; director. */
void sim_holder_ended(unsigned int number);
/* Return the leases that were opened since the simulator began. */
uint64_t sim_holders_n_leases(void);
