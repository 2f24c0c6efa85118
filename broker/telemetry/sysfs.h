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

/* Find the folders of the device at @pci. @root is "/sys/bus/pci/devices" except in tests. */
void sysfs_init(struct sysfs *sysfs, const char *root, const char *pci);

/*
 * Read one unsigned decimal number from a file of the device or of its sensors. Return: absent if
 * there is no such number.
 */
struct reading sysfs_read(const struct sysfs *sysfs, const char *name);
struct reading sysfs_read_hwmon(const struct sysfs *sysfs, const char *name);

/* Return true if runtime power management has suspended the device. A query would wake it. */
bool sysfs_is_asleep(const struct sysfs *sysfs);
