#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Time of a device beside the timeslices of leases that share it
 *
 * Programs keep to their timeslices by themselves; the kernel tells for how long the device's
 * engines worked for each process. This module compares both while leases share a device, over
 * BESIDE_WINDOW_NS: for each lease, the time of its processes that share the device with that of
 * its timeslices, and all time of its other processes; and for processes without a lease, their
 * time. A timeslice includes waits for work of others, so use beside it shows only in part.
 *
 * Both times are a little wrong: the list of processes is a moment old, drivers count waits in the
 * hardware, and several engines may work at once. So a lease is noticed from a fifth of the window
 * on. What cannot be compared is left out: looks between which the lease was alone, overdue or its
 * timeslices were shortened for plans.
 *
 * This module decides only. Reactor thread.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <ringbroker/abi.h>

#include "telemetry/telemetry.h"

struct lease;

enum {
	BESIDE_MAX_USERS = 16, /* processes without a lease that are listed, of all devices */
	BESIDE_LEASE_PART = 5, /* a lease is noticed from a fifth of the window on */
	BESIDE_USER_PART = 20, /* a process without a lease from a twentieth on */
};

#define BESIDE_WINDOW_NS 10000000000ull  /* 10 s */
#define BESIDE_AGAIN_NS  600000000000ull /* 10 min: pause between two lines about a lease */

/* A lease's part; zeroed at first. */
struct lease_beside {
	bool has_before; /* the members below are of the last look */
	uint32_t n_opened;
	uint64_t used_ns, n_overdue, plans_ns;
	/* the present window: time compared, of the device for its processes, of its timeslices */
	uint64_t elapsed_ns, busy_ns, slice_ns;
	uint64_t other_ns; /* of the device, for its processes that do not share it */
	uint64_t total_ns; /* beside its timeslices since it was opened, in windows noticed */
	uint64_t told_ns;  /* when that was logged last; 0: never */
};

/* A process without a lease that uses a device which leases share. */
struct beside_user {
	uint8_t device;
	pid_t pid;
	uid_t uid;
	char comm[TELEMETRY_COMM_BYTES];
	uint64_t busy_percent; /* of the last window */
	bool is_told;          /* it was logged */
};

/* Processes without a lease, of all devices; part of struct leases. */
struct beside_users {
	uint32_t n;
	struct beside_user users[BESIDE_MAX_USERS];
};

/* A device's present window; zeroed at first. */
struct beside_device {
	uint64_t elapsed_ns;
	uint32_t n;
	struct {
		pid_t pid;
		uid_t uid;
		char comm[TELEMETRY_COMM_BYTES];
		uint64_t busy_ns;
	} processes[TELEMETRY_MAX_PROCESSES];
};

/* Times since the last look. */
struct beside_times {
	uint64_t elapsed_ns;
	uint64_t busy_ns;  /* of the device, for the lease's processes that share it */
	uint64_t other_ns; /* for its other processes, which are not held back */
};

/*
 * Add the time that the device worked for a lease's processes since the last look. The lease's
 * timeslices were counted until now. Return: the time beside its timeslices, if a window has ended
 * in which it was noticed; else 0.
 */
uint64_t beside_look_at_lease(struct lease *lease, const struct beside_times *times);

/* Add the time of a process without a lease since the last look. */
void beside_add_user(struct beside_device *device, const struct process_reading *process,
		     uint64_t busy_ns);
/*
 * End a look, @elapsed_ns after the last one, at a device that leases share, or that they do not
 * share. When a window ends, or none share it, the device's users are listed anew.
 */
void beside_end_look(struct beside_users *users, struct beside_device *device, uint8_t index,
		     bool is_shared, uint64_t elapsed_ns);
