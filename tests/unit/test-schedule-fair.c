/* SPDX-License-Identifier: MIT */
/* Flows share devices by weight, in device time, whatever they queue and whatever was predicted */
#include <math.h>
#include <stdlib.h>

#include "schedule-rig.h"
#include "support/test.h"

#define MS 1000000ull

static const uint32_t one_server[] = {1, 1, 1}, four_servers[] = {4, 4, 4};

enum { MAX_FLOWS = 8, DEPTH = 40 };

/* A tenant that always has DEPTH tasks queued or running, each of another size. */
struct tenant {
	struct place_flow *flow;
	struct rig_plan plans[DEPTH];
	struct rig_task tasks[DEPTH];
	float actual_factor;
	double mean_ns;
	uint64_t random;
};

static void set_size(struct tenant *tenant, struct rig_task *task, struct rig_plan *plan)
{
	/* Sizes span two decades. */
	double size = tenant->mean_ns * pow(10, rig_random(&tenant->random) * 2 - 1) / 2.1;

	for (int i = 0; i < RIG_DEVICES; i++)
		plan->work_ns[i] = (float)(size / (double)tenant->actual_factor);
	task->task.decision.predicted_ns = plan->work_ns[0];
	task->actual_factor = tenant->actual_factor;
}

static void again(struct rig *rig, struct rig_task *task, uint8_t device)
{
	struct tenant *tenant = task->owner;

	if (!tenant)
		return;
	set_size(tenant, task, &tenant->plans[task - tenant->tasks]);
	rig_enqueue(rig, task);
}

static void tenant_start(struct rig *rig, struct tenant *tenant, struct place_flow *flow,
			 uint8_t device, double mean_ns, float actual_factor, int depth)
{
	tenant->flow = flow;
	tenant->mean_ns = mean_ns;
	tenant->actual_factor = actual_factor;
	tenant->random = (uint64_t)(uintptr_t)depth + (uint64_t)mean_ns;
	for (int i = 0; i < depth; i++) {
		rig_task_init(&tenant->tasks[i], &tenant->plans[i], flow, device);
		tenant->tasks[i].owner = tenant;
		tenant->tasks[i].task.decision.flags = PLACE_BOUND;
		set_size(tenant, &tenant->tasks[i], &tenant->plans[i]);
		rig_enqueue(rig, &tenant->tasks[i]);
	}
}

/* Measure the time, in ns, that each flow gets of @device during @ns. */
static void measure(struct rig *rig, struct tenant *tenants, int n, uint8_t device, uint64_t ns,
		    double *ret_used)
{
	for (int i = 0; i < n; i++)
		ret_used[i] = -(double)rig_used_ns(tenants[i].flow, device);
	rig_run(rig, rig->now_ns + ns);
	for (int i = 0; i < n; i++)
		ret_used[i] += (double)rig_used_ns(tenants[i].flow, device);
}

static double jain(const double *x, int n)
{
	double sum = 0, squares = 0;

	for (int i = 0; i < n; i++) {
		sum += x[i];
		squares += x[i] * x[i];
	}
	return sum * sum / (n * squares);
}

static void assert_share(const double *used, int n, int i, double share, double tolerance)
{
	double sum = 0;

	for (int j = 0; j < n; j++)
		sum += used[j];
	if (fabs(used[i] / sum / share - 1) > tolerance)
		fail_msg("flow %d has %.4f of the device, not %.4f", i, used[i] / sum, share);
}

static void free_all(struct rig *rig, struct tenant *tenants, int n)
{
	rig->done = NULL;
	rig_run(rig, UINT64_MAX);
	for (int i = 0; i < n; i++) {
		assert_true(
			place_flow_is_idle(rig->placer, tenants[i].flow, rig->now_ns + 1000 * MS));
		place_flow_free(rig->placer, tenants[i].flow);
	}
	rig_deinit(rig);
}

/* Tenants with small tasks, large ones, few and many. */
TEST(test_fair__equal_weights)
{
	static const double mean_ns[MAX_FLOWS] = {2e4, 3e4, 1e5, 1e6, 1e5, 5e5, 4e4, 1e5};
	static const int depth[MAX_FLOWS] = {40, 40, 40, 20, 40, 30, 40, 40};
	static struct tenant tenants[MAX_FLOWS];

	for (uint8_t device = 0; device < 2; device++) {
		double used[MAX_FLOWS];
		struct rig rig;

		rig_init(&rig, 2, device ? one_server : four_servers);
		rig.done = again;
		for (int i = 0; i < MAX_FLOWS; i++)
			tenant_start(&rig, &tenants[i], rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0),
				     device, mean_ns[i], 1, depth[i]);
		rig_run(&rig, rig.now_ns + 100 * MS);
		measure(&rig, tenants, MAX_FLOWS, device, 2000 * MS, used);
		if (jain(used, MAX_FLOWS) < 0.999)
			fail_msg("device %d: %f", device, jain(used, MAX_FLOWS));
		/* The device is never idle. */
		assert_true((double)rig.devices[device].busy_ns >
			    0.99 * 2000 * MS * rig.devices[device].n_servers);
		free_all(&rig, tenants, MAX_FLOWS);
	}
}

/* One tenant's tasks take five times as long as predicted, another's a fifth. */
TEST(test_fair__weights_and_wrong_estimates)
{
	static const uint32_t weights[] = {100, 200, 700};
	static const float factors[3][3] = {{1, 1, 1}, {5, 1, 0.2f}, {0.2f, 5, 1}};
	static struct tenant tenants[3];

	for (int round = 0; round < 6; round++) {
		double used[3];
		struct rig rig;

		rig_init(&rig, 2, round % 2 ? one_server : four_servers);
		rig.done = again;
		for (int i = 0; i < 3; i++)
			tenant_start(&rig, &tenants[i],
				     rig_flow(&rig, weights[i], RBK_PRIORITY_URGENT, 0), 1, 1e5,
				     factors[round / 2][i], DEPTH);
		rig_run(&rig, rig.now_ns + 200 * MS);
		measure(&rig, tenants, 3, 1, 4000 * MS, used);
		for (int i = 0; i < 3; i++)
			assert_share(used, 3, i, weights[i] / 1000.0, 0.02);

		/* Weights change while all tasks are queued. */
		for (int i = 0; i < 3; i++) {
			const struct place_flow_limits limits = {weights[2 - i], 3, 0};

			place_flow_set_limits(rig.placer, tenants[i].flow, &limits, rig.now_ns);
		}
		rig_run(&rig, rig.now_ns + 200 * MS);
		measure(&rig, tenants, 3, 1, 4000 * MS, used);
		for (int i = 0; i < 3; i++)
			assert_share(used, 3, i, weights[2 - i] / 1000.0, 0.02);
		free_all(&rig, tenants, 3);
	}
}

/* Weights at both ends of their range, and beyond. */
TEST(test_fair__extreme_weights)
{
	static const uint32_t weights[] = {0, 10000, 20000};
	static struct tenant tenants[3];
	double used[3];
	struct rig rig;

	rig_init(&rig, 2, one_server);
	rig.done = again;
	for (int i = 0; i < 3; i++)
		tenant_start(&rig, &tenants[i], rig_flow(&rig, weights[i], RBK_PRIORITY_URGENT, 0),
			     1, 1e5, 1, DEPTH);
	rig_run(&rig, rig.now_ns + 100 * MS);
	measure(&rig, tenants, 3, 1, 4000 * MS, used);
	assert_share(used, 3, 1, 0.5, 0.02);
	assert_share(used, 3, 2, 0.5, 0.02);
	assert_in_range((uint64_t)used[0], 0, 4 * MS);
	free_all(&rig, tenants, 3);
}

/* Urgent tasks with deadlines take no time from another flow's least urgent tasks. */
TEST(test_fair__classes_stay_in_their_flow)
{
	static struct tenant tenants[2];
	double used[2];
	struct rig rig;

	rig_init(&rig, 2, one_server);
	rig.done = again;
	for (int i = 0; i < 2; i++) {
		tenant_start(&rig, &tenants[i], rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0), 1, 1e5,
			     1, DEPTH);
		for (int j = 0; j < DEPTH; j++) {
			struct place_task *task = &tenants[i].tasks[j].task;

			if (task->state == PLACE_QUEUED)
				place_dequeue(rig.placer, task, rig.now_ns);
			task->priority = i ? RBK_PRIORITY_URGENT : RBK_PRIORITY_LOW;
			task->deadline_ns = i ? 1 : UINT64_MAX;
			rig_enqueue(&rig, &tenants[i].tasks[j]);
		}
	}
	rig_run(&rig, rig.now_ns + 100 * MS);
	measure(&rig, tenants, 2, 1, 2000 * MS, used);
	assert_share(used, 2, 0, 0.5, 0.02);
	free_all(&rig, tenants, 2);
}

/* Time that a flow did not use while it was idle is not saved up. Time that it owes is kept. */
TEST(test_fair__flow_returns_after_idling)
{
	static struct tenant tenants[2];
	static const struct rig_plan large = {{100e6f, 100e6f}};
	struct rig_task task;
	double used[2];
	struct rig rig;

	rig_init(&rig, 2, one_server);
	rig.done = again;
	tenants[1].flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	tenant_start(&rig, &tenants[0], rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0), 1, 1e5, 1,
		     DEPTH);
	rig_run(&rig, rig.now_ns + 1000 * MS);
	tenant_start(&rig, &tenants[1], tenants[1].flow, 1, 1e5, 1, DEPTH);
	measure(&rig, tenants, 2, 1, 400 * MS, used);
	assert_share(used, 2, 0, 0.5, 0.02);
	free_all(&rig, tenants, 2);

	rig_init(&rig, 2, one_server);
	rig.done = again;
	tenants[1].flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	tenant_start(&rig, &tenants[0], rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0), 1, 1e5, 1,
		     DEPTH);
	rig_task_init(&task, &large, tenants[1].flow, 1);
	rig_enqueue(&rig, &task);
	rig_run(&rig, rig.now_ns + 110 * MS);
	assert_int_equal(task.n_done, 1);
	assert_false(place_flow_is_idle(rig.placer, tenants[1].flow, rig.now_ns));
	tenant_start(&rig, &tenants[1], tenants[1].flow, 1, 1e5, 1, DEPTH);
	measure(&rig, tenants, 2, 1, 80 * MS, used);
	/* The flow waits until the other flow has had as much time. */
	assert_true(used[1] < 0.05 * used[0]);
	rig_run(&rig, rig.now_ns + 40 * MS);
	measure(&rig, tenants, 2, 1, 400 * MS, used);
	assert_share(used, 2, 0, 0.5, 0.02);
	free_all(&rig, tenants, 2);
}

/* Work of the reactor for a flow is charged to the flow's share of the CPU. */
TEST(test_charge__counts)
{
	static struct tenant tenants[2];
	double used[2], charged = 0;
	struct rig rig;

	rig_init(&rig, 2, one_server);
	rig.done = again;
	for (int i = 0; i < 2; i++)
		tenant_start(&rig, &tenants[i], rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0), 0, 1e5,
			     1, DEPTH);
	for (int i = 0; i < 1000; i++) {
		rig_run(&rig, rig.now_ns + MS);
		place_flow_charge(rig.placer, tenants[0].flow, RBK_DEVICE_CPU, 250000);
		charged += 250000;
	}
	measure(&rig, tenants, 2, 0, 0, used);
	used[0] = (double)rig_used_ns(tenants[0].flow, 0);
	used[1] = (double)rig_used_ns(tenants[1].flow, 0);
	assert_share(used, 2, 0, 0.5, 0.02);
	assert_true(used[0] + used[1] > 1000e6 + charged - 5e6);
	free_all(&rig, tenants, 2);
}

/* Two tenants that always have tasks for device 1; the first one's programs use it, too. */
static void outside_begin(struct rig *rig, struct tenant *tenants, uint32_t weight)
{
	rig_init(rig, 2, one_server);
	rig->done = again;
	for (int i = 0; i < 2; i++)
		tenant_start(rig, &tenants[i],
			     rig_flow(rig, i == 0 ? 100 : weight, RBK_PRIORITY_URGENT, 0), 1, 1e5,
			     1, DEPTH);
	rig_run(rig, rig->now_ns + 100 * MS);
	place_note_engine_time(rig->placer, 1, 100 * MS, 0);
}

static void outside_note(struct rig *rig, struct tenant *tenants, uint64_t own_ns,
			 uint64_t others_ns)
{
	place_note_engine_time(rig->placer, 1, own_ns, others_ns);
	for (int i = 0; i < 2; i++)
		place_flow_limit_debt(rig->placer, tenants[i].flow, 1);
}

/*
 * For two seconds, in intervals of 100 ms: engines work @own_ns for tasks and @others_ns for other
 * programs, of which @ns are the first tenant's. Store the time that each tenant's tasks get.
 */
static void outside_run(struct rig *rig, struct tenant *tenants, uint64_t own_ns,
			uint64_t others_ns, uint64_t ns, double used[2])
{
	for (int i = 0; i < 2; i++)
		used[i] = 0;
	for (int n = 0; n < 24; n++) {
		double part[2];

		measure(rig, tenants, 2, 1, 100 * MS, part);
		outside_note(rig, tenants, own_ns, others_ns);
		place_flow_charge_outside(rig->placer, tenants[0].flow, 1, ns);
		/* The first intervals let the factor settle. */
		for (int i = 0; i < 2 && n >= 4; i++)
			used[i] += part[i];
	}
}

/* Time that a tenant uses without the scheduler is a part of its share. */
TEST(test_charge__outside)
{
	static struct tenant tenants[2];
	double used[2];
	struct rig rig;

	outside_begin(&rig, tenants, 100);
	outside_run(&rig, tenants, 100 * MS, 50 * MS, 50 * MS, used);
	assert_share(used, 2, 0, 0.25, 0.02);
	/* Tasks took twice as long as engines worked for them, for others' programs. */
	outside_run(&rig, tenants, 50 * MS, 50 * MS, 25 * MS, used);
	assert_share(used, 2, 0, 0.25, 0.02);
	/* Tasks waited for something else: others took a fifth as long as tasks. */
	outside_run(&rig, tenants, 10 * MS, 2 * MS, 2 * MS, used);
	assert_share(used, 2, 0, 0.488, 0.02);
	/* Too little to tell a ratio from */
	outside_run(&rig, tenants, 1 * MS, 50 * MS, 50 * MS, used);
	assert_share(used, 2, 0, 0.25, 0.02);
	/* More than the tenant's share */
	outside_run(&rig, tenants, 100 * MS, 300 * MS, 300 * MS, used);
	assert_true(used[0] < 0.02 * used[1]);
	free_all(&rig, tenants, 2);
}

/* Once that use has ended, the tenant's tasks go on soon, however long it lasted. */
TEST(test_charge__outside_ends)
{
	static const uint32_t weights[] = {1, 100, 10000};
	static struct tenant tenants[2];
	double used[2], share;
	struct rig rig;

	for (unsigned int i = 0; i < ARRAY_SIZE(weights); i++) {
		outside_begin(&rig, tenants, weights[i]);
		outside_run(&rig, tenants, 10 * MS, 90 * MS, 90 * MS, used);
		for (int n = 0; n < 60; n++)
			place_flow_charge_outside(rig.placer, tenants[0].flow, 1, 1000 * MS);
		rig_run(&rig, rig.now_ns + 150 * MS);
		measure(&rig, tenants, 2, 1, 4000 * MS, used);
		share = 100.0 / (100.0 + weights[i]);
		assert_share(used, 2, 0, share, 0.05);
		free_all(&rig, tenants, 2);
	}
}

/* A tenant alone on the device owes others little for the time before they came. */
TEST(test_charge__outside_alone)
{
	static struct tenant tenants[2];
	double used[2], share = 10.0 / 1010.0;
	struct rig rig;

	rig_init(&rig, 2, one_server);
	rig.done = again;
	for (int i = 0; i < 2; i++)
		tenants[i].flow = rig_flow(&rig, i == 0 ? 10 : 1000, RBK_PRIORITY_URGENT, 0);
	tenant_start(&rig, &tenants[0], tenants[0].flow, 1, 1e5, 1, DEPTH);
	for (int n = 0; n < 20; n++) {
		rig_run(&rig, rig.now_ns + 100 * MS);
		outside_note(&rig, tenants, 50 * MS, 50 * MS);
		place_flow_charge_outside(rig.placer, tenants[0].flow, 1, 50 * MS);
	}
	/* The other one comes, with a weight beside which 50 ms would be 5 s. */
	tenant_start(&rig, &tenants[1], tenants[1].flow, 1, 1e5, 1, DEPTH);
	for (int n = 0; n < 2; n++) {
		rig_run(&rig, rig.now_ns + 100 * MS);
		outside_note(&rig, tenants, 100 * MS, 0);
	}
	rig_run(&rig, rig.now_ns + 100 * MS);
	measure(&rig, tenants, 2, 1, 4000 * MS, used);
	assert_share(used, 2, 0, share, 0.3);
	free_all(&rig, tenants, 2);
}

/* Nothing is owed for the time of a device for which there were no tasks. */
TEST(test_charge__outside_of_an_idle_device)
{
	static struct tenant tenants[2];
	double used[2];
	struct rig rig;

	rig_init(&rig, 2, one_server);
	rig.done = again;
	for (int i = 0; i < 2; i++)
		tenants[i].flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	for (int n = 0; n < 20; n++) {
		outside_note(&rig, tenants, 0, 1000 * MS);
		place_flow_charge_outside(rig.placer, tenants[0].flow, 1, 1000 * MS);
		rig_run(&rig, rig.now_ns + 1000 * MS);
	}
	for (int i = 0; i < 2; i++)
		tenant_start(&rig, &tenants[i], tenants[i].flow, 1, 1e5, 1, DEPTH);
	outside_note(&rig, tenants, 0, 1000 * MS);
	place_flow_charge_outside(rig.placer, tenants[0].flow, 1, 1000 * MS);
	measure(&rig, tenants, 2, 1, 400 * MS, used);
	assert_share(used, 2, 0, 0.5, 0.02);
	free_all(&rig, tenants, 2);
}

/*
 * A tenant with an occasional task, beside tenants that always have 40 queued. The task waits only
 * for released tasks, of which one long task may be running. Its wait was predicted correctly.
 */
TEST(test_latency__beside_saturation)
{
	static const struct rig_plan small = {{5e4f, 5e4f}};
	static const double mean_ns[] = {2e4, 1e5, 5e6};
	static struct tenant tenants[2];

	for (int round = 0; round < 6; round++) {
		const uint64_t longest_ns = (uint64_t)(mean_ns[round / 2] * 10 / 2.1);
		uint64_t random = 3;
		struct place_flow *light;
		struct rig rig;

		rig_init(&rig, 2, round % 2 ? one_server : four_servers);
		rig.done = again;
		light = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
		for (int i = 0; i < 2; i++)
			tenant_start(&rig, &tenants[i], rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0),
				     1, mean_ns[round / 2], 1, DEPTH);
		rig_run(&rig, rig.now_ns + 100 * MS);
		for (int i = 0; i < 100; i++) {
			struct rig_task task;
			uint64_t begin_ns, wait_ns, heavy_ns;

			rig_task_init(&task, &small, light, 1);
			begin_ns = rig.now_ns;
			wait_ns = place_flow_wait_ns(rig.placer, light, 1, begin_ns);
			heavy_ns = place_flow_wait_ns(rig.placer, tenants[0].flow, 1, begin_ns);
			rig_enqueue(&rig, &task);
			rig_run(&rig, rig.now_ns + 50 * MS + (uint64_t)(rig_random(&random) * 1e6));
			assert_int_equal(task.n_done, 1);
			/*
			 * The wait is the release window, the task that filled it, one task in
			 * turn, and the task itself.
			 */
			assert_in_range(task.done_ns - begin_ns, 50000,
					PLACE_RELEASE_NS + 2 * longest_ns + 50000);
			assert_in_range(wait_ns, 0, PLACE_RELEASE_NS + longest_ns);
			assert_true(wait_ns <= heavy_ns);
			if (mean_ns[round / 2] * DEPTH > 20 * (double)PLACE_RELEASE_NS)
				assert_true(heavy_ns > 4 * wait_ns);
		}
		rig.done = NULL;
		rig_run(&rig, UINT64_MAX);
		place_flow_free(rig.placer, light);
		free_all(&rig, tenants, 2);
	}
}

/* Predicted waits are correct if the predicted execution times are. */
TEST(test_wait__predicted_correctly)
{
	static struct tenant tenants[3];
	struct rig_plan plan = {{1e5f, 1e5f}};
	double error = 0, waited = 0;
	uint64_t random = 11;
	struct rig rig;

	rig_init(&rig, 2, one_server);
	rig.done = again;
	for (int i = 0; i < 3; i++)
		tenant_start(&rig, &tenants[i], rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0), 1, 1e5,
			     1, DEPTH);
	rig_run(&rig, rig.now_ns + 100 * MS);
	for (int i = 0; i < 60; i++) {
		struct tenant *tenant = &tenants[i % 3];
		uint64_t begin_ns = rig.now_ns;
		double wait_ns = (double)place_flow_wait_ns(rig.placer, tenant->flow, 1, begin_ns);
		struct rig_task task;

		rig_task_init(&task, &plan, tenant->flow, 1);
		rig_enqueue(&rig, &task);
		while (task.n_done == 0)
			rig_run(&rig, rig.now_ns + 100000);
		error += fabs((double)(task.done_ns - begin_ns) - 1e5 - wait_ns);
		waited += (double)(task.done_ns - begin_ns);
		rig_run(&rig, rig.now_ns + (uint64_t)(rig_random(&random) * 1e7));
	}
	/* The sizes of future tasks are unknown. */
	if (error > 0.25 * waited)
		fail_msg("predicted waits are wrong by %.0f%%", error / waited * 100);
	free_all(&rig, tenants, 3);
}

/*
 * An overdue task is expected to take another eighth of its delay; then the tasks behind it follow.
 */
TEST(test_wait__overdue)
{
	static const struct rig_plan plan = {{1e6f, 1e6f}};
	struct rig_task tasks[3];
	struct place_flow *flow;

	RIG(rig, 2, one_server);
	flow = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	for (int i = 0; i < 3; i++) {
		rig_task_init(&tasks[i], &plan, flow, 1);
		rig_enqueue(&rig, &tasks[i]);
	}
	tasks[0].actual_factor = 1000;
	rig_pump(&rig);
	assert_int_equal(place_flow_wait_ns(rig.placer, flow, 1, rig.now_ns), 3 * MS);
	assert_int_equal(place_flow_wait_ns(rig.placer, flow, 1, rig.now_ns + 250000), 2750000);
	rig.now_ns += 401 * MS;
	assert_int_equal(place_flow_wait_ns(rig.placer, flow, 1, rig.now_ns), 52 * MS);
	assert_int_equal(place_flow_wait_ns(rig.placer, flow, 1, 0), 2 * MS + MS);
	rig_run(&rig, 1000 * MS + 1000 * MS + MS / 2);
	assert_int_equal(place_flow_wait_ns(rig.placer, flow, 1, rig.now_ns), MS + MS / 2);
	rig_run(&rig, UINT64_MAX);
	assert_int_equal(place_flow_wait_ns(rig.placer, flow, 1, rig.now_ns), 0);
	place_flow_free(rig.placer, flow);
}

/*
 * Tasks of 100 ms in parts of 5 ms: other tasks wait for one part, and the rest counts as queued.
 */
TEST(test_latency__between_parts)
{
	static const struct rig_plan row = {{1e6f, 1e6f}}, small = {{5e4f, 5e4f}};
	struct place_flow *heavy, *light;
	struct rig_task tasks[4], task;

	RIG(rig, 2, one_server);
	rig.max_rows = 5;
	rig.placer->config.submission_max_ns = 5 * MS;
	heavy = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	light = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
	for (int i = 0; i < 4; i++) {
		rig_task_init(&tasks[i], &row, heavy, 1);
		tasks[i].task.count = 100;
		rig_enqueue(&rig, &tasks[i]);
	}
	assert_in_range(place_flow_wait_ns(rig.placer, heavy, 1, rig.now_ns), 399 * MS, 400 * MS);
	for (int i = 0; i < 20; i++) {
		uint64_t begin_ns = rig.now_ns, left_ns = 1400 * MS + (uint64_t)i * 50000;

		rig_pump(&rig);
		assert_in_range(place_flow_wait_ns(rig.placer, light, 1, begin_ns), 0,
				5 * MS + PLACE_RELEASE_NS);
		assert_in_range(place_flow_wait_ns(rig.placer, heavy, 1, begin_ns),
				left_ns - begin_ns - MS, left_ns - begin_ns + MS);
		rig_task_init(&task, &small, light, 1);
		rig_enqueue(&rig, &task);
		rig_run(&rig, rig.now_ns + 17 * MS);
		assert_int_equal(task.n_done, 1);
		assert_in_range(task.done_ns - begin_ns, 50000, 5 * MS + PLACE_RELEASE_NS + 50000);
	}
	rig_run(&rig, UINT64_MAX);
	assert_int_equal(rig.now_ns, 1400 * MS + 20 * 50000);
	for (int i = 0; i < 4; i++) {
		/* Tasks run in parts, but one after the other. */
		assert_int_equal(tasks[i].n_released, 20);
		assert_true(i == 0 || tasks[i].done_ns > tasks[i - 1].done_ns + 90 * MS);
	}
	assert_int_equal(rig_used_ns(heavy, 1), 400 * MS);
	place_flow_free(rig.placer, heavy);
	place_flow_free(rig.placer, light);
}

TEST(test_fair__thousands_of_flows)
{
	enum { FLOWS = 4000, EACH = 5 };
	struct rig_task *tasks = calloc(FLOWS * EACH, sizeof(*tasks));
	struct place_flow **flows = calloc(FLOWS, sizeof(struct place_flow *));
	static const struct rig_plan plan = {{1e5f, 1e5f}};

	assert_non_null(tasks);
	assert_non_null(flows);
	RIG(rig, 2, one_server);
	for (int i = 0; i < FLOWS; i++) {
		flows[i] = rig_flow(&rig, 100, RBK_PRIORITY_URGENT, 0);
		for (int j = 0; j < EACH; j++) {
			rig_task_init(&tasks[i * EACH + j], &plan, flows[i], 1);
			rig_enqueue(&rig, &tasks[i * EACH + j]);
		}
	}
	/* In each round every flow has one task completed, within a run of tasks of one plan. */
	for (int round = 1; round <= EACH; round++) {
		rig_run(&rig, rig.now_ns + FLOWS * 100000ull);
		for (int i = 0; i < FLOWS; i++)
			assert_in_range(rig_used_ns(flows[i], 1) + 6 * 100000ull,
					(uint64_t)round * 100000, (uint64_t)(round + 12) * 100000);
	}
	rig_run(&rig, UINT64_MAX);
	for (int i = 0; i < FLOWS; i++) {
		assert_int_equal(rig_used_ns(flows[i], 1), EACH * 100000ull);
		place_flow_free(rig.placer, flows[i]);
	}
	free(flows);
	free(tasks);
}
