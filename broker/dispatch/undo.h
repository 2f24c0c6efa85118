#pragma once
/* SPDX-License-Identifier: MIT */
/* States as they were before tasks that update them: see undo-hot.c. */
#include "dispatch/dispatch-private.h"

/*
 * Return the units of undo memory that the states of a task of @count rows take. More than
 * RBK_UNDO_UNITS: too many.
 */
uint64_t undo_units(const struct plan *plan, uint32_t count);

/* Prepare @run, of a plan with states, to be given to an executor. Reactor. */
void undo_prepare(struct run *run);

/* Free the units of a task whose completion is recorded, and commit the completion. Reactor. */
void undo_release(struct task *task);
