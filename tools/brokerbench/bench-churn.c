/* SPDX-License-Identifier: MIT */
/*
 * churn: a client's rate and tail while another tenant makes and frees objects without end
 *
 * The neighbour runs a small task, one at a time or 64 at a time, and waits as programs do. Its
 * windows are short, and take turns: alone, beside the churner, and beside the burner. No thread is
 * pinned. On a machine with few processors the churner takes time from the neighbour, whatever it
 * computes. The burner is the measure of that: it has no broker, and as much processor time, in
 * pieces as long, as the churner had in its last window. What a row is worse than its baseline is
 * then the broker's part, including the processor time of its setup and closing threads.
 *
 * A sample of a rate row is the rate of one window, and one of a p99 row is a window's p99: of a
 * task's time, or of a batch's. "setup" is the processor time of the broker's threads beside the
 * reactor, in percent of a processor. "longest turn" is the most processor time that the reactor
 * took between two looks at its clients.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <limits.h>
#include <sys/mman.h>
#include <ringbroker.h>
#include <ringbroker/admin.h>
#include <ringbroker/stats.h>
#include <unistd.h>

#include "bench.h"
#include "broker-process/broker-process.h"
#include "churners.h"
#include "plans.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/number.h"

enum {
	N_FLOATS = 16,
	BATCH = 64,
	RING_ENTRIES = 256,
	MIN_ROUNDS = 2,
	N_WINDOWS = 5, /* of a phase */
	MAX_WINDOW_TASKS = 1 << 18,
	LONG_US = 250, /* a task that takes longer has waited for a processor */
};

static const uint64_t window_ns = 30000000, settle_ns = 1000000, ramp_ns = 300000000;
static const double least_rate = 0.95, most_p99 = 1.2;

#define START_NS 2100000000u

/* Longest time between two updates of the page while a reader is connected */
#define UPDATE_NS 260000000u

/* Other programs that run during a window */
enum beside { ALONE, CHURNER, BURNER, BESIDES };

struct neighbour {
	struct rbk *rbk;
	struct rbk_ring *ring;
	struct plans_add add;
	uint64_t refs[RBK_SQE_REFS];
	unsigned int batch;
	struct samples times; /* of the current window, in us */
};

/* Rates of a window, in M/s */
struct window {
	double rate;
	double running_rate; /* without tasks that waited for a processor */
};

struct churn_bench {
	struct bench_env *env;
	struct broker_process *process;
	struct rbk *admin;
	struct rbk_stats_view page;
	struct neighbour neighbour;
	struct churner *burner;
	/* results of a row's windows */
	struct samples rates[BESIDES], running[BESIDES], p99s[BESIDES], setup[BESIDES],
		turns[BESIDES];
	uint64_t windows_ns; /* time of the windows of the last phase */
};

/* ---- The neighbour ---- */

static int submit_batch(const struct neighbour *neighbour)
{
	struct rbk_sqe *sqe;
	int r;

	for (unsigned int i = 0; i < neighbour->batch; i++) {
		sqe = rbk_get_sqe(neighbour->ring);
		if (!sqe)
			return -ENOBUFS;
		rbk_prep_run(sqe, rbk_plan_id(neighbour->add.plan), 1, neighbour->refs, 3);
	}
	r = rbk_submit(neighbour->ring);
	return r < 0 ? r : 0;
}

/* Run a batch. Return: 0; a negative errno. */
static int run_batch(const struct neighbour *neighbour)
{
	const struct rbk_cqe *cqe;
	int r = submit_batch(neighbour);

	for (unsigned int i = 0; i < neighbour->batch && !r; i++) {
		do
			r = rbk_wait_cqe(neighbour->ring, &cqe);
		while (r == -EINTR);
		if (!r) {
			r = cqe->res;
			rbk_cqe_seen(neighbour->ring, cqe);
		}
	}
	return r;
}

/* Run batches for a window. */
static int run_window(struct neighbour *neighbour, struct window *ret)
{
	const uint64_t settle_ticks = clock_ns_to_ticks(settle_ns);
	const uint64_t window_ticks = clock_ns_to_ticks(window_ns);
	uint64_t begin = clock_ticks(), last, now;
	double short_us = 0;
	size_t n_short = 0;
	int r = samples_reserve(&neighbour->times, MAX_WINDOW_TASKS);

	samples_clear(&neighbour->times);
	while (!r && clock_ticks() - begin < settle_ticks)
		r = run_batch(neighbour);
	begin = last = now = clock_ticks();
	while (!r && now - begin < window_ticks && samples_room(&neighbour->times) > 0) {
		r = run_batch(neighbour);
		now = clock_ticks();
		samples_add(&neighbour->times, (double)clock_elapsed_ns(last, now) / 1e3);
		last = now;
	}
	for (size_t i = 0; i < neighbour->times.n && !r; i++)
		if (neighbour->times.values[i] < LONG_US) {
			short_us += neighbour->times.values[i];
			n_short++;
		}
	if (!r)
		*ret = (struct window){
			.rate = (double)(neighbour->times.n * neighbour->batch) * 1e3 /
				(double)clock_elapsed_ns(begin, now),
			.running_rate = (double)(n_short * neighbour->batch) / short_us,
		};
	return r;
}

static int neighbour_init(struct neighbour *neighbour, struct bench_env *env, const char *socket)
{
	const struct rbk_options options = {
		.size = sizeof(options), .socket_path = socket, .name = "brokerbench"};
	struct rbk_error error = {""};
	int r = rbk_connect(&options, &neighbour->rbk, &error);

	if (!r)
		r = rbk_ring_new(neighbour->rbk, RING_ENTRIES, &neighbour->ring, &error);
	if (r)
		return bench_refused(env, r, error.text);
	r = plans_add_init(&neighbour->add, env, neighbour->rbk, N_FLOATS, false, 1);
	if (!r)
		plans_add_refs(&neighbour->add, 0, neighbour->refs);
	return r;
}

static void neighbour_deinit(struct neighbour *neighbour)
{
	plans_add_deinit(&neighbour->add);
	rbk_ring_free(neighbour->ring);
	rbk_disconnect(neighbour->rbk);
	samples_deinit(&neighbour->times);
}

/* ---- The broker's own figures ---- */

/* Return the processor time of the broker's threads beside the reactor, in nanoseconds. */
static uint64_t threads_ns(pid_t pid)
{
	char path[PATH_MAX];
	struct dirent *entry;
	uint64_t sum = 0, ns;
	FILE *file;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || atoi(entry->d_name) == pid)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", (int)pid, entry->d_name);
		file = fopen(path, "re");
		if (file && fscanf(file, "%" SCNu64, &ns) == 1)
			sum += ns;
		if (file)
			fclose(file);
	}
	if (dir)
		closedir(dir);
	return sum;
}

static int add(struct samples *samples, double value)
{
	int r = samples_reserve(samples, 1);

	if (!r)
		samples_add(samples, value);
	return r;
}

/* Return the most processor time of a turn since the last reset, in us; 0: not known. */
static double longest_turn_us(const struct churn_bench *bench)
{
	const struct rbk_stats_upkeep *record =
		rbk_stats_record(&bench->page, RBK_STATS_SECTION_UPKEEP, 0);
	struct rbk_stats_upkeep upkeep;

	if (!record || !rbk_stats_copy(&upkeep, record, sizeof(upkeep)))
		return 0;
	return (double)upkeep.longest_turn_cpu_ns / 1e3;
}

/* ---- Rows ---- */

/* Run the windows of one phase and add their samples. @work: of the process beside, if any. */
static int measure_windows(struct churn_bench *bench, enum beside beside, struct churner *process)
{
	const pid_t pid = broker_process_pid(bench->process);
	const uint64_t begin_ns = clock_now_ns();
	uint64_t before_ns;
	struct window window = {.rate = 0};
	int r;

	/* The broker lets a client do more at first, than for long. */
	do
		r = run_window(&bench->neighbour, &window);
	while (!r && process && clock_now_ns() - begin_ns < ramp_ns);
	if (!r)
		r = rbk_stats_reset(bench->admin, RBK_STATS_ALL, 0, NULL);
	if (process)
		churner_mark(process);
	before_ns = threads_ns(pid);
	bench->windows_ns = clock_now_ns();
	for (unsigned int i = 0; i < N_WINDOWS && !r; i++) {
		r = run_window(&bench->neighbour, &window);
		if (!r)
			r = add(&bench->rates[beside], window.rate);
		if (!r)
			r = add(&bench->running[beside], window.running_rate);
		if (!r)
			r = add(&bench->p99s[beside],
				samples_percentile(&bench->neighbour.times, 99));
	}
	bench->windows_ns = clock_now_ns() - bench->windows_ns;
	if (!r)
		r = add(&bench->setup[beside],
			100 * (double)(threads_ns(pid) - before_ns) / (double)bench->windows_ns);
	bench_settle(UPDATE_NS);
	if (!r)
		r = add(&bench->turns[beside], longest_turn_us(bench));
	return r;
}

static int run_phase(struct churn_bench *bench, enum beside beside, struct churner *process,
		     struct churner_work *work)
{
	int r, end;

	bench_settle(BENCH_ASLEEP_NS);
	if (process)
		churner_begin(process);
	r = measure_windows(bench, beside, process);
	end = process ? churner_end(process, work) : 0;
	return r ? r : end;
}

/* Run a phase of each kind, in an order that changes with @round. */
static int run_round(struct churn_bench *bench, struct churner *churner, unsigned int round)
{
	struct churner *const processes[] = {
		[ALONE] = NULL, [CHURNER] = churner, [BURNER] = bench->burner};
	struct churner_work work = {.n = 0};
	uint64_t n_sleeps;
	int r = 0;

	for (unsigned int i = 0; i < BESIDES && !r; i++) {
		/* The burner follows the churner, whose pace it takes. */
		const enum beside beside = (i + round) % BESIDES;

		r = run_phase(bench, beside, processes[beside], &work);
		if (r || beside != CHURNER)
			continue;
		n_sleeps = work.n_sleeps > 0 ? work.n_sleeps : 1;
		churner_pace(bench->burner, work.cpu_ns / n_sleeps,
			     saturating_sub(work.elapsed_ns, work.cpu_ns) / n_sleeps);
	}
	return r;
}

static void clear(struct churn_bench *bench)
{
	for (unsigned int i = 0; i < BESIDES; i++) {
		samples_clear(&bench->rates[i]);
		samples_clear(&bench->running[i]);
		samples_clear(&bench->p99s[i]);
		samples_clear(&bench->setup[i]);
		samples_clear(&bench->turns[i]);
	}
}

static void report(struct churn_bench *bench, const char *what, const char *unit,
		   struct samples samples[BESIDES], double target)
{
	static const char *const baselines[] = {[ALONE] = "alone", [BURNER] = "burner"};
	struct bench_row row = {.unit = unit, .is_rate = strcmp(unit, "M/s") == 0};

	for (unsigned int i = 0; i < BESIDES; i++) {
		if (i == CHURNER)
			continue;
		row.params = what;
		row.baseline = baselines[i];
		row.target = i == BURNER ? target : 0;
		bench_report(bench->env, &row, &samples[CHURNER], &samples[i]);
	}
}

static int measure(struct churn_bench *bench, enum churn_kind kind, unsigned int batch)
{
	struct bench_env *env = bench->env;
	unsigned int n_rounds =
		(unsigned int)(env->seconds * 1e9 / (double)(BESIDES * N_WINDOWS * window_ns) +
			       0.5);
	struct churner *churner = NULL;
	char params[64], running[80], p99[80], setup[80], turn[80];
	int r;

	snprintf(params, sizeof(params), "%s batch=%u", churn_name(kind), batch);
	snprintf(running, sizeof(running), "%s running", params);
	snprintf(p99, sizeof(p99), "%s p99", params);
	snprintf(turn, sizeof(turn), "%s longest turn", params);
	snprintf(setup, sizeof(setup), "%s setup", params);
	if (!bench_is_wanted(env, params))
		return 0;
	r = churner_new(kind, broker_process_socket(bench->process), &churner);
	bench->neighbour.batch = batch;
	if (n_rounds < MIN_ROUNDS)
		n_rounds = MIN_ROUNDS;
	/* The first round is not counted. */
	for (unsigned int i = 0; i <= n_rounds && !r; i++) {
		r = run_round(bench, churner, i);
		if (i == 0)
			clear(bench);
	}
	if (r) {
		bench_fail(env, r, "%s: measuring failed", params);
	} else {
		report(bench, params, "M/s", bench->rates, least_rate);
		report(bench, running, "M/s", bench->running, least_rate);
		report(bench, p99, "us", bench->p99s, most_p99);
		report(bench, setup, "%", bench->setup, 0);
		report(bench, turn, "us", bench->turns, 0);
	}
	churner_free(churner);
	return r;
}

static int connect_admin(struct churn_bench *bench)
{
	char path[PATH_MAX];
	const struct rbk_options options = {
		.size = sizeof(options), .socket_path = path, .name = "brokerbench"};
	int r = rbk_admin_socket_path(broker_process_socket(bench->process), path, sizeof(path));

	return r ? r : rbk_admin_connect(&options, &bench->admin, NULL);
}

/* Write a policy with a tenant for the churners. Return: 0; a negative errno. */
static int write_policy(int *ret_fd, char *path, size_t bytes)
{
	*ret_fd = memfd_create("brokerbench-policy", MFD_CLOEXEC);
	if (*ret_fd < 0)
		return -errno;
	if (dprintf(*ret_fd, "[tenant churner]\nmatch-uid = %u\n", CHURNER_UID) < 0)
		return -errno;
	snprintf(path, bytes, "/proc/%d/fd/%d", (int)getpid(), *ret_fd);
	return 0;
}

static int run(struct bench_env *env)
{
	char policy[64] = "";
	const char *const arguments[] = {
		"--gpu=none",  "--test-device=1ms",  "--cache=none", "--calibration=none",
		"--workers=1", "--socket-mode=0666", "--config",     policy,
		NULL};
	static const unsigned int batches[] = {1, BATCH};
	struct churn_bench bench = {.env = env};
	int fd = -1, r;

	if (env->socket)
		return bench_skip(env, NULL, "needs a broker of its own, not --socket");
	if (geteuid() != 0)
		return bench_skip(env, NULL, "needs root, to be two users");
	bench_pin(env, -1);
	r = write_policy(&fd, policy, sizeof(policy));
	if (!r)
		r = broker_process_new(arguments, -1, &bench.process);
	if (r)
		bench_fail(env, r, "the private brokerd did not start");
	/* A broker that answers clients has its administrators' socket, too. */
	if (!r)
		r = neighbour_init(&bench.neighbour, env, broker_process_socket(bench.process));
	if (!r) {
		r = connect_admin(&bench);
		if (!r)
			r = rbk_stats_map(bench.admin, RBK_STATS_ALL, 0, &bench.page, NULL);
		if (r)
			bench_fail(env, r, "the broker serves no administrator");
	}
	/* The broker limits no client for a moment after its start. */
	bench_settle(START_NS);
	if (!r && churner_new(CHURN_BURNER, NULL, &bench.burner))
		r = bench_fail(env, -EAGAIN, "no process that computes");
	for (enum churn_kind kind = 0; kind < CHURN_KINDS && !r; kind++)
		for (unsigned int i = 0; i < ARRAY_SIZE(batches) && !r; i++) {
			clear(&bench);
			r = measure(&bench, kind, batches[i]);
		}
	churner_free(bench.burner);
	neighbour_deinit(&bench.neighbour);
	rbk_stats_unmap(&bench.page);
	rbk_disconnect(bench.admin);
	broker_process_free(bench.process);
	if (fd >= 0)
		close(fd);
	for (unsigned int i = 0; i < BESIDES; i++) {
		samples_deinit(&bench.rates[i]);
		samples_deinit(&bench.running[i]);
		samples_deinit(&bench.p99s[i]);
		samples_deinit(&bench.setup[i]);
		samples_deinit(&bench.turns[i]);
	}
	return r;
}

const struct bench bench_churn = {
	.name = "churn",
	.summary = "a client's rate and p99 while another tenant makes and frees plans, sessions, "
		   "arenas or rings, or sends requests, without end",
	.baseline = "the same beside a process that takes as much processor time without a broker; "
		    "and alone",
	.run = run,
};
