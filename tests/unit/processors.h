#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A machine in virtual time for tests of contention/verdict.h
 *
 * Processors that give turns of 3 ms to whoever is runnable there: a worker each, as far as there
 * are, and hogs, dealt out by turns. Workers have work for a share of the time, which goes
 * elsewhere while the judge's factor is too high; nobody else acts.
 */
#include <stdbool.h>
#include <stdint.h>

#include "contention/verdict.h"

enum { PROCESSORS_MAX = 64 };

/* Who takes turns on one processor: number 0 is its worker, the others are hogs. */
struct processor {
	uint32_t n_hogs, turn;
	uint64_t turn_ns; /* of this turn so far */
	uint64_t work_ns; /* that the worker has left */
};

struct processors {
	/* Set by the test before processors_run(). */
	uint32_t n, n_workers, n_hogs;
	double demand;           /* share of the time that a worker has work for: 1 ms each */
	float break_even;        /* factor from which on work goes elsewhere; 0: never */
	uint64_t hogs_period_ns; /* hogs run for a half of it; 0: always */
	uint64_t sample_ns;
	double steal;   /* share of the time that the hypervisor takes */
	double quota;   /* share of the time after which workers are throttled; 0: none */
	bool is_needed; /* no other device can do the work */
	bool is_meek;   /* somebody uses what nobody else wants, and gives way */
	bool hides_workers, hides_processors, shows_stall, jitters;
	bool is_coarse; /* what processors do is accounted for by ticks, and late */

	uint64_t now_ns, sampled_ns;
	struct place_contention judge;
	struct place_contention_verdict verdict;
	struct place_contention_sample sample;
	struct processor on[PROCESSORS_MAX];
	uint64_t random, quota_left_ns;
	uint64_t accounted_idle_ns, accounted_others_ns;

	/* What was seen since processors_forget(). */
	uint32_t n_begun, n_ended, n_shifts;
	uint64_t begun_ns, ended_ns, all_back_ns; /* when last */
	uint64_t first_away_ns, away_ns, here_ns; /* when the factor last crossed break_even */
	uint64_t worked_ns;
	double least_factor, most_factor;
	uint32_t least_workers;
};

void processors_init(struct processors *processors, uint32_t n, uint32_t n_workers);
void processors_run(struct processors *processors, uint64_t ns);
void processors_forget(struct processors *processors);
