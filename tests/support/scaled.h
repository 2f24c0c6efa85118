#pragma once
/* SPDX-License-Identifier: MIT */
/* How much of a test is run. */

#include <stdint.h>

/*
 * @n times $RBK_TEST_SCALE percent (default 100), at least 1: sanitized runs are smaller, soak runs
 * larger. Any thread.
 */
uint64_t test_scaled(uint64_t n);
