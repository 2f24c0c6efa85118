#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Who made others wait, of the last ten seconds
 *
 * The probes keep a table of heavy hitters per record (struct run_queue_causer). What its entries
 * grew by between two looks is added up per second; entries that took others' places are known by
 * what they began with. Who is looked up by cgroup, name, and whose it is: processes that come and
 * go are one. Memory is bounded: of more in a second, those with the least time are left out.
 */
#include <stddef.h>
#include <stdint.h>

#include "../../bpf/run-queue-layout.h"

enum { DELAY_CAUSES_SECONDS = 10, DELAY_CAUSES_PER_SECOND = 16, DELAY_CAUSES_MERGED = 64 };

/* Who, and how much in some time; overcount_ns is of no meaning. */
struct delay_causes_second {
	uint32_t n;
	struct run_queue_causer causers[DELAY_CAUSES_PER_SECOND];
};

/* A table as it was looked at last. */
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

/* Bytes of one for @n_tables; it is zeroed by who allocates it. */
size_t delay_causes_bytes(uint32_t n_tables);

/* What is in @table is of no interest: it begins from there. */
void delay_causes_begin(struct delay_causes *causers, uint32_t i,
			const struct run_queue_causer *table);

/* Takes what @table, the @i-th, has grown by. @table changes meanwhile. */
void delay_causes_feed(struct delay_causes *causers, uint64_t now_ns, uint32_t i,
		       const struct run_queue_causer *table);

/* Nobody is @who any more: what was its is nobody's, as far as it is known by now. */
void delay_causes_forget(struct delay_causes *causers, uint32_t who);

/* Of several, merged. Zeroed: none. */
struct delay_causes_sum {
	uint32_t n;
	struct run_queue_causer causers[DELAY_CAUSES_MERGED];
};
/* Adds the last ten seconds. */
void delay_causes_add(const struct delay_causes *causers, uint64_t now_ns,
		      struct delay_causes_sum *sum);
/* The @n with the most time, in order, first; those without any are left out. Return: how many. */
uint32_t delay_causes_top(struct delay_causes_sum *sum, uint32_t n);
