#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A device for tests: brokerd --test-device
 *
 * The device uses no processor: each task takes the same time, plus one for each of its rows and
 * for its floating-point operations, one after the other as on any queue, while a thread sleeps. It
 * computes nothing: outputs are not changed. For placement it is a GPU whose profile has the time
 * of a task and of operations, and learns that of rows; it is not measured. It may have memory,
 * into which constants and scratch are "loaded", so that budgets hold for it: while that takes, the
 * set-up thread sleeps.
 *
 * A software Vulkan device cannot replace it in tests about the processors: such a device shares
 * them with all other threads.
 */
#include <stdint.h>

#include "place/profile.h"
#include "plan/executor.h"

/* Tasks that the device accepts before it is busy. */
enum { TEST_DEVICE_QUEUE = 256 };

struct test_device_options {
	uint64_t latency_ns;        /* duration of a task, at most PLACE_MAX_LATENCY_NS */
	uint64_t row_ns;            /* added by each of its rows */
	uint32_t flops_per_ns;      /* 1e9 operations add 1 / this second; 0: they add nothing */
	uint64_t memory_bytes;      /* 0: no memory of its own */
	uint32_t link_bytes_per_us; /* constants come so fast; 0: in no time */
};

/*
 * Make the device. @waker is borrowed.
 * Return: 0; -ENOMEM; -errno if there is no thread.
 */
int test_device_new(const struct test_device_options *options, struct waker *waker,
		    struct executor **ret);

/* Return the device's profile. */
const struct place_profile *test_device_profile(const struct executor *executor);
