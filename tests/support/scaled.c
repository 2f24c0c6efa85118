/* SPDX-License-Identifier: MIT */
/* See scaled.h. */
#include "support/scaled.h"

#include <stdlib.h>

uint64_t test_scaled(uint64_t n)
{
	const char *percent = getenv("RBK_TEST_SCALE");
	uint64_t scaled = percent ? n * strtoull(percent, NULL, 10) / 100 : n;

	return scaled ? scaled : 1;
}

bool test_is_scaled_down(void)
{
	return test_scaled(100) < 100;
}
