#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * One sample, published by one thread and read by any
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "telemetry/telemetry.h"

enum { PUBLISH_WORDS = sizeof(struct device_reading) / sizeof(uint64_t) };
_Static_assert(sizeof(struct device_reading) % sizeof(uint64_t) == 0, "copied by words");

struct publish {
	_Atomic uint32_t sequence; /* how many were written */
	_Atomic uint64_t words[2][PUBLISH_WORDS];
};

/* The one writing thread: the next reading. Sets reading->n_samples. */
void publish_write(struct publish *publish, struct device_reading *reading);
/* Any thread: the last one. Return: false if there was none yet. */
bool publish_read(const struct publish *publish, struct device_reading *ret);
/* Any thread: how many there were. */
uint32_t publish_count(const struct publish *publish);
