/* SPDX-License-Identifier: MIT */
/*
 * Every rule of placement, for any number of devices
 *
 * A survey states for each device whether the plan could run there and when it would be complete;
 * rules choose from it. GPUs on which the plan is not resident only compete if no other GPU can run
 * it. A task that would have run on such a GPU runs on the CPU, and names the GPU as wanted.
 *
 * A GPU behind a breaker takes part in the choice when a probe is due: if it is chosen, the task is
 * the probe. Tasks with deadlines are never probes.
 */
#include <math.h>

#include "place/placer-private.h"

/* LATENCY judges by a late completion: about one task in 40 takes longer than that. */
#define LATENCY_DEVIATIONS 2.0f

struct offer {
	uint8_t state; /* enum plan_device_state */
	bool is_probe;
	float exec_ns, work_ns;
	float done_ns;  /* predicted time until completion */
	float bias_ns;  /* advice */
	float score_ns; /* done_ns, adapted to the strategy, plus bias_ns */
};

struct survey {
	struct placer *placer;
	struct place_plan *place_plan;
	struct place_request request;
	/* place_plan_advise(), by device, times a weight; NULL: none */
	const float *bias_ns;
	float bias_weight;
	uint32_t n_devices;
	uint8_t strategy;
	/*
	 * Masks: devices that can run it now; GPUs that only lack its memory; GPUs barred by a
	 * breaker; devices that it never fits
	 */
	uint32_t ready, evicted, shut, no_memory;
	uint32_t trusted, known;
	struct offer offers[RBK_MAX_DEVICES];
};

#define GPUS (~1u)

static bool is_barred(const struct survey *survey, uint8_t device, uint64_t now_ns)
{
	struct place_breaker_state *own =
		&survey->place_plan->rest->history->records[device].breaker;
	struct place_breaker_state *breaker = &survey->placer->devices[device].breaker;
	bool may_probe;

	if (breaker->state == PLACE_CLOSED && own->state == PLACE_CLOSED)
		return false;
	/* Call both, so that the times of both breakers advance. */
	may_probe = place_breaker_may_probe(breaker, now_ns);
	may_probe &= place_breaker_may_probe(own, now_ns);
	return !may_probe || survey->request.deadline_ns;
}

static void look_at(struct survey *survey, uint8_t device, struct place_spot spot,
		    struct place_flow *flow, uint64_t now_ns)
{
	const struct place_device *on = &survey->placer->devices[device];
	const struct place_entry *entry = place_entry(survey->place_plan, spot.bucket, device);
	struct offer *offer = &survey->offers[device];
	const bool is_idle = survey->request.flags & PLACE_AS_IF_IDLE;
	const uint32_t bit = 1u << device;

	offer->state = survey->place_plan->plan->device_state[device];
	if (survey->placer->drained & bit)
		return;
	if (offer->state == PLAN_DEVICE_NO_MEMORY)
		survey->no_memory |= bit;
	if (offer->state != PLAN_DEVICE_READY &&
	    (offer->state != PLAN_DEVICE_EVICTED || device == RBK_DEVICE_CPU))
		return;
	if (device != RBK_DEVICE_CPU &&
	    !(survey->placer->closed & ~survey->place_plan->rest->broken & bit)) {
		if (is_barred(survey, device, now_ns) || is_idle) {
			survey->shut |= bit;
			return;
		}
		offer->is_probe = true;
	}
	if (offer->state == PLAN_DEVICE_READY)
		survey->ready |= bit;
	else if (!offer->is_probe)
		survey->evicted |= bit;
	if (entry->flags & PLACE_ENTRY_TRUSTED)
		survey->trusted |= bit;
	if (entry->flags & PLACE_ENTRY_KNOWN)
		survey->known |= bit;
	offer->work_ns = place_entry_alone_ns(entry, spot.into) * entry->servers;
	offer->exec_ns =
		place_entry_exec_ns(survey->placer, on, entry, spot.into,
				    place_contention(survey->placer, flow, device), now_ns);
	offer->done_ns = offer->exec_ns + place_wait_ns(survey->placer, flow, device, now_ns);
	if (is_idle)
		offer->exec_ns = offer->done_ns = place_entry_alone_ns(entry, spot.into);
	offer->score_ns = offer->done_ns;
	/* A device that was of no use when the advice was made may be ready now. */
	offer->bias_ns = survey->bias_ns && !isinf(survey->bias_ns[device])
				 ? survey->bias_ns[device] * survey->bias_weight
				 : 0;
	offer->score_ns += offer->bias_ns;
	if (survey->strategy == RBK_STRATEGY_LATENCY)
		offer->score_ns +=
			offer->exec_ns * LATENCY_DEVIATIONS * (float)entry->spread / 1024;
}

static void make_survey(struct survey *survey, struct place_flow *flow, uint64_t now_ns)
{
	struct place_spot spot = place_spot(survey->place_plan, survey->request.count);

	survey->ready = survey->evicted = survey->shut = survey->no_memory = 0;
	survey->trusted = survey->known = 0;
	for (uint32_t i = 0; i < survey->n_devices; i++) {
		survey->offers[i].is_probe = false;
		look_at(survey, (uint8_t)i, spot, flow, now_ns);
	}
}

/* Return the device of least score among @devices; RBK_DEVICE_NONE if there is none. */
static uint8_t least(const struct survey *survey, uint32_t devices)
{
	uint8_t best = RBK_DEVICE_NONE;

	for (uint8_t i = 0; i < survey->n_devices; i++)
		if (devices >> i & 1 &&
		    (best == RBK_DEVICE_NONE ||
		     survey->offers[i].score_ns < survey->offers[best].score_ns))
			best = i;
	return best;
}

/* --- Answers --- */

/* Decide that the task runs on @device, which is ready. */
static struct place_decision on(struct survey *survey, uint8_t device, uint8_t reason,
				uint8_t wanted, uint64_t now_ns)
{
	const struct offer *offer = &survey->offers[device];
	uint8_t other = least(survey, survey->ready & ~(1u << device));
	uint8_t flags = survey->bias_ns ? PLACE_ADVISED : 0;

	if (flags && survey->request.flags & PLACE_IN_STREAM)
		flags |= PLACE_STREAMED;
	if (offer->is_probe) {
		flags |= PLACE_PROBES | PLACE_BOUND;
		place_breaker_probing(&survey->placer->devices[device].breaker, offer->exec_ns,
				      now_ns);
		place_breaker_probing(&survey->place_plan->rest->history->records[device].breaker,
				      offer->exec_ns, now_ns);
	}
	return place_decision(device, reason, wanted, flags, 0, offer->exec_ns,
			      other == RBK_DEVICE_NONE ? 0 : survey->offers[other].exec_ns);
}

/* Explain why none of @devices is available, and which memory is wanted. */
static struct place_decision explain(const struct survey *survey, uint32_t devices)
{
	uint32_t evicted = survey->evicted & devices;
	uint8_t reason = RBK_REASON_GPU_UNAVAILABLE, wanted = 0;

	if (evicted) {
		reason = RBK_REASON_MEMORY_CONSTRAINT;
		wanted = least(survey, evicted);
		/* "Any" must not load the plan on a device that would not be used. */
		if (evicted & (evicted - 1) && !(survey->shut & devices))
			wanted = RBK_DEVICE_NONE;
	} else if (survey->shut & devices) {
		reason = RBK_REASON_BREAKER_OPEN;
	} else if (survey->no_memory & devices) {
		reason = RBK_REASON_MEMORY_CONSTRAINT;
	}
	return place_decision(RBK_DEVICE_NONE, reason, wanted, 0, 0, 0, 0);
}

static struct place_decision cpu_instead(struct survey *survey, struct place_decision why,
					 uint64_t now_ns)
{
	if (survey->ready & 1)
		return on(survey, RBK_DEVICE_CPU, why.reason, why.wanted, now_ns);
	return why;
}

/* --- Rules --- */

static struct place_decision best_gpu(struct survey *survey, uint8_t reason, uint64_t now_ns)
{
	uint8_t gpu = least(survey, survey->ready & GPUS);

	if (gpu == RBK_DEVICE_NONE)
		return explain(survey, GPUS);
	return on(survey, gpu, reason, 0, now_ns);
}

static struct place_decision named(struct survey *survey, uint8_t device, uint64_t now_ns)
{
	struct place_decision decision;
	uint8_t reason;

	if (device < survey->n_devices && survey->ready >> device & 1)
		return on(survey, device, RBK_REASON_USER_PREFERENCE, 0, now_ns);
	if (device != RBK_DEVICE_CPU)
		return cpu_instead(survey, explain(survey, 1u << device), now_ns);
	/* Not "fallback": the task has not failed on any device. */
	reason = survey->no_memory & 1 ? RBK_REASON_MEMORY_CONSTRAINT : RBK_REASON_GPU_AVAILABLE;
	decision = best_gpu(survey, reason, now_ns);
	return decision;
}

static struct place_decision pinned(struct survey *survey, uint64_t now_ns)
{
	uint8_t device = survey->place_plan->plan->pinned_device;

	if (device < survey->n_devices && survey->ready >> device & 1)
		return on(survey, device, RBK_REASON_USER_PREFERENCE, 0, now_ns);
	return explain(survey, device < RBK_MAX_DEVICES ? 1u << device : 0);
}

/*
 * Rule 7: return another device of @devices if only that one meets the deadline; otherwise @device.
 */
static uint8_t in_time(const struct survey *survey, uint8_t device, uint32_t devices)
{
	float deadline_ns = (float)survey->request.deadline_ns;
	uint8_t other;

	if (!survey->request.deadline_ns || survey->offers[device].done_ns <= deadline_ns)
		return device;
	for (uint8_t i = 0; i < survey->n_devices; i++)
		if (!(survey->offers[i].done_ns <= deadline_ns))
			devices &= ~(1u << i);
	other = least(survey, devices & ~(1u << device));
	return other == RBK_DEVICE_NONE ? device : other;
}

static struct place_decision preferred(struct survey *survey, uint32_t devices, uint64_t now_ns)
{
	uint8_t device = least(survey, survey->ready & devices), other;

	if (device != RBK_DEVICE_NONE) {
		other = in_time(survey, device, survey->ready);
		if (other != device)
			return on(survey, other, RBK_REASON_COST_MODEL, 0, now_ns);
		return on(survey, device, RBK_REASON_USER_PREFERENCE, 0, now_ns);
	}
	if (devices == 1)
		return named(survey, RBK_DEVICE_CPU, now_ns);
	return cpu_instead(survey, explain(survey, GPUS), now_ns);
}

/*
 * Return the device of least energy among those that complete within energy_slack of @first. If the
 * power of one of them is unknown (0 watts), return @first.
 */
static uint8_t thriftiest(const struct survey *survey, uint32_t devices, uint8_t first)
{
	float limit_ns = survey->offers[first].done_ns * survey->placer->config.energy_slack;
	float joules, least_joules = 0;
	uint8_t best = first;
	bool has_best = false;

	for (uint8_t i = 0; i < survey->n_devices; i++) {
		if (!(devices >> i & 1))
			continue;
		joules =
			survey->placer->devices[i].profile.active_watts * survey->offers[i].work_ns;
		if (!(joules > 0))
			return first;
		if (survey->offers[i].done_ns > limit_ns || (has_best && joules >= least_joules))
			continue;
		best = i;
		least_joules = joules;
		has_best = true;
	}
	return best;
}

/* Choose between the CPU and the best GPU by rules 5 and 6. */
static uint8_t cpu_or(const struct survey *survey, const struct place_flow *flow, uint8_t gpu,
		      uint8_t *reason)
{
	const struct offer *cpu = &survey->offers[RBK_DEVICE_CPU], *other = &survey->offers[gpu];
	const float contention = place_contention(survey->placer, flow, RBK_DEVICE_CPU);
	const float cpu_wait_ns = cpu->done_ns - cpu->exec_ns;
	const struct place_spot spot = place_spot(survey->place_plan, survey->request.count);
	const struct place_entry *entry =
		place_entry(survey->place_plan, spot.bucket, RBK_DEVICE_CPU);
	const uint32_t both = 1u | 1u << gpu;
	float threshold = survey->placer->config.speedup_threshold;

	*reason = RBK_REASON_COST_MODEL;
	if ((survey->trusted & both) != both) {
		*reason = RBK_REASON_GPU_AVAILABLE;
		if ((survey->known & both) != both)
			return gpu;
		if (other->score_ns < cpu->score_ns &&
		    (other->exec_ns * threshold <= cpu->exec_ns ||
		     other->done_ns * threshold <= cpu->done_ns))
			return gpu;
		*reason = RBK_REASON_COST_MODEL;
		return RBK_DEVICE_CPU;
	}
	if (other->score_ns >= cpu->score_ns)
		return RBK_DEVICE_CPU;
	/* The deviations added to the score are disturbed as well, the advice is not. */
	if (place_is_disturbed(&survey->placer->devices[RBK_DEVICE_CPU], entry, contention,
			       cpu_wait_ns, cpu->score_ns - cpu->bias_ns - cpu_wait_ns,
			       other->score_ns - cpu->bias_ns))
		*reason = RBK_REASON_CONTENTION;
	return gpu;
}

static bool is_worth_leaving(const struct survey *survey, uint8_t gpu)
{
	const struct offer *cpu = &survey->offers[RBK_DEVICE_CPU];
	const uint32_t both = 1u | 1u << gpu;

	return place_is_worth_leaving(survey->placer,
				      (survey->known & both) == both ? PLACE_ENTRY_KNOWN : 0,
				      cpu->done_ns - cpu->exec_ns, survey->offers[gpu].done_ns);
}

static struct place_decision automatic(struct survey *survey, struct place_flow *flow,
				       uint64_t now_ns)
{
	struct placer *placer = survey->placer;
	struct place_plan *place_plan = survey->place_plan;
	uint32_t gpus = survey->ready & GPUS, all;
	uint8_t gpu, device, moved, reason = RBK_REASON_COST_MODEL;
	struct place_decision decision;
	bool has_cpu = survey->ready & 1, is_below;

	gpu = least(survey, gpus ? gpus : survey->evicted);
	is_below = has_cpu && place_is_below(place_plan, survey->request.count);
	if (gpu == RBK_DEVICE_NONE) {
		decision = explain(survey, GPUS);
		if (is_below)
			decision.reason = RBK_REASON_BELOW_THRESHOLD;
		return cpu_instead(survey, decision, now_ns);
	}
	all = (gpus ? gpus : 1u << gpu) | has_cpu;
	if (!has_cpu) {
		device = gpu;
		reason = RBK_REASON_GPU_AVAILABLE;
	} else if (survey->strategy == RBK_STRATEGY_ENERGY && !is_below) {
		device = thriftiest(survey, all, least(survey, all));
	} else {
		device = cpu_or(survey, flow, gpu, &reason);
		if (is_below && (device == RBK_DEVICE_CPU || ~survey->trusted & (1u | 1u << gpu)) &&
		    !is_worth_leaving(survey, gpu)) {
			device = RBK_DEVICE_CPU;
			reason = RBK_REASON_BELOW_THRESHOLD;
		}
	}
	moved = in_time(survey, device, all);
	if (moved != device)
		reason = RBK_REASON_COST_MODEL;
	device = moved;
	if (device != RBK_DEVICE_CPU && !(survey->ready >> device & 1))
		return cpu_instead(survey, explain(survey, GPUS), now_ns);

	decision = on(survey, device, reason, 0, now_ns);
	if (survey->strategy != RBK_STRATEGY_AUTO || survey->request.flags & PLACE_AS_IF_IDLE ||
	    place_plan->wish_bucket != place_spot(place_plan, survey->request.count).bucket)
		return decision;
	return place_explore(placer, place_plan, flow, survey->request, decision,
			     survey->offers[device].done_ns, now_ns);
}

float place_offer_ns(const struct placer *placer, const struct place_plan *place_plan,
		     uint8_t device, uint32_t count)
{
	if (!place_can_move(placer, place_plan, device))
		return INFINITY;
	return place_predict_ns(placer, place_plan, device, count);
}

float place_queue_ns(const struct placer *placer, const struct place_flow *flow, uint8_t device,
		     uint64_t now_ns)
{
	return place_wait_ns(placer, flow, device, now_ns);
}

float place_partition_gain(const struct placer *placer, uint8_t strategy, uint8_t flags,
			   uint64_t bytes)
{
	if (strategy == RBK_STRATEGY_AUTO)
		strategy = placer->config.strategy;
	switch (strategy) {
	case RBK_STRATEGY_PARTITION:
		return 0;
	case RBK_STRATEGY_AUTO:
	case RBK_STRATEGY_LATENCY:
	case RBK_STRATEGY_ENERGY:
		if (!(flags & PLACE_MAY_PARTITION) || bytes < placer->config.partition_min_bytes)
			return INFINITY;
		return placer->config.partition_min_gain;
	default:
		return INFINITY;
	}
}

/* Split a task over CPU and GPU, if requested, possible, and worth it. */
static bool partition(struct survey *survey, struct place_flow *flow, uint64_t now_ns,
		      struct place_decision *ret)
{
	struct placer *placer = survey->placer;
	struct place_plan *place_plan = survey->place_plan;
	const uint32_t count = survey->request.count;
	const bool is_request = survey->strategy == RBK_STRATEGY_PARTITION;
	const float gain = place_partition_gain(placer, survey->strategy, survey->request.flags,
						plan_touched_bytes(place_plan->plan, count));
	uint8_t gpu = least(survey, survey->ready & GPUS);
	float ns, best_ns;
	uint32_t split_count;

	if (isinf(gain))
		return false;
	/* A probe shows nothing if half of the task ran on the CPU. */
	if (gpu == RBK_DEVICE_NONE || !(survey->ready & 1) || survey->offers[gpu].is_probe)
		return false;
	ns = place_split(placer, place_plan, flow, gpu, count, now_ns, &split_count);
	if (ns <= 0)
		return false;
	best_ns = survey->offers[RBK_DEVICE_CPU].done_ns;
	for (uint8_t i = 1; i < survey->n_devices; i++)
		if (survey->ready >> i & 1 && survey->offers[i].done_ns < best_ns)
			best_ns = survey->offers[i].done_ns;
	if (!is_request && best_ns < ns * (1 + gain))
		return false;
	*ret = place_decision(gpu, is_request ? RBK_REASON_USER_PREFERENCE : RBK_REASON_COST_MODEL,
			      0, PLACE_BOUND, split_count,
			      place_exec_ns(placer, place_plan, flow, gpu, split_count, now_ns),
			      place_exec_ns(placer, place_plan, flow, RBK_DEVICE_CPU,
					    count - split_count, now_ns));
	return true;
}

/* Choose the advice. Latency and energy are the task's own, whatever others need. */
static void advise(struct survey *survey)
{
	struct place_request *request = &survey->request;
	const struct place_rest *rest = survey->place_plan->rest;

	if (survey->strategy == RBK_STRATEGY_LATENCY || survey->strategy == RBK_STRATEGY_ENERGY)
		request->flags &= (uint8_t)~PLACE_IN_STREAM;
	survey->bias_ns = rest->bias_ns;
	survey->bias_weight = 1;
	if (request->flags & PLACE_UNADVISED) {
		survey->bias_ns = NULL;
	} else if (request->flags & PLACE_IN_STREAM) {
		survey->bias_ns = rest->reduced_ns;
		survey->bias_weight = PLACE_STREAM_WEIGHT * (float)request->n_in_flight;
	}
}

struct place_decision place_decide_in_full(struct placer *placer, struct place_plan *place_plan,
					   struct place_flow *flow, struct place_request request,
					   uint64_t now_ns)
{
	struct survey survey = {
		.placer = placer,
		.place_plan = place_plan,
		.request = request,
		.strategy = request.strategy,
		/* force-CPU: as if the CPU were the only device */
		.n_devices = placer->config.force_cpu ? 1 : place_plan->n_devices,
	};
	struct place_decision decision;

	if (survey.strategy == RBK_STRATEGY_AUTO)
		survey.strategy = placer->config.strategy;
	advise(&survey);
	make_survey(&survey, flow, now_ns);
	if (place_plan->is_pinned)
		return pinned(&survey, now_ns);
	if (survey.strategy & RBK_STRATEGY_NAMED)
		return named(&survey, (uint8_t)(survey.strategy & ~RBK_STRATEGY_NAMED), now_ns);
	switch (survey.strategy) {
	case RBK_STRATEGY_PREFER_GPU:
		return preferred(&survey, GPUS, now_ns);
	case RBK_STRATEGY_PREFER_CPU:
		return preferred(&survey, 1, now_ns);
	case RBK_STRATEGY_ONLY_GPU:
		return best_gpu(&survey, RBK_REASON_USER_PREFERENCE, now_ns);
	case RBK_STRATEGY_ONLY_CPU:
		if (survey.ready & 1)
			return on(&survey, RBK_DEVICE_CPU, RBK_REASON_USER_PREFERENCE, 0, now_ns);
		return place_decision(RBK_DEVICE_NONE, RBK_REASON_USER_PREFERENCE, 0, 0, 0, 0, 0);
	}
	if (partition(&survey, flow, now_ns, &decision))
		return decision;
	if (placer->config.force_cpu)
		return cpu_instead(
			&survey,
			place_decision(RBK_DEVICE_NONE, RBK_REASON_GPU_UNAVAILABLE, 0, 0, 0, 0, 0),
			now_ns);
	return automatic(&survey, flow, now_ns);
}

bool place_can_move(const struct placer *placer, const struct place_plan *place_plan,
		    uint8_t device)
{
	return device < place_plan->n_devices &&
	       place_plan->plan->device_state[device] == PLAN_DEVICE_READY &&
	       (device == RBK_DEVICE_CPU ||
		(!placer->config.force_cpu &&
		 placer->closed & ~place_plan->rest->broken & 1u << device));
}

void place_plan_advise(struct place_plan *place_plan, const float *bias_ns, const float *reduced_ns)
{
	place_plan->rest->bias_ns = bias_ns;
	place_plan->rest->reduced_ns = reduced_ns;
	place_plan_set_broken(place_plan, place_plan->rest->broken);
}
