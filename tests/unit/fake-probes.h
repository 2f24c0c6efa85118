#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Fake probes whose figures a test writes; linked instead of the real ones
 *
 * One instance at a time. Another thread reads the fields that a test writes: write with
 * fake_probes_set().
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "contention/probes.h"

enum { FAKE_PROCESSORS = 2 };

struct fake_probes {
	_Atomic bool is_unavailable, has_no_memory, is_detached, walk_fails;
	_Atomic uint32_t n_walks, n_freed;
	_Atomic pid_t tids[RUN_QUEUE_MAX_THREADS];
	_Atomic int cleared[RUN_QUEUE_MAX_TENANTS]; /* times cleared */
	struct run_queue_record threads[RUN_QUEUE_MAX_THREADS];
	struct run_queue_record tenants[RUN_QUEUE_MAX_TENANTS][FAKE_PROCESSORS];
	struct run_queue_processor processors[FAKE_PROCESSORS];
};
extern struct fake_probes fake_probes;

/* Reset to the initial state: attached, and all counters 0. */
void fake_probes_reset(void);

/* Set a field of struct fake_probes or of a record. */
#define fake_probes_set(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELEASE)

/* Return the tenant that a process or a cgroup is assigned to; -1: none. */
int fake_probes_process(pid_t pid);
int fake_probes_cgroup(uint64_t id);

/* Return the record of a thread; NULL if it has none yet. */
struct run_queue_record *fake_probes_of(pid_t tid);
