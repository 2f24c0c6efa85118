#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Processes that switch
 *
 * Children of the caller that do something for the scheduler to do, as long as they are told, and
 * count what they did: a pair that passes a token through pipes on one processor and does nothing
 * else, such a pair that computes for some microseconds each time, or a mixture on every processor
 * of who computes, who passes a token in between, and who computes a little at every millisecond.
 */
#include <stdint.h>
#include <sys/types.h>

#include "util/cleanup.h"

struct switch_load;

/* A unit is half a microsecond of computing, about, but for the first. */
enum switch_load_kind {
	SWITCH_LOAD_PIPE,  /* on @cpu; a unit is a switch */
	SWITCH_LOAD_PACED, /* on @cpu */
	SWITCH_LOAD_MIXED, /* everywhere */
};

/* Between two switches of SWITCH_LOAD_PACED. */
enum { SWITCH_LOAD_PACED_UNITS = 8 };

/* Return: 0; negative errno. */
int switch_load_new(enum switch_load_kind kind, int cpu, struct switch_load **ret);
/* Return: NULL. */
struct switch_load *switch_load_free(struct switch_load *load);

void switch_load_begin(struct switch_load *load);
void switch_load_end(struct switch_load *load);

/* What they have done since they exist, and what time they had on processors for it. */
void switch_load_read(const struct switch_load *load, uint64_t *ret_units, uint64_t *ret_cpu_ns);

unsigned int switch_load_n(const struct switch_load *load);
pid_t switch_load_pid(const struct switch_load *load, unsigned int i);

DEFINE_CLEANUP(struct switch_load *, switch_load_free)
