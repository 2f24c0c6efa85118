#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Numbers that drivers publish in sysfs
 */
#include <stdbool.h>
#include <stdint.h>

#include "telemetry/telemetry.h"

enum { SYSFS_PATH_BYTES = 320 };

struct sysfs {
	char device[SYSFS_PATH_BYTES]; /* "/sys/bus/pci/devices/0000:03:00.0" */
	char hwmon[SYSFS_PATH_BYTES];  /* its "hwmon/hwmonN"; empty: none */
};

/* Finds the folders of the device at @pci. @root is "/sys/bus/pci/devices" but in tests. */
void sysfs_init(struct sysfs *sysfs, const char *root, const char *pci);

/* One unsigned decimal number in a file of the device or of its sensors; absent if it is not. */
struct reading sysfs_read(const struct sysfs *sysfs, const char *name);
struct reading sysfs_read_hwmon(const struct sysfs *sysfs, const char *name);

/* Has runtime power management put the device to sleep? Asking it anything would wake it. */
bool sysfs_is_asleep(const struct sysfs *sysfs);
