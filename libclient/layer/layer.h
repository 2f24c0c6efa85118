#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The Vulkan layer that holds a program to a lease
 *
 * Files: layer.c (functions that the loader and programs call), dispatch.[ch] (instances and
 * devices), memory.c (allocations), properties.c and budget.h (reported memory sizes), gpu.[ch] and
 * gpu-use.c (leases and the connection), process.[ch] (state of the process), objects.[ch] and
 * holders.[ch] (exported and imported memory), movable.c, mover.[ch] and mover-device.c (memory
 * that moves), timeslice.[ch], submit.[ch] and ends.[ch] (submissions), cut.[ch], recording.[ch]
 * and more (parts of command buffers), lost.[ch] (lost devices), account.[ch] (credit), table.[ch]
 * (handles), environment.[ch] and say.[ch] (log).
 */
#include <stdint.h>
#include <time.h>

#define LAYER_NAME "VK_LAYER_RINGBROKER_lease"

static inline uint64_t layer_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
