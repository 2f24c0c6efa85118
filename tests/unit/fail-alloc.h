#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Failing allocations
 *
 * Link a test with fail_alloc_dep, and every allocation that the code under test makes goes through
 * here (the linker's --wrap; allocations inside shared libraries do not). Per thread. The idiom:
 *
 *	for (unsigned int n = 1;; n++) {
 *		fail_alloc_at(n);
 *		r = thing_new(&thing);
 *		if (!fail_alloc_stop())
 *			break;
 *		assert_int_equal(r, -ENOMEM);
 *	}
 *	(here thing_new() has succeeded, with n - 1 allocations)
 */
#include <stdbool.h>

/* The @n-th allocation from now on fails, counted from 1; those before and after succeed. */
void fail_alloc_at(unsigned int n);

/* Back to normal. Return: did an allocation fail? */
bool fail_alloc_stop(void);
