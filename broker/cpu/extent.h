#pragma once
/* SPDX-License-Identifier: MIT */
/* Numbers of elements that may depend on a task's count. Private to broker/cpu. */
#include <stddef.h>
#include <stdint.h>

/* A number of elements: fixed + row * count; one of the two is 0. */
struct cpu_extent {
	size_t fixed, row;
};

static inline size_t cpu_extent_at(const struct cpu_extent *extent, uint32_t count)
{
	return extent->fixed + extent->row * count;
}
