/* SPDX-License-Identifier: MIT */
/* Waits for completions: sleeping, spinning, timeouts, signals, the broker's predictions. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/ring.h"
#include "support/client-fixture.h"
#include "support/stopwatch.h"
#include "support/test.h"
#include "util/checked.h"

enum { TRIES = 20 };

struct release {
	struct fake_broker *fake;
	const struct rbk_ring *ring;
};

/* Make a ring whose waits spin as they have learned, also on a machine with one processor. */
static struct rbk_ring *adaptive_ring(struct fixture *fixture)
{
	struct rbk_ring *ring = ring_make(fixture, 4);

	ring->spin_is_fixed = false;
	ring->spin_ns = 50000;
	return ring;
}

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
	assert_int_equal(ring->sq->cq_wanted, 4);
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

/* A client that waits, or polls, names its processor for the broker. */
TEST(test_wait__tells_processor)
{
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	cpu_set_t all, one;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	FIXTURE(fixture, NULL);
	ring = ring_make(&fixture, 4);
	assert_int_equal(ring->sq->processor, 0);
	for (int i = 0; i < 2 * CPU_SETSIZE; i++) {
		const int processor = i % CPU_SETSIZE;

		if (!CPU_ISSET(processor, &all))
			continue;
		CPU_ZERO(&one);
		CPU_SET(processor, &one);
		assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
		if (i < CPU_SETSIZE)
			assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 1000), -ETIME);
		for (unsigned int n = 0; i >= CPU_SETSIZE && n < 64; n++)
			assert_int_equal(rbk_peek_cqe(ring, &cqe), -EAGAIN);
		assert_int_equal(ring->sq->processor, processor + 1);
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
	ring = adaptive_ring(&fixture);
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

/* The prediction is of the next completion: a client that wants two sleeps past it. */
TEST(test_wait__prediction_of_an_earlier_completion)
{
	struct release release;
	struct rbk_ring *ring;
	pthread_t thread;

	FIXTURE(fixture, NULL);
	ring = adaptive_ring(&fixture);
	ring->wait_mean_ns = 1000000000;
	release = (struct release){fixture.fake, ring};
	fake_broker_pause(fixture.fake, true);
	submit_nops(ring, 2, 0);
	fake_broker_tell_due(fixture.fake, 10000000);
	pthread_create(&thread, NULL, release_later, &release);
	assert_int_equal(rbk_submit_and_wait(ring, 2), 0);
	pthread_join(thread, NULL);
	/* A nap may come before the sleep. */
	assert_in_range(ring->sleep_token, 1, 2);
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
	ring = adaptive_ring(&fixture);
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

/*
 * A client remembers for some waits that predictions come, and how much earlier than predicted
 * tasks end.
 */
TEST(test_wait__learns_of_predictions)
{
	enum { WAITS = 64 };
	const struct rbk_cqe *cqe;
	struct release release;
	struct rbk_ring *ring;
	pthread_t thread;

	FIXTURE(fixture, NULL);
	ring = adaptive_ring(&fixture);
	release = (struct release){fixture.fake, ring};
	fake_broker_pause(fixture.fake, true);
	submit_nops(ring, 1, 0);
	fake_broker_tell_due(fixture.fake, UINT32_MAX);
	pthread_create(&thread, NULL, release_later, &release);
	assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, patience_ns), 0);
	pthread_join(thread, NULL);
	rbk_cqe_seen(ring, cqe);
	assert_true(ring->due_credit > 0);
	assert_in_range(ring->early_ns, 1, 2 * ring->spin_ns);
	/* From now on the prediction is long ago. */
	fake_broker_tell_due(fixture.fake, 0);
	for (unsigned int i = 0; i < WAITS && ring->due_credit > 0; i++) {
		ring->wait_mean_ns = 0;
		fake_broker_pause(fixture.fake, true);
		submit_nops(ring, 1, i);
		pthread_create(&thread, NULL, release_later, &release);
		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, patience_ns), 0);
		pthread_join(thread, NULL);
		rbk_cqe_seen(ring, cqe);
	}
	assert_int_equal(ring->due_credit, 0);
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
	ring = adaptive_ring(&fixture);
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
		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 5000000), -ETIME);
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
	ring = adaptive_ring(&fixture);
	/* Long enough that the time of a wait's own work does not matter */
	ring->spin_ns = 1000000;
	assert_true(spent_in_vain_ns(ring, 1800000, true) > 1700000);
	assert_true(spent_in_vain_ns(ring, 0, false) < 1700000);
	assert_true(spent_in_vain_ns(ring, 1000000000, false) < 4000000);
	rbk_ring_free(ring);
}

/* A wait in vain counts as a long one, but as no longer than twice what a wait may spin. */
TEST(test_wait__learns_of_waits_in_vain)
{
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;

	FIXTURE(fixture, NULL);
	ring = adaptive_ring(&fixture);
	ring->spin_ns = 1000;
	ring->wait_mean_ns = ring->wake_lag_ns = 0;
	assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 2000000), -ETIME);
	assert_int_equal(ring->wait_mean_ns, 2 * 1000 / 8);
	rbk_ring_free(ring);
}

/* A wait goes on spinning after a predicted end that has passed, as long as a sleep costs. */
TEST(test_wait__spins_after_a_late_prediction)
{
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	uint64_t spent_ns = 0, ns;

	FIXTURE(fixture, NULL);
	ring = adaptive_ring(&fixture);
	ring->spin_ns = 4000000;
	for (unsigned int i = 0; i < TRIES && spent_ns <= 4000000; i++) {
		/* Without a prediction this wait would not spin. */
		ring->wait_mean_ns = UINT64_MAX / 16;
		ring->spin_skipped = 0;
		fake_broker_tell_due(fixture.fake, 2000000);
		ns = thread_ns();
		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 20000000), -ETIME);
		ns = thread_ns() - ns;
		spent_ns = ns > spent_ns ? ns : spent_ns;
	}
	assert_in_range(spent_ns, 4000001, 15000000);
	rbk_ring_free(ring);
}

/*
 * A client that has woken the broker sleeps for a moment before it spins, or to see a prediction,
 * unless told otherwise. One that would sleep afterwards sleeps at once.
 */
TEST(test_wait__lets_broker_run)
{
	static const struct {
		bool has_rung, is_fixed, spins;
		uint32_t due_credit;
		uint32_t n_naps;
	} cases[] = {
		{false, false, true, 0, 0}, {true, false, true, 0, 1}, {true, false, false, 0, 0},
		{true, false, false, 1, 1}, {false, true, true, 0, 0}, {true, true, true, 0, 0},
	};
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	uint32_t token, n_sleeps;

	FIXTURE(fixture, NULL);
	ring = adaptive_ring(&fixture);
	fake_broker_pause(fixture.fake, true);
	while ((token = rbk_ring_sleep_token(&ring->cq->sq_wait)) == 0)
		sleep_ms(1);
	ring->spin_ns = 50000000;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (cases[i].is_fixed)
			rbk_ring_set_spin_ns(ring, 50000000);
		ring->sq_rung = cases[i].has_rung ? token : token - 1;
		ring->wait_mean_ns = cases[i].spins ? 0 : UINT64_MAX / 16;
		ring->spin_skipped = 0;
		ring->due_credit = cases[i].due_credit;
		n_sleeps = ring->sleep_token;
		/* The end of this wait is a sleep as well. */
		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 2000000), -ETIME);
		assert_int_equal(ring->sleep_token - n_sleeps, cases[i].n_naps + 1);
	}
	rbk_ring_free(ring);
}

/* Return the thread's timer slack, which the C library's prctl() truncates to an int. */
static uint64_t slack_ns(void)
{
	return (uint64_t)syscall(SYS_prctl, PR_GET_TIMERSLACK);
}

/* A client's timer slack survives its naps, however large it is. */
TEST(test_wait__keeps_timer_slack)
{
	static const uint64_t slacks_ns[] = {70000, 3000000000};
	const uint64_t before_ns = slack_ns();
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	uint32_t n_sleeps;

	FIXTURE(fixture, NULL);
	ring = adaptive_ring(&fixture);
	fake_broker_pause(fixture.fake, true);
	while ((ring->sq_rung = rbk_ring_sleep_token(&ring->cq->sq_wait)) == 0)
		sleep_ms(1);
	for (size_t i = 0; i < ARRAY_SIZE(slacks_ns); i++) {
		assert_int_equal(prctl(PR_SET_TIMERSLACK, slacks_ns[i]), 0);
		n_sleeps = ring->sleep_token;
		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, 2000000), -ETIME);
		assert_int_equal(ring->sleep_token - n_sleeps, 2);
		assert_int_equal(slack_ns(), slacks_ns[i]);
	}
	assert_int_equal(prctl(PR_SET_TIMERSLACK, before_ns), 0);
	rbk_ring_free(ring);
}

/* For the broker, a client that only took a nap has not slept. */
TEST(test_wait__nap_is_no_sleep)
{
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	uint32_t n_sleeps;
	unsigned int n_naps = 0;

	FIXTURE(fixture, NULL);
	ring = adaptive_ring(&fixture);
	for (unsigned int i = 0; i < 10 * TRIES && n_naps == 0; i++) {
		while (rbk_ring_sleep_token(&ring->cq->sq_wait) == 0)
			sleep_ms(1);
		ring->spin_ns = 1000000000;
		ring->wait_mean_ns = 0;
		n_sleeps = ring->sleep_token;
		submit_nops(ring, 1, i);
		assert_int_equal(rbk_wait_cqe_timeout(ring, &cqe, patience_ns), 0);
		rbk_cqe_seen(ring, cqe);
		n_naps = ring->sleep_token - n_sleeps;
	}
	/* A byte that was left in the bell interrupts a nap, which then goes on. */
	assert_true(n_naps > 0);
	assert_int_equal(ring->sq->slept, 0);
	rbk_ring_free(ring);
}

/* A client does not spin on the processor of the broker. */
TEST(test_wait__sleeps_beside_broker)
{
	struct rbk_ring *ring;
	cpu_set_t all, here;
	int processor;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	FIXTURE(fixture, NULL);
	ring = adaptive_ring(&fixture);
	processor = sched_getcpu();
	CPU_ZERO(&here);
	CPU_SET(processor, &here);
	assert_int_equal(sched_setaffinity(0, sizeof(here), &here), 0);
	ring->spin_ns = 2000000;
	assert_true(spent_in_vain_ns(ring, 0, true) > 1500000);
	fake_broker_tell_processor(fixture.fake, (uint32_t)processor);
	assert_true(spent_in_vain_ns(ring, 0, false) < 500000);
	fake_broker_tell_processor(fixture.fake, (uint32_t)processor + 1);
	assert_true(spent_in_vain_ns(ring, 0, true) > 1500000);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
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
