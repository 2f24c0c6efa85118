/* SPDX-License-Identifier: MIT */
/* The segments of a task, found among those of other tasks; some are overwritten. */
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
