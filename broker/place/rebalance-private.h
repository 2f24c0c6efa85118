#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A search for the assignment of a few tasks to devices that has them all done earliest
 *
 * Private to the rebalancing. Plain numbers: it knows nothing of queues.
 */
#include <stdint.h>
#include <ringbroker/abi.h>

enum { SEARCH_MAX_TASKS = 32 };

struct search {
	uint32_t n_tasks, n_devices;
	float load_ns[RBK_MAX_DEVICES]; /* until the device is idle, as assigned */
	uint8_t at[SEARCH_MAX_TASKS];   /* the assignment */
	/*
	 * What a task adds to the load of a device, at least as long as it takes there; infinite:
	 * it must not go there.
	 */
	float adds_ns[SEARCH_MAX_TASKS][RBK_MAX_DEVICES];
	float takes_ns[SEARCH_MAX_TASKS][RBK_MAX_DEVICES];
};

/*
 * Improves search->at, and load_ns with it, by moves and swaps from there and from where every task
 * is on the device that it loses least on. Bounded: some microseconds for SEARCH_MAX_TASKS.
 * Return: when all devices are idle.
 */
float search_run(struct search *search);
