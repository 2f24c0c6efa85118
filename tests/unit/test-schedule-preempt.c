/* SPDX-License-Identifier: MIT */
/* Long tasks on a device that can stop them: no task waits for their end, and shares hold */
#include <stdlib.h>

#include "schedule-rig.h"
#include "support/test.h"

#define MS 1000000ull

enum { MAX_TASKS = 8, MAX_FLOWS = 4 };

/* A tenant that always keeps a fixed number of tasks of one size queued or running. */
struct tenant {
	struct place_flow *flow;
	struct rig_plan plan;
	struct rig_task tasks[MAX_TASKS];
	uint64_t wait_ns, longest_ns; /* time of tasks beyond their work: sum and maximum */
	uint32_t n_done;
};

static struct rig rig;

static void again(struct rig *unused, struct rig_task *task, uint8_t device)
{
	struct tenant *tenant = task->owner;
	uint64_t took_ns = rig.now_ns - task->task.admit_ns;
	uint64_t wait_ns = took_ns - (uint64_t)(tenant->plan.work_ns[0] * task->actual_factor);

	tenant->n_done++;
	tenant->wait_ns += wait_ns;
	tenant->longest_ns = wait_ns > tenant->longest_ns ? wait_ns : tenant->longest_ns;
	rig_enqueue(&rig, task);
}

static void tenant_start(struct tenant *tenant, uint32_t weight, float cpu_max, double work_ns,
			 float actual_factor, int n)
{
	tenant->flow = rig_flow(&rig, weight, RBK_PRIORITY_URGENT, cpu_max);
	tenant->plan.work_ns[0] = (float)work_ns;
	for (int i = 0; i < n; i++) {
		rig_task_init(&tenant->tasks[i], &tenant->plan, tenant->flow, 0);
		tenant->tasks[i].task.decision.flags = PLACE_BOUND;
		tenant->tasks[i].owner = tenant;
		tenant->tasks[i].actual_factor = actual_factor;
		rig_enqueue(&rig, &tenant->tasks[i]);
	}
}

static void begin(uint32_t n_servers, bool is_preemptible)
{
	rig_init(&rig, 1, &n_servers);
	if (is_preemptible)
		place_set_preemptible(rig.placer, 0);
	rig.done = again;
	rig.stop_ns = MS / 20;
}

static void end(struct tenant *tenants, int n)
{
	/*
	 * Tasks may still be queued or released, so the flows are freed directly, not by the
	 * placer.
	 */
	for (int i = 0; i < n; i++)
		free(tenants[i].flow);
	rig_deinit(&rig);
}

static double used_ms(const struct tenant *tenant)
{
	return (double)rig_used_ns(tenant->flow, 0) / (double)MS;
}

/* Get the used time of each tenant in ms. Charges for running tasks are not used yet. */
static void used(const struct tenant *tenants, int n, double *ret)
{
	for (int i = 0; i < n; i++)
		ret[i] = used_ms(&tenants[i]);
}

/* Return the time in ms that the flow's tasks have really run. */
static double ran_ms(const struct tenant *tenant, int n)
{
	double ns = 0;

	for (int i = 0; i < n; i++) {
		const struct rig_task *task = &tenant->tasks[i];
		double whole = (double)(tenant->plan.work_ns[0] * task->actual_factor);

		ns += whole * task->n_done;
		for (uint32_t server = 0; server < rig.devices[0].n_servers; server++)
			if (rig.devices[0].running[server] == task)
				ns += whole - (double)task->busy_ns +
				      (double)(rig.now_ns - task->begin_ns);
		if (task->left_ns)
			ns += whole - (double)task->left_ns;
	}
	return ns / (double)MS;
}

/* Tasks of 50 us, one at a time, beside eight of 3 s. */
TEST(test_preempt__short_beside_long)
{
	for (uint32_t n_servers = 1; n_servers <= 4; n_servers *= 2) {
		struct tenant tenants[2] = {{.flow = NULL}};

		begin(n_servers, true);
		tenant_start(&tenants[0], 1, 0, 3000.0 * MS, 1, 8);
		rig_run(&rig, rig.now_ns + 10 * MS);
		tenant_start(&tenants[1], 1, 0, MS / 20.0, 1, 1);
		rig_run(&rig, rig.now_ns + 1000 * MS);
		print_message("%u servers: %u done, waited %.3f ms, %.3f ms at most\n", n_servers,
			      tenants[1].n_done,
			      (double)tenants[1].wait_ns / tenants[1].n_done / (double)MS,
			      (double)tenants[1].longest_ns / (double)MS);
		assert_true(tenants[1].n_done > 500);
		assert_true(tenants[1].longest_ns < 3 * MS);
		end(tenants, 2);
	}
}

/* Weights hold if all tenants have long tasks, whatever was predicted. */
TEST(test_preempt__shares)
{
	static const struct {
		uint32_t n_servers, weights[3];
		double work_ms[3];
		float factor[3];
	} cases[] = {
		{1, {1, 1, 0}, {3000, 3000}, {1, 1}},       {1, {3, 1, 0}, {3000, 3000}, {1, 1}},
		{1, {1, 10, 0}, {3000, 7}, {1, 1}},         {2, {1, 1, 0}, {3000, 1000}, {1, 1}},
		{2, {2, 1, 1}, {3000, 100, 20}, {1, 1, 1}}, {4, {3, 1, 0}, {3000, 3000}, {1, 1}},
		{4, {1, 2, 3}, {500, 300, 40}, {1, 1, 1}},  {2, {1, 1, 0}, {300, 3000}, {10, 0.1f}},
		{1, {1, 1, 0}, {0.01, 100}, {10000, 1}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tenant tenants[3] = {{.flow = NULL}};
		double before[3], share, sum = 0;
		uint32_t weights = 0;
		int n = 0;

		begin(cases[i].n_servers, true);
		for (; n < 3 && cases[i].weights[n]; n++) {
			tenant_start(&tenants[n], cases[i].weights[n], 0,
				     cases[i].work_ms[n] * (double)MS, cases[i].factor[n], 8);
			weights += cases[i].weights[n];
			rig_run(&rig, rig.now_ns + 5 * MS);
		}
		for (int k = 0; k < n; k++)
			before[k] = ran_ms(&tenants[k], 8);
		rig_run(&rig, rig.now_ns + 1000 * MS);
		for (int k = 0; k < n; k++)
			sum += ran_ms(&tenants[k], 8) - before[k];
		/* No server is idle. */
		assert_true(sum > 999.0 * cases[i].n_servers);
		for (int k = 0; k < n; k++) {
			share = (ran_ms(&tenants[k], 8) - before[k]) / sum;
			print_message("%zu: weight %u of %u: %.3f\n", i, cases[i].weights[k],
				      weights, share);
			assert_float_equal(share, (double)cases[i].weights[k] / weights, 0.02);
		}
		end(tenants, n);
	}
}

/*
 * Check that no task is stopped while no other task waits, and that a late tenant has not saved up
 * time.
 */
TEST(test_preempt__alone)
{
	struct tenant tenants[2] = {{.flow = NULL}};
	double before;

	begin(1, true);
	tenant_start(&tenants[0], 1, 0, 500.0 * MS, 1, 8);
	rig_run(&rig, rig.now_ns + 5100 * MS);
	assert_int_equal(place_preempt_ns(rig.placer, rig.now_ns), UINT64_MAX);
	for (int i = 0; i < 8; i++)
		assert_int_equal(tenants[0].tasks[i].n_stopped, 0);
	assert_int_equal(tenants[0].n_done, 10);

	before = ran_ms(&tenants[0], 8);
	tenant_start(&tenants[1], 1, 0, 500.0 * MS, 1, 8);
	rig_run(&rig, rig.now_ns + 100 * MS);
	assert_float_equal(ran_ms(&tenants[0], 8) - before, 50, 2);
	end(tenants, 2);
}

/* The rest of a stopped task runs before tasks that its flow queued later. */
TEST(test_preempt__order)
{
	struct tenant tenants[2] = {{.flow = NULL}};
	uint32_t n_begun = 0;

	begin(1, true);
	tenant_start(&tenants[0], 1, 0, 100.0 * MS, 1, 8);
	tenant_start(&tenants[1], 1, 0, 100.0 * MS, 1, 8);
	rig_run(&rig, rig.now_ns + 350 * MS);
	for (int i = 0; i < 8; i++)
		n_begun += tenants[0].tasks[i].n_released > 0;
	assert_true(n_begun <= 3);
	assert_true(tenants[0].tasks[0].n_done > 0);
	assert_true(tenants[0].tasks[0].n_stopped > 10);
	end(tenants, 2);
}

/* Within a flow, an urgent task does not wait for the end of a less urgent one. */
TEST(test_preempt__class)
{
	struct tenant tenant = {.flow = NULL};
	struct rig_plan plan = {.work_ns = {(float)MS / 10}};
	struct tenant other = {.plan = plan};
	struct rig_task urgent;

	begin(1, true);
	tenant_start(&tenant, 1, 0, 3000.0 * MS, 1, 4);
	rig_run(&rig, rig.now_ns + 10 * MS);
	rig_task_init(&urgent, &other.plan, tenant.flow, 0);
	urgent.task.priority = RBK_PRIORITY_URGENT;
	urgent.owner = &other;
	rig_enqueue(&rig, &urgent);
	rig_run(&rig, rig.now_ns + 2 * MS);
	assert_int_equal(urgent.n_done > 0, true);
	end(&tenant, 1);
}

/* A quota holds within a task, not only before the next one. */
TEST(test_preempt__quota)
{
	for (uint32_t n_servers = 1; n_servers <= 2; n_servers++) {
		struct tenant tenant = {.flow = NULL};
		double before;

		begin(n_servers, true);
		tenant_start(&tenant, 1, 0.25f, 3000.0 * MS, 1, 2);
		rig_run(&rig, rig.now_ns + 1000 * MS);
		before = ran_ms(&tenant, 2);
		rig_run(&rig, rig.now_ns + 2000 * MS);
		print_message("%.1f ms of 2000\n", ran_ms(&tenant, 2) - before);
		assert_float_equal(ran_ms(&tenant, 2) - before, 500, 25);
		end(&tenant, 1);
	}
}

/* The device was given two tasks and has begun the second one. */
TEST(test_preempt__not_begun)
{
	struct tenant tenants[2] = {{.flow = NULL}};
	struct place_task *first = &tenants[0].tasks[0].task, *second = &tenants[1].tasks[0].task;

	begin(1, true);
	tenant_start(&tenants[0], 1, 0, 3000.0 * MS, 1, 1);
	rig_run(&rig, rig.now_ns + 10 * MS);
	tenant_start(&tenants[1], 1, 0, 3000.0 * MS, 1, 1);
	rig_pump(&rig);
	assert_true(first->is_running);
	assert_int_equal(second->state, PLACE_RELEASED);
	assert_false(second->is_running);
	place_not_begun(rig.placer, first, rig.now_ns);
	assert_false(first->is_running);
	assert_true(second->is_running);
	/* The first task is not charged while it waits. The running task is the one to stop. */
	assert_ptr_equal(place_preempt(rig.placer, 0, rig.now_ns + 5 * MS), second);
	assert_null(place_preempt(rig.placer, 0, rig.now_ns + 5 * MS));
	place_not_begun(rig.placer, first, rig.now_ns + 5 * MS);
	assert_true(second->is_running);
	end(tenants, 2);
}

/* A stopped task is learned from once, as a whole. */
TEST(test_preempt__learns)
{
	struct tenant tenants[2] = {{.flow = NULL}};

	begin(1, true);
	tenant_start(&tenants[0], 1, 0, 20.0 * MS, 1, 1);
	tenant_start(&tenants[1], 1, 0, 3000.0 * MS, 1, 1);
	while (tenants[0].n_done == 0)
		rig_run(&rig, rig.now_ns + MS);
	assert_true(tenants[0].tasks[0].n_stopped > 5);
	assert_fields(rig, (n_learned, 1), (n_parts_learned, 0), (learned_exec_ns, 20 * MS));
	end(tenants, 2);
}

/* On a device that cannot stop tasks, nothing changes. */
TEST(test_preempt__device_cannot_stop_tasks)
{
	struct tenant tenants[2] = {{.flow = NULL}};
	double before[2];

	begin(1, false);
	tenant_start(&tenants[0], 1, 0, 30.0 * MS, 1, 2);
	tenant_start(&tenants[1], 1, 0, 30.0 * MS, 1, 2);
	used(tenants, 2, before);
	rig_run(&rig, rig.now_ns + 1000 * MS);
	assert_int_equal(place_preempt_ns(rig.placer, rig.now_ns), UINT64_MAX);
	assert_null(place_preempt(rig.placer, 0, rig.now_ns));
	assert_int_equal(tenants[0].tasks[0].n_stopped, 0);
	assert_true(used_ms(&tenants[0]) > before[0]);
	end(tenants, 2);
}
