/* SPDX-License-Identifier: MIT */
/*
 * Attribution of tasks' times to causes
 *
 * Waiting time is explained by executions that overlap it on the same device; time that no
 * execution covers has another cause. Execution time is first compared with the prediction for the
 * device that ran the task. The part of the prediction that a faster device would have saved is
 * charged to the reason for the placement, and the rest is work. Time beyond the prediction is
 * charged to contention, as far as the logged contention factor explains it; the remainder is
 * unexplained.
 */
#include "judge.h"

#include <math.h>
#include <stdlib.h>

#include "util/number.h"

const char *cause_name(enum cause cause)
{
	static const char *const names[N_CAUSES] = {
		[CAUSE_WORK] = "work",
		[CAUSE_OWN_QUEUE] = "queue-own",
		[CAUSE_OTHERS_QUEUE] = "queue-others",
		[CAUSE_QUOTA] = "quota",
		[CAUSE_RETURN] = "return",
		[CAUSE_STREAM] = "stream",
		[CAUSE_WAIT] = "wait",
		[CAUSE_TRANSFER] = "transfer",
		[CAUSE_MEMORY] = "eviction",
		[CAUSE_BREAKER] = "breaker",
		[CAUSE_FALLBACK] = "fallback",
		[CAUSE_LEARNING] = "learning",
		[CAUSE_PREFERENCE] = "preference",
		[CAUSE_CONTENTION] = "contention",
		[CAUSE_SLOWER] = "slower",
	};

	return names[cause];
}

const char *cause_phrase(enum cause cause)
{
	static const char *const phrases[N_CAUSES] = {
		[CAUSE_WORK] = "the work itself",
		[CAUSE_OWN_QUEUE] =
			"waiting behind other tasks of its tenant, or other segments of its own",
		[CAUSE_OTHERS_QUEUE] = "waiting behind tasks of other tenants",
		[CAUSE_QUOTA] = "waiting, presumably for its tenant's CPU quota (cpu-max), which "
				"has held tasks up",
		[CAUSE_RETURN] = "waiting, presumably until its evicted plan was back in the "
				 "device's memory",
		[CAUSE_STREAM] = "waiting until constants that were streamed were in the device's "
				 "memory",
		[CAUSE_WAIT] = "waiting, though no task in front of it is logged",
		[CAUSE_TRANSFER] = "moving data to the device and back (its tenant's average; of "
				   "segments, what they read of earlier ones)",
		[CAUSE_MEMORY] = "lost on a slower device, because its plan had no room on the "
				 "faster one",
		[CAUSE_BREAKER] = "lost on a slower device, because the faster one failed too "
				  "often and is not used",
		[CAUSE_FALLBACK] = "lost by failing on a GPU first",
		[CAUSE_LEARNING] = "lost on a slower device, which the broker explored",
		[CAUSE_PREFERENCE] = "lost on a slower device, because the client asked for it",
		[CAUSE_CONTENTION] = "lost to other programs that kept the CPU busy then",
		[CAUSE_SLOWER] = "longer than predicted",
	};

	return phrases[cause];
}

static int compare_ends(const void *a, const void *b)
{
	uint64_t first = ((const struct busy *)a)->ended_ns;
	uint64_t second = ((const struct busy *)b)->ended_ns;

	return (first > second) - (first < second);
}

void busy_sort(struct busy *busy, size_t n_busy)
{
	qsort(busy, n_busy, sizeof(*busy), compare_ends);
}

/* Convert a duration of a page to whole nanoseconds; invalid values are 0. */
static uint64_t whole_ns(float ns)
{
	return ns > 0 && ns < 1e18f ? (uint64_t)ns : 0;
}

struct busy busy_of(const struct rbk_stats_decision *decision, bool is_own)
{
	return (struct busy){
		.began_ns = saturating_sub(decision->ended_at_ns, whole_ns(decision->exec_ns)),
		.ended_ns = decision->ended_at_ns,
		.device = decision->device,
		.is_own = is_own,
		.task = decision->sequence - 1,
	};
}

struct busy busy_of_segment(const struct rbk_stats_segment *segment, bool is_own)
{
	return (struct busy){
		.began_ns = saturating_sub(segment->ended_at_ns, whole_ns(segment->exec_ns)),
		.ended_ns = segment->ended_at_ns,
		.device = segment->device,
		.is_own = is_own,
		.task = segment->task,
	};
}

/* Return the index of the first execution that ends after @at_ns. */
static size_t first_after(const struct judge *judge, uint64_t at_ns)
{
	size_t low = 0, high = judge->n_busy;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (judge->busy[middle].ended_ns > at_ns)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

struct overlap {
	uint64_t covered_ns; /* time in which at least one execution ran */
	uint64_t own_ns, others_ns;
	uint64_t n;
};

/*
 * Return true unless an execution on @device is the one of the task, or segment, itself that ended
 * at @ended_ns. Other segments of its task may have been in its way.
 */
static bool is_other(const struct busy *busy, uint8_t device, uint64_t task, uint64_t ended_ns)
{
	return busy->device == device &&
	       !(busy->is_own && busy->task == task && busy->ended_ns == ended_ns);
}

/* Measure the executions of others than @task on its device within [@began_ns, @ended_ns). */
static struct overlap overlap_with(const struct judge *judge, const struct rbk_stats_decision *task,
				   uint64_t began_ns, uint64_t ended_ns)
{
	size_t first = first_after(judge, began_ns), last;
	struct overlap overlap = {.n = 0};
	uint64_t covered_from_ns = ended_ns;

	last = first_after(judge, ended_ns + judge->longest_ns);
	/*
	 * From the last end to the first: time before the earliest beginning seen so far is not
	 * covered yet.
	 */
	for (size_t i = last; i-- > first;) {
		const struct busy *busy = &judge->busy[i];
		uint64_t low = busy->began_ns > began_ns ? busy->began_ns : began_ns;
		uint64_t high = busy->ended_ns < ended_ns ? busy->ended_ns : ended_ns;

		if (!is_other(busy, task->device, task->sequence - 1, task->ended_at_ns) ||
		    low >= high)
			continue;
		overlap.n++;
		if (busy->is_own)
			overlap.own_ns += high - low;
		else
			overlap.others_ns += high - low;
		if (low < covered_from_ns) {
			overlap.covered_ns +=
				(high < covered_from_ns ? high : covered_from_ns) - low;
			covered_from_ns = low;
		}
	}
	return overlap;
}

static void judge_wait(const struct judge *judge, const struct rbk_stats_decision *task,
		       bool is_streamed, struct verdict *verdict)
{
	uint64_t wait_ns = whole_ns(task->queue_ns);
	uint64_t started_ns = saturating_sub(task->ended_at_ns, whole_ns(task->exec_ns));
	struct overlap overlap;
	enum cause rest = CAUSE_WAIT;
	double own_part;

	if (wait_ns == 0)
		return;
	overlap = overlap_with(judge, task, saturating_sub(started_ns, wait_ns), started_ns);
	verdict->n_ahead += overlap.n;
	if (overlap.n > 0) {
		own_part = (double)overlap.own_ns / (double)(overlap.own_ns + overlap.others_ns);
		verdict->ns[CAUSE_OWN_QUEUE] += own_part * (double)overlap.covered_ns;
		verdict->ns[CAUSE_OTHERS_QUEUE] += (1 - own_part) * (double)overlap.covered_ns;
	}
	if (task->reason == RBK_REASON_CPU_FALLBACK)
		rest = CAUSE_FALLBACK;
	else if (judge->is_throttled && task->device == RBK_DEVICE_CPU)
		rest = CAUSE_QUOTA;
	else if (is_streamed)
		rest = CAUSE_STREAM;
	else if (judge->has_returned && task->device != RBK_DEVICE_CPU)
		rest = CAUSE_RETURN;
	verdict->ns[rest] += (double)(wait_ns - overlap.covered_ns);
}

/*
 * Return why the task ran on a slower device; CAUSE_WORK for other reasons, for example because the
 * faster device was busy.
 */
static enum cause cause_of_place(const struct rbk_stats_decision *task)
{
	switch (task->reason) {
	case RBK_REASON_MEMORY_CONSTRAINT:
		return CAUSE_MEMORY;
	case RBK_REASON_BREAKER_OPEN:
		return CAUSE_BREAKER;
	case RBK_REASON_CPU_FALLBACK:
		return CAUSE_FALLBACK;
	case RBK_REASON_CONTENTION:
		return CAUSE_CONTENTION;
	case RBK_REASON_USER_PREFERENCE:
		return CAUSE_PREFERENCE;
	}
	return task->flags & RBK_DECISION_EXPLORED ? CAUSE_LEARNING : CAUSE_WORK;
}

double judge_contention(const struct rbk_stats_decision *task)
{
	return exp2((double)(task->flags >> RBK_DECISION_CONTENTION_SHIFT) / 9);
}

static void judge_execution(const struct rbk_stats_decision *task, double transfer_ns,
			    struct verdict *verdict)
{
	double exec_ns = (double)whole_ns(task->exec_ns);
	double predicted_ns = (double)whole_ns(task->predicted_ns);
	double other_ns = (double)whole_ns(task->other_ns);
	double expected_ns, contended_ns = 0, moved_ns = 0, lost_ns = 0;
	bool is_on_cpu = task->device == RBK_DEVICE_CPU;

	expected_ns = predicted_ns > 0 && predicted_ns < exec_ns ? predicted_ns : exec_ns;
	if (is_on_cpu)
		contended_ns =
			fmin(exec_ns - expected_ns, exec_ns - exec_ns / judge_contention(task));
	verdict->ns[CAUSE_CONTENTION] += contended_ns;
	verdict->ns[CAUSE_SLOWER] += exec_ns - expected_ns - contended_ns;
	if (!is_on_cpu)
		moved_ns = transfer_ns < expected_ns ? transfer_ns : expected_ns;
	verdict->ns[CAUSE_TRANSFER] += moved_ns;
	expected_ns -= moved_ns;
	if (other_ns > 0 && other_ns < expected_ns)
		lost_ns = expected_ns - other_ns;
	verdict->ns[cause_of_place(task)] += lost_ns;
	verdict->ns[CAUSE_WORK] += expected_ns - lost_ns;
}

static void judge_part(const struct judge *judge, const struct rbk_stats_decision *part,
		       bool is_streamed, double transfer_ns, struct verdict *verdict)
{
	verdict->total_ns += (double)whole_ns(part->queue_ns) + (double)whole_ns(part->exec_ns);
	judge_wait(judge, part, is_streamed, verdict);
	judge_execution(part, transfer_ns, verdict);
}

/* Describe a segment as the log does a task. */
static struct rbk_stats_decision part_of(const struct rbk_stats_decision *task,
					 const struct rbk_stats_segment *segment)
{
	struct rbk_stats_decision part = *task;

	part.ended_at_ns = segment->ended_at_ns;
	part.queue_ns = segment->queue_ns;
	part.exec_ns = segment->exec_ns;
	part.predicted_ns = segment->predicted_ns;
	part.other_ns = segment->other_ns;
	part.device = segment->device;
	part.reason = segment->reason;
	part.flags = segment->flags;
	return part;
}

/*
 * Return the index of the segment, of those that are not in @path, that ended last by @limit_ns;
 * -1: none did.
 */
static int last_ended(const struct segment_entry *segments, uint32_t n_segments, uint64_t path,
		      uint64_t limit_ns)
{
	uint64_t last_ns = 0;
	int last = -1;

	for (uint32_t i = 0; i < n_segments; i++)
		if (!(path >> i & 1) && segments[i].segment.ended_at_ns > last_ns &&
		    segments[i].segment.ended_at_ns <= limit_ns) {
			last_ns = segments[i].segment.ended_at_ns;
			last = (int)i;
		}
	return last;
}

uint64_t judge_path(const struct segment_entry *segments, uint32_t n_segments)
{
	int i = last_ended(segments, n_segments, 0, UINT64_MAX);
	uint64_t path = 0;

	while (i >= 0) {
		const struct rbk_stats_segment *segment = &segments[i].segment;
		const uint64_t took_ns = whole_ns(segment->queue_ns) + whole_ns(segment->exec_ns);

		path |= UINT64_C(1) << i;
		/* The log has durations with 24 bits. */
		i = last_ended(segments, n_segments, path,
			       segment->ended_at_ns - took_ns + 2 + took_ns / 4000000);
	}
	return path;
}

uint32_t judge_n_beside(const struct segment_entry *segments, uint32_t n_segments)
{
	const uint64_t path = judge_path(segments, n_segments);
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_segments; i++)
		n += segments[i].segment.ended_at_ns > 0 && !(path >> i & 1);
	return n;
}

void judge_add(const struct judge *judge, const struct rbk_stats_decision *task,
	       const struct segment_entry *segments, uint32_t n_segments, struct verdict *verdict)
{
	const uint64_t path = judge_path(segments, n_segments);

	verdict->n_tasks++;
	verdict->n_late += !!(task->flags & RBK_DECISION_DEADLINE_MISSED);
	verdict->n_failed += task->res < 0;
	for (uint32_t i = 0; i < n_segments; i++) {
		const struct rbk_stats_segment *segment = &segments[i].segment;
		const struct rbk_stats_decision part = part_of(task, segment);

		const double rate = segment->device < RBK_MAX_DEVICES
					    ? judge->bytes_per_ns[segment->device]
					    : 0;

		if (path >> i & 1)
			judge_part(judge, &part, segment->flags & RBK_DECISION_STREAMED,
				   rate > 0 ? (double)segment->crossed_bytes / rate : 0, verdict);
	}
	if (n_segments == 0)
		judge_part(judge, task, false, judge->transfer_ns, verdict);
}

void judge_ahead(const struct judge *judge, const struct rbk_stats_segment *segment,
		 double *ahead_ns)
{
	const uint64_t ended_ns = saturating_sub(segment->ended_at_ns, whole_ns(segment->exec_ns));
	const uint64_t began_ns = saturating_sub(ended_ns, whole_ns(segment->queue_ns));
	const size_t last = first_after(judge, ended_ns + judge->longest_ns);

	for (size_t i = first_after(judge, began_ns); i < last; i++) {
		const struct busy *busy = &judge->busy[i];
		uint64_t low = busy->began_ns > began_ns ? busy->began_ns : began_ns;
		uint64_t high = busy->ended_ns < ended_ns ? busy->ended_ns : ended_ns;

		if (is_other(busy, segment->device, segment->task, segment->ended_at_ns) &&
		    low < high)
			ahead_ns[busy->tenant] += (double)(high - low);
	}
}

unsigned int judge_order(const struct verdict *verdict, enum cause order[N_CAUSES])
{
	unsigned int n = 0;

	for (unsigned int cause = 0; cause < N_CAUSES; cause++) {
		unsigned int at = n;

		if (!(verdict->ns[cause] > 0))
			continue;
		for (; at > 0 && verdict->ns[order[at - 1]] < verdict->ns[cause]; at--)
			order[at] = order[at - 1];
		order[at] = (enum cause)cause;
		n++;
	}
	return n;
}
