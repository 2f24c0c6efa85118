#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Who may pass the device gate
 *
 * An administrator may have closed GPUs to processes in some cgroup (brokerctl gate): then those
 * open them that are in the cgroup of a lease, or below it, and are of the lease's user. Here the
 * map that says so is kept up with leases, as long as a gate is there, whenever it comes or goes.
 * The right to write that map is all that it takes; see util/gate-path.h for where it is.
 *
 * A cgroup counts only if it was made for a lease's programs alone, which its name tells: brokerctl
 * exec makes ringbroker-exec-N. Reactor thread.
 */
#include <stdint.h>

#include "util/cleanup.h"

struct gate;
struct leases;
struct loop;

struct gate_options {
	const char
		*socket_path; /* the broker's, beside which the gate is; must be its own by now */
	struct loop *loop;
	struct leases *leases;
	/*
	 * What a broker that ended has let in stays for so long, since programs come back with
	 * their leases; 0: the default.
	 */
	uint64_t settle_ns;
};

/* Everything is borrowed. Return: 0 or negative errno. */
int gate_new(const struct gate_options *options, struct gate **ret);
/* The broker ends: programs keep what they have, and leases that end are no business of ours. */
void gate_stop(struct gate *gate);
struct gate *gate_free(struct gate *gate);

/* Looks whether there is a gate: cheap. */
void gate_check(struct gate *gate);

DEFINE_CLEANUP(struct gate *, gate_free)
