/* SPDX-License-Identifier: MIT */
/*
 * A device that fails: every task has the right result, and its reason
 *
 * The device is real; a layer between the device and the broker causes the failures. Each failure
 * is a lost device, which the broker opens again. A device that fails again and again must still be
 * taken out of use, and be used again once it works.
 */
#include <errno.h>
#include <stdlib.h>

#include "integration/placement.h"
#include "support/failing-layer.h"
#include "support/test.h"

static struct broker broker;
static struct customer customer;
static struct failing_layer *layer;

static void end(void)
{
	customer_deinit(&customer);
	broker_stop(&broker);
	failing_layer_end(layer);
}

static bool begin(const struct customer_options *options)
{
	layer = failing_layer_begin();
	if (!layer) {
		print_message("built without Vulkan\n");
		return false;
	}
	broker_start(&broker, &(struct broker_options){
				      .args = (const char *const[]){"--gpu=software", NULL}});
	customer_init(&customer, &broker, options);
	if (broker_has_gpu(customer.rbk) && atomic_load(&layer->n_devices) > 0)
		return true;
	print_message("no software Vulkan device here\n");
	end();
	return false;
}

static uint64_t n_opened(void)
{
	struct rbk_stats_device device;
	struct rbk_stats_view root;
	struct rbk *admin = broker_connect_admin(&broker, "admin");
	uint64_t n;

	assert_int_equal(rbk_stats_map(admin, RBK_STATS_ALL, 0, &root, NULL), 0);
	assert_true(harness_stats_copy(&root, RBK_STATS_SECTION_DEVICES, RBK_DEVICE_GPU, &device,
				       sizeof(device)));
	n = device.n_opened;
	rbk_stats_unmap(&root);
	rbk_disconnect(admin);
	return n;
}

/* Run tasks, one after the other, until one completes with @device and @reason. */
static void run_until(uint8_t device, uint8_t reason)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(60000000000);
	struct rbk_cqe cqe;

	do {
		cqe = customer_run(&customer, 200, RBK_STRATEGY_PREFER_GPU);
		if (harness_now_ns() > end_ns)
			fail_msg("no task on device %u for reason %s", device,
				 rbk_reason_name(reason));
	} while (cqe.device != device || cqe.reason != reason);
}

/* A single failure causes a fallback, and no more. */
TEST(test_one_failure__falls_back)
{
	uint64_t n_failed;

	if (!begin(NULL))
		skip();
	run_until(RBK_DEVICE_GPU, RBK_REASON_USER_PREFERENCE);
	assert_int_equal(customer.reasons[RBK_REASON_CPU_FALLBACK], 0);
	n_failed = atomic_load(&layer->n_failed);
	atomic_store(&layer->every, 1);
	/* No task is queued in front; the first failure may find the device asleep. */
	run_until(RBK_DEVICE_CPU, RBK_REASON_CPU_FALLBACK);
	atomic_store(&layer->every, 0);
	assert_true(atomic_load(&layer->n_failed) > n_failed);
	run_until(RBK_DEVICE_GPU, RBK_REASON_USER_PREFERENCE);
	assert_fields(customer, (n_errors, 0), (reasons[RBK_REASON_BREAKER_OPEN], 0));
	assert_int_equal(n_opened(), 0);
	end();
}

/*
 * Return true if the device is a card. Loading a plan on a card takes several submissions: if every
 * third failed, the plan would never be resident again.
 */
static bool is_card(void)
{
	struct rbk_device devices[RBK_MAX_DEVICES];
	unsigned int n = 0;

	assert_int_equal(rbk_devices(customer.rbk, devices, RBK_MAX_DEVICES, &n), 0);
	return devices[RBK_DEVICE_GPU].kind == RBK_DEVICE_KIND_GPU;
}

/*
 * Return N, of which one in N submissions fails. On a card, loading a plan must succeed in between.
 */
static unsigned int every_few(void)
{
	return is_card() ? 5 : 3;
}

/* Every third submission fails: fallbacks, then the breaker, then probes, then normal use. */
TEST(test_every_third__breaker)
{
	const struct customer_options options = {.has_constant = true};

	if (!begin(&options))
		skip();
	run_until(RBK_DEVICE_GPU, RBK_REASON_USER_PREFERENCE);
	atomic_store(&layer->every, every_few());
	run_until(RBK_DEVICE_CPU, RBK_REASON_CPU_FALLBACK);
	run_until(RBK_DEVICE_CPU, RBK_REASON_BREAKER_OPEN);
	assert_true(customer.reasons[RBK_REASON_CPU_FALLBACK] >= 3);
	/* A failed probe is a fallback, too, and opens the breaker again. */
	run_until(RBK_DEVICE_CPU, RBK_REASON_CPU_FALLBACK);
	run_until(RBK_DEVICE_CPU, RBK_REASON_BREAKER_OPEN);
	/* The device was opened again, which does not reset the breaker. */
	assert_true(n_opened() >= 1);
	atomic_store(&layer->every, 0);
	run_until(RBK_DEVICE_GPU, RBK_REASON_USER_PREFERENCE);
	/* The breaker is closed: all tasks run on the GPU again. */
	for (unsigned int i = 0; i < 40; i++)
		run_until(RBK_DEVICE_GPU, RBK_REASON_USER_PREFERENCE);
	assert_fields(customer, (n_errors, 0), (n_right, customer.n_done));
	end();
}

/* Many tasks in flight, some of them split: none is lost, all are right. */
TEST(test_every_third__many)
{
	static const unsigned int strategies[] = {RBK_STRATEGY_PREFER_GPU, RBK_STRATEGY_PARTITION,
						  RBK_STRATEGY_AUTO, RBK_STRATEGY_DEVICE(1)};
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(60000000000);
	const uint64_t n = test_scaled(3000);

	if (!begin(NULL))
		skip();
	run_until(RBK_DEVICE_GPU, RBK_REASON_USER_PREFERENCE);
	atomic_store(&layer->every, every_few());
	for (uint64_t i = 0; customer.n_done < n || customer.reasons[RBK_REASON_BREAKER_OPEN] == 0;
	     i++) {
		assert_true(harness_now_ns() < end_ns);
		while (customer_in_flight(&customer) < 32)
			customer_put(&customer, 200 + (uint32_t)(i % 50),
				     strategies[(i + customer_in_flight(&customer)) % 4]);
		assert_int_equal(customer_take(&customer).res, 0);
	}
	customer_drain(&customer);
	assert_int_equal(customer.n_errors, 0);
	assert_true(customer.reasons[RBK_REASON_CPU_FALLBACK] > 0);
	/*
	 * A device out of use is tried only as often as probes need; a fifth of the tasks is a wide
	 * bound.
	 */
	assert_true(atomic_load(&layer->n_failed) < customer.n_done / 5);
	end();
}

/*
 * A task for the GPU only completes with -EIO, or -ENODEV while the device is lost or out of use.
 */
TEST(test_only_gpu__fails_without_gpu)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(60000000000);
	struct rbk_cqe cqe;

	if (!begin(NULL))
		skip();
	run_until(RBK_DEVICE_GPU, RBK_REASON_USER_PREFERENCE);
	atomic_store(&layer->every, 1);
	do {
		customer_put(&customer, 200, RBK_STRATEGY_ONLY_GPU);
		cqe = customer_take(&customer);
		assert_true(cqe.res == -EIO || cqe.res == -ENODEV);
		assert_int_not_equal(cqe.device, RBK_DEVICE_CPU);
		assert_true(harness_now_ns() < end_ns);
	} while (cqe.res != -EIO);
	atomic_store(&layer->every, 0);
	do {
		harness_sleep_ms(1);
		customer_put(&customer, 200, RBK_STRATEGY_ONLY_GPU);
		cqe = customer_take(&customer);
		assert_int_not_equal(cqe.device, RBK_DEVICE_CPU);
		assert_true(harness_now_ns() < end_ns);
	} while (cqe.res != 0);
	end();
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(120))
