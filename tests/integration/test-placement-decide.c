/* SPDX-License-Identifier: MIT */
/*
 * Decisions of a real broker: each rule with its reason, and the statistics of decisions
 *
 * Which device is faster depends on the machine. The tests check that the broker decides by what it
 * has learned, and reports it.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "integration/placement.h"
#include "support/test.h"

enum { CPU = RBK_DEVICE_CPU, GPU = RBK_DEVICE_GPU, SMALL = 20, WIDTH = 256, LARGE = 600 };

static const struct customer_options large = {.width = WIDTH, .max_rows = LARGE, .n_entries = 16};
/* Tasks run whole: estimates of parts are kept by their size. */
static const char *const software[] = {"--gpu=software", "--submission-max=1s", NULL};

static struct broker broker;
static struct customer customer;

static void begin(const char *const *args, const char *policy,
		  const struct customer_options *options)
{
	broker_start(&broker, &(struct broker_options){
				      .args = args, .is_undisturbed = true, .policy = policy});
	customer_init(&customer, &broker, options);
}

static void end(void)
{
	customer_deinit(&customer);
	broker_stop(&broker);
}

static bool begin_with_gpu(const char *const *args, const char *policy,
			   const struct customer_options *options)
{
	begin(args, policy, options);
	if (broker_has_gpu(customer.rbk))
		return true;
	print_message("no software Vulkan device here\n");
	end();
	return false;
}

static void expect(uint32_t count, unsigned int strategy, uint8_t device, uint8_t reason)
{
	struct rbk_cqe cqe = customer_run(&customer, count, strategy);

	if (cqe.device != device || cqe.reason != reason)
		fail_msg("%u rows, strategy %u: device %u, %s; not device %u, %s", count, strategy,
			 cqe.device, rbk_reason_name(cqe.reason), device, rbk_reason_name(reason));
}

static struct rbk_stats_decision last_decision(void);

/*
 * Run a task of which neither device has an estimate. The GPU gets it, unless the broker finds the
 * CPU idle and moves it there.
 */
static void expect_unknown(uint32_t count)
{
	struct rbk_cqe cqe = customer_run(&customer, count, RBK_STRATEGY_AUTO);

	if (last_decision().flags & RBK_DECISION_MOVED) {
		assert_fields(cqe, (device, CPU), (reason, RBK_REASON_COST_MODEL));
	} else {
		assert_fields(cqe, (device, GPU), (reason, RBK_REASON_GPU_AVAILABLE));
	}
}

static void expect_error(unsigned int strategy, int res, uint8_t reason)
{
	struct rbk_cqe cqe;

	customer_put(&customer, SMALL, strategy);
	cqe = customer_take(&customer);
	assert_fields(cqe, (res, res), (device, RBK_DEVICE_NONE), (reason, reason));
}

/* --- Rules --- */

TEST(test_rules__with_gpu)
{
	if (!begin_with_gpu(software, NULL, &large))
		skip();
	expect(SMALL, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	/* Neither device has an estimate: a large task goes to the GPU. */
	expect_unknown(LARGE);
	expect(SMALL, RBK_STRATEGY_PREFER_GPU, GPU, RBK_REASON_USER_PREFERENCE);
	expect(LARGE, RBK_STRATEGY_PREFER_CPU, CPU, RBK_REASON_USER_PREFERENCE);
	expect(SMALL, RBK_STRATEGY_ONLY_GPU, GPU, RBK_REASON_USER_PREFERENCE);
	expect(LARGE, RBK_STRATEGY_ONLY_CPU, CPU, RBK_REASON_USER_PREFERENCE);
	expect(SMALL, RBK_STRATEGY_DEVICE(GPU), GPU, RBK_REASON_USER_PREFERENCE);
	expect(LARGE, RBK_STRATEGY_DEVICE(CPU), CPU, RBK_REASON_USER_PREFERENCE);
	expect(LARGE, RBK_STRATEGY_DEVICE(9), CPU, RBK_REASON_GPU_UNAVAILABLE);
	end();
}

TEST(test_rules__without_gpu)
{
	begin((const char *const[]){"--gpu=none", NULL}, NULL, &large);
	expect(SMALL, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	expect(LARGE, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
	expect(SMALL, RBK_STRATEGY_PREFER_GPU, CPU, RBK_REASON_GPU_UNAVAILABLE);
	expect(SMALL, RBK_STRATEGY_DEVICE(GPU), CPU, RBK_REASON_GPU_UNAVAILABLE);
	expect(SMALL, RBK_STRATEGY_PARTITION, CPU, RBK_REASON_BELOW_THRESHOLD);
	expect(LARGE, RBK_STRATEGY_PREFER_CPU, CPU, RBK_REASON_USER_PREFERENCE);
	expect_error(RBK_STRATEGY_ONLY_GPU, -ENODEV, RBK_REASON_GPU_UNAVAILABLE);
	end();
}

/* The administrator may set the thresholds. */
TEST(test_rules__thresholds)
{
	const char *const args[] = {"--gpu=software", "--threshold=1KiB", "--min-count=10", NULL};

	if (!begin_with_gpu(args, NULL, &large))
		skip();
	expect(9, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	expect_unknown(10);
	end();
}

/* A pinned plan runs on its device, whatever strategy its tasks have. */
TEST(test_rules__pinned)
{
	static const unsigned int strategies[] = {RBK_STRATEGY_AUTO, RBK_STRATEGY_PREFER_GPU,
						  RBK_STRATEGY_PREFER_CPU, RBK_STRATEGY_PARTITION};
	struct customer_options options = large;

	for (uint8_t device = CPU; device <= GPU; device++) {
		options.pinned = 1u + device;
		if (!begin_with_gpu(software, NULL, &options))
			skip();
		for (unsigned int i = 0; i < 4; i++) {
			expect(SMALL, strategies[i], device, RBK_REASON_USER_PREFERENCE);
			expect(LARGE, strategies[i], device, RBK_REASON_USER_PREFERENCE);
		}
		end();
	}
}

/* The plan never fits into the device's memory, or into its tenant's maximum. */
TEST(test_rules__never_fits)
{
	struct customer_options options = large;

	options.has_constant = true;
	if (!begin_with_gpu(software, "[tenant default]\nvram-max = 0\n", &options))
		skip();
	expect(SMALL, RBK_STRATEGY_AUTO, CPU, RBK_REASON_BELOW_THRESHOLD);
	expect(LARGE, RBK_STRATEGY_AUTO, CPU, RBK_REASON_MEMORY_CONSTRAINT);
	expect(SMALL, RBK_STRATEGY_PREFER_GPU, CPU, RBK_REASON_MEMORY_CONSTRAINT);
	expect_error(RBK_STRATEGY_ONLY_GPU, -ENOMEM, RBK_REASON_MEMORY_CONSTRAINT);
	end();
}

/* --- Force-CPU --- */

TEST(test_force_cpu__while_tasks_run)
{
	struct rbk_cqe cqe;
	struct rbk *admin;

	if (!begin_with_gpu(software, NULL, &large))
		skip();
	admin = broker_connect_admin(&broker, "admin");
	for (unsigned int round = 0; round < 3; round++) {
		expect(LARGE, RBK_STRATEGY_DEVICE(GPU), GPU, RBK_REASON_USER_PREFERENCE);
		for (unsigned int i = 0; i < 12; i++)
			customer_put(&customer, LARGE - i, RBK_STRATEGY_DEVICE(GPU));
		assert_int_equal(rbk_force_cpu(admin, 1, NULL, NULL), 0);
		/* Earlier tasks complete on the GPU or on the CPU. */
		customer_drain(&customer);
		assert_int_equal(customer.n_errors, round);
		expect(LARGE, RBK_STRATEGY_AUTO, CPU, RBK_REASON_GPU_UNAVAILABLE);
		expect(LARGE, RBK_STRATEGY_PREFER_GPU, CPU, RBK_REASON_GPU_UNAVAILABLE);
		expect(LARGE, RBK_STRATEGY_DEVICE(GPU), CPU, RBK_REASON_GPU_UNAVAILABLE);
		cqe = customer_run(&customer, LARGE, RBK_STRATEGY_PARTITION);
		assert_fields(cqe, (flags & RBK_CQE_PARTITIONED, 0), (device, CPU));
		expect_error(RBK_STRATEGY_ONLY_GPU, -ENODEV, RBK_REASON_GPU_UNAVAILABLE);
		assert_int_equal(rbk_force_cpu(admin, 0, NULL, NULL), 0);
		expect(LARGE, RBK_STRATEGY_DEVICE(GPU), GPU, RBK_REASON_USER_PREFERENCE);
	}
	rbk_disconnect(admin);
	end();
}

/* --- The cost model --- */

/*
 * Whether the cost model's decisions are judged. A sanitizer sees their code in the other tests;
 * with its times, which vary more, devices are trusted late or never.
 */
static bool begin_cost_model(const char *const *args)
{
	if (!test_is_scaled_down())
		return begin_with_gpu(args, NULL, &large);
	print_message("left out under a sanitizer\n");
	return false;
}

/* Run tasks until both devices have estimates. */
static void learn(void)
{
	struct rbk_stats_plan_device on[2];
	struct rbk_stats_plan plan;
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(60000000000);

	do {
		for (unsigned int i = 0; i < 10; i++) {
			customer_run(&customer, LARGE, RBK_STRATEGY_ONLY_CPU);
			customer_run(&customer, LARGE, RBK_STRATEGY_ONLY_GPU);
		}
		harness_sleep_ms(10);
		customer_plan_stats(&customer, &plan, on, 2);
		if (harness_now_ns() > end_ns)
			fail_msg("trusted after %llu and %llu tasks: %d, %d",
				 (unsigned long long)on[CPU].n_tasks,
				 (unsigned long long)on[GPU].n_tasks, on[CPU].is_trusted,
				 on[GPU].is_trusted);
	} while (!on[CPU].is_trusted || !on[GPU].is_trusted);
}

/* Return the last record of the decision log, which is that of the last task. */
static struct rbk_stats_decision last_decision(void)
{
	struct rbk_stats_decision decision = {.sequence = 0};

	while (customer_next_decision(&customer, &decision))
		;
	assert_int_not_equal(decision.sequence, 0);
	return decision;
}

TEST(test_cost_model__goes_by_what_it_learned)
{
	const char *const args[] = {"--gpu=software", "--submission-max=1s", "--calibration=now",
				    NULL};
	const uint64_t n = 200;
	struct rbk_stats_decision decision;
	struct rbk_stats_plan_device on[2];
	double lost_ns = 0, run_ns = 0;
	uint64_t n_against = 0;
	struct rbk_stats_plan plan;
	struct rbk_cqe cqe;

	if (!begin_cost_model(args))
		skip();
	learn();
	while (customer_next_decision(&customer, &decision))
		run_ns += (double)decision.exec_ns;
	for (uint64_t i = 0; i < n; i++) {
		cqe = customer_run(&customer, LARGE, RBK_STRATEGY_AUTO);
		decision = last_decision();
		assert_fields(decision, (device, cqe.device), (reason, cqe.reason),
			      (flags & RBK_CQE_EXPLORED, cqe.flags & RBK_CQE_EXPLORED));
		assert_int_equal((int64_t)(float)cqe.exec_ns, (int64_t)decision.exec_ns);
		assert_true(decision.predicted_ns > 0 && isfinite(decision.predicted_ns));
		assert_true(decision.other_ns > 0 && isfinite(decision.other_ns));
		assert_true(cqe.reason == RBK_REASON_COST_MODEL ||
			    cqe.reason == RBK_REASON_CONTENTION);
		if (cqe.flags & RBK_CQE_EXPLORED) {
			/*
			 * Exploration costs at most its budget, a hundredth of the time executed.
			 */
			assert_true(decision.predicted_ns - decision.other_ns <=
				    0.011 * run_ns - lost_ns);
			if (decision.exec_ns > decision.other_ns)
				lost_ns += (double)(decision.exec_ns - decision.other_ns);
		} else {
			/*
			 * No other task is in flight, so the device with the shorter execution
			 * completes earlier. A task that had to be moved was not placed rightly,
			 * either.
			 */
			n_against += decision.predicted_ns > decision.other_ns * 1.01f ||
				     (decision.flags & RBK_DECISION_MOVED);
		}
		run_ns += (double)decision.exec_ns;
	}
	/* Sometimes the broker takes a device for busy that has just become idle. */
	assert_true(n_against <= n / 5);
	/* Compare with measured means, not only with the broker's own predictions. */
	customer_plan_stats(&customer, &plan, on, 2);
	assert_true(on[CPU].mean_ns > 0 && on[GPU].mean_ns > 0);
	if (on[GPU].mean_ns > 1.5 * on[CPU].mean_ns)
		assert_true(on[CPU].n_tasks > on[GPU].n_tasks);
	if (on[CPU].mean_ns > 1.5 * on[GPU].mean_ns)
		assert_true(on[GPU].n_tasks > on[CPU].n_tasks);
	end();
}

/* With a budget of 0 no task is explored; with any budget, no task with a deadline. */
TEST(test_explored__never)
{
	const char *const none[] = {"--gpu=software", "--exploration=0", NULL};
	const char *const much[] = {"--gpu=software", "--exploration=50%", NULL};
	const uint64_t n_few = test_scaled(60), n_many = test_scaled(200);
	uint64_t n_explored = 0;
	struct rbk_sqe *sqe;

	if (!begin_with_gpu(none, NULL, &large))
		skip();
	for (uint64_t i = 0; i < n_few; i++)
		assert_int_equal(customer_run(&customer, LARGE, RBK_STRATEGY_AUTO).flags, 0);
	assert_int_equal(customer_totals(&customer).n_explored, 0);
	end();

	begin(much, NULL, &large);
	for (uint64_t i = 0; i < n_few; i++) {
		sqe = customer_prepare(&customer, LARGE);
		rbk_sqe_set_deadline_us(sqe, UINT32_MAX);
		rbk_submit(customer.ring);
		assert_int_equal(customer_take(&customer).flags, 0);
	}
	/* Tasks may be explored within the budget, and are counted. */
	for (uint64_t i = 0; i < n_many; i++)
		n_explored +=
			customer_run(&customer, LARGE, RBK_STRATEGY_AUTO).flags == RBK_CQE_EXPLORED;
	assert_int_equal(customer_totals(&customer).n_explored, n_explored);
	end();
}

/* --- Deadlines --- */

static struct rbk_cqe run_by(uint32_t count, uint32_t deadline_us, unsigned int strategy)
{
	struct rbk_sqe *sqe = customer_prepare(&customer, count);
	struct rbk_cqe cqe;

	rbk_sqe_set_strategy(sqe, strategy);
	rbk_sqe_set_deadline_us(sqe, deadline_us);
	assert_int_equal(rbk_submit(customer.ring), 1);
	cqe = customer_take(&customer);
	assert_int_equal(cqe.res, 0);
	return cqe;
}

/* A missed deadline is reported and counted; the task runs all the same. */
TEST(test_deadline__is_reported)
{
	uint64_t n_missed = 0;
	struct rbk_cqe cqe;

	if (!begin_with_gpu(software, NULL, &large))
		skip();
	for (unsigned int strategy = RBK_STRATEGY_AUTO; strategy < RBK_STRATEGY_COUNT; strategy++) {
		cqe = run_by(LARGE, 1, strategy);
		/* No task of that size takes only a microsecond. */
		assert_int_equal(cqe.flags & RBK_CQE_DEADLINE_MISSED, RBK_CQE_DEADLINE_MISSED);
		n_missed++;
		cqe = run_by(LARGE, UINT32_MAX, strategy);
		assert_int_equal(cqe.flags & RBK_CQE_DEADLINE_MISSED, 0);
		cqe = run_by(LARGE, 0, strategy);
		assert_int_equal(cqe.flags & RBK_CQE_DEADLINE_MISSED, 0);
	}
	assert_int_equal(customer_totals(&customer).n_deadlines_missed, n_missed);
	end();
}

/* A task that would be late on its preferred device runs on the other one, in time. */
TEST(test_deadline__other_device)
{
	struct rbk_stats_plan_device on[2];
	struct rbk_stats_plan plan;
	uint8_t slow, fast;
	struct rbk_cqe cqe;
	double middle_ns;

	if (!begin_cost_model(software))
		skip();
	learn();
	customer_plan_stats(&customer, &plan, on, 2);
	slow = on[GPU].estimate_ns > on[CPU].estimate_ns ? GPU : CPU;
	fast = slow == GPU ? CPU : GPU;
	if (on[slow].estimate_ns < 3 * on[fast].estimate_ns) {
		print_message("both are about as fast\n");
		end();
		skip();
	}
	cqe = run_by(LARGE, 0, slow == GPU ? RBK_STRATEGY_PREFER_GPU : RBK_STRATEGY_PREFER_CPU);
	assert_int_equal(cqe.device, slow);
	middle_ns = sqrt(on[slow].estimate_ns * on[fast].estimate_ns);
	cqe = run_by(LARGE, (uint32_t)(middle_ns / 1000),
		     slow == GPU ? RBK_STRATEGY_PREFER_GPU : RBK_STRATEGY_PREFER_CPU);
	assert_fields(cqe, (device, fast), (reason, RBK_REASON_COST_MODEL));
	/* If both devices would miss the deadline, or both meet it, the preference holds. */
	cqe = run_by(LARGE, 1, slow == GPU ? RBK_STRATEGY_PREFER_GPU : RBK_STRATEGY_PREFER_CPU);
	assert_int_equal(cqe.device, slow);
	cqe = run_by(LARGE, UINT32_MAX,
		     slow == GPU ? RBK_STRATEGY_PREFER_GPU : RBK_STRATEGY_PREFER_CPU);
	assert_int_equal(cqe.device, slow);
	end();
}

/* --- Statistics --- */

/* Each task is counted once, and sums agree. */
TEST(test_statistics__agree)
{
	/* The log has only the first of several tasks that the reactor computes in a row. */
	static const char *const by_workers[] = {"--gpu=software", "--submission-max=1s",
						 "--reactor-task=0", NULL};
	const uint64_t n = test_scaled(1000);
	uint64_t n_reasons = 0, n_devices = 0, n_plan = 0, n_logged = 0, exec_ns = 0;
	double predicted_ns = 0, predicted_exec_ns = 0, error_ns = 0, log_predicted_ns = 0,
	       log_error_ns = 0;
	struct rbk_stats_decision decision;
	struct rbk_stats_plan_device on[2];
	struct rbk_stats_tenant totals;
	struct rbk_stats_plan plan;
	struct rbk_sqe *sqe;

	if (!begin_with_gpu(by_workers, NULL, &large))
		skip();
	for (uint64_t i = 0; i < n; i++) {
		if (customer_in_flight(&customer) == 16)
			customer_take(&customer);
		sqe = customer_prepare(&customer, 1 + (uint32_t)(i * 37 % LARGE));
		rbk_sqe_set_strategy(sqe, i % 8);
		rbk_sqe_set_priority(sqe, i / 8 % 4);
		rbk_sqe_set_deadline_us(sqe, i % 5 ? 0 : 1 + (uint32_t)i);
		rbk_submit(customer.ring);
	}
	customer_drain(&customer);
	assert_int_equal(customer.n_right, n);
	harness_sleep_ms(1);
	totals = customer_totals(&customer);
	for (uint64_t end_ns = harness_now_ns() + harness_slow_ns(20000000000);
	     totals.n_tasks < n && harness_now_ns() < end_ns;) {
		harness_sleep_ms(5);
		totals = customer_totals(&customer);
	}
	assert_fields(totals, (n_tasks, n), (n_errors, 0));
	for (unsigned int i = 0; i < RBK_REASON_COUNT; i++) {
		assert_int_equal(totals.reasons[i], customer.reasons[i]);
		n_reasons += totals.reasons[i];
	}
	assert_int_equal(n_reasons, n);
	assert_int_equal(totals.exec_ns, customer.exec_ns);
	for (unsigned int i = 0; i < 2; i++) {
		n_devices += totals.devices[i].n_tasks;
		exec_ns += totals.devices[i].exec_ns;
	}
	assert_int_equal(n_devices, n);
	assert_int_equal(exec_ns, totals.exec_ns);

	customer_plan_stats(&customer, &plan, on, 2);
	for (unsigned int i = 0; i < 2; i++) {
		n_plan += on[i].n_tasks;
		predicted_ns += (double)on[i].predicted_ns;
		predicted_exec_ns += (double)on[i].predicted_exec_ns;
		error_ns += (double)on[i].error_ns;
	}
	assert_int_equal(n_plan, n);
	assert_true(error_ns + 10 * (double)n >= fabs(predicted_ns - predicted_exec_ns));
	while (customer_next_decision(&customer, &decision)) {
		n_logged++;
		if (decision.predicted_ns <= 0 || (decision.flags & RBK_CQE_PARTITIONED))
			continue;
		log_predicted_ns += (double)decision.predicted_ns;
		log_error_ns += fabs((double)decision.predicted_ns - (double)decision.exec_ns);
	}
	assert_int_equal(n_logged, n);
	assert_true(log_predicted_ns > 0);
	assert_true(fabs(log_predicted_ns - predicted_ns) <= 0.001 * predicted_ns);
	assert_true(fabs(log_error_ns - error_ns) <= 0.001 * error_ns);
	end();
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(120))
