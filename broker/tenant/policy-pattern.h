#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Patterns of cgroup paths
 *
 * A pattern is a path from the root: "/system.slice/web-*.service". A '*' stands for any
 * characters within one component, none included; a component that is "**" for any number of
 * components, none included. Everything else stands for itself. Any thread.
 */
#include <stdbool.h>
#include <stdint.h>

/* Is @pattern one? It begins with '/', has no empty component, and "**" only as a whole one. */
bool policy_pattern_is_valid(const char *pattern);

/*
 * Does all of @path, which begins with '/', match the valid @pattern? Takes time in proportion to
 * the product of their lengths at most, whatever they are.
 */
bool policy_pattern_matches(const char *pattern, const char *path);

/* Characters that are not wild: how specific the pattern is. */
uint32_t policy_pattern_literals(const char *pattern);
