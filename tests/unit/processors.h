#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A machine in virtual time for tests of contention/contention-judge.h
 *
 * Processors give turns of 3 ms to their runnable threads: one worker each, up to n_workers, and
 * hogs, which are spread evenly over the processors. Workers have work for a share of the time.
 * Their work moves elsewhere while the judge's factor is at least break_even. No other thread runs,
 * unless is_meek.
 */
#include <stdbool.h>
#include <stdint.h>

#include "contention/contention-judge.h"

enum { PROCESSORS_MAX = 64 };

/* The threads that take turns on one processor: number 0 is its worker, the others are hogs. */
struct processor {
	uint32_t n_hogs, turn;
	uint64_t turn_ns; /* length of the current turn so far */
	uint64_t work_ns; /* work that the worker has left */
};

struct processors {
	/* Set by the test before processors_run(). */
	uint32_t n, n_workers, n_hogs;
	double demand;           /* share of the time for which a worker gets work, 1 ms each */
	float break_even;        /* factor at which work moves elsewhere; 0: never */
	uint64_t hogs_period_ns; /* hogs run for half of each period; 0: always */
	uint64_t sample_ns;
	double steal;   /* share of the time that the hypervisor steals */
	double quota;   /* share of the time after which workers are throttled; 0: none */
	bool is_needed; /* no other device can do the work */
	bool is_meek;   /* other threads use all idle time, and give way */
	bool hides_workers, hides_processors, shows_stall, jitters;
	bool is_coarse; /* processor times are counted by ticks, and late */

	uint64_t now_ns, sampled_ns;
	struct contention_judge judge;
	struct contention_verdict verdict;
	struct contention_sample sample;
	struct processor on[PROCESSORS_MAX];
	uint64_t random, quota_left_ns;
	uint64_t accounted_idle_ns, accounted_others_ns;

	/* Observed since processors_forget(). */
	uint32_t n_begun, n_ended, n_shifts;
	/* time of the last begin, end, and return of all workers */
	uint64_t begun_ns, ended_ns, all_back_ns;
	/* time of the first and last shift away, and of the last back */
	uint64_t first_away_ns, away_ns, here_ns;
	uint64_t worked_ns;
	double least_factor, most_factor;
	uint32_t least_workers;
};

void processors_init(struct processors *processors, uint32_t n, uint32_t n_workers);
void processors_run(struct processors *processors, uint64_t ns);
void processors_forget(struct processors *processors);
