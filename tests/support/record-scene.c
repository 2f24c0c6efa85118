/* SPDX-License-Identifier: MIT */
/* record-scene SCENE MOMENTS FILE: write pages of stats-scene.h, for brokertop --page. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brokertop/recorder.h"
#include "support/stats-scene.h"

int main(int argc, char **argv)
{
	unsigned int n_moments = argc == 4 ? (unsigned int)atoi(argv[2]) : 0, scene = 0;
	FILE *file = n_moments ? fopen(argv[3], "w") : NULL;
	struct recorder recorder;
	struct pages pages;
	int r = 0;

	while (file && scene < STATS_SCENE_COUNT && strcmp(stats_scene_name(scene), argv[1]) != 0)
		scene++;
	if (!file || scene == STATS_SCENE_COUNT)
		return 2;
	recorder_init(&recorder, file);
	for (unsigned int i = 0; i < n_moments && r == 0; i++) {
		stats_scene_make(scene, i, &pages);
		r = recorder_write(&recorder, &pages);
		pages_unmap(&pages);
	}
	recorder_deinit(&recorder);
	return fclose(file) || r;
}
