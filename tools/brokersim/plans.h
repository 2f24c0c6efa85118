#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Plans of a scenario
 *
 * A plan is the struct plan that brokerd places, made from a description by the same plan_new().
 */
#include "scenario.h"
#include "plan/plan.h"

/*
 * Make a plan from its specification.
 * Return: 0; SCENARIO_E_INVALID with a sentence in @message if the plan is invalid; a negative
 * errno.
 */
int plans_new(const struct scenario_plan *spec, char message[PLAN_MESSAGE_BYTES],
	      struct plan **ret);

/*
 * Make a plan from a description on the wire (shm/plan-wire.h), whose constants are never read.
 * Return: as plan_new().
 */
int plans_of_description(const void *desc, size_t bytes, char message[PLAN_MESSAGE_BYTES],
			 struct plan **ret);

/*
 * Return the dimensions of an operator that a scenario must give, as a mask of 1 << enum
 * scenario_dims; 0 for an operator that scenarios cannot describe.
 */
uint32_t plans_dims(enum op_kind op);

/*
 * Compute the bytes that cross a link for @count rows, to the device and back, without constants.
 */
void plans_link_bytes(const struct plan *plan, uint32_t count, double *ret_up, double *ret_down);
