/* SPDX-License-Identifier: MIT */
/*
 * The broker's own tasks, such as measurements
 *
 * Each device runs one at a time, and only while no client's task is queued for the device or held
 * by its executor; tasks that come later wait for it as for any other. The scheduler does not see
 * these tasks: no tenant is charged for them.
 */
#include <errno.h>

#include "dispatch/dispatch-private.h"

int dispatch_run_own(struct dispatch *dispatch, struct dispatch_own *own)
{
	if (own->device >= dispatch->n_executors)
		return -ENODEV;
	if (dispatch->is_holding)
		return -ECANCELED;
	list_append(&dispatch->own, &own->link);
	return 0;
}

static bool own_submit(struct dispatch *dispatch, struct dispatch_own *own)
{
	struct executor *executor = dispatch->executors[own->device];
	struct device_load *load = &dispatch->loads[own->device];

	if (load->own || load->n_queued > 0 || load->n_held > 0)
		return false;
	own->exec.is_urgent = own->exec.has_progress = false;
	own->exec.busy_processor = 0;
	own->exec.slice_ticks = 0;
	own->exec.start_ticks = own->exec.end_ticks = own->exec.busy_ticks = 0;
	own->exec.copied_bytes = own->exec.transferred_bytes = 0;
	atomic_store_explicit(&own->exec.state, EXEC_QUEUED, memory_order_relaxed);
	if (executor->ops->submit(executor, &own->exec) != 0)
		return false;
	load->own = own;
	dispatch->n_submitted++;
	dispatch->flush_mask |= 1u << own->device;
	return true;
}

unsigned int own_start(struct dispatch *dispatch)
{
	unsigned int n = 0;

	list_for_each_safe (node, &dispatch->own) {
		struct dispatch_own *own = container_of(node, struct dispatch_own, link);

		if (!own_submit(dispatch, own))
			continue;
		list_remove(&own->link);
		n++;
	}
	return n;
}

void own_returned(struct dispatch *dispatch, uint8_t device)
{
	struct dispatch_own *own = dispatch->loads[device].own;

	dispatch->loads[device].own = NULL;
	dispatch->n_submitted--;
	own->done(own, own->exec.res);
}

/* Cancel a task that an executor holds. Not every executor can break off one that has begun. */
static void own_cancel(struct executor *executor, struct dispatch_own *own)
{
	uint8_t expected = EXEC_QUEUED;

	/* Pairs with exec_task_begin(): one of the two wins. */
	if (!atomic_compare_exchange_strong_explicit(&own->exec.state, &expected, EXEC_CANCELLED,
						     memory_order_acq_rel, memory_order_acquire) &&
	    executor->ops->abandon)
		exec_task_stop(&own->exec, EXEC_CANCELLED);
}

void own_cancel_all(struct dispatch *dispatch)
{
	struct dispatch_own *own;

	while (!list_is_empty(&dispatch->own)) {
		own = container_of(dispatch->own.next, struct dispatch_own, link);
		list_remove(&own->link);
		own->done(own, -ECANCELED);
	}
	for (uint32_t i = 0; i < dispatch->n_executors; i++)
		if (dispatch->loads[i].own)
			own_cancel(dispatch->executors[i], dispatch->loads[i].own);
}
