/* SPDX-License-Identifier: MIT */
/*
 * time-lease: what sharing a device's time costs, and what it gives
 *
 * Both sides of a row are agents (lease-agents.h), with the layer of leases and without. First rows
 * tell the cost: of recording while a program is alone, of recording in parts, of a part, and of a
 * rate. The others tell what an urgent program gains: a job of 1 ms in each 20 ms beside a program
 * in the background, which has 3 submissions of 20 ms under way. These baselines are the same
 * programs alone and without the layer. With "whole" the background's command buffers were recorded
 * before the other program came, so they are not divided.
 *
 * The broker serves nothing else, so its sandbox protects nothing, and would refuse calls that the
 * driver of a simulated card makes in it.
 */
#include <errno.h>
#include <stdio.h>

#include "bench.h"
#include "broker-process/broker-process.h"
#include "lease-agents.h"
#include "util/clock.h"

/* targets */
enum { RECORD_MORE_NS = 60, PART_MORE_NS = 3000 };
static const double rate_target = 0.99;

enum {
	RECORD_DISPATCHES = 500,
	PARTS = 32, /* the layer has 64 under way at most, and does not wait below that */
	RATE_DISPATCHES = 100,
	URGENT_DISPATCHES = 10,
};

/* Times of a dispatch on a GPU; on a renderer it has one workgroup. */
static const uint64_t rate_dispatch_ns = 20000, urgent_dispatch_ns = 100000,
		      background_dispatch_ns = 200000;
static const uint64_t period_ns = 20000000;
/* Time for which the background works before the urgent program's jobs are measured. */
static const uint64_t begin_ns = 60000000;
/* Rounds of rates and of jobs take longer than those of bench_compare(). */
static const uint64_t round_min_ns = 60000000, round_max_ns = 500000000;

struct time_lease {
	struct bench_env *env;
	struct broker_process *broker;
	bool is_cpu;
	uint32_t rate_groups, urgent_groups, background_groups;
};

/* ---- Agents ---- */

/* Return: 0; BENCH_E_SKIP; a negative errno. */
static int start(struct time_lease *bench, const struct lease_program *program,
		 struct lease_agent **ret)
{
	char said[256];
	int r = lease_agent_new(program, ret, said, sizeof(said));

	if (r == -ENODEV || r == -ENOENT)
		return bench_skip(bench->env, NULL, "%s", said);
	return r ? bench_refused(bench->env, r, said) : 0;
}

/* A side of a row: an agent and its action */
struct side {
	struct time_lease *bench;
	struct lease_agent *agent;
	enum lease_action action;
};

static int measure(const struct side *side, uint64_t ns, struct samples *samples)
{
	int r = lease_agent_measure(side->agent, side->action, ns, samples);

	return r ? bench_refused(side->bench->env, r, lease_agent_said(side->agent)) : 0;
}

static int side_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	return measure(data, budget_ns, samples);
}

/* Return the length of a round of a rate or of jobs. */
static uint64_t long_round_ns(const struct bench_env *env)
{
	const uint64_t ns = (uint64_t)(env->seconds * 1e8);

	return ns < round_min_ns ? round_min_ns : ns > round_max_ns ? round_max_ns : ns;
}

static int long_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	const struct side *side = data;

	(void)budget_ns;
	return measure(side, long_round_ns(side->bench->env), samples);
}

/* ---- The cost ---- */

/* Measure a program with the layer and without, and report the row. */
static int run_cost(struct time_lease *bench, const struct bench_row *row, bench_round_fn round,
		    enum lease_action action, const struct lease_program *program)
{
	_cleanup_(lease_agent_freep) struct lease_agent *ours = NULL, *baseline = NULL;
	struct lease_program without = *program;
	struct side sides[2] = {{bench, NULL, action}, {bench, NULL, action}};
	int r;

	if (!bench_is_wanted(bench->env, row->params))
		return 0;
	without.socket = NULL;
	without.is_apart = action == LEASE_PARTS;
	r = start(bench, program, &ours);
	if (!r)
		r = start(bench, &without, &baseline);
	if (r)
		return r;
	sides[0].agent = ours;
	sides[1].agent = baseline;
	return bench_compare(bench->env, row, (struct bench_side){round, &sides[0]},
			     (struct bench_side){round, &sides[1]});
}

static int run_costs(struct time_lease *bench)
{
	struct bench_row row = {.unit = "ns", .baseline = "without-layer"};
	struct lease_program program = {
		.socket = broker_process_socket(bench->broker),
		.priority = "normal",
		.n_dispatches = RECORD_DISPATCHES,
		.n_groups = 1,
	};
	int r;

	row.params = "record alone";
	row.more = RECORD_MORE_NS;
	r = run_cost(bench, &row, side_round, LEASE_RECORD, &program);
	if (r)
		return r;
	row.params = "record divided";
	program.max_part = "500us";
	r = run_cost(bench, &row, side_round, LEASE_RECORD, &program);
	if (r)
		return r;
	row.params = "part";
	row.more = PART_MORE_NS;
	program.max_part = "1us"; /* less than any submission takes */
	program.n_dispatches = PARTS;
	program.has_ends = true;
	r = run_cost(bench, &row, side_round, LEASE_PARTS, &program);
	if (r)
		return r;
	row.params = "part with its end";
	row.more = 0;
	program.has_ends = false;
	r = run_cost(bench, &row, side_round, LEASE_PARTS, &program);
	if (r)
		return r;
	row = (struct bench_row){
		.params = "background alone",
		.unit = "k/s",
		.is_rate = true,
		.baseline = "without-layer",
		.target = rate_target,
	};
	program.priority = "background";
	program.max_part = NULL;
	program.n_dispatches = RATE_DISPATCHES;
	program.n_groups = bench->rate_groups;
	return run_cost(bench, &row, long_round, LEASE_RATE, &program);
}

/* ---- The gain ---- */

/* The programs of a row that share the device, and those that have it alone */
struct pair {
	struct time_lease *bench;
	struct lease_agent *urgent, *background;
	struct lease_agent *urgent_alone, *background_alone;
	struct samples beside, alone; /* rates of the background, dispatches per ms */
};

static int refuse(const struct pair *pair, int r, const struct lease_agent *agent)
{
	return r ? bench_refused(pair->bench->env, r, lease_agent_said(agent)) : 0;
}

/* Run the urgent program beside the background, whose rate is divided by the part left to it. */
static int beside_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	struct pair *pair = data;
	const size_t n_before = samples->n;
	uint64_t start_ns, took_ns;
	double urgent_ns;
	int r;

	(void)budget_ns;
	r = refuse(pair, lease_agent_work(pair->background), pair->background);
	if (r)
		return r;
	bench_settle(begin_ns);
	start_ns = clock_now_ns();
	r = refuse(pair,
		   lease_agent_measure(pair->urgent, LEASE_JOBS, long_round_ns(pair->bench->env),
				       samples),
		   pair->urgent);
	took_ns = clock_now_ns() - start_ns;
	if (r)
		return r;
	r = refuse(pair, lease_agent_rest(pair->background, &pair->beside), pair->background);
	if (r)
		return r;
	urgent_ns = (double)(samples->n - n_before) * URGENT_DISPATCHES * urgent_dispatch_ns;
	pair->beside.values[pair->beside.n - 1] /= 1 - urgent_ns / (double)took_ns;
	return 0;
}

static int alone_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	struct pair *pair = data;
	const uint64_t ns = long_round_ns(pair->bench->env);
	int r;

	(void)budget_ns;
	r = refuse(pair, lease_agent_measure(pair->urgent_alone, LEASE_JOBS, ns, samples),
		   pair->urgent_alone);
	return r ? r
		 : refuse(pair,
			  lease_agent_measure(pair->background_alone, LEASE_RATE, ns, &pair->alone),
			  pair->background_alone);
}

static int start_pair(struct pair *pair, const char *max_part)
{
	struct time_lease *bench = pair->bench;
	const char *socket = broker_process_socket(bench->broker);
	struct lease_program urgent = {
		.socket = socket,
		.priority = "urgent",
		.n_dispatches = URGENT_DISPATCHES,
		.n_groups = bench->urgent_groups,
		.period_ns = period_ns,
	};
	struct lease_program background = {
		.socket = socket,
		.priority = "background",
		.max_part = max_part,
		.n_dispatches = RATE_DISPATCHES,
		.n_groups = bench->background_groups,
		.is_recorded_once = !max_part,
	};
	/* The background's command buffers stay whole if they are recorded while it is alone. */
	int r = start(bench, &background, &pair->background);

	if (!r)
		r = start(bench, &urgent, &pair->urgent);
	urgent.socket = background.socket = NULL;
	if (!r)
		r = start(bench, &background, &pair->background_alone);
	if (!r)
		r = start(bench, &urgent, &pair->urgent_alone);
	return r;
}

static void end_pair(struct pair *pair)
{
	lease_agent_free(pair->urgent_alone);
	lease_agent_free(pair->background_alone);
	lease_agent_free(pair->urgent);
	lease_agent_free(pair->background);
	samples_deinit(&pair->beside);
	samples_deinit(&pair->alone);
}

/* Report the jobs of the urgent program and the rates of the background, in a row each. */
static int run_gain(struct time_lease *bench, const char *parts, const char *max_part)
{
	struct pair pair = {.bench = bench};
	char jobs[64], rates[64];
	struct bench_row row = {.params = jobs, .unit = "us", .baseline = "alone"};
	int r;

	snprintf(jobs, sizeof(jobs), "urgent beside %s", parts);
	snprintf(rates, sizeof(rates), "background beside urgent %s", parts);
	if (!bench_is_wanted(bench->env, jobs) && !bench_is_wanted(bench->env, rates))
		return 0;
	r = start_pair(&pair, max_part);
	if (!r)
		r = bench_compare(bench->env, &row, (struct bench_side){beside_round, &pair},
				  (struct bench_side){alone_round, &pair});
	if (!r) {
		row.params = rates;
		row.unit = "k/s";
		row.is_rate = true;
		bench_report(bench->env, &row, &pair.beside, &pair.alone);
	}
	end_pair(&pair);
	return r;
}

static int run_gains(struct time_lease *bench)
{
	int r;

	if (bench->is_cpu) {
		bench_skip(bench->env, "urgent beside",
			   "the device is a renderer on the CPU, whose processors the kernel "
			   "divides among programs");
		return 0;
	}
	r = run_gain(bench, "whole", NULL);
	if (!r)
		r = run_gain(bench, "parts=500us", "500us");
	if (!r)
		r = run_gain(bench, "parts=200us", "200us");
	return r ? r : run_gain(bench, "parts=100us", "100us");
}

/* ---- The bench ---- */

static int count_groups(struct time_lease *bench, struct lease_agent *agent, uint64_t ns,
			uint32_t *ret)
{
	struct samples samples = SAMPLES_INIT;
	int r = lease_agent_measure(agent, LEASE_COUNT_GROUPS, ns, &samples);

	if (r)
		bench_refused(bench->env, r, lease_agent_said(agent));
	else
		*ret = (uint32_t)samples.values[0];
	samples_deinit(&samples);
	return r;
}

/* Find out what the device is, and how many workgroups take the times of the rows. */
static int look_at_device(struct time_lease *bench)
{
	_cleanup_(lease_agent_freep) struct lease_agent *agent = NULL;
	const struct lease_program program = {.n_dispatches = 1, .n_groups = 1};
	int r = start(bench, &program, &agent);

	if (r)
		return r;
	bench->is_cpu = lease_agent_is_cpu(agent);
	bench->rate_groups = 1;
	if (bench->is_cpu)
		return 0;
	r = count_groups(bench, agent, rate_dispatch_ns, &bench->rate_groups);
	if (!r)
		r = count_groups(bench, agent, urgent_dispatch_ns, &bench->urgent_groups);
	return r ? r
		 : count_groups(bench, agent, background_dispatch_ns, &bench->background_groups);
}

static int run_time_lease(struct bench_env *env)
{
	static const char *const gpu[] = {"--sandbox=off", "--cache=none", "--calibration=none",
					  "--contention=none", NULL};
	static const char *const software[] = {"--gpu=software",    "--device-memory=512MiB",
					       "--cache=none",      "--calibration=none",
					       "--contention=none", NULL};
	struct time_lease bench = {.env = env};
	int r = look_at_device(&bench);

	if (r)
		return r;
	r = broker_process_new(bench.is_cpu ? software : gpu, -1, &bench.broker);
	if (r)
		return bench_fail(env, r, "cannot start a broker");
	r = run_costs(&bench);
	if (!r)
		r = run_gains(&bench);
	broker_process_free(bench.broker);
	return r;
}

const struct bench bench_time_lease = {
	.name = "time-lease",
	.summary = "what sharing a device's time costs and gives (target: +60 ns a dispatch)",
	.baseline = "without-layer",
	.run = run_time_lease,
};
