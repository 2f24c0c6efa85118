/* SPDX-License-Identifier: MIT */
/* See processors.h. */
#include "unit/processors.h"

#include <string.h>

enum {
	STEP_NS = 100000,
	TURN_NS = 3000000,
	QUOTA_PERIOD_NS = 100000000,
	WORK_NS = 1000000,
	JITTER_NS = 2000000,
	TICK_NS = 10000000,
	MOST_WORK_NS = 4000000, /* more would be moved elsewhere */
};

void processors_init(struct processors *processors, uint32_t n, uint32_t n_workers)
{
	const struct contention_config config = CONTENTION_CONFIG_DEFAULT;

	memset(processors, 0, sizeof(*processors));
	processors->n = n;
	processors->n_workers = n_workers;
	processors->demand = 1;
	processors->sample_ns = 10000000;
	processors->now_ns = processors->sampled_ns = 1000000000;
	processors->random = 1;
	contention_judge_init(&processors->judge, &config, n_workers);
	processors->verdict = processors->judge.verdict;
	processors_forget(processors);
}

void processors_forget(struct processors *processors)
{
	processors->n_begun = processors->n_ended = processors->n_shifts = 0;
	processors->begun_ns = processors->ended_ns = processors->all_back_ns = 0;
	processors->first_away_ns = processors->away_ns = processors->here_ns =
		processors->worked_ns = 0;
	processors->least_factor = 1000;
	processors->most_factor = 0;
	processors->least_workers = processors->n_workers;
}

/* Return a random number in [0, 1). */
static double draw(struct processors *processors)
{
	processors->random = processors->random * 6364136223846793005u + 1442695040888963407u;
	return (double)(processors->random >> 33) / (double)(1u << 31);
}

static bool is_elsewhere(const struct processors *processors)
{
	return processors->break_even > 0 && processors->verdict.factor >= processors->break_even;
}

/* Return the next runnable thread after @from; UINT32_MAX if none is runnable. */
static uint32_t next_turn(const struct processor *on, uint32_t from, bool is_worker_runnable)
{
	for (uint32_t i = 1; i <= on->n_hogs + 1; i++) {
		const uint32_t who = (from + i) % (on->n_hogs + 1);

		if (who > 0 || is_worker_runnable)
			return who;
	}
	return UINT32_MAX;
}

static void step_processor(struct processors *processors, uint32_t index, uint32_t n_hogs)
{
	struct contention_sample *sample = &processors->sample;
	struct processor *on = &processors->on[index];
	bool is_used = index < processors->n_workers && index < processors->verdict.n_workers;
	bool is_throttled = processors->quota > 0 && processors->quota_left_ns < STEP_NS;

	if (processors->now_ns % WORK_NS == 0 && is_used && !is_elsewhere(processors) &&
	    on->work_ns < MOST_WORK_NS && draw(processors) < processors->demand)
		on->work_ns += WORK_NS;
	/* The other workers take its work over. */
	if (!is_used && on->turn != 0)
		on->work_ns = 0;
	on->n_hogs = n_hogs;
	if (on->turn > n_hogs || on->turn_ns >= TURN_NS || (on->turn == 0 && !on->work_ns) ||
	    is_throttled) {
		const uint32_t before = on->turn;

		on->turn = next_turn(on, on->turn <= n_hogs ? on->turn : 0,
				     on->work_ns && !is_throttled);
		on->turn_ns = 0;
		sample->n_preemptions += before == 0 && on->work_ns && on->turn > 0;
		if (on->turn == UINT32_MAX)
			on->turn_ns = TURN_NS;
	}
	on->turn_ns += STEP_NS;
	if (on->turn != UINT32_MAX && draw(processors) < processors->steal) {
		sample->steal_ns += STEP_NS;
		return;
	}
	if (on->work_ns && on->turn != 0) {
		if (on->turn == UINT32_MAX)
			sample->idle_wait_ns += STEP_NS;
		else
			sample->wait_ns += STEP_NS;
	}
	if (on->turn == UINT32_MAX) {
		*(processors->is_meek ? &sample->others_ns : &sample->idle_ns) += STEP_NS;
	} else if (on->turn == 0) {
		sample->run_ns += STEP_NS;
		on->work_ns -= STEP_NS;
		processors->worked_ns += STEP_NS;
		processors->quota_left_ns -= processors->quota > 0 ? STEP_NS : 0;
	} else {
		sample->others_ns += STEP_NS;
	}
}

static void take_sample(struct processors *processors)
{
	struct contention_sample sample = processors->sample;
	const bool was_elsewhere = is_elsewhere(processors);

	sample.at_ns = processors->sampled_ns = processors->now_ns;
	sample.is_needed = processors->is_needed;
	sample.has_workers = !processors->hides_workers;
	sample.has_processors = !processors->hides_processors;
	sample.has_stall = processors->shows_stall;
	sample.n_processors = processors->hides_processors ? 0 : processors->n;
	if (processors->hides_workers)
		sample.run_ns = sample.wait_ns = sample.idle_wait_ns = sample.n_preemptions = 0;
	if (processors->hides_processors)
		sample.idle_ns = sample.others_ns = sample.steal_ns = 0;
	if (!processors->shows_stall)
		sample.stall_ns = 0;
	if (processors->is_coarse) {
		if (draw(processors) < 0.4) {
			processors->accounted_idle_ns = sample.idle_ns / TICK_NS * TICK_NS;
			processors->accounted_others_ns = sample.others_ns / TICK_NS * TICK_NS;
		}
		sample.idle_ns = processors->accounted_idle_ns;
		sample.others_ns = processors->accounted_others_ns;
	}
	if (processors->jitters) {
		sample.idle_ns -= (uint64_t)(draw(processors) * JITTER_NS);
		sample.others_ns -= (uint64_t)(draw(processors) * JITTER_NS);
		sample.wait_ns -= (uint64_t)(draw(processors) * JITTER_NS);
	}
	processors->verdict = *contention_judge_feed(&processors->judge, &sample);
	if (processors->verdict.has_begun) {
		processors->n_begun++;
		processors->begun_ns = processors->now_ns;
	}
	if (processors->verdict.has_ended) {
		processors->n_ended++;
		processors->ended_ns = processors->now_ns;
	}
	if (processors->verdict.n_workers < processors->n_workers)
		processors->all_back_ns = 0;
	else if (processors->all_back_ns == 0)
		processors->all_back_ns = processors->now_ns;
	if (processors->verdict.n_workers < processors->least_workers)
		processors->least_workers = processors->verdict.n_workers;
	if ((double)processors->verdict.factor > processors->most_factor)
		processors->most_factor = (double)processors->verdict.factor;
	if ((double)processors->verdict.factor < processors->least_factor)
		processors->least_factor = (double)processors->verdict.factor;
	if (is_elsewhere(processors) == was_elsewhere)
		return;
	processors->n_shifts++;
	if (!was_elsewhere && processors->first_away_ns == 0)
		processors->first_away_ns = processors->now_ns;
	*(was_elsewhere ? &processors->here_ns : &processors->away_ns) = processors->now_ns;
}

void processors_run(struct processors *processors, uint64_t ns)
{
	for (const uint64_t end_ns = processors->now_ns + ns; processors->now_ns < end_ns;) {
		const uint64_t wait_ns = processors->sample.wait_ns;
		bool are_on = processors->hogs_period_ns == 0 ||
			      processors->now_ns % processors->hogs_period_ns <
				      processors->hogs_period_ns / 2;

		if (processors->now_ns % QUOTA_PERIOD_NS == 0)
			processors->quota_left_ns =
				(uint64_t)(processors->quota * QUOTA_PERIOD_NS * processors->n);
		for (uint32_t i = 0; i < processors->n; i++)
			step_processor(processors, i,
				       !are_on ? 0
					       : processors->n_hogs / processors->n +
							 (i < processors->n_hogs % processors->n));
		/*
		 * PSI counts every waiting thread, but only the workers' waits count here while
		 * hogs are few.
		 */
		if (processors->sample.wait_ns > wait_ns)
			processors->sample.stall_ns += STEP_NS;
		processors->now_ns += STEP_NS;
		if (processors->now_ns - processors->sampled_ns >= processors->sample_ns)
			take_sample(processors);
	}
}
