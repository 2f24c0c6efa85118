#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Statistics pages in a file, for post-mortems and tests
 *
 * A recording holds pages, one after the other. A moment consists of the root page, if it was
 * permitted, and tenants' pages. A root page, or a page of a tenant that the moment already has,
 * begins the next moment.
 *
 * A page is stored in one of two forms. The compact form is a struct recording_page and the bytes
 * in which the page differs from an earlier one, or from zeros (recorder.c). The plain form, of
 * recordings before 0.1, is the page as it was in memory; its first word is RBK_STATS_MAGIC.
 */
#include <stdint.h>

#include "monitor/pages.h"

enum {
	RECORDING_E_END = 1,     /* end of the file */
	RECORDING_E_INVALID = 2, /* not a statistics page */
};

#define RECORDING_MAGIC 0x50525252u /* "RRRP" */

/* Head of a page in compact form. Everything is little endian. */
struct recording_page {
	uint32_t magic;      /* RECORDING_MAGIC */
	uint32_t kind;       /* enum rbk_stats_kind */
	uint32_t tenant;     /* number of the tenant whose page it is; 0: the root page */
	uint32_t data_bytes; /* bytes of the difference, which follow */
	uint64_t page_bytes; /* bytes of the page */
	uint64_t at_ns;      /* the broker's last update, on its own clock */
	/*
	 * Offset in the file of the page that this one differs from, which has compact form, the
	 * same size and no base itself; RECORDING_NO_BASE: zeros.
	 */
	uint64_t base;
};
#define RECORDING_NO_BASE UINT64_MAX

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
