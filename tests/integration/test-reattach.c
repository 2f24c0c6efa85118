/* SPDX-License-Identifier: MIT */
/*
 * Brokers that die while clients work, and come back
 *
 * The clients know nothing of it: they submit tasks, wait, and check each result. Between them and
 * the broker nothing may be lost, nothing may complete twice, and no call may fail.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/harness.h"
#include "integration/plans.h"
#include "support/scaled.h"
#include "support/test.h"

enum {
	WIDTH = 16,     /* elements of a row */
	BIG_ROWS = 512, /* rows of a task that does not run at once */
	DEPTH = 32,     /* tasks in flight of a client */
	N_CLIENTS = 4,
	MAX_GAPS = 2048,
	SLOT_BYTES = 2 * BIG_ROWS * WIDTH * sizeof(float),
};

/* A client with a thread of its own. The thread writes all but must_end. */
struct client {
	pthread_t thread;
	const char *socket_path;
	bool by_event_loop;
	atomic_bool must_end;
	char failure[256]; /* empty: none */
	_Atomic uint64_t n_done;
	atomic_bool has_ended;
	unsigned int n_reattached;
	atomic_uint n_callbacks;
	uint64_t gaps_ns[MAX_GAPS]; /* of the first re-attachments, without the wait for a broker */
};

/* A task in flight: it computes y = -x over @count rows. */
struct slot {
	uint64_t id; /* 0: free; otherwise its user_data */
	uint32_t count;
	bool is_nop;
	float *x, *y;
};

struct work {
	struct client *client;
	struct rbk *rbk;
	struct rbk_arena *arena;
	struct rbk_plan *plan;
	struct rbk_ring *ring;
	struct slot slots[DEPTH];
	uint64_t next_id, random;
	unsigned int n_in_flight;
	int epoll_fd;
};

static bool failed(struct work *work, const char *what, long long a, long long b)
{
	if (!work->client->failure[0])
		snprintf(work->client->failure, sizeof(work->client->failure), "%s (%lld, %lld)",
			 what, a, b);
	return false;
}

static void on_reattach(struct rbk *rbk, const struct rbk_reattachment *about, void *data)
{
	struct client *client = data;
	const unsigned int n = atomic_fetch_add(&client->n_callbacks, 1);

	(void)rbk;
	if (about->r == 0 && n < MAX_GAPS)
		client->gaps_ns[n] = about->gap_ns - about->wait_ns;
}

static bool work_begin(struct work *work, struct client *client)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = client->socket_path,
		.on_reattach = on_reattach,
		.on_reattach_data = client,
	};
	struct rbk_error error = {""};
	int r;

	*work = (struct work){.client = client, .next_id = 1, .random = (uintptr_t)client | 1};
	r = rbk_connect(&options, &work->rbk, &error);
	if (!r)
		r = rbk_arena_new(work->rbk, DEPTH * SLOT_BYTES, &work->arena, &error);
	if (!r)
		r = plan_elements(work->rbk, "Neg", 1, BIG_ROWS, WIDTH, &work->plan, &error);
	if (!r)
		r = rbk_ring_new(work->rbk, DEPTH, &work->ring, &error);
	if (r)
		return failed(work, error.text, r, 0);
	for (unsigned int i = 0; i < DEPTH; i++) {
		work->slots[i].x = rbk_arena_alloc(work->arena, SLOT_BYTES / 2);
		work->slots[i].y = rbk_arena_alloc(work->arena, SLOT_BYTES / 2);
	}
	work->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_ctl(work->epoll_fd, EPOLL_CTL_ADD, rbk_ring_fd(work->ring),
		      &(struct epoll_event){.events = EPOLLIN}))
		return failed(work, "epoll_ctl", errno, 0);
	return true;
}

static void work_end(struct work *work)
{
	work->client->n_reattached = work->rbk ? rbk_n_reattached(work->rbk) : 0;
	rbk_ring_free(work->ring);
	rbk_plan_free(work->plan);
	rbk_arena_free(work->arena);
	rbk_disconnect(work->rbk);
	close(work->epoll_fd);
}

static float value_of(uint64_t id, uint32_t i)
{
	return (float)((id * 7919 + i) % 65521);
}

/* Submit a task with a free slot: a NOP, a small task or a big one. */
static bool submit(struct work *work)
{
	struct rbk_sqe *sqe = rbk_get_sqe(work->ring);
	struct slot *slot = work->slots;
	const uint64_t kind = harness_random(&work->random) % 8;
	int n;

	if (!sqe)
		return failed(work, "no entry is free", work->n_in_flight, 0);
	while (slot->id != 0)
		slot++;
	slot->id = work->next_id++;
	slot->is_nop = kind == 0;
	slot->count = kind < 6 ? 1 : BIG_ROWS;
	for (uint32_t i = 0; i < slot->count * WIDTH; i++) {
		slot->x[i] = value_of(slot->id, i);
		slot->y[i] = 1;
	}
	if (slot->is_nop)
		rbk_prep_nop(sqe);
	else
		rbk_prep_run(sqe, rbk_plan_id(work->plan), slot->count,
			     (const uint64_t[]){rbk_ref(work->arena, slot->x),
						rbk_ref(work->arena, slot->y)},
			     2);
	rbk_sqe_set_data64(sqe, slot->id);
	n = rbk_submit(work->ring);
	work->n_in_flight++;
	return n == 1 || failed(work, "rbk_submit()", n, 0);
}

static bool check(struct work *work, const struct rbk_cqe *cqe)
{
	struct slot *slot = work->slots;

	while (slot < work->slots + DEPTH && slot->id != cqe->user_data)
		slot++;
	if (cqe->user_data == 0 || slot == work->slots + DEPTH)
		return failed(work, "a completion of no task in flight", (long long)cqe->user_data,
			      (long long)work->next_id);
	if (cqe->res != 0)
		return failed(work, "a task failed", (long long)cqe->user_data, cqe->res);
	for (uint32_t i = 0; i < slot->count * WIDTH && !slot->is_nop; i++)
		if (slot->y[i] != -value_of(slot->id, i))
			return failed(work, "a result is wrong", (long long)slot->id, i);
	slot->id = 0;
	work->n_in_flight--;
	work->client->n_done++;
	return true;
}

/* Wait as an event loop does. Return: as rbk_wait_cqe(). */
static int wait_by_loop(struct work *work, const struct rbk_cqe **ret)
{
	struct epoll_event event;
	int r;

	while ((r = rbk_peek_cqe(work->ring, ret)) == -EAGAIN) {
		r = rbk_ring_arm(work->ring);
		if (r < 0)
			return r;
		if (r == 0)
			epoll_wait(work->epoll_fd, &event, 1, -1);
	}
	return r;
}

static bool consume(struct work *work)
{
	const struct rbk_cqe *cqe;
	int r = work->client->by_event_loop ? wait_by_loop(work, &cqe)
					    : rbk_wait_cqe(work->ring, &cqe);

	if (r)
		return failed(work, "waiting failed", r, 0);
	if (!check(work, cqe))
		return false;
	rbk_cqe_seen(work->ring, cqe);
	return true;
}

static void *client_run(void *data)
{
	struct client *client = data;
	struct work work;
	bool is_good = work_begin(&work, client);

	while (is_good && !atomic_load(&client->must_end)) {
		while (is_good && work.n_in_flight < DEPTH)
			is_good = submit(&work);
		if (is_good)
			is_good = consume(&work);
		while (is_good && work.n_in_flight > DEPTH / 2)
			is_good = consume(&work);
	}
	while (is_good && work.n_in_flight > 0)
		is_good = consume(&work);
	work_end(&work);
	atomic_store(&client->has_ended, true);
	return NULL;
}

static int compare_ns(const void *a, const void *b)
{
	const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

/* Wait until each client has completed more tasks than it can have in flight. */
static void await_work(const struct client *clients)
{
	for (unsigned int i = 0; i < N_CLIENTS; i++) {
		const uint64_t n_done = atomic_load(&clients[i].n_done);

		while (atomic_load(&clients[i].n_done) <= n_done + DEPTH &&
		       !atomic_load(&clients[i].has_ended))
			harness_sleep_ms(1);
	}
}

/*
 * End the broker and start another one at once, over and over, while clients work. With @slowly, it
 * is only ended when all clients are at work again.
 */
static void die_often(const char *const *args, unsigned int n_deaths, bool politely, bool slowly)
{
	struct broker first, broker;
	struct broker_options options = {.args = args, .is_undisturbed = true};
	struct client *clients = calloc(N_CLIENTS, sizeof(*clients));
	uint64_t random = 1, n_done = 0;
	unsigned int n_gaps;

	assert_non_null(clients);
	broker_start(&first, &options);
	broker = first;
	options.socket_path = first.socket_path;
	for (unsigned int i = 0; i < N_CLIENTS; i++) {
		clients[i].socket_path = first.socket_path;
		clients[i].by_event_loop = i % 2;
		assert_int_equal(pthread_create(&clients[i].thread, NULL, client_run, &clients[i]),
				 0);
	}
	harness_sleep_ms(50);
	for (unsigned int i = 0; i < n_deaths; i++) {
		if (slowly)
			await_work(clients);
		harness_sleep_ms((unsigned int)(harness_random(&random) % 40));
		if (politely) {
			assert_int_equal(kill(broker.pid, SIGTERM), 0);
			assert_int_equal(broker_wait(&broker), 0);
		} else {
			broker_kill(&broker);
		}
		if (i > 0)
			broker_remove(&broker);
		broker_start(&broker, &options);
	}
	await_work(clients);
	for (unsigned int i = 0; i < N_CLIENTS; i++)
		atomic_store(&clients[i].must_end, true);
	for (unsigned int i = 0; i < N_CLIENTS; i++) {
		assert_int_equal(pthread_join(clients[i].thread, NULL), 0);
		if (clients[i].failure[0])
			fail_msg("client %u, after %llu tasks and %u re-attachments: %s", i,
				 (unsigned long long)clients[i].n_done, clients[i].n_reattached,
				 clients[i].failure);
		/* A death within a re-attachment makes two of them one. */
		assert_in_range(clients[i].n_reattached, 1, n_deaths);
		assert_int_equal(clients[i].n_callbacks, clients[i].n_reattached);
		assert_true(clients[i].n_done > DEPTH);
		n_done += clients[i].n_done;
	}
	n_gaps = clients[0].n_reattached < MAX_GAPS ? clients[0].n_reattached : MAX_GAPS;
	qsort(clients[0].gaps_ns, n_gaps, sizeof(uint64_t), compare_ns);
	print_message("%llu tasks, %u deaths; gap of a client after the new broker's start: median "
		      "%.1f ms, p99 %.1f ms, longest %.1f ms\n",
		      (unsigned long long)n_done, n_deaths,
		      (double)clients[0].gaps_ns[n_gaps / 2] / 1e6,
		      (double)clients[0].gaps_ns[n_gaps * 99 / 100] / 1e6,
		      (double)clients[0].gaps_ns[n_gaps - 1] / 1e6);
	if (politely)
		assert_true(broker_log_has(&broker, "took over ring "));
	broker_stop(&broker);
	broker_remove(&first);
	free(clients);
}

TEST(test_reattach__after_kills)
{
	die_often(NULL, (unsigned int)test_scaled(25), false, false);
}

TEST(test_reattach__after_orderly_ends)
{
	die_often((const char *const[]){"--log-level=debug", NULL}, (unsigned int)test_scaled(10),
		  true, false);
}

TEST(test_reattach__with_a_software_gpu)
{
	die_often((const char *const[]){"--gpu=software", NULL}, (unsigned int)test_scaled(5),
		  false, true);
}

/*
 * The clients' arenas are in memory of the device. That takes /dev/udmabuf and a driver that
 * exports dma-bufs, as Mesa's lavapipe does since version 25.
 */
TEST(test_reattach__with_memory_of_a_device)
{
	static const char *const args[] = {"--gpu=software", "--memory-path=exported", NULL};
	const struct broker_options options = {.args = args};
	struct broker broker;
	int status;

	if (!broker_try_start(&broker, &options, &status)) {
		assert_true(broker_log_has(&broker, "--memory-path asks for does not work") ||
			    broker_log_has(&broker, "no usable Vulkan driver"));
		broker_remove(&broker);
		skip();
	}
	broker_stop(&broker);
	broker_remove(&broker);
	die_often(args, (unsigned int)test_scaled(5), false, true);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(115))
