/* SPDX-License-Identifier: MIT */
/* Checked arithmetic at the edges of 64 bits. */
#include <stdlib.h>

#include "support/test.h"
#include "util/checked.h"
#include "util/cleanup.h"

TEST(test_add__edges)
{
	uint64_t sum = 42;

	assert_true(checked_add(0, 0, &sum));
	assert_int_equal(sum, 0);
	assert_true(checked_add(UINT64_MAX - 5, 5, &sum));
	assert_true(sum == UINT64_MAX);
	assert_false(checked_add(UINT64_MAX, 1, &sum));
	assert_false(checked_add(UINT64_MAX, UINT64_MAX, &sum));
}

TEST(test_mul__edges)
{
	uint64_t product = 42;

	assert_true(checked_mul(UINT64_MAX, 0, &product));
	assert_int_equal(product, 0);
	assert_true(checked_mul(UINT32_MAX, UINT32_MAX, &product));
	assert_true(product == 0xfffffffe00000001ull);
	assert_true(checked_mul(UINT64_MAX / 3, 3, &product));
	assert_true(product == UINT64_MAX);
	assert_false(checked_mul(1ull << 32, 1ull << 32, &product));
	assert_false(checked_mul(UINT64_MAX, 2, &product));
}

TEST(test_range__edges)
{
	static const struct {
		uint64_t offset, bytes, limit;
		bool fits;
	} cases[] = {
		{0, 0, 0, true},
		{0, 1, 0, false},
		{1, 0, 0, false},
		{0, 10, 10, true},
		{0, 11, 10, false},
		{10, 0, 10, true},
		{9, 1, 10, true},
		{9, 2, 10, false},
		{11, 0, 10, false},
		{UINT64_MAX, 0, 10, false},
		{10, UINT64_MAX, 10, false},
		{UINT64_MAX, UINT64_MAX, UINT64_MAX, false},
		{1, UINT64_MAX, UINT64_MAX, false},
		{0, UINT64_MAX, UINT64_MAX, true},
		{UINT64_MAX - 1, 1, UINT64_MAX, true},
		{5, UINT64_MAX - 4, 10, false}, /* the sum wraps to 0 */
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(checked_range(cases[i].offset, cases[i].bytes, cases[i].limit),
				 cases[i].fits);
}

TEST(test_align__edges)
{
	uint64_t up = 42;

	assert_true(checked_align(0, 64, &up));
	assert_int_equal(up, 0);
	assert_true(checked_align(1, 64, &up));
	assert_int_equal(up, 64);
	assert_true(checked_align(64, 64, &up));
	assert_int_equal(up, 64);
	assert_true(checked_align(65, 64, &up));
	assert_int_equal(up, 128);
	assert_true(checked_align(77, 1, &up));
	assert_int_equal(up, 77);
	assert_true(checked_align(UINT64_MAX - 63, 64, &up));
	assert_true(up == UINT64_MAX - 63);
	assert_false(checked_align(UINT64_MAX - 62, 64, &up));
	assert_false(checked_align(UINT64_MAX, 4096, &up));
}

TEST(test_container_of__member)
{
	struct outer {
		char before[3];
		uint32_t member;
	} outer = {.member = 5};
	uint32_t *member = &outer.member;

	assert_ptr_equal(container_of(member, struct outer, member), &outer);
}

static unsigned int n_freed;

struct thing {
	int value;
};

static struct thing *thing_free(struct thing *thing)
{
	n_freed++;
	free(thing);
	return NULL;
}

DEFINE_CLEANUP(struct thing *, thing_free)

static struct thing *thing_keep(bool keep)
{
	_cleanup_(thing_freep) struct thing *thing = calloc(1, sizeof(*thing));

	return keep ? steal_ptr(thing) : NULL;
}

TEST(test_cleanup__ownership)
{
	_cleanup_(thing_freep) struct thing *none = NULL;
	struct thing *kept;
	int fd = 7;

	assert_null(thing_keep(false));
	assert_int_equal(n_freed, 1);
	kept = thing_keep(true);
	assert_non_null(kept);
	assert_int_equal(n_freed, 1);
	thing_free(kept);
	assert_int_equal(steal_fd(&fd), 7);
	assert_int_equal(fd, -1);
	assert_int_equal(close_fd(-1), -1);
	assert_null(none);
}
