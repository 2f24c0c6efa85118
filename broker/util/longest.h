#pragma once
/* SPDX-License-Identifier: MIT */
/* A time of which the longest counts at once, and is forgotten slowly */
#include <stdint.h>

enum { LONGEST_FORGETS = 8 };

/* Follow @time, of which at most @most counts, all in one unit. */
static inline void longest_follow(uint64_t *longest, uint64_t time, uint64_t most)
{
	if (time > most)
		time = most;
	if (time > *longest)
		*longest = time;
	else
		*longest -= (*longest - time) / LONGEST_FORGETS;
}
