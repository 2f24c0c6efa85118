#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A time line as a picture: lanes of each device and a bar per execution; below, a row of each
 * lease
 *
 * A bar's colour is that of its tenant or, if there is one tenant, that of its segment's number, or
 * of its lease.
 */
#include <stddef.h>

#include "timeline.h"

/* Looks of a bar */
enum trace_svg_bar {
	TRACE_SVG_EXECUTION,
	TRACE_SVG_PART, /* the smaller part of a split task */
	TRACE_SVG_SLICE,
	TRACE_SVG_WAIT,    /* a lease waits for its device */
	TRACE_SVG_OVERDUE, /* a timeslice that did not end in time */
	TRACE_SVG_BARS,
};

/* Return struct span.about of a bar. */
static inline uint64_t trace_svg_about(unsigned int colour, enum trace_svg_bar bar)
{
	return (uint64_t)colour * TRACE_SVG_BARS + bar;
}

struct trace_svg {
	/*
	 * in order of time; track: the device, RBK_DEVICE_*, or RBK_MAX_DEVICES plus the row of a
	 * lease
	 */
	struct span *bars;
	size_t n_bars;
	const char *const *names; /* legend of tenants */
	size_t n_names;           /* 0: colours are of segments or leases */
	const char (*rows)[16];   /* names of leases */
	size_t n_rows;
};

/*
 * Write the last bars to standard output.
 * Return: 0; -ENOMEM or another negative errno.
 */
int trace_svg_write(struct trace_svg *picture);
