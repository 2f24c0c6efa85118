#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A device that takes time and computes nothing
 *
 * An executor for benches of the code around executors. A task takes the device's time to read the
 * plan's constants once, like a task with one row of input. Loading takes the time of the constants
 * over the bus. Both times really pass, asleep. Allocations of the device are only counted.
 *
 * Like amdgpu, the device rejects no allocation. If other programs want more memory than is free,
 * the least recently run plan is moved out. From then on its tasks read over the bus, until the
 * plan is loaded again.
 */
#include <stdint.h>

#include "plan/executor.h"

struct model_options {
	const char *name;
	uint8_t index; /* RBK_DEVICE_* */
	struct waker *waker;
	uint64_t memory_bytes;     /* memory of the device; 0: none, and no plan is loaded */
	uint64_t read_bytes_per_s; /* tasks' rate of reading constants; 0: tasks complete at once */
	uint64_t bus_bytes_per_s;  /* rate of loads, and of tasks of plans moved out */
};

/*
 * Make a device. @options is copied.
 * Return: 0; -ENOMEM; another negative errno if there is no thread.
 */
int model_executor_new(const struct model_options *options, struct executor **ret);

/* Set the bytes of the device's memory that other programs hold. Any thread. */
void model_executor_set_outside(struct executor *executor, uint64_t bytes);

/* Return the bytes transferred over the bus to load plans. Any thread. */
uint64_t model_executor_moved_bytes(const struct executor *executor);
