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

#include "bench.h"
#include "library.h"
#include "product.h"
#include "util/checked.h"

static int run_library(void *data)
{
	return library_matmul_run(data);
}

/* ---- matmul-cpu ---- */

static int compare_kernel(struct bench_env *env, const struct target *target, uint32_t n,
			  unsigned int n_threads)
{
	static const unsigned int depths[] = {1, PLANS_MATMUL_OUTPUTS};
	struct product product;
	char params[48];
	int r;

	r = product_init(&product, env, target, n, n_threads);
	if (r)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(depths) && !r; i++) {
		struct product_through ours = {env, -1, false,
					       product_task(target, &product.matmul, depths[i])};
		const struct bench_row row = {params, "us", false, "kernel"};

		snprintf(params, sizeof(params), "n=%u threads=%u in-flight=%u", n, n_threads,
			 depths[i]);
		r = product_check(env, &product.matmul, product_run_target, &ours.task,
				  &product.direct);
		if (r)
			break;
		r = bench_compare(env, &row, (struct bench_side){product_round, &ours},
				  (struct bench_side){direct_round, &product.direct});
		if (r)
			bench_fail(env, r, "measuring failed (%s)", params);
	}
	product_deinit(&product);
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
	struct product_through through;
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
	ours = (struct direct){env, env->client_cpu, product_run_kernel, kernel};
	r = product_check(env, &matmul, product_run_kernel, kernel, &direct);
	if (!r)
		r = bench_compare(env, &row, (struct bench_side){direct_round, &ours},
				  (struct bench_side){direct_round, &direct});
	if (r)
		goto out;

	snprintf(params, sizeof(params), "%s broker", size);
	through = (struct product_through){env, is_tiny ? env->client_cpu : -1, is_tiny,
					   product_task(target, &matmul, 1)};
	r = product_check(env, &matmul, product_run_target, &through.task, &direct);
	if (!r)
		r = bench_compare(env, &row, (struct bench_side){product_round, &through},
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
