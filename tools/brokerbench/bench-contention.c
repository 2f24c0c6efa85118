/* SPDX-License-Identifier: MIT */
/*
 * contention: other programs take the processors, and the broker acts on it or not
 *
 * Two private brokers differ only in what they do about contention. Each has CPU workers and a
 * device that takes a fixed time and uses no processor (brokerd --test-device), because a software
 * device would share the processors. Tasks are sized to take half as long on this machine's CPU as
 * on the device, so without disturbance they belong on the CPU. One client at a time submits tasks
 * at a steady rate. After a while other processes begin to compute on every processor, and later
 * they end. Rounds with the two brokers alternate.
 *
 * "hogs" rows cover the time in which the other processes compute: latency as the client sees it,
 * from submission to completion. A sample of "p99" is one round's p99, so the ratio compares tails.
 * Each round begins as after a long calm, with estimates of undisturbed tasks. Otherwise a broker
 * that ignores contention would take its disturbed measurements for the CPU's speed, avoid the CPU
 * long after, and meet the next round's disturbance on the device. "reaction" and "return" rows are
 * for the broker that acts; a sample is one round: the time from the hogs' begin until most tasks
 * run on the device, and from their end until most run on the CPU again.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include <ringbroker.h>

#include "bench.h"
#include "broker-process/broker-process.h"
#include "hogs.h"
#include "plans.h"
#include "util/checked.h"
#include "util/clock.h"

enum {
	RING_ENTRIES = 64,
	MAX_TASKS = 4096, /* tasks of one round */
	WARM_UP = 40,     /* runs on each device, after which estimates are trusted */
	MOST = 8,         /* length of the run of tasks whose majority counts */
	N_ROUNDS = 3,     /* rounds with each broker, at the default measuring time */
	/* the plan: a product with constant weights */
	ROWS = 256, /* rows for the first measurement of the CPU's speed */
	MAX_ROWS = 1024,
	WIDTH = 1024,
};

#define DEVICE "4ms"
static const uint64_t cpu_ns = 2000000;

static const uint64_t period_ns = 8000000, calm_ns = 500000000, hogs_ns = 3000000000,
		      after_ns = 1000000000;

struct side {
	const char *action;
	struct broker_process *process;
	struct rbk *rbk;
	struct rbk_ring *ring;
	struct plans_matmul matmul;
	struct rbk_arena *outputs;
	uint64_t output_bytes;
	/* results: latencies in us, reaction and return in ms */
	struct samples calm, disturbed, p99, reaction, back;
	uint64_t n_device, n_tasks;  /* tasks during disturbance: on the device, all */
	uint64_t n_never, n_no_back; /* rounds in which tasks did not shift, or did not return */
};

struct task {
	uint64_t begin_ns, end_ns;
	uint8_t device, reason;
};

/* A round of one client */
struct round {
	struct side *side;
	struct hogs *hogs;
	struct task tasks[MAX_TASKS];
	uint32_t n_sent, n_done;
	uint64_t hogs_begin_ns, hogs_end_ns;
};

/* ---- A side ---- */

static void side_deinit(struct side *side)
{
	plans_matmul_deinit(&side->matmul);
	rbk_arena_free(side->outputs);
	rbk_ring_free(side->ring);
	rbk_disconnect(side->rbk);
	broker_process_free(side->process);
	samples_deinit(&side->calm);
	samples_deinit(&side->disturbed);
	samples_deinit(&side->p99);
	samples_deinit(&side->reaction);
	samples_deinit(&side->back);
}

static int side_init(struct side *side, struct bench_env *env, const char *action, uint32_t rows)
{
	char argument[64];
	const char *const arguments[] = {"--gpu=none",
					 "--cache=none",
					 "--test-device=" DEVICE,
					 "--threshold=1",
					 "--min-count=0",
					 argument,
					 NULL};
	struct rbk_options options = {.size = sizeof(options), .name = "brokerbench"};
	struct rbk_error error = {""};
	int r;

	side->action = action;
	snprintf(argument, sizeof(argument), "--contention-action=%s", action);
	r = broker_process_new(arguments, -1, &side->process);
	if (r == -ENOENT)
		return bench_refused(env, r, "there is no brokerd beside this program or in PATH");
	if (r)
		return bench_fail(env, r, "the private brokerd did not start");
	options.socket_path = broker_process_socket(side->process);
	r = rbk_connect(&options, &side->rbk, &error);
	if (!r)
		r = rbk_ring_new(side->rbk, RING_ENTRIES, &side->ring, &error);
	if (r)
		return bench_refused(env, r, error.text);
	/* The client's own spinning must not disturb. */
	rbk_ring_set_spin_ns(side->ring, 0);
	r = plans_matmul_init(&side->matmul, env, side->rbk, rows, WIDTH, WIDTH, true);
	if (r)
		return r;
	side->output_bytes = (uint64_t)rows * WIDTH * sizeof(float);
	r = rbk_arena_new(side->rbk, RING_ENTRIES * side->output_bytes, &side->outputs, &error);
	if (r)
		return bench_refused(env, r, error.text);
	memset(rbk_arena_data(side->outputs), 0, RING_ENTRIES * side->output_bytes);
	return 0;
}

/* ---- Tasks ---- */

static int submit(struct round *round, unsigned int strategy)
{
	const struct side *side = round->side;
	struct rbk_sqe *sqe = rbk_get_sqe(side->ring);
	uint64_t refs[RBK_SQE_REFS];
	uint32_t n = round->n_sent;
	int r;

	if (!sqe || n == MAX_TASKS)
		return -ENOBUFS;
	memcpy(refs, side->matmul.refs, side->matmul.n_refs * sizeof(refs[0]));
	refs[side->matmul.n_refs - 1] =
		rbk_arena_ref(side->outputs, n % RING_ENTRIES * side->output_bytes);
	rbk_prep_run(sqe, rbk_plan_id(side->matmul.plan), 1, refs, side->matmul.n_refs);
	rbk_sqe_set_strategy(sqe, strategy);
	rbk_sqe_set_data64(sqe, n);
	round->tasks[n].begin_ns = clock_now_ns();
	round->n_sent++;
	r = rbk_submit(side->ring);
	return r < 0 ? r : 0;
}

/* Take one completion, or none if none arrives by @until_ns. */
static int take(struct round *round, uint64_t until_ns)
{
	uint64_t now_ns = clock_now_ns();
	const struct rbk_cqe *cqe;
	struct task *task;
	int r;

	r = rbk_wait_cqe_timeout(round->side->ring, &cqe,
				 now_ns < until_ns ? until_ns - now_ns : 0);
	if (r == -ETIME || r == -EINTR)
		return 0;
	if (r)
		return r;
	r = cqe->res;
	task = &round->tasks[cqe->user_data];
	task->end_ns = clock_now_ns();
	task->device = cqe->device;
	task->reason = cqe->reason;
	rbk_cqe_seen(round->side->ring, cqe);
	round->n_done++;
	return r;
}

static int finish(struct round *round)
{
	uint64_t limit_ns = clock_now_ns() + 20000000000u;
	int r = 0;

	while (!r && round->n_done < round->n_sent) {
		r = take(round, limit_ns);
		if (!r && clock_now_ns() > limit_ns)
			r = -ETIMEDOUT;
	}
	return r;
}

/* Run tasks on both devices until estimates of undisturbed tasks are trusted. */
static int warm_up(struct round *round)
{
	static const unsigned int strategies[] = {RBK_STRATEGY_ONLY_CPU, RBK_STRATEGY_ONLY_GPU};
	int r = 0;

	round->n_sent = round->n_done = 0;
	for (unsigned int i = 0; i < 2 * WARM_UP && !r; i++) {
		r = submit(round, strategies[i % 2]);
		if (!r)
			r = finish(round);
	}
	return r;
}

/* Submit at the steady rate until @until_ns; late tasks are submitted at once. */
static int steady(struct round *round, uint64_t *next_ns, uint64_t until_ns)
{
	int r = 0;

	while (!r && *next_ns < until_ns) {
		if (clock_now_ns() < *next_ns || round->n_sent - round->n_done == RING_ENTRIES) {
			r = take(round, *next_ns);
			continue;
		}
		r = submit(round, RBK_STRATEGY_AUTO);
		*next_ns += period_ns;
	}
	return r;
}

/* ---- Evaluating a round ---- */

static bool most_on(const struct round *round, uint32_t first, bool is_device)
{
	uint32_t n = 0;

	for (uint32_t i = first; i < first + MOST; i++)
		n += (round->tasks[i].device != RBK_DEVICE_CPU) == is_device;
	return n > MOST / 2;
}

/*
 * Measure the time from @from_ns until most tasks run on the device (or on the CPU).
 * Return: false if they never do.
 */
static bool shifted(const struct round *round, uint64_t from_ns, bool is_device, double *ret_ms)
{
	for (uint32_t i = 0; i + MOST <= round->n_sent; i++) {
		const struct task *task = &round->tasks[i];

		if (task->begin_ns < from_ns || (task->device != RBK_DEVICE_CPU) != is_device ||
		    !most_on(round, i, is_device))
			continue;
		*ret_ms = (double)(task->begin_ns - from_ns) / 1e6;
		return true;
	}
	return false;
}

static int add(struct samples *samples, double value)
{
	int r = samples_reserve(samples, 1);

	if (!r)
		samples_add(samples, value);
	return r;
}

static int evaluate(const struct round *round)
{
	struct samples latencies = SAMPLES_INIT;
	struct side *side = round->side;
	double ms;
	int r = 0;

	for (uint32_t i = 0; i < round->n_sent && !r; i++) {
		const struct task *task = &round->tasks[i];
		double us = (double)(task->end_ns - task->begin_ns) / 1e3;

		if (task->begin_ns < round->hogs_begin_ns) {
			r = add(&side->calm, us);
		} else if (task->begin_ns < round->hogs_end_ns) {
			r = add(&side->disturbed, us);
			if (!r)
				r = add(&latencies, us);
			side->n_tasks++;
			side->n_device += task->device != RBK_DEVICE_CPU;
		}
	}
	if (!r && latencies.n > 0)
		r = add(&side->p99, samples_percentile(&latencies, 99));
	samples_deinit(&latencies);
	if (!shifted(round, round->hogs_begin_ns, true, &ms))
		side->n_never++;
	else if (!r)
		r = add(&side->reaction, ms);
	if (!shifted(round, round->hogs_end_ns, false, &ms))
		side->n_no_back++;
	else if (!r)
		r = add(&side->back, ms);
	return r;
}

static int run_round(struct round *round)
{
	uint64_t next_ns;
	int r;

	r = warm_up(round);
	if (r)
		return r;
	round->n_sent = round->n_done = 0;
	next_ns = clock_now_ns();
	r = steady(round, &next_ns, next_ns + calm_ns);
	if (r)
		return r;
	round->hogs_begin_ns = hogs_begin(round->hogs);
	r = steady(round, &next_ns, round->hogs_begin_ns + hogs_ns);
	round->hogs_end_ns = hogs_end(round->hogs);
	if (!r)
		r = steady(round, &next_ns, round->hogs_end_ns + after_ns);
	if (!r)
		r = finish(round);
	return r ? r : evaluate(round);
}

/* ---- The bench ---- */

/*
 * Raise or restore this thread's priority where that is allowed, so that the client's own waits for
 * a processor are not measured.
 */
static void go_first(bool is_first)
{
	const struct sched_param param = {.sched_priority = is_first ? 1 : 0};

	sched_setscheduler(0, is_first ? SCHED_FIFO | SCHED_RESET_ON_FORK : SCHED_OTHER, &param);
}

static void report_pair(struct bench_env *env, const char *params, struct samples *ours,
			struct samples *baseline)
{
	const struct bench_row row = {params, "us", false, "observe"};

	if (ours->n > 0 && baseline->n > 0)
		bench_report(env, &row, ours, baseline);
}

static void report_target(struct bench_env *env, const char *params, struct samples *ours,
			  uint64_t n_missing, double target_ms)
{
	const struct bench_row row = {params, "ms", false, "target"};
	struct samples target = {.values = &target_ms, .n = 1, .n_max = 1};

	if (n_missing > 0)
		bench_skip(env, params, "did not happen in %u rounds", (unsigned int)n_missing);
	if (ours->n > 0)
		bench_report(env, &row, ours, &target);
}

static void report(struct bench_env *env, struct side sides[2])
{
	report_pair(env, "calm", &sides[0].calm, &sides[1].calm);
	report_pair(env, "hogs", &sides[0].disturbed, &sides[1].disturbed);
	report_pair(env, "hogs p99", &sides[0].p99, &sides[1].p99);
	report_target(env, "reaction", &sides[0].reaction, sides[0].n_never, 50);
	report_target(env, "return", &sides[0].back, sides[0].n_no_back, 200);
}

static int measure(struct bench_env *env, struct side sides[2], struct hogs *hogs)
{
	struct round *round = calloc(1, sizeof(*round));
	unsigned int n_rounds = (unsigned int)(env->seconds * N_ROUNDS + 0.5);
	int r = 0;

	if (!round)
		return bench_fail(env, -ENOMEM, "no memory");
	if (n_rounds < 1)
		n_rounds = 1;
	round->hogs = hogs;
	for (unsigned int i = 0; i < 2 * n_rounds && !r; i++) {
		round->side = &sides[(i & 1) ^ (i >> 1 & 1)];
		r = run_round(round);
	}
	free(round);
	if (r)
		return bench_fail(env, r, "measuring failed");
	report(env, sides);
	return 0;
}

/* Choose the rows with which the undisturbed CPU takes cpu_ns. */
static int choose_rows(struct bench_env *env, uint32_t *ret)
{
	struct round *round = calloc(1, sizeof(*round));
	struct samples on_cpu = {.values = NULL};
	struct side side = {.action = NULL};
	int r;

	if (!round)
		return bench_fail(env, -ENOMEM, "no memory");
	round->side = &side;
	r = side_init(&side, env, "observe", ROWS);
	if (!r)
		r = warm_up(round);
	if (!r)
		r = samples_reserve(&on_cpu, WARM_UP);
	for (uint32_t i = 0; i < round->n_done && !r; i++)
		if (round->tasks[i].device == RBK_DEVICE_CPU)
			samples_add(&on_cpu,
				    (double)(round->tasks[i].end_ns - round->tasks[i].begin_ns));
	if (r) {
		bench_fail(env, r, "measuring the CPU failed");
	} else {
		double rows = ROWS * (double)cpu_ns / samples_percentile(&on_cpu, 50);

		*ret = rows < 1 ? 1 : rows > MAX_ROWS ? MAX_ROWS : (uint32_t)rows;
	}
	samples_deinit(&on_cpu);
	side_deinit(&side);
	free(round);
	return r;
}

static int run(struct bench_env *env)
{
	static const char *const actions[] = {"act", "observe"};
	const struct hogs_options options = {
		.n_per_cpu = 4, .comm = "bench-hog", .cgroup = "brokerbench-hogs"};
	struct side sides[2] = {{.action = NULL}};
	struct hogs *hogs = NULL;
	uint32_t rows = ROWS;
	int r;

	if (env->socket)
		return bench_skip(env, NULL, "needs private brokers");
	bench_pin(env, -1);
	prctl(PR_SET_TIMERSLACK, 1);
	go_first(true);
	r = hogs_new(&options, &hogs);
	if (r)
		bench_fail(env, r, "no processes that compute");
	if (!r)
		r = choose_rows(env, &rows);
	for (unsigned int i = 0; i < ARRAY_SIZE(sides) && !r; i++)
		r = side_init(&sides[i], env, actions[i], rows);
	if (!r)
		r = measure(env, sides, hogs);
	for (unsigned int i = 0; i < ARRAY_SIZE(sides); i++)
		side_deinit(&sides[i]);
	hogs_free(hogs);
	go_first(false);
	return r;
}

const struct bench bench_contention = {
	.name = "contention",
	.summary = "a client's latency while other programs compute on every processor, and the "
		   "time to recover",
	.baseline = "the same broker with --contention-action=observe; targets of 50 and 200 ms",
	.run = run,
};
