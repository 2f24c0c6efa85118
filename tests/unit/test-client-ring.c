/* SPDX-License-Identifier: MIT */
/* Rings: wrap-around, full rings, waits with and without sleep, event loops, lost brokers. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "support/client-fixture.h"
#include "support/stopwatch.h"
#include "support/test.h"

static struct rbk_ring *ring_make(struct fixture *fixture, unsigned int entries)
{
	struct rbk_ring *ring = NULL;

	assert_int_equal(rbk_ring_new(fixture->rbk, entries, &ring, &fixture->error), 0);
	return ring;
}

/* Timeout for events that must come, however slow the machine: a wait that reaches it hangs. */
static const uint64_t patience_ns = 60000000000;

enum { TRIES = 20 };

static void submit_nops(struct rbk_ring *ring, unsigned int n, uint64_t first)
{
	for (unsigned int i = 0; i < n; i++) {
		struct rbk_sqe *sqe = rbk_get_sqe(ring);

		assert_non_null(sqe);
		rbk_prep_nop(sqe);
		rbk_sqe_set_data64(sqe, first + i);
	}
	assert_int_equal(rbk_submit(ring), n);
}

static void expect_nops(struct rbk_ring *ring, unsigned int n, uint64_t first)
{
	for (unsigned int i = 0; i < n; i++) {
		const struct rbk_cqe *cqe;

		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, patience_ns), 0);
		assert_int_equal(rbk_cqe_get_data64(cqe), first + i);
		assert_int_equal(cqe->res, 0);
		rbk_cqe_seen(ring, cqe);
	}
}

TEST(test_prep__overwrites_everything)
{
	const uint64_t refs[] = {1, 2, 3, 4, 5, 6};
	const struct rbk_sqe zero = {0};
	struct rbk_sqe sqe, expected;

	memset(&sqe, 0xff, sizeof(sqe));
	rbk_prep_nop(&sqe);
	assert_memory_equal(&sqe, &zero, sizeof(sqe));

	memset(&sqe, 0xff, sizeof(sqe));
	rbk_prep_run(&sqe, 7, 8, refs, 3);
	rbk_sqe_set_flags(&sqe, RBK_SQE_LINK);
	rbk_sqe_set_flags(&sqe, RBK_SQE_PARTITION);
	rbk_sqe_set_strategy(&sqe, RBK_STRATEGY_DEVICE(2));
	rbk_sqe_set_priority(&sqe, RBK_PRIORITY_HIGH);
	rbk_sqe_set_deadline_us(&sqe, 99);
	rbk_sqe_set_data(&sqe, &sqe);
	expected = (struct rbk_sqe){.opcode = RBK_OP_RUN,
				    .flags = RBK_SQE_LINK | RBK_SQE_PARTITION,
				    .strategy = RBK_STRATEGY_NAMED | 2,
				    .priority = RBK_PRIORITY_HIGH,
				    .plan_id = 7,
				    .user_data = (uintptr_t)&sqe,
				    .count = 8,
				    .deadline_us = 99,
				    .refs = {1, 2, 3, 0, 0}};
	assert_memory_equal(&sqe, &expected, sizeof(sqe));
	/* An entry with too many references is refused, whatever its plan takes. */
	rbk_prep_run(&sqe, 7, 8, refs, 6);
	expected = (struct rbk_sqe){
		.opcode = RBK_OP_RUN, .flags = RBK_SQE_ARG_TABLE, .plan_id = 7, .count = 8};
	assert_memory_equal(&sqe, &expected, sizeof(sqe));

	memset(&sqe, 0xff, sizeof(sqe));
	rbk_prep_run_table(&sqe, 7, 8, 640, 9);
	expected = (struct rbk_sqe){.opcode = RBK_OP_RUN,
				    .flags = RBK_SQE_ARG_TABLE,
				    .plan_id = 7,
				    .count = 8,
				    .refs = {640, 9}};
	assert_memory_equal(&sqe, &expected, sizeof(sqe));

	memset(&sqe, 0xff, sizeof(sqe));
	rbk_prep_cancel(&sqe, 5);
	expected = (struct rbk_sqe){.opcode = RBK_OP_CANCEL, .refs = {5}};
	assert_memory_equal(&sqe, &expected, sizeof(sqe));
	rbk_prep_barrier(&sqe);
	expected = (struct rbk_sqe){.opcode = RBK_OP_BARRIER};
	assert_memory_equal(&sqe, &expected, sizeof(sqe));
	rbk_prep_prefetch(&sqe, 3);
	expected = (struct rbk_sqe){.opcode = RBK_OP_PREFETCH, .plan_id = 3};
	assert_memory_equal(&sqe, &expected, sizeof(sqe));
	rbk_sqe_set_wait_memory(&sqe);
	rbk_sqe_set_flags(&sqe, RBK_SQE_LINK);
	expected.flags = RBK_SQE_WAIT_MEMORY | RBK_SQE_LINK;
	assert_memory_equal(&sqe, &expected, sizeof(sqe));
	rbk_prep_evict(&sqe, 3);
	expected.opcode = RBK_OP_EVICT;
	expected.flags = 0;
	assert_memory_equal(&sqe, &expected, sizeof(sqe));
}

TEST(test_ring__sizes)
{
	struct fake_options options = {.max_ring_entries = 64};
	struct rbk_ring *ring;

	FIXTURE(fixture, &options);
	assert_int_equal(rbk_ring_new(fixture.rbk, 0, &ring, &fixture.error), -EINVAL);
	assert_int_equal(rbk_ring_new(fixture.rbk, 32769, &ring, &fixture.error), -EINVAL);
	assert_int_equal(rbk_ring_new(fixture.rbk, 65, &ring, &fixture.error), -EDQUOT);
	assert_string_equal(fixture.error.text,
			    "the broker allows at most 64 entries in a ring, not 128");
	ring = ring_make(&fixture, 5);
	/*
	 * The broker's end does not block, but the client's does, so that a sleep is one system
	 * call.
	 */
	assert_int_equal(fcntl(rbk_ring_fd(ring), F_GETFL) & O_NONBLOCK, 0);
	assert_int_equal(fcntl(rbk_ring_fd(ring), F_GETFD), FD_CLOEXEC);
	assert_int_equal(rbk_sq_space_left(ring), 8);
	assert_int_equal(rbk_sq_ready(ring), 0);
	assert_null(rbk_ring_free(ring));
	ring = ring_make(&fixture, 1);
	for (uint64_t i = 0; i < 10; i++) {
		submit_nops(ring, 1, i);
		expect_nops(ring, 1, i);
	}
	rbk_ring_free(ring);
	assert_null(rbk_ring_free(NULL));
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
}

/* Let all indices start at @index. The fake broker must start there, too. */
static void start_at(struct rbk_ring *ring, uint32_t index)
{
	ring->sq_tail = ring->sq_published = ring->sq_head = index;
	ring->cq_head = ring->cq_tail = index;
}

TEST(test_ring__wrap_around)
{
	static const uint32_t starts[] = {UINT32_MAX - 5, UINT32_MAX, INT32_MAX - 3u};

	for (int c = 0; c < 3; c++) {
		struct fake_options options = {.start = starts[c]};
		struct fixture fixture;
		struct rbk_ring *ring;
		uint64_t n = 0;

		fixture_begin_connected(&fixture, &options);
		ring = ring_make(&fixture, 8);
		start_at(ring, starts[c]);
		for (unsigned int round = 0; round < 40; round++) {
			unsigned int batch = round % 8 + 1;

			assert_int_equal(rbk_sq_space_left(ring), 8);
			submit_nops(ring, batch, n);
			expect_nops(ring, batch, n);
			n += batch;
			assert_int_equal(rbk_cq_ready(ring), 0);
		}
		rbk_ring_free(ring);
		fixture_end(&fixture);
	}
}

TEST(test_ring__full)
{
	struct rbk_ring *ring;
	const struct rbk_cqe *cqes[16], *cqe;
	unsigned int head;

	FIXTURE(fixture, NULL);
	ring = ring_make(&fixture, 4);
	fake_broker_pause(fixture.fake, true);
	submit_nops(ring, 3, 0);
	assert_int_equal(rbk_sq_ready(ring), 3);
	submit_nops(ring, 1, 3);
	assert_null(rbk_get_sqe(ring));
	assert_int_equal(rbk_submit(ring), 0);
	assert_int_equal(rbk_sq_space_left(ring), 0);
	assert_int_equal(rbk_peek_cqe(ring, &cqe), -EAGAIN);
	assert_int_equal(rbk_peek_batch_cqe(ring, cqes, 16), 0);
	assert_int_equal(rbk_submit_and_wait(ring, 5), -EINVAL);
	fake_broker_pause(fixture.fake, false);

	/* Four completions fill the ring, and four entries have no room for theirs. */
	assert_int_equal(rbk_submit_and_wait(ring, 4), 0);
	submit_nops(ring, 4, 4);
	sleep_ms(20);
	assert_null(rbk_get_sqe(ring));
	assert_int_equal(rbk_cq_ready(ring), 4);
	assert_int_equal(rbk_peek_batch_cqe(ring, cqes, 16), 4);
	assert_int_equal(cqes[3]->user_data, 3);
	assert_int_equal(rbk_peek_batch_cqe(ring, cqes, 2), 2);
	rbk_for_each_cqe (ring, head, cqe)
		assert_int_equal(cqe->user_data, head);
	assert_int_equal(head, 4);
	assert_null(rbk_cq_at(ring, 4));

	/* Consuming one completion wakes the broker, which sleeps by now, for one more entry. */
	rbk_cq_advance(ring, 1);
	expect_nops(ring, 7, 1);
	rbk_cq_advance(ring, 100);
	assert_int_equal(rbk_cq_ready(ring), 0);
	submit_nops(ring, 4, 50);
	expect_nops(ring, 4, 50);
	rbk_ring_free(ring);
}

/* Peeking alone is enough when completions had no room: consuming wakes the broker. */
TEST(test_ring__room_wakes_broker)
{
	struct stopwatch stopwatch;
	struct rbk_ring *ring;
	const struct rbk_cqe *cqe;
	unsigned int n = 0;

	FIXTURE(fixture, NULL);
	ring = ring_make(&fixture, 4);
	submit_nops(ring, 4, 0);
	while (rbk_cq_ready(ring) < 4)
		sleep_ms(1);
	submit_nops(ring, 4, 4);
	sleep_ms(20);
	stopwatch_start(&stopwatch);
	while (n < 8 && stopwatch_ms(&stopwatch) < 60000)
		if (!rbk_peek_cqe(ring, &cqe)) {
			assert_int_equal(cqe->user_data, n++);
			rbk_cqe_seen(ring, cqe);
		}
	stopwatch_stop_ms(&stopwatch);
	assert_int_equal(n, 8);
	rbk_cqe_seen(ring, NULL);
	rbk_ring_free(ring);
}

TEST(test_ring__many)
{
	static const uint64_t spins_ns[] = {UINT64_MAX, 0, 50000};

	for (int c = 0; c < 3; c++) {
		const struct rbk_cqe *cqes[64];
		struct fixture fixture;
		struct rbk_ring *ring;
		uint64_t n_sent = 0, n_seen = 0;

		fixture_begin_connected(&fixture, NULL);
		ring = ring_make(&fixture, 64);
		if (spins_ns[c] != UINT64_MAX)
			rbk_ring_set_spin_ns(ring, spins_ns[c]);
		while (n_seen < 20000) {
			struct rbk_sqe *sqe;
			uint64_t batch = n_sent % 61 + 1;
			int n;

			while (batch-- > 0 && (sqe = rbk_get_sqe(ring))) {
				rbk_prep_nop(sqe);
				rbk_sqe_set_data64(sqe, n_sent++);
			}
			assert_true(rbk_submit_and_wait(ring, 1) >= 0);
			n = rbk_peek_batch_cqe(ring, cqes, 64);
			assert_true(n > 0);
			for (int i = 0; i < n; i++)
				assert_int_equal(cqes[i]->user_data, n_seen++);
			rbk_cq_advance(ring, (unsigned int)n);
		}
		rbk_ring_free(ring);
		fixture_end(&fixture);
	}
}

/* ---- Sleeping ---- */

struct release {
	struct fake_broker *fake;
	const struct rbk_ring *ring;
};

/* Release the broker after the client has slept for a while. */
static void *release_later(void *data)
{
	const struct release *release = data;

	while (__atomic_load_n(&release->ring->sq->cq_wait, __ATOMIC_RELAXED) == 0)
		sleep_ms(1);
	sleep_ms(30);
	fake_broker_pause(release->fake, false);
	return NULL;
}

/* The thread's processor time */
static uint64_t thread_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

TEST(test_wait__sleeps)
{
	for (int with_timeout = 0; with_timeout < 2; with_timeout++) {
		struct fixture fixture;
		struct rbk_ring *ring;
		const struct rbk_cqe *cqe;
		struct release release;
		pthread_t thread;

		fixture_begin_connected(&fixture, NULL);
		ring = ring_make(&fixture, 4);
		release = (struct release){fixture.fake, ring};
		for (int i = 0; i < 3; i++) {
			uint64_t start_ns = client_now_ns(), cpu_ns;

			fake_broker_pause(fixture.fake, true);
			pthread_create(&thread, NULL, release_later, &release);
			cpu_ns = thread_ns();
			submit_nops(ring, 2, 0);
			/* Two spurious bytes in the bell do not end the wait. */
			fake_broker_ring_bells(fixture.fake, 2);
			if (with_timeout)
				assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, patience_ns), 0);
			else
				assert_int_equal(rbk_wait_cqe(ring, &cqe), 0);
			assert_true(since_ms(start_ns) >= 25);
			assert_true(thread_ns() - cpu_ns < 10000000);
			pthread_join(thread, NULL);
			assert_int_equal(rbk_cq_ready(ring), 2);
			rbk_cq_advance(ring, 2);
		}
		/* The broker writes one byte for each sleep. */
		assert_in_range(fake_broker_wakeups_sent(fixture.fake), 3, 9);
		rbk_ring_free(ring);
		fixture_end(&fixture);
	}
}

TEST(test_wait__several)
{
	struct release release;
	struct rbk_ring *ring;
	pthread_t thread;

	FIXTURE(fixture, NULL);
	ring = ring_make(&fixture, 4);
	release = (struct release){fixture.fake, ring};
	rbk_ring_set_spin_ns(ring, 0);
	fake_broker_pause(fixture.fake, true);
	pthread_create(&thread, NULL, release_later, &release);
	for (int i = 0; i < 4; i++)
		rbk_prep_nop(rbk_get_sqe(ring));
	assert_int_equal(rbk_submit_and_wait(ring, 4), 4);
	assert_int_equal(rbk_cq_ready(ring), 4);
	assert_int_equal(rbk_submit_and_wait(ring, 4), 0);
	pthread_join(thread, NULL);
	rbk_ring_free(ring);
}

/*
 * Return the time of a wait that times out: the minimum of several tries, because a thread may lose
 * its processor in one of them.
 */
static double wait_in_vain_ms(struct rbk_ring *ring, uint64_t timeout_ns, double most_ms)
{
	const struct rbk_cqe *cqe = NULL;
	struct stopwatch stopwatch;
	double ms, least_ms = most_ms;
	uint64_t start_ns;

	for (unsigned int i = 0; i < TRIES && least_ms >= most_ms; i++) {
		start_ns = client_now_ns();
		stopwatch_start(&stopwatch);
		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, timeout_ns), -ETIME);
		ms = stopwatch_stop_ms(&stopwatch);
		least_ms = ms < least_ms ? ms : least_ms;
		assert_true(since_ms(start_ns) >= (double)timeout_ns / 1e6 - 0.1);
		assert_null(cqe);
	}
	return least_ms;
}

TEST(test_wait__time_out)
{
	struct rbk_ring *ring;

	FIXTURE(fixture, NULL);
	ring = ring_make(&fixture, 4);
	for (int spin = 0; spin < 2; spin++) {
		rbk_ring_set_spin_ns(ring, spin ? 1000000000 : 0);
		assert_true(wait_in_vain_ms(ring, 0, 20) < 20);
		assert_true(wait_in_vain_ms(ring, 30000000, 500) < 500);
	}
	submit_nops(ring, 1, 1);
	expect_nops(ring, 1, 1);
	rbk_ring_free(ring);
}

/* A client that waits names its processor for the broker. */
TEST(test_wait__tells_processor)
{
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	cpu_set_t all, one;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	FIXTURE(fixture, NULL);
	ring = ring_make(&fixture, 4);
	assert_int_equal(ring->sq->processor, 0);
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &all))
			continue;
		CPU_ZERO(&one);
		CPU_SET(i, &one);
		assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 1000), -ETIME);
		assert_int_equal(ring->sq->processor, i + 1);
	}
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	rbk_ring_free(ring);
}

/* Complete the entries in the second sleep of a new ring's client. */
static void *release_second_sleep(void *data)
{
	const struct release *release = data;

	while (__atomic_load_n(&release->ring->sq->cq_wait, __ATOMIC_RELAXED) != 2)
		sleep_ms(1);
	fake_broker_pause(release->fake, false);
	return NULL;
}

/*
 * A client sleeps until shortly before the predicted end of its task, spins for a short time, and
 * sleeps again when the task takes longer.
 */
TEST(test_wait__rises_before_the_end)
{
	const int slack_ns = prctl(PR_GET_TIMERSLACK);
	const struct rbk_cqe *cqe;
	struct release release;
	struct rbk_ring *ring;
	uint64_t start_ns, spent_ns;
	pthread_t thread;

	FIXTURE(fixture, NULL);
	ring = ring_make(&fixture, 4);
	release = (struct release){fixture.fake, ring};
	fake_broker_pause(fixture.fake, true);
	submit_nops(ring, 1, 0);
	start_ns = client_now_ns();
	fake_broker_tell_due(fixture.fake, 30000000);
	pthread_create(&thread, NULL, release_second_sleep, &release);
	spent_ns = thread_ns();
	assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, patience_ns), 0);
	spent_ns = thread_ns() - spent_ns;
	assert_true(since_ms(start_ns) >= 29);
	assert_true(spent_ns < 10000000);
	assert_in_range(ring->wake_lag_ns, 1, 4 * ring->spin_ns);
	assert_int_equal(prctl(PR_GET_TIMERSLACK), slack_ns);
	pthread_join(thread, NULL);
	rbk_ring_free(ring);
}

/* A timeout before the predicted end is kept; so is a completion before it. */
TEST(test_wait__prediction_is_only_a_hint)
{
	struct release release;
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	uint64_t start_ns;
	pthread_t thread;

	FIXTURE(fixture, NULL);
	ring = ring_make(&fixture, 4);
	release = (struct release){fixture.fake, ring};
	fake_broker_pause(fixture.fake, true);
	submit_nops(ring, 1, 0);
	fake_broker_tell_due(fixture.fake, UINT32_MAX);
	start_ns = client_now_ns();
	assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 5000000), -ETIME);
	pthread_create(&thread, NULL, release_later, &release);
	assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, patience_ns), 0);
	assert_true(since_ms(start_ns) < 4000);
	pthread_join(thread, NULL);
	rbk_ring_free(ring);
}

/* A client that spins for a fixed time, or never, does so whatever is predicted. */
TEST(test_wait__fixed_spin_ignores_predictions)
{
	struct release release;
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	pthread_t thread;

	FIXTURE(fixture, NULL);
	ring = ring_make(&fixture, 4);
	release = (struct release){fixture.fake, ring};
	rbk_ring_set_spin_ns(ring, 0);
	fake_broker_pause(fixture.fake, true);
	submit_nops(ring, 1, 0);
	fake_broker_tell_due(fixture.fake, 10000000);
	pthread_create(&thread, NULL, release_later, &release);
	assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, patience_ns), 0);
	/* No timer has ended its sleep. */
	assert_int_equal(ring->wake_lag_ns, 0);
	pthread_join(thread, NULL);
	rbk_ring_free(ring);
}

/* The client's own wake-up is no part of a wait that it learns from. */
TEST(test_wait__learns_until_the_bell)
{
	enum { EARLY_NS = 20000000 };
	const struct fake_options options = {.rung_early_ns = EARLY_NS};
	struct release release;
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	uint64_t wait_ns;
	pthread_t thread;

	FIXTURE(fixture, &options);
	ring = ring_make(&fixture, 4);
	release = (struct release){fixture.fake, ring};
	/* Without a limit that a wait reaches, and so long waits before that it does not spin */
	ring->spin_ns = ring->wait_mean_ns = 8000000000000;
	fake_broker_pause(fixture.fake, true);
	submit_nops(ring, 1, 0);
	pthread_create(&thread, NULL, release_later, &release);
	wait_ns = client_now_ns();
	assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, patience_ns), 0);
	wait_ns = client_now_ns() - wait_ns;
	assert_in_range(ring->wait_mean_ns - 7000000000000, 1, (wait_ns - EARLY_NS) / 8);
	/* This wake-up is what a sleep costs. */
	assert_in_range(ring->wake_lag_ns, EARLY_NS, wait_ns);
	pthread_join(thread, NULL);
	rbk_ring_free(ring);
}

/*
 * Return the least, or with @most the most, processor time of several waits in vain, after sleeps
 * whose wake-up took @wake_lag_ns: in some of them the thread may lose its processor, or start
 * cold.
 */
static uint64_t spent_in_vain_ns(struct rbk_ring *ring, uint64_t wake_lag_ns, bool most)
{
	const struct rbk_cqe *cqe;
	uint64_t ns, best_ns = most ? 0 : UINT64_MAX;

	for (unsigned int i = 0; i < TRIES; i++) {
		ring->wait_mean_ns = 0;
		ring->wake_lag_ns = wake_lag_ns;
		ns = thread_ns();
		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 2000000), -ETIME);
		ns = thread_ns() - ns;
		best_ns = most == (ns > best_ns) ? ns : best_ns;
	}
	return best_ns;
}

/* A wait spins as long as a sleep and its wake-up take, within limits. */
TEST(test_wait__spins_as_long_as_a_sleep_costs)
{
	struct rbk_ring *ring;

	FIXTURE(fixture, NULL);
	ring = ring_make(&fixture, 4);
	assert_true(spent_in_vain_ns(ring, 90000, true) > 85000);
	assert_true(spent_in_vain_ns(ring, 0, false) < 85000);
	assert_true(spent_in_vain_ns(ring, 1000000000, false) < 1000000);
	rbk_ring_free(ring);
}

static void on_signal(int number)
{
}

struct signals {
	pthread_t target;
	atomic_bool is_over;
};

/* The first signal may come before the wait has begun. */
static void *signal_later(void *data)
{
	struct signals *signals = data;

	do {
		sleep_ms(20);
		pthread_kill(signals->target, SIGUSR1);
	} while (!atomic_load(&signals->is_over));
	return NULL;
}

TEST(test_wait__interrupted)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct signals signals = {.target = pthread_self()};
	struct rbk_ring *ring;
	const struct rbk_cqe *cqe;
	pthread_t thread;

	sigaction(SIGUSR1, &action, NULL);
	FIXTURE(fixture, NULL);
	ring = ring_make(&fixture, 4);
	for (int i = 0; i < 3; i++) {
		int r;

		atomic_store(&signals.is_over, false);
		pthread_create(&thread, NULL, signal_later, &signals);
		if (i == 0)
			r = rbk_wait_cqe(ring, &cqe);
		else if (i == 1)
			r = rbk_wait_cqe_timeout(ring, &cqe, patience_ns);
		else
			r = rbk_submit_and_wait(ring, 1);
		atomic_store(&signals.is_over, true);
		pthread_join(thread, NULL);
		assert_int_equal(r, -EINTR);
	}
	submit_nops(ring, 1, 1);
	expect_nops(ring, 1, 1);
	rbk_ring_free(ring);
}

/* The broker is woken once per sleep, not once per entry. */
TEST(test_submit__wakes_once)
{
	struct rbk_ring *ring;
	unsigned int n_before;

	FIXTURE(fixture, NULL);
	ring = ring_make(&fixture, 64);
	fake_broker_pause(fixture.fake, true);
	sleep_ms(20);
	n_before = fake_broker_wakeups(fixture.fake);
	for (int i = 0; i < 20; i++) {
		submit_nops(ring, 1, (uint64_t)i);
		sleep_ms(1);
	}
	while (fake_broker_wakeups(fixture.fake) == n_before)
		sleep_ms(1);
	/* While paused, the fake broker sleeps again with a new token each time. */
	assert_in_range(fake_broker_wakeups(fixture.fake) - n_before, 1, 21);
	fake_broker_pause(fixture.fake, false);
	expect_nops(ring, 20, 0);
	rbk_ring_free(ring);
}

/* A client that goes to sleep wakes the broker only if entries are pending. */
TEST(test_wait__lets_broker_sleep)
{
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	unsigned int n_before;

	FIXTURE(fixture, NULL);
	ring = ring_make(&fixture, 4);
	rbk_ring_set_spin_ns(ring, 0);
	sleep_ms(20);
	n_before = fake_broker_wakeups(fixture.fake);
	for (int i = 0; i < 5; i++)
		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 2000000), -ETIME);
	assert_int_equal(rbk_ring_arm(ring), 0);
	sleep_ms(20);
	assert_int_equal(fake_broker_wakeups(fixture.fake), n_before);
	rbk_ring_free(ring);
}

/* ---- Event loops ---- */

TEST(test_arm__epoll)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct rbk_ring *ring;
	const struct rbk_cqe *cqe;
	int epoll, r, n_bells = 0;

	FIXTURE(fixture, NULL);
	ring = ring_make(&fixture, 8);
	epoll = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, rbk_ring_fd(ring), &event), 0);
	assert_int_equal(rbk_ring_arm(ring), 0);
	assert_int_equal(epoll_wait(epoll, &event, 1, 20), 0);
	for (uint64_t i = 0; i < 50; i++) {
		unsigned int n_seen = 0;

		submit_nops(ring, 3, i);
		while (n_seen < 3) {
			while (!(r = rbk_peek_cqe(ring, &cqe))) {
				assert_int_equal(cqe->user_data, i + n_seen++);
				rbk_cqe_seen(ring, cqe);
			}
			assert_int_equal(r, -EAGAIN);
			if (n_seen < 3 && rbk_ring_arm(ring) == 0)
				assert_int_equal(epoll_wait(epoll, &event, 1, 60000), 1);
		}
		/*
		 * All completions are consumed, so the bell is empty. One byte may come from a
		 * broker that completed the last entry before the client slept, and checked
		 * afterwards.
		 */
		for (unsigned int k = 0; k < 2; k++) {
			assert_int_equal(rbk_peek_cqe(ring, &cqe), -EAGAIN);
			assert_int_equal(rbk_ring_arm(ring), 0);
			n_bells = epoll_wait(epoll, &event, 1, 0);
			if (n_bells == 0)
				break;
		}
		assert_int_equal(n_bells, 0);
	}
	/* With completions pending, arming tells the caller not to sleep. */
	submit_nops(ring, 1, 0);
	while (rbk_cq_ready(ring) == 0)
		sleep_ms(1);
	assert_int_equal(rbk_ring_arm(ring), 1);
	expect_nops(ring, 1, 0);

	assert_int_equal(rbk_ring_arm(ring), 0);
	fake_broker_kill(fixture.fake);
	assert_int_equal(epoll_wait(epoll, &event, 1, 60000), 1);
	assert_int_equal(rbk_peek_cqe(ring, &cqe), -ECONNRESET);
	assert_int_equal(rbk_ring_arm(ring), -ECONNRESET);
	close(epoll);
	rbk_ring_free(ring);
}

/* ---- Losing the broker ---- */

enum loss { LOSS_KILL, LOSS_BELL, LOSS_CLOSED, LOSS_CLOSED_AND_BELL, LOSS_DISCONNECT, LOSS_COUNT };

static void lose(struct fixture *fixture, enum loss loss)
{
	if (loss == LOSS_KILL)
		fake_broker_kill(fixture->fake);
	else if (loss == LOSS_DISCONNECT)
		fixture->rbk = rbk_disconnect(fixture->rbk);
	else
		fake_broker_close_rings(fixture->fake, loss != LOSS_BELL, loss != LOSS_CLOSED);
}

/*
 * Lose the broker before any call.
 * Return: the time until a call reports the loss, in ms.
 */
static double lose_before_ms(enum loss loss, int how)
{
	struct stopwatch stopwatch;
	struct fixture fixture;
	struct rbk_ring *ring;
	const struct rbk_cqe *cqe, *cqes[4];
	double ms;
	int r = 0;

	fixture_begin_connected(&fixture, NULL);
	ring = ring_make(&fixture, 4);
	submit_nops(ring, 2, 0);
	while (rbk_cq_ready(ring) < 2)
		sleep_ms(1);
	lose(&fixture, loss);
	stopwatch_start(&stopwatch);
	/* Completed entries can still be read. */
	assert_int_equal(rbk_peek_batch_cqe(ring, cqes, 4), 2);
	rbk_cq_advance(ring, 2);
	while (!r)
		switch (how) {
		case 0:
			r = rbk_wait_cqe(ring, &cqe);
			break;
		case 1:
			r = rbk_wait_cqe_timeout(ring, &cqe, patience_ns);
			break;
		case 2:
			r = rbk_submit_and_wait(ring, 1);
			break;
		case 3: /* submit only */
			if (rbk_sq_space_left(ring))
				rbk_prep_nop(rbk_get_sqe(ring));
			r = rbk_submit(ring);
			r = r > 0 ? 0 : r;
			break;
		case 4: /* peek without pause */
			r = rbk_peek_cqe(ring, &cqe);
			r = r == -EAGAIN ? 0 : r;
			break;
		case 5: /* peek every 1 ms */
			r = rbk_peek_batch_cqe(ring, cqes, 4);
			sleep_ms(1);
			break;
		}
	ms = stopwatch_stop_ms(&stopwatch);
	assert_int_equal(r, -ECONNRESET);
	assert_int_equal(rbk_submit(ring), -ECONNRESET);
	/* Entries that were submitted before the loss was noticed may have completed. */
	while (!rbk_peek_cqe(ring, &cqe))
		rbk_cqe_seen(ring, cqe);
	assert_int_equal(rbk_peek_cqe(ring, &cqe), -ECONNRESET);
	assert_int_equal(rbk_ring_arm(ring), -ECONNRESET);
	assert_int_equal(rbk_wait_cqe(ring, &cqe), -ECONNRESET);
	rbk_ring_free(ring);
	fixture_end(&fixture);
	return ms;
}

/*
 * Assert a loss is reported within 100 ms in one of the tries: a thread that loses its processor
 * spoils one try, not all.
 */
static void expect_soon(double (*lose_ms)(enum loss loss, int how), enum loss loss, int how)
{
	double ms = 0;

	for (unsigned int i = 0; i < TRIES; i++) {
		ms = lose_ms(loss, how);
		if (ms <= 100)
			return;
	}
	fail_msg("loss %d, how %d: %g ms, %d times", loss, how, ms, TRIES);
}

TEST(test_lost__before_the_call)
{
	for (int loss = 0; loss < LOSS_COUNT; loss++)
		for (int how = 0; how < 6; how++)
			expect_soon(lose_before_ms, (enum loss)loss, how);
}

struct loss_argument {
	struct fixture *fixture;
	enum loss loss;
	struct stopwatch since;
};

static void *lose_later(void *data)
{
	struct loss_argument *argument = data;

	sleep_ms(20);
	stopwatch_start(&argument->since);
	if (argument->loss == LOSS_DISCONNECT)
		client_lose(argument->fixture->rbk, -ECONNRESET);
	else
		lose(argument->fixture, argument->loss);
	return NULL;
}

/* Lose the broker in a wait that spins or sleeps, with and without a timeout. */
static double lose_waiting_ms(enum loss loss, int how)
{
	struct loss_argument argument;
	struct fixture fixture;
	struct rbk_ring *ring;
	const struct rbk_cqe *cqe;
	pthread_t thread;
	double ms;
	int r;

	fixture_begin_connected(&fixture, NULL);
	argument.fixture = &fixture;
	argument.loss = loss;
	ring = ring_make(&fixture, 4);
	rbk_ring_set_spin_ns(ring, how < 2 ? 0 : UINT64_MAX);
	fake_broker_pause(fixture.fake, true);
	submit_nops(ring, 1, 0);
	pthread_create(&thread, NULL, lose_later, &argument);
	r = how % 2 ? rbk_wait_cqe_timeout(ring, &cqe, patience_ns) : rbk_wait_cqe(ring, &cqe);
	pthread_join(thread, NULL);
	ms = stopwatch_stop_ms(&argument.since);
	assert_int_equal(r, -ECONNRESET);
	rbk_ring_free(ring);
	fixture_end(&fixture);
	return ms;
}

TEST(test_lost__while_waiting)
{
	for (int loss = 0; loss < LOSS_COUNT; loss++)
		for (int how = 0; how < 4; how++)
			/*
			 * A broker that sets the word without a byte is noticed by spinning threads
			 * only.
			 */
			if (loss != LOSS_CLOSED || how >= 2)
				expect_soon(lose_waiting_ms, (enum loss)loss, how);
}

TEST(test_lost__impossible_indices)
{
	for (int how = 0; how < 3; how++) {
		struct fixture fixture;
		struct rbk_ring *ring;
		const struct rbk_cqe *cqe;

		fixture_begin_connected(&fixture, NULL);
		ring = ring_make(&fixture, 4);
		fake_broker_pause(fixture.fake, true);
		if (how == 0) {
			fake_broker_spoil_rings(fixture.fake, 5, 0);
			assert_int_equal(rbk_peek_cqe(ring, &cqe), -EPROTO);
			assert_int_equal(rbk_cq_ready(ring), 0);
		} else if (how == 1) {
			fake_broker_spoil_rings(fixture.fake, UINT32_MAX, 0);
			assert_int_equal(rbk_wait_cqe(ring, &cqe), -EPROTO);
		} else {
			submit_nops(ring, 4, 0);
			fake_broker_spoil_rings(fixture.fake, 0, 5);
			assert_null(rbk_get_sqe(ring));
			assert_int_equal(rbk_sq_space_left(ring), 0);
		}
		assert_int_equal(rbk_submit(ring), -EPROTO);
		assert_int_equal(rbk_wait_cqe(ring, &cqe), -EPROTO);
		rbk_ring_free(ring);
		fixture_end(&fixture);
	}
}

/* ---- Threads ---- */

struct worker {
	struct rbk *rbk;
	unsigned int number;
	bool failed;
};

static void *work(void *data)
{
	struct worker *worker = data;
	uint64_t first = (uint64_t)worker->number << 32;
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;

	if (rbk_ring_new(worker->rbk, 32, &ring, NULL)) {
		worker->failed = true;
		return NULL;
	}
	for (uint64_t i = 0; i < 500 && !worker->failed; i++) {
		unsigned int batch = (unsigned int)(i % 32 + 1);

		for (unsigned int k = 0; k < batch; k++) {
			struct rbk_sqe *sqe = rbk_get_sqe(ring);

			rbk_prep_nop(sqe);
			rbk_sqe_set_data64(sqe, first + i + k);
		}
		if (rbk_submit(ring) != (int)batch)
			worker->failed = true;
		for (unsigned int k = 0; k < batch && !worker->failed; k++) {
			if (rbk_wait_cqe(ring, &cqe) || cqe->user_data != first + i + k)
				worker->failed = true;
			else
				rbk_cqe_seen(ring, cqe);
		}
	}
	rbk_ring_free(ring);
	return NULL;
}

TEST(test_ring__threads)
{
	struct worker workers[4];
	pthread_t threads[4];

	FIXTURE(fixture, NULL);
	for (unsigned int i = 0; i < 4; i++) {
		workers[i] = (struct worker){fixture.rbk, i, false};
		pthread_create(&threads[i], NULL, work, &workers[i]);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_false(workers[i].failed);
	}
	assert_int_equal(fake_broker_objects(fixture.fake), 0);
}
