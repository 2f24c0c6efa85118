#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Devices in virtual time whose plans have slots
 *
 * Replaces the way in which a session-rig's fakes run tasks by that of broker/vulkan. Tasks are
 * taken in the order of submission, urgent tasks first. A task of a plan with slots begins only
 * with a slot of its plan, and keeps the slot until its last part is done. Begun tasks run one
 * after another. Time passes only in slotted_pass(), which advances all clocks of the program: link
 * with slotted_dep, which replaces clock_init() and clock_now_ns().
 */
#include <stdbool.h>
#include <stdint.h>

#include "support/session-rig.h"

enum { SLOTTED_MAX_SLOTS = 1024 };

struct slotted {
	struct fake *fake;
	uint64_t task_ns; /* time of a submission on the device */
	int32_t fails;    /* negative errno of all running and later tasks; 0: tasks succeed */
	bool is_stuck;    /* true: no task begins or ends; cancelled tasks are handed back */

	/* Tasks that hold a slot, of any plan. */
	struct exec_task *slots[SLOTTED_MAX_SLOTS];
	unsigned int n_slots;
	/* Begun tasks, in order; the first runs. */
	struct exec_task *begun[FAKE_MAX_TASKS];
	unsigned int n_begun;
	uint64_t free_ns; /* end of the first begun task */
	unsigned int most_slots;
};

void slotted_init(struct slotted *device, struct fake *fake, uint64_t task_ns);

/* Begin all tasks that can begin. */
void slotted_begin(struct slotted *device);

/* Return the end of the running task; UINT64_MAX if none runs. */
uint64_t slotted_next_ns(const struct slotted *device);

/*
 * End the tasks that are due, and begin those that can begin.
 * Return: the number of submissions that ended.
 */
unsigned int slotted_run(struct slotted *device);

/* Lose the memory of all plans: all tasks fail with -EIO, and all slots become free. */
void slotted_lose(struct slotted *device);

/* Return the time of all clocks; it starts at one second. */
uint64_t slotted_now_ns(void);
void slotted_pass(uint64_t until_ns);
