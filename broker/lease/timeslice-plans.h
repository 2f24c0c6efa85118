#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Timeslices: the tasks of a tenant's plans on a device that leases share
 *
 * The tasks of a tenant's plans take part as if they were one more lease of the tenant, with the
 * default share. The dispatcher owns this record, and says which tasks there are; timeslice.c says
 * which of them may start. Reactor thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "util/list.h"

struct tenant;

enum { TIMESLICE_CLASSES = 4 }; /* of priority_class() */

/*
 * All zero at first but tenant and n_open, which is TIMESLICE_CLASSES: the tasks are not held back.
 */
struct timeslice_plans {
	struct list_node link;                /* in timeslice_device.plans if is_known */
	struct timeslice_plans *next_changed; /* for timeslice_share_plans() */
	struct tenant *tenant;
	bool is_known; /* timeslice.c knows it */
	/*
	 * The dispatcher's: classes of tasks, as bits. Waiting tasks are left after the device was
	 * given all that may start and for which it has room; tasks under way were given to it.
	 */
	uint8_t waiting, under_way;
	/* timeslice.c's: tasks of a class below this one may start */
	uint8_t n_open;

	/* The rest is private to timeslice.c. */
	bool is_active;      /* there are tasks, as of the last timeslice_share_plans() */
	bool is_in_turn;     /* the plans' turn is also that of this tenant */
	bool had_turn;       /* tasks of it began in this turn */
	uint64_t tag;        /* as lease_timeslice.tag */
	uint8_t class;       /* of the most urgent tasks that there are, or were last */
	uint64_t busy_ns;    /* since when there are tasks without a long pause */
	uint64_t idle_ns;    /* begin of the last pause */
	uint64_t waiting_ns; /* begin of the wait, if it has tasks that must not start; 0: none */
	uint64_t more_ns;    /* scratch of a look: time used since the last one */
};
