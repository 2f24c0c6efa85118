#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A search for the assignment of a few tasks to devices with the earliest end of all
 *
 * Private to rebalancing. The search works on plain numbers and knows nothing of queues.
 */
#include <stdint.h>
#include <ringbroker/abi.h>

enum { SEARCH_MAX_TASKS = 32 };

struct search {
	uint32_t n_tasks, n_devices;
	float load_ns[RBK_MAX_DEVICES]; /* time until the device is idle, as assigned */
	uint8_t at[SEARCH_MAX_TASKS];   /* assigned device of each task */
	/* Load that a task adds to a device; infinite: the task must not run there. */
	float adds_ns[SEARCH_MAX_TASKS][RBK_MAX_DEVICES];
	float takes_ns[SEARCH_MAX_TASKS][RBK_MAX_DEVICES];
};

/*
 * Improve search->at, and load_ns with it, by moves and swaps. Two starts are tried: the present
 * assignment, and the one where every task is on the device on which it loses least. Takes at most
 * some microseconds, with SEARCH_MAX_TASKS tasks.
 * Return: the time at which all devices are idle.
 */
float search_run(struct search *search);
