/* SPDX-License-Identifier: MIT */
/*
 * util/seqlock.h, and records of statistics pages (stats/stats.h, <ringbroker/stats.h>): a reader
 * gets words that were published together, and none older than what it got before.
 */
#include <ringbroker/stats.h>

#include "models/weak-memory.h"
#include "models/weak-scenarios.h"
#include "stats/stats.h"
#include "util/seqlock.h"

enum { N_WORDS = 2, N_COPIES = 3 };

/* --- A seqlock --- */

static _Atomic uint32_t sequence;
static _Atomic uint64_t words[2 * N_WORDS];

static void set_up_seqlock(void)
{
	sequence = 0;
	for (unsigned int i = 0; i < 2 * N_WORDS; i++)
		words[i] = 0;
}

static void write_seqlock(void)
{
	for (uint64_t i = 1; i <= N_COPIES; i++)
		seqlock_write(&sequence, words, N_WORDS, (const uint64_t[N_WORDS]){i, 2 * i});
}

static void read_seqlock(void)
{
	uint64_t copy[N_WORDS], before = 0;

	for (unsigned int i = 0; i < 2; i++) {
		if (!seqlock_read(&sequence, words, N_WORDS, copy)) {
			weak_check(before == 0);
			continue;
		}
		weak_check(copy[0] >= before && copy[0] > 0 && copy[1] == 2 * copy[0]);
		before = copy[0];
	}
}

const struct weak_scenario weak_seqlock = {
	.name = "seqlock",
	.n_threads = 2,
	.max_operations = 28,
	.names = (const struct weak_name[]){{&sequence, "sequence"}, {NULL, NULL}},
	.set_up = set_up_seqlock,
	.threads = {write_seqlock, read_seqlock},
};

/* --- A record of a page: its sequence is the lower half of its first word --- */

static uint64_t record[1 + N_WORDS];

static void set_up_record(void)
{
	for (unsigned int i = 0; i < 1 + N_WORDS; i++)
		record[i] = 0;
}

static void write_record(void)
{
	for (uint64_t i = 1; i <= N_COPIES; i++) {
		stats_begin((uint32_t *)record);
		stats_store(&record[1], i);
		stats_store(&record[2], 2 * i);
		stats_end((uint32_t *)record);
	}
}

static void read_record(void)
{
	uint64_t copy[1 + N_WORDS];

	if (rbk_stats_copy(copy, record, sizeof(record)))
		weak_check(copy[2] == 2 * copy[1]);
}

const struct weak_scenario weak_record = {
	.name = "record",
	.n_threads = 2,
	.max_operations = 24,
	.names = (const struct weak_name[]){{record, "sequence"}, {NULL, NULL}},
	.set_up = set_up_record,
	.threads = {write_record, read_record},
};
