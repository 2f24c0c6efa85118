/* SPDX-License-Identifier: MIT */
/*
 * Clients that are killed
 *
 * Hundreds of client processes with different work are killed with SIGKILL at random moments:
 * before they have connected, asleep, or in the middle of a request. Afterwards the broker holds
 * what it held before, and a neighbour, which computes meanwhile, has not noticed.
 *
 * "soak" as the argument runs ten times as many.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/harness.h"
#include "integration/plans.h"
#include "support/test.h"

enum { AT_A_TIME = 12, MAX_LIFE_US = 240000 };

static unsigned int n_clients = 300;

/* ---- Work of clients, each without end ---- */

struct client {
	const struct broker *broker;
	struct rbk *rbk;
	uint64_t seed;
};

static void client_connect(struct client *client)
{
	struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = client->broker->socket_path,
		.name = "mortal",
	};

	/* Retry: sessions of killed clients may still fill a limit. */
	while (rbk_connect(&options, &client->rbk, NULL))
		usleep(1000);
}

static void be_connecting(struct client *client)
{
	for (;;) {
		client_connect(client);
		rbk_disconnect(client->rbk);
	}
}

static void be_registering(struct client *client)
{
	struct rbk_arena *arenas[4] = {NULL};

	client_connect(client);
	for (unsigned int i = 0;; i++) {
		rbk_arena_free(arenas[i % 4]);
		arenas[i % 4] = NULL;
		if (rbk_arena_new(client->rbk, 1 + harness_random(&client->seed) % (4 << 20),
				  &arenas[i % 4], NULL) == 0 &&
		    i % 3 == 0)
			rbk_arena_seal(arenas[i % 4], NULL);
	}
}

/* Make a product of [count, n] with a constant of [n, n]. */
static struct rbk_plan *product_plan(struct client *client, uint32_t n, struct rbk_arena **ret)
{
	struct rbk_plan *plan = NULL;

	if (plan_constants(client->rbk, (size_t)n * n * 4, ret) ||
	    plan_product(client->rbk, 256, n, n, *ret, &plan, NULL))
		_exit(1);
	return plan;
}

static void be_preparing(struct client *client)
{
	struct rbk_arena *arena;

	client_connect(client);
	for (;;) {
		rbk_plan_free(product_plan(client, 256 + client->seed % 256, &arena));
		rbk_arena_free(arena);
	}
}

/* Each task has an output of its own: two tasks that write one tensor would race. */
static void be_running(struct client *client)
{
	enum { ENTRIES = 64, SLOTS = 2 * ENTRIES, MAX_ROWS = 64, SLOT_BYTES = MAX_ROWS * 256 * 4 };
	unsigned int n_free = SLOTS, round = 0;
	struct rbk_arena *constants, *arena;
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	struct rbk_plan *plan;
	struct rbk_sqe *sqe;
	uint64_t free_slots[SLOTS];

	client_connect(client);
	plan = product_plan(client, 256, &constants);
	if (rbk_arena_new(client->rbk, (SLOTS + 1) * SLOT_BYTES, &arena, NULL) ||
	    rbk_ring_new(client->rbk, ENTRIES, &ring, NULL))
		_exit(1);
	for (unsigned int i = 0; i < SLOTS; i++)
		free_slots[i] = i + 1;

	for (;;) {
		while (n_free > 0 && (sqe = rbk_get_sqe(ring))) {
			const uint64_t slot = free_slots[--n_free];
			const uint64_t refs[] = {rbk_arena_ref(arena, 0),
						 rbk_arena_ref(arena, slot * SLOT_BYTES)};

			rbk_prep_run(sqe, rbk_plan_id(plan), 1 + round % MAX_ROWS, refs, 2);
			rbk_sqe_set_data64(sqe, slot);
			rbk_sqe_set_strategy(sqe, round % 3 ? RBK_STRATEGY_AUTO
							    : RBK_STRATEGY_PREFER_GPU);
			if (round++ % 5 == 0)
				rbk_sqe_set_flags(sqe, RBK_SQE_LINK);
		}
		rbk_submit(ring);
		while (rbk_peek_cqe(ring, &cqe) == 0) {
			free_slots[n_free++] = rbk_cqe_get_data64(cqe);
			rbk_cqe_seen(ring, cqe);
		}
	}
}

static void be_sleeping(struct client *client)
{
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;

	client_connect(client);
	if (rbk_ring_new(client->rbk, 8, &ring, NULL))
		_exit(1);
	rbk_ring_set_spin_ns(ring, 0);
	for (;;)
		rbk_wait_cqe(ring, &cqe);
}

static void be_large(struct client *client)
{
	struct rbk_ring *rings[3] = {NULL};

	client_connect(client);
	for (unsigned int i = 0;; i++) {
		rbk_ring_free(rings[i % 3]);
		rings[i % 3] = NULL;
		if (rbk_ring_new(client->rbk, RBK_MAX_RING_ENTRIES, &rings[i % 3], NULL))
			continue;
		for (unsigned int k = 0; k < 5000; k++)
			rbk_prep_nop(rbk_get_sqe(rings[i % 3]));
		rbk_submit(rings[i % 3]);
	}
}

static void (*const lives[])(struct client *client) = {
	be_connecting, be_registering, be_preparing, be_running, be_running, be_sleeping, be_large,
};

static pid_t client_start(const struct broker *broker, unsigned int number)
{
	struct client client = {.broker = broker, .seed = number * 2654435761u + 1};
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(60);
	lives[number % (sizeof(lives) / sizeof(*lives))](&client);
	_exit(0);
}

/* ---- The killing ---- */

/* Start and kill @n clients, AT_A_TIME at a time. */
static void kill_clients(const struct broker *broker, unsigned int n, uint64_t *seed)
{
	pid_t pids[AT_A_TIME] = {0};
	unsigned int slot;
	int status;

	for (unsigned int i = 0; i < n + AT_A_TIME; i++) {
		slot = i % AT_A_TIME;
		if (pids[slot]) {
			usleep((unsigned int)(harness_random(seed) % (MAX_LIFE_US / AT_A_TIME)));
			kill(pids[slot], SIGKILL);
			assert_int_equal(waitpid(pids[slot], &status, 0), pids[slot]);
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
			pids[slot] = 0;
		}
		if (i < n)
			pids[slot] = client_start(broker, i);
	}
}

TEST(test_kill__frees_everything_of_the_client)
{
	struct broker_usage before, after;
	struct rbk_stats stats_before, stats;
	struct neighbour *neighbour;
	uint64_t seed = 20261120, results;
	struct rbk *observer;

	BROKER(broker,
	       &(struct broker_options){.args = (const char *const[]){"--gpu=software", NULL}});
	neighbour = neighbour_start(&broker);
	observer = broker_connect(&broker, "observer");
	assert_int_equal(rbk_stats(observer, &stats_before), 0);
	/* Warm up, so that memory that the allocator keeps is not taken for a leak. */
	kill_clients(&broker, n_clients / 5 + 7, &seed);
	broker_wait_sessions(observer, 2);
	harness_sleep_ms(100);
	broker_usage(&broker, &before);

	results = neighbour_results(neighbour);
	kill_clients(&broker, n_clients, &seed);
	broker_wait_sessions(observer, 2);
	assert_true(neighbour_results(neighbour) > results);

	/* Only the charges of the neighbour and the observer are left. */
	broker_wait_host_bytes(observer, stats_before.host_bytes);
	assert_int_equal(rbk_stats(observer, &stats), 0);
	assert_fields(stats, (rings, stats_before.rings), (arenas, stats_before.arenas),
		      (plans, stats_before.plans), (device_bytes, stats_before.device_bytes),
		      (sessions_ended_hostile, 0));

	/* The allocator may keep some arenas and pages, but not more with each client. */
	for (unsigned int i = 0; i < 1000; i++) {
		broker_usage(&broker, &after);
		if (after.n_fds == before.n_fds)
			break;
		harness_sleep_ms(5);
	}
	print_message("%u killed: descriptors %u -> %u, threads %u -> %u, mappings %u -> %u, "
		      "resident %llu -> %llu KiB; the neighbour got %llu results\n",
		      n_clients, before.n_fds, after.n_fds, before.n_threads, after.n_threads,
		      before.n_mappings, after.n_mappings,
		      (unsigned long long)before.rss_bytes / 1024,
		      (unsigned long long)after.rss_bytes / 1024,
		      (unsigned long long)(neighbour_results(neighbour) - results));
	assert_fields(after, (n_fds, before.n_fds), (n_threads, before.n_threads));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	/* Sanitizers keep freed memory for a while. */
	assert_true(after.n_mappings <= before.n_mappings + 16);
	assert_true(after.rss_bytes <= before.rss_bytes + (24 << 20));
#endif

	neighbour_stop(neighbour);
	rbk_disconnect(observer);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "soak") == 0)
		n_clients = 3000;
	n_clients = (unsigned int)test_scaled(n_clients);
	harness_limit_seconds(argc > 1 ? 170 : 110);
	return test_run(NULL, NULL);
}
