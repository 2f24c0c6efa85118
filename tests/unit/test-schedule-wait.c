/* SPDX-License-Identifier: MIT */
/* A task's wait for running tasks, the servers of a running task, and tasks in parts */
#include <math.h>
#include <stdlib.h>

#include "schedule-rig.h"
#include "support/test.h"
#include "util/checked.h"

enum { CPU, GPU };

/* A task running on a GPU with one server, to predict the wait for it. */
struct waiting {
	struct rig rig;
	struct place_flow *flow;
	struct rig_task task;
};

static void waiting_init(struct waiting *waiting, const struct rig_plan *plan)
{
	static const uint32_t n_servers[] = {1, 1};

	rig_init(&waiting->rig, 2, n_servers);
	waiting->flow = rig_flow(&waiting->rig, 100, RBK_PRIORITY_URGENT, 0);
	rig_task_init(&waiting->task, plan, waiting->flow, GPU);
	rig_enqueue(&waiting->rig, &waiting->task);
	assert_non_null(place_next(waiting->rig.placer, GPU, waiting->rig.now_ns));
}

static void waiting_deinit(struct waiting *waiting)
{
	place_done(waiting->rig.placer, &waiting->task.task, PLACE_DONE, 1000, 0,
		   waiting->rig.now_ns);
	rig_deinit(&waiting->rig);
	free(waiting->flow);
}

static double wait_after(struct waiting *waiting, double ns)
{
	return (double)place_flow_wait_ns(waiting->rig.placer, waiting->flow, GPU,
					  waiting->rig.now_ns + (uint64_t)ns);
}

/*
 * The wait is the mean remaining time of tasks not done yet, of a population that varies as the
 * plan does.
 */
TEST(test_wait__mean_of_remaining_time)
{
	enum { N = 200000 };
	const struct rig_plan plan = {.work_ns = {10e6f, 10e6f}, .spread = 0.1f};
	const double mean_ns = 10e6, deviation_ns = 1e6;
	struct waiting waiting;
	uint64_t random = 1;

	waiting_init(&waiting, &plan);
	for (double late = -5; late <= 2; late += 0.25) {
		double after_ns = mean_ns + late * deviation_ns, left_ns = 0;
		uint32_t n = 0;

		for (int i = 0; i < N; i++) {
			double radius = sqrt(-2 * log(1 - rig_random(&random)));
			double ns = mean_ns +
				    deviation_ns * radius * cos(2 * M_PI * rig_random(&random));

			if (ns <= after_ns)
				continue;
			left_ns += ns - after_ns;
			n++;
		}
		assert_true(fabs(wait_after(&waiting, after_ns) - left_ns / n) <
			    0.06 * deviation_ns);
	}
	waiting_deinit(&waiting);
}

/* A task far beyond its variance: the cause is unknown, but it is not about to end. */
TEST(test_wait__beyond_the_variance)
{
	static const float spreads[] = {0, 0.05f, 0.3f};

	for (size_t i = 0; i < ARRAY_SIZE(spreads); i++) {
		const struct rig_plan plan = {.work_ns = {1e6f, 1e6f}, .spread = spreads[i]};
		struct waiting waiting;

		waiting_init(&waiting, &plan);
		if (spreads[i] == 0) {
			assert_int_equal(wait_after(&waiting, 250e3), 750000);
			assert_int_equal(wait_after(&waiting, 1e6), 0);
		}
		assert_in_range(wait_after(&waiting, 9e6), 990000, 1010000);
		assert_true(wait_after(&waiting, 90e6) > wait_after(&waiting, 9e6));
		waiting_deinit(&waiting);
	}
}

/* A task that begins beside another gets the free servers, and later those of the other task. */
static void join(float work_ns, uint64_t after_ns, uint32_t n_then)
{
	static const uint32_t n_servers[] = {8, 1};
	const struct rig_plan first_plan = {.work_ns = {1e6f, 1e6f}};
	const struct rig_plan plan = {.work_ns = {work_ns, work_ns}};
	struct rig_task first, task;
	struct place_queue *queue;
	struct place_flow *flow;
	struct rig rig;

	rig_init(&rig, 2, n_servers);
	queue = &rig.placer->devices[CPU].queue;
	flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	rig_task_init(&first, &first_plan, flow, CPU);
	rig_enqueue(&rig, &first);
	assert_ptr_equal(place_next(rig.placer, CPU, rig.now_ns), &first.task);
	assert_int_equal(queue->running_slots, 1);
	queue->n_servers_per_task = 8;
	rig_task_init(&task, &plan, flow, CPU);
	rig_enqueue(&rig, &task);
	assert_ptr_equal(place_next(rig.placer, CPU, rig.now_ns), &task.task);
	assert_fields(task.task, (wanted, 8), (slots, 7));
	assert_int_equal(queue->running_slots, 8);

	rig.now_ns += after_ns;
	place_done(rig.placer, &first.task, PLACE_DONE, after_ns, 0, rig.now_ns);
	assert_int_equal(task.task.slots, n_then);
	assert_int_equal(queue->running_slots, n_then);
	assert_int_equal(place_flow_wait_ns(rig.placer, flow, CPU, rig.now_ns) > 0, n_then == 8);
	/* The work done so far counts; from then on the task has more servers. */
	if (n_then == 8)
		assert_int_equal(place_flow_wait_ns(rig.placer, flow, CPU, rig.now_ns + 1000),
				 (uint64_t)work_ns / 8 - after_ns * 7 / 8 - 1000);
	place_done(rig.placer, &task.task, PLACE_DONE, 1000, 0, rig.now_ns);
	assert_fields(*queue, (running_slots, 0), (running_since, 0));
	rig_deinit(&rig);
	free(flow);
}

TEST(test_servers__join_a_split_task)
{
	join(8e6f, 800000, 8);
	/* Three chunks are left for seven servers. */
	join(1.04e6f, 140000, 7);
}

/* Run a task of @plan in parts of 100 rows of 1 ms, until @until rows are done. */
static void do_parts(struct rig *rig, struct rig_task *task, uint32_t until, uint64_t busy_ns)
{
	while (task->task.count > 1000 - until) {
		uint32_t n_left = task->task.count;

		if (task->task.state == PLACE_IDLE)
			place_enqueue(rig->placer, &task->task, rig->now_ns);
		assert_ptr_equal(place_next(rig->placer, task->task.device, rig->now_ns),
				 &task->task);
		rig->now_ns += 100000000;
		task->task.count = 100;
		place_done(rig->placer, &task->task, PLACE_DONE, 100000000, busy_ns, rig->now_ns);
		task->task.count = n_left - 100;
	}
}

/* A task in parts is also learned from as a whole, if one device did all of it. */
TEST(test_parts__learned_together)
{
	static const uint32_t n_servers[] = {1, 1};
	static const struct rig_plan plan = {.work_ns = {1e6f, 1e6f}};
	struct place_flow *flow;
	struct rig rig;

	rig_init(&rig, 2, n_servers);
	rig.max_rows = 100;
	flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	for (int i = 0; i < 3; i++) {
		struct rig_task task;

		rig.n_learned = rig.n_parts_learned = 0;
		rig_task_init(&task, &plan, flow, GPU);
		task.task.count = 1000;
		/* The busy time is counted or not; the third time the CPU does the rest. */
		do_parts(&rig, &task, i < 2 ? 1000 : 300, i ? 0 : 300000000);
		assert_fields(rig, (n_learned, i < 2), (n_parts_learned, i < 2 ? 10 : 3));
		if (i == 2) {
			task.task.decision.device = CPU;
			do_parts(&rig, &task, 1000, 100000000);
			assert_int_equal(rig.n_learned, 1);
		}
		assert_fields(rig, (learned_count, i < 2 ? 1000 : 700),
			      (learned_exec_ns, i < 2 ? 1000000000 : 700000000),
			      (learned_busy_ns, i == 0   ? 3000000000
						: i == 1 ? 0
							 : 700000000));
	}
	rig_deinit(&rig);
	free(flow);
}

/* A task that fails in a part has failed, whatever its other parts took. */
TEST(test_parts__failed)
{
	static const uint32_t n_servers[] = {1, 1};
	static const struct rig_plan plan = {.work_ns = {1e6f, 1e6f}};
	struct place_flow *flow;
	struct rig_task task;
	struct rig rig;

	rig_init(&rig, 2, n_servers);
	rig.max_rows = 100;
	flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	rig_task_init(&task, &plan, flow, GPU);
	task.task.count = 1000;
	do_parts(&rig, &task, 200, 0);
	place_enqueue(rig.placer, &task.task, rig.now_ns);
	assert_ptr_equal(place_next(rig.placer, GPU, rig.now_ns), &task.task);
	task.task.count = 100;
	place_done(rig.placer, &task.task, PLACE_FAILED, 1000, 0, rig.now_ns);
	assert_fields(rig, (n_learned, 1), (learned_count, 100));
	task.task.count = 800;
	do_parts(&rig, &task, 1000, 0);
	assert_fields(rig, (n_learned, 2), (learned_count, 800));
	rig_deinit(&rig);
	free(flow);
}
