#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A scenario under several policies, several times
 */
#include "measure.h"
#include "scenario.h"

enum { RUN_MAX_POLICIES = 16 };

struct run_options {
	const struct policy *policies[RUN_MAX_POLICIES]; /* terminated by NULL */
	uint64_t seed;   /* seed of the first run; 0: the scenario's */
	uint32_t n_runs; /* 0: the scenario's */
	double solver_seconds;
	/* called with each policy's first run before its memory is freed; NULL: none */
	int (*show)(void *context, const struct sim *sim);
	void *context;
};

struct outcome {
	const struct scenario *scenario;
	struct measures measures[RUN_MAX_POLICIES];
	unsigned int n_measures;
	enum bound_kind bound_kind;
};

/*
 * Run @scenario under all policies of @options. Deinitialize @ret only after 0.
 * Return: 0; SCENARIO_E_INVALID with a sentence in @message; a negative errno.
 */
int outcome_run(struct outcome *ret, const struct scenario *scenario,
		const struct run_options *options, char message[SCENARIO_MESSAGE_BYTES]);
void outcome_deinit(struct outcome *outcome);

/* Return the measures of a policy by its name, NULL if the policy did not run. */
const struct measures *outcome_of(const struct outcome *outcome, const char *policy);

/*
 * Make the tasks of a world for the optimum, with true times. The caller frees them; NULL without
 * memory.
 */
struct optimum_task *outcome_optimum_tasks(const struct world *world);
