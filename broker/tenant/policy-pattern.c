/* SPDX-License-Identifier: MIT */
/*
 * Matching cgroup paths
 *
 * The match is greedy and backtracks to one place per kind of wildcard. A later '*' makes the
 * earlier ones of its component final: if the rest matches at all, it matches after the first place
 * where the text between the two stars matches. The same holds for "**" and components. Only the
 * last wildcard is therefore ever retried, one character or component further, and no input takes
 * exponential time.
 */
#include "tenant/policy-pattern.h"

#include <stddef.h>
#include <string.h>

/* Return the length of the component that starts at @at. */
static size_t component_length(const char *at)
{
	return strcspn(at, "/");
}

static bool is_any_depth(const char *at, size_t length)
{
	return length == 2 && at[0] == '*' && at[1] == '*';
}

bool policy_pattern_is_valid(const char *pattern)
{
	size_t length;

	if (pattern[0] != '/')
		return false;
	if (pattern[1] == '\0')
		return true;
	do {
		pattern++;
		length = component_length(pattern);
		if (length == 0)
			return false;
		for (size_t i = 0; i + 1 < length; i++)
			if (pattern[i] == '*' && pattern[i + 1] == '*' && length != 2)
				return false;
		pattern += length;
	} while (*pattern);
	return true;
}

static bool component_matches(const char *pattern, size_t n_pattern, const char *text,
			      size_t n_text)
{
	size_t p = 0, t = 0, star = SIZE_MAX, star_t = 0;

	while (t < n_text) {
		if (p < n_pattern && pattern[p] == '*') {
			star = p++;
			star_t = t;
		} else if (p < n_pattern && pattern[p] == text[t]) {
			p++;
			t++;
		} else if (star != SIZE_MAX) {
			/* Retry with '*' matching one more character. */
			p = star + 1;
			t = ++star_t;
		} else {
			return false;
		}
	}
	while (p < n_pattern && pattern[p] == '*')
		p++;
	return p == n_pattern;
}

/* The root "/" has no component; any other path has one after each slash. */
static const char *first_component(const char *path)
{
	return path[1] ? path + 1 : NULL;
}

static const char *next_component(const char *at, size_t length)
{
	return at[length] == '/' ? at + length + 1 : NULL;
}

bool policy_pattern_matches(const char *pattern, const char *path)
{
	const char *p = first_component(pattern), *t = first_component(path);
	const char *deep = NULL, *deep_t = NULL;
	size_t n_p, n_t;

	while (t) {
		n_p = p ? component_length(p) : 0;
		n_t = component_length(t);
		if (p && is_any_depth(p, n_p)) {
			deep = p = next_component(p, n_p);
			deep_t = t;
			/* "**" at the end matches the rest of the path. */
			if (!p)
				return true;
		} else if (p && component_matches(p, n_p, t, n_t)) {
			p = next_component(p, n_p);
			t = next_component(t, n_t);
		} else if (deep) {
			/* Retry with "**" matching one more component. */
			p = deep;
			t = deep_t = next_component(deep_t, component_length(deep_t));
		} else {
			return false;
		}
	}
	while (p && is_any_depth(p, component_length(p)))
		p = next_component(p, component_length(p));
	return !p;
}

uint32_t policy_pattern_literals(const char *pattern)
{
	uint32_t n = 0;

	for (; *pattern; pattern++)
		n += *pattern != '*';
	return n;
}
