/* SPDX-License-Identifier: MIT */
/*
 * Awake when a GPU's task is about to end
 *
 * A reactor that sleeps while a GPU computes has to wake up at the end of the task, although the
 * end is predicted, and no executor needs the reactor's processor. So the reactor rises shortly
 * before, and then polls until the task is returned, or is late by as much as a sleep costs. How
 * long before: as long as its timer was late, and as tasks of this device ended before their
 * prediction. The longest of both counts at once and is forgotten slowly.
 *
 * This is for a task that the device begins at once. A device with more tasks works on while the
 * reactor wakes up. A software device computes on the processors, where the reactor would be in its
 * way, and so is every thread that spins while processors are contended.
 */
#include "dispatch/dispatch-private.h"
#include "loop/loop.h"
#include "util/clock.h"
#include "util/longest.h"

/* The longest time to poll before, and again after, the predicted end: what a sleep costs */
static const uint64_t most_ns = 50000;

static void on_alarm(void *data)
{
	struct dispatch *dispatch = data;
	struct due *due = &dispatch->due;
	const uint64_t now_ticks = clock_ticks();

	longest_follow(&due->lag_ticks,
		       now_ticks > due->alarm_ticks ? now_ticks - due->alarm_ticks : 0,
		       due->most_ticks);
	due->alarm_ticks = 0;
}

int due_init(struct dispatch *dispatch)
{
	dispatch->due.most_ticks = clock_ns_to_ticks(most_ns);
	return loop_timer_new(dispatch->options.loop, on_alarm, dispatch, &dispatch->due.timer);
}

void due_deinit(struct dispatch *dispatch)
{
	loop_timer_free(dispatch->due.timer);
}

void due_begin(struct dispatch *dispatch, uint8_t device, uint64_t predicted_ns)
{
	if (dispatch->options.spin_ns >= 0 || dispatch->is_contended)
		return;
	dispatch->loads[device].due_ticks = clock_ticks() + clock_ns_to_ticks(predicted_ns);
	dispatch->due.devices |= 1u << device;
}

void due_end(struct dispatch *dispatch, uint8_t device, uint64_t end_ticks)
{
	struct device_load *load = &dispatch->loads[device];

	dispatch->due.devices &= ~(1u << device);
	if (end_ticks != 0)
		longest_follow(&load->early_ticks,
			       load->due_ticks > end_ticks ? load->due_ticks - end_ticks : 0,
			       dispatch->due.most_ticks);
}

bool due_is_near(struct dispatch *dispatch)
{
	struct due *due = &dispatch->due;
	const uint64_t now_ticks = clock_ticks();
	uint64_t alarm_ticks = UINT64_MAX, ahead_ticks;
	bool is_near = false;

	for (uint32_t left = due->devices; left; left &= left - 1) {
		const unsigned int i = (unsigned int)__builtin_ctz(left);
		const struct device_load *load = &dispatch->loads[i];

		ahead_ticks = due->lag_ticks + load->early_ticks;
		if (ahead_ticks > due->most_ticks)
			ahead_ticks = due->most_ticks;
		if (now_ticks >= load->due_ticks + due->most_ticks)
			due->devices &= ~(1u << i);
		else if (now_ticks + ahead_ticks >= load->due_ticks)
			is_near = true;
		else if (load->due_ticks - ahead_ticks < alarm_ticks)
			alarm_ticks = load->due_ticks - ahead_ticks;
	}
	if (!is_near && alarm_ticks != UINT64_MAX && alarm_ticks != due->alarm_ticks) {
		due->alarm_ticks = alarm_ticks;
		loop_timer_arm(due->timer, clock_ticks_to_ns(alarm_ticks - now_ticks));
	}
	return is_near;
}
