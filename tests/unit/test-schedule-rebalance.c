/* SPDX-License-Identifier: MIT */
/* Queued tasks move to the device where they complete earlier, and no other tasks move */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedule-rig.h"
#include "support/test.h"

#define MS 1000000ull

static const uint32_t one_server[] = {1, 1, 1};

/* An idle device takes tasks that other devices would start later. */
TEST(test_rebalance__idle_device_steals)
{
	static const struct rig_plan plan = {{10e6f, 10e6f}};
	struct rig_task tasks[10];
	struct place_flow *flow;

	RIG(rig, 2, one_server);
	flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	for (int i = 0; i < 10; i++) {
		rig_task_init(&tasks[i], &plan, flow, 1);
		rig_enqueue(&rig, &tasks[i]);
	}
	assert_int_equal(place_rebalance(rig.placer, rig.now_ns), 5);
	assert_int_equal(rig.n_moved, 5);
	for (int i = 0; i < 10; i++)
		assert_int_equal(tasks[i].task.decision.device, i < 5);
	/* No task moves back. */
	for (int i = 0; i < 100; i++)
		assert_int_equal(place_rebalance(rig.placer, rig.now_ns), 0);
	rig_run(&rig, UINT64_MAX);
	assert_int_equal(rig.now_ns, 1000 * MS + 50 * MS);
	place_flow_free(rig.placer, flow);
}

TEST(test_rebalance__bound_stay)
{
	static const struct rig_plan plan = {{10e6f, 10e6f}}, only_1 = {{0, 10e6f}};
	struct rig_task tasks[10];
	struct place_flow *flow;

	RIG(rig, 2, one_server);
	flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	for (int i = 0; i < 10; i++) {
		rig_task_init(&tasks[i], i % 2 ? &plan : &only_1, flow, 1);
		/* Either its plan or PLACE_BOUND may say that a task can run on no other device. */
		tasks[i].task.decision.other_ns = 1;
		if (i % 2)
			tasks[i].task.decision.flags = PLACE_BOUND;
		rig_enqueue(&rig, &tasks[i]);
	}
	for (int i = 0; i < 100; i++)
		assert_int_equal(place_rebalance(rig.placer, rig.now_ns), 0);
	rig_run(&rig, UINT64_MAX);
	assert_int_equal(rig.now_ns, 1000 * MS + 100 * MS);
	place_flow_free(rig.placer, flow);
}

/*
 * Tasks of a schedule (place/graph.h) stay on its device until they are late, whatever an idle
 * device would gain, and also then while the other device has work itself.
 */
TEST(test_rebalance__advised_stay_until_late)
{
	static const struct rig_plan plan = {{10e6f, 10e6f}}, other_plan = {{100e6f, 1e6f}};
	struct rig_task tasks[3], other;
	struct place_flow *flow;
	const uint64_t begin_ns = 1000 * MS;

	RIG(rig, 2, one_server);
	flow = rig_flow(&rig, 100, RBK_PRIORITY_NORMAL, 0);
	for (int i = 0; i < 3; i++) {
		rig_task_init(&tasks[i], &plan, flow, 1);
		tasks[i].task.decision.flags = PLACE_ADVISED;
		tasks[i].task.advised_ns = begin_ns + (uint64_t)(i + 1) * 10 * MS;
		tasks[i].actual_factor = 5;
		rig_enqueue(&rig, &tasks[i]);
	}
	rig_pump(&rig);
	assert_int_equal(place_rebalance(rig.placer, rig.now_ns), 0);
	/* The first one takes 50 ms: the second one was to begin after 10, the third after 20. */
	rig_run(&rig, begin_ns + 9 * MS);
	assert_int_equal(place_rebalance(rig.placer, rig.now_ns), 0);
	rig_run(&rig, begin_ns + 15 * MS);
	assert_int_equal(place_rebalance(rig.placer, rig.now_ns), 1);
	assert_int_equal(tasks[1].task.decision.device, 0);
	assert_int_equal(tasks[2].task.decision.device, 1);
	/* Device 0 has the second one, and another task after it. */
	rig_pump(&rig);
	rig_task_init(&other, &other_plan, flow, 0);
	other.task.decision.flags = PLACE_BOUND;
	rig_enqueue(&rig, &other);
	rig_run(&rig, begin_ns + 30 * MS);
	assert_int_equal(place_rebalance(rig.placer, rig.now_ns), 0);
	assert_int_equal(tasks[2].task.decision.device, 1);
	rig_run(&rig, UINT64_MAX);
	place_flow_free(rig.placer, flow);
}

/*
 * Return after how many ms the last task leaves a device that the first one stalls for 3 s; the
 * second one is released meanwhile.
 */
static uint64_t leaves_after_ms(uint8_t flags, uint64_t deadline_ns)
{
	static const struct rig_plan plan = {{5e6f, 10e6f}}, small_plan = {{1e6f, 1e6f}};
	const uint64_t begin_ns = 1000 * MS;
	struct place_flow *flow, *other;
	struct rig_task tasks[3], small;
	uint64_t ms = 0;

	RIG(rig, 2, one_server);
	flow = rig_flow(&rig, 100, RBK_PRIORITY_NORMAL, 0);
	other = rig_flow(&rig, 100, RBK_PRIORITY_NORMAL, 0);
	for (int i = 0; i < 3; i++) {
		rig_task_init(&tasks[i], &plan, flow, 1);
		tasks[i].task.decision.flags = flags;
		tasks[i].task.advised_ns = begin_ns + (uint64_t)(i + 1) * 10 * MS;
		tasks[i].task.deadline_ns = deadline_ns;
		tasks[i].actual_factor = i == 0 ? 300 : 1;
		rig_enqueue(&rig, &tasks[i]);
	}
	rig_pump(&rig);
	/* The other device always has a little work. */
	while (tasks[2].task.decision.device == 1 && ms++ < 500) {
		rig_task_init(&small, &small_plan, other, 0);
		small.task.decision.flags = PLACE_BOUND;
		rig_enqueue(&rig, &small);
		rig_pump(&rig);
		rig_run(&rig, begin_ns + ms * MS - MS / 2);
		place_rebalance(rig.placer, rig.now_ns);
		rig_run(&rig, begin_ns + ms * MS);
	}
	rig_run(&rig, UINT64_MAX);
	place_flow_free(rig.placer, flow);
	place_flow_free(rig.placer, other);
	return ms;
}

/* Advice does not hold a task on a device that is stuck, nor one that has a deadline. */
TEST(test_rebalance__advised_leave_a_stalled_device)
{
	const uint64_t plain_ms = leaves_after_ms(0, UINT64_MAX);

	assert_in_range(plain_ms, 1, 20);
	assert_in_range(leaves_after_ms(PLACE_ADVISED, UINT64_MAX), 60, 70);
	assert_in_range(leaves_after_ms(PLACE_ADVISED | PLACE_STREAMED, UINT64_MAX), 60, 70);
	assert_int_equal(leaves_after_ms(PLACE_ADVISED, 1100 * MS), leaves_after_ms(0, 1100 * MS));
}

/* A device with nothing to do takes over a task of a stream early, another one once it is late. */
TEST(test_rebalance__streamed_fill_an_idle_device)
{
	static const struct rig_plan plan = {{15e6f, 10e6f}};
	static const uint8_t flags[] = {PLACE_ADVISED, PLACE_ADVISED | PLACE_STREAMED};
	struct place_flow *flow;
	struct rig_task tasks[3];

	for (int k = 0; k < 2; k++) {
		RIG(rig, 2, one_server);
		flow = rig_flow(&rig, 100, RBK_PRIORITY_NORMAL, 0);
		for (int i = 0; i < 3; i++) {
			rig_task_init(&tasks[i], &plan, flow, 1);
			tasks[i].task.decision.flags = flags[k];
			tasks[i].task.advised_ns = rig.now_ns + 100 * MS;
			rig_enqueue(&rig, &tasks[i]);
		}
		rig_pump(&rig);
		assert_int_equal(place_rebalance(rig.placer, rig.now_ns), k);
		rig_run(&rig, UINT64_MAX);
		place_flow_free(rig.placer, flow);
	}
}

/*
 * A flow with one task, beside a flow with a long queue. The task gets its turn at once and stays
 * on its device, although that device has more work than the other.
 */
TEST(test_rebalance__light_flow_keeps_its_turn)
{
	static const struct rig_plan heavy_plan = {{20e6f, 10e6f}}, light_plan = {{30e6f, 1e6f}};
	struct place_flow *heavy, *light;
	struct rig_task tasks[30], task;
	struct rig rig;

	for (int n = 8; n <= 30; n += 22) {
		rig_init(&rig, 2, one_server);
		rig.is_rebalancing = true;
		heavy = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
		light = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
		for (int i = 0; i < n; i++) {
			rig_task_init(&tasks[i], &heavy_plan, heavy, 1);
			rig_enqueue(&rig, &tasks[i]);
		}
		rig_task_init(&task, &light_plan, light, 1);
		rig_enqueue(&rig, &task);
		assert_in_range(place_rebalance(rig.placer, rig.now_ns), n / 4, n / 2);
		assert_int_equal(task.task.decision.device, 1);
		rig_run(&rig, UINT64_MAX);
		assert_in_range(task.done_ns, 1000 * MS, 1000 * MS + 11 * MS);
		/*
		 * The other tasks complete when both devices do: two thirds on device 1, one third
		 * on device 0.
		 */
		assert_in_range(rig.now_ns, 1000 * MS + (uint64_t)n * 20 * MS / 3,
				1000 * MS + (uint64_t)n * 20 * MS / 3 + 21 * MS);
		place_flow_free(rig.placer, heavy);
		place_flow_free(rig.placer, light);
		rig_deinit(&rig);
	}
}

/* A task with a deadline moves only if it completes earlier itself. */
TEST(test_rebalance__deadlines_come_first)
{
	static const struct rig_plan slow_there = {{200e6f, 10e6f}}, fast_there = {{10e6f, 10e6f}};
	struct rig_task tasks[20];
	struct place_flow *flow;

	RIG(rig, 2, one_server);
	rig.is_rebalancing = true;
	flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	for (int i = 0; i < 20; i++) {
		rig_task_init(&tasks[i], i < 10 ? &slow_there : &fast_there, flow, 1);
		if (i < 10)
			tasks[i].task.deadline_ns = rig.now_ns + 110 * MS;
		rig_enqueue(&rig, &tasks[i]);
	}
	place_rebalance(rig.placer, rig.now_ns);
	rig_run(&rig, UINT64_MAX);
	for (int i = 0; i < 10; i++)
		assert_true(tasks[i].done_ns <= tasks[i].task.deadline_ns);
	assert_int_equal(rig.now_ns, 1000 * MS + 100 * MS);
	place_flow_free(rig.placer, flow);
}

/* A task held back by a quota on the CPU moves to another device if it completes earlier there. */
TEST(test_rebalance__throttled)
{
	static const struct rig_plan plan = {{1e6f, 5e6f}};
	static struct rig_task tasks[200];
	struct place_flow *flow;

	RIG(rig, 2, one_server);
	rig.is_rebalancing = true;
	flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0.01f);
	for (int i = 0; i < 200; i++) {
		rig_task_init(&tasks[i], &plan, flow, 0);
		rig_enqueue(&rig, &tasks[i]);
	}
	place_rebalance(rig.placer, rig.now_ns);
	rig_run(&rig, UINT64_MAX);
	/* 20 s by the quota alone, 1 s on the other device. */
	assert_true(rig.now_ns < 1000 * MS + 1200 * MS);
	assert_true(rig.n_moved > 150);
	place_flow_free(rig.placer, flow);
}

/* Three devices, and tasks that can each run on two of them. */
TEST(test_rebalance__three_devices)
{
	static const struct rig_plan plans[3] = {
		{{10e6f, 10e6f, 0}}, {{0, 10e6f, 10e6f}}, {{10e6f, 0, 10e6f}}};
	static struct rig_task tasks[90];

	for (uint32_t n = 12; n <= 90; n += 78) {
		struct place_flow *flow;
		struct rig rig;

		rig_init(&rig, 3, one_server);
		rig.is_rebalancing = true;
		flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
		for (uint32_t i = 0; i < n; i++) {
			const struct rig_plan *plan = &plans[i % 3];

			rig_task_init(&tasks[i], plan, flow, plan->work_ns[1] > 0 ? 1 : 2);
			rig_enqueue(&rig, &tasks[i]);
		}
		place_rebalance(rig.placer, rig.now_ns);
		rig_run(&rig, UINT64_MAX);
		assert_in_range(rig.now_ns, 1000 * MS + n / 3 * 10 * MS,
				1000 * MS + n / 3 * 10 * MS + 20 * MS);
		place_flow_free(rig.placer, flow);
		rig_deinit(&rig);
	}
}

/* If estimates prove wrong while all tasks are queued, the remaining tasks move. */
TEST(test_rebalance__device_becomes_slow)
{
	static const struct rig_plan plan = {{20e6f, 10e6f}};
	static struct rig_task tasks[60];
	uint64_t took_ns[2];

	for (int is_rebalancing = 0; is_rebalancing < 2; is_rebalancing++) {
		struct place_flow *flow;
		struct rig rig;

		rig_init(&rig, 2, one_server);
		rig.is_rebalancing = is_rebalancing;
		flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
		for (int i = 0; i < 60; i++) {
			rig_task_init(&tasks[i], &plan, flow, i % 3 != 0);
			rig_enqueue(&rig, &tasks[i]);
		}
		/* The tasks given to device 1 take three times as long, on any device. */
		for (int i = 0; i < 60; i++)
			tasks[i].actual_factor = i % 3 ? 3 : 1;
		rig_run(&rig, UINT64_MAX);
		took_ns[is_rebalancing] = rig.now_ns - 1000 * MS;
		place_flow_free(rig.placer, flow);
		rig_deinit(&rig);
	}
	assert_int_equal(took_ns[0], 40 * 30 * MS);
	assert_true(took_ns[1] < took_ns[0]);
}

/*
 * The maximum cost of a call, in predictions asked for, however much is queued and however little
 * can be gained. A call in vain is not repeated at full cost.
 */
TEST(test_rebalance__bounded_work)
{
	enum { COUNT = 32768 };
	/* Equal times; all misplaced; all in place; device 1's tasks misplaced. */
	static const float work[4][2][2] = {
		{{1e6f, 1e6f}, {1e6f, 1e6f}},
		{{9e6f, 1e6f}, {1e6f, 9e6f}},
		{{1e6f, 9e6f}, {9e6f, 1e6f}},
		{{1e6f, 9e6f}, {1e6f, 9e6f}},
	};
	struct rig_task *tasks = calloc(COUNT, sizeof(*tasks));

	assert_non_null(tasks);
	for (size_t i = 0; i < ARRAY_SIZE(work); i++) {
		struct rig_plan plans[2];
		struct place_flow *flow;
		struct rig rig;

		rig_init(&rig, 2, one_server);
		flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
		for (int j = 0; j < 2; j++)
			plans[j] = (struct rig_plan){{work[i][j][0], work[i][j][1]}};
		for (uint32_t j = 0; j < COUNT; j++) {
			rig_task_init(&tasks[j], &plans[j % 2], flow, j % 2);
			rig_enqueue(&rig, &tasks[j]);
		}
		for (int j = 0; j < 50; j++) {
			uint32_t n_moved;

			rig.n_asked = 0;
			n_moved = place_rebalance(rig.placer, rig.now_ns);
			assert_in_range(n_moved, 0, 64);
			/*
			 * Two devices for each task examined, some more for each task that moves.
			 */
			assert_in_range(rig.n_asked, 0, 64 * 4 + n_moved * 8);
			if (n_moved == 0 && j > 0) {
				rig.n_asked = 0;
				assert_int_equal(place_rebalance(rig.placer, rig.now_ns), 0);
				assert_int_equal(rig.n_asked, 0);
			}
		}
		if (i == 1 || i == 3)
			assert_true(rig.n_moved >= 50);
		for (uint32_t j = 0; j < COUNT; j++)
			place_dequeue(rig.placer, &tasks[j].task, rig.now_ns);
		place_flow_free(rig.placer, flow);
		rig_deinit(&rig);
	}
	free(tasks);
}

/* ---- Quality of the result ---- */

/* Make a task of random size, faster on one device or the other. */
static void random_plan(struct rig_plan *plan, uint64_t *random, double shortest_ns)
{
	double size = shortest_ns * pow(10, rig_random(random) * 1.5);
	double speedup = pow(2, rig_random(random) * 4 - 1);

	*plan = (struct rig_plan){{(float)size, (float)(size / speedup)}};
}

/* Decide as on the task's arrival: earliest completion, one by one. */
static uint8_t earliest(const struct rig_plan *plan, double load[2])
{
	uint8_t device = load[1] + (double)plan->work_ns[1] < load[0] + (double)plan->work_ns[0];

	load[device] += (double)plan->work_ns[device];
	return device;
}

static double optimum(const struct rig_plan *plans, uint32_t n)
{
	double best = INFINITY;

	for (uint32_t mask = 0; mask < 1u << n; mask++) {
		double load[2] = {0, 0};

		for (uint32_t i = 0; i < n; i++)
			load[mask >> i & 1] += (double)plans[i].work_ns[mask >> i & 1];
		best = fmin(best, fmax(load[0], load[1]));
	}
	return best;
}

static int by_ratio(const void *a, const void *b)
{
	const struct rig_plan *x = a, *y = b;
	float left = x->work_ns[0] * y->work_ns[1], right = y->work_ns[0] * x->work_ns[1];

	return (left < right) - (left > right);
}

/*
 * Return the lower bound of a schedule's length, with divisible tasks; those that gain most go to
 * device 1.
 */
static double lower_bound(const struct rig_plan *plans, uint32_t n)
{
	struct rig_plan *sorted = malloc(n * sizeof(*sorted));
	double load[2] = {0, 0};

	assert_non_null(sorted);
	memcpy(sorted, plans, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), by_ratio);
	for (uint32_t i = 0; i < n; i++)
		load[0] += (double)sorted[i].work_ns[0];
	for (uint32_t i = 0; i < n; i++) {
		double here = (double)sorted[i].work_ns[0], there = (double)sorted[i].work_ns[1];

		if (load[1] + there > load[0] - here) {
			double share = (load[0] - load[1]) / (here + there);

			load[0] -= share * here;
			break;
		}
		load[0] -= here;
		load[1] += there;
	}
	free(sorted);
	return load[0];
}

/*
 * Queue and balance all tasks, run them, and balance again after each task if @is_rebalancing.
 * Return: the total time in ns.
 */
static double run_all(const struct rig_plan *plans, struct rig_task *tasks, uint32_t n,
		      bool is_rebalancing, uint32_t *ret_n_moved)
{
	double load[2] = {0, 0};
	struct place_flow *flow;
	struct rig rig;
	uint64_t begin_ns;

	rig_init(&rig, 2, one_server);
	rig.is_rebalancing = is_rebalancing;
	flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	begin_ns = rig.now_ns;
	for (uint32_t i = 0; i < n; i++) {
		rig_task_init(&tasks[i], &plans[i], flow, earliest(&plans[i], load));
		rig_enqueue(&rig, &tasks[i]);
	}
	if (is_rebalancing)
		place_rebalance(rig.placer, rig.now_ns);
	rig_run(&rig, UINT64_MAX);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(tasks[i].n_done, 1);
	assert_int_equal(rig.devices[0].n_held + rig.devices[1].n_held, 0);
	*ret_n_moved = rig.n_moved;
	place_flow_free(rig.placer, flow);
	rig_deinit(&rig);
	return (double)(rig.now_ns - begin_ns);
}

TEST(test_makespan__few_against_optimum)
{
	static const uint32_t sizes[] = {8, 10, 12};
	uint64_t random = 2;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		double excess = 0, plain = 0, worst = 0;

		for (int round = 0; round < 100; round++) {
			struct rig_plan plans[12];
			struct rig_task tasks[12];
			uint32_t n_moved;
			double best, ratio;

			for (uint32_t j = 0; j < sizes[i]; j++)
				random_plan(&plans[j], &random, 1e6);
			best = optimum(plans, sizes[i]);
			plain += run_all(plans, tasks, sizes[i], false, &n_moved) / best - 1;
			ratio = run_all(plans, tasks, sizes[i], true, &n_moved) / best - 1;
			excess += ratio;
			worst = fmax(worst, ratio);
		}
		print_message(
			"%u tasks: %.2f%% over the optimum, %.1f%% at worst; without %.1f%%\n",
			sizes[i], excess, worst * 100, plain);
		assert_true(excess < 1.5);
		assert_true(worst < 0.15);
		/* The first placement left something to gain. */
		assert_true(plain > 5);
	}
}

TEST(test_makespan__many_against_bound)
{
	static const uint32_t sizes[] = {40, 100, 300, 1000};
	static struct rig_plan plans[1000];
	static struct rig_task tasks[1000];
	uint64_t random = 4;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		double excess = 0, plain = 0;
		uint32_t n_moved, n_moves = 0;

		for (int round = 0; round < 5; round++) {
			double bound;

			for (uint32_t j = 0; j < sizes[i]; j++)
				random_plan(&plans[j], &random, 1e5);
			bound = lower_bound(plans, sizes[i]);
			plain += run_all(plans, tasks, sizes[i], false, &n_moved) / bound - 1;
			excess += run_all(plans, tasks, sizes[i], true, &n_moved) / bound - 1;
			n_moves += n_moved;
		}
		print_message("%u tasks: %.2f%% over the bound, %.1f moves each; without %.1f%%\n",
			      sizes[i], excess * 20, (double)n_moves / (5 * sizes[i]), plain * 20);
		assert_true(excess / 5 < 0.03);
		assert_true(plain / 5 > 0.05);
		assert_true(n_moves < 5 * 2 * sizes[i]);
	}
}

/*
 * The first kind takes twice as long on the CPU as on the GPU, but on one of eight servers. The
 * second takes only slightly longer on the CPU, but on all servers. So the second kind belongs on
 * the GPU.
 */
TEST(test_choice__by_load)
{
	enum { N = 80 };
	static const uint32_t n_servers[] = {8, 1};
	static const struct rig_plan one = {.work_ns = {200e3f, 100e3f}, .servers = 1};
	static const struct rig_plan all = {.work_ns = {1600e3f, 150e3f}, .servers = 8};
	static struct rig_task tasks[N];
	struct place_flow *flow;
	uint32_t n_moved = 0;
	struct rig rig;

	rig_init(&rig, 2, n_servers);
	rig.placer->devices[0].queue.n_servers_per_task = 8;
	flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	for (uint32_t i = 0; i < N; i++) {
		rig_task_init(&tasks[i], i % 2 ? &one : &all, flow, 0);
		tasks[i].task.decision.predicted_ns = 200e3f;
		rig_enqueue(&rig, &tasks[i]);
	}
	assert_true(place_rebalance(rig.placer, rig.now_ns) > 0);
	for (uint32_t i = 0; i < N; i++) {
		if (tasks[i].task.device == 0)
			continue;
		assert_int_equal(i % 2, 0);
		n_moved++;
	}
	assert_in_range(n_moved, 10, N / 2);
	rig_run(&rig, UINT64_MAX);
	rig_deinit(&rig);
	free(flow);
}
