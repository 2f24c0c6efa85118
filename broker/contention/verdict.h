#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Contention of the CPU: what its workers get, and what to do about it
 *
 * Fed with what the scheduler says of the workers and of the processors (contention/run-queue.h, by
 * way of contention/contention.c), it says by how much CPU estimates grow, how many workers to use,
 * and whether the machine counts as contended. A pure machine like the placer: no clock, no
 * allocation.
 *
 *	factor  = how many times longer a worker takes than undisturbed: while workers run,
 *	          (run + wait) / run over about the last 20 ms, or as far back as it takes to see
 *	          them run at all. While they hardly run, because work went elsewhere, it stays what
 *	          it was as long as others use as much of the processors as then, and else falls to
 *	          what workers would get beside them: an end of the contention is seen without
 *	          trying. It rises only by what was measured, where workers can be watched
 *	workers = about as many as processors' worth of time all of them would get, so that tasks
 *	          are not spread over threads that take turns, one at least; but all of them while
 *	          there is work that no other device can do, and for a second after that
 *
 * The two go to the placer side by side: the factor by placer_set_contention(), the workers by
 * placer_limit_servers(). With one of two workers in use a backlog takes twice as long, and each
 * task as long as its worker is disturbed; what is learned is divided by the factor alone.
 *
 * Why not fewer workers always: a scheduler that is fair gives every thread its share, so that who
 * has half as many gets half as much, and the other half goes to those who disturb it, not to the
 * workers that stay. Measured with nothing but the CPU, beside 1, 2 and 4 hogs a processor, one of
 * two workers did a half to two thirds of what both did, and where both had only just kept up the
 * slowest of a hundred tasks took 1 s instead of 50 ms. Fewer are worth it where what they do not
 * do is done elsewhere: then no task waits for the chunk of a helper that does not get to run, and
 * neighbours are left in peace.
 *
 * Two signals, not one: contention begins only where workers wait, and behind tasks that are not
 * the broker's: others use at least a quarter of what workers wait for; where that is not known,
 * workers are preempted. Delay while processors are idle is a quota's throttling, and steal is the
 * hypervisor's: both make estimates grow, as they make tasks slow, but neither is contention, and
 * workers are not taken back for it. Nor is it contention if workers take turns with each other.
 *
 * Against oscillation: it begins at a higher factor than it ends at, and ends only after that held
 * for end_after_ns, twice as long each time it comes back soon after. While it lasts, workers come
 * back few by few; where they do and the factor grows again, the next return takes twice as long,
 * up to max_back_off_ns. Once it is over there are twice as many with each look, until all are
 * back.
 */
#include <stdbool.h>
#include <stdint.h>

/* place_contention_config.begin_factor and so on; brokerd.conf(5) has the keys. */
struct place_contention_config {
	float begin_factor;       /* contended from that on */
	float end_factor;         /* and until it was below that */
	uint64_t end_after_ns;    /* for so long */
	uint64_t window_ns;       /* what the factor looks back, about */
	uint64_t max_back_off_ns; /* longest time until one more worker is tried */
};
#define PLACE_CONTENTION_DEFAULT               \
	((struct place_contention_config){     \
		.begin_factor = 1.25f,         \
		.end_factor = 1.1f,            \
		.end_after_ns = 50000000,      \
		.window_ns = 20000000,         \
		.max_back_off_ns = 1000000000, \
	})

/* Cumulative figures, as struct run_queue_totals has them. */
struct place_contention_sample {
	uint64_t at_ns;
	bool has_workers, has_processors, has_stall;
	uint64_t run_ns, wait_ns, n_preemptions, idle_wait_ns;
	uint64_t idle_ns, others_ns, steal_ns;
	uint64_t stall_ns;
	uint32_t n_processors;
	bool is_needed; /* there was work that no other device can do */
};

struct place_contention_verdict {
	float factor;       /* for placer_set_contention(): 1..100 */
	uint32_t n_workers; /* to use, see above; below all for a little after it has ended, too */
	bool is_contended;
	bool has_begun, has_ended; /* with this sample */
};

enum { PLACE_CONTENTION_PAST = 16 };

struct place_contention {
	struct place_contention_config config;
	uint32_t n_workers; /* that there are */
	/* Private. */
	struct place_contention_sample past[PLACE_CONTENTION_PAST]; /* the last at n_past - 1 */
	uint32_t n_past;
	struct place_contention_sample last;
	struct place_contention_verdict verdict;
	double measured;    /* the factor, when it last was */
	double held;        /* and what became of that */
	double hold_ns;     /* how slowly that is let go */
	double held_idle;   /* what throttling adds to it */
	double held_steal;  /* what both are to be multiplied by for what is stolen */
	double others;      /* share of the processors that others have */
	double others_then; /* the same when the factor was measured */
	uint64_t calm_since_ns, ended_ns, end_wait_ns;
	uint64_t changed_ns, raised_ns, back_off_ns;
	uint64_t needed_ns; /* when that was so the last time; 0: never */
	bool is_calm, has_raised, has_ended_before;
};

/* Values of @config that make no sense are replaced by ones that do. */
void place_contention_init(struct place_contention *contention,
			   const struct place_contention_config *config, uint32_t n_workers);
/*
 * Samples may come at any times; one that is not later than the last, or whose figures went back by
 * a window or are others than before (a source was replaced), only sets where to begin. Where
 * nothing is going on none are needed, but as long as the last verdict was contended or has not all
 * workers back.
 */
const struct place_contention_verdict *place_contention_feed(
	struct place_contention *contention, const struct place_contention_sample *sample);
