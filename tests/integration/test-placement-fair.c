/* SPDX-License-Identifier: MIT */
/*
 * Tenants beside each other: shares, classes, quotas, and tasks that move
 *
 * Shares are of device time, as counted in the statistics pages, over a span in which all
 * competitors always had work. No check depends on the machine's speed. The order in which queued
 * tenants are served is tested in virtual time (test-schedule.c, test-schedule-fair.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "integration/placement.h"
#include "support/test.h"

enum { CPU = RBK_DEVICE_CPU, GPU = RBK_DEVICE_GPU, FIRST = 40021, SECOND = 40022 };

static struct broker broker;

static uint64_t device_ns(const struct customer *customer, uint8_t device)
{
	return customer_totals(customer).devices[device].device_ns;
}

/* --- Shares --- */

static void put_class(struct customer *customer, uint32_t count, unsigned int strategy,
		      uint8_t priority)
{
	struct rbk_sqe *sqe = customer_prepare(customer, count);

	assert_non_null(sqe);
	rbk_sqe_set_strategy(sqe, strategy);
	rbk_sqe_set_priority(sqe, priority);
}

/*
 * Fill the customer's ring. Return: true if the broker had not yet completed all tasks at the call.
 */
static bool feed_class(struct customer *customer, uint32_t count, unsigned int strategy,
		       uint8_t priority)
{
	bool had_work = rbk_cq_ready(customer->ring) < customer_in_flight(customer);

	while (customer_has(customer))
		assert_int_equal(customer_take(customer).res, 0);
	while (customer_in_flight(customer) < customer->options.n_entries)
		put_class(customer, count, strategy, priority);
	rbk_submit(customer->ring);
	return had_work;
}

enum { ENTRIES = 256, ENTRIES_GPU = 16, ATTEMPTS = 20 };

/*
 * Measure the second customer's share of a device's time while both customers always have work. The
 * measurement is repeated if this program did not run for a while and a customer ran out of work.
 * It is also repeated if the share is not between @least and @most. A task that lost its processor
 * for 50 ms has charged its tenant as much, and the compensation may fill the whole measurement.
 * Return: the last share; below 0 if no measurement succeeded.
 */
static double share_of_second(struct customer *customers, const uint32_t counts[2], uint8_t device,
			      const uint8_t classes[2], double least, double most)
{
	const unsigned int strategy = device == GPU ? RBK_STRATEGY_ONLY_GPU : RBK_STRATEGY_ONLY_CPU;
	const uint64_t n_tasks = device == GPU ? 200 : 500 + test_scaled(1500);
	uint64_t before[2], ns[2];
	double share = -1;
	bool is_fed;

	for (unsigned int attempt = 0; attempt <= ATTEMPTS; attempt++) {
		customers[0].n_done = customers[1].n_done = 0;
		for (unsigned int i = 0; i < 2; i++)
			before[i] = device_ns(&customers[i], device);
		is_fed = true;
		/* The first attempt lets estimates settle. */
		while (is_fed && customers[0].n_done + customers[1].n_done <
					 (attempt ? n_tasks : n_tasks / 4))
			for (unsigned int i = 0; i < 2; i++)
				is_fed &= feed_class(&customers[i], counts[i], strategy,
						     classes[i]) ||
					  attempt == 0;
		if (!is_fed || attempt == 0)
			continue;
		for (unsigned int i = 0; i < 2; i++)
			ns[i] = device_ns(&customers[i], device) - before[i];
		share = (double)ns[1] / (double)(ns[0] + ns[1]);
		if (share >= least && share <= most)
			break;
	}
	return share;
}

static void expect_share(const char *policy, double expected, uint8_t device,
			 const uint8_t classes[2])
{
	/* A GPU in software is slower than the program that feeds it; a CPU may be faster. */
	const uint32_t n_entries = device == GPU ? ENTRIES_GPU : ENTRIES;
	const uint32_t width = device == GPU ? 64 : 128;
	/* The tasks differ: shares are of time, not of tasks. */
	const struct customer_options options[2] = {
		{.uid = FIRST,
		 .width = width,
		 .max_rows = 512,
		 .n_entries = n_entries,
		 .is_careless = true},
		{.uid = SECOND,
		 .width = width,
		 .max_rows = 128,
		 .n_entries = n_entries,
		 .is_careless = true},
	};
	const uint32_t counts[2] = {512, 128};
	const char *const args[] = {"--gpu=software", "--workers=1", NULL};
	struct customer customers[2];
	/* The broker's own work per task is charged, too; sanitizers make it expensive. */
	const double slack = harness_slow_ns(1) > 1 ? 0.4 : 0.12;
	double share = -1;

	if (!broker_start_for_all(&broker, args, policy))
		skip();
	for (unsigned int i = 0; i < 2; i++)
		customer_init(&customers[i], &broker, &options[i]);
	if (device == CPU || broker_has_gpu(customers[0].rbk))
		share = share_of_second(customers, counts, device, classes, (1 - slack) * expected,
					(1 + slack) * expected);
	for (unsigned int i = 0; i < 2; i++) {
		customer_drain(&customers[i]);
		assert_int_equal(customers[i].n_errors, 0);
		customer_deinit(&customers[i]);
	}
	broker_stop(&broker);
	if (share < 0) {
		print_message("no device, or no time to feed it\n");
		skip();
	}
	if (share < (1 - slack) * expected || share > (1 + slack) * expected)
		fail_msg("device %u: the share is %.3f, not %.3f", device, share, expected);
}

static void expect_shares(unsigned int weight, uint8_t device)
{
	const uint8_t classes[2] = {RBK_PRIORITY_NORMAL, RBK_PRIORITY_NORMAL};
	char policy[256];

	snprintf(policy, sizeof(policy),
		 "[tenant first]\nmatch-uid = %d\nweight = 100\n"
		 "[tenant second]\nmatch-uid = %d\nweight = %u\n",
		 FIRST, SECOND, 100 * weight);
	expect_share(policy, (double)weight / (weight + 1), device, classes);
}

TEST(test_shares__cpu)
{
	expect_shares(1, CPU);
	expect_shares(3, CPU);
}

TEST(test_shares__gpu)
{
	expect_shares(1, GPU);
	expect_shares(3, GPU);
}

/* --- Classes --- */

/* Run a ring full of tasks of all classes. Store each class's mean position among the completions.
 */
static void order_of_classes(struct customer *customer, double ret_place[RBK_PRIORITY_COUNT])
{
	unsigned int n[RBK_PRIORITY_COUNT] = {0}, place = 0;
	uint8_t classes[256];
	struct rbk_cqe cqe;

	for (unsigned int i = 0; i < RBK_PRIORITY_COUNT; i++)
		ret_place[i] = 0;
	for (uint32_t i = 0; i < customer->options.n_entries; i++) {
		classes[customer->free_slots[customer->n_free - 1]] = i % RBK_PRIORITY_COUNT;
		put_class(customer, 256, RBK_STRATEGY_ONLY_CPU, i % RBK_PRIORITY_COUNT);
	}
	rbk_submit(customer->ring);
	while (customer_in_flight(customer) > 0) {
		cqe = customer_take(customer);
		assert_int_equal(cqe.res, 0);
		ret_place[classes[cqe.user_data]] += place++;
		n[classes[cqe.user_data]]++;
	}
	for (unsigned int i = 0; i < RBK_PRIORITY_COUNT; i++)
		ret_place[i] /= n[i];
}

TEST(test_classes__in_order)
{
	const struct customer_options options[2] = {
		{.uid = FIRST, .width = 128, .n_entries = 256},
		{.uid = SECOND, .width = 128, .n_entries = 256},
	};
	const char *const args[] = {"--gpu=none", "--workers=1", NULL};
	double place[RBK_PRIORITY_COUNT];
	struct customer customer;

	if (!broker_start_for_all(&broker, args,
				  "[tenant first]\nmatch-uid = 40021\npriority-max = urgent\n"
				  "[tenant second]\nmatch-uid = 40022\npriority-max = normal\n"))
		skip();
	customer_init(&customer, &broker, &options[0]);
	order_of_classes(&customer, place);
	assert_true(place[RBK_PRIORITY_URGENT] < place[RBK_PRIORITY_HIGH]);
	assert_true(place[RBK_PRIORITY_HIGH] < place[RBK_PRIORITY_NORMAL]);
	assert_true(place[RBK_PRIORITY_NORMAL] < place[RBK_PRIORITY_LOW]);
	customer_deinit(&customer);

	/* Capped: three classes count as one, and their tasks complete in order of submission. */
	customer_init(&customer, &broker, &options[1]);
	order_of_classes(&customer, place);
	assert_true(place[RBK_PRIORITY_URGENT] > place[RBK_PRIORITY_NORMAL]);
	assert_true(place[RBK_PRIORITY_URGENT] < place[RBK_PRIORITY_NORMAL] + 10);
	assert_true(place[RBK_PRIORITY_HIGH] < place[RBK_PRIORITY_LOW]);
	customer_deinit(&customer);
	broker_stop(&broker);
}

/*
 * A class counts among the tenant's own tasks only: with all tasks urgent, the tenant gets its
 * half.
 */
TEST(test_classes__leave_tenant_shares)
{
	const uint8_t classes[2] = {RBK_PRIORITY_NORMAL, RBK_PRIORITY_URGENT};

	expect_share("[tenant first]\nmatch-uid = 40021\n"
		     "[tenant second]\nmatch-uid = 40022\npriority-max = urgent\n",
		     0.5, CPU, classes);
}

/* --- Work moves --- */

/* With a queue on one device and another device idle, tasks move, say so, and are right. */
TEST(test_balance__moves_tasks_to_idle_device)
{
	const struct customer_options options = {.width = 256, .max_rows = 600, .n_entries = 64};
	/* Neither device has an estimate: all tasks are placed on one device. */
	const char *const args[] = {"--gpu=software", NULL};
	struct rbk_stats_decision decision;
	uint64_t n_moved = 0, n = 0, n_on[2] = {0};
	struct customer customer;

	if (!broker_start_for_all(&broker, args, NULL))
		skip();
	customer_init(&customer, &broker, &options);
	if (!broker_has_gpu(customer.rbk)) {
		customer_deinit(&customer);
		broker_stop(&broker);
		skip();
	}
	for (unsigned int round = 0; round < test_scaled(50) && n_moved == 0; round++) {
		while (customer_prepare(&customer, 600))
			n++;
		rbk_submit(customer.ring);
		customer_drain(&customer);
		while (customer_next_decision(&customer, &decision)) {
			n_moved += (decision.flags & RBK_DECISION_MOVED) != 0;
			n_on[decision.device != CPU]++;
			if (decision.flags & RBK_DECISION_MOVED)
				assert_int_equal(decision.reason, RBK_REASON_COST_MODEL);
		}
	}
	assert_int_equal(customer.n_right, n);
	assert_int_equal(n_on[0] + n_on[1], n);
	assert_true(n_on[0] > 0 && n_on[1] > 0);
	assert_true(n_moved > 0);
	customer_deinit(&customer);
	broker_stop(&broker);
}

/* --- Quotas --- */

/*
 * A task is released while the bucket is not empty. The time counted before a task was submitted
 * never exceeds the bucket's inflow until the task completes, plus the initial 5 ms (the inflow of
 * 100 ms). This holds even if a task loses its processor.
 */
TEST(test_quota__is_kept)
{
	enum { IN_FLIGHT = 16 };
	const struct customer_options options = {
		.uid = FIRST, .width = 128, .max_rows = 512, .n_entries = IN_FLIGHT};
	const char *const args[] = {"--gpu=none", "--workers=1", NULL};
	uint64_t start_ns, took_ns, used_ns[IN_FLIGHT];
	struct rbk_stats_tenant totals;
	struct customer customer;
	struct rbk_cqe cqe;

	if (!broker_start_for_all(&broker, args,
				  "[tenant first]\nmatch-uid = 40021\ncpu-max = 5%\n"))
		skip();
	start_ns = harness_now_ns();
	customer_init(&customer, &broker, &options);
	do {
		while (customer_in_flight(&customer) < IN_FLIGHT) {
			used_ns[customer.free_slots[customer.n_free - 1]] =
				device_ns(&customer, CPU);
			customer_put(&customer, 512, RBK_STRATEGY_ONLY_CPU);
		}
		cqe = customer_take(&customer);
		assert_int_equal(cqe.res, 0);
		took_ns = harness_now_ns() - start_ns;
		if (used_ns[cqe.user_data] > took_ns / 20 + 5000000)
			fail_msg("%llu us in %llu us",
				 (unsigned long long)used_ns[cqe.user_data] / 1000,
				 (unsigned long long)took_ns / 1000);
		totals = customer_totals(&customer);
	} while (used_ns[cqe.user_data] < 20000000 || totals.n_throttled == 0);
	customer_drain(&customer);
	customer_deinit(&customer);
	broker_stop(&broker);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(120))
