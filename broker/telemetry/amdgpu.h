#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * One amdgpu device, asked through libdrm_amdgpu
 *
 * Where libdrm was left out of the build, no device is found and amdgpu_is_built() is false.
 */
#include <stdbool.h>
#include <stddef.h>

#include "telemetry/telemetry.h"

struct amdgpu;

enum {
	AMDGPU_E_NONE = 1,     /* open: the kernel has no amdgpu device like that */
	AMDGPU_E_UNUSABLE = 2, /* open: it has, but it cannot be asked; see @ret_why */
	AMDGPU_E_GONE = 3,     /* sample: unplugged since it was opened; free it */
};

bool amdgpu_is_built(void);

/*
 * The amdgpu devices that the kernel has, with index 0 and no driver; at most @max are stored.
 * Return: how many were stored.
 */
unsigned int amdgpu_list(struct telemetry_device *ret, unsigned int max);

/*
 * Opens the device with the PCI address or render node of @device (the address, if it has both),
 * and enters what was not known: unplugged and plugged in again, it is known by its address.
 * @ret_why, with AMDGPU_E_UNUSABLE: words for people, "/dev/dri/renderD128: Permission denied".
 * Return: 0; AMDGPU_E_NONE; AMDGPU_E_UNUSABLE; negative errno.
 */
int amdgpu_open(struct telemetry_device *device, struct amdgpu **ret,
		char ret_why[static TELEMETRY_WHY_BYTES]);
struct amdgpu *amdgpu_free(struct amdgpu *amdgpu);

/* Where it is. Valid as long as @amdgpu. */
const char *amdgpu_pci(const struct amdgpu *amdgpu);

/* Asleep by runtime power management: a sample would wake it. */
bool amdgpu_is_asleep(const struct amdgpu *amdgpu);

/*
 * Memory, counters and losses, in some microseconds: sets vram, visible_vram and gtt without own,
 * n_evictions, bytes_moved, n_page_faults, is_integrated. @ret_n_vram_lost: the driver's count of
 * losses of contents, absent where it has none. @ret_was_reset: since the last call.
 * Return: 0; AMDGPU_E_GONE.
 */
int amdgpu_sample(struct amdgpu *amdgpu, struct device_reading *reading,
		  struct reading *ret_n_vram_lost, bool *ret_was_reset);

/* Sets load, clocks, temperature and power. Some cards take a large part of a second. */
void amdgpu_sample_sensors(struct amdgpu *amdgpu, struct device_reading *reading);

DEFINE_CLEANUP(struct amdgpu *, amdgpu_free)
