#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * A time line as a picture: lanes of each device, and a bar per execution
 *
 * A bar's colour is that of its tenant or, if there is one tenant, that of its segment's number.
 */
#include <stdbool.h>
#include <stddef.h>

#include "timeline.h"

/* struct span.about of a bar; its track is the device, RBK_DEVICE_* */
static inline uint64_t trace_svg_about(unsigned int colour, bool is_part)
{
	return (uint64_t)colour << 1 | is_part;
}

/*
 * Write the last bars, in order of time, to standard output, with a legend of @n_names tenants;
 * 0: colours are of segments.
 * Return: 0; -ENOMEM or another negative errno.
 */
int trace_svg_write(struct span *bars, size_t n_bars, const char *const *names, size_t n_names);
