/* SPDX-License-Identifier: MIT */
/*
 * The decision for nearly every task
 *
 * It handles a CPU and a GPU, both working and with the plan resident, no deadline, no wish: rules
 * 3, 5 and 6 of placer.h on one cache line of the plan and one entry per device. decide-rules-hot.c
 * handles all other cases and any other number of devices; for this case it gives the same answers.
 */
#include "place/placer-private.h"

#define likely(condition) __builtin_expect(!!(condition), 1)

static bool is_ready_on_both(const struct plan *plan)
{
	const uint8_t wanted[2] = {PLAN_DEVICE_READY, PLAN_DEVICE_READY};

	return memcmp(plan->device_state, wanted, sizeof(wanted)) == 0;
}

static __attribute__((__noinline__)) void come_near(struct place_plan *place_plan, uint32_t bucket)
{
	memcpy(place_plan->near, &place_plan->rest->entries[(size_t)bucket * 2],
	       sizeof(place_plan->near));
	place_plan->near_bucket = (uint16_t)bucket;
}

struct place_decision place_decide(struct placer *placer, struct place_plan *place_plan,
				   struct place_flow *flow, struct place_request request,
				   uint64_t now_ns)
{
	const struct place_device *cpu = &placer->devices[RBK_DEVICE_CPU], *gpu = cpu + 1;
	struct place_spot spot = place_spot(place_plan, request.count);
	const struct place_entry *entry = place_plan->near;
	float cpu_contention = 1, cpu_ns, gpu_ns, cpu_done_ns, gpu_done_ns;
	struct place_decision decision;
	bool is_trusted, is_on_gpu;
	uint8_t reason;

	if (!likely(placer->is_plain & place_plan->is_plain &
		    (request.strategy == RBK_STRATEGY_AUTO) & (request.deadline_ns == 0) &
		    !(request.flags &
		      (PLACE_MAY_PARTITION | PLACE_AS_IF_IDLE | PLACE_IN_STREAM))) ||
	    !likely(is_ready_on_both(place_plan->plan)))
		return place_decide_in_full(placer, place_plan, flow, request, now_ns);

	if (!likely(spot.bucket == place_plan->near_bucket))
		come_near(place_plan, spot.bucket);
	cpu_ns = place_entry_crowded_ns(placer, cpu, &entry[0], spot.into, now_ns);
	gpu_ns = place_entry_crowded_ns(placer, gpu, &entry[1], spot.into, now_ns);
	if (!likely(!placer->is_contended)) {
		cpu_contention = place_contention(placer, flow, RBK_DEVICE_CPU);
		cpu_ns *= place_felt(&entry[0], cpu_contention);
		gpu_ns *= place_felt(&entry[1], gpu->contention);
	}
	cpu_done_ns = cpu_ns + place_wait_ns(placer, flow, RBK_DEVICE_CPU, now_ns);
	gpu_done_ns = gpu_ns + place_wait_ns(placer, flow, RBK_DEVICE_GPU, now_ns);
	is_trusted = entry[0].flags & entry[1].flags & PLACE_ENTRY_TRUSTED;
	is_on_gpu = gpu_done_ns < cpu_done_ns;
	reason = RBK_REASON_COST_MODEL;

	if (place_is_below(place_plan, request.count) && !(is_trusted & is_on_gpu) &&
	    !place_is_worth_leaving(placer, entry[0].flags & entry[1].flags, cpu_done_ns - cpu_ns,
				    gpu_done_ns)) {
		reason = RBK_REASON_BELOW_THRESHOLD;
		is_on_gpu = false;
	} else if (!is_trusted) {
		float threshold = placer->config.speedup_threshold;

		if (!(entry[0].flags & entry[1].flags & PLACE_ENTRY_KNOWN))
			is_on_gpu = true;
		else if (gpu_ns * threshold > cpu_ns && gpu_done_ns * threshold > cpu_done_ns)
			is_on_gpu = false;
		if (is_on_gpu)
			reason = RBK_REASON_GPU_AVAILABLE;
	} else if (is_on_gpu && place_is_disturbed(cpu, &entry[0], cpu_contention,
						   cpu_done_ns - cpu_ns, cpu_ns, gpu_done_ns)) {
		reason = RBK_REASON_CONTENTION;
	}

	decision = is_on_gpu ? place_decision(RBK_DEVICE_GPU, reason, 0, 0, 0, gpu_ns, cpu_ns)
			     : place_decision(RBK_DEVICE_CPU, reason, 0, 0, 0, cpu_ns, gpu_ns);
	if (likely(place_plan->wish_bucket != spot.bucket))
		return decision;
	return place_explore(placer, place_plan, flow, request, decision,
			     is_on_gpu ? gpu_done_ns : cpu_done_ns, now_ns);
}
