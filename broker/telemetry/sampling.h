#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The time from one sample of a device to the next
 */
#include <stdbool.h>
#include <stdint.h>

#include "telemetry/telemetry.h"

/* Factor by which the list of processes is made less often than other samples, mostly. */
enum { SAMPLING_PROCESSES_FACTOR = 10 };

/* Return the time from one sample to the next. */
uint64_t sampling_period_ns(enum telemetry_pace pace, bool is_tight);

/* Return the time from one list of processes to the next. */
uint64_t sampling_list_period_ns(enum telemetry_pace pace, bool is_tight);

/* Return true if less than a tenth of the memory is free. */
bool sampling_is_tight(const struct memory_reading *pool);
