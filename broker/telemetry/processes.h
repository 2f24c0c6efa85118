#pragma once
/* SPDX-License-Identifier: MIT */
/* Users of the devices: DRM descriptors of processes, from /proc */
#include <stdbool.h>
#include <stdint.h>

#include "telemetry/telemetry.h"

struct processes;

/* Memory that this process holds on one device. */
struct process_use {
	struct reading vram_bytes, gtt_bytes;
};

/*
 * Prepare to watch the users of @n_devices devices. @root is "/proc" except in tests; borrowed
 * until free.
 * Return: 0 or -ENOMEM.
 */
int processes_new(const char *root, uint32_t n_devices, struct processes **ret);
struct processes *processes_free(struct processes *processes);

/* Set the PCI address of device @i, "0000:03:00.0"; empty: unknown, and no users are found. */
void processes_set_pci(struct processes *processes, uint32_t i, const char *pci);

/*
 * Examine all processes known to have DRM descriptors, and a part of the others; all others if
 * @is_thorough. Sets the list of processes, processes_ns and processes_are_partial of each
 * @readings[i], which may be NULL. A device without an address gets no list.
 */
void processes_look(struct processes *processes, uint64_t now_ns, bool is_thorough,
		    struct device_reading *const *readings);

/*
 * Get what this process holds now, of each device. It takes some microseconds, because only known
 * DRM descriptors are read. @is_new: search for new descriptors, which takes time proportional to
 * their number.
 */
void processes_own(struct processes *processes, bool is_new, struct process_use *ret);

/*
 * Return true if this process can see the use of all processes; false if those of other users are
 * hidden from it.
 */
bool processes_see_all(const struct processes *processes);

DEFINE_CLEANUP(struct processes *, processes_free)
