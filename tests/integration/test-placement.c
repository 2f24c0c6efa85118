/* SPDX-License-Identifier: MIT */
/*
 * Placement on real devices: tasks split over two devices, long tasks cut into several submissions,
 * and a tenant's quota of CPU time. Results are small integers, the same on every device.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <ringbroker/stats.h>

#include "integration/harness.h"
#include "integration/plans.h"
#include "support/test.h"

enum { N = 128, MAX_ROWS = 1000, W_AT = 1 << 20, Y_AT = 2 << 20, ARENA_BYTES = 4 << 20 };

static struct broker broker;
static struct rbk *rbk;
static struct rbk_arena *arena;
static struct rbk_ring *ring;
static struct rbk_plan *product; /* [count,N] x [N,N] */

static float *at(uint64_t offset)
{
	return (float *)((char *)rbk_arena_data(arena) + offset);
}

static float input(uint32_t row, uint32_t k)
{
	return (float)((int)((row * 7 + k * 3) % 5) - 2);
}

static float weight(uint32_t k, uint32_t j)
{
	return (float)((int)((k + j * 11) % 7) - 3);
}

static void connect_to(const char *const *args, const char *policy)
{
	broker_start(&broker, &(struct broker_options){.args = args, .policy = policy});
	rbk = broker_connect(&broker, "placement");
	assert_int_equal(rbk_arena_new(rbk, ARENA_BYTES, &arena, NULL), 0);
	assert_int_equal(rbk_ring_new(rbk, 64, &ring, NULL), 0);
	assert_int_equal(plan_product(rbk, MAX_ROWS, N, N, NULL, &product, NULL), 0);
	for (uint32_t i = 0; i < MAX_ROWS; i++)
		for (uint32_t k = 0; k < N; k++)
			at(0)[i * N + k] = input(i, k);
	for (uint32_t k = 0; k < N; k++)
		for (uint32_t j = 0; j < N; j++)
			at(W_AT)[k * N + j] = weight(k, j);
}

static void disconnect(void)
{
	product = rbk_plan_free(product);
	ring = rbk_ring_free(ring);
	arena = rbk_arena_free(arena);
	rbk = rbk_disconnect(rbk);
	broker_stop(&broker);
}

static void put(uint32_t count, unsigned int strategy, unsigned int flags)
{
	const uint64_t refs[] = {rbk_arena_ref(arena, 0), rbk_arena_ref(arena, W_AT),
				 rbk_arena_ref(arena, Y_AT)};
	struct rbk_sqe *sqe = rbk_get_sqe(ring);

	assert_non_null(sqe);
	rbk_prep_run(sqe, rbk_plan_id(product), count, refs, 3);
	rbk_sqe_set_strategy(sqe, strategy);
	rbk_sqe_set_flags(sqe, flags);
	assert_int_equal(rbk_submit(ring), 1);
}

static struct rbk_cqe take(void)
{
	const struct rbk_cqe *cqe;
	struct rbk_cqe copy;

	assert_int_equal(rbk_wait_cqe(ring, &cqe), 0);
	copy = *cqe;
	rbk_cqe_seen(ring, cqe);
	return copy;
}

/* Run one task; check its whole output, and that the row after it is unchanged. */
static struct rbk_cqe run(uint32_t count, unsigned int strategy, unsigned int flags)
{
	struct rbk_cqe cqe;
	float sum;

	memset(at(Y_AT), 0xff, (MAX_ROWS + 1) * N * sizeof(float));
	put(count, strategy, flags);
	cqe = take();
	assert_int_equal(cqe.res, 0);
	for (uint32_t i = 0; i < count; i++) {
		for (uint32_t j = 0; j < N; j++) {
			sum = 0;
			for (uint32_t k = 0; k < N; k++)
				sum += input(i, k) * weight(k, j);
			if (at(Y_AT)[i * N + j] != sum)
				fail_msg("%u rows: row %u, column %u is %g, not %g", count, i, j,
					 (double)at(Y_AT)[i * N + j], (double)sum);
		}
	}
	for (uint32_t j = 0; j < N; j++)
		assert_true(at(Y_AT)[count * N + j] != at(Y_AT)[count * N + j]);
	return cqe;
}

static bool begin_with_gpu(const char *const *args)
{
	connect_to(args, NULL);
	if (broker_has_gpu(rbk))
		return true;
	disconnect();
	print_message("no software Vulkan device here\n");
	return false;
}

/* Check that both devices' time was counted. */
static void expect_both_worked(void)
{
	struct rbk_stats_tenant totals;
	struct rbk_stats_view view;
	struct rbk_error error;

	assert_int_equal(rbk_stats_map(rbk, RBK_STATS_OWN, 0, &view, &error), 0);
	assert_true(
		harness_stats_copy(&view, RBK_STATS_SECTION_TENANTS, 0, &totals, sizeof(totals)));
	assert_true(totals.devices[RBK_DEVICE_CPU].device_ns > 0);
	assert_true(totals.devices[RBK_DEVICE_GPU].device_ns > 0);
	rbk_stats_unmap(&view);
}

/* Both devices write into one output. */
TEST(test_partition__is_joined)
{
	static const uint32_t counts[] = {2, 3, 17, 64, 999, MAX_ROWS};
	struct rbk_cqe cqe;

	if (!begin_with_gpu((const char *const[]){"--gpu=software", NULL}))
		skip();
	assert_true(rbk_features(rbk) & RBK_FEAT_PARTITION);
	assert_true(rbk_features(rbk) & RBK_FEAT_PRIORITY);
	assert_true(rbk_features(rbk) & RBK_FEAT_STRATEGIES);
	run(MAX_ROWS, RBK_STRATEGY_PARTITION, 0);
	expect_both_worked();
	for (unsigned int i = 0; i < 60; i++) {
		cqe = run(counts[i % 6], RBK_STRATEGY_PARTITION, 0);
		assert_int_equal(cqe.flags & RBK_CQE_PARTITIONED, RBK_CQE_PARTITIONED);
		assert_int_equal(cqe.reason, RBK_REASON_USER_PREFERENCE);
		assert_true(cqe.device == RBK_DEVICE_CPU || cqe.device == RBK_DEVICE_GPU);
		/* These tasks are too small to be split, unless the entry asks for it. */
		cqe = run(counts[i % 6], RBK_STRATEGY_AUTO, RBK_SQE_PARTITION);
		assert_int_equal(cqe.flags & RBK_CQE_PARTITIONED, 0);
	}
	disconnect();
}

/* Many tasks in flight, each of which needs both devices. */
TEST(test_partition__many)
{
	if (!begin_with_gpu((const char *const[]){"--gpu=software", NULL}))
		skip();
	for (unsigned int round = 0; round < 5; round++) {
		for (unsigned int i = 0; i < 60; i++)
			put(40 + i, RBK_STRATEGY_PARTITION, 0);
		for (unsigned int i = 0; i < 60; i++)
			assert_int_equal(take().res, 0);
	}
	run(MAX_ROWS, RBK_STRATEGY_PARTITION, 0);
	disconnect();
}

/* Parts take about a tenth of a millisecond, as far as the broker can predict. */
TEST(test_long__in_several_submissions)
{
	static const unsigned int strategies[] = {RBK_STRATEGY_ONLY_CPU, RBK_STRATEGY_ONLY_GPU,
						  RBK_STRATEGY_PARTITION};
	const char *const args[] = {"--gpu=software", "--submission-max=0.1ms", NULL};
	struct rbk_cqe cqe;

	if (!begin_with_gpu(args))
		skip();
	for (unsigned int i = 0; i < 30; i++) {
		cqe = run(MAX_ROWS - i, strategies[i % 3], 0);
		assert_int_equal(cqe.flags & RBK_CQE_PARTITIONED,
				 i % 3 == 2 ? RBK_CQE_PARTITIONED : 0);
	}
	disconnect();
}

/* A tenant limited to a hundredth of a processor gets all its work done, later. */
TEST(test_quota__takes_longer)
{
	uint64_t start_ns, used_ns = 0;
	struct rbk_cqe cqe;

	connect_to((const char *const[]){"--gpu=none", NULL}, "[tenant default]\ncpu-max = 1%\n");
	start_ns = harness_now_ns();
	/* A few milliseconds: more than the bucket holds at first. */
	while (used_ns < 3000000) {
		cqe = run(100, RBK_STRATEGY_ONLY_CPU, 0);
		used_ns += cqe.exec_ns;
	}
	run(100, RBK_STRATEGY_ONLY_CPU, 0);
	/*
	 * The bucket holds 1 ms at first, and gains 1 % of the time. Before the last task it must
	 * gain 2 ms.
	 */
	assert_true(harness_now_ns() - start_ns > 50000000);
	disconnect();
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(60))
