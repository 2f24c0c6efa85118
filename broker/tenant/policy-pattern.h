#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Patterns of cgroup paths
 *
 * A pattern is a path from the root: "/system.slice/web-*.service". A '*' matches any number of
 * characters within one component, including none. A component "**" matches any number of
 * components, including none. All other characters match themselves. Any thread.
 */
#include <stdbool.h>
#include <stdint.h>

/*
 * Return true if @pattern begins with '/', has no empty component, and has "**" only as a whole
 * component.
 */
bool policy_pattern_is_valid(const char *pattern);

/*
 * Return true if all of @path, which begins with '/', matches the valid @pattern. The time is at
 * most proportional to the product of the two lengths, whatever the contents.
 */
bool policy_pattern_matches(const char *pattern, const char *path);

/* Return the number of characters other than '*', a measure of how specific the pattern is. */
uint32_t policy_pattern_literals(const char *pattern);
