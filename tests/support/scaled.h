#pragma once
/* SPDX-License-Identifier: MIT */
/* How much of a test is run. */

#include <stdint.h>

/*
 * @n times $RBK_TEST_SCALE percent (default 100), at least 1. Under sanitizers a fifth is run; in
 * soak tests more than all. For what is random: of what is enumerated the end would never be run.
 * Any thread.
 */
uint64_t test_scaled(uint64_t n);
