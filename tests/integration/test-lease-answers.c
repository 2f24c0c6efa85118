/* SPDX-License-Identifier: MIT */
/*
 * Leases of a broker that stops and continues, with a software Vulkan device of 64 MiB
 *
 * Whatever members request or give back meanwhile, no credit is counted twice, and none is lost.
 */
#include <errno.h>
#include <signal.h>
#include <unistd.h>
#include <ringbroker/lease.h>

#include "integration/harness.h"
#include "support/test.h"

#define MIB (1ull << 20)

static struct broker broker;

static int begin(void **state)
{
	rbk_disconnect(broker_start_gpu(
		&broker,
		&(struct broker_options){.args = (const char *const[]){"--gpu=software",
								       "--device-memory=64MiB",
								       NULL}},
		"observer"));
	return 0;
}

static int end(void **state)
{
	broker_stop(&broker);
	broker_remove(&broker);
	return 0;
}

static int take(struct rbk_lease *lease, uint64_t mib)
{
	struct rbk_error error;
	uint64_t bytes;

	return rbk_lease_take(lease, mib * MIB, mib * MIB, 0, NULL, &bytes, &error);
}

static uint64_t credited(const struct rbk_lease *lease)
{
	return __atomic_load_n(&rbk_lease_page(lease)->credited_bytes, __ATOMIC_RELAXED);
}

/*
 * Wait until the lease's credit is @bytes. With @asks, the library must read a reply before the
 * credit changes.
 */
static void expect_credited(struct rbk_lease *lease, uint64_t bytes, bool asks)
{
	uint64_t deadline_ns = harness_now_ns() + harness_slow_ns(10000000000);

	while (credited(lease) != bytes && harness_now_ns() < deadline_ns) {
		harness_sleep_ms(5);
		if (asks)
			rbk_lease_give(lease, 0, NULL);
	}
	assert_int_equal(credited(lease), bytes);
}

/* Repeat take() until the broker answers. */
static void take_soon(struct rbk_lease *lease, uint64_t mib)
{
	int r;

	while ((r = take(lease, mib)) == -ETIME)
		harness_sleep_ms(1);
	assert_int_equal(r, 0);
}

/* Open a lease on a connection of its own. */
static struct rbk_lease *open_lease(uint64_t bytes, struct rbk_options *ret_options,
				    struct rbk **ret_rbk)
{
	const struct rbk_lease_options wanted = {
		.device = RBK_DEVICE_GPU,
		.min_bytes = bytes,
		.wish_bytes = bytes,
		.program = "test",
	};
	struct rbk_lease *lease;
	struct rbk_error error;

	*ret_options = (struct rbk_options){
		.size = sizeof(*ret_options),
		.socket_path = broker.socket_path,
		.timeout_ns = harness_slow_ns(1000000000),
	};
	assert_int_equal(rbk_connect(ret_options, ret_rbk, &error), 0);
	if (rbk_lease_open(*ret_rbk, &wanted, &lease, &error))
		fail_msg("%s", error.text);
	return lease;
}

static void close_lease(struct rbk_lease *lease, struct rbk *rbk)
{
	rbk_lease_close(lease);
	rbk_disconnect(rbk);
}

/* Credit that arrives after its request has timed out is given back. */
TEST(test_late_credit)
{
	struct rbk_options options;
	struct rbk *rbk;
	struct rbk_lease *lease = open_lease(8 * MIB, &options, &rbk);

	kill(broker.pid, SIGSTOP);
	assert_int_equal(take(lease, 4), -ETIME);
	kill(broker.pid, SIGCONT);
	expect_credited(lease, 4 * MIB, false);
	/* The next call of the member reads the late reply. */
	rbk_lease_give(lease, 0, NULL);
	expect_credited(lease, 0, false);
	assert_int_equal(take(lease, 8), 0);
	close_lease(lease, rbk);
}

/*
 * Credit that a member gives back while the broker is stopped is the broker's, once: the member
 * does not have it any more, and it is not lost. Only the first call waits for the timeout.
 */
TEST(test_late_return)
{
	struct rbk_options options;
	struct rbk *rbk;
	struct rbk_lease *lease = open_lease(20 * MIB, &options, &rbk);
	struct rbk_error error;
	uint64_t charged, begin_ns;

	assert_int_equal(take(lease, 20), 0);
	assert_int_equal(rbk_lease_object_add(lease, 3, 1, 2 * MIB, 2 * MIB, &charged, &error), 0);
	kill(broker.pid, SIGSTOP);
	assert_int_equal(rbk_lease_give(lease, 5 * MIB, NULL), 0);
	begin_ns = harness_now_ns();
	assert_int_equal(rbk_lease_give(lease, MIB, NULL), 0);
	assert_int_equal(rbk_lease_object_drop(lease, 3, 1), 0);
	assert_int_equal(rbk_lease_object_drop(lease, 3, 1), -ENOENT);
	assert_int_equal(rbk_lease_object_add(lease, 3, 2, 2 * MIB, 2 * MIB, &charged, &error),
			 -ETIME);
	assert_int_equal(take(lease, 1), -ETIME);
	assert_true(harness_now_ns() - begin_ns < options.timeout_ns / 2);
	kill(broker.pid, SIGCONT);
	expect_credited(lease, 12 * MIB, false);
	take_soon(lease, 1);
	assert_int_equal(take(lease, 7), 0);
	assert_int_equal(take(lease, 1), -ENOMEM);
	/*
	 * An object that the member has paid for but the broker has not read yet; then an object
	 * that the broker rejects, which shows when the member drops it.
	 */
	kill(broker.pid, SIGSTOP);
	assert_int_equal(rbk_lease_object_add(lease, 3, 3, 2 * MIB, 2 * MIB, &charged, &error), 0);
	assert_int_equal(charged, 2 * MIB);
	assert_int_equal(rbk_lease_object_drop(lease, 3, 3), 0);
	kill(broker.pid, SIGCONT);
	expect_credited(lease, 18 * MIB, false);
	take_soon(lease, 1);
	kill(broker.pid, SIGSTOP);
	assert_int_equal(rbk_lease_object_add(lease, 3, 4, UINT64_MAX, 2 * MIB, &charged, &error),
			 0);
	assert_int_equal(rbk_lease_object_drop(lease, 3, 4), 0);
	kill(broker.pid, SIGCONT);
	/* The next call reads the rejection, and gives the remaining credit back. */
	expect_credited(lease, 17 * MIB, true);
	assert_int_equal(take(lease, 3), 0);
	assert_int_equal(take(lease, 1), -ENOMEM);
	close_lease(lease, rbk);
}

TEST_MAIN(begin, end, harness_limit_seconds(60))
