/* SPDX-License-Identifier: MIT */
/* Logs of segments and of timeslices: those that were overwritten, and damaged ones. */
#include <errno.h>

#include "brokerctl/logs.h"
#include "support/test.h"
#include "util/checked.h"

static struct segment_entry entry(unsigned int tenant, uint64_t task, uint64_t sequence,
				  uint16_t number)
{
	return (struct segment_entry){
		.tenant = tenant,
		.segment = {
			.sequence = sequence, .task = task, .segment = number, .n_segments = 3}};
}

/* Return the number of segments that are found, and assert that they begin with entry @first. */
static uint32_t n_found(const struct segment_entry *entries, size_t n_entries, unsigned int tenant,
			uint64_t task, int16_t res, size_t first)
{
	const struct rbk_stats_decision decision = {.sequence = task + 1, .res = res};
	const struct segment_entry *found;
	uint32_t n;

	found = segments_find(entries, n_entries, tenant, &decision, &n);
	assert_true(n > 0 ? found == &entries[first] : found == NULL);
	return n;
}

TEST(test_segments_find__whole_tasks)
{
	const struct segment_entry entries[] = {
		/* the oldest one, whose first segment is overwritten */
		entry(0, 5, 11, 1), entry(0, 5, 12, 2),
		/* a task that failed in its second segment */
		entry(0, 6, 13, 0), entry(0, 6, 14, 1),
		/* one of whose segments the last one was overwritten while they were read */
		entry(0, 8, 15, 0), entry(0, 8, 16, 1),
		/* one with the same index, of another tenant */
		entry(1, 6, 1, 0), entry(1, 6, 2, 1), entry(1, 6, 3, 2),
		/* segments of two tasks that had one index: a page that was replaced */
		entry(1, 7, 4, 0), entry(1, 7, 6, 1), entry(1, 7, 7, 2)};
	const size_t n = ARRAY_SIZE(entries);

	assert_int_equal(n_found(entries, n, 0, 5, 0, 0), 0);
	assert_int_equal(n_found(entries, n, 0, 6, -EIO, 2), 2);
	assert_int_equal(n_found(entries, n, 0, 6, 0, 2), 0);
	assert_int_equal(n_found(entries, n, 0, 7, 0, 0), 0);
	assert_int_equal(n_found(entries, n, 0, 8, 0, 4), 0);
	assert_int_equal(n_found(entries, n, 1, 6, 0, 6), 3);
	assert_int_equal(n_found(entries, n, 1, 7, 0, 9), 0);
	assert_int_equal(n_found(entries, n, 2, 0, 0, 0), 0);
	assert_int_equal(n_found(entries, 0, 0, 5, 0, 0), 0);
}

static struct slice_entry slice(unsigned int tenant, uint8_t device, uint64_t wanted,
				uint64_t began, uint64_t closed)
{
	return (struct slice_entry){.tenant = tenant,
				    .slice = {.device = device,
					      .wanted_at_ns = wanted,
					      .began_at_ns = began,
					      .closed_at_ns = closed}};
}

TEST(test_slices_after__next_of_others)
{
	const uint64_t us = 1000;
	struct slice_entry entries[] = {
		slice(0, 1, 0, 100 * us, 200 * us),
		/* of the same tenant; it did not wait yet; of another device; it did not wait */
		slice(0, 1, 150 * us, 210 * us, 300 * us),
		slice(1, 1, 205 * us, 310 * us, 320 * us),
		slice(1, 2, 150 * us, 230 * us, 300 * us),
		slice(2, 1, 0, 330 * us, 350 * us),
		/* It is the one: clocks differ a little. */
		slice(2, 1, 201 * us, 360 * us, 0),
		slice(3, 1, 100 * us, 370 * us, 0),
	};
	const size_t n = ARRAY_SIZE(entries);

	slices_sort(entries, n);
	assert_int_equal(entries[n - 1].slice.device, 2);
	assert_int_equal(entries[0].slice.began_at_ns, 100 * us);
	assert_ptr_equal(slices_after(entries, n, &entries[0]), &entries[4]);
	assert_int_equal(entries[4].slice.wanted_at_ns, 201 * us);
	/* The last ones have no successor, and one that was not to end has none. */
	assert_null(slices_after(entries, n, &entries[5]));
	assert_null(slices_after(entries, n, &entries[6]));
	assert_null(slices_after(entries, 4, &entries[0]));
}

/* A page may hold anything. */
TEST(test_slice_copy__refuses_nonsense)
{
	enum { N = 8 };
	struct {
		struct rbk_stats_header header;
		struct rbk_stats_tenant tenant;
		struct rbk_stats_slice slices[N];
	} made = {.header = {.reset_at_ns = 50}, .tenant = {.slices_head = N}};
	struct tenant_page page = {.view = {.page = &made.header}};
	struct rbk_stats_slice copy;
	uint64_t oldest;

	page.view.sections[RBK_STATS_SECTION_TENANTS] = (struct rbk_stats_section){
		.offset = sizeof(made.header), .stride = sizeof(made.tenant), .count = 1};
	page.view.sections[RBK_STATS_SECTION_SLICES] =
		(struct rbk_stats_section){.offset = sizeof(made.header) + sizeof(made.tenant),
					   .stride = sizeof(made.slices[0]),
					   .count = N};
	for (uint64_t i = 0; i < N; i++)
		made.slices[i] = (struct rbk_stats_slice){.sequence = i + 1,
							  .device = 1,
							  .wanted_at_ns = 60,
							  .began_at_ns = 70,
							  .closed_at_ns = 80,
							  .ended_at_ns = 90};
	made.slices[1].wanted_at_ns = 71;
	made.slices[2].began_at_ns = 91;
	made.slices[3].closed_at_ns = 91;
	made.slices[4].device = RBK_MAX_DEVICES;
	made.slices[5].ended_at_ns = UINT64_MAX;
	/* It ended before the reset. */
	made.slices[6] = (struct rbk_stats_slice){.sequence = 7, .device = 1, .ended_at_ns = 49};
	made.slices[7].sequence = 0;
	assert_int_equal(slices_head(&page, &oldest), N);
	assert_int_equal(oldest, 0);
	for (uint64_t i = 0; i < N; i++)
		assert_int_equal(slice_copy(&page, i, &copy), i == 0);
	made.tenant.slices_head = N + 3;
	assert_int_equal(slices_head(&page, &oldest), N + 3);
	assert_int_equal(oldest, 3);
	/* An older broker has none. */
	page.view.sections[RBK_STATS_SECTION_SLICES].offset = 0;
	assert_int_equal(slices_head(&page, &oldest), 0);
	assert_false(slice_copy(&page, 0, &copy));
}
