#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * One amdgpu device, queried through libdrm_amdgpu
 *
 * In a build without libdrm, no device is found and amdgpu_is_built() is false.
 */
#include <stdbool.h>
#include <stddef.h>

#include "telemetry/telemetry.h"

struct amdgpu;

enum {
	AMDGPU_E_NONE = 1,     /* open: the kernel has no such amdgpu device */
	AMDGPU_E_UNUSABLE = 2, /* open: the device exists, but cannot be queried; see @ret_why */
	AMDGPU_E_GONE = 3,     /* sample: unplugged since it was opened; free it */
};

bool amdgpu_is_built(void);

/*
 * List the kernel's amdgpu devices, with index 0 and without a driver.
 * Return: the number of stored devices, at most @max.
 */
unsigned int amdgpu_list(struct telemetry_device *ret, unsigned int max);

/*
 * Open the device with the PCI address of @device, or without one with its render node, and enter
 * the PCI address into @device: a device that was unplugged and plugged in again is found by it.
 * @ret_why, with AMDGPU_E_UNUSABLE, is for people: "/dev/dri/renderD128: Permission denied".
 * Return: 0; AMDGPU_E_NONE; AMDGPU_E_UNUSABLE; negative errno.
 */
int amdgpu_open(struct telemetry_device *device, struct amdgpu **ret,
		char ret_why[static TELEMETRY_WHY_BYTES]);
struct amdgpu *amdgpu_free(struct amdgpu *amdgpu);

/* Return the device's PCI address, valid as long as @amdgpu. */
const char *amdgpu_pci(const struct amdgpu *amdgpu);

/* Return true if runtime power management has suspended the device: a sample would wake it. */
bool amdgpu_is_asleep(const struct amdgpu *amdgpu);

/*
 * Sample memory, counters and losses, in some microseconds. Sets vram, visible_vram and gtt without
 * own, n_evictions, bytes_moved, n_page_faults, is_integrated. @ret_n_vram_lost: the driver's count
 * of losses of contents, absent if it has none. @ret_was_reset: the device was reset since the last
 * call.
 * Return: 0; AMDGPU_E_GONE.
 */
int amdgpu_sample(struct amdgpu *amdgpu, struct device_reading *reading,
		  struct reading *ret_n_vram_lost, bool *ret_was_reset);

/* Sample load, clocks, temperature and power. Some cards take a large part of a second. */
void amdgpu_sample_sensors(struct amdgpu *amdgpu, struct device_reading *reading);

DEFINE_CLEANUP(struct amdgpu *, amdgpu_free)
