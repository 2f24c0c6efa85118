#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Busy time: how long a device worked for each process since the last look
 *
 * Telemetry lists the processes that use a device, with the time for which its engines worked for
 * each (struct process_reading.busy_ns). A look takes the differences to the list of the last look,
 * however many lists telemetry has made in between. Reactor thread; pure functions.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "telemetry/telemetry.h"

/* A device's list at the last look; zeroed before the first one. */
struct busy_seen {
	uint64_t list_ns; /* begin of the list; 0: none */
	uint32_t n_processes;
	struct {
		pid_t pid;
		struct reading busy_ns;
	} processes[TELEMETRY_MAX_PROCESSES];
};

/* The time between two lists. */
struct busy_times {
	uint64_t since_ns;          /* begin of the earlier list; 0: there was none */
	uint64_t elapsed_ns;        /* 0: there was no list before */
	uint64_t own_ns, others_ns; /* of process @own, and of all others */
	/* by index in the reading's list; not valid: not known, as for a process that is new */
	struct reading processes[TELEMETRY_MAX_PROCESSES];
};

/*
 * Return true if @reading has a list that is newer than the last look, with the times since then,
 * and remember it. All times together are at most elapsed_ns.
 */
bool busy_look(struct busy_seen *seen, const struct device_reading *reading, pid_t own,
	       struct busy_times *ret);
