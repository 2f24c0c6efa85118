/* SPDX-License-Identifier: MIT */
/* Clients that check each result: see checker.h. */
#include "integration/checker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "integration/harness.h"
#include "integration/plans.h"
#include "support/test.h"

enum {
	WIDTH = 16,     /* elements of a row */
	BIG_ROWS = 512, /* rows of a task that does not run at once */
	DEPTH = CHECKER_DEPTH,
	SLOT_BYTES = 2 * BIG_ROWS * WIDTH * sizeof(float),
};

/* A task in flight: it computes y = -x over @count rows. */
struct slot {
	uint64_t id; /* 0: free; otherwise its user_data */
	uint32_t count;
	bool is_nop;
	float *x, *y;
};

struct work {
	struct checker *client;
	struct rbk *rbk;
	struct rbk_arena *arena;
	struct rbk_plan *plans[CHECKER_PLANS];
	unsigned int n_plans;
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
	struct checker *client = data;
	const unsigned int n = atomic_fetch_add(&client->n_callbacks, 1);

	(void)rbk;
	if (about->r == 0 && n < CHECKER_GAPS)
		client->gaps_ns[n] = about->gap_ns - about->wait_ns;
	if (about->gap_ns > client->longest_away_ns)
		client->longest_away_ns = about->gap_ns;
}

static bool work_begin(struct work *work, struct checker *client)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = client->socket_path,
		.reattach_ns = client->reattach_ns,
		.on_reattach = on_reattach,
		.on_reattach_data = client,
	};
	struct rbk_error error = {""};
	int r;

	*work = (struct work){.client = client, .next_id = 1, .random = (uintptr_t)client | 1};
	r = rbk_connect(&options, &work->rbk, &error);
	if (!r)
		r = rbk_arena_new(work->rbk, DEPTH * SLOT_BYTES, &work->arena, &error);
	for (; !r && work->n_plans < client->n_plans; work->n_plans += !r)
		r = plan_elements(work->rbk, "Neg", 1, BIG_ROWS, WIDTH, &work->plans[work->n_plans],
				  &error);
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
	for (unsigned int i = 0; i < work->n_plans; i++)
		rbk_plan_free(work->plans[i]);
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
		rbk_prep_run(sqe, rbk_plan_id(work->plans[slot->id % work->n_plans]), slot->count,
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

/* Return why the connection is lost, as any request says. */
static const char *why_lost(struct work *work)
{
	static _Thread_local struct rbk_error error;
	struct rbk_stats stats;

	return rbk_get_stats(work->rbk, &stats, &error) ? error.text : "waiting failed";
}

static bool consume(struct work *work)
{
	const uint64_t begin_ns = harness_now_ns();
	const struct rbk_cqe *cqe;
	int r = work->client->by_event_loop ? wait_by_loop(work, &cqe)
					    : rbk_wait_cqe(work->ring, &cqe);
	const uint64_t wait_ns = harness_now_ns() - begin_ns;

	if (wait_ns > work->client->longest_wait_ns)
		work->client->longest_wait_ns = wait_ns;
	if (r)
		return failed(work, why_lost(work), r, 0);
	if (!check(work, cqe))
		return false;
	rbk_cqe_seen(work->ring, cqe);
	return true;
}

static void *client_run(void *data)
{
	struct checker *client = data;
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

void checker_start(struct checker *client, const char *socket_path)
{
	client->socket_path = socket_path;
	if (client->n_plans == 0)
		client->n_plans = 1;
	assert_in_range(client->n_plans, 1, CHECKER_PLANS);
	assert_int_equal(pthread_create(&client->thread, NULL, client_run, client), 0);
}

void checkers_await_work(const struct checker *clients, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		const uint64_t n_done = atomic_load(&clients[i].n_done);

		while (atomic_load(&clients[i].n_done) <= n_done + DEPTH &&
		       !atomic_load(&clients[i].has_ended))
			harness_sleep_ms(1);
	}
}

void checkers_end(struct checker *clients, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		atomic_store(&clients[i].must_end, true);
	for (unsigned int i = 0; i < n; i++) {
		assert_int_equal(pthread_join(clients[i].thread, NULL), 0);
		if (clients[i].failure[0])
			fail_msg("client %u, after %llu tasks and %u re-attachments: %s", i,
				 (unsigned long long)clients[i].n_done, clients[i].n_reattached,
				 clients[i].failure);
		assert_int_equal(clients[i].n_callbacks, clients[i].n_reattached);
		assert_true(clients[i].n_done > DEPTH);
	}
}
