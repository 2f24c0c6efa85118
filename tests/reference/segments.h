#pragma once
/* SPDX-License-Identifier: MIT */
/* Running the segments of a cut by the plain reference. Tests only; failures abort. */
#include <stddef.h>
#include <stdint.h>

#include "plan/cut.h"
#include "plan/plan.h"
#include "reference/reference.h"

/* Make the plan of segment @i, for which the arenas of @lookup are those of the whole plan. */
struct plan *reference_segment(const struct cut *cut, uint32_t i,
			       const struct plan_arena_lookup *lookup);

/* Check that segments which may run at once write nothing in the crossing block that both use. */
void reference_check_beside(const struct cut *cut, const struct plan_arena_lookup *lookup);

/*
 * Do as reference_run() with all segments of @cut, one after the other: in order, or, if @order is
 * not NULL, each after those that it needs, else at random. The crossing block is private to the
 * call and begins with bytes that no result has.
 */
void reference_run_segments(const struct cut *cut, const struct plan_arena_lookup *lookup,
			    uint32_t count, void *const *bindings, uint64_t *order);

/*
 * Choose nodes to cut before, in ascending order.
 * @ret_firsts: CUT_MAX_SEGMENTS elements. Return: their number, from 0.
 */
uint32_t reference_firsts(const struct plan *plan, uint64_t *state, uint16_t *ret_firsts);
