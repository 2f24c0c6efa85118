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
 * Watch the GPUs among @executors, which are borrowed: free the telemetry before them. A software
 * GPU of which nothing can be known is not mentioned.
 * Return: as telemetry_new().
 */
int watch_devices(struct executor *const *executors, uint32_t n_executors, struct waker *waker,
		  struct telemetry **ret);

/*
 * Tell @leases the name of each GPU's memory in the kernel's dmem controller. If @name is not
 * empty, it is the name for all GPUs.
 */
void watch_name_memory(struct executor *const *executors, uint32_t n_executors, const char *name,
		       struct leases *leases);
