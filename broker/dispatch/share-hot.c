/* SPDX-License-Identifier: MIT */
/*
 * Devices that leased programs share: which tasks may start
 *
 * lease/timeslice.h decides which lease has a device, and which classes of a flow's tasks may start
 * there meanwhile. The scheduler keeps the others in their queue (place_flow_open()), where they
 * may be cancelled and moved as before.
 *
 * A turn first starts what may start. Then it tells which tasks are left and which are under way,
 * and starts what may start after that. While no lease shares a device, a turn reads one word.
 *
 * While the broker stops or pauses, no task is held back.
 */
#include "dispatch/share.h"

enum { MAX_ROUNDS = 4 }; /* per turn; the next turn goes on */

/*
 * Let the scheduler start what may start.
 * Return: true if that is more than before.
 */
static bool open_flows(const struct dispatch *dispatch, uint32_t devices, uint32_t shared)
{
	const uint32_t held_back = dispatch->is_holding ? 0 : shared;
	bool is_more = false;

	list_for_each (node, &dispatch->flows) {
		struct flow *flow = container_of(node, struct flow, link);

		for (uint32_t left = devices; left; left &= left - 1) {
			const uint8_t device = (uint8_t)__builtin_ctz(left);
			const uint8_t n = held_back & 1u << device ? flow->shared[device].n_open
								   : TIMESLICE_CLASSES;

			if (n == flow->n_open[device])
				continue;
			if (n > flow->n_open[device]) {
				is_more = true;
				flow->held_from[device] = flow->n_open[device];
				flow->opened_ticks[device] = dispatch->now_ticks;
			}
			flow->n_open[device] = n;
			place_flow_open(dispatch->placer, flow->place, device, n);
		}
	}
	return is_more;
}

/* Tell which tasks there are on a device, if that has changed. */
static void report_tasks(const struct dispatch *dispatch, uint8_t device)
{
	struct timeslice_plans *changed = NULL;
	uint8_t waiting, under_way;

	list_for_each (node, &dispatch->flows) {
		struct flow *flow = container_of(node, struct flow, link);
		struct timeslice_plans *plans = &flow->shared[device];

		place_flow_classes(flow->place, device, &waiting, &under_way);
		if (waiting == plans->waiting && under_way == plans->under_way)
			continue;
		plans->waiting = waiting;
		plans->under_way = under_way;
		plans->next_changed = changed;
		changed = plans;
	}
	if (changed)
		dispatch->options.share_plans(dispatch->options.share_context, device, changed);
}

unsigned int dispatch_release_shared(struct dispatch *dispatch)
{
	const uint32_t shared = *dispatch->shared_devices, devices = shared | dispatch->held_back;
	unsigned int n_more = 0;

	dispatch->held_back = shared;
	open_flows(dispatch, devices, shared);
	for (unsigned int i = 0; i < MAX_ROUNDS; i++) {
		if (dispatch->n_queued > 0)
			n_more = dispatch_release(dispatch);
		for (uint32_t left = shared; left; left &= left - 1)
			report_tasks(dispatch, (uint8_t)__builtin_ctz(left));
		if (!open_flows(dispatch, shared, shared) || dispatch->n_queued == 0)
			break;
	}
	return n_more;
}

void share_forget(struct flow *flow)
{
	for (unsigned int i = 0; i < RBK_MAX_DEVICES; i++)
		if (flow->shared[i].is_known)
			list_remove(&flow->shared[i].link);
}
