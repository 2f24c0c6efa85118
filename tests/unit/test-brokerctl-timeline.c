/* SPDX-License-Identifier: MIT */
/* Lanes of a timeline: spans of one lane do not overlap, and no lane is unnecessary. */
#include <errno.h>
#include <stdlib.h>

#include "brokerctl/timeline.h"
#include "fail-alloc.h"
#include "support/test.h"

enum { N_SPANS = 2000, N_TRACKS = 3 };

TEST(test_assign__lanes)
{
	struct span spans[] = {
		{.began_ns = 50, .ended_ns = 60, .track = 7, .about = 4},
		{.began_ns = 0, .ended_ns = 30, .track = 7, .about = 0},
		{.began_ns = 30, .ended_ns = 40, .track = 7, .about = 2},
		{.began_ns = 10, .ended_ns = 35, .track = 7, .about = 1},
		{.began_ns = 35, .ended_ns = 45, .track = 7, .about = 3},
		{.began_ns = 5, .ended_ns = 100, .track = 2, .about = 9},
	};
	static const uint64_t order[] = {0, 9, 1, 2, 3, 4};
	static const uint32_t lanes[] = {0, 0, 1, 0, 1, 0};

	assert_int_equal(timeline_assign(spans, 6), 0);
	for (unsigned int i = 0; i < 6; i++) {
		assert_fields(spans[i], (about, order[i]), (lane, lanes[i]));
	}
}

TEST(test_assign__nothing)
{
	assert_int_equal(timeline_assign(NULL, 0), 0);
}

/* Spans that begin together or take no time may touch, but not overlap. */
TEST(test_assign__equal_times)
{
	struct span spans[] = {
		{.began_ns = 5, .ended_ns = 5, .track = 1},
		{.began_ns = 5, .ended_ns = 8, .track = 1},
		{.began_ns = 5, .ended_ns = 8, .track = 1},
		{.began_ns = 8, .ended_ns = 8, .track = 1},
	};

	assert_int_equal(timeline_assign(spans, 4), 0);
	assert_int_equal(spans[0].lane, 0);
	assert_int_equal(spans[1].lane, 1);
	assert_fields(spans[2], (lane, 2), (ended_ns, 5));
	assert_int_equal(spans[3].lane, 0);
}

static uint32_t random_next(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

/* Return the number of a track's spans that contain @at_ns. */
static unsigned int depth_at(const struct span *spans, uint32_t track, uint64_t at_ns)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < N_SPANS; i++)
		n += spans[i].track == track && spans[i].began_ns <= at_ns &&
		     spans[i].ended_ns > at_ns;
	return n;
}

TEST(test_assign__random)
{
	static struct span spans[N_SPANS];
	uint32_t n_lanes[N_TRACKS] = {0}, random = 1;
	unsigned int deepest[N_TRACKS] = {0};

	for (unsigned int i = 0; i < N_SPANS; i++) {
		spans[i].began_ns = random_next(&random) % 10000;
		spans[i].ended_ns = spans[i].began_ns + 1 + random_next(&random) % 100;
		spans[i].track = random_next(&random) % N_TRACKS;
	}
	assert_int_equal(timeline_assign(spans, N_SPANS), 0);
	for (unsigned int i = 0; i < N_SPANS; i++) {
		uint32_t track = spans[i].track;
		unsigned int depth = depth_at(spans, track, spans[i].began_ns);

		if (i > 0)
			assert_true(spans[i].began_ns >= spans[i - 1].began_ns);
		for (unsigned int k = 0; k < i; k++)
			assert_false(spans[k].track == track && spans[k].lane == spans[i].lane &&
				     spans[k].ended_ns > spans[i].began_ns);
		if (spans[i].lane >= n_lanes[track])
			n_lanes[track] = spans[i].lane + 1;
		if (depth > deepest[track])
			deepest[track] = depth;
	}
	for (unsigned int i = 0; i < N_TRACKS; i++)
		assert_int_equal(n_lanes[i], deepest[i]);
}

TEST(test_assign__no_memory)
{
	struct span span = {.began_ns = 1, .ended_ns = 2};
	unsigned int n = 1;

	for (;; n++) {
		int r;

		fail_alloc_at(n);
		r = timeline_assign(&span, 1);
		if (!fail_alloc_stop())
			break;
		assert_int_equal(r, -ENOMEM);
	}
	assert_int_equal(n, 3);
}
