#pragma once
/* SPDX-License-Identifier: MIT */
/* Figures of a run and of a scenario, for tables, JSON and expectations */
#include <stdio.h>

#include "sim.h"

/* Figures, described in brokersim(1). Times are seconds. */
enum figure {
	FIG_MAKESPAN,
	FIG_BOUND,
	FIG_RATIO,
	FIG_ACCURACY,
	FIG_ACCURACY_ALL,
	FIG_ACCURACY_EXPECTED,
	FIG_ACCURACY_OF_BEST,
	FIG_REGRET,
	FIG_REGRET_EXPECTED,
	FIG_JAIN,
	FIG_SHARE_ERROR,
	FIG_P50,
	FIG_P99,
	FIG_MEAN,
	FIG_CPU_UTILIZATION,
	FIG_GPU_UTILIZATION,
	FIG_THROUGHPUT,
	FIG_TASKS,
	FIG_COMPLETED,
	FIG_FAILURES,
	FIG_FALLBACKS,
	FIG_LATE,
	FIG_MOVED,
	FIG_SPLIT,
	FIG_SPLIT_SPEED,
	FIG_SPLIT_GAIN,
	FIG_RECOVERED,
	FIG_LONGEST,
	FIG_LEAD,
	FIG_CPU_RATIO,
	FIG_LATENCY_RATIO,
	FIG_SHIFT,
	FIG_RETURN,
	FIG_FLIPS,
	FIG_CONTENTION_GAIN,
	FIG_COUNT,
};

/* Return the name of a figure in JSON and in [expect]. */
const char *figure_name(enum figure figure);

enum bound_kind { BOUND_NONE, BOUND_EXACT, BOUND_LINEAR, BOUND_LIST };
const char *bound_kind_name(enum bound_kind kind);

enum { PLACED_CPU, PLACED_GPU, PLACED_SPLIT, N_PLACED };

/* Figures of a policy in a scenario: means over its runs, NAN if a figure does not apply. */
struct measures {
	const struct policy *policy;
	uint32_t n_runs;
	double figures[FIG_COUNT];
	double worst_ratio;
	double (*placed)[N_PLACED]; /* by plan: shares of its tasks by placement, 0 to 1 */
	double *tenant_p99;         /* by tenant, seconds */
	double *alone_p99; /* by tenant, seconds; NAN for tenants that were not run alone */
};

int measures_init(struct measures *measures, const struct scenario *scenario,
		  const struct policy *policy);
void measures_deinit(struct measures *measures);

/*
 * Add a finished run.
 * Return: 0 or -ENOMEM.
 */
int measures_add(struct measures *measures, const struct sim *sim, double bound_ns);

/* Divide the sums by the number of runs. */
void measures_finish(struct measures *measures, const struct scenario *scenario);

/*
 * Return the 99th percentile of a tenant's latency in a run, in seconds: NAN if the tenant has no
 * task, or without memory.
 */
double measure_tenant_p99(const struct sim *sim, uint32_t tenant);

/*
 * Look up a figure by name: figure_name(), "placed.PLAN.cpu", "placed.PLAN.gpu",
 * "placed.PLAN.split", "p99.TENANT" or "alone.TENANT".
 * Return: false if there is no such figure.
 */
bool measures_find(const struct measures *measures, const struct scenario *scenario,
		   const char *name, double *ret);

/* Return Jain's fairness index of @n values: 1 if all are equal, 1/n if only one is not zero. */
double measure_jain(const double *values, uint32_t n);
