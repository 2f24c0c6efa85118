/* SPDX-License-Identifier: MIT */
/*
 * A scenario under several policies
 *
 * For each seed the bound is computed first. If all tasks arrive at once and no event happens, the
 * bound is the optimum by GLPK where the scenario asks for it, otherwise the linear relaxation's.
 * For tasks that arrive over time and for changing devices, the better of two clairvoyant list
 * schedules takes its place. It is no lower bound, but the result of perfect knowledge task by
 * task. Then every policy runs the same tasks.
 */
#include "run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimum.h"
#include "policies.h"
#include "util/checked.h"
#include "util/cleanup.h"
#include "util/error.h"

const struct policy *const policies[] = {
	&policy_ours,   &policy_cpu,           &policy_gpu,  &policy_threshold,
	&policy_turns,  &policy_earliest,      &policy_heft, &policy_means,
	&policy_oracle, &policy_oracle_sorted, NULL,
};

const struct policy *policy_by_name(const char *name)
{
	for (unsigned int i = 0; policies[i]; i++) {
		if (!strcmp(policies[i]->name, name))
			return policies[i];
	}
	return NULL;
}

static void deinit_sim(struct sim *sim)
{
	sim_deinit(sim);
}

/* --- The bound --- */

/*
 * Return the work done by a device with a wavy clock until @until_ns, in nanoseconds at its usual
 * speed.
 */
static double capacity_ns(const void *context, unsigned int device, double until_ns)
{
	const struct world *world = context;
	const struct scenario_truth *truth = &world->scenario->truth[device];
	double phase = 2 * M_PI * world->phase[device];
	double ns = until_ns;

	if (truth->drift > 0)
		ns += truth->drift * truth->drift_period_ns / (2 * M_PI) *
		      (cos(phase) - cos(phase + 2 * M_PI * until_ns / truth->drift_period_ns));
	return ns;
}

struct optimum_task *outcome_optimum_tasks(const struct world *world)
{
	struct optimum_task *tasks = calloc(world->n_tasks + 1, sizeof(*tasks));

	for (uint32_t i = 0; tasks && i < world->n_tasks; i++) {
		for (unsigned int d = 0; d < SCENARIO_DEVICES; d++) {
			const struct sim_task *task = &world->tasks[i];
			const struct scenario_truth *truth = &world->scenario->truth[d];
			uint32_t n_servers = world->scenario->profiles[d].n_servers;
			double speed = world_speed(world, (uint8_t)d, 0);
			struct world_cost cost =
				world_cost(world, task, (uint8_t)d, task->count, 0, true);

			if (!world_may_run(world, task, (uint8_t)d)) {
				tasks[i].ns[d] = tasks[i].alone_ns[d] = INFINITY;
				continue;
			}
			tasks[i].ns[d] = (cost.serial_ns + cost.shared_ns) * speed /
					 (n_servers ? n_servers : 1);
			tasks[i].alone_ns[d] = world_alone_ns(world, (uint8_t)d, cost) * speed /
					       (1 + truth->drift);
		}
	}
	return tasks;
}

static bool is_offline(const struct scenario *scenario)
{
	bool is = !scenario->n_trace && !scenario->n_events;

	for (uint32_t t = 0; t < scenario->n_tenants; t++)
		is = is && scenario->tenants[t].arrivals == ARRIVALS_ALL &&
		     scenario->tenants[t].start_ns <= 0;
	return is;
}

static bool may_partition(const struct scenario *scenario)
{
	for (uint32_t t = 0; t < scenario->n_tenants; t++) {
		if (scenario->tenants[t].may_partition)
			return true;
	}
	return false;
}

static int offline_bound(const struct world *world, double seconds, enum bound_kind *ret_kind,
			 double *ret_ns)
{
	struct optimum_capacity capacity = {.ns = capacity_ns, .context = world};
	_cleanup_(freep) struct optimum_task *tasks = outcome_optimum_tasks(world);
	bool is_whole = !may_partition(world->scenario);
	double speeds[SCENARIO_DEVICES], ns;
	int r;

	if (!tasks)
		return error_origin(-ENOMEM);
	*ret_ns = optimum_bound(tasks, world->n_tasks, is_whole, &capacity);
	*ret_kind = BOUND_LINEAR;
	if (!world->scenario->is_exact || !is_whole)
		return 0;
	for (unsigned int d = 0; d < SCENARIO_DEVICES; d++)
		speeds[d] = capacity_ns(world, d, *ret_ns) / *ret_ns;
	r = optimum_exact(tasks, world->n_tasks, speeds, seconds, &ns);
	if (r < 0)
		return error_fold(r);
	if (!r) {
		*ret_ns = fmax(*ret_ns, ns);
		*ret_kind = BOUND_EXACT;
	}
	return 0;
}

static int makespan(const struct scenario *scenario, uint64_t seed, const struct policy *policy,
		    char message[SCENARIO_MESSAGE_BYTES], double *ret_ns)
{
	_cleanup_(world_freep) struct world *world = NULL;
	_cleanup_(deinit_sim) struct sim sim = {0};
	double first_ns = INFINITY;
	int r;

	r = world_new(scenario, seed, UINT32_MAX, message, &world);
	if (!r)
		r = sim_run(&sim, world, policy, false);
	if (r)
		return r;
	for (uint32_t i = 0; i < world->n_tasks; i++)
		first_ns = fmin(first_ns, world->tasks[i].arrive_ns);
	*ret_ns = sim.now_ns - first_ns;
	return 0;
}

static int find_bound(const struct scenario *scenario, uint64_t seed, double seconds,
		      char message[SCENARIO_MESSAGE_BYTES], enum bound_kind *ret_kind,
		      double *ret_ns)
{
	_cleanup_(world_freep) struct world *world = NULL;
	double ns = INFINITY;
	int r;

	if (is_offline(scenario)) {
		r = world_new(scenario, seed, UINT32_MAX, message, &world);
		return r ? r : offline_bound(world, seconds, ret_kind, ret_ns);
	}
	*ret_kind = BOUND_LIST;
	r = makespan(scenario, seed, &policy_oracle, message, ret_ns);
	if (!r)
		r = makespan(scenario, seed, &policy_oracle_sorted, message, &ns);
	*ret_ns = fmin(*ret_ns, ns);
	return r;
}

/* --- Runs --- */

static int stuck(const struct scenario *scenario, const struct policy *policy,
		 const struct sim *sim, char message[SCENARIO_MESSAGE_BYTES])
{
	snprintf(message, SCENARIO_MESSAGE_BYTES, "%s: %s did not complete %u of %u tasks",
		 scenario->path, policy->name, sim->world->n_tasks - sim->n_done,
		 sim->world->n_tasks);
	return SCENARIO_E_INVALID;
}

static int run_alone(const struct scenario *scenario, uint64_t seed, const struct policy *policy,
		     uint32_t tenant, char message[SCENARIO_MESSAGE_BYTES], double *ret_p99)
{
	_cleanup_(world_freep) struct world *world = NULL;
	_cleanup_(deinit_sim) struct sim sim = {0};
	int r;

	r = world_new(scenario, seed, tenant, message, &world);
	if (!r) {
		r = sim_run(&sim, world, policy, false);
		if (r == SCENARIO_E_INVALID)
			return stuck(scenario, policy, &sim, message);
	}
	if (r)
		return r;
	*ret_p99 = measure_tenant_p99(&sim, tenant);
	return 0;
}

static int run_once(struct measures *measures, const struct scenario *scenario, uint64_t seed,
		    double bound_ns, const struct run_options *options, bool is_first,
		    char message[SCENARIO_MESSAGE_BYTES])
{
	_cleanup_(world_freep) struct world *world = NULL;
	_cleanup_(deinit_sim) struct sim sim = {0};
	int r;

	r = world_new(scenario, seed, UINT32_MAX, message, &world);
	if (r)
		return r;
	r = sim_run(&sim, world, measures->policy, options->show && is_first);
	if (r == SCENARIO_E_INVALID)
		return stuck(scenario, measures->policy, &sim, message);
	if (r)
		return error_fold(r);
	if (options->show && is_first) {
		r = options->show(options->context, &sim);
		if (r)
			return error_fold(r);
	}
	return measures_add(measures, &sim, bound_ns);
}

/*
 * Return the tenant whose latency is compared: the first tenant without normal priority, else
 * tenant 0.
 */
static uint32_t critical_tenant(const struct scenario *scenario)
{
	for (uint32_t t = 0; t < scenario->n_tenants; t++) {
		if (scenario->tenants[t].priority != RBK_PRIORITY_NORMAL)
			return t;
	}
	return 0;
}

static int add_alone(struct measures *measures, const struct scenario *scenario, uint64_t seed,
		     uint32_t n_runs, char message[SCENARIO_MESSAGE_BYTES])
{
	uint32_t tenant = critical_tenant(scenario);
	double sum = 0, p99;

	for (uint32_t i = 0; i < n_runs; i++) {
		int r = run_alone(scenario, seed + i, measures->policy, tenant, message, &p99);

		if (r)
			return r;
		sum += p99;
	}
	measures->alone_p99[tenant] = sum / n_runs;
	measures->figures[FIG_LATENCY_RATIO] =
		measures->tenant_p99[tenant] /
		(2 * measures->alone_p99[tenant] + measures->figures[FIG_LONGEST]);
	return 0;
}

/* Compare the tenant's latency with that of the same engine without the run-queue watcher. */
static int add_unaware(struct measures *measures, const struct scenario *scenario, uint64_t seed,
		       uint32_t n_runs, char message[SCENARIO_MESSAGE_BYTES])
{
	uint32_t tenant = critical_tenant(scenario);
	double sum = 0;

	for (uint32_t i = 0; i < n_runs; i++) {
		_cleanup_(world_freep) struct world *world = NULL;
		_cleanup_(deinit_sim) struct sim sim = {0};
		int r;

		r = world_new(scenario, seed + i, UINT32_MAX, message, &world);
		if (!r)
			r = sim_run(&sim, world, &policy_ours_unaware, false);
		if (r == SCENARIO_E_INVALID)
			return stuck(scenario, measures->policy, &sim, message);
		if (r)
			return r;
		sum += measure_tenant_p99(&sim, tenant);
	}
	measures->figures[FIG_CONTENTION_GAIN] = sum / n_runs / measures->tenant_p99[tenant];
	return 0;
}

/* Return true if the policy has no knowledge that a real scheduler cannot have. */
static bool is_fair(const struct policy *policy)
{
	return policy != &policy_means && policy != &policy_oracle &&
	       policy != &policy_oracle_sorted;
}

/* Compute the figures that compare policies. */
static void compare(struct outcome *outcome)
{
	for (unsigned int i = 0; i < outcome->n_measures; i++) {
		struct measures *of = &outcome->measures[i];
		double makespan_s = of->figures[FIG_MAKESPAN], lead = INFINITY;

		for (unsigned int j = 0; j < outcome->n_measures; j++) {
			const struct measures *other = &outcome->measures[j];

			if (other->policy == &policy_means)
				of->figures[FIG_ACCURACY_OF_BEST] =
					of->figures[FIG_ACCURACY] / other->figures[FIG_ACCURACY];
			if (i == j || !is_fair(other->policy))
				continue;
			lead = fmin(lead, other->figures[FIG_MAKESPAN] / makespan_s);
			if (other->policy == &policy_cpu)
				of->figures[FIG_CPU_RATIO] =
					other->figures[FIG_MAKESPAN] / makespan_s;
		}
		of->figures[FIG_LEAD] = isinf(lead) ? NAN : lead;
	}
}

static int run_all(struct outcome *outcome, const struct run_options *options,
		   char message[SCENARIO_MESSAGE_BYTES])
{
	const struct scenario *scenario = outcome->scenario;
	uint64_t seed = options->seed ? options->seed : scenario->seed;
	uint32_t n_runs = options->n_runs ? options->n_runs : scenario->n_runs;
	int r;

	for (unsigned int i = 0; i < RUN_MAX_POLICIES && options->policies[i]; i++) {
		r = measures_init(&outcome->measures[i], scenario, options->policies[i]);
		if (r)
			return error_fold(r);
		outcome->n_measures++;
	}
	for (uint32_t run = 0; run < n_runs; run++) {
		enum bound_kind kind;
		double bound_ns = NAN;

		r = find_bound(scenario, seed + run, options->solver_seconds, message, &kind,
			       &bound_ns);
		if (r)
			return r;
		/* The outcome is named after the weakest bound of all runs. */
		if (run == 0 || kind > outcome->bound_kind)
			outcome->bound_kind = kind;
		for (unsigned int i = 0; i < outcome->n_measures; i++) {
			r = run_once(&outcome->measures[i], scenario, seed + run, bound_ns, options,
				     run == 0, message);
			if (r)
				return r;
		}
	}
	for (unsigned int i = 0; i < outcome->n_measures; i++) {
		measures_finish(&outcome->measures[i], scenario);
		if (scenario->has_hogs && outcome->measures[i].policy == &policy_ours) {
			r = add_unaware(&outcome->measures[i], scenario, seed, n_runs, message);
			if (r)
				return r;
		}
		if (!scenario->has_alone)
			continue;
		r = add_alone(&outcome->measures[i], scenario, seed, n_runs, message);
		if (r)
			return r;
	}
	compare(outcome);
	return 0;
}

int outcome_run(struct outcome *ret, const struct scenario *scenario,
		const struct run_options *options, char message[SCENARIO_MESSAGE_BYTES])
{
	int r;

	*ret = (struct outcome){.scenario = scenario};
	r = run_all(ret, options, message);
	if (r)
		outcome_deinit(ret);
	return r;
}

void outcome_deinit(struct outcome *outcome)
{
	for (unsigned int i = 0; i < outcome->n_measures; i++)
		measures_deinit(&outcome->measures[i]);
	*outcome = (struct outcome){0};
}

const struct measures *outcome_of(const struct outcome *outcome, const char *policy)
{
	for (unsigned int i = 0; i < outcome->n_measures; i++) {
		if (!strcmp(outcome->measures[i].policy->name, policy))
			return &outcome->measures[i];
	}
	return NULL;
}
