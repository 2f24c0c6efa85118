#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Failing allocations
 *
 * A test that links with fail_alloc_dep sends every allocation of the code under test through this
 * file (the linker's --wrap). Allocations inside shared libraries are not affected. The state is
 * per thread. The idiom:
 *
 *   for (unsigned int n = 1;; n++) {
 *       fail_alloc_at(n);
 *       r = thing_new(&thing);
 *       if (!fail_alloc_stop())
 *           break;
 *       assert_int_equal(r, -ENOMEM);
 *   }
 *   (here thing_new() has succeeded, with n - 1 allocations)
 */
#include <stdbool.h>

/* Let the @n-th allocation from now fail, counted from 1. All others succeed. */
void fail_alloc_at(unsigned int n);

/*
 * Let all allocations succeed again.
 * Return: true if an allocation has failed.
 */
bool fail_alloc_stop(void);
