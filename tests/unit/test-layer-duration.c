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

	return (struct action){.exact = duration_hash(sized, constants),
			       .sized = sized,
			       .pipeline = duration_hash(1, pipeline),
			       .n_groups = n_groups,
			       .part = 1};
}

static void forget(void)
{
	memset(&durations, 0, sizeof(durations));
	/* No submission costs anything. */
	duration_learn(&durations, &(struct series){.n = 0}, 0);
	durations.overhead_ns = 1;
}

static void learn(const struct action *action, uint64_t ns)
{
	const struct series series = {.n = 1, .actions = {*action}};

	duration_learn(&durations, &series, ns + 1);
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

TEST(test_duration__shorter_times_count_more)
{
	const struct action action = action_of(7, 100, 1);

	forget();
	learn(&action, 8 * MS);
	learn(&action, 4 * MS);
	assert_int_equal(duration_ns(&durations, &action), 6 * MS);
	learn(&action, 14 * MS);
	assert_int_equal(duration_ns(&durations, &action), 7 * MS);
}

TEST(test_duration__slices)
{
	struct action slice = action_of(7, 100, 1), whole = slice;

	forget();
	slice.part = 0.25F;
	learn(&slice, 1 * MS);
	assert_int_equal(duration_ns(&durations, &slice), 1 * MS);
	assert_int_equal(duration_ns(&durations, &whole), 4 * MS);
}

/* If slices were charged for what their submissions cost, they would get ever smaller. */
TEST(test_duration__submissions_are_no_work)
{
	const uint64_t cost_ns = 20000;
	const struct action nothing = action_of(1, 1, 1);
	struct action action = action_of(7, 1000, 1);

	memset(&durations, 0, sizeof(durations));
	duration_learn(&durations, &(struct series){.n = 1, .actions = {nothing}}, cost_ns);
	for (unsigned int i = 0; i < 50; i++) {
		uint64_t whole_ns;

		action.part = 1;
		whole_ns = duration_ns(&durations, &action);
		action.part = whole_ns > MS ? (float)MS / (float)whole_ns : 1;
		duration_learn(&durations, &(struct series){.n = 1, .actions = {action}},
			       cost_ns + (uint64_t)(10 * MS * (double)action.part));
	}
	action.part = 1;
	assert_in_range(duration_ns(&durations, &action), 99 * MS / 10, 101 * MS / 10);
}

TEST(test_duration__sum_corrects_gently)
{
	struct series series = {.n = 2, .actions = {action_of(7, 100, 1), action_of(8, 100, 1)}};
	const uint64_t first_ns = 2 * MS, second_ns = 6 * MS;

	forget();
	learn(&series.actions[0], first_ns);
	learn(&series.actions[1], second_ns);
	/* As predicted: nothing changes. */
	duration_learn(&durations, &series, first_ns + second_ns + 1);
	assert_in_range(duration_ns(&durations, &series.actions[0]), first_ns - 10, first_ns + 10);
	assert_in_range(duration_ns(&durations, &series.actions[1]), second_ns - 10,
			second_ns + 10);
	/* A tenth of it: each is taken for half as long, and half of that is believed. */
	duration_learn(&durations, &series, (first_ns + second_ns) / 10);
	assert_in_range(duration_ns(&durations, &series.actions[1]), second_ns * 74 / 100,
			second_ns * 76 / 100);
	/* More than is noted, or nothing that is known: nothing to learn. */
	series.n = DURATION_SERIES_MAX + 1;
	duration_learn(&durations, &series, 100 * MS);
	assert_in_range(duration_ns(&durations, &series.actions[1]), second_ns * 74 / 100,
			second_ns * 76 / 100);
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
			series.actions[k].part = (float)(1 + random_bits % 64) / 64;
		}
		ns = random_bits >> (random_bits % 60);
		duration_learn(&durations, &series, ns);
		assert_true(duration_ns(&durations, &series.actions[0]) < 1ull << 60);
	}
}
