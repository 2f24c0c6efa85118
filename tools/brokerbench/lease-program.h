#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A Vulkan program of time-lease, in a process of its own
 *
 * The program makes a device, with or without the layer of leases, and then obeys: it reads a
 * struct lease_command from its socket and answers with a struct lease_answer, which as many
 * samples follow as it says. It ends when the socket does.
 */
#include <stdbool.h>
#include <stdint.h>

/* Actions of a program, each with its samples. */
enum lease_action {
	LEASE_RECORD,     /* ns of recording per dispatch */
	LEASE_PARTS,      /* ns of recording and submitting per dispatch */
	LEASE_RATE,       /* dispatches per ms; one sample */
	LEASE_RATE_BEGIN, /* the same, until LEASE_RATE_END has come; only the latter is answered */
	LEASE_RATE_END,   /* ends LEASE_RATE_BEGIN */
	LEASE_JOBS,       /* us of each job, from its submission to its end */
	LEASE_COUNT_GROUPS, /* workgroups of a dispatch that takes the given time; one sample */
};

struct lease_command {
	uint32_t action;
	uint64_t ns; /* time to measure for */
};

struct lease_answer {
	int error;      /* 0; a negative errno: the program ends */
	bool is_cpu;    /* the device is a renderer on the CPU */
	uint32_t n;     /* samples that follow */
	char said[256]; /* the reason of an error */
};

/* All but the first three are for the submissions that the program makes. */
struct lease_program {
	const char *socket;   /* the broker's; NULL: the program is without the layer */
	const char *priority; /* RINGBROKER_LEASE_PRIORITY */
	const char *max_part; /* RINGBROKER_LEASE_MAX_PART; NULL: not set */
	uint32_t n_dispatches;
	uint32_t n_groups; /* of each dispatch */
	bool is_recorded_once;
	bool is_apart;      /* LEASE_PARTS: each dispatch is a submission of its own */
	bool has_ends;      /* with is_apart: another thread waits for each by a fence */
	uint64_t period_ns; /* LEASE_JOBS: there is one job in each period */
};

/*
 * Run the program in this process, which has no other threads. @fd: its end of the socket.
 * Errors that it answers: -ENODEV: there is no Vulkan device; -ENOENT: the loader does not find the
 * layer; -EPROTO: a call of Vulkan has failed.
 */
_Noreturn void lease_program_run(const struct lease_program *program, int fd);
