#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Charges of a session's plan, with those of its segments
 *
 * A tenant is charged in advance for the most that a plan may need, and later for what it needs.
 * Private to session/. Reactor.
 */
#include <stdbool.h>

#include "session/session.h"

/*
 * Replace the charge for the maximum by one for the verified plan.
 * Return: 0; -EDQUOT: a sentence is in the description's message, and the charges are unchanged.
 */
int plan_charge(struct session_plan *plan);

/*
 * Replace the charge for scratch, or for the measured use, by the executors' host memory: measured
 * (@is_measured) or actual.
 * Return: 0; -EDQUOT, sent.
 */
int plan_charge_host(struct session_plan *plan, bool is_measured);
