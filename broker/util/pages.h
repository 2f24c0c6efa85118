#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Large mappings, a slice at a time
 *
 * Faulting in or unmapping gigabytes in one system call holds the address space's lock for its
 * whole duration. Every other thread that maps memory, or faults for the first time, waits for the
 * lock. These functions hold it for one slice at most. Any thread.
 */
#include <stdbool.h>
#include <stddef.h>

enum { PAGES_SLICE_BYTES = 2 << 20 };

/*
 * Fault in @bytes at @base, all of them pages of one mapping: for writing if @for_writing. Pages
 * that cannot be had are skipped, as with MAP_POPULATE; a later fault there raises the error.
 */
void pages_populate(void *base, size_t bytes, bool for_writing);

/* Unmap @bytes at @base, which may be NULL. */
void pages_unmap(void *base, size_t bytes);
