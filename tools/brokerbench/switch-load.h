#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Processes that switch
 *
 * Children of the caller that load the scheduler while they are told to, and count their work. One
 * load is a pair that passes a token through pipes on one processor and does nothing else. Another
 * is such a pair that computes for some microseconds each time. A mixture on every processor has a
 * process that computes, a pair that passes a token, and a process that computes a little every
 * millisecond.
 */
#include <stdint.h>
#include <sys/types.h>

#include "util/cleanup.h"

struct switch_load;

/* Kinds of load. A unit is about half a microsecond of computing, except for SWITCH_LOAD_PIPE. */
enum switch_load_kind {
	SWITCH_LOAD_PIPE,  /* pair on @cpu; a unit is a switch */
	SWITCH_LOAD_PACED, /* pair on @cpu that computes */
	SWITCH_LOAD_MIXED, /* mixture on every processor */
};

/* units between two switches of SWITCH_LOAD_PACED */
enum { SWITCH_LOAD_PACED_UNITS = 8 };

/* Return: 0; a negative errno. */
int switch_load_new(enum switch_load_kind kind, int cpu, struct switch_load **ret);
/* Return: NULL. */
struct switch_load *switch_load_free(struct switch_load *load);

void switch_load_begin(struct switch_load *load);
void switch_load_end(struct switch_load *load);

/* Read the processes' units and processor time since they began. */
void switch_load_read(const struct switch_load *load, uint64_t *ret_units, uint64_t *ret_cpu_ns);

unsigned int switch_load_n(const struct switch_load *load);
pid_t switch_load_pid(const struct switch_load *load, unsigned int i);

DEFINE_CLEANUP(struct switch_load *, switch_load_free)
