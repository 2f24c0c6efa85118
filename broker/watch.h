#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Putting devices under telemetry
 */
#include <stdint.h>

#include "plan/executor.h"
#include "telemetry/telemetry.h"

/*
 * Watches the GPUs among @executors, which are borrowed: free the telemetry before them. As
 * telemetry_new(); a software GPU of which nothing can be known is not mentioned.
 */
int watch_devices(struct executor *const *executors, uint32_t n_executors, struct waker *waker,
		  struct telemetry **ret);
