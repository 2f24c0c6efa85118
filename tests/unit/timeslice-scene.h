#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Tenants' leased programs, and clients of the broker, that share a device in virtual time
 *
 * The device runs jobs in the order in which they came, whoever submitted them.
 */
#include <stdbool.h>
#include <stdint.h>

#include "lease/lease.h"
#include "support/test.h"
#include "tenant/tenant.h"

enum { DEVICE = 1, N_TENANTS = 3, MAX_PROGRAMS = 20, URGENT = RBK_PRIORITY_URGENT };

static const uint64_t us = 1000, ms = 1000000, s = 1000000000;

extern struct account_book *book;
extern struct tenant tenants[N_TENANTS];
extern struct leases leases;
extern uint64_t now_ns, device_free_ns; /* the device runs jobs in order */

/* A leased program, which has one job on the device at a time. */
struct program {
	struct lease *lease;
	struct lease_member member;
	uint64_t job_ns, pause_ns; /* time of a job; pause before the next one */
	bool is_deaf;              /* it never tells DONE */
	uint64_t end_ns;           /* end of the job on the device; 0: none */
	uint64_t ready_ns;         /* when the next job is ready */
	uint32_t done_word;
	uint64_t used_ns, longest_ns; /* jobs that ended; longest time from ready to end */
};
extern struct program programs[MAX_PROGRAMS];
extern unsigned int n_programs;

/*
 * A tenant's tasks of one class on the device, as its client and the dispatcher keep them: so many
 * under way that they take half a millisecond, or one.
 */
enum { MAX_TASKS = 16 };
struct client {
	uint64_t task_ns, pause_ns; /* time of a task; pause before the next one */
	unsigned int depth;         /* tasks that the client has in flight; 0: none */
	uint8_t class;
	struct {
		uint64_t ready_ns, begin_ns, end_ns; /* end_ns: 0: it has not begun */
	} tasks[MAX_TASKS];
	unsigned int n_under_way;
	uint64_t used_ns, longest_ns, n_done; /* as of a program */
};
extern struct client clients[N_TENANTS];
extern struct timeslice_plans plans[N_TENANTS];
/* Tasks' times include waits for leases' work; false: the kernel's figures correct that. */
extern bool do_waits_count;

/* The last timeslices that ended, with their leases' numbers. */
enum { MAX_RECORDS = 64 };
struct scene_record {
	struct timeslice_record record;
	uint32_t lease;
};
extern struct scene_record records[MAX_RECORDS];
extern unsigned int n_records;

/* Return the timeslice that ended last, which has to be one of the program's. */
const struct timeslice_record *last_of(const struct program *program);
int setup(void **state);
int teardown(void **state);
/* @priority: RBK_PRIORITY_COUNT: it does not share the device. */
struct program *add(unsigned int tenant, uint32_t priority, uint64_t job_ns, uint64_t pause_ns);
/* Have a tenant's client keep @depth tasks in flight. */
struct client *add_client(unsigned int tenant, uint32_t priority, unsigned int depth,
			  uint64_t task_ns, uint64_t pause_ns);
enum rbk_timeslice state_of(const struct program *program);
void tell_done(struct program *program);
/* Tell which tasks of a tenant's plans wait and are under way, as bits by class. */
void share_plans(unsigned int tenant, uint8_t waiting, uint8_t under_way);
void run_for(uint64_t ns);
/* Begin to measure, and run. */
void measure(uint64_t ns);
double ratio(const struct program *a, const struct program *b);
void expect_between(double least, double value, double most);
