#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Parser of the kernel's text about one DRM descriptor: /proc/PID/fdinfo/FD
 *
 * The keys are those of the kernel's Documentation/gpu/drm-usage-stats.rst and amdgpu_fdinfo.c.
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
	char pdev[TELEMETRY_PCI_BYTES]; /* drm-pdev, "0000:03:00.0", in lower case */
	uint64_t client_id;        /* drm-client-id; descriptors with the same id are one client */
	struct reading vram_bytes; /* bytes in VRAM now */
	struct reading gtt_bytes;
	struct reading busy_ns; /* drm-engine-*, all engines together, since the client began */
};

/*
 * Parse @bytes of text, which need not end with NUL. A key that is malformed, too large or of an
 * unknown unit counts as missing, and so does a last line without its line end. Any thread.
 * Return: 0; FDINFO_E_NOT_DRM.
 */
int fdinfo_parse(const char *text, size_t bytes, struct fdinfo *ret);
