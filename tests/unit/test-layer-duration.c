/* SPDX-License-Identifier: MIT */
/* Times of actions that the layer learns. */
#include <string.h>

#include "libclient/layer/duration.h"
#include "support/test.h"

enum { MS = 1000000 };

static struct durations durations;

static struct action action_of(uint64_t pipeline, uint32_t n_groups, uint64_t constants)
{
	const uint64_t sized = duration_hash(pipeline, n_groups);

	return (struct action){.exact = duration_exact(duration_hash(pipeline, constants), sized),
			       .sized = sized,
			       .pipeline = duration_hash(1, pipeline),
			       .n_groups = n_groups,
			       .fraction = 1};
}

static void forget(void)
{
	memset(&durations, 0, sizeof(durations));
}

static void learn(const struct action *action, uint64_t ns)
{
	const struct series series = {.n = 1, .actions = {*action}};

	duration_learn(&durations, &series, ns, true);
}

TEST(test_duration__from_exact_to_similar)
{
	const struct action first = action_of(7, 100, 1), other_constants = action_of(7, 100, 2),
			    larger = action_of(7, 1000, 1), unknown = action_of(8, 100, 1);

	forget();
	assert_int_equal(duration_ns(&durations, &first), 0);
	learn(&first, 3 * MS);
	assert_int_equal(duration_ns(&durations, &first), 3 * MS);
	assert_int_equal(duration_ns(&durations, &other_constants), 3 * MS);
	assert_in_range(duration_ns(&durations, &larger), 29 * MS, 30 * MS);
	assert_int_equal(duration_ns(&durations, &unknown), 0);
	/* A time that is known exactly is not mixed with what is similar. */
	learn(&other_constants, 1 * MS);
	assert_int_equal(duration_ns(&durations, &first), 3 * MS);
	assert_int_equal(duration_ns(&durations, &other_constants), 1 * MS);
}

TEST(test_duration__follows)
{
	const struct action action = action_of(7, 100, 1);
	struct series series = {.n = 1, .actions = {action}};

	forget();
	learn(&action, 8 * MS);
	learn(&action, 4 * MS);
	assert_int_equal(duration_ns(&durations, &action), 7 * MS);
	learn(&action, 13 * MS);
	assert_int_equal(duration_ns(&durations, &action), 17 * MS / 2);
	/* One time can at most double it, so that it adds a quarter at most. */
	learn(&action, 1000 * MS);
	assert_in_range(duration_ns(&durations, &action), 10 * MS, 11 * MS);
	/* A time with the way to the device in it is only an upper limit. */
	duration_learn(&durations, &series, 20 * MS, false);
	assert_in_range(duration_ns(&durations, &action), 10 * MS, 11 * MS);
	duration_learn(&durations, &series, 5 * MS, false);
	assert_int_equal(duration_ns(&durations, &action), 5 * MS);
}

/* The first time may be that of work in front, so dispatches are not divided by it. */
TEST(test_duration__sure)
{
	const struct action action = action_of(7, 100, 1), other = action_of(8, 100, 1);
	const struct series series = {.n = 1, .actions = {action}};
	bool is_sure;

	forget();
	duration_learn(&durations, &series, 48 * MS, false);
	assert_int_equal(duration_whole_ns(&durations, &action, &is_sure), 48 * MS);
	assert_false(is_sure);
	duration_learn(&durations, &series, 1 * MS, false);
	assert_int_equal(duration_whole_ns(&durations, &action, &is_sure), 1 * MS);
	assert_true(is_sure);
	learn(&other, 2 * MS);
	assert_int_equal(duration_whole_ns(&durations, &other, &is_sure), 2 * MS);
	assert_true(is_sure);
}

TEST(test_duration__slices)
{
	struct action slice = action_of(7, 100, 1), whole = slice;

	forget();
	learn(&whole, 8 * MS);
	slice.fraction = 0.25F;
	assert_int_equal(duration_ns(&durations, &slice), 2 * MS);
	learn(&slice, 1 * MS);
	assert_int_equal(duration_ns(&durations, &whole), 7 * MS);
}

/*
 * Other work before each submission, longer than a slice, is learned as the slice's, but slices
 * must not get ever smaller.
 */
TEST(test_duration__work_before_each_slice)
{
	struct action action = action_of(7, 1000, 1);

	forget();
	learn(&action, 12 * MS);
	for (unsigned int i = 0; i < 500; i++) {
		action.fraction = 1;
		action.fraction = (float)MS / (float)duration_ns(&durations, &action);
		learn(&action, 2 * MS + (uint64_t)(10 * MS * (double)action.fraction));
	}
	action.fraction = 1;
	assert_in_range(duration_ns(&durations, &action), 10 * MS, 12 * MS);
}

/* Ends are seen late by different times: what one slice seems to take less, the next takes more. */
TEST(test_duration__slices_vary)
{
	struct action action = action_of(7, 1000, 1);

	forget();
	learn(&action, 20 * MS);
	action.fraction = 0.01F;
	for (unsigned int i = 0; i < 500; i++) {
		learn(&action, MS / 10);
		learn(&action, 3 * MS / 10);
	}
	action.fraction = 1;
	assert_in_range(duration_ns(&durations, &action), 15 * MS, 20 * MS);
	/* They do take less. */
	action.fraction = 0.01F;
	for (unsigned int i = 0; i < 500; i++)
		learn(&action, MS / 10);
	action.fraction = 1;
	assert_in_range(duration_ns(&durations, &action), 9 * MS, 11 * MS);
}

TEST(test_duration__sum_corrects_gently)
{
	struct series series = {.n = 2, .actions = {action_of(7, 100, 1), action_of(8, 100, 1)}};
	const uint64_t first_ns = 2 * MS, second_ns = 6 * MS;

	forget();
	learn(&series.actions[0], first_ns);
	learn(&series.actions[1], second_ns);
	/* As predicted: nothing changes. */
	series.expected_ns = first_ns + second_ns;
	series.each_ns[0] = first_ns;
	series.each_ns[1] = second_ns;
	duration_learn(&durations, &series, first_ns + second_ns, true);
	assert_in_range(duration_ns(&durations, &series.actions[0]), first_ns - 10, first_ns + 10);
	assert_in_range(duration_ns(&durations, &series.actions[1]), second_ns - 10,
			second_ns + 10);
	/* A tenth of it: each is taken for half as long, and a quarter of that is believed. */
	duration_learn(&durations, &series, (first_ns + second_ns) / 10, true);
	assert_in_range(duration_ns(&durations, &series.actions[1]), second_ns * 87 / 100,
			second_ns * 88 / 100);
	/* Something of it was unknown: nothing to learn. */
	series.expected_ns = 0;
	duration_learn(&durations, &series, 100 * MS, true);
	assert_in_range(duration_ns(&durations, &series.actions[1]), second_ns * 87 / 100,
			second_ns * 88 / 100);
}

/* Many submissions of the same actions may be under way with the same old predictions. */
TEST(test_duration__old_predictions)
{
	const struct action action = action_of(7, 100, 1);
	struct series series = {.n = 4};

	forget();
	learn(&action, 1 * MS);
	for (uint32_t i = 0; i < series.n; i++) {
		series.actions[i] = action;
		series.each_ns[i] = MS;
		series.expected_ns += MS;
	}
	for (unsigned int i = 0; i < 64; i++)
		duration_learn(&durations, &series, 6 * MS, true);
	assert_in_range(duration_ns(&durations, &action), 149 * MS / 100, 151 * MS / 100);
}

/* Dispatches that differ in their sizes alone are in one cache line, and known apart. */
TEST(test_duration__lines)
{
	uint64_t line, first = 0;
	unsigned int n_known = 0;

	forget();
	for (uint32_t constants = 0; constants < 8; constants++) {
		line = duration_hash(7, constants);
		for (uint32_t n_groups = 1; n_groups <= 4; n_groups++) {
			const struct action action = action_of(7, n_groups, constants);

			assert_int_equal(action.exact % DURATION_ENTRIES / DURATION_LINE_ENTRIES,
					 line % DURATION_ENTRIES / DURATION_LINE_ENTRIES);
			first = first ? first : action.exact;
			assert_true(action.exact == first || action.exact >> 32 != first >> 32);
			learn(&action, (constants * 4 + n_groups) * MS);
		}
	}
	for (uint32_t constants = 0; constants < 8; constants++)
		for (uint32_t n_groups = 1; n_groups <= 4; n_groups++) {
			const struct action action = action_of(7, n_groups, constants);

			n_known += duration_ns(&durations, &action) ==
				   (uint64_t)(constants * 4 + n_groups) * MS;
		}
	/* Some share a place. */
	assert_in_range(n_known, 20, 32);
}

/* After any series of lessons predictions stay numbers that can be added. */
TEST(test_duration__any_values)
{
	uint64_t random_bits = 1;

	forget();
	for (unsigned int i = 0; i < 200000; i++) {
		struct series series = {.n = 1 + i % 3};
		uint64_t ns;

		for (uint32_t k = 0; k < series.n; k++) {
			random_bits = duration_hash(random_bits, i + k);
			series.actions[k] =
				action_of(random_bits % 50, (uint32_t)(random_bits >> 20) | 1,
					  random_bits >> 60);
			series.actions[k].fraction = (float)(1 + random_bits % 64) / 64;
		}
		ns = random_bits >> (random_bits % 60);
		duration_learn(&durations, &series, ns, true);
		assert_true(duration_ns(&durations, &series.actions[0]) < 1ull << 60);
	}
}
