#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Devices in virtual time whose plans have slots
 *
 * Gives the fakes of a session-rig a way of their own to run tasks, as broker/vulkan does: tasks
 * are taken in the order of submission, urgent ones first; a task of a plan with slots begins only
 * with a slot of its plan, which it keeps until its last part is done; what has begun runs one
 * after the other. Time passes only in slotted_pass(), and then all clocks of the program go
 * forward: link with slotted_dep, which replaces clock_init() and clock_now_ns().
 */
#include <stdbool.h>
#include <stdint.h>

#include "support/session-rig.h"

enum { SLOTTED_MAX_SLOTS = 1024 };

struct slotted {
	struct fake *fake;
	uint64_t task_ns; /* that a submission takes on the device */
	int32_t fails;    /* all that runs or comes from now on fails with this; 0: nothing does */
	bool is_stuck;    /* nothing begins and nothing ends; what is cancelled is handed back */

	/* Slots that tasks keep, of any plan. */
	struct exec_task *slots[SLOTTED_MAX_SLOTS];
	unsigned int n_slots;
	/* Begun, in order; the first runs. */
	struct exec_task *begun[FAKE_MAX_TASKS];
	unsigned int n_begun;
	uint64_t free_ns; /* when the first of these ends */
	unsigned int most_slots;
};

void slotted_init(struct slotted *device, struct fake *fake, uint64_t task_ns);

/* Begins what can begin. */
void slotted_begin(struct slotted *device);

/* When something ends next; UINT64_MAX: nothing runs. */
uint64_t slotted_next_ns(const struct slotted *device);

/* Ends what ends by now and begins what can. Return: how many submissions ended. */
unsigned int slotted_run(struct slotted *device);

/* The memory of all plans is gone: what is held fails, and no slot is kept. */
void slotted_lose(struct slotted *device);

/* The time of all clocks; it starts at a second. */
uint64_t slotted_now_ns(void);
void slotted_pass(uint64_t until_ns);
