#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * CPU contention: the workers' share of processor time, and the reaction to it
 *
 * This module is fed with the scheduler's figures on workers and processors
 * (contention/run-queue.h, by way of contention/contention.c). Its verdict is the factor by which
 * CPU estimates grow, the number of workers to use, and whether the machine counts as contended. It
 * is a pure state machine like the placer: no clock, no allocation.
 *
 *	factor  = how many times longer a worker takes than undisturbed. While workers run, it is
 *	          (run + wait) / run over about the last 20 ms, or over the shortest longer time in
 *	          which they ran at all. While they hardly run, because work was placed elsewhere,
 *	          it is held as long as others use as much of the processors as before. Otherwise
 *	          it falls to what workers would get beside them: so the end of contention is seen
 *	          without a trial. If workers can be watched, only measurements raise it
 *	workers = about as many as the processors' worth of time that all of them would get, at
 *	          least one, so that tasks are not spread over threads that take turns; but all of
 *	          them while there is work that no other device can do, and for a second after that
 *
 * The placer takes both separately: the factor by placer_set_contention(), the workers by
 * placer_limit_servers(). With one of two workers in use a backlog takes twice as long, and each
 * task takes longer by its worker's factor; learned times include neither.
 *
 * Why not always fewer workers: a fair scheduler gives every thread its share. With half as many
 * workers the broker gets half as much time, and the other half goes to the disturbing processes,
 * not to the remaining workers. Measured with the CPU as the only device, beside 1, 2 and 4 hogs
 * per processor, one of two workers did a half to two thirds of the work of both. Where both had
 * only just kept up, the slowest of a hundred tasks took 1 s instead of 50 ms. Fewer workers pay
 * off if another device does the rest: then no task waits for the chunk of a helper that does not
 * run, and other processes are disturbed less.
 *
 * Two signals are required: contention begins only if workers wait, and if they wait for tasks that
 * are not the broker's. The second means that others use at least a quarter of the time that
 * workers wait for; if that is unknown, that workers are preempted. Delay while processors are idle
 * is a quota's throttling, and steal is the hypervisor's: both slow tasks and so raise estimates,
 * but neither is contention, and neither reduces the workers. Workers that take turns with each
 * other are no contention either.
 *
 * Against oscillation: contention begins at a higher factor than it ends at. It ends only after the
 * factor was below the latter for end_after_ns, twice as long each time it returns soon after.
 * While it lasts, workers are added back a few at a time; if the factor then grows again, the next
 * addition waits twice as long, up to max_back_off_ns. Once contention is over the workers double
 * with each look, until all are in use.
 */
#include <stdbool.h>
#include <stdint.h>

/* Configuration, contention_config.begin_factor and so on; brokerd.conf(5) has the keys. */
struct contention_config {
	float begin_factor;       /* contention begins at this factor */
	float end_factor;         /* contention ends below this factor */
	uint64_t end_after_ns;    /* time that the factor must stay below end_factor */
	uint64_t window_ns;       /* approximate length of the window for the factor */
	uint64_t max_back_off_ns; /* longest time until one more worker is tried */
};
#define CONTENTION_CONFIG_DEFAULT              \
	((struct contention_config){           \
		.begin_factor = 1.25f,         \
		.end_factor = 1.1f,            \
		.end_after_ns = 50000000,      \
		.window_ns = 20000000,         \
		.max_back_off_ns = 1000000000, \
	})

/* Cumulative figures, as in struct run_queue_totals. */
struct contention_sample {
	uint64_t at_ns;
	bool has_workers, has_processors, has_stall;
	uint64_t run_ns, wait_ns, n_preemptions, idle_wait_ns;
	uint64_t idle_ns, others_ns, steal_ns;
	uint64_t stall_ns;
	uint32_t n_processors;
	bool is_needed; /* there was work that no other device could do */
};

struct contention_verdict {
	float factor;       /* for placer_set_contention(): 1..100 */
	uint32_t n_workers; /* workers to use; stays below all for a little after the end, too */
	bool is_contended;
	bool has_begun, has_ended; /* true for the sample of the change */
};

enum { CONTENTION_JUDGE_PAST = 16 };

struct contention_judge {
	struct contention_config config;
	uint32_t n_workers; /* workers in total */
	/* Private. */
	struct contention_sample past[CONTENTION_JUDGE_PAST]; /* the latest at n_past - 1 */
	uint32_t n_past;
	struct contention_sample last;
	struct contention_verdict verdict;
	double measured;    /* factor when it was last measured */
	double held;        /* measured, decayed since then */
	double hold_ns;     /* time constant of that decay */
	double held_idle;   /* part added by throttling */
	double held_steal;  /* multiplier of both for stolen time */
	double others;      /* share of the processors that others use */
	double others_then; /* the same when the factor was measured */
	uint64_t calm_since_ns, ended_ns, end_wait_ns;
	uint64_t changed_ns, raised_ns, back_off_ns;
	uint64_t needed_ns; /* last time with is_needed; 0: never */
	bool is_calm, has_raised, has_ended_before;
};

/* Initialize; impossible values of @config are replaced. */
void contention_judge_init(struct contention_judge *judge, const struct contention_config *config,
			   uint32_t n_workers);
/*
 * Judge a sample. Samples may come at any times. A sample only sets a new starting point if it is
 * not later than the last, if its figures decreased by a window, or if it has other figures than
 * before (the source was replaced). While there is no work, samples are needed only as long as the
 * last verdict was contended or left workers out.
 */
const struct contention_verdict *contention_judge_feed(struct contention_judge *judge,
						       const struct contention_sample *sample);
