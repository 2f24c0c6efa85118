#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Statistics pages of imaginary brokers
 *
 * Scenes for tests of programs that read pages: the figures are invented and constant. The moments
 * of a scene are one second apart and begin at 0.
 */
#include <stdint.h>

#include "monitor/pages.h"

enum stats_scene {
	STATS_SCENE_THREE,   /* a card of 8 GiB that three tenants share */
	STATS_SCENE_CPU,     /* no GPU, one tenant */
	STATS_SCENE_OWN,     /* page of one of the three tenants */
	STATS_SCENE_MANY,    /* 1,000 tenants, 10,000 sessions, 4 GPUs */
	STATS_SCENE_HOSTILE, /* names and figures that a page must not have */
	STATS_SCENE_COUNT,
};

/* Return the scene's name; NULL if there is no such scene. */
const char *stats_scene_name(unsigned int scene);

/* Make the pages of a moment; the caller frees them with pages_unmap(). Aborts without memory. */
void stats_scene_make(enum stats_scene scene, unsigned int moment, struct pages *ret);
