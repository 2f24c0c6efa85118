#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Data shared by the device gate, the program that closes it and the broker
 *
 * Included by device-gate.bpf.c, by brokerctl and by the broker. All gates of a broker share one
 * map of the holders that may pass, which the broker writes: a hash of struct device_gate_key and
 * struct device_gate_holder. Each gate has a record of its own, an array of one.
 */

enum {
	DEVICE_GATE_MAX_HOLDERS = 4096,
	DEVICE_GATE_MAX_RANGES = 16,
	/* of cgroups, from the root down; deeper processes are refused */
	DEVICE_GATE_MAX_LEVELS = 64,
	DEVICE_GATE_REFUSALS = 8, /* last refusals that are kept */
	DEVICE_GATE_COMM_BYTES = 16,
	DEVICE_GATE_PATH_BYTES = 256,
};

/* Processes of a user, in a cgroup or below it. Cgroup 0 of user 0 marks that the broker runs. */
struct device_gate_key {
	unsigned long long cgroup; /* id in the unified hierarchy: its inode number */
	unsigned int uid;          /* real uid, as the kernel counts it outside of containers */
	unsigned int reserved;
};

struct device_gate_holder {
	unsigned int lease; /* number of the lease; 0: the broker itself */
	unsigned int pid;   /* process id of the broker that wrote it */
};

/* Gated device nodes, all of character devices. */
struct device_gate_range {
	unsigned int major;
	unsigned int first_minor, last_minor;
};

struct device_gate_refusal {
	unsigned long long number; /* counted from 1; 0: there is none */
	unsigned long long at_ns;  /* CLOCK_BOOTTIME */
	unsigned int pid, uid;
	unsigned int major, minor;
	char comm[DEVICE_GATE_COMM_BYTES];
};

struct device_gate_record {
	unsigned long long n_passed, n_refused;
	/*
	 * Refusal n is at n % DEVICE_GATE_REFUSALS, so that two concurrent ones are not mixed up.
	 */
	struct device_gate_refusal refusals[DEVICE_GATE_REFUSALS];

	/* Written by the program that closed the gate. */
	unsigned long long cgroup, closed_ns; /* CLOCK_REALTIME */
	unsigned int n_ranges, reserved;
	struct device_gate_range ranges[DEVICE_GATE_MAX_RANGES];
	char path[DEVICE_GATE_PATH_BYTES]; /* path of the cgroup, "/user.slice" */
};
