/* SPDX-License-Identifier: MIT */
/* Setting the placer up. */
#include "place/place.h"

void placer_init(struct placer *placer, uint32_t n_devices, uint64_t threshold_bytes)
{
	*placer = (struct placer){.n_devices = n_devices, .threshold_bytes = threshold_bytes};
}

void place_reset(struct placer *placer, unsigned int device)
{
	placer->n_failures[device] = 0;
}
