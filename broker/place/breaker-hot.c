/* SPDX-License-Identifier: MIT */
/*
 * Circuit breakers
 *
 * A breaker is closed while its device works. It opens after too many failures, and then the device
 * gets no tasks until a back-off has passed. Half-open, it admits one real task at a time, and
 * closes after PLACE_BREAKER_PROBES successes in a row: with a device that fails every third task
 * it never closes, with one that fails a third of them at random in one of 3,300 attempts. A
 * failure opens it again for twice as long, and for at least 20 times what the failure cost. So
 * probing loses only a small part of the time.
 *
 * Devices have a breaker, and so has each plan on each device, because a plan may be what fails:
 * while all remembered failures are one plan's and other plans succeed, they count for that plan's
 * breaker alone.
 *
 * Times are the caller's. After a clock went back the back-off starts again, but no wait becomes
 * longer than one back-off.
 */
#include "place/placer-private.h"

/* A breaker that opens again before so many results backs off for longer. */
#define SETTLED_RESULTS 200u
/* A probe is lost that did not come back in PROBE_MIN_NS + 10 x its prediction, or PROBE_MAX_NS. */
#define PROBE_MIN_NS 1000000ull     /* 1 ms */
#define PROBE_MAX_NS 10000000000ull /* 10 s */
#define LOSS_FACTOR  20u

static void trip(struct place_breaker_state *breaker, uint64_t lost_ns, uint64_t now_ns)
{
	bool is_again = breaker->backoff_ns > 0 && breaker->n_good < SETTLED_RESULTS;
	uint64_t backoff_ns = is_again ? 2 * breaker->backoff_ns : PLACE_BACKOFF_MIN_NS;

	if (lost_ns > PLACE_BACKOFF_MAX_NS / LOSS_FACTOR)
		backoff_ns = PLACE_BACKOFF_MAX_NS;
	else if (backoff_ns < lost_ns * LOSS_FACTOR)
		backoff_ns = lost_ns * LOSS_FACTOR;
	if (backoff_ns > PLACE_BACKOFF_MAX_NS)
		backoff_ns = PLACE_BACKOFF_MAX_NS;
	if (breaker->state == PLACE_CLOSED)
		breaker->n_opened++;
	/* n_good counts again once the breaker has closed. */
	breaker->n_good = 0;
	breaker->state = PLACE_OPEN;
	breaker->backoff_ns = backoff_ns;
	breaker->since_ns = now_ns;
	breaker->n_probes = 0;
	breaker->recent = 0;
}

static void close_breaker(struct place_breaker_state *breaker)
{
	breaker->state = PLACE_CLOSED;
	breaker->n_good = 0;
	breaker->recent = 0;
}

static bool is_too_much(const struct place_breaker_state *breaker, float success_rate)
{
	int n_failed = 0;

	for (unsigned int i = 0; i < PLACE_BREAKER_QUICK; i++)
		n_failed += breaker->recent >> i & 1;
	return n_failed >= PLACE_BREAKER_FAILURES &&
	       (float)n_failed > (1 - success_rate) * PLACE_BREAKER_QUICK;
}

bool place_breaker_result(struct place_breaker_state *breaker, bool is_failure, bool is_window_bad,
			  uint64_t lost_ns, float success_rate, uint64_t now_ns)
{
	switch (breaker->state) {
	case PLACE_OPEN:
		/* The task was on its way when the breaker opened. */
		return false;
	case PLACE_HALF_OPEN:
		breaker->probe_ns = now_ns;
		if (is_failure)
			trip(breaker, lost_ns, now_ns);
		else if (++breaker->n_probes >= PLACE_BREAKER_PROBES)
			close_breaker(breaker);
		return breaker->state != PLACE_HALF_OPEN;
	default:
		breaker->recent = (uint8_t)(breaker->recent << 1 | is_failure);
		if (breaker->n_good < UINT32_MAX)
			breaker->n_good++;
		if (!is_failure || (!is_window_bad && !is_too_much(breaker, success_rate)))
			return false;
		trip(breaker, lost_ns, now_ns);
		return true;
	}
}

bool place_breaker_may_probe(struct place_breaker_state *breaker, uint64_t now_ns)
{
	if (breaker->state == PLACE_CLOSED)
		return true;
	if (breaker->state == PLACE_OPEN) {
		if (now_ns < breaker->since_ns)
			breaker->since_ns = now_ns;
		if (now_ns - breaker->since_ns < breaker->backoff_ns)
			return false;
		breaker->state = PLACE_HALF_OPEN;
		breaker->n_probes = 0;
		breaker->probe_ns = now_ns;
	}
	return now_ns >= breaker->probe_ns || breaker->probe_ns - now_ns > PROBE_MAX_NS;
}

void place_breaker_probing(struct place_breaker_state *breaker, float predicted_ns, uint64_t now_ns)
{
	uint64_t wait_ns = PROBE_MAX_NS;

	if (predicted_ns < (float)PROBE_MAX_NS / 10)
		wait_ns = (uint64_t)(predicted_ns * 10) + PROBE_MIN_NS;
	breaker->probe_ns = now_ns > UINT64_MAX - wait_ns ? UINT64_MAX : now_ns + wait_ns;
}

/* --- Results of a device's tasks --- */

static bool result_at(const struct place_results *results, uint32_t i)
{
	return results->failed[i / 64] >> i % 64 & 1;
}

void place_results_count(struct place_results *results, uint32_t window, bool is_failure)
{
	uint32_t i = results->next, oldest;

	if (window > PLACE_BREAKER_MAX_WINDOW)
		window = PLACE_BREAKER_MAX_WINDOW;
	/* If the window has become shorter, drop more than one result. */
	while (results->n >= window) {
		oldest = (i + PLACE_BREAKER_MAX_WINDOW - results->n) % PLACE_BREAKER_MAX_WINDOW;
		results->n_failed -= result_at(results, oldest);
		results->n--;
	}
	results->failed[i / 64] &= ~(1ull << i % 64);
	results->failed[i / 64] |= (uint64_t)is_failure << i % 64;
	results->next = (i + 1) % PLACE_BREAKER_MAX_WINDOW;
	results->n++;
	results->n_failed += is_failure;
}

double place_results_rate(const struct place_results *results)
{
	return results->n ? 1 - (double)results->n_failed / results->n : 1;
}

void place_results_remember(struct place_results *results, const struct place_plan *place_plan,
			    bool is_failure)
{
	uint32_t i = results->last_next;

	results->last[i].place_plan = place_plan;
	results->last[i].is_failure = is_failure;
	results->last_next = (i + 1) % PLACE_BREAKER_LAST;
}

bool place_results_blame(const struct place_results *results, const struct place_plan *place_plan)
{
	bool others_succeed = false;

	for (unsigned int i = 0; i < PLACE_BREAKER_LAST; i++) {
		if (!results->last[i].place_plan || results->last[i].place_plan == place_plan)
			continue;
		if (results->last[i].is_failure)
			return false;
		others_succeed = true;
	}
	return others_succeed;
}

void place_results_forget(struct place_results *results, const struct place_plan *place_plan)
{
	for (unsigned int i = 0; i < PLACE_BREAKER_LAST; i++)
		if (results->last[i].place_plan == place_plan)
			results->last[i].place_plan = NULL;
}

void placer_update(struct placer *placer)
{
	placer->closed = 0;
	for (uint32_t i = 0; i < placer->n_devices; i++)
		if (placer->devices[i].breaker.state == PLACE_CLOSED && !(placer->drained >> i & 1))
			placer->closed |= 1u << i;
	placer->is_plain = placer->n_devices == 2 && placer->closed == 3 &&
			   !placer->config.force_cpu &&
			   placer->config.strategy == RBK_STRATEGY_AUTO;
}
