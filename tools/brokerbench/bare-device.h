#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The device of brokerd --test-device, used by one thread: the floor under tasks of a GPU
 *
 * Each task takes the same time, for which the device's thread sleeps.
 */
#include <stdint.h>

struct bare_device;

/*
 * Make a device whose tasks take @task_us.
 * Return: 0; a negative errno: there is no memory or no thread.
 */
int bare_device_new(uint32_t task_us, struct bare_device **ret);
/* NULL is allowed. Return: NULL. */
struct bare_device *bare_device_free(struct bare_device *bare);

/* Run one task, asleep until it is returned. Return: 0; a negative errno. */
int bare_device_run(struct bare_device *bare);
