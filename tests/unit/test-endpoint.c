/* SPDX-License-Identifier: MIT */
/*
 * An endpoint rests while it is not scraped: it rests at first, wakes for a scrape, and rests again
 * after a time without scrapes. Server and HTTP are fakes; scrapes come from another thread, as in
 * the endpoint.
 */
#include <pthread.h>
#include <time.h>

#include "control/metrics.h"
#include "daemon/endpoint.h"
#include "daemon/options.h"
#include "loop/loop.h"
#include "session/server.h"
#include "support/test.h"
#include "util/clock.h"

enum { AWAKE_NS = 200000000 };

static struct {
	bool is_watched, rests;
	unsigned int n_rests, n_wakes;
	uint64_t rested_ns; /* start of the last rest */
	struct metrics_options metrics;
} fake;

int server_watch_root(struct server *server, struct rbk_stats_view *ret)
{
	assert_false(fake.is_watched);
	fake.is_watched = true;
	return 0;
}

void server_unwatch_root(struct server *server)
{
	assert_true(fake.is_watched && !fake.rests);
	fake.is_watched = false;
}

void server_rest_root(struct server *server, bool rests)
{
	assert_true(fake.is_watched);
	assert_int_not_equal(rests, fake.rests);
	fake.rests = rests;
	fake.n_rests += rests;
	fake.n_wakes += !rests;
	if (rests)
		fake.rested_ns = clock_now_ns();
}

int metrics_new(const struct metrics_options *options, struct metrics **ret)
{
	fake.metrics = *options;
	*ret = (struct metrics *)&fake;
	return 0;
}

bool metrics_has_group(const struct metrics *metrics)
{
	return true;
}

struct metrics *metrics_free(struct metrics *metrics)
{
	return NULL;
}

/* Scrape, as the endpoint's thread does. Writes a time just before the scrape to @data. */
static void *scrape(void *data)
{
	uint64_t *before_ns = data;

	*before_ns = clock_now_ns();
	fake.metrics.scraped(fake.metrics.context);
	return NULL;
}

/* Return: the time of the scrape, or shortly before. */
static uint64_t scrape_once(struct loop *loop, unsigned int n_wakes)
{
	uint64_t before_ns;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, scrape, &before_ns), 0);
	while (fake.n_wakes < n_wakes)
		loop_turn(loop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	return before_ns;
}

TEST(test_sleeps_without_scrapes)
{
	const struct timespec half = {.tv_nsec = AWAKE_NS / 2};
	const struct options options = {.metrics = {.text = "unix:/x", .address = {.bytes = 2}}};
	struct endpoint *endpoint;
	struct loop *loop;
	uint64_t scraped_ns;

	clock_init();
	assert_int_equal(loop_new(&loop), 0);
	assert_int_equal(endpoint_start(&options, loop, NULL, AWAKE_NS, &endpoint), 0);
	assert_true(fake.rests && fake.n_rests == 1);

	for (unsigned int i = 1; i <= 3; i++) {
		scrape_once(loop, i);
		/*
		 * A scrape while the endpoint is awake keeps it awake, and does not wait for the
		 * reactor.
		 */
		nanosleep(&half, NULL);
		assert_false(fake.rests);
		scrape(&scraped_ns);
		/* A turn without a timer would block forever. */
		while (!fake.rests)
			loop_turn(loop, true);
		assert_true(fake.rested_ns - scraped_ns >= AWAKE_NS);
		assert_true(fake.n_rests == i + 1 && fake.n_wakes == i);
	}

	scrape_once(loop, 4);
	assert_false(fake.rests);
	assert_null(endpoint_stop(endpoint));
	assert_false(fake.is_watched);
	/* An endpoint can be stopped while it rests. */
	assert_int_equal(endpoint_start(&options, loop, NULL, AWAKE_NS, &endpoint), 0);
	assert_true(fake.rests);
	assert_null(endpoint_stop(endpoint));
	assert_false(fake.is_watched || fake.rests);
	assert_null(loop_free(loop));
}
