#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plans of a scenario
 *
 * The same struct plan that brokerd places, made by the same plan_new() from a description.
 */
#include "scenario.h"
#include "plan/plan.h"

/*
 * Return: 0; SCENARIO_E_INVALID with a sentence in @message, where the plan is impossible; negative
 * errno.
 */
int plans_new(const struct scenario_plan *spec, char message[PLAN_MESSAGE_BYTES],
	      struct plan **ret);

/* The operators' dimensions that a scenario must give, as a mask of 1 << enum scenario_dims. */
uint32_t plans_dims(enum op_kind op);

/* Bytes that cross a link for @count rows, to the device and back; constants do not. */
void plans_link_bytes(const struct plan *plan, uint32_t count, double *ret_up, double *ret_down);
