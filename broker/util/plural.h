#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Counts in sentences
 *
 *     printf("%u session%s", n, plural(n));
 */
#include <stdint.h>

/* Return the suffix of the noun after @n. */
static inline const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}
