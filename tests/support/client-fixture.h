#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Begin and end of tests of the client library
 *
 * Each test makes its own fake broker. At its end the process has no more open descriptors than at
 * its beginning.
 */
#include <dirent.h>
#include <time.h>

#include "libclient/private.h"
#include "support/fake-broker.h"
#include "support/test.h"

struct fixture {
	int n_fds;
	struct fake_broker *fake;
	struct rbk *rbk;
	struct rbk_error error;
};

static inline int count_fds(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(directory);
	while (readdir(directory))
		n++;
	closedir(directory);
	return n;
}

static inline int fixture_connect(struct fixture *fixture, uint64_t timeout_ns)
{
	struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = fake_broker_path(fixture->fake),
		.name = "test",
		.timeout_ns = timeout_ns,
	};

	fixture->error.text[0] = '\0';
	return rbk_connect(&options, &fixture->rbk, &fixture->error);
}

/*
 * Start a fake broker; requests to it time out after a minute unless the test connects by itself.
 */
static inline void fixture_begin(struct fixture *fixture, const struct fake_options *options)
{
	*fixture = (struct fixture){.n_fds = count_fds()};
	fixture->fake = fake_broker_new(options);
}

static inline void fixture_begin_connected(struct fixture *fixture,
					   const struct fake_options *options)
{
	fixture_begin(fixture, options);
	assert_int_equal(fixture_connect(fixture, 60000000000u), 0);
}

static inline void fixture_end(struct fixture *fixture)
{
	rbk_disconnect(fixture->rbk);
	fake_broker_free(fixture->fake);
	assert_int_equal(count_fds(), fixture->n_fds);
}

#define FIXTURE(name, options) SCOPED(fixture, name, fixture_begin_connected, fixture_end, options)

static inline double since_ms(uint64_t start_ns)
{
	return (double)(client_now_ns() - start_ns) / 1e6;
}

static inline void sleep_ms(long ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&time, NULL);
}

/* --- rings --- */

static inline struct rbk_ring *ring_make(struct fixture *fixture, unsigned int entries)
{
	struct rbk_ring *ring = NULL;

	assert_int_equal(rbk_ring_new(fixture->rbk, entries, &ring, &fixture->error), 0);
	return ring;
}

/* Timeout for events that must come, however slow the machine: a wait that reaches it hangs. */
static const uint64_t patience_ns = 60000000000;

static inline void submit_nops(struct rbk_ring *ring, unsigned int n, uint64_t first)
{
	for (unsigned int i = 0; i < n; i++) {
		struct rbk_sqe *sqe = rbk_get_sqe(ring);

		assert_non_null(sqe);
		rbk_prep_nop(sqe);
		rbk_sqe_set_data64(sqe, first + i);
	}
	assert_int_equal(rbk_submit(ring), n);
}

static inline void expect_nops(struct rbk_ring *ring, unsigned int n, uint64_t first)
{
	for (unsigned int i = 0; i < n; i++) {
		const struct rbk_cqe *cqe;

		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, patience_ns), 0);
		assert_int_equal(rbk_cqe_get_data64(cqe), first + i);
		assert_int_equal(cqe->res, 0);
		rbk_cqe_seen(ring, cqe);
	}
}
