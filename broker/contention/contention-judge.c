/* SPDX-License-Identifier: MIT */
/*
 * The judge of contention
 *
 * Samples are kept for a while, so that a look back is a difference between two of them. A window
 * with sharp edges forgets older samples at once; a decaying mean would still be changing when the
 * next task is placed.
 *
 * The difficulty is that acting on the factor removes the work by which it is measured. Tasks that
 * ran on the GPU leave workers without work, and workers without work do not wait. So a measured
 * factor is held while the processors look as full as they did then, since sixteen hogs per
 * processor use no more time than one. It decays quickly when others use less. It decays slowly
 * even if they do not, towards the factor of fair sharing with one hog each: sooner or later the
 * broker has to try the CPU.
 */
#include "contention/contention-judge.h"

#include <math.h>
#include <string.h>

#include <ringbroker/stats.h>

#define MAX_FACTOR ((double)RBK_STATS_MAX_FACTOR)
/* Factors below this are noise, and would puzzle readers of reasons. */
#define LEAST_FACTOR 1.05
/*
 * Time constant of the decay of a held factor although others use as much as before. It doubles up
 * to MOST_HOLD_NS each time the decay turns out to have been wrong.
 */
#define HOLD_NS      2e9
#define MOST_HOLD_NS 3e10
/* Time constant of the decay of the part added by throttling, whose end cannot be observed. */
#define HOLD_IDLE_NS 2e8
/* Multiplier of that time constant for the part that fair sharing explains. */
#define MEEK 3
/* Time constant with which others' share decays if they use less and no new use is visible. */
#define SETTLE_NS 2e8
/* If others' use is unknown, the factor decays this many times faster, at most in MOST_BLIND_NS. */
#define BLIND         20
#define MOST_BLIND_NS 2e8
/* Least used share of the processors from which stolen time can be computed. */
#define LEAST_USED 0.1
/* A held factor below this part of the measured one has decayed. */
#define LET_GO 0.98
/* Others have become fewer if they use less than this part of their former share. */
#define FALLEN 0.6
/* Time for which all workers are used after they were needed last. */
#define NEEDED_NS 1000000000ull
/* Margin for changing the number of workers, as a part of those in use. */
#define WORKERS_MARGIN 0.15

enum {
	/*
	 * Windows to look back until workers were seen to run: for a quick and for a sure result.
	 */
	QUICK_WINDOWS = 2,
	SURE_WINDOWS = 4,
	/* Half windows for sources without workers, whose figures are coarse. */
	COARSE_HALF_WINDOWS = 5,
};

/* Differences from an earlier sample. */
struct look {
	double ns;
	double run_ns, wait_ns, idle_wait_ns, n_preemptions;
	double others_ns, idle_ns, steal_ns, stall_ns;
};

/* Interpretation of a sample. */
struct view {
	double factor;     /* factor of contention alone */
	double idle;       /* part added by throttling */
	double steal;      /* multiplier for stolen time */
	double estimate;   /* factor estimated from others' use; 1 if unknown */
	bool is_measured;  /* workers ran or waited long enough to measure the factor */
	bool is_disturbed; /* both signals are present */
};

static double share(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
}

static double limited(double value, double least, double most)
{
	if (!(value >= least))
		return least;
	return value > most ? most : value;
}

void contention_judge_init(struct contention_judge *judge, const struct contention_config *config,
			   uint32_t n_workers)
{
	struct contention_config *own = &judge->config;

	memset(judge, 0, sizeof(*judge));
	*own = *config;
	own->end_factor = (float)limited((double)own->end_factor, 1.01, MAX_FACTOR);
	own->begin_factor =
		(float)limited((double)own->begin_factor, (double)own->end_factor, MAX_FACTOR);
	if (own->window_ns < 1000000)
		own->window_ns = 1000000;
	if (own->max_back_off_ns < own->end_after_ns)
		own->max_back_off_ns = own->end_after_ns;
	judge->n_workers = n_workers ? n_workers : 1;
	judge->held = judge->measured = 1;
	judge->held_steal = 1;
	judge->hold_ns = HOLD_NS;
	judge->end_wait_ns = own->end_after_ns;
	judge->verdict = (struct contention_verdict){
		.factor = 1,
		.n_workers = judge->n_workers,
	};
}

/* --- Looking back --- */

/* Return true if the figures of @b continue those of @a. */
static bool continues(const struct contention_sample *a, const struct contention_sample *b)
{
	return b->at_ns > a->at_ns && a->has_workers == b->has_workers &&
	       a->has_processors == b->has_processors && a->has_stall == b->has_stall &&
	       a->n_processors == b->n_processors && b->run_ns >= a->run_ns &&
	       b->wait_ns >= a->wait_ns && b->n_preemptions >= a->n_preemptions &&
	       b->idle_wait_ns >= a->idle_wait_ns && b->idle_ns >= a->idle_ns &&
	       b->others_ns >= a->others_ns && b->steal_ns >= a->steal_ns &&
	       b->stall_ns >= a->stall_ns;
}

/*
 * Return @sample with figures that decreased a little set to their last values. Such figures
 * combine readings of several processors, as the kernel's idle times do.
 */
static struct contention_sample steadied(const struct contention_judge *judge,
					 const struct contention_sample *sample)
{
	const uint64_t most_ns = judge->config.window_ns;
	struct contention_sample steady = *sample;
	const struct contention_sample *last = &judge->last;
	const struct {
		uint64_t *now;
		uint64_t before;
	} figures[] = {
		{&steady.run_ns, last->run_ns},
		{&steady.wait_ns, last->wait_ns},
		{&steady.idle_wait_ns, last->idle_wait_ns},
		{&steady.idle_ns, last->idle_ns},
		{&steady.others_ns, last->others_ns},
		{&steady.steal_ns, last->steal_ns},
		{&steady.stall_ns, last->stall_ns},
	};

	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
		if (*figures[i].now < figures[i].before &&
		    figures[i].before - *figures[i].now < most_ns)
			*figures[i].now = figures[i].before;
	return steady;
}

/* Keep the last sample, unless it is closer than a quarter of a window to the previous one. */
static void keep(struct contention_judge *judge)
{
	struct contention_sample *past = judge->past;

	if (judge->n_past &&
	    judge->last.at_ns - past[judge->n_past - 1].at_ns < judge->config.window_ns / 4)
		return;
	if (judge->n_past == CONTENTION_JUDGE_PAST) {
		judge->n_past--;
		memmove(past, past + 1, judge->n_past * sizeof(*past));
	}
	past[judge->n_past++] = judge->last;
}

static struct look difference(const struct contention_sample *a, const struct contention_sample *b)
{
	return (struct look){
		.ns = (double)(b->at_ns - a->at_ns),
		.run_ns = (double)(b->run_ns - a->run_ns),
		.wait_ns = (double)(b->wait_ns - a->wait_ns),
		.idle_wait_ns = (double)(b->idle_wait_ns - a->idle_wait_ns),
		.n_preemptions = (double)(b->n_preemptions - a->n_preemptions),
		.others_ns = (double)(b->others_ns - a->others_ns),
		.idle_ns = (double)(b->idle_ns - a->idle_ns),
		.steal_ns = (double)(b->steal_ns - a->steal_ns),
		.stall_ns = (double)(b->stall_ns - a->stall_ns),
	};
}

static struct look look_from(const struct contention_judge *judge, uint32_t i)
{
	return difference(&judge->past[i], &judge->last);
}

/* Return the latest sample at least @ns ago, or the oldest. */
static uint32_t find_past(const struct contention_judge *judge, uint64_t ns)
{
	uint32_t i = judge->n_past - 1;

	while (i > 0 && judge->last.at_ns - judge->past[i].at_ns < ns)
		i--;
	return i;
}

/*
 * Look back further than @i if it takes longer to see workers run at all (turns among sixteen hogs
 * are 50 ms apart). If others have left, do not: the past is then irrelevant.
 */
static struct look look_for_run(const struct contention_judge *judge, uint32_t i, double enough_ns,
				unsigned int n_windows, bool has_fallen)
{
	const uint64_t most_ns = judge->config.window_ns * n_windows;
	struct look look = look_from(judge, i);

	while (!has_fallen && look.run_ns < enough_ns && i > 0 &&
	       judge->last.at_ns - judge->past[i - 1].at_ns <= most_ns)
		look = look_from(judge, --i);
	return look;
}

/* --- Interpretation --- */

/*
 * Return the ratio of the time that workers need and the time that they would get if others kept
 * that share of the processors: first the idle time, then half of each processor that others use.
 */
static double estimate(const struct contention_judge *judge, double others)
{
	const double n = judge->last.n_processors;
	const double n_workers = judge->n_workers < n ? judge->n_workers : n;
	const double used = others * n, wanted = n_workers - (n - used);

	if (wanted <= 0)
		return 1;
	return limited(n_workers / (n_workers - wanted + wanted * share(used, used + wanted)), 1,
		       MAX_FACTOR);
}

static bool knows_processors(const struct contention_judge *judge)
{
	return judge->last.has_processors && judge->last.n_processors > 0;
}

static double others_share(const struct contention_judge *judge, const struct look *look)
{
	return limited(share(look->others_ns, look->ns * judge->last.n_processors), 0, 1);
}

/* Return @value moved towards @to, most of the way in @time_ns. */
static double drift(double value, double to, double ns, double time_ns)
{
	return value + (to - value) * ns / (ns + time_ns);
}

/*
 * Track others' share. It is measured by clocks that tick every 10 ms and are read late under load.
 * Time that others gave up must be visible as idle or as ours; otherwise it is not accounted yet.
 */
static double watch_others(struct contention_judge *judge, const struct look *look, double step_ns)
{
	const double whole_ns = look->ns * judge->last.n_processors;
	const double now = others_share(judge, look);
	const double most =
		limited(1 - share(look->idle_ns + look->run_ns + look->steal_ns, whole_ns), 0, 1);
	double before = judge->others < most ? judge->others : most;

	before = drift(before, now, step_ns, SETTLE_NS);
	judge->others = now > before ? now : before;
	return judge->others;
}

static double blind_hold_ns(const struct contention_judge *judge)
{
	return fmin(judge->hold_ns / BLIND, MOST_BLIND_NS);
}

/*
 * Decay the held factor over @step_ns without a measurement.
 * Return: true if others have become fewer since the measurement.
 */
static bool let_go(struct contention_judge *judge, double others, double estimate_now,
		   double step_ns)
{
	bool has_fallen;

	if (!knows_processors(judge)) {
		judge->held = drift(judge->held, 1, step_ns, blind_hold_ns(judge));
		return false;
	}
	has_fallen = others < judge->others_then * FALLEN ||
		     estimate_now < (double)judge->config.end_factor;
	if (has_fallen)
		judge->hold_ns = HOLD_NS;
	if (judge->held > estimate_now)
		judge->held = has_fallen
				      ? estimate_now
				      : drift(judge->held, estimate_now, step_ns, judge->hold_ns);
	/* Tasks that use all remaining time need not disturb workers. */
	judge->held = drift(judge->held, 1, step_ns, judge->hold_ns * MEEK);
	return has_fallen;
}

/*
 * Return true if workers wait for tasks of others. If others leave no room, little waiting is
 * enough evidence; there may be no more, since tasks run elsewhere already.
 */
static bool is_disturbed(const struct contention_judge *judge, const struct look *look,
			 double estimate_now)
{
	const bool is_full = estimate_now >= (double)judge->config.begin_factor;

	if (look->wait_ns * (is_full ? 20 : 5) < (double)judge->config.window_ns)
		return false;
	if (knows_processors(judge))
		return look->others_ns * 4 >= look->wait_ns;
	return look->n_preemptions > 0;
}

/* Return the factor; too short a run time is filled up with the held factor, over @fill_ns. */
static double factor_of(const struct contention_judge *judge, const struct look *look,
			double fill_ns)
{
	return limited((look->run_ns + look->wait_ns + fill_ns * judge->held) /
			       (look->run_ns + fill_ns),
		       1, MAX_FACTOR);
}

static double missing(double value, double enough)
{
	return value < enough ? enough - value : 0;
}

/* Hold a larger factor. If the held one had decayed, the decay was wrong: slow it down. */
static void hold(struct contention_judge *judge, double factor)
{
	if (judge->held < judge->measured * LET_GO)
		judge->hold_ns = fmin(judge->hold_ns * 2, MOST_HOLD_NS);
	judge->held = judge->measured = factor;
}

/*
 * Learn a measured factor: it rises at once, but falls slowly, as a turn whose wait is not visible
 * only looks undisturbed.
 */
static void learn(struct contention_judge *judge, double factor, double others, double run_ns,
		  double sure_ns)
{
	if (factor > judge->held)
		hold(judge, factor);
	else
		judge->held = drift(judge->held, factor, run_ns, sure_ns);
	judge->measured = judge->held;
	judge->others_then = others;
}

/*
 * Measure the factor. A short look is quick, and too high or too low by chance: it determines the
 * beginning of contention. A long look, back to before a possible beginning, determines the end.
 */
static struct view view_workers(struct contention_judge *judge, const struct look *step)
{
	const double window_ns = (double)judge->config.window_ns, enough_ns = window_ns / 10;
	const double sure_ns = window_ns / 2 * judge->verdict.n_workers;
	uint32_t i = find_past(judge, judge->config.window_ns);
	struct look now = look_from(judge, i), look, far;
	double others = watch_others(judge, &now, step->ns), fill_ns;
	struct view view = {.steal = 1, .estimate = 1};
	bool has_fallen;

	if (knows_processors(judge))
		view.estimate = estimate(judge, others);
	view.is_measured = now.run_ns + now.wait_ns >= window_ns / 20;
	has_fallen = let_go(judge, others, view.estimate, view.is_measured ? 0 : step->ns);
	look = look_for_run(judge, i, enough_ns, QUICK_WINDOWS, has_fallen);
	far = look_for_run(judge, i, sure_ns, SURE_WINDOWS, has_fallen);
	fill_ns = missing(look.run_ns, enough_ns);
	view.factor = fmax(factor_of(judge, &look, fill_ns),
			   factor_of(judge, &far, missing(far.run_ns, sure_ns)));
	/* A quota's periods are longer than a window. */
	far = look_from(judge, 0);
	view.idle = far.idle_wait_ns / (far.run_ns + missing(far.run_ns, enough_ns));
	/* The sample may consist of one long wait. */
	if (view.is_measured)
		learn(judge, fill_ns > 0 ? fmin(view.factor, judge->held * 2) : view.factor, others,
		      step->run_ns, sure_ns);
	judge->held_idle = drift(judge->held_idle, 0, step->ns, HOLD_IDLE_NS);
	if (view.idle > judge->held_idle)
		judge->held_idle = limited(view.idle, 0, MAX_FACTOR);
	view.idle = judge->held_idle;
	look = look_from(judge, find_past(judge, judge->config.window_ns * 2));
	view.is_disturbed = is_disturbed(judge, &look, view.estimate);
	return view;
}

/* Estimate without figures of the workers, from others' use or from the stall time. */
static struct view view_others(struct contention_judge *judge, const struct look *step)
{
	const uint64_t window_ns = judge->config.window_ns / 2 * COARSE_HALF_WINDOWS;
	struct look look = look_from(judge, find_past(judge, window_ns));
	struct view view = {.steal = 1};
	double stalled = limited(share(look.stall_ns, look.ns), 0, 1), others;

	if (knows_processors(judge)) {
		/*
		 * The more of the time some task waited, the more others' share is of the time not
		 * used by us.
		 */
		others = others_share(judge, &look);
		others += (share(look.others_ns, look.others_ns + look.idle_ns) - others) * stalled;
		view.estimate = estimate(judge, limited(others, 0, 1));
		view.is_disturbed = !judge->last.has_stall || stalled >= 0.1;
		judge->held = view.estimate;
	} else {
		view.is_disturbed = judge->last.has_stall;
		view.estimate = 1 / (1 - stalled / 2);
		/* Less waiting may only mean that tasks were placed elsewhere. */
		judge->held = drift(judge->held, 1, step->ns, blind_hold_ns(judge));
		if (judge->held < view.estimate)
			hold(judge, view.estimate);
		view.estimate = judge->held;
	}
	view.factor = judge->held;
	return view;
}

/*
 * Return the factor for stolen time. Almost idle processors lose no time to others: then it stays
 * unchanged.
 */
static double steal_factor(struct contention_judge *judge, double step_ns)
{
	struct look look = look_from(judge, find_past(judge, judge->config.window_ns));
	double whole_ns = look.ns * judge->last.n_processors;
	double used_ns = whole_ns - look.idle_ns;

	if (!knows_processors(judge) || !(used_ns > whole_ns * LEAST_USED))
		judge->held_steal = drift(judge->held_steal, 1, step_ns, HOLD_NS);
	else
		judge->held_steal = 1 / (1 - limited(look.steal_ns / used_ns, 0, 0.99));
	return judge->held_steal;
}

/* --- Reaction --- */

static uint64_t elapsed_ns(const struct contention_judge *judge, uint64_t at_ns)
{
	return judge->last.at_ns > at_ns ? judge->last.at_ns - at_ns : 0;
}

static uint64_t doubled(const struct contention_judge *judge, uint64_t ns)
{
	const uint64_t most_ns = judge->config.max_back_off_ns;

	return ns < most_ns / 2 ? ns * 2 : most_ns;
}

static void set_workers(struct contention_judge *judge, uint32_t n)
{
	judge->verdict.n_workers = n;
	judge->changed_ns = judge->last.at_ns;
}

static void begin(struct contention_judge *judge)
{
	const bool is_back = judge->has_ended_before &&
			     elapsed_ns(judge, judge->ended_ns) / 4 < judge->end_wait_ns;

	judge->end_wait_ns =
		is_back ? doubled(judge, judge->end_wait_ns) : judge->config.end_after_ns;
	judge->back_off_ns = doubled(judge, judge->end_wait_ns);
	judge->changed_ns = judge->last.at_ns;
	judge->is_calm = judge->has_raised = false;
	judge->verdict.is_contended = judge->verdict.has_begun = true;
}

static bool is_needed(const struct contention_judge *judge)
{
	return judge->needed_ns && elapsed_ns(judge, judge->needed_ns) < NEEDED_NS;
}

/*
 * Adapt the workers during contention. All workers would get n / factor processors' worth. The
 * share of those in use tells less: fewer workers get more each.
 */
static void adapt_workers(struct contention_judge *judge, double factor)
{
	const double n = judge->n_workers, worth = n / factor;
	const double wanted = limited(floor(worth + 0.25), 1, n);
	const uint32_t in_use = judge->verdict.n_workers;
	const double margin = in_use * WORKERS_MARGIN;

	if (is_needed(judge)) {
		/* No reduction was tried, so none turns out to have been wrong. */
		judge->has_raised = false;
		if (in_use < judge->n_workers)
			set_workers(judge, judge->n_workers);
		return;
	}
	if (wanted < in_use && worth < in_use - (margin > 0.5 ? margin : 0.5)) {
		if (judge->has_raised)
			judge->back_off_ns =
				elapsed_ns(judge, judge->raised_ns) / 2 < judge->back_off_ns
					? doubled(judge, judge->back_off_ns)
					: doubled(judge, judge->end_wait_ns);
		judge->has_raised = false;
		set_workers(judge, (uint32_t)wanted);
	} else if (wanted > in_use && wanted >= in_use + margin &&
		   elapsed_ns(judge, judge->changed_ns) >= judge->back_off_ns) {
		const uint32_t more = in_use + (in_use > 4 ? in_use / 4 : 1);

		set_workers(judge, more < wanted ? more : (uint32_t)wanted);
		judge->has_raised = true;
		judge->raised_ns = judge->last.at_ns;
	}
}

/*
 * Return true if no contention is visible. The share of few workers does not predict that of all.
 */
static bool is_calm(const struct contention_judge *judge, const struct view *view)
{
	const double end = (double)judge->config.end_factor;

	if (view->factor >= end)
		return false;
	if (view->is_measured && judge->verdict.n_workers == judge->n_workers)
		return true;
	return !knows_processors(judge) ? !view->is_measured : view->estimate < end;
}

static void watch_end(struct contention_judge *judge, const struct view *view)
{
	if (!is_calm(judge, view)) {
		judge->is_calm = false;
		return;
	}
	if (!judge->is_calm)
		judge->calm_since_ns = judge->last.at_ns;
	judge->is_calm = true;
	if (elapsed_ns(judge, judge->calm_since_ns) < judge->end_wait_ns)
		return;
	judge->verdict.is_contended = false;
	judge->verdict.has_ended = judge->has_ended_before = true;
	judge->ended_ns = judge->last.at_ns;
}

static void bring_back(struct contention_judge *judge)
{
	const uint32_t n = judge->verdict.n_workers;

	if (n < judge->n_workers &&
	    (judge->verdict.has_ended ||
	     elapsed_ns(judge, judge->changed_ns) >= judge->config.window_ns / 2))
		set_workers(judge, n > judge->n_workers / 2 ? judge->n_workers : n * 2);
}

static void decide(struct contention_judge *judge, const struct view *view)
{
	struct contention_verdict *verdict = &judge->verdict;
	double factor = limited((view->factor + view->idle) * view->steal, 1, MAX_FACTOR);

	verdict->factor = factor < LEAST_FACTOR ? 1 : (float)factor;
	if (!verdict->is_contended && view->is_disturbed &&
	    view->factor >= (double)judge->config.begin_factor)
		begin(judge);
	if (verdict->is_contended) {
		adapt_workers(judge, view->factor);
		watch_end(judge, view);
	}
	if (!verdict->is_contended)
		bring_back(judge);
}

const struct contention_verdict *contention_judge_feed(struct contention_judge *judge,
						       const struct contention_sample *sample)
{
	const struct contention_sample now = steadied(judge, sample);
	const bool goes_on = judge->n_past && continues(&judge->last, &now);
	const struct look step = difference(&judge->last, &now);
	struct view view;

	judge->verdict.has_begun = judge->verdict.has_ended = false;
	judge->last = goes_on ? now : *sample;
	if (sample->is_needed)
		judge->needed_ns = sample->at_ns;
	if (!goes_on) {
		judge->n_past = 0;
		keep(judge);
		/* Times of another clock are meaningless: restart the durations now. */
		judge->is_calm = false;
		judge->changed_ns = judge->raised_ns = sample->at_ns;
		if (judge->ended_ns > sample->at_ns)
			judge->ended_ns = sample->at_ns;
		if (judge->needed_ns > sample->at_ns)
			judge->needed_ns = sample->at_ns;
		return &judge->verdict;
	}
	if (sample->has_workers) {
		view = view_workers(judge, &step);
		view.steal = steal_factor(judge, step.ns);
	} else if (sample->has_processors || sample->has_stall) {
		view = view_others(judge, &step);
		view.steal = steal_factor(judge, step.ns);
	} else {
		/* Without figures: no disturbance. */
		judge->held = 1;
		view = (struct view){.factor = 1, .steal = 1, .estimate = 1};
	}
	decide(judge, &view);
	keep(judge);
	return &judge->verdict;
}
