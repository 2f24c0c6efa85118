/* SPDX-License-Identifier: MIT */
/*
 * Leases through a real broker, with a software Vulkan device of 64 MiB
 *
 * Nothing is allocated here: a lease is a promise, and what members do with it is theirs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <ringbroker/lease.h>

#include "integration/harness.h"

#define MIB (1ull << 20)
#define GPU RBK_DEVICE_GPU

enum { DEVICE_MIB = 64 };

static struct broker broker;
/* Of the same tenant as all others, to ask what that has. */
static struct rbk *watcher;

static void begin_with(const char *policy)
{
	broker_start(&broker, &(struct broker_options){
				      .policy = policy,
				      .args = (const char *const[]){
					      "--gpu=software", "--device-memory", "64MiB", NULL}});
	watcher = broker_connect(&broker, "watcher");
	if (broker_has_gpu(watcher))
		return;
	rbk_disconnect(watcher);
	broker_stop(&broker);
	print_message("no software Vulkan device here\n");
	_exit(77);
}

static int begin(void **state)
{
	begin_with(NULL);
	return 0;
}

static int end(void **state)
{
	rbk_disconnect(watcher);
	broker_stop(&broker);
	broker_remove(&broker);
	return 0;
}

static uint64_t used(void)
{
	struct rbk_tenant tenant;

	assert_int_equal(rbk_tenant(watcher, &tenant), 0);
	return tenant.devices[GPU].vram.used;
}

static void expect_used(uint64_t bytes)
{
	uint64_t deadline_ns = harness_now_ns() + harness_slow_ns(10000000000);

	while (used() != bytes && harness_now_ns() < deadline_ns)
		harness_sleep_ms(5);
	assert_int_equal(used(), bytes);
}

static int try_open(struct rbk *rbk, uint64_t min_mib, uint64_t wish_mib, uint64_t max_mib,
		    struct rbk_lease **ret, struct rbk_error *error)
{
	const struct rbk_lease_options options = {
		.device = GPU,
		.min_bytes = min_mib * MIB,
		.wish_bytes = wish_mib * MIB,
		.max_bytes = max_mib * MIB,
		.program = "test",
	};

	return rbk_lease_open(rbk, &options, ret, error);
}

static struct rbk_lease *open_lease(struct rbk *rbk, uint64_t wish_mib, uint64_t max_mib)
{
	struct rbk_lease *lease;
	struct rbk_error error;

	if (try_open(rbk, wish_mib, wish_mib, max_mib, &lease, &error))
		fail_msg("%s", error.text);
	return lease;
}

static struct rbk_lease *join(struct rbk *rbk, uint32_t number)
{
	struct rbk_lease *lease;
	struct rbk_error error;

	if (rbk_lease_open(rbk, &(struct rbk_lease_options){.join = number}, &lease, &error))
		fail_msg("%s", error.text);
	return lease;
}

static int take(struct rbk_lease *lease, uint64_t mib)
{
	uint64_t bytes = 0;
	int r = rbk_lease_take(lease, mib * MIB, mib * MIB, 0, NULL, &bytes, NULL);

	if (r == 0)
		assert_int_equal(bytes, mib * MIB);
	return r;
}

static uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static void test_open(void **state)
{
	struct rbk *rbk = broker_connect(&broker, "opener"), *other;
	const struct rbk_lease_page *page;
	struct rbk_lease *lease, *joined;
	struct rbk_error error;

	assert_true(rbk_features(rbk) & RBK_FEAT_LEASES);
	lease = open_lease(rbk, 16, 24);
	expect_used(16 * MIB);
	page = rbk_lease_page(lease);
	assert_int_equal(page->magic, RBK_LEASE_PAGE_MAGIC);
	assert_int_equal(page->lease, rbk_lease_number(lease));
	assert_int_equal(rbk_lease_device(lease), GPU);
	assert_int_equal(load(&page->granted_bytes), 16 * MIB);
	assert_int_equal(load(&page->max_bytes), 24 * MIB);
	assert_int_equal(load(&page->credited_bytes), 0);
	assert_int_equal(try_open(rbk, 1, 1, 1, &joined, &error), -EALREADY);

	/* Another member draws from the same. */
	other = broker_connect(&broker, "joiner");
	joined = join(other, rbk_lease_number(lease));
	assert_int_equal(take(lease, 10), 0);
	assert_int_equal(take(joined, 6), 0);
	assert_int_equal(load(&page->credited_bytes), 16 * MIB);
	expect_used(16 * MIB);
	/* It grows up to its maximum, and no further. */
	assert_int_equal(take(joined, 8), 0);
	expect_used(24 * MIB);
	assert_int_equal(take(joined, 1), -ENOMEM);
	assert_int_equal(rbk_lease_give(joined, 14 * MIB + 1, NULL), -EINVAL);
	assert_int_equal(rbk_lease_give(joined, 12 * MIB, NULL), 0);
	/* What it grew goes, what was wished for stays. */
	expect_used(16 * MIB);

	/* The last one out. */
	rbk_disconnect(rbk);
	rbk_lease_close(lease);
	expect_used(16 * MIB);
	rbk_lease_close(joined);
	rbk_disconnect(other);
	expect_used(0);
}

static void test_refusals(void **state)
{
	struct rbk *rbk = broker_connect(&broker, "greedy"), *other;
	const struct rbk_lease_options nowhere = {.device = 7, .max_bytes = 1};
	const struct rbk_lease_options nobody = {.join = 12345678};
	struct rbk_lease *lease, *none;
	struct rbk_error error;
	char text[64];

	assert_int_equal(try_open(rbk, 65, 65, 65, &none, &error), -EDQUOT);
	assert_non_null(strstr(error.text, "vram-max"));
	assert_int_equal(try_open(rbk, 2, 1, 3, &none, &error), -EINVAL);
	assert_int_equal(rbk_lease_open(rbk, &nowhere, &none, &error), -ENODEV);
	assert_int_equal(rbk_lease_open(rbk, &nobody, &none, &error), -ENOENT);
	lease = open_lease(rbk, 60, 60);
	other = broker_connect(&broker, "late");
	assert_int_equal(try_open(other, 8, 8, 8, &none, &error), -ENOMEM);
	snprintf(text, sizeof(text), "requires %llu bytes", 8 * MIB);
	assert_non_null(strstr(error.text, text));
	snprintf(text, sizeof(text), "%llu are available", 4 * MIB);
	assert_non_null(strstr(error.text, text));
	assert_non_null(strstr(error.text, "tenant default"));
	/* It takes what there is of its wish. */
	assert_int_equal(try_open(other, 2, 8, 8, &none, &error), 0);
	assert_int_equal(load(&rbk_lease_page(none)->granted_bytes), 4 * MIB);
	expect_used(64 * MIB);
	rbk_lease_close(none);
	rbk_lease_close(lease);
	rbk_disconnect(rbk);
	rbk_disconnect(other);
	expect_used(0);
}

/* Killed in the middle: nothing is left. */
static void test_kill(void **state)
{
	char byte;
	int ready[2];
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct rbk *rbk = broker_connect(&broker, "victim");
		struct rbk_lease *lease = open_lease(rbk, 20, 40);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (take(lease, 30) == 0)
			(void)!write(ready[1], "x", 1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	expect_used(30 * MIB);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	expect_used(0);
	close(ready[0]);
	close(ready[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_kill),
	};

	harness_limit_seconds(120);
	return cmocka_run_group_tests(tests, begin, end);
}
