#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Assignment of spans to lanes without overlap
 *
 * A time line draws spans of time on tracks. Spans of one lane must not overlap, so each track gets
 * as many lanes as it has concurrent spans. A span is placed on the first lane that is free when it
 * begins.
 */
#include <stddef.h>
#include <stdint.h>

/* A span: [began_ns, ended_ns). The caller fills all members but lane. */
struct span {
	uint64_t began_ns, ended_ns;
	uint32_t track; /* any number; lanes are counted per track */
	uint32_t lane;  /* lane within the track, from 0 */
	uint64_t about; /* private to the caller */
};

/*
 * Sort spans by beginning, the longer first if they begin together, and assign each a lane.
 * Return: 0, or -ENOMEM.
 */
int timeline_assign(struct span *spans, size_t n_spans);
