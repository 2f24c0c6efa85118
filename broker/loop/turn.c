/* SPDX-License-Identifier: MIT */
/*
 * The reactor's turn
 *
 * Ring entries are counted apart from all other work. The dispatcher knows the time of a batch
 * without reading the clock again, and a turn of ring entries alone costs one addition and one
 * comparison.
 *
 * Time outside slices is not counted: the reactor sleeps, or polls empty rings.
 */
#include "loop/turn.h"

#include <assert.h>
#include <time.h>

#include "util/clock.h"

static uint64_t read_cpu_clock(void)
{
	return clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

static inline uint64_t now_of(const struct turn *turn)
{
	return turn->read_ticks ? turn->read_ticks() : clock_ticks();
}

uint64_t turn_now(const struct turn *turn)
{
	return now_of(turn);
}

static void find_notable(struct turn *turn)
{
	turn->notable_ticks = turn->budget_ticks * TURN_OVERRUN;
	if (turn->notable_ticks > turn->report.longest_ticks)
		turn->notable_ticks = turn->report.longest_ticks;
}

void turn_init(struct turn *turn, uint64_t budget_ns)
{
	*turn = (struct turn){
		.source = {.cause = RBK_TURN_CAUSES},
		.read_cpu_ns = read_cpu_clock,
	};
	turn_set_budget(turn, budget_ns);
}

void turn_set_budget(struct turn *turn, uint64_t budget_ns)
{
	turn->budget_ticks = clock_ns_to_ticks(budget_ns);
	find_notable(turn);
}

/* The clamp at 0 is needed because the counters of two processors may differ a little. */
static uint64_t slice_ticks(const struct turn *turn, uint64_t now_ticks)
{
	return now_ticks > turn->slice_ticks ? now_ticks - turn->slice_ticks : 0;
}

static inline void close_slice(struct turn *turn, uint64_t now_ticks)
{
	const struct turn_source *source = &turn->source;
	uint64_t ticks = slice_ticks(turn, now_ticks);

	if (source->cause == RBK_TURN_CAUSES)
		return;
	turn->other_ticks += ticks;
	turn->causes |= 1u << source->cause;
	turn->ticks[source->cause] += ticks;
	if (ticks < turn->largest[source->cause])
		return;
	turn->largest[source->cause] = ticks;
	turn->tenants[source->cause] = source->tenant;
}

void turn_leave_at(struct turn *turn, struct turn_source outer, uint64_t end_ticks)
{
	close_slice(turn, end_ticks);
	turn->source = outer;
	turn->slice_ticks = end_ticks;
}

void turn_leave(struct turn *turn, struct turn_source outer)
{
	turn_leave_at(turn, outer, now_of(turn));
}

struct turn_source turn_enter(struct turn *turn, enum rbk_turn_cause cause, uint32_t tenant)
{
	struct turn_source outer = turn->source;

	turn_leave(turn, (struct turn_source){.cause = cause, .tenant = tenant});
	return outer;
}

uint64_t turn_used_ticks(const struct turn *turn)
{
	uint64_t ticks = turn->entry_ticks + turn->other_ticks;

	if (turn->source.cause != RBK_TURN_CAUSES)
		ticks += slice_ticks(turn, now_of(turn));
	return ticks;
}

void turn_time_cpu(struct turn *turn)
{
	if (turn->has_cpu)
		return;
	turn->has_cpu = true;
	turn->seen_ticks = now_of(turn);
	turn->before_ticks = turn->entry_ticks + turn->other_ticks;
	if (turn->source.cause != RBK_TURN_CAUSES)
		turn->before_ticks += slice_ticks(turn, turn->seen_ticks);
	turn->cpu_ns = turn->rested_cpu_ns ? turn->rested_cpu_ns : turn->read_cpu_ns();
	turn->seen_cpu_ns = turn->cpu_ns;
}

void turn_rest(struct turn *turn)
{
	turn->rested_cpu_ns = turn->read_cpu_ns();
}

uint64_t turn_worked_ticks(const struct turn *turn, uint64_t begin_ticks, uint64_t least_ticks)
{
	const uint64_t now_ticks = now_of(turn);
	uint64_t ticks, cpu_ticks;

	if (now_ticks < begin_ticks + least_ticks || !turn->has_cpu)
		return 0;
	ticks = now_ticks - begin_ticks;
	cpu_ticks = clock_ns_to_ticks(turn->read_cpu_ns() - turn->cpu_ns);
	return cpu_ticks < ticks ? cpu_ticks : ticks;
}

/*
 * Find the time from @begin_ticks to @now_ticks in which the thread did not run. The last reading
 * may be older. All that the thread has run since that reading is then taken to be after the begin,
 * and so work never costs less than it took.
 */
static void find_lost(struct turn *turn, uint64_t begin_ticks, uint64_t now_ticks)
{
	const uint64_t cpu_ns = turn->read_cpu_ns();
	const uint64_t cpu_ticks = clock_ns_to_ticks(cpu_ns - turn->seen_cpu_ns);
	uint64_t ticks;

	if (begin_ticks < turn->seen_ticks)
		begin_ticks = turn->seen_ticks;
	ticks = now_ticks > begin_ticks ? now_ticks - begin_ticks : 0;
	if (cpu_ticks < ticks)
		turn->lost_ticks += ticks - cpu_ticks;
	turn->seen_ticks = now_ticks;
	turn->seen_cpu_ns = cpu_ns;
}

uint64_t turn_span_cost(struct turn *turn, struct turn_span span, uint64_t end_ticks)
{
	uint64_t ticks, lost_ticks;

	if (end_ticks <= span.begin_ticks)
		return 0;
	ticks = end_ticks - span.begin_ticks;
	if (turn->has_cpu && ticks > turn->budget_ticks / TURN_LONG_PART)
		find_lost(turn, span.begin_ticks, end_ticks);
	lost_ticks = turn->lost_ticks - span.lost_ticks;
	return ticks > lost_ticks ? ticks - lost_ticks : 0;
}

/*
 * Update the longest processor time. Processor time is at most wall time; the difference is time
 * during which the thread did not run.
 */
static void count_cpu(struct turn *turn, uint64_t used_ticks)
{
	uint64_t cpu_ticks =
		turn->before_ticks + clock_ns_to_ticks(turn->read_cpu_ns() - turn->cpu_ns);

	if (cpu_ticks > used_ticks)
		cpu_ticks = used_ticks;
	if (cpu_ticks > turn->report.longest_cpu_ticks)
		turn->report.longest_cpu_ticks = cpu_ticks;
}

void turn_count(struct turn *turn)
{
	uint64_t used_ticks = turn->entry_ticks + turn->other_ticks;
	struct turn_source most = {.cause = RBK_TURN_ENTRIES, .tenant = turn->entries.tenant};
	unsigned int cause;
	uint64_t most_ticks;

	assert(turn->source.cause == RBK_TURN_CAUSES);
	if (turn->has_cpu && used_ticks > turn->report.longest_cpu_ticks)
		count_cpu(turn, used_ticks);
	if (used_ticks > turn->notable_ticks) {
		/* ticks[] holds the entries that ran within a slice of the dispatcher. */
		most_ticks = turn->entry_ticks + turn->ticks[RBK_TURN_ENTRIES];
		for (unsigned int i = 0; i < RBK_TURN_CAUSES; i++)
			if (turn->ticks[i] > most_ticks) {
				most_ticks = turn->ticks[i];
				most.cause = i;
				most.tenant = turn->tenants[i];
			}
		if (used_ticks >= turn->budget_ticks * TURN_OVERRUN)
			turn->report.n_overruns[most.cause]++;
		if (used_ticks > turn->report.longest_ticks) {
			turn->report.longest_ticks = used_ticks;
			turn->report.longest = most;
		}
		find_notable(turn);
	}
	for (; turn->causes; turn->causes &= turn->causes - 1) {
		cause = (unsigned int)__builtin_ctz(turn->causes);
		turn->ticks[cause] = turn->largest[cause] = 0;
		turn->tenants[cause] = 0;
	}
	turn->entries.tenant = 0;
	turn->other_ticks = 0;
	turn->entry_ticks = 0;
}

void turn_reset(struct turn *turn)
{
	turn->report = (struct turn_report){.longest_ticks = 0};
	find_notable(turn);
}
