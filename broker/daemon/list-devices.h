#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * brokerd --list-devices
 */
#include <stdint.h>
#include <stdio.h>

#include "calibrate/profiles.h"
#include "plan/executor.h"
#include "telemetry/telemetry.h"

enum list_devices_format {
	LIST_DEVICES_NO, /* not asked for */
	LIST_DEVICES_TEXT,
	LIST_DEVICES_JSON,
};

/*
 * Print each device with its profile and its last sample. brokerd(8) describes both formats.
 * Return: 0; negative errno, such as -EIO, if @file could not be written.
 */
int list_devices(FILE *file, enum list_devices_format format, struct executor *const *executors,
		 uint32_t n_executors, const struct profiles *profiles,
		 const struct telemetry *telemetry);
