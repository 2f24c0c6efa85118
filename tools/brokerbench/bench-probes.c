/* SPDX-License-Identifier: MIT */
/*
 * probes: the cost of watching the scheduler, for watched processes and for others
 *
 * The probes see every switch, so every process pays for them. Other processes switch
 * (switch-load.h). The bench measures the processor time of a unit of their work, in rounds with
 * the probes loaded and attached and in rounds without them, by turns. The processes are watched as
 * a tenant's, or belong to no tenant.
 *
 * "cost" rows come from pairs of rounds, one with and one without probes: the median of the
 * percentage by which the first takes more, and as p99 the upper end of its 95% interval. "event"
 * rows are the probes' run time per event, as counted by the kernel (BPF_STATS_RUN_TIME). They have
 * a round of their own, since the counting itself has a cost. In "empty" rows the probes are
 * programs that return at once, at a wake-up and a switch: the kernel's cost of calling any probe,
 * which is the lower bound.
 *
 * The load "pipe" is two processes that only switch, up to a million times a second. "4us" is two
 * that also compute in between, and switch some two hundred thousand times a second. A sample of
 * "mixed" is half a microsecond of computing.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"
#include "contention/run-queue.h"
#include "switch-load.h"
#include "util/checked.h"
#include "util/clock.h"

enum { MIN_PAIRS = 6, MAX_PAIRS = 2000, ROUND_SLICES = 8 };

static const uint64_t slice_ns = 8000000;
/* limit of waiting until the kernel's count of events is reported */
static const uint64_t max_cost_ns = 10000000000;

enum probes_kind {
	PROBES_EMPTY,
	PROBES_OF_NOBODY, /* the broker's probes, watching other processes */
	PROBES_WATCHING,
};

struct probes_row {
	const char *name;
	enum switch_load_kind load;
	enum probes_kind probes;
	double n_units; /* units of the load per sample */
	double target_percent;
};

/* A row's measurement: pairs of rounds with and without probes */
struct contest {
	struct bench_env *env;
	const struct probes_row *row;
	struct switch_load *load;
	struct run_queue *rq;
	uint16_t tenant;
	int empty_fds[2];
	struct samples with, without, percent;
};

/* ---- Attaching and detaching ---- */

static int call_bpf(int command, union bpf_attr *attr)
{
	int r = (int)syscall(SYS_bpf, command, attr, sizeof(*attr));

	return r < 0 ? -errno : r;
}

/*
 * Attach a program that returns at once.
 * Return: a descriptor that holds the program and its attachment; a negative errno.
 */
static int attach_empty(const char *tracepoint)
{
	/* return 0 */
	static const struct bpf_insn body[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K},
		{.code = BPF_JMP | BPF_EXIT},
	};
	union bpf_attr attr;
	int program_fd, r;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT;
	attr.insns = (uintptr_t)body;
	attr.insn_cnt = ARRAY_SIZE(body);
	attr.license = (uintptr_t) "MIT";
	program_fd = call_bpf(BPF_PROG_LOAD, &attr);
	if (program_fd < 0)
		return program_fd;
	memset(&attr, 0, sizeof(attr));
	attr.raw_tracepoint.name = (uintptr_t)tracepoint;
	attr.raw_tracepoint.prog_fd = (uint32_t)program_fd;
	r = call_bpf(BPF_RAW_TRACEPOINT_OPEN, &attr);
	close(program_fd);
	return r;
}

static void detach_empty(struct contest *contest)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(contest->empty_fds); i++) {
		if (contest->empty_fds[i] >= 0)
			close(contest->empty_fds[i]);
		contest->empty_fds[i] = -1;
	}
}

static int attach_two_empty(struct contest *contest)
{
	contest->empty_fds[0] = attach_empty("sched_switch");
	contest->empty_fds[1] = attach_empty("sched_wakeup");
	for (unsigned int i = 0; i < ARRAY_SIZE(contest->empty_fds); i++)
		if (contest->empty_fds[i] < 0)
			return bench_fail(contest->env, contest->empty_fds[i],
					  "cannot attach to the scheduler");
	return 0;
}

static void watch(struct contest *contest)
{
	contest->tenant = run_queue_add_tenant(contest->rq);
	for (unsigned int i = 0; i < switch_load_n(contest->load); i++)
		run_queue_watch_process(contest->rq, switch_load_pid(contest->load, i), -1,
					contest->tenant);
}

/*
 * Return true once the tenant's processes are counted. Another thread finds them; until then their
 * events are not counted.
 */
static bool is_counted(struct contest *contest)
{
	struct run_queue_report report;

	return contest->row->probes != PROBES_WATCHING ||
	       (run_queue_tenant(contest->rq, contest->tenant, &report) && report.n_waits > 0);
}

static int attach(struct contest *contest)
{
	const struct run_queue_options options = {.source = RUN_QUEUE_SOURCE_EBPF};
	int r;

	if (contest->row->probes == PROBES_EMPTY)
		return attach_two_empty(contest);
	r = run_queue_new(&options, &contest->rq);
	if (r)
		return bench_fail(contest->env, r, "cannot watch the scheduler");
	if (run_queue_source(contest->rq) != RUN_QUEUE_SOURCE_EBPF) {
		const char *why = run_queue_sentence(contest->rq, 0);

		return bench_skip(contest->env, contest->row->name, "%s", why ? why : "no probes");
	}
	/* the pace while tasks run */
	run_queue_set_pace(contest->rq, RUN_QUEUE_PACE_BUSY);
	if (contest->row->probes == PROBES_WATCHING)
		watch(contest);
	return 0;
}

static void detach(struct contest *contest)
{
	contest->rq = run_queue_free(contest->rq);
	detach_empty(contest);
}

/* ---- Rounds ---- */

static int run_round(struct contest *contest, struct samples *ret)
{
	uint64_t units, cpu_ns, last_units, last_cpu_ns, deadline_ns;
	int r;

	r = samples_reserve(ret, ROUND_SLICES);
	if (r)
		return r;
	switch_load_begin(contest->load);
	bench_settle(slice_ns);
	deadline_ns = clock_now_ns() + 5000000000u;
	while (contest->rq && !is_counted(contest)) {
		if (clock_now_ns() > deadline_ns)
			return -ETIMEDOUT;
		bench_settle(slice_ns);
	}
	switch_load_read(contest->load, &last_units, &last_cpu_ns);
	for (unsigned int i = 0; i < ROUND_SLICES;) {
		bench_settle(slice_ns);
		switch_load_read(contest->load, &units, &cpu_ns);
		if (units == last_units)
			continue;
		samples_add(ret, (double)(cpu_ns - last_cpu_ns) / (double)(units - last_units) *
					 contest->row->n_units);
		last_units = units;
		last_cpu_ns = cpu_ns;
		i++;
	}
	switch_load_end(contest->load);
	return 0;
}

static int round_with(struct contest *contest, struct samples *ret)
{
	int r;

	r = attach(contest);
	if (!r)
		r = run_round(contest, ret);
	detach(contest);
	return r;
}

static int append(struct samples *samples, const struct samples *more)
{
	int r = samples_reserve(samples, more->n);

	for (size_t i = 0; i < more->n && !r; i++)
		samples_add(samples, more->values[i]);
	return r;
}

/*
 * Run a pair of rounds. Pairs are in the order A B B A, so that other activity affects both sides.
 */
static int run_pair(struct contest *contest, unsigned int pair)
{
	struct samples rounds[2] = {SAMPLES_INIT, SAMPLES_INIT};
	double with, without;
	int r = 0;

	for (unsigned int turn = 0; turn < 2 && !r; turn++) {
		unsigned int side = turn ^ (pair & 1);

		r = side == 0 ? round_with(contest, &rounds[0]) : run_round(contest, &rounds[1]);
	}
	if (!r)
		r = samples_reserve(&contest->percent, 1);
	if (!r) {
		with = samples_percentile(&rounds[0], 50);
		without = samples_percentile(&rounds[1], 50);
		samples_add(&contest->percent, (with / without - 1) * 100);
		r = append(&contest->with, &rounds[0]);
	}
	if (!r)
		r = append(&contest->without, &rounds[1]);
	samples_deinit(&rounds[0]);
	samples_deinit(&rounds[1]);
	return r;
}

/* ---- The cost of an event ---- */

/*
 * Count run times as long as the descriptor is open.
 * Return: the descriptor; a negative errno.
 */
static int enable_stats(void)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.enable_stats.type = BPF_STATS_RUN_TIME;
	return call_bpf(BPF_ENABLE_STATS, &attr);
}

static int measure_event(struct contest *contest, double *ret_ns)
{
	const uint64_t until_ns = clock_now_ns() + max_cost_ns;
	struct run_queue_cost before, after;
	struct samples unused = SAMPLES_INIT;
	int fd, r;

	fd = enable_stats();
	if (fd < 0)
		return fd;
	r = attach(contest);
	run_queue_cost(contest->rq, &before);
	/* The counts are those of the last report, which may precede the round. */
	do {
		if (!r)
			r = run_round(contest, &unused);
		run_queue_cost(contest->rq, &after);
		if (!r && after.n_events == before.n_events && clock_now_ns() >= until_ns)
			r = -ETIME;
	} while (!r && after.n_events == before.n_events);
	if (!r)
		*ret_ns = (double)(after.event_ns - before.event_ns) /
			  (double)(after.n_events - before.n_events);
	detach(contest);
	close(fd);
	samples_deinit(&unused);
	return r;
}

/* ---- Reports ---- */

/* Return the value that 97.5% of medians of as many samples do not exceed, by ranks. */
static double upper_end(struct samples *samples)
{
	double rank = ceil((double)samples->n / 2 + 0.98 * sqrt((double)samples->n)) + 1;

	samples_percentile(samples, 50);
	return samples->values[rank <= (double)samples->n ? (size_t)rank - 1 : samples->n - 1];
}

/* @event_ns: 0 if it was not measured. */
static void report(struct contest *contest, double event_ns)
{
	const struct probes_row *about = contest->row;
	struct bench_env *env = contest->env;
	double percent[2] = {samples_percentile(&contest->percent, 50),
			     upper_end(&contest->percent)};
	double target[1] = {about->target_percent}, event[1] = {event_ns};
	double plain[1] = {samples_percentile(&contest->without, 50)};
	char params[64];
	struct bench_row row = {about->name, "ns", false, "no probes"};

	bench_report(env, &row, &contest->with, &contest->without);
	snprintf(params, sizeof(params), "%s cost", about->name);
	row = (struct bench_row){params, "%", false, "target"};
	bench_report(env, &row, &(struct samples){percent, 2, 2}, &(struct samples){target, 1, 1});
	if (event_ns <= 0)
		return;
	snprintf(params, sizeof(params), "%s event", about->name);
	row = (struct bench_row){params, "ns", false, "no probes"};
	bench_report(env, &row, &(struct samples){event, 1, 1}, &(struct samples){plain, 1, 1});
}

static int run_row(struct bench_env *env, const struct probes_row *row)
{
	struct contest contest = {.env = env, .row = row, .empty_fds = {-1, -1}};
	uint64_t end_ns = clock_now_ns() + (uint64_t)(env->seconds * 1e9);
	const unsigned int n_least = env->quick ? 1 : MIN_PAIRS;
	double event_ns = 0;
	int r;

	/* The measuring thread runs on another processor if there is one. */
	bench_pin(env, -1);
	r = switch_load_new(row->load, env->peer_cpu, &contest.load);
	if (r)
		return bench_fail(env, r, "no processes that switch");
	bench_pin(env, row->load == SWITCH_LOAD_MIXED ? -1 : env->client_cpu);
	for (unsigned int i = 0; i < MAX_PAIRS && !r && (i < n_least || clock_now_ns() < end_ns);
	     i++)
		r = run_pair(&contest, i);
	if (!r && row->probes != PROBES_EMPTY)
		r = measure_event(&contest, &event_ns);
	if (!r)
		report(&contest, event_ns);
	else if (r < 0)
		bench_fail(env, r, "measuring failed");
	switch_load_free(contest.load);
	samples_deinit(&contest.with);
	samples_deinit(&contest.without);
	samples_deinit(&contest.percent);
	return r;
}

static int run(struct bench_env *env)
{
	static const struct probes_row rows[] = {
		{"pipe empty", SWITCH_LOAD_PIPE, PROBES_EMPTY, 1, 3},
		{"pipe", SWITCH_LOAD_PIPE, PROBES_OF_NOBODY, 1, 3},
		{"pipe watched", SWITCH_LOAD_PIPE, PROBES_WATCHING, 1, 3},
		{"4us empty", SWITCH_LOAD_PACED, PROBES_EMPTY, SWITCH_LOAD_PACED_UNITS, 3},
		{"4us", SWITCH_LOAD_PACED, PROBES_OF_NOBODY, SWITCH_LOAD_PACED_UNITS, 3},
		{"4us watched", SWITCH_LOAD_PACED, PROBES_WATCHING, SWITCH_LOAD_PACED_UNITS, 3},
		{"mixed watched", SWITCH_LOAD_MIXED, PROBES_WATCHING, 1, 0.5},
	};
	int r = 0;

	if (env->socket)
		return bench_skip(env, NULL, "needs no broker");
	for (unsigned int i = 0; i < ARRAY_SIZE(rows) && !r; i++)
		r = run_row(env, &rows[i]);
	return r;
}

const struct bench bench_probes = {
	.name = "probes",
	.summary = "processor time of processes that switch: two with a pipe, and a mixture",
	.baseline = "the same without probes; targets of 3% and 0.5% more",
	.run = run,
};
