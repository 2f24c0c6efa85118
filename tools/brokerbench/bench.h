#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The frame of brokerbench
 *
 * A bench is a set of rows. A row compares two sides, ours and a baseline, measured in the same
 * process by turns in many short rounds, so that changes of the machine's speed affect both. If the
 * machine lacks a row's requirement, the row is skipped with a reason and has no number.
 *
 * The measuring thread calls all functions here.
 */
#include <stdbool.h>
#include <stdint.h>

#include "samples.h"

struct broker_process;

#define BENCH_MAX_MODELS 16

enum {
	BENCH_E_SKIP = 1, /* cannot be measured here; bench_skip() has reported why */
};

struct bench_env {
	/* options */
	bool json;
	bool quick;
	double seconds;     /* measuring time of one row, both sides together */
	const char *rows;   /* substring of the params of reported rows; NULL: all rows */
	const char *socket; /* socket of a running broker; NULL: benches start private ones */
	const char *models[BENCH_MAX_MODELS]; /* values of --model */
	unsigned int n_models;

	/* the machine */
	int n_cpus;     /* processors that this process may use */
	int client_cpu; /* processor of the measuring thread, if a bench spins */
	int peer_cpu;   /* processor of the other side; equal to client_cpu if there is only one */

	/* progress */
	const char *bench; /* name of the running bench */
	unsigned int n_rows;
	double ratio; /* ratio of the last reported row */
	unsigned int n_skipped;
};

struct bench {
	const char *name;
	const char *summary;  /* one line, for --list */
	const char *baseline; /* one line, for --list */

	/*
	 * Return: 0 with rows reported or skipped; BENCH_E_SKIP if the whole bench was skipped; a
	 * negative errno after bench_fail() has reported the failure.
	 */
	int (*run)(struct bench_env *env);
};

extern const struct bench bench_nop_round_trip;
extern const struct bench bench_nop_throughput;
extern const struct bench bench_wake_latency;
extern const struct bench bench_task_overhead;
extern const struct bench bench_sessions;
extern const struct bench bench_matmul_cpu;
extern const struct bench bench_mid;
extern const struct bench bench_clients;
extern const struct bench bench_matmul_library;
extern const struct bench bench_matmul_int8;
extern const struct bench bench_operators;
extern const struct bench bench_nets;
extern const struct bench bench_fusion;
extern const struct bench bench_device_tasks;
extern const struct bench bench_matmul_vulkan;
extern const struct bench bench_copied_bytes;
extern const struct bench bench_starpu;
extern const struct bench bench_cholesky;
extern const struct bench bench_graphs;
extern const struct bench bench_pipeline;
extern const struct bench bench_cut;
extern const struct bench bench_residency;
extern const struct bench bench_ledger;
extern const struct bench bench_lease;
extern const struct bench bench_time_lease;
extern const struct bench bench_decision;
extern const struct bench bench_churn;
extern const struct bench bench_contention;
extern const struct bench bench_probes;
extern const struct bench bench_scrape;
extern const struct bench bench_watched;
extern const struct bench bench_brokertop;

/*
 * Run one round of one side: measure for about @budget_ns and add at least one sample. Before the
 * first sample the round undoes the effects of the other side's round on caches and sleepers.
 * Return: 0; a negative errno, which ends the row.
 */
typedef int (*bench_round_fn)(void *data, uint64_t budget_ns, struct samples *samples);

struct bench_side {
	bench_round_fn round;
	void *data;
};

/*
 * Pause before each round, in nanoseconds. It is longer than a broker or a library spins before it
 * sleeps: libgomp's threads spin for up to eight milliseconds, on the processor that the other side
 * needs. After the pause the side that is not measured sleeps, and the measured side has slept, so
 * that the scheduler grants it time.
 */
#define BENCH_ASLEEP_NS 10000000u

/* Labels and targets of a row in the report */
struct bench_row {
	const char *params;   /* "batch=64" */
	const char *unit;     /* "ns", "M/s" */
	bool is_rate;         /* more is better: p99 is the value that 99 of 100 samples reach */
	const char *baseline; /* "bare-ring" */
	double target;        /* target of the ratio; 0: none */
	double limit;         /* target in the row's unit instead: at most limit; 0: none */
	double more;          /* likewise: at most this much above the baseline; 0: none */
};

/*
 * Measure both sides by turns for env->seconds and report the row.
 * Return: 0; a negative errno as returned by a round.
 */
int bench_compare(struct bench_env *env, const struct bench_row *row, struct bench_side ours,
		  struct bench_side baseline);

/* Report a row from samples that the bench has collected. */
void bench_report(struct bench_env *env, const struct bench_row *row, struct samples *ours,
		  struct samples *baseline);

/*
 * Report on standard error why a row, or with NULL the bench, is skipped.
 * Return: BENCH_E_SKIP.
 */
int bench_skip(struct bench_env *env, const char *params, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Report a failure on standard error.
 * Return: @error, negative.
 */
int bench_fail(struct bench_env *env, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Report a failure with @sentence alone, such as the library's.
 * Return: @error, negative.
 */
int bench_refused(struct bench_env *env, int error, const char *sentence);

/* Sleep for @duration_ns, so that idle threads go to sleep. */
void bench_settle(uint64_t duration_ns);

/* Return true if the row with these params is to be reported; see --rows. */
bool bench_is_wanted(const struct bench_env *env, const char *params);

/* Pin the calling thread to @cpu; below 0: to all processors that the process started with. */
void bench_pin(const struct bench_env *env, int cpu);
