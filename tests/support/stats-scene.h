#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Statistics pages of brokers that there are not
 *
 * Scenes for tests of programs that read pages: the figures are made up, and always the same. Each
 * has moments a second apart, which begin at moment 0.
 */
#include <stdint.h>

#include "monitor/pages.h"

enum stats_scene {
	STATS_SCENE_THREE,   /* a card of 8 GiB that three tenants share */
	STATS_SCENE_CPU,     /* no GPU, one tenant */
	STATS_SCENE_OWN,     /* what one of the three sees */
	STATS_SCENE_MANY,    /* 1,000 tenants, 10,000 sessions, 4 GPUs */
	STATS_SCENE_HOSTILE, /* names and figures as a page must not have them */
	STATS_SCENE_COUNT,
};

/* NULL: there is no such scene. */
const char *stats_scene_name(unsigned int scene);

/* Makes the pages of a moment, for pages_unmap(). Aborts without memory. */
void stats_scene_make(enum stats_scene scene, unsigned int moment, struct pages *ret);
