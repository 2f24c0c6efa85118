/* SPDX-License-Identifier: MIT */
/*
 * The broker's overhead per entry: nop-round-trip, nop-throughput, wake-latency, sessions
 *
 * The first two have the bare rings as their baseline, whose other side is as fast as possible. The
 * ratio is therefore the cost that admission, accounting and completion add to moving two entries.
 * Both sides' threads are pinned to the same two processors, and the side that is not measured
 * sleeps.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "bare-ring.h"
#include "bench.h"
#include "ping-pong.h"
#include "target.h"
#include "util/checked.h"
#include "util/clock.h"

#define RING_ENTRIES 1024u

static int run_round_trip(struct bench_env *env)
{
	const struct bench_row row = {"spinning", "ns", false, "bare-ring"};
	struct bare_ring *bare = NULL;
	struct target target;
	struct target_task task = {0};
	int r;

	r = target_init(&target, env, TARGET_PINNED);
	if (r)
		return r;
	r = bare_ring_new(RING_ENTRIES, env->peer_cpu, &bare);
	if (!r) {
		task.ring = target.ring;
		r = bench_compare(env, &row, (struct bench_side){target_round_trips, &task},
				  (struct bench_side){bare_ring_round_trips, bare});
	}
	if (r)
		bench_fail(env, r, "measuring failed");
	bare_ring_free(bare);
	target_deinit(&target);
	return r;
}

const struct bench bench_nop_round_trip = {
	.name = "nop-round-trip",
	.summary = "one NOP through the broker and back, both sides spinning",
	.baseline = "two threads bouncing the same two entry types through bare rings",
	.run = run_round_trip,
};

static int run_throughput(struct bench_env *env)
{
	static const uint32_t batches[] = {1, 8, 64};
	struct bare_ring *bare = NULL;
	struct target target;
	int r;

	r = target_init(&target, env, TARGET_PINNED);
	if (r)
		return r;
	r = bare_ring_new(RING_ENTRIES, env->peer_cpu, &bare);
	for (size_t i = 0; i < ARRAY_SIZE(batches) && !r; i++) {
		struct bare_ring_batch bare_batch = {bare, batches[i]};
		struct target_task task = {.ring = target.ring, .batch = batches[i]};
		struct bench_row row = {.unit = "M/s", .is_rate = true, .baseline = "bare-ring"};
		char params[32];

		snprintf(params, sizeof(params), "batch=%u", batches[i]);
		row.params = params;
		r = bench_compare(env, &row, (struct bench_side){target_throughput, &task},
				  (struct bench_side){bare_ring_throughput, &bare_batch});
	}
	if (r)
		bench_fail(env, r, "measuring failed");
	bare_ring_free(bare);
	target_deinit(&target);
	return r;
}

const struct bench bench_nop_throughput = {
	.name = "nop-throughput",
	.summary = "NOPs per second, published 1, 8 and 64 at a time, the ring kept full",
	.baseline = "the bare rings with the same batch",
	.run = run_throughput,
};

/*
 * Measure round trips with both sides asleep: the waiter does not spin, and a pause precedes each
 * round trip.
 */
static int asleep_target(void *data, uint64_t budget_ns, struct samples *samples)
{
	uint64_t end_ns = clock_now_ns() + budget_ns, start;
	int r;

	do {
		r = samples_reserve(samples, 1);
		if (r)
			return r;
		bench_settle(BENCH_ASLEEP_NS);
		start = clock_ticks();
		r = target_run_once(data);
		if (r)
			return r;
		samples_add(samples, (double)clock_elapsed_ns(start, clock_ticks()) / 1e3);
	} while (clock_now_ns() < end_ns);
	return 0;
}

static int asleep_ping_pong(void *data, uint64_t budget_ns, struct samples *samples)
{
	uint64_t end_ns = clock_now_ns() + budget_ns, start;
	int r;

	do {
		r = samples_reserve(samples, 1);
		if (r)
			return r;
		bench_settle(BENCH_ASLEEP_NS);
		start = clock_ticks();
		r = ping_pong_once(data);
		if (r)
			return r;
		samples_add(samples, (double)clock_elapsed_ns(start, clock_ticks()) / 1e3);
	} while (clock_now_ns() < end_ns);
	return 0;
}

static int run_wake(struct bench_env *env)
{
	const struct bench_row row = {"asleep", "us", false, "eventfd-ping-pong"};
	struct ping_pong ping_pong;
	struct target_task task = {0};
	struct target target;
	int r;

	/* Fork before there is a session, which the child would inherit. */
	r = ping_pong_init(&ping_pong, env->peer_cpu);
	if (r)
		return bench_fail(env, r, "cannot start the other process");
	r = target_init(&target, env, TARGET_PINNED);
	if (r)
		goto out;
	rbk_ring_set_spin_ns(target.ring, 0);
	task.ring = target.ring;
	r = bench_compare(env, &row, (struct bench_side){asleep_target, &task},
			  (struct bench_side){asleep_ping_pong, &ping_pong});
	if (r)
		bench_fail(env, r, "measuring failed");
	target_deinit(&target);
out:
	ping_pong_deinit(&ping_pong);
	return r;
}

const struct bench bench_wake_latency = {
	.name = "wake-latency",
	.summary = "one NOP through the broker and back, both sides asleep",
	.baseline = "an eventfd ping-pong between two processes",
	.run = run_wake,
};

struct idle_session {
	struct rbk *rbk;
	struct rbk_ring *ring;
};

static void idle_close(struct idle_session *sessions, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		rbk_ring_free(sessions[i].ring);
		rbk_disconnect(sessions[i].rbk);
		sessions[i] = (struct idle_session){0};
	}
}

/* Open a session that has run an entry, and so is idle rather than unused. */
static int idle_open(struct bench_env *env, const char *socket, struct idle_session *session)
{
	struct rbk_options options = {.size = sizeof(options), .socket_path = socket};
	struct target_task task = {0};
	struct rbk_error error;
	int r;

	options.name = "brokerbench-idle";
	r = rbk_connect(&options, &session->rbk, &error);
	if (r)
		return bench_refused(env, r, error.text);
	r = rbk_ring_new(session->rbk, 8, &session->ring, &error);
	if (r)
		return bench_refused(env, r, error.text);
	task.ring = session->ring;
	r = target_run_once(&task);
	return r ? bench_fail(env, r, "an idle session cannot run a NOP") : 0;
}

/* Each session of this process holds a few descriptors. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/*
 * Compare two brokers on the same processor, one with idle sessions and one without; the one that
 * is not measured sleeps, so that both can be measured by turns. The row with 0 idle sessions shows
 * how far two equal brokers differ.
 */
static int run_sessions(struct bench_env *env)
{
	static const unsigned int counts[] = {0, 100, 1000};
	struct idle_session *idle = NULL;
	struct target ours, alone = TARGET_INIT;
	struct target_task our_task = {0}, alone_task = {0};
	unsigned int n = 0;
	int r;

	if (env->socket)
		return bench_skip(env, NULL, "needs two brokers of its own, not --socket");
	raise_descriptor_limit();
	idle = calloc(counts[ARRAY_SIZE(counts) - 1], sizeof(*idle));
	if (!idle)
		return bench_fail(env, -ENOMEM, "no memory");
	r = target_init(&ours, env, TARGET_PINNED);
	if (!r)
		r = target_init(&alone, env, TARGET_PINNED);
	if (r)
		goto out;
	our_task.ring = ours.ring;
	alone_task.ring = alone.ring;

	for (size_t i = 0; i < ARRAY_SIZE(counts) && !r; i++) {
		struct bench_row row = {.unit = "ns", .baseline = "idle=0"};
		char params[32];

		for (; n < counts[i] && !r; n++)
			r = idle_open(env, target_socket(&ours, env), &idle[n]);
		if (r)
			break;
		snprintf(params, sizeof(params), "idle=%u", counts[i]);
		row.params = params;
		r = bench_compare(env, &row, (struct bench_side){target_round_trips, &our_task},
				  (struct bench_side){target_round_trips, &alone_task});
		if (r)
			bench_fail(env, r, "measuring failed");
	}
out:
	idle_close(idle, n);
	free(idle);
	target_deinit(&alone);
	target_deinit(&ours);
	return r;
}

const struct bench bench_sessions = {
	.name = "sessions",
	.summary = "NOP round trip of one busy session beside 0, 100 and 1,000 idle ones",
	.baseline = "the same beside none, on a second broker",
	.run = run_sessions,
};
