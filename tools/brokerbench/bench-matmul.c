/* SPDX-License-Identifier: MIT */
/*
 * matmul-cpu and matmul-library
 *
 * C = A * B with B a constant, packed beforehand by all sides that can. matmul-cpu measures the
 * broker's overhead over its own kernel, called by as many threads in this process. matmul-library
 * measures the kernel, once called directly and once through the broker, against the faster of two
 * libraries, all with one thread.
 *
 * Every product is checked against the baseline's before it is measured.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "direct.h"
#include "kernel-matmul.h"
#include "library.h"
#include "plans.h"
#include "target.h"
#include "util/checked.h"
#include "util/clock.h"

/* A product through the broker */
struct through {
	const struct bench_env *env;
	int cpu; /* processor of the waiting thread */
	bool spins;
	struct target_task task;
};

static int run_kernel(void *data)
{
	kernel_matmul_run(data);
	return 0;
}

static int run_library(void *data)
{
	return library_matmul_run(data);
}

static int through_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	struct through *through = data;
	size_t first = samples->n;
	int r;

	bench_pin(through->env, through->cpu);
	if (through->spins)
		r = target_round_trips(&through->task, budget_ns, samples);
	else
		r = target_waits(&through->task, budget_ns, samples);
	for (size_t i = first; i < samples->n; i++)
		samples->values[i] /= 1e3;
	return r;
}

/* Check that @c equals @expected up to the rounding of @k terms of at most 1. */
static int check(struct bench_env *env, const struct plans_matmul *matmul, const float *expected)
{
	const double bound = 1e-6 * (matmul->k + 16.0);

	for (size_t i = 0; i < (size_t)matmul->m * matmul->n; i++)
		if (!(fabs((double)matmul->c[i] - (double)expected[i]) <= bound))
			return bench_fail(env, -EILSEQ,
					  "%u x %u x %u: element %zu is %g, the baseline has %g",
					  matmul->m, matmul->k, matmul->n, i, (double)matmul->c[i],
					  (double)expected[i]);
	return 0;
}

/* Run both sides once and compare their results; the baseline writes to the plan's memory, too. */
static int run_and_check(struct bench_env *env, const struct plans_matmul *matmul, direct_fn *run,
			 void *data, const struct direct *baseline)
{
	size_t bytes = (size_t)matmul->m * matmul->n * sizeof(float);
	float *expected;
	int r;

	expected = malloc(bytes);
	if (!expected)
		return bench_fail(env, -ENOMEM, "no memory for a result");
	memset(matmul->c, 0xff, bytes);
	r = baseline->run(baseline->data);
	memcpy(expected, matmul->c, bytes);
	memset(matmul->c, 0xff, bytes);
	if (!r)
		r = run(data);
	if (r)
		bench_fail(env, r, "a product failed");
	else
		r = check(env, matmul, expected);
	free(expected);
	return r;
}

static int run_target(void *data)
{
	return target_run_once(data);
}

static struct target_task task_of(const struct target *target, const struct plans_matmul *matmul,
				  unsigned int depth)
{
	struct target_task task = {
		.ring = target->ring,
		.plan_id = rbk_plan_id(matmul->plan),
		.count = 1,
		.n_refs = matmul->n_refs,
		.strategy = RBK_STRATEGY_ONLY_CPU,
		.depth = depth,
		.output_stride = matmul->output_stride,
	};

	memcpy(task.refs, matmul->refs, sizeof(matmul->refs));
	return task;
}

/* ---- matmul-cpu ---- */

static int compare_kernel(struct bench_env *env, const struct target *target, uint32_t n,
			  unsigned int n_threads)
{
	static const unsigned int depths[] = {1, PLANS_MATMUL_OUTPUTS};
	const int waiter_cpu = n_threads == 1 ? env->peer_cpu : -1;
	struct plans_matmul matmul;
	struct kernel_matmul *kernel = NULL;
	struct direct direct;
	char params[48];
	int r;

	r = plans_matmul_init(&matmul, env, target->rbk, n, n, n, true);
	if (r)
		return r;
	bench_pin(env, -1); /* so that helpers do not get this thread's processor; see crew.h */
	r = kernel_matmul_new(n, n, n, matmul.a, matmul.b, matmul.c, n_threads, &kernel);
	if (r)
		bench_fail(env, r, "cannot prepare the kernel");
	/* the one worker's processor; see target.h */
	direct = (struct direct){env, env->client_cpu, run_kernel, kernel};

	for (size_t i = 0; i < ARRAY_SIZE(depths) && !r; i++) {
		struct through ours = {env, waiter_cpu, false, task_of(target, &matmul, depths[i])};
		const struct bench_row row = {params, "us", false, "kernel"};

		snprintf(params, sizeof(params), "n=%u threads=%u in-flight=%u", n, n_threads,
			 depths[i]);
		r = run_and_check(env, &matmul, run_target, &ours.task, &direct);
		if (r)
			break;
		r = bench_compare(env, &row, (struct bench_side){through_round, &ours},
				  (struct bench_side){direct_round, &direct});
		if (r)
			bench_fail(env, r, "measuring failed (%s)", params);
	}
	kernel_matmul_free(kernel);
	plans_matmul_deinit(&matmul);
	return r;
}

static int run_cpu(struct bench_env *env)
{
	static const uint32_t sizes[] = {64, 128, 256, 512, 1024, 2048};
	unsigned int n_threads, pass;
	struct target target;
	int r = 0;

	/* Run with one worker, then with the broker's default number. */
	for (pass = 0; pass < 2 && !r; pass++) {
		if (env->socket && pass == 0)
			continue;
		n_threads = pass == 0 ? 1 : (unsigned int)env->n_cpus;
		if (pass == 1 && n_threads == 1)
			break;
		r = target_init(&target, env, pass == 0 ? TARGET_ONE_WORKER : TARGET_WORKERS);
		if (r)
			return r;
		for (size_t i = 0; i < ARRAY_SIZE(sizes) && !r; i++)
			r = compare_kernel(env, &target, sizes[i], n_threads);
		target_deinit(&target);
	}
	return r;
}

const struct bench bench_matmul_cpu = {
	.name = "matmul-cpu",
	.summary = "products of n x n matrices through the broker, with one worker and with all",
	.baseline = "the same kernel called directly by as many threads",
	.run = run_cpu,
};

/* ---- matmul-library ---- */

#define N_LIBRARIES 2

/* Up to this size tasks run on the reactor while the client spins; larger ones run on a worker. */
#define TINY_N 32u

/* Return the median time of a trial round, to choose the faster library; HUGE_VAL on failure. */
static double trial_us(const struct bench_env *env, struct library_matmul *matmul)
{
	struct direct direct = {env, env->client_cpu, run_library, matmul};
	struct samples samples = SAMPLES_INIT;
	double us = HUGE_VAL;

	if (direct_round(&direct, 10000000u, &samples) == 0)
		us = samples_percentile(&samples, 50.0);
	samples_deinit(&samples);
	return us;
}

static int compare_library(struct bench_env *env, const struct target *target,
			   struct library *libraries[N_LIBRARIES], uint32_t m, uint32_t k,
			   uint32_t n)
{
	const bool is_tiny = n <= TINY_N;
	struct library_matmul *prepared[N_LIBRARIES] = {NULL, NULL}, *best = NULL;
	struct kernel_matmul *kernel = NULL;
	struct plans_matmul matmul;
	struct bench_row row = {.unit = "us"};
	double us, best_us = HUGE_VAL;
	struct direct direct, ours;
	struct through through;
	char params[48], size[24];
	int r;

	r = plans_matmul_init(&matmul, env, target->rbk, m, k, n, true);
	if (r)
		return r;
	for (unsigned int i = 0; i < N_LIBRARIES; i++) {
		if (!libraries[i] || library_matmul_new(libraries[i], m, k, n, matmul.a, matmul.b,
							matmul.c, &prepared[i]))
			continue;
		us = trial_us(env, prepared[i]);
		if (us < best_us) {
			best_us = us;
			best = prepared[i];
			row.baseline = library_name(libraries[i]);
		}
	}
	if (!best) {
		r = bench_fail(env, -EIO, "no library computes %u x %u x %u", m, k, n);
		goto out;
	}
	direct = (struct direct){env, env->client_cpu, run_library, best};
	row.params = params;
	if (m == k && k == n)
		snprintf(size, sizeof(size), "n=%u", n);
	else
		snprintf(size, sizeof(size), "%ux%ux%u", m, k, n);

	snprintf(params, sizeof(params), "%s kernel", size);
	r = kernel_matmul_new(m, k, n, matmul.a, matmul.b, matmul.c, 1, &kernel);
	if (r) {
		bench_fail(env, r, "cannot prepare the kernel");
		goto out;
	}
	ours = (struct direct){env, env->client_cpu, run_kernel, kernel};
	r = run_and_check(env, &matmul, run_kernel, kernel, &direct);
	if (!r)
		r = bench_compare(env, &row, (struct bench_side){direct_round, &ours},
				  (struct bench_side){direct_round, &direct});
	if (r)
		goto out;

	snprintf(params, sizeof(params), "%s broker", size);
	through = (struct through){env, is_tiny ? env->client_cpu : env->peer_cpu, is_tiny,
				   task_of(target, &matmul, 1)};
	r = run_and_check(env, &matmul, run_target, &through.task, &direct);
	if (!r)
		r = bench_compare(env, &row, (struct bench_side){through_round, &through},
				  (struct bench_side){direct_round, &direct});
out:
	for (unsigned int i = 0; i < N_LIBRARIES; i++)
		library_matmul_free(prepared[i]);
	kernel_matmul_free(kernel);
	plans_matmul_deinit(&matmul);
	return r;
}

static int run_library_bench(struct bench_env *env)
{
	static const uint32_t sizes[] = {8, 16, 32, 64, 128, 256, 512, 1024, 2048};
	struct library *libraries[N_LIBRARIES] = {NULL, NULL};
	const char *reasons[N_LIBRARIES] = {NULL, NULL};
	struct target tiny, large = TARGET_INIT;
	int r;

	/* Open the libraries before there is a session: OpenBLAS's trials are child processes. */
	library_open_openblas(&libraries[0], &reasons[0]);
	library_open_onednn(&libraries[1], &reasons[1]);
	if (!libraries[0] && !libraries[1])
		return bench_skip(env, NULL, "%s; %s", reasons[0], reasons[1]);
	for (unsigned int i = 0; i < N_LIBRARIES; i++)
		if (!libraries[i])
			fprintf(stderr, "brokerbench: %s: beside one library only: %s\n",
				env->bench, reasons[i]);

	r = target_init(&tiny, env, TARGET_INLINE);
	if (!r)
		r = target_init(&large, env, TARGET_ONE_WORKER);
	for (size_t i = 0; i < ARRAY_SIZE(sizes) && !r; i++)
		r = compare_library(env, sizes[i] <= TINY_N ? &tiny : &large, libraries, sizes[i],
				    sizes[i], sizes[i]);
	if (!r)
		r = compare_library(env, &large, libraries, 64, 768, 10000);
	target_deinit(&large);
	target_deinit(&tiny);
	for (unsigned int i = 0; i < N_LIBRARIES; i++)
		library_free(libraries[i]);
	return r;
}

const struct bench bench_matmul_library = {
	.name = "matmul-library",
	.summary = "products with a constant, by our kernel and through the broker, one thread",
	.baseline = "the faster of oneDNN and OpenBLAS, one thread",
	.run = run_library_bench,
};
