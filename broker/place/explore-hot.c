/* SPDX-License-Identifier: MIT */
/*
 * Exploration: keeping the estimates of unused devices up to date
 *
 * Each plan has a budget: a share of its own execution time (1% by default) may be lost to running
 * where it is predicted to take longer. After an execution a device is wished for that was never,
 * or not lately, observed at these counts; the next task there for which the budget suffices runs
 * on it. If the task would be complete little later there, because it would wait elsewhere, that
 * costs little whatever the device's speed. The predicted loss is set aside, and replaced by the
 * actual loss when the task is back. So the bound holds however wrong the prediction was: after a
 * large loss, the plan explores again only when the debt is earned. No random numbers are used, so
 * that results can be repeated.
 */
#include "place/placer-private.h"

/*
 * While other programs use a device's processors its times say little about it, and a task sent
 * there may wait for any time. So no device with more contention is explored.
 */
#define MAX_CONTENTION 1.5f
/* No task is sent to a device where it is predicted to be complete so many times later. */
#define MAX_RATIO 3.0f
/*
 * Likewise where a few observations predict it: the first task on a device may have taken many
 * times as long as the next ones would. The budget bounds what it costs to find out.
 */
#define MAX_UNSURE_RATIO 20.0f
/* Least share of the best device's time to set aside, because the predictions are in doubt */
#define LEAST_LOSS 0.1f
/* Limit of an unused budget, in executions */
#define MAX_BUDGET 20.0
/*
 * After so many executions a wish that no task fulfilled is replaced, and an exploring task counts
 * as lost.
 */
#define WISH_TASKS 64u

/* Return true if a task is on its way to explore @device. */
static bool is_explored(const struct place_history *history, uint8_t device)
{
	const struct place_record *record = &history->records[device];

	return record->is_exploring && history->n_done - record->explore_began < WISH_TASKS;
}

/* Send a task to explore; it loses the time by which it completes later than @best_ns. */
static struct place_decision send(struct place_plan *place_plan, struct place_decision decision,
				  uint8_t device, float exec_ns, float done_ns, float best_ns,
				  float set_aside_ns)
{
	struct place_history *history = place_plan->rest->history;
	struct place_record *record = &history->records[device];

	history->budget_ns -= (double)set_aside_ns;
	record->is_exploring = true;
	record->explore_began = history->n_done;
	record->set_aside_ns = set_aside_ns;
	record->best_ns = best_ns - (done_ns - exec_ns);
	return place_decision(device, RBK_REASON_COST_MODEL, 0, PLACE_EXPLORES | PLACE_BOUND, 0,
			      exec_ns, decision.predicted_ns);
}

/*
 * Return true if a device should be observed again. The worse it was, the less likely it is to be
 * the better one now, and the more an observation costs: the wait grows with the square of how many
 * times longer it is predicted to take.
 */
static bool is_stale(const struct placer *placer, const struct place_plan *place_plan,
		     uint32_t bucket, uint8_t device, float ratio)
{
	const struct place_history *history = place_plan->rest->history;
	const struct place_estimate *estimate =
		&history->estimates[bucket * history->n_devices + device];
	float n_since = (float)(history->n_done - estimate->seen), n_window;

	if (!(place_entry(place_plan, bucket, device)->flags & PLACE_ENTRY_TRUSTED))
		return true;
	n_window = (float)placer->config.window;
	return n_since > n_window && n_since > n_window * ratio * ratio;
}

/* Return the ratio from which on no task is sent to the device. */
static float most_ratio(const struct place_plan *place_plan, uint32_t bucket, uint8_t device)
{
	const struct place_history *history = place_plan->rest->history;
	const uint32_t n = history->estimates[bucket * history->n_devices + device].n;

	return n > 0 && n < PLACE_TRUST ? MAX_UNSURE_RATIO : MAX_RATIO;
}

static float alone_ns(const struct placer *placer, const struct place_plan *place_plan,
		      uint32_t bucket, uint8_t device)
{
	const struct place_entry *entry = place_entry(place_plan, bucket, device);

	return entry->base_ns * place_felt(entry, placer->devices[device].contention);
}

void place_wish(struct placer *placer, struct place_plan *place_plan, uint32_t bucket,
		uint8_t device)
{
	struct place_history *history = place_plan->rest->history;
	const struct place_record *record = &history->records[device];
	float best_ns, ns, loss_ns, least_ns = PLACE_MAX_NS;

	if (history->budget_ns > MAX_BUDGET * record->mean_ns)
		history->budget_ns = MAX_BUDGET * record->mean_ns;
	if (history->budget_ns <= 0 || (place_plan->wish_bucket != UINT16_MAX &&
					history->n_done - history->wished < WISH_TASKS))
		return;
	place_plan->wish_bucket = UINT16_MAX;
	best_ns = alone_ns(placer, place_plan, bucket, device);
	for (uint8_t i = 0; i < place_plan->n_devices; i++) {
		if (i == device || place_plan->plan->device_state[i] != PLAN_DEVICE_READY ||
		    !(placer->closed & ~place_plan->rest->broken & 1u << i) ||
		    placer->devices[i].contention > MAX_CONTENTION || is_explored(history, i))
			continue;
		ns = alone_ns(placer, place_plan, bucket, i);
		loss_ns = ns - best_ns;
		if (loss_ns < best_ns * LEAST_LOSS)
			loss_ns = best_ns * LEAST_LOSS;
		/* While the best device has a queue, exploring costs less than that. */
		if ((double)(best_ns * LEAST_LOSS) > history->budget_ns || loss_ns >= least_ns ||
		    !is_stale(placer, place_plan, bucket, i, ns / best_ns))
			continue;
		least_ns = loss_ns;
		place_plan->wish_bucket = (uint16_t)bucket;
		place_plan->wish_device = i;
		history->wished = history->n_done;
	}
}

struct place_decision place_explore(struct placer *placer, struct place_plan *place_plan,
				    struct place_flow *flow, struct place_request request,
				    struct place_decision decision, float best_ns, uint64_t now_ns)
{
	struct place_history *history = place_plan->rest->history;
	uint8_t device = place_plan->wish_device;
	float exec_ns, done_ns, loss_ns;

	if (request.deadline_ns || decision.device == RBK_DEVICE_NONE || decision.split_count)
		return decision;
	/* The placer has chosen the device by itself meanwhile, or cannot use it any more. */
	if (decision.device == device ||
	    !(placer->closed & ~place_plan->rest->broken & 1u << device) ||
	    placer->devices[device].contention > MAX_CONTENTION ||
	    place_plan->plan->device_state[device] != PLAN_DEVICE_READY) {
		place_plan->wish_bucket = UINT16_MAX;
		return decision;
	}
	exec_ns = place_exec_ns(placer, place_plan, flow, device, request.count, now_ns);
	done_ns = exec_ns + place_wait_ns(placer, flow, device, now_ns);
	loss_ns = done_ns - best_ns;
	if (loss_ns < decision.predicted_ns * LEAST_LOSS)
		loss_ns = decision.predicted_ns * LEAST_LOSS;
	if ((double)loss_ns > history->budget_ns ||
	    done_ns > best_ns * most_ratio(place_plan, place_plan->wish_bucket, device))
		return decision;
	place_plan->wish_bucket = UINT16_MAX;
	return send(place_plan, decision, device, exec_ns, done_ns, best_ns, loss_ns);
}
