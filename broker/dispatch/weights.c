/* SPDX-License-Identifier: MIT */
/*
 * Streaming: constants of segments that come into a device's memory just for a task
 *
 * A device holds a part of a plan's segments, and tasks compute the others on the CPU. Where the
 * link is fast enough, it is sooner to bring a segment, to run it on the device, and to let another
 * one take its place. A task then waits for the segment, and in the meantime the next one comes, if
 * others are idle whose memory it can have. Only segments that are worth bringing make way: those
 * that would be computed by the CPU again stay, as they were chosen by what they save.
 *
 * The times are those that the last loads took and that the placer predicts, so each segment of
 * each task is decided anew: where several tasks want different segments, loads take longer, and
 * the tasks run on the CPU.
 */
#include <math.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/segment.h"

/*
 * Least time that a task saves: below, waking it and the work of loading take more than what is
 * predicted.
 */
static const float least_saving_ns = 500000;

/* Return what a task saves if it waits until a segment is there; less than 0: it loses. */
static float saving_ns(const struct dispatch *dispatch, const struct task *task,
		       const struct session_plan *segment, uint8_t device)
{
	const struct placer *placer = dispatch->placer;
	const struct place_flow *flow = task->ring->flow->place;
	const uint64_t now_ns = dispatch_now_ns(dispatch);
	const float bring_ns = (float)residency_bring_ns(&segment->memory, device);
	/* While the segment comes, the device is at work for others. */
	const float there_ns = place_predict_ns(placer, segment->place, device, task->count) +
			       fmaxf(bring_ns, place_queue_ns(placer, flow, device, now_ns));
	const float here_ns = place_offer_ns(placer, segment->place, RBK_DEVICE_CPU, task->count) +
			      place_queue_ns(placer, flow, RBK_DEVICE_CPU, now_ns);

	if (!(bring_ns > 0) || !(here_ns < INFINITY))
		return 0;
	return here_ns - there_ns * (1 + placer_config(placer)->partition_min_gain);
}

/* Return true if a segment that is not on the device is worth bringing. */
static bool pays(const struct dispatch *dispatch, const struct task *task,
		 const struct session_plan *segment, uint8_t device)
{
	return segment->plan->device_state[device] == PLAN_DEVICE_EVICTED &&
	       saving_ns(dispatch, task, segment, device) >= least_saving_ns;
}

bool weights_wait(struct dispatch *dispatch, struct task *task, uint8_t device)
{
	struct session_segments *segments = task->whole ? task->whole->segments : NULL;

	if (!segments || device == RBK_DEVICE_NONE || task->has_waited ||
	    task->whole->state != SLOT_READY || !pays(dispatch, task, task->plan, device))
		return false;
	for (uint32_t i = 0; i < segments->n; i++)
		segments->of[i].plan.memory.is_streamed =
			saving_ns(dispatch, task, &segments->of[i].plan, device) >= least_saving_ns;
	segments->streamed_to = device;
	wait_begin(task, RESIDENCY_STREAM, device);
	return true;
}

static void on_ahead(struct residency_waiter *waiter, int res)
{
	struct session_segments *segments = container_of(waiter, struct session_segments, ahead);

	segments->is_coming = false;
	if (res == 0)
		segments->of[segments->coming].came_to = segments->coming_to;
}

void weights_ahead(struct dispatch *dispatch, const struct task *task)
{
	struct session_segments *segments = task->whole->segments;
	const uint32_t next = (task->segment + 1u) % segments->n;
	struct session_plan *segment = &segments->of[next].plan;

	if (segments->is_coming || task->whole->state != SLOT_READY ||
	    !pays(dispatch, task, segment, segments->streamed_to))
		return;
	segments->is_coming = true;
	segments->coming = (uint8_t)next;
	segments->coming_to = segments->streamed_to;
	segments->ahead.done = on_ahead;
	residency_ask(dispatch->options.residency, &segment->memory, &segments->ahead,
		      RESIDENCY_STREAM, segments->streamed_to);
}

void weights_forget(struct dispatch *dispatch, struct session_plan *plan)
{
	if (!plan->segments || !plan->segments->is_coming)
		return;
	residency_withdraw(dispatch->options.residency, &plan->segments->ahead);
	plan->segments->is_coming = false;
}
