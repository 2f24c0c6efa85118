#pragma once
/* SPDX-License-Identifier: MIT */
/* The part of a test that is run. */

#include <stdint.h>

/*
 * Return @n times $RBK_TEST_SCALE percent (default 100), at least 1. A sanitizer build runs a
 * fifth; a soak test runs more than 100 percent. Use it for random cases only: scaled-down
 * enumerations would never reach their end. Any thread.
 */
uint64_t test_scaled(uint64_t n);
