#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Statistics pages in a file, for post-mortems and tests
 *
 * A recording holds pages as they were in memory, one after the other. A moment consists of the
 * root page, if it was permitted, and tenants' pages. A root page, or a page of a tenant that the
 * moment already has, begins the next moment.
 */
#include <stdio.h>

#include "monitor/pages.h"

enum {
	RECORDING_E_END = 1,     /* end of the file */
	RECORDING_E_INVALID = 2, /* not a statistics page */
};

/*
 * Append all mapped pages.
 * Return: 0, or -errno.
 */
int recording_write(FILE *file, const struct pages *pages);

struct recording_moment {
	uint64_t offset, end; /* byte offsets in the file */
	uint64_t at_ns;       /* the broker's last update, on its own clock */
};

/*
 * Find the moment that begins at offset @at, reading little of it. Any file that supports pread()
 * will do.
 * Return: 0, RECORDING_E_*, -ENOMEM or -errno.
 */
int recording_find(int fd, uint64_t at, struct recording_moment *ret);

/*
 * Read a moment; the caller frees it with pages_unmap().
 * Return: 0, RECORDING_E_INVALID, -ENOMEM or -errno.
 */
int recording_read(int fd, const struct recording_moment *moment, struct pages *ret);
