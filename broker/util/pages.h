#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Large mappings, a slice at a time
 *
 * Faulting in or unmapping gigabytes in one system call holds the address space's lock for as long
 * as that takes, and every other thread that maps something, or faults for the first time, waits
 * for it. These functions hold it for one slice at most. Any thread.
 */
#include <stdbool.h>
#include <stddef.h>

enum { PAGES_SLICE_BYTES = 2 << 20 };

/*
 * Faults in @bytes at @base, all of them pages of one mapping: for writing if @for_writing. Pages
 * that cannot be had are left out, as MAP_POPULATE does; a fault there says so later.
 */
void pages_populate(void *base, size_t bytes, bool for_writing);

/* Unmaps @bytes at @base. NULL is fine. */
void pages_unmap(void *base, size_t bytes);
