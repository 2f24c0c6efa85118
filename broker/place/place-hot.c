/* SPDX-License-Identifier: MIT */
/*
 * Placement by the first rules
 *
 * Every rule reads only what was computed when the plan was prepared. GPUs are tried in the order
 * of their index; the first that can take the task has it.
 */
#include "place/place.h"

#include "plan/plan.h"

static bool is_broken(const struct placer *placer, uint32_t device)
{
	return placer->n_failures[device] >= PLACE_MAX_FAILURES;
}

static bool device_can_run(const struct placer *placer, const struct plan *plan, uint32_t device)
{
	return device < placer->n_devices && plan->device_state[device] == PLAN_DEVICE_READY &&
	       !is_broken(placer, device);
}

/* No GPU can run the plan now: why, and which could if its memory were there. */
static __attribute__((__cold__, __noinline__)) struct place_decision explain_gpus(
	const struct placer *placer, const struct plan *plan)
{
	struct place_decision none = {RBK_DEVICE_NONE, RBK_REASON_GPU_UNAVAILABLE, 0};
	bool is_any_broken = false;
	uint8_t first = 0;

	for (uint32_t i = RBK_DEVICE_GPU; i < placer->n_devices; i++) {
		is_any_broken |= is_broken(placer, i);
		if (plan->device_state[i] == PLAN_DEVICE_NO_MEMORY)
			none.reason = RBK_REASON_MEMORY_CONSTRAINT;
		if (plan->device_state[i] != PLAN_DEVICE_EVICTED || is_broken(placer, i))
			continue;
		none.reason = RBK_REASON_MEMORY_CONSTRAINT;
		none.wanted = first ? RBK_DEVICE_NONE : (uint8_t)i;
		if (!first)
			first = (uint8_t)i;
	}
	/* "Any" must not bring it to a device that would not be used. */
	if (is_any_broken)
		none.wanted = first;
	return none;
}

/* The first GPU that can run the plan; RBK_DEVICE_NONE, with the reason, if there is none. */
static struct place_decision find_gpu(const struct placer *placer, const struct plan *plan)
{
	for (uint32_t i = RBK_DEVICE_GPU; i < placer->n_devices; i++)
		if (device_can_run(placer, plan, i))
			return (struct place_decision){i, RBK_REASON_GPU_AVAILABLE, 0};
	return explain_gpus(placer, plan);
}

static struct place_decision on_cpu(const struct placer *placer, const struct plan *plan,
				    uint8_t reason)
{
	if (device_can_run(placer, plan, RBK_DEVICE_CPU))
		return (struct place_decision){RBK_DEVICE_CPU, reason, 0};
	return (struct place_decision){RBK_DEVICE_NONE, reason, 0};
}

static struct place_decision on_gpu_or_cpu(const struct placer *placer, const struct plan *plan,
					   uint8_t reason)
{
	struct place_decision decision = find_gpu(placer, plan);

	if (decision.device != RBK_DEVICE_NONE)
		decision.reason = reason;
	else if (device_can_run(placer, plan, RBK_DEVICE_CPU))
		decision.device = RBK_DEVICE_CPU;
	return decision;
}

/* A device that cannot run the plan now: why, and whether it could if its memory were there. */
static struct place_decision explain_device(const struct placer *placer, const struct plan *plan,
					    uint32_t device)
{
	struct place_decision none = {RBK_DEVICE_NONE, RBK_REASON_GPU_UNAVAILABLE, 0};

	if (device >= placer->n_devices)
		return none;
	if (plan->device_state[device] == PLAN_DEVICE_NO_MEMORY)
		none.reason = RBK_REASON_MEMORY_CONSTRAINT;
	if (plan->device_state[device] == PLAN_DEVICE_EVICTED && !is_broken(placer, device)) {
		none.reason = RBK_REASON_MEMORY_CONSTRAINT;
		none.wanted = (uint8_t)device;
	}
	return none;
}

static struct place_decision on_named(const struct placer *placer, const struct plan *plan,
				      uint32_t device)
{
	struct place_decision decision;

	if (device_can_run(placer, plan, device))
		return (struct place_decision){(uint8_t)device, RBK_REASON_USER_PREFERENCE, 0};
	decision = explain_device(placer, plan, device);
	if (device == RBK_DEVICE_CPU)
		return on_gpu_or_cpu(placer, plan,
				     decision.reason == RBK_REASON_MEMORY_CONSTRAINT
					     ? RBK_REASON_MEMORY_CONSTRAINT
					     : RBK_REASON_GPU_AVAILABLE);
	if (device_can_run(placer, plan, RBK_DEVICE_CPU))
		decision.device = RBK_DEVICE_CPU;
	return decision;
}

static struct place_decision only_gpu(const struct placer *placer, const struct plan *plan)
{
	struct place_decision gpu = find_gpu(placer, plan);

	if (gpu.device != RBK_DEVICE_NONE)
		gpu.reason = RBK_REASON_USER_PREFERENCE;
	return gpu;
}

/* A plan that the CPU cannot hold still runs where it can. */
static struct place_decision automatic(const struct placer *placer, const struct plan *plan,
				       uint32_t count)
{
	struct place_decision decision;

	if (plan_touched_bytes(plan, count) >= placer->threshold_bytes)
		return on_gpu_or_cpu(placer, plan, RBK_REASON_GPU_AVAILABLE);
	decision = on_cpu(placer, plan, RBK_REASON_BELOW_THRESHOLD);
	return decision.device == RBK_DEVICE_NONE ? find_gpu(placer, plan) : decision;
}

struct place_decision place_task(const struct placer *placer, const struct plan *plan,
				 uint32_t count, uint8_t strategy)
{
	if (plan->pinned) {
		if (device_can_run(placer, plan, plan->pinned_device))
			return (struct place_decision){plan->pinned_device,
						       RBK_REASON_USER_PREFERENCE, 0};
		return explain_device(placer, plan, plan->pinned_device);
	}
	if (strategy & RBK_STRATEGY_NAMED)
		return on_named(placer, plan, strategy & ~RBK_STRATEGY_NAMED);

	switch (strategy) {
	case RBK_STRATEGY_PREFER_GPU:
		return on_gpu_or_cpu(placer, plan, RBK_REASON_USER_PREFERENCE);
	case RBK_STRATEGY_PREFER_CPU:
		return on_named(placer, plan, RBK_DEVICE_CPU);
	case RBK_STRATEGY_ONLY_GPU:
		return only_gpu(placer, plan);
	case RBK_STRATEGY_ONLY_CPU:
		return on_cpu(placer, plan, RBK_REASON_USER_PREFERENCE);
	default:
		return automatic(placer, plan, count);
	}
}

void place_report(struct placer *placer, uint8_t device, bool is_failure)
{
	if (device == RBK_DEVICE_CPU || device >= RBK_MAX_DEVICES)
		return;
	placer->n_failures[device] = is_failure ? placer->n_failures[device] + 1 : 0;
}
