#pragma once
/* SPDX-License-Identifier: MIT */
/* The policies under comparison */
#include "sim.h"

/* brokerd's engine */
extern const struct policy policy_ours;
/* brokerd's engine without the run-queue watcher; not selectable by name */
extern const struct policy policy_ours_unaware;

extern const struct policy policy_cpu, policy_gpu, policy_threshold, policy_turns;
extern const struct policy policy_earliest, policy_heft;

/* policies with knowledge that no real scheduler has */
extern const struct policy policy_means, policy_oracle, policy_oracle_sorted;
