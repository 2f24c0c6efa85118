/* SPDX-License-Identifier: MIT */
/*
 * Micro-batches: a task of many rows streams through the segments of its plan
 *
 * Segments that need each other's tensors run one after the other, and all devices but one are idle
 * meanwhile. Several tasks of a plan fill them. A task that is alone can do so itself, if the rows
 * of its tensors do not depend on each other: it is cut into micro-batches, and while one device
 * runs a segment of the first micro-batch, another one runs the segment before of the second. Each
 * micro-batch has its share of the task's one crossing block (cut_grain_bytes()). Its segments run
 * in the slots of segments that run at once (at-once-hot.c), each placed by itself. Source: Huang
 * et al., GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism, 2019.
 *
 * Only a task that may be partitioned has micro-batches, and only if they are predicted to end
 * earlier by partition-min-gain, or at all if it asked for partition. The prediction is the end of
 * a list schedule: each segment of each micro-batch runs where it would end first. Micro-batches
 * that would all run on one device gain nothing but a better use of caches, which kernels see to.
 */
#include <math.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/segment.h"
#include "util/number.h"

enum { WHOLE_EVERY = 64 };

/*
 * Time from the end of a segment to the start of the next one on another thread, if that does not
 * sleep. Measured on an AMD EPYC: 4 to 20 us.
 */
static const float hop_ns = 10000;

struct times {
	/* of segments with some rows, by segment and device; INFINITY: it cannot run there now */
	float ns[CUT_MAX_SEGMENTS][RBK_MAX_DEVICES];
	float wait_ns[RBK_MAX_DEVICES]; /* for devices that have other tasks */
	uint32_t n_devices;
};

static void predict_waits(const struct dispatch *dispatch, const struct task *task,
			  struct times *ret)
{
	const uint64_t now_ns = dispatch_now_ns(dispatch);

	ret->n_devices = dispatch->n_executors;
	for (uint8_t d = 0; d < ret->n_devices; d++)
		ret->wait_ns[d] =
			place_queue_ns(dispatch->placer, task->ring->flow->place, d, now_ns);
}

static void predict(const struct dispatch *dispatch, const struct session_segments *segments,
		    uint32_t count, struct times *ret)
{
	for (uint32_t i = 0; i < segments->n; i++)
		for (uint8_t d = 0; d < ret->n_devices; d++)
			ret->ns[i][d] = place_offer_ns(dispatch->placer, segments->of[i].plan.place,
						       d, count);
}

/* Return how much a segment with all rows of @task must gain to be split, as for a whole task. */
static float split_gain(const struct dispatch *dispatch, const struct task *task, uint32_t i)
{
	const struct plan *plan = task->plan->segments->of[i].plan.plan;

	return place_partition_gain(dispatch->placer, task->strategy, task->place_flags,
				    plan_touched_bytes(plan, task->count));
}

/* Return how long a segment takes where it takes least, or split over the CPU and a GPU. */
static float least_ns(const float *ns, uint32_t n_devices, float gain)
{
	float least = ns[RBK_DEVICE_CPU], both_ns = INFINITY;

	for (uint32_t d = RBK_DEVICE_GPU; d < n_devices; d++) {
		both_ns = min_float(both_ns, 1 / (1 / ns[RBK_DEVICE_CPU] + 1 / ns[d]));
		least = min_float(least, ns[d]);
	}
	return both_ns * (1 + gain) < least ? both_ns : least;
}

/* Return the predicted time of @task if it runs one segment after the other. */
static float whole_ns(const struct dispatch *dispatch, const struct task *task,
		      const struct times *times)
{
	float sum_ns = times->wait_ns[RBK_DEVICE_CPU];

	for (uint32_t d = RBK_DEVICE_GPU; d < times->n_devices; d++)
		sum_ns = min_float(sum_ns, times->wait_ns[d]);
	for (uint32_t i = 0; i < task->plan->segments->n; i++)
		sum_ns += hop_ns +
			  least_ns(times->ns[i], times->n_devices, split_gain(dispatch, task, i));
	return sum_ns;
}

/*
 * Return the predicted time of @n_batches micro-batches whose segments take @times; INFINITY: all
 * would run on one device.
 */
static float stream_ns(const struct session_segments *segments, const struct times *times,
		       uint32_t n_batches)
{
	float end_ns[CUT_MAX_SEGMENTS], free_ns[RBK_MAX_DEVICES], last_ns = 0;
	uint32_t devices = 0;

	for (uint32_t d = 0; d < times->n_devices; d++)
		free_ns[d] = times->wait_ns[d];

	/* In each step, every micro-batch that has come so far goes on by a segment. */
	for (uint32_t step = 0; step < segments->n + n_batches - 1; step++)
		for (uint32_t batch = step < segments->n ? 0 : step - segments->n + 1;
		     batch < n_batches && batch <= step; batch++) {
			const uint32_t i = step - batch;
			float *end = &end_ns[batch * segments->n], ready_ns = 0;
			uint32_t best = 0;

			end[i] = INFINITY;
			for (uint64_t needs = segments->of[i].cut.needs; needs; needs &= needs - 1)
				ready_ns = max_float(ready_ns, end[__builtin_ctzll(needs)]);
			for (uint32_t d = 0; d < times->n_devices; d++) {
				const float ns =
					max_float(ready_ns, free_ns[d]) + hop_ns + times->ns[i][d];

				if (ns >= end[i])
					continue;
				end[i] = ns;
				best = d;
			}
			free_ns[best] = end[i];
			devices |= 1u << best;
			last_ns = max_float(last_ns, end[i]);
		}
	return devices & (devices - 1) ? last_ns : INFINITY;
}

/* Return the rows of each of about @n micro-batches of @count rows. */
static uint32_t rows_of(const struct session_segments *segments, uint32_t count, uint32_t n)
{
	const uint32_t grain = segments->grain_rows;

	return ((count - 1) / n / grain + 1) * grain;
}

/* Give the set @n micro-batches, or fewer if the rows are few. */
static void set_batches(struct segment_set *set, const struct session_segments *segments,
			uint32_t count, uint32_t n)
{
	set->batch_rows = rows_of(segments, count, n);
	set->n_batches = (count - 1) / set->batch_rows + 1;
}

/* Find the best number of micro-batches. Return: false: the task is better off with one. */
static bool choose_batches(const struct dispatch *dispatch, const struct task *task, float gain,
			   struct segment_set *set)
{
	const struct session_segments *segments = task->plan->segments;
	const uint32_t count = task->count;
	float most_ns, ns, best_ns = INFINITY;
	uint32_t best = 1;
	struct times times = {.n_devices = 0};

	predict_waits(dispatch, task, &times);
	predict(dispatch, segments, count, &times);
	/* Without micro-batches, too, segments run at once as far as they can. */
	most_ns = min_float(whole_ns(dispatch, task, &times), stream_ns(segments, &times, 1)) /
		  (1 + gain);
	for (uint32_t n = 2; n <= segments->n_batches; n++) {
		set_batches(set, segments, count, n);
		predict(dispatch, segments, set->batch_rows, &times);
		ns = stream_ns(segments, &times, set->n_batches);
		if (ns < best_ns) {
			best_ns = ns;
			best = n;
		}
	}
	set_batches(set, segments, count, best);
	set->stream_ns = best_ns;
	/* Also if a segment has no device. */
	return best_ns < most_ns;
}

/*
 * Return true for one of many tasks that would have micro-batches: it has none, since the times of
 * all rows that decisions compare with would not be learned any more.
 */
static bool is_whole_due(struct session_segments *segments)
{
	return ++segments->n_streams % WHOLE_EVERY == 0;
}

void stream_begin(const struct dispatch *dispatch, struct task *task, struct segment_set *set)
{
	const struct session_plan *plan = task->plan;
	const struct session_segments *segments = plan->segments;
	const float gain = place_partition_gain(dispatch->placer, task->strategy, task->place_flags,
						plan_touched_bytes(plan->plan, task->count));
	/* A test that cuts plans at random has micro-batches for the asking. */
	const bool is_forced = task->strategy == RBK_STRATEGY_PARTITION && segments->is_random;

	/* Several tasks of a plan fill the devices without more submissions. */
	if (isinf(gain) || segments->n_begun > 1 || task->count <= segments->grain_rows)
		return;
	if (is_forced) {
		set_batches(set, segments, task->count, segments->n_batches);
		set->stream_ns = 0;
	} else if (!choose_batches(dispatch, task, gain, set) || is_whole_due(plan->segments)) {
		set->n_batches = 1;
		set->batch_rows = task->count;
		return;
	}
	set->n_slots = segments->n_slots;
	task->place_flags = (uint8_t)((task->place_flags & ~PLACE_MAY_PARTITION) | PLACE_UNADVISED);
	if (task->strategy == RBK_STRATEGY_PARTITION)
		task->strategy = RBK_STRATEGY_LATENCY;
}
