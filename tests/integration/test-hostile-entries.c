/* SPDX-License-Identifier: MIT */
/*
 * Entries and indices from a hostile client, against a live broker
 *
 * Entries and tables change while the broker reads them, indices and bells are wrong. A neighbour
 * computes meanwhile and must not notice. tests/attack sends the millions of entries (row entries).
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "integration/hostile.h"
#include "integration/odd-entries.h"
#include "shm/ring.h"
#include "support/describe.h"
#include "support/test.h"

/* ---- Memory that changes while it is read ---- */

struct scribbler {
	struct odd_entries *odd;
	atomic_bool stop;
};

static void *scribble_entries(void *data)
{
	struct scribbler *s = data;
	uint64_t seed = 4711, *words = (uint64_t *)s->odd->ring.sq->sqes;

	while (!s->stop) {
		uint64_t random = harness_random(&seed);

		__atomic_store_n(&words[random % (64 * 8)],
				 random & 1 ? harness_random(&seed) : random >> 40,
				 __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *scribble_tables(void *data)
{
	struct scribbler *s = data;
	uint64_t seed = 4712, *words = (uint64_t *)s->odd->tables;

	while (!s->stop) {
		uint64_t random = harness_random(&seed), slot = random >> 8 & 0x7f;

		__atomic_store_n(&words[random % 6],
				 random & 1ull << 60 ? random : RBK_REF(1, slot * 4096),
				 __ATOMIC_RELAXED);
	}
	return NULL;
}

/*
 * Change entries, or tables, while the broker reads them. Each entry completes once, whatever the
 * broker has copied.
 */
static void race(void *(*scribble)(void *), uint64_t n_rounds)
{
	static struct odd_entries odd_entries;
	struct odd_entries *odd = &odd_entries;
	struct scribbler scribbler = {.odd = odd};
	struct rbk_cqe cqe;
	pthread_t thread;

	odd_entries_begin(odd, hostile_session_with(RBK_FEAT_FIXED_ARENAS | RBK_FEAT_AFTER), 31,
			  true);
	assert_int_equal(pthread_create(&thread, NULL, scribble, &scribbler), 0);
	for (uint64_t round = 0; round < n_rounds; round++) {
		for (unsigned int i = 0; i < 32; i++) {
			struct rbk_sqe *sqe = raw_ring_next(&odd->ring), good;

			odd_entries_make(odd, &good);
			good.flags &= (uint8_t)~RBK_SQE_LINK;
			if (good.flags & RBK_SQE_ARG_TABLE)
				good.table = RBK_REF(ODD_TABLES_ID, 0);
			/* The scribbler writes the same slots; both use atomic stores. */
			for (unsigned int k = 0; k < sizeof(good) / sizeof(uint64_t); k++)
				__atomic_store_n((uint64_t *)sqe + k, ((uint64_t *)&good)[k],
						 __ATOMIC_RELAXED);
		}
		raw_ring_publish(&odd->ring);
		for (unsigned int i = 0; i < 32; i++) {
			if (!raw_ring_take(&odd->ring, &cqe))
				fail_msg("completion %u of round %llu is missing", i,
					 (unsigned long long)round);
			assert_true(cqe.res <= 0 && cqe.res > -4096);
		}
		assert_int_equal(rbk_ring_observe(&odd->ring.cq->cq_tail), odd->ring.head);
	}
	scribbler.stop = true;
	pthread_join(thread, NULL);
	odd_entries_end(odd);
}

TEST(test_entries__changing_while_read, hostile_begin, hostile_end)
{
	race(scribble_entries, test_scaled(20000));
}

TEST(test_tables__changing_while_read, hostile_begin, hostile_end)
{
	race(scribble_tables, test_scaled(20000));
}

/* ---- Indices ---- */

static void nudge(struct raw_ring *ring)
{
	send(ring->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Open a session with a ring on which @n NOPs have completed. */
static int begin_nops(struct raw_ring *ring, unsigned int n)
{
	int fd = hostile_session();
	struct rbk_cqe cqe;

	raw_ring_add(fd, 64, ring);
	for (unsigned int i = 0; i < n; i++) {
		memset(raw_ring_next(ring), 0, sizeof(struct rbk_sqe));
		raw_ring_publish(ring);
		assert_true(raw_ring_take(ring, &cqe));
	}
	return fd;
}

TEST(test_indices__impossible_tail, hostile_begin, hostile_end)
{
	static const int32_t tails[] = {65, 1000, INT32_MAX, INT32_MIN, -1, -64};
	struct raw_ring ring;
	int fd;

	for (unsigned int i = 0; i < sizeof(tails) / sizeof(*tails); i++) {
		fd = begin_nops(&ring, 100);
		rbk_ring_publish(&ring.sq->sq_tail, ring.tail + (uint32_t)tails[i]);
		nudge(&ring);
		raw_expect_closed(fd);
		assert_int_not_equal(ring.cq->closed, 0);
		raw_ring_close(&ring);
		close(fd);
	}
	broker_wait_log(&broker, "the client's ring indices are invalid");
}

struct spinner {
	struct raw_ring *ring;
	atomic_bool stop;
};

static void *scribble_indices(void *data)
{
	struct spinner *s = data;
	uint64_t seed = 99;

	while (!s->stop) {
		uint64_t random = harness_random(&seed);

		__atomic_store_n(&s->ring->sq->cq_wait, (uint32_t)random, __ATOMIC_RELAXED);
		rbk_ring_want(&s->ring->sq->cq_wanted, (uint32_t)(random >> 16));
		if (random % 64 == 0)
			__atomic_store_n(&s->ring->sq->cq_head, (uint32_t)(random >> 32),
					 __ATOMIC_RELAXED);
	}
	return NULL;
}

TEST(test_indices__changing_for_ever, hostile_begin, hostile_end)
{
	for (unsigned int round = 0; round < 20; round++) {
		struct raw_ring ring;
		struct spinner spinner = {.ring = &ring};
		int fd = begin_nops(&ring, 10);
		pthread_t thread;

		assert_int_equal(pthread_create(&thread, NULL, scribble_indices, &spinner), 0);
		for (unsigned int i = 0; i < 200; i++) {
			memset(raw_ring_next(&ring), 0, sizeof(struct rbk_sqe));
			raw_ring_publish(&ring);
			nudge(&ring);
		}
		spinner.stop = true;
		pthread_join(thread, NULL);
		raw_ring_close(&ring);
		close(fd);
	}
}

/* ---- Bells ---- */

static void *flood_bell(void *data)
{
	struct spinner *s = data;
	char bytes[64];

	while (!s->stop) {
		if (send(s->ring->bell, "xxxxxxxxxxxxxxxxxxxx", 20, MSG_DONTWAIT | MSG_NOSIGNAL) <
		    0)
			recv(s->ring->bell, bytes, sizeof(bytes), MSG_DONTWAIT);
		send(s->ring->bell, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	return NULL;
}

/*
 * The broker ignores the doorbell of a client that rings without need for a while, but serves its
 * entries.
 */
TEST(test_bell__flood, hostile_begin, hostile_end)
{
	struct broker_usage before, after;
	struct raw_ring ring;
	struct spinner spinner = {.ring = &ring};
	int fd = begin_nops(&ring, 10);
	struct rbk_cqe cqe;
	pthread_t thread;
	uint64_t until_ns;

	assert_int_equal(pthread_create(&thread, NULL, flood_bell, &spinner), 0);
	broker_usage(&broker, &before);
	until_ns = harness_now_ns() + 1000000000;
	while (harness_now_ns() < until_ns) {
		memset(raw_ring_next(&ring), 0, sizeof(struct rbk_sqe));
		raw_ring_publish(&ring);
		assert_true(raw_ring_take(&ring, &cqe));
		harness_sleep_ms(5);
	}
	broker_usage(&broker, &after);
	/* The broker serves the neighbour meanwhile. */
	neighbour_finish_round(neighbour);
	spinner.stop = true;
	pthread_join(thread, NULL);
	raw_ring_close(&ring);
	close(fd);
}

TEST(test_bell__closed, hostile_begin, hostile_end)
{
	struct raw_ring ring;
	int fd = begin_nops(&ring, 10);
	struct rbk_stats stats;

	close(ring.bell);
	ring.bell = -1;
	for (unsigned int i = 0; i < 20; i++) {
		rbk_ring_announce_sleep(&ring.sq->cq_wait, i + 1);
		memset(raw_ring_next(&ring), 0, sizeof(struct rbk_sqe));
		raw_ring_publish(&ring);
	}
	harness_sleep_ms(20);
	assert_int_equal(rbk_stats(observer, &stats), 0);
	assert_int_equal(stats.sessions, 3);
	raw_ring_close(&ring);
	close(fd);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(170))
