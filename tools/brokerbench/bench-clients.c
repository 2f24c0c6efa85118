/* SPDX-License-Identifier: MIT */
/*
 * clients: several clients at once, beside as many threads that call the kernel
 *
 * Each client is a thread with a session, a ring and a plan of its own. It runs one product after
 * the other, and waits for it as programs do. In the baseline the same threads call the kernel.
 * More threads than processors take turns by the scheduler's slices, so the sides take turns in
 * windows that are longer than these.
 *
 * A row of rates has one sample for each client, over all windows: its p99 is the slowest client.
 * In one window the kernel lets some threads run twice as long as others. A row of times has every
 * task of every client. "cpu" is the processor time per task of all threads and the broker.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "bench.h"
#include "broker-process/broker-process.h"
#include "cost.h"
#include "product.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/thread.h"

enum {
	MOST_CLIENTS = 16,
	MIN_ROUNDS = 2,
	WINDOW_SAMPLES = 32768, /* of a client */
	WINDOW_NS = 100000000,
	WINDOWS = 8, /* of both sides, where the measuring time is short */
};

static const unsigned int crowds[] = {1, 2, MOST_CLIENTS};
static const uint32_t sizes[] = {64, 128, 256};

struct client {
	struct crowd *crowd;
	pthread_t thread;
	struct target target;
	struct product product;
	struct target_task task;
	struct samples samples; /* of a window, in microseconds */
	uint64_t elapsed_ns;    /* in it */
	int result;
	struct {
		uint64_t n_tasks, elapsed_ns; /* of all windows */
	} sums[2];                            /* with the broker, and without */
};

/* One side: what was measured of it */
struct side {
	struct samples times, rates;
	struct cost cost;
};

struct crowd {
	struct bench_env *env;
	pthread_barrier_t barrier; /* of all clients and the measuring thread */
	unsigned int n_made, n_started;
	/* Set between two windows */
	bool is_direct, is_over;
	uint64_t window_ns;
	struct client clients[MOST_CLIENTS];
};

/* ---- Clients ---- */

static int run_once(struct client *client)
{
	return client->crowd->is_direct ? product_run_kernel(client->product.kernel)
					: target_run_once(&client->task);
}

static int run_window(struct client *client)
{
	const uint64_t budget = clock_ns_to_ticks(client->crowd->window_ns);
	struct samples *samples = &client->samples;
	uint64_t start, last, now;
	int r;

	samples_clear(samples);
	r = samples_reserve(samples, WINDOW_SAMPLES);
	start = last = clock_ticks();
	while (!r && samples_room(samples) > 0 && last - start < budget) {
		r = run_once(client);
		now = clock_ticks();
		if (!r)
			samples_add(samples, (double)clock_elapsed_ns(last, now) / 1e3);
		last = now;
	}
	client->elapsed_ns = clock_elapsed_ns(start, last);
	return r;
}

static void *client_main(void *data)
{
	struct client *client = data;
	struct crowd *crowd = client->crowd;

	for (;;) {
		pthread_barrier_wait(&crowd->barrier);
		if (crowd->is_over)
			return NULL;
		client->result = run_window(client);
		pthread_barrier_wait(&crowd->barrier);
	}
}

static int client_init(struct client *client, struct crowd *crowd, const char *socket, uint32_t n)
{
	int r;

	*client = (struct client){.crowd = crowd, .samples = SAMPLES_INIT};
	r = target_connect(&client->target, crowd->env, socket);
	if (!r)
		r = product_init(&client->product, crowd->env, &client->target, n, 1);
	if (r) {
		target_deinit(&client->target);
		return r;
	}
	client->task = product_task(&client->target, &client->product.matmul, 1);
	return 0;
}

static void client_deinit(struct client *client)
{
	samples_deinit(&client->samples);
	product_deinit(&client->product);
	target_deinit(&client->target);
}

/* ---- A crowd ---- */

/* Let each client run for a window, and add what it has done to @side. */
static int crowd_round(struct crowd *crowd, bool is_direct, struct side *side)
{
	uint64_t n_tasks = 0;
	int r = 0;

	crowd->is_direct = is_direct;
	bench_settle(BENCH_ASLEEP_NS);
	cost_begin(&side->cost);
	pthread_barrier_wait(&crowd->barrier);
	pthread_barrier_wait(&crowd->barrier);
	for (unsigned int i = 0; i < crowd->n_made; i++)
		n_tasks += crowd->clients[i].samples.n;
	cost_end(&side->cost, n_tasks);
	for (unsigned int i = 0; i < crowd->n_made && !r; i++) {
		struct client *client = &crowd->clients[i];

		r = client->result;
		if (!r)
			r = samples_reserve(&side->times, client->samples.n);
		for (size_t k = 0; k < client->samples.n && !r; k++)
			samples_add(&side->times, client->samples.values[k]);
		client->sums[is_direct].n_tasks += client->samples.n;
		client->sums[is_direct].elapsed_ns += client->elapsed_ns;
	}
	return r;
}

static void report(struct bench_env *env, const char *params, struct side *ours,
		   struct side *direct)
{
	double us[2] = {cost_us(&ours->cost), cost_us(&direct->cost)};
	struct samples costs[2] = {{&us[0], 1, 1}, {&us[1], 1, 1}};
	char text[64];
	const struct bench_row times = {params, "us", false, "kernel"};
	struct bench_row row = {text, "/s", true, "kernel"};

	bench_report(env, &times, &ours->times, &direct->times);
	snprintf(text, sizeof(text), "%s rate", params);
	bench_report(env, &row, &ours->rates, &direct->rates);
	if (env->socket)
		return;
	snprintf(text, sizeof(text), "%s cpu", params);
	row.unit = "us";
	row.is_rate = false;
	bench_report(env, &row, &costs[0], &costs[1]);
}

/* Add each client's rate to the two sides. */
static int add_rates(struct crowd *crowd, struct side *sides)
{
	int r = 0;

	for (unsigned int i = 0; i < 2 && !r; i++) {
		r = samples_reserve(&sides[i].rates, crowd->n_made);
		for (unsigned int k = 0; k < crowd->n_made && !r; k++)
			samples_add(&sides[i].rates,
				    1e9 * (double)crowd->clients[k].sums[i].n_tasks /
					    (double)(crowd->clients[k].sums[i].elapsed_ns + 1));
	}
	return r;
}

/* Let the two sides take turns. */
static int measure(struct crowd *crowd, const char *params, struct side *sides)
{
	struct bench_env *env = crowd->env;
	const uint64_t budget_ns = (uint64_t)(env->seconds * 1e9);
	uint64_t end_ns;
	int r;

	crowd->window_ns = budget_ns / WINDOWS < WINDOW_NS ? budget_ns / WINDOWS : WINDOW_NS;
	end_ns = clock_now_ns() + budget_ns;
	r = 0;
	for (unsigned int i = 0; !r && (i < MIN_ROUNDS || clock_now_ns() < end_ns); i++)
		for (unsigned int turn = 0; turn < 2 && !r; turn++) {
			const unsigned int side = turn ^ (i & 1);

			r = crowd_round(crowd, side == 1, &sides[side]);
		}
	if (!r)
		r = add_rates(crowd, sides);
	if (r)
		return bench_fail(env, r, "measuring failed (%s)", params);
	report(env, params, &sides[0], &sides[1]);
	return 0;
}

/* Start the clients' threads, and measure. */
static int crowd_run(struct crowd *crowd, pid_t broker, const char *params)
{
	struct side sides[2] = {{.times = SAMPLES_INIT}, {.times = SAMPLES_INIT}};
	int r;

	r = cost_init(&sides[0].cost, getpid(), broker);
	if (!r)
		r = cost_init(&sides[1].cost, getpid(), 0);
	for (unsigned int i = 0; i < crowd->n_made && !r; i++) {
		struct client *client = &crowd->clients[i];

		r = thread_start(&client->thread, "client", client_main, client);
		crowd->n_started += !r;
	}
	if (r)
		return bench_fail(crowd->env, r, "cannot start the clients");
	r = measure(crowd, params, sides);
	for (unsigned int i = 0; i < 2; i++) {
		samples_deinit(&sides[i].times);
		samples_deinit(&sides[i].rates);
	}
	return r;
}

static int run_crowd(struct bench_env *env, const struct target *target, unsigned int n_clients,
		     uint32_t n)
{
	static struct crowd crowd;
	char params[48];
	int r = 0;

	snprintf(params, sizeof(params), "clients=%u n=%u", n_clients, n);
	if (!bench_is_wanted(env, params))
		return 0;
	crowd = (struct crowd){.env = env};
	pthread_barrier_init(&crowd.barrier, NULL, n_clients + 1);
	for (; crowd.n_made < n_clients && !r; crowd.n_made += !r)
		r = client_init(&crowd.clients[crowd.n_made], &crowd, target_socket(target, env),
				n);
	if (!r)
		r = crowd_run(&crowd, target->process ? broker_process_pid(target->process) : 0,
			      params);
	/* The threads of some clients wait for the others, until the program ends. */
	if (crowd.n_started > 0 && crowd.n_started < n_clients)
		return r;
	crowd.is_over = true;
	if (crowd.n_started > 0)
		pthread_barrier_wait(&crowd.barrier);
	for (unsigned int i = 0; i < crowd.n_started; i++)
		pthread_join(crowd.clients[i].thread, NULL);
	while (crowd.n_made > 0)
		client_deinit(&crowd.clients[--crowd.n_made]);
	pthread_barrier_destroy(&crowd.barrier);
	return r;
}

static int run(struct bench_env *env)
{
	struct target target;
	int r;

	r = target_init(&target, env, TARGET_WORKERS);
	if (r)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(crowds) && !r; i++)
		for (size_t k = 0; k < ARRAY_SIZE(sizes) && !r; k++)
			r = run_crowd(env, &target, crowds[i], sizes[k]);
	target_deinit(&target);
	return r;
}

const struct bench bench_clients = {
	.name = "clients",
	.summary = "products of 1, 2 and 16 clients at once: times, rates, processor time",
	.baseline = "the same kernel called directly by as many threads",
	.run = run,
};
