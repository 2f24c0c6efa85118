#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A device for tests: brokerd --test-device
 *
 * A device that uses no processor: each task takes it the same time, one after the other as on any
 * queue, and in that time a thread sleeps. It computes nothing: outputs stay as they are. Placement
 * knows it like a GPU, by a profile that says just this time; nobody measures it.
 *
 * A software Vulkan device cannot stand in where the processors themselves are the matter: it
 * shares them with everybody.
 */
#include <stdint.h>

#include "place/profile.h"
#include "plan/executor.h"

/* Tasks that it takes before it is busy. */
enum { TEST_DEVICE_QUEUE = 256 };

/*
 * @latency_ns: from when a task begins until it is complete, at most PLACE_MAX_LATENCY_NS. @waker
 * is borrowed. Return: 0; -ENOMEM; -errno, no thread.
 */
int test_device_new(uint64_t latency_ns, struct waker *waker, struct executor **ret);

/* What there is to know of it. */
const struct place_profile *test_device_profile(const struct executor *executor);
