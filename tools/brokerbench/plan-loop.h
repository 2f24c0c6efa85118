#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The kernels of a plan, called in a loop
 *
 * A broker in this process prepares the plan, and does not run afterwards. The measuring thread
 * calls the CPU executor as brokerd's reactor does for tiny tasks: one kernel after the other,
 * without rings, placement and other threads.
 */
#include "bench.h"
#include "network.h"

struct plan_loop;

/*
 * Prepare @model's network; see network_init().
 * Return: 0; BENCH_E_SKIP or a negative errno, which has been reported.
 */
int plan_loop_new(struct bench_env *env, const char *model, struct plan_loop **ret);
/* Accepts NULL. Return: NULL. */
struct plan_loop *plan_loop_free(struct plan_loop *loop);

/* The network whose memory the kernels use. */
const struct network *plan_loop_network(const struct plan_loop *loop);

/* Run one task; a direct_fn of a struct plan_loop. */
int plan_loop_run(void *data);
