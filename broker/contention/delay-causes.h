#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Causers of delays in the last ten seconds
 *
 * The probes keep a table of heavy hitters per record (struct run_queue_causer). The growth of its
 * entries between two looks is added up per second; an entry that replaced another is recognised by
 * its overcount. Causers are identified by cgroup, name and owner, so short-lived processes add up.
 * Memory is bounded: per second, surplus causers with the least time are dropped.
 */
#include <stddef.h>
#include <stdint.h>

#include "../../bpf/run-queue-layout.h"

enum { DELAY_CAUSES_SECONDS = 10, DELAY_CAUSES_PER_SECOND = 16, DELAY_CAUSES_MERGED = 64 };

/* Causers and their time within a second; overcount_ns is unused. */
struct delay_causes_second {
	uint32_t n;
	struct run_queue_causer causers[DELAY_CAUSES_PER_SECOND];
};

/* A table as of the last look. */
struct delay_causes_seen {
	struct run_queue_causer causers[RUN_QUEUE_CAUSERS];
};

struct delay_causes {
	uint64_t began_ns[DELAY_CAUSES_SECONDS]; /* 0: no such second yet */
	uint32_t now;
	struct delay_causes_second seconds[DELAY_CAUSES_SECONDS];
	uint32_t n_tables;
	struct delay_causes_seen seen[]; /* one per table */
};

/* Return the bytes of a struct for @n_tables; the caller allocates it, zeroed. */
size_t delay_causes_bytes(uint32_t n_tables);

/* Set the present content of @table as the starting point. */
void delay_causes_begin(struct delay_causes *causers, uint32_t i,
			const struct run_queue_causer *table);

/* Add the growth of @table, the @i-th. @table may change meanwhile. */
void delay_causes_feed(struct delay_causes *causers, uint64_t now_ns, uint32_t i,
		       const struct run_queue_causer *table);

/* Forget the owner @who: its causers, as far as known now, have no owner. */
void delay_causes_forget(struct delay_causes *causers, uint32_t who);

/* Merged causers of several structs. Zeroed: empty. */
struct delay_causes_sum {
	uint32_t n;
	struct run_queue_causer causers[DELAY_CAUSES_MERGED];
};
/* Add the last ten seconds to the sum. */
void delay_causes_add(const struct delay_causes *causers, uint64_t now_ns,
		      struct delay_causes_sum *sum);
/*
 * Sort the @n causers with the most time to the front; causers without time are left out.
 * Return: their number.
 */
uint32_t delay_causes_top(struct delay_causes_sum *sum, uint32_t n);
