/* SPDX-License-Identifier: MIT */
/* Large mappings: no single system call works on more than one slice of a mapping */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/test.h"
#include "util/pages.h"

enum { PAGE = 4096 };

static struct {
	size_t n_calls, bytes, max_bytes;
	int error; /* errno of madvise(), or 0 */
} calls;

static void note_call(size_t bytes)
{
	calls.n_calls++;
	calls.bytes += bytes;
	if (bytes > calls.max_bytes)
		calls.max_bytes = bytes;
}

int __real_madvise(void *address, size_t bytes, int advice);
int __wrap_madvise(void *address, size_t bytes, int advice);
int __wrap_madvise(void *address, size_t bytes, int advice)
{
	note_call(bytes);
	if (calls.error) {
		errno = calls.error;
		return -1;
	}
	return __real_madvise(address, bytes, advice);
}

int __real_munmap(void *address, size_t bytes);
int __wrap_munmap(void *address, size_t bytes);
int __wrap_munmap(void *address, size_t bytes)
{
	note_call(bytes);
	return __real_munmap(address, bytes);
}

static void expect_calls(size_t bytes)
{
	assert_int_equal(calls.bytes, bytes);
	assert_in_range(calls.max_bytes, 1, PAGES_SLICE_BYTES);
	calls.n_calls = calls.bytes = calls.max_bytes = 0;
}

static size_t n_resident(void *base, size_t bytes)
{
	unsigned char *pages = malloc(bytes / PAGE);
	size_t n = 0;

	assert_non_null(pages);
	assert_int_equal(mincore(base, bytes, pages), 0);
	for (size_t i = 0; i < bytes / PAGE; i++)
		n += pages[i] & 1;
	free(pages);
	return n;
}

static void run_slices(size_t bytes, bool for_writing)
{
	int fd = memfd_create("pages", MFD_CLOEXEC);
	void *base;

	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	base = mmap(NULL, bytes, for_writing ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd,
		    0);
	assert_ptr_not_equal(base, MAP_FAILED);
	pages_populate(base, bytes, for_writing);
	expect_calls(bytes);
	assert_int_equal(n_resident(base, bytes), bytes / PAGE);
	pages_unmap(base, bytes);
	expect_calls(bytes);
	/* The range is no longer mapped. */
	assert_int_equal(msync(base, bytes, MS_ASYNC), -1);
	assert_int_equal(errno, ENOMEM);
	close(fd);
}

TEST(test_pages__slices)
{
	static const size_t sizes[] = {PAGE, PAGES_SLICE_BYTES - PAGE, PAGES_SLICE_BYTES,
				       PAGES_SLICE_BYTES + PAGE, 5 * PAGES_SLICE_BYTES + 3 * PAGE};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		run_slices(sizes[i], true);
		run_slices(sizes[i], false);
	}
}

/*
 * Check that a page that cannot be populated does not stop the next slice, and that an old kernel
 * is asked only once.
 */
TEST(test_pages__errors)
{
	static const struct {
		int error;
		size_t n_calls;
	} cases[] = {{ENOMEM, 3}, {EFAULT, 3}, {EINVAL, 2}};
	const size_t bytes = 3 * PAGES_SLICE_BYTES;
	void *base = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		calls.n_calls = 0;
		calls.error = cases[i].error;
		pages_populate(base, bytes, false);
		assert_int_equal(calls.n_calls, cases[i].n_calls);
	}
	calls.error = 0;
	calls.bytes = calls.max_bytes = 0;
	pages_unmap(base, bytes);
	expect_calls(bytes);
	pages_unmap(NULL, bytes);
	pages_populate(NULL, 0, true);
	assert_int_equal(calls.bytes, 0);
}

/* A kernel that lacks something for long is not asked for ever. */
TEST(test_populate__lack_lasts)
{
	enum { SLICES = 2 };
	void *base = mmap(NULL, SLICES * PAGES_SLICE_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(base, MAP_FAILED);
	calls.error = EAGAIN;
	pages_populate(base, SLICES * PAGES_SLICE_BYTES, true);
	assert_in_range(calls.n_calls, 2 * SLICES, 100 * SLICES);
	calls.error = 0;
	calls.n_calls = calls.bytes = calls.max_bytes = 0;
	pages_unmap(base, SLICES * PAGES_SLICE_BYTES);
	expect_calls(SLICES * PAGES_SLICE_BYTES);
}
