#pragma once
/* SPDX-License-Identifier: MIT */
/* The part of a test that is run. */

#include <stdbool.h>
#include <stdint.h>

/*
 * Return @n times $RBK_TEST_SCALE percent (default 100), at least 1. A sanitizer build runs a
 * fifth; a soak test runs more than 100 percent. Use it for random cases only: scaled-down
 * enumerations would never reach their end. Any thread.
 */
uint64_t test_scaled(uint64_t n);

/*
 * Return true if $RBK_TEST_SCALE is below 100, as in a sanitizer build. Such a run may leave out
 * enumerated cases that differ from others only in numbers. Any thread.
 */
bool test_is_scaled_down(void);
