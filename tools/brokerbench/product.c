/* SPDX-License-Identifier: MIT */
/* A product of matrices through the broker */
#include "product.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int product_run_kernel(void *data)
{
	kernel_matmul_run(data);
	return 0;
}

int product_run_target(void *data)
{
	return target_run_once(data);
}

int product_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	struct product_through *through = data;
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

int product_check(struct bench_env *env, const struct plans_matmul *matmul, direct_fn *run,
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

struct target_task product_task(const struct target *target, const struct plans_matmul *matmul,
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

int product_init(struct product *product, struct bench_env *env, const struct target *target,
		 uint32_t n, unsigned int n_threads)
{
	struct plans_matmul *matmul = &product->matmul;
	int r;

	product->kernel = NULL;
	r = plans_matmul_init(matmul, env, target->rbk, n, n, n, true);
	if (r)
		return r;
	bench_pin(env, -1); /* so that helpers do not get this thread's processor; see crew.h */
	r = kernel_matmul_new(n, n, n, matmul->a, matmul->b, matmul->c, n_threads,
			      &product->kernel);
	if (r) {
		plans_matmul_deinit(matmul);
		return bench_fail(env, r, "cannot prepare the kernel");
	}
	/* the one worker's processor; see target.h */
	product->direct =
		(struct direct){env, env->client_cpu, product_run_kernel, product->kernel};
	return 0;
}

void product_deinit(struct product *product)
{
	product->kernel = kernel_matmul_free(product->kernel);
	plans_matmul_deinit(&product->matmul);
}
