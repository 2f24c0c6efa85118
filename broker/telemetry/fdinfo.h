#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * What the kernel says of one DRM descriptor: /proc/PID/fdinfo/FD
 *
 * Keys as in the kernel's Documentation/gpu/drm-usage-stats.rst and amdgpu_fdinfo.c.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "telemetry/telemetry.h"

enum {
	FDINFO_E_NOT_DRM = 1, /* the text names no PCI device or no client */
	FDINFO_MAX_BYTES = 8192,
};

struct fdinfo {
	char pdev[TELEMETRY_PCI_BYTES]; /* drm-pdev, "0000:03:00.0", in small letters */
	uint64_t client_id;             /* drm-client-id; descriptors that share it are one user */
	struct reading vram_bytes;      /* what lies there now */
	struct reading gtt_bytes;
	struct reading busy_ns; /* drm-engine-*, all together, since the client came */
};

/*
 * Reads @bytes of text, which need not end with NUL. A key that is malformed, too large or of an
 * unknown unit is as if it were not there, and so is a last line without its end. Any thread.
 * Return: 0; FDINFO_E_NOT_DRM.
 */
int fdinfo_parse(const char *text, size_t bytes, struct fdinfo *ret);
