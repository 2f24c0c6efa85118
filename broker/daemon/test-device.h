#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A device for tests: brokerd --test-device
 *
 * The device uses no processor: each task takes the same time, plus one for each of its rows, one
 * after the other as on any queue, while a thread sleeps. It computes nothing: outputs are not
 * changed. For placement it is a GPU whose profile has the time of a task, and learns that of rows;
 * it is not measured.
 *
 * A software Vulkan device cannot replace it in tests about the processors: such a device shares
 * them with all other threads.
 */
#include <stdint.h>

#include "place/profile.h"
#include "plan/executor.h"

/* Tasks that the device accepts before it is busy. */
enum { TEST_DEVICE_QUEUE = 256 };

/*
 * Make the device. @latency_ns: duration of a task, at most PLACE_MAX_LATENCY_NS; each of its rows
 * adds @row_ns. @waker is borrowed.
 * Return: 0; -ENOMEM; -errno if there is no thread.
 */
int test_device_new(uint64_t latency_ns, uint64_t row_ns, struct waker *waker,
		    struct executor **ret);

/* Return the device's profile. */
const struct place_profile *test_device_profile(const struct executor *executor);
