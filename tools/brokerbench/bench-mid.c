/* SPDX-License-Identifier: MIT */
/*
 * mid: tasks of a few microseconds to some milliseconds
 *
 * Products of n x n floats on one worker and on all, with one task in flight and with several,
 * beside the kernel called directly by as many threads. The client waits with rbk_wait_cqe(), or
 * polls. Each row of times is followed by a row of the processor time per task: of the client and
 * the broker together, beside that of the threads that call the kernel. The time above the kernel's
 * is spent on waking, waiting and spinning.
 *
 * Then small networks, beside the kernels of the same plan called in a loop by one thread.
 *
 * Then NOPs of another session while products run one after the other, beside NOPs alone; and the
 * broker's processor time while its clients are idle, and with one short task in ten milliseconds.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "broker-process/broker-process.h"
#include "cost.h"
#include "network.h"
#include "plan-loop.h"
#include "product.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/thread.h"

/* A task whose kernel takes at least LONG_US should take hardly more processor time than it. */
#define LONG_US        500.0
#define LONG_TARGET    1.03
#define SEVERAL_TARGET 1.1
#define NETWORK_TARGET 1.1

#define NOPS_PARAMS    "nop beside n=256"
#define NEIGHBOUR_N    256u
#define NOP_PAUSE_NS   200000u
#define LOAD_AHEAD_NS  1000000u

#define IDLE_PARAMS    "10 idle clients"
#define N_CLIENTS      10u
#define N_SHARES       10u
#define PERIOD_NS      10000000u
#define PERIODIC_US    90.0 /* least time of the task that runs once in a period */
#define PERIODIC_LIMIT 1.5  /* percent of a processor, with a task of 100 us */

/*
 * Targets of the ratio to the kernel, with one task in flight. Sizes without targets are only for
 * the line from microseconds to milliseconds: one worker and a waiting client.
 */
static const struct {
	uint32_t n;
	double one_worker, workers;
} sizes[] = {{48},  {64, 1.3, 1.5},    {96}, {128, 1.1, 1.2}, {192}, {256, 1.05, 1.1},
	     {384}, {512, 1.03, 1.05}, {768}};

static void report_one(struct bench_env *env, const struct bench_row *row, double ours,
		       double baseline)
{
	struct samples samples[2] = {{&ours, 1, 1}, {&baseline, 1, 1}};

	bench_report(env, row, &samples[0], &samples[1]);
}

static pid_t broker_pid(const struct target *target)
{
	return broker_process_pid(target->process);
}

/* ---- Products ---- */

/* Report the times of a task beside its kernels, and then the processor time of both. */
static int compare_task(struct bench_env *env, const struct target *target, struct direct *direct,
			const char *params, double time_target, struct product_through *ours)
{
	const struct bench_row row = {params, "us", false, "kernel", time_target};
	struct cost cost, kernel_cost;
	char cost_params[128];
	struct bench_row cost_row = {cost_params, "us", false, "kernel"};
	double kernel_us;
	int r;

	snprintf(cost_params, sizeof(cost_params), "%s cpu", params);
	if (!bench_is_wanted(env, cost_params))
		return 0;
	r = cost_init(&cost, getpid(), broker_pid(target));
	if (!r)
		r = cost_init(&kernel_cost, getpid(), 0);
	if (r)
		return bench_fail(env, r, "cannot read processor times");
	ours->task.cost = &cost;
	direct->cost = &kernel_cost;
	r = bench_compare(env, &row, (struct bench_side){product_round, ours},
			  (struct bench_side){direct_round, direct});
	if (r)
		return bench_fail(env, r, "measuring failed (%s)", params);
	kernel_us = cost_us(&kernel_cost);
	if (kernel_us >= LONG_US)
		cost_row.target = LONG_TARGET;
	report_one(env, &cost_row, cost_us(&cost), kernel_us);
	return 0;
}

static int compare_size(struct bench_env *env, const struct target *target, size_t size,
			unsigned int n_workers)
{
	static const struct {
		unsigned int depth;
		bool spins;
		const char *params;
	} ways[] = {{1, false, "in-flight=1 waiting"},
		    {1, true, "in-flight=1 polling"},
		    {PLANS_MATMUL_OUTPUTS, false, "in-flight=4 waiting"}};
	const uint32_t n = sizes[size].n;
	const bool has_targets = sizes[size].workers > 0;
	const size_t n_ways = has_targets ? ARRAY_SIZE(ways) : n_workers == 1;
	struct product product;
	char params[64];
	double wanted;
	int r;

	if (n_ways == 0)
		return 0;
	r = product_init(&product, env, target, n, n_workers);
	if (r)
		return r;
	for (size_t i = 0; i < n_ways && !r; i++) {
		struct product_through ours = {
			env, -1, ways[i].spins,
			product_task(target, &product.matmul, ways[i].depth)};

		snprintf(params, sizeof(params), "n=%u workers=%u %s", n, n_workers,
			 ways[i].params);
		wanted = !has_targets        ? 0
			 : ways[i].depth > 1 ? SEVERAL_TARGET
			 : n_workers == 1    ? sizes[size].one_worker
					     : sizes[size].workers;
		r = product_check(env, &product.matmul, product_run_target, &ours.task,
				  &product.direct);
		if (!r)
			r = compare_task(env, target, &product.direct, params, wanted, &ours);
	}
	product_deinit(&product);
	return r;
}

/* ---- Networks ---- */

static bool is_same(const struct network *a, const struct network *b)
{
	bool is_same = a->n_refs == b->n_refs;

	for (unsigned int i = 0; i < a->n_refs && is_same; i++)
		is_same = a->bytes[i] == b->bytes[i] &&
			  memcmp(a->tensors[i], b->tensors[i], a->bytes[i]) == 0;
	return is_same;
}

/* Compare the task of @network with the kernels of the same plan, which give the same bits. */
static int compare_network(struct bench_env *env, const struct target *target,
			   const struct network *network, struct plan_loop *loop, const char *name,
			   unsigned int n_workers)
{
	struct direct direct = {env, env->client_cpu, plan_loop_run, loop};
	struct product_through ours = {env,
				       -1,
				       false,
				       {
					       .ring = target->ring,
					       .plan_id = network->plan_id,
					       .count = network->count,
					       .n_refs = network->n_refs,
					       .strategy = RBK_STRATEGY_ONLY_CPU,
					       .depth = 1,
				       }};
	char params[NETWORK_NAME_BYTES + 48];
	int r;

	memcpy(ours.task.refs, network->refs, sizeof(network->refs));
	r = target_run_once(&ours.task);
	if (!r)
		r = plan_loop_run(loop);
	if (!r && !is_same(network, plan_loop_network(loop)))
		r = -EILSEQ;
	if (r)
		return bench_fail(env, r, "%s failed, or its two results differ", name);
	for (unsigned int i = 0; i < 2 && !r; i++) {
		ours.spins = i == 1;
		snprintf(params, sizeof(params), "%s workers=%u %s", name, n_workers,
			 ours.spins ? "polling" : "waiting");
		r = compare_task(env, target, &direct, params, NETWORK_TARGET, &ours);
	}
	return r;
}

static int run_network(struct bench_env *env, const struct target *target, const char *model,
		       unsigned int n_workers)
{
	struct plan_loop *loop = NULL;
	struct network network;
	char name[NETWORK_NAME_BYTES];
	int r;

	network_name(model, name);
	r = network_init(&network, env, target->rbk, model);
	if (!r)
		r = plan_loop_new(env, model, &loop);
	if (!r)
		r = compare_network(env, target, &network, loop, name, n_workers);
	plan_loop_free(loop);
	network_deinit(&network);
	return r > 0 ? 0 : r;
}

/* The perceptron, and the models of --model */
static int run_networks(struct bench_env *env, const struct target *target, unsigned int n_workers)
{
	int r = run_network(env, target, NULL, n_workers);

	for (unsigned int i = 0; i < env->n_models && !r; i++)
		r = run_network(env, target, env->models[i], n_workers);
	return r;
}

/* ---- NOPs beside products ---- */

enum load_state { LOAD_OFF, LOAD_ON, LOAD_END };

/* A thread that runs a task again and again */
struct load {
	pthread_t thread;
	struct target_task task;
	_Atomic int state; /* enum load_state */
	_Atomic int result;
};

static void *load_main(void *data)
{
	struct load *load = data;
	int state, r;

	while ((state = atomic_load(&load->state)) != LOAD_END) {
		if (state == LOAD_OFF) {
			bench_settle(NOP_PAUSE_NS);
			continue;
		}
		r = target_run_once(&load->task);
		if (r) {
			atomic_store(&load->result, r);
			break;
		}
	}
	return NULL;
}

/* One side of the row: NOPs now and then, with or without the load */
struct nops {
	struct load *load;
	enum load_state state;
	struct target_task nop;
};

static int nops_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	struct nops *nops = data;
	uint64_t end_ns, start;
	int r = 0;

	atomic_store(&nops->load->state, nops->state);
	bench_settle(LOAD_AHEAD_NS);
	end_ns = clock_now_ns() + budget_ns;
	do {
		bench_settle(NOP_PAUSE_NS);
		r = samples_reserve(samples, 1);
		start = clock_ticks();
		if (!r)
			r = target_run_once(&nops->nop);
		if (!r)
			samples_add(samples, (double)clock_elapsed_ns(start, clock_ticks()) / 1e3);
	} while (!r && clock_now_ns() < end_ns);
	atomic_store(&nops->load->state, LOAD_OFF);
	return r ? r : atomic_load(&nops->load->result);
}

static int compare_nops(struct bench_env *env, const struct target *target,
			struct target *neighbour, struct load *load)
{
	const struct bench_row row = {NOPS_PARAMS, "us", false, "alone"};
	struct nops beside = {load, LOAD_ON, {.ring = neighbour->ring}};
	struct nops alone = {load, LOAD_OFF, {.ring = neighbour->ring}};
	struct product product;
	int r;

	r = product_init(&product, env, target, NEIGHBOUR_N, 1);
	if (r)
		return r;
	load->task = product_task(target, &product.matmul, 1);
	atomic_init(&load->state, LOAD_OFF);
	atomic_init(&load->result, 0);
	r = thread_start(&load->thread, "load", load_main, load);
	if (r) {
		bench_fail(env, r, "cannot start a thread");
	} else {
		r = bench_compare(env, &row, (struct bench_side){nops_round, &beside},
				  (struct bench_side){nops_round, &alone});
		if (r)
			bench_fail(env, r, "measuring failed (%s)", row.params);
		atomic_store(&load->state, LOAD_END);
		pthread_join(load->thread, NULL);
	}
	product_deinit(&product);
	return r;
}

static int run_nops(struct bench_env *env, const struct target *target)
{
	struct target neighbour;
	struct load load;
	int r;

	r = target_connect(&neighbour, env, target_socket(target, env));
	if (!r)
		r = compare_nops(env, target, &neighbour, &load);
	target_deinit(&neighbour);
	return r;
}

/* ---- The broker's share of a processor ---- */

/*
 * Sample a process's share of a processor, in percent. This thread calls @run in each period, or
 * never if it is NULL.
 */
static int sample_shares(struct bench_env *env, pid_t pid, direct_fn *run, void *data,
			 struct samples *samples)
{
	const uint64_t interval_ns = (uint64_t)(env->seconds * 1e9) / (2 * N_SHARES);
	struct cost cost;
	int r;

	r = cost_init(&cost, pid, 0);
	if (!r)
		r = samples_reserve(samples, N_SHARES);
	for (unsigned int i = 0; i < N_SHARES && !r; i++) {
		const uint64_t start_ns = clock_now_ns(), before_ns = cost.ns;
		uint64_t now = start_ns, next = start_ns;

		cost_begin(&cost);
		do {
			next += run ? PERIOD_NS : interval_ns;
			bench_settle(next > now ? next - now : 0);
			if (run)
				r = run(data);
			now = clock_now_ns();
		} while (!r && now - start_ns < interval_ns);
		cost_end(&cost, 0);
		samples_add(samples,
			    100.0 * (double)(cost.ns - before_ns) / (double)(now - start_ns));
	}
	return r ? bench_fail(env, r, "cannot measure a share of the processor") : 0;
}

static int run_idle(struct bench_env *env, const struct target *target)
{
	const struct bench_row row = {IDLE_PARAMS, "%", false, "1 idle client"};
	struct samples samples[2] = {SAMPLES_INIT, SAMPLES_INIT};
	struct target clients[N_CLIENTS];
	unsigned int n = 0;
	int r;

	r = sample_shares(env, broker_pid(target), NULL, NULL, &samples[1]);
	/* The target's own session is one of them. */
	for (; n < N_CLIENTS - 1 && !r; n++)
		r = target_connect(&clients[n], env, target_socket(target, env));
	for (unsigned int i = 0; i < n && !r; i++) {
		const struct target_task nop = {.ring = clients[i].ring};

		r = target_run_once(&nop);
		if (r)
			bench_fail(env, r, "a client cannot run a NOP");
	}
	bench_settle(BENCH_ASLEEP_NS);
	if (!r)
		r = sample_shares(env, broker_pid(target), NULL, NULL, &samples[0]);
	if (!r)
		bench_report(env, &row, &samples[0], &samples[1]);
	while (n > 0)
		target_deinit(&clients[--n]);
	samples_deinit(&samples[0]);
	samples_deinit(&samples[1]);
	return r;
}

/* Return the median time of the kernel; 0 if it fails. */
static double kernel_time_us(struct product *product)
{
	struct samples samples = SAMPLES_INIT;
	double us = 0;

	if (direct_round(&product->direct, PERIOD_NS, &samples) == 0)
		us = samples_percentile(&samples, 50.0);
	samples_deinit(&samples);
	return us;
}

/*
 * Report the broker's share with the product once in a period, beside the share of a thread that
 * calls the kernel as often: after a pause the caches are cold, and the kernel takes longer.
 */
static int report_periodic(struct bench_env *env, const struct target *target,
			   struct product *product)
{
	struct target_task task = product_task(target, &product->matmul, 1);
	struct samples samples[2] = {SAMPLES_INIT, SAMPLES_INIT};
	char params[48];
	const struct bench_row row = {params, "%", false, "kernel", .limit = PERIODIC_LIMIT};
	int r;

	snprintf(params, sizeof(params), "n=%u every 10 ms", product->matmul.n);
	if (!bench_is_wanted(env, params))
		return 0;
	r = sample_shares(env, broker_pid(target), product_run_target, &task, &samples[0]);
	if (!r)
		r = sample_shares(env, getpid(), product_run_kernel, product->kernel, &samples[1]);
	if (!r)
		bench_report(env, &row, &samples[0], &samples[1]);
	samples_deinit(&samples[0]);
	samples_deinit(&samples[1]);
	return r;
}

/* Choose the first of some products whose kernel takes long enough. */
static int run_periodic(struct bench_env *env, const struct target *target)
{
	static const uint32_t candidates[] = {96, 128, 160, 192, 224, 256, 320};
	struct product product;
	bool is_found = false;
	double us;
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(candidates) && !is_found; i++) {
		r = product_init(&product, env, target, candidates[i], 1);
		if (r)
			return r;
		us = kernel_time_us(&product);
		is_found = us >= PERIODIC_US || i + 1 == ARRAY_SIZE(candidates);
		if (is_found)
			r = report_periodic(env, target, &product);
		product_deinit(&product);
	}
	return r;
}

/* ---- All of it ---- */

static int run(struct bench_env *env)
{
	struct target target;
	int r = 0;

	if (env->socket)
		return bench_skip(env, NULL, "needs a broker of its own, not --socket");
	for (unsigned int pass = 0; pass < 2 && !r; pass++) {
		const unsigned int n_workers = pass == 0 ? 1 : (unsigned int)env->n_cpus;

		if (pass == 1 && n_workers == 1)
			break;
		r = target_init(&target, env, pass == 0 ? TARGET_ONE_WORKER : TARGET_WORKERS);
		if (r)
			return r;
		for (size_t i = 0; i < ARRAY_SIZE(sizes) && !r; i++)
			r = compare_size(env, &target, i, n_workers);
		if (!r)
			r = run_networks(env, &target, n_workers);
		if (pass == 1 && !r && bench_is_wanted(env, NOPS_PARAMS))
			r = run_nops(env, &target);
		if (pass == 1 && !r)
			r = run_periodic(env, &target);
		if (pass == 1 && !r && bench_is_wanted(env, IDLE_PARAMS))
			r = run_idle(env, &target);
		target_deinit(&target);
	}
	return r;
}

const struct bench bench_mid = {
	.name = "mid",
	.summary =
		"tasks of microseconds to milliseconds: times, tails, processor time, neighbours",
	.baseline = "the same kernel called directly by as many threads; no load",
	.run = run,
};
