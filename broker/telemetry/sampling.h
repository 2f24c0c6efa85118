#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The time from one sample of a device to the next
 */
#include <stdbool.h>
#include <stdint.h>

#include "telemetry/telemetry.h"

/* The processes that use devices are listed so many times less often. */
enum { SAMPLING_PROCESSES_FACTOR = 10 };

/* Time from one sample to the next. */
uint64_t sampling_period_ns(enum telemetry_pace pace, bool is_tight);

/* Is less than a tenth of the memory free? */
bool sampling_is_tight(const struct memory_reading *pool);
