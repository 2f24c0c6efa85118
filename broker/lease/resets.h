#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Resets: whose work a device was reset for
 *
 * When a device is reset, all programs that use it may lose their work. The kernel tells a process
 * only whether its own work was the reason. So leased programs tell the broker about themselves,
 * and this module finds the culprit:
 *   - a program that says that the kernel found it guilty, or the broker's own work for plans, of
 *     which the broker knows the same. A program's statement is believed against itself alone.
 *   - otherwise the lease that had its timeslice for longest just before, RESETS_LONG_NS at least,
 *     provided that the broker itself has seen that the device was reset. That is no proof.
 * Programs notice a reset with their next call, some later than others. So a reset is judged
 * RESETS_WAIT_NS after the first notice, unless a culprit is certain before, and later notices join
 * it.
 *
 * A program may report at any time and whatever it likes. Reports that repeat others change
 * nothing, and of a tenant RESETS_MAX_OF_TENANT programs are noted for each reset.
 *
 * This module decides only; its caller has the clock and calls resets_run() in time. Reactor
 * thread.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <ringbroker/abi.h>

#include "shm/reset-verdict.h"

struct lease;
struct lease_member;
struct timeslice_record;

enum {
	RESETS_MAX_PARTIES = 32,
	RESETS_MAX_OF_TENANT = 4,
	RESETS_NAME_BYTES = 64, /* LEASE_NAME_BYTES */
};

#define RESETS_WAIT_NS   1500000000ull   /* 1.5 s: telemetry may see a reset a second later */
#define RESETS_JOIN_NS   10000000000ull  /* 10 s: reports of a reset that the broker has not seen */
#define RESETS_LATE_NS   600000000000ull /* 10 min: reports of one that it has seen */
#define RESETS_LONG_NS   1000000000ull   /* 1 s: kernels reset a device after 2 s or more */
#define RESETS_BEFORE_NS 1500000000ull   /* 1.5 s: from the end of a timeslice to the notice */

/* A program that lost a device. Leases and tenants may end before the judgement. */
struct resets_party {
	uint32_t lease;             /* 0: the broker's own work, for plans of all tenants */
	uint32_t tenant;            /* number */
	pid_t pid;                  /* 0: any process of the lease */
	enum reset_verdict verdict; /* its own statement */
	bool is_told;               /* judged() was called for it */
	char name[RESETS_NAME_BYTES];
	char tenant_name[RESETS_NAME_BYTES];
};

/* A timeslice that took long. */
struct resets_slice {
	struct resets_party party;
	uint64_t began_ns, ended_ns; /* ended_ns 0: there is none */
};

/* The last reset of a device. */
struct resets_device {
	uint64_t at_ns; /* first notice; 0: there was none */
	bool is_seen;   /* the broker itself saw it */
	bool is_judged;
	uint32_t n_parties;
	struct resets_party parties[RESETS_MAX_PARTIES];
	bool has_culprit, is_certain; /* valid if it is judged */
	struct resets_party culprit;
	uint64_t culprit_ns;      /* time that it had the device for, if it is not certain */
	struct resets_slice slow; /* the one that began first of the last long ones */
	uint64_t n_seen;          /* the device's resets, as telemetry counts them */
	bool has_seen;            /* n_seen is known */
};

/* Why a program lost its device. */
struct resets_answer {
	uint64_t at_ns; /* first notice of the reset, by which records of it are found */
	bool is_final;  /* it does not change any more */
	bool is_seen;   /* the broker itself saw that the device was reset */
	/* NULL: not known, or not yet. Valid until the next call of this module. */
	const struct resets_party *culprit;
	bool is_own;         /* the culprit is the program itself */
	bool is_certain;     /* the culprit's process says so, or the broker of itself */
	uint64_t culprit_ns; /* if it is not certain: time that it had the device for */
};

/* All devices; part of struct leases. */
struct resets {
	struct resets_device devices[RBK_MAX_DEVICES];
	/*
	 * Called once for each program of a reset, when its answer is final; also, with a @party
	 * that lost nothing itself, for a culprit that has not reported. NULL: not called.
	 */
	void (*judged)(void *context, uint8_t device, const struct resets_party *party,
		       const struct resets_answer *answer);
	/* Called when resets_next_ns() has changed. NULL: not called. */
	void (*changed)(void *context);
	void *context;
};

/* A member reports that its device was lost. */
struct resets_answer resets_report(struct lease_member *member, enum reset_verdict verdict,
				   uint64_t now_ns);
/* The broker's own work on a device was lost. */
void resets_own_lost(struct resets *resets, uint8_t device, enum reset_verdict verdict,
		     uint64_t now_ns);
/* Note the number of the device's resets, as telemetry counts them. */
void resets_seen(struct resets *resets, uint8_t device, uint64_t n_resets, uint64_t now_ns);
/* Note a timeslice that has ended. */
void resets_note_slice(struct resets *resets, const struct lease *lease,
		       const struct timeslice_record *record);

/* Do what is due. */
void resets_run(struct resets *resets, uint64_t now_ns);
/* Return the time of the next resets_run(); UINT64_MAX: none is needed. */
uint64_t resets_next_ns(const struct resets *resets);
