/* SPDX-License-Identifier: MIT */
/* The executors' work on a session's plan, or on a segment of one, on the setup thread */
#include <errno.h>
#include <string.h>

#include "session/plan-executors.h"
#include "session/server-private.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/number.h"

/* Mark a device as failed for the plan, which may still run elsewhere. Setup thread. */
static void plan_fail(struct session_plan *plan, unsigned int device, int r)
{
	static struct log_limit failure_limit; /* setup thread only */
	const struct executor *executor = plan->session->server->options.executors[device];
	uint64_t n_unlogged;

	plan->plan->device_state[device] =
		r == -ENOMEM ? PLAN_DEVICE_NO_MEMORY : PLAN_DEVICE_FAILED;
	plan->failed |= (uint16_t)(1u << device);
	if (log_limit_pass(&failure_limit, clock_now_ns(), &n_unlogged))
		log_warning_of(LOG_OF_DEVICE(device), LOG_PLAN_NOT_PREPARED,
			       "device %u (%s) cannot prepare a plan, nor %llu before it: %s",
			       device, executor->info.name, ull(n_unlogged), strerror(-r));
}

bool plan_measure(struct session_plan *plan)
{
	const struct server_options *options = &plan->session->server->options;
	int r;

	for (; plan->n_measured < options->n_executors; plan->n_measured++) {
		struct executor *executor = options->executors[plan->n_measured];

		if (!plan_is_for(plan->plan, plan->n_measured) || !executor->ops->plan_measure)
			continue;
		r = executor->ops->plan_measure(executor, plan->plan);
		if (r == EXECUTOR_E_MORE)
			return true;
		if (r < 0)
			plan_fail(plan, plan->n_measured, r);
	}
	return false;
}

/* Compile a part of the plan. Return: true if parts remain. */
static bool plan_compile(const struct session_plan *plan)
{
	const struct server_options *options = &plan->session->server->options;

	for (unsigned int i = 0; i < options->n_executors; i++) {
		struct executor *executor = options->executors[i];

		if (plan_is_for(plan->plan, i) && !(plan->failed & 1u << i) &&
		    executor->ops->plan_compile &&
		    executor->ops->plan_compile(executor, plan->plan) == EXECUTOR_E_MORE)
			return true;
	}
	return false;
}

/*
 * Sum up the memory of the plan's constants on devices with memory. The reactor needs these sums at
 * each check.
 */
static void plan_sum_constants(const struct session_plan *plan)
{
	const struct server_options *options = &plan->session->server->options;

	for (unsigned int i = 0; i < options->n_executors; i++)
		if (plan->plan->device_state[i] == PLAN_DEVICE_EVICTED)
			plan->plan->block_bytes[i] =
				exec_constants_bytes(plan->plan, &options->executors[i]->info);
}

/* Prepare a plan all of whose parts are compiled. */
static void prepare_compiled(struct session_plan *plan)
{
	const struct server_options *options = &plan->session->server->options;
	struct executor *executor;
	int r;

	for (unsigned int i = 0; i < options->n_executors; i++) {
		if (!plan_is_for(plan->plan, i) || plan->failed & 1u << i)
			continue;
		executor = options->executors[i];
		r = executor->ops->plan_prepare(executor, plan->plan);
		if (r < 0)
			plan_fail(plan, i, r);
	}
	plan_sum_constants(plan);
	options->hooks.plan_make(options->hooks.context);
	plan->is_prepared = true;
}

bool plan_prepare(struct session_plan *plan)
{
	if (plan->is_prepared)
		return false;
	if (plan_compile(plan))
		return true;
	prepare_compiled(plan);
	return false;
}

bool plan_unprepare(struct session_plan *plan)
{
	const struct server_options *options = &plan->session->server->options;

	for (unsigned int i = 0; i < options->n_executors; i++) {
		struct executor *executor = options->executors[i];

		if (executor->ops->plan_shrink &&
		    executor->ops->plan_shrink(executor, plan->plan) == EXECUTOR_E_MORE)
			return true;
	}
	for (unsigned int i = 0; i < options->n_executors; i++)
		options->executors[i]->ops->plan_release(options->executors[i], plan->plan);
	/* For the largest plans the C library unmaps memory, which takes long and may wait. */
	plan->plan = plan_free(plan->plan);
	return false;
}
