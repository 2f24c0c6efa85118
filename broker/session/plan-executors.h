#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The executors' work on a session's plan, or on a segment of one, on the setup thread
 *
 * A plan is measured, then prepared, and released at last. Each function does a part of its work,
 * so that other jobs can run in between. Private to session/.
 */
#include <stdbool.h>
#include <stdint.h>

#include "session/session.h"

/*
 * Return true if the device may run the plan. Any other device would pack or mirror constants that
 * no task could use.
 */
static inline bool plan_is_for(const struct plan *plan, unsigned int device)
{
	return !plan->pinned || plan->pinned_device == device;
}

/*
 * Measure a part of the host memory that executors will take. Return: true if parts remain.
 */
bool plan_measure(struct session_plan *plan);

/*
 * Compile a part; with the last one, prepare the plan for all executors. A prepared plan is left as
 * it is. Return: true if parts remain.
 */
bool plan_prepare(struct session_plan *plan);

/* Release a part of what executors have prepared, then free the plan. Return: true if parts remain.
 */
bool plan_unprepare(struct session_plan *plan);
