/* SPDX-License-Identifier: MIT */
/*
 * Clients that are killed
 *
 * Client processes with different work are killed with SIGKILL at random moments: before they have
 * connected, asleep, with tasks on both devices, in a lease, waiting for memory, or in the middle
 * of a request. Afterwards the broker holds what it held before, and a neighbour, which computes
 * meanwhile, has not noticed.
 *
 * "soak" as the argument kills 10,000.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ringbroker/lease.h>

#include "integration/harness.h"
#include "integration/plans.h"
#include "support/test.h"

enum { AT_A_TIME = 12, MAX_LIFE_US = 240000 };

/* Device memory, of which a client that waits wants more than half. */
#define DEVICE_MEMORY "--device-memory=32MiB"
static const uint64_t most_memory = 20 << 20;

static unsigned int n_clients = 72;

/* Shared with the clients: true if the client in that slot has begun the endless part of its life.
 */
static _Atomic bool *has_begun;

/* ---- Work of clients, each without end ---- */

struct client {
	const struct broker *broker;
	struct rbk *rbk;
	uint64_t seed;
	unsigned int slot;
};

/* Note that the endless part of the client's life begins. */
static void client_begins(const struct client *client)
{
	has_begun[client->slot] = true;
}

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
	client_begins(client);
	for (;;) {
		client_connect(client);
		rbk_disconnect(client->rbk);
	}
}

static void be_registering(struct client *client)
{
	struct rbk_arena *arenas[4] = {NULL};

	client_connect(client);
	client_begins(client);
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
	client_begins(client);
	for (;;) {
		rbk_plan_free(product_plan(client, 256 + client->seed % 256, &arena));
		rbk_arena_free(arena);
	}
}

/* Tasks in flight. Each has an output of its own: two tasks that write one tensor would race. */
enum { ENTRIES = 64, SLOTS = 2 * ENTRIES, MAX_ROWS = 64, SLOT_BYTES = MAX_ROWS * 256 * 4 };
struct work {
	struct rbk_arena *constants, *arena;
	struct rbk_ring *ring;
	struct rbk_plan *plan;
	uint64_t free_slots[SLOTS];
	unsigned int n_free, round;
};

static void work_begin(struct client *client, struct work *work)
{
	client_connect(client);
	work->plan = product_plan(client, 256, &work->constants);
	if (rbk_arena_new(client->rbk, (SLOTS + 1) * SLOT_BYTES, &work->arena, NULL) ||
	    rbk_ring_new(client->rbk, ENTRIES, &work->ring, NULL))
		_exit(1);
	work->n_free = SLOTS;
	for (unsigned int i = 0; i < SLOTS; i++)
		work->free_slots[i] = i + 1;
	client_begins(client);
}

/* Submit what there is room for, and take what has completed. */
static void work_on(struct work *work, unsigned int strategy)
{
	const struct rbk_cqe *cqe;
	struct rbk_sqe *sqe;

	while (work->n_free > 0 && (sqe = rbk_get_sqe(work->ring))) {
		const uint64_t slot = work->free_slots[--work->n_free];
		const uint64_t refs[] = {rbk_arena_ref(work->arena, 0),
					 rbk_arena_ref(work->arena, slot * SLOT_BYTES)};

		rbk_prep_run(sqe, rbk_plan_id(work->plan), 1 + work->round % MAX_ROWS, refs, 2);
		rbk_sqe_set_data64(sqe, slot);
		rbk_sqe_set_strategy(sqe, work->round % 3 ? strategy : RBK_STRATEGY_PREFER_GPU);
		if (work->round++ % 5 == 0)
			rbk_sqe_set_flags(sqe, RBK_SQE_LINK);
	}
	rbk_submit(work->ring);
	while (rbk_peek_cqe(work->ring, &cqe) == 0) {
		work->free_slots[work->n_free++] = rbk_cqe_get_data64(cqe);
		rbk_cqe_seen(work->ring, cqe);
	}
}

static void be_running(struct client *client)
{
	struct work work = {.n_free = 0};

	work_begin(client, &work);
	for (;;)
		work_on(&work, RBK_STRATEGY_AUTO);
}

/* Keep the device busy, without a pause of its own that a kill could hit. */
static void be_on_device(struct client *client)
{
	struct work work = {.n_free = 0};

	work_begin(client, &work);
	for (;;) {
		work_on(&work, RBK_STRATEGY_ONLY_GPU);
		usleep(100);
	}
}

/* Update a state by one task after the other. */
static void be_updating(struct client *client)
{
	enum { ROWS = 64, WIDTH = 256, BYTES = ROWS * WIDTH * 4 };
	const uint32_t dims[] = {RBK_DIM_COUNT, WIDTH};
	struct rbk_builder *b = rbk_builder_new("update");
	unsigned int in[] = {rbk_builder_state(b, "s", RBK_DTYPE_F32, 2, dims),
			     rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, dims)};
	struct rbk_arena *arena;
	struct rbk_ring *ring;
	struct rbk_plan *plan;
	struct rbk_sqe *sqe;

	client_connect(client);
	rbk_builder_node(b, "Mul", "", in, 2, &in[0], 1);
	if (rbk_plan_new(client->rbk, b, ROWS, &plan, NULL) ||
	    rbk_arena_new(client->rbk, 2 * BYTES, &arena, NULL) ||
	    rbk_ring_new(client->rbk, ENTRIES, &ring, NULL))
		_exit(1);
	client_begins(client);
	for (;;) {
		const uint64_t refs[] = {rbk_arena_ref(arena, 0), rbk_arena_ref(arena, BYTES)};
		const struct rbk_cqe *cqe;

		while ((sqe = rbk_get_sqe(ring))) {
			rbk_prep_run(sqe, rbk_plan_id(plan), ROWS, refs, 2);
			rbk_sqe_set_flags(sqe, RBK_SQE_LINK);
		}
		rbk_submit(ring);
		while (rbk_peek_cqe(ring, &cqe) == 0)
			rbk_cqe_seen(ring, cqe);
	}
}

/* Have a lease, take credit of it, and give the credit back. */
static void be_leasing(struct client *client)
{
	const struct rbk_lease_options options = {.device = RBK_DEVICE_NONE,
						  .min_bytes = 1 << 16,
						  .max_bytes = 4 << 20,
						  .wait_ns = 60000000000};
	struct rbk_lease *lease;
	uint64_t bytes;

	for (;;) {
		client_connect(client);
		client_begins(client);
		if (rbk_lease_open(client->rbk, &options, &lease, NULL) == 0) {
			for (unsigned int i = 0; i < 64; i++) {
				if (rbk_lease_take(lease, 1 << 20, 1, 0, NULL, &bytes, NULL))
					continue;
				rbk_lease_resize(client->rbk, rbk_lease_number(lease),
						 (1 + i % 4) << 20, NULL, NULL);
				rbk_lease_object_add(lease, 1, i, 4096, 0, &bytes, NULL);
				rbk_lease_give(lease, bytes, NULL);
			}
			rbk_lease_close(lease);
		}
		rbk_disconnect(client->rbk);
	}
}

/* Have most of the device's memory, and wait for as much again. */
static void be_waiting(struct client *client)
{
	const struct rbk_lease_options options = {.device = RBK_DEVICE_NONE,
						  .min_bytes = most_memory,
						  .max_bytes = most_memory,
						  .wait_ns = 60000000000};
	struct rbk_lease *lease;

	client_begins(client);
	for (;;) {
		client_connect(client);
		rbk_lease_open(client->rbk, &options, &lease, NULL);
	}
}

/* Load plans that together need more device memory than there is. */
static void be_loading(struct client *client)
{
	enum { N_PLANS = 4, SIDE = 1024 };
	struct rbk_plan *plans[N_PLANS];
	struct rbk_arena *constants;
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	struct rbk_sqe *sqe;

	client_connect(client);
	for (unsigned int i = 0; i < N_PLANS; i++)
		plans[i] = product_plan(client, SIDE, &constants);
	if (rbk_ring_new(client->rbk, ENTRIES, &ring, NULL))
		_exit(1);
	client_begins(client);
	for (unsigned int i = 0;; i++) {
		sqe = rbk_get_sqe(ring);
		rbk_prep_prefetch(sqe, rbk_plan_id(plans[i % N_PLANS]));
		rbk_sqe_set_wait_memory(sqe);
		rbk_submit_and_wait(ring, 1);
		while (rbk_peek_cqe(ring, &cqe) == 0)
			rbk_cqe_seen(ring, cqe);
	}
}

/* Have the broker make arenas in memory that a device shares, where it can. */
static void be_exporting(struct client *client)
{
	struct rbk_arena *arenas[4] = {NULL};

	client_connect(client);
	client_begins(client);
	for (unsigned int i = 0;; i++) {
		rbk_arena_free(arenas[i % 4]);
		arenas[i % 4] = NULL;
		rbk_arena_new_flags(client->rbk, 1 << (12 + i % 8), 0, &arenas[i % 4], NULL);
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
	client_begins(client);
	for (;;)
		rbk_wait_cqe(ring, &cqe);
}

static void be_large(struct client *client)
{
	struct rbk_ring *rings[3] = {NULL};

	client_connect(client);
	client_begins(client);
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
	be_connecting, be_registering, be_preparing, be_running, be_on_device, be_sleeping,
	be_large,      be_updating,    be_leasing,   be_waiting, be_loading,   be_exporting,
};
#define N_LIVES (sizeof(lives) / sizeof(*lives))

/* Wait until the client in @slot is where it stays until it is killed. */
static void await_begun(unsigned int slot)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(60000000000);

	while (!has_begun[slot]) {
		if (harness_now_ns() > end_ns)
			fail_msg("a client has not begun to live");
		usleep(500);
	}
}

static pid_t client_start(const struct broker *broker, unsigned int number)
{
	struct client client = {
		.broker = broker, .seed = number * 2654435761u + 1, .slot = number % AT_A_TIME};
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(60);
	lives[number % N_LIVES](&client);
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
			/* Kill half of each life's clients wherever they are. */
			if (i / N_LIVES % 2)
				await_begun(slot);
			usleep((unsigned int)(harness_random(seed) % (MAX_LIFE_US / AT_A_TIME)));
			kill(pids[slot], SIGKILL);
			assert_int_equal(waitpid(pids[slot], &status, 0), pids[slot]);
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
			pids[slot] = 0;
		}
		has_begun[slot] = false;
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

	has_begun = mmap(NULL, AT_A_TIME * sizeof(*has_begun), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(has_begun, MAP_FAILED);
	BROKER(broker, &(struct broker_options){.args = (const char *const[]){
							"--gpu=software", DEVICE_MEMORY, NULL}});
	neighbour = neighbour_start(&broker);
	observer = broker_connect(&broker, "observer");
	assert_int_equal(rbk_stats(observer, &stats_before), 0);
	/* Warm up, so that memory that the allocator keeps is not taken for a leak. */
	kill_clients(&broker, 2 * N_LIVES, &seed);
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
		      (plans, stats_before.plans), (sessions_ended_hostile, 0));
	/* The neighbour's plan may have been evicted. */
	broker_wait_vram(observer, stats_before.device_bytes);

	/* The allocator may keep some arenas and pages, but not more with each client. */
	for (unsigned int i = 0; i < 1000; i++) {
		broker_usage(&broker, &after);
		if (after.n_fds == before.n_fds)
			break;
		harness_sleep_ms(5);
	}
	print_message("%u killed: descriptors %u -> %u, threads %u -> "
		      "%u, mappings %u -> %u, "
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
		n_clients = 10000;
	n_clients = (unsigned int)test_scaled(n_clients);
	harness_limit_seconds(argc > 1 ? 600 : 110);
	return test_run(NULL, NULL);
}
