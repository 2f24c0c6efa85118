/* SPDX-License-Identifier: MIT */
/*
 * Mappings by slices
 *
 * MADV_POPULATE_* needs Linux 5.14. On earlier kernels, locking and unlocking a range would need a
 * privilege, touching a page may raise SIGBUS, and MADV_WILLNEED on shared memory reads only
 * swapped-out pages. So on those kernels pages are faulted in when they are touched.
 */
#include "util/pages.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

/* Calls for a slice for which the kernel lacks something for a moment */
enum { MOST_TRIES = 16 };

void pages_populate(void *base, size_t bytes, bool for_writing)
{
	const int advice = for_writing ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
	unsigned int n_tries;
	size_t done = 0, slice;
	int r;

	while (done < bytes) {
		slice = bytes - done < PAGES_SLICE_BYTES ? bytes - done : PAGES_SLICE_BYTES;
		n_tries = 0;
		do
			r = madvise((char *)base + done, slice, advice);
		while (r < 0 && (errno == EINTR || (errno == EAGAIN && ++n_tries < MOST_TRIES)));
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

	/* From the end, so that the rest stays one mapping. */
	while (base && bytes > 0) {
		slice = bytes % PAGES_SLICE_BYTES ? bytes % PAGES_SLICE_BYTES : PAGES_SLICE_BYTES;
		bytes -= slice;
		munmap((char *)base + bytes, slice);
	}
}
