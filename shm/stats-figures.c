/* SPDX-License-Identifier: MIT */
/* Finding a figure by its name. */
#include "shm/stats-figures.h"

#include <string.h>

const struct figure *figure_find(const struct figure *figures, const char *json)
{
	for (; !figure_is_end(figures); figures++)
		if (figures->json && strcmp(figures->json, json) == 0)
			return figures;
	return NULL;
}
