/* SPDX-License-Identifier: MIT */
/* The broker, its neighbour and its observer, for tests of hostile clients; see hostile.h. */
#include "integration/hostile.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/describe.h"
#include "support/test.h"

struct broker broker;
struct neighbour *neighbour;
struct rbk *observer;
struct rbk_stats stats_before;
struct broker_usage usage_before;
uint64_t results_before;

int hostile_begin_with(const struct broker_options *options)
{
	if (options) {
		observer = broker_start_gpu(&broker, options, "observer");
	} else {
		broker_start(&broker, NULL);
		observer = broker_connect(&broker, "observer");
	}
	neighbour = neighbour_start(&broker);
	/* The harness's test connection may still be open. */
	broker_wait_sessions(observer, 2);
	neighbour_finish_round(neighbour);
	assert_int_equal(rbk_stats(observer, &stats_before), 0);
	broker_usage_least(&broker, &usage_before);
	results_before = neighbour_results(neighbour);
	return 0;
}

int hostile_begin(void **state)
{
	return hostile_begin_with(NULL);
}

void hostile_expect_nothing_left(void)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(20000000000);
	struct broker_usage usage;
	struct rbk_stats stats;

	broker_wait_sessions(observer, 2);
	broker_wait_host_bytes(observer, stats_before.host_bytes);
	broker_wait_fds(&broker, usage_before.n_fds);
	/* The neighbour's plan may be resident on the device or evicted. */
	while (broker_vram_used(observer) >= MIB && harness_now_ns() < end_ns)
		harness_sleep_ms(2);
	assert_true(broker_vram_used(observer) < MIB);
	assert_int_equal(rbk_stats(observer, &stats), 0);
	assert_int_equal(stats.rings, stats_before.rings);
	assert_int_equal(stats.arenas, stats_before.arenas);
	assert_int_equal(stats.plans, stats_before.plans);
	broker_usage(&broker, &usage);
	assert_int_equal(usage.n_threads, usage_before.n_threads);
}

int hostile_end(void **state)
{
	hostile_expect_nothing_left();
	neighbour_finish_round(neighbour);
	assert_true(neighbour_results(neighbour) > results_before);
	neighbour = neighbour_stop(neighbour);
	observer = rbk_disconnect(observer);
	broker_stop(&broker);
	return 0;
}

int hostile_session_with(uint64_t features)
{
	int fd = raw_connect(&broker);

	raw_hello_with(fd, features);
	return fd;
}

int hostile_session(void)
{
	return hostile_session_with(RBK_FEAT_FIXED_ARENAS);
}

void hostile_expect_ended(const void *bytes, size_t n_bytes, const int *fds, unsigned int n_fds)
{
	int fd = hostile_session();

	assert_int_equal(raw_send(fd, bytes, n_bytes, fds, n_fds), n_bytes);
	raw_expect_closed(fd);
	close(fd);
}

uint32_t hostile_plan(int fd, struct describe *describe)
{
	size_t bytes;
	void *desc = describe_finish(describe, &bytes);
	uint32_t id = 0;

	assert_int_equal(raw_plan_add(fd, desc, bytes, &id), 0);
	free(desc);
	return id;
}

struct describe *hostile_add(void)
{
	struct describe *d = describe_new("add", 1);

	describe_input(d, "x", DESCRIBE_DIMS(16));
	describe_input(d, "y", DESCRIBE_DIMS(16));
	describe_output(d, "z", DESCRIBE_DIMS(16));
	describe_node(d, "Add", "add", "x,y", "z");
	return d;
}

int hostile_reopen(int fd, int flags)
{
	char path[64];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, flags | O_CLOEXEC);
	assert_true(again >= 0);
	close(fd);
	return again;
}
