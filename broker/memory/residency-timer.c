/* SPDX-License-Identifier: MIT */
/*
 * Residency: the times of the next review, and of the next turn of work that takes several
 *
 * These functions may be called at any point, because they only set timers.
 */
#include "loop/loop.h"
#include "memory/residency-private.h"
#include "util/clock.h"
#include "util/number.h"

/* The pause is a multiple of the time that reviews take, however many plans there are. */
uint64_t residency_paused_until_ns(const struct residency *residency)
{
	return residency->reviewed_ns +
	       RESIDENCY_PAUSE * (residency->review_ns + residency->asked_ns);
}

void residency_review_in(struct residency *residency, uint64_t delay_ns)
{
	uint64_t at_ns = clock_now_ns() + delay_ns;
	uint64_t earliest_ns = residency_paused_until_ns(residency);

	if (at_ns < earliest_ns) {
		delay_ns += earliest_ns - at_ns;
		at_ns = earliest_ns;
	}
	if (residency->timer_ns && residency->timer_ns <= at_ns)
		return;
	residency->timer_ns = at_ns;
	loop_timer_arm(residency->timer, delay_ns);
}

bool residency_goes_on(const struct residency *residency)
{
	for (unsigned int i = 1; i < residency->options.n_executors; i++) {
		const struct residency_device *device = &residency->devices[i];

		if (device->evict_next)
			return true;
		if (device->state == RESIDENCY_DEVICE_UP &&
		    (device->is_above || device->is_bringing || device->n_to_promote > 0 ||
		     device->renew_next))
			return true;
	}
	return residency->walk.next != NULL || !list_is_empty(&residency->told);
}

void residency_go_on_soon(struct residency *residency)
{
	uint64_t at_ns = UINT64_MAX;

	for (unsigned int i = 1; i < residency->options.n_executors; i++)
		if (residency->devices[i].must_serve)
			at_ns = min_u64(at_ns, residency->devices[i].serve_ns);
	if (residency_goes_on(residency))
		loop_timer_arm(residency->walk.timer, 0);
	else if (at_ns != UINT64_MAX)
		loop_timer_arm(residency->walk.timer, saturating_sub(at_ns, clock_now_ns()));
}

void residency_leases_serve_later(struct residency_device *device)
{
	if (list_is_empty(&device->residency->leases.waits[device->index]))
		return;
	device->must_serve = true;
	residency_go_on_soon(device->residency);
}
