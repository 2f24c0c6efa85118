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

/* Reads the next moment, for pages_unmap(). Return: 0; RECORDING_E_*; -ENOMEM; -errno. */
int recording_read(FILE *file, struct pages *ret);
