/* SPDX-License-Identifier: MIT */
/*
 * A device that fails: every task has its right result, and says what became of it
 *
 * The device is real, the failures come from a layer between it and the broker. A failure is the
 * loss of the device, which the broker opens anew each time; so what is to be seen is that one that
 * fails again and again is taken out of use all the same, and taken back when it works.
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

/* Runs one after the other until one says so. */
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

/* One failure is a fallback and nothing more. */
TEST(test_once__falls_back)
{
	uint64_t n_failed;

	if (!begin(NULL))
		skip();
	run_until(RBK_DEVICE_GPU, RBK_REASON_USER_PREFERENCE);
	assert_int_equal(customer.reasons[RBK_REASON_CPU_FALLBACK], 0);
	n_failed = atomic_load(&layer->n_failed);
	atomic_store(&layer->every, 1);
	/* With nothing between the task and the device; it may find it asleep first. */
	run_until(RBK_DEVICE_CPU, RBK_REASON_CPU_FALLBACK);
	atomic_store(&layer->every, 0);
	assert_true(atomic_load(&layer->n_failed) > n_failed);
	run_until(RBK_DEVICE_GPU, RBK_REASON_USER_PREFERENCE);
	assert_fields(customer, (n_errors, 0), (reasons[RBK_REASON_BREAKER_OPEN], 0));
	assert_int_equal(n_opened(), 0);
	end();
}

/*
 * Bringing a plan back to a card takes three submissions: if every third one failed, none would
 * ever be there.
 */
static bool is_card(void)
{
	struct rbk_device devices[RBK_MAX_DEVICES];
	unsigned int n = 0;

	assert_int_equal(rbk_devices(customer.rbk, devices, RBK_MAX_DEVICES, &n), 0);
	return devices[RBK_DEVICE_GPU].kind == RBK_DEVICE_KIND_GPU;
}

/* Submissions of which one fails. Loading a plan anew takes two of a card, which are to succeed. */
static unsigned int every_few(void)
{
	return is_card() ? 5 : 3;
}

/* Every third submission: fallbacks, then the breaker, then probes, then as before. */
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
	/* A probe that fails is a fallback, too, and opens it again. */
	run_until(RBK_DEVICE_CPU, RBK_REASON_CPU_FALLBACK);
	run_until(RBK_DEVICE_CPU, RBK_REASON_BREAKER_OPEN);
	/* It does not get away with opening a device that works now and then anew. */
	assert_true(n_opened() >= 1);
	atomic_store(&layer->every, 0);
	run_until(RBK_DEVICE_GPU, RBK_REASON_USER_PREFERENCE);
	/* Closed: all of them are there again. */
	for (unsigned int i = 0; i < 40; i++)
		run_until(RBK_DEVICE_GPU, RBK_REASON_USER_PREFERENCE);
	assert_fields(customer, (n_errors, 0), (n_right, customer.n_done));
	end();
}

/* With many in flight, split ones among them: none is lost, all are right. */
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
	/* Who is out of use is not tried more often than it takes: a fifth is much. */
	assert_true(atomic_load(&layer->n_failed) < customer.n_done / 5);
	end();
}

/* Who may run nowhere else is told: -EIO, or -ENODEV while the device is away or out of use. */
TEST(test_only_gpu__is_told)
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
