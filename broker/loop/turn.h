#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The reactor's turn: its budget, and which work used it
 *
 * A turn is the reactor's work between two looks at the kernel. The turn's time is counted in
 * slices, each with a cause and a tenant. A source of work with several pieces calls turn_is_over()
 * after each piece and leaves the rest for a later turn. A turn of TURN_OVERRUN budgets or more is
 * an overrun, counted for the cause that took most of its time.
 *
 * To count work under its own cause:
 *
 *	struct turn_source outer = turn_enter(turn, RBK_TURN_PLANS, tenant->number);
 *	...
 *	turn_leave(turn, outer);
 *
 * A turn's length is wall time, as clients see it. On a busy machine the reactor may be preempted
 * in the middle of a turn, for which the broker is not to blame. Therefore the processor time of
 * turns is measured, too. Reading the thread's clock is a system call, which a turn of ring entries
 * alone does not make. Sources that the kernel woke, and work for clients apart from their rings,
 * call turn_time_cpu() when they begin. The clock is read again only if the turn was long.
 *
 * Reactor thread only. Each turn belongs to a loop: loop_current() of loop.h.
 */
#include <stdbool.h>
#include <stdint.h>
#include <ringbroker/stats.h>

enum {
	TURN_BUDGET_US = 100, /* unless configured otherwise */
	TURN_OVERRUN = 10,    /* budgets */
	/* Work that took 1 / TURN_LONG_PART of a budget may have been interrupted. */
	TURN_LONG_PART = 4,
};

/* The cause and tenant of a slice. */
struct turn_source {
	enum rbk_turn_cause cause; /* RBK_TURN_CAUSES: no slice is open */
	uint32_t tenant;           /* tenant number; 0: none, or not known */
};

/* Work whose cost is measured. Spans may be nested. */
struct turn_span {
	uint64_t begin_ticks;
	uint64_t lost_ticks; /* turn.lost_ticks at its begin */
};

/* Overruns and the longest turn since start or turn_reset(). */
struct turn_report {
	uint64_t n_overruns[RBK_TURN_CAUSES];
	uint64_t longest_ticks;
	struct turn_source longest; /* the source that took most of the longest turn */
	/*
	 * The longest processor time of a turn that called turn_time_cpu(). Time before the call
	 * counts as wall time. 0: no such turn.
	 */
	uint64_t longest_cpu_ticks;
};

struct turn {
	uint64_t budget_ticks;
	uint64_t notable_ticks; /* a longer turn is an overrun, or the longest turn */
	uint64_t entry_ticks;   /* of this turn, in ring entries; the dispatcher adds to it */
	uint64_t other_ticks;   /* of this turn, in closed slices */
	uint64_t slice_ticks;   /* start of the open slice, or end of the last one */
	struct turn_source source;
	uint32_t causes;            /* bit set of the causes of this turn's slices */
	struct turn_source entries; /* the tenant of a long batch of ring entries */
	/* ticks of this turn by cause, without those in entry_ticks */
	uint64_t ticks[RBK_TURN_CAUSES];
	uint64_t largest[RBK_TURN_CAUSES]; /* the longest slice */
	uint32_t tenants[RBK_TURN_CAUSES]; /* tenant of the longest slice */
	uint64_t (*read_ticks)(void);      /* clock for tests; NULL: clock_ticks() */
	uint64_t (*read_cpu_ns)(void);     /* the thread's processor time; replaced by tests */
	bool has_cpu;                      /* turn_time_cpu() was called in this turn */
	uint64_t cpu_ns;                   /* processor time at that call */
	uint64_t rested_cpu_ns; /* processor time at turn_rest() in this turn; 0: no call */
	uint64_t before_ticks;  /* ticks that the turn had used at that call */
	/* the last reading of both clocks; valid while has_cpu */
	uint64_t seen_ticks, seen_cpu_ns;
	uint64_t lost_ticks; /* time in which the thread is known not to have run; grows */
	struct turn_report report;
};

/* Initialise a turn with a budget of @budget_ns. */
void turn_init(struct turn *turn, uint64_t budget_ns);
void turn_set_budget(struct turn *turn, uint64_t budget_ns);

/*
 * Close the open slice, if any, and open a new one. Reads the clock. Return: the outer source, for
 * turn_leave().
 */
struct turn_source turn_enter(struct turn *turn, enum rbk_turn_cause cause, uint32_t tenant);

/* Open a slice at @begin_ticks, a recent reading of the clock. No slice may be open. */
static inline void turn_open_at(struct turn *turn, enum rbk_turn_cause cause, uint64_t begin_ticks)
{
	turn->source = (struct turn_source){.cause = cause};
	turn->slice_ticks = begin_ticks;
}

/* Close the open slice and open one for @outer. Reads the clock. */
void turn_leave(struct turn *turn, struct turn_source outer);

/* Do as turn_leave(), but end the slice at about @end_ticks instead of reading the clock. */
void turn_leave_at(struct turn *turn, struct turn_source outer, uint64_t end_ticks);

/* Set the cause of the whole open slice, if any, once the cause is known. */
static inline void turn_set_cause(struct turn *turn, enum rbk_turn_cause cause)
{
	if (turn->source.cause != RBK_TURN_CAUSES)
		turn->source.cause = cause;
}

/* Measure the processor time of this turn from now on. One system call per turn. */
void turn_time_cpu(struct turn *turn);

/*
 * Note the processor time before the thread sleeps. turn_time_cpu() makes no system call then, so
 * that who has woken the thread does not wait for it: the time includes that of falling asleep.
 */
void turn_rest(struct turn *turn);

/* Return the time on the clock that measures slices, in ticks. */
uint64_t turn_now(const struct turn *turn);

/*
 * Return an upper bound of the processor time, in ticks, that this thread has used since
 * @begin_ticks. Return 0 in a turn without turn_time_cpu(), or if fewer than @least_ticks of wall
 * time have passed. Makes a system call otherwise, which is rare.
 */
uint64_t turn_worked_ticks(const struct turn *turn, uint64_t begin_ticks, uint64_t least_ticks);

/* Begin work for a client at @begin_ticks, a recent reading of the clock. */
static inline struct turn_span turn_span(const struct turn *turn, uint64_t begin_ticks)
{
	return (struct turn_span){.begin_ticks = begin_ticks, .lost_ticks = turn->lost_ticks};
}

/*
 * Return what the work of @span, which ends at @end_ticks, costs its client: time in which the
 * reactor was preempted is not the client's fault. That is known in turns with turn_time_cpu(), and
 * looked for if the work took long, by a system call.
 */
uint64_t turn_span_cost(struct turn *turn, struct turn_span span, uint64_t end_ticks);

/* Return the ticks that this turn has used. Reads the clock if a slice is open. */
uint64_t turn_used_ticks(const struct turn *turn);

/* Return: true if this turn has used up its budget. */
static inline bool turn_is_over(const struct turn *turn)
{
	return turn_used_ticks(turn) >= turn->budget_ticks;
}

/*
 * Return the ticks of this turn at which a source that begins now must stop: the end of the budget,
 * or when the source itself has used 1 / @part of a budget, whichever is later. So the last source
 * of a turn advances, too, however much earlier sources took.
 */
static inline uint64_t turn_stop_ticks(const struct turn *turn, unsigned int part)
{
	uint64_t stop_ticks = turn_used_ticks(turn) + turn->budget_ticks / part;

	return stop_ticks > turn->budget_ticks ? stop_ticks : turn->budget_ticks;
}

/* Count a turn and clear it. For turn_end(). */
void turn_count(struct turn *turn);

/* End a turn and begin the next one. For loop_turn(). No slice may be open. */
static inline void turn_end(struct turn *turn)
{
	if (__builtin_expect(turn->other_ticks > 0 || turn->entry_ticks > turn->notable_ticks, 0))
		turn_count(turn);
	turn->entry_ticks = 0;
	turn->has_cpu = false;
	turn->rested_cpu_ns = 0;
}

/* Reset the report. */
void turn_reset(struct turn *turn);
