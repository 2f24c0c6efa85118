#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Where sliding windows lie, along one dimension. Included by the kernel sources only.
 */
#include <stddef.h>
#include <stdint.h>

static inline size_t window_min(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Taps [*begin, *end) of a window at output position @o fall into [0, limit). */
static inline void window_taps(size_t o, size_t stride, size_t pad, size_t dilation, size_t kernel,
			       size_t limit, size_t *begin, size_t *end)
{
	const int64_t at = (int64_t)(o * stride) - (int64_t)pad;

	*begin = at < 0 ? ((size_t)-at + dilation - 1) / dilation : 0;
	*end = at >= (int64_t)limit
		       ? 0
		       : window_min(kernel, (size_t)((int64_t)limit - 1 - at) / dilation + 1);
	if (*begin > *end)
		*begin = *end;
}

/* Output positions [*begin, *end) of one row for which tap @tap falls into [0, limit). */
static inline void window_positions(size_t tap, size_t stride, size_t pad, size_t dilation,
				    size_t n, size_t limit, size_t *begin, size_t *end)
{
	const int64_t at = (int64_t)(tap * dilation) - (int64_t)pad;

	*begin = at < 0 ? window_min(n, ((size_t)-at + stride - 1) / stride) : 0;
	*end = at >= (int64_t)limit ? 0
				    : window_min(n, (size_t)((int64_t)limit - 1 - at) / stride + 1);
	if (*end < *begin)
		*end = *begin;
}
