/* SPDX-License-Identifier: MIT */
/*
 * Mappings by slices
 *
 * MADV_POPULATE_* came with Linux 5.14. Before that, locking a range and unlocking it again would
 * need a privilege, and touching a page may raise SIGBUS; MADV_WILLNEED on shared memory reads only
 * what was swapped out. So those kernels fault in later what is touched.
 */
#include "util/pages.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

void pages_populate(void *base, size_t bytes, bool for_writing)
{
	const int advice = for_writing ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
	size_t done = 0, slice;
	int r;

	while (done < bytes) {
		slice = bytes - done < PAGES_SLICE_BYTES ? bytes - done : PAGES_SLICE_BYTES;
		do
			r = madvise((char *)base + done, slice, advice);
		while (r < 0 && (errno == EINTR || errno == EAGAIN));
		if (r < 0 && errno == EINVAL) {
			madvise(base, bytes, MADV_WILLNEED);
			return;
		}
		done += slice;
	}
}

void pages_unmap(void *base, size_t bytes)
{
	size_t slice;

	/* From the end: what is left stays one mapping. */
	while (base && bytes > 0) {
		slice = bytes % PAGES_SLICE_BYTES ? bytes % PAGES_SLICE_BYTES : PAGES_SLICE_BYTES;
		bytes -= slice;
		munmap((char *)base + bytes, slice);
	}
}
