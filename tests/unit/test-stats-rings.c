/* SPDX-License-Identifier: MIT */
/* Rings beside the decision log: segments and timeslices in a tenant's page. */
#include "stats/stats.h"
#include "support/test.h"

enum { N_DEVICES = 2, GPU = 1 };

struct kit {
	struct stats *stats;
	struct stats_tenant *tenant;
	struct rbk_stats_view view;
};

static int setup(void **state)
{
	static struct kit kit;
	struct stats_page page;

	kit = (struct kit){.stats = NULL};
	assert_int_equal(stats_new(N_DEVICES, 1000, &kit.stats), 0);
	assert_int_equal(stats_tenant_new(kit.stats, 7, "web", &kit.tenant), 0);
	assert_int_equal(stats_tenant_page_new(kit.stats, &page), 0);
	stats_tenant_map(kit.tenant, &page, 1000);
	assert_true(rbk_stats_view(&kit.view, page.header, page.bytes));
	*state = &kit;
	return 0;
}

static int teardown(void **state)
{
	struct kit *kit = *state;

	stats_free(kit->stats);
	return 0;
}

static struct rbk_stats_tenant totals_of(const struct rbk_stats_view *view)
{
	struct rbk_stats_tenant totals;

	assert_true(rbk_stats_copy(&totals, rbk_stats_record(view, RBK_STATS_SECTION_TENANTS, 0),
				   sizeof(totals)));
	return totals;
}

/* Every member of a segment is read as it was logged, beside the task that is logged next. */
TEST(test_log__segments, setup, teardown)
{
	const uint64_t n = 2 * STATS_SEGMENT_RECORDS + 3;
	struct kit *kit = *state;
	struct rbk_stats_segment read = {.sequence = 0};
	static struct stats_plan plan;
	struct stats_segment segment = {
		.ended_ns = 1000,
		.queue_ns = 20,
		.exec_ns = 300,
		.predicted_ns = 250,
		.other_ns = 4000,
		.n_segments = 64,
		.flags = RBK_DECISION_MOVED,
		.device = GPU,
		.reason = RBK_REASON_MEMORY_CONSTRAINT,
		.from = UINT64_C(1) << 62,
		.crossed_bytes = UINT64_C(5) << 32,
		.first_node = 7,
		.n_nodes = 0xffff,
		.batch = 6,
		.n_batches = 0x8001,
	};
	static const char name[RBK_NAME_BYTES] = "plan";
	const struct stats_plan_about about = {name, 1, 5, 0xabcdef, &plan};
	const struct stats_task task = {.ended_ns = 5000, .device = GPU};

	stats_plan_init(&plan, kit->tenant, &about, 2000);
	stats_task_done(&plan, &task);
	for (uint64_t i = 0; i < n; i++) {
		segment.segment = (uint16_t)(i % 64);
		stats_segment_done(&plan, &segment);
	}
	assert_int_equal(totals_of(&kit->view).segments_head, n);
	for (uint64_t i = 0; i < n + STATS_SEGMENT_RECORDS; i++) {
		const bool is_there = i < n && i >= n - STATS_SEGMENT_RECORDS;

		assert_int_equal(rbk_stats_segment(&kit->view, i, &read), is_there);
		if (!is_there)
			continue;
		assert_int_equal(read.segment, i % 64);
		assert_int_equal(read.task, 1);
	}
	assert_true(rbk_stats_segment(&kit->view, n - 1, &read));
	assert_fields(read, (ended_at_ns, 1000), (n_segments, 64), (flags, RBK_DECISION_MOVED),
		      (device, GPU), (reason, RBK_REASON_MEMORY_CONSTRAINT),
		      (from, UINT64_C(1) << 62), (crossed_bytes, UINT64_C(5) << 32),
		      (first_node, 7), (n_nodes, 0xffff), (batch, 6), (n_batches, 0x8001));
	assert_true(read.queue_ns == 20 && read.exec_ns == 300 && read.predicted_ns == 250 &&
		    read.other_ns == 4000);
	stats_plan_deinit(&plan);
}

/* Every member of a timeslice is read as it was logged, while the tenant has a page. */
TEST(test_log__slices, setup, teardown)
{
	const uint64_t n = 2 * STATS_SLICE_RECORDS + 3;
	struct kit *kit = *state;
	struct rbk_stats_slice read = {.sequence = 0};
	struct rbk_stats_slice slice = {
		.sequence = 77,
		.ended_for = 5,
		.wanted_at_ns = UINT64_C(1) << 40,
		.began_at_ns = UINT64_C(2) << 40,
		.closed_at_ns = UINT64_C(3) << 40,
		.ended_at_ns = UINT64_C(4) << 40,
		.plans_ns = UINT64_C(5) << 40,
		.device = GPU,
		.priority = RBK_PRIORITY_URGENT,
		.flags = RBK_STATS_SLICE_OVERDUE | RBK_STATS_SLICE_ALONE,
	};
	struct stats_page page;

	for (uint64_t i = 0; i < n; i++) {
		slice.lease = (uint32_t)i;
		stats_slice_ended(kit->tenant, &slice);
	}
	assert_int_equal(totals_of(&kit->view).slices_head, n);
	for (uint64_t i = 0; i < n + STATS_SLICE_RECORDS; i++) {
		const bool is_there = i < n && i >= n - STATS_SLICE_RECORDS;

		assert_int_equal(rbk_stats_slice(&kit->view, i, &read), is_there);
		if (!is_there)
			continue;
		assert_int_equal(read.sequence, i + 1);
		assert_int_equal(read.lease, i);
	}
	assert_true(rbk_stats_slice(&kit->view, n - 1, &read));
	slice.sequence = n;
	assert_memory_equal(&read, &slice, sizeof(read));

	page = stats_tenant_unmap(kit->tenant, 3000);
	stats_slice_ended(kit->tenant, &slice);
	assert_int_equal(kit->tenant->totals->slices_head, n);
	stats_page_free(&page);
}

TEST_MAIN(NULL, NULL)
