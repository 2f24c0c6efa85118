#pragma once
/* SPDX-License-Identifier: MIT */
/* Helpers of the demos: a clock, the order of times, and the room of tensors in an arena */
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <ringbroker.h>

static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* For qsort() of uint64_t. */
static inline int compare_ns(const void *left, const void *right)
{
	const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

/* Return the room that a tensor of @bytes takes in an arena. */
static inline size_t aligned(size_t bytes)
{
	return (bytes + RBK_REF_ALIGN - 1) / RBK_REF_ALIGN * RBK_REF_ALIGN;
}
