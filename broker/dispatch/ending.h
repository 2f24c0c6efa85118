#pragma once
/* SPDX-License-Identifier: MIT */
/* The end of the tasks of plans that are removed, and of rings that close: see ending.c. Reactor.
 */
#include "dispatch/dispatch-private.h"

/*
 * End the waiting of all tasks of a plan, or of a ring, in batches; waits_end() continues. A
 * closing ring's tasks that devices have not begun are withdrawn, too.
 */
void waits_plan_removing(struct dispatch *dispatch, struct session_plan *plan);
void waits_ring_closing(struct dispatch *dispatch, struct dispatch_ring *ring);

/*
 * End the waiting of a TASK_WAITING whose plan is being removed: with -ECANCELED, or, if the task
 * can run without what it waits for, by going on. In wait.c.
 */
void wait_leave(struct task *task);

/*
 * Continue to end the waiting of tasks.
 * Return: the tasks and rings visited.
 */
unsigned int waits_end(struct dispatch *dispatch);
