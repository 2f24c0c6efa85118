#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The reactor's turn: its budget, and what used it
 *
 * A turn is what the reactor does between two looks at the kernel. Its time is counted in slices,
 * each with a cause and the tenant that it is for. A source of work that has more than one piece
 * asks turn_is_over() after each piece and leaves the rest for a later turn. A turn that takes
 * TURN_OVERRUN budgets is an overrun of the cause that took most of it.
 *
 * To have work counted under its own cause:
 *
 *	struct turn_source outer = turn_enter(turn, RBK_TURN_PLANS, tenant->number);
 *	...
 *	turn_leave(turn, outer);
 *
 * A turn's length is wall time, as clients feel it. On a busy machine the reactor is also preempted
 * in the middle of a turn, which says nothing of the broker. So the processor time of turns is
 * measured, too: the thread's clock is a system call, which a turn of nothing but ring entries does
 * not make. Sources that were woken by the kernel, or work for clients beside their rings, call
 * turn_time_cpu() when they begin; the clock is read again only if the turn was a long one.
 *
 * Reactor thread only. Each turn belongs to a loop: loop_current() of loop.h.
 */
#include <stdbool.h>
#include <stdint.h>
#include <ringbroker/stats.h>

enum {
	TURN_BUDGET_US = 100, /* unless configured otherwise */
	TURN_OVERRUN = 10,    /* budgets */
};

/* Cause and tenant of a slice. */
struct turn_source {
	enum rbk_turn_cause cause; /* RBK_TURN_CAUSES: no slice is open */
	uint32_t tenant;           /* tenant number; 0: none, or not known */
};

/* Overruns and the longest turn since start, or since turn_reset(). */
struct turn_report {
	uint64_t n_overruns[RBK_TURN_CAUSES];
	uint64_t longest_ticks;
	struct turn_source longest; /* what took most of that turn */
	/* The most processor time that a turn with turn_time_cpu() took, what it did before that
	 * counted as wall time; 0: there was none. */
	uint64_t longest_cpu_ticks;
};

struct turn {
	uint64_t budget_ticks;
	uint64_t notable_ticks; /* a turn above it is an overrun, or the longest */
	uint64_t entry_ticks;   /* of this turn, for ring entries: the dispatcher adds to it */
	uint64_t other_ticks;   /* of this turn, in slices that are closed */
	uint64_t slice_ticks;   /* when the open slice began, or the last one ended */
	struct turn_source source;
	uint32_t causes;                   /* of this turn's slices: a bit for each */
	struct turn_source entries;        /* the tenant of a long batch of entries */
	uint64_t ticks[RBK_TURN_CAUSES];   /* of this turn, by cause; as the next two, but for
					      entries */
	uint64_t largest[RBK_TURN_CAUSES]; /* slice */
	uint32_t tenants[RBK_TURN_CAUSES]; /* whose slice that was */
	uint64_t (*read_ticks)(void);      /* NULL: clock_ticks(); for tests */
	uint64_t (*read_cpu_ns)(void);     /* the thread's processor time; likewise */
	bool has_cpu;                      /* turn_time_cpu() was called in this turn: */
	uint64_t cpu_ns;                   /* the processor time then, and */
	uint64_t before_ticks;             /* what the turn had used */
	struct turn_report report;
};

/* @budget_ns: of a turn. */
void turn_init(struct turn *turn, uint64_t budget_ns);
void turn_set_budget(struct turn *turn, uint64_t budget_ns);

/* Opens a slice, and closes the one that was open. Return: for turn_leave(). Reads the clock. */
struct turn_source turn_enter(struct turn *turn, enum rbk_turn_cause cause, uint32_t tenant);

/* Opens a slice where none is open, at @begin_ticks, which was read a moment ago. */
static inline void turn_open_at(struct turn *turn, enum rbk_turn_cause cause, uint64_t begin_ticks)
{
	turn->source = (struct turn_source){.cause = cause};
	turn->slice_ticks = begin_ticks;
}

/* Closes the open slice and opens another one for @outer. Reads the clock. */
void turn_leave(struct turn *turn, struct turn_source outer);

/* turn_leave() without reading the clock: the slice ends at about @end_ticks. */
void turn_leave_at(struct turn *turn, struct turn_source outer, uint64_t end_ticks);

/* Set the cause of the open slice, if any, once it is known: the whole slice counts for @cause. */
static inline void turn_set_cause(struct turn *turn, enum rbk_turn_cause cause)
{
	if (turn->source.cause != RBK_TURN_CAUSES)
		turn->source.cause = cause;
}

/* Has the processor time of this turn measured from now on. A system call, once in a turn. */
void turn_time_cpu(struct turn *turn);

/* The time, as slices are measured. */
uint64_t turn_now(const struct turn *turn);

/*
 * The processor time that this thread has used since @begin_ticks, at most, in a turn of which
 * turn_time_cpu() was called; else, and where not even @least_ticks have passed, 0. A system call
 * in the rare case.
 */
uint64_t turn_worked_ticks(const struct turn *turn, uint64_t begin_ticks, uint64_t least_ticks);

/* The time that this turn has taken. Reads the clock if a slice is open. */
uint64_t turn_used_ticks(const struct turn *turn);

/* Return: true if this turn has used up its budget. */
static inline bool turn_is_over(const struct turn *turn)
{
	return turn_used_ticks(turn) >= turn->budget_ticks;
}

/*
 * When a source that begins now has to stop, in ticks used of this turn: at the end of the budget,
 * or when it has taken a @part-th of one itself, whichever is later. So a source that comes last
 * gets on, however much those before it took.
 */
static inline uint64_t turn_stop_ticks(const struct turn *turn, unsigned int part)
{
	uint64_t stop_ticks = turn_used_ticks(turn) + turn->budget_ticks / part;

	return stop_ticks > turn->budget_ticks ? stop_ticks : turn->budget_ticks;
}

/* For turn_end(): counts a turn and clears it. */
void turn_count(struct turn *turn);

/* For loop_turn(): ends a turn, and begins the next one. No slice may be open. */
static inline void turn_end(struct turn *turn)
{
	if (__builtin_expect(turn->other_ticks > 0 || turn->entry_ticks > turn->notable_ticks, 0))
		turn_count(turn);
	turn->entry_ticks = 0;
	turn->has_cpu = false;
}

/* Begins the report anew. */
void turn_reset(struct turn *turn);
