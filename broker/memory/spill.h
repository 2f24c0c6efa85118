#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Noticing that a driver has moved our memory
 *
 * Drivers let memory be allocated in "device memory or the host's", and move it to the host's when
 * somebody else needs the room. amdgpu before Linux 6.10 never moves such memory back by itself, so
 * a model would stay slow for ever. All that can be seen is that the kernel counts less device
 * memory as ours than was allocated there.
 */
#include <stdbool.h>
#include <stdint.h>

/* Less than that is not noticed. */
#define SPILL_BYTES (4ull << 20)

enum {
	SPILL_SAMPLES = 3, /* in a row: a sample and a load that meet are no spill */
};

/* All zero to begin with. */
struct spill {
	uint64_t allocated_bytes; /* at the last sample */
	uint32_t n_short;         /* samples in a row */
	bool is_noticed;
	bool is_hopeless; /* everything was made anew, in vain */
	uint64_t since_ns;
	uint64_t missing_bytes; /* at the last sample */
	uint64_t n_spills;      /* ever noticed */
};

enum spill_event {
	SPILL_NOTHING,
	SPILL_NOTICED,
	SPILL_MENDED, /* or freed */
};

/*
 * A new sample, taken since the last call: @own_bytes by the kernel's count, @allocated_bytes by
 * ours.
 */
enum spill_event spill_sample(struct spill *spill, uint64_t own_bytes, uint64_t allocated_bytes,
			      uint64_t now_ns);
/* Do the next samples decide something? Then they should come soon. */
bool spill_is_open(const struct spill *spill);
/* After a sample: is it certain enough, once more, that something is missing? */
bool spill_wants_mending(const struct spill *spill);
/* Something was made anew (@is_hopeless: there was nothing left): wait what the samples say. */
void spill_tried(struct spill *spill, bool is_hopeless);
