/* SPDX-License-Identifier: MIT */
/*
 * Two sides by turns
 *
 * Virtual machines change their speed by a factor of two within seconds, and the memory system's
 * speed changes with every start. A row is therefore many short rounds of ours and the baseline in
 * the order A B B A, after one uncounted round each; p50 and p99 are those of all samples of a
 * side. A slowdown longer than a few rounds affects both sides alike.
 */
#include "bench.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "report.h"
#include "util/clock.h"

/*
 * Length of a round, below a scheduler's time slice: a thread that has slept before is rarely
 * preempted within it, also on a shared machine.
 */
#define ROUND_NS_MAX    2000000u
#define ROUND_PAIRS     32
#define ROUND_PAIRS_MIN 4

void bench_settle(uint64_t duration_ns)
{
	struct timespec time = {
		.tv_sec = (time_t)(duration_ns / 1000000000u),
		.tv_nsec = (long)(duration_ns % 1000000000u),
	};

	while (nanosleep(&time, &time) < 0 && errno == EINTR)
		;
}

void bench_pin(const struct bench_env *env, int cpu)
{
	static cpu_set_t original;
	static bool is_known;
	cpu_set_t cpus;

	if (!is_known) {
		sched_getaffinity(0, sizeof(original), &original);
		is_known = true;
	}
	cpus = original;
	if (cpu >= 0) {
		CPU_ZERO(&cpus);
		CPU_SET(cpu, &cpus);
	}
	sched_setaffinity(0, sizeof(cpus), &cpus);
}

bool bench_is_wanted(const struct bench_env *env, const char *params)
{
	return !env->rows || strstr(params, env->rows);
}

static int run_round(const struct bench_side *side, uint64_t budget_ns, struct samples *samples)
{
	bench_settle(BENCH_ASLEEP_NS);
	return side->round(side->data, budget_ns, samples);
}

int bench_compare(struct bench_env *env, const struct bench_row *row, struct bench_side ours,
		  struct bench_side baseline)
{
	const struct bench_side sides[2] = {ours, baseline};
	struct samples samples[2] = {SAMPLES_INIT, SAMPLES_INIT};
	uint64_t budget_ns, round_ns, end_ns;
	unsigned int pair, turn, side;
	int r = 0;

	budget_ns = (uint64_t)(env->seconds * 1e9);
	round_ns = budget_ns / (2 * ROUND_PAIRS);
	if (round_ns > ROUND_NS_MAX)
		round_ns = ROUND_NS_MAX;
	for (side = 0; side < 2 && !r; side++)
		r = run_round(&sides[side], round_ns, &samples[side]);
	samples_clear(&samples[0]);
	samples_clear(&samples[1]);

	end_ns = clock_now_ns() + budget_ns;
	for (pair = 0; !r && (pair < ROUND_PAIRS_MIN || clock_now_ns() < end_ns); pair++)
		for (turn = 0; turn < 2 && !r; turn++) {
			side = turn ^ (pair & 1);
			r = run_round(&sides[side], round_ns, &samples[side]);
		}
	if (!r)
		bench_report(env, row, &samples[0], &samples[1]);
	samples_deinit(&samples[0]);
	samples_deinit(&samples[1]);
	return r;
}

void bench_report(struct bench_env *env, const struct bench_row *row, struct samples *ours,
		  struct samples *baseline)
{
	const double tail = row->is_rate ? 1.0 : 99.0, end = row->is_rate ? 0.1 : 99.9;
	struct report_row line = {
		.bench = env->bench,
		.params = row->params,
		.unit = row->unit,
		.p50 = samples_percentile(ours, 50.0),
		.p99 = samples_percentile(ours, tail),
		.baseline = row->baseline,
		.baseline_p50 = samples_percentile(baseline, 50.0),
		.baseline_p99 = samples_percentile(baseline, tail),
		.p999 = samples_percentile(ours, end),
		.baseline_p999 = samples_percentile(baseline, end),
		.target = row->target,
	};

	if (row->limit != 0.0)
		line.target = row->limit / line.baseline_p50;
	if (row->more != 0.0)
		line.target = 1 + row->more / line.baseline_p50;
	env->ratio = report_ratio(&line);
	if (!bench_is_wanted(env, row->params))
		return;
	if (env->json)
		report_json(stdout, &line);
	else
		report_table(stdout, &line, env->n_rows == 0);
	env->n_rows++;
}

static void say(const struct bench_env *env, const char *params, const char *what,
		const char *format, va_list arguments)
{
	char text[512];

	vsnprintf(text, sizeof(text), format, arguments);
	fprintf(stderr, "brokerbench: %s%s%s: %s%s\n", env->bench, params ? " " : "",
		params ? params : "", what, text);
}

int bench_skip(struct bench_env *env, const char *params, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(env, params, "skipped: ", format, arguments);
	va_end(arguments);
	env->n_skipped++;
	return BENCH_E_SKIP;
}

int bench_fail(struct bench_env *env, int error, const char *format, ...)
{
	char text[384];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fprintf(stderr, "brokerbench: %s: %s: %s\n", env->bench, text, strerror(-error));
	return error;
}

int bench_refused(struct bench_env *env, int error, const char *sentence)
{
	fprintf(stderr, "brokerbench: %s: %s\n", env->bench, sentence);
	return error;
}
