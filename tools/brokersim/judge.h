#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The judge of contention in virtual time
 *
 * The judge derives the samples that brokerd's run-queue watcher would take of the CPU workers and
 * of hogs beside them, every 10 ms, and feeds them to contention/contention-judge.h.
 */
#include "contention/contention-judge.h"
#include "sim.h"

#define JUDGE_PERIOD_NS 10e6

struct judge {
	struct contention_judge contention;
	struct contention_sample sample;
	/* time up to which the sums below are counted; workers' busy time by then */
	double counted_ns, busy_ns;
	double run_ns, wait_ns, others_ns, idle_ns;
	double share;  /* slowdown of the workers by hogs since counted_ns, 1 without hogs */
	double n_hogs; /* number of hogs since counted_ns */
	double next_ns;
};

void judge_init(struct judge *judge, const struct sim *sim);
/*
 * Add the time since the last call to the sums. Call before the hogs or the workers change, and
 * before each sample.
 */
void judge_count(struct judge *judge, const struct sim *sim);
/*
 * Take a sample.
 * Return: the verdict on it.
 */
const struct contention_verdict *judge_look(struct judge *judge, const struct sim *sim);
