/* SPDX-License-Identifier: MIT */
/* The order in which tasks of one flow start, the tasks released to a device, and cancelling */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "fail-alloc.h"
#include "schedule-rig.h"
#include "support/test.h"

#define MS 1000000ull

static const uint32_t one_server[] = {1, 1, 1};
static const struct rig_plan long_plan = {{10e6f, 10e6f}}, short_plan = {{10e3f, 10e3f}};

/*
 * Release the first task and complete it at once.
 * Return: its index in @tasks, or below 0 if there is none.
 */
static int take(struct rig *rig, struct rig_task *tasks)
{
	struct place_task *task = place_next(rig->placer, 1, rig->now_ns);

	if (!task)
		return -1;
	rig->now_ns += 10 * MS;
	place_done(rig->placer, task, PLACE_DONE, 10 * MS, 0, rig->now_ns);
	assert_int_equal(task->state, PLACE_IDLE);
	return (int)((struct rig_task *)task - tasks);
}

TEST(test_order__classes)
{
	static const uint8_t priorities[] = {RBK_PRIORITY_NORMAL, RBK_PRIORITY_LOW,
					     RBK_PRIORITY_HIGH,   RBK_PRIORITY_URGENT,
					     RBK_PRIORITY_NORMAL, RBK_PRIORITY_URGENT};
	static const int expected[] = {3, 5, 2, 0, 4, 1};
	static const int capped[] = {0, 2, 3, 4, 5, 1};

	for (int i = 0; i < 2; i++) {
		struct rig_task tasks[6];
		struct place_flow *flow;
		struct rig rig;

		rig_init(&rig, 2, one_server);
		flow = rig_flow(&rig, 100, i ? RBK_PRIORITY_NORMAL : RBK_PRIORITY_URGENT, 0);
		for (int j = 0; j < 6; j++) {
			rig_task_init(&tasks[j], &long_plan, flow, 1);
			tasks[j].task.priority = priorities[j];
			rig_enqueue(&rig, &tasks[j]);
		}
		for (int j = 0; j < 6; j++)
			assert_int_equal(take(&rig, tasks), i ? capped[j] : expected[j]);
		assert_int_equal(take(&rig, tasks), -1);
		place_flow_free(rig.placer, flow);
		rig_deinit(&rig);
	}
}

/* Deadlines nearer than PLACE_NO_DEADLINE_NS go first, but not across classes. */
TEST(test_order__deadlines)
{
	const uint64_t deadlines[] = {UINT64_MAX, 500 * MS, 100 * MS, 5000 * MS, 1, UINT64_MAX};
	static const int expected[] = {4, 2, 1, 0, 5, 3};
	struct rig_task tasks[7];
	struct place_flow *flow;

	RIG(rig, 2, one_server);
	flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	for (int i = 0; i < 6; i++) {
		rig_task_init(&tasks[i], &long_plan, flow, 1);
		if (deadlines[i] != UINT64_MAX)
			tasks[i].task.deadline_ns =
				deadlines[i] == 1 ? 1 : rig.now_ns + deadlines[i];
		rig_enqueue(&rig, &tasks[i]);
	}
	rig_task_init(&tasks[6], &long_plan, flow, 1);
	tasks[6].task.priority = RBK_PRIORITY_HIGH;
	tasks[6].task.deadline_ns = rig.now_ns + 100000 * MS;
	rig_enqueue(&rig, &tasks[6]);
	assert_int_equal(take(&rig, tasks), 6);
	for (int i = 0; i < 6; i++)
		assert_int_equal(take(&rig, tasks), expected[i]);
	place_flow_free(rig.placer, flow);
}

/*
 * A task that a device did not take starts next, unless a more urgent task has come. It is not
 * charged.
 */
TEST(test_put_back__keeps_its_place)
{
	struct rig_task tasks[4];
	struct place_task *first;
	struct place_flow *flow;

	RIG(rig, 2, one_server);
	flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	for (int i = 0; i < 4; i++) {
		rig_task_init(&tasks[i], &long_plan, flow, 1);
		if (i != 3)
			rig_enqueue(&rig, &tasks[i]);
	}
	first = place_next(rig.placer, 1, rig.now_ns);
	assert_ptr_equal(first, &tasks[0]);
	assert_int_equal(rig_used_ns(flow, 1), 10 * MS);
	place_put_back(rig.placer, first, rig.now_ns);
	assert_int_equal(first->state, PLACE_QUEUED);
	assert_int_equal(rig_used_ns(flow, 1), 0);
	assert_int_equal(place_startable(rig.placer, rig.now_ns), 1 << 1);
	assert_int_equal(take(&rig, tasks), 0);
	first = place_next(rig.placer, 1, rig.now_ns);
	assert_ptr_equal(first, &tasks[1]);
	place_put_back(rig.placer, first, rig.now_ns);
	tasks[3].task.priority = RBK_PRIORITY_URGENT;
	rig_enqueue(&rig, &tasks[3]);
	assert_int_equal(take(&rig, tasks), 3);
	assert_int_equal(take(&rig, tasks), 1);
	assert_int_equal(take(&rig, tasks), 2);
	assert_true(place_flow_is_idle(rig.placer, flow, rig.now_ns));
	place_flow_free(rig.placer, flow);
}

static int hold_all(struct rig *rig, uint8_t device)
{
	int n = 0;

	while (place_next(rig->placer, device, rig->now_ns))
		n++;
	return n;
}

/* A server is never without a task, and is given at most PLACE_RELEASE_NS of short tasks. */
TEST(test_release__window)
{
	static const uint32_t n_servers[] = {8, 1};
	static struct rig_task tasks[2][1000];
	static const struct {
		const struct rig_plan *plan;
		int expected[2];
	} cases[] = {{&long_plan, {8, 1}}, {&short_plan, {400, 50}}};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		for (uint8_t device = 0; device < 2; device++) {
			struct place_flow *flow;
			struct rig rig;

			rig_init(&rig, 2, n_servers);
			flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
			for (int j = 0; j < 1000; j++) {
				rig_task_init(&tasks[i][j], cases[i].plan, flow, device);
				rig_enqueue(&rig, &tasks[i][j]);
			}
			assert_int_equal(place_startable(rig.placer, rig.now_ns), 1 << device);
			assert_int_equal(hold_all(&rig, device), cases[i].expected[device]);
			assert_int_equal(place_startable(rig.placer, rig.now_ns), 0);
			/* After PLACE_RELEASE_NS there is room for further short tasks. */
			rig.now_ns += PLACE_RELEASE_NS;
			assert_int_equal(hold_all(&rig, device) > 0, cases[i].plan == &short_plan);
			rig_deinit(&rig);
			free(flow);
		}
	}
}

/* Predictions of no time do not release all tasks to the device. */
TEST(test_release__predictions_of_zero)
{
	static const float nothing[] = {0, -1, NAN, 1e-30f};
	static struct rig_task tasks[32768];

	for (size_t i = 0; i < ARRAY_SIZE(nothing); i++) {
		struct rig_plan plan = {{nothing[i], nothing[i]}};
		struct place_flow *flow;
		struct rig rig;

		rig_init(&rig, 2, one_server);
		flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
		for (size_t j = 0; j < ARRAY_SIZE(tasks); j++) {
			rig_task_init(&tasks[j], &plan, flow, 1);
			rig_enqueue(&rig, &tasks[j]);
		}
		assert_in_range(hold_all(&rig, 1), 1, PLACE_RELEASE_NS / SCHEDULE_MIN_HELD_NS + 1);
		rig_deinit(&rig);
		free(flow);
	}
}

/* After tasks are taken out anywhere, the rest starts in order. */
TEST(test_dequeue__anywhere)
{
	static struct rig_task tasks[3000];
	uint64_t random = 5, last[4] = {0};
	struct place_flow *flow;
	uint32_t n = 0, n_left = 0;

	RIG(rig, 2, one_server);
	flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	for (int i = 0; i < 3000; i++) {
		rig_task_init(&tasks[i], &long_plan, flow, 1);
		tasks[i].task.priority = (uint8_t)(rig_random(&random) * 4);
		if (rig_random(&random) < 0.5)
			tasks[i].task.deadline_ns =
				rig.now_ns + (uint64_t)(rig_random(&random) * 2e9);
		rig_enqueue(&rig, &tasks[i]);
		rig.now_ns += 1000;
	}
	for (int i = 0; i < 3000; i++) {
		if (rig_random(&random) < 0.6) {
			place_dequeue(rig.placer, &tasks[i].task, rig.now_ns);
			assert_int_equal(tasks[i].task.state, PLACE_IDLE);
		} else {
			n_left++;
		}
	}
	for (int i, class = 0; (i = take(&rig, tasks)) >= 0; n++) {
		assert_true(tasks[i].task.class >= class);
		class = tasks[i].task.class;
		assert_true((uint64_t)tasks[i].task.due_ns >= last[class]);
		last[class] = (uint64_t)tasks[i].task.due_ns;
	}
	assert_int_equal(n, n_left);
	place_flow_free(rig.placer, flow);
}

/* Return the length of the heap's right spine, which bounds the cost of each operation. */
static uint32_t spine(const struct heap_node *node)
{
	uint32_t n = 0;

	for (; node; node = node->right)
		n++;
	return n;
}

TEST(test_enqueue__adversarial_deadlines)
{
	enum { COUNT = 32768 };
	struct rig_task *tasks = calloc(COUNT, sizeof(*tasks));

	assert_non_null(tasks);
	for (int order = 0; order < 3; order++) {
		struct place_flow *flow;
		uint64_t last = 0;
		struct rig rig;

		rig_init(&rig, 2, one_server);
		flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
		for (uint64_t i = 0; i < COUNT; i++) {
			const uint64_t ahead[] = {i, COUNT - i, i * 40503 % 65536};

			rig_task_init(&tasks[i], &long_plan, flow, 1);
			tasks[i].task.deadline_ns = rig.now_ns + ahead[order];
			rig_enqueue(&rig, &tasks[i]);
			assert_in_range(spine(flow->on[1].classes[2].heap), 1, 15);
		}
		for (uint64_t i = 0; i < COUNT; i++) {
			int j = take(&rig, tasks);

			assert_in_range(j, 0, COUNT - 1);
			assert_true((uint64_t)tasks[j].task.due_ns >= last);
			last = (uint64_t)tasks[j].task.due_ns;
			assert_in_range(spine(flow->on[1].classes[2].heap), 0, 15);
		}
		place_flow_free(rig.placer, flow);
		rig_deinit(&rig);
	}
	free(tasks);
}

/* Small tasks of two plans of one flow in turn, and of one plan of two flows. */
TEST(test_release__plan_in_a_row)
{
	const struct rig_plan plans[2] = {short_plan, short_plan};
	struct place_flow *flows[2];
	static struct rig_task tasks[400];
	uint32_t n_changes = 0;
	void *last = NULL;

	RIG(rig, 2, one_server);
	for (int i = 0; i < 2; i++)
		flows[i] = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	for (int i = 0; i < 400; i++) {
		rig_task_init(&tasks[i], &plans[i % 2], flows[i % 2], 1);
		rig_enqueue(&rig, &tasks[i]);
	}
	for (int i = 0; i < 400; i++) {
		struct place_task *task = place_next(rig.placer, 1, rig.now_ns);

		assert_non_null(task);
		n_changes += task->place_plan != last;
		last = task->place_plan;
		rig.now_ns += 10000;
		place_done(rig.placer, task, PLACE_DONE, 10000, 0, rig.now_ns);
		/* No flow is more than a run ahead. */
		if (i < 300)
			assert_in_range(rig_used_ns(flows[0], 1) + 2 * PLACE_RELEASE_NS -
						rig_used_ns(flows[1], 1),
					0, 4 * PLACE_RELEASE_NS);
	}
	assert_in_range(n_changes, 2, 20);
	for (int i = 0; i < 2; i++)
		place_flow_free(rig.placer, flows[i]);
}

/* The clock jumps by days between any two calls: each task runs exactly once. */
TEST(test_clock__jumps)
{
	static struct rig_task tasks[500];
	uint64_t random = 9;
	struct place_flow *flow;
	uint32_t n = 0;

	RIG(rig, 2, one_server);
	flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 1);
	for (int i = 0; i < 500; i++) {
		static const uint64_t times[] = {0, 1, 1000 * MS, UINT64_MAX, UINT64_MAX / 2};
		struct place_task *task;

		rig.now_ns = times[(int)(rig_random(&random) * 5)];
		rig_task_init(&tasks[i], &long_plan, flow, (uint8_t)(i % 2));
		if (i % 3 == 0)
			tasks[i].task.deadline_ns = times[(int)(rig_random(&random) * 5)];
		tasks[i].task.admit_ns = times[(int)(rig_random(&random) * 5)];
		place_enqueue(rig.placer, &tasks[i].task, rig.now_ns);
		rig.now_ns = times[(int)(rig_random(&random) * 5)];
		task = place_next(rig.placer, (uint8_t)(i % 2), rig.now_ns);
		assert_true(place_flow_wait_ns(rig.placer, flow, 0, rig.now_ns) <=
			    SCHEDULE_MAX_STEP_NS);
		if (task) {
			rig.now_ns = times[(int)(rig_random(&random) * 5)];
			place_done(rig.placer, task, PLACE_DONE, rig.now_ns, UINT64_MAX - i,
				   rig.now_ns);
			n++;
		}
	}
	rig.now_ns = 3000000 * MS;
	for (int i = 0; i < 1000000 && n < 500; i++) {
		rig.now_ns += 1000000 * MS;
		for (uint8_t device = 0; device < 2; device++) {
			struct place_task *task = place_next(rig.placer, device, rig.now_ns);

			if (task) {
				place_done(rig.placer, task, PLACE_DONE, 1000, 0, rig.now_ns);
				n++;
			}
		}
	}
	assert_int_equal(n, 500);
	place_flow_free(rig.placer, flow);
}

TEST(test_flow__without_memory)
{
	const struct place_flow_limits limits = {100, RBK_PRIORITY_URGENT, 1};
	struct place_flow *flow = NULL;

	RIG(rig, 2, one_server);
	fail_alloc_at(1);
	assert_int_equal(place_flow_new(rig.placer, &limits, &flow), -ENOMEM);
	assert_true(fail_alloc_stop());
	assert_null(flow);
	assert_null(place_flow_free(rig.placer, NULL));
	assert_int_equal(place_flow_new(rig.placer, &limits, &flow), 0);
	assert_true(place_flow_is_idle(rig.placer, flow, rig.now_ns));
	assert_null(place_flow_free(rig.placer, flow));
}
