#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Spans on tracks that do not overlap
 *
 * A time line draws spans of time on tracks; those of one track must not overlap. Each kind of
 * track (what waits for device 1, say) gets as many lanes as are needed at once, and a span the
 * first lane that is free when it begins.
 */
#include <stddef.h>
#include <stdint.h>

/* A span: [began_ns, ended_ns). The caller fills all but lane. */
struct span {
	uint64_t began_ns, ended_ns;
	uint32_t track; /* of any number: lanes are counted for each by itself */
	uint32_t lane;  /* from 0 */
	uint64_t about; /* the caller's */
};

/*
 * Orders spans by beginning, the longer first where they begin together, and gives each a lane.
 * Return: 0; -ENOMEM.
 */
int timeline_assign(struct span *spans, size_t n_spans);
