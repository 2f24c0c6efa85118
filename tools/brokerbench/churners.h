#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Churners: processes that make and free objects of a broker without end
 *
 * A churner sleeps until it is told to begin, and works until it is told to end. It is a client of
 * another user than the caller, and so of another tenant, which needs root. The burner has no
 * broker: it computes and sleeps as a churner did, so that what a churner costs can be told from
 * what its processor time costs.
 */
#include <stdbool.h>
#include <stdint.h>

#include "util/cleanup.h"

struct churner;

/* User of churners, who must be another one than the caller, root. */
#define CHURNER_UID 40002u

enum churn_kind {
	CHURN_PLANS,        /* prepares and frees a plan */
	CHURN_SESSIONS,     /* connects and disconnects */
	CHURN_ARENAS,       /* makes and frees an arena of 64 KiB */
	CHURN_LARGE_ARENAS, /* makes and frees an arena of 64 MiB */
	CHURN_MESSAGES,     /* asks for the broker's counters, over four sessions at once */
	CHURN_RINGS,        /* makes and frees a ring of 32,768 entries */
	CHURN_FULL_RINGS,   /* the same, with as many tasks for a device in the ring */
	CHURN_KINDS,
	CHURN_BURNER = CHURN_KINDS,
};

/* Work of a churner between its last begin or mark, and its end. */
struct churner_work {
	uint64_t n;        /* objects, or requests */
	uint64_t cpu_ns;   /* its own processor time */
	uint64_t n_sleeps; /* times that it gave up its processor */
	uint64_t elapsed_ns;
};

/* Return the kind's name in a row's params. */
const char *churn_name(enum churn_kind kind);

/*
 * Start a process that sleeps. @socket_path of the broker; unused for CHURN_BURNER.
 * Return: 0; a negative errno.
 */
int churner_new(enum churn_kind kind, const char *socket_path, struct churner **ret);
/* End the process. Return: NULL. */
struct churner *churner_free(struct churner *churner);

/* Let the burner compute for @piece_ns, and then sleep for @pause_ns, in a loop. */
void churner_pace(struct churner *churner, uint64_t piece_ns, uint64_t pause_ns);

/* Have the process work from now on. */
void churner_begin(struct churner *churner);
/* Count from now on what churner_end() returns. */
void churner_mark(struct churner *churner);
/*
 * Wait until the process has ended what it was doing.
 * Return: 0; negative errno: the broker refused something, or the process is gone.
 */
int churner_end(struct churner *churner, struct churner_work *ret);

DEFINE_CLEANUP(struct churner *, churner_free)
