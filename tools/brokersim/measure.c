/* SPDX-License-Identifier: MIT */
/*
 * Figures
 *
 * Percentiles are nearest ranks of all latencies of a run. Jain's index (Jain, Chiu, Hawe, DEC
 * TR-301, 1984) and the share error compare device time by weight. They count from the beginning
 * until the first tenant has no task left, because later tenants have the devices to themselves. A
 * figure over several runs is the mean of the runs' figures.
 */
#include "measure.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/error.h"

static const char *const names[FIG_COUNT] = {
	[FIG_MAKESPAN] = "makespan",
	[FIG_BOUND] = "bound",
	[FIG_RATIO] = "ratio",
	[FIG_ACCURACY] = "accuracy",
	[FIG_ACCURACY_ALL] = "accuracy_all",
	[FIG_ACCURACY_EXPECTED] = "accuracy_expected",
	[FIG_ACCURACY_OF_BEST] = "accuracy_of_best",
	[FIG_REGRET] = "regret",
	[FIG_REGRET_EXPECTED] = "regret_expected",
	[FIG_JAIN] = "jain",
	[FIG_SHARE_ERROR] = "share_error",
	[FIG_P50] = "p50",
	[FIG_P99] = "p99",
	[FIG_MEAN] = "mean",
	[FIG_CPU_UTILIZATION] = "cpu_utilization",
	[FIG_GPU_UTILIZATION] = "gpu_utilization",
	[FIG_THROUGHPUT] = "throughput",
	[FIG_TASKS] = "tasks",
	[FIG_COMPLETED] = "completed",
	[FIG_FAILURES] = "failures",
	[FIG_FALLBACKS] = "fallbacks",
	[FIG_LATE] = "late",
	[FIG_MOVED] = "moved",
	[FIG_SPLIT] = "split",
	[FIG_SPLIT_SPEED] = "split_speed",
	[FIG_SPLIT_GAIN] = "split_gain",
	[FIG_RECOVERED] = "recovered",
	[FIG_LONGEST] = "longest",
	[FIG_LEAD] = "lead",
	[FIG_CPU_RATIO] = "cpu_ratio",
	[FIG_LATENCY_RATIO] = "latency_ratio",
	[FIG_SHIFT] = "shift",
	[FIG_RETURN] = "return",
	[FIG_FLIPS] = "flips",
	[FIG_CONTENTION_GAIN] = "contention_gain",
};

const char *figure_name(enum figure figure)
{
	return names[figure];
}

const char *bound_kind_name(enum bound_kind kind)
{
	static const char *const kinds[] = {"none", "exact", "linear", "list"};

	return kinds[kind];
}

int measures_init(struct measures *measures, const struct scenario *scenario,
		  const struct policy *policy)
{
	*measures = (struct measures){.policy = policy};
	measures->placed = calloc(scenario->n_plans, sizeof(*measures->placed));
	measures->tenant_p99 = calloc(scenario->n_tenants, sizeof(*measures->tenant_p99));
	measures->alone_p99 = calloc(scenario->n_tenants, sizeof(*measures->alone_p99));
	if (!measures->placed || !measures->tenant_p99 || !measures->alone_p99) {
		measures_deinit(measures);
		return error_origin(-ENOMEM);
	}
	return 0;
}

void measures_deinit(struct measures *measures)
{
	free(measures->placed);
	free(measures->tenant_p99);
	free(measures->alone_p99);
	*measures = (struct measures){0};
}

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

/* Return the nearest-rank percentile of sorted values, NAN if there is none. */
static double percentile(const double *values, uint32_t n, double share)
{
	uint32_t rank = (uint32_t)ceil(share * n);

	return n ? values[rank ? rank - 1 : 0] : NAN;
}

double measure_tenant_p99(const struct sim *sim, uint32_t tenant)
{
	const struct world *world = sim->world;
	_cleanup_(freep) double *latencies = calloc(world->n_tasks + 1, sizeof(*latencies));
	uint32_t n = 0;

	if (!latencies)
		return NAN;
	for (uint32_t i = 0; i < world->n_tasks; i++) {
		if (world->tasks[i].tenant == tenant)
			latencies[n++] =
				(world->tasks[i].done_ns - world->tasks[i].arrive_ns) / 1e9;
	}
	qsort(latencies, n, sizeof(*latencies), ascending);
	return percentile(latencies, n, 0.99);
}

double measure_jain(const double *values, uint32_t n)
{
	double sum = 0, squares = 0;

	for (uint32_t i = 0; i < n; i++) {
		sum += values[i];
		squares += values[i] * values[i];
	}
	return squares > 0 ? sum * sum / (n * squares) : 1;
}

static void add_shares(struct measures *measures, const struct sim *sim)
{
	const struct scenario *scenario = sim->world->scenario;
	double by_weight[SCENARIO_MAX_TENANTS], sum = 0, weights = 0, error = 0;

	for (uint32_t t = 0; t < scenario->n_tenants; t++) {
		by_weight[t] = sim->saturated_ns[t] / scenario->tenants[t].weight;
		sum += sim->saturated_ns[t];
		weights += scenario->tenants[t].weight;
	}
	for (uint32_t t = 0; t < scenario->n_tenants && sum > 0; t++) {
		double fair = scenario->tenants[t].weight / weights;

		error = fmax(error, fabs(sim->saturated_ns[t] / sum / fair - 1));
	}
	measures->figures[FIG_JAIN] += measure_jain(by_weight, scenario->n_tenants);
	measures->figures[FIG_SHARE_ERROR] += error;
}

static double first_disturbance(const struct scenario *scenario)
{
	for (uint32_t i = 0; i < scenario->n_events; i++) {
		if (scenario->events[i].kind == EVENT_SLOW ||
		    scenario->events[i].kind == EVENT_CONTENTION)
			return scenario->events[i].at_ns;
	}
	return INFINITY;
}

/*
 * Return after how many tasks of a plan decisions are right again, counted from the first change of
 * a device's speed. Decisions are right again at the first of ENOUGH right ones in a row, noise
 * ignored. The result is the maximum over plans, NAN without such a change or without memory.
 */
static double recovered(const struct sim *sim)
{
	enum { ENOUGH = 20 };
	const struct world *world = sim->world;
	const struct scenario *scenario = world->scenario;
	double since_ns = first_disturbance(scenario);
	size_t n_plans = (size_t)scenario->n_tenants * scenario->n_plans;
	_cleanup_(freep) uint32_t *n = calloc(n_plans, sizeof(*n));
	_cleanup_(freep) uint32_t *n_right = calloc(n_plans, sizeof(*n_right));
	uint32_t worst = 0;

	if (isinf(since_ns) || !n || !n_right)
		return NAN;
	for (uint32_t i = 0; i < world->n_tasks; i++) {
		const struct sim_task *task = &world->tasks[i];
		size_t plan = (size_t)task->tenant * scenario->n_plans + task->plan;

		if (task->arrive_ns < since_ns || n_right[plan] == ENOUGH)
			continue;
		n[plan]++;
		n_right[plan] = sim->verdicts[i].is_right_expected ? n_right[plan] + 1 : 0;
	}
	for (size_t plan = 0; plan < n_plans; plan++) {
		if (n[plan] - n_right[plan] > worst)
			worst = n[plan] - n_right[plan];
	}
	return worst;
}

/*
 * Add the longest delays of the reaction to hogs: from an increase of hogs to the first task placed
 * for contention, and from a decrease to the last such task. If no task was placed for contention,
 * the first delay lasts until the next change of hogs.
 */
static void add_shifts(struct measures *measures, const struct sim *sim)
{
	const struct world *world = sim->world;
	const struct scenario *scenario = world->scenario;
	double shift_ns = 0, return_ns = 0, n_hogs = 0;

	for (uint32_t e = 0; e < scenario->n_events; e++) {
		const struct scenario_event *event = &scenario->events[e];
		double first_ns = INFINITY, last_ns = event->at_ns, until_ns = INFINITY;

		if (event->kind != EVENT_HOGS)
			continue;
		for (uint32_t next = e + 1; next < scenario->n_events && isinf(until_ns); next++)
			if (scenario->events[next].kind == EVENT_HOGS)
				until_ns = scenario->events[next].at_ns;
		for (uint32_t i = 0; i < world->n_tasks; i++) {
			const struct sim_task *task = &world->tasks[i];

			if (task->reason != RBK_REASON_CONTENTION ||
			    task->arrive_ns < event->at_ns || task->arrive_ns >= until_ns)
				continue;
			first_ns = fmin(first_ns, task->arrive_ns);
			last_ns = fmax(last_ns, task->arrive_ns);
		}
		if (event->value > n_hogs)
			shift_ns = fmax(shift_ns, fmin(first_ns, until_ns) - event->at_ns);
		else
			return_ns = fmax(return_ns, last_ns - event->at_ns);
		n_hogs = event->value;
	}
	measures->figures[FIG_SHIFT] += scenario->has_hogs ? shift_ns / 1e9 : NAN;
	measures->figures[FIG_RETURN] += scenario->has_hogs ? return_ns / 1e9 : NAN;
	measures->figures[FIG_FLIPS] += scenario->has_hogs ? sim->n_flips : NAN;
}

static void add_verdicts(struct measures *measures, const struct sim *sim)
{
	uint32_t n = 0, n_right = 0, n_expected = 0, n_right_of_all = 0;
	double loss = 0, loss_expected = 0;

	for (uint32_t i = 0; i < sim->world->n_tasks; i++) {
		const struct sim_verdict *verdict = &sim->verdicts[i];

		n_right_of_all += verdict->is_right;
		if (sim->world->tasks[i].nth_of_plan < sim->world->scenario->warm_up)
			continue;
		n++;
		n_right += verdict->is_right;
		n_expected += verdict->is_right_expected;
		loss += (double)verdict->loss;
		loss_expected += (double)verdict->loss_expected;
	}
	measures->figures[FIG_ACCURACY] += n ? (double)n_right / n : NAN;
	measures->figures[FIG_ACCURACY_EXPECTED] += n ? (double)n_expected / n : NAN;
	measures->figures[FIG_REGRET] += n ? loss / n : NAN;
	measures->figures[FIG_REGRET_EXPECTED] += n ? loss_expected / n : NAN;
	measures->figures[FIG_ACCURACY_ALL] += (double)n_right_of_all / sim->world->n_tasks;
}

static void add_placed(struct measures *measures, const struct sim *sim)
{
	const struct world *world = sim->world;
	const struct scenario *scenario = world->scenario;

	for (uint32_t p = 0; p < scenario->n_plans; p++) {
		double counts[N_PLACED] = {0}, sum = 0;

		for (uint32_t i = 0; i < world->n_tasks; i++) {
			const struct sim_task *task = &world->tasks[i];

			if (task->plan != p)
				continue;
			counts[task->n_parts > 1 ? PLACED_SPLIT : task->device]++;
			sum++;
		}
		for (unsigned int k = 0; k < N_PLACED; k++)
			measures->placed[p][k] += sum > 0 ? counts[k] / sum : 0;
	}
}

int measures_add(struct measures *measures, const struct sim *sim, double bound_ns)
{
	const struct world *world = sim->world;
	const struct scenario *scenario = world->scenario;
	_cleanup_(freep) double *latencies = calloc(world->n_tasks + 1, sizeof(*latencies));
	double *figures = measures->figures, first_ns = INFINITY, last_ns = 0, sum = 0;
	double makespan_ns;

	if (!latencies)
		return error_origin(-ENOMEM);
	for (uint32_t i = 0; i < world->n_tasks; i++) {
		const struct sim_task *task = &world->tasks[i];

		latencies[i] = (task->done_ns - task->arrive_ns) / 1e9;
		sum += latencies[i];
		first_ns = fmin(first_ns, task->arrive_ns);
		last_ns = fmax(last_ns, task->done_ns);
		figures[FIG_FALLBACKS] += task->fell_back;
		figures[FIG_LATE] += task->done_ns > task->deadline_ns;
	}
	qsort(latencies, world->n_tasks, sizeof(*latencies), ascending);
	makespan_ns = last_ns - first_ns;
	measures->n_runs++;
	measures->worst_ratio = fmax(measures->worst_ratio, makespan_ns / bound_ns);
	figures[FIG_MAKESPAN] += makespan_ns / 1e9;
	figures[FIG_BOUND] += bound_ns / 1e9;
	figures[FIG_RATIO] += makespan_ns / bound_ns;
	figures[FIG_P50] += percentile(latencies, world->n_tasks, 0.5);
	figures[FIG_P99] += percentile(latencies, world->n_tasks, 0.99);
	figures[FIG_MEAN] += sum / world->n_tasks;
	figures[FIG_CPU_UTILIZATION] += sim->devices[RBK_DEVICE_CPU].busy_ns /
					sim->devices[RBK_DEVICE_CPU].n_servers / makespan_ns;
	figures[FIG_GPU_UTILIZATION] += sim->devices[RBK_DEVICE_GPU].busy_ns /
					sim->devices[RBK_DEVICE_GPU].n_servers / makespan_ns;
	figures[FIG_THROUGHPUT] += world->n_tasks / (makespan_ns / 1e9);
	figures[FIG_TASKS] += world->n_tasks;
	figures[FIG_COMPLETED] += (double)sim->n_done / world->n_tasks;
	figures[FIG_FAILURES] += (double)sim->n_failed;
	figures[FIG_MOVED] += (double)sim->n_moved;
	figures[FIG_SPLIT] += sim->n_split;
	figures[FIG_SPLIT_SPEED] += sim->n_split ? sim->split_speed / sim->n_split : NAN;
	figures[FIG_SPLIT_GAIN] += sim->n_split ? sim->split_gain / sim->n_split : NAN;
	figures[FIG_RECOVERED] += recovered(sim);
	figures[FIG_LONGEST] += sim->longest_ns / 1e9;
	add_verdicts(measures, sim);
	add_shifts(measures, sim);
	add_shares(measures, sim);
	add_placed(measures, sim);
	for (uint32_t t = 0; t < scenario->n_tenants; t++)
		measures->tenant_p99[t] += measure_tenant_p99(sim, t);
	return 0;
}

void measures_finish(struct measures *measures, const struct scenario *scenario)
{
	uint32_t n = measures->n_runs ? measures->n_runs : 1;

	for (unsigned int i = 0; i < FIG_COUNT; i++)
		measures->figures[i] /= n;
	measures->figures[FIG_LEAD] = measures->figures[FIG_CPU_RATIO] = NAN;
	measures->figures[FIG_LATENCY_RATIO] = measures->figures[FIG_ACCURACY_OF_BEST] = NAN;
	measures->figures[FIG_CONTENTION_GAIN] = NAN;
	for (uint32_t p = 0; p < scenario->n_plans; p++) {
		for (unsigned int k = 0; k < N_PLACED; k++)
			measures->placed[p][k] /= n;
	}
	for (uint32_t t = 0; t < scenario->n_tenants; t++) {
		measures->tenant_p99[t] /= n;
		measures->alone_p99[t] = NAN;
	}
}

/* Look up "placed.PLAN.KIND"; @name begins after "placed.". */
static bool find_placed(const struct measures *measures, const struct scenario *scenario,
			const char *name, double *ret)
{
	static const char *const kinds[N_PLACED] = {"cpu", "gpu", "split"};
	const char *dot = strrchr(name, '.');

	for (uint32_t p = 0; dot && p < scenario->n_plans; p++) {
		const char *plan = scenario->plans[p].name;

		if (strlen(plan) != (size_t)(dot - name) || strncmp(plan, name, strlen(plan)))
			continue;
		for (unsigned int k = 0; k < N_PLACED; k++) {
			if (strcmp(kinds[k], dot + 1))
				continue;
			*ret = measures->placed[p][k];
			return true;
		}
	}
	return false;
}

bool measures_find(const struct measures *measures, const struct scenario *scenario,
		   const char *name, double *ret)
{
	for (unsigned int i = 0; i < FIG_COUNT; i++) {
		if (!strcmp(names[i], name)) {
			*ret = measures->figures[i];
			return true;
		}
	}
	if (!strncmp(name, "placed.", 7))
		return find_placed(measures, scenario, name + 7, ret);
	for (uint32_t t = 0; t < scenario->n_tenants; t++) {
		const char *tenant = scenario->tenants[t].name;

		if (!strncmp(name, "p99.", 4) && !strcmp(name + 4, tenant)) {
			*ret = measures->tenant_p99[t];
			return true;
		}
		if (!strncmp(name, "alone.", 6) && !strcmp(name + 6, tenant)) {
			*ret = measures->alone_p99[t];
			return true;
		}
	}
	return false;
}
