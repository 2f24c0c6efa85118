/* SPDX-License-Identifier: MIT */
/*
 * Detection of device memory that the driver moved to the host: see spill.h.
 *
 * A sample is older than the broker's own count, so a sample taken during a load shows less memory
 * than is allocated. Therefore a spill needs several samples in a row during which nothing was
 * allocated or freed.
 */
#include "memory/spill.h"

enum spill_event spill_sample(struct spill *spill, uint64_t own_bytes, uint64_t allocated_bytes,
			      uint64_t now_ns)
{
	bool is_steady = allocated_bytes == spill->allocated_bytes;

	spill->allocated_bytes = allocated_bytes;
	spill->missing_bytes = allocated_bytes > own_bytes ? allocated_bytes - own_bytes : 0;
	if (spill->missing_bytes < SPILL_BYTES) {
		spill->n_short = 0;
		if (!spill->is_noticed)
			return SPILL_NOTHING;
		spill->is_noticed = spill->is_hopeless = false;
		return SPILL_MENDED;
	}
	/* The first sample of a series is only compared with. */
	spill->n_short = is_steady ? spill->n_short + 1 : 0;
	if (spill->is_noticed || spill->n_short < SPILL_SAMPLES)
		return SPILL_NOTHING;
	spill->is_noticed = true;
	spill->since_ns = now_ns;
	return SPILL_NOTICED;
}

bool spill_is_open(const struct spill *spill)
{
	return spill->missing_bytes >= SPILL_BYTES && !spill->is_hopeless;
}

bool spill_wants_mending(const struct spill *spill)
{
	return spill->is_noticed && !spill->is_hopeless && spill->n_short >= SPILL_SAMPLES;
}

void spill_tried(struct spill *spill, bool is_hopeless)
{
	spill->n_short = 0;
	spill->is_hopeless = is_hopeless;
}
