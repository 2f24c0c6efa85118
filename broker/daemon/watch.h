#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Putting devices under telemetry
 */
#include <stdint.h>

#include "lease/lease.h"
#include "plan/executor.h"
#include "telemetry/telemetry.h"

/*
 * Watches the GPUs among @executors, which are borrowed: free the telemetry before them. As
 * telemetry_new(); a software GPU of which nothing can be known is not mentioned.
 */
int watch_devices(struct executor *const *executors, uint32_t n_executors, struct waker *waker,
		  struct telemetry **ret);

/*
 * Tells @leases what the kernel's dmem controller calls the memory of each GPU; if @name is not
 * empty, that of all of them is called that.
 */
void watch_name_memory(struct executor *const *executors, uint32_t n_executors, const char *name,
		       struct leases *leases);
