#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The judge of contention in virtual time
 *
 * What brokerd's run-queue watcher would see of the CPU's workers and of hogs beside them, looked
 * at every 10 ms, and contention/verdict.h, which decides what comes of it.
 */
#include "contention/verdict.h"
#include "sim.h"

#define JUDGE_PERIOD_NS 10e6

struct judge {
	struct place_contention contention;
	struct place_contention_sample sample;
	double counted_ns, busy_ns; /* up to when figures were added up; what was worked by then */
	double run_ns, wait_ns, others_ns, idle_ns;
	double share;  /* how many times longer the workers took since then */
	double n_hogs; /* since then */
	double next_ns;
};

void judge_init(struct judge *judge, const struct sim *sim);
/* Adds up what was until now: before anything changes, and for every look. */
void judge_count(struct judge *judge, const struct sim *sim);
/* A look. */
const struct place_contention_verdict *judge_look(struct judge *judge, const struct sim *sim);
