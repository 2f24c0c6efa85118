/* SPDX-License-Identifier: MIT */
/* Why tasks were slow: each cause alone, and the causes' sum equals the total. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "brokerctl/judge.h"
#include "support/test.h"

enum { GPU = RBK_DEVICE_GPU, CPU = RBK_DEVICE_CPU };

static const struct judge nothing_known = {.n_busy = 0};

/* A CPU task that ended at 10,000, was queued for 6,000 and ran for 1,000. */
static struct rbk_stats_decision task_of(void)
{
	return (struct rbk_stats_decision){
		.ended_at_ns = 10000,
		.queue_ns = 6000,
		.exec_ns = 1000,
		.device = CPU,
		.reason = RBK_REASON_COST_MODEL,
	};
}

static struct verdict verdict_of(const struct judge *judge, const struct rbk_stats_decision *task)
{
	struct verdict verdict = {.n_tasks = 0};
	double sum = 0;

	judge_add(judge, task, NULL, 0, &verdict);
	assert_int_equal(verdict.n_tasks, 1);
	/* No time is counted twice or lost. */
	for (unsigned int i = 0; i < N_CAUSES; i++) {
		assert_true(verdict.ns[i] >= 0);
		sum += verdict.ns[i];
	}
	assert_true(fabs(sum - verdict.total_ns) < 1);
	return verdict;
}

static void assert_cause(const struct verdict *verdict, enum cause cause, double ns)
{
	if (fabs(verdict->ns[cause] - ns) < 0.5)
		return;
	print_error("%s: %g instead of %g\n", cause_name(cause), verdict->ns[cause], ns);
	fail();
}

TEST(test_judge__work)
{
	struct rbk_stats_decision task = task_of();
	struct verdict verdict;

	task.queue_ns = 0;
	verdict = verdict_of(&nothing_known, &task);
	assert_cause(&verdict, CAUSE_WORK, 1000);
	/* A task that ran faster than predicted gets no further cause. */
	task.predicted_ns = 5000;
	verdict = verdict_of(&nothing_known, &task);
	assert_cause(&verdict, CAUSE_WORK, 1000);
}

/* The task was queued from 3,000 to 9,000. */
TEST(test_judge__behind_others)
{
	struct busy busy[] = {
		{.began_ns = 1000, .ended_ns = 5000, .device = CPU, .is_own = true},
		{.began_ns = 5000, .ended_ns = 8000, .device = CPU},
		/* Executions on another device, before the wait, and after it. */
		{.began_ns = 0, .ended_ns = 10000, .device = GPU},
		{.began_ns = 0, .ended_ns = 3000, .device = CPU},
		{.began_ns = 9000, .ended_ns = 10000, .device = CPU, .is_own = true},
	};
	struct judge judge = {.busy = busy, .n_busy = 5, .longest_ns = 10000};
	struct rbk_stats_decision task = task_of();
	struct verdict verdict;

	busy_sort(busy, 5);
	verdict = verdict_of(&judge, &task);
	assert_cause(&verdict, CAUSE_OWN_QUEUE, 2000);
	assert_cause(&verdict, CAUSE_OTHERS_QUEUE, 3000);
	assert_cause(&verdict, CAUSE_WAIT, 1000);
	assert_cause(&verdict, CAUSE_WORK, 1000);
	assert_int_equal(verdict.n_ahead, 2);
}

/*
 * Each segment waits for its own device, and not for the task's other segments; what crosses to a
 * GPU takes the link's time.
 */
TEST(test_judge__segments)
{
	enum { TASK = 7 };
	const struct segment_entry segments[] = {
		{.segment = {.task = TASK,
			     .ended_at_ns = 4000,
			     .device = CPU,
			     .queue_ns = 1000,
			     .exec_ns = 2000,
			     /* twice as long as undisturbed */
			     .flags = 9 << RBK_DECISION_CONTENTION_SHIFT}},
		{.segment = {.task = TASK,
			     .ended_at_ns = 9000,
			     .segment = 1,
			     .device = GPU,
			     .queue_ns = 3000,
			     .exec_ns = 2000,
			     .predicted_ns = 1500,
			     .other_ns = 900,
			     .reason = RBK_REASON_CPU_FALLBACK,
			     .crossed_bytes = 800}},
	};
	struct busy busy[] = {
		/* On the other device while a segment waits */
		{.began_ns = 1000, .ended_ns = 2000, .device = GPU, .tenant = 1},
		{.began_ns = 4000, .ended_ns = 4500, .device = GPU, .tenant = 1},
		{.began_ns = 4500, .ended_ns = 5000, .device = GPU, .tenant = 1},
		{.began_ns = 5000, .ended_ns = 5900, .device = GPU, .is_own = true},
		/* The segment's own, and one of another tenant with the same index */
		{.began_ns = 4000, .ended_ns = 9000, .device = GPU, .is_own = true, .task = TASK},
		{.began_ns = 6900, .ended_ns = 7000, .device = GPU, .tenant = 2, .task = TASK},
	};
	const struct judge judge = {
		.busy = busy,
		.n_busy = 6,
		.longest_ns = 3000,
		.bytes_per_ns = {[CPU] = 1, [GPU] = 2},
		/* not of segments */
		.transfer_ns = 1000000,
	};
	struct rbk_stats_decision task = task_of();
	struct verdict verdict = {.n_tasks = 0};
	double ahead_ns[3] = {0, 0, 0};

	busy_sort(busy, 6);
	task.sequence = TASK + 1;
	task.res = -EIO;
	judge_add(&judge, &task, segments, 2, &verdict);
	assert_int_equal(verdict.n_tasks, 1);
	assert_int_equal(verdict.n_failed, 1);
	assert_true(verdict.total_ns == 8000);
	/* 1000 for the CPU, and what nothing covers of 3000 for the GPU */
	assert_cause(&verdict, CAUSE_WAIT, 1000);
	assert_cause(&verdict, CAUSE_OWN_QUEUE, 900);
	assert_cause(&verdict, CAUSE_OTHERS_QUEUE, 1100);
	assert_cause(&verdict, CAUSE_TRANSFER, 400);
	/* The first one was not predicted, so all of it counts as work. */
	assert_cause(&verdict, CAUSE_FALLBACK, 1000 + 200);
	assert_cause(&verdict, CAUSE_WORK, 2000 + 900);
	assert_cause(&verdict, CAUSE_SLOWER, 500);
	assert_int_equal(verdict.n_ahead, 4);

	judge_ahead(&judge, &segments[0].segment, ahead_ns);
	assert_true(ahead_ns[0] == 0 && ahead_ns[1] == 0 && ahead_ns[2] == 0);
	judge_ahead(&judge, &segments[1].segment, ahead_ns);
	assert_true(ahead_ns[0] == 900 && ahead_ns[1] == 1000 && ahead_ns[2] == 100);
}

/* Return a segment that waited from @ready_ns until @start_ns, and ran until @end_ns. */
static struct segment_entry timed(uint16_t number, uint64_t ready_ns, uint64_t start_ns,
				  uint64_t end_ns)
{
	return (struct segment_entry){.segment = {
					      .segment = number,
					      .ended_at_ns = end_ns,
					      .queue_ns = (float)(start_ns - ready_ns),
					      .exec_ns = (float)(end_ns - start_ns),
					      .device = number % 2 ? GPU : CPU,
				      }};
}

/* Only segments on the critical path count, whatever ran beside them. */
TEST(test_judge__segments_at_once)
{
	const uint64_t base_ns = UINT64_C(3) << 40; /* times of days, which no float has */
	struct segment_entry segments[] = {
		timed(0, base_ns, base_ns + 500, base_ns + 1000),
		timed(1, base_ns + 1000, base_ns + 1100, base_ns + 3000),
		timed(2, base_ns + 3000, base_ns + 3000, base_ns + 4000),
		timed(3, base_ns + 1000, base_ns + 1001, base_ns + 8000),
		timed(4, base_ns + 8000, base_ns + 8500, base_ns + 9000),
	};
	/* Segment 3 keeps the device of 4 longer than 4 needs it, and 2 keeps no device. */
	struct busy busy = {base_ns + 1001, base_ns + 8300, GPU, true, 6, 0};
	struct judge judge = {.busy = &busy, .n_busy = 1, .longest_ns = 8000};
	struct rbk_stats_decision task = task_of();
	struct verdict verdict = {.n_tasks = 0};

	task.sequence = 7;
	segments[4].segment.device = GPU;
	assert_int_equal(judge_path(segments, 5), 1 << 0 | 1 << 3 | 1 << 4);
	assert_int_equal(judge_n_beside(segments, 5), 2);
	judge_add(&judge, &task, segments, 5, &verdict);
	assert_true(verdict.total_ns == 9000);
	assert_cause(&verdict, CAUSE_OWN_QUEUE, 300);
	/* One after the other, all are on the path, also those that took no time to begin. */
	segments[3] = timed(3, base_ns + 4000, base_ns + 4000, base_ns + 8000);
	assert_int_equal(judge_path(segments, 5), 31);
	/* A segment that failed before it ran is not. */
	segments[4].segment.ended_at_ns = 0;
	assert_int_equal(judge_path(segments, 5), 15);
	assert_int_equal(judge_n_beside(segments, 5), 0);
	/* Nonsense of a page ends somewhere. */
	for (unsigned int i = 0; i < 5; i++)
		segments[i] = timed(0, base_ns, base_ns, base_ns + 1);
	assert_in_range(judge_path(segments, 5), 1, 31);
	assert_int_equal(judge_path(NULL, 0), 0);
}

/* The contention of a segment is its own, whatever the task's record says. */
TEST(test_judge__contention_of_segment)
{
	struct segment_entry segment = {.segment = {.ended_at_ns = 4000,
						    .device = CPU,
						    .exec_ns = 2000,
						    .predicted_ns = 1000,
						    .flags = 9 << RBK_DECISION_CONTENTION_SHIFT}};
	struct rbk_stats_decision task = task_of();
	struct verdict verdict = {.n_tasks = 0};

	judge_add(&nothing_known, &task, &segment, 1, &verdict);
	assert_cause(&verdict, CAUSE_CONTENTION, 1000);
	segment.segment.flags = 0;
	task.flags = 9 << RBK_DECISION_CONTENTION_SHIFT;
	judge_add(&nothing_known, &task, &segment, 1, &verdict);
	assert_cause(&verdict, CAUSE_CONTENTION, 1000);
	assert_cause(&verdict, CAUSE_SLOWER, 1000);
}

/* A segment that came just for its task waited for that, and for what ran meanwhile. */
TEST(test_judge__streamed_segment)
{
	struct segment_entry segment = timed(1, 1000, 4000, 6000);
	struct busy busy = {1000, 2000, GPU, true, 6, 0};
	struct judge judge = {.busy = &busy, .n_busy = 1, .longest_ns = 1000, .has_returned = true};
	struct rbk_stats_decision task = task_of();
	struct verdict verdict = {.n_tasks = 0};

	task.sequence = 9;
	judge_add(&judge, &task, &segment, 1, &verdict);
	assert_cause(&verdict, CAUSE_RETURN, 2000);
	assert_cause(&verdict, CAUSE_STREAM, 0);
	segment.segment.flags = RBK_DECISION_STREAMED;
	judge_add(&judge, &task, &segment, 1, &verdict);
	assert_cause(&verdict, CAUSE_RETURN, 2000);
	assert_cause(&verdict, CAUSE_STREAM, 2000);
	assert_cause(&verdict, CAUSE_OWN_QUEUE, 2000);
	/* The bit of a task says that it ran on the reactor. */
	task.device = GPU;
	task.flags = RBK_DECISION_INLINE;
	verdict = verdict_of(&nothing_known, &task);
	assert_cause(&verdict, CAUSE_STREAM, 0);
}

/* Time in which several tasks ran counts once, and is shared among them. */
TEST(test_judge__behind_both)
{
	struct busy busy[] = {
		{.began_ns = 3000, .ended_ns = 7000, .device = CPU, .is_own = true},
		{.began_ns = 4000, .ended_ns = 5000, .device = CPU},
		{.began_ns = 2000, .ended_ns = 6000, .device = CPU, .is_own = true},
		{.began_ns = 3000, .ended_ns = 6000, .device = CPU},
	};
	struct judge judge = {.busy = busy, .n_busy = 4, .longest_ns = 4000};
	struct rbk_stats_decision task = task_of();
	struct verdict verdict;

	busy_sort(busy, 4);
	verdict = verdict_of(&judge, &task);
	/* 4,000 are covered; own executions take 7,000 of them and others' 4,000. */
	assert_cause(&verdict, CAUSE_OWN_QUEUE, 4000.0 * 7 / 11);
	assert_cause(&verdict, CAUSE_OTHERS_QUEUE, 4000.0 * 4 / 11);
	assert_cause(&verdict, CAUSE_WAIT, 2000);
}

TEST(test_judge__waits)
{
	struct judge throttled = {.is_throttled = true};
	struct judge returned = {.has_returned = true};
	struct rbk_stats_decision task = task_of();
	struct verdict verdict = verdict_of(&nothing_known, &task);

	assert_cause(&verdict, CAUSE_WAIT, 6000);
	verdict = verdict_of(&throttled, &task);
	assert_cause(&verdict, CAUSE_QUOTA, 6000);
	verdict = verdict_of(&returned, &task);
	assert_cause(&verdict, CAUSE_WAIT, 6000);
	task.device = GPU;
	verdict = verdict_of(&returned, &task);
	assert_cause(&verdict, CAUSE_RETURN, 6000);
	/* The quota is that of the CPU. */
	verdict = verdict_of(&throttled, &task);
	assert_cause(&verdict, CAUSE_WAIT, 6000);
	/* The task failed on the GPU before it ran on the CPU. */
	task.device = CPU;
	task.reason = RBK_REASON_CPU_FALLBACK;
	verdict = verdict_of(&nothing_known, &task);
	assert_cause(&verdict, CAUSE_FALLBACK, 6000);
}

/* Time beyond the other device's prediction is attributed to the reason of the placement. */
TEST(test_judge__places)
{
	static const struct {
		uint8_t reason;
		uint16_t flags;
		enum cause cause;
	} places[] = {
		{RBK_REASON_MEMORY_CONSTRAINT, 0, CAUSE_MEMORY},
		{RBK_REASON_BREAKER_OPEN, 0, CAUSE_BREAKER},
		{RBK_REASON_CPU_FALLBACK, 0, CAUSE_FALLBACK},
		{RBK_REASON_USER_PREFERENCE, 0, CAUSE_PREFERENCE},
		{RBK_REASON_CONTENTION, 0, CAUSE_CONTENTION},
		{RBK_REASON_COST_MODEL, RBK_DECISION_EXPLORED, CAUSE_LEARNING},
	};
	struct rbk_stats_decision task = task_of();
	struct verdict verdict;

	task.queue_ns = 0;
	task.predicted_ns = 800;
	task.other_ns = 300;
	/* The other device was faster, but busy. */
	verdict = verdict_of(&nothing_known, &task);
	assert_cause(&verdict, CAUSE_WORK, 800);
	assert_cause(&verdict, CAUSE_SLOWER, 200);
	for (unsigned int i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		task.reason = places[i].reason;
		task.flags = places[i].flags;
		verdict = verdict_of(&nothing_known, &task);
		assert_cause(&verdict, places[i].cause, 500);
		assert_cause(&verdict, CAUSE_WORK, 300);
		assert_cause(&verdict, CAUSE_SLOWER, 200);
	}
}

TEST(test_judge__contention)
{
	struct rbk_stats_decision task = task_of();
	struct verdict verdict;

	/* The run of 1,000 was at contention 4: a fourth of it was work. */
	task.queue_ns = 0;
	task.predicted_ns = 100;
	task.flags = RBK_DECISION_MOVED | 18 << RBK_DECISION_CONTENTION_SHIFT;
	assert_true(judge_contention(&task) == 4);
	verdict = verdict_of(&nothing_known, &task);
	assert_cause(&verdict, CAUSE_CONTENTION, 750);
	assert_cause(&verdict, CAUSE_SLOWER, 150);
	assert_cause(&verdict, CAUSE_WORK, 100);
	/* The prediction included a part of the contention. */
	task.predicted_ns = 400;
	verdict = verdict_of(&nothing_known, &task);
	assert_cause(&verdict, CAUSE_CONTENTION, 600);
	task.device = GPU;
	verdict = verdict_of(&nothing_known, &task);
	assert_cause(&verdict, CAUSE_SLOWER, 600);
	/* Only the contention at the time of the task counts, not the present one. */
	task.device = CPU;
	task.flags = RBK_DECISION_MOVED;
	assert_true(judge_contention(&task) == 1);
	verdict = verdict_of(&nothing_known, &task);
	assert_cause(&verdict, CAUSE_CONTENTION, 0);
	assert_cause(&verdict, CAUSE_SLOWER, 600);
}

TEST(test_judge__transfer)
{
	struct judge judge = {.transfer_ns = 250};
	struct rbk_stats_decision task = task_of();
	struct verdict verdict;

	task.queue_ns = 0;
	verdict = verdict_of(&judge, &task);
	assert_cause(&verdict, CAUSE_TRANSFER, 0);
	task.device = GPU;
	verdict = verdict_of(&judge, &task);
	assert_cause(&verdict, CAUSE_TRANSFER, 250);
	assert_cause(&verdict, CAUSE_WORK, 750);
	/* The average transfer may exceed this task's whole run. */
	judge.transfer_ns = 5000;
	verdict = verdict_of(&judge, &task);
	assert_cause(&verdict, CAUSE_TRANSFER, 1000);
}

TEST(test_judge__sums)
{
	struct rbk_stats_decision task = task_of();
	struct verdict verdict = {.n_tasks = 0};
	enum cause order[N_CAUSES];

	task.flags = RBK_DECISION_DEADLINE_MISSED;
	judge_add(&nothing_known, &task, NULL, 0, &verdict);
	task.res = -5;
	task.exec_ns = 20000;
	task.ended_at_ns = 100000;
	judge_add(&nothing_known, &task, NULL, 0, &verdict);
	assert_fields(verdict, (n_tasks, 2), (n_late, 2), (n_failed, 1));
	assert_int_equal(judge_order(&verdict, order), 2);
	assert_int_equal(order[0], CAUSE_WORK);
	assert_int_equal(order[1], CAUSE_WAIT);
	assert_cause(&verdict, CAUSE_WORK, 21000);
	assert_cause(&verdict, CAUSE_WAIT, 12000);
	memset(&verdict, 0, sizeof(verdict));
	assert_int_equal(judge_order(&verdict, order), 0);
}

/* Times stay finite and non-negative, whatever a page contains. */
TEST(test_judge__hostile_page)
{
	static const float values[] = {-1, 0, 1, 1e9f, 3e38f, INFINITY, NAN};
	enum { N = sizeof(values) / sizeof(values[0]) };
	struct busy busy = {.began_ns = 0, .ended_ns = UINT64_MAX};
	struct judge judge = {.busy = &busy, .n_busy = 1, .longest_ns = UINT64_MAX};

	for (unsigned int i = 0; i < N * N * N * N; i++) {
		struct rbk_stats_decision task = task_of();

		task.queue_ns = values[i % N];
		task.exec_ns = values[i / N % N];
		task.predicted_ns = values[i / N / N % N];
		task.other_ns = values[i / N / N / N];
		task.reason = (uint8_t)(i % 256);
		task.device = (uint8_t)(i % 3 ? i % 3 : RBK_DEVICE_NONE);
		verdict_of(&judge, &task);
	}
}

TEST(test_causes__have_names)
{
	for (unsigned int i = 0; i < N_CAUSES; i++) {
		assert_true(strlen(cause_name((enum cause)i)) > 0);
		assert_true(strlen(cause_phrase((enum cause)i)) > 0);
	}
}
