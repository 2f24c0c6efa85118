#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A device that takes time and computes nothing
 *
 * An executor for benches of what surrounds executors. A task takes as long as the device needs to
 * read the plan's constants once, which is what tasks of one row of input take; loading constants
 * takes as long as they need over the bus. Both really pass, in sleep. What the device allocates
 * are numbers.
 *
 * As amdgpu does, it refuses nothing: where programs outside want more memory than is free, the
 * plan that ran least recently is moved out, to be read over the bus from then on, and stays out
 * until it is loaded anew.
 */
#include <stdint.h>

#include "plan/executor.h"

struct model_options {
	const char *name;
	uint8_t index; /* RBK_DEVICE_* */
	struct waker *waker;
	uint64_t memory_bytes;     /* 0: none of its own, and nothing is loaded */
	uint64_t read_bytes_per_s; /* of constants, by tasks; 0: tasks complete as they come */
	uint64_t bus_bytes_per_s;  /* of constants, by loads and by tasks of plans moved out */
};

/* @options is copied. Return: 0; -ENOMEM; -errno, no thread. */
int model_executor_new(const struct model_options *options, struct executor **ret);

/* What programs outside hold of its memory from now on. Any thread. */
void model_executor_set_outside(struct executor *executor, uint64_t bytes);

/* What was moved over the bus to load plans. Any thread. */
uint64_t model_executor_moved_bytes(const struct executor *executor);
