/* SPDX-License-Identifier: MIT */
/* See fail-alloc.h: the linker sends malloc() here and __real_malloc() to the library. */
#include "fail-alloc.h"

#include <errno.h>
#include <stdlib.h>

static _Thread_local unsigned int n_until_failure;
static _Thread_local bool has_failed;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_reallocarray(void *old, size_t n, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
int __real_posix_memalign(void **ret, size_t align, size_t bytes);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_reallocarray(void *old, size_t n, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
int __wrap_posix_memalign(void **ret, size_t align, size_t bytes);

void fail_alloc_at(unsigned int n)
{
	n_until_failure = n;
	has_failed = false;
}

bool fail_alloc_stop(void)
{
	n_until_failure = 0;
	return has_failed;
}

static bool is_failing(void)
{
	if (n_until_failure == 0 || --n_until_failure > 0)
		return false;
	has_failed = true;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t bytes)
{
	return is_failing() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return is_failing() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
	return is_failing() ? NULL : __real_realloc(old, bytes);
}

void *__wrap_reallocarray(void *old, size_t n, size_t bytes)
{
	return is_failing() ? NULL : __real_reallocarray(old, n, bytes);
}

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
	return is_failing() ? NULL : __real_aligned_alloc(align, bytes);
}

int __wrap_posix_memalign(void **ret, size_t align, size_t bytes)
{
	return is_failing() ? ENOMEM : __real_posix_memalign(ret, align, bytes);
}
