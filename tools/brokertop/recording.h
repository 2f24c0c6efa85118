#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Statistics pages in a file: for post-mortems, and for tests
 *
 * One page after the other, as they were in memory: of each moment the root page, if it was
 * permitted, and those of tenants. A root page, or a tenant that was there already, begins another
 * moment.
 */
#include <stdio.h>

#include "monitor/pages.h"

enum {
	RECORDING_E_END = 1,     /* there are no more */
	RECORDING_E_INVALID = 2, /* that is no page */
};

/* Appends what is mapped now. Return: 0; -errno. */
int recording_write(FILE *file, const struct pages *pages);

struct recording_moment {
	uint64_t offset, end; /* in the file */
	uint64_t at_ns;       /* the broker's last update, by its own clock */
};

/*
 * What moment begins at @at; little of it is read. Anything that can be read anywhere will do.
 * Return: 0; RECORDING_E_*; -ENOMEM; -errno.
 */
int recording_find(int fd, uint64_t at, struct recording_moment *ret);

/* Reads it, for pages_unmap(). Return: 0; RECORDING_E_INVALID; -ENOMEM; -errno. */
int recording_read(int fd, const struct recording_moment *moment, struct pages *ret);
