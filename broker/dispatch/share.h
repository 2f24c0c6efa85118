#pragma once
/* SPDX-License-Identifier: MIT */
/* Devices that leased programs share: see share-hot.c. Reactor thread. */
#include "dispatch/dispatch-private.h"

/* Return true if leases share the time of a device, or did so in the last turn. */
static inline bool dispatch_is_shared(const struct dispatch *dispatch)
{
	return (*dispatch->shared_devices | dispatch->held_back) != 0;
}

/*
 * Do as dispatch_release() if dispatch_is_shared(), for the tasks whose turn it is beside leased
 * programs.
 */
unsigned int dispatch_release_shared(struct dispatch *dispatch);
/* Note whether a run that is submitted has waited for leases. */
static inline void share_note_begun(struct run *run, uint8_t device)
{
	const struct flow *flow = run->task->ring->flow;

	run->task->was_held_back |= run->place.class >= flow->held_from[device] &&
				    run->task->admit_ticks < flow->opened_ticks[device];
}

/* Forget a flow that is about to be freed. */
void share_forget(struct flow *flow);
