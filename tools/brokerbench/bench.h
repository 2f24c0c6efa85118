#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The frame of brokerbench
 *
 * A bench is a set of rows; a row is a contest between two sides, ours and a baseline, measured in
 * the same process by turns in many short rounds, so that a machine that changes its mind about
 * its speed changes it for both. What a row needs and the machine lacks is a skip with a reason,
 * never a number.
 *
 * One thread, the measuring one, calls everything here.
 */
#include <stdbool.h>
#include <stdint.h>

#include "samples.h"

struct broker_process;

enum {
	BENCH_E_SKIP = 1, /* cannot be measured here; bench_skip() has said why */
};

struct bench_env {
	/* Options */
	bool json;
	bool quick;
	double seconds;     /* measuring time of one row, both sides together */
	const char *rows;   /* what params of rows to be told have in them; NULL: all are */
	const char *socket; /* of a running broker; NULL: private ones are started */

	/* The machine */
	int n_cpus;     /* that this process may use */
	int client_cpu; /* where the measuring thread is pinned, if a bench spins */
	int peer_cpu;   /* where the other side is pinned; the same one if there is only one */

	/* Progress */
	const char *bench; /* being run */
	unsigned int n_rows;
	double ratio; /* of the row that was reported last */
	unsigned int n_skipped;
};

struct bench {
	const char *name;
	const char *summary;  /* one line, for --list */
	const char *baseline; /* likewise */

	/*
	 * Return: 0, rows have been reported or skipped; BENCH_E_SKIP, the whole bench was
	 * skipped; negative errno, bench_fail() has said what failed.
	 */
	int (*run)(struct bench_env *env);
};

extern const struct bench bench_nop_round_trip;
extern const struct bench bench_nop_throughput;
extern const struct bench bench_wake_latency;
extern const struct bench bench_task_overhead;
extern const struct bench bench_sessions;
extern const struct bench bench_matmul_cpu;
extern const struct bench bench_matmul_library;
extern const struct bench bench_matmul_int8;
extern const struct bench bench_operators;
extern const struct bench bench_nets;
extern const struct bench bench_fusion;
extern const struct bench bench_matmul_vulkan;
extern const struct bench bench_copied_bytes;
extern const struct bench bench_starpu;
extern const struct bench bench_residency;
extern const struct bench bench_ledger;
extern const struct bench bench_lease;
extern const struct bench bench_decision;
extern const struct bench bench_contention;
extern const struct bench bench_probes;
extern const struct bench bench_scrape;
extern const struct bench bench_watched;
extern const struct bench bench_brokertop;

/*
 * One round of one side: measures for about @budget_ns and adds its samples, one at least. What
 * the other side's round did to caches and to sleepers is undone before the first sample.
 * Return: 0; negative errno, which ends the row.
 */
typedef int (*bench_round_fn)(void *data, uint64_t budget_ns, struct samples *samples);

struct bench_side {
	bench_round_fn round;
	void *data;
};

/*
 * Longer than a broker or a library spins before it sleeps: threads of libgomp do for up to eight
 * milliseconds, on the processor that the other side wants. There is such a pause before each
 * round: who is not measured sleeps, and who is has slept, so that the scheduler owes it time.
 */
#define BENCH_ASLEEP_NS 10000000u

/* What a row is called in the report. */
struct bench_row {
	const char *params;   /* "batch=64" */
	const char *unit;     /* "ns", "M/s" */
	bool is_rate;         /* more is better: p99 is what 99 of 100 samples reach */
	const char *baseline; /* "bare-ring" */
	double target;        /* of the ratio; 0: none */
	double limit;         /* the target in its unit instead: at most; 0: that is none */
	double more;          /* likewise: at most so much more than the baseline; 0: none */
};

/*
 * Measures both sides by turns for env->seconds and reports the row.
 * Return: 0; negative errno as a round returned it.
 */
int bench_compare(struct bench_env *env, const struct bench_row *row, struct bench_side ours,
		  struct bench_side baseline);

/*
 * Reports a row from samples that the bench collected itself.
 */
void bench_report(struct bench_env *env, const struct bench_row *row, struct samples *ours,
		  struct samples *baseline);

/* Says on standard error why a row (or, with NULL, the bench) is skipped. Return: BENCH_E_SKIP. */
int bench_skip(struct bench_env *env, const char *params, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Says on standard error what failed. Return: @error, negative. */
int bench_fail(struct bench_env *env, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Likewise where @sentence says it all, as the library's do. */
int bench_refused(struct bench_env *env, int error, const char *sentence);

/* Sleeps; who should be asleep has gone to sleep afterwards. */
void bench_settle(uint64_t duration_ns);

/* Is the row of these params to be told? See --rows. */
bool bench_is_wanted(const struct bench_env *env, const char *params);

/* Pins the calling thread; @cpu below 0: to every processor that the process started with. */
void bench_pin(const struct bench_env *env, int cpu);
