#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Device gate: the leases whose programs may open GPUs
 *
 * An administrator may have closed GPUs to processes in some cgroups (brokerctl gate). Then a GPU
 * can be opened only by processes that are in the cgroup of a lease, or below it, and belong to the
 * lease's user. This module keeps the gate's map up to date with the leases while there is a gate,
 * whenever the gate appears or disappears. It needs no right but to write that map;
 * util/gate-path.h says where the map is.
 *
 * A cgroup counts only if it was made for the programs of one lease alone. Its name tells:
 * brokerctl exec makes ringbroker-exec-N. Reactor thread.
 */
#include <stdint.h>

#include "util/cleanup.h"

struct gate;
struct leases;
struct loop;

struct gate_options {
	const char
		/* broker's socket, next to which the gate is; must be the broker's own by now */
		*socket_path;
	struct loop *loop;
	struct leases *leases;
	/*
	 * Time for which entries of a broker that ended stay, since programs come back with their
	 * leases; 0: the default.
	 */
	uint64_t settle_ns;
};

/*
 * Make a gate. @options is copied, all that it points to is borrowed.
 * Return: 0 or a negative errno.
 */
int gate_new(const struct gate_options *options, struct gate **ret);
/* Stop because the broker ends: programs keep their access, and leases that end change nothing. */
void gate_stop(struct gate *gate);
struct gate *gate_free(struct gate *gate);

/* Check whether there is a gate; cheap. */
void gate_check(struct gate *gate);

DEFINE_CLEANUP(struct gate *, gate_free)
