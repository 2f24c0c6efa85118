/* SPDX-License-Identifier: MIT */
/*
 * Segments of a plan as a graph: in which order they begin, and on which devices
 *
 * Segments that run at once compete for devices: the device that ends one first may be the one that
 * a longer way through the task needs. place/graph.h looks for a schedule of the whole task, from
 * the times that the placer predicts for each segment on each device. Its first advice is there
 * when the first task begins. Each task that begins then adds one step of the search, which takes
 * 20 to 60 ns per segment, until the steps are used up. They begin anew when predictions have
 * changed.
 *
 * The placer adds the advice to completions (place_plan_advise()). A segment that may run only
 * elsewhere, or whose device is far behind, goes elsewhere as ever.
 *
 * Several tasks of a plan in flight fill all devices, whatever their order. Then the reduced costs
 * count instead of the schedule, also for plans whose segments run one after the other: a segment
 * does not go where it ends first if that device is worth more to others.
 */
#include <math.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/segment.h"
#include "place/graph.h"

enum {
	LOOK_EVERY_TASKS = 64, /* tasks of a plan after which predictions are compared */
	SEARCH_STEPS = 16384,
};

/* Share by which a prediction changes before the schedule is made anew */
static const float most_change = 0.2f;

/* Return the predicted time of a segment on a device; INFINITY: the device will not run it. */
static float predict(const struct dispatch *dispatch, const struct session_segment *segment,
		     uint32_t device, uint32_t count)
{
	const uint8_t state = segment->plan.plan->device_state[device];

	/* A device that lacks memory now may have it again: the schedule wants the segment there.
	 */
	if (state != PLAN_DEVICE_READY && state != PLAN_DEVICE_EVICTED)
		return INFINITY;
	return place_predict_ns(dispatch->placer, segment->plan.place, (uint8_t)device,
				segment->cut.is_counted ? count : 1);
}

static bool has_changed(float before_ns, float now_ns)
{
	if (isinf(before_ns) || isinf(now_ns))
		return isinf(before_ns) != isinf(now_ns);
	return fabsf(now_ns - before_ns) > before_ns * most_change;
}

/* Note what a segment takes of a device. Return: true if it has changed. */
static bool note_work(const struct dispatch *dispatch, const struct session_segment *segment,
		      uint32_t device, uint32_t count, float *work_ns)
{
	const float ns = place_share_ns(dispatch->placer, segment->plan.place, (uint8_t)device,
					segment->cut.is_counted ? count : 1);

	if (!has_changed(*work_ns, ns))
		return false;
	*work_ns = ns;
	return true;
}

/* Predict all times. Return: true if one has changed. */
static bool predict_all(const struct dispatch *dispatch, struct session_segments *segments,
			uint32_t count)
{
	struct place_graph *graph = segments->graph;
	bool ret = false;

	for (uint32_t i = 0; i < segments->n; i++) {
		const size_t first = (size_t)i * graph->n_devices;
		float *exec_ns = &graph->exec_ns[first], *work_ns = &graph->work_ns[first];
		float least_ns = INFINITY;

		/* The CPU comes last: where no device runs the segment, it stands for them. */
		for (uint32_t d = graph->n_devices; d-- > 0;) {
			float ns = predict(dispatch, &segments->of[i], d, count);

			least_ns = ns < least_ns ? ns : least_ns;
			if (isinf(ns))
				work_ns[d] = 0;
			else
				ret |= note_work(dispatch, &segments->of[i], d, count, &work_ns[d]);
			if (d == RBK_DEVICE_CPU && isinf(least_ns))
				ns = 1;
			if (!has_changed(exec_ns[d], ns))
				continue;
			exec_ns[d] = ns;
			ret = true;
		}
	}
	return ret;
}

void segments_advise(const struct dispatch *dispatch, struct session_segments *segments,
		     struct task *task)
{
	struct place_graph *graph = segments->graph;
	const uint32_t n = segments->n_tasks++, count = task->count;
	const bool is_at_once = segments->n_at_once > 1;

	if (n % LOOK_EVERY_TASKS == 0) {
		segments->advised_count = count;
		if (predict_all(dispatch, segments, count) || n == 0) {
			place_graph_renew(graph);
			place_graph_improve(graph, 0);
			segments->n_steps_left = is_at_once ? SEARCH_STEPS : 0;
		}
	}
	if (n == 0)
		for (uint32_t i = 0; i < segments->n; i++) {
			const size_t first = (size_t)i * graph->n_devices;

			place_plan_advise(segments->of[i].plan.place,
					  is_at_once ? &graph->bias_ns[first] : NULL,
					  &graph->reduced_ns[first]);
		}
	/* The schedule says little of a task with far more or fewer rows. */
	if (!segments_fit_advice(segments, count))
		task->place_flags |= PLACE_UNADVISED;
	if (segments->n_steps_left == 0)
		return;
	segments->n_steps_left--;
	place_graph_improve(graph, 1);
}

uint64_t segments_advised_ns(const struct task *slot, struct place_decision decision)
{
	const struct dispatch *dispatch = slot->ring->dispatch;
	const uint64_t now_ns = dispatch_now_ns(dispatch);

	if (decision.flags & PLACE_STREAMED)
		return now_ns + (uint64_t)decision.predicted_ns +
		       place_flow_wait_ns(dispatch->placer, slot->ring->flow->place,
					  decision.device, now_ns);
	/* A task that runs one segment after the other, or a stream, is late from the beginning. */
	if (!segments_at_once(slot) || slot->set->n_batches > 1)
		return 0;
	return slot->set->begin_ns + (uint64_t)slot->whole->segments->graph->end_ns[slot->segment];
}
