#pragma once
/* SPDX-License-Identifier: MIT */
/* The policies that are compared. */
#include "sim.h"

/* The engine of brokerd. */
extern const struct policy policy_ours;
/* The same, which does not look at run queues; not one to choose. */
extern const struct policy policy_ours_unaware;

extern const struct policy policy_cpu, policy_gpu, policy_threshold, policy_turns;
extern const struct policy policy_earliest, policy_heft;

/* With knowledge that nobody has. */
extern const struct policy policy_means, policy_oracle, policy_oracle_sorted;
