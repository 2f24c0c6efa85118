#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Who uses the devices: DRM descriptors of processes, from /proc
 */
#include <stdbool.h>
#include <stdint.h>

#include "telemetry/telemetry.h"

struct processes;

/* What this process itself holds of one device. */
struct process_use {
	struct reading vram_bytes, gtt_bytes;
};

/*
 * Watches the users of @n_devices devices. @root is "/proc" but in tests; borrowed until free.
 * Return: 0 or -ENOMEM.
 */
int processes_new(const char *root, uint32_t n_devices, struct processes **ret);
struct processes *processes_free(struct processes *processes);

/* The address of device @i, "0000:03:00.0"; empty: unknown, then nobody is seen to use it. */
void processes_set_pci(struct processes *processes, uint32_t i, const char *pci);

/*
 * Looks at all processes known to have DRM descriptors, and at a part of the others; at all of them
 * if @is_thorough. Sets the list of processes, processes_ns and processes_are_partial of each
 * @readings[i]; a device without address has none. NULL: nobody wants to know.
 */
void processes_look(struct processes *processes, uint64_t now_ns, bool is_thorough,
		    struct device_reading *const *readings);

/*
 * What this process holds now, of each device: some microseconds, as only descriptors known to be
 * of DRM are read. @is_new: look for new ones, which takes time with their number.
 */
void processes_own(struct processes *processes, bool is_new, struct process_use *ret);

/* Can this process see what others use? Return: false if other users' are hidden from it. */
bool processes_see_all(const struct processes *processes);

DEFINE_CLEANUP(struct processes *, processes_free)
