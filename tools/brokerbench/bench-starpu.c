/* SPDX-License-Identifier: MIT */
/*
 * starpu: 1,000 minimal tasks, against StarPU
 *
 * A task names 0, 1 or 3 buffers of 16 floats. Both sides make each task runnable as soon as it is
 * described (our side publishes each entry by itself), and then wait for all tasks. StarPU has one
 * worker, on the reactor's processor.
 */
#include <errno.h>
#include <stdio.h>

#include "bench.h"
#include "plans.h"
#include "starpu-tasks.h"
#include "target.h"
#include "util/checked.h"
#include "util/clock.h"

#define ROUND_SAMPLES 1024u

struct ours {
	struct rbk_ring *ring;
	uint32_t plan_id;
	unsigned int n_buffers;
	/* by set: references to the plan's buffers, in its order */
	uint64_t refs[STARPU_TASKS_SETS][3];
};

static int run_tasks(const struct ours *ours)
{
	const struct rbk_cqe *cqes[64];
	struct rbk_sqe *sqe;
	int32_t failed = 0;
	unsigned int got = 0;
	int r, n;

	for (unsigned int i = 0; i < STARPU_TASKS_N; i++) {
		sqe = rbk_get_sqe(ours->ring);
		if (!sqe)
			return -ENOBUFS;
		if (ours->n_buffers == 0)
			rbk_prep_nop(sqe);
		else
			rbk_prep_run(sqe, ours->plan_id, 1, ours->refs[i % STARPU_TASKS_SETS],
				     ours->n_buffers);
		r = rbk_submit(ours->ring);
		if (r < 0)
			return r;
	}
	while (got < STARPU_TASKS_N) {
		n = rbk_peek_batch_cqe(ours->ring, cqes, 64);
		if (n < 0 && n != -EAGAIN)
			return n;
		for (int i = 0; i < n; i++)
			failed |= cqes[i]->res;
		if (n > 0) {
			rbk_cq_advance(ours->ring, (unsigned int)n);
			got += (unsigned int)n;
		}
	}
	return failed ? -EIO : 0;
}

static int ours_round(void *data, uint64_t budget_ns, struct samples *samples)
{
	uint64_t start, last, now, budget;
	unsigned int i;
	int r;

	r = samples_reserve(samples, ROUND_SAMPLES);
	if (r)
		return r;
	r = run_tasks(data);
	budget = clock_ns_to_ticks(budget_ns);
	start = last = clock_ticks();
	for (i = 0; !r && i < ROUND_SAMPLES && (i == 0 || last - start < budget); i++) {
		r = run_tasks(data);
		now = clock_ticks();
		samples_add(samples, (double)clock_elapsed_ns(last, now) / STARPU_TASKS_N);
		last = now;
	}
	return r;
}

static int compare(struct bench_env *env, const struct target *target, struct starpu_tasks *starpu,
		   unsigned int n_buffers)
{
	_cleanup_(plans_add_deinit) struct plans_add add = PLANS_ADD_INIT;
	struct starpu_tasks_round baseline = {starpu, n_buffers};
	struct bench_row row = {.unit = "ns", .baseline = "starpu-1.3"};
	struct ours ours = {.ring = target->ring, .n_buffers = n_buffers};
	char params[32];
	int r = 0;

	snprintf(params, sizeof(params), "tasks=1000 buffers=%u", n_buffers);
	row.params = params;
	if (n_buffers > 0) {
		r = plans_add_init(&add, env, target->rbk, 16, n_buffers == 1, STARPU_TASKS_SETS);
		if (r)
			return r;
		ours.plan_id = rbk_plan_id(add.plan);
		for (unsigned int i = 0; i < STARPU_TASKS_SETS; i++)
			plans_add_refs(&add, i, ours.refs[i]);
	}
	r = bench_compare(env, &row, (struct bench_side){ours_round, &ours},
			  (struct bench_side){starpu_tasks_round, &baseline});
	if (r)
		bench_fail(env, r, "measuring failed (%s)", params);
	return r;
}

static int run(struct bench_env *env)
{
	static const unsigned int n_buffers[] = {0, 1, 3};
	struct starpu_tasks *starpu = NULL;
	struct target target;
	const char *reason;
	int r;

	r = target_init(&target, env, TARGET_PINNED);
	if (r)
		return r;
	r = starpu_tasks_new(env->peer_cpu, &starpu, &reason);
	if (r == STARPU_TASKS_E_ABSENT)
		bench_skip(env, NULL, "%s", reason);
	else if (r)
		bench_fail(env, r, "StarPU does not start");
	/* StarPU has bound the thread that started it. */
	bench_pin(env, env->client_cpu);
	for (size_t i = 0; i < ARRAY_SIZE(n_buffers) && !r; i++)
		r = compare(env, &target, starpu, n_buffers[i]);
	starpu_tasks_free(starpu);
	target_deinit(&target);
	return r;
}

const struct bench bench_starpu = {
	.name = "starpu",
	.summary = "time per task of 1,000 tasks with 0, 1 and 3 buffers",
	.baseline = "StarPU submitting and running the same tasks",
	.run = run,
};
